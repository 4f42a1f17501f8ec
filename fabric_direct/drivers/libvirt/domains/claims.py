"""Which domain claims which PCI function.

libvirt itself lets two domains claim one device, so all domains of the host are read before each
attach: their live XML and their definitions, ours and others'.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls.forks import cached_property
from fabric_direct.drivers.contract import DeviceDomain, DeviceRecord
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.xml import attribute
from fabric_direct.model import PciAddress, Stamp

# Elements of a domain that take a PCI function away from its host, and words that any of them contains.
_TAKERS = {("hostdev", "pci"), ("interface", "hostdev"), ("disk", "nvme")}
_WORDS = ("hostdev", "nvme")


@dataclass(frozen=True, slots=True)
class FunctionClaim:
    """A PCI function that a domain has."""

    address: PciAddress
    domain: str
    """Name of the domain."""
    uuid: str
    alias: str
    """Alias of the device; empty if it has none."""
    live: bool | None = None
    """Whether it was read in the live XML; None in the definition of a domain that does not run."""

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
    adopted: bool = False
    """Whether the alias is that of its record: in the domain it has none of ours."""


Adopted = Mapping[PciAddress, str]
"""Functions that others plugged into a domain, each with the alias that it would have."""


class _Xml:
    """The XML of a domain by scope, and its stamp: parsed once, when they are first asked for."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts = texts

    @cached_property
    def roots(self) -> dict[int, ElementTree.Element]:
        return {scope: ElementTree.fromstring(text) for scope, text in self.texts.items()}

    @cached_property
    def stamp(self) -> Stamp | None:
        return lookup.stamp_in(self.roots[libvirt.VIR_DOMAIN_AFFECT_CONFIG])


class DomainReading:
    """The XML of a domain at one point in time: as defined and, if it runs, live.

    :param adopted: returns what was adopted of it; asked only if a device has no alias of ours.
    """

    def __init__(
        self,
        domain: libvirt.virDomain,
        xml: _Xml | None = None,
        adopted: Callable[[], Adopted] = dict,
    ) -> None:
        self.domain = domain
        self._xml = _Xml(lookup.definitions(domain)) if xml is None else xml
        self._adopted = adopted

    def knowing(self, adopted: Callable[[], Adopted]) -> "DomainReading":
        """Return the same reading, with what was adopted of the domain."""
        return DomainReading(self.domain, self._xml, adopted)

    def again(self) -> "DomainReading":
        """Read the same domain once more."""
        return DomainReading(self.domain, adopted=self._adopted)

    def as_defined(self) -> "DomainReading":
        """Return the same domain without its live XML."""
        config = libvirt.VIR_DOMAIN_AFFECT_CONFIG
        return DomainReading(self.domain, _Xml({config: self._xml.texts[config]}), self._adopted)

    @property
    def scopes(self) -> tuple[int, ...]:
        """``VIR_DOMAIN_AFFECT_CONFIG``, and ``VIR_DOMAIN_AFFECT_LIVE`` if it runs."""
        return tuple(self._xml.texts)

    @property
    def roots(self) -> dict[int, ElementTree.Element]:
        """Its XML by scope."""
        return self._xml.roots

    @property
    def stamp(self) -> Stamp | None:
        """Its stamp; None if it carries none that can be read."""
        return self._xml.stamp

    def named(self) -> str | None:
        """Return the name that its stamp gives the domain; None if it carries none."""
        return lookup.domain_name(self.stamp.sliver) if self.stamp else None

    @cached_property
    def adopted(self) -> Adopted:
        """Return the adopted functions of the domain, each with the alias that it would have."""
        return self._adopted()

    def takers(self) -> Iterator[Taker]:
        """Yield the devices that pass a PCI function through, adopted ones with their record's alias."""
        for taker in self._takers():
            alias = "" if taker.alias.startswith(lookup.OURS) else self.adopted.get(taker.address)
            yield replace(taker, alias=alias, adopted=True) if alias else taker

    def _takers(self) -> Iterator[Taker]:
        # Most domains have none, and reading XML takes as long as getting it.
        if any(word in text for text in self._xml.texts.values() for word in _WORDS):
            for scope, root in self.roots.items():
                yield from _takers(root, scope)


def uuid_of(tenant: DeviceDomain) -> str:
    """Return the UUID of a tenant's domain: the cloud's own, or the one derived from the sliver's id."""
    return tenant.domain or str(lookup.domain_uuid(tenant.sliver))


def read_domains(connection: libvirt.virConnect) -> tuple[DomainReading, ...]:
    """Read all domains of the host: one call to list them, one for each, one more if it runs.

    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    readings = []
    for domain in connection.listAllDomains():
        with lookup.absent_domain_is_fine():
            readings.append(DomainReading(domain))
    return tuple(readings)


def claims(readings: Iterable[DomainReading]) -> tuple[FunctionClaim, ...]:
    """Return what these domains claim."""
    return tuple(
        FunctionClaim(t.address, domain.name(), domain.UUIDString(), t.alias, _live(reading, t))
        for reading in readings
        for domain in (reading.domain,)
        for t in reading.takers()
    )


def _live(reading: DomainReading, taker: Taker) -> bool | None:
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    return taker.scope == live if live in reading.scopes else None


def passed_through(text: str, address: PciAddress) -> ElementTree.Element | None:
    """Return the device of a domain's XML that passes this function through, if one does."""
    takers = _takers(ElementTree.fromstring(text), 0) if text else ()
    return next((taker.element for taker in takers if taker.address == address), None)


def with_adopted(
    found: Iterable[FunctionClaim], records: Mapping[PciAddress, DeviceRecord]
) -> tuple[FunctionClaim, ...]:
    """Return the claims, those of adopted functions with the aliases of their records."""
    return tuple(_with_adopted(claim, records.get(claim.address)) for claim in found)


def _with_adopted(claim: FunctionClaim, record: DeviceRecord | None) -> FunctionClaim:
    how = record.adopted if record else None
    foreign = not claim.alias.startswith(lookup.OURS)
    theirs = how is not None and how.domain == claim.uuid and foreign
    return replace(claim, alias=how.alias) if how and theirs else claim


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
