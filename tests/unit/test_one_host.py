"""A site with one host: a sliver that names it, that has it chosen or says nothing of it is there."""

from typing import Any

import pytest

from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import Finding, Outcome
from fabric_direct.processor import HandlerProcessor
from tests.outcomes import done, made
from tests.trust.scenes import node

NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
GPU = {"type": "GPU", "id": "gpu"}
WAYS: list[dict[str, Any]] = [{}, {"host": "localhost"}, {"host": "auto"}]
"""How a sliver says where it is."""


def stamped_host(fakes: Substrate) -> str | None:
    (server,) = fakes.servers.values()
    return server.stamp.sliver.host


@pytest.mark.parametrize("now", WAYS, ids=str)
@pytest.mark.parametrize("before", WAYS, ids=str)
class TestHowTheHostIsSaid:
    def test_is_no_difference_to_a_creation(
        self, processor: HandlerProcessor, before: dict[str, Any], now: dict[str, Any]
    ) -> None:
        done(processor.create(node(NIC, **before)).result())

        again = done(processor.create(node(NIC, **now)).result())

        assert made(again) == set()
        assert again.observed
        assert again.observed.host == "localhost"

    def test_is_no_difference_to_a_modification_or_its_plan(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        before: dict[str, Any],
        now: dict[str, Any],
    ) -> None:
        done(processor.create(node(NIC, **before)).result())
        was = stamped_host(fakes)

        planned = done(processor.plan(node(NIC, **now)).result())
        outcome = done(processor.modify(node(NIC, **now)).result())

        assert {step.finding for step in planned.steps} == {Finding.ALREADY_SO}
        assert made(outcome) == set()
        assert stamped_host(fakes) == was


@pytest.mark.parametrize("now", WAYS, ids=str)
def test_a_new_device_of_a_sliver_that_is_there_is_a_conflict_to_a_creation_and_said_once(
    processor: HandlerProcessor, now: dict[str, Any]
) -> None:
    done(processor.create(node(NIC)).result())

    outcome: Outcome = processor.create(node(NIC, GPU, **now)).result()

    assert outcome.error
    assert outcome.error.kind == "Conflict"
    assert "components.gpu none" in outcome.error.message
    assert outcome.warnings == ()
    assert outcome.data == {"host": "localhost"}
