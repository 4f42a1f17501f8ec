"""Reads that are made once in a moment, and answers that hold until something is changed."""

import threading

import pytest

from fabric_direct.drivers.read_cache import Moment, current, read


class Well:
    """Something to read, which counts how often it is."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @read
    def draw(self, what: str, unit: str = "l") -> str:
        """Say what was drawn."""
        self.asked.append(what)
        if what == "stone":
            raise ValueError(what)
        return f"{len(self.asked)} {unit} {what}"


@pytest.fixture
def well() -> Well:
    return Well()


def test_in_a_moment_the_same_question_is_asked_once(well: Well) -> None:
    with Moment(still=True).lasting():
        assert well.draw("water") == well.draw("water") == "1 l water"


def test_other_arguments_are_another_question(well: Well) -> None:
    with Moment(still=True).lasting():
        assert well.draw("water") != well.draw("oil")
        assert well.draw("water", unit="pt") == "3 pt water"
        assert Well().draw("oil") == "1 l oil"


def test_outside_of_a_moment_and_in_the_next_every_question_is_asked(well: Well) -> None:
    with Moment(still=True).lasting():
        well.draw("water")
    with Moment(still=True).lasting():
        well.draw("water")
    well.draw("water")

    assert well.draw("water") == "4 l water"


def test_a_moment_is_that_of_its_thread_alone(well: Well) -> None:
    with Moment(still=True).lasting():
        well.draw("water")
        other = threading.Thread(target=well.draw, args=("water",))
        other.start()
        other.join()

    assert well.asked == ["water", "water"]


def test_an_error_is_not_kept_and_ends_the_moment(well: Well) -> None:
    with Moment(still=True).lasting(), pytest.raises(ValueError, match="stone"):
        well.draw("stone")
    with pytest.raises(ValueError, match="stone"), Moment(still=True).lasting():
        well.draw("stone")
    well.draw("water")

    assert well.asked == ["stone", "stone", "water"]


def test_in_a_moment_that_is_not_still_what_is_only_read_is_asked_each_time(well: Well) -> None:
    with Moment().lasting():
        well.draw("water")
        well.draw("water")

    assert well.asked == ["water", "water"]


class TestAMomentOfAnOperation:
    def test_is_that_of_the_calls_within_it(self) -> None:
        moment = Moment()

        with moment.lasting():
            assert current() is moment

        assert current() is None

    def test_keeps_an_answer_until_something_is_changed(self) -> None:
        moment, answers = Moment(), iter("abc")

        first = [moment.ask("question", lambda: next(answers)) for _ in range(2)]
        moment.over()

        assert first == ["a", "a"]
        assert moment.ask("question", lambda: next(answers)) == "b"

    def test_keeps_what_is_about_other_things_than_the_one_that_changed(self) -> None:
        moment, answers = Moment(), iter("abc")
        moment.ask("q", lambda: next(answers), about="ports")
        moment.ask("q", lambda: next(answers), about="servers")

        moment.over("ports")

        assert moment.ask("q", lambda: next(answers), about="servers") == "b"
        assert moment.ask("q", lambda: next(answers), about="ports") == "c"

    def test_does_not_keep_an_answer_that_something_changed_during(self) -> None:
        moment = Moment()

        def ask() -> str:
            moment.over()
            return "old"

        assert moment.ask("q", ask) == "old"
        assert moment.ask("q", lambda: "new") == "new"

    def test_keeps_no_error(self) -> None:
        moment = Moment()

        with pytest.raises(ZeroDivisionError):
            moment.ask("q", lambda: 1 // 0)

        assert moment.ask("q", lambda: 1) == 1
