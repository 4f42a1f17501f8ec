"""Devices of a worker made fit for the next tenant: drives erased and read, functions reset."""

import json
import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import paramiko
import pytest

from fabric_direct.drivers.contract import DeviceRecord, HostDriver
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.passthrough.cleaning import clean
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.drivers.libvirt.passthrough.records import ON_HOST, DeviceRecords
from fabric_direct.errors import DriverError, FabricDirectError, NotFound, TimedOut, Unsupported
from fabric_direct.model import PciAddress
from fabric_direct.site.config import Site

SHARED_DRIVE, DRIVE = (PciAddress.parse(f"0000:0{bus}:00.0") for bus in (3, 4))
VF, DRIVE_VF = PciAddress.parse("0000:01:10.2"), PciAddress.parse("0000:03:00.1")
PAIR = tuple(PciAddress.parse(f"0000:06:00.{function}") for function in (0, 1))
LIMIT = 120


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture(scope="module")
def host(site: Site) -> HostDriver:
    return host_driver(site, "worker1")


def record(host: HostDriver, address: PciAddress, kind: str) -> DeviceRecord:
    function = survey(host, timeout=300)[address]
    return DeviceRecord(
        address, kind, None, "sliver-1", "device", function.vendor, function.product
    )


def cleaned(host: HostDriver, kind: str, *addresses: PciAddress) -> str:
    return clean(host, record(host, addresses[0], kind), addresses, timeout=LIMIT)


def name_of(worker: Any, address: PciAddress) -> str:
    return worker.run("ls", f"/sys/bus/pci/devices/{address}/nvme").split()[0] + "n1"


# -- drives

FILL = """
import os, sys
file, pattern = os.open(sys.argv[1], os.O_WRONLY), sys.argv[2].encode()
size = os.lseek(file, 0, os.SEEK_END)
for at in (0, 5 << 20, size // 2, size - (1 << 20)):
    os.pwrite(file, pattern * ((1 << 20) // len(pattern)), at)
os.fsync(file)
"""
SEARCH = """
import sys
with open(sys.argv[1], "rb") as file:
    print(any(sys.argv[2].encode() in chunk for chunk in iter(lambda: file.read(1 << 22), b"")))
"""


def fill(worker: Any, address: PciAddress) -> str:
    """Write a tenant's data on a drive, and return what it looks like."""
    pattern = secrets.token_hex(16)
    worker.run("python3", "-c", FILL, f"/dev/{name_of(worker, address)}", pattern)
    return pattern


def holds(worker: Any, address: PciAddress, pattern: str) -> bool:
    disk = f"/dev/{name_of(worker, address)}"
    worker.run("blockdev", "--flushbufs", disk)
    return bool(json.loads(worker.run("python3", "-c", SEARCH, disk, pattern).lower()))


@pytest.mark.parametrize("address", [DRIVE, SHARED_DRIVE], ids=["plain", "with SR-IOV"])
def test_a_drive_holds_nothing_of_its_tenant_afterwards(
    worker: Any, host: HostDriver, address: PciAddress
) -> None:
    pattern = fill(worker, address)
    assert holds(worker, address, pattern)

    done = cleaned(host, "NVME", address)

    assert done.endswith("by format, user data erase: 6 MiB read, all empty")
    assert not holds(worker, address, pattern)


def test_twice_is_the_same_as_once(host: HostDriver) -> None:
    assert cleaned(host, "NVME", DRIVE) == cleaned(host, "NVME", DRIVE)


# One partition of a master boot record: type 83, 1 MiB from block 2048 on. Then BLKRRPART.
PARTITION = """
import fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR)
entry = struct.pack("<B3xB3xII", 0, 0x83, 2048, 2048)
os.pwrite(file, entry.ljust(64, b"\\0") + b"\\x55\\xaa", 446)
os.fsync(file)
fcntl.ioctl(file, 0x125F)
"""


