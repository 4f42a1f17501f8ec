"""USB devices that go with a PCI device: how they are found, and what a domain's words for one mean."""

from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import DeviceDomain, PciFunction
from fabric_direct.drivers.hosts.agent import sysfs
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.libvirt.passthrough import usb
from fabric_direct.drivers.libvirt.passthrough.cold_plug import FpgaDevice
from fabric_direct.errors import Conflict, DeviceClaimed, DeviceInUse, InvalidSliver
from fabric_direct.model import Fpga, PciAddress
from fabric_direct.site.config import AllowedDevice, Host, Site, UsbId, UsbPort
from tests.unit.pci_host import CONFIG, LIVE, Worker, plugged

JTAG = usb.UsbDevice(1, "1", 5, "0403", "6011")
ONE, OTHER = (usb.UsbDevice(2, f"1.{n}", n, "46f4", "0001") for n in (3, 4))
DEVICES = (JTAG, ONE, OTHER)
JTAG_ID, TWIN_ID = (UsbId(vendor=d.vendor, product=d.product) for d in (JTAG, ONE))
PORT = UsbPort(bus=2, port="1.3")


class Tree:
    """A sysfs and a procfs of our own."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        (self.sys / "bus/usb/devices").mkdir(parents=True)
        (self.sys / "class/block").mkdir(parents=True)
        self.write(self.proc / "self/mountinfo", "")
        self.write(self.proc / "swaps", "Filename Type Size Used Priority\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add(self, name: str, device: usb.UsbDevice, kind: str = "00") -> Path:
        directory = self.sys / "devices/pci0000:00/0000:00:06.0/usb2" / name
        attributes = {
            "busnum": device.bus,
            "devpath": device.port,
            "devnum": device.device,
            "idVendor": device.vendor,
            "idProduct": device.product,
            "bDeviceClass": kind,
        }
        for attribute, value in attributes.items():
            self.write(directory / attribute, f"{value}\n")
        (self.sys / "bus/usb/devices" / name).symlink_to(directory)
        (self.sys / "bus/usb/devices" / f"{name}:1.0").symlink_to(directory)
        return directory

    def add_disk(self, device: Path, name: str, number: str) -> Path:
        disk = device / f"{device.name}:1.0/host6/block" / name
        self.write(disk / "dev", f"{number}\n")
        (disk / "holders").mkdir()
        (self.sys / "class/block" / name).symlink_to(disk)
        return disk


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path)
    monkeypatch.setattr(sysfs, "SYS", str(made.sys))
    monkeypatch.setattr(sysfs, "PROC", str(made.proc))
    return made


def survey() -> tuple[usb.UsbDevice, ...]:
    return usb.devices(LocalHost(), timeout=60)


class TestTheDevicesOfAHost:
    def test_a_host_without_usb_has_none(self, tree: Tree) -> None:
        assert survey() == ()

    def test_a_device_is_told_by_its_port_its_number_and_its_ids(self, tree: Tree) -> None:
        tree.add("2-1.3", ONE)
        tree.add("1-1", JTAG)
        assert survey() == (JTAG, ONE)

    def test_hubs_are_left_out(self, tree: Tree) -> None:
        tree.add("usb2", usb.UsbDevice(2, "0", 1, "1d6b", "0003"), kind="09")
        tree.add("2-1", usb.UsbDevice(2, "1", 2, "05e3", "0608"), kind="09")
        assert survey() == ()

    def test_one_that_is_just_leaving_is_left_out(self, tree: Tree) -> None:
        for attribute in tree.add("2-1.3", ONE).iterdir():
            attribute.unlink()
        assert survey() == ()

    def test_what_the_host_mounts_or_swaps_to_is_a_use_of_the_device_it_is_on(
        self, tree: Tree
    ) -> None:
        disk = tree.add("2-1.3", ONE)
        tree.add_disk(disk, "sda1", "8:1")
        tree.add_disk(disk, "sda2", "8:2")
        tree.add_disk(tree.add("2-1.4", OTHER), "sdb", "8:16")
        line = r"36 35 8:1 / /srv/two\040words rw - ext4 /dev/sda1 rw"
        tree.write(tree.proc / "self/mountinfo", f"{line}\n")
        tree.write(tree.proc / "swaps", "Filename Type\n/dev/sda2 partition 1 0 -2\n")
        used, idle = survey()
        assert used.uses == ("sda1 is mounted on /srv/two words", "sda2 is swap space")
        assert idle.uses == ()

    def test_a_disk_that_is_part_of_a_volume_is_a_use(self, tree: Tree) -> None:
        disk = tree.add_disk(tree.add("2-1.3", ONE), "sda", "8:0")
        (disk / "holders/dm-0").mkdir()
        (found,) = survey()
        assert found.uses == ("sda is part of dm-0",)


class TestWhatTheAllowListMeans:
    @pytest.mark.parametrize(("name", "device"), [(JTAG_ID, JTAG), (PORT, ONE)], ids=str)
    def test_the_device_with_the_ids_or_at_the_port(
        self, name: UsbId | UsbPort, device: usb.UsbDevice
    ) -> None:
        assert usb.the_one(name, DEVICES, "w1") == device

    def test_a_device_that_is_not_plugged_in_is_refused(self) -> None:
        with pytest.raises(InvalidSliver, match=r"no USB device at bus 2, port 1\.5.*plug it in"):
            usb.the_one(UsbPort(bus=2, port="1.5"), DEVICES, "w1")

    def test_one_of_several_with_these_ids_cannot_be_chosen(self) -> None:
        with pytest.raises(InvalidSliver, match=r"2 USB device 46f4:0001.*by bus and port") as e:
            usb.the_one(TWIN_ID, DEVICES, "w1")
        assert e.value.field == "bdf[0]"


class TestWhatADomainNames:
    """libvirt's rules, which tests on a worker see it follow."""

    @pytest.mark.parametrize(
        ("source", "chosen"),
        [
            (usb.UsbSource("0403", "6011"), JTAG),
            (usb.UsbSource("46f4", "0001"), None),
            (usb.UsbSource("dead", "beef"), None),
            (usb.UsbSource(bus=2, device=3), ONE),
            (usb.UsbSource(bus=2, device=9), None),
            (usb.UsbSource("46f4", "0001", 2, 4), OTHER),
            (usb.UsbSource("0403", "6011", 1, 9), None),
            (usb.UsbSource("46f4", "0001", 1, 5), None),
        ],
        ids=[
            "the only one with the ids",
            "one of two with the ids",
            "none with the ids",
            "by number",
            "by a number that is nobody's",
            "by ids and number",
            "by ids, with a number of the past",
            "a number that is now another device's",
        ],
    )
    def test_the_device_that_it_gets(
        self, source: usb.UsbSource, chosen: usb.UsbDevice | None
    ) -> None:
        assert source.chosen(DEVICES) == chosen

    def test_it_may_get_any_with_the_ids_alone(self) -> None:
        assert usb.UsbSource("46f4", "0001").candidates(DEVICES) == [ONE, OTHER]

    def test_what_is_named_by_its_port_is_pinned_to_its_ids_and_its_number(self) -> None:
        by_port = usb.UsbPart.of("sliver", "fpga", 1, PORT, ONE)
        assert by_port.alias == "ua-sliver-fpga-usb1"
        assert by_port.source == usb.UsbSource("46f4", "0001", 2, 3)
        assert usb.UsbPart.of("sliver", "fpga", 0, JTAG_ID, JTAG).source == usb.UsbSource(
            "0403", "6011"
        )


