"""What is said to the kernel about uplinks, byte for byte, and how its answers are read."""

import errno
import struct
from collections.abc import Iterator
from socket import AF_BRIDGE
from types import SimpleNamespace
from typing import Any

import pytest
from pyroute2 import IPRoute

from fabric_direct.drivers.contract import VfSettings
from fabric_direct.drivers.hosts.agent import files, sockets
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.netlink import uplink as uplink_module
from fabric_direct.drivers.netlink import vlan
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.errors import (
    DriverError,
    NotFound,
    NotOurs,
    NotVerified,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.site.config import Site

ERROR, DONE, NEWLINK, DELLINK, GETLINK, SETLINK = 2, 3, 16, 17, 18, 19
REQUEST, MULTI, ACK, DUMP, NESTED = 1, 2, 4, 0x300, 0x8000
# linux/if_link.h
ADDRESS, IFNAME, LINK, MASTER, PROTINFO, LINKINFO, IFALIAS = 1, 3, 5, 10, 12, 18, 20
NUM_VF, VFINFO_LIST, AF_SPEC, EXT_MASK = 21, 22, 26, 29
NIC = 7
INFINIBAND = 32  # linux/if_arp.h


def nla(kind: int, payload: bytes) -> bytes:
    pad = -len(payload) % 4
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(pad)


def text(kind: int, value: str) -> bytes:
    return nla(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    return nla(kind, struct.pack("=I", value))


def message(kind: int, flags: int, seq: int, payload: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(payload), kind, flags, seq, 0) + payload


def link(index: int, attributes: bytes, family: int = 0, kind: int = 1) -> bytes:
    """Return a link; its kind is that of linux/if_arp.h, 1 is Ethernet."""
    return struct.pack("=BxHiII", family, kind, index, 0, 0) + attributes


class Kernel:
    """Answers as the kernel does, by the links that it was told of; keeps what changes them."""

    def __init__(self) -> None:
        self.links: dict[int, bytes] = {}
        self.bridge_links: list[bytes] = []
        self.later: dict[int, bytes] = {}
        """What links are like once something was changed."""
        self.changes: list[bytes] = []
        self.error = 0
        self.refused: int | None = None
        """The setting of a VF that the error is for, as in linux/if_link.h; None is any."""
        self.queries: list[bytes] = []

    def handle(self, request: Any) -> bytes:
        data = bytes(request.data)
        _, kind, flags, seq, _ = struct.unpack_from("=IHHII", data)
        family, index = data[16], struct.unpack_from("=i", data, 20)[0]
        if kind != GETLINK:
            self.changes.append(data)
            if self.error and (self.refused is None or sent_vf(data)[2] == self.refused):
                return self._error(seq, self.error)
            self.links.update(self.later)
            return self._error(seq, 0)
        self.queries.append(data)
        if flags & DUMP == DUMP:
            there = self.bridge_links if family == AF_BRIDGE else list(self.links.values())
            return b"".join(message(NEWLINK, MULTI, seq, m) for m in there) + self._done(seq)
        found = [m for i, m in self.links.items() if i == index or text(IFNAME, _name(data)) in m]
        return message(NEWLINK, 0, seq, found[0]) if found else self._error(seq, errno.ENODEV)

    def ask(self, request: bytes, limit: float, netns: str | None) -> Iterator[sockets.Unit]:
        """As the worker's functions ask it."""
        yield from sockets.units(self.handle(SimpleNamespace(data=request)), sockets.HEADER)

    def _done(self, seq: int) -> bytes:
        return message(DONE, MULTI, seq, bytes(4))

    def _error(self, seq: int, code: int) -> bytes:
        return message(ERROR, 0, seq, struct.pack("=i", -code) + bytes(16))


def _name(request: bytes) -> str:
    """Return the name that a query asks for."""
    at = 32
    while at < len(request):
        length, kind = struct.unpack_from("=HH", request, at)
        if kind == IFNAME:
            return request[at + 4 : at + length].rstrip(b"\0").decode()
        at += length + -length % 4
    return "no name"


@pytest.fixture
def kernel(mocker: Any) -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.links[NIC] = link(NIC, text(IFNAME, "ens6f1"))

    def opened(**spec: Any) -> IPRoute:
        ip = IPRoute(**spec)
        ip.asyncore.request_proxy = kernel
        return ip

    mocker.patch("fabric_direct.drivers.hosts.local.IPRoute", side_effect=opened)
    mocker.patch.object(sockets, "ask", kernel.ask)
    return kernel


@pytest.fixture
def uplink() -> NetlinkUplink:
    return NetlinkUplink(Site(site="fdtest"), "localhost")


def reported_mode(mode: int) -> bytes:
    """What ixgbe answers: RTM_NEWLINK of AF_BRIDGE with IFLA_AF_SPEC{FLAGS=SELF, MODE}."""
    spec = nla(0, struct.pack("=H", 2)) + nla(1, struct.pack("=H", mode))
    return link(NIC, text(IFNAME, "ens6f1") + nla(AF_SPEC, spec), AF_BRIDGE)


# --- bridge mode


@pytest.mark.parametrize(("mode", "name"), [(0, "veb"), (1, "vepa")])
def test_the_bridge_mode_is_read_from_the_nics_own_bridge(kernel, uplink, mode, name):
    port = link(NIC, text(IFNAME, "ens6f1") + nla(PROTINFO | NESTED, b""), AF_BRIDGE)
    kernel.bridge_links = [port, reported_mode(mode)]
    assert uplink.bridge_mode("ens6f1") == name


@pytest.mark.parametrize(("mode", "name"), [(0, "veb"), (1, "vepa")])
def test_setting_the_mode_sends_the_bytes_that_iproute2_sends(kernel, uplink, mode, name):
    # As `bridge link set dev ens6f1 hwmode vepa` of iproute2 6.1: IFLA_PROTINFO (empty,
    # nested), IFLA_AF_SPEC with IFLA_BRIDGE_FLAGS=SELF and IFLA_BRIDGE_MODE.
    kernel.bridge_links = [reported_mode(mode)]
    uplink.set_bridge_mode("ens6f1", name)
    (sent,) = kernel.changes
    assert struct.unpack_from("=IHH", sent) == (56, SETLINK, REQUEST | ACK)
    assert sent[16:] == (
        struct.pack("=BxHiII", AF_BRIDGE, 0, NIC, 0, 0)
        + bytes.fromhex("04000c80")
        + bytes.fromhex("14001a00" + "0600000002000000" + "06000100")
        + struct.pack("=Hxx", mode)
    )


def test_a_mode_that_the_nic_did_not_take_is_not_a_success(kernel, uplink):
    kernel.bridge_links = [reported_mode(0)]
    with pytest.raises(NotVerified, match="is in mode veb, not vepa"):
        uplink.set_bridge_mode("ens6f1", "vepa")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EOPNOTSUPP, Unsupported, "EOPNOTSUPP.*its driver is igb"),
        (errno.ENODEV, NotFound, "ENODEV"),
        (errno.ETIMEDOUT, TimedOut, "ETIMEDOUT"),
        (errno.EINVAL, DriverError, "EINVAL"),
        (errno.EPERM, DriverError, "EPERM.*CAP_NET_ADMIN"),
    ],
)
def test_what_the_kernel_refuses_is_told_in_its_words(kernel, uplink, mocker, code, kind, words):
    mocker.patch.object(files, "resolve", return_value="/sys/bus/pci/drivers/igb")
    kernel.error = code
    with pytest.raises(kind, match=f"set the bridge mode vepa .*{words}") as refused:
        uplink.set_bridge_mode("ens6f1", "vepa")
    assert type(refused.value) is kind


