"""A whole site: hosts with their slivers and devices, and the networks between them."""

from collections.abc import Iterable, Mapping, Sequence

from fabric_direct.drivers.contract import HostDevice, Server
from fabric_direct.engine.run import attempt_each
from fabric_direct.model import DeviceState
from fabric_direct.topology.networks import Joins, joins, networks
from fabric_direct.topology.reader import SiteReader
from fabric_direct.topology.values import DeviceCount, HostSliver, SiteHost, SiteTopology
from fabric_direct.upkeep.device_owners import host_of

_USED = (DeviceState.USED, DeviceState.LOST)


def site_topology(reader: SiteReader) -> SiteTopology:
    """Return the hosts of a site with their slivers, and the networks between these.

    A host that does not answer is returned as silent.

    :raises FabricDirectError: if the cloud, where there is one, cannot be read.
    """
    site, drift, services = reader.site, reader.drift(services=False), reader.services()
    met = joins(drift.servers, services.found, site)
    unlike = {each.sliver.id: len(each.differences) for each in drift.drifts}
    on: dict[str, list[Server]] = {name: [] for name in site.hosts}
    for server in drift.servers:
        on.setdefault(host_of(server), []).append(server)
    answering = [name for name in site.hosts if name not in drift.silent]
    devices = attempt_each(reader.devices, answering)
    keys = (
        *(each.ref.id for each in services.found),
        *(k for s in on.values() for k in _keys(s, met)),
    )
    return SiteTopology(
        site=site.site,
        hosts=tuple(
            SiteHost(
                name=name,
                maintenance=site.hosts[name].maintenance if name in site.hosts else None,
                silent=_silent(name, drift.silent, devices),
                slivers=_slivers(servers, met, unlike),
                devices=_counts(devices.get(name, ())),
            )
            for name, servers in on.items()
        ),
        networks=networks(keys, services, met, site),
        silent={name: str(error) for name, error in services.silent.items()},
    )


def _keys(servers: Iterable[Server], met: Joins) -> Iterable[str]:
    return (key for server in servers for key in met.networks(server.sliver))


def _silent(
    name: str,
    silent: Mapping[str, Exception],
    devices: Mapping[str, tuple[HostDevice, ...] | Exception],
) -> str:
    found = silent.get(name) or devices.get(name)
    return str(found) if isinstance(found, Exception) else ""


def _slivers(
    servers: Iterable[Server], met: Joins, unlike: Mapping[str, int]
) -> tuple[HostSliver, ...]:
    return tuple(
        HostSliver(
            id=server.sliver,
            name=server.stamp.sliver.name,
            state=server.state.value,
            cores=server.cores,
            ram=server.ram,
            nics=len(server.ports),
            volumes=len(server.volumes),
            devices=len(server.stamp.sliver.devices()),
            differences=unlike.get(server.sliver, 0),
            networks=met.networks(server.sliver),
        )
        for server in sorted(servers, key=lambda each: each.sliver)
    )


def _counts(devices: Sequence[HostDevice] | Exception) -> tuple[DeviceCount, ...]:
    """Return how many functions of each type may be passed through, and how many are taken."""
    if isinstance(devices, Exception):
        return ()
    by_type: dict[str, list[DeviceState]] = {}
    for device in devices:
        if device.type:
            by_type.setdefault(device.type, []).append(device.state)
    return tuple(_count(name, states) for name, states in sorted(by_type.items()))


def _count(name: str, states: Sequence[DeviceState]) -> DeviceCount:
    free, used = states.count(DeviceState.FREE), sum(state in _USED for state in states)
    return DeviceCount(type=name, free=free, used=used, unfit=len(states) - free - used)
