"""Uplinks and VLAN interfaces on the real kernel, in network namespaces."""

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from pyroute2 import IPRoute
from pyroute2 import netns as namespaces
from pyroute2.netlink.exceptions import NetlinkError

from fabric_direct.drivers.contract import VfSettings
from fabric_direct.drivers.contract.changes import Change, Hearing
from fabric_direct.drivers.hosts.agent import link_changes
from fabric_direct.drivers.netlink import vlan
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.errors import NotFound, NotOurs, Unsupported
from fabric_direct.site.config import AllowedDevice, Host, Site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

STAMP = "fabric-direct fdtest/one"


@pytest.fixture
def netns() -> Iterator[str]:
    """A namespace with a veth pair, fdt0 and fdt1, and a bridge, fdtbr, of which fdt1 is a port."""
    name = f"fdtest-{secrets.token_hex(4)}"
    namespaces.create(name)
    with IPRoute(netns=name, flags=0) as ip:
        ip.link("add", ifname="fdt0", kind="veth", peer="fdt1")
        ip.link("add", ifname="fdtbr", kind="bridge")
        ip.link("set", index=ip.link_lookup(ifname="fdt0")[0], state="up")
        ip.link(
            "set",
            index=ip.link_lookup(ifname="fdt1")[0],
            master=ip.link_lookup(ifname="fdtbr")[0],
            state="up",
        )
    yield name
    namespaces.remove(name)


@pytest.fixture
def uplink(netns: str) -> NetlinkUplink:
    return NetlinkUplink(Site(site="fdtest"), "localhost", netns=netns)


def test_a_nic_without_bridge_mode_refuses_to_change_it_and_its_driver_is_named(uplink):
    with pytest.raises(Unsupported, match=r"EOPNOTSUPP.*its driver is veth"):
        uplink.set_bridge_mode("fdt0", "vepa")


def test_a_nic_without_bridge_mode_has_none(uplink):
    with pytest.raises(Unsupported, match="veth"):
        uplink.bridge_mode("fdt0")


def test_a_port_of_a_bridge_has_no_bridge_mode_of_its_own(uplink):
    with pytest.raises(Unsupported):
        uplink.bridge_mode("fdt1")


@pytest.mark.parametrize(
    "call",
    [
        lambda driver: driver.bridge_mode("fdt9"),
        lambda driver: driver.set_bridge_mode("fdt9", "vepa"),
        lambda driver: driver.vfs("fdt9"),
        lambda driver: driver.set_vf("fdt9", 0, VfSettings(vlan=5)),
    ],
    ids=["bridge_mode", "set_bridge_mode", "vfs", "set_vf"],
)
def test_a_link_that_is_missing_is_named(uplink, call):
    with pytest.raises(NotFound, match="fdt9"):
        call(uplink)


def test_a_mode_that_does_not_exist_is_refused(uplink):
    with pytest.raises(Unsupported, match="veb, vepa"):
        uplink.set_bridge_mode("fdt0", "vepaa")


def test_a_nic_without_sr_iov_has_no_vfs(uplink):
    assert uplink.vfs("fdt0") == {}
    with pytest.raises(NotFound, match="no VF 0"):
        uplink.set_vf("fdt0", 0, VfSettings(vlan=5))


def test_a_namespace_that_is_missing_is_not_made():
    driver = NetlinkUplink(Site(site="fdtest"), "localhost", netns="fdtest-nowhere")
    for call in (lambda: driver.vfs("lo"), lambda: driver.set_bridge_mode("lo", "vepa")):
        with pytest.raises(NotFound, match="fdtest-nowhere"):
            call()
    assert "fdtest-nowhere" not in namespaces.listnetns()


def test_calls_leave_no_file_open(uplink):
    uplink.vfs("fdt0")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        uplink.vfs("fdt0")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_bridge_is_told_from_other_links(netns):
    assert vlan.is_bridge("fdtbr", netns)
    assert not vlan.is_bridge("fdt0", netns)
    assert not vlan.is_bridge("fdt9", netns)


def test_links_are_found_by_name(netns):
    assert vlan.link_exists("fdt0", netns)
    assert not vlan.link_exists("fdt9", netns)


def test_no_vlans_are_there_and_none_are_removed(netns):
    assert vlan.vlans(STAMP, netns) == ()
    vlan.remove_vlans(STAMP, netns)
    assert vlan.link_exists("fdt0", netns)


@pytest.mark.parametrize(("uplink_name", "bridge"), [("fdt9", "fdtbr"), ("fdt0", "fdt9")])
def test_a_vlan_needs_its_uplink_and_its_bridge(netns, uplink_name, bridge):
    with pytest.raises(NotFound, match="fdt9"):
        vlan.attach_vlan(vlan.VlanPort(uplink_name, 304, bridge, STAMP), netns)


@pytest.fixture
def no_vlans(netns: str) -> str | None:
    """Why this kernel has no VLANs, if it has none."""
    with IPRoute(netns=netns, flags=0) as ip:
        parent = ip.link_lookup(ifname="fdt0")[0]
        try:
            ip.link("add", ifname="fdtprobe", kind="vlan", link=parent, vlan_id=1)
        except NetlinkError as error:
            return str(error)
        ip.link("del", ifname="fdtprobe")
        return None


