"""What the doctor finds, and what it advises."""

import os
import pwd
import stat
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from fabric_direct.doctor import Verdict, daemon, drivers, examine, files, libraries, machine
from fabric_direct.drivers.libvirt.connection import connections
from fabric_direct.errors import InvalidSite, Unreachable
from fabric_direct.model import Operation, SliverRef
from fabric_direct.model.networks import FlatDhcpNetwork, FlatNetwork, VlanNetwork
from fabric_direct.site import installed
from fabric_direct.site.config import Host, Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.sliver_types import SliverTypes
from tests.functional.ssh_server import new_key

QEMU = pwd.struct_passwd(("qemu-user", "x", 64055, 64055, "", "/", "/bin/false"))


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestLibraries:
    def test_what_is_there_is_named_with_its_version(self) -> None:
        found = libraries.check_libraries()
        assert found.verdict is Verdict.OK
        assert "libvirt-python" in found.found

    def test_a_library_that_cannot_be_loaded_fails_by_its_name(self, mocker: MockerFixture) -> None:
        mocker.patch.object(
            libraries, "import_module", side_effect=ImportError("libvirt.so.0: no such file")
        )
        found = libraries.check_libraries()
        assert found.verdict is Verdict.FAIL
        assert "libvirt-python: libvirt.so.0" in found.found


