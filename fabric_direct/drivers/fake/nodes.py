"""Bare-metal nodes in memory: nothing is deployed, and nobody can log in."""

from dataclasses import replace

from fabric_direct.drivers.contract import (
    BareMetalNode,
    NodeAccess,
    NodeCondition,
    Service,
    Stamped,
)
from fabric_direct.drivers.contract.bare_metal import Power, PowerChange
from fabric_direct.drivers.contract.node_choice import (
    choose,
    node_differences,
    on_networks,
    refuse_fixed,
    refuse_unknown_image,
)
from fabric_direct.drivers.contract.node_networks import (
    addresses_of,
    hold_port,
    refuse_networks,
)
from fabric_direct.drivers.contract.node_service import node_service, stamped_node
from fabric_direct.drivers.fake.hardware import freed
from fabric_direct.drivers.fake.network import FakeNetwork
from fabric_direct.drivers.fake.substrate import Substrate
from fabric_direct.errors import DeviceUnclean, NotFound
from fabric_direct.model.bare_metal import BareMetalSliver, BareMetalStamp, PortAddress
from fabric_direct.site.config import Site


class FakeNodes:
    """The bare-metal nodes of a site in memory."""

    def __init__(self, site: Site, substrate: Substrate, networks: FakeNetwork) -> None:
        """Keep on a substrate who has which.

        :param networks: hold the ports of NICs that are on a network.
        """
        self._site, self._substrate, self._networks = site, substrate, networks

    @property
    def _there(self) -> dict[str, BareMetalNode]:
        return self._substrate.bare_metal

    def all(self) -> tuple[BareMetalNode, ...]:
        """Return all nodes, by name."""
        return tuple(node for _, node in sorted(self._there.items()))

    def of(self, sliver_id: str) -> BareMetalNode | None:
        """Return the node with the sliver's stamp, in whatever condition."""
        return next((node for node in self.all() if node.sliver == sliver_id), None)

    def check(self, sliver: BareMetalSliver) -> None:
        """Raise an error unless a node is the sliver's, or free for it."""
        refuse_unknown_image(self._site, sliver)
        node = self.of(sliver.id)
        if node is None:
            refuse_networks(self._networks, sliver)
            choose(self.all(), sliver)
        else:
            refuse_fixed(sliver, node, rebuild=sliver.rebuild)

    def find(self, sliver_id: str) -> Service | None:
        """Return the node that the sliver has."""
        node = self.of(sliver_id)
        active = node is not None and node.condition is NodeCondition.ACTIVE
        return node_service(node) if node and active else None

    def differences(self, sliver: BareMetalSliver) -> tuple[str, ...]:
        """Name what differs."""
        node = self.of(sliver.id)
        return node_differences(sliver, node) if node else ("it has no node",)

    def apply(self, sliver: BareMetalSliver, access: NodeAccess) -> Service:
        """Give a node to the sliver, or its stamp what can be changed."""
        self.check(sliver)
        node = self.of(sliver.id) or choose(self.all(), sliver)[0]
        refuse_fixed(sliver, node)
        if node.condition is not NodeCondition.ACTIVE:
            return self._deployed(node, sliver, access)
        self._there[node.name] = replace(node, stamp=sliver.stamp(node.stamp))
        return node_service(self._there[node.name])

    def rebuild(self, sliver: BareMetalSliver, access: NodeAccess) -> Service:
        """Make the node one that was just deployed for the sliver."""
        refuse_unknown_image(self._site, sliver)
        node = self._needed(sliver.id)
        refuse_fixed(sliver, node, rebuild=True)
        return self._deployed(node, sliver, access)

    def _deployed(
        self, node: BareMetalNode, sliver: BareMetalSliver, access: NodeAccess
    ) -> Service:
        """Have the sliver's system on a node, and nothing of one that was there before."""
        stamp = sliver.stamp().model_copy(update={"addresses": self._hold_ports(sliver, node)})
        node = replace(node, tenant=sliver.id, sliver=sliver.id, stamp=stamp)
        self._there[node.name] = node
        access.host_key()
        self._substrate.keys.pop(sliver.id, None)
        self._substrate.inside.pop(sliver.id, None)
        node = replace(node, condition=NodeCondition.ACTIVE, state="active", power="on", why="")
        self._there[node.name] = node
        return node_service(node)

    def remove(self, sliver_id: str) -> None:
        """Take the node away and clean it, unless it is one that cannot be cleaned."""
        node = self.of(sliver_id)
        if node is None:
            return
        if node.name in self._substrate.dirty_nodes:
            unclean = replace(node, condition=NodeCondition.QUARANTINED, state="clean failed")
            self._there[node.name] = replace(unclean, power="off", why="it was told to")
            raise DeviceUnclean(f"node {node.name} could not be cleaned", why="it was told to")
        for port in self._networks.ports(sliver_id):
            self._networks.delete_port(sliver_id, port.component)
        self._there[node.name] = freed(node)

    def _hold_ports(
        self, sliver: BareMetalSliver, node: BareMetalNode
    ) -> dict[str, tuple[PortAddress, ...]]:
        nics = on_networks(sliver)
        for port in self._networks.ports(sliver.id):
            if port.component not in {nic.id for nic in nics}:
                self._networks.delete_port(sliver.id, port.component)
        return addresses_of({n.id: hold_port(self._networks, sliver, n, node) for n in nics})

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the node with the sliver's stamp."""
        node = self.of(sliver_id)
        return (f"node {node.name} ({node.condition})",) if node else ()

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the nodes that slivers have."""
        return tuple(stamped_node(node) for node in self.all() if node.sliver)

    def stamp(self, sliver_id: str) -> BareMetalStamp | None:
        """Return the stamp on the sliver's node."""
        node = self.of(sliver_id)
        return node.stamp if node else None

    def power(self, sliver_id: str) -> Power | None:
        """Return whether the sliver's node is on."""
        return self._needed(sliver_id).power

    def set_power(self, sliver_id: str, power: PowerChange) -> None:
        """Switch the sliver's node."""
        node = self._needed(sliver_id)
        self._there[node.name] = replace(node, power="off" if power == "off" else "on")

    def _needed(self, sliver_id: str) -> BareMetalNode:
        node = self.of(sliver_id)
        if node is None:
            raise NotFound(f"sliver {sliver_id} has no node")
        return node
