"""A share of the matrix of `make test-trust`: each operation, at some of its points."""

import pytest

from fabric_direct.state.journal import Journal
from tests.trust.matrix import SCENES, Point, judge, points, without_gaps
from tests.trust.page import PAGE
from tests.trust.tap import Call

_EACH = 23
"""Which points of an operation are tried: no multiple of the number of faults of a call."""


@pytest.mark.parametrize("name", SCENES)
def test_an_outcome_is_so_whatever_goes_wrong(name: str) -> None:
    verdicts = [judge(point) for point in without_gaps(points(name))[::_EACH]]

    assert verdicts
    assert not [f"{v.point}: {text}" for v in verdicts for text in v.sentences()]


def test_a_fault_that_no_call_meets_is_found() -> None:
    verdict = judge(Point("action stop", Call("w1", "compute.stop", 9), "fails"))

    assert verdict.wrong == ("no call met the fault",)


def test_an_outcome_that_is_not_so_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "end", lambda *_: None)

    verdict = judge(Point("L2Bridge: create", Call("w1", "service.apply", 1), "fails"))

    assert verdict.wrong == ("says nothing is left, but is still in the journal",)


def test_the_page_has_every_operation() -> None:
    rows = PAGE.read_text()

    assert [name for name in SCENES if f"\n| {name} |" not in rows] == []
