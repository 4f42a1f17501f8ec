"""Where a guest sees its devices: a real shell reads a made-up sysfs; guests that answer nonsense."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric_direct.drivers.contract import (
    CommandResult,
    DeviceDomain,
    GuestAddress,
    GuestInterface,
    HostDrivers,
    PluggedDevice,
    Server,
    VfSettings,
)
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest, GuestDevice
from fabric_direct.errors import DriverError, TimedOut, Unreachable
from fabric_direct.handlers.vm.observe import observe_server, tenant_of
from fabric_direct.model import NodeSliver, Observed, ObservedGuest, PciAddress, State

ADDRESS = GuestAddress("sliver-1", "sliver-1-node", "root")
SHELLS = [
    pytest.param(argv, marks=pytest.mark.skipif(not shutil.which(argv[0]), reason=f"no {argv[0]}"))
    for argv in (("sh",), ("busybox", "sh"), ("bash", "--posix"))
]
BRIDGE, ETHERNET, NVME, DISPLAY = "0x060400", "0x020000", "0x010802", "0x030000"
PORT = "0000:00:02.3"
MAC = "52:54:00:00:00:01"
OTHER_MAC = "52:54:00:00:00:02"


def plugged(
    address: str = "0000:04:00.0", port: str | None = PORT, mac: str | None = None, n: int = 0
) -> PluggedDevice:
    """A function where libvirt put it: bus 4 is the index of its controller, not the guest's number."""
    return PluggedDevice(
        component="dev",
        alias=f"ua-sliver-1-dev-{n}",
        host_address=PciAddress.parse(f"0000:81:00.{n}"),
        guest_address=PciAddress.parse(address),
        guest_port=PciAddress.parse(port) if port else None,
        mac=mac,
    )


class Sysfs:
    """A tree as Linux shows it: devices below their ports, and links to them by class."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("bus/pci/devices", "class/net", "block"):
            (root / directory).mkdir(parents=True)
        (root / "bus/pci/rescan").touch()

    def function(self, *path: str, kind: str) -> Path:
        """A PCI function by the way to it: host bridge, ports, address."""
        device = self.root.joinpath("devices", *path)
        device.mkdir()
        (device / "class").write_text(f"{kind}\n")
        self._link("bus/pci/devices", device)
        return device

    def root_port(self, address: str = PORT, host: str = "pci0000:00") -> tuple[str, str]:
        (self.root / "devices" / host).mkdir(parents=True, exist_ok=True)
        self.function(host, address, kind=BRIDGE)
        return host, address

    def interface(self, device: Path, name: str, mac: str) -> Path:
        interface = device / "net" / name
        interface.mkdir(parents=True)
        (interface / "address").write_text(f"{mac}\n")
        self._link("class/net", interface)
        return interface

    def made(self, name: str, below: str) -> None:
        """An interface that the guest made on top of another."""
        directory = self.root / "devices/virtual/net" / name
        directory.mkdir(parents=True)
        self._link("class/net", directory)
        (directory / f"lower_{below}").symlink_to(directory)

    def disk(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._link("block", directory)

    def _link(self, where: str, target: Path) -> None:
        link = self.root / where / target.name
        link.symlink_to(os.path.relpath(target, link.parent))


class ShellGuest:
    """A guest whose shell is one of this machine's, and whose ``/sys`` is a made-up one."""

    def __init__(self, sysfs: Sysfs, shell: tuple[str, ...] = ("sh",), path: str = "") -> None:
        self.sysfs, self.shell = sysfs, shell
        self.environment = {"PATH": f"{path}:{os.environ['PATH']}"}
        self.after: Callable[[], object] = lambda: None
        """What happens in the guest after a look."""
        self.looks = 0
        self.has: dict[str, tuple[str, ...]] = {}
        """Addresses by interface."""

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        return tuple(GuestInterface(name, MAC, addresses) for name, addresses in self.has.items())

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        assert guest == ADDRESS
        assert argv[0] == "sh"
        inside = [a.replace("/sys", str(self.sysfs.root)) if a[:4] == "/sys" else a for a in argv]
        command = [*self.shell, *inside[1:]]
        done = subprocess.run(
            command,
            check=False,
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=timeout,
        )
        self.looks += 1
        self.after()
        return CommandResult(done.returncode, done.stdout, done.stderr)


