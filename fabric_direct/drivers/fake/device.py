"""PCI devices in memory."""

from fabric_direct.drivers.base import (
    HostDevice,
    PluggedDevice,
)
from fabric_direct.drivers.fake.substrate import Fake
from fabric_direct.errors import (
    DeviceClaimed,
    InvalidSliver,
)
from fabric_direct.model import PciComponent


class FakeDevice(Fake):
    """A :class:`~fabric_direct.drivers.base.DeviceDriver` in memory."""

    kind = "device"

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the substrate's devices."""
        return self._call("inventory", lambda: tuple(self.substrate.devices.values()))

    def check(self, component: PciComponent, sliver_id: str) -> None:
        """Refuse a device that the substrate does not have, or not for this sliver."""

        def check() -> None:
            for number, address in enumerate(component.bdf):
                device = self.substrate.devices.get(address)
                if device is None or not device.allowed:
                    raise InvalidSliver(f"{address} is not allowed here", field=f"bdf[{number}]")
                self._refuse_claimed(device, sliver_id)

        self._call("check", check)

    def plugged(self, sliver_id: str) -> tuple[PluggedDevice, ...]:
        """Return the functions that the server has."""
        return self._call("plugged", lambda: self.substrate.plugged.get(sliver_id, ()))

    def attach(self, sliver_id: str, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass the functions through."""
        return self._call("attach", lambda: self._attach(sliver_id, component))

    def _attach(self, sliver_id: str, component: PciComponent) -> tuple[PluggedDevice, ...]:
        for address in component.bdf:
            self._refuse_claimed(self.substrate.devices[address], sliver_id)
        kept = self._but(sliver_id, component.id)
        new = tuple(
            PluggedDevice(component.id, f"ua-{sliver_id}-{component.id}-{n}", address)
            for n, address in enumerate(component.bdf)
        )
        for address in component.bdf:
            self.substrate.own(address, f"{sliver_id}/{component.id}")
        self.substrate.plugged[sliver_id] = kept + new
        return new

    def detach(self, sliver_id: str, component: str, *, timeout: float) -> None:  # noqa: ARG002
        """Take the functions back."""

        def detach() -> None:
            for device in self.substrate.plugged.get(sliver_id, ()):
                if device.component == component:
                    self.substrate.own(device.host_address, None)
            self.substrate.plugged[sliver_id] = self._but(sliver_id, component)

        self._call("detach", detach)

    def _but(self, sliver_id: str, component: str) -> tuple[PluggedDevice, ...]:
        devices = self.substrate.plugged.get(sliver_id, ())
        return tuple(d for d in devices if d.component != component)

    @staticmethod
    def _refuse_claimed(device: HostDevice, sliver_id: str) -> None:
        if device.owner and device.owner.split("/")[0] != sliver_id:
            raise DeviceClaimed(f"{device.address} belongs to {device.owner}")
