"""A share of the requests to a cloud that go wrong; see `python -m tests.trust.http`."""

import pytest

from fabric_direct.state.journal import Journal
from tests.trust.http import SCENES, Point, judge, points
from tests.trust.http_faults import Asked


@pytest.mark.parametrize("name", SCENES)
def test_an_outcome_is_so_whatever_a_cloud_answers(name: str) -> None:
    every = points(name)

    verdict = judge(every[len(every) // 2])

    assert not verdict.sentences(), verdict.point


def test_a_fault_that_no_request_meets_is_found() -> None:
    verdict = judge(Point("action stop", Asked("GET compute /servers/detail", 99), "reset"))

    assert verdict.wrong == ("no request met the fault",)


def test_an_outcome_that_is_not_so_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "end", lambda *_: None)

    verdict = judge(Point("L2Bridge: create", Asked("POST networking /networks", 1), "403"))

    assert verdict.wrong == ("left: (), but in the journal: ('net-1',)",)
