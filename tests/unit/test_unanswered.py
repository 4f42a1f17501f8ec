"""Requests without an answer: they may still take effect, for as long as the site says."""

from collections.abc import Callable
from typing import Any

import pytest

from fabric_direct.calls.deadline import unanswered
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.fake.volume import FakeVolume
from fabric_direct.errors import TimedOut
from fabric_direct.model import NodeSliver, Outcome, SliverRef, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done

MakeVm = Callable[..., NodeSliver]
REF = SliverRef(id="sliver-1", type="VM")


def hasty(site: Site, **limits: float) -> Site:
    """The site, where nobody waits long for what may still take effect."""
    values = {"undo": 1.0} | limits
    return site.model_copy(update={"limits": site.limits.model_copy(update=values)})


@pytest.fixture
def site(fake_site: Site) -> Site:
    return hasty(fake_site)


def assert_unknown(outcome: Outcome, request: str) -> None:
    assert not outcome.ok
    assert [left for left in outcome.left if request in left and "may still take effect" in left]


@pytest.fixture
def lost(fakes: Substrate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first volume that is asked for: its request gets no answer, and comes to nothing."""
    create, asked = FakeVolume.create, []

    def lose(self: FakeVolume, *args: Any) -> Any:
        asked.append(args)
        if len(asked) > 1:
            return create(self, *args)
        unanswered("POST /volumes")
        raise TimedOut("no answer")

    monkeypatch.setattr(FakeVolume, "create", lose)


@pytest.mark.usefixtures("lost")
def test_is_named_and_holds_up_the_next_operation(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    outcome = processor.create(vm()).result()
    busy = processor.create(vm()).result()

    assert_unknown(outcome, "POST /volumes")
    assert processor.unfinished()
    assert busy.error
    assert busy.error.kind == "SliverBusy"


@pytest.mark.usefixtures("lost")
def test_is_waited_for_where_there_is_time(fake_site: Site, fakes: Substrate, vm: MakeVm) -> None:
    with HandlerProcessor(hasty(fake_site, unanswered=0.1, undo=60.0)) as processor:
        outcome = processor.create(vm()).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert processor.unfinished() == ()
        done(processor.create(vm()).result())


@pytest.mark.usefixtures("lost")
def test_holds_up_another_process_too(
    processor: HandlerProcessor, fake_site: Site, fakes: Substrate, vm: MakeVm
) -> None:
    processor.create(vm()).result()

    with HandlerProcessor(hasty(fake_site)) as other:
        busy = other.create(vm()).result()
        deleted = other.delete(REF).result()

        assert_unknown(busy, "a request of another process")
        assert_unknown(deleted, "a request of another process")
        assert other.unfinished()


@pytest.mark.usefixtures("lost")
def test_holds_up_another_process_no_longer_than_it_may_take_effect(
    fake_site: Site, fakes: Substrate, vm: MakeVm
) -> None:
    with HandlerProcessor(hasty(fake_site, unanswered=3.0, undo=0.2)) as processor:
        assert_unknown(processor.create(vm()).result(), "POST /volumes")

    with HandlerProcessor(hasty(fake_site, busy=30.0)) as other:
        done(other.create(vm()).result())
        assert other.unfinished() == ()
