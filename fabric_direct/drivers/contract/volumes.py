"""Data volumes and their driver."""

from dataclasses import dataclass
from typing import Protocol

from fabric_direct.calls.reading import reads, reads_once
from fabric_direct.drivers.contract.stamped import StampFinder


@dataclass(frozen=True, slots=True)
class Volume:
    """A data volume."""

    sliver: str
    """Empty for a volume that is not ours."""
    component: str
    source: str
    """Absolute path, or id at the API."""
    size: int
    """GiB."""


class VolumeDriver(StampFinder, Protocol):
    """Finds, makes and deletes data volumes; an entry point of ``fabric_direct.volume`` provides it."""

    @reads
    def check(self, name: str) -> None:
        """Raise InvalidSliver unless an existing volume of that name may be attached.

        :raises InvalidSliver: with the field ``volume``.
        """

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Create an empty volume of ``size`` GiB.

        :raises NotVerified: if it exists with another size.
        """

    def delete(self, sliver_id: str, component: str) -> None:
        """Delete the volume; it is gone on return."""

    @reads
    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every volume of the sliver that is still there."""

    @reads_once
    def existing(self, name: str) -> Volume:
        """Return an existing volume that we did not create.

        :raises NotFound: if there is none.
        """

    @reads_once
    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume made for this component, or None."""

    @reads_once
    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return all volumes made for the sliver."""

    @reads
    def all_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes made for all slivers: as many requests for one as for a thousand."""
