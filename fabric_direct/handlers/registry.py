"""Find the handler and the drivers of a resource type.

Both are found by entry point, so that other packages can add theirs: a handler by its resource type in
``fabric_direct.handlers``; a driver by its name in ``fabric_direct.compute``, ``.network``, ``.volume``,
``.service``, ``.device``, ``.guest``, ``.tuning`` and ``.uplink``, as a callable
``(site, host) -> driver``. They are imported at first use. One that takes settings has its pydantic
model as ``settings_model``, and reads them by :meth:`~fabric_direct.site.config.Site.settings_of`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fabric_direct.drivers.contract import HostDrivers, NoServers
from fabric_direct.errors import DriverError, InvalidSite, InvalidSliver
from fabric_direct.model import Sliver
from fabric_direct.model.services import SERVICES
from fabric_direct.site.config import Site
from fabric_direct.site.extras import how_to_install

DEVICE_DRIVERS = {
    "GPU": "hostdev",
    "SmartNIC": "hostdev",
    "SharedNIC": "sriov",
    "FPGA": "fpga",
    "FPGA_Xilinx-SN1022": "sn1022",
    "NVME": "hostdev",
}
"""Default drivers by type of device, or by ``Type_Model``."""


def handler_for(resource_type: str) -> Any:
    """Return the handler's class.

    :raises InvalidSliver: with the field ``type`` if there is none.
    """
    known = resource_types()
    if resource_type not in known:
        raise InvalidSliver(
            f"no handler for {resource_type!r}", field="type", why=f"known: {', '.join(known)}"
        )
    return _load("handlers", resource_type)


def sliver_model(document: Mapping[str, Any]) -> type[Sliver]:
    """Return the model of a sliver that a document with a ``type`` describes.

    :raises InvalidSliver: as :func:`handler_for` does.
    """
    model: type[Sliver] = handler_for(document["type"]).model_of(document)
    return model


def resource_types() -> tuple[str, ...]:
    """Return the types that have a handler."""
    return _names("handlers")


def driven_types() -> tuple[str, ...]:
    """Return the types that ``drivers`` of site.yaml may name, alone or with a model."""
    devices = {key.partition("_")[0] for key in DEVICE_DRIVERS}
    return tuple(sorted({*resource_types(), *devices, "vNIC", "Storage"}))


def server_driver(site: Site) -> str:
    """Return the name of the driver that makes VMs.

    :raises InvalidSite: if the site serves none.
    """
    site.refuse_without_vms()
    return site.driver_for("VM") or "libvirt"


def has_flavors(site: Site) -> bool:
    """Return whether the site's VMs have flavors beside their capacities."""
    return "flavor" not in driver("compute", server_driver(site)).unserved


def host_drivers(site: Site, host: str) -> HostDrivers:
    """Return the drivers of a host as configured by the site; none is connected yet.

    Those of VMs, of their parts and guests are made only if the site serves VMs.

    :param host: empty if a cloud has not chosen one yet.
    :raises InvalidSite: if the site names a driver that is not installed, or one for a type that does
        not exist, or its settings are invalid.
    :raises DriverError: if a library of a driver cannot be imported.
    """
    _refuse_unknown_types(site)
    services = _made("service", _service_drivers(site), site, host)
    if not site.serves_vms:
        none: Any = NoServers()
        return HostDrivers(host, compute=none, network=none, volume=none, services=services)
    named = _single_drivers(site)

    def make(kind: str) -> Any:
        return driver(kind, named[kind])(site, host)

    adoption = getattr(driver("compute", named["compute"]), "adoption", None)
    known = host in site.hosts
    return HostDrivers(
        host=host,
        compute=make("compute"),
        network=make("network"),
        volume=make("volume"),
        tuning=make("tuning") if known else None,
        guest=make("guest") if "guest" in named else None,
        adoption=adoption(site, host) if adoption else None,
        services=services,
        uplink=make("uplink") if known else None,
        devices=_made("device", _device_drivers(site), site, host) if known else {},
    )


