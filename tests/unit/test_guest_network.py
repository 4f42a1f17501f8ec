"""What is set in guests: the exact files and arguments of each way, and the flow on the fakes."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from ipaddress import ip_interface
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.cli.sliver_report import show
from fabric_direct.drivers.contract import (
    CommandResult,
    DeviceDomain,
    GuestAddress,
    GuestInterface,
    HostDevice,
    HostDrivers,
    PciFunction,
    PluggedDevice,
    Port,
    Volume,
)
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.fake.guest import FakeGuest
from fabric_direct.drivers.fake.inside import GuestState
from fabric_direct.drivers.guests import scripts
from fabric_direct.drivers.guests.configure.freebsd import FreeBsd
from fabric_direct.drivers.guests.configure.ifupdown import Ifupdown
from fabric_direct.drivers.guests.configure.iproute import IpRoute
from fabric_direct.drivers.guests.configure.netplan import Netplan
from fabric_direct.drivers.guests.configure.network import ConfiguredLink, Manager, vlan_name
from fabric_direct.drivers.guests.configure.networkd import Networkd
from fabric_direct.drivers.guests.configure.networkmanager import NetworkManager
from fabric_direct.drivers.guests.configure.openbsd import OpenBsd
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import Guest, GuestDisk, GuestLink
from fabric_direct.errors import DriverError, NotFound, NotVerified
from fabric_direct.handlers.vm.guest import nics
from fabric_direct.handlers.vm.guest.nics import link_of, manager
from fabric_direct.handlers.vm.guest.settings import GuestNic
from fabric_direct.model import (
    DeviceState,
    Finding,
    Interface,
    NodeSliver,
    Observed,
    ObservedDevice,
    ObservedVolume,
    Operation,
    PciAddress,
    SharedNic,
    SliverRef,
    SmartNic,
    State,
    Status,
    VNic,
)
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Host, Site
from tests.outcomes import done, made

MakeVm = Callable[..., NodeSliver]
MAC = "52:54:00:00:00:01"
V4, V6 = "10.0.0.5/24", "fd00::5/64"
HEAD = "# Written by fabric-direct; it is replaced and removed with the NIC.\n"


def link(
    *addresses: str, mac: str | None = None, vlan: int | None = None, dhcp: bool = False
) -> ConfiguredLink:
    given = tuple(map(ip_interface, addresses or (V4, V6)))
    return ConfiguredLink("nic1", "eth1", mac, vlan, given, dhcp=dhcp)


class ScriptedGuest:
    """A guest that remembers what it was told, and answers what a test says."""

    def __init__(self, name: str = "agent") -> None:
        self.name = name
        self.files: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.commands: list[tuple[str, ...]] = []
        """But for scripts that only look, or write files."""
        self.answers: dict[tuple[str, ...], CommandResult] = {}
        """By the beginning of a command."""
        self.scripts: dict[str, bytes] = {}
        self.links: tuple[GuestInterface, ...] = ()

    def interfaces(self, _: GuestAddress) -> tuple[GuestInterface, ...]:
        return self.links

    def run(
        self, _: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        if argv[:2] == ("sh", "-c"):
            return CommandResult(0, self._script(argv[2], argv[4:], stdin))
        self.commands.append(argv)
        if argv[:2] == ("rm", "-f"):
            self.files.pop(argv[2], None)
        found = [a for begin, a in self.answers.items() if argv[: len(begin)] == begin]
        return found[0] if found else CommandResult(0)

    def _script(self, script: str, arguments: Sequence[str], stdin: bytes) -> bytes:
        if script == scripts.WRITE:
            path, mode, size = arguments
            assert int(size) == len(stdin)
            self.files[path], self.modes[path] = stdin.decode(), mode
        if script == scripts.READ:
            return self.files.get(arguments[0], "").encode()
        return self.scripts.get(script, b"")


@pytest.fixture
def told() -> ScriptedGuest:
    return ScriptedGuest()


@pytest.fixture
def root(told: ScriptedGuest) -> GuestRoot:
    return root_of(told)


def root_of(told: ScriptedGuest, user: str = "root") -> GuestRoot:
    driver: Any = told
    return GuestRoot(Guest(driver, GuestAddress("s", "s-node", user)))


class TestRoot:
    def test_is_the_agent_itself(self) -> None:
        told = ScriptedGuest("agent")

        root_of(told, user="debian").do("ip", "link")

        assert told.commands == [("ip", "link")]

    def test_is_reached_by_ssh_through_sudo_that_asks_for_no_password(self) -> None:
        told = ScriptedGuest("ssh")

        root_of(told, user="debian").do("ip", "link")

        assert told.commands == [("sudo", "-n", "ip", "link")]

    def test_that_logs_in_needs_no_sudo(self) -> None:
        told = ScriptedGuest("ssh")

        root_of(told, user="root").do("ip", "link")

        assert told.commands == [("ip", "link")]

    def test_fails_in_the_guests_words(self, told: ScriptedGuest, root: GuestRoot) -> None:
        told.answers["ifup",] = CommandResult(1, b"", b"ifup: unknown\n interface eth9\n")

        with pytest.raises(DriverError, match=r"ifup eth9 failed.*unknown interface eth9"):
            root.do("ifup", "eth9")

    @pytest.mark.parametrize(
        ("act", "said"),
        [
            (lambda root: root.write("/etc/x", "text"), "a script on /etc/x failed in"),
            (lambda root: root.script(scripts.REREAD_FSTAB), "a script failed in"),
        ],
    )
    def test_names_the_file_that_could_not_be_written(
        self, act: Callable[[GuestRoot], None], said: str
    ) -> None:
        class Full(ScriptedGuest):
            def run(self, *_: Any, timeout: float, **__: Any) -> CommandResult:
                return CommandResult(1, b"", b"cat: write error: No space left on device")

        with pytest.raises(DriverError, match=f"{said}.*No space left"):
            act(root_of(Full()))


class TestNetworkManager:
    def test_makes_a_profile_for_the_mac_address_and_brings_it_up(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.answers["nmcli", "-g"] = CommandResult(10)

        NetworkManager().keep(root, link(mac=MAC))

        add = (
            *("nmcli", "connection", "add", "type", "ethernet"),
            *("con-name", "fabric-direct-nic1", "ifname", "*", "mac", MAC),
            *("ipv4.method", "manual", "ipv4.addresses", V4),
            *("ipv6.method", "manual", "ipv6.addresses", V6),
            *("connection.autoconnect", "yes"),
        )
        up = ("nmcli", "--wait", "60", "connection", "up", "id", "fabric-direct-nic1")
        assert told.commands[1:] == [add, up]

    def test_tags_a_vlan_and_gives_no_address_of_a_version_that_is_not_wanted(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.answers["nmcli", "-g"] = CommandResult(10)

        NetworkManager().keep(root, link(V6, vlan=100))

        assert told.commands[1] == (
            *("nmcli", "connection", "add", "type", "vlan", "con-name", "fabric-direct-nic1"),
            *("ifname", "eth1.100", "dev", "eth1", "id", "100"),
            *("ipv4.method", "disabled", "ipv6.method", "manual", "ipv6.addresses", V6),
            *("connection.autoconnect", "yes"),
        )

    def test_leaves_ipv4_to_a_network_that_hands_it_out(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.answers["nmcli", "-g"] = CommandResult(10)

        NetworkManager().keep(root, link(V6, dhcp=True))

        assert told.commands[1][9:11] == ("ipv4.method", "auto")

    @pytest.mark.parametrize(
        ("answer", "kept"),
        [
            (CommandResult(0, b"10.0.0.5/24\nfd00\\:\\:5/64\n"), True),
            (CommandResult(0, b"10.0.0.6/24\nfd00\\:\\:5/64\n"), False),
            (CommandResult(10, b""), False),
        ],
    )
    def test_keeps_the_addresses_of_the_profile(
        self, told: ScriptedGuest, root: GuestRoot, answer: CommandResult, kept: bool
    ) -> None:
        told.answers["nmcli", "-g"] = answer

        assert NetworkManager().keeps(root, link()) is kept


def plan_of(told: ScriptedGuest, path: str = "/etc/netplan/90-fabric-direct-nic1.yaml") -> Any:
    return yaml.safe_load(told.files[path])["network"]


class TestNetplan:
    def test_defines_a_nic_that_nothing_else_defines(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        Netplan().keep(root, link(mac=MAC))

        assert plan_of(told) == {
            "version": 2,
            "ethernets": {
                "eth1": {
                    "renderer": "networkd",
                    "match": {"macaddress": MAC},
                    "dhcp4": False,
                    "optional": True,
                    "addresses": [V4, V6],
                }
            },
        }
        assert told.modes == {"/etc/netplan/90-fabric-direct-nic1.yaml": "0600"}
        assert told.commands == [("netplan", "apply")]

    @pytest.mark.parametrize(
        ("name", "definition"),
        [
            ("by-mac", {"match": {"macaddress": MAC.upper()}, "dhcp4": True}),
            ("by-set-name", {"match": {"driver": "virtio"}, "set-name": "eth1"}),
            ("by-match", {"match": {"name": "eth1"}}),
            ("eth1", {"dhcp4": True}),
        ],
    )
    def test_adds_to_the_definition_that_the_image_has_by_its_name(
        self, told: ScriptedGuest, root: GuestRoot, name: str, definition: dict[str, Any]
    ) -> None:
        others = {"version": 2, "ethernets": {"eth0": {"dhcp4": True}}}
        files = [{"network": others}, {"network": {"ethernets": {name: definition}}}]
        told.scripts[scripts.NETPLAN] = yaml.safe_dump_all(files).encode()

        Netplan().keep(root, link(mac=MAC))

        assert plan_of(told)["ethernets"] == {name: {"addresses": [V4, V6]}}

    def test_puts_a_vlan_on_top(self, told: ScriptedGuest, root: GuestRoot) -> None:
        Netplan().keep(root, link(vlan=100))

        nic = {"renderer": "networkd", "dhcp4": False, "optional": True}
        assert plan_of(told)["ethernets"] == {"eth1": nic}
        assert plan_of(told)["vlans"] == {
            "eth1.100": {"id": 100, "link": "eth1", "addresses": [V4, V6]}
        }

    @pytest.mark.parametrize("vlan", [None, 100])
    def test_keeps_what_its_file_says(self, root: GuestRoot, vlan: int | None) -> None:
        assert not Netplan().keeps(root, link(vlan=vlan))

        Netplan().keep(root, link(vlan=vlan))

        assert Netplan().keeps(root, link(vlan=vlan))
        assert not Netplan().keeps(root, link(V4, vlan=vlan))

    @pytest.mark.parametrize(
        "content",
        [b"[" * 20_000, b"# " + b"x" * 300_000, b"a: \x01"],
        ids=["deep", "long", "control"],
    )
    def test_a_configuration_of_the_guest_that_cannot_be_read_is_an_error_of_ours(
        self, told: ScriptedGuest, root: GuestRoot, content: bytes
    ) -> None:
        told.scripts[scripts.NETPLAN] = content

        with pytest.raises(DriverError, match="no YAML"):
            Netplan().keep(root, link())

    def test_merges_in_the_guests_configuration_do_not_multiply(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        doubled = [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 64)]
        lines = ["a0: &a0 {k: v}", *doubled, "network: {ethernets: {nic: {set-name: eth1}}}"]
        told.scripts[scripts.NETPLAN] = "\n".join(lines).encode()

        Netplan().keep(root, link())

        assert list(plan_of(told)["ethernets"]) == ["nic"]

    def test_a_date_in_the_guests_configuration_is_text(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.scripts[scripts.NETPLAN] = b"network: {version: 2001-99-99}"

        Netplan().keep(root, link())

        assert "eth1" in plan_of(told)["ethernets"]

    def test_that_is_no_yaml_is_an_error_of_the_guest(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.scripts[scripts.NETPLAN] = b"network: {"

        with pytest.raises(DriverError, match="no YAML"):
            Netplan().keep(root, link())


NETWORKD = "/etc/systemd/network/05-fabric-direct-nic1"
EASY = "[Link]\nRequiredForOnline=no\n\n[Network]\nConfigureWithoutCarrier=yes\n"


class TestNetworkd:
    def test_writes_a_file_that_comes_before_the_images(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        Networkd().keep(root, link(mac=MAC))

        match = f"[Match]\nMACAddress={MAC}\nType=ether\n\n"
        assert told.files == {
            f"{NETWORKD}.network": f"{HEAD}{match}{EASY}Address={V4}\nAddress={V6}\n"
        }
        reload, configure = ("networkctl", "reload"), ("networkctl", "reconfigure", "eth1")
        assert told.commands == [reload, configure]

    def test_puts_a_vlan_on_top(self, told: ScriptedGuest, root: GuestRoot) -> None:
        Networkd().keep(root, link(vlan=100))

        kind = "[NetDev]\nName=eth1.100\nKind=vlan\n\n[VLAN]\nId=100\n"
        on_top = f"[Match]\nName=eth1.100\n\n{EASY}Address={V4}\nAddress={V6}\n"
        nic = f"[Match]\nName=eth1\nType=ether\n\n{EASY}VLAN=eth1.100\n"
        assert told.files == {
            f"{NETWORKD}-vlan.netdev": HEAD + kind,
            f"{NETWORKD}-vlan.network": HEAD + on_top,
            f"{NETWORKD}.network": HEAD + nic,
        }

    def test_leaves_ipv4_to_a_network_that_hands_it_out(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        Networkd().keep(root, link(V6, dhcp=True))

        assert f"DHCP=ipv4\nAddress={V6}\n" in told.files[f"{NETWORKD}.network"]

    def test_forgets_all_of_its_files(self, told: ScriptedGuest, root: GuestRoot) -> None:
        Networkd().keep(root, link(vlan=100))

        Networkd().forget(root, "nic1")

        assert told.files == {}
        assert told.commands[-1] == ("networkctl", "reload")


class TestIfupdown:
    path = "/etc/network/interfaces.d/fabric-direct-nic1"

    def test_writes_a_stanza_for_each_version(self, told: ScriptedGuest, root: GuestRoot) -> None:
        Ifupdown().keep(root, link())

        assert told.files[self.path] == (
            f"{HEAD}allow-hotplug eth1\n"
            f"iface eth1 inet static\n    address {V4}\n"
            f"iface eth1 inet6 static\n    address {V6}\n"
        )
        assert told.commands == [("ifdown", "--force", "eth1"), ("ifup", "eth1")]

    def test_has_a_vlan_interface_made_at_boot(self, told: ScriptedGuest, root: GuestRoot) -> None:
        Ifupdown().keep(root, link(V4, vlan=100))

        assert told.files[self.path] == (
            f"{HEAD}auto eth1.100\n"
            f"iface eth1.100 inet static\n    address {V4}\n    vlan-raw-device eth1\n"
        )

    def test_forgets_its_file(self, told: ScriptedGuest, root: GuestRoot) -> None:
        Ifupdown().keep(root, link())

        Ifupdown().forget(root, "nic1")

        assert told.files == {}


class TestFreeBsd:
    """Written after rc.conf(5); no real one has been asked."""

    def test_sets_variables_and_the_addresses_at_once(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        FreeBsd().keep(root, link())

        assert told.commands[1:] == [
            ("sysrc", f"ifconfig_eth1=inet {V4}"),
            ("sysrc", f"ifconfig_eth1_ipv6=inet6 {V6}"),
            ("ifconfig", "eth1", "inet6", "-ifdisabled"),
            ("ifconfig", "eth1", "up"),
            ("ifconfig", "eth1", "inet", V4, "alias"),
            ("ifconfig", "eth1", "inet6", V6, "alias"),
        ]

    def test_makes_a_vlan_interface(self, told: ScriptedGuest, root: GuestRoot) -> None:
        told.answers["ifconfig", "eth1.100"] = CommandResult(0)
        told.answers = {("ifconfig", "eth1.100", "create"): CommandResult(0)} | {
            ("ifconfig", "eth1.100", "up"): CommandResult(0),
            ("ifconfig", "eth1.100", "inet"): CommandResult(0),
            ("ifconfig", "eth1.100"): CommandResult(1),
        }

        FreeBsd().keep(root, link(V4, vlan=100))

        assert told.commands[1:] == [
            ("sysrc", "vlans_eth1=100"),
            ("sysrc", "ifconfig_eth1=up"),
            ("sysrc", f"ifconfig_eth1_100=inet {V4}"),
            ("ifconfig", "eth1", "up"),
            ("ifconfig", "eth1.100"),
            ("ifconfig", "eth1.100", "create", "vlan", "100", "vlandev", "eth1"),
            ("ifconfig", "eth1.100", "up"),
            ("ifconfig", "eth1.100", "inet", V4, "alias"),
        ]

    def test_forgets_its_variables(self, told: ScriptedGuest, root: GuestRoot) -> None:
        FreeBsd().keep(root, link(V4))
        told.commands.clear()

        FreeBsd().forget(root, "nic1")

        assert told.commands[0] == ("sysrc", "-x", "ifconfig_eth1")
        assert not FreeBsd().has(root, "nic1")


class TestIpAlone:
    def test_sets_what_is_not_there_and_warns(self, told: ScriptedGuest, root: GuestRoot) -> None:
        told.links = (GuestInterface("eth1", MAC, (V4,)),)
        reads = ReadCache()

        with reads.active():
            IpRoute().keep(root, link())

        assert ("ip", "addr", "add", V6, "dev", "eth1") in told.commands
        assert ("ip", "addr", "add", V4, "dev", "eth1") not in told.commands
        assert "go with its next boot" in reads.warnings[0]

    def test_makes_a_vlan_interface_once(self, told: ScriptedGuest, root: GuestRoot) -> None:
        make = (
            "ip",
            "link",
            "add",
            "link",
            "eth1",
            "name",
            "eth1.100",
            "type",
            "vlan",
            "id",
            "100",
        )

        IpRoute().keep(root, link(vlan=100))
        told.links = (GuestInterface("eth1.100", MAC),)
        IpRoute().keep(root, link(vlan=100))

        assert told.commands.count(make) == 1


class TestChoice:
    @pytest.mark.parametrize(
        ("words", "chosen"),
        [
            (b"networkmanager\nnetplan\nnetworkd\n", NetworkManager),
            (b"netplan\nnetworkd\nifupdown\n", Netplan),
            (b"networkd\nifupdown\n", Networkd),
            (b"ifupdown\n", Ifupdown),
            (b"freebsd\n", FreeBsd),
            (b"openbsd\n", OpenBsd),
            (b"", IpRoute),
        ],
    )
    def test_is_what_the_guest_uses_for_the_interface(
        self, told: ScriptedGuest, root: GuestRoot, words: bytes, chosen: type[Manager]
    ) -> None:
        told.scripts[scripts.MANAGERS] = words

        assert isinstance(manager(root, "eth1"), chosen)


def test_a_long_name_is_cut_to_make_room_for_the_vlan() -> None:
    assert vlan_name("eth1", 7) == "eth1.7"
    assert vlan_name("enp6s0f0np0", 1000) == "enp6s0f0np.1000"


class Plugged:
    """Drivers of a host with one port and what devices a test says."""

    def __init__(self, *devices: PluggedDevice, port: Port | None = None) -> None:
        device = SimpleNamespace(plugged=lambda _: devices)
        network = SimpleNamespace(ports=lambda _: (port,) if port else ())
        no: Any = None
        driver: Any = device
        networks: Any = network
        self.drivers = HostDrivers(
            "w1", no, networks, no, devices=dict.fromkeys(("SmartNIC", "SharedNIC"), driver)
        )


FUNCTIONS = tuple(PciAddress.parse(f"0000:25:00.{n}") for n in range(2))


def function(number: int, mac: str | None = None) -> PluggedDevice:
    return PluggedDevice("smart", f"ua-s-smart-{number}", FUNCTIONS[number], mac=mac)


class Seen:
    """A guest with interfaces, and functions that it has made some of."""

    def __init__(self, links: tuple[GuestLink, ...], **by_alias: tuple[str, ...]) -> None:
        self._links, self._by_alias = links, by_alias
        self.address = GuestAddress("s", "s-node", "root")

    def links(self) -> tuple[GuestLink, ...]:
        return self._links

    def devices(self, devices: Sequence[PluggedDevice]) -> dict[str, Any]:
        names = {d.alias: self._by_alias.get(f"f{d.host_address.function}") for d in devices}
        return {a: SimpleNamespace(interfaces=n) for a, n in names.items() if n is not None}


def found(guest: Any, plugged: Plugged, nic: GuestNic) -> ConfiguredLink:
    return link_of(guest, plugged.drivers, DeviceDomain("s"), nic)


def smart(*interfaces: dict[str, Any]) -> SmartNic:
    return SmartNic(id="smart", bdf=FUNCTIONS, interfaces=tuple(Interface(**i) for i in interfaces))


class TestFinding:
    links = (
        GuestLink("eth0", MAC, real=True),
        GuestLink("eth0.100", MAC, real=False, below=("eth0",)),
        GuestLink("eth1", "52:54:00:00:00:02", real=True),
    )

    def test_a_vnic_is_found_by_the_mac_address_of_its_port(self) -> None:
        nic = VNic(id="nic1", network="red", interface={"ipv4": V4, "ipv6": V6})
        port = Port("s", "nic1", "red", "red", MAC, dhcp=False)

        assert found(
            Seen(self.links), Plugged(port=port), GuestNic(nic, nic.interface)
        ) == ConfiguredLink("nic1", "eth0", MAC, None, (ip_interface(V4), ip_interface(V6)))

    def test_a_vnic_is_not_given_what_its_network_hands_out(self) -> None:
        nic = VNic(id="nic1", network="red", interface={"ipv4": V4, "ipv6": V6})
        port = Port("s", "nic1", "red", "red", MAC, dhcp=True)

        link = found(Seen(self.links), Plugged(port=port), GuestNic(nic, nic.interface))

        assert (link.addresses, link.dhcp) == ((ip_interface(V6),), True)

    def test_a_vf_is_found_by_its_mac_address_and_not_tagged_in_the_guest(self) -> None:
        nic = SharedNic(id="smart", bdf=FUNCTIONS[:1], interface=Interface(ipv4=V4, vlan=304))

        link = found(Seen(self.links), Plugged(function(0, MAC)), GuestNic(nic, nic.interface))

        assert (link.name, link.vlan) == ("eth0", None)

    def test_an_interface_of_a_smartnic_belongs_to_the_function_of_its_number(self) -> None:
        nic = smart({"ipv4": V4}, {"ipv4": V4, "vlan": 100})
        guest = Seen(self.links, f0=("eth1",), f1=("eth0",))

        link = found(guest, Plugged(function(1), function(0)), GuestNic(nic, nic.interfaces[1], 1))

        assert (link.label, link.name, link.mac) == ("smart.1", "eth0.100", None)

    def test_an_interface_of_a_smartnic_that_gives_its_mac_is_found_by_it(self) -> None:
        nic = smart({"ipv4": V4, "mac": MAC})
        guest = Seen(self.links, f0=("eth1",))

        assert found(guest, Plugged(function(0)), GuestNic(nic, nic.interfaces[0])).name == "eth0"

    @pytest.mark.parametrize("names", [(), ("eth0", "eth1")])
    def test_a_function_with_no_interface_or_several_is_an_error(
        self, names: tuple[str, ...]
    ) -> None:
        nic = smart({"ipv4": V4})

        with pytest.raises(NotFound, match=r"no interface for smart.0"):
            found(
                Seen(self.links, f0=names), Plugged(function(0)), GuestNic(nic, nic.interfaces[0])
            )


# --- on the fakes

VF, PFS = PciAddress.parse("27:10.1"), tuple(PciAddress.parse(f"41:00.{n}") for n in (0, 1))


@pytest.fixture
def fake_site(fake_site: Site) -> Site:
    """A site that may pass devices through."""
    cards = (AllowedDevice(type="SmartNIC", bdf=address) for address in PFS)
    host = Host(devices=(AllowedDevice(type="SharedNIC", bdf=VF), *cards))
    return fake_site.model_copy(update={"hosts": {"localhost": host}})


@pytest.fixture
def nics_there(fakes: Substrate) -> None:
    for address in (VF, *PFS):
        device = HostDevice(PciFunction(address, "15b3", "1017"), DeviceState.FREE)
        fakes.devices[address] = device


def shared(**interface: Any) -> dict[str, Any]:
    given = {"mac": MAC, "ipv4": V4, "auto_config": True} | interface
    return {"type": "SharedNIC", "id": "vf", "bdf": [str(VF)], "interface": given}


def volume(**values: Any) -> dict[str, Any]:
    return {"type": "Storage", "id": "data", "mount": "/data", "size": 1} | values


@pytest.mark.usefixtures("nics_there")
class TestANic:
    def test_has_its_addresses_in_the_guest(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        outcome = done(processor.create(vm(components=[shared(ipv6=V6)])).result())

        assert outcome.observed
        assert outcome.observed.devices[0].guest_addresses == (V4, V6)
        assert outcome.observed.differences == ()
        assert "configure vf" in made(outcome)

    def test_is_configured_once(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        wanted = vm(components=[shared()])
        done(processor.create(wanted).result())

        again = done(processor.modify(wanted).result())

        assert made(again) == set()

    def test_is_in_the_plan_of_a_sliver_that_is_not_there(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        plan = processor.plan(vm(components=[shared()]), Operation.CREATE).result()

        findings = {step.step: step.finding for step in plan.steps}
        assert findings["configure vf"] is Finding.WILL_CHANGE

    def test_that_lost_its_addresses_is_told_and_configured_again_without_a_difference(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        wanted = vm(components=[shared()])
        done(processor.create(wanted).result())
        fakes.inside["sliver-1"].files.clear()

        lost = processor.probe(wanted).result().observed
        again = done(processor.modify(wanted).result())

        assert lost
        assert lost.differences == (f"SharedNIC vf does not have {V4} in the guest",)
        assert made(again) == {"configure vf"}

    def test_is_configured_no_more_where_it_is_taken_away(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[shared()])).result())

        outcome = done(processor.modify(vm(components=[])).result())

        assert "unconfigure vf" in made(outcome)
        assert fakes.inside["sliver-1"].files == {}

    def test_gets_another_address_in_place(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[shared()])).result())

        outcome = done(processor.modify(vm(components=[shared(ipv4="10.0.0.6/24")])).result())

        assert made(outcome) == {"configure vf", "stamp"}
        assert outcome.observed
        assert outcome.observed.devices[0].guest_addresses == ("10.0.0.6/24",)

    def test_is_configured_no_more_where_that_is_not_wanted_any_more(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[shared()])).result())

        outcome = done(processor.modify(vm(components=[shared(auto_config=False)])).result())

        assert made(outcome) == {"unconfigure vf", "stamp"}
        assert fakes.inside["sliver-1"].files == {}

    def test_gets_its_former_address_back_when_the_modification_fails(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        old, new = shared(), shared(ipv4="10.0.0.6/24")
        done(processor.create(vm(components=[old])).result())
        line = b"LABEL=mine /data ext4 defaults 0 1\n"
        fakes.inside["sliver-1"].files["/etc/fstab"] = line

        outcome = processor.modify(vm(components=[new, volume()])).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        found = processor.probe(vm(components=[old])).result().observed
        assert found
        assert found.devices[0].guest_addresses == (V4,)

    def test_that_was_added_by_a_modification_that_fails_is_configured_no_more(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[])).result())
        line = b"LABEL=mine /data ext4 defaults 0 1\n"
        fakes.inside.setdefault("sliver-1", GuestState()).files["/etc/fstab"] = line

        outcome = processor.modify(vm(components=[shared(), volume()])).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert fakes.inside["sliver-1"].files == {"/etc/fstab": line}

    def test_that_cannot_be_configured_fails_the_creation_which_leaves_nothing(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def refuse(*_: Any) -> None:
            raise DriverError("networkctl reload failed", why="Unit is masked.")

        monkeypatch.setattr(nics.Networkd, "keep", refuse)

        outcome = processor.create(vm(components=[shared()])).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert f"vf (ens0 in the guest) could not be given {V4}" in outcome.error.message
        assert "Unit is masked" in outcome.error.message
        assert (fakes.servers, outcome.left) == ({}, ())

    def test_is_waited_for_in_a_guest_that_shows_it_late(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        done(processor.create(vm(components=[shared()])).result())
        fakes.inside["sliver-1"].files.clear()
        fakes.lose_devices("sliver-1")
        interfaces, hidden = FakeGuest.interfaces, iter(range(3))

        def late(self: FakeGuest, guest: GuestAddress) -> tuple[GuestInterface, ...]:
            return () if next(hidden, None) is not None else interfaces(self, guest)

        monkeypatch.setattr(FakeGuest, "interfaces", late)

        outcome = done(processor.reconcile(SliverRef(id="sliver-1")).result())

        assert made(outcome) == {"device vf", "configure vf"}

    def test_that_the_guest_never_shows_fails_the_creation(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(FakeGuest, "interfaces", lambda *_: ())
        monkeypatch.setattr(nics, "_SHOWN", 0)

        outcome = processor.create(vm(components=[shared()])).result()

        assert outcome.error
        assert outcome.error.kind == "NotFound"
        assert "the guest has no interface for vf" in outcome.error.message
        assert (fakes.servers, outcome.left) == ({}, ())

    def test_that_does_not_get_what_it_was_given_fails_the_creation(
        self, processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nics, "_SET", 0)
        monkeypatch.setattr(nics.Networkd, "keep", lambda *_: None)

        outcome = processor.create(vm(components=[shared()])).result()

        assert outcome.error
        assert outcome.error.kind == NotVerified.__name__
        assert "networkd succeeded" in outcome.error.message

    def test_of_a_smartnic_is_one_for_each_interface(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        macs = ("52:54:00:00:00:08", "52:54:00:00:00:09")
        interfaces = [
            {"mac": mac, "ipv4": f"10.0.{n}.5/24", "auto_config": True}
            for n, mac in enumerate(macs)
        ]
        card = {
            "type": "SmartNIC",
            "id": "card",
            "bdf": list(map(str, PFS)),
            "interfaces": interfaces,
        }

        outcome = done(processor.create(vm(components=[card])).result())

        assert made(outcome) >= {"configure card.0", "configure card.1"}
        assert outcome.observed
        addresses = [device.guest_addresses for device in outcome.observed.devices]
        assert addresses == [("10.0.0.5/24",), ("10.0.1.5/24",)]

    def test_that_is_not_to_be_configured_is_not(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[shared(auto_config=False)])).result())

        assert not [path for inside in fakes.inside.values() for path in inside.files]


def stored() -> Volume:
    return Volume("", "", "/fake/stored", 1)


class TestAVolume:
    def test_of_the_sliver_gets_a_file_system_and_is_mounted_now_and_at_boot(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        outcome = done(processor.create(vm(components=[volume()])).result())

        assert outcome.observed
        assert outcome.observed.volumes[0].mounted == ("/data",)
        [uuid] = fakes.inside["sliver-1"].file_systems.values()
        fstab = fakes.inside["sliver-1"].files["/etc/fstab"].decode()
        assert fstab.endswith(f"\nUUID={uuid} /data ext4 defaults,nofail 0 2\n")

    def test_is_waited_for_in_a_guest_that_shows_it_late(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        disks, hidden = Guest.disks, iter(range(2))
        monkeypatch.setattr(
            Guest, "disks", lambda guest: disks(guest) if next(hidden, None) is None else {}
        )

        outcome = done(processor.create(vm(components=[volume()])).result())

        assert outcome.observed
        assert outcome.observed.volumes[0].mounted == ("/data",)

    def test_is_mounted_once(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        wanted = vm(components=[volume()])
        done(processor.create(wanted).result())

        assert made(done(processor.modify(wanted).result())) == set()

    def test_that_was_there_is_never_formatted_and_named(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.existing["stored"] = stored()

        outcome = done(
            processor.create(vm(components=[volume(size=None, volume="stored")])).result()
        )

        assert fakes.inside["sliver-1"].file_systems == {}
        assert outcome.warnings == (
            "volume data is not mounted at /data: stored has no file system, and is not ours to format",
        )
        assert outcome.observed
        assert outcome.observed.differences == ("volume data is not mounted at /data in the guest",)

    def test_is_unmounted_where_that_is_not_wanted_any_more(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[volume()])).result())

        outcome = done(processor.modify(vm(components=[volume(mount=None)])).result())

        assert made(outcome) == {"unmount data", "stamp"}
        assert fakes.inside["sliver-1"].mounts == {}

    def test_is_unmounted_before_it_is_unplugged(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[volume()])).result())
        steps: list[str] = []

        with HandlerProcessor(processor.site, on_progress=lambda p: steps.append(p.step)) as again:
            done(again.modify(vm(components=[])).result())

        assert steps.index("unmount data") < steps.index("unplug disk data")
        assert fakes.inside["sliver-1"].files["/etc/fstab"] == b""

    def test_that_a_killed_modification_has_unplugged_is_no_more_in_the_table(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[volume()])).result())
        fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], volumes=())

        done(processor.modify(vm(components=[])).result())

        assert fakes.inside["sliver-1"].files["/etc/fstab"] == b""

    def test_leaves_other_lines_of_the_table_as_they_are(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[])).result())
        done(processor.probe(vm(components=[])).result())
        other = b"# a comment\nLABEL=root / ext4 defaults 0 1\n"
        fakes.inside.setdefault("sliver-1", GuestState()).files["/etc/fstab"] = other

        done(processor.modify(vm(components=[volume()])).result())
        done(processor.modify(vm(components=[])).result())

        assert fakes.inside["sliver-1"].files["/etc/fstab"] == other

    def test_is_not_mounted_where_the_guest_mounts_something_else(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        done(processor.create(vm(components=[])).result())
        line = b"LABEL=mine /data ext4 defaults 0 1\n"
        fakes.inside.setdefault("sliver-1", GuestState()).files["/etc/fstab"] = line

        outcome = processor.modify(vm(components=[volume()])).result()

        assert outcome.error
        assert "mounts something else at /data" in outcome.error.message
        assert fakes.inside["sliver-1"].files["/etc/fstab"] == line


class TestRefusal:
    @pytest.mark.parametrize(
        ("component", "field"),
        [
            (shared(), "components[0].interface.auto_config"),
            (volume(), "components[0].mount"),
            (
                {
                    "type": "SmartNIC",
                    "id": "card",
                    "bdf": [str(PFS[0])],
                    "interfaces": [{}, {"ipv4": V4, "auto_config": True}],
                },
                "components[0].interfaces[1].auto_config",
            ),
            (
                {"type": "vNIC", "id": "n", "network": "red", "interface": {"auto_config": True}},
                "components[0].interface.auto_config",
            ),
        ],
    )
    @pytest.mark.usefixtures("nics_there")
    def test_of_a_site_that_looks_into_no_guest_names_the_field(
        self, fake_site: Site, vm: MakeVm, component: dict[str, Any], field: str
    ) -> None:
        with HandlerProcessor(fake_site.model_copy(update={"guest": "none"})) as blind:
            outcome = blind.plan(vm(components=[component]), Operation.CREATE).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == field

    @pytest.mark.usefixtures("nics_there")
    def test_of_an_interface_without_a_function_names_it(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        card = {
            "type": "SmartNIC",
            "id": "card",
            "bdf": [str(PFS[0])],
            "interfaces": [{}, {"ipv4": V4, "auto_config": True}],
        }

        outcome = processor.create(vm(components=[card])).result()

        assert outcome.error
        assert outcome.error.field == "components[0].interfaces[1].auto_config"

    def test_of_two_volumes_at_one_directory_names_the_second(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        outcome = processor.create(vm(components=[volume(), volume(id="more")])).result()

        assert outcome.error
        assert outcome.error.field == "components[1].mount"


class TestDisks:
    def test_are_told_by_serial_number_with_what_is_mounted(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.scripts[scripts.DISKS] = (
            b"disk vda 254:0 \ndisk vdb 254:16 data\ndisk vdc 254:32 more\n"
            b"mount 27 1 254:1 / / rw shared:1 - ext4 /dev/root rw\n"
            b"mount 61 27 254:16 / /my\\040data rw,relatime shared:2 - ext4 /dev/vdb rw\n"
            b"mount 62 27 0:44 / /pool rw - btrfs /dev/vdc rw\nmount half\n"
        )

        assert root.guest.disks() == {
            "data": GuestDisk("vdb", ("/my data",)),
            "more": GuestDisk("vdc", ("/pool",)),
        }


def test_a_nic_is_not_taken_for_the_vlan_interface_on_top_of_it(
    told: ScriptedGuest, root: GuestRoot
) -> None:
    told.links = (GuestInterface("eth1", MAC, (V4,)), GuestInterface("eth1.100", MAC, (V6,)))

    assert root.guest.interfaces()[MAC].name == "eth1"


def test_people_see_what_is_mounted_and_set_in_the_guest(vm: MakeVm) -> None:
    volume = ObservedVolume(
        component="data", source="/x", target="vdb", size=1, guest_name="vdb", mounted=("/data",)
    )
    device = ObservedDevice(
        component="vf",
        host_address=VF,
        alias="ua-s-vf-0",
        guest_name="0000:01:00.0",
        guest_interfaces=("ens1",),
        guest_addresses=(V4, "fe80::1/64"),
    )
    there = Observed(state=State.RUNNING, instance="s", volumes=(volume,), devices=(device,))
    out = Console(file=StringIO(), width=200)

    show(there, SliverRef(id="s"), out)

    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "vdb: /data" in text
    assert f"0000:01:00.0: ens1: {V4}\n" in re.sub(" +\n", "\n", text)


SHELLS = [
    pytest.param(argv, marks=pytest.mark.skipif(not shutil.which(argv[0]), reason=f"no {argv[0]}"))
    for argv in (("sh",), ("busybox", "sh"), ("bash", "--posix"))
]


@pytest.mark.parametrize("shell", SHELLS)
class TestScripts:
    """By shells of this machine."""

    def script(
        self, shell: Sequence[str], script: str, *arguments: object, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        argv = [*shell, "-c", script, "sh", *map(str, arguments)]
        return subprocess.run(argv, input=stdin, capture_output=True, check=False)

    def test_a_file_is_written_with_its_mode_and_its_directory_is_made(
        self, shell: Sequence[str], tmp_path: Path
    ) -> None:
        path = tmp_path / "etc/netplan/ours $(x).yaml"

        self.script(shell, scripts.WRITE, path, "0600", 5, stdin=b"text\n")

        assert path.read_bytes() == self.script(shell, scripts.READ, path).stdout == b"text\n"
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o755)

    def test_a_file_of_which_only_half_arrives_stays_as_it_was(
        self, shell: Sequence[str], tmp_path: Path
    ) -> None:
        path = tmp_path / "fstab"
        path.write_bytes(b"as it was")

        assert self.script(shell, scripts.WRITE, path, "0644", 99, stdin=b"half").returncode != 0
        assert path.read_bytes() == b"as it was"

    def test_a_file_that_is_not_there_is_empty(self, shell: Sequence[str], tmp_path: Path) -> None:
        answer = self.script(shell, scripts.READ, tmp_path / "none")

        assert (answer.returncode, answer.stdout) == (0, b"")

    @pytest.mark.parametrize(("last", "blank"), [(b"\0", True), (b"x", False)])
    def test_a_disk_is_blank_if_its_beginning_is_all_zeros(
        self, shell: Sequence[str], tmp_path: Path, last: bytes, blank: bool
    ) -> None:
        disk = tmp_path / "disk"
        disk.write_bytes(b"\0" * 1023 + last + b"behind")

        answer = self.script(shell, scripts.IS_BLANK, disk, 1024)

        assert (answer.returncode == 0) is blank

    def test_a_command_is_there_or_not(self, shell: Sequence[str]) -> None:
        assert self.script(shell, scripts.HAS, "cat").stdout == b"yes\n"
        assert self.script(shell, scripts.HAS, "no-such-command").stdout == b"no\n"

    def test_disks_are_listed_with_the_mounts_as_they_are_written(
        self, shell: Sequence[str], tmp_path: Path
    ) -> None:
        disk, table = tmp_path / "block/vdb", tmp_path / "mountinfo"
        disk.mkdir(parents=True)
        (disk / "dev").write_text("254:16\n")
        (disk / "serial").write_text("data")
        table.write_text("61 27 254:16 / /my\\040data rw - ext4 /dev/vdb rw\n")

        answer = self.script(shell, scripts.DISKS, tmp_path, table)

        assert answer.stdout.decode() == (
            "disk vdb 254:16 data\nmount 61 27 254:16 / /my\\040data rw - ext4 /dev/vdb rw\n"
        )

    def test_interfaces_that_were_made_name_those_below(
        self, shell: Sequence[str], tmp_path: Path
    ) -> None:
        real, made = tmp_path / "class/net/eth1", tmp_path / "class/net/eth1.100"
        (real / "device").mkdir(parents=True)
        (made / "lower_eth1").mkdir(parents=True)

        answer = self.script(shell, scripts.LINKS, tmp_path)

        assert answer.stdout == b"eth1 real\neth1.100 made eth1\n"
