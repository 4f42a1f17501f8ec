"""Which domain has which PCI function, and the locks under which that is asked and changed.

libvirt itself lets two domains claim one device, so all domains of the host are asked before each
attach: their live XML and their definitions, ours and others'.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from xml.etree import ElementTree

import libvirt

from fabric_direct.deadline import Deadline
from fabric_direct.drivers.libvirt.domain import component_of, definitions, domain_uuid
from fabric_direct.locks import exclusive
from fabric_direct.model import PciAddress

# What in a domain takes a PCI function away from its host; the words that any of them is told by.
_TAKERS = {("hostdev", "pci"), ("interface", "hostdev"), ("disk", "nvme")}
_WORDS = ("hostdev", "nvme")


@dataclass(frozen=True, slots=True)
class Claim:
    """A PCI function that a domain has."""

    address: PciAddress
    domain: str
    """Name of the domain."""
    uuid: str
    alias: str
    """Alias of the device; empty if it has none."""
    scope: int
    """``VIR_DOMAIN_AFFECT_LIVE`` or ``VIR_DOMAIN_AFFECT_CONFIG``: where it was read."""

    @property
    def owner(self) -> str:
        """``<sliver>/<component>`` if the domain is a sliver's, else the domain's name."""
        for sliver in _slivers_in(self.alias):
            if str(domain_uuid(sliver)) == self.uuid:
                return f"{sliver}/{component_of(self.alias, sliver)}"
        return self.domain


@dataclass(frozen=True, slots=True)
class Reading:
    """A domain as it was read."""

    domain: libvirt.virDomain
    texts: dict[int, str]
    """Its XML by scope, see :func:`~fabric_direct.drivers.libvirt.domain.definitions`."""


def read_domains(connection: libvirt.virConnect) -> tuple[Reading, ...]:
    """Read all domains of the host: one call lists them, each takes one, and one more if it runs.

    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    readings = (_read(domain) for domain in connection.listAllDomains())
    return tuple(reading for reading in readings if reading is not None)


def claims(readings: Iterable[Reading]) -> tuple[Claim, ...]:
    """Return what these domains claim."""
    return tuple(
        Claim(address, reading.domain.name(), reading.domain.UUIDString(), alias, scope)
        for reading in readings
        for scope, text in reading.texts.items()
        for _, address, alias in takers(text)
    )


def takers(text: str) -> Iterator[tuple[ElementTree.Element, PciAddress, str]]:
    """Yield the devices in a domain's XML that pass a PCI function through: element, function, alias."""
    if not any(word in text for word in _WORDS):
        return
    for device in ElementTree.fromstring(text).iterfind("devices/*"):
        if (device.tag, device.get("type")) in _TAKERS:
            source, alias = device.find("source/address"), device.find("alias")
            if source is not None:
                label = alias.get("name", "") if alias is not None else ""
                yield device, pci_address(source), label


def pci_address(element: ElementTree.Element) -> PciAddress:
    """Return the PCI address in the hexadecimal attributes of an ``<address>``."""
    domain, bus, slot, function = (
        int(element.get(name, "0"), 16) for name in ("domain", "bus", "slot", "function")
    )
    return PciAddress(domain, bus, slot, function)


@contextmanager
def locked(
    directory: Path, host: str, addresses: Iterable[PciAddress], *, timeout: float
) -> Iterator[None]:
    """Be the only one, of all threads and processes with this directory, at work on the functions.

    :param timeout: seconds to wait for others, in all.
    :raises SliverBusy: if others are still at work on one of them then.
    """
    deadline = Deadline.within(timeout)
    with ExitStack() as stack:
        # All take them in the same order, so that no two wait for each other.
        for address in sorted(set(addresses)):
            path, what = directory / f"{host}-{address}.lock", f"device {address} of {host}"
            stack.enter_context(exclusive(path, what, timeout=deadline.remaining()))
        yield


def _read(domain: libvirt.virDomain) -> Reading | None:
    try:
        return Reading(domain, definitions(domain))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def _slivers_in(alias: str) -> Iterable[str]:
    """Return every beginning of ``ua-<sliver>-<component>-<n>`` that may be the sliver's id."""
    words = alias.removeprefix("ua-").split("-") if alias.startswith("ua-") else []
    return accumulate(words, "{}-{}".format)
