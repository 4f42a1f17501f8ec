"""Reads that are cached in a plan, and answers that hold until something is changed."""

import threading

import pytest

from fabric_direct.calls.read_cache import ReadCache, current, read


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


def test_in_a_read_cache_the_same_question_is_asked_once(well: Well) -> None:
    with ReadCache(read_only=True).active():
        assert well.draw("water") == well.draw("water") == "1 l water"


def test_other_arguments_are_another_question(well: Well) -> None:
    with ReadCache(read_only=True).active():
        assert well.draw("water") != well.draw("oil")
        assert well.draw("water", unit="pt") == "3 pt water"
        assert Well().draw("oil") == "1 l oil"


def test_outside_of_a_read_cache_and_in_the_next_every_question_is_asked(well: Well) -> None:
    with ReadCache(read_only=True).active():
        well.draw("water")
    with ReadCache(read_only=True).active():
        well.draw("water")
    well.draw("water")

    assert well.draw("water") == "4 l water"


def test_a_read_cache_is_that_of_its_thread_alone(well: Well) -> None:
    with ReadCache(read_only=True).active():
        well.draw("water")
        other = threading.Thread(target=well.draw, args=("water",))
        other.start()
        other.join()

    assert well.asked == ["water", "water"]


def test_an_error_is_not_kept_and_ends_the_read_cache(well: Well) -> None:
    with ReadCache(read_only=True).active(), pytest.raises(ValueError, match="stone"):
        well.draw("stone")
    with pytest.raises(ValueError, match="stone"), ReadCache(read_only=True).active():
        well.draw("stone")
    well.draw("water")

    assert well.asked == ["stone", "stone", "water"]


def test_in_a_read_cache_that_is_not_read_only_what_is_only_read_is_asked_each_time(
    well: Well,
) -> None:
    with ReadCache().active():
        well.draw("water")
        well.draw("water")

    assert well.asked == ["water", "water"]


class TestReadCacheOfAnOperation:
    def test_is_that_of_the_calls_within_it(self) -> None:
        reads = ReadCache()

        with reads.active():
            assert current() is reads

        assert current() is None

    def test_keeps_an_answer_until_something_is_changed(self) -> None:
        reads, answers = ReadCache(), iter("abc")

        first = [reads.get("question", lambda: next(answers)) for _ in range(2)]
        reads.invalidate()

        assert first == ["a", "a"]
        assert reads.get("question", lambda: next(answers)) == "b"

    def test_keeps_what_is_about_other_things_than_the_one_that_changed(self) -> None:
        reads, answers = ReadCache(), iter("abc")
        reads.get("q", lambda: next(answers), about="ports")
        reads.get("q", lambda: next(answers), about="servers")

        reads.invalidate("ports")

        assert reads.get("q", lambda: next(answers), about="servers") == "b"
        assert reads.get("q", lambda: next(answers), about="ports") == "c"

    def test_forgets_what_is_about_several_things(self) -> None:
        reads, answers = ReadCache(), iter("abcd")
        for about in ("ports", "servers"):
            reads.get("q", lambda: next(answers), about=about)

        reads.invalidate("ports", "servers")

        assert [reads.get("q", lambda: next(answers), about=a) for a in ("ports", "servers")] == [
            "c",
            "d",
        ]

    def test_does_not_keep_an_answer_that_something_changed_during(self) -> None:
        reads = ReadCache()

        def ask() -> str:
            reads.invalidate()
            return "old"

        assert reads.get("q", ask) == "old"
        assert reads.get("q", lambda: "new") == "new"

    def test_keeps_no_error(self) -> None:
        reads = ReadCache()

        with pytest.raises(ZeroDivisionError):
            reads.get("q", lambda: 1 // 0)

        assert reads.get("q", lambda: 1) == 1
