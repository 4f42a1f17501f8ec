"""Data volumes and their driver."""

from dataclasses import dataclass
from typing import Protocol


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


class VolumeDriver(Protocol):
    """Data volumes."""

    def check(self, name: str) -> None:
        """Return if there is a present volume of that name that may be attached.

        :raises InvalidSliver: with the field ``volume`` if not.
        """

    def existing(self, name: str) -> Volume:
        """Return a present volume that we did not make.

        :raises NotFound: if there is none.
        """

    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume made for this component, or None."""

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return all volumes made for the sliver."""

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Make an empty volume of ``size`` GiB."""

    def delete(self, sliver_id: str, component: str) -> None:
        """Remove the volume; it is gone on return."""

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every volume of the sliver that is still there."""
