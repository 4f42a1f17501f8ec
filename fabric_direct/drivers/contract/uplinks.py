"""Bridge mode and VF settings of an uplink, and their driver."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.changes import Hearing, Tell


@dataclass(frozen=True, slots=True)
class VfSettings:
    """Settings that a PF enforces on one of its VFs; None when set: unchanged, when read: unknown."""

    mac: str | None = None
    vlan: int | None = None
    """VLAN id; 0 is none."""
    qos: int | None = None
    trust: bool | None = None
    spoof_check: bool | None = None
    max_tx_rate: int | None = None
    """Mbit/s; 0 is no limit."""
    min_tx_rate: int | None = None
    """Mbit/s; 0 is none."""
    link_state: int | None = None
    """0 follows the PF, 1 is up, 2 is down (IFLA_VF_LINK_STATE)."""


class UplinkDriver(Protocol):
    """The bridge mode of an uplink and the settings of its VFs, by netlink."""

    @reads
    def bridge_mode(self, link: str) -> str:
        """Return the NIC's bridge mode, ``veb`` or ``vepa``.

        :raises Unsupported: if the NIC has no such mode.
        :raises NotFound: if there is no such link.
        """

    def set_bridge_mode(self, link: str, mode: str) -> None:
        """Set ``veb`` or ``vepa`` and read it back.

        :raises Unsupported: if the NIC refuses (EOPNOTSUPP).
        :raises NotVerified: if the NIC reports another mode afterwards.
        """

    @reads
    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of changes of the uplinks that the site allows, as a ``ChangeSource``.

        :raises FabricDirectError: if it cannot hear, or hears nothing any more.
        """

    @reads
    def vfs(self, link: str) -> Mapping[int, VfSettings]:
        """Return the settings of the VFs by number.

        One that the host does not tell of is left out: its settings are not known.
        """

    def set_vf(self, link: str, vf: int, settings: VfSettings) -> None:
        """Change those settings of a VF that are not None and read them back.

        :raises DriverError: if the host does not tell the settings of the VF.
        :raises Unsupported: if the NIC has no such setting.
        """
