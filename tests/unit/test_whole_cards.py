"""An FPGA that is named by one of its functions: the whole card goes to the VM, and leaves it."""

from typing import Any

import pytest

from fabric_direct.errors import InvalidSliver
from fabric_direct.model import AUTO, DeviceState, NodeSliver, Outcome, Status, StepStatus
from fabric_direct.operations.whole_cards import with_whole_cards
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done

CARD = ("0000:81:00.0", "0000:81:00.1")
OTHER, DRIVE = "0000:82:00.0", "0000:83:00.0"
ALLOWED = (
    *({"type": "FPGA", "bdf": address} for address in (*CARD, OTHER)),
    {"type": "NVME", "bdf": DRIVE},
)


def site_with(fake_site: Site, **hosts: tuple[dict[str, Any], ...]) -> Site:
    kinds = dict.fromkeys(("FPGA", "NVME"), "fake")
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | kinds,
        "hosts": {name: {"devices": devices} for name, devices in hosts.items()},
        "fake": {"hosts": {name: {} for name in hosts}},
    }
    return Site.model_validate(values)


@pytest.fixture
def site(fake_site: Site) -> Site:
    return site_with(fake_site, localhost=ALLOWED)


def vm(
    *functions: str, host: str | None = None, more: tuple[dict[str, Any], ...] = ()
) -> NodeSliver:
    size = {"core": 1, "ram": 1, "disk": 1}
    values = {"id": "vm-1", "name": "vm-1", "image": "tiny", "capacities": size, "host": host}
    fpga = {"type": "FPGA", "id": "fpga", "bdf": functions}
    return NodeSliver.model_validate({**values, "components": (fpga, *more)})


def functions(outcome: Outcome) -> list[str]:
    assert outcome.status is Status.DONE, outcome
    assert outcome.observed
    return [str(device.host_address) for device in outcome.observed.devices]


def named(sliver: NodeSliver) -> list[str]:
    return [str(address) for device in sliver.devices() for address in device.bdf]


def states(processor: HandlerProcessor) -> set[DeviceState]:
    return {d.state for d in processor.devices("localhost") if str(d.address) in CARD}


@pytest.mark.parametrize("one", CARD)
def test_all_functions_of_the_card_go_to_the_vm(processor: HandlerProcessor, one: str) -> None:
    assert sorted(functions(processor.create(vm(one)).result())) == [*CARD]
    assert states(processor) == {DeviceState.USED}

    probed = done(processor.probe(vm(one)).result())
    assert probed.observed
    assert probed.observed.differences == ()


def test_the_same_once_more_changes_nothing(processor: HandlerProcessor) -> None:
    done(processor.create(vm(CARD[0])).result())

    for again in (vm(CARD[0]), vm(*CARD), vm(CARD[1], CARD[0])):
        modified = done(processor.modify(again).result())
        devices = [s.status for s in modified.steps if "fpga" in s.step]
        assert set(devices) <= {StepStatus.ALREADY_SO}


def test_all_of_it_is_clean_when_the_vm_is_gone(processor: HandlerProcessor) -> None:
    done(processor.create(vm(CARD[0])).result())
    done(processor.delete(vm(CARD[0]).ref()).result())

    assert states(processor) == {DeviceState.FREE}


def test_a_rescan_by_one_function_takes_all(processor: HandlerProcessor) -> None:
    done(processor.create(vm(CARD[0])).result())

    acted = done(processor.poa(vm(CARD[0]).ref(), "rescan", {"bdf": [CARD[1]]}).result())

    assert acted.data == {"devices": [*CARD]}


def test_placement_assigns_the_whole_card(processor: HandlerProcessor) -> None:
    plan = processor.place([vm(CARD[0], host=AUTO)])
    (choice,) = plan.assignments

    assert [str(a) for a in choice.chosen.devices["fpga"]] == [*CARD]


def test_what_the_site_does_not_allow_stays(fake_site: Site) -> None:
    site = site_with(fake_site, localhost=ALLOWED[1:])

    assert named(with_whole_cards(site, vm(CARD[1]))) == [CARD[1]]


def test_another_type_has_what_it_names(site: Site) -> None:
    drive = {"type": "NVME", "id": "disk", "bdf": [DRIVE]}

    assert named(with_whole_cards(site, vm(OTHER, more=(drive,)))) == [OTHER, DRIVE]


def test_an_fpga_that_names_none_is_left_to_placement(site: Site) -> None:
    assert named(with_whole_cards(site, vm())) == []


def test_the_allow_list_of_the_named_host_counts(fake_site: Site) -> None:
    site = site_with(fake_site, w1=ALLOWED, w2=ALLOWED[1:])

    assert named(with_whole_cards(site, vm(CARD[1], host="w1"))) == [*CARD]
    assert named(with_whole_cards(site, vm(CARD[1], host="w2"))) == [CARD[1]]
    assert named(with_whole_cards(site, vm(CARD[1], host=AUTO))) == [CARD[1]]
    assert named(with_whole_cards(site, vm(CARD[1], host="w9"))) == [CARD[1]]


def test_two_components_of_one_card_are_refused(site: Site) -> None:
    second = {"type": "FPGA", "id": "second", "bdf": [CARD[1]]}

    with pytest.raises(InvalidSliver, match="is of two components"):
        with_whole_cards(site, vm(CARD[0], more=(second,)))
