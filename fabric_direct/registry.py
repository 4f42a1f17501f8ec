"""Find the handler and the drivers of a resource type.

Both are found by entry point, so that other packages can add theirs: a handler by its resource type in
``fabric_direct.handlers``; a driver by its name in ``fabric_direct.compute``, ``.network``, ``.volume``,
``.service``, ``.device``, ``.guest``, ``.tuning`` and ``.uplink``, as a callable
``(site, host) -> driver``. They are imported at first use.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from fabric_direct.config import Site
from fabric_direct.drivers.contract import DeviceDriver, HostDrivers, ServiceDriver
from fabric_direct.errors import DriverError, InvalidSite, InvalidSliver
from fabric_direct.model import SliverRef
from fabric_direct.network_services import SERVICES

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


def sliver_model(document: Mapping[str, Any]) -> type[SliverRef]:
    """Return the model of a sliver that a document with a ``type`` describes.

    :raises InvalidSliver: as :func:`handler_for` does.
    """
    model: type[SliverRef] = handler_for(document["type"]).model_of(document)
    return model


def resource_types() -> tuple[str, ...]:
    """Return the types that have a handler."""
    return _names("handlers")


def driven_types() -> tuple[str, ...]:
    """Return the types that ``drivers`` of site.yaml may name, alone or with a model."""
    devices = {key.partition("_")[0] for key in DEVICE_DRIVERS}
    return tuple(sorted({*resource_types(), *devices, "vNIC", "Storage"}))


def server_driver(site: Site) -> str:
    """Return the name of the driver that makes VMs."""
    return site.driver_for("VM") or "libvirt"


def has_flavors(site: Site) -> bool:
    """Return whether the site's VMs have flavors beside their capacities."""
    return "flavor" not in driver("compute", server_driver(site)).unserved


def host_drivers(site: Site, host: str) -> HostDrivers:
    """Return the drivers of a host as configured by the site; none is connected yet.

    :param host: empty if a cloud has not chosen one yet.
    :raises InvalidSite: if the site names a driver that is not installed.
    :raises DriverError: if a library of a driver cannot be imported.
    """
    server = server_driver(site)

    def make(kind: str, name: str) -> Any:
        return driver(kind, name)(site, host)

    adoption = getattr(driver("compute", server), "adoption", None)
    known = host in site.hosts
    tuning = server if server in _names("tuning") else "libvirt"
    uplink = server if server in _names("uplink") else "netlink"
    return HostDrivers(
        host=host,
        compute=make("compute", server),
        network=make("network", site.driver_for("vNIC") or server),
        volume=make("volume", site.driver_for("Storage") or server),
        tuning=make("tuning", tuning) if known else None,
        guest=None if site.guest == "none" else make("guest", site.guest),
        adoption=adoption(site, host) if adoption else None,
        services=dict(_services(site, host)),
        uplink=make("uplink", uplink) if known else None,
        devices=dict(_devices(site, host)) if known else {},
    )


def driver(kind: str, name: str) -> Any:
    """Return a driver's factory.

    :raises InvalidSite: if no such driver is installed.
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


def _services(site: Site, host: str) -> Iterator[tuple[str, ServiceDriver]]:
    """Yield the drivers of network services by resource type; each is made once."""
    named = {kind: name for kind in SERVICES if (name := site.driver_for(kind))}
    made = {name: driver("service", name)(site, host) for name in named.values()}
    yield from ((kind, made[name]) for kind, name in named.items())


def _devices(site: Site, host: str) -> Iterator[tuple[str, DeviceDriver]]:
    types = {key.split("_")[0] for key in DEVICE_DRIVERS}
    named = {key: name for key, name in site.drivers.items() if key.split("_")[0] in types}
    # A type that the site names overrides the defaults of its models.
    usual = {key: name for key, name in DEVICE_DRIVERS.items() if key.split("_")[0] not in named}
    if (server := server_driver(site)) in _names("device"):
        usual = dict.fromkeys(usual, server)
    every = usual | named
    made = {name: driver("device", name)(site, host) for name in every.values()}
    yield from ((key, made[name]) for key, name in every.items())


@cache
def _installed() -> Any:
    """Return the entry points of all packages; cached because reading them is slow."""
    return entry_points()


@cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(_installed().select(group=f"fabric_direct.{kind}").names))


@cache
def _load(kind: str, name: str) -> Any:
    (point, *_) = _installed().select(group=f"fabric_direct.{kind}", name=name)
    try:
        return point.load()
    except ImportError as error:
        raise DriverError(
            f"cannot load {name!r} of fabric_direct.{kind}",
            why=str(error),
            remedy="install the missing library: fabric-direct doctor",
        ) from error
