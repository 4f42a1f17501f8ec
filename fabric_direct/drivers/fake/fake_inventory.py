"""What the site says that a host in memory has, as capacity and devices."""

from collections.abc import Iterator

from fabric_direct.config import FakeHost
from fabric_direct.drivers.contract import HostCapacity, HostDevice, PciFunction
from fabric_direct.model import DeviceState, PciAddress

UPLINK = "ens1"
_GPU_BUS, _NIC_BUS = 0x40, 0xA0


def capacity(host: FakeHost) -> HostCapacity:
    """Return what the host has in all."""
    return HostCapacity(host.cores, host.ram * 1024, host.disk)


def devices(host: FakeHost) -> dict[PciAddress, HostDevice]:
    """Return the host's GPUs, on NUMA nodes 0 and 1 in turn, and its uplink's VFs, on node 0."""
    found = (*_gpus(host.gpus), *_vfs(host.vfs))
    return {device.address: device for device in found}


def _gpus(number: int) -> Iterator[HostDevice]:
    for n in range(number):
        address = PciAddress(0, _GPU_BUS + n, 0, 0)
        function = PciFunction(address, "10de", "20b7", kind="030200", numa_node=n % 2)
        yield HostDevice(function, DeviceState.FREE, type="GPU", model="A30")


def _vfs(number: int) -> Iterator[HostDevice]:
    for n in range(number):
        address = PciAddress(0, _NIC_BUS + 1, n // 8, n % 8)
        physical = PciAddress(0, _NIC_BUS, 0, 0)
        function = PciFunction(address, "15b3", "101e", numa_node=0, physical=physical, vf=n)
        yield HostDevice(function, DeviceState.FREE, type="SharedNIC", uplink=UPLINK)
