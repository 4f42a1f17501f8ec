"""Network services: what carries packets between slivers, and is a sliver itself."""

from dataclasses import dataclass
from typing import Any, Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.stamped import StampFinder
from fabric_direct.model import ObservedGateway, ObservedInterface, SliverRef, State
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.model.services import NetworkService


@dataclass(frozen=True, slots=True)
class Service:
    """A network service as it is."""

    sliver: str
    source: str
    """Its id at the API."""
    name: str
    subnets: tuple[str, ...] = ()
    """Its address blocks, IPv4 first."""
    vlan: int | None = None
    """Its VLAN, if it is one network with one."""
    users: tuple[str, ...] = ()
    """Whose ports are on it: ``<sliver>/<component>``, or the id of a port that is not ours."""
    interfaces: tuple[ObservedInterface, ...] = ()
    """Where it is connected, as read from what carries the packets."""
    gateway: ObservedGateway | None = None
    """Its own address, with the MAC that answers for it."""
    stamp: NetworkService | BareMetalSliver | None = None
    """What it should be, without secrets; None if nothing at the API says so."""
    type: str = ""
    """Its resource type, where no stamp says it; empty if its driver serves one type."""
    host: str | None = None
    """The machine that it is, if it is one."""
    state: State = State.RUNNING

    @property
    def resource_type(self) -> str:
        """Its resource type, as far as the API tells it; empty if it does not."""
        return self.stamp.type if self.stamp else self.type


class ServiceController(Protocol):
    """A driver that asks one controller for all services."""

    @reads
    def examine(self) -> tuple[str, ...]:
        """Return what the controller lets this user see, in a few words each.

        :raises FabricDirectError: if it does not answer, or lets nobody in.
        """

    @reads
    def refuse_namesake(self, sliver: SliverRef, name: str) -> None:
        """Raise NotOurs if the controller has a service of exactly this name.

        fabric_am names a service so if its labels have the name. One that ends with the sliver's id is
        found by that, and is no namesake.
        """


class ServiceDriver(StampFinder, Protocol):
    """Makes network services of the types for which site.yaml names it.

    ``sliver`` is a whole sliver of such a type, without anything that is left open.
    """

    @reads
    def check(self, sliver: Any) -> None:
        """Raise an error unless the service can be made, or changed into what the sliver describes.

        :raises InvalidSliver: with the field that cannot be served.
        """

    @reads
    def find(self, sliver_id: str) -> Service | None:
        """Return the service that carries the sliver's stamp if it is complete, or None."""

    @reads
    def differences(self, sliver: Any) -> tuple[str, ...]:
        """Return the differences between the service and its sliver, a sentence each.

        Read from what carries the packets, not from what was stored when it was made.
        """

    def apply(self, sliver: Any) -> Service:
        """Make the service what the sliver describes: create it, complete it, or change it in place.

        What needs no change is not touched.

        :raises NotOurs: if something of its name exists without the sliver's stamp.
        """

    def remove(self, sliver_id: str) -> None:
        """Remove the service with all that was made with it; it is gone on return.

        :raises Conflict: if others still use it; they are named, and nothing is removed.
        """

    @reads
    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything of the service that is still there."""