def _refuse_unknown_types(site: Site) -> None:
    known = driven_types()
    if strange := [key for key in site.drivers if key.partition("_")[0] not in known]:
        raise InvalidSite(
            f"no resource type {', '.join(map(repr, strange))}",
            field="drivers",
            why=f"known: {', '.join(known)}",
            remedy="fix site.yaml: drivers",
        )


def drivers_in_use(site: Site) -> frozenset[tuple[str, str]]:
    """Return kind and name of each driver that serves the site."""
    services = {("service", name) for name in _service_drivers(site).values()}
    if not site.serves_vms:
        return frozenset(services)
    devices = {("device", name) for name in _device_drivers(site).values()}
    return frozenset({*_single_drivers(site).items(), *services, *devices})


def driver(kind: str, name: str) -> Any:
    """Return a driver's factory.

    :raises InvalidSite: if no such driver is installed, or packages have different ones.
    :raises DriverError: if a library that it needs cannot be imported.
    """
    known = _names(kind)
    if name not in known:
        raise InvalidSite(
            f"no {kind} driver {name!r}",
            field="drivers",
            why=f"installed: {', '.join(known)}",
            remedy="name one of these, or install the package that provides it",
        )
    return _load(kind, name)


def _single_drivers(site: Site) -> dict[str, str]:
    """Return the names of the drivers of which a host has one, by kind."""
    server = server_driver(site)
    named = {
        "compute": server,
        "network": site.driver_for("vNIC") or server,
        "volume": site.driver_for("Storage") or server,
        "tuning": server if server in _names("tuning") else "libvirt",
        "uplink": server if server in _names("uplink") else "netlink",
    }
    return named if site.guest == "none" else {**named, "guest": site.guest}


def _service_drivers(site: Site) -> dict[str, str]:
    """Return the names of the drivers of network services, by resource type."""
    kinds = (*SERVICES, "Switch")
    return {kind: name for kind in kinds if (name := site.driver_for(kind))}


def _device_drivers(site: Site) -> dict[str, str]:
    """Return the names of the drivers of devices, by ``Type_Model`` or ``Type``."""
    types = {key.split("_")[0] for key in DEVICE_DRIVERS}
    named = {key: name for key, name in site.drivers.items() if key.split("_")[0] in types}
    # A type that the site names overrides the defaults of its models.
    usual = {key: name for key, name in DEVICE_DRIVERS.items() if key.split("_")[0] not in named}
    if (server := server_driver(site)) in _names("device"):
        usual = dict.fromkeys(usual, server)
    return usual | named


def _made(kind: str, named: Mapping[str, str], site: Site, host: str) -> dict[str, Any]:
    """Return drivers by resource type; one that serves several is made once."""
    made = {name: driver(kind, name)(site, host) for name in set(named.values())}
    return {resource_type: made[name] for resource_type, name in named.items()}


@cache
def _installed() -> Any:
    """Return the entry points of all packages; cached because reading them is slow."""
    return entry_points()


@cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(_installed().select(group=f"fabric_direct.{kind}").names))


@cache
def _load(kind: str, name: str) -> Any:
    point = _only(kind, name)
    try:
        return point.load()
    except ImportError as error:
        raise DriverError(
            f"cannot load {name!r} of fabric_direct.{kind}",
            why=str(error),
            remedy=how_to_install(error, name),
        ) from error


def _only(kind: str, name: str) -> EntryPoint:
    """Return the entry point of that name; a package may be installed twice.

    :raises InvalidSite: if packages have different ones.
    """
    found: Iterable[EntryPoint] = _installed().select(group=f"fabric_direct.{kind}", name=name)
    points = {point.value: point for point in found}
    if len(points) > 1:
        raise InvalidSite(
            f"several packages provide {name!r} of fabric_direct.{kind}",
            field="drivers",
            why=", ".join(sorted(points)),
            remedy="uninstall all but one",
        )
    (point,) = points.values()
    return point