class AnsweringGuest:
    """A guest that answers anything with the same, or with an error."""

    def __init__(self, answer: bytes | DriverError) -> None:
        self.answer = answer

    def run(self, *_: Any, timeout: float) -> CommandResult:
        if isinstance(self.answer, DriverError):
            raise self.answer
        return CommandResult(0, self.answer)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path / "sys")


@pytest.fixture(params=SHELLS)
def guest(sysfs: Sysfs, request: pytest.FixtureRequest) -> Guest:
    return guest_of(ShellGuest(sysfs, request.param))


def guest_of(driver: Any) -> Guest:
    return Guest(driver, ADDRESS)


def the_device(guest: Guest, device: PluggedDevice) -> GuestDevice | None:
    return guest.devices([device]).get(device.alias)


class TestDevices:
    def test_are_found_below_their_root_port_on_the_bus_that_the_guest_numbered(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        nic = sysfs.function(*sysfs.root_port(), "0000:09:00.0", kind=ETHERNET)
        sysfs.interface(nic, "enp9s0", MAC)

        found = the_device(guest, plugged("0000:04:00.0"))

        assert found == GuestDevice("0000:09:00.0", ETHERNET, ("enp9s0",), macs=(MAC,))

    def test_of_other_ports_are_not_taken_for_them(self, guest: Guest, sysfs: Sysfs) -> None:
        sysfs.function(*sysfs.root_port("0000:00:02.4"), "0000:04:00.0", kind=DISPLAY)
        sysfs.function(*sysfs.root_port(PORT, "pci0001:00"), "0001:01:00.0", kind=DISPLAY)

        assert the_device(guest, plugged("0000:04:00.0")) is None

    def test_are_all_found_with_one_command(self, guest: Guest, sysfs: Sysfs) -> None:
        sysfs.function(*sysfs.root_port("0000:00:02.0"), "0000:01:00.0", kind=DISPLAY)
        sysfs.function(*sysfs.root_port("0000:00:02.1"), "0000:02:00.0", kind=NVME)
        devices = [plugged(port="0000:00:02.0", n=0), plugged(port="0000:00:02.1", n=1)]

        found = guest.devices(devices)

        assert {alias: device.name for alias, device in found.items()} == {
            "ua-sliver-1-dev-0": "0000:01:00.0",
            "ua-sliver-1-dev-1": "0000:02:00.0",
        }
        assert guest.driver.looks == 1  # type: ignore[attr-defined]

    def test_with_several_functions_in_one_slot_are_told_apart_by_function(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        port = sysfs.root_port()
        sysfs.function(*port, "0000:05:00.0", kind=DISPLAY)
        sysfs.function(*port, "0000:05:00.1", kind="0x040300")

        devices = [plugged("0000:04:00.0", n=0), plugged("0000:04:00.1", n=1)]

        names = [device.name for device in guest.devices(devices).values()]
        assert names == ["0000:05:00.0", "0000:05:00.1"]

    def test_behind_a_switch_below_their_port_are_found_and_its_bridges_are_not_they(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        path = sysfs.root_port()
        for bridge in ("0000:05:00.0", "0000:06:00.0"):
            sysfs.function(*path, bridge, kind=BRIDGE)
            path = (*path, bridge)  # type: ignore[assignment]
        nic = sysfs.function(*path, "0000:07:00.0", kind=ETHERNET)
        sysfs.interface(nic, "eth0", MAC)

        assert the_device(guest, plugged()) == GuestDevice(
            "0000:07:00.0", ETHERNET, ("eth0",), macs=(MAC,)
        )

    def test_that_could_be_either_of_two_are_not_named(self, guest: Guest, sysfs: Sysfs) -> None:
        path = sysfs.root_port()
        sysfs.function(*path, "0000:05:00.0", kind=BRIDGE)
        sysfs.function(*path, "0000:05:01.0", kind=BRIDGE)
        sysfs.function(*path, "0000:05:00.0", "0000:06:00.0", kind=DISPLAY)
        sysfs.function(*path, "0000:05:01.0", "0000:07:00.0", kind=DISPLAY)

        assert the_device(guest, plugged()) is None

    def test_on_the_root_bus_itself_have_the_address_that_libvirt_gave_them(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        (sysfs.root / "devices/pci0000:00").mkdir(parents=True)
        sysfs.function("pci0000:00", "0000:00:05.0", kind=DISPLAY)

        found = the_device(guest, plugged("0000:00:05.0", port=None))

        assert found == GuestDevice("0000:00:05.0", DISPLAY)

    def test_below_a_host_bridge_of_the_firmware_s_platform_are_found(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        port = sysfs.root_port(host="platform/4010000000.pcie/pci0000:00")
        sysfs.function(*port, "0000:02:00.0", kind=DISPLAY)

        assert the_device(guest, plugged()) == GuestDevice("0000:02:00.0", DISPLAY)

    def test_of_a_stopped_node_are_nowhere(self, guest: Guest, sysfs: Sysfs) -> None:
        sysfs.function(*sysfs.root_port(), "0000:04:00.0", kind=DISPLAY)

        stopped = PluggedDevice("dev", "ua-sliver-1-dev-0", PciAddress.parse("81:00.0"))

        assert guest.devices([stopped]) == {}

    def test_of_a_guest_without_pci_are_nowhere(self, guest: Guest) -> None:
        assert guest.devices([plugged()]) == {}


class TestInterfacesAndDisks:
    def test_of_virtio_lie_deeper_below_the_function(self, guest: Guest, sysfs: Sysfs) -> None:
        card = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=ETHERNET)
        sysfs.interface(card / "virtio0", "eth0", MAC)
        sysfs.disk(card / "virtio0/block/vda")

        found = the_device(guest, plugged())

        assert found == GuestDevice("0000:01:00.0", ETHERNET, ("eth0",), ("vda",), macs=(MAC,))

    def test_a_nic_with_several_interfaces_has_all_of_them(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        nic = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=ETHERNET)
        sysfs.interface(nic, "ens1p0", MAC)
        sysfs.interface(nic, "ens1p1", OTHER_MAC)

        found = the_device(guest, plugged())

        assert found
        assert found.interfaces == ("ens1p0", "ens1p1")

    def test_a_vf_s_interface_is_the_one_with_its_mac(self, guest: Guest, sysfs: Sysfs) -> None:
        vf = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=ETHERNET)
        sysfs.interface(vf, "eth1", MAC)
        sysfs.interface(vf, "eth2", OTHER_MAC)

        found = the_device(guest, plugged(mac=MAC.upper()))

        assert found
        assert found.interfaces == ("eth1",)

    def test_a_vf_in_a_bond_keeps_its_own_mac_there(self, guest: Guest, sysfs: Sysfs) -> None:
        vf = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=ETHERNET)
        own = sysfs.interface(vf, "eth1", OTHER_MAC) / "bonding_slave"
        own.mkdir()
        (own / "perm_hwaddr").write_text(f"{MAC}\n")

        found = the_device(guest, plugged(mac=MAC))

        assert found
        assert found.interfaces == ("eth1",)

    def test_interfaces_without_a_device_belong_to_none(self, guest: Guest, sysfs: Sysfs) -> None:
        sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=ETHERNET)
        (sysfs.root / "devices/virtual").mkdir()
        sysfs.interface(sysfs.root / "devices/virtual", "lo", "00:00:00:00:00:00")
        (sysfs.root / "class/net/bonding_masters").touch()

        assert the_device(guest, plugged()) == GuestDevice("0000:01:00.0", ETHERNET)

    def test_a_drive_has_its_namespaces(self, guest: Guest, sysfs: Sysfs) -> None:
        drive = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=NVME)
        sysfs.disk(drive / "nvme/nvme0/nvme0n1")
        sysfs.disk(drive / "nvme/nvme0/nvme0n2")

        found = the_device(guest, plugged())

        assert found
        assert found.disks == ("nvme0n1", "nvme0n2")

    def test_a_drive_of_several_controllers_has_the_disk_that_can_be_opened(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        drive = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=NVME)
        sysfs.disk(drive / "nvme/nvme3/nvme1c3n1")
        sysfs.disk(sysfs.root / "devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1")

        found = the_device(guest, plugged())

        assert found
        assert found.disks == ("nvme1n1",)


