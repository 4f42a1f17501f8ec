"""Sources of a zone's offers: its own hosts or a child zone."""

from typing import Protocol

from fabric_direct.zones.wire import (
    BootRequest,
    Capabilities,
    Instance,
    Selection,
    SelectRequest,
)


class Source(Protocol):
    """A set of hosts to choose from. Tasks of one event loop may call all methods concurrently.

    Every method answers or raises within ``deadline`` seconds.
    """

    name: str
    """The zone's name for it: its own name for the local hosts, else the child's."""

    async def capabilities(self, *, deadline: float) -> Capabilities:
        """Return the total capacity that is available.

        :raises Unreachable: if it does not answer, or with an invalid response.
        """

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        """Return offers with the source's own blobs. Nothing is created.

        :raises Unreachable: if it does not answer, or with an invalid response.
        """

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        """Accept offers, all or none; return the source's own reservation id.

        The same request id always yields the same reservation.

        :raises Conflict: if an offer is not valid any more: taken, expired, altered or used.
        :raises Unreachable: if it does not answer; whether it creates the instances is unknown then.
        """

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:
        """Return the instances of one of its reservations, with their status.

        :raises NotFound: if there is no such reservation.
        :raises Unreachable: if it does not answer.
        """

    async def delete(self, reservation: str, *, deadline: float) -> None:
        """Start to delete all instances of a reservation; :meth:`instances` reports the progress.

        :raises Unreachable: if it does not answer.
        """
