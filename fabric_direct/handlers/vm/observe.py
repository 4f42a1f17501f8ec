"""A server and all that belongs to it, read from the substrate."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

from fabric_direct.calls.deadline import at_once
from fabric_direct.drivers.contract import (
    DeviceDomain,
    HostDrivers,
    PluggedDevice,
    PluggedPort,
    Port,
    Server,
)
from fabric_direct.drivers.guests.guest import VIRTIO_SERIAL, Guest, GuestDevice, GuestLink
from fabric_direct.errors import Conflict, DriverError, NotFound
from fabric_direct.handlers.vm.steps.ports import is_plugged_into
from fabric_direct.model import (
    Observed,
    ObservedDevice,
    ObservedInterface,
    ObservedVolume,
    PciComponent,
    State,
)


def server_of(drivers: HostDrivers, sliver_id: str) -> Server:
    """Return the server.

    :raises NotFound: if it is not there.
    :raises Conflict: if its adoption is unfinished.
    """
    server = drivers.compute.find(sliver_id)
    if server is None:
        raise NotFound(f"sliver {sliver_id} is not there")
    refuse_unfinished(server)
    return server


def refuse_unfinished(server: Server | None) -> None:
    """Raise Conflict if a server's adoption is unfinished: a part of it may bear no stamp."""
    if server is not None and server.unfinished:
        why = "something that belongs to it may not bear its stamp yet"
        raise unfinished(server.sliver, why, server.instance)


def unfinished(sliver_id: str, why: str, where: str = "") -> Conflict:
    """Return the error of a sliver whose adoption is unfinished."""
    return Conflict(
        f"the adoption of sliver {sliver_id} is unfinished",
        where=where,
        why=why,
        remedy="adopt it again, or run `fabric-direct recover`",
    )


def read_ahead(drivers: HostDrivers, sliver_id: str) -> None:
    """Ask a cloud at once for what is asked for one after the other: the read cache keeps it."""
    if drivers.compute.cloud:
        at_once(
            partial(drivers.network.ports, sliver_id), partial(drivers.volume.volumes, sliver_id)
        )


def observe_server(
    drivers: HostDrivers, server: Server, guest: Guest | None, others: Iterable[PciComponent] = ()
) -> Observed:
    """Return what is there; the guest is asked only while the server runs.

    :param others: devices that may be there beside those of its stamp: wanted, or left.
    """
    answers = guest.observe() if guest and server.state is State.RUNNING else None
    asked = guest if answers and answers.reachable else None
    return Observed(
        state=server.state,
        host=server.host or drivers.host,
        instance=server.instance,
        domain=server.domain,
        flavor=server.flavor,
        cores=server.cores,
        ram=server.ram,
        interfaces=tuple(_interfaces(drivers, server, asked)),
        volumes=tuple(_volumes(drivers, server, asked)),
        devices=tuple(_devices(drivers, server, asked, others)),
        guest=answers,
    )


def tenant_of(drivers: HostDrivers, server: Server) -> DeviceDomain:
    """Return whom the devices of a server are passed through to."""
    return DeviceDomain(server.sliver, server.instance if drivers.compute.cloud else None)


def tenant_now(drivers: HostDrivers, sliver_id: str) -> DeviceDomain:
    """Return whom the sliver's devices are passed through to, as found now."""
    server = drivers.compute.find(sliver_id)
    return tenant_of(drivers, server) if server else DeviceDomain(sliver_id)


def _interfaces(
    drivers: HostDrivers, server: Server, guest: Guest | None
) -> Iterator[ObservedInterface]:
    ports = {port.component: port for port in drivers.network.ports(server.sliver)}
    inside = guest.interfaces() if guest else {}
    for plugged in server.ports:
        seen = inside.get(plugged.mac)
        yield observed_interface(plugged, ports.get(plugged.component)).model_copy(
            update={"guest_name": seen.name, "guest_addresses": seen.addresses} if seen else {}
        )


