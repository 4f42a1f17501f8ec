"""PCI functions as sysfs tells them, and what is refused before anything is touched."""

import errno

import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.hosts.agent import pci, usage
from tests.unit.sysfs_tree import BRIDGE, NVME, Tree, tree

__all__ = ["tree"]

IDS = """# a list of PCI ids
1b36  Red Hat, Inc.
\t0010  QEMU NVM Express Controller
8086  Intel Corporation
\t10c9  82576 Gigabit Network Connection
\t\t103c 31ef  NC362i
\t10ca  82576 Virtual Function
8088  Another vendor
\t10d3  A product of another vendor
"""


@pytest.fixture(autouse=True)
def labels(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pci, "LABELS", (str(tree.file("pci.ids", IDS)),))
    pci.label.cache_clear()
    pci._list_of_ids.cache_clear()


def found(address: str) -> dict[str, object]:
    return next(function for function in pci.survey() if function["address"] == address)


def test_a_function_is_told_with_what_the_kernel_knows_of_it(tree: Tree) -> None:
    path = tree.function("0000:03:00.0", "1b36:0010", kind=NVME)
    (path / "numa_node").write_text("1\n")
    tree.link(path / "driver", tree.sys / "bus/pci/drivers/nvme")
    tree.link(path / "iommu_group", tree.sys / "kernel/iommu_groups/15")

    assert pci.survey() == [
        {
            "address": "0000:03:00.0",
            "vendor": "1b36",
            "product": "0010",
            "kind": "010802",
            "label": "Red Hat, Inc. QEMU NVM Express Controller",
            "driver": "nvme",
            "iommu_group": 15,
            "numa_node": 1,
            "bridge": None,
            "physical": None,
            "vf": None,
            "virtual": [],
            "links": [],
            "representors": [],
            "link_up": None,
            "uses": [],
            "held": [],
            "alive": True,
        }
    ]


def test_what_the_machine_does_not_say_is_none(tree: Tree) -> None:
    tree.function("0000:03:00.0")

    function = found("0000:03:00.0")

    assert [function[name] for name in ("driver", "iommu_group", "numa_node")] == [None] * 3


def test_vfs_are_numbered_as_their_nic_numbers_them(tree: Tree) -> None:
    tree.function("0000:01:00.0")
    tree.virtual("0000:01:00.0", "0000:01:10.2", "0000:01:10.0")

    assert found("0000:01:00.0")["virtual"] == ["0000:01:10.2", "0000:01:10.0"]
    assert (found("0000:01:10.0")["physical"], found("0000:01:10.0")["vf"]) == ("0000:01:00.0", 1)
    assert found("0000:01:00.0")["physical"] is None


def test_vfs_keep_their_numbers_where_one_is_missing(tree: Tree) -> None:
    tree.function("0000:01:00.0")
    tree.virtual("0000:01:00.0", "0000:01:10.0", "0000:01:10.2", "0000:01:10.4")
    (tree.sys / "bus/pci/devices/0000:01:00.0/virtfn1").unlink()

    assert found("0000:01:00.0")["virtual"] == ["0000:01:10.0", "0000:01:10.4"]
    assert [found(f"0000:01:10.{n}")["vf"] for n in (0, 2, 4)] == [0, None, 2]


def test_a_function_is_behind_the_nearest_bridge(tree: Tree) -> None:
    tree.function("0000:00:10.0", kind=BRIDGE)
    tree.function("0000:01:00.0", kind=BRIDGE, below="0000:00:10.0")
    tree.function("0000:02:00.0", below="0000:01:00.0")

    assert found("0000:02:00.0")["bridge"] == "0000:01:00.0"
    assert found("0000:01:00.0")["bridge"] == "0000:00:10.0"
    assert found("0000:00:10.0")["bridge"] is None


