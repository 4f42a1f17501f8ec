"""Volumes in memory."""

from fabric_direct.drivers.contract import Stamped, Volume
from fabric_direct.drivers.contract.site_checks import verify_size
from fabric_direct.drivers.fake.substrate import Fake, held, the
from fabric_direct.errors import InvalidSliver


class FakeVolume(Fake):
    """A :class:`~fabric_direct.drivers.contract.VolumeDriver` in memory."""

    kind = "volume"

    def check(self, name: str) -> None:
        """Refuse an unknown volume."""
        if name not in self.substrate.existing:
            raise InvalidSliver(f"no volume {name!r}", field="volume")

    def existing(self, name: str) -> Volume:
        """Return a volume that was not made for a sliver."""
        return the(self.substrate.existing, name)

    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume."""
        return self.substrate.volumes.get((sliver_id, component))

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return the sliver's volumes."""
        return held(self.substrate.volumes, sliver_id)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all volumes that were made for slivers."""
        made = self.substrate.volumes.values()
        return tuple(Stamped(volume.sliver, "volume", volume.source) for volume in made)

    def all_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes of all slivers."""
        return tuple(self.substrate.volumes.values())

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Make a volume."""
        volume = Volume(sliver_id, component, f"/fake/{sliver_id}.{component}", size)
        found = self.substrate.volumes.setdefault((sliver_id, component), volume)
        verify_size(found, size)
        return found

    def delete(self, sliver_id: str, component: str) -> None:
        """Remove the volume."""
        self.substrate.volumes.pop((sliver_id, component), None)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the sliver's volumes."""
        return tuple(v.source for v in held(self.substrate.volumes, sliver_id))
