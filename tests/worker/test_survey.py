"""What a worker says of its PCI functions, and what it uses itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fabric_direct.drivers.contract import HostDriver, PciFunction
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.model import PciAddress
from fabric_direct.site.config import Site

SHARED_DRIVE, DRIVE, OTHER = (PciAddress.parse(f"0000:0{bus}:00.0") for bus in (3, 4, 5))
NIC, VF = PciAddress.parse("0000:01:00.0"), PciAddress.parse("0000:01:10.2")
PORT = PciAddress.parse("0000:00:10.3")
PAIR = [PciAddress.parse(f"0000:06:00.{function}") for function in (0, 1)]


@pytest.fixture(scope="module")
def host(make_site: Callable[..., Site]) -> HostDriver:
    return host_driver(make_site(), "worker1")


@pytest.fixture(scope="module")
def idle(host: HostDriver) -> dict[PciAddress, PciFunction]:
    """The worker as it is when nobody tests on it."""
    return survey(host, timeout=60)


@pytest.fixture
def look(host: HostDriver) -> Callable[[PciAddress], PciFunction]:
    def at(address: PciAddress) -> PciFunction:
        return survey(host, timeout=60)[address]

    return at


@pytest.fixture
def disk(worker: Any) -> Callable[[PciAddress], str]:
    """The name of a drive's disk."""

    def named(address: PciAddress) -> str:
        blocks = worker.run("ls", f"/sys/bus/pci/devices/{address}/nvme").split()
        return f"{blocks[0]}n1"

    return named


Functions = dict[PciAddress, PciFunction]


def test_a_nic_and_its_vfs(idle: Functions) -> None:
    nic, vf = idle[NIC], idle[VF]
    assert (nic.vendor, nic.product, nic.driver, nic.kind) == ("8086", "10c9", "igb", "020000")
    assert nic.links == ("enp1s0",)
    assert [str(address) for address in nic.virtual] == [f"0000:01:10.{n}" for n in (0, 2, 4, 6)]
    assert (vf.physical, vf.vf, vf.product, vf.driver) == (NIC, 1, "10ca", "igbvf")
    assert vf.links
    assert nic.alive
    assert vf.alive


def test_functions_that_share_an_iommu_group(idle: Functions) -> None:
    groups = [idle[address].iommu_group for address in PAIR]

    assert groups[0] == groups[1] is not None
    assert idle[DRIVE].iommu_group not in groups


def test_a_drive(idle: Functions) -> None:
    drive = idle[DRIVE]

    assert (drive.vendor, drive.product, drive.driver, drive.kind) == (
        "1b36", "0010", "nvme", "010802",
    )  # fmt: skip
    assert drive.label in {"Red Hat, Inc. QEMU NVM Express Controller", ""}


def test_what_the_worker_lives_on_is_used(idle: Functions) -> None:
    uses = [use for function in idle.values() for use in function.uses]

    assert "vda is mounted on /" in uses
    assert any("has the default route" in use or "has the address" in use for use in uses)


def test_what_nobody_uses_has_no_uses(idle: Functions) -> None:
    unused = [SHARED_DRIVE, DRIVE, OTHER, VF, *PAIR]

    assert {address: idle[address].uses for address in unused} == dict.fromkeys(unused, ())


@contextmanager
def file_system(worker: Any, disk: str, at: str) -> Iterator[None]:
    worker.run("mkfs.ext4", "-q", "-F", f"/dev/{disk}")
    worker.run("mkdir", "-p", at)
    worker.run("mount", f"/dev/{disk}", at)
    try:
        yield
    finally:
        worker.run("umount", at)
        worker.run("rmdir", at)
        worker.run("wipefs", "-q", "-a", f"/dev/{disk}")


def test_a_mounted_file_system_is_named(
    worker: Any, disk: Callable[..., str], host: HostDriver
) -> None:
    name = disk(DRIVE)
    with file_system(worker, name, "/mnt/drive"):
        there = survey(host, timeout=60)

    assert there[DRIVE].uses == (f"{name} is mounted on /mnt/drive",)
    assert there[PORT].uses == there[DRIVE].uses
    assert there[OTHER].uses == ()