class TestLibvirt:
    def test_versions_are_told(self, mocker: MockerFixture) -> None:
        connection = mocker.Mock()
        connection.getVersion.return_value, connection.getLibVersion.return_value = (
            7_002_022,
            9_000_000,
        )
        mocker.patch.object(connections, "connect", return_value=connection)
        found = daemon.check_libvirt("localhost", Host(), 5.0)
        assert (found.verdict, found.found) == (
            Verdict.OK,
            "qemu:///system: libvirt 9.0.0, QEMU 7.2.22",
        )

    def test_a_daemon_that_does_not_answer_fails_with_how_to_start_it(
        self, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(
            connections,
            "connect",
            side_effect=Unreachable("cannot connect to libvirt", why="refused"),
        )
        found = daemon.check_libvirt("localhost", Host(), 5.0)
        assert found.verdict is Verdict.FAIL
        assert "refused" in found.found
        assert "systemctl start libvirtd" in found.remedy

    def test_a_remote_daemon_fails_with_how_to_try_it_by_hand(self, mocker: MockerFixture) -> None:
        mocker.patch.object(
            connections, "connect", side_effect=Unreachable("cannot connect to libvirt")
        )
        found = daemon.check_libvirt("w1", Host(libvirt="qemu+ssh://root@w1/system"), 5.0)
        assert "virsh -c" in found.remedy

    @pytest.mark.parametrize(
        ("uri", "local"),
        [
            ("qemu:///system", True),
            ("qemu+unix:///system", True),
            ("qemu+ssh://root@w1/system", False),
        ],
    )
    def test_a_host_without_a_name_in_its_uri_is_this_machine(
        self, uri: str, *, local: bool
    ) -> None:
        assert daemon.is_local(Host(libvirt=uri)) is local


class TestKvm:
    def test_a_missing_device_is_a_warning_because_qemu_emulates(self, tmp_path: Path) -> None:
        found = machine.check_kvm("auto", tmp_path / "kvm")
        assert found.verdict is Verdict.WARN
        assert "QEMU emulates" in found.found
        assert "virt_type: qemu" in found.remedy

    def test_a_device_that_does_not_answer_as_kvm_is_a_warning(self, tmp_path: Path) -> None:
        assert machine.check_kvm("auto", touch(tmp_path / "kvm")).verdict is Verdict.WARN

    def test_it_fails_where_the_site_insists_on_kvm(self, tmp_path: Path) -> None:
        assert machine.check_kvm("kvm", tmp_path / "kvm").verdict is Verdict.FAIL

    def test_it_is_not_looked_at_where_the_site_wants_emulation(self, tmp_path: Path) -> None:
        assert machine.check_kvm("qemu", tmp_path / "kvm").verdict is Verdict.INFO

    def test_a_virtual_machine_is_made_and_closed_again(
        self, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        vm = os.open(touch(tmp_path / "vm"), os.O_RDONLY)
        ioctl = mocker.patch("fcntl.ioctl", return_value=vm)
        found = machine.check_kvm(
            "auto", touch(tmp_path / "kvm"), touch(tmp_path / "cpuinfo", "flags : fpu vmx\n")
        )
        assert found.verdict is Verdict.OK
        assert ioctl.call_args.args[1:] == (0xAE01, 0)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(vm)

    def test_a_device_that_answers_on_a_cpu_without_virtualization_is_a_warning(
        self, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        mocker.patch("platform.machine", return_value="x86_64")
        mocker.patch("fcntl.ioctl", return_value=os.open(touch(tmp_path / "vm"), os.O_RDONLY))
        found = machine.check_kvm(
            "auto", touch(tmp_path / "kvm"), touch(tmp_path / "cpuinfo", "flags : fpu\n")
        )
        assert found.verdict is Verdict.WARN
        assert "neither vmx nor svm" in found.found


class TestPermissions:
    def test_a_device_that_qemus_user_may_not_open_fails(self, tmp_path: Path) -> None:
        device = touch(tmp_path / "kvm")
        device.chmod(0o600)
        found = machine.check_kvm_permissions(QEMU, device)
        assert found.verdict is Verdict.FAIL
        assert "chown root:kvm" in found.remedy

    def test_a_device_that_all_may_open_is_right(self, tmp_path: Path) -> None:
        device = touch(tmp_path / "kvm")
        device.chmod(0o666)
        assert machine.check_kvm_permissions(QEMU, device).verdict is Verdict.OK

    @pytest.mark.parametrize(
        ("mode", "uid", "gid", "allowed"),
        [
            (0o700, 64055, 0, True),
            (0o070, 64055, 64055, False),
            (0o010, 0, 64055, True),
            (0o701, 0, 64055, False),
            (0o001, 0, 0, True),
            (0o770, 0, 0, False),
        ],
    )
    def test_owner_group_and_others_are_told_apart_as_the_kernel_does(
        self, mocker: MockerFixture, mode: int, uid: int, gid: int, *, allowed: bool
    ) -> None:
        status = os.stat_result((mode, 0, 0, 0, uid, gid, 0, 0, 0, 0))
        path = mocker.Mock(spec=Path, stat=mocker.Mock(return_value=status))
        assert machine.may(QEMU, path, stat.S_IXOTH) is allowed

    def test_root_may_do_everything(self, tmp_path: Path) -> None:
        closed = touch(tmp_path / "x")
        closed.chmod(0)
        assert machine.may(pwd.getpwuid(0), closed, stat.S_IROTH)

    def test_qemus_user_is_the_one_of_libvirts_settings(self, tmp_path: Path) -> None:
        settings = touch(tmp_path / "qemu.conf", '#user = "nobody"\nuser = "root"\n')
        user = machine.qemu_user(settings)
        assert user is not None
        assert user.pw_name == "root"


class TestIommu:
    def test_groups_and_vfio_are_counted(self, tmp_path: Path) -> None:
        (tmp_path / "sys/kernel/iommu_groups/0").mkdir(parents=True)
        (tmp_path / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True)
        found = machine.check_iommu(needed=True, root=tmp_path)
        assert (found.verdict, found.found) == (Verdict.OK, "1 groups, vfio-pci is there")

    def test_its_absence_is_only_told_where_no_device_is_passed_through(
        self, tmp_path: Path
    ) -> None:
        assert machine.check_iommu(needed=False, root=tmp_path).verdict is Verdict.INFO

    def test_its_absence_is_a_warning_where_devices_are_listed(self, tmp_path: Path) -> None:
        found = machine.check_iommu(needed=True, root=tmp_path)
        assert found.verdict is Verdict.WARN
        assert "intel_iommu=on" in found.remedy


class TestNetworks:
    FLAT = FlatNetwork(strategy="flat", subnet="10.0.0.0/24", bridge="br0")
    DHCP = FlatDhcpNetwork(strategy="flat_dhcp", subnet="10.0.1.0/24")
    VLAN = VlanNetwork(strategy="vlan", subnet="10.0.2.0/24", vlan=5, uplink="ens1")

    def test_a_bridge_that_is_there_is_right(self, tmp_path: Path) -> None:
        (tmp_path / "sys/class/net/br0/bridge").mkdir(parents=True)
        (found,) = machine.check_networks({"red": self.FLAT}, tmp_path)
        assert (found.subject, found.verdict) == ("network red", Verdict.OK)

    def test_a_missing_bridge_fails_with_how_to_make_it(self, tmp_path: Path) -> None:
        (found,) = machine.check_networks({"red": self.FLAT}, tmp_path)
        assert (found.verdict, found.found) == (Verdict.FAIL, "there is no bridge br0")
        assert "ip link add br0 type bridge" in found.remedy

    def test_a_link_that_is_no_bridge_fails(self, tmp_path: Path) -> None:
        (tmp_path / "sys/class/net/br0").mkdir(parents=True)
        assert machine.check_bridge("red", "br0", tmp_path).found == "br0 is not a bridge"

    def test_a_vlan_network_needs_its_uplink_and_802_1q(self, tmp_path: Path) -> None:
        uplink, vlan, dnsmasq = machine.check_networks({"red": self.VLAN}, tmp_path)
        assert (uplink.verdict, uplink.found) == (Verdict.FAIL, "there is no uplink ens1")
        assert (vlan.subject, vlan.verdict) == ("802.1Q", Verdict.FAIL)
        assert dnsmasq.subject == "dnsmasq"

    def test_802_1q_may_be_loaded_or_in_the_kernels_directory(
        self, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        mocker.patch("platform.release", return_value="6.1")
        touch(
            tmp_path / "lib/modules/6.1/modules.dep",
            "kernel/net/8021q/8021q.ko.xz: kernel/net/802/garp.ko\n",
        )
        assert machine.check_8021q(tmp_path).verdict is Verdict.OK
        (tmp_path / "b/sys/module/8021q").mkdir(parents=True)
        assert machine.check_8021q(tmp_path / "b").verdict is Verdict.OK

    def test_networks_with_dhcp_need_dnsmasq(self, tmp_path: Path, mocker: MockerFixture) -> None:
        mocker.patch("shutil.which", return_value=None)
        (found,) = machine.check_networks({"red": self.DHCP}, tmp_path)
        assert (found.verdict, found.remedy) == (Verdict.FAIL, "apt-get install dnsmasq-base")


class TestFiles:
    def test_a_state_directory_that_is_not_there_will_be_made(self, tmp_path: Path) -> None:
        assert files.check_state_dir(tmp_path / "a/b").found.endswith("will be made")

    def test_a_state_directory_of_which_a_part_is_a_file_fails(self, tmp_path: Path) -> None:
        touch(tmp_path / "a")
        assert files.check_state_dir(tmp_path / "a/b").verdict is Verdict.FAIL

    def test_a_state_directory_that_is_a_link_to_nowhere_fails(self, tmp_path: Path) -> None:
        (tmp_path / "state").symlink_to(tmp_path / "gone")
        for path in (tmp_path / "state", tmp_path / "state/a"):
            assert files.check_state_dir(path).verdict is Verdict.FAIL

    def test_a_state_directory_that_the_file_system_does_not_take_fails(
        self, tmp_path: Path
    ) -> None:
        for path in (Path("/proc/state"), tmp_path / ("a" * 300), tmp_path / "a" / ("b" * 300)):
            found = files.check_state_dir(path)
            assert found.verdict is Verdict.FAIL
            assert f"cannot write to {path}: " in found.found

    @pytest.mark.parametrize(
        ("name", "subject", "use"),
        [
            ("placement.sqlite", "claims on hosts", "asked which slivers they have"),
            ("types.sqlite", "types of slivers", "asked of which type the sliver of an id is"),
        ],
    )
    def test_damaged_notes_of_slivers_fail_with_what_they_are_for_and_how_to_go_on(
        self, fake_site: Site, name: str, subject: str, use: str
    ) -> None:
        path = touch(fake_site.state_dir / name, "garbage\n")

        (found,) = (d for d in examine(None, lambda: fake_site) if d.subject == subject)

        assert (found.verdict, path.read_text()) == (Verdict.FAIL, "garbage\n")
        assert f"{path} is damaged" in found.found
        assert "file is not a database" in found.found
        assert "remove it while no process of the site runs" in found.remedy
        assert use in found.remedy

    def test_notes_of_which_a_page_is_damaged_fail(self, fake_site: Site) -> None:
        types = SliverTypes(FileStore(fake_site.state_dir), timeout=60)
        for number in range(300):
            types.note(SliverRef(id=f"sliver-{number}", type="VM"))
        path = fake_site.state_dir / "types.sqlite"
        content = bytearray(path.read_bytes())
        content[-2048:] = b"\xff" * 2048
        path.write_bytes(content)

        assert [found.subject for found in files.check_notes(fake_site)] == ["types of slivers"]

    def test_whole_notes_and_those_that_are_not_there_are_fine(self, fake_site: Site) -> None:
        SliverTypes(FileStore(fake_site.state_dir), timeout=60).note(SliverRef(id="a", type="VM"))

        assert list(files.check_notes(fake_site)) == []
        assert not (fake_site.state_dir / "placement.sqlite").exists()

    def test_a_state_directory_is_not_made_by_looking(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "a/b", tmp_path / "a/../../b"):
            assert files.check_state_dir(path).verdict is Verdict.OK
        assert list(tmp_path.iterdir()) == []

    def test_a_journal_that_cannot_be_read_fails(self, fake_site: Site) -> None:
        touch(fake_site.state_dir / "journal")
        assert files.check_journal(fake_site).verdict is Verdict.FAIL

    def test_a_state_directory_that_others_may_write_to_fails(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o777)
        found = files.check_state_dir(tmp_path)
        assert found.verdict is Verdict.FAIL
        assert found.remedy == f"chmod go-w {tmp_path}"

    def test_a_directory_that_qemus_user_cannot_pass_fails_by_its_name(
        self, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o700)
        found = files.check_volume_dir(tmp_path / "volumes", QEMU)
        assert found.verdict is Verdict.FAIL
        assert "qemu-user cannot pass through" in found.found

    def test_a_directory_that_all_can_pass_is_right(self) -> None:
        assert files.check_volume_dir(Path("/usr/lib"), QEMU).verdict is Verdict.OK

    def test_an_image_that_is_not_there_fails_with_its_path(self, tmp_path: Path) -> None:
        found = files.check_image("tiny", tmp_path / "tiny.qcow2", None)
        assert (found.subject, found.verdict) == ("image tiny", Verdict.FAIL)
        assert str(tmp_path / "tiny.qcow2") in found.found

    def test_an_image_without_a_path_fails_with_the_field(self) -> None:
        assert files.check_image("tiny", None, None).remedy.endswith("images: tiny: path")

    def test_an_image_that_is_there_is_right(self, tmp_path: Path) -> None:
        assert files.check_image("tiny", touch(tmp_path / "tiny.qcow2"), None).verdict is Verdict.OK

    def test_an_unfinished_operation_is_a_warning_with_what_to_do(self, fake_site: Site) -> None:
        Journal(FileStore(fake_site.state_dir)).begin(Operation.CREATE, {"id": "vm1", "type": "VM"})
        found = files.check_journal(fake_site)
        assert found.verdict is Verdict.WARN
        assert found.found.startswith("create of vm1 since ")
        assert "fabric-direct recover" in found.remedy

    def test_an_unfinished_deletion_is_finished_and_not_undone(self, fake_site: Site) -> None:
        Journal(FileStore(fake_site.state_dir)).begin(Operation.DELETE, {"id": "vm1", "type": "VM"})

        remedy = files.check_journal(fake_site).remedy

        assert remedy == "if no process is working on it: fabric-direct recover"

    def test_a_file_in_the_journal_that_is_no_entry_is_named(self, fake_site: Site) -> None:
        Journal(FileStore(fake_site.state_dir)).begin(Operation.CREATE, {"id": "vm1", "type": "VM"})
        damaged = fake_site.state_dir / "journal/vm2.json"
        damaged.write_text("{")
        found = files.check_journal(fake_site)
        assert found.verdict is Verdict.WARN
        assert found.found.startswith("create of vm1 since ")
        assert f"{damaged} is not a valid entry" in found.found
        assert "fabric-direct recover" in found.remedy
        assert "delete a file" in found.remedy

    def test_an_empty_journal_is_right(self, fake_site: Site) -> None:
        assert files.check_journal(fake_site).verdict is Verdict.OK

    def test_a_key_for_guests_that_can_be_read_is_right(self, tmp_path: Path) -> None:
        new_key(tmp_path / "key")
        assert files.check_guest_key(tmp_path / "key").verdict is Verdict.OK

    @pytest.mark.parametrize("content", [None, "no key"])
    def test_one_that_cannot_fails_with_how_to_make_it(
        self, tmp_path: Path, content: str | None
    ) -> None:
        if content:
            touch(tmp_path / "key", content)
        found = files.check_guest_key(tmp_path / "key")
        assert found.verdict is Verdict.FAIL
        assert str(tmp_path / "key") in found.found
        assert "ssh-keygen" in found.remedy


class TestDrivers:
    def test_those_of_the_site_are_named(self, fake_site: Site) -> None:
        found = drivers.check_drivers(fake_site)
        assert found.verdict is Verdict.OK
        assert "VM: fake" in found.found
        assert "guest: fake" in found.found

    @pytest.mark.parametrize("resource_type", ["VM", "vNIC", "Storage", "GPU_A30", "L2Bridge"])
    def test_one_that_is_not_installed_fails_with_those_that_are(
        self, fake_site: Site, resource_type: str
    ) -> None:
        named = fake_site.drivers | {resource_type: "dokcer"}
        found = drivers.check_drivers(fake_site.model_copy(update={"drivers": named}))
        assert found.verdict is Verdict.FAIL
        assert "driver 'dokcer': installed: " in found.found
        assert "name one of these" in found.remedy

    def test_one_for_guests_that_is_not_installed_fails(self, fake_site: Site) -> None:
        found = drivers.check_drivers(fake_site.model_copy(update={"guest": "telnet"}))
        assert found.verdict is Verdict.FAIL
        assert "no guest driver 'telnet'" in found.found

    def test_one_that_cannot_be_imported_fails(
        self, fake_site: Site, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(EntryPoint, "load", side_effect=ImportError("No module named 'x'"))
        mocker.patch.object(installed, "_loaded", installed._loaded.__wrapped__)
        found = drivers.check_drivers(fake_site)
        assert found.verdict is Verdict.FAIL
        assert "No module named 'x'" in found.found


class TestExamination:
    def test_a_wrong_site_file_fails_and_ends_it(self, tmp_path: Path) -> None:
        def load() -> Site:
            raise InvalidSite("site.yaml:3: hosts: is missing")

        found = list(examine(tmp_path / "site.yaml", load))
        assert [d.subject for d in found] == ["Python libraries", "site.yaml"]
        assert found[1].verdict is Verdict.FAIL
        assert "site.yaml:3" in found[1].found

    def test_a_site_without_libvirt_is_not_asked_for_libvirt(self, fake_site: Site) -> None:
        subjects = [d.subject for d in examine(None, lambda: fake_site)]
        assert subjects == [
            *("Python libraries", "site.yaml", "drivers", "state directory", "journal")
        ]

    def test_each_host_is_asked_and_this_machine_looked_at_once(
        self, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(connections, "connect", side_effect=Unreachable("no answer"))
        hosts = {"a": Host(), "b": Host(), "c": Host(libvirt="qemu+ssh://c/system")}
        site = Site(site="x", state_dir=tmp_path, hosts=hosts)
        subjects = [d.subject for d in examine(None, lambda: site)]
        assert [s for s in subjects if s.startswith("libvirt of")] == [
            "libvirt of a",
            "libvirt of b",
            "libvirt of c",
        ]
        assert subjects.count("KVM") == 1

    def test_remote_hosts_alone_leave_this_machine_out(
        self, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(connections, "connect", side_effect=Unreachable("no answer"))
        site = Site(site="x", state_dir=tmp_path, hosts={"c": Host(libvirt="qemu+ssh://c/system")})
        assert "KVM" not in [d.subject for d in examine(None, lambda: site)]
