"""Parsers of what hosts and guests say: libvirt's XML, netlink, the relay's frames, guests' answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from xml.etree import ElementTree

import libvirt
import libvirt_qemu

from fabric_direct.drivers.contract import CommandResult, GuestAddress, PluggedDevice
from fabric_direct.drivers.guests import qemu_agent
from fabric_direct.drivers.guests import ssh as guest_ssh
from fabric_direct.drivers.guests.authorized_keys import keys_in, missing
from fabric_direct.drivers.guests.configure import netplan
from fabric_direct.drivers.guests.configure.network import ConfiguredLink
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.drivers.hosts.agent import frames
from fabric_direct.drivers.hosts.functions import HostFunctions
from fabric_direct.drivers.hosts.relay import _greeted, _numbered
from fabric_direct.drivers.hosts.remote_iproute import iproute
from fabric_direct.drivers.libvirt.connection.connections import translated
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, claims
from fabric_direct.drivers.libvirt.networks import dnsmasq
from fabric_direct.drivers.libvirt.passthrough import usb
from fabric_direct.drivers.libvirt.passthrough.attached import plugged_in
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import free_ports
from fabric_direct.drivers.libvirt.servers import domain_xml, inventory, tuning
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.drivers.netlink import vlan
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.errors import FabricDirectError, Unreachable
from fabric_direct.model import NodeSliver, PciAddress
from fabric_direct.site.config import Site
from tests.trust.hostile_inputs import Parser, changed, documents, streams, texts
from tests.trust.hostile_texts import KEY, VM

_SLIVER = NodeSliver.model_validate_json(json.dumps(VM))
_ADDRESS = PciAddress.parse("0000:25:00.0")
_STAMP = domain_xml.stamp_xml(_SLIVER.stamp(), "TEST").replace(
    "<stamp", f"<stamp xmlns='{STAMP_NAMESPACE}'"
)
DOMAIN = f"""<domain type='kvm' id='7'><name>sliver-1-node</name>
<metadata>{_STAMP}</metadata><memory unit='KiB'>4194304</memory><vcpu>2</vcpu><devices>
<disk type='file'><source file='/v/sliver-1.volume.data'/><target dev='vdb'/><serial>data</serial>
<alias name='ua-sliver-1-data-0'/></disk>
<interface type='network'><mac address='52:54:00:00:00:01'/><source network='red'/>
<bandwidth><inbound average='128'/></bandwidth><alias name='ua-sliver-1-nic1-0'/></interface>
<interface type='hostdev'><mac address='52:54:00:00:00:02'/><source>
<address type='pci' domain='0x0000' bus='0x25' slot='0x00' function='0x0'/></source>
<vlan><tag id='5'/></vlan><alias name='ua-sliver-1-vf-0'/>
<address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></interface>
<hostdev mode='subsystem' type='pci'><source>
<address domain='0x0000' bus='0x25' slot='0x00' function='0x1'/></source>
<alias name='ua-sliver-1-gpu-0'/></hostdev>
<hostdev mode='subsystem' type='usb'><source><vendor id='0x0403'/><product id='0x6011'/>
<address bus='1' device='2'/></source><alias name='ua-sliver-1-gpu-usb0'/></hostdev>
<controller type='pci' index='5' model='pcie-root-port'>
<address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/></controller>
<controller type='usb' index='1' model='nec-xhci'><alias name='ua-sliver-1-usb'/></controller>
</devices></domain>"""
CAPABILITIES = """<capabilities><host><topology><cells num='1'><cell id='0'>
<memory unit='KiB'>65000000</memory><distances><sibling id='0' value='10'/></distances>
<cpus num='2'><cpu id='0'/><cpu id='1'/></cpus></cell></cells></topology></host>
<guest><arch name='x86_64'><domain type='kvm'/><machine>q35</machine></arch></guest></capabilities>"""
_SYSFS = """pci /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0 0x020000
net /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0/net/eth1 52:54:00:00:00:02
block /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0/nvme/nvme0/nvme0n1
"""
_LINKS = "eth0 real\neth0.5 made eth0\n"
_DISKS = """disk vdb 254:16 data
mount 36 35 254:16 / /mnt/with\\040blank rw,noatime master:1 - ext4 /dev/vdb rw
"""
_SSH_LINKS = (
    "eth0 52:54:00:00:00:01\nlo 00:00:00:00:00:00\n--\n2: eth0    inet 192.0.2.7/28 brd x\n"
)
_NETPLAN = """---
network:
  version: 2
  ethernets:
    eth0: {match: {macaddress: "52:54:00:00:00:01"}, set-name: eth0, addresses: [10.0.0.5/24]}
