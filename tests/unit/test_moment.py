"""Reads that are made once in a moment."""

import threading

import pytest

from fabric_direct.drivers.moment import one_moment, read


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
    with one_moment():
        assert well.draw("water") == well.draw("water") == "1 l water"


def test_other_arguments_are_another_question(well: Well) -> None:
    with one_moment():
        assert well.draw("water") != well.draw("oil")
        assert well.draw("water", unit="pt") == "3 pt water"
        assert Well().draw("oil") == "1 l oil"


def test_outside_of_a_moment_and_in_the_next_every_question_is_asked(well: Well) -> None:
    with one_moment():
        well.draw("water")
    with one_moment():
        well.draw("water")
    well.draw("water")

    assert well.draw("water") == "4 l water"


def test_a_moment_is_that_of_its_thread_alone(well: Well) -> None:
    with one_moment():
        well.draw("water")
        other = threading.Thread(target=well.draw, args=("water",))
        other.start()
        other.join()

    assert well.asked == ["water", "water"]


def test_an_error_is_not_kept_and_ends_the_moment(well: Well) -> None:
    with one_moment(), pytest.raises(ValueError, match="stone"):
        well.draw("stone")
    with pytest.raises(ValueError, match="stone"), one_moment():
        well.draw("stone")
    well.draw("water")

    assert well.asked == ["stone", "stone", "water"]
