"""Virtual functions (VFs) of a shared NIC, passed through as ``<interface type='hostdev'>``."""

from typing import ClassVar

from fabric_direct.drivers.contract import DeviceDomain
from fabric_direct.drivers.libvirt.passthrough.attach import PlainFunctions
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.vf_settings import VirtualFunctions
from fabric_direct.errors import Unsupported
from fabric_direct.model import PciComponent


class SriovDevice(HostdevDevice):
    """Passes VFs of the host's uplinks through to its domains; :mod:`vf_settings` says what is set."""

    unserved: ClassVar[tuple[str, ...]] = ()
    functions: ClassVar[type[PlainFunctions]] = VirtualFunctions

    def rescan(self, tenant: DeviceDomain, component: PciComponent, *, timeout: float) -> None:  # noqa: ARG002
        """Raise Unsupported: a VF that leaves the bus does not come back by a rescan."""
        raise Unsupported(
            f"{component.id} cannot be found again by a rescan",
            where=self._host.name,
            why="a VF is made by its PF, not found on the bus",
            remedy="reboot the node, or delete the component and add it again",
        )
