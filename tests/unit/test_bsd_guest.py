"""Guests that run a BSD: read and configured by ifconfig, with the formats of FreeBSD 14 and OpenBSD 7.

No BSD is booted: the guest's shell is one of this machine, its ``uname`` and ``ifconfig`` write what
theirs do.
"""

import shutil
import subprocess
from collections.abc import Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import (
    CommandResult,
    GuestAddress,
    GuestInterface,
    PluggedDevice,
    Port,
)
from fabric_direct.drivers.guests import guest as guest_module
from fabric_direct.drivers.guests import ifconfig, scripts
from fabric_direct.drivers.guests.configure.freebsd import FreeBsd
from fabric_direct.drivers.guests.configure.network import ConfiguredLink
from fabric_direct.drivers.guests.configure.openbsd import OpenBsd
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.drivers.guests.ssh import SshGuest, _quoted
from fabric_direct.errors import TimedOut, Unsupported
from fabric_direct.handlers.vm.guest.nics import _take, manager
from fabric_direct.model import PciAddress
from fabric_direct.site.config import GuestSettings, Site
from tests.unit.test_guest_network import ScriptedGuest, root_of

ADDRESS = GuestAddress("s", "s-node", "root", ("192.0.2.5",))
MAC, OTHER = "52:54:00:12:34:56", "52:54:00:12:34:57"
FREEBSD = """\
vtnet0: flags=1008843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500
\toptions=4c07bb<RXCSUM,TXCSUM,VLAN_MTU,VLAN_HWTAGGING,JUMBO_MTU,VLAN_HWCSUM,TSO4,TSO6,LRO,VLAN_HWTSO>
\tether 52:54:00:12:34:56
\tinet 192.0.2.5 netmask 0xffffff00 broadcast 192.0.2.255
\tinet6 fe80::5054:ff:fe12:3456%vtnet0 prefixlen 64 scopeid 0x1
\tinet6 2001:db8::5 prefixlen 64 autoconf pltime 14400 vltime 86400
\tmedia: Ethernet autoselect (10Gbase-T <full-duplex>)
\tstatus: active
\tnd6 options=23<PERFORMNUD,ACCEPT_RTADV,AUTO_LINKLOCAL>
vtnet1: flags=1008843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500
\tether 52:54:00:12:34:57
\tmedia: Ethernet autoselect (10Gbase-T <full-duplex>)
\tstatus: active
\tnd6 options=29<PERFORMNUD,IFDISABLED,AUTO_LINKLOCAL>
lo0: flags=1008049<UP,LOOPBACK,RUNNING,MULTICAST,LOWER_UP> metric 0 mtu 16384
\toptions=680003<RXCSUM,TXCSUM,LINKSTATE,RXCSUM_IPV6,TXCSUM_IPV6>
\tinet 127.0.0.1 netmask 0xff000000
\tinet6 ::1 prefixlen 128
\tinet6 fe80::1%lo0 prefixlen 64 scopeid 0x3
\tgroups: lo
\tnd6 options=21<PERFORMNUD,AUTO_LINKLOCAL>
vtnet1.100: flags=1008843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500
\toptions=80000<LINKSTATE>
\tether 52:54:00:12:34:57
\tinet 198.51.100.7 netmask 0xffffffe0 broadcast 198.51.100.31
\tgroups: vlan
\tvlan: 100 vlanproto: 802.1q vlanpcp: 0 parent interface: vtnet1
\tmedia: Ethernet autoselect (10Gbase-T <full-duplex>)
\tstatus: active
"""
OPENBSD = """\
lo0: flags=2008049<UP,LOOPBACK,RUNNING,MULTICAST,LRO> mtu 32768
\tindex 3 priority 0 llprio 3
\tgroups: lo
\tinet6 ::1 prefixlen 128
\tinet6 fe80::1%lo0 prefixlen 64 scopeid 0x3
\tinet 127.0.0.1 netmask 0xff000000
vio0: flags=808b43<UP,BROADCAST,RUNNING,PROMISC,ALLMULTI,SIMPLEX,MULTICAST,AUTOCONF4> mtu 1500
\tlladdr 52:54:00:12:34:56
\tindex 1 priority 0 llprio 3
\tgroups: egress
\tmedia: Ethernet autoselect
\tstatus: active
\tinet 192.0.2.5 netmask 0xffffff00 broadcast 192.0.2.255
\tinet 192.0.2.6 netmask 0xffffffff
\tinet6 2001:db8::5 prefixlen 64
vio1: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> mtu 1500
\tlladdr 52:54:00:12:34:57
\tindex 2 priority 0 llprio 3
\tmedia: Ethernet autoselect
\tstatus: active
enc0: flags=0<>
\tindex 4 priority 0 llprio 3
\tgroups: enc
\tstatus: active
vlan100: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> mtu 1500
\tlladdr 52:54:00:12:34:57
\tindex 6 priority 0 llprio 3
\tencap: vnetid 100 parent vio1 txprio packet rxprio outer
\tgroups: vlan
\tmedia: Ethernet autoselect
\tstatus: active
\tinet 198.51.100.7 netmask 0xffffffe0 broadcast 198.51.100.31
pflog0: flags=141<UP,RUNNING,PROMISC> mtu 33136
\tindex 5 priority 0 llprio 3
\tgroups: pflog
"""
SAID = {"FreeBSD": FREEBSD, "OpenBSD": OPENBSD}


