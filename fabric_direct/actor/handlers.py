"""The handlers that the actor loads: from its unit to its result dictionary; they raise nothing.

::

    unit ─ fim ─► our sliver ─ HandlerProcessor ─► outcome ─ fim_writeback ─► unit
                                                      └───── results ─► result
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, ClassVar

from fabric_direct.actor import (
    fim,
    fim_server,
    fim_services,
    fim_switch,
    fim_writeback,
    poa,
    results,
    takeover,
)
from fabric_direct.actor.log import told_to
from fabric_direct.actor.results import Result
from fabric_direct.actor.site import actor_limits, processor_of
from fabric_direct.actor.sliver import FimNetworkService, FimNode, Unit
from fabric_direct.engine.run import attempt
from fabric_direct.errors import (
    FabricDirectError,
    InvalidSliver,
    NotFound,
    NotVerified,
    TimedOut,
)
from fabric_direct.handlers import registry
from fabric_direct.model import NodeSliver, Operation, Outcome, PciComponent, SliverRef, Stamp
from fabric_direct.model.bare_metal import BareMetalStamp
from fabric_direct.model.services import SERVICES
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import asked_by
from fabric_direct.state.journal import Unfinished

log = logging.getLogger(__name__)


class NotDone(FabricDirectError):
    """An operation ended without having done what was requested."""


class _Handler:
    """Base of the handlers; one whose ``site.yaml`` is broken says so in the log when it is made.

    :param logger: the actor's logger; it gets our log records while an operation runs.
    :param properties: ``config.properties.file`` is the path of ``site.yaml``.
    :param process_lock: ignored; the actor passes its pool's lock.
    """

    resource_types: ClassVar[tuple[str, ...]]
    what: ClassVar[str]
    """What its slivers are, for messages."""
    """The types of our slivers that it serves."""

    def __init__(
        self,
        logger: logging.Logger | None,
        properties: dict[str, Any] | None,
        process_lock: object = None,  # noqa: ARG002 - the actor gives it
    ) -> None:
        self._logger = logger or log
        self._properties = properties
        error = attempt(self._processor)
        if isinstance(error, Exception):
            self._logger.error("%s cannot work: %s", type(self).__name__, error)

    def get_logger(self) -> logging.Logger:
        """Return the actor's logger."""
        return self._logger

    def create(self, unit: Any) -> tuple[Result, Any]:
        """Create the unit's sliver; if that fails, nothing is left, or the message says what is."""
        return self._answered(results.CREATE, unit, self._create), unit

    def modify(self, unit: Any) -> tuple[Result, Any]:
        """Modify the unit's sliver; if that fails, the message says what is left."""
        return self._answered(results.MODIFY, unit, self._modify), unit

    def delete(self, unit: Any) -> tuple[Result, Any]:
        """Delete everything that belongs to the reservation, by the reservation's id."""
        return self._answered(results.DELETE, unit, self._delete), unit

    def poa(self, unit: Any, data: Mapping[str, Any] | None) -> tuple[Result, Any]:
        """Carry out the operational action that ``data`` names as ``operation``."""
        asked = data if isinstance(data, Mapping) else {}
        info: list[dict[str, Any] | None] = []
        message = self._attempt(results.POA, unit, lambda u: info.append(self._act(u, asked)))
        if message is not None:
            return results.poa_failure(asked, message), unit
        return results.poa_success(asked, info[0]), unit

    def clean_restart(self) -> Result:
        """Delete what this AM created of this handler's resource type; code 0 says that it is gone.

        The actor asks whichever handler is configured first, so each leaves alone what others make.
        """
        return self._answered(results.CLEAN_RESTART, None, lambda _: self._clean())

    # --- what differs

    def _create(self, unit: Unit) -> None:
        raise NotImplementedError

    def _modify(self, unit: Unit) -> None:
        raise NotImplementedError

    def _act(self, unit: Unit, asked: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002
        raise InvalidSliver(f"{self.what} have no operational actions", field="operation")

    def _delete(self, unit: Unit) -> None:
        self._ended(self._processor().delete(self._ref(unit)))
        self._complain(unit.get_sliver())

    def _complain(self, sliver: Any) -> None:
        """Raise InvalidSliver, after the deletion, if the unit is malformed."""
        if sliver is None:
            raise InvalidSliver("is missing; the reservation was deleted", field="sliver")
        if not sliver.get_name():
            raise InvalidSliver("is missing; the reservation was deleted", field="resource_name")

    # --- how

    def _answer(self, unit: Unit, action: str, data: dict[str, Any]) -> dict[str, Any]:
        return self._ended(self._processor().poa(self._ref(unit), action, data)).data

    def _ref(self, unit: Unit) -> SliverRef:
        return SliverRef(id=str(unit.get_reservation_id()), type=self._type(unit))

    def _type(self, unit: Unit) -> str:  # noqa: ARG002
        return self.resource_types[0]

    def _processor(self) -> HandlerProcessor:
        return processor_of(self._properties)

    @property
    def _site(self) -> Site:
        return self._processor().site

    def _answered(self, target: str, unit: Any, work: Callable[[Any], None]) -> Result:
        message = self._attempt(target, unit, work)
        return results.success(target) if message is None else results.failure(target, message)

    def _attempt(self, target: str, unit: Any, work: Callable[[Any], None]) -> str | None:
        """Run ``work`` with the actor's log; return the error's message, or None."""
        told = told_to(self._logger, target, _reservation(unit))
        with told, asked_by(_asker(unit)):
            log.info("begins")
            error = attempt(_identified, target, unit) or attempt(work, unit)
            if error is None:
                log.info("is done")
                return None
            message = str(error) or type(error).__name__
            known = isinstance(error, FabricDirectError)
            log.error("%s", message, exc_info=None if known else error)
            return message

    def _ended(self, future: "Future[Outcome]") -> Outcome:
        """Return the outcome of an operation that is done.

        :raises NotDone: otherwise, with its error, what is left, and whether the actor's limit ended it.
        """
        return self._done(future.result())

    def _done(self, outcome: Outcome) -> Outcome:
        if not outcome.ok:
            raise NotDone(_why_not(outcome, self._site))
        return outcome

    def _write(self, made: SliverRef, write: Callable[..., None], *values: Any) -> None:
        """Write what was made into the unit's sliver; if that fails, delete it again."""
        error = attempt(write, *values)
        if error is not None:
            self._ended(self._processor().delete(made))
            raise error

    # --- clean restart

    def _clean(self) -> None:
        processor = self._processor()
        entries = [e for e in processor.unfinished() if e.sliver["type"] in self.resource_types]
        types = {e.sliver["id"]: e.sliver["type"] for e in entries}
        completed = dict.fromkeys(self._completed(entries), self.resource_types[0])
        self._delete_all(processor, completed | types)

    def _completed(self, unfinished: list[Unfinished]) -> set[str]:  # noqa: ARG002
        """Return the ids of the slivers that are there, and are to be deleted."""
        return set()

    def _delete_all(self, processor: HandlerProcessor, types: dict[str, str]) -> None:
        log.info("deletes %d slivers", len(types))
        refs = [SliverRef(id=name, type=kind) for name, kind in sorted(types.items())]
        futures = {ref.id: processor.delete(ref) for ref in refs}
        wait(futures.values(), timeout=actor_limits(processor.site).total)
        left = [f"{name}: {why}" for name, f in futures.items() if (why := _not_gone(f))]
        if left:
            raise NotVerified("not all that was made is gone", why="; ".join(left))


class VMHandler(_Handler):
    """Virtual machines: FIM's ``NodeSliver`` of type VM."""

    resource_types = ("VM",)

    def _create(self, unit: Unit) -> None:
        node = fim.node_of(unit.get_sliver())
        error = attempt(self._make, unit, node)
        if error is not None:
            fim_writeback.write_absent(node)
            raise error

    def _make(self, unit: Unit, node: FimNode) -> None:
        wanted = fim.vm(self._site, unit, node, self._devices(unit, node))
        outcome = self._ended(self._processor().create(wanted))
        size = fim.size(self._site, node)
        self._write(wanted, fim_writeback.write_made, node, *size, outcome.observed)

    def _devices(self, unit: Unit, node: FimNode) -> tuple[PciComponent, ...]:
        """Return the devices of a VM that was created before; none if it is not there."""
        if not (node.label_allocations and node.label_allocations.instance):
            return ()
        outcome = self._processor().poa(self._ref(unit), "stamp").result()
        if outcome.failed_by(NotFound):
            return ()
        return Stamp.model_validate(self._done(outcome).data).sliver.devices()

    def _modify(self, unit: Unit) -> None:
        """Modify the components only: all else stays as the server's stamp has it."""
        node = fim.node_of(unit.get_sliver())
        modified = fim.node_of(unit.get_modified() or node)
        wanted = fim.changed(self._known(unit, node), unit, modified)
        outcome = self._ended(self._processor().modify(wanted))
        fim_writeback.write_changed(node, modified, outcome.observed)

    def _completed(self, unfinished: list[Unfinished]) -> set[str]:
        """Return the servers with this site's stamp.

        :raises NotVerified: if one is missing that the journal knows. Nothing is deleted then.
        """
        there = {server.sliver for server in self._processor().slivers()}
        _refuse_short(unfinished, there)
        return there

    def _act(self, unit: Unit, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        node = fim.node_of(unit.get_sliver())
        action, data = poa.data_of(asked)
        takeover.take_over_vm(self._processor(), unit, self._ended)
        if action == "rescan":
            data = {"bdf": fim.host_functions(self._known(unit, node), node, data["bdf"])}
        answer = self._answer(unit, action, data)
        labels = node.label_allocations
        host = str(labels.instance_parent if labels else "")
        instance = str((labels.instance if labels else None) or unit.get_reservation_id())
        if action == "cpuinfo":
            numa = self._answer(unit, "numainfo", {})
            return {action: poa.cpu_info(host, instance, answer, numa)}
        return {action: poa.numa_info(host, instance, answer)} if action == "numainfo" else None

    def _delete(self, unit: Unit) -> None:
        takeover.take_over_vm(self._processor(), unit, self._ended)
        super()._delete(unit)

    def _known(self, unit: Unit, node: FimNode) -> NodeSliver:
        """Return the VM as it was created or last modified, adopted before if others made it."""
        processor = self._processor()
        takeover.take_over_vm(processor, unit, self._ended)
        return takeover.relabelled(processor, self._stamped(unit), unit, node, self._ended)

    def _stamped(self, unit: Unit) -> NodeSliver:
        """Return the VM as it was created or last modified."""
        return Stamp.model_validate(self._answer(unit, "stamp", {})).sliver


class VnicNetHandler(_Handler):
    """Ports of VMs on a network: FIM's ``NetworkServiceSliver`` of type L2Bridge.

    A clean restart deletes what is unfinished; completed services are deleted one by one, whose ports
    they are.
    """

    resource_types, what = ("vNICPorts",), "ports"

    def _create(self, unit: Unit) -> None:
        service = fim.service_of(unit.get_sliver())
        self._ended(self._processor().create(fim.ports(self._site, unit, service, service)))

    def _modify(self, unit: Unit) -> None:
        service = fim.service_of(unit.get_sliver())
        modified = fim.service_of(unit.get_modified() or service)
        self._take_over(unit)
        wanted = fim.ports(self._site, unit, modified, service)
        self._ended(self._processor().modify(wanted))
        fim_writeback.write_allocations(service, modified)

    def _delete(self, unit: Unit) -> None:
        self._take_over(unit)
        super()._delete(unit)

    def _take_over(self, unit: Unit) -> None:
        """Adopt the service's ports if others made them; a unit that does not say them has none."""
        processor = self._processor()
        wanted = takeover.service_ports(processor, unit)
        if wanted is not None:
            takeover.take_over_ports(processor, wanted, self._ended)


class NetworkServiceHandler(_Handler):
    """Network services on switches and by controllers: FIM's ``NetworkServiceSliver`` of nine types.

    A clean restart deletes what is unfinished, and nothing else: completed services carry the packets of
    slivers of other AMs, whose reservations outlive this actor's state. A controller may have services
    of others, too. One that has the name that the unit's labels give is refused by its name.
    """

    resource_types, what = tuple(SERVICES), "network services"

    def _create(self, unit: Unit) -> None:
        service = fim_services.service_of(unit.get_sliver())
        wanted = fim_services.network_service(self._site, unit, service)
        takeover.refuse_given_name(self._site, wanted.ref(), service)
        outcome = self._ended(self._processor().create(wanted))
        self._write(wanted, fim_writeback.write_service, service, wanted, outcome.observed)

    def _modify(self, unit: Unit) -> None:
        service = fim_services.service_of(unit.get_sliver())
        modified = fim_services.service_of(unit.get_modified() or service)
        _refuse_other_service(service, modified)
        wanted = fim_services.network_service(self._site, unit, modified)
        takeover.refuse_given_name(self._site, wanted.ref(), service)
        outcome = self._ended(self._processor().modify(wanted))
        fim_writeback.write_allocations(service, modified)
        fim_writeback.write_service(modified, wanted, outcome.observed)
        fim_writeback.write_service(service, wanted, outcome.observed)

    def _delete(self, unit: Unit) -> None:
        """Delete the service; one whose name was given to fabric_am is not found by the id."""
        super()._delete(unit)
        takeover.refuse_given_name(self._site, self._ref(unit), unit.get_sliver())

    def _type(self, unit: Unit) -> str:
        """Return the type of the unit's sliver, or the unit's own if it has none."""
        sliver: Any = unit.get_sliver()
        kind = str(unit.get_resource_type() if sliver is None else sliver.get_type())
        if kind not in self.resource_types:
            raise InvalidSliver(f"{kind} is not served", field="resource_type")
        return kind


class SwitchHandler(_Handler):
    """Whole P4 switches: FIM's ``NodeSliver`` of type Switch.

    A clean restart deletes what is unfinished; who has a switch keeps it.
    """

    resource_types, what = ("Switch",), "switches"

    def _create(self, unit: Unit) -> None:
        self._ended(self._processor().create(fim_switch.switch(self._site, unit)))

    def _modify(self, unit: Unit) -> None:
        """Let in whom the unit's keys let in now; nothing else of a switch changes."""
        self._ended(self._processor().modify(fim_switch.switch(self._site, unit)))

    def _delete(self, unit: Unit) -> None:
        """Delete the switch; one that fabric_am gave away is not found by the id."""
        super()._delete(unit)
        name = fim_switch.which(self._site, unit.get_sliver())
        driver = registry.driver("service", self._site.driver_for("Switch") or "p4switch")
        driver(self._site, "").refuse_strangers(name)


class ServerHandler(_Handler):
    """Whole machines: FIM's ``NodeSliver`` of type Server.

    A clean restart deletes all that this site's slivers have, as of VMs.
    """

    resource_types, what = ("BareMetal",), "bare-metal nodes"

    def _create(self, unit: Unit) -> None:
        node = fim_server.server_of(unit.get_sliver())
        error = attempt(self._make, unit, node)
        if error is not None:
            fim_writeback.write_absent(node)
            raise error

    def _make(self, unit: Unit, node: FimNode) -> None:
        wanted = fim_server.bare_metal(self._site, unit, node)
        outcome = self._ended(self._processor().create(wanted))
        self._write(wanted, fim_writeback.write_server, node, outcome.observed)

    def _modify(self, unit: Unit) -> None:
        """Refuse other NICs; all else stays as the node's stamp has it."""
        node = fim_server.server_of(unit.get_sliver())
        modified = fim_server.server_of(unit.get_modified() or node)
        stamp = BareMetalStamp.model_validate(self._answer(unit, "stamp", {}))
        wanted = fim_server.changed(stamp.sliver, modified)
        outcome = self._ended(self._processor().modify(wanted))
        fim_writeback.write_allocations(node, modified)
        fim_writeback.write_server(modified, outcome.observed)

    def _act(self, unit: Unit, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        fim_server.server_of(unit.get_sliver())
        self._answer(unit, *poa.data_of(asked))
        return None

    def _completed(self, unfinished: list[Unfinished]) -> set[str]:  # noqa: ARG002
        """Return the slivers that have a node, or something of one.

        :raises NotVerified: if the nodes cannot be listed. Nothing is deleted then.
        """
        (kind,) = self.resource_types
        there = self._processor().services(kind)
        if there.silent:
            (why,) = map(str, there.silent.values())
            raise NotVerified("nothing was deleted: the nodes were not listed", why=why)
        return {each.ref.id for each in there.found}


def _refuse_other_service(was: FimNetworkService, now: FimNetworkService) -> None:
    """Raise InvalidSliver if a modification changes the type or the name of a service."""
    if str(was.get_type()) != str(now.get_type()):
        raise InvalidSliver("cannot be changed", field="resource_type")
    if fim_services.service_name(was) != fim_services.service_name(now):
        raise InvalidSliver("cannot be changed", field="resource_name")


def _identified(target: str, unit: Any) -> None:
    """Raise InvalidSliver if a unit has no reservation id: its text would be an id as any other."""
    if target == results.CLEAN_RESTART or unit is None:
        return
    found = unit.get_reservation_id()
    if found is None or not str(found):
        raise InvalidSliver("is missing", field="reservation_id")


def _reservation(unit: Any) -> str:
    """Return the reservation id for the log, or ``-`` if the unit has none."""
    found = attempt(lambda: str(unit.get_reservation_id())) if unit else None
    return found if isinstance(found, str) else "-"


def _asker(unit: Any) -> str:
    """Return who asked, for the audit trail: the actor, for a user and project if the unit says so."""
    found = attempt(lambda: dict(unit.get_properties() or {})) if unit else None
    properties = found if isinstance(found, dict) else {}
    named = [f"{key} {properties[key]}" for key in (fim.EMAIL, fim.PROJECT) if properties.get(key)]
    return f"actor for {', '.join(named)}" if named else "actor"


def _why_not(outcome: Outcome, site: Site) -> str:
    error = outcome.error
    parts = [error.message if error else f"ended {outcome.status}"]
    parts += [f"left: {', '.join(outcome.left)}"] if outcome.left else []
    limits = actor_limits(site)
    spent = outcome.failed_by(TimedOut) and outcome.seconds >= limits.operation
    if spent and limits.cut(outcome.operation):
        parts.append(limits.sentence)
    return "; ".join(part.rstrip(".") for part in parts)


def _not_gone(future: "Future[Outcome]") -> str:
    """Return why a sliver is not deleted; empty if it is."""
    if not future.done():
        future.cancel()
        return "not deleted within the actor's limit"
    outcome = future.result()
    return "" if outcome.ok else str(outcome.error.message if outcome.error else outcome.status)


def _refuse_short(unfinished: list[Unfinished], there: set[str]) -> None:
    """Raise NotVerified unless every server that was being modified has been found."""
    changed = [e.sliver["id"] for e in unfinished if e.operation is Operation.MODIFY]
    missing = [name for name in changed if name not in there]
    if missing:
        raise NotVerified(
            "nothing was deleted: servers that the journal knows were not found",
            why=", ".join(missing),
            remedy="check that hosts and cloud list all servers, then run `fabric-direct recover`",
        )
