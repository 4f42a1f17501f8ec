"""FIM's names as ours."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fabric_direct.actor.names import MANAGEMENT, component_id, host_name, mount_point
from fabric_direct.model import ModelName, NodeSliver, Storage
from fabric_direct.model.fabric_am import model_name

# What FIM's NAME_REGEX lets pass: letters of any script, digits, '-', '_', '.', ' '; 2 to 255 of them.
component_names = st.from_regex(r"[\w\-_\. ]{2,255}", fullmatch=True)
node_names = st.from_regex(r"[\w\-\.]{2,255}", fullmatch=True)


@given(component_names)
def test_every_name_of_fim_becomes_an_id_that_the_model_takes(name: str) -> None:
    assert Storage(id=component_id(name), size=1).id == component_id(name)


@given(component_names, component_names)
def test_different_names_become_different_ids(one: str, other: str) -> None:
    assert (component_id(one) == component_id(other)) == (one == other)


@given(component_names)
def test_an_id_is_never_that_of_another_name(name: str) -> None:
    """Nobody can take another's id by calling a component like its hashed form."""
    taken = component_id(name)
    assert taken == name or component_id(taken) != taken


@given(component_names)
def test_no_component_becomes_the_management_nic(name: str) -> None:
    assert component_id(name) != MANAGEMENT


def test_a_component_called_management_is_not_the_management_nic() -> None:
    assert re.fullmatch(r"management--[0-9a-f]{12}", component_id("management"))


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert component_id("node1-nic_1") == "node1-nic_1"


def test_a_long_name_can_still_be_recognised() -> None:
    assert component_id("my node.nic for the experiment").startswith("my-node-nic-for-t--")


@given(node_names)
def test_every_node_name_becomes_a_name_that_the_model_takes(name: str) -> None:
    vm = NodeSliver(
        id="r1", name=host_name(name), image="i", capacities={"core": 1, "ram": 1, "disk": 1}
    )
    assert vm.name == host_name(name)


def test_a_model_with_spaces_is_written_with_hyphens() -> None:
    assert model_name("Quadro RTX 6000/8000") == "Quadro-RTX-6000-8000"


@given(component_names)
def test_every_volume_has_a_mount_point_that_the_model_takes(name: str) -> None:
    assert Storage(id="d", size=1, mount=mount_point(name)).mount == mount_point(name)


@given(component_names, component_names)
def test_different_volumes_have_different_mount_points(one: str, other: str) -> None:
    assert (mount_point(one) == mount_point(other)) == (one == other)


CATALOG = json.loads(files("fim").joinpath("slivers/data/component_catalog.json").read_text())


@pytest.mark.parametrize("part", CATALOG, ids=lambda part: f"{part['Type']}-{part['Model']}")
def test_each_name_of_a_model_in_fims_catalogue_is_that_model(part: dict[str, Any]) -> None:
    model: TypeAdapter[str] = TypeAdapter(ModelName)
    shown = model.validate_python(part["Model"])
    for spelled in (part["Model"], *part.get("AlsoModels", ())):
        assert model.validate_python(spelled) == shown
        assert model.validate_python(model_name(spelled)) == shown
