"""Slivers with their NICs, volumes and devices, and the networks between them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabric_direct.drivers.contract import HostDevice, Server
from fabric_direct.engine.run import attempt
from fabric_direct.errors import NotFound
from fabric_direct.model import (
    Interface,
    Observed,
    ObservedDevice,
    Outcome,
    PciAddress,
    PciComponent,
    SharedNic,
    SliverRef,
    SmartNic,
    Storage,
    VNic,
)
from fabric_direct.model.references import interfaces_of
from fabric_direct.site.config import Site
from fabric_direct.topology.networks import Joins, is_plain, joins, networks
from fabric_direct.topology.reader import SiteReader
from fabric_direct.topology.values import AttachedVolume, Device, Network, Nic, SliverTopology, Vm
from fabric_direct.upkeep.services import SiteServices

UNKNOWN = "unknown"
"""The state of a VM that could not be read."""


def sliver_topology(reader: SiteReader, ids: Sequence[str]) -> SliverTopology:
    """Return slivers, VMs and network services, with what they have and are stitched to.

    Of VMs that are only stitched to them, the NIC is shown. A host that does not answer is named; a
    sliver that may be there is shown as unknown.

    :raises NotFound: if there is no such sliver, and all hosts answer.
    """
    found = _Found.look(reader)
    asked = tuple(dict.fromkeys(ids))
    _refuse_unknown(asked, found)
    seen = found.probed(reader, asked)
    keys = found.keys_of(asked)
    services = frozenset(key for key in keys if not is_plain(key))
    stitched = {sliver for key in services for sliver in found.joins.slivers(key)}
    others = sorted(stitched.difference(asked))
    vms = [_vm(sliver, found, seen.get(sliver)) for sliver in asked if not found.is_service(sliver)]
    return SliverTopology(
        site=reader.site.site,
        asked=asked,
        vms=(*vms, *(_stub(sliver, found, services) for sliver in others)),
        networks=tuple(_noted(n, seen) for n in found.networks(keys, asked)),
        silent={name: str(error) for name, error in found.silent.items()},
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The servers and services of a site."""

    site: Site
    servers: Mapping[str, Server]
    services: SiteServices
    joins: Joins
    silent: Mapping[str, Exception]
    uplinks: Callable[[str], Mapping[PciAddress, HostDevice]]

    @classmethod
    def look(cls, reader: SiteReader) -> "_Found":
        """Ask the site once."""
        drift, services = reader.drift(services=False), reader.services()
        servers = {server.sliver: server for server in drift.servers}
        met = joins(servers.values(), services.found, reader.site)
        silent = {**drift.silent, **services.silent}
        return cls(reader.site, servers, services, met, silent, _devices(reader))

    @property
    def doubt(self) -> str:
        """Return the message about a sliver that was not found and may exist."""
        return f"not found; no answer from {', '.join(self.silent)}"

    def is_service(self, sliver: str) -> bool:
        return any(each.ref.id == sliver for each in self.services.found)

    def keys_of(self, asked: Iterable[str]) -> tuple[str, ...]:
        """Return the networks of slivers, and those that are slivers themselves."""
        own = ((s,) if self.is_service(s) else self.joins.networks(s) for s in asked)
        return tuple(dict.fromkeys(key for each in own for key in each))

    def networks(self, keys: Iterable[str], asked: Iterable[str]) -> tuple[Network, ...]:
        return networks(keys, self.services, self.joins, self.site, asked)

    def probed(self, reader: SiteReader, asked: Iterable[str]) -> dict[str, Outcome]:
        """Return what is there of slivers, read at once; those that are known to be there.

        VMs are looked for on the host that their stamp names, and on no other.
        """
        refs: dict[str, SliverRef] = {each.ref.id: each.ref for each in self.services.found}
        refs |= {sliver: server.stamp.sliver for sliver, server in self.servers.items()}
        futures = {s: reader.probe(refs[s]) for s in asked if s in refs}
        return {sliver: future.result() for sliver, future in futures.items()}


def _refuse_unknown(asked: Iterable[str], found: _Found) -> None:
    known = {*found.servers, *(each.ref.id for each in found.services.found)}
    missing = [sliver for sliver in asked if sliver not in known]
    if missing and not found.silent:
        raise NotFound(
            f"no host or sliver {missing[0]!r}",
            where=f"site {found.site.site}",
            why=f"hosts: {_some(found.site.hosts)}; slivers: {_some(sorted(known))}",
        )