class TestWaitDevices:
    def test_returns_when_all_are_seen(self, guest: Guest, sysfs: Sysfs) -> None:
        sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=DISPLAY)

        guest.wait_devices([plugged()], timeout=60)

        assert guest.driver.looks == 1  # type: ignore[attr-defined]

    def test_waits_for_one_that_comes_late(self, guest: Guest, sysfs: Sysfs) -> None:
        port = sysfs.root_port()
        driver: Any = guest.driver
        driver.after = lambda: (
            driver.looks == 1 and sysfs.function(*port, "0000:01:00.0", kind=DISPLAY)
        )

        guest.wait_devices([plugged()], timeout=60)

        assert driver.looks == 2
        assert not asked_to_rescan(sysfs)

    def test_waits_for_the_interface_that_its_driver_makes(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        nic = sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=ETHERNET)
        driver: Any = guest.driver
        driver.after = lambda: driver.looks == 2 and sysfs.interface(nic, "eth1", MAC)

        guest.wait_devices([plugged(mac=MAC)], timeout=60)

        assert driver.looks == 3
        assert guest.devices([plugged(mac=MAC)])["ua-sliver-1-dev-0"].interfaces == ("eth1",)

    def test_does_not_fail_for_one_that_has_no_driver_in_the_guest(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        sysfs.function(*sysfs.root_port(), "0000:01:00.0", kind=NVME)

        guest.wait_devices([plugged()], timeout=0.3)

        assert not asked_to_rescan(sysfs)

    def test_tells_a_guest_that_does_not_see_one_to_rescan_and_looks_again(
        self, guest: Guest, sysfs: Sysfs
    ) -> None:
        port = sysfs.root_port()

        def found_by_rescan() -> None:
            if (
                asked_to_rescan(sysfs)
                and not (sysfs.root / "bus/pci/devices/0000:01:00.0").exists()
            ):
                sysfs.function(*port, "0000:01:00.0", kind=DISPLAY)

        driver: Any = guest.driver
        driver.after = found_by_rescan

        guest.wait_devices([plugged()], timeout=0.3)

        assert guest.devices([plugged()])["ua-sliver-1-dev-0"].name == "0000:01:00.0"

    def test_names_those_that_are_not_seen_in_the_end(self, guest: Guest, sysfs: Sysfs) -> None:
        sysfs.function(*sysfs.root_port("0000:00:02.0"), "0000:01:00.0", kind=DISPLAY)
        sysfs.root_port("0000:00:02.1")
        devices = [plugged(port="0000:00:02.0", n=0), plugged(port="0000:00:02.1", n=1)]

        with pytest.raises(TimedOut) as error:
            guest.wait_devices(devices, timeout=0.3)

        assert error.value.what == "the guest does not see 0000:81:00.1 (dev)"
        assert error.value.where == "sliver-1-node"
        assert "its PCI buses were rescanned" in error.value.why
        assert "restart the guest" in error.value.remedy

    def test_says_why_a_guest_could_not_be_told_to_look(self) -> None:
        silent = guest_of(AnsweringGuest(Unreachable("the agent does not answer")))

        with pytest.raises(TimedOut, match="the agent does not answer"):
            silent.wait_devices([plugged()], timeout=0.1)


def asked_to_rescan(sysfs: Sysfs) -> bool:
    return (sysfs.root / "bus/pci/rescan").read_text() == "1\n"


class TestRescan:
    def test_is_asked_of_the_kernel(self, guest: Guest, sysfs: Sysfs) -> None:
        guest.rescan_pci()

        assert asked_to_rescan(sysfs)

    @pytest.mark.parametrize("shell", SHELLS)
    def test_is_asked_by_sudo_where_the_user_may_not(
        self, shell: tuple[str, ...], sysfs: Sysfs, tmp_path: Path
    ) -> None:
        # Root may write to anything but what is not there; sudo is told to write into its place.
        (sysfs.root / "bus/pci/rescan").unlink()
        guest = guest_of(ShellGuest(sysfs, shell, path=str(sudo(tmp_path, '"$@"'))))

        guest.rescan_pci()

        assert asked_to_rescan(sysfs)
        assert (tmp_path / "asked").read_text() == f"-n tee {sysfs.root}/bus/pci/rescan\n"

    @pytest.mark.parametrize("shell", SHELLS)
    def test_that_the_user_may_not_ask_for_is_an_error_in_sudo_s_words(
        self, shell: tuple[str, ...], sysfs: Sysfs, tmp_path: Path
    ) -> None:
        (sysfs.root / "bus/pci/rescan").unlink()
        refusal = "echo 'sudo: a password is required' >&2; exit 1"
        guest = guest_of(ShellGuest(sysfs, shell, path=str(sudo(tmp_path, refusal))))

        with pytest.raises(DriverError, match="sudo: a password is required"):
            guest.rescan_pci()


def sudo(directory: Path, what: str) -> Path:
    """Make a ``sudo`` that writes down what it is asked for, and return where it is."""
    program = directory / "bin/sudo"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >{directory}/asked\nshift\n{what}\n')
    program.chmod(0o755)
    return program.parent


WORDS = st.sampled_from(
    [
        "pci",
        "net",
        "block",
        "pci0000:00",
        PORT,
        "0000:05:00.0",
        "sys",
        "devices",
        "nvme0c1n1",
        MAC,
        "",
        "..",
        "eth1",
        BRIDGE,
        ETHERNET,
        "\x1b[31m",
        "ä",
        "\ud800",
        "\0",
    ]
)
LINES = st.lists(st.tuples(WORDS, st.lists(WORDS, max_size=7), WORDS), max_size=20).map(
    lambda lines: "\n".join(
        f"{kind} /{'/'.join(path)} {value}" for kind, path, value in lines
    ).encode(errors="surrogatepass")
)
DEVICES = [
    plugged(),
    plugged(mac=MAC, n=1),
    plugged("0000:00:02.3", port=None, n=2),
]


class TestNonsense:
    @given(st.one_of(st.binary(), LINES))
    @example(b"pci /sys/pci0000:00/0000:00:02.3/!")
    def test_is_passed_over(self, answer: bytes) -> None:
        found = guest_of(AnsweringGuest(answer)).devices(DEVICES)

        assert found.keys() <= {device.alias for device in DEVICES}
        for device in found.values():
            assert PciAddress.parse(device.name)
            names = (*device.interfaces, *device.disks, *device.macs)
            assert all(name.isascii() and name.isprintable() for name in names)

    def test_around_an_answer_does_not_hide_it(self) -> None:
        answer = (
            b"motd: \xff\xfe\n\n"
            b"pci /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0 0x020000\r\n"
            b"net /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0/net/eth1 52:54:00:00:00:01\n"
            b"net /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0/net/\x1b[2J 52:54:00:00:00:01\n"
        )

        found = guest_of(AnsweringGuest(answer)).devices([plugged(mac=MAC)])

        assert found["ua-sliver-1-dev-0"] == GuestDevice(
            "0000:05:00.0", "0x020000", ("eth1",), macs=(MAC,)
        )

    def test_without_end_is_read_in_one_go(self) -> None:
        endless = b"pci /pci0000:00" + b"/0000:05:00.0" * 200_000 + b"!"

        assert guest_of(AnsweringGuest(endless)).devices(DEVICES) == {}

    def test_of_a_guest_that_does_not_answer_there_is_none(self) -> None:
        silent = AnsweringGuest(Unreachable("the agent does not answer"))

        assert guest_of(silent).devices(DEVICES) == {}


VF = PluggedDevice(
    component="dev",
    alias="ua-sliver-1-dev-0",
    host_address=PciAddress.parse("0000:81:00.1"),
    guest_address=PciAddress.parse("0000:04:00.0"),
    guest_port=PciAddress.parse(PORT),
    mac=MAC,
    vlan=304,
    settings=VfSettings(mac=MAC, vlan=304, max_tx_rate=100),
    bridge_mode="vepa",
)


class Observing:
    """A running server with one SharedNIC, and a guest that sees it."""

    def __init__(self, vm: Callable[..., NodeSliver], cloud: bool = False) -> None:
        nic = {"type": "SharedNIC", "id": "dev", "bdf": ["0000:81:00.1"]}
        sliver = vm(components=(nic,))
        self.server = Server(sliver.id, "instance-7", State.RUNNING, 1, 1024, sliver.stamp())
        self.asked: list[DeviceDomain] = []
        self.devices = (VF,)
        nothing = SimpleNamespace(ports=lambda _: ())
        driver: Any = SimpleNamespace(plugged=self._plugged)
        compute: Any = SimpleNamespace(cloud=cloud)
        network: Any = nothing
        self.drivers = HostDrivers("w1", compute, network, network, devices={"SharedNIC": driver})

    def _plugged(self, tenant: DeviceDomain) -> tuple[PluggedDevice, ...]:
        self.asked.append(tenant)
        return self.devices

    def observe(self, guest: Guest | None) -> Observed:
        return observe_server(self.drivers, self.server, guest)


class TestObservation:
    def test_tells_of_a_device_what_the_host_and_the_guest_say(
        self, vm: Callable[..., NodeSliver], sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nic = sysfs.function(*sysfs.root_port(), "0000:09:00.0", kind=ETHERNET)
        sysfs.interface(nic, "enp9s0", MAC)
        sysfs.made("enp9s0.100", "enp9s0")
        sysfs.made("br0", "enp9s0.100")
        sysfs.made("br1", "eth0")
        shell = ShellGuest(sysfs)
        shell.has = {
            "enp9s0": (),
            "enp9s0.100": ("10.1.0.5/24",),
            "br0": ("fd01::5/64",),
            "br1": ("10.2.0.5/24",),
        }
        guest = guest_of(shell)
        monkeypatch.setattr(guest, "observe", lambda: ObservedGuest(reachable=True))
        monkeypatch.setattr(guest, "interfaces", dict)

        [device] = Observing(vm).observe(guest).devices

        assert device.model_dump(mode="json") == {
            "component": "dev",
            "host_address": "0000:81:00.1",
            "guest_address": "0000:04:00.0",
            "guest_name": "0000:09:00.0",
            "guest_interfaces": ["enp9s0"],
            "guest_macs": [MAC],
            "guest_addresses": ["10.1.0.5/24", "fd01::5/64"],
            "alias": "ua-sliver-1-dev-0",
            "mac": MAC,
            "vlan": 304,
            "bandwidth": 100,
            "bridge_mode": "vepa",
        }

    def test_without_a_guest_to_ask_tells_what_the_host_says(
        self, vm: Callable[..., NodeSliver]
    ) -> None:
        [device] = Observing(vm).observe(None).devices

        assert (device.guest_name, device.guest_interfaces) == (None, ())
        assert (device.mac, device.bandwidth) == (MAC, 100)

    @pytest.mark.parametrize("settings", [None, VfSettings(), VfSettings(max_tx_rate=0)])
    def test_of_a_device_without_a_limit_tells_none(
        self, vm: Callable[..., NodeSliver], settings: VfSettings | None
    ) -> None:
        observing = Observing(vm)
        observing.devices = (PluggedDevice("dev", VF.alias, VF.host_address, settings=settings),)

        [device] = observing.observe(None).devices

        assert device.bandwidth is None

    @pytest.mark.parametrize(("cloud", "domain"), [(False, None), (True, "instance-7")])
    def test_asks_for_the_devices_of_the_domain_that_a_cloud_made(
        self, vm: Callable[..., NodeSliver], cloud: bool, domain: str | None
    ) -> None:
        observing = Observing(vm, cloud)

        observing.observe(None)

        assert observing.asked == [DeviceDomain("sliver-1", domain)]
        assert tenant_of(observing.drivers, observing.server) == DeviceDomain("sliver-1", domain)


@pytest.mark.parametrize("error", [Unreachable("it timed out"), TimedOut("no answer")])
def test_a_guest_that_falls_silent_while_it_boots_is_waited_for(error: Exception) -> None:
    answers = iter([error, False, True])

    def boot_finished(_: GuestAddress) -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    driver: Any = SimpleNamespace(
        boot_finished=boot_finished, run=lambda *_, timeout: CommandResult(1)
    )

    assert Guest(driver, ADDRESS).wait_boot({Boot.FINISHED}, timeout=60) is Boot.FINISHED
    assert list(answers) == []


def test_of_a_guest_that_does_not_let_its_files_be_read_the_boot_is_not_known() -> None:
    def boot_finished(_: GuestAddress) -> bool:
        raise DriverError("guest-file-open has been disabled")

    driver: Any = SimpleNamespace(boot_finished=boot_finished)

    assert Guest(driver, ADDRESS).wait_boot({Boot.FINISHED}, timeout=0) is Boot.UNKNOWN