def test_a_host_that_does_not_answer_is_no_refusal_of_its_kernel(uplink, mocker):
    gone = Unreachable("w1 cannot be reached")
    gone.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    mocker.patch.object(LocalHost, "call", side_effect=gone)

    with pytest.raises(Unreachable, match="w1 cannot be reached"):
        uplink.set_bridge_mode("ens6f1", "vepa")


# --- VFs


def vf_info(vf: int, mac: str, **values: int) -> bytes:
    """What igb answers for one VF: IFLA_VF_INFO with linux/if_link.h's structures."""
    v = {"vlan": 0, "qos": 0, "spoof": 1, "state": 0, "low": 0, "high": 0, "trust": 0, **values}
    return nla(
        1,
        nla(1, struct.pack("=I", vf) + bytes.fromhex(mac.replace(":", "")) + bytes(26))
        + nla(2, struct.pack("=III", vf, v["vlan"], v["qos"]))
        + nla(6, struct.pack("=III", vf, v["low"], v["high"]))
        + nla(4, struct.pack("=II", vf, v["spoof"]))
        + nla(5, struct.pack("=II", vf, v["state"]))
        + nla(9, struct.pack("=II", vf, v["trust"])),
    )


def pf(*infos: bytes, count: int | None = None, kind: int = 1) -> bytes:
    """Return the link of a PF that has as many VFs as it tells of, unless said otherwise."""
    vfs = number(NUM_VF, len(infos) if count is None else count)
    attributes = text(IFNAME, "ens6f1") + vfs + nla(VFINFO_LIST, b"".join(infos))
    return link(NIC, attributes, kind=kind)


