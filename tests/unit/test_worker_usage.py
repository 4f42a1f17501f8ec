"""What the host itself uses of its devices, a sentence for each use."""

import errno

import pytest

from fabric_direct.drivers.hosts.agent import sysfs, usage
from fabric_direct.drivers.hosts.agent.addresses import addresses
from fabric_direct.drivers.hosts.agent.usage import Uses, active
from tests.unit.sysfs_tree import BRIDGE, NVME, Tree, tree

__all__ = ["tree"]

DRIVE = "0000:04:00.0"
NIC = "0000:01:00.0"
MIB = 1024**2


def uses() -> Uses:
    """Return the uses of all functions."""
    return usage.uses(set(sysfs.names(f"{sysfs.SYS}/bus/pci/devices")))


@pytest.fixture
def drive(tree: Tree) -> Tree:
    """A drive with a partition, below a bridge."""
    tree.function("0000:00:10.3", kind=BRIDGE)
    tree.function(DRIVE, kind=NVME, below="0000:00:10.3")
    tree.disk("nvme1n1", DRIVE, "259:0")
    tree.partition("nvme1n1", "nvme1n1p1", "259:1")
    for name in ("nvme1n1", "nvme1n1p1"):
        tree.file(f"dev/{name}", bytes(MIB))
    return tree


@pytest.fixture
def nic(tree: Tree) -> Tree:
    tree.function(NIC)
    tree.net("enp1s0", NIC, ifindex="99", flags="0x1003")
    return tree


def test_a_device_that_nothing_uses_has_no_uses(drive: Tree) -> None:
    assert uses() == {}


def test_a_mounted_file_system_counts_for_the_drive_and_what_is_before_it(drive: Tree) -> None:
    drive.mounts("259:1 / /srv rw - ext4 /dev/nvme1n1p1 rw")

    sentence = ["nvme1n1p1 is mounted on /srv"]
    assert uses() == {"0000:00:10.3": sentence, DRIVE: sentence}


def test_a_partition_that_goes_while_it_is_looked_at_is_no_error(drive: Tree) -> None:
    drive.file("sys/class/block/nvme1n1p2/partition", "2\n")

    assert uses() == {}


def test_a_bind_mount_is_no_second_use(drive: Tree) -> None:
    drive.mounts(
        "259:0 / /srv rw - ext4 /dev/nvme1n1 rw",
        "259:0 /a /home rw shared:1 - ext4 /dev/nvme1n1 rw",
    )

    assert uses()[DRIVE] == ["nvme1n1 is mounted on /srv"]


def test_a_place_with_a_space_is_told_as_it_is_called(drive: Tree) -> None:
    drive.mounts(r"259:0 / /my\040disk rw - ext4 /dev/nvme1n1 rw")

    assert uses()[DRIVE] == ["nvme1n1 is mounted on /my disk"]


def test_a_mounted_volume_counts_for_every_drive_below_it(drive: Tree) -> None:
    drive.function("0000:05:00.0", kind=NVME)
    drive.disk("nvme2n1", "0000:05:00.0", "259:2")
    array = drive.disk("dm-0", None, "253:0")
    (array / "dm").mkdir()
    (array / "dm/name").write_text("vg-root\n")
    drive.stacked("dm-0", "nvme1n1p1", "nvme2n1")
    drive.mounts("253:0 / /srv rw - xfs /dev/mapper/vg-root rw")

    assert sorted(uses()["0000:05:00.0"]) == [
        "dm-0 is mounted on /srv",
        "nvme2n1 is part of dm-0 (vg-root)",
    ]
    assert "nvme1n1p1 is part of dm-0 (vg-root)" in uses()[DRIVE]


def test_an_array_that_is_not_mounted_uses_its_members(drive: Tree) -> None:
    drive.disk("md127", None, "9:127")
    drive.stacked("md127", "nvme1n1")

    assert uses()[DRIVE] == ["nvme1n1 is part of md127"]


