"""PCI devices: passed through, taken back, and cleaned."""

from collections.abc import Callable

from fabric_direct.drivers.contract import (
    DeviceDomain,
    DeviceDriver,
    DeviceRecord,
)
from fabric_direct.engine.field_changes import changed_fields
from fabric_direct.engine.step import Step
from fabric_direct.errors import NotVerified
from fabric_direct.model import FieldChange, Finding, PciComponent


class _Device(Step):
    form = "{}"

    def __init__(
        self,
        devices: DeviceDriver,
        tenant: Callable[[], DeviceDomain],
        component: PciComponent,
        detach: float,
    ) -> None:
        """Make the step.

        :param tenant: is called when the server exists.
        :param detach: seconds that the guest gets to release the device.
        """
        super().__init__(self.form.format(component.id))
        self._devices, self._tenant = devices, tenant
        self._component, self._detach = component, detach

    def _is_plugged(self) -> bool:
        there = self._devices.plugged(self._tenant())
        return any(device.component == self._component.id for device in there)

    def _take_back(self) -> None:
        self._devices.detach(self._tenant(), self._component.id, timeout=self._detach)


class AttachDevice(_Device):
    """All functions of a device are passed through to the server, with their settings."""

    form = "device {}"
    _devices: DeviceDriver

    def __init__(
        self,
        devices: DeviceDriver,
        tenant: Callable[[], DeviceDomain],
        component: PciComponent,
        detach: float,
        was: PciComponent | None = None,
    ) -> None:
        """Make the step; ``was`` is the component before the change, None for a new one."""
        super().__init__(devices, tenant, component, detach)
        self._was, self._was_plugged = was, False

    def check(self) -> Finding:
        """Compare what the server has by this site's stamp with what is wanted."""
        if not self._devices.differences(self._component, self._tenant()):
            return Finding.ALREADY_SO if self._is_plugged() else Finding.WILL_CREATE
        return Finding.WILL_CHANGE if self._is_plugged() else Finding.WILL_CREATE

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the component with what it was, if that is known."""
        return changed_fields(self._was, self._component) if self._was else ()

    def look(self) -> None:
        """Remember whether it is plugged in."""
        self._was_plugged = self._is_plugged()

    def make(self) -> None:
        """Attach it, or repair the differences."""
        self._devices.attach(self._tenant(), self._component)

    def undo(self) -> None:
        """Detach it and, if it is new, clean it; or restore its former settings, if they are known."""
        if self._was_plugged:
            if self._was is not None:
                self._devices.attach(self._tenant(), self._was)
            return
        self._take_back()
        if self._devices.pending(self._tenant()):
            self._devices.restart(self._tenant(), timeout=self._detach)
        if self._was is None:
            self._clean()

    def _clean(self) -> None:
        for record in self._devices.records(self._tenant().sliver):
            if record.component == self._component.id:
                self._devices.clean(record)

    def is_undone(self) -> bool:
        """Return whether it was detached; a repair is not undone."""
        return self._was == self._component or super().is_undone()


class DetachDevice(_Device):
    """A device that is no longer wanted is detached, but not clean yet."""

    form = "detach device {}"

    def check(self) -> Finding:
        """Look for anything that the server has of it."""
        kept = self._devices.keeps(self._tenant(), self._component.id)
        return Finding.WILL_DELETE if kept else Finding.ALREADY_SO

    def make(self) -> None:
        """Detach it and wait until the guest has released it."""
        self._take_back()

    def undo(self) -> None:
        """Pass it through again."""
        self._devices.attach(self._tenant(), self._component)


class RecordDevice(Step):
    """A function that a server has is recorded, so that it will be cleaned."""

    def __init__(self, devices: DeviceDriver, record: DeviceRecord) -> None:
        super().__init__(f"record {record.component} {record.address}")
        self._devices, self._record = devices, record

    def check(self) -> Finding:
        """Look for a record of the function."""
        there = (r.address for r in self._devices.records(self._record.sliver))
        return Finding.ALREADY_SO if self._record.address in there else Finding.WILL_CREATE

    def make(self) -> None:
        """Write it."""
        self._devices.write_record(self._record)

    def is_undone(self) -> bool:
        """Return True: a record of what a server has stays."""
        return True


class CleanDevice(Step):
    """A function that the sliver has had is fit for the next tenant."""

    undoable = False
    trusts_check = False

    def __init__(self, devices: DeviceDriver, record: DeviceRecord) -> None:
        super().__init__(f"clean {record.component} {record.address}")
        self._devices, self._record = devices, record

    def check(self) -> Finding:
        """Look for the function's record, as that of this component."""
        had = (self._record.address, self._record.component)
        there = ((r.address, r.component) for r in self._devices.records(self._record.sliver))
        return Finding.WILL_CHANGE if had in there else Finding.ALREADY_SO

    def make(self) -> None:
        """Clean it and delete its record."""
        self._devices.clean(self._record)


class PowerCycle(Step):
    """Changes of the definition that take effect with the next start have taken effect."""

    def __init__(
        self,
        devices: DeviceDriver,
        tenant: Callable[[], DeviceDomain],
        timeout: float,
        name: str = "power cycle",
    ) -> None:
        """Make the step; the guest gets ``timeout`` seconds to shut down before it is powered off."""
        super().__init__(name)
        self._devices, self._tenant, self._timeout = devices, tenant, timeout

    def check(self) -> Finding:
        """Compare the running domain with its definition; twice before it is said that both agree."""
        pending = any(self._devices.pending(self._tenant()) for _ in range(2))
        return Finding.WILL_CHANGE if pending else Finding.ALREADY_SO

    def make(self) -> None:
        """Stop and start it.

        :raises NotVerified: if the running domain still differs from its definition.
        """
        self._devices.restart(self._tenant(), timeout=self._timeout)
        if self._devices.pending(self._tenant()):
            raise NotVerified(
                "the domain was restarted, but does not have the devices of its definition"
            )

    def is_undone(self) -> bool:
        """Return True: a power cycle changes nothing that could be undone."""
        return True
