"""Read the hosts of a site for placement, from their drivers.

site.yaml adds what no API reports: traits of a host, maintenance, and allocation ratios if the API has
none.
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
"""Number of hosts that are read in parallel."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts of a site."""

    hosts: tuple[HostState, ...]
    """Sorted by name."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Hosts that are left out because they or their devices could not be read, and why."""


def host_states(site: Site, drivers_of: DriversOf) -> Inventory:
    """Return the state of each host of the site; hosts are read in parallel.

    For a cloud, these are the hosts that the site names, or all of the cloud's if it names none. Devices
    are known only for hosts that the site names.

    :param drivers_of: returns the drivers of a host, or of the cloud for an empty name, with the limits
        of the operation (:meth:`HostDrivers.within`); a host that does not answer within them is left
        out.
    :raises FabricDirectError: if a cloud does not answer, or denies access
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
    """Return a function for each host that returns its inventory; a cloud is queried only once."""
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
    """Return the free devices by address, each with all of its functions.

    A VF is a device; all functions of one type and model in one slot are one device. A device is free if
    all of its functions, and everything in their IOMMU groups, are free.

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
    """Return whether a VF's uplink is in VEPA, or will be after its first use."""
    wanted = any(entry.vepa and entry.uplink == vf.uplink for entry in host.devices)
    return wanted or vf.bridge_mode == "vepa"