@pytest.fixture
def netns8021q(netns: str, no_vlans: str | None) -> str:
    if no_vlans:
        pytest.skip(f"this kernel has no VLANs (8021q): {no_vlans}")
    return netns


def test_a_kernel_without_vlans_says_so(netns, no_vlans):
    if not no_vlans:
        pytest.skip("this kernel has VLANs")
    with pytest.raises(Unsupported, match="EOPNOTSUPP"):
        vlan.attach_vlan(vlan.VlanPort("fdt0", 304, "fdtbr", STAMP), netns)


def test_a_vlan_is_put_into_the_bridge_once(netns8021q):
    for _ in range(2):
        vlan.attach_vlan(vlan.VlanPort("fdt0", 304, "fdtbr", STAMP), netns8021q)
        assert vlan.vlans(STAMP, netns8021q) == ("fdt0.304",)
    assert vlan.vlan_attached(vlan.VlanPort("fdt0", 304, "fdtbr", STAMP), netns8021q)


def test_a_vlan_goes_by_its_stamp(netns8021q):
    vlan.attach_vlan(vlan.VlanPort("fdt0", 304, "fdtbr", STAMP), netns8021q)
    vlan.attach_vlan(vlan.VlanPort("fdt0", 305, "fdtbr", "fabric-direct fdtest/two"), netns8021q)
    vlan.remove_vlans(STAMP, netns8021q)
    assert not vlan.link_exists("fdt0.304", netns8021q)
    assert vlan.link_exists("fdt0.305", netns8021q)


def test_a_vlan_that_is_not_ours_is_not_touched(netns8021q):
    with IPRoute(netns=netns8021q, flags=0) as ip:
        parent = ip.link_lookup(ifname="fdt0")[0]
        ip.link("add", ifname="other", kind="vlan", link=parent, vlan_id=304)
    with pytest.raises(NotOurs, match="other"):
        vlan.attach_vlan(vlan.VlanPort("fdt0", 304, "fdtbr", STAMP), netns8021q)
    vlan.remove_vlans(STAMP, netns8021q)
    assert vlan.link_exists("other", netns8021q)


def test_a_vlan_whose_making_was_interrupted_is_completed(netns8021q):
    with IPRoute(netns=netns8021q, flags=0) as ip:
        parent = ip.link_lookup(ifname="fdt0")[0]
        ip.link("add", ifname=vlan.short_name(STAMP), kind="vlan", link=parent, vlan_id=304)
    vlan.attach_vlan(vlan.VlanPort("fdt0", 304, "fdtbr", STAMP), netns8021q)
    assert vlan.vlans(STAMP, netns8021q) == ("fdt0.304",)


@pytest.fixture
def vepa_uplink() -> str:
    driver = NetlinkUplink(Site(site="fdtest"), "localhost")
    for path in Path("/sys/class/net").iterdir():
        try:
            driver.bridge_mode(path.name)
        except (Unsupported, NotFound):  # other tests' links go meanwhile
            continue
        return path.name
    pytest.skip("no NIC here has a bridge mode (VEB, VEPA)")


def test_a_nic_with_bridge_mode_says_which(vepa_uplink):
    driver = NetlinkUplink(Site(site="fdtest"), "localhost")
    assert driver.bridge_mode(vepa_uplink) in {"veb", "vepa"}


@pytest.mark.parametrize("known", [{}, {"lo": 1}])
def test_waiting_for_a_change_says_which_modes_differ_from_what_is_known(netns, known):
    """The kernel still tells of a link that was just made; of ``lo`` it says nothing."""
    found = link_changes.wait(["lo"], known, 0.05, netns)

    assert found == {"modes": {}, "changed": ["lo"] if known else []}


def test_an_uplink_tells_that_its_link_was_changed_and_of_no_other(netns):
    hosts = {"localhost": Host(devices=(AllowedDevice(type="SharedNIC", uplink="fdt0"),))}
    uplink = NetlinkUplink(Site(site="fdtest", hosts=hosts), "localhost", netns=netns)
    told: SimpleQueue[Change] = SimpleQueue()
    hearing = Hearing()
    thread = threading.Thread(target=uplink.listen, args=(told.put, hearing), daemon=True)
    thread.start()
    assert told.get(timeout=60) == Change("unknown")

    changes = []

    def tells() -> bool:
        with suppress(Empty):
            changes.append(told.get(timeout=0.2))
        return bool(changes)

    def ends() -> bool:
        thread.join(0.2)
        return not thread.is_alive()

    change_until(netns, ("fdtbr", "fdt0"), tells)
    hearing.end()
    change_until(netns, ("fdt0",), ends)

    assert changes == [Change("uplink", ("fdt0",), "uplink fdt0 was changed")]


def change_until(netns: str, links: tuple[str, ...], heard: Callable[[], bool]) -> None:
    """Change links until it is heard: between two waits the kernel is not listened to."""
    with IPRoute(netns=netns, flags=0) as ip:
        for mtu in range(1300, 1400):
            for name in links:
                ip.link("set", index=ip.link_lookup(ifname=name)[0], mtu=mtu)
            if heard():
                return
    raise AssertionError("no change was heard")
