"""Which domain claims which PCI function.

libvirt itself lets two domains claim one device, so all domains of the host are read before each
attach: their live XML and their definitions, ours and others'.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from xml.etree import ElementTree

import libvirt

from fabric_direct.drivers.contract import Tenant
from fabric_direct.drivers.libvirt.servers import lookup
from fabric_direct.drivers.libvirt.xml import attribute
from fabric_direct.forks import cached_property
from fabric_direct.model import PciAddress

# Elements of a domain that take a PCI function away from its host, and words that any of them contains.
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

    @property
    def owner(self) -> str:
        """``<sliver>/<component>`` if the domain is a sliver's, else the domain's name."""
        for sliver in _slivers_in(self.alias):
            if str(lookup.domain_uuid(sliver)) == self.uuid:
                return f"{sliver}/{lookup.component_of(self.alias, sliver)}"
        return self.domain


@dataclass(frozen=True, slots=True)
class Taker:
    """A device of a domain that passes a PCI function through."""

    element: ElementTree.Element
    address: PciAddress
    """The function on the host."""
    alias: str
    scope: int
    """``VIR_DOMAIN_AFFECT_LIVE`` or ``VIR_DOMAIN_AFFECT_CONFIG``: where it was read."""


class Reading:
    """The XML of a domain at one point in time: as defined and, if it runs, live."""

    def __init__(self, domain: libvirt.virDomain, texts: dict[int, str] | None = None) -> None:
        self.domain = domain
        self._texts = lookup.definitions(domain) if texts is None else texts

    def as_defined(self) -> "Reading":
        """Return the same domain without its live XML."""
        config = libvirt.VIR_DOMAIN_AFFECT_CONFIG
        return Reading(self.domain, {config: self._texts[config]})

    @property
    def scopes(self) -> tuple[int, ...]:
        """``VIR_DOMAIN_AFFECT_CONFIG``, and ``VIR_DOMAIN_AFFECT_LIVE`` if it runs."""
        return tuple(self._texts)

    @cached_property
    def roots(self) -> dict[int, ElementTree.Element]:
        """Its XML by scope."""
        return {scope: ElementTree.fromstring(text) for scope, text in self._texts.items()}

    def takers(self) -> Iterator[Taker]:
        """Yield the devices that pass a PCI function through."""
        # Most domains have none, and reading XML takes as long as getting it.
        if any(word in text for text in self._texts.values() for word in _WORDS):
            for scope, root in self.roots.items():
                yield from _takers(root, scope)


def uuid_of(tenant: Tenant) -> str:
    """Return the UUID of a tenant's domain: the cloud's own, or the one derived from the sliver's id."""
    return tenant.domain or str(lookup.domain_uuid(tenant.sliver))


def read_domains(connection: libvirt.virConnect) -> tuple[Reading, ...]:
    """Read all domains of the host: one call to list them, one for each, one more if it runs.

    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    readings = []
    for domain in connection.listAllDomains():
        with lookup.absent_domain_is_fine():
            readings.append(Reading(domain))
    return tuple(readings)


def claims(readings: Iterable[Reading]) -> tuple[Claim, ...]:
    """Return what these domains claim."""
    return tuple(
        Claim(t.address, reading.domain.name(), reading.domain.UUIDString(), t.alias)
        for reading in readings
        for t in reading.takers()
    )


def _takers(root: ElementTree.Element, scope: int) -> Iterator[Taker]:
    for device in root.iterfind("devices/*"):
        if (device.tag, device.get("type")) in _TAKERS:
            source = device.find("source/address")
            # A NIC on USB may be passed through as an interface as well.
            if source is not None and source.get("type", "pci") == "pci":
                label = attribute(device, "alias", "name") or ""
                yield Taker(device, pci_address(source), label, scope)


def address_in(element: ElementTree.Element) -> PciAddress | None:
    """Return where libvirt put a device or controller in the domain; None if it has not yet."""
    address = element.find("address[@type='pci']")
    return None if address is None else pci_address(address)


def pci_address(element: ElementTree.Element) -> PciAddress:
    """Return the PCI address in the hexadecimal attributes of an ``<address>``."""
    domain, bus, slot, function = (
        int(element.get(name, "0"), 16) for name in ("domain", "bus", "slot", "function")
    )
    return PciAddress(domain, bus, slot, function)


def _slivers_in(alias: str) -> Iterable[str]:
    """Return every prefix of ``<sliver>-<component>-<n>`` that may be the sliver's id."""
    words = alias.removeprefix("ua-").split("-") if alias.startswith("ua-") else []
    return accumulate(words, "{}-{}".format)
