"""A base for drivers of volumes whose list of all volumes is one cheap request."""

from abc import ABC, abstractmethod

from fabric_direct.drivers.contract.site_checks import verify_size
from fabric_direct.drivers.contract.stamped import Stamped
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.errors import InvalidSliver, NotFound, NotVerified


class ListedVolumes(ABC):
    """A :class:`~fabric_direct.drivers.contract.VolumeDriver` by three methods of its own.

    It attaches no volume that it did not make. One of 0 GiB is half made, by a process that was killed:
    it is listed and left over, and not found, so that ``create`` completes it.
    """

    @abstractmethod
    def all_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes made for all slivers of the site."""

    @abstractmethod
    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Create an empty volume of ``size`` GiB; return it by :meth:`verified`."""

    @abstractmethod
    def delete(self, sliver_id: str, component: str) -> None:
        """Delete the volume; it is gone on return."""

    def verified(self, sliver_id: str, component: str, size: int) -> Volume:
        """Return a volume that was made, as it is read back.

        :raises NotVerified: if it is not there, or has another size.
        """
        found = self.find(sliver_id, component)
        if found is None:
            raise NotVerified(f"volume {component} of {sliver_id} is not there, though it was made")
        verify_size(found, size)
        return found

    def check(self, name: str) -> None:
        """Refuse each volume that it did not make."""
        raise InvalidSliver(f"no volume {name!r}", field="volume", why="only own ones are attached")

    def existing(self, name: str) -> Volume:
        """Find none that it did not make."""
        raise NotFound(f"no volume {name!r}")

    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume made for this component, or None."""
        whole = (v for v in self.volumes(sliver_id) if v.component == component and v.size)
        return next(whole, None)

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return all volumes made for the sliver."""
        return tuple(volume for volume in self.all_volumes() if volume.sliver == sliver_id)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all volumes."""
        return tuple(Stamped(v.sliver, "volume", v.source) for v in self.all_volumes())

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every volume of the sliver that is still there."""
        return tuple(volume.source for volume in self.volumes(sliver_id))