def _some(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


# --- VMs


def _vm(sliver: str, found: _Found, outcome: Outcome | None) -> Vm:
    server = found.servers.get(sliver)
    if server is None:
        return Vm(id=sliver, state=UNKNOWN, notes=(found.doubt,))
    wanted, seen = server.stamp.sliver, outcome.observed if outcome else None
    error = outcome.error.message if outcome and outcome.error else ""
    return Vm(
        id=sliver,
        name=wanted.name,
        state=seen.state.value if seen else UNKNOWN,
        host=server.host or wanted.host,
        instance=server.instance,
        cores=server.cores,
        ram=server.ram,
        image=wanted.image,
        nics=tuple(_nics(server, found, seen)),
        devices=tuple(_device_of(d, seen) for d in wanted.devices() if not _is_nic(d)),
        volumes=tuple(_volume(v, seen) for v in wanted.volumes()),
        notes=(*(seen.differences if seen else ()), *((error,) if error else ())),
    )


def _stub(sliver: str, found: _Found, keys: Collection[str]) -> Vm:
    """Return a VM with the NICs alone that are on these networks."""
    server = found.servers.get(sliver)
    if server is None:
        gone = ("absent", "a service names it, and it is not there")
        state, note = (UNKNOWN, found.doubt) if found.silent else gone
        parts = ((c, n, j) for (s, c, n), j in found.joins.of.items() if s == sliver)
        nics = tuple(Nic(component=c, number=n, type="NIC", joins=j) for c, n, j in parts)
        return Vm(id=sliver, state=state, asked=False, nics=nics, notes=(note,))
    nics = tuple(_nics(server, found, None))
    return Vm(
        id=sliver,
        name=server.stamp.sliver.name,
        state=server.state.value,
        host=server.host or server.stamp.sliver.host,
        asked=False,
        nics=tuple(nic for nic in nics if any(join.network in keys for join in nic.joins)),
    )


def _is_nic(component: PciComponent) -> bool:
    return isinstance(component, SharedNic | SmartNic)


def _nics(server: Server, found: _Found, seen: Observed | None) -> Iterator[Nic]:
    """Yield the NICs by the stamp, each with what was observed of it."""
    for component in server.stamp.sliver.components:
        met = {n: found.joins.of.get((server.sliver, component.id, n), ()) for n in range(32)}
        if isinstance(component, VNic):
            yield _vnic(component, seen).model_copy(update={"joins": met[0]})
        elif isinstance(component, SharedNic | SmartNic):
            on = server.host or server.stamp.sliver.host or ""
            there = found.uplinks(on)
            for number, interface in enumerate(_interfaces(component)):
                nic = _pci_nic(component, interface, there, seen)
                yield nic.model_copy(update={"number": number, "joins": met[number]})


def _interfaces(component: PciComponent) -> tuple[Interface, ...]:
    """Return a NIC's interfaces; a SmartNIC may have none, and is shown once."""
    return tuple(interface for _, interface in interfaces_of(component)) or (Interface(),)


def _vnic(component: VNic, seen: Observed | None) -> Nic:
    there = seen.interfaces if seen else ()
    nic = next((each for each in there if each.component == component.id), None)
    wanted = component.interface
    return Nic(
        component=component.id,
        type=component.type,
        network=component.network,
        mac=nic.mac if nic else wanted.mac,
        addresses=nic.addresses if nic and nic.addresses else _wanted(wanted),
        floating_ip=nic.floating_ip if nic else None,
        vlan=wanted.vlan,
        bandwidth=nic.bandwidth if nic else wanted.bandwidth,
        link=nic.link if nic else "up",
    )


def _wanted(interface: Interface) -> tuple[str, ...]:
    return tuple(str(address) for address in (interface.ipv4, interface.ipv6) if address)


def _pci_nic(
    component: PciComponent,
    interface: Interface,
    there: Mapping[PciAddress, HostDevice],
    seen: Observed | None,
) -> Nic:
    plugged = _plugged(component.id, seen)
    pci = tuple(device.host_address for device in plugged) or component.bdf
    device = next((there[address] for address in pci if address in there), None)
    first = plugged[0] if plugged else None
    return Nic(
        component=component.id,
        type=component.type,
        mac=interface.mac or (first.mac if first else None),
        addresses=_wanted(interface) or (first.guest_addresses if first else ()),
        vlan=interface.vlan or (first.vlan if first else None),
        bandwidth=interface.bandwidth or (first.bandwidth if first else None),
        pci=pci,
        uplink=device.uplink if device else getattr(component, "uplink", None),
        bridge_mode=device.bridge_mode if device else None,
    )


def _plugged(component: str, seen: Observed | None) -> tuple[ObservedDevice, ...]:
    return tuple(d for d in seen.devices if d.component == component) if seen else ()


def _device_of(component: PciComponent, seen: Observed | None) -> Device:
    plugged = _plugged(component.id, seen)
    return Device(
        component=component.id,
        type=component.type,
        model=component.model,
        pci=tuple(device.host_address for device in plugged) or component.bdf,
        guest_name=next((device.guest_name for device in plugged if device.guest_name), None),
    )


def _volume(storage: Storage, seen: Observed | None) -> AttachedVolume:
    there = seen.volumes if seen else ()
    disk = next((each for each in there if each.component == storage.id), None)
    return AttachedVolume(
        component=storage.id,
        size=(disk.size if disk else None) or storage.size,
        source=disk.source if disk else storage.volume or "",
        target=disk.target if disk else "",
        mounted=disk.mounted if disk else (),
    )


def _noted(network: Network, seen: Mapping[str, Outcome]) -> Network:
    """Return a network with the differences that its probe found."""
    outcome = seen.get(network.key)
    if outcome is None:
        return network
    found = outcome.observed.differences if outcome.observed else ()
    error = (outcome.error.message,) if outcome.error else ()
    return network.model_copy(update={"notes": (*network.notes, *found, *error)})


def _devices(reader: SiteReader) -> Callable[[str], Mapping[PciAddress, HostDevice]]:
    """Return what tells the functions of a host, each host asked once; none if they cannot be read."""
    known: dict[str, dict[PciAddress, HostDevice]] = {}

    def of(host: str) -> dict[PciAddress, HostDevice]:
        if host not in known:
            found = attempt(reader.devices, host)
            there = () if isinstance(found, Exception) else found
            known[host] = {device.address: device for device in there}
        return known[host]

    return of
