"""The stages of a flow that set something in a guest.

They run one after the other: two at once would overwrite each other's ``/etc/fstab``, or reconfigure the
guest's network while the other waits for it.
"""

from collections.abc import Callable

from fabric_direct.drivers.contract import HostDrivers, Tenant
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.handlers.guestconfig.mounts import MountSetting
from fabric_direct.handlers.guestconfig.nics import NicSetting
from fabric_direct.handlers.guestconfig.wanted import mounts, nics
from fabric_direct.model import Component, NodeSliver, Storage
from fabric_direct.steps.base import Step
from fabric_direct.steps.guest import Reverse, SetAndKeepInGuest, SetInGuest, Setting


class GuestStages:
    """The settings in the guest of one sliver."""

    def __init__(
        self,
        drivers: HostDrivers,
        sliver_id: str,
        guest: Callable[[], Guest],
        tenant: Callable[[], Tenant],
    ) -> None:
        """Make the stages; ``guest`` and ``tenant`` are asked when the server is there."""
        self._drivers, self._sliver = drivers, sliver_id
        self._guest, self._tenant = guest, tenant
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
        return [[SetInGuest(f"un{name}", Reverse(each))] for name, each in gone.items()]

    def _settings(self, sliver: NodeSliver, was: NodeSliver | None = None) -> dict[str, Setting]:
        """Return the sliver's settings by what they do: ``configure nic1``, ``mount data``."""
        former = {nic.label: nic for nic in nics(was)} if was else {}
        guest, drivers, tenant = self._guest, self._drivers, self._tenant
        settings: dict[str, Setting] = {}
        for nic in nics(sliver):
            setting = NicSetting(guest, drivers, tenant, nic, former.get(nic.label))
            settings[f"configure {nic.label}"] = setting
        for volume in mounts(sliver):
            mounting = MountSetting(guest, drivers, self._sliver, volume, self._bare)
            settings[f"mount {volume.id}"] = mounting
        return settings

    def but_bare(self, sliver: NodeSliver) -> NodeSliver:
        """Return the sliver without mounts of volumes that were found to have no file system."""
        components = tuple(map(self._unless_bare, sliver.components))
        return sliver.model_copy(update={"components": components})

    def _unless_bare(self, component: Component) -> Component:
        if isinstance(component, Storage) and component.id in self._bare:
            return component.model_copy(update={"mount": None})
        return component