MAC0, MAC1 = "52:54:00:00:00:10", "52:54:00:00:00:11"


def test_the_settings_of_all_vfs_are_read(kernel, uplink):
    other = vf_info(1, MAC1, vlan=304, qos=2, spoof=0, state=1, low=10, high=100, trust=1)
    kernel.links[NIC] = pf(vf_info(0, MAC0), other)
    assert uplink.vfs("ens6f1") == {
        0: VfSettings(
            mac=MAC0, vlan=0, qos=0, trust=False, spoof_check=True, max_tx_rate=0, min_tx_rate=0,
            link_state=0,
        ),
        1: VfSettings(
            mac=MAC1, vlan=304, qos=2, trust=True, spoof_check=False, max_tx_rate=100,
            min_tx_rate=10, link_state=1,
        ),
    }  # fmt: skip
    assert number(EXT_MASK, 1) in kernel.queries[-1]


def test_a_vf_has_its_own_number_where_the_kernel_leaves_another_out(kernel, uplink):
    # The kernel leaves out a VF whose driver gives no settings; IFLA_NUM_VF counts it.
    told = (vf_info(0, MAC0), vf_info(2, MAC1, vlan=302), vf_info(3, MAC1, vlan=303))
    kernel.links[NIC] = pf(*told, count=4)

    assert {vf: each.vlan for vf, each in uplink.vfs("ens6f1").items()} == {0: 0, 2: 302, 3: 303}


def test_a_vf_that_the_kernel_leaves_out_is_not_set(kernel, uplink, monkeypatch):
    monkeypatch.setattr(uplink_module, "IN_RESET", 0.0)
    kernel.links[NIC] = pf(vf_info(0, MAC0), vf_info(2, MAC1, vlan=304), count=3)

    with pytest.raises(DriverError, match=r"ens6f1 tells nothing of VF 1.*leaves it out"):
        uplink.set_vf("ens6f1", 1, VfSettings(vlan=304))

    assert kernel.changes == []


def test_a_vf_that_is_in_reset_is_waited_for(kernel, uplink, mocker):
    kernel.links[NIC] = pf(vf_info(0, MAC0), count=2)
    kernel.later[NIC] = pf(vf_info(0, MAC0), vf_info(1, MAC1, vlan=304))

    def tell(_: float) -> None:
        kernel.links[NIC] = pf(vf_info(0, MAC0), vf_info(1, MAC1))

    mocker.patch("fabric_direct.calls.deadline.time.sleep", side_effect=tell)
    uplink.set_vf("ens6f1", 1, VfSettings(vlan=304))

    assert len(kernel.changes) == 1


