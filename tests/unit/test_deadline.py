"""Limits of time on calls, and waiting until something is so."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

import pytest

from fabric_direct.calls.deadline import (
    Call,
    Deadline,
    at_once,
    bounded,
    call_within,
    noting,
    unanswered,
    wait_until,
)
from fabric_direct.calls.reading import Reading
from fabric_direct.errors import TimedOut


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_in_time_is_returned() -> None:
    assert call_within(5, "adding", lambda a, b: a + b, 1, b=2) == 3


def test_an_error_of_the_call_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        call_within(5, "dividing", lambda: 1 / 0)


def test_a_timeout_that_the_call_itself_raises_is_not_taken_for_ours() -> None:
    def own() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        call_within(5, "waiting", own)


def test_a_call_that_hangs_is_given_up(never: threading.Event) -> None:
    with pytest.raises(TimedOut, match="waiting did not answer"):
        call_within(0.05, "waiting", never.wait)


def test_nothing_is_begun_when_no_time_is_left() -> None:
    begun: list[int] = []

    with pytest.raises(TimedOut, match="was not begun"):
        call_within(0, "adding", begun.append, 1)

    assert begun == []


class Driver:
    host = "here"

    def __init__(self, never: threading.Event) -> None:
        self.never = never

    def hang(self) -> None:
        self.never.wait()

    def wait(self, *, timeout: float) -> float:
        return timeout


def test_each_call_of_a_bounded_driver_has_the_limit(never: threading.Event) -> None:
    driver = bounded(Driver(never), "compute", Deadline.within(60), 0.05)

    with pytest.raises(TimedOut, match=r"compute\.hang"):
        driver.hang()


def test_a_call_that_was_given_up_is_kept_until_it_returns(never: threading.Event) -> None:
    deadline = Deadline.within(60)

    with pytest.raises(TimedOut):
        bounded(Driver(never), "compute", deadline, 0.05).hang()

    (call,) = deadline.late()
    assert call.what == "compute.hang"
    never.set()
    deadline.settle(30)
    assert deadline.late() == ()
    assert deadline.given_up == [call]


def test_a_call_that_changes_nothing_is_not_kept(never: threading.Event) -> None:
    deadline = Deadline.within(60)

    with pytest.raises(TimedOut):
        bounded(
            Driver(never), "compute", deadline, 0.05, reading=Reading(frozenset({"hang"}))
        ).hang()

    assert deadline.given_up == []


def test_a_deadline_of_its_own_is_renewed_apart_and_keeps_the_same_calls(
    never: threading.Event,
) -> None:
    deadline = Deadline.within(0)
    own = deadline.of_its_own()

    own.renew(50)
    own.give_up([Call("waiting", never.wait)])

    assert deadline.remaining() == 0
    assert deadline.late() == own.late() != ()


def test_the_deadline_goes_before_the_limit(never: threading.Event) -> None:
    driver = bounded(Driver(never), "compute", Deadline.within(0.05), 60)

    with pytest.raises(TimedOut):
        driver.hang()


def test_a_calls_own_timeout_is_cut_to_what_is_left(never: threading.Event) -> None:
    driver = bounded(Driver(never), "compute", Deadline.within(10), 5)

    assert driver.wait(timeout=1000) <= 10
    assert driver.wait(timeout=3) == 3


def test_attributes_are_passed_through(never: threading.Event) -> None:
    assert bounded(Driver(never), "compute", Deadline.within(1), 1).host == "here"


def test_a_deadline_can_be_renewed() -> None:
    deadline = Deadline.within(0)

    deadline.renew(50)

    assert 0 < deadline.remaining() <= 50
    assert deadline.remaining(at_most=3) == 3


def test_waiting_asks_until_it_is_so() -> None:
    answers = iter([False, False, True])

    wait_until("it", lambda: next(answers), timeout=60)

    assert next(answers, "no more") == "no more"


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(TimedOut, match="for the moon"):
        wait_until("the moon", lambda: False, timeout=0.05)


class Asking:
    """A driver whose requests get no answer."""

    def make(self) -> None:
        unanswered("POST /ports (nic1)")
        raise TimedOut("no answer")

    def find(self) -> None:
        unanswered("POST /auth/tokens")

    def make_and_find(self) -> None:
        with noting() as noted:
            unanswered("POST /ports (nic1)")
        for request in noted:
            request.known()


class TestARequestWithoutAnAnswer:
    @pytest.fixture
    def deadline(self) -> Deadline:
        return Deadline.within(60, unanswered=1000)

    def driver(self, deadline: Deadline) -> Asking:
        return bounded(Asking(), "network", deadline, 30, reading=Reading(frozenset({"find"})))

    def test_is_a_call_that_was_given_up(self, deadline: Deadline) -> None:
        with pytest.raises(TimedOut):
            self.driver(deadline).make()

        assert [call.what for call in deadline.late()] == ["POST /ports (nic1)"]

    def test_is_over_when_it_cannot_take_effect_any_more(self) -> None:
        deadline = Deadline.within(60, unanswered=0.01)
        with pytest.raises(TimedOut):
            self.driver(deadline).make()

        deadline.settle(30)

        assert (deadline.late(), len(deadline.given_up)) == ((), 1)

    def test_is_over_when_it_is_known_what_came_of_it(self, deadline: Deadline) -> None:
        self.driver(deadline).make_and_find()

        assert (deadline.late(), len(deadline.given_up)) == ((), 1)

    def test_of_a_call_that_only_reads_has_no_effect(self, deadline: Deadline) -> None:
        self.driver(deadline).find()

        assert deadline.given_up == []

    def test_of_a_part_is_the_whole_operations(self, deadline: Deadline) -> None:
        with pytest.raises(TimedOut):
            self.driver(deadline.of_its_own()).make()

        assert [call.what for call in deadline.late()] == ["POST /ports (nic1)"]

    def test_is_noted_for_no_one_outside_of_an_operation(self) -> None:
        with pytest.raises(TimedOut):
            Asking().make()


def test_a_call_within_a_drivers_call_is_kept_too(never: threading.Event) -> None:
    class Driver:
        def make(self) -> None:
            call_within(0.05, "files.write", never.wait)

    deadline = Deadline.within(60)

    with pytest.raises(TimedOut):
        bounded(Driver(), "host", deadline, 30).make()

    assert [call.what for call in deadline.late()] == ["files.write"]


class TestQuestionsThatAreAskedAtOnce:
    def test_wait_for_each_other_and_are_answered_in_order(self) -> None:
        together = threading.Barrier(3)

        def question(answer: int) -> int:
            together.wait(60)
            return answer

        assert at_once(*(partial(question, number) for number in range(3))) == (0, 1, 2)

    def test_see_the_callers_context(self) -> None:
        context: ContextVar[str] = ContextVar("context")
        context.set("the caller's")

        assert at_once(context.get, context.get) == ("the caller's",) * 2

    @pytest.mark.parametrize("failing", [(0,), (2,), (0, 2)])
    def test_raise_the_first_error_when_all_have_answered(self, failing: tuple[int, ...]) -> None:
        asked: list[int] = []

        def question(number: int) -> None:
            asked.append(number)
            if number in failing:
                raise ValueError(number)

        with pytest.raises(ValueError, match=str(failing[0])):
            at_once(*(partial(question, number) for number in range(3)))

        assert sorted(asked) == [0, 1, 2]
