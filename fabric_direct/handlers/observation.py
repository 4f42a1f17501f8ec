"""A server and all that belongs to it, read from the substrate."""

from collections.abc import Iterator

from fabric_direct.drivers.base import HostDrivers, PluggedPort, Port, Server
from fabric_direct.handlers.guest import VIRTIO_SERIAL, Guest
from fabric_direct.model import (
    Observed,
    ObservedDevice,
    ObservedInterface,
    ObservedVolume,
    State,
)


def observe_server(drivers: HostDrivers, server: Server, guest: Guest | None) -> Observed:
    """Return what is there; the guest is asked only while the server runs."""
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
        devices=tuple(_devices(drivers, server)),
        guest=answers,
    )


def _interfaces(
    drivers: HostDrivers, server: Server, guest: Guest | None
) -> Iterator[ObservedInterface]:
    ports = {port.component: port for port in drivers.network.ports(server.sliver)}
    inside = guest.interfaces() if guest else {}
    for plugged in server.ports:
        seen = inside.get(plugged.mac)
        yield _interface(plugged, ports.get(plugged.component)).model_copy(
            update={"guest_name": seen.name, "guest_addresses": seen.addresses} if seen else {}
        )


def _interface(plugged: PluggedPort, port: Port | None) -> ObservedInterface:
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
    )


def _volumes(drivers: HostDrivers, server: Server, guest: Guest | None) -> Iterator[ObservedVolume]:
    if not server.volumes:
        return
    sizes = {volume.component: volume.size for volume in drivers.volume.volumes(server.sliver)}
    inside = guest.disks() if guest else {}
    for plugged in server.volumes:
        yield ObservedVolume(
            component=plugged.component,
            source=plugged.source,
            target=plugged.target,
            size=sizes.get(plugged.component, 0),
            guest_name=inside.get(plugged.serial[:VIRTIO_SERIAL]),
        )


def _devices(drivers: HostDrivers, server: Server) -> Iterator[ObservedDevice]:
    types = {c.id: c for c in server.stamp.sliver.devices()}
    for driver in {id(d): d for d in map(drivers.device, types.values())}.values():
        for plugged in driver.plugged(server.sliver):
            yield ObservedDevice(
                component=plugged.component,
                host_address=plugged.host_address,
                guest_address=plugged.guest_address,
                alias=plugged.alias,
            )