"""
_CONSOLE = f"""x
-----BEGIN SSH HOST KEY KEYS-----
{KEY}
-----END SSH HOST KEY KEYS-----
"""
_DEVICE = PluggedDevice(
    "vf",
    "ua-sliver-1-vf-0",
    _ADDRESS,
    guest_address=PciAddress(0, 5, 0, 0),
    guest_port=PciAddress(0, 0, 2, 3),
    mac="52:54:00:00:00:02",
)
_GUEST = GuestAddress("sliver-1", "node", "root", ("192.0.2.7",))
_SITE = Site(site="TEST")


def parsers(folder: Path) -> tuple[Parser, ...]:
    """Return the parsers.

    :param folder: for files that some of them read.
    """
    return (
        Parser("domain XML", texts(DOMAIN), _domain),
        Parser("domain stamp", documents(json.loads(_SLIVER.stamp().model_dump_json())), _stamp),
        Parser("capabilities XML", texts(CAPABILITIES), _capabilities),
        Parser("network XML", texts(_NETWORK), _network),
        Parser("netlink reply", streams(_LINK), _netlink),
        Parser("relay frame", _frame, _relay),
        Parser("relay answer", documents(_COMMAND, _FAILED), _answer),
        Parser("guest agent", documents(*_AGENT), _agent),
        Parser("guest devices", texts(_SYSFS), _Looks("devices")),
        Parser("guest interfaces", texts(_LINKS, _SSH_LINKS), _Looks("links")),
        Parser("guest disks", texts(_DISKS), _Looks("disks")),
        Parser("guest netplan", texts(_NETPLAN, _BOMB), _netplan),
        Parser("guest console", texts(_CONSOLE), guest_ssh._shown_keys),
        Parser("authorized_keys", texts(f"{KEY}\nrestrict {KEY}\n# x\n"), _keys),
    )


# --- libvirt


class Domain:
    """A domain that shows this XML."""

    def __init__(self, text: str) -> None:
        self._text = text

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - libvirt's name
        return self._text

    def metadata(self, kind: int, namespace: str) -> str:
        return self._text

    def name(self) -> str:
        return "sliver-1-node"

    def UUIDString(self) -> str:  # noqa: N802
        return str(lookup.domain_uuid("sliver-1"))

    def info(self) -> tuple[int, ...]:
        return 1, 0, 4194304, 2, 0


def _domain(text: str) -> None:
    domain: Any = Domain(text)
    with translated("read the domain", "test"):
        domain_xml.read_server(domain, "w1", "TEST")
        list(domain_xml.read_plugs(domain, "sliver-1", "TEST"))
        domain_xml.targets_of(domain)
        lookup.has_alias(text, "ua-sliver-1-nic1-0")
        reading = DomainReading(domain)
        [claim.owner for claim in claims([reading])]
        plugged_in(reading, "sliver-1")
        list(usb.hostdevs(reading))
        for root in reading.roots.values():
            free_ports(root)
            usb.controller(root, "ua-sliver-1-usb")
            inventory._sliver(root, "TEST")


def _stamp(text: str) -> None:
    element = ElementTree.Element("stamp", site="TEST")
    element.text = text
    assert lookup._stamp(element, "OTHER") is None
    lookup._stamp(element, "TEST")


def _capabilities(text: str) -> None:
    connection: Any = SimpleNamespace(
        getCapabilities=lambda: text, getMemoryStats=lambda _: {"total": 1, "free": 1}
    )
    with translated("read the capabilities", "test"):
        root = ElementTree.fromstring(text)
        list(inventory._nodes(root))
        list(inventory._architectures(root, "kvm"))
        tuning._nodes(connection)


_NETWORK = """<network connections='1'><name>n</name><ip address='10.20.1.1' prefix='24'>
<dhcp><host mac='52:54:00:00:00:01' ip='10.20.1.5'/></dhcp></ip></network>"""


def _network(text: str) -> None:
    network: Any = Domain(text)
    with translated("read the network", "test"):
        dnsmasq.definition(network, 0)


# --- netlink


def _nla(kind: int, payload: bytes) -> bytes:
    header = (4 + len(payload)).to_bytes(2, "little") + kind.to_bytes(2, "little")
    return header + payload + bytes(-len(payload) % 4)


def _link_message() -> bytes:
    mode = _nla(26, _nla(1, (1).to_bytes(2, "little")))
    info = _nla(18, _nla(1, b"vlan\0") + _nla(2, _nla(1, (5).to_bytes(2, "little"))))
    mac = _nla(1, (0).to_bytes(4, "little") + bytes(range(6)) + bytes(26))
    vfs = _nla(22, _nla(1, mac + _nla(2, bytes(12))))
    body = _nla(3, b"ens1\0") + _nla(20, b"fabric-direct TEST/red\0") + mode + info + vfs
    payload = bytes([7, 0, 1, 0]) + (7).to_bytes(4, "little") + bytes(8) + body
    length = (16 + len(payload)).to_bytes(4, "little")
    return length + (16).to_bytes(2, "little") + bytes(10) + payload


_LINK = _link_message()


class _Kernel(HostFunctions):
    """A worker whose kernel answers each request with these bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__("w1")
        self._content = content

    @contextmanager
    def netlink(self, netns: str | None = None) -> Iterator[Any]:
        with iproute(lambda _: self._content) as ip:
            yield ip

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:
        return None


