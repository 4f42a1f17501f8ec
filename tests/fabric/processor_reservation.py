"""Reservations of fabric_cf's actor, from the orchestrator's request to its answer.

The resource model of the site is FIM's own graph of one worker, held in memory instead of Neo4j. The
orchestrator is fabric_cf's stand-in for tests, on its local protocol instead of Kafka.
"""

import queue
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from fabric_cf.actor.core.apis.abc_delegation import DelegationState
from fabric_cf.actor.core.core.ticket import Ticket
from fabric_cf.actor.core.delegation.delegation_factory import DelegationFactory
from fabric_cf.actor.core.delegation.resource_ticket import ResourceTicketFactory
from fabric_cf.actor.core.kernel.authority_reservation import AuthorityReservationFactory
from fabric_cf.actor.core.kernel.poa import PoaFactory
from fabric_cf.actor.core.kernel.reservation_states import ReservationStates
from fabric_cf.actor.core.kernel.resource_set import ResourceSet
from fabric_cf.actor.core.kernel.rpc_manager_singleton import RPCManagerSingleton
from fabric_cf.actor.core.kernel.rpc_request_type import RPCRequestType
from fabric_cf.actor.core.kernel.slice import SliceFactory
from fabric_cf.actor.core.registry.actor_registry import ActorRegistrySingleton
from fabric_cf.actor.core.time.term import Term
from fabric_cf.actor.core.util.id import ID
from fabric_cf.actor.core.util.resource_type import ResourceType
from fabric_cf.actor.test.controller_callback_helper import ControllerCallbackHelper
from fim.slivers.attached_components import AttachedComponentsInfo
from fim.slivers.capacities_labels import Capacities
from fim.slivers.delegations import DelegationType, Pools
from fim.slivers.network_node import NodeSliver, NodeType
from fim.user.topology import SubstrateTopology

from fabric_direct.calls.deadline import wait_until
from tests.fabric.processor_actor import KEY, VM, bare_unit

WORKER, DELEGATION = "worker-1", "primary"


class Orchestrator(ControllerCallbackHelper):
    """Notes the leases and the results of actions that the actor sends it."""

    def __init__(self, actor: Any) -> None:
        super().__init__(name=actor.get_name(), guid=actor.get_guid())
        self.leases: queue.Queue[Any] = queue.Queue()
        self.results: queue.Queue[Any] = queue.Queue()

    def __getstate__(self) -> dict[str, Any]:
        """Be kept with a reservation in the actor's database, without what was noted."""
        return {k: v for k, v in super().__getstate__().items() if k not in {"leases", "results"}}

    def prepare_poa_result(self, *, poa: Any, callback: Any, caller: Any) -> Any:
        request = self.MyRequestState()
        request.poa = poa  # itself: its `clone` returns nothing in fabric_cf 1.9
        return request

    def execute(self, *, request: Any, producer: Any) -> None:
        if request.get_type() == RPCRequestType.UpdateLease:
            self.leases.put(request.reservation)
        else:
            self.results.put(request.poa)


