"""Resources of a cloud's workers, as Nova and Placement report them to an administrator.

The requests are two lists, of hypervisors and of the site's servers, and three for each worker, because
Placement has no list of inventories, usages or traits. Several workers are queried at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server as NovaServer
from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.image.v2.image import Image as GlanceImage

from fabric_direct.drivers.contract import HostInventory, ImageNeeds
from fabric_direct.drivers.openstack.client.answers import Hypervisor
from fabric_direct.drivers.openstack.client.errors import refused_as, translated
from fabric_direct.drivers.openstack.client.stamp import read_stamp
from fabric_direct.drivers.openstack.client.transport import uncached
from fabric_direct.drivers.openstack.servers.lookup import ServerLookup
from fabric_direct.errors import FabricDirectError

GIB = 1024**3
_AT_ONCE = 8
# GiB of a worker whose disks are on storage that it shares with others: Placement has none of its own.
_NO_LIMIT = 1 << 30
# Architectures whose programs another one runs, too.
_ALSO = {"x86_64": ("i686",)}
_ARCHITECTURES = {"amd64": "x86_64", "i386": "i686", "arm64": "aarch64"}
_EMULATED = "COMPUTE_ARCH_"
_TRAIT = "trait:"
_RIGHTS = (
    "leave out the sliver's host, so that the cloud chooses, or use an administrator's credentials"
)


class _Stock(NamedTuple):
    """The inventory and usage of one resource class on a worker."""

    total: int
    used: int
    ratio: float | None
    largest: int = _NO_LIMIT
    """The most that one server may have, whatever the ratio."""

    @property
    def left(self) -> float:
        return self.total * (self.ratio or 1.0) - self.used


def read_inventory(lookup: ServerLookup, hosts: Iterable[str]) -> tuple[HostInventory, ...]:
    """Return these workers, or all if none is named; one that Placement does not know is left out.

    :param lookup: finds the servers of the site, whose slivers are listed.
    :raises Denied: if the user is not an administrator.
    :raises Unreachable: if a cell of Nova does not answer.
    """
    cloud = lookup.cloud
    wanted = set(hosts)
    denied = refused_as("this user may not know what the workers have", _RIGHTS)
    # What others take, and what an operator takes out of service, changes by itself.
    with denied, uncached():
        there = sorted(cloud.compute._list(Hypervisor), key=_host)
        found = [h for h in there if not wanted or _host(h) in wanted]
        slivers = _slivers(lookup.all())
        read = partial(_host_inventory, cloud, slivers)
        with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-placement") as pool:
            return tuple(each for each in pool.map(read, found) if each is not None)


def _host(hypervisor: Hypervisor) -> str:
    return str(hypervisor.service["host"])


def _slivers(servers: Iterable[NovaServer]) -> Mapping[str, dict[str, str | None]]:
    """Return the slivers of each worker, with their owners."""
    found: dict[str, dict[str, str | None]] = defaultdict(dict)
    for server in servers:
        if stamp := read_stamp(server):
            found[server.compute_host or ""][stamp.sliver.id] = stamp.sliver.owner
    return found


def _host_inventory(
    cloud: Connection, slivers: Mapping[str, dict[str, str | None]], hypervisor: Hypervisor
) -> HostInventory | None:
    try:
        stocks = _stocks(cloud, hypervisor.id)
        traits = frozenset(cloud.placement.get_resource_provider_trait(hypervisor.id).traits)
    except NotFoundException:
        return None
    cores = stocks.get("VCPU") or stocks.get("PCPU", _Stock(0, 0, None))
    ram = stocks.get("MEMORY_MB", _Stock(0, 0, None))
    disk = stocks.get("DISK_GB", _Stock(_NO_LIMIT, 0, 1.0))
    why = _why_disabled(hypervisor)
    return HostInventory(
        host=_host(hypervisor),
        cores=cores.total,
        ram=ram.total,
        disk=disk.total,
        cores_used=cores.used,
        ram_used=ram.used,
        disk_used=disk.used,
        cpu_ratio=cores.ratio,
        ram_ratio=ram.ratio,
        disk_ratio=disk.ratio,
        architectures=frozenset(_architectures(hypervisor, traits)),
        traits=traits,
        slivers=slivers.get(_host(hypervisor), {}),
        enabled=not why,
        why_disabled=why,
    )


def _stocks(cloud: Connection, provider: str) -> dict[str, _Stock]:
    """Return what a resource provider has by resource class, less what is reserved."""
    has = list(cloud.placement.resource_provider_inventories(provider))
    used = cloud.placement.fetch_resource_provider_usages(provider).usages
    return {
        each.resource_class: _Stock(
            each.total - each.reserved,
            used.get(each.resource_class, 0),
            each.allocation_ratio,
            each.max_unit or _NO_LIMIT,
        )
        for each in has
    }


def too_little(cloud: Connection, worker: str, flavor: Flavor) -> list[str]:
    """Return what a worker has too little of for one more server; nothing if that is not known."""
    with suppress(FabricDirectError), translated(f"read what {worker} has"), uncached():
        there = [each.id for each in cloud.compute._list(Hypervisor) if _host(each) == worker]
        stocks = _stocks(cloud, there[0]) if there else {}
        asked = {n: a for n, a in _asked_of_worker(flavor).items() if n in stocks}
        return [f"{n}: {a} asked for, {s}" for n, a in asked.items() if (s := _short(stocks[n], a))]
    return []


def _short(stock: _Stock, asked: int) -> str:
    """Return what there is of a resource if it is less than asked for; empty if it is enough."""
    if stock.largest < asked:
        return f"{stock.largest} at most for one server"
    return f"{stock.left:g} left" if stock.left < asked else ""


def _asked_of_worker(flavor: Flavor) -> dict[str, int]:
    """Return what a flavor asks of Placement; nothing if it says so by extra specs of its own."""
    specs = flavor.extra_specs or {}
    if any(name.startswith(("resources", "hw:cpu_policy", "hw:mem_page_size")) for name in specs):
        return {}
    return {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.ram, "DISK_GB": flavor.disk}


def _why_disabled(hypervisor: Hypervisor) -> str:
    """Return why Nova places no servers on a worker; empty if it does."""
    if hypervisor.status != "enabled":
        return hypervisor.service.get("disabled_reason") or "disabled in Nova"
    return "" if hypervisor.state == "up" else f"its nova-compute is {hypervisor.state}"


def _architectures(hypervisor: Hypervisor, traits: frozenset[str]) -> Iterator[str]:
    own = (hypervisor.cpu_info or {}).get("arch")
    if own:
        yield own
        yield from _ALSO.get(own, ())
    yield from (t.removeprefix(_EMULATED).lower() for t in traits if t.startswith(_EMULATED))


def image_needs(image: GlanceImage) -> ImageNeeds:
    """Return what Glance's properties of an image ask for."""
    properties: Mapping[str, Any] = image.properties or {}
    named = properties.get("hw_architecture") or image.architecture
    return ImageNeeds(
        architecture=_ARCHITECTURES.get(named, named) if named else None,
        required_traits=_asked(properties, "required"),
        forbidden_traits=_asked(properties, "forbidden"),
        ram=image.min_ram or 0,
        disk=least_disk(image),
    )


def least_disk(image: GlanceImage) -> int:
    """Return the minimum size of an image's root disk, in GiB."""
    return max(image.min_disk or 0, -(-(image.virtual_size or 0) // GIB))


def _asked(properties: Mapping[str, Any], how: str) -> frozenset[str]:
    asked = (key for key, value in properties.items() if value == how)
    return frozenset(key.removeprefix(_TRAIT) for key in asked if key.startswith(_TRAIT))
