"""Cleans a device for its next tenant, and verifies it.

A drive is erased and read back; any other device is reset, and must answer with the same ids.
"""

from collections.abc import Collection
from typing import Any

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import DeviceRecord, HostDriver, PciFunction
from fabric_direct.drivers.hosts.functions import ANSWER
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.errors import NotVerified
from fabric_direct.model import PciAddress


def clean(
    host: HostDriver,
    record: DeviceRecord,
    functions: Collection[PciAddress],
    *,
    timeout: float,
) -> str:
    """Clean a device that no domain has any more, and return how, as a sentence.

    :param host: the worker that has it.
    :param record: the device as it was when it was passed through.
    :param functions: all functions of its component. Those without a reset of their own are reset
        together.
    :param timeout: seconds for all of it.
    :raises NotVerified: if it does not answer afterwards, or with other ids.
    :raises DriverError: if it cannot be erased or reset, or still holds data.
    :raises NotFound: if it does not exist.
    """
    deadline = Deadline.within(timeout)
    if record.type == "NVME":
        done = _erased(host, record, deadline)
    else:
        done = _reset(host, {record.address, *functions}, deadline)
    limit = deadline.remaining() + ANSWER
    _verify(record, survey(host, timeout=limit, named=(record.address,)))
    return done


def _erased(host: HostDriver, record: DeviceRecord, deadline: Deadline) -> str:
    address = str(record.address)
    host.call("pci.bind", timeout=deadline.remaining(), address=address)
    report = _timed(host, "nvme.erase", deadline, address=address)
    disks = ", ".join(report["namespaces"]) or "no disk"
    return f"{address} was erased ({disks}) by {report['method']}: {report['proof']}"


def _reset(host: HostDriver, functions: Collection[PciAddress], deadline: Deadline) -> str:
    methods = _timed(host, "pci.reset", deadline, addresses=sorted(map(str, functions)))
    return "; ".join(f"{address} was reset ({method})" for address, method in methods.items())


def _timed(host: HostDriver, function: str, deadline: Deadline, **arguments: Any) -> dict[str, Any]:
    """Call a function that enforces the time limit itself."""
    left = deadline.remaining()
    answer: dict[str, Any] = host.call(function, timeout=left + ANSWER, limit=left, **arguments)
    return answer


def _verify(record: DeviceRecord, there: dict[PciAddress, PciFunction]) -> None:
    """Raise NotVerified unless the device answers with the ids of its record."""
    found, where = there.get(record.address), str(record.address)
    if found is None or not found.alive:
        raise NotVerified("the device does not answer", where=where)
    if (found.vendor, found.product) != (record.vendor, record.product):
        raise NotVerified(
            "the device answers with other ids",
            where=where,
            why=f"{found.vendor}:{found.product}, not {record.vendor}:{record.product}",
        )
