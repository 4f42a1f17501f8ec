"""Bare-metal nodes: whole machines, each for one sliver at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.guests import HostKey
from fabric_direct.drivers.contract.network_services import Service, ServiceDriver
from fabric_direct.model.bare_metal import BareMetalStamp

Power = Literal["on", "off"]
PowerChange = Literal["on", "off", "restart"]


class NodeCondition(StrEnum):
    """What can be done with a node."""

    FREE = "free"
    """It is clean, and can be given to a sliver."""
    RESERVED = "reserved"
    """Somebody has it, and nothing is deployed on it yet."""
    CHANGING = "changing"
    """It is being deployed, rebuilt, rescued or taken away; it comes to another condition by itself."""
    ACTIVE = "active"
    """Somebody has it, and something is deployed on it."""
    FAILED = "failed"
    """Somebody has it, and what was last done to it failed. It can be deployed anew, or taken away."""
    CLEANING = "cleaning"
    """Nobody has it, and it is being cleaned; it is free afterwards."""
    QUARANTINED = "quarantined"
    """It could not be cleaned, or is in maintenance before it is clean. A person has to look at it."""
    WITHHELD = "withheld"
    """Its operator does not offer it."""


@dataclass(frozen=True, slots=True)
class NodePort:
    """A network interface of a node."""

    mac: str
    physical_network: str | None = None
    """What it is cabled to, if that is known."""


@dataclass(frozen=True, slots=True)
class BareMetalNode:
    """A machine as the API has it."""

    id: str
    name: str
    """Its id if it has no name."""
    condition: NodeCondition
    state: str
    """Its state in the words of the API."""
    power: Power | None
    """None if it is not known."""
    resource_class: str | None
    traits: tuple[str, ...]
    """Sorted."""
    cores: int | None
    ram: int | None
    """MiB."""
    disk: int | None
    """GiB of the disk that is deployed to."""
    architecture: str | None
    ports: tuple[NodePort, ...] = ()
    tenant: str | None = None
    """Who has it, or had it and it is not clean yet: a sliver, or the instance of somebody else."""
    sliver: str | None = None
    """The sliver whose stamp it carries."""
    stamp: BareMetalStamp | None = None
    """What that asked for; None if the stamp does not say it in a form that can be read."""
    why: str = ""
    """Why it is as it is, in the words of the API or of its operator."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """What the system of a node is given at its deployment, so that the site can log in to it."""

    keys: tuple[str, ...] = ()
    """Public keys that may log in beside those of the sliver."""
    host_key: Callable[[], HostKey | None] = lambda: None
    """Makes the system's host key and pins it; called once, right before each deployment, when the
    node's stamp has the addresses that networks chose. Its private part goes to the node alone, and is
    kept nowhere."""


class BareMetalDriver(ServiceDriver, Protocol):
    """Gives whole machines to slivers.

    As a :class:`ServiceDriver`: ``apply`` reserves a node, deploys it and switches it on, or goes on
    with what was begun; ``remove`` takes it away, waits until it is clean, and gives it up. A node that
    cannot be cleaned keeps its stamp, and is told by ``leftovers``. ``find`` returns a node that is
    deployed, whether it is on or off. A sliver that leaves its ``node`` open, and one that names the
    node that it has, do not differ: placement names it. ``check`` allows a sliver with ``rebuild`` what
    only a deployment sets; ``apply`` does not.
    """

    def apply(self, sliver: Any, access: NodeAccess = NodeAccess()) -> Service:
        """Reserve a node, deploy it and switch it on, or go on with what was begun.

        :param access: used by a deployment that this call begins.
        :raises NoHost: if no node that fits is free.
        """

    def rebuild(self, sliver: Any, access: NodeAccess = NodeAccess()) -> Service:
        """Deploy the sliver's node anew as the sliver says, or go on with a rebuild that was begun.

        What is on its disk is lost. Before anything of that, the stamp says the sliver, and that a
        rebuild is due: that differs until the node was seen to be deployed, and on.

        :param access: used by a deployment that this call begins.
        :raises NotFound: if the sliver has no node.
        :raises InvalidSliver: if what differs is not what a deployment sets, or the node does not fit.
        :raises Conflict: if the node is in a state, or in maintenance, in which nothing is deployed.
        """

    @reads
    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return all nodes that this user sees, by name; a state that is not known is *withheld*.

        :raises FabricDirectError: if the API does not answer, or lets nobody in.
        """

    @reads
    def examine(self) -> tuple[str, ...]:
        """Return what the API offers this user, in a few words each.

        :raises FabricDirectError: if it does not answer, or lets nobody in.
        """

    @reads
    def stamp(self, sliver_id: str) -> BareMetalStamp | None:
        """Return the stamp on the sliver's node, in whatever condition that is; None if none says it."""

    @reads
    def power(self, sliver_id: str) -> Power | None:
        """Return whether the sliver's node is on; None if that is not known.

        :raises NotFound: if the sliver has no node.
        """

    def set_power(self, sliver_id: str, power: PowerChange, *, hard: bool = False) -> None:
        """Switch the sliver's node on or off, or restart it; it is so on return.

        :param hard: do not ask its system to stop.
        :raises NotFound: if the sliver has no node.
        """
