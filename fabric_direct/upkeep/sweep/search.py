"""Everything that carries the site's stamp, on all hosts or in the cloud: whole, or an error."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fabric_direct.drivers.contract import HostDevice, HostDrivers, Stamped, UplinkDriver
from fabric_direct.drivers.contract.uplinks import VfSettings
from fabric_direct.engine.run import attempt_each
from fabric_direct.errors import Refused
from fabric_direct.model import DeviceState
from fabric_direct.site.config import Site
from fabric_direct.upkeep.sweep.findings import LeftAlone

DriversOf = Callable[[str], HostDrivers]
_UNFIT = {DeviceState.UNCLEAN, DeviceState.QUARANTINED}


@dataclass
class SearchedPlace:
    """The findings of a search on one host, or in the cloud."""

    stamped: list[Stamped] = field(default_factory=list)
    unused: tuple[str, ...] = ()
    """Networks of the site that nobody uses."""
    astray: list[LeftAlone] = field(default_factory=list)
    """Devices that are not fit for a tenant, and that no record of ours explains."""
    pinned: tuple[str, ...] = ()
    """Addresses at which a host key is pinned."""


def search(site: Site, drivers_of: DriversOf) -> dict[str, SearchedPlace]:
    """Return what is on each host; the name of the cloud, and of a site without hosts, is empty.

    :raises Refused: if one does not answer, or not with all it has.
    """
    cloud = drivers_of(next(iter(site.hosts), "")).compute.cloud
    with_devices = {host for host in site.hosts if site.passes_devices(host)}
    hosts = ["", *sorted(with_devices)] if cloud else list(site.hosts) or [""]

    def look(host: str) -> SearchedPlace:
        whole, first = not (cloud and host), host == hosts[0]
        return _look(drivers_of(host), whole=whole, first=first, devices=host in with_devices)

    return _all_or_nothing(attempt_each(look, hosts))


def _all_or_nothing(answers: Mapping[str, SearchedPlace | Exception]) -> dict[str, SearchedPlace]:
    silent = {h: error for h, error in answers.items() if isinstance(error, Exception)}
    for host, error in silent.items():
        raise Refused(
            f"what is on {host or 'the cloud'} is not known: nothing was deleted",
            why="; ".join(map(str, silent.values())),
            remedy="sweep again when it answers",
        ) from error
    return {h: place for h, place in answers.items() if isinstance(place, SearchedPlace)}


def _look(drivers: HostDrivers, *, whole: bool, first: bool, devices: bool) -> SearchedPlace:
    """Return what is on a host.

    :param whole: whether its servers, ports and volumes are its own; a cloud has those of workers.
    :param first: whether network services are looked for, which are on no host.
    :param devices: whether its devices may be passed through.
    """
    place = SearchedPlace()
    if whole:
        services = set(drivers.services.values()) if first else set()
        made = (drivers.compute, drivers.network, drivers.volume, *services)
        place.stamped = [thing for driver in made for thing in driver.stamped()]
        place.unused = tuple(drivers.network.unused())
        guest = drivers.guest or drivers.node_guest
        place.pinned = tuple(guest.pinned()) if guest else ()
    if devices and drivers.devices:
        recorded = next(iter(drivers.devices.values())).stamped()
        place.stamped += recorded
        place.astray = list(_astray(drivers, recorded))
    return place


def _astray(drivers: HostDrivers, recorded: Iterable[Stamped]) -> Iterator[LeftAlone]:
    """Yield the devices that need a person: unclean ones of others, free VFs with settings."""
    known = {thing.name.partition(" ")[0] for thing in recorded}
    for device in drivers.functions():
        what = f"device {device.address} on {drivers.host}"
        if device.state in _UNFIT and str(device.address) not in known:
            why = f"it is {device.state}: {device.why or device.owner}; no record here says whose"
            yield LeftAlone(what=what, why=f"{why}: fabric-direct devices {drivers.host}")
        elif device.state is DeviceState.FREE and drivers.uplink:
            yield from _settings(drivers.uplink, device, what)


def _settings(uplink: UplinkDriver, device: HostDevice, what: str) -> Iterator[LeftAlone]:
    """Yield a free VF that has a VLAN or a rate: nothing says what it had before."""
    number = device.function.vf
    if number is None or not device.uplink:
        return
    there, where = uplink.vfs(device.uplink).get(number), f"VF {number} of {device.uplink}"
    if there is None:
        yield LeftAlone(what=what, why=f"it is free, but the host does not tell what {where} has")
    elif said := ", ".join(_unlike_new(there)):
        why = f"it is free, but {where} has {said}: nobody set it back, do so by `ip link`"
        yield LeftAlone(what=what, why=why)


def _unlike_new(settings: VfSettings) -> Iterator[str]:
    for name in ("vlan", "max_tx_rate", "min_tx_rate"):
        if value := getattr(settings, name):
            yield f"{name.replace('_', ' ')} {value}"
