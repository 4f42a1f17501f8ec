"""Requests: what one process writes, another reads as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers import registry
from fabric_direct.model import NodeSliver, Operation, Sliver, SliverRef
from fabric_direct.model.adoption import Adoption
from fabric_direct.operations.requests import (
    ActionRequest,
    AdoptionRequest,
    ChangeRequest,
    LookRequest,
    OperationRequest,
    PlanRequest,
    RecoveryRequest,
    dumps,
    loads,
)
from fabric_direct.operations.saved_plan import PlannedSliver
from fabric_direct.placement.placer import Placement
from fabric_direct.state.journal import Unfinished
from fabric_direct.state.pending_looks import PendingLook

MakeVm = Callable[..., NodeSliver]
EXAMPLES = sorted(Path("examples").rglob("*.yaml"))


def slivers(path: Path) -> list[Sliver]:
    """Return the valid slivers of a file."""
    found = []
    for document in yaml.safe_load_all(path.read_text()):
        if isinstance(document, dict) and {"id", "type"} <= document.keys():
            model = registry.sliver_model(document)
            if document_is_valid(model, document):
                found.append(model.model_validate(document))
    return found


def document_is_valid(model: type[Sliver], document: dict[str, Any]) -> bool:
    try:
        model.model_validate(document)
    except ValueError:
        return False
    return True


def test_the_slivers_of_all_examples_are_read_as_they_were() -> None:
    every = [sliver for path in EXAMPLES for sliver in slivers(path)]
    assert {sliver.type for sliver in every} > {"VM", "L2Bridge", "FABNetv4", "BareMetal"}

    for sliver in every:
        for request in (
            ChangeRequest(operation=Operation.CREATE, sliver=sliver),
            OperationRequest(operation=Operation.PROBE, sliver=sliver),
            OperationRequest(operation=Operation.DELETE, sliver=sliver.ref()),
        ):
            read = loads(dumps(request))
            assert (read, type(read.sliver)) == (request, type(request.sliver))


def test_each_kind_is_read_as_it_was(vm: MakeVm) -> None:
    sliver = vm()
    ref = sliver.ref()
    entry = Unfinished(
        operation=Operation.MODIFY,
        sliver=sliver.model_dump(mode="json", exclude_none=True),
        since="2026-01-01T00:00:00+00:00",
        owns_everything=False,
        until=1.5,
    )
    placement = Placement(sliver, cost=3, next=("w2",), warnings=("old",), new=True)
    expected = PlannedSliver(
        operation="create", sliver={"id": sliver.id, "type": "VM"}, host="w1", steps=()
    )
    adoption = Adoption(sliver=sliver, server="theirs", volumes={"data": "disk"})

    for request in (
        ChangeRequest(operation=Operation.CREATE, sliver=sliver, placement=placement),
        ChangeRequest(operation=Operation.MODIFY, sliver=sliver, expected=expected),
        ActionRequest(sliver=ref, action="reboot", data={"hard": True, "more": [1, {"a": None}]}),
        AdoptionRequest(operation=Operation.ADOPT, sliver=sliver, wanted=adoption),
        PlanRequest(sliver=sliver, planned=Operation.CREATE),
        PlanRequest(sliver=ref),
        RecoveryRequest(operation=Operation.MODIFY, sliver=ref, entry=entry, undo=True),
        LookRequest(sliver=ref, look=PendingLook(ref, "w1", found=True, latest=False)),
    ):
        assert loads(dumps(request)) == request


def test_secrets_of_a_sliver_are_sent(vm: MakeVm) -> None:
    sliver = vm().model_copy(update={"boot_script": "#!/bin/sh\necho \u0000 ü 'x'\n"})

    read = loads(dumps(ChangeRequest(operation=Operation.CREATE, sliver=sliver))).sliver

    assert isinstance(read, NodeSliver)
    assert read.boot_script == sliver.boot_script


def test_data_that_are_no_json_are_refused() -> None:
    request = ActionRequest(
        sliver=SliverRef(id="a", type="VM"), action="reboot", data={"hard": object()}
    )

    with pytest.raises(InvalidSliver, match="values of JSON"):
        dumps(request)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "NoSuchRequest {}", "ChangeRequest {}", "ChangeRequest [", "OperationRequest null"],
)
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)
