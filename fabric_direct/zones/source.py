"""Where a zone's offers come from: its own hosts, or a child."""

from typing import Protocol

from fabric_direct.zones.wire import (
    BootRequest,
    Capabilities,
    Instance,
    Selection,
    SelectRequest,
)


class Source(Protocol):
    """Hosts that can be had. All methods may be called by many tasks of one event loop at once.

    What a source is asked for it has, or says within ``deadline`` seconds that it has not.
    """

    name: str
    """As the zone calls it: its own name, or the child's."""

    async def capabilities(self, *, deadline: float) -> Capabilities:
        """Return what can be had in all.

        :raises Unreachable: if it does not answer, or not in a way that can be believed.
        """

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        """Return offers with the source's own blobs; nothing is made.

        :raises Unreachable: if it does not answer, or not in a way that can be believed.
        """

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        """Take offers up, all or none; return the source's own id of the reservation.

        Asked again with the same request id, it returns the same reservation.

        :raises Conflict: if an offer cannot be had any more: taken, expired, altered or used.
        :raises Unreachable: if it does not answer: whether they are made is not known then.
        """

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:
        """Return how far the instances of one of its reservations are.

        :raises NotFound: if there is no such reservation.
        :raises Unreachable: if it does not answer.
        """

    async def delete(self, reservation: str, *, deadline: float) -> None:
        """Have all instances of a reservation deleted; :meth:`instances` says when they are.

        :raises Unreachable: if it does not answer.
        """