def test_a_function_has_the_network_interfaces_below_it(tree: Tree) -> None:
    tree.function("0000:00:10.0", kind=BRIDGE)
    tree.function("0000:01:00.0", below="0000:00:10.0")
    tree.net("enp1s0", "0000:01:00.0", carrier="1")
    tree.net("enp1s0d1", "0000:01:00.0", carrier="0")

    assert found("0000:01:00.0")["links"] == ["enp1s0", "enp1s0d1"]
    assert found("0000:01:00.0")["link_up"] is True
    assert found("0000:00:10.0")["links"] == []


def test_vf_representors_are_told_from_the_uplink(tree: Tree) -> None:
    """mlx5 in switchdev mode: since Linux 5.8 the representors are below the PF's function."""
    tree.function("0000:08:00.0")
    names = {"eth10": "pf0vf2", "eth2": "p0", "eth8": "pf0vf0", "eth9": "c1pf0vf1"}
    for link, port in names.items():
        up = "0" if link == "eth2" else "1"
        tree.net(link, "0000:08:00.0", phys_port_name=port, carrier=up)

    assert found("0000:08:00.0")["links"] == ["eth2"]
    assert found("0000:08:00.0")["representors"] == ["eth10", "eth8", "eth9"]
    assert found("0000:08:00.0")["link_up"] is False


def test_a_physical_port_comes_before_other_interfaces_of_its_function(tree: Tree) -> None:
    tree.function("0000:08:00.0")
    tree.net("eth10", "0000:08:00.0")
    tree.net("eth2", "0000:08:00.0", phys_port_name="p0")

    assert found("0000:08:00.0")["links"] == ["eth2", "eth10"]


def test_an_interface_without_a_carrier_is_not_up(tree: Tree) -> None:
    tree.function("0000:01:00.0")
    tree.net("enp1s0", "0000:01:00.0", carrier="0")

    assert found("0000:01:00.0")["link_up"] is False


@pytest.mark.parametrize(
    ("ids", "label"),
    [
        ("8086:10ca", "Intel Corporation 82576 Virtual Function"),
        ("8086:10d3", "Intel Corporation"),
        ("8087:10c9", ""),
    ],
    ids=["known", "of a known vendor", "unknown"],
)
def test_a_label_is_what_the_machine_knows(tree: Tree, ids: str, label: str) -> None:
    tree.function("0000:01:00.0", ids)

    assert found("0000:01:00.0")["label"] == label


def test_a_machine_without_a_list_of_ids_gives_no_labels(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pci, "LABELS", ("/nonexistent",))
    tree.function("0000:01:00.0")

    assert found("0000:01:00.0")["label"] == ""


@pytest.mark.parametrize("header", [b"\xff" * 64, b""], ids=["all ones", "unreadable"])
def test_a_function_whose_registers_do_not_answer_is_not_alive(tree: Tree, header: bytes) -> None:
    tree.function("0000:03:00.0", header=header)

    assert found("0000:03:00.0")["alive"] is False


def test_a_vf_has_no_ids_of_its_own_and_is_alive(tree: Tree) -> None:
    tree.function("0000:01:00.0")
    tree.virtual("0000:01:00.0", "0000:01:10.0")

    assert found("0000:01:10.0")["alive"] is True


def test_a_function_of_a_domain_beyond_four_digits_is_told(tree: Tree) -> None:
    """Intel VMD has its drives in such a domain, below its own function."""
    tree.function("0000:80:05.5")
    tree.function("10000:01:00.0", kind=NVME, below="0000:80:05.5")
    tree.disk("nvme0n1", "10000:01:00.0", "259:0")
    tree.mounts("259:0 / /srv rw - ext4 /dev/nvme0n1 rw")

    assert found("10000:01:00.0")["bridge"] == "0000:80:05.5"
    sentence = ["nvme0n1 is mounted on /srv"]
    assert [found(each)["uses"] for each in ("0000:80:05.5", "10000:01:00.0")] == [sentence] * 2