def _netlink(content: bytes) -> None:
    kernel: Any = _Kernel(content)
    port = vlan.VlanPort("ens1", 5, "br0", "fabric-direct TEST/red")
    uplink = NetlinkUplink(_SITE, "localhost")
    uplink._kernel = kernel
    refused = None
    for ask in (
        lambda: uplink.vfs("ens1"),
        lambda: uplink.bridge_mode("ens1"),
        lambda: vlan.vlans(port.stamp, host=kernel),
        lambda: vlan.vlan_attached(port, host=kernel),
    ):
        try:
            ask()
        except FabricDirectError as error:
            refused = error
    if refused:
        raise refused


# --- the relay

_REPLY = {"id": 1, "answer": {"code": 0, "stdout": "aGVsbG8=", "stderr": ""}}
_FAILED = {"id": 1, "error": ["OSError", 2, "ENOENT, no such file"]}
_GREETING = {"python": [3, 11, 2], "executable": "/usr/bin/python3", "user": 0}
_COMMAND = {"answer": _REPLY["answer"]}


def _frame(random: Random) -> bytes:
    reply = random.choice((_REPLY, _FAILED, _GREETING))
    if random.randrange(2):
        return frames.pack(changed(reply, random))
    return streams(frames.pack(reply))(random)


def _relay(frame: bytes) -> None:
    """Read as the relay does, for which a ValueError means that what answers is not our process."""
    try:
        reply = frames.receive(BytesIO(frame).read)
        _greeted(reply) if isinstance(reply, dict) and "user" in reply else _numbered(reply)
    except ValueError as error:
        raise Unreachable("not our process") from error


class _Worker(HostFunctions):
    """A worker that gives this reply."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__("w1")
        self._reply = reply

    def _ask(self, function: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        return self._reply


def _answer(text: str) -> None:
    """Read what the relay takes for a reply: a number, and an answer or an error."""
    try:
        read = frames.receive(BytesIO(len(text).to_bytes(4, "big") + text.encode()).read)
        _, reply = _numbered(read if not isinstance(read, dict) else {"id": 1, **read})
    except ValueError as error:
        raise Unreachable("not our process") from error
    worker = _Worker(reply)
    if isinstance(reply.get("answer"), str):
        worker.read_file("/x", timeout=1)
    else:
        worker.run(("true",), timeout=1)


# --- guests

_AGENT: tuple[Any, ...] = (
    {"return": {"pid": 1, "exited": True, "exitcode": 0, "out-data": "aGVsbG8="}},
    {"return": {"buf-b64": "aGVsbG8=", "count": 5}},
    {"return": 7},
)


class _Agent(qemu_agent.AgentGuest):
    """An agent without its libvirt."""

    def _domain(self, guest: GuestAddress) -> libvirt.virDomain:
        return cast(libvirt.virDomain, None)


def _agent(text: str) -> None:
    """Ask as each caller does: for a command's end without waiting."""
    agent = _Agent(_SITE, "localhost")
    with patch.object(libvirt_qemu, "qemuAgentCommand", lambda *_: text):
        agent.boot_finished(_GUEST)
        agent.ssh_host_key(_GUEST)
        with agent._translated("run x in", _GUEST):
            qemu_agent._result(qemu_agent._command(None, "guest-exec-status"))


class _Looks:
    """Looks into a guest that answers each script with this."""

    name = "agent"

    def __init__(self, what: str) -> None:
        self._what, self._answer = what, ""

    def run(self, guest: Any, argv: Any, stdin: bytes = b"", *, timeout: float) -> CommandResult:
        return CommandResult(0, self._answer.encode(errors="surrogatepass"), b"")

    def interfaces(self, guest: GuestAddress) -> tuple[Any, ...]:
        macs, _, lines = self._answer.partition("--\n")
        try:
            return guest_ssh._interfaces(macs, lines)
        except ValueError:  # translated by its caller
            return ()

    def __call__(self, answer: str) -> None:
        self._answer = answer
        guest = Guest(cast(Any, self), _GUEST)
        getattr(guest, self._what)(*([[_DEVICE]] if self._what == "devices" else []))


_BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60)
)


def _netplan(text: str) -> None:
    link = ConfiguredLink("nic1", "eth0", "52:54:00:00:00:01", None, ())
    netplan._name_of(link, text)


def _keys(text: str) -> None:
    lines = keys_in(text.splitlines())
    missing([KEY], lines)
