"""The JSON Schema of slivers and sites says the same as the models."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from fabric_direct.cli import main
from fabric_direct.documents import json_schema, load
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.model import NodeSliver
from fabric_direct.model.services import AnyService, FABNetv4
from fabric_direct.site.config import Site

EXAMPLES = Path(__file__).parents[2] / "examples"
SLIVERS, SITES = ("vm.yaml", "vm-modified.yaml"), ("site.yaml", "fake-site.yaml")


@cache
def validator(model: type[BaseModel]) -> jsonschema.Draft202012Validator:
    schema = json_schema(model)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def document(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text())


@pytest.mark.parametrize("name", SLIVERS)
def test_an_example_sliver_is_valid_for_the_schema_and_the_model(name: str) -> None:
    validator(NodeSliver).validate(document(name))
    assert load(EXAMPLES / name, NodeSliver, InvalidSliver).id == "demo-vm"


def test_an_example_service_is_valid_for_the_schema_and_the_model() -> None:
    validator(AnyService).validate(document("fabnet.yaml"))
    assert load(EXAMPLES / "fabnet.yaml", FABNetv4, InvalidSliver).id == "net-1"


@pytest.mark.parametrize("name", SITES)
def test_an_example_site_is_valid_for_the_schema_and_the_model(name: str) -> None:
    validator(Site).validate(document(name))
    assert load(EXAMPLES / name, Site, InvalidSite).networks.keys() == {"red", "blue"}


def test_the_modified_example_has_one_nic_more_and_no_volume() -> None:
    before, after = (load(EXAMPLES / name, NodeSliver, InvalidSliver) for name in SLIVERS)
    assert len(after.vnics()) == len(before.vnics()) + 1
    assert (len(before.volumes()), after.volumes()) == (1, ())
    fixed = {"components"}
    assert before.model_dump(exclude=fixed) == after.model_dump(exclude=fixed)


def test_the_fake_example_names_the_fake_driver_for_every_type() -> None:
    site = load(EXAMPLES / "fake-site.yaml", Site, InvalidSite)
    types = ("VM", "vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME")
    assert {site.driver_for(kind) for kind in types} | {site.guest} == {"fake"}


@pytest.mark.parametrize(
    ("model", "name", "change"),
    [
        (NodeSliver, "vm.yaml", {"id": "a b"}),
        (NodeSliver, "vm.yaml", {"bogus": 1}),
        (NodeSliver, "vm.yaml", {"capacities": {"core": "1", "ram": 1, "disk": 1}}),
        (NodeSliver, "vm.yaml", {"capacities": {"core": 0, "ram": 1, "disk": 1}}),
        (NodeSliver, "vm.yaml", {"components": [{"id": "d", "size": 1}]}),
        (NodeSliver, "vm.yaml", {"components": [{"id": "d", "type": "Toaster"}]}),
        (NodeSliver, "vm.yaml", {"components": [{"id": "g", "type": "GPU", "bdf": ["zz"]}]}),
        (Site, "site.yaml", {"hosts": {}}),
        (Site, "site.yaml", {"networks": {"n": {"subnet": "10.0.0.0/24"}}}),
        (Site, "site.yaml", {"limits": {"call": 0}}),
    ],
)
def test_the_schema_refuses_what_the_model_refuses(
    model: type[BaseModel], name: str, change: dict[str, Any]
) -> None:
    data = document(name) | change
    with pytest.raises(ValueError, match="validation error"):
        model.model_validate(data)
    with pytest.raises(jsonschema.ValidationError):
        validator(model).validate(data)


def test_fields_are_described_for_editors() -> None:
    schema = json_schema(NodeSliver)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["boot_script"]["description"].startswith("Run once at first boot")


def test_the_schema_of_a_node_takes_the_types_that_have_a_handler() -> None:
    ended = CliRunner().invoke(main, ["schema", "sliver"])
    schema = jsonschema.Draft202012Validator(json.loads(ended.stdout))
    vm = {"id": "x", "name": "x", "image": "i", "capacities": {"core": 1, "ram": 1, "disk": 1}}

    assert schema.is_valid(vm)
    assert schema.is_valid({**vm, "type": "VM"})
    assert not schema.is_valid({**vm, "type": "Server"})