class TestOfNamedFunctions:
    """Who asks about one drive has no other one opened, which may be somebody's."""

    LVM = bytes(512) + b"LABELONE" + bytes(1024**2)
    DRIVE, OTHER = "0000:04:00.0", "0000:05:00.0"

    @pytest.fixture(autouse=True)
    def drives(self, tree: Tree) -> None:
        for number, address in enumerate((self.DRIVE, self.OTHER)):
            tree.function(address, kind=NVME)
            tree.disk(f"nvme{number}n1", address, f"259:{number}")
            tree.file(f"dev/nvme{number}n1", self.LVM)

    def used(self, *named: str) -> list[object]:
        """Return the functions that have uses, as far as those that are named are asked about."""
        return [each["address"] for each in pci.survey(list(named)) if each["uses"]]

    def test_all_are_there_and_those_have_uses(self) -> None:
        assert [each["address"] for each in pci.survey([self.DRIVE])] == [self.DRIVE, self.OTHER]
        assert self.used(self.DRIVE) == [self.DRIVE]
        assert self.used(self.DRIVE, self.OTHER) == [self.DRIVE, self.OTHER]

    def test_no_other_disk_is_opened(self, mocker: MockerFixture) -> None:
        opened = mocker.spy(usage, "member_of")

        pci.survey([self.DRIVE])

        assert [call.args[0].rpartition("/")[2] for call in opened.call_args_list] == ["nvme0n1"]

    def test_what_is_of_their_iommu_group_has_uses_too(self, tree: Tree) -> None:
        for address in (self.DRIVE, self.OTHER):
            path = tree.sys / "bus/pci/devices" / address
            tree.link(path / "iommu_group", tree.sys / "kernel/iommu_groups/15")

        assert self.used(self.DRIVE) == [self.DRIVE, self.OTHER]

    def test_their_vfs_have_uses_too(self, tree: Tree) -> None:
        tree.function("0000:01:00.0")
        tree.virtual("0000:01:00.0", "0000:01:10.0")
        tree.disk("nvme2n1", "0000:01:10.0", "259:2")
        tree.file("dev/nvme2n1", self.LVM)

        assert self.used("0000:01:00.0") == ["0000:01:10.0"]

    def test_one_that_is_not_there_has_none(self) -> None:
        assert self.used("0000:66:00.0") == []


def test_what_is_not_there_cannot_be_reset(tree: Tree) -> None:
    with pytest.raises(OSError, match=r"there is no PCI function 0000:09:00.0") as raised:
        pci.reset(["0000:09:00.0"], 1)
    assert raised.value.errno == errno.ENOENT


def test_a_function_that_cannot_be_reset_alone_spares_its_neighbours(tree: Tree) -> None:
    tree.function("0000:00:10.0", kind=BRIDGE)
    for function in range(3):
        tree.function(f"0000:06:00.{function}", below="0000:00:10.0")

    with pytest.raises(OSError, match=r"0000:06:00.2 on its bus would be reset too") as raised:
        pci.reset(["0000:06:00.0", "0000:06:00.1"], 1)
    assert raised.value.errno == errno.ENOTTY


def test_a_function_on_the_root_bus_has_no_bus_to_be_reset(tree: Tree) -> None:
    tree.function("0000:00:1f.2")

    with pytest.raises(OSError, match=r"no reset is known for 0000:00:1f.2") as raised:
        pci.reset(["0000:00:1f.2"], 1)
    assert raised.value.errno == errno.ENOTTY


def test_a_vf_is_not_removed_as_no_scan_would_find_it(tree: Tree) -> None:
    tree.function("0000:01:00.0")
    tree.virtual("0000:01:00.0", "0000:01:10.0")

    with pytest.raises(OSError, match="is a VF") as raised:
        pci.remove(["0000:01:10.0"])
    assert raised.value.errno == errno.EOPNOTSUPP


def test_what_is_off_the_bus_already_stays_so(tree: Tree) -> None:
    assert pci.remove(["0000:06:00.0"]) == {}
