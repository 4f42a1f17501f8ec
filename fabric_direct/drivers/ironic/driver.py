"""The driver of bare-metal nodes: Ironic's API, by openstacksdk.

::

    apply    allocation → stamp, instance_info → validated → deployed with a config drive
    rebuild  stamp that says that it is due → validated → deployed anew → stamp that says so no more
    remove   taken away → cleaned → stamp removed; or allocation given up, if nothing is deployed

The allocation has the stamp from the request that makes it, and a name that tells site and sliver: it is
found again by that. The node's own stamp stays until the node was seen to be available again.

An active node does not tell whether it was rebuilt: its stamp does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from openstack.baremetal.v1.allocation import Allocation
from openstack.baremetal.v1.node import Node

from fabric_direct.calls.deadline import noting, time_left, wait_until
from fabric_direct.calls.read_cache import current
from fabric_direct.drivers.contract.bare_metal import (
    BareMetalNode,
    NodeAccess,
    NodeCondition,
    Power,
    PowerChange,
)
from fabric_direct.drivers.contract.network_services import Service
from fabric_direct.drivers.contract.node_choice import (
    choose,
    differing,
    needs_deployment,
    node_differences,
    refuse_fixed,
    refuse_unknown_image,
    size_of,
)
from fabric_direct.drivers.contract.node_networks import addresses_of
from fabric_direct.drivers.contract.node_service import node_service, stamped_node
from fabric_direct.drivers.contract.stamped import Stamped
from fabric_direct.drivers.ironic.connection import connection
from fabric_direct.drivers.ironic.deployment import config_drive, deployed_info, instance_info
from fabric_direct.drivers.ironic.reading import (
    STAMP,
    by_node,
    read_node,
    sliver_of,
    stamp_of,
    tenant_of,
)
from fabric_direct.drivers.ironic.requests import once_unlocked
from fabric_direct.drivers.ironic.states import (
    ACTIVE,
    AVAILABLE,
    can_be_deleted,
    can_be_rebuilt,
    is_being_deployed,
)
from fabric_direct.drivers.ironic.vifs import Vifs
from fabric_direct.drivers.openstack.client.errors import if_there, make_once, translated, unclear
from fabric_direct.drivers.openstack.client.poller import wait_for
from fabric_direct.drivers.openstack.client.transport import shared, uncached
from fabric_direct.errors import (
    Conflict,
    DeviceUnclean,
    DriverError,
    FabricDirectError,
    InvalidSite,
    NoHost,
    NotFound,
    NotOurs,
)
from fabric_direct.model.bare_metal import BareMetalSliver, BareMetalStamp
from fabric_direct.site.config import OpenStackSettings, Site

_VALIDATED = ("boot", "deploy", "management", "network", "power")
"""The interfaces of a node that must be fit before it is deployed."""
_STAMPS = ("uuid", "name", "extra", "instance_uuid", "provision_state")
"""The fields that tell whose a node is, with those that every answer must have."""
_POWERS: dict[tuple[PowerChange, bool], str] = {
    ("on", False): "power on",
    ("on", True): "power on",
    ("off", False): "soft power off",
    ("off", True): "power off",
    ("restart", False): "soft rebooting",
    ("restart", True): "rebooting",
}
"""What Ironic is asked for, by the change and whether it is hard."""


class IronicBareMetal:
    """A :class:`~fabric_direct.drivers.contract.BareMetalDriver` by Ironic."""

    def __init__(self, site: Site, host: str = "") -> None:  # noqa: ARG002 - as for all drivers
        """Make a driver; it sends no request before its first call.

        :raises InvalidSite: if neither ``ironic`` nor ``openstack`` of site.yaml names a cloud.
        """
        self._site, self._settings = site, _settings(site)
        self._where = f"cloud {self._settings.cloud}"
        self._vifs = Vifs(site, self._settings)

    # --- reading

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return all nodes that this user sees, by name."""
        with translated("list the ports of nodes", self._where):
            ports = by_node(self._api.ports(details=True))
        found = (replace(node, ports=ports[node.id]) for node in self._listed())
        return tuple(sorted(found, key=lambda node: (node.name, node.id)))

    def _listed(self) -> list[BareMetalNode]:
        """Return all nodes, without their ports."""
        with translated("list bare-metal nodes", self._where):
            return [self._read(node) for node in self._api.nodes(details=True)]

    def examine(self) -> tuple[str, ...]:
        """Return how many nodes this user sees, in which conditions."""
        counted = Counter(node.condition.value for node in self.nodes())
        each = (f"{number} {name}" for name, number in sorted(counted.items()))
        return (f"{counted.total()} nodes", *each)

    def check(self, sliver: BareMetalSliver) -> None:
        """Raise an error unless a node is the sliver's, or free for it."""
        refuse_unknown_image(self._site, sliver)
        node = self._own(sliver.id)
        if node is None:
            self._vifs.check(sliver)
            choose(self.nodes(), sliver)
        else:
            refuse_fixed(sliver, self._whole(node), rebuild=sliver.rebuild)
            due = node.stamp and sliver.rebuild and needs_deployment(sliver, node.stamp)
            if due and node.condition is not NodeCondition.CHANGING:
                self._refuse_rebuild(node)

    def find(self, sliver_id: str) -> Service | None:
        """Return the node that is deployed and carries the sliver's stamp."""
        node = self._stamped_node(sliver_id)
        active = node is not None and node.condition is NodeCondition.ACTIVE
        return self._service(node) if node and active else None

    def differences(self, sliver: BareMetalSliver) -> tuple[str, ...]:
        """Name what differs."""
        node = self._own(sliver.id)
        if node is None:
            return ("it has no node",)
        return node_differences(sliver, self._whole(node)) + self._vifs.differences(sliver, node)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the node with the sliver's stamp, or the allocation that has one, and its ports."""
        allocation, node = self._found(sliver_id)
        ports = self._vifs.leftovers(sliver_id)
        if node and node.sliver:
            return (f"node {node.name} ({node.condition})", *ports)
        return (f"allocation {allocation.name}", *ports) if allocation else ports

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the nodes, allocations and ports with this site's stamp, one for each sliver."""
        ports = self._vifs.stamped()
        found = {port.sliver: replace(port, kind="BareMetal") for port in ports}
        with translated("list allocations", self._where):
            for allocation in self._api.allocations():
                if sliver := sliver_of(self._site.site, allocation.extra):
                    found[sliver] = Stamped(sliver, "BareMetal", str(allocation.name))
        found |= {node.sliver: stamped_node(node) for node in self._listed() if node.sliver}
        return tuple(found[sliver] for sliver in sorted(found))

    def stamp(self, sliver_id: str) -> BareMetalStamp | None:
        """Return the stamp on the sliver's node."""
        node = self._stamped_node(sliver_id)
        return node.stamp if node else None

    def power(self, sliver_id: str) -> Power | None:
        """Return whether the sliver's node is on."""
        return self._needed(sliver_id).power

    # --- changing

    def apply(self, sliver: BareMetalSliver, access: NodeAccess = NodeAccess()) -> Service:  # noqa: B008 - it is frozen
        """Reserve a node, deploy it and switch it on, or go on with what was begun."""
        refuse_unknown_image(self._site, sliver)
        node = self._own(sliver.id)
        if node:
            refuse_fixed(sliver, node)
        if node and not node.sliver and sliver.node not in {None, node.name}:
            self._vifs.release(sliver.id, node)
            self._drop_allocation(sliver.id)  # of a creation that another node was chosen for
            node = None
        node = node or self._reserve(sliver)
        if node.condition is NodeCondition.CHANGING:
            deploying = is_being_deployed(node.state)
            node = self._await(node, "to come to rest", self._rests)
            if not deploying:
                refuse_fixed(sliver, node)
        if node.condition is NodeCondition.ACTIVE:
            self._stamp(node, sliver.stamp(node.stamp), {"display_name": sliver.name})
        elif node.condition in {NodeCondition.RESERVED, NodeCondition.FAILED}:
            self._deploy(node, sliver, access, "active")
        else:
            raise Conflict(
                f"node {node.name} of {sliver.id} is {node.condition}",
                why=node.why,
                remedy="delete the sliver, and create it again",
            )
        return self._service(self._needed(sliver.id))

    def rebuild(self, sliver: BareMetalSliver, access: NodeAccess = NodeAccess()) -> Service:  # noqa: B008 - it is frozen
        """Deploy the sliver's node anew as the sliver says, or go on with a rebuild that was begun.

        One that is under way is waited for, and is this one if the stamp says the same. A deployment
        that is refused before it could begin leaves the stamp as it was.
        """
        refuse_unknown_image(self._site, sliver)
        node = self._needed(sliver.id)
        refuse_fixed(sliver, self._whole(node), rebuild=True)
        was = node.stamp
        begun = was is not None and was.rebuild_due and not any(differing(sliver, was))
        begun = begun and is_being_deployed(node.state)
        if node.condition is NodeCondition.CHANGING:
            node = self._await(node, "to come to rest", self._rests)
        if begun and node.state == ACTIVE:
            self._switch_on(node, sliver.id)
        else:
            self._refuse_rebuild(node)
            self._deploy(node, sliver, access, "rebuild")
        node = self._needed(sliver.id)
        if node.stamp and node.stamp.rebuild_due:
            self._stamp(node, node.stamp.model_copy(update={"rebuild_due": False}))
        return self._service(self._needed(sliver.id))

    def remove(self, sliver_id: str) -> None:
        """Take the sliver's node away, wait until it is clean, and give it up.

        :raises DeviceUnclean: if it could not be cleaned; it keeps the stamp.
        """
        node = self._own(sliver_id)
        if node is not None and node.condition is not NodeCondition.RESERVED:
            self._take_away(node)
        elif node is not None and node.sliver:
            # Ironic would keep it for whoever gets the node next.
            self._patch(node, [{"op": "add", "path": "/instance_info", "value": {}}])
        self._vifs.release(sliver_id, node)
        self._drop_allocation(sliver_id)
        if node is not None and node.sliver:
            self._patch(node, [{"op": "remove", "path": f"/extra/{STAMP}"}])

    def set_power(self, sliver_id: str, power: PowerChange, *, hard: bool = False) -> None:
        """Switch the sliver's node on or off, or restart it; it is so on return."""
        node, target = self._needed(sliver_id), _POWERS[power, hard]
        wanted: Power = "off" if power == "off" else "on"
        self._change(
            f"ask for {target} of node {node.name}",
            lambda: self._api.set_node_power_state(node.id, target),
        )

        def so(found: Node) -> bool:
            # Ironic answers before it begins; the node is locked from then until it has ended.
            rests = found.reservation is None and found.target_power_state is None
            return rests and self._read(found).power == wanted

        self._await(node, f"to be {wanted}", so)

    # --- steps of these

    def _reserve(self, sliver: BareMetalSliver) -> BareMetalNode:
        """Return a free node that was allocated for the sliver, one of the smallest that fit.

        Ironic gives a node to one allocation alone, whoever asks at the same time. Of several that are
        alike, it chooses.
        """
        self._drop_failed_allocation(sliver.id)
        refused = []
        for size, alike in groupby(choose(self.nodes(), sliver), key=size_of):
            allocation = self._allocate(sliver, size[-1], [node.id for node in alike])
            if allocation.state == "active":
                return self._read(self._get(allocation.node_id))
            refused.append(str(allocation.last_error))
            self._drop_allocation(sliver.id)
        raise NoHost(f"Ironic allocates no node for {sliver.id}", why="; ".join(refused))

    def _allocate(self, sliver: BareMetalSliver, name: str, nodes: list[str]) -> Allocation:
        wanted = {
            "name": self._allocation_name(sliver.id),
            "resource_class": name,
            "candidate_nodes": nodes,
            "extra": {STAMP: stamp_of(self._site.site, sliver.stamp())},
        }

        def made() -> Allocation | None:
            with uncached():
                return self._allocation(sliver.id)

        with translated(f"allocate a node for {sliver.id}", self._where):
            make_once(
                lambda: self._api.create_allocation(**wanted),
                made,
                timeout=self._site.limits.call / 4,
            )
        ended: list[Allocation] = []

        def so() -> bool:
            found = made()
            if found is None:
                raise NotFound(f"the allocation of {sliver.id} is gone")
            ended[:] = [found] if found.state != "allocating" else []
            return bool(ended)

        wait_until("Ironic to allocate a node", so, timeout=time_left(self._site.limits.call))
        return ended[0]

    def _refuse_rebuild(self, node: BareMetalNode) -> None:
        """Raise Conflict if Ironic would refuse to deploy a node anew."""
        found = self._get(node.id)
        if found.is_maintenance:
            raise Conflict(
                f"node {node.name} is in maintenance",
                why=node.why,
                remedy="end that, and ask again",
            )
        if not can_be_rebuilt(found.provision_state):
            raise Conflict(f"node {node.name} is {found.provision_state}: it cannot be rebuilt")

    def _deploy(
        self, node: BareMetalNode, sliver: BareMetalSliver, access: NodeAccess, target: str
    ) -> None:
        """Deploy a node; the stamp says that a rebuild is due, since its state would not tell."""
        whole = self._whole(node)
        ports = self._vifs.attach(sliver, whole)
        addresses = addresses_of(ports)
        former = deployed_info(self._get(node.id).instance_info or {})
        info = instance_info(sliver, self._site.ironic.images[sliver.image])
        due = {"rebuild_due": target == "rebuild", "addresses": addresses}
        stamp = sliver.stamp().model_copy(update=due)
        self._stamp(node, stamp, info, former.keys() - info.keys())
        if why := self._invalid(node):
            if node.condition is NodeCondition.ACTIVE and node.stamp:
                self._stamp(node, node.stamp, former, info.keys() - former.keys())
            raise DriverError(f"node {node.name} cannot be deployed", why=why)
        drive = config_drive(sliver.with_addresses(addresses), whole, access, ports)
        self._provision(node, target, config_drive=drive)

        def so(found: Node) -> bool:
            now = self._read(found)
            if now.condition is NodeCondition.FAILED:
                raise DriverError(f"node {now.name} was not deployed", why=now.why)
            return now.condition is NodeCondition.ACTIVE

        self._switch_on(self._await(node, "to be active", so), sliver.id)

    def _switch_on(self, node: BareMetalNode, sliver_id: str) -> None:
        if node.power != "on":
            self.set_power(sliver_id, "on")

    def _invalid(self, node: BareMetalNode) -> str:
        """Return why a node cannot be deployed as ``instance_info`` says; empty if it can."""
        with translated(f"validate node {node.name}", self._where):
            found = self._api.validate_node(node.id, required=None)
        bad = (name for name in _VALIDATED if name in found and found[name].result is False)
        return next((f"{name}: {found[name].reason}" for name in bad), "")

    def _take_away(self, node: BareMetalNode) -> None:
        """Delete what is deployed, if anything is, and wait until the node is clean."""
        if node.condition is NodeCondition.CHANGING and not can_be_deleted(node.state):
            node = self._await(node, "to come to rest", self._rests)
        if can_be_deleted(node.state):
            self._provision(node, "deleted")

        def so(found: Node) -> bool:
            now = self._read(found)
            if now.state == AVAILABLE:
                return True
            if now.condition is NodeCondition.FAILED:
                raise DriverError(f"node {now.name} was not taken away", why=now.why)
            if now.condition in {NodeCondition.QUARANTINED, NodeCondition.WITHHELD}:
                raise DeviceUnclean(
                    f"node {now.name} could not be cleaned",
                    why=now.why or f"it is {now.state}",
                    remedy="clean it with Ironic's own tools until it is available, and delete again",
                )
            return False

        # As long as a deletion may take: a cleaning takes longer than a deployment.
        self._await(node, "to be clean and available", so, self._site.limits.delete)

    def _provision(self, node: BareMetalNode, target: str, **how: Any) -> None:
        """Ask for a provision state; what got no answer, and was begun, is waited for as well."""

        def request() -> None:
            self._api.set_node_provision_state(node.id, target, **how)

        with noting() as noted:
            try:
                self._change(f"ask node {node.name} to be {target}", request)
            except FabricDirectError as error:
                with uncached():
                    found = self._get(node.id)
                if not unclear(error) or found.provision_state == node.state:
                    raise
        for unanswered in noted:
            unanswered.known()

    def _stamp(
        self,
        node: BareMetalNode,
        stamp: BareMetalStamp,
        info: Mapping[str, Any] = MappingProxyType({}),
        stale: Iterable[str] = (),
    ) -> None:
        """Write the stamp and keys of ``instance_info`` at once; remove those that are stale."""
        sliver = stamp.sliver.id
        allocation = self._allocation(sliver)
        if allocation is None:
            raise Conflict(f"node {node.name} is not allocated for {sliver} any more")
        value = stamp_of(self._site.site, stamp) | {"allocation": allocation.id}
        changes = [{"op": "add", "path": f"/extra/{STAMP}", "value": value}]
        changes += [
            {"op": "add", "path": f"/instance_info/{key}", "value": each}
            for key, each in info.items()
        ]
        changes += [{"op": "remove", "path": f"/instance_info/{key}"} for key in sorted(stale)]
        self._patch(node, changes)

    def _patch(self, node: BareMetalNode, changes: list[dict[str, Any]]) -> None:
        what = f"write the stamp of node {node.name}"
        self._change(what, lambda: self._api.patch_node(node.id, changes))

    def _drop_allocation(self, sliver_id: str) -> None:
        """Give up the sliver's allocation, if there is one: nothing is deployed on its node."""
        if self._allocation(sliver_id):
            name = self._allocation_name(sliver_id)
            self._change(
                f"give up allocation {name}",
                lambda: self._api.delete_allocation(name, ignore_missing=True),
            )

    def _drop_failed_allocation(self, sliver_id: str) -> None:
        """Give up an allocation that came to nothing, and that a killed process has left."""
        found = self._allocation(sliver_id)
        if found and found.state == "error":
            self._drop_allocation(sliver_id)

    def _change(self, what: str, request: Callable[[], object]) -> None:
        """Send a request that changes a node, again while it is locked."""
        with translated(what, self._where):
            once_unlocked(request, self._site.limits.call)

    def _await(
        self,
        node: BareMetalNode,
        what: str,
        so: Callable[[Node], bool],
        limit: float | None = None,
    ) -> BareMetalNode:
        """Wait for a condition of a node; return the node then.

        :param limit: seconds; those of a creation if None.
        """

        def done(found: Node | None) -> bool:
            if found is None:
                raise NotFound(f"node {node.name} is gone")
            return so(found)

        found: Node | None = wait_for(
            self._cloud,
            "node",
            node.id,
            done,
            timeout=time_left(limit or self._site.limits.create),
            what=f"node {node.name} {what}",
        )
        assert found is not None  # noqa: S101 - done() says so
        if reads := current():
            reads.invalidate()
        return self._read(found)

    def _rests(self, found: Node) -> bool:
        return self._read(found).condition is not NodeCondition.CHANGING

    # --- finding

    @property
    def _cloud(self) -> Any:
        return connection(self._site, self._settings)

    @property
    def _api(self) -> Any:
        return self._cloud.baremetal

    def _own(self, sliver_id: str) -> BareMetalNode | None:
        """Return the node of a sliver, also one that is only allocated for it; without its ports."""
        return self._found(sliver_id)[1]

    def _stamped_node(self, sliver_id: str) -> BareMetalNode | None:
        node = self._own(sliver_id)
        return node if node and node.sliver else None

    def _found(self, sliver_id: str) -> tuple[Allocation | None, BareMetalNode | None]:
        """Return the allocation of a sliver, and the node that carries its stamp, or else is allocated.

        All nodes are looked at only where the allocated one has not its stamp, and of each no more than
        that: Ironic takes four times as long to tell all.
        """
        allocation, node = self._allocation(sliver_id), None
        if allocation is not None and allocation.node_id is not None:
            node = self._read(self._get(allocation.node_id))
            if node.sliver == sliver_id:
                return allocation, node
        with translated("list the stamps of nodes", self._where):
            listed = self._api.nodes(fields=_STAMPS)
            found = (each.id for each in listed if tenant_of(self._site.site, each) == sliver_id)
            stamped = next(found, None)
        return allocation, self._read(self._get(stamped)) if stamped else node

    def _needed(self, sliver_id: str) -> BareMetalNode:
        node = self._stamped_node(sliver_id)
        if node is None:
            raise NotFound(f"sliver {sliver_id} has no node")
        return node

    def _get(self, node_id: str) -> Node:
        with translated(f"read node {node_id}", self._where):
            found: Node = self._api.get_node(node_id)
        return found

    def _read(self, node: Node) -> BareMetalNode:
        """Return a node, without its ports."""
        return read_node(self._site.site, node)

    def _whole(self, node: BareMetalNode) -> BareMetalNode:
        """Return a node with its ports."""
        with translated(f"read the ports of node {node.name}", self._where):
            ports = by_node(self._api.ports(details=True, node=node.id))
        return replace(node, ports=ports[node.id])

    def _service(self, node: BareMetalNode) -> Service:
        """Return a node that is deployed, with its ports if its sliver names any."""
        named = node.stamp is not None and node.stamp.sliver.nics
        return node_service(self._whole(node) if named else node)

    def _allocation_name(self, sliver_id: str) -> str:
        return f"{self._site.site}.{sliver_id}"

    def _allocation(self, sliver_id: str) -> Allocation | None:
        """Return the allocation of a sliver.

        :raises NotOurs: if one of its name has not its stamp.
        """
        name = self._allocation_name(sliver_id)

        def read() -> Allocation | None:
            with translated(f"read allocation {name}", self._where):
                return if_there(self._api.get_allocation, name)

        found = shared(("allocation", self._where, name), read, "allocations")
        if found is not None and sliver_of(self._site.site, found.extra) != sliver_id:
            raise NotOurs(f"allocation {name} is there without the stamp of {sliver_id}")
        return found


def _settings(site: Site) -> OpenStackSettings:
    own, shared = site.ironic, site.openstack
    if own.cloud:
        file = own.clouds_file or (shared.clouds_file if shared else None)
        return OpenStackSettings(cloud=own.cloud, clouds_file=file)
    if shared is None:
        raise InvalidSite(
            "is missing, and the driver 'ironic' needs it",
            field="ironic.cloud",
            remedy="name an entry of clouds.yaml: `ironic: {cloud: …}`",
        )
    return shared
