"""Find the owner of a device from server stamps: lost devices, and the servers that lack theirs.

A hard reboot by Nova rebuilds the domain without its devices, and a person may unplug one. The record on
the worker and the stamp of the server still name the device: it belongs to that sliver, with its data,
until the sliver gives it up. Others may clean only devices that no stamp names.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fabric_direct.drivers.contract import UNREADABLE, HostDevice, Server
from fabric_direct.errors import Conflict, DeviceClaimed, DeviceLost, Unreachable
from fabric_direct.model import DeviceState, PciAddress, State


@dataclass(frozen=True, slots=True)
class Owner:
    """A component of a server's stamp, which names a device."""

    server: Server
    component: str

    def __str__(self) -> str:
        """Return ``<sliver>/<component>``, as records do."""
        return f"{self.server.sliver}/{self.component}"

    @property
    def why(self) -> str:
        """Return why the device belongs to it, as a sentence."""
        return f"the stamp of server {self.server.instance} names it, and no domain has it"


Owners = Mapping[PciAddress, Owner]
"""Who has lost which devices of a host."""


def owner_of(
    host: str, address: PciAddress, servers: Iterable[Server], recorded: str | None = None
) -> Owner | None:
    """Return the owner of a function of a host; None if the stamp of no server names it.

    A server that has moved to another host still names the functions of the one in its stamp.

    :param recorded: ``<sliver>/<component>`` of its record: a stamp that names no host may be about the
        host of the record, or the one that the server is on.
    """
    for server in servers:
        named = server.stamp.sliver.host
        for device in server.stamp.sliver.devices():
            owner = Owner(server, device.id)
            here = (named or server.host) == host or (named is None and str(owner) == recorded)
            if here and address in device.bdf:
                return owner
    return None


def left_behind(devices: Iterable[HostDevice]) -> tuple[HostDevice, ...]:
    """Return the devices that are recorded and that no domain has: unclean, or lost."""
    return tuple(d for d in devices if d.state is DeviceState.UNCLEAN and d.owner)


def losers(host: str, devices: Iterable[HostDevice], servers: Iterable[Server]) -> Owners:
    """Return the owners of the devices of a host that are lost."""
    servers = tuple(servers)
    found = {d.address: owner_of(host, d.address, servers, d.owner) for d in left_behind(devices)}
    return {address: owner for address, owner in found.items() if owner}


def with_lost(devices: Iterable[HostDevice], lost: Owners) -> tuple[HostDevice, ...]:
    """Return the devices of a host, with the lost ones in that state, and what is bound to them."""
    return tuple(_with_lost(device, lost) for device in devices)


def _with_lost(device: HostDevice, lost: Owners) -> HostDevice:
    if owner := lost.get(device.address):
        why = f"{owner.why}; {_remedy(owner)}"
        return replace(device, state=DeviceState.LOST, why=why, owner=str(owner))
    bound = (a for a in (*device.peers, *device.function.virtual) if a in lost)
    other = next(bound, None) if device.state is DeviceState.UNCLEAN and not device.owner else None
    if other is None:
        return device
    return replace(device, state=DeviceState.LOST, why=f"{lost[other]} has lost {other}")


def with_doubt(devices: Iterable[HostDevice], error: Exception) -> tuple[HostDevice, ...]:
    """Return the devices of a host, where the stamps could not be read."""
    doubt = f"whether a server's stamp names it is not known: {error}"
    return tuple(
        replace(device, why=f"{device.why}; {doubt}") if left_behind([device]) else device
        for device in devices
    )


def _remedy(owner: Owner) -> str:
    sliver = owner.server.sliver
    return f"fabric-direct reconcile {sliver} gives it back; modify {sliver} without it to clean it"


# --- refusals


def refuse_owned(
    host: str, address: PciAddress, device: HostDevice | None, servers: Iterable[Server]
) -> None:
    """Raise DeviceLost if the stamp of a server names a function that is to be released.

    :param device: the function; None if it is not on the host any more.
    """
    owner = owner_of(host, address, servers, device.owner if device else None)
    if owner and not _is_given_up(device, owner):
        what = f"{address} is {owner}'s"
        raise DeviceLost(what, where=host, why=owner.why, remedy=_remedy(owner))