def test_a_switch_that_the_driver_does_not_know_is_not_reported(kernel, uplink):
    kernel.links[NIC] = pf(vf_info(0, MAC0, spoof=0xFFFFFFFF, trust=0xFFFFFFFF))
    (found,) = uplink.vfs("ens6f1").values()
    assert (found.spoof_check, found.trust) == (None, None)


def sent_vf(sent: bytes) -> bytes:
    """Return the content of IFLA_VF_INFO of a request."""
    assert struct.unpack_from("=IHH", sent)[1:] == (NEWLINK, REQUEST | ACK)
    assert struct.unpack_from("=HH", sent, 32)[1] & 0x7FFF == VFINFO_LIST
    return sent[40:]


def test_each_setting_of_a_vf_is_sent_by_itself(kernel, uplink):
    # So a refusal is of one setting.
    wanted = VfSettings(MAC0, 304, 2, True, False, 100, 10, 1)
    kernel.links[NIC] = pf(vf_info(0, MAC1), vf_info(1, MAC1))
    kernel.later[NIC] = pf(
        vf_info(0, MAC0, vlan=304, qos=2, spoof=0, state=1, low=10, high=100, trust=1),
        vf_info(1, MAC1),
    )
    uplink.set_vf("ens6f1", 0, wanted)
    assert [sent_vf(sent) for sent in kernel.changes] == [
        nla(1, struct.pack("=I", 0) + bytes.fromhex("525400000010") + bytes(26)),
        nla(2, struct.pack("=III", 0, 304, 2)),
        nla(6, struct.pack("=III", 0, 10, 100)),
        nla(4, struct.pack("=II", 0, 0)),
        nla(5, struct.pack("=II", 0, 1)),
        nla(9, struct.pack("=II", 0, 1)),
    ]


@pytest.mark.parametrize(
    ("wanted", "refused", "words"),
    [
        (VfSettings(mac=MAC1, vlan=304), 2, "vlan 304"),
        (VfSettings(mac=MAC1, vlan=304), 1, f"mac {MAC1}"),
        (VfSettings(vlan=304, qos=3), 2, "vlan 304 and qos 3"),
        (VfSettings(trust=True, max_tx_rate=100), 6, "max tx rate 100"),
        (VfSettings(trust=True, max_tx_rate=100), 9, "trust on"),
        (VfSettings(spoof_check=False, link_state=2), 4, "spoof check off"),
        (VfSettings(spoof_check=False, link_state=2), 5, "link state 2"),
        (VfSettings(min_tx_rate=10), 6, "min tx rate 10"),
    ],
)
def test_a_refusal_names_the_setting(kernel, uplink, mocker, wanted, refused, words):
    mocker.patch.object(LocalHost, "call", return_value="/sys/bus/pci/drivers/mlx5_core")
    kernel.links[NIC], kernel.refused = pf(vf_info(0, MAC0)), refused
    kernel.error = errno.EOPNOTSUPP

    with pytest.raises(Unsupported, match=f"cannot set {words}.* of VF 0.*its driver is mlx5_core"):
        uplink.set_vf("ens6f1", 0, wanted)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM])