def test_one_on_a_namespace_that_several_controllers_may_have_is_named(
    worker: Any, disk: Callable[..., str], look: Callable[..., PciFunction]
) -> None:
    name = disk(SHARED_DRIVE)
    with file_system(worker, name, "/mnt/drive"):
        assert look(SHARED_DRIVE).uses == (f"{name} is mounted on /mnt/drive",)


def test_a_file_system_on_a_volume_on_the_drive_is_named(
    worker: Any, disk: Callable[..., str], look: Callable[..., PciFunction]
) -> None:
    name = disk(DRIVE)
    worker.run("dmsetup", "create", "vol", "--table", f"0 65536 linear /dev/{name} 0")
    try:
        (held,) = look(DRIVE).uses
        with file_system(worker, "mapper/vol", "/mnt/volume"):
            mounted = look(DRIVE).uses
    finally:
        worker.run("dmsetup", "remove", "--retry", "vol")

    assert held == f"{name} is part of dm-0 (vol)"
    assert set(mounted) == {held, "dm-0 is mounted on /mnt/volume"}


def test_swap_space_is_named(
    worker: Any, disk: Callable[..., str], look: Callable[..., PciFunction]
) -> None:
    name = disk(DRIVE)
    worker.run("mkswap", "-q", f"/dev/{name}")
    worker.run("swapon", f"/dev/{name}")
    try:
        assert look(DRIVE).uses == (f"{name} is swap space",)
    finally:
        worker.run("swapoff", f"/dev/{name}")
        worker.run("wipefs", "-q", "-a", f"/dev/{name}")


@contextmanager
def written(worker: Any, disk: str, at: int, content: bytes) -> Iterator[None]:
    """Have these bytes on a disk."""

    def write(what: bytes) -> None:
        worker.run("python3", "-c", WRITE, f"/dev/{disk}", str(at), what.hex())

    write(content)
    try:
        yield
    finally:
        write(bytes(len(content)))


WRITE = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
os.pwrite(file, bytes.fromhex(sys.argv[3]), int(sys.argv[2]))
os.fsync(file)
"""


@pytest.mark.parametrize(
    ("at", "content", "member"),
    [
        (512, b"LABELONE", "an LVM volume group"),
        (4096, b"\xfc\x4e\x2b\xa9", "an md array"),
        (256 * 1024**2 - 8192, b"\xfc\x4e\x2b\xa9", "an md array"),
    ],
    ids=["LVM", "md 1.2", "md 1.0"],
)
def test_a_member_of_what_does_not_run_is_named(
    worker: Any,
    disk: Callable[..., str],
    look: Callable[..., PciFunction],
    at: int,
    content: bytes,
    member: str,
) -> None:
    name = disk(OTHER)
    with written(worker, name, at, content):
        assert look(OTHER).uses == (f"{name} is a member of {member}",)


HOLD = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_disk_that_something_unknown_holds_is_named(
    worker: Any, disk: Callable[..., str], look: Callable[..., PciFunction]
) -> None:
    """A pool of another kind, a journal, a container's mount: all that claim a disk."""
    name = disk(DRIVE)
    channel = worker._client().get_transport().open_session()
    channel.exec_command(f"python3 -c '{HOLD}' /dev/{name}")
    assert channel.recv(4) == b"held"
    try:
        assert look(DRIVE).uses == (f"{name} is held by the kernel or a program",)
    finally:
        channel.shutdown_write()
        channel.recv_exit_status()
        channel.close()


@contextmanager
def undone(worker: Any, *commands: str, undo: str) -> Iterator[None]:
    for command in commands:
        worker.run(*command.split())
    try:
        yield
    finally:
        worker.run(*undo.split())


LINK = "enp6s0f0"