def test_a_disk_below_two_controllers_is_used_of_both(tree: Tree) -> None:
    """A namespace of several controllers has a disk of no hardware, and a hidden path for each."""
    for number, address in enumerate(("0000:03:00.0", "0000:08:00.0")):
        tree.function(address, kind=NVME)
        tree.disk(f"nvme0c{number}n1", address, f"259:{number}", hidden="1")
    tree.disk("nvme0n1", None, "259:9")
    tree.mounts("259:9 / /srv rw - ext4 /dev/nvme0n1 rw")

    sentence = ["nvme0n1 is mounted on /srv"]
    assert uses() == {"0000:03:00.0": sentence, "0000:08:00.0": sentence}


def test_every_device_of_a_mounted_btrfs_is_used(drive: Tree) -> None:
    devices = drive.sys / "fs/btrfs/1b9c/devices"
    drive.link(devices / "nvme1n1p1", drive.sys / "class/block/nvme1n1p1")

    assert uses()[DRIVE] == ["nvme1n1p1 is part of the mounted btrfs 1b9c"]


def test_swap_space_is_a_use(drive: Tree) -> None:
    drive.file("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme1n1p1 partition 9 0 -2\n")

    assert uses()[DRIVE] == ["nvme1n1p1 is swap space"]


def test_a_swap_file_is_no_use_beyond_its_file_system(drive: Tree) -> None:
    drive.file("proc/swaps", "Filename Type Size Used Priority\n/srv/swapfile file 9 0 -2\n")

    assert uses() == {}


MAGIC = b"\xfc\x4e\x2b\xa9"