def test_its_partitions_are_forgotten(worker: Any, host: HostDriver) -> None:
    disk = name_of(worker, DRIVE)
    worker.run("python3", "-c", PARTITION, f"/dev/{disk}")
    partitions = f"/sys/block/{disk}/{disk}p1"
    assert worker.ask("test", "-e", partitions).returncode == 0

    cleaned(host, "NVME", DRIVE)

    assert worker.ask("test", "-e", partitions).returncode == 1


def test_a_volume_group_that_a_tenant_left_is_erased_like_all_else(
    worker: Any, host: HostDriver
) -> None:
    disk = name_of(worker, DRIVE)
    worker.run("dd", f"of=/dev/{disk}", "bs=512", "seek=1", "conv=fsync", stdin="LABELONE")
    assert survey(host, timeout=300)[DRIVE].uses == (f"{disk} is a member of an LVM volume group",)

    cleaned(host, "NVME", DRIVE)

    assert survey(host, timeout=300)[DRIVE].uses == ()


@pytest.mark.usefixtures("unchanged")
def test_a_drive_that_has_no_driver_is_given_its_own(worker: Any, host: HostDriver) -> None:
    """libvirt leaves it with vfio-pci if it is told not to manage it."""
    worker.run("python3", "-c", UNBIND, str(DRIVE))

    cleaned(host, "NVME", DRIVE)

    assert survey(host, timeout=300)[DRIVE].driver == "nvme"


UNBIND = """
import sys
from pathlib import Path
path = Path("/sys/bus/pci/devices") / sys.argv[1]
(path / "driver_override").write_text("vfio-pci")
(path / "driver/unbind").write_text(sys.argv[1])
"""


def test_a_drive_that_the_host_has_mounted_is_not_touched(worker: Any, host: HostDriver) -> None:
    disk = name_of(worker, DRIVE)
    worker.run("mkfs.ext4", "-q", "-F", f"/dev/{disk}")
    worker.run("mount", f"/dev/{disk}", "/mnt")
    try:
        with pytest.raises(DriverError, match=f"{disk} is mounted on /mnt"):
            cleaned(host, "NVME", DRIVE)
        assert worker.run("ls", "/mnt").split() == ["lost+found"]
    finally:
        worker.run("umount", "/mnt")
        worker.run("wipefs", "-q", "-a", f"/dev/{disk}")


CLAIM = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
print("ready", flush=True)
sys.stdin.read()
"""
WRITE = """
import mmap, os, sys, threading
file = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
page.write(b"data" * 1024)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
print("ready", flush=True)
while not ended.is_set():
    os.pwrite(file, page, 0)
