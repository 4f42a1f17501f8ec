"""Whatever another hand did to a sliver: modify reaches what is asked for, and delete leaves nothing.

A share of what `make test-trust` tries, shrunk by hypothesis where it fails, and what failed once.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from tests.outcomes import done
from tests.trust.anywhere import Case, judge
from tests.trust.changes import CHANGES, CHOICES, Change, Choices, change

MakeVm = Callable[..., NodeSliver]
GPU: Choices = (("gpu", 1),)
DISK: Choices = (("any", 1),)
SHARED: Choices = (("more", 0),)
DATA: Choices = (("data", 0),)


def slivers() -> st.SearchStrategy[Choices]:
    chosen = st.lists(st.sampled_from(CHOICES), unique_by=lambda choice: choice[0])
    return chosen.map(lambda each: tuple(sorted(each)))


@settings(max_examples=25, derandomize=True)
@given(slivers(), st.lists(st.sampled_from(CHANGES), max_size=6), slivers())
def test_modify_and_delete_reach_what_is_asked_for(
    first: Choices, changes: list[Change], wanted: Choices
) -> None:
    assert judge(Case(first, tuple(changes), wanted)) == ()


@pytest.mark.parametrize(
    ("first", "changes", "wanted"),
    [
        ((), [Change("hold port", "any", "red")], DISK),
        ((), [Change("hold port", "any", "red"), Change("plug NIC", "any")], DISK),
        (DATA, [Change("make volume", "gpu", 1), Change("plug NIC", "gpu")], ()),
        (SHARED, [Change("plug disk", "more", "/fake/other")], SHARED),
        (SHARED, [Change("make volume", "more", 2)], SHARED),
        (DATA, [Change("lose server"), Change("make volume", "data", 2)], DATA),
        (DATA, [Change("make volume", "data", 2)], DATA),
        (GPU, [Change("lose record", "gpu")], GPU),
        (GPU, [Change("lose record", "gpu")], ()),
        ((), [Change("plug device", "stray", "27:00.0")], ()),
        (GPU, [Change("plug device", "gpu", "27:00.0")], GPU),
        (GPU, [Change("record", "gpu", "27:00.0")], GPU),
        (GPU, [Change("record", "stray", "26:00.0")], GPU),
        ((), [Change("record", "data", "26:00.0")], DATA),
        (
            (("vf", 0),),
            [Change("unstamp", "vf"), Change("resize", value=4)],
            (("vf", 1),),
        ),
    ],
    ids=str,
)
def test_also_from_what_once_was_left_or_not_told(
    first: Choices, changes: list[Change], wanted: Choices
) -> None:
    assert judge(Case(first, tuple(changes), wanted)) == ()


def test_a_volume_of_another_size_is_named_and_kept(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    done(processor.create(vm()).result())
    key = ("sliver-1", "data")
    fakes.volumes[key] = replace(fakes.volumes[key], size=2)

    outcome = processor.modify(vm()).result()

    assert outcome.error
    assert (outcome.error.kind, outcome.error.field) == ("InvalidSliver", "components[2].size")
    assert fakes.volumes[key].size == 2


def test_a_disk_that_is_another_volume_is_told(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    done(processor.create(vm()).result())
    change(fakes, [Change("plug disk", "data", "/fake/other")])

    observed = done(processor.probe(vm()).result()).observed

    assert observed
    said = "volume data is /fake/other, not /fake/sliver-1.data"
    assert observed.differences == (said,)


def test_a_disk_that_is_another_volume_is_left_as_it_is(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    """It may be a snapshot of the volume that an operator has taken."""
    done(processor.create(vm()).result())
    change(fakes, [Change("plug disk", "data", "/fake/snapshot")])

    outcome = processor.modify(vm()).result()

    assert outcome.error
    assert (outcome.error.kind, outcome.error.field) == ("InvalidSliver", "components[2]")
    assert {disk.source for disk in fakes.servers["sliver-1"].volumes} == {"/fake/snapshot"}


def test_a_nic_in_the_server_of_another_sliver_that_is_not_its_ports_is_plugged_anew(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    done(processor.create(vm()).result())
    ports = [{"id": "p1", "server": "sliver-1"}]
    sliver = VNicPortsSliver.model_validate({"id": "net-1", "network": "red", "ports": ports})
    done(processor.create(sliver).result())
    held = fakes.ports["net-1", "p1"]
    fakes.ports["net-1", "p1"] = replace(held, mac="52:54:00:77:77:77")

    done(processor.modify(sliver).result())

    assert fakes.plugs["net-1", "p1"].nic.mac == "52:54:00:77:77:77"