def test_a_refusal_says_that_the_port_is_infiniband(kernel, uplink, mocker, code):
    mocker.patch.object(LocalHost, "call", return_value="/sys/bus/pci/drivers/mlx5_core")
    kernel.links[NIC], kernel.error = pf(vf_info(0, MAC0), kind=INFINIBAND), code

    with pytest.raises(DriverError, match=r"ens6f1.*InfiniBand"):
        uplink.set_vf("ens6f1", 0, VfSettings(vlan=304))


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (VfSettings(vlan=305), nla(2, struct.pack("=III", 0, 305, 2))),
        (VfSettings(max_tx_rate=200), nla(6, struct.pack("=III", 0, 10, 200))),
        (VfSettings(spoof_check=False), nla(4, struct.pack("=II", 0, 0))),
    ],
    ids=["vlan", "rate", "spoof_check"],
)
def test_what_is_not_asked_for_is_left_as_it_is(kernel, uplink, wanted, sent):
    now = {"vlan": 304, "qos": 2, "high": 100, "low": 10}
    then = {"vlan": wanted.vlan or 304, "high": wanted.max_tx_rate or 100}
    spoof = 1 if wanted.spoof_check is None else 0
    kernel.links[NIC] = pf(vf_info(0, MAC0, **now))
    kernel.later[NIC] = pf(vf_info(0, MAC0, **now | then, spoof=spoof))
    uplink.set_vf("ens6f1", 0, wanted)
    assert [sent_vf(each) for each in kernel.changes] == [sent]


def test_what_is_so_already_is_not_sent(kernel, uplink):
    # igb reports a link state, and refuses to set the one that it reports.
    kernel.links[NIC] = pf(vf_info(0, MAC0, state=1))
    kernel.error = errno.EOPNOTSUPP
    (there,) = uplink.vfs("ens6f1").values()
    uplink.set_vf("ens6f1", 0, there)
    assert kernel.changes == []


def test_a_rate_that_is_refused_says_what_to_look_at(kernel, uplink):
    kernel.links[NIC], kernel.error = pf(vf_info(0, MAC0)), errno.EINVAL
    with pytest.raises(DriverError, match=r"EINVAL.*the uplink is up"):
        uplink.set_vf("ens6f1", 0, VfSettings(max_tx_rate=100))


def test_a_setting_that_the_nic_did_not_take_is_not_a_success(kernel, uplink):
    kernel.links[NIC] = pf(vf_info(0, MAC0))
    with pytest.raises(NotVerified, match="vlan is 0, not 304"):
        uplink.set_vf("ens6f1", 0, VfSettings(vlan=304))


def test_a_vf_that_is_not_there_is_refused_before_anything_is_sent(kernel, uplink):
    kernel.links[NIC] = pf(vf_info(0, MAC0))
    with pytest.raises(NotFound, match="it has 1 VFs"):
        uplink.set_vf("ens6f1", 1, VfSettings(vlan=304))
    assert kernel.changes == []


def test_the_host_must_be_one_of_the_site():
    with pytest.raises(NotFound, match="elsewhere"):
        NetlinkUplink(Site(site="fdtest"), "elsewhere")


# --- VLAN interfaces

STAMP = "fabric-direct RENC/one"
BRIDGE, OURS = 8, 9


def vlan_link(name: str, vlan_id: int, attributes: bytes = b"") -> bytes:
    info = text(1, "vlan") + nla(2, nla(1, struct.pack("=H", vlan_id)))
    return link(OURS, text(IFNAME, name) + number(LINK, NIC) + nla(LINKINFO, info) + attributes)


@pytest.fixture
def bridged(kernel: Kernel) -> Kernel:
    """An uplink and a bridge; a VLAN interface comes into being when it is asked for."""
    kernel.links[BRIDGE] = link(BRIDGE, text(IFNAME, "fdbr"))
    return kernel


def test_a_vlan_that_is_there_is_stamped_enslaved_and_brought_up(bridged):
    attached = text(IFALIAS, STAMP) + number(MASTER, BRIDGE)
    bridged.links[OURS] = vlan_link("ens6f1.304", 304, attached)
    vlan.attach_vlan(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))
    stamped, enslaved = bridged.changes
    assert struct.unpack_from("=i", stamped, 20) == (OURS,)
    assert text(IFNAME, "ens6f1.304") in stamped
    assert nla(IFALIAS, STAMP.encode() + b"\0") in stamped
    assert number(MASTER, BRIDGE) in enslaved
    assert struct.unpack_from("=II", enslaved, 24) == (1, 1)  # IFF_UP set