def observed_interface(plugged: PluggedPort, port: Port | None) -> ObservedInterface:
    """Return a NIC as found, with what its port says, if it is plugged into that."""
    port = port if is_plugged_into(plugged, port) else None
    addresses = (port.ipv4, port.ipv6) if port else ()
    return ObservedInterface(
        component=plugged.component,
        mac=plugged.mac,
        network=port.network if port else None,
        network_id=port.network_id if port else None,
        addresses=tuple(str(address) for address in addresses if address),
        bandwidth=plugged.bandwidth,
        floating_ip=port.floating_ip if port else None,
        port_security=port.port_security if port else None,
        link=_link(plugged, port),
    )


def _link(plugged: PluggedPort, port: Port | None) -> Literal["up", "down", "off"]:
    if not (plugged.enabled and (port is None or port.enabled)):
        return "off"
    return "down" if port and port.down else "up"


def _volumes(drivers: HostDrivers, server: Server, guest: Guest | None) -> Iterator[ObservedVolume]:
    if not server.volumes:
        return
    sizes = {volume.component: volume.size for volume in drivers.volume.volumes(server.sliver)}
    inside = guest.disks() if guest else {}
    for plugged in server.volumes:
        disk = inside.get(plugged.serial[:VIRTIO_SERIAL])
        yield ObservedVolume(
            component=plugged.component,
            source=plugged.source,
            target=plugged.target,
            size=sizes.get(plugged.component, 0),
            guest_name=disk.name if disk else None,
            mounted=disk.mounted if disk else (),
        )


def _devices(
    drivers: HostDrivers, server: Server, guest: Guest | None, others: Iterable[PciComponent]
) -> Iterator[ObservedDevice]:
    components = (*server.stamp.sliver.devices(), *others)
    plugged = plugged_devices(drivers, tenant_of(drivers, server), components)
    inside = guest.devices(plugged) if guest and plugged else {}
    links = _links(guest) if guest and plugged else ()
    for device in plugged:
        seen = inside.get(device.alias)
        names = seen.interfaces if seen else _named_by_mac(device, links)
        update = {
            "guest_interfaces": names,
            "guest_macs": seen.macs if seen else (device.mac or "",) * len(names),
            "guest_addresses": _on_top(names, links),
        }
        yield _device(device, seen).model_copy(update=update)


def _links(guest: Guest) -> tuple[GuestLink, ...]:
    try:
        return guest.links()
    except DriverError:
        return ()


def _named_by_mac(device: PluggedDevice, links: Iterable[GuestLink]) -> tuple[str, ...]:
    """Return the interfaces of a device that the guest does not show on its buses (FreeBSD)."""
    return tuple(link.name for link in links if device.mac and link.real and link.mac == device.mac)


def _on_top(names: tuple[str, ...], links: Iterable[GuestLink]) -> tuple[str, ...]:
    """Return the addresses on interfaces, and on all that the guest made on top of them."""
    links, known = tuple(links), set(names)
    for _ in links:
        known |= {link.name for link in links if known & set(link.below)}
    return tuple(a for link in links if link.name in known for a in link.addresses)


def plugged_devices(
    drivers: HostDrivers, tenant: DeviceDomain, components: Iterable[PciComponent]
) -> tuple[PluggedDevice, ...]:
    """Return the PCI functions that the server has of these components, each as its driver sees it."""
    if not drivers.devices:  # a cloud has moved the server to a worker that the site does not know
        return ()
    serving = {component.id: drivers.device(component) for component in components}
    asked = {id(driver): driver.plugged(tenant) for driver in serving.values()}
    return tuple(
        device
        for name, driver in serving.items()
        for device in asked[id(driver)]
        if device.component == name
    )


def _device(plugged: PluggedDevice, seen: GuestDevice | None) -> ObservedDevice:
    settings = plugged.settings
    return ObservedDevice(
        component=plugged.component,
        host_address=plugged.host_address,
        guest_address=plugged.guest_address,
        guest_name=seen.name if seen else None,
        alias=plugged.alias,
        mac=plugged.mac,
        vlan=plugged.vlan,
        bandwidth=(settings.max_tx_rate or None) if settings else None,
        bridge_mode=plugged.bridge_mode,
    )
