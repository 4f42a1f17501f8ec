"""Records of a host's devices, from before they are passed through until they are clean.

Each record is stored twice: below ``state_dir``, and on the host itself, where other machines that work
with the host find it, and which may outlive this one. A record in either place counts.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fabric_direct.drivers.contract import UNREADABLE, DeviceRecord
from fabric_direct.drivers.hosts.agent import record_files
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.errors import unusable
from fabric_direct.model import PciAddress
from fabric_direct.site.config import Site
from fabric_direct.state import files

# Where a host keeps its own records.
ON_HOST = "/var/lib/fabric-direct/devices"

_FORM = TypeAdapter(DeviceRecord)
Records = dict[PciAddress, DeviceRecord]


class DeviceRecords:
    """The records of one host's devices.

    Records of different devices may be written at the same time, by any number of processes.

    :param site: the site; its ``state_dir`` and its limit for a call.
    :param host: name of the worker.
    """

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._host = site, host
        self._directory = site.state_dir / "devices" / host

    def read(self) -> Records:
        """Return all records by address.

        A device is quarantined if either place says so, or if its record cannot be read. Where the two
        differ otherwise, the host's counts.

        :raises Unreachable: if the host does not answer: no device is known to be free then.
        """
        there = _parsed(self._on_host("read"), "on the host")
        here = _parsed(record_files.read(self._here()), "here")
        both = here.keys() & there.keys()
        return here | there | {address: _join(here[address], there[address]) for address in both}

    def own(self) -> tuple[DeviceRecord, ...]:
        """Return the records that are below our ``state_dir``, with what the host says of them.

        Another site that works with the host has records there, too: these are not ours.

        :raises Unreachable: if the host does not answer.
        """
        mine = _parsed(record_files.read(self._here()), "here")
        found = self.read()
        return tuple(found[address] for address in sorted(mine) if address in found)

    def write(self, record: DeviceRecord) -> None:
        """Write a record in both places, replacing the former one; it is on disk on return.

        :raises Unreachable: if the host does not answer; nothing is written here then.
        """
        name, text = str(record.address), _FORM.dump_json(record).decode()
        self._on_host("write", name=name, text=text)
        record_files.write(self._here(), name, text)

    def remove(self, address: PciAddress) -> None:
        """Remove a device's record in both places; it is gone on return.

        :raises Unreachable: if the host does not answer; the record here is kept then.
        """
        name = str(address)
        self._on_host("remove", name=name)
        record_files.remove(self._here(), name)

    def _here(self) -> str:
        """Return the directory on this machine.

        :raises DriverError: if another user has put a link in its place.
        """
        try:
            files.refuse_planted(self._directory.parent)
            files.refuse_planted(self._directory)
        except OSError as error:
            raise unusable("use the records of devices", self._directory, error) from error
        return str(self._directory)

    def _on_host(self, function: str, **arguments: str) -> Any:
        driver, limit = host_driver(self._site, self._host), self._site.limits.call
        return driver.call(
            f"record_files.{function}", timeout=limit, directory=ON_HOST, **arguments
        )


def same_component(record: DeviceRecord, records: Iterable[DeviceRecord]) -> tuple[PciAddress, ...]:
    """Return the functions of the record's component; none if the record does not name it."""
    return tuple(r.address for r in records if all(whose(r)) and whose(r) == whose(record))


def whose(record: DeviceRecord) -> tuple[str, str]:
    """Return sliver and component of a record; both are empty if it cannot be read."""
    return record.sliver, record.component


def _parsed(texts: dict[str, str | None], where: str) -> Records:
    """Parse records by their names; names that are not PCI addresses are ignored."""
    found: Records = {}
    for name, text in texts.items():
        try:
            address = PciAddress.parse(name)
        except ValueError:
            continue
        found[address] = _record(address, text, where)
    return found


def _record(address: PciAddress, text: str | None, where: str) -> DeviceRecord:
    try:
        record = _FORM.validate_json(text or "")
    except ValidationError:
        record = None
    if record is None or record.address != address:
        return DeviceRecord(
            address,
            type="",
            model=None,
            sliver="",
            component="",
            vendor="",
            product="",
            quarantined=f"its record {where} {UNREADABLE}",
        )
    return record


def _join(here: DeviceRecord, there: DeviceRecord) -> DeviceRecord:
    """Return the host's record, or ours if the host's cannot be read, with either's quarantine."""
    record = there if there.sliver or not here.sliver else here
    return replace(
        record,
        quarantined=there.quarantined or here.quarantined,
        baseline=there.baseline or here.baseline,
    )
