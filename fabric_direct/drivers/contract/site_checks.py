"""Checks by the site's configuration alone: all drivers, also the fakes, refuse the same."""

from collections.abc import Mapping

from fabric_direct.config import AllowedDevice, Site
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.errors import InvalidSliver, NotVerified
from fabric_direct.model import PciAddress, PciComponent, VNicInterface
from fabric_direct.network_services import NetworkService
from fabric_direct.networks import SiteNetwork


def known_network(networks: Mapping[str, SiteNetwork], name: str) -> SiteNetwork:
    """Return a network by its name.

    :raises InvalidSliver: with the field ``network`` if there is none.
    """
    if name not in networks:
        raise InvalidSliver(
            f"no network {name!r}",
            field="network",
            where="site.yaml: networks",
            why=f"known: {', '.join(networks) or 'none'}",
        )
    return networks[name]


def refuse_floating_ip(site: Site, interface: VNicInterface) -> None:
    """Raise InvalidSliver if a floating IP is asked for and the site has no network to take it from."""
    external = site.openstack and site.openstack.external_network
    if interface.floating_ip and not external:
        raise InvalidSliver(
            "cannot be had: the site names no external network",
            field="interface.floating_ip",
            remedy="set openstack.external_network in site.yaml",
        )


def taken(field: str, value: object, holder: str) -> InvalidSliver:
    """Return the refusal of an address that is held for another NIC.

    :param field: for example ``interface.ipv4``.
    """
    return InvalidSliver(f"{value} is taken", field=field, why=f"it is held for {holder}")


def refuse_absent(there: bool, address: PciAddress, host: str, field: str) -> None:
    """Raise InvalidSliver unless a PCI function is on the host."""
    if not there:
        raise InvalidSliver(f"there is no PCI function {address}", field=field, where=host)


def refuse_disallowed(
    component: PciComponent,
    address: PciAddress,
    entry: AllowedDevice | None,
    host: str,
    field: str,
) -> None:
    """Raise InvalidSliver unless the allow-list has the function, as the component's type and model.

    :param entry: what the allow-list says of the function, if anything.
    """
    if entry and _fits(component, entry):
        return
    allows = f"it allows it as {entry.type} {entry.model or ''}".strip() if entry else ""
    raise InvalidSliver(
        f"{address} is not allowed as {component.type} {component.model or ''}".strip(),
        field=field,
        where=f"site.yaml: hosts.{host}.devices",
        why=allows,
        remedy="name a device that the site's inventory lists as allowed",
    )


def _fits(component: PciComponent, entry: AllowedDevice) -> bool:
    models = {component.model, entry.model} - {None}
    return entry.type == component.type and len(models) < 2


def verify_size(found: Volume, size: int, where: str = "") -> None:
    """Raise NotVerified unless the volume has ``size`` GiB."""
    if found.size != size:
        raise NotVerified(
            f"volume {found.source} has {found.size} GiB, not {size}",
            where=where,
            remedy="delete it first, or ask for the size that it has",
        )


def refuse_unknown_ports(site: Site, service: NetworkService) -> None:
    """Raise InvalidSliver unless all interfaces are on ports of the site's switches."""
    for number, interface in enumerate(service.interfaces):
        field = f"interfaces[{number}]"
        if interface.device not in site.switches:
            known = ", ".join(site.switches) or "none"
            raise InvalidSliver(
                f"no switch {interface.device!r}", field=f"{field}.device", why=f"known: {known}"
            )
        if site.switch_port(interface.device, interface.port) is None:
            known = ", ".join(site.switches[interface.device].ports) or "none"
            raise InvalidSliver(
                f"no port {interface.where}", field=f"{field}.port", why=f"known: {known}"
            )
