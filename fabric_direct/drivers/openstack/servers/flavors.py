"""The flavor of a sliver: the one that it names, the smallest that fits, or one created for it."""

from contextlib import suppress
from typing import NoReturn

from openstack.compute.v2.flavor import Flavor
from openstack.connection import Connection
from openstack.exceptions import ConflictException

from fabric_direct.drivers.openstack.client.name_cache import names
from fabric_direct.errors import InvalidSliver, NotOurs
from fabric_direct.model import Capacities, NodeSliver

Flavors = tuple[Flavor, ...]
MIB = 1024
# A flavor with these takes devices of the hosts; it is used only if the sliver names it.
_DEVICES = ("pci_passthrough:", "accel:", "resources:VGPU", "resources:CUSTOM_")


def flavor_of(cloud: Connection, sliver: NodeSliver, *, make: bool) -> Flavor | None:
    """Return the sliver's flavor; create nothing.

    It is the one that it names, or the smallest by memory, then virtual CPUs, then disk that is not
    smaller than its capacities, is not disabled and brings no devices.

    :param make: whether a flavor may be created: then the result is None if none fits.
    :raises InvalidSliver: with the field ``flavor`` if there is no such flavor or it is too small, with
        ``capacities`` or ``capacities.…`` if none fits.
    """
    known, named, wanted = names(cloud), sliver.flavor, sliver.capacities
    if named is not None:
        return known.chosen("flavor", lambda: _named(known.flavors(), named, wanted))
    if make:
        return _smallest(known.flavors(), wanted)
    return known.chosen(
        "flavor", lambda: _smallest(known.flavors(), wanted) or _refuse(known.flavors(), wanted)
    )


def ensure_flavor(cloud: Connection, sliver: NodeSliver, *, make: bool) -> Flavor:
    """Return the sliver's flavor; create it if none fits and ``make`` is true.

    :raises InvalidSliver: as :func:`flavor_of`.
    :raises Denied: if one must be created and the user is not an administrator.
    :raises NotOurs: if a flavor of its name has another size.
    """
    return flavor_of(cloud, sliver, make=make) or _made(cloud, sliver.capacities)


def flavor_name(wanted: Capacities) -> str:
    """Return the name of a flavor that is created for these capacities."""
    return f"fabric-direct-c{wanted.core}-r{wanted.ram}-d{wanted.disk}"


def _named(flavors: Flavors, name: str, wanted: Capacities) -> Flavor:
    found = next((f for f in flavors if name in {f.name, f.id}), None)
    if found is None:
        known = ", ".join(sorted(f.name for f in flavors))
        raise InvalidSliver(f"no flavor {name!r}", field="flavor", why=f"known: {known}")
    if not _fits(found, wanted):
        raise InvalidSliver(
            f"flavor {name!r} is smaller than the sliver's capacities",
            field="flavor",
            why=f"it has {_size(found)}",
        )
    return found


def _smallest(flavors: Flavors, wanted: Capacities) -> Flavor | None:
    fitting = [f for f in flavors if _fits(f, wanted) and _is_plain(f)]
    return min(fitting, key=lambda f: (f.ram, f.vcpus, f.disk, f.name), default=None)


def _fits(flavor: Flavor, wanted: Capacities) -> bool:
    has = (flavor.vcpus, flavor.ram, flavor.disk)
    needs = (wanted.core, wanted.ram * MIB, wanted.disk)
    return all(one >= other for one, other in zip(has, needs, strict=True))


def _is_plain(flavor: Flavor) -> bool:
    brings = any(key.startswith(_DEVICES) for key in flavor.extra_specs or {})
    return not (flavor.is_disabled or brings)


def _refuse(flavors: Flavors, wanted: Capacities) -> NoReturn:
    plain = [f for f in flavors if _is_plain(f)]
    largest = {
        "core": (wanted.core, max((f.vcpus for f in plain), default=0)),
        "ram": (wanted.ram, max((f.ram for f in plain), default=0) // MIB),
        "disk": (wanted.disk, max((f.disk for f in plain), default=0)),
    }
    short = next((f".{name}" for name, (needs, has) in largest.items() if needs > has), "")
    raise InvalidSliver(
        "no flavor of the cloud is large enough",
        field=f"capacities{short}",
        why="there are " + ", ".join(f"{f.name} with {_size(f)}" for f in plain),
        remedy="ask for less, or set openstack.make_flavors in site.yaml",
    )


def _size(flavor: Flavor) -> str:
    disk = f"{flavor.disk} GiB" if flavor.disk else "no disk (its servers boot from volumes)"
    return f"{flavor.vcpus} cores, {flavor.ram} MiB, {disk}"


def _made(cloud: Connection, wanted: Capacities) -> Flavor:
    """Create the flavor, or find the one that somebody else created meanwhile."""
    name = flavor_name(wanted)
    size = {"vcpus": wanted.core, "ram": wanted.ram * MIB, "disk": wanted.disk}
    with suppress(ConflictException):
        cloud.compute.create_flavor(name=name, **size)
    names(cloud).forget("flavor")
    found = next((f for f in names(cloud).flavors() if f.name == name), None)
    if found is None or any(getattr(found, key) != value for key, value in size.items()):
        raise NotOurs(
            f"flavor {name} has another size than its name says",
            why=f"it has {_size(found)}" if found else "it may not be used by this project",
            remedy="remove it, or name another flavor in the sliver",
        )
    return found