def _is_given_up(device: HostDevice | None, owner: Owner) -> bool:
    """Return whether the owner's own removal could not clean a device: a person is to release it."""
    if device is None or device.state is not DeviceState.QUARANTINED:
        return False
    return device.owner == str(owner) and not device.why.endswith(UNREADABLE)


def refuse_used(host: str, device: HostDevice | None) -> None:
    """Raise DeviceClaimed if a domain has a function that is to be released, or one bound to it."""
    if device and device.state is DeviceState.USED:
        raise DeviceClaimed(
            f"{device.address} is used",
            where=host,
            why=device.why or f"{device.owner} has it",
            remedy="detach it first",
        )


def refuse_remains(host: str, sliver: str, left: Iterable[str]) -> None:
    """Raise Conflict if there is still something of a server whose stamp cannot be read."""
    what = ", ".join(left)
    if what:
        raise Conflict(
            f"sliver {sliver} is not gone, which had the device last",
            where=host,
            why=f"there is {what}",
            remedy=f"delete it, and the device is cleaned: fabric-direct delete {sliver}",
        )


def sliver_of(device: HostDevice | None) -> str:
    """Return the sliver that had a device last; empty if no record can be read."""
    return (device.owner or "").rpartition("/")[0] if device else ""


def unknown_owner(host: str, address: PciAddress, error: Exception) -> Unreachable:
    """Return the error of a release while the stamps cannot be read."""
    return Unreachable(
        f"{address} is not released: it may be a living sliver's",
        where=host,
        why=f"whether a server's stamp names it is not known: {error}",
        remedy="see to it that the cloud and all hosts answer, then ask again",
    )


def refusal(owner: Owner, host: str, address: PciAddress, field: str) -> DeviceLost:
    """Return the refusal of a device that another sliver has lost."""
    remedy = "name another device"
    return DeviceLost(
        f"{address} is {owner}'s", where=host, why=owner.why, remedy=remedy, field=field
    )


# --- servers that lack devices


@dataclass(frozen=True, slots=True)
class Lack:
    """A function that the stamp of a server names, and that its domain does not have."""

    sliver: str
    component: str
    address: PciAddress
    why: str


@dataclass(frozen=True, slots=True)
class Lacks:
    """The functions that the servers of a site lack, and the hosts where that could not be seen."""

    found: tuple[Lack, ...] = ()
    unknown: Mapping[str, Exception] = field(default_factory=dict)
    """Hosts whose devices could not be read."""

    def of(self, server: Server) -> tuple[Lack, ...] | None:
        """Return what one server lacks; None if that is not known."""
        if server.stamp.sliver.devices() and host_of(server) in self.unknown:
            return None
        return tuple(lack for lack in self.found if lack.sliver == server.sliver)


def host_of(server: Server) -> str:
    """Return the host that a server is on; the one that its stamp names if the API does not tell."""
    return server.host or server.stamp.sliver.host or ""


def lacks(
    servers: Mapping[str, Iterable[Server]],
    devices: Mapping[str, Iterable[HostDevice] | Exception],
) -> Lacks:
    """Return what servers lack.

    :param servers: by the host that they are on.
    :param devices: of these hosts, or why they could not be read.
    """
    found: list[Lack] = []
    unknown: dict[str, Exception] = {}
    for host, there in devices.items():
        if isinstance(there, Exception):
            unknown[host] = there
        else:
            by_address = {device.address: device for device in there}
            found += (lack for s in servers[host] for lack in _lacks_of(s, by_address))
    return Lacks(tuple(found), unknown)


def _lacks_of(server: Server, there: Mapping[PciAddress, HostDevice]) -> Iterator[Lack]:
    for component in server.stamp.sliver.devices():
        for address in component.bdf:
            if why := _lack(server, there.get(address)):
                yield Lack(server.sliver, component.id, address, why)


def _lack(server: Server, device: HostDevice | None) -> str:
    """Return why a server does not have a function; empty if it has it."""
    named = server.stamp.sliver.host
    if named and server.host and named != server.host:
        return f"the server is on {server.host}, the device on {named}"
    if device is None:
        return f"{host_of(server)} does not have the device"
    own = [d for d in device.domains if server.instance in {d.name, d.uuid}]
    if not own:
        others = ", ".join(f"domain {domain.name}" for domain in device.domains)
        return f"{others or 'no domain'} has it"
    if server.state is State.RUNNING and own[0].live is False:
        return "the server gets it with its next start"
    return ""
