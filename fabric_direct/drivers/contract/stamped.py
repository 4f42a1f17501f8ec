"""Resources with the site's stamp, found without knowing which slivers own them."""

from dataclasses import dataclass
from typing import Protocol

from fabric_direct.calls.reading import reads

QUARANTINED = "quarantined device"
"""The kind of a device that only an operator releases."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """A thing of the substrate that carries the site's stamp."""

    sliver: str
    """Whose it is; empty if it does not say so in a form that can be read."""
    kind: str
    """``domain``, ``server``, ``disk``, ``NIC``, ``port``, ``floating IP``, ``volume``, ``network``,
    ``router``, ``device``, or :data:`QUARANTINED`; of a network service, node or switch its
    resource type, as ``L2Bridge``: a sweep deletes the sliver by it."""
    name: str
    """The same as long as the thing is the same."""
    addresses: tuple[str, ...] = ()
    """IP addresses that it holds, without prefix."""


class StampFinder(Protocol):
    """Finds everything that carries the site's stamp."""

    @reads
    def stamped(self) -> tuple[Stamped, ...]:
        """Return everything that the driver makes and that carries the site's stamp, of every sliver.

        What another site stamped is left out. The list is whole: where the API does not give all of it,
        an error is raised.
        """
