"""Checks by the site's configuration alone: all drivers, also the fakes, refuse the same."""

from collections.abc import Collection, Mapping

from fabric_direct.drivers.contract.fields import refuse_fields
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.errors import Conflict, InvalidSliver, NotVerified, PoolExhausted
from fabric_direct.model import PciAddress, PciComponent, VNicInterface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.model.services import NetworkService, PortMirror
from fabric_direct.site.config import AllowedDevice, Site


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


def known_tap(
    site: Site,
    switch: str,
    interface: VNicInterface,
    taken: Collection[str],
    connected: Collection[str],
) -> str:
    """Return the tap that a NIC on a switch is: the port that it names, or the first that is free.

    :param taken: the ports that other NICs are.
    :param connected: the ports that services have: free for who names them alone.
    :raises InvalidSliver: with the field ``interface.port`` if it names another port.
    :raises Conflict: if another NIC is that port.
    :raises PoolExhausted: if none is free.
    """
    taps = [name for name, port in site.switches[switch].ports.items() if port.tap]
    if interface.port not in {None, *taps}:
        why = f"taps of {switch}: {', '.join(taps) or 'none'}"
        raise InvalidSliver("is not a port for a tap", field="interface.port", why=why)
    if interface.port in taken:
        raise Conflict(f"{interface.port} of {switch} is taken", field="interface.port")
    free = [interface.port] if interface.port else [tap for tap in taps if tap not in connected]
    free = [tap for tap in free if tap not in taken]
    if not free:
        raise PoolExhausted(f"switch {switch} has no free port for a tap", field="network")
    return free[0]


def refuse_port(interface: VNicInterface) -> None:
    """Raise InvalidSliver if an interface on a network has a field that only one on a switch has."""
    refuse_fields(interface, ("port", "mtu", "routes"), "on a network", "interface.")


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


def refuse_unknown_ports(site: Site, service: NetworkService, driver: str | None = None) -> None:
    """Raise InvalidSliver unless all interfaces are on ports of the site's switches.

    :param driver: the one whose switches they must be; any if absent.
    """
    switches = site.switches_of(driver)
    for number, interface in enumerate(service.interfaces):
        if interface.device not in switches:
            known = ", ".join(switches) or "none"
            of = f" of driver {driver}" if interface.device in site.switches else ""
            raise InvalidSliver(
                f"no switch {interface.device!r}{of}",
                field=f"interfaces[{number}].device",
                why=f"known: {known}",
            )
    refuse_missing_ports(site, service)


def refuse_missing_ports(site: Site, service: NetworkService) -> None:
    """Raise InvalidSliver for an interface without device, or a port that its switch does not have.

    So it does for the port that is mirrored. Devices that site.yaml does not name are a controller's.
    """
    for number, interface in enumerate(service.interfaces):
        field, device = f"interfaces[{number}]", interface.device
        if device is None:
            raise InvalidSliver("must be given", field=f"{field}.device")
        if device in site.switches and site.switch_port(device, interface.port) is None:
            raise _no_port(site, device, interface.port, f"{field}.port")
        if isinstance(service, PortMirror) and device in site.switches:
            _refuse_mirrored(site, device, service.mirror.port)


def _refuse_mirrored(site: Site, device: str, port: str) -> None:
    if site.switch_port(device, port) is None:
        raise _no_port(site, device, port, "mirror.port")


def _no_port(site: Site, device: str, port: str | None, field: str) -> InvalidSliver:
    known = ", ".join(site.switches[device].ports) or "none"
    return InvalidSliver(f"no port {port} of {device}", field=field, why=f"known: {known}")
