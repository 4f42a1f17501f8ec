"""What libvirt and the kernel do with devices: each fact that a rule of the drivers rests on.

Bare calls only, so only another version of the lab can change them: they are skipped on the version in
``facts.json``. ``make test-worker-facts`` checks them whatever the version, and writes it there if all
pass. Left out is what takes libvirtd from everybody for ten minutes (a PF that libvirt takes
while a guest holds one of its VFs); the kernel's part of it is here, without libvirt.
"""

import json
import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import libvirt
import pytest

from tests.worker.bare import (
    BOTH,
    CONFIG,
    LIVE,
    blank,
    hostdev,
    interface,
    removals,
    sources,
    wait_until,
)
from tests.worker.conftest import L2, Worker
from tests.worker.lab_version import checked_version, keep, lab_version

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("unchanged")]

VF, OTHER_VF = "0000:01:10.0", "0000:01:10.2"
PF = "0000:01:00.0"
DRIVE = "0000:04:00.0"
GROUP = ("0000:06:00.0", "0000:06:00.1")
MAC = "52:54:00:fa:c7:01"

MakeDomain = Callable[..., libvirt.virDomain]


@pytest.fixture(scope="module", autouse=True)
def another_version(worker: Worker, request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip the facts of a version of the lab that was checked; keep the version when all pass."""
    version, asked = lab_version(worker), "FACTS" in os.environ
    if version == checked_version() and not asked:
        pytest.skip("checked with this lab, libvirt, QEMU and Linux: make test-worker-facts")
    failed = request.session.testsfailed
    yield
    if asked and request.session.testsfailed == failed:
        keep(version)


@pytest.fixture
def make_domain(worker: Worker, unchanged: None) -> Iterator[MakeDomain]:
    """Make a domain without an operating system, which lets go of nothing; it runs."""
    made: list[libvirt.virDomain] = []

    def make(*, ports: int = 4, devices: str = "", start: bool = True) -> libvirt.virDomain:
        xml = blank(uuid4().hex[:8], ports=ports, devices=devices)
        made.append(worker.connection.defineXML(xml))
        if start:
            made[-1].create()
        return made[-1]

    yield make
    for domain in made:
        if domain.isActive():
            domain.destroy()
        domain.undefine()


def refused(call: Callable[..., object], *args: object) -> tuple[int, str]:
    """libvirt's code and message for a call that it refuses."""
    with pytest.raises(libvirt.libvirtError) as caught:
        call(*args)
    return caught.value.get_error_code(), caught.value.get_error_message()


# ---- attach and detach: what `attach` and `detach` wait for and read back
@pytest.mark.parametrize(("address", "driver"), [(VF, "igbvf"), (DRIVE, "nvme")])
def test_a_managed_function_changes_its_driver_and_the_guest_sees_it(
    worker: Worker, l2: L2, address: str, driver: str
) -> None:
    l2.domain.attachDeviceFlags(hostdev(address, alias="ua-fact"), BOTH)

    assert worker.driver(address) == "vfio-pci"
    assert address in sources(l2.domain)
    assert address in sources(l2.domain, live=False)
    wait_until(lambda: f"={driver}" in l2.says(), "the guest sees the device")
    with removals(l2.domain) as removed:
        l2.domain.detachDeviceAlias("ua-fact", BOTH)
        wait_until(lambda: removed, "the event DEVICE_REMOVED")
    assert removed == ["ua-fact"]
    assert address not in sources(l2.domain) | sources(l2.domain, live=False)
    wait_until(lambda: worker.driver(address) == driver, "the host's driver has it back")


def test_a_vf_as_an_interface_gets_mac_and_vlan_and_loses_both(worker: Worker, l2: L2) -> None:
    before = worker.vf("enp1s0", 0)
    nic = interface(VF, MAC, 304)

    l2.domain.attachDeviceFlags(nic, BOTH)

    now = worker.vf("enp1s0", 0)
    assert (now["address"], now["vlan_list"]) == (MAC, [{"vlan": 304}])
    with removals(l2.domain) as removed:
        l2.domain.detachDeviceFlags(nic, BOTH)
        wait_until(lambda: removed, "the event DEVICE_REMOVED")
    wait_until(lambda: worker.driver(VF) == "igbvf", "the host's driver has it back")
    assert worker.vf("enp1s0", 0) == before


def test_a_guest_that_does_not_let_go_keeps_the_device_and_only_the_definition_loses_it(
    worker: Worker, make_domain: MakeDomain
) -> None:
    domain = make_domain()
    domain.attachDeviceFlags(hostdev(VF, alias="ua-fact"), BOTH)

    with removals(domain) as removed:
        domain.detachDeviceAlias("ua-fact", BOTH)  # says that it succeeded

    assert VF in sources(domain)
    assert VF not in sources(domain, live=False)
    assert removed == []
    assert worker.driver(VF) == "vfio-pci"


def test_a_paused_guest_may_be_asked_again_and_lets_go_when_it_runs(worker: Worker, l2: L2) -> None:
    l2.domain.attachDeviceFlags(hostdev(VF, alias="ua-fact"), BOTH)
    wait_until(lambda: "=igbvf" in l2.says(), "the guest sees the device")
    l2.domain.suspend()

    with removals(l2.domain) as removed:
        l2.domain.detachDeviceAlias("ua-fact", BOTH)
        assert VF in sources(l2.domain)
        l2.domain.detachDeviceAlias("ua-fact", LIVE)
        assert VF in sources(l2.domain)
        l2.domain.resume()
        wait_until(lambda: removed, "the event DEVICE_REMOVED")

    wait_until(lambda: worker.driver(VF) == "igbvf", "the host's driver has it back")


# ---- functions that share an IOMMU group: all are handled together
def test_one_function_of_a_group_is_refused(make_domain: MakeDomain) -> None:
    code, message = refused(make_domain().attachDeviceFlags, hostdev(GROUP[0]), LIVE)

    assert code == libvirt.VIR_ERR_INTERNAL_ERROR
    assert "is not viable" in message


def test_a_group_is_attached_after_all_of_it_was_detached_from_the_host(
    worker: Worker, make_domain: MakeDomain
) -> None:
    domain = make_domain()
    nodes = [worker.node(address) for address in GROUP]

    for node in nodes:
        node.detachFlags("vfio")
    for address in GROUP:
        domain.attachDeviceFlags(hostdev(address, managed="no"), LIVE)

    assert sources(domain) == set(GROUP)
    domain.destroy()
    assert [worker.driver(address) for address in GROUP] == ["vfio-pci", "vfio-pci"]
    for node in nodes:
        node.reAttach()
    assert [worker.driver(address) for address in GROUP] == ["e1000e", "e1000e"]


def in_slot(function: int) -> str:
    many = " multifunction='on'" if function == 0 else ""
    return (
        "<address type='pci' domain='0x0000' bus='0x01' slot='0x00'"
        f" function='0x{function}'{many}/>"
    )


def test_several_functions_in_one_slot_are_refused_live(
    worker: Worker, make_domain: MakeDomain
) -> None:
    domain = make_domain()
    for address in GROUP:
        worker.node(address).detachFlags("vfio")
    domain.attachDeviceFlags(hostdev(GROUP[0], managed="no", at=in_slot(0)), LIVE)

    _, message = refused(
        domain.attachDeviceFlags, hostdev(GROUP[1], managed="no", at=in_slot(1)), LIVE
    )

    assert "function=0" in message
    domain.destroy()
    for address in GROUP:
        worker.node(address).reAttach()


def test_several_functions_in_one_slot_start_with_the_domain(make_domain: MakeDomain) -> None:
    devices = "".join(hostdev(address, at=in_slot(n)) for n, address in enumerate(GROUP))

    domain = make_domain(devices=devices)

    assert sources(domain) == set(GROUP)


# ---- physical and virtual functions: a PF with VFs in use is refused
def test_vfs_that_are_abolished_are_pulled_from_the_guest_and_stay_in_its_definition(
    worker: Worker, l2: L2
) -> None:
    l2.domain.attachDeviceFlags(hostdev("0000:02:10.0"), BOTH)
    wait_until(lambda: "=igbvf" in l2.says(), "the guest sees the device")

    worker.write("/sys/bus/pci/devices/0000:02:00.0/sriov_numvfs", "0")

    wait_until(lambda: not sources(l2.domain), "the domain has lost the VF")
    assert sources(l2.domain, live=False) == {"0000:02:10.0"}
    l2.domain.detachDeviceFlags(hostdev("0000:02:10.0"), CONFIG)
    worker.run("lab-devices")


def test_a_pf_does_not_leave_its_driver_while_a_guest_holds_a_vf(
    worker: Worker, make_domain: MakeDomain
) -> None:
    domain = make_domain()
    domain.attachDeviceFlags(hostdev("0000:02:10.0"), LIVE)
    unbind = "echo 0000:02:00.0 >/sys/bus/pci/drivers/igb/unbind; touch /run/fact-unbound"

    worker.run("sh", "-c", f"rm -f /run/fact-unbound; ({unbind}) >/dev/null 2>&1 &")
    worker.run("sleep", "5")
    assert worker.ask("test", "-e", "/run/fact-unbound").returncode
    domain.destroy()

    wait_until(
        lambda: not worker.ask("test", "-e", "/run/fact-unbound").returncode, "the PF is unbound"
    )
    worker.write("/sys/bus/pci/drivers/igb/bind", "0000:02:00.0")
    worker.run("lab-devices")


# ---- what libvirt does not look at: host use and the definitions of others
def test_a_drive_whose_file_system_is_mounted_is_taken_without_a_word(
    worker: Worker, make_domain: MakeDomain
) -> None:
    worker.run("mkfs.ext4", "-q", "-F", f"/dev/{worker.namespace(DRIVE)}")
    worker.run("mount", f"/dev/{worker.namespace(DRIVE)}", "/mnt")
    domain = make_domain()

    domain.attachDeviceFlags(hostdev(DRIVE), LIVE)

    assert DRIVE in sources(domain)
    assert worker.ask("sh", "-c", "echo lost >/mnt/file && sync -f /mnt/file").returncode
    worker.run("umount", "/mnt")
    domain.destroy()
    wait_until(lambda: worker.driver(DRIVE) == "nvme", "the host's driver has it back")


def test_a_device_may_be_in_the_definitions_of_two_domains(make_domain: MakeDomain) -> None:
    one, two = (make_domain(devices=hostdev(VF), start=False) for _ in range(2))

    assert sources(one, live=False) == sources(two, live=False) == {VF}


# ---- what libvirt refuses, and in which words
def test_a_device_more_than_root_ports_is_refused(make_domain: MakeDomain) -> None:
    domain = make_domain(ports=1)
    domain.attachDeviceFlags(hostdev(VF), LIVE)

    code, message = refused(domain.attachDeviceFlags, hostdev(OTHER_VF), LIVE)

    assert code == libvirt.VIR_ERR_INTERNAL_ERROR
    assert "No more available PCI slots" in message


def test_a_device_of_another_domain_is_refused(make_domain: MakeDomain) -> None:
    make_domain(devices=hostdev(VF))

    code, message = refused(make_domain().attachDeviceFlags, hostdev(VF), LIVE)

    assert code == libvirt.VIR_ERR_OPERATION_INVALID
    assert "in use by" in message


def test_a_device_is_refused_twice_in_one_domain(make_domain: MakeDomain) -> None:
    domain = make_domain(devices=hostdev(VF))

    assert refused(domain.attachDeviceFlags, hostdev(VF), LIVE)[0] == (
        libvirt.VIR_ERR_OPERATION_INVALID
    )


def test_an_alias_is_refused_twice(make_domain: MakeDomain) -> None:
    domain = make_domain(devices=hostdev(VF, alias="ua-fact"))

    code, _ = refused(domain.attachDeviceFlags, hostdev(OTHER_VF, alias="ua-fact"), BOTH)

    assert code == libvirt.VIR_ERR_CONFIG_UNSUPPORTED


def test_an_absent_device_is_refused(make_domain: MakeDomain) -> None:
    code, _ = refused(make_domain().attachDeviceFlags, hostdev("0000:0f:00.0"), LIVE)

    assert code == libvirt.VIR_ERR_SYSTEM_ERROR


def test_a_device_that_is_not_attached_cannot_be_detached(make_domain: MakeDomain) -> None:
    domain = make_domain()

    assert refused(domain.detachDeviceFlags, hostdev(VF), LIVE)[0] == (
        libvirt.VIR_ERR_DEVICE_MISSING
    )


def test_an_alias_that_is_not_there_cannot_be_detached(make_domain: MakeDomain) -> None:
    code, _ = refused(make_domain().detachDeviceAlias, "ua-none", LIVE)

    assert code in {libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_DEVICE_MISSING}


def test_a_function_that_is_no_vf_cannot_be_an_interface(make_domain: MakeDomain) -> None:
    code, _ = refused(make_domain().attachDeviceFlags, interface(DRIVE, MAC, 5), LIVE)

    assert code == libvirt.VIR_ERR_CONFIG_UNSUPPORTED


def test_a_domain_that_is_off_takes_nothing_live(make_domain: MakeDomain) -> None:
    domain = make_domain(start=False)

    assert refused(domain.attachDeviceFlags, hostdev(VF), LIVE)[0] == (
        libvirt.VIR_ERR_OPERATION_INVALID
    )


# ---- drives: cleaning formats, and reads back what it formatted
def test_a_format_with_secure_erase_leaves_zeroes(worker: Worker) -> None:
    device = f"/dev/{worker.namespace(DRIVE)}"
    worker.run(
        "sh", "-c", f"yes tenant | dd of={device} bs=1M count=64 iflag=fullblock oflag=direct"
    )

    worker.run("nvme", "format", device, "--ses=1", "--force")

    worker.run("blockdev", "--flushbufs", device)
    worker.run("cmp", "-n", str(64 * 1024**2), device, "/dev/zero")


def test_the_emulated_drive_does_not_know_sanitize(worker: Worker) -> None:
    controller = f"/dev/{worker.namespace(DRIVE).partition('n1')[0]}"

    assert json.loads(worker.run("nvme", "id-ctrl", controller, "-o", "json"))["sanicap"] == 0
    assert worker.ask("nvme", "sanitize", controller, "--sanact=2").returncode


# ---- settings of a VF: what an uplink refuses
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("vf 0 min_tx_rate 10 max_tx_rate 100", "Invalid argument"),
        ("vf 99 vlan 5", "Invalid argument"),
        ("vf 0 state enable", "not supported"),
    ],
)
def test_an_uplink_refuses_what_it_cannot(worker: Worker, setting: str, why: str) -> None:
    ended = worker.ask("ip", "link", "set", "enp1s0", *setting.split())

    assert ended.returncode
    assert why in ended.stderr


