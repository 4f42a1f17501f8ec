"""PCI devices: passed through and taken back."""

from fabric_direct.drivers.base import DeviceDriver
from fabric_direct.model import Finding, PciComponent
from fabric_direct.steps.base import Step


class AttachDevice(Step):
    """All functions of a device are passed through to the server."""

    def __init__(
        self, devices: DeviceDriver, sliver_id: str, component: PciComponent, detach: float
    ) -> None:
        """Make the step; the guest gets ``detach`` seconds to let go of it when it is undone."""
        super().__init__(f"device {component.id}")
        self._devices, self._sliver = devices, sliver_id
        self._component, self._detach = component, detach

    def check(self) -> Finding:
        """Compare the functions that the server has by our stamp with those wanted."""
        plugged = self._devices.plugged(self._sliver)
        have = {d.host_address for d in plugged if d.component == self._component.id}
        if have == set(self._component.bdf):
            return Finding.ALREADY_SO
        return Finding.WILL_CHANGE if have else Finding.WILL_CREATE

    def make(self) -> None:
        """Pass them through."""
        self._devices.attach(self._sliver, self._component)

    def undo(self) -> None:
        """Take them back."""
        self._devices.detach(self._sliver, self._component.id, timeout=self._detach)


class DetachDevice(Step):
    """A device that is no longer wanted is back with its host."""

    def __init__(
        self, devices: DeviceDriver, sliver_id: str, component: PciComponent, detach: float
    ) -> None:
        """Make the step; the guest gets ``detach`` seconds to let go of it."""
        super().__init__(f"detach device {component.id}")
        self._devices, self._sliver = devices, sliver_id
        self._component, self._detach = component, detach

    def check(self) -> Finding:
        """Look for any function that the server has of it."""
        plugged = self._devices.plugged(self._sliver)
        has = any(d.component == self._component.id for d in plugged)
        return Finding.WILL_DELETE if has else Finding.ALREADY_SO

    def make(self) -> None:
        """Take it back and wait until the guest has let go."""
        self._devices.detach(self._sliver, self._component.id, timeout=self._detach)

    def undo(self) -> None:
        """Pass it through again."""
        self._devices.attach(self._sliver, self._component)
