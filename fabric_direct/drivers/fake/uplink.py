"""Uplinks and their VFs in memory."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from fabric_direct.drivers.contract import VfSettings
from fabric_direct.drivers.fake.substrate import Fake, Hears, the


class FakeUplink(Hears, Fake):
    """A :class:`~fabric_direct.drivers.contract.UplinkDriver` in memory."""

    kind = "uplink"

    def bridge_mode(self, link: str) -> str:
        """Return the link's mode."""
        return the(self.substrate.uplinks, link)

    def set_bridge_mode(self, link: str, mode: str) -> None:
        """Set the link's mode."""
        the(self.substrate.uplinks, link)
        self.substrate.uplinks[link] = mode

    def vfs(self, link: str) -> Mapping[int, VfSettings]:
        """Return the settings of the link's VFs."""
        return dict(enumerate(the(self.substrate.vfs, link)))

    def set_vf(self, link: str, vf: int, settings: VfSettings) -> None:
        """Change the settings that are not None."""
        given = {name: value for name, value in asdict(settings).items() if value is not None}
        vfs = the(self.substrate.vfs, link)
        vfs[vf] = replace(vfs[vf], **given)
