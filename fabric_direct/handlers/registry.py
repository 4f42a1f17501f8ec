"""Find the handler and the drivers of a resource type.

Both are found by entry point, so that other packages can add theirs: a handler by its resource type in
``fabric_direct.handlers``; a driver by its name in ``fabric_direct.compute``, ``.network``, ``.volume``,
``.service``, ``.device``, ``.guest``, ``.tuning`` and ``.uplink``, as a callable
``(site, host) -> driver``. They are imported at first use. One that takes settings has its pydantic
model as ``settings_model``, and reads them by :meth:`~fabric_direct.site.config.Site.settings_of`.
"""

from collections.abc import Iterator, Mapping
from inspect import getattr_static
from typing import Any, NamedTuple

from fabric_direct.drivers.contract import (
    KINDS,
    BareMetalDriver,
    HostDrivers,
    NoDriver,
    promised,
)
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.model import Sliver
from fabric_direct.model.services import SERVICES
from fabric_direct.site import installed
from fabric_direct.site.config import Site
from fabric_direct.site.drivers import DEVICE_TYPES, NONE


class Use(NamedTuple):
    """A driver that serves a site."""

    kind: str
    name: str
    field: str
    """Of site.yaml: what names it, or names the driver that it comes with."""


def handler_for(resource_type: str) -> Any:
    """Return the handler's class.

    :raises InvalidSliver: with the field ``type`` if there is none.
    :raises InvalidSite: if it cannot be loaded, or several packages provide it.
    """
    known = resource_types()
    if resource_type not in known:
        raise InvalidSliver(
            f"no handler for {resource_type!r}", field="type", why=f"known: {', '.join(known)}"
        )
    return installed.load("handlers", resource_type)


def sliver_model(document: Mapping[str, Any]) -> type[Sliver]:
    """Return the model of a sliver that a document with a ``type`` describes.

    :raises InvalidSliver: as :func:`handler_for` does.
    """
    model: type[Sliver] = handler_for(document["type"]).model_of(document)
    return model


def resource_types() -> tuple[str, ...]:
    """Return the types that have a handler."""
    return installed.names("handlers")


def server_driver(site: Site) -> str:
    """Return the name of the driver that makes VMs.

    :raises InvalidSite: if the site serves none.
    """
    site.refuse_without_vms()
    return site.driver_for("VM") or "libvirt"


def has_flavors(site: Site) -> bool:
    """Return whether the site's VMs have flavors beside their capacities."""
    factory = driver("compute", server_driver(site), _field(site, "VM"))
    return "flavor" not in getattr(factory, "unserved", ())


def host_drivers(site: Site, host: str) -> HostDrivers:
    """Return the drivers of a host as configured by the site; none is connected yet.

    Those of VMs, of their parts and guests are made only if the site serves VMs.

    :param host: empty if a cloud has not chosen one yet.
    :raises InvalidSite: if the site names a driver that is not installed; if a driver cannot be loaded
        or made, or lacks methods; if its settings are invalid.
    """
    services = _made(_service_drivers(site), site, host)
    if not site.serves_vms:
        none: Any = NoDriver("VM")
        return HostDrivers(
            host,
            compute=none,
            network=none,
            volume=none,
            node_guest=_node_guest(site, host),
            services=services,
        )
    uses, known = _single_drivers(site), host in site.hosts

    def made(kind: str) -> Any:
        return make(uses[kind], site, host) if kind in uses else None

    return HostDrivers(
        host=host,
        compute=made("compute"),
        network=made("network") or NoDriver("vNIC"),
        volume=made("volume") or NoDriver("Storage", chosen=site.driver_for("Storage") == NONE),
        has_volumes="volume" in uses,
        tuning=made("tuning") if known else None,
        guest=(guest := made("guest")),
        node_guest=_node_guest(site, host, guest),
        adoption=_adoption(uses["compute"], site, host),
        services=services,
        uplink=made("uplink") if known else None,
        devices=_made(_device_drivers(site), site, host) if known else {},
        known=known,
    )


def _node_guest(site: Site, host: str, guest: Any = None) -> Any:
    """Return the driver for the systems of bare-metal nodes: that of guests, if it is the same."""
    name = _node_guest_driver(site)
    if name is None or (guest is not None and guest.name == name):
        return guest if name else None
    return make(Use("guest", name, "guest"), site, host)


def _node_guest_driver(site: Site) -> str | None:
    """Return the name of the driver that logs in to bare-metal nodes.

    No hypervisor has a channel into them: it is SSH, if the site has a key, or else the driver of the
    nodes' own name.
    """
    nodes = site.driver_for("BareMetal")
    if nodes is None or site.guest == NONE:
        return None
    if nodes in installed.names("guest"):
        return nodes
    return "ssh" if site.guest_access.ssh_key else None


def make(use: Use, site: Site, host: str) -> Any:
    """Return a driver of a host, whole.

    :raises InvalidSite: if it cannot be loaded or made, or lacks something that its protocol promises.
    """
    factory = driver(*use)
    with installed.blaming("make", *use):
        made = factory(site, host)
    _refuse_incomplete(made, use, KINDS[use.kind])
    return made


def _adoption(compute: Use, site: Site, host: str) -> Any:
    """Return the driver that adopts servers, if the compute driver brings one along."""
    factory = getattr(driver(*compute), "adoption", None)
    if factory is None:
        return None
    with installed.blaming("make", *compute):
        return factory(site, host)


