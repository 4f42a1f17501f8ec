"""Read the hosts of a site for placement, from their drivers.

site.yaml adds what no API reports: traits of a host, maintenance, and allocation ratios if the API has
none.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field

from fabric_direct.drivers.contract import HostDevice, HostDrivers, HostInventory
from fabric_direct.errors import FabricDirectError, Interrupted, NotFound
from fabric_direct.model import DeviceState, NodeSliver
from fabric_direct.placement.claims import HostClaim, depleted
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode
from fabric_direct.site.config import Host, Site

DriversOf = Callable[[str], HostDrivers]
_AT_ONCE = 32
"""Number of hosts that are read in parallel."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts of a site as they were read."""

    hosts: tuple[HostState, ...]
    """Sorted by name."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Hosts that are left out because they or their devices could not be read, and why."""
    began: float = field(default=0.0, compare=False)
    """Start of the reading, in seconds since the epoch."""

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each host that is left out."""
        return tuple(f"host {name} is left out: {why}" for name, why in self.silent.items())

    def where(self) -> dict[str, str]:
        """Return the host of each existing sliver."""
        return {sliver: host.name for host in self.hosts for sliver in host.slivers}

    def depleted(
        self, claims: Iterable[HostClaim], but: Iterable[NodeSliver] = ()
    ) -> tuple[HostState, ...]:
        """Return the hosts without what is claimed, ignoring the claims of the slivers ``but``."""
        own = {sliver.id for sliver in but}
        return depleted(self.hosts, [claim for claim in claims if claim.sliver not in own])


def host_states(site: Site, drivers_of: DriversOf, only: Collection[str] = ()) -> Inventory:
    """Return the state of each host of the site; hosts are read in parallel.

    For a cloud, these are the hosts that the site names, or all of the cloud's if it names none. Devices
    are known only for hosts that the site names.

    :param drivers_of: returns the drivers of a host, or of the cloud for an empty name, with the limits
        of the operation (:meth:`HostDrivers.within`); a host that does not answer within them is left
        out.
    :param only: the hosts to read; all if empty. Nobody waits for another one.
    :raises FabricDirectError: if a cloud does not answer, or denies access
        (:class:`~fabric_direct.errors.Denied`).
    """
    began = time.time()
    some = drivers_of(next(iter(site.hosts), "")).compute
    told = {each.host: each for each in some.inventory()} if some.cloud else None
    every = (site.hosts or told or {}) if site.serves_vms else {}
    names = [name for name in every if name in only or not only]

    def read(name: str) -> HostState | FabricDirectError:
        try:
            has = _inventory(name, drivers_of, told)
            # Last: of a driver of devices only the deadline limits a call, and a host may hang.
            return _host_state(site, has, drivers_of(name).functions())
        except Interrupted:
            raise
        except FabricDirectError as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-inventory") as pool:
        asked = {name: pool.submit(copy_context().run, read, name) for name in names}
        found = {name: answer.result() for name, answer in asked.items()}
    hosts = [state for _, state in sorted(found.items()) if isinstance(state, HostState)]
    silent = {name: str(e) for name, e in found.items() if isinstance(e, FabricDirectError)}
    return Inventory(tuple(hosts), silent, began)


def _inventory(
    name: str, drivers_of: DriversOf, told: Mapping[str, HostInventory] | None
) -> HostInventory:
    """Return the inventory of a host: what its cloud has ``told``, or without a cloud its own."""
    if told is None:
        return drivers_of(name).compute.inventory()[0]
    if name not in told:
        raise NotFound(f"the cloud has no host {name!r}", why=f"it has {', '.join(told)}")
    return told[name]


def _host_state(site: Site, has: HostInventory, devices: Iterable[HostDevice]) -> HostState:
    host, usual = site.hosts.get(has.host, Host()), site.placement.allocation
    return HostState(
        name=has.host,
        cores=has.cores,
        ram=_gib(has.ram),
        disk=has.disk,
        cores_used=has.cores_used,
        ram_used=_gib(has.ram_used),
        disk_used=has.disk_used,
        cpu_ratio=has.cpu_ratio if has.cpu_ratio is not None else usual.cpu,
        ram_ratio=has.ram_ratio if has.ram_ratio is not None else usual.ram,
        disk_ratio=has.disk_ratio if has.disk_ratio is not None else usual.disk,
        numa_nodes=tuple(NumaNode(n.id, n.cores, _gib(n.ram), n.distances) for n in has.nodes),
        devices=free_devices(devices, host),
        architectures=has.architectures,
        traits=has.traits | set(host.traits),
        images=has.images,
        slivers=has.slivers,
        enabled=has.enabled and host.maintenance is None,
        why_disabled=host.maintenance or has.why_disabled,
    )


def _gib(mib: int) -> float:
    return mib / 1024


def free_devices(devices: Iterable[HostDevice], host: Host) -> tuple[FreeDevice, ...]:
    """Return the free devices by address, each with all of its functions.

    A VF is a device, also one that the allow-list names by itself; all other functions of one type and
    model in one slot are one device. A device is free if all of its functions, and everything in their
    IOMMU groups, are free.

    :param host: its settings name the uplinks that are set to VEPA at their first use.
    """
    found = sorted(devices, key=lambda device: device.address)
    free = {device.address for device in found if device.state is DeviceState.FREE}
    groups: dict[object, list[HostDevice]] = {}
    for device in found:
        if device.type is not None:
            groups.setdefault(_whole(device), []).append(device)
    return tuple(
        _free_device(group, host)
        for group in groups.values()
        if all({each.address, *each.peers} <= free for each in group)
    )


def _whole(device: HostDevice) -> object:
    """Return a key that is equal for all functions of one device."""
    at = device.address
    if device.function.physical is not None or device.type == "SharedNIC":
        return at
    return device.type, device.model, at.slot_address


def _free_device(functions: list[HostDevice], host: Host) -> FreeDevice:
    first, wanted = functions[0], {entry.uplink for entry in host.devices if entry.vepa}
    return FreeDevice(
        type=str(first.type),
        functions=tuple(function.address for function in functions),
        model=first.model,
        numa_node=first.function.numa_node,
        uplink=first.uplink,
        vepa=first.uplink is not None and (first.bridge_mode == "vepa" or first.uplink in wanted),
    )
