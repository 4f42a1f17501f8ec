"""The stages of a flow that set something in a guest.

They run one after the other: two at once would overwrite each other's ``/etc/fstab``, or reconfigure the
guest's network while the other waits for it.
"""

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.engine.step import Step
from fabric_direct.handlers.vm.guest.access import Inside
from fabric_direct.handlers.vm.guest.mounts import MountSetting
from fabric_direct.handlers.vm.guest.nics import NicSetting
from fabric_direct.handlers.vm.guest.settings import mounts, nics
from fabric_direct.handlers.vm.steps.guest import (
    InverseSetting,
    SetAndKeepInGuest,
    SetInGuest,
    Setting,
)
from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Site


class GuestStages:
    """The settings in the guest of one sliver."""

    def __init__(self, site: Site, drivers: HostDrivers, sliver_id: str) -> None:
        self._inside = Inside(site, drivers, sliver_id)
        self._bare: set[str] = set()

    def wanted(self, sliver: NodeSliver, was: NodeSliver | None = None) -> list[list[Step]]:
        """Return the stages that apply the sliver's settings; ``was`` is the sliver before, if any."""
        return [[SetInGuest(name, each)] for name, each in self._settings(sliver, was).items()]

    def lasting(self, sliver: NodeSliver) -> list[list[Step]]:
        """Return the stages that apply the settings; one that fails takes nothing else back."""
        return [[SetAndKeepInGuest(name, each)] for name, each in self._settings(sliver).items()]

    def unwanted(self, was: NodeSliver, sliver: NodeSliver) -> list[list[Step]]:
        """Return the stages that remove the settings which the sliver no longer has."""
        kept, former = self._settings(sliver), self._settings(was)
        gone = {name: each for name, each in former.items() if name not in kept}
        return [[SetInGuest(f"un{name}", InverseSetting(each))] for name, each in gone.items()]

    def _settings(self, sliver: NodeSliver, was: NodeSliver | None = None) -> dict[str, Setting]:
        """Return the sliver's settings by what they do: ``configure nic1``, ``mount data``."""
        former = {nic.label: nic for nic in nics(was)} if was else {}
        inside, settings = self._inside, dict[str, Setting]()
        for nic in nics(sliver):
            settings[f"configure {nic.label}"] = NicSetting(inside, nic, former.get(nic.label))
        for volume in mounts(sliver):
            settings[f"mount {volume.id}"] = MountSetting(inside, volume, self._bare)
        return settings

    def but_bare(self, sliver: NodeSliver) -> NodeSliver:
        """Return the sliver without mounts of volumes that were found to have no file system."""
        components = tuple(
            c.model_copy(update={"mount": None}) if c.id in self._bare else c
            for c in sliver.components
        )
        return sliver.model_copy(update={"components": components})
