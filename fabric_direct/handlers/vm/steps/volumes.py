"""Data volumes: made, plugged in, unplugged, removed."""

from functools import partial

from fabric_direct.drivers.contract import (
    ComputeDriver,
    PluggedVolume,
    VolumeDriver,
)
from fabric_direct.drivers.contract import Volume as VolumeValue
from fabric_direct.engine.removal import Removal
from fabric_direct.engine.step import Step
from fabric_direct.errors import NotFound
from fabric_direct.handlers.vm.steps.server import the_server
from fabric_direct.model import Finding, Storage


class MakeVolume(Step):
    """A component's own volume is there."""

    def __init__(self, volumes: VolumeDriver, sliver_id: str, storage: Storage) -> None:
        super().__init__(f"volume {storage.id}")
        self._volumes, self._sliver, self._storage = volumes, sliver_id, storage

    def check(self) -> Finding:
        """Look for the volume."""
        found = self._volumes.find(self._sliver, self._storage.id)
        return Finding.ALREADY_SO if found else Finding.WILL_CREATE

    def make(self) -> None:
        """Make it."""
        self._volumes.create(self._sliver, self._storage.id, self._storage.size or 0)

    def undo(self) -> None:
        """Remove it."""
        self._volumes.delete(self._sliver, self._storage.id)


class RemoveVolume(Removal):
    """A volume that we made is gone, with its data."""

    def __init__(self, volumes: VolumeDriver, sliver_id: str, component: str) -> None:
        def left() -> bool:
            return any(v.component == component for v in volumes.volumes(sliver_id))

        delete = partial(volumes.delete, sliver_id, component)
        super().__init__(f"remove volume {component}", left, delete)


class _Plugging(Step):
    form = "{}"

    def __init__(
        self,
        compute: ComputeDriver,
        volumes: VolumeDriver,
        sliver_id: str,
        storage: Storage,
        unplug: float,
    ) -> None:
        """Make the step; the guest gets ``unplug`` seconds to release the disk."""
        super().__init__(self.form.format(storage.id))
        self._compute, self._volumes = compute, volumes
        self._sliver, self._storage, self._unplug = sliver_id, storage, unplug

    def _plugged(self) -> PluggedVolume | None:
        return plugged_volume(self._compute, self._sliver, self._storage.id)

    def _pull(self) -> None:
        self._compute.detach_volume(self._sliver, self._storage.id, timeout=self._unplug)


class PlugVolume(_Plugging):
    """A volume is plugged into the server."""

    form = "disk {}"

    def check(self) -> Finding:
        """Look for the disk."""
        return Finding.ALREADY_SO if self._plugged() else Finding.WILL_CREATE

    def make(self) -> None:
        """Plug it in."""
        volume = the_volume(self._volumes, self._sliver, self._storage)
        self._compute.attach_volume(self._sliver, self._storage.id, volume)

    def undo(self) -> None:
        """Unplug it."""
        self._pull()


class UnplugVolume(_Plugging):
    """A volume is not plugged into the server."""

    form = "unplug disk {}"
    _before: PluggedVolume | None = None

    def check(self) -> Finding:
        """Look for the disk."""
        return Finding.WILL_DELETE if self._plugged() else Finding.ALREADY_SO

    def look(self) -> None:
        """Remember the volume that is plugged in."""
        self._before = self._plugged()

    def make(self) -> None:
        """Unplug it and wait until the guest has released it."""
        self._pull()

    def undo(self) -> None:
        """Plug the same volume in again."""
        if self._before:
            size = self._storage.size or 0
            was = VolumeValue(self._sliver, self._storage.id, self._before.source, size)
            self._compute.attach_volume(self._sliver, self._storage.id, was)


def the_volume(volumes: VolumeDriver, sliver_id: str, storage: Storage) -> VolumeValue:
    """Return the volume that a component stands for.

    :raises NotFound: if it is not there.
    """
    if storage.volume is not None:
        return volumes.existing(storage.volume)
    found = volumes.find(sliver_id, storage.id)
    if found is None:
        raise NotFound(f"volume {storage.id} of sliver {sliver_id} is not there")
    return found


def plugged_volume(compute: ComputeDriver, sliver_id: str, component: str) -> PluggedVolume | None:
    """Return the server's disk for this component, or None.

    :raises NotFound: if the server is not there: a look that misses it says nothing of its disks.
    """
    disks = the_server(compute, sliver_id).volumes
    return next((d for d in disks if d.component == component), None)
