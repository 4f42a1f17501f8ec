"""The hosts of a site as placement sees them, from what their drivers say.

site.yaml adds only what no API tells: traits of a host, whether it is in maintenance, and the
allocation ratios where the API has none of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fabric_direct.config import Host, Site
from fabric_direct.drivers.contract import HostDevice, HostDrivers, HostInventory, HostNode
from fabric_direct.errors import FabricDirectError, NotFound
from fabric_direct.model import DeviceState
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode

DriversOf = Callable[[str], HostDrivers]
_AT_ONCE = 32
"""How many hosts are read at once."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts of a site at one moment."""

    hosts: tuple[HostState, ...]
    """By name."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Hosts that are left out, since they or their devices could not be read, and why."""


def host_states(site: Site, drivers_of: DriversOf) -> Inventory:
    """Return what each host of the site has; all are read at once.

    Of a cloud these are the hosts that the site names, or all if it names none. What devices a host has
    is known where the site knows the host.

    :param drivers_of: returns the drivers of a host, or those of the cloud for an empty name, bounded
        for the operation (:meth:`HostDrivers.within`): a host that does not answer within their limits
        is left out.
    :raises FabricDirectError: if a cloud does not answer, or will not tell
        (:class:`~fabric_direct.errors.Denied`).
    """
    inventories = _inventories(site, drivers_of)

    def read(name: str) -> HostState | FabricDirectError:
        try:
            devices = drivers_of(name).functions()
            return _host_state(site, inventories[name](), devices)
        except FabricDirectError as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-inventory") as pool:
        found = dict(zip(inventories, pool.map(read, inventories), strict=True))
    hosts = tuple(found[name] for name in sorted(found))
    silent = {name: str(e) for name, e in found.items() if isinstance(e, FabricDirectError)}
    return Inventory(tuple(h for h in hosts if isinstance(h, HostState)), silent)


def _inventories(site: Site, drivers_of: DriversOf) -> dict[str, Callable[[], HostInventory]]:
    """Return how the inventory of each host is had: by a call, or from the cloud's one answer."""
    some = drivers_of(next(iter(site.hosts), "")).compute
    if not some.cloud:
        return {name: _asking(name, drivers_of) for name in site.hosts}
    told = {inventory.host: inventory for inventory in some.inventory()}
    return {name: _telling(name, told) for name in site.hosts or told}


def _asking(name: str, drivers_of: DriversOf) -> Callable[[], HostInventory]:
    return lambda: drivers_of(name).compute.inventory()[0]


def _telling(name: str, told: Mapping[str, HostInventory]) -> Callable[[], HostInventory]:
    def tell() -> HostInventory:
        if name not in told:
            raise NotFound(f"the cloud has no host {name!r}", why=f"it has {', '.join(told)}")
        return told[name]

    return tell


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
        numa_nodes=tuple(map(_numa_node, has.nodes)),
        devices=free_devices(devices, host),
        architectures=has.architectures,
        traits=has.traits | set(host.traits),
        images=has.images,
        slivers=has.slivers,
        enabled=has.enabled and host.maintenance is None,
        why_disabled=host.maintenance or has.why_disabled,
    )


def _numa_node(node: HostNode) -> NumaNode:
    return NumaNode(node.id, node.cores, _gib(node.ram), node.distances)


def _gib(mib: int) -> float:
    return mib / 1024


def free_devices(devices: Iterable[HostDevice], host: Host) -> tuple[FreeDevice, ...]:
    """Return the devices that may be passed through now, whole, by address.

    A VF is a device of its own, and so are all functions of one type and model in one slot. Where one of
    these is not free, or something that shares an IOMMU group with it is not, none is offered.

    :param host: names the uplinks that are in VEPA from their first use.
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
    """Return what the functions of one device have in common."""
    at = device.address
    if device.function.physical is not None:
        return at
    return device.type, device.model, at.domain, at.bus, at.slot


def _free_device(functions: list[HostDevice], host: Host) -> FreeDevice:
    first = functions[0]
    return FreeDevice(
        type=str(first.type),
        functions=tuple(function.address for function in functions),
        model=first.model,
        numa_node=first.function.numa_node,
        uplink=first.uplink,
        vepa=first.uplink is not None and _in_vepa(first, host),
    )


def _in_vepa(vf: HostDevice, host: Host) -> bool:
    """Return whether a VF's uplink is in VEPA, or the driver sets it to that at its first use."""
    wanted = any(entry.vepa and entry.uplink == vf.uplink for entry in host.devices)
    return wanted or vf.bridge_mode == "vepa"