@pytest.mark.parametrize(
    ("commands", "undo", "use"),
    [
        (
            [f"ip address add 192.0.2.1/24 dev {LINK}"],
            f"ip address del 192.0.2.1/24 dev {LINK}",
            f"{LINK} has the address 192.0.2.1/24",
        ),
        (
            [f"ip address add 2001:db8::1/64 dev {LINK}"],
            f"ip address del 2001:db8::1/64 dev {LINK}",
            f"{LINK} has the address 2001:db8::1/64",
        ),
        (
            ["ip link add lab0 type bridge", f"ip link set {LINK} master lab0"],
            "ip link del lab0",
            f"{LINK} is a port of lab0",
        ),
        (
            [f"ip link add lab0 link {LINK} up type macvlan"],
            "ip link del lab0",
            f"lab0 runs on {LINK}",
        ),
    ],
    ids=["an address", "an IPv6 address", "a bridge", "a macvlan"],
)
def test_a_use_of_a_network_interface_is_named(
    worker: Any,
    look: Callable[..., PciFunction],
    commands: list[str],
    undo: str,
    use: str,
) -> None:
    with undone(worker, f"ip link set {LINK} up", *commands, undo=undo):
        there = look(PAIR[0])
    worker.run("ip", "link", "set", LINK, "down")

    assert there.uses == (use,)


def test_a_default_route_is_named(worker: Any, look: Callable[..., PciFunction]) -> None:
    route = f"default via 192.0.2.254 dev {LINK} metric 4000"
    setup = (f"ip link set {LINK} up", f"ip address add 192.0.2.1/24 dev {LINK}")
    with undone(worker, *setup, f"ip route add {route}", undo=f"ip address flush dev {LINK}"):
        there = look(PAIR[0])
    worker.run("ip", "link", "set", LINK, "down")

    assert f"{LINK} has the default route" in there.uses


def test_an_address_of_a_vf_is_no_use_of_its_nic(worker: Any, host: HostDriver) -> None:
    (link,) = survey(host, timeout=60)[VF].links
    add, delete = (f"ip address {what} 192.0.2.1/24 dev {link}" for what in ("add", "del"))
    with undone(worker, add, undo=delete):
        there = survey(host, timeout=60)

    assert there[VF].uses == (f"{link} has the address 192.0.2.1/24",)
    assert there[NIC].uses == ()


def test_a_disk_on_a_usb_controller_uses_the_controller(worker: Any, host: HostDriver) -> None:
    links = worker.run("find", "/sys/block", "-name", "sd*", "-printf", "%f %l\n").splitlines()
    name = next((line.split()[0] for line in links if "/usb" in line), None)
    if name is None:
        pytest.skip("the worker has no USB disk")
    worker.run("dmsetup", "create", "vol", "--table", f"0 2048 linear /dev/{name} 0")
    try:
        there = survey(host, timeout=60).values()
    finally:
        worker.run("dmsetup", "remove", "--retry", "vol")

    used = {function.kind: function.uses for function in there if name in " ".join(function.uses)}
    assert used == {"0c0330": (f"{name} is part of dm-0 (vol)",)}


RENUMBER = """
import sys
with open("/sys/bus/pci/devices/0000:00:10.5/config", "r+b", buffering=0) as file:
    file.seek(0x19)
    file.write(bytes([int(sys.argv[1])]))
"""


@pytest.mark.usefixtures("unchanged")
def test_functions_whose_bus_is_cut_off_are_not_alive(worker: Any, host: HostDriver) -> None:
    """The bridge is told another bus number, so that no request reaches what is behind it."""
    worker.run("python3", "-c", RENUMBER, "255")
    try:
        there = survey(host, timeout=60)
    finally:
        worker.run("python3", "-c", RENUMBER, "6")

    assert [there[address].alive for address in PAIR] == [False, False]
    assert there[DRIVE].alive


@pytest.mark.usefixtures("unchanged")
def test_a_function_that_is_off_the_bus_is_not_there(host: HostDriver) -> None:
    addresses = [str(address) for address in PAIR]
    expected = host.call("pci.remove", timeout=60, addresses=addresses)
    try:
        assert survey(host, timeout=60).keys().isdisjoint(PAIR)
    finally:
        host.call("pci.rescan", timeout=60, expected=expected, limit=30)

    assert survey(host, timeout=60).keys() >= set(PAIR)