"""
PROBE = """
import errno, os, select, sys
print("ready", flush=True)
refused = False
while not select.select([sys.stdin], [], [], 0.02)[0]:
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        refused |= error.errno == errno.EBUSY
sys.exit(refused)
"""


@contextmanager
def running(worker: Any, program: str, *arguments: str) -> Iterator[paramiko.Channel]:
    """Have a program run on the worker, which ends with its input."""
    channel = worker._client().get_transport().open_session()
    channel.exec_command(shlex.join(("python3", "-c", program, *arguments)))
    assert channel.recv(5) == b"ready"
    try:
        yield channel
    finally:
        channel.shutdown_write()
        channel.recv_exit_status()
        channel.close()


def test_a_drive_that_something_holds_is_not_touched(worker: Any, host: HostDriver) -> None:
    pattern = fill(worker, DRIVE)
    with (
        running(worker, CLAIM, f"/dev/{name_of(worker, DRIVE)}"),
        pytest.raises(DriverError, match="EBUSY"),
    ):
        cleaned(host, "NVME", DRIVE)

    assert holds(worker, DRIVE, pattern)
    cleaned(host, "NVME", DRIVE)


def test_a_drive_that_says_erased_and_still_holds_data_is_not_clean(
    worker: Any, host: HostDriver
) -> None:
    """The data is written back while the drive is being erased, by a program that claims nothing."""
    disk = name_of(worker, DRIVE)
    with (
        running(worker, WRITE, f"/dev/{disk}"),
        pytest.raises(DriverError, match=f"{disk} still holds data at byte 0"),
    ):
        cleaned(host, "NVME", DRIVE)

    cleaned(host, "NVME", DRIVE)


def test_an_erase_that_has_too_little_time_is_no_success(worker: Any, host: HostDriver) -> None:
    with pytest.raises(TimedOut):
        host.call("nvme.erase", timeout=300, address=str(DRIVE), limit=0.05)
    cleaned(host, "NVME", DRIVE)


def test_nobody_can_mount_a_drive_while_it_is_being_erased(worker: Any, host: HostDriver) -> None:
    with running(worker, PROBE, f"/dev/{name_of(worker, DRIVE)}") as probe:
        cleaned(host, "NVME", DRIVE)

    assert probe.exit_status == 1


def test_what_is_no_drive_cannot_be_erased(host: HostDriver) -> None:
    with pytest.raises(NotFound, match="no NVMe controller runs at"):
        host.call("nvme.erase", timeout=300, address=str(PAIR[0]), limit=30)


@contextmanager
def vfs_of_a_drive(worker: Any) -> Iterator[None]:
    numbers = f"/sys/bus/pci/devices/{SHARED_DRIVE}/sriov_numvfs"
    worker.run("tee", numbers, stdin="4")
    try:
        yield
    finally:
        worker.run("tee", numbers, stdin="0")


@pytest.mark.usefixtures("unchanged")
def test_a_vf_of_a_drive_that_has_no_namespaces_has_nothing_to_erase(
    worker: Any, host: HostDriver
) -> None:
    with vfs_of_a_drive(worker):
        report = host.call("nvme.erase", timeout=300, address=str(DRIVE_VF), limit=30)

    assert report == {
        "method": "none",
        "proof": "it has no namespaces",
        "namespaces": [],
        "bytes": 0,
    }


@contextmanager
def namespace_of_a_running_vf(worker: Any) -> Iterator[None]:
    """Give a VF's controller what it needs, start it, and attach the drive's namespace to it too."""
    drive = f"/dev/{name_of(worker, SHARED_DRIVE)[:-2]}"
    manage = ("nvme", "virt-mgmt", drive)
    for kind in ("0", "1"):
        worker.run(*manage, "-c", "0", "-r", kind, "-a", "1", "-n", "0")
    worker.run("nvme", "reset", drive)
    with vfs_of_a_drive(worker):
        for kind, count in (("1", "1"), ("0", "2")):
            worker.run(*manage, "-c", "1", "-r", kind, "-a", "8", "-n", count)
        worker.run(*manage, "-c", "1", "-a", "9")
        worker.run("nvme", "attach-ns", drive, "-n", "1", "-c", "1")
        try:
            yield
        finally:
            worker.run("nvme", "detach-ns", drive, "-n", "1", "-c", "1")
            worker.run(*manage, "-c", "1", "-a", "7")


@pytest.mark.usefixtures("unchanged")
def test_a_namespace_that_a_running_vf_has_too_is_not_touched(
    worker: Any, host: HostDriver
) -> None:
    pattern = fill(worker, SHARED_DRIVE)
    with (
        namespace_of_a_running_vf(worker),
        pytest.raises(DriverError, match=f"namespace 1 of {SHARED_DRIVE} is also controller 1's"),
    ):
        cleaned(host, "NVME", SHARED_DRIVE)

    assert holds(worker, SHARED_DRIVE, pattern)
    cleaned(host, "NVME", SHARED_DRIVE)


# -- anything else


def test_a_vf_is_reset_and_its_driver_has_it_again(host: HostDriver) -> None:
    """With igbvf bound and its interface down, a reset by hand would never end."""
    assert cleaned(host, "SharedNIC", VF) == f"{VF} was reset (flr)"

    function = survey(host, timeout=300)[VF]
    assert (function.driver, function.alive, len(function.links)) == ("igbvf", True, 1)


def test_functions_are_reset_each_as_the_kernel_knows_how(host: HostDriver) -> None:
    done = cleaned(host, "GPU", *PAIR)

    assert done == f"{PAIR[0]} was reset (pm); {PAIR[1]} was reset (pm)"


@contextmanager
def no_reset_of_its_own(worker: Any) -> Iterator[None]:
    """Have the kernel believe that these functions cannot be reset, as many GPUs cannot."""
    methods = [f"/sys/bus/pci/devices/{address}/reset_method" for address in PAIR]
    for method in methods:
        worker.run("tee", method, stdin="\n")
    try:
        yield
    finally:
        for method in methods:
            worker.run("tee", method, stdin="default\n")


@pytest.mark.usefixtures("unchanged")
def test_functions_that_cannot_be_reset_are_reset_with_their_bus(
    worker: Any, host: HostDriver
) -> None:
    with no_reset_of_its_own(worker):
        done = cleaned(host, "GPU", *PAIR)

    assert done == f"{PAIR[0]} was reset (bus); {PAIR[1]} was reset (bus)"
    assert [survey(host, timeout=300)[address].driver for address in PAIR] == ["e1000e"] * 2


def test_but_only_if_all_of_the_bus_is_the_tenants(worker: Any, host: HostDriver) -> None:
    with (
        no_reset_of_its_own(worker),
        pytest.raises(Unsupported, match=f"{PAIR[1]} on its bus would be reset too"),
    ):
        cleaned(host, "GPU", PAIR[0])


@pytest.mark.usefixtures("unchanged")
def test_a_device_that_is_off_the_bus_is_not_clean(host: HostDriver) -> None:
    before = record(host, PAIR[0], "GPU")
    addresses = [str(address) for address in PAIR]
    expected = host.call("pci.remove", timeout=300, addresses=addresses)
    try:
        with pytest.raises(FabricDirectError, match=f"there is no PCI function {PAIR[0]}"):
            clean(host, before, PAIR, timeout=LIMIT)
    finally:
        host.call("pci.rescan", timeout=300, expected=expected, limit=30)


def test_a_device_that_does_not_come_back_as_it_was_is_not_found_again(host: HostDriver) -> None:
    wrong = {str(PAIR[0]): "10de:1e30"}
    with pytest.raises(TimedOut, match=f"{PAIR[0]} .10de:1e30. does not answer"):
        host.call("pci.rescan", timeout=300, expected=wrong, limit=0.2)


def test_a_vf_is_never_taken_off_the_bus(host: HostDriver) -> None:
    with pytest.raises(Unsupported, match="no scan of the bus finds it again"):
        host.call("pci.remove", timeout=300, addresses=[str(VF)])


# -- records


def test_a_record_is_kept_on_the_worker_and_here(worker: Any, site: Site, host: HostDriver) -> None:
    records, written = DeviceRecords(site, "worker1"), record(host, DRIVE, "NVME")
    try:
        records.write(written)

        file = f"{ON_HOST}/{DRIVE}.json"
        assert json.loads(worker.run("cat", file))["sliver"] == "sliver-1"
        assert worker.run("stat", "-c", "%a", file).strip() == "600"
        assert records.read() == {DRIVE: written}
    finally:
        records.remove(DRIVE)
    assert records.read() == {}


def test_a_record_on_the_worker_alone_counts(
    worker: Any, site: Site, make_site: Callable[..., Site], host: HostDriver
) -> None:
    """Another machine, with a state_dir of its own, has passed the device through."""
    other, written = DeviceRecords(make_site(), "worker1"), record(host, DRIVE, "NVME")
    other.write(written)
    try:
        assert DeviceRecords(site, "worker1").read() == {DRIVE: written}
    finally:
        with suppress(NotFound):
            other.remove(DRIVE)
