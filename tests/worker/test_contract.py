"""The contract of device drivers, on a worker: a drive, a VF and a device that needs a power cycle.

The server is defined and does not run, so nothing has to be released by a guest: that is in
``test_devices``.
"""

from collections.abc import Callable, Iterator

import libvirt
import pytest

from fabric_direct.drivers.contract import DeviceDomain, DeviceDriver
from fabric_direct.drivers.libvirt.passthrough.cold_plug import FpgaDevice
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.sriov import SriovDevice
from fabric_direct.model import Fpga, Interface, Nvme, PciAddress, PciComponent, SharedNic
from fabric_direct.site.config import Site
from fabric_direct.testing import DeviceContract
from tests.worker.bare import blank
from tests.worker.conftest import Worker

HOST = "worker1"
MAC = "52:54:00:0f:c0:01"
SPARE_DRIVE, OTHER_VF, SPARE_FUNCTION = "0000:03:00.0", "0000:03:00.1", "0000:06:00.0"


def bdf(*addresses: str) -> tuple[PciAddress, ...]:
    return tuple(map(PciAddress.parse, addresses))


@pytest.mark.usefixtures("unchanged")
class OnAWorker(DeviceContract):
    """What the suites of a worker have in common."""

    @pytest.fixture
    def site(self, make_site: Callable[..., Site]) -> Site:
        return make_site()

    @pytest.fixture
    def tenant(self, worker: Worker, sliver: str, unchanged: None) -> Iterator[DeviceDomain]:
        domain: libvirt.virDomain = worker.connection.defineXML(blank(sliver))
        yield DeviceDomain(sliver, domain.UUIDString())
        domain.undefine()


class TestDrives(OnAWorker):
    @pytest.fixture
    def driver(self, site: Site) -> DeviceDriver:
        return HostdevDevice(site, HOST)

    @pytest.fixture
    def component(self) -> PciComponent:
        return Nvme(id="drive", bdf=bdf("0000:05:00.0"))

    @pytest.fixture
    def unlisted(self) -> PciComponent:
        return Nvme(id="drive", bdf=bdf(SPARE_DRIVE))


class TestVfs(OnAWorker):
    @pytest.fixture
    def driver(self, site: Site, worker: Worker, unchanged: None) -> Iterator[DeviceDriver]:
        """The uplink, which stays in VEPA, is set back."""
        yield SriovDevice(site, HOST)
        worker.run("bridge", "link", "set", "dev", "enp1s0", "hwmode", "veb")

    @pytest.fixture
    def component(self) -> PciComponent:
        interface = Interface(mac=MAC, vlan=304, bandwidth=100)
        return SharedNic(id="nic", bdf=bdf("0000:01:10.0"), interface=interface)

    @pytest.fixture
    def unlisted(self) -> PciComponent:
        return SharedNic(id="nic", bdf=bdf(OTHER_VF), interface=Interface(mac=MAC))


class TestColdDevices(OnAWorker):
    @pytest.fixture
    def driver(self, site: Site) -> DeviceDriver:
        return FpgaDevice(site, HOST)

    @pytest.fixture
    def component(self) -> PciComponent:
        return Fpga(id="fpga", bdf=bdf("0000:07:00.0", "0000:07:00.1"))

    @pytest.fixture
    def unlisted(self) -> PciComponent:
        return Fpga(id="fpga", bdf=bdf(SPARE_FUNCTION))
