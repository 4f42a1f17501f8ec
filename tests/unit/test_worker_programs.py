"""What programs have of PCI functions: vfio, vDPA devices, mediated devices."""

import pytest

from fabric_direct.drivers.hosts.agent import pci
from tests.unit.sysfs_tree import Tree, tree

__all__ = ["tree"]

NIC, VF, GPU = "0000:08:00.0", "0000:08:00.2", "0000:25:00.0"
MDEV = "4b20d080-1b54-4048-85b3-a6a62d165c01"
UUID = "11111111-1111-1111-1111-111111111111"
QEMU = (
    *("/usr/bin/qemu-system-x86_64", "-name", "guest=web-1,debug-threads=on"),
    *("-machine", "q35", "-uuid", UUID),
)


@pytest.fixture(autouse=True)
def functions(tree: Tree) -> None:
    for address in (NIC, VF, GPU):
        tree.function(address)


def told(address: str, what: str) -> object:
    return next(f[what] for f in pci.survey() if f["address"] == address)


def at_vfio(tree: Tree, address: str, driver: str = "vfio-pci", group: str = "12") -> None:
    path = tree.sys / "bus/pci/devices" / address
    tree.link(path / "driver", tree.sys / "bus/pci/drivers" / driver)
    tree.link(path / "iommu_group", tree.sys / "kernel/iommu_groups" / group)


class TestVfio:
    def test_a_function_that_no_program_has_is_not_held(self, tree: Tree) -> None:
        at_vfio(tree, VF)
        tree.process(7, "bash", "/dev/pts/0", "/dev/vfio/13", "/dev/vfio/vfio")

        assert told(VF, "held") == []

    @pytest.mark.parametrize("file", ["/dev/vfio/12", "/dev/vfio/noiommu-12"])
    @pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci"])
    def test_a_function_whose_group_a_program_has_open_is_held_by_it(
        self, tree: Tree, driver: str, file: str
    ) -> None:
        at_vfio(tree, VF, driver)
        tree.process(4711, "dpdk-testpmd", "/dev/null", file)

        use = f"{file} is held by dpdk-testpmd (pid 4711)"
        assert told(VF, "held") == [{"use": use, "domain": ""}]
        assert (told(VF, "uses"), told(NIC, "held")) == ([], [])

    def test_a_file_whose_name_is_gone_counts_as_well(self, tree: Tree) -> None:
        at_vfio(tree, VF)
        tree.process(7, "testpmd", "/dev/vfio/12 (deleted)")

        assert told(VF, "held") == [
            {"use": "/dev/vfio/12 is held by testpmd (pid 7)", "domain": ""}
        ]

    def test_a_driver_that_gives_vfio_devices_by_itself_counts_as_well(self, tree: Tree) -> None:
        at_vfio(tree, VF, "nvidia")
        (tree.sys / "bus/pci/devices" / VF / "vfio-dev/vfio3").mkdir(parents=True)
        tree.process(7, "qemu-kvm", "/dev/vfio/12")

        assert told(VF, "held") == [
            {"use": "/dev/vfio/12 is held by qemu-kvm (pid 7)", "domain": ""}
        ]

    def test_a_device_file_of_its_own_counts_as_well(self, tree: Tree) -> None:
        at_vfio(tree, VF)
        (tree.sys / "bus/pci/devices" / VF / "vfio-dev/vfio3").mkdir(parents=True)
        tree.process(7, "qemu-kvm", "/dev/vfio/devices/vfio3")

        use = "/dev/vfio/devices/vfio3 is held by qemu-kvm (pid 7)"
        assert told(VF, "held") == [{"use": use, "domain": ""}]

    def test_a_virtual_machine_is_told_by_its_name_and_uuid(self, tree: Tree) -> None:
        at_vfio(tree, VF)
        tree.process(7, "qemu-system-x86", "/dev/vfio/12", command=QEMU)

        use = "/dev/vfio/12 is held by domain web-1 (pid 7)"
        assert told(VF, "held") == [{"use": use, "domain": UUID}]

    def test_all_functions_of_the_group_are_held(self, tree: Tree) -> None:
        at_vfio(tree, VF)
        at_vfio(tree, NIC)
        tree.process(7, "testpmd", "/dev/vfio/12")

        assert told(VF, "held") == told(NIC, "held") != []

    def test_who_asks_about_one_function_is_told_of_its_whole_group(self, tree: Tree) -> None:
        for address, group in ((VF, "12"), (NIC, "12"), (GPU, "13")):
            at_vfio(tree, address, group=group)
        tree.process(7, "testpmd", "/dev/vfio/12", "/dev/vfio/13")

        held = {each["address"] for each in pci.survey([VF]) if each["held"]}
        assert held == {VF, NIC}

    def test_a_process_that_goes_while_it_is_looked_at_is_left_out(self, tree: Tree) -> None:
        at_vfio(tree, VF)
        (tree.proc / "7").mkdir()

        assert told(VF, "held") == []


def test_a_function_whose_uio_device_a_program_has_open_is_held_by_it(tree: Tree) -> None:
    (tree.sys / "bus/pci/devices" / VF / "uio/uio0").mkdir(parents=True)
    tree.process(7, "testpmd", "/dev/uio0")

    assert told(VF, "held") == [{"use": "/dev/uio0 is held by testpmd (pid 7)", "domain": ""}]


class TestVdpa:
    @pytest.fixture(autouse=True)
    def made(self, tree: Tree) -> None:
        device = (tree.sys / "bus/pci/devices" / VF).resolve() / "vdpa0"
        (device / "vhost-vdpa-0").mkdir(parents=True)
        tree.link(
            tree.sys / "bus/vdpa/devices/vdpa0",
            device,
        )

    def test_a_vf_with_one_is_used(self, tree: Tree) -> None:
        assert told(VF, "held") == [{"use": "the vDPA device vdpa0 is on it", "domain": ""}]
        assert told(NIC, "held") == []

    def test_the_domain_that_has_it_is_named(self, tree: Tree) -> None:
        tree.process(7, "qemu-system-x86", "/dev/vhost-vdpa-0", command=QEMU)

        assert told(VF, "held") == [
            {"use": "the vDPA device vdpa0 is on it, held by domain web-1 (pid 7)", "domain": ""}
        ]


class TestMediatedDevices:
    @pytest.fixture(autouse=True)
    def made(self, tree: Tree) -> None:
        device = (tree.sys / "bus/pci/devices" / GPU).resolve() / MDEV
        device.mkdir()
        tree.link(device / "iommu_group", tree.sys / "kernel/iommu_groups/31")
        tree.link(tree.sys / "bus/mdev/devices" / MDEV, device)

    def test_a_gpu_with_one_is_used(self, tree: Tree) -> None:
        assert told(GPU, "held") == [{"use": f"the mediated device {MDEV} is on it", "domain": ""}]

    def test_the_program_that_has_it_is_named_once(self, tree: Tree) -> None:
        tree.process(7, "qemu-kvm", "/dev/vfio/31", "/dev/vfio/31")

        use = f"the mediated device {MDEV} is on it, held by qemu-kvm (pid 7)"
        assert told(GPU, "held") == [{"use": use, "domain": ""}]