class Bsd:
    """A guest whose shell is this machine's, with the programs of a BSD in front."""

    name = "agent"

    def __init__(self, system: str, directory: Path) -> None:
        self._programs, self._nowhere = directory / "programs", str(directory / "none")
        self._programs.mkdir()
        # OpenBSD shows all addresses by -A alone.
        asked = {"FreeBSD": "-a", "OpenBSD": "-A"}[system]
        (directory / "said").write_text(SAID[system])
        self._program("uname", f"echo {system}")
        self._program("ifconfig", f'[ "$*" = {asked} ] && cat {directory}/said')

    def _program(self, name: str, text: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(
        self, _: GuestAddress, argv: Sequence[str], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        words = [word.replace("/sys", self._nowhere) for word in argv]
        path = {"PATH": f"{self._programs}:/usr/bin:/bin"}
        done = subprocess.run(words, input=stdin, capture_output=True, check=False, env=path)
        return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture(params=["FreeBSD", "OpenBSD"])
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bsd(system: str, tmp_path: Path) -> Bsd:
    return Bsd(system, tmp_path)


@pytest.fixture
def guest(bsd: Bsd) -> Guest:
    driver: Any = bsd
    return Guest(driver, ADDRESS)


@pytest.fixture
def ssh(bsd: Bsd, tmp_path: Path, mocker: MockerFixture) -> SshGuest:
    access = GuestSettings(ssh_key=tmp_path / "key")
    ssh = SshGuest(Site(site="TEST", state_dir=tmp_path, guest_access=access), "localhost")
    mocker.patch.object(ssh, "run", bsd.run)
    return ssh


class TestItsInterfaces:
    def test_are_read_by_ssh_with_their_addresses_and_without_those_that_have_no_mac(
        self, ssh: SshGuest, system: str
    ) -> None:
        first, second, vlan = ssh.interfaces(ADDRESS)

        assert first.name == {"FreeBSD": "vtnet0", "OpenBSD": "vio0"}[system]
        assert first.mac == MAC
        assert {"192.0.2.5/24", "2001:db8::5/64"} <= set(first.addresses)
        assert (second.mac, second.addresses) == (OTHER, ())
        assert vlan.addresses == ("198.51.100.7/27",)

    def test_have_all_addresses_of_which_openbsd_shows_the_first_alone_if_it_is_not_asked(
        self, tmp_path: Path
    ) -> None:
        driver: Any = Bsd("OpenBSD", tmp_path)

        links = {link.name: link for link in Guest(driver, ADDRESS).links()}

        assert links["vio0"].addresses == ("192.0.2.5/24", "192.0.2.6/32", "2001:db8::5/64")

    def test_are_told_apart_from_those_that_were_made_on_top(
        self, guest: Guest, system: str
    ) -> None:
        links = guest.links()

        assert [link.mac for link in links if link.real] == [MAC, OTHER]
        vlan = next(link for link in links if "100" in link.name)
        assert vlan.below == ({"FreeBSD": "vtnet1", "OpenBSD": "vio1"}[system],)

    def test_have_the_addresses_that_are_waited_for(self, ssh: SshGuest) -> None:
        port = Port("s", "nic1", "red", "red", MAC, ipv4=ip_interface("192.0.2.5/24"))

        assert Guest(ssh, ADDRESS).wait_addresses((port,), timeout=0) == ()

    def test_of_an_aggregate_have_their_own_mac(self) -> None:
        said = (
            "vtnet0: flags=1008943<UP> metric 0 mtu 1500\n\tether 52:54:00:00:00:aa\n"
            "\thwaddr 52:54:00:12:34:56\n"
            "lagg0: flags=1008843<UP> metric 0 mtu 1500\n\tether 52:54:00:00:00:aa\n"
            "\tlaggproto lacp lagghash l2,l3,l4\n\tlaggport: vtnet0 flags=1c<ACTIVE,COLLECTING>\n"
            "\tgroups: lagg\n"
        )

        port, lagg = ifconfig.parse(said)

        assert (port.mac, port.real) == (MAC, True)
        assert (lagg.below, lagg.real) == (["vtnet0"], False)

    @given(st.text(alphabet="inet6 /:%.x0f-\n\tvlan", max_size=200))
    def test_are_never_a_failure_whatever_is_said(self, text: str) -> None:
        for shown in ifconfig.parse(f"vtnet0: flags=0\n\tether {MAC}\n{text}"):
            assert all(ip_interface(address) for address in shown.addresses)


class TestItsDevices:
    def test_are_named_as_what_it_cannot_show(self, guest: Guest, mocker: MockerFixture) -> None:
        mocker.patch.object(guest_module, "_HOTPLUG", 0.0)
        where = PciAddress.parse("0000:25:00.0")
        device = PluggedDevice("gpu", "ua-gpu", where, guest_address=where)

        with pytest.raises(Unsupported, match=r"cannot show whether it has 0000:25:00.0 \(gpu\)"):
            guest.wait_devices([device], timeout=0)

    def test_are_not_called_invisible_if_it_does_not_answer(
        self, guest: Guest, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(guest_module, "_HOTPLUG", 0.0)
        mocker.patch.object(Bsd, "run", side_effect=TimedOut("no answer"))
        where = PciAddress.parse("0000:25:00.0")
        device = PluggedDevice("gpu", "ua-gpu", where, guest_address=where)

        with pytest.raises(TimedOut):
            guest.wait_devices([device], timeout=0)


def test_it_is_configured_by_its_own_way(guest: Guest, system: str) -> None:
    chosen = {"FreeBSD": FreeBsd, "OpenBSD": OpenBsd}[system]

    assert isinstance(manager(GuestRoot(guest), "vio1"), chosen)


def link(*addresses: str, vlan: int | None = None) -> ConfiguredLink:
    return ConfiguredLink("nic1", "vio1", OTHER, vlan, tuple(map(ip_interface, addresses)))


V4, V6, FILE = "198.51.100.7/27", "2001:db8:1::7/64", "/etc/hostname.vio1"
LINES = """\
# Begin of fabric-direct nic1
inet alias 198.51.100.7 255.255.255.224
inet6 alias 2001:db8:1::7 64
up
# End of fabric-direct nic1
"""


class TestOpenBsd:
    @pytest.fixture
    def told(self) -> ScriptedGuest:
        return ScriptedGuest()

    @pytest.fixture
    def root(self, told: ScriptedGuest) -> GuestRoot:
        return root_of(told)

    def test_gets_lines_in_the_interfaces_file_and_its_addresses_at_once(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        OpenBsd().keep(root, link(V4, V6))

        assert told.files[FILE] == LINES
        assert told.commands == [
            ("ifconfig", "vio1", "up"),
            ("ifconfig", "vio1", "inet", V4, "alias"),
            ("ifconfig", "vio1", "inet6", V6, "alias"),
        ]
        assert OpenBsd().keeps(root, link(V4, V6))
        assert not OpenBsd().keeps(root, link(V4))

    def test_has_the_images_lines_whole_also_if_the_last_has_no_line_break(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.files[FILE] = "inet autoconf"

        OpenBsd().keep(root, link(V4))

        assert told.files[FILE].startswith("inet autoconf\n# Begin of fabric-direct")
        assert OpenBsd().keeps(root, link(V4))
        OpenBsd().forget(root, "nic1")
        assert told.files == {FILE: "inet autoconf\n"}

    @pytest.mark.parametrize("former", ["", "inet autoconf\n"])
    def test_has_the_images_lines_when_ours_are_gone(
        self, told: ScriptedGuest, root: GuestRoot, former: str
    ) -> None:
        if former:
            told.files[FILE] = former
        OpenBsd().keep(root, link(V4))
        OpenBsd().keep(root, link(V6))
        assert told.files[FILE].startswith(former)
        assert "198.51.100.7" not in told.files[FILE]

        OpenBsd().forget(root, "nic1")

        assert told.files == ({FILE: former} if former else {})
        assert not OpenBsd().has(root, "nic1")

    def test_does_not_tag(self, told: ScriptedGuest, root: GuestRoot) -> None:
        with pytest.raises(Unsupported, match="VLAN 100"):
            OpenBsd().keep(root, link(V4, vlan=100))

        assert (told.files, told.commands) == ({}, [])

    @pytest.mark.parametrize("by", [FreeBsd(), OpenBsd()])
    def test_and_freebsd_lose_an_address_that_is_taken_back(
        self, told: ScriptedGuest, root: GuestRoot, by: Any
    ) -> None:
        told.links = (GuestInterface("vio1", OTHER, (V4, V6)),)

        _take(root, link(V4, V6), [by], but=link(V6))

        assert told.commands == [("ifconfig", "vio1", "inet", "198.51.100.7", "delete")]

    def test_freebsd_loses_a_vlan_interface_as_a_whole(
        self, told: ScriptedGuest, root: GuestRoot
    ) -> None:
        told.links = (GuestInterface("vio1.100", OTHER),)

        _take(root, link(V4, vlan=100), [FreeBsd()])

        assert told.commands == [("ifconfig", "vio1.100", "destroy")]


class TestItsRoot:
    def test_is_reached_by_doas_where_there_is_no_sudo(self) -> None:
        told = ScriptedGuest("ssh")
        told.answers["sudo",] = CommandResult(127, b"", b"sudo: not found")

        root = root_of(told, user="openbsd")
        root.do("ifconfig", "vio0")

        # The second is asked whether it has sudo, and the script says nothing.
        assert told.commands == [
            ("sudo", "-n", "ifconfig", "vio0"),
            ("doas", "-n", "ifconfig", "vio0"),
        ]

    def test_is_reached_by_doas_from_a_csh_whose_status_for_what_is_missing_is_another(
        self,
    ) -> None:
        told = ScriptedGuest("ssh")
        told.answers["sudo",] = CommandResult(1, b"", b"sudo: Command not found.")

        root_of(told, user="openbsd").do("ifconfig", "vio0")

        assert told.commands[-1] == ("doas", "-n", "ifconfig", "vio0")

    def test_stays_with_sudo_where_the_command_is_what_is_missing(self) -> None:
        told = ScriptedGuest("ssh")
        told.answers["sudo",] = CommandResult(127)
        told.scripts[scripts.HAS] = b"yes\n"

        assert root_of(told, user="debian").run("blkid").code == 127
        assert told.commands == [("sudo", "-n", "blkid")]


ARGUMENTS = (
    "it's",
    "two\nlines",
    "hey!you !! !x",
    '"$HOME" `id` \\0101 \\',
    "*?[a]{b,c}~",
    "grüße",
    "",
)


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox", "tcsh"])
class TestAUsersShell:
    """csh is FreeBSD's for users: a script of several lines in quotes was ``Unmatched '``."""

    def test_passes_every_argument_on(self, shell: str) -> None:
        script = 'for each; do\n  printf "<%s>" "$each"\ndone'

        ran = said_by(shell, _quoted(("sh", "-c", script, "sh", *ARGUMENTS)))

        assert ran.stdout.decode() == "".join(f"<{each}>" for each in ARGUMENTS)
        assert ran.stderr == b""

    def test_leaves_input_and_status_as_they_are(self, shell: str) -> None:
        ran = said_by(shell, _quoted(("sh", "-c", "cat\nexit 7")), b"\x00given\n")

        assert (ran.returncode, ran.stdout) == (7, b"\x00given\n")

    def test_says_what_fails_in_few_words(self, shell: str) -> None:
        ran = said_by(shell, _quoted(("nobody-has-this", "-c", "a\nb")))

        assert ran.returncode == 127
        assert ran.stderr.decode().startswith("sh: ")
        assert b"nobody-has-this" in ran.stderr
        assert len(ran.stderr) < 100

    def test_is_told_a_plain_command_as_it_is(self, shell: str) -> None:
        assert _quoted(("test", "-e", "/a b")) == "test -e '/a b'"
        assert said_by(shell, _quoted(("echo", "a  b"))).stdout == b"a  b\n"


def said_by(shell: str, command: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which(shell) or pytest.skip(f"there is no {shell}")
    argv = [program, "sh"] if shell == "busybox" else [program]
    return subprocess.run([*argv, "-c", command], input=given, capture_output=True, check=False)
