"""Take over what fabric_am made of a unit: adopt it if site.yaml says so, else refuse it by name.

A deletion looks for stamps: it would find nothing of an unstamped server, and report that all is gone.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import cast

from fabric_direct.actor import fim
from fabric_direct.actor.fim_fields import label, text
from fabric_direct.actor.sliver import FimNode, FimSliver, Unit
from fabric_direct.drivers.contract import FoundServer
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Conflict, NotOurs
from fabric_direct.handlers import registry
from fabric_direct.model import NodeSliver, Outcome, SliverRef
from fabric_direct.model.adoption import Adoption, ServiceAdoption
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site

Ended = Callable[["Future[Outcome]"], Outcome]
"""Returns an outcome that is done, or raises."""


def take_over_vm(processor: HandlerProcessor, unit: Unit, ended: Ended) -> None:
    """Adopt the unit's VM if others made it; do nothing if it is ours, or not there.

    :raises NotOurs: if others made it and ``actor.adopt`` of site.yaml is not set.
    :raises Conflict: if there are several.
    """
    reservation = str(unit.get_reservation_id())
    strangers = processor.strangers(f"{reservation}-")
    if not strangers:
        return
    _refuse_unless_adopting(processor, map(str, strangers))
    ended(processor.adopt(_adoption(processor, unit, strangers)))


def take_over_ports(processor: HandlerProcessor, wanted: VNicPortsSliver, ended: Ended) -> None:
    """Adopt the ports of the unit's network service that others made, and the servers that have them.

    A port is unplugged from our servers only. Of a server nothing is known here but what is found.
    """
    names = [port.interface.mac for port in wanted.ports if port.interface.mac]
    there = processor.ports_named(names)
    strangers = [port for port in there if not port.owner or port.unfinished]
    if not strangers:
        return
    _refuse_unless_adopting(processor, (f"port {p.name} ({p.id})" for p in strangers))
    for server in wanted.servers():
        if found := processor.strangers(f"{server}-"):
            ended(processor.adopt(_as_found(processor, server, found)))
    macs = {port.mac for port in there}
    own = tuple(port for port in wanted.ports if port.interface.mac in macs)
    ended(processor.adopt(ServiceAdoption(sliver=wanted.model_copy(update={"ports": own}))))


def relabelled(
    processor: HandlerProcessor, was: NodeSliver, unit: Unit, node: FimNode, ended: Ended
) -> NodeSliver:
    """Return the VM by its stamp; with the unit's component ids, if it was adopted by names alone.

    Without them a modification would take its devices away, and erase them.
    """
    if not processor.site.actor.adopt:
        return was
    wanted = attempt(fim.vm, processor.site, unit, node, was.devices())
    if isinstance(wanted, Exception) or not _is_other_label(was, wanted):
        return was
    named = was.model_copy(update={"components": wanted.components})
    ended(processor.adopt(Adoption(sliver=named, server=_server_name(unit, node))))
    return named


def _is_other_label(was: NodeSliver, wanted: NodeSliver) -> bool:
    """Return whether the same functions and volumes have other ids."""
    return _things(was).keys() == _things(wanted).keys() and _things(was) != _things(wanted)


def _things(sliver: NodeSliver) -> dict[object, str]:
    found: dict[object, str] = {a: d.id for d in sliver.devices() for a in d.bdf}
    return found | {storage.volume: storage.id for storage in sliver.volumes()}


def _refuse_unless_adopting(processor: HandlerProcessor, what: Iterable[str]) -> None:
    if not processor.site.actor.adopt:
        raise NotOurs(
            f"{', '.join(what)} has no stamp of the reservation",
            why="fabric_am made it, or somebody with its names",
            remedy="set actor.adopt in site.yaml, or run `fabric-direct adopt`",
        )


def _adoption(
    processor: HandlerProcessor, unit: Unit, strangers: tuple[FoundServer, ...]
) -> Adoption:
    """Return the unit's VM as FIM says, or else as it was found: a deletion needs no more."""
    wanted = attempt(_by_fim, processor, unit)
    if isinstance(wanted, Adoption):
        return wanted
    return _as_found(processor, str(unit.get_reservation_id()), strangers)


def _as_found(
    processor: HandlerProcessor, reservation: str, strangers: tuple[FoundServer, ...]
) -> Adoption:
    """Return a reservation's only server as it was found.

    :raises Conflict: if there are several, or it cannot be told as a sliver.
    """
    drafts = processor.drafts(f"{reservation}-")
    if len(drafts) == 1 and drafts[0].adoption:
        return drafts[0].adoption
    named = ", ".join(map(str, strangers))
    why = "; ".join(draft.error.message for draft in drafts if draft.error)
    raise Conflict(f"{named} cannot be adopted", why=why or "there are several")


def _by_fim(processor: HandlerProcessor, unit: Unit) -> Adoption:
    node = fim.node_of(unit.get_sliver())
    sliver = fim.vm(processor.site, unit, node)
    return Adoption(sliver=sliver, server=_server_name(unit, node))


def _server_name(unit: Unit, node: FimNode) -> str:
    return f"{unit.get_reservation_id()}-{node.get_name()}"


def service_ports(processor: HandlerProcessor, unit: Unit) -> VNicPortsSliver | None:
    """Return the ports of a unit's network service; None if the unit does not say them."""
    found = attempt(_service_ports, processor, unit)
    return None if isinstance(found, Exception) else found


def _service_ports(processor: HandlerProcessor, unit: Unit) -> VNicPortsSliver:
    service = fim.service_of(unit.get_sliver())
    return fim.ports(processor.site, unit, service, service)


def refuse_given_name(site: Site, ref: SliverRef, sliver: object) -> None:
    """Raise NotOurs if a controller has a service of the name that the sliver's labels give it.

    fabric_am names it so, without the reservation. Whoever asks for a service gives that name, so it
    does not say that the service is this reservation's: it is neither adopted nor deleted.
    """
    given = label(cast(FimSliver, sliver).labels, "local_name")
    driver = site.driver_for(ref.type)
    if not (given and driver):
        return
    controller = registry.driver("service", driver)(site, "")
    if hasattr(controller, "refuse_namesake"):
        controller.refuse_namesake(ref, text(given, "labels.local_name"))