class SiteAm:
    """The actor with a site of one worker, and an orchestrator that has a delegation of it."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.orchestrator = actor, Orchestrator(actor)
        self.model = model()
        self.cycle = 0
        actor.recovered = True
        actor.policy.set_aggregate_resource_model(self.model)
        Term.set_clock(actor.get_actor_clock())
        ActorRegistrySingleton.get().clear()
        ActorRegistrySingleton.get().register_actor(actor=actor)
        ActorRegistrySingleton.get().register_callback(callback=self.orchestrator)
        manager = RPCManagerSingleton.get()
        manager.set_producer(
            producer=SimpleNamespace(start=lambda: None)
        )  # of Kafka, not used here
        manager.start()
        self._delegate()
        self.tick()

    def _delegate(self) -> None:
        inventory = SliceFactory.create(slice_id=ID(), name="inventory")
        inventory.set_inventory(value=True)
        self.actor.register_slice(slice_object=inventory)
        self.delegation = DelegationFactory.create(
            did=str(ID()), slice_id=inventory.get_slice_id(), delegation_name=DELEGATION
        )
        self.delegation.set_slice_object(slice_object=inventory)
        self.actor.register_delegation(delegation=self.delegation)
        self.actor.policy.donate_delegation(delegation=self.delegation)
        self.delegation.state = DelegationState.Delegated

    def tick(self) -> None:
        """Let a cycle of the actor's time pass."""
        self.cycle += 1
        self.actor.external_tick(cycle=self.cycle)
        wait_until("a tick", lambda: self.actor.get_current_cycle() == self.cycle, timeout=30)

    def request(self, name: str = "node1") -> Any:
        """Make what the orchestrator sends for a VM that the broker has given it a ticket for."""
        now = datetime.now(UTC)
        term = Term(start=now, end=now + timedelta(hours=1))
        rtype = ResourceType(resource_type=VM)
        ticket = Ticket(
            resource_ticket=ResourceTicketFactory.create(
                issuer=self.actor.get_guid(), units=1, term=term, rtype=rtype
            ),
            plugin=self.actor.get_plugin(),
            authority=None,
        )
        ticket.delegation_id = self.delegation.get_delegation_id()
        resources = ResourceSet(units=1, rtype=rtype, sliver=self._sliver(name))
        resources.set_resources(cset=ticket)
        tenant = SliceFactory.create(slice_id=ID(), name="tenant")
        tenant.set_config_properties(value={"user.ssh.key": KEY, "project_id": "project"})
        return AuthorityReservationFactory.create(
            resources=resources, term=term, slice_obj=tenant, rid=ID()
        )

    def _sliver(self, name: str) -> NodeSliver:
        sliver = bare_unit(name).get_sliver()
        sliver.resource_type = NodeType.VM
        sliver.set_node_map((self.model.graph_id, WORKER))
        sliver.attached_components_info = AttachedComponentsInfo()
        return sliver

    def redeem(self, reservation: Any) -> None:
        """Send the request, as Kafka's service does."""
        self.actor.redeem(
            reservation=reservation,
            callback=self.orchestrator,
            caller=self.orchestrator.get_identity(),
        )

    def act(self, reservation: Any, operation: str) -> None:
        """Ask for an operational action on an active reservation."""
        poa = PoaFactory.create(
            poa_id=str(ID()), operation=operation, sliver_id=reservation.get_reservation_id()
        )
        self.actor.wrapper.poa(reservation=reservation, poa=poa, raise_exception=True)

    def await_state(self, reservation: Any, state: ReservationStates) -> None:
        """Let time pass until the reservation is in a state."""
        self._pass(f"{reservation} to be {state}", lambda: reservation.get_state() is state)

    def lease(self) -> Any:
        """Let time pass until the orchestrator is sent a lease."""
        self._pass("a lease", lambda: not self.orchestrator.leases.empty())
        return self.orchestrator.leases.get()

    def result(self) -> Any:
        """Let time pass until the orchestrator is sent the result of an action."""
        self._pass("a result", lambda: not self.orchestrator.results.empty())
        return self.orchestrator.results.get()

    def _pass(self, what: str, so: Callable[[], bool]) -> None:
        def ask() -> bool:
            self.tick()
            return so()

        wait_until(what, ask, timeout=60)


def model() -> Any:
    """Make the resource model of a site of one worker, all of it delegated."""
    topology = SubstrateTopology()
    topology.add_node(
        name="localhost",
        node_id=WORKER,
        site="TEST",
        ntype=NodeType.Server,
        capacities=Capacities(unit=1, core=8, ram=64, disk=500),
    )
    topology.single_delegation(
        delegation_id=DELEGATION,
        label_pools=Pools(atype=DelegationType.LABEL),
        capacity_pools=Pools(atype=DelegationType.CAPACITY),
    )
    return topology.as_arm()
