"""Checks by which all drivers of switches refuse a service, whatever makes their segments."""

from collections.abc import Collection

from fabric_direct.drivers.contract.fields import refuse_given
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.services import NetworkService, PortMirror
from fabric_direct.site.config import Site


def refuse_other_types(service: NetworkService, served: Collection[str], by: str) -> None:
    """Raise InvalidSliver unless the service is of a type that is served."""
    if getattr(service, "type", None) not in served or not isinstance(service, NetworkService):
        why = f"only {', '.join(served)}"
        raise InvalidSliver(f"is not served by {by}", field="type", why=why)


def refuse_hops(service: NetworkService) -> None:
    """Raise InvalidSliver if the service says by which hops its tunnel leads."""
    if getattr(service, "ero", None) is not None:
        raise InvalidSliver("a tunnel has no hops to choose", field="ero")


def refuse_without_tunnel(site: Site, service: NetworkService) -> None:
    """Raise InvalidSliver if the service is on several devices, and one has no address for tunnels."""
    for device in service.devices() if len(service.devices()) > 1 else ():
        if site.switches[device].tunnel is None:
            why = f"site.yaml: switches.{device} has no address for tunnels"
            raise InvalidSliver("cannot be reached", field="interfaces", why=why)


def refuse_receiver(mirror: PortMirror, unset: Collection[str]) -> None:
    """Raise InvalidSliver unless the receiver of a mirror has its port to itself.

    :param unset: fields that it must not have.
    """
    (receiver,) = mirror.interfaces
    if receiver.vlan != "untagged":
        why = "a mirror has a port of its own, whose frames keep their tags"
        raise InvalidSliver("must be 'untagged'", field="interfaces[0].vlan", why=why)
    refuse_given(receiver, unset, "is not set for a mirror", "interfaces[0]")