def _refuse_incomplete(made: Any, use: Use, protocol: type) -> None:
    """Raise InvalidSite unless a driver has all of a protocol; no property of it is read for that."""
    absent = object()
    seen = (name for name in promised(protocol) if getattr_static(made, name, absent) is absent)
    if missing := [name for name in seen if not hasattr(made, name)]:
        raise InvalidSite(
            f"{installed.described(use.kind, use.name)} is incomplete",
            field=use.field,
            why=f"it lacks {', '.join(sorted(missing))}",
            remedy=f"see pydoc fabric_direct.drivers.contract.{protocol.__name__}",
        )


def bare_metal(site: Site, host: str) -> BareMetalDriver | None:
    """Return the driver of bare-metal nodes; None if the site names none.

    :raises InvalidSite: if it cannot be made, or is one of something else.
    """
    uses = {kind: use for kind, use in _service_drivers(site).items() if kind == "BareMetal"}
    return _made(uses, site, host).get("BareMetal")


def drivers_in_use(site: Site) -> frozenset[Use]:
    """Return the drivers that serve the site."""
    services = _service_drivers(site).values()
    if not site.serves_vms:
        return frozenset(services)
    return frozenset({*_single_drivers(site).values(), *services, *_device_drivers(site).values()})


def drivers_of(site: Site, host: str) -> Iterator[Use]:
    """Yield the drivers that are made for a host: tuning, uplink and devices of a worker alone."""
    of_workers = {"tuning", "uplink", "device"} if host not in site.hosts else set()
    yield from sorted(use for use in drivers_in_use(site) if use.kind not in of_workers)


def driver(kind: str, name: str, field: str = "drivers") -> Any:
    """Return a driver's factory.

    :param field: of site.yaml, which names it.
    :raises InvalidSite: if no such driver is installed, it cannot be loaded, or several packages
        provide it.
    """
    known = installed.names(kind)
    if name not in known:
        raise InvalidSite(
            f"no {kind} driver {name!r}",
            field=field,
            why=f"installed: {', '.join(known)}",
            remedy="name one of these, or install the package that provides it",
        )
    return installed.load(kind, name, field)


def guest_driver(site: Site) -> str:
    """Return the name of the driver for guests, ``none`` if the site looks into none.

    :raises InvalidSite: if neither the site nor the driver of VMs names one.
    """
    name = site.guest or _usual(site, "guest", "guest")
    if name is None:
        raise InvalidSite(
            "names no driver for guests",
            field="guest",
            why=f"the driver of VM, {server_driver(site)!r}, has no default",
            remedy="add `guest: ssh`, `guest: agent` or `guest: none` to site.yaml",
        )
    return name


def _usual(site: Site, key: str, kind: str) -> str | None:
    """Return the driver that serves a site's VMs where site.yaml names none."""
    server = server_driver(site)
    return _defaults(site).get(key, server if server in installed.names(kind) else None)


def _defaults(site: Site) -> Mapping[str, str]:
    """Return the drivers that the driver of VMs names for other kinds."""
    compute = Use("compute", server_driver(site), _field(site, "VM"))
    given = getattr(driver(*compute), "default_drivers", None)
    if given is None:
        return {}
    with installed.blaming("ask", *compute):
        return dict(given(site))


def _single_drivers(site: Site) -> dict[str, Use]:
    """Return the drivers of which a host has one, by kind; kinds that have none are left out."""
    keys = {"network": "vNIC", "volume": "Storage", "tuning": "tuning", "uplink": "uplink"}
    named = {kind: site.driver_for(key) or _usual(site, key, kind) for kind, key in keys.items()}
    uses = {"compute": Use("compute", server_driver(site), _field(site, "VM"))}
    uses |= {
        k: Use(k, name, _field(site, keys[k]))
        for k, name in named.items()
        if name not in {None, NONE}
    }
    if (guest := guest_driver(site)) != NONE:
        uses["guest"] = Use("guest", guest, "guest")
    return uses


def _service_drivers(site: Site) -> dict[str, Use]:
    """Return the drivers of network services, switches and bare-metal nodes, by resource type."""
    kinds = (*SERVICES, "Switch", "BareMetal")
    named = {kind: name for kind in kinds if (name := site.driver_for(kind))}
    return {kind: Use("service", name, _field(site, kind)) for kind, name in named.items()}


def _device_drivers(site: Site) -> dict[str, Use]:
    """Return the drivers of devices, by ``Type_Model`` or ``Type``."""
    named = {key: name for key, name in site.drivers.items() if _device_type(key)}
    # A type that the site names overrides the defaults of its models.
    usual = {key: name for key, name in _defaults(site).items() if _device_type(key)}
    usual |= {t: name for t in DEVICE_TYPES if (name := _usual(site, t, "device"))}
    usual = {key: name for key, name in usual.items() if _device_type(key) not in named}
    return {key: Use("device", name, _field(site, key)) for key, name in (usual | named).items()}


def _device_type(key: str) -> str | None:
    """Return the type of device that a key of ``drivers`` is for, with its model or without."""
    kind = key.partition("_")[0]
    return kind if kind in DEVICE_TYPES else None


def _field(site: Site, key: str) -> str:
    """Return the field that names a driver, or the nearest one that is there."""
    named = [each for each in (key, "VM") if each in site.drivers]
    return ".".join(["drivers", *named[:1]])


def _made(uses: Mapping[str, Use], site: Site, host: str) -> dict[str, Any]:
    """Return drivers by resource type; one that serves several is made once."""
    first = {use.name: use for use in uses.values()}
    made = {name: make(use, site, host) for name, use in first.items()}
    if use := uses.get("BareMetal"):
        _refuse_incomplete(made[use.name], use, BareMetalDriver)
    return {resource_type: made[use.name] for resource_type, use in uses.items()}