@pytest.mark.parametrize(
    ("offset", "magic", "member"),
    [
        (512, b"LABELONE", "an LVM volume group"),
        (0, MAGIC, "an md array"),
        (4096, MAGIC, "an md array"),
        (MIB - 64 * 1024, MAGIC, "an md array"),
        (MIB - 64 * 1024, MAGIC[::-1], "an md array"),
        (MIB - 8192, MAGIC, "an md array"),
        (4096 + 24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"), "a bcache"),
        (0, b"bluestore block device\n", "a Ceph bluestore"),
        (131072 + 5 * 1024, bytes.fromhex("0cb1ba0000000000"), "a ZFS pool"),
        (131072 + 4096, bytes.fromhex("0000000000bab10c"), "a ZFS pool"),
        (MIB - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00", "an Intel RST/VROC array"),
        (MIB - 512, b"\xde\x11\xde\x11", "a DDF array"),
    ],
    ids=[
        "LVM", "md 1.1", "md 1.2", "md 0.90", "md 0.90, big-endian", "md 1.0", "bcache", "Ceph",
        "ZFS", "ZFS, big-endian", "Intel", "DDF",
    ],
)  # fmt: skip
def test_a_member_of_what_does_not_run_is_a_use(
    drive: Tree, offset: int, magic: bytes, member: str
) -> None:
    content = bytearray(MIB)
    content[offset : offset + len(magic)] = magic
    drive.file("dev/nvme1n1p1", bytes(content))

    assert uses()[DRIVE] == [f"nvme1n1p1 is a member of {member}"]
    assert active({DRIVE}) == {}


@pytest.mark.parametrize("size", [0, 512, 4096, 70000])
def test_a_disk_that_is_smaller_than_what_is_looked_for_is_free(drive: Tree, size: int) -> None:
    drive.file("dev/nvme1n1", bytes(size))

    assert uses() == {}


def test_a_disk_that_cannot_be_read_is_said_to_be_so(drive: Tree) -> None:
    (drive.dev / "nvme1n1").unlink()

    assert uses()[DRIVE] == ["nvme1n1 cannot be read: No such file or directory"]


def test_a_disk_without_a_medium_is_not_read(drive: Tree) -> None:
    (drive.sys / "class/block/nvme1n1/size").write_text("0\n")
    (drive.dev / "nvme1n1").unlink()

    assert uses() == {}


def test_the_default_route_is_a_use(nic: Tree) -> None:
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    nic.file("proc/net/route", f"{head}enp1s0 00000000 0202000A 0003 0 0 0 00000000 0 0 0\n")

    assert uses() == {NIC: ["enp1s0 has the default route"]}


def test_the_default_route_of_ipv6_is_a_use(nic: Tree) -> None:
    zero = "0" * 32
    route = f"{zero} 00 {zero} 00 fe80{'0' * 28} 00000400 1 0 00450003 enp1s0\n"
    nic.file("proc/net/ipv6_route", route)

    assert uses() == {NIC: ["enp1s0 has the default route"]}


@pytest.mark.parametrize(
    ("destination", "flags", "mask"),
    [("0002000A", "0001", "00FFFFFF"), ("00000000", "0200", "00000000")],
    ids=["to a network", "that rejects"],
)
def test_another_route_is_no_use(nic: Tree, destination: str, flags: str, mask: str) -> None:
    line = f"enp1s0 {destination} 00000000 {flags} 0 0 0 {mask} 0 0 0\n"
    nic.file("proc/net/route", f"Iface Destination …\n{line}")

    assert uses() == {}


def test_an_address_is_a_use(nic: Tree) -> None:
    """The loopback interface of this machine, whose index is 1, lends its address."""
    (nic.sys / "class/net/enp1s0/ifindex").write_text("1\n")

    assert "enp1s0 has the address 127.0.0.1/8" in uses()[NIC]


def test_the_kernel_tells_all_addresses_by_interface() -> None:
    assert "127.0.0.1/8" in addresses()[1]


def test_a_port_of_a_bridge_is_a_use(nic: Tree) -> None:
    bridge = nic.sys / "devices/virtual/net/br0"
    nic._facts(bridge, {"flags": "0x1003"})
    nic._class("net", "br0", bridge)
    nic.link(nic.sys / "class/net/enp1s0/master", bridge)
    nic.link(nic.sys / "class/net/enp1s0/upper_br0", bridge)

    assert uses() == {NIC: ["enp1s0 is a port of br0"]}


@pytest.mark.parametrize(("flags", "used"), [("0x1003", True), ("0x1002", False)])
def test_a_vlan_that_is_up_is_a_use(nic: Tree, flags: str, used: bool) -> None:
    vlan = nic.sys / "devices/virtual/net/enp1s0.100"
    nic._facts(vlan, {"flags": flags})
    nic._class("net", "enp1s0.100", vlan)
    nic.link(nic.sys / "class/net/enp1s0/upper_enp1s0.100", vlan)

    assert uses() == ({NIC: ["enp1s0.100 runs on enp1s0"]} if used else {})


def test_what_a_vf_is_used_for_is_no_use_of_its_nic(nic: Tree) -> None:
    nic.virtual(NIC, "0000:01:10.0")
    nic.net("enp1s0v0", "0000:01:10.0", ifindex="1", flags="0x1003")

    assert list(uses()) == ["0000:01:10.0"]


def test_a_disk_that_is_busy_for_an_instant_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(
        [BlockingIOError(errno.EBUSY, "busy"), BlockingIOError(errno.EBUSY, "busy"), None]
    )
    asked = []

    def claim(path: str) -> None:
        asked.append(path)
        if error := next(answers):
            raise error

    monkeypatch.setattr(usage, "_claim", claim)

    usage._claim_briefly("/dev/nvme0n1")

    assert asked == ["/dev/nvme0n1"] * 3


def test_a_disk_that_stays_busy_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(_: str) -> None:
        raise BlockingIOError(errno.EBUSY, "busy")

    monkeypatch.setattr(usage, "_claim", claim)

    with pytest.raises(OSError, match="busy"):
        usage._claim_briefly("/dev/nvme0n1")