class TestOwners:
    def test_a_device_that_nobody_has_is_granted(self) -> None:
        usb.refuse([ONE], {OTHER: "other"}, "w1")

    def test_a_device_of_a_domain_is_refused(self) -> None:
        with pytest.raises(DeviceClaimed, match=r"domain other has USB device 46f4:0001 at bus 2"):
            usb.refuse([JTAG, ONE], {ONE: "other"}, "w1")

    def test_a_device_that_the_host_uses_is_refused(self) -> None:
        used = usb.UsbDevice(2, "1.3", 3, "46f4", "0001", uses=("sda is mounted on /srv",))
        with pytest.raises(DeviceInUse, match="sda is mounted on /srv"):
            usb.refuse([used], {}, "w1")


class TestAnFpgaThatOthersPluggedIn:
    """Which USB devices of its domain belong to it is not known: it leaves with its server."""

    CARD = PciAddress.parse("29:00.0")
    OWN = DeviceDomain("sliver", "11111111-1111-1111-1111-111111111111")
    FPGA = Fpga(id="fpga", bdf=(CARD,))

    @pytest.fixture
    def devices(self, tmp_path: Path, mocker: MockerFixture) -> FpgaDevice:
        allowed = (AllowedDevice(type="FPGA", bdf=self.CARD),)
        site = Site(site="TEST", state_dir=tmp_path, hosts={"w1": Host(devices=allowed)})
        host = Worker((PciFunction(self.CARD, "10ee", "903f", driver="vfio-pci"),))
        host.put_in(site, mocker)
        domain = host.add_domain("instance-1", str(self.OWN.domain))
        domain.live = True
        domain.devices = {LIVE: [plugged(self.CARD)], CONFIG: [plugged(self.CARD, "")]}
        made = FpgaDevice(site, "w1")
        made.adopt(self.FPGA, self.OWN)
        return made

    def test_is_kept_by_a_modification_that_wants_it(self, devices: FpgaDevice) -> None:
        devices.check(self.FPGA, self.OWN)

        assert devices.differences(self.FPGA, self.OWN) == ()
        assert not devices.pending(self.OWN)

    def test_is_not_said_to_be_taken_out_by_one_that_does_not(self, devices: FpgaDevice) -> None:
        assert devices.keeps(self.OWN, "fpga")

        with pytest.raises(Conflict, match="delete the sliver"):
            devices.detach(self.OWN, "fpga", timeout=1)

        assert [record.component for record in devices.records("sliver")] == ["fpga"]
