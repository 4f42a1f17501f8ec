"""A service that cannot be had as its file says, compared with the one that is there."""

from collections.abc import Iterator
from typing import Any

from fabric_direct.drivers.contract import Service
from fabric_direct.model import ObservedInterface
from fabric_direct.model.services import FabNet, Gateway, NetworkService, ServiceInterface


def as_there(asked: NetworkService, found: Service) -> tuple[NetworkService | None, list[str]]:
    """Return a service with what it leaves open as it is there, and which interfaces are missing.

    An interface whose VLAN is open, and which is not there, is left out.

    :return: None instead of the service if nothing is left that can be compared.
    """
    pairs = [(each, _filled(asked, each, found)) for each in asked.interfaces]
    missing = [f"interface {each.id} is missing" for each, filled in pairs if filled is None]
    update: dict[str, Any] = {"interfaces": tuple(filled for _, filled in pairs if filled)}
    if isinstance(asked, FabNet) and asked.own_subnet and asked.gateway is None:
        update["gateway"] = _gateway(found)
    comparable = update["interfaces"] and update.get("gateway", True)
    return (asked.model_copy(update=update) if comparable else None), missing


def _filled(
    asked: NetworkService, interface: ServiceInterface, found: Service
) -> ServiceInterface | None:
    stamp = found.stamp
    stamped = stamp.interface(interface.id) if isinstance(stamp, NetworkService) else None
    update: dict[str, Any] = {}
    if interface.address is None and stamped:
        update["address"] = stamped.address
    if interface.vlan == "auto":
        there = next(_candidates(asked, interface, found), None)
        if there is None:
            return None
        update["vlan"] = there.vlan or "untagged"
    return interface.model_copy(update=update)


def _candidates(
    asked: NetworkService, interface: ServiceInterface, found: Service
) -> Iterator[ObservedInterface]:
    """Yield what may be an interface: by its id, else on its port, for controllers keep no ids."""
    yield from (there for there in found.interfaces if there.component == interface.id)
    given = {(i.device, i.port, i.tag or None) for i in asked.interfaces if i.vlan != "auto"}
    ids = {each.id for each in asked.interfaces}
    for there in found.interfaces:
        where = there.device, there.port
        other = there.component in ids or (*where, there.vlan) in given
        if where == (interface.device, interface.port) and not other:
            yield there


def _gateway(found: Service) -> Gateway | None:
    stamped = getattr(found.stamp, "gateway", None)
    if stamped is None and found.gateway:
        return Gateway.model_validate({"address": found.gateway.address})
    return stamped
