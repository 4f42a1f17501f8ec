"""The events of all domains of a host, over a connection of their own.

libvirt takes one callback for the loss of a connection, so the one that the drivers share has none.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import libvirt

from fabric_direct.drivers.contract.changes import Change, Hearing, Tell
from fabric_direct.drivers.libvirt.connection.connections import connected_apart, translated
from fabric_direct.errors import Unreachable

_TOLD = {
    libvirt.VIR_DOMAIN_EVENT_STARTED: "the domain was started",
    libvirt.VIR_DOMAIN_EVENT_RESUMED: "the domain was resumed",
    libvirt.VIR_DOMAIN_EVENT_DEFINED: "the domain was defined anew",
}


def listen(uri: str, tell: Tell, hearing: Hearing) -> None:
    """Tell of domains that start, are resumed or defined anew, or lose a device.

    :raises Unreachable: if libvirt does not answer, or the connection is lost.
    """
    with connected_apart(uri) as connection, _registered(connection, uri, tell, hearing):
        tell(Change("unknown"))
        hearing.wait()
    hearing.raise_error()


@contextmanager
def _registered(
    connection: libvirt.virConnect, uri: str, tell: Tell, hearing: Hearing
) -> Iterator[None]:
    def lived(_: object, domain: libvirt.virDomain, event: int, *__: object) -> None:
        if event in _TOLD:
            tell(_change(domain, _TOLD[event]))

    def lost_device(_: object, domain: libvirt.virDomain, alias: str, *__: object) -> None:
        tell(_change(domain, f"the domain lost {alias}"))

    def lost(_: object, reason: int, *__: object) -> None:
        why = f"libvirt's reason: {reason}"
        hearing.end(Unreachable("the connection to libvirt was lost", where=uri, why=why))

    callbacks = {
        libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE: lived,
        libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED: lost_device,
    }
    with translated("listen to the events of domains", uri):
        connection.registerCloseCallback(lost, None)
        numbers = [
            connection.domainEventRegisterAny(None, event, callback, None)
            for event, callback in callbacks.items()
        ]
    try:
        yield
    finally:
        with suppress(libvirt.libvirtError):  # it may be gone, and its callbacks with it
            for number in numbers:
                connection.domainEventDeregisterAny(number)
            connection.unregisterCloseCallback()


def _change(domain: libvirt.virDomain, what: str) -> Change:
    return Change("server", (domain.UUIDString(), domain.name()), what)
