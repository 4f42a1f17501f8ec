"""Slivers are read from files by a program as the command line reads them."""

from pathlib import Path

import pytest

from fabric_direct import (
    FABNetv4,
    InvalidSite,
    InvalidSliver,
    NodeSliver,
    load_site,
    load_sliver,
    load_slivers,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "model"), [("vm", NodeSliver), ("fabnet", FABNetv4)])
def test_a_sliver_of_any_type_is_read(name: str, model: type) -> None:
    path = ROOT / f"examples/{name}.yaml"
    assert isinstance(load_sliver(path), model)
    assert load_sliver(str(path)) == load_sliver(path)


def test_all_of_a_file_are_read() -> None:
    found = load_slivers(ROOT / "examples/tutorial/slice.yaml")
    assert [sliver.id for sliver in found] == ["compute", "collect", "segment"]


def test_a_file_of_several_is_not_one() -> None:
    with pytest.raises(InvalidSliver, match=r"slice\.yaml has 3 slivers, not one"):
        load_sliver(ROOT / "examples/tutorial/slice.yaml")


def test_what_is_wrong_is_told_by_file_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "vm.yaml"
    path.write_text("id: vm-1\nname: node\nimagee: tiny\ncapacities: {core: 1, ram: 1, disk: 1}\n")

    with pytest.raises(InvalidSliver, match=r"vm\.yaml:3: imagee: unknown field") as caught:
        load_sliver(path)
    assert caught.value.field == "imagee"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSliver, match=r"cannot read .*vm\.yaml: No such file"):
        load_sliver(tmp_path / "vm.yaml")


def test_of_an_unknown_type_nothing_else_is_said(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("id: data\ntype: Storage\nsize: 3\n")

    with pytest.raises(InvalidSliver) as caught:
        load_sliver(path)
    assert str(caught.value).startswith(f"{path}:2: type: 'Storage' is unknown; known: BareMetal, ")
    assert "\n" not in str(caught.value)


def test_a_sliver_where_a_site_is_expected_is_told_as_what_it_is() -> None:
    with pytest.raises(InvalidSite, match=r"vm\.yaml:\d+: is a sliver; give it to create"):
        load_site(ROOT / "examples/vm.yaml")