def test_a_new_vlan_is_made_under_the_name_of_its_stamp(bridged, mocker):
    mocker.patch.object(vlan, "link_index", side_effect=[NIC, BRIDGE, OURS])
    mocker.patch.object(vlan, "vlan_attached", return_value=True)
    vlan.attach_vlan(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))
    made = bridged.changes[0]
    assert struct.unpack_from("=IHH", made)[1:] == (NEWLINK, REQUEST | ACK | 0x600)
    assert text(IFNAME, vlan.short_name(STAMP)) in made
    assert number(LINK, NIC) in made
    assert text(1, "vlan") + nla(2, nla(1, struct.pack("=H", 304))) in made


def test_a_vlan_that_is_not_in_the_bridge_afterwards_is_not_a_success(bridged):
    bridged.links[OURS] = vlan_link("ens6f1.304", 304, text(IFALIAS, STAMP))
    with pytest.raises(NotVerified):
        vlan.attach_vlan(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))


def test_a_vlan_without_our_stamp_is_not_touched(bridged):
    bridged.links[OURS] = vlan_link("uplink304", 304)
    with pytest.raises(NotOurs, match="uplink304"):
        vlan.attach_vlan(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))
    vlan.remove_vlans(STAMP)
    assert bridged.changes == []


def test_a_link_that_has_the_vlans_name_is_not_touched(bridged):
    bridged.links[OURS] = link(OURS, text(IFNAME, "ens6f1.304"))
    with pytest.raises(NotOurs, match=r"ens6f1\.304"):
        vlan.attach_vlan(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))
    assert bridged.changes == []


@pytest.mark.parametrize("stamped", [True, False], ids=["complete", "interrupted"])
def test_a_vlan_is_deleted_by_its_stamp(bridged, stamped):
    name = "ens6f1.304" if stamped else vlan.short_name(STAMP)
    bridged.links[OURS] = vlan_link(name, 304, text(IFALIAS, STAMP) if stamped else b"")
    assert vlan.vlans(STAMP) == (name,)
    vlan.remove_vlans(STAMP)
    (sent,) = bridged.changes
    assert struct.unpack_from("=IHH", sent)[1] == DELLINK
    assert struct.unpack_from("=i", sent, 20) == (OURS,)


def test_a_stamped_vlan_of_another_id_gives_way(bridged):
    bridged.links[OURS] = vlan_link("ens6f1.303", 303, text(IFALIAS, STAMP))
    assert not vlan.vlan_attached(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))
    with pytest.raises(NotFound):
        vlan.attach_vlan(vlan.VlanPort("ens6f1", 304, "fdbr", STAMP))
    assert struct.unpack_from("=IHH", bridged.changes[0])[1] == DELLINK


@pytest.mark.parametrize("uplink_name", ["e", "ens6f1", "enp12s0f1np1d3"])
def test_a_vlans_name_is_one_that_linux_takes(uplink_name):
    assert len(vlan.vlan_name(uplink_name, 4094)) <= 15


def test_names_of_long_uplinks_differ():
    names = {vlan.vlan_name("enp12s0f1np1d3", n) for n in range(1, 4095)}
    assert len(names) == 4094


@pytest.mark.parametrize("mac", [b"", b"\0", bytes(3)], ids=["empty", "short", "cut"])
def test_an_answer_that_cannot_be_read_is_an_error_of_ours(kernel, uplink, mac):
    kernel.links[NIC] = link(NIC, text(IFNAME, "ens6f1") + nla(VFINFO_LIST, nla(1, nla(1, mac))))
    with pytest.raises(DriverError, match="the kernel's answer is invalid"):
        uplink.vfs("ens6f1")