def test_a_rate_needs_the_uplink_to_be_up(worker: Worker) -> None:
    worker.run("ip", "link", "set", "enp2s0", "down")

    ended = worker.ask("ip", "link", "set", "enp2s0", "vf", "0", "max_tx_rate", "100")

    assert "Invalid argument" in ended.stderr
    worker.run("ip", "link", "set", "enp2s0", "up")
    wait_until(lambda: worker.read("/sys/class/net/enp2s0/carrier") == "1", "the link is up")
    worker.run("ip", "link", "set", "enp2s0", "vf", "0", "max_tx_rate", "100")
    assert worker.vf("enp2s0", 0)["rate"]["max_tx"] == 100
    worker.run("ip", "link", "set", "enp2s0", "vf", "0", "max_tx_rate", "0")


# ---- VEPA: the kernel's own errors, which tell a NIC that cannot from one that is not there
SET_MODE = """
import socket, struct, sys
link, mode = map(int, sys.argv[1:])
def attribute(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
flags, hwmode = attribute(0, struct.pack("H", 2)), attribute(1, struct.pack("H", mode))
body = struct.pack("BxHiII", 7, 0, link, 0, 0) + attribute(26 | 0x8000, flags + hwmode)
peer = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
peer.send(struct.pack("IHHII", 16 + len(body), 19, 5, 1, 0) + body)
print(-struct.unpack_from("i", peer.recv(65536), 16)[0])
"""
EOPNOTSUPP, ENODEV, EINVAL = 95, 19, 22
VEB, VEPA, NONSENSE = 0, 1, 7


@pytest.mark.parametrize(
    ("link", "mode", "error"),
    [
        ("enp1s0", VEPA, 0),
        ("enp1s0", VEB, 0),
        ("enp1s0", NONSENSE, EINVAL),
        ("lo", VEPA, EOPNOTSUPP),
        ("enp0s4", VEPA, EOPNOTSUPP),
        ("enp6s0f0", VEPA, EOPNOTSUPP),
        (None, VEPA, ENODEV),
    ],
)
def test_a_bridge_mode_is_set_where_the_nic_has_one(
    worker: Worker, link: str | None, mode: int, error: int
) -> None:
    index = worker.read(f"/sys/class/net/{link}/ifindex") if link else "9999"

    answer = worker.run("python3", "-", index, str(mode), stdin=SET_MODE)

    assert int(answer) == error
    worker.run("bridge", "link", "set", "dev", "enp1s0", "hwmode", "veb")
