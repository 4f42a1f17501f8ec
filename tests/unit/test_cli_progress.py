"""What people see while operations run: live on a terminal, lines elsewhere."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from pytest_mock import MockerFixture
from rich.console import Console

from fabric_direct.calls.waiting import Waiting
from fabric_direct.cli import main, show
from fabric_direct.cli.live import LiveView
from fabric_direct.cli.options import BAD_INPUT
from fabric_direct.cli.progress import Lines, view
from fabric_direct.cli.under_way import seconds
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import Operation, Outcome, SliverRef, Status, StepStatus
from fabric_direct.operations.progress import Progress
from tests.conftest import FAKE_DRIVERS
from tests.outcomes import outcomes_of

ANSWER = Waiting("the guest to answer")
BUILD = Waiting("server node to be ACTIVE", "server BUILD")
DONE, CREATE = StepStatus.DONE, Operation.CREATE


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begins(sliver: str, step: str, **more: Any) -> Progress:
    return Progress(sliver, CREATE, step, None, 0.0, 1, 6, **more)


def ends(sliver: str, step: str, status: StepStatus = DONE) -> Progress:
    return Progress(sliver, CREATE, step, status, 1.5, 2, 6)


def outcome(sliver: str, status: Status = Status.DONE) -> Outcome:
    return Outcome(operation=CREATE, sliver=SliverRef(id=sliver), status=status, seconds=4)


class TestLines:
    @pytest.fixture
    def text(self) -> io.StringIO:
        return io.StringIO()

    @pytest.fixture
    def lines(self, text: io.StringIO, clock: Clock) -> Lines:
        return Lines(Console(file=text, width=100), clock)

    def test_are_one_for_each_step_that_has_ended_and_nothing_else(
        self, lines: Lines, text: io.StringIO
    ) -> None:
        for step in ("port nic1", "server"):
            lines.note(begins("vm1", step))
            lines.note(begins("vm1", step, waiting=BUILD))
            lines.look()
            lines.note(ends("vm1", step))

        assert text.getvalue().splitlines() == [
            "vm1  done           1.50 s  port nic1",
            "vm1  done           1.50 s  server",
        ]

    def test_say_every_30_s_what_takes_long_and_what_it_waits_for(
        self, lines: Lines, text: io.StringIO, clock: Clock
    ) -> None:
        lines.note(begins("vm1", "server", host="w1"))
        clock.now = 18
        lines.note(begins("vm1", "server", host="w1", waiting=BUILD))
        for clock.now in (29, 30, 31, 59, 60):
            lines.look()

        waits = "waiting for server node to be ACTIVE"
        assert text.getvalue().splitlines() == [
            f"vm1 on w1  under way     30.00 s  server: server BUILD for 12 s, {waits}",
            f"vm1 on w1  under way     60.00 s  server: server BUILD for 42 s, {waits}",
        ]

    def test_say_no_more_of_what_has_ended(
        self, lines: Lines, text: io.StringIO, clock: Clock
    ) -> None:
        lines.note(begins("vm1", "server"))
        assert not lines.ended(outcome("vm1"))
        clock.now = 100
        lines.look()

        assert text.getvalue() == ""

    def test_can_be_none(self, clock: Clock) -> None:
        lines = Lines(None, clock)
        lines.note(ends("vm1", "server"))
        lines.note(begins("vm1", "guest"))
        clock.now = 31
        lines.look()

    def test_are_printed_to_a_dumb_terminal_and_where_nobody_watches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = Console(file=io.StringIO(), force_terminal=True)
        assert isinstance(view(terminal, quiet=False, watch=False, report=None), Lines)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(view(terminal, quiet=False, watch=True, report=None), Lines)


class Terminal:
    """A live view, on a terminal of some size."""

    def __init__(self, clock: Clock, width: int = 80, height: int = 24) -> None:
        self.text = io.StringIO()
        self.console = Console(
            file=self.text, force_terminal=True, width=width, height=height, color_system=None
        )
        self.reported: list[str] = []
        self.view = LiveView(self.console, self._report, clock)

    def _report(self, outcome: Outcome, out: Console, _err: Console) -> None:
        self.reported.append(outcome.sliver.id)
        show.done(outcome, out)

    def lines(self) -> list[str]:
        return [line.plain for line in self.view.lines()]


@pytest.fixture
def terminal(clock: Clock) -> Terminal:
    return Terminal(clock)


class TestTheLiveView:
    def test_has_a_line_for_each_sliver_that_is_under_way(
        self, terminal: Terminal, clock: Clock
    ) -> None:
        terminal.view.begun(3)
        terminal.view.note(begins("vm1", "port nic1"))
        terminal.view.note(begins("vm1", "volume data"))
        clock.now = 4
        terminal.view.note(begins("node-2", "guest"))
        clock.now = 12
        terminal.view.note(begins("node-2", "guest", waiting=ANSWER))
        clock.now = 20

        assert terminal.lines() == [
            "vm1       1/6  port nic1 20 s, volume data 20 s",
            "node-2    1/6  guest 16 s: 8 s waiting for the guest to answer",
            "2 under way, 1 not begun; 20 s",
        ]

    def test_says_no_more_of_a_step_that_has_ended_or_waits_no_longer(
        self, terminal: Terminal
    ) -> None:
        terminal.view.note(begins("vm1", "guest", waiting=ANSWER))
        terminal.view.note(begins("vm1", "guest", waiting=Waiting("")))
        assert terminal.lines()[0] == "vm1    1/6  guest 0 s"
        terminal.view.note(ends("vm1", "guest"))
        assert terminal.lines()[0] == "vm1    2/6  …"

    def test_says_what_an_operation_waits_for_before_its_first_step(
        self, terminal: Terminal, clock: Clock
    ) -> None:
        leave = Waiting("another process to leave sliver vm1")
        waits = Progress("vm1", CREATE, "", None, 0.0, 0, 0, "", leave)
        terminal.view.note(waits)
        clock.now = 8
        assert terminal.lines()[0] == f"vm1      -  8 s waiting for {leave.what}"

    def test_of_one_sliver_is_one_line(self, terminal: Terminal) -> None:
        terminal.view.begun(1)
        assert terminal.lines() == ["looking at what is there, 0 s"]
        terminal.view.note(begins("vm1", "server"))
        assert terminal.lines() == ["vm1    1/6  server 0 s"]

    @pytest.mark.parametrize("width", [20, 80, 120])
    def test_wraps_no_line(self, clock: Clock, width: int) -> None:
        terminal = Terminal(clock, width)
        terminal.view.note(begins("a-sliver-with-a-long-name", "server", waiting=BUILD))

        assert all(len(line) < width for line in terminal.lines())

    def test_is_no_higher_than_the_screen(self, clock: Clock) -> None:
        terminal = Terminal(clock, height=10)
        for number in range(60):
            terminal.view.note(begins(f"vm-{number}", "server"))

        assert len(terminal.lines()) == 9
        assert terminal.lines()[-1] == "60 under way, 52 not shown; 0 s"

    def test_prints_what_has_ended_above_and_counts_it(self, terminal: Terminal) -> None:
        terminal.view.begun(4)
        for name in ("vm1", "vm2"):
            terminal.view.note(begins(name, "server"))

        with terminal.view:
            assert terminal.view.ended(outcome("vm1"))
            assert terminal.view.ended(outcome("vm2", Status.FAILED))
            assert not terminal.view.ended(None)
            assert terminal.lines() == ["1 done, 1 failed, 1 cancelled, 1 not begun; 0 s"]
        assert terminal.reported == ["vm1", "vm2"]

    def test_shows_nothing_that_a_terminal_obeys(self, terminal: Terminal) -> None:
        terminal.view.note(begins("vm1", "guest", waiting=Waiting("x\x1b]0;owned\x07")))
        assert "x\\x1b]0;owned\\x07" in terminal.lines()[0]

    def test_erases_what_a_narrower_terminal_has_wrapped(self, terminal: Terminal) -> None:
        for name in ("vm1", "vm2"):
            terminal.view.note(begins(name, "server", waiting=BUILD))
        with terminal.view:
            terminal.console.width = 40
            terminal.text.truncate(0)
            terminal.view.say("now")
            drawn = terminal.text.getvalue()

        # three lines were drawn; two of them have become two rows each
        assert drawn.partition("now")[0].count("\x1b[1A") == 4

    def test_leaves_the_cursor_and_no_line_of_its_own(self, terminal: Terminal) -> None:
        terminal.view.note(begins("vm1", "server"))
        with terminal.view:
            pass
        assert terminal.text.getvalue().rstrip().endswith("\x1b[2K")
        assert terminal.text.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize(
    ("duration", "said"), [(0.9, "0 s"), (99.9, "99 s"), (100, "1 min 40 s"), (605, "10 min 05 s")]
)
def test_durations_are_whole_seconds(duration: float, said: str) -> None:
    assert seconds(duration) == said


class TestCommands:
    @pytest.fixture
    def run(self, tmp_path: Path, fakes: Substrate) -> Callable[..., Result]:
        site = {
            "site": "TEST",
            "state_dir": str(tmp_path / "state"),
            "drivers": FAKE_DRIVERS,
            "guest": "fake",
            "images": {"tiny": {}},
        }
        vm = {"name": "n", "image": "tiny", "capacities": {"core": 1, "ram": 1, "disk": 1}}
        (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))
        (tmp_path / "vm.yaml").write_text(yaml.safe_dump(vm | {"id": "vm1"}))

        def invoke(*words: str) -> Result:
            argv = ["--site", str(tmp_path / "site.yaml"), words[0], str(tmp_path / "vm.yaml")]
            return CliRunner().invoke(main, [*argv, *words[1:]], catch_exceptions=False)

        return invoke

    @pytest.fixture
    def terminal(self, mocker: MockerFixture) -> io.StringIO:
        """Let stdout be a terminal."""
        text = io.StringIO()
        console = Console(file=text, force_terminal=True, width=100, color_system=None)
        mocker.patch.object(show, "console", return_value=console)
        return text

    def test_print_what_a_pipe_gets_as_ever(self, run: Callable[..., Result]) -> None:
        said = run("create").stdout.splitlines()
        assert [line.split()[-1] for line in said[:4]] == ["server", "power", "guest", "verify"]
        assert said[4].startswith("vm1: created in ")
        assert run("delete", "--watch").stdout.splitlines()[-1].startswith("vm1: deleted in ")

    def test_print_outcomes_once_on_a_terminal_and_no_line_for_a_step(
        self, run: Callable[..., Result], terminal: io.StringIO
    ) -> None:
        assert run("create").exit_code == 0
        assert terminal.getvalue().count("vm1: created in ") == 1
        assert "already so" not in terminal.getvalue()

    def test_print_a_line_for_each_step_there_if_nobody_watches(
        self, run: Callable[..., Result], terminal: io.StringIO
    ) -> None:
        run("create", "--no-watch")
        assert "already so     0.00 s  power" in terminal.getvalue()
        assert "\x1b[?25l" not in terminal.getvalue()

    def test_print_json_alone(self, run: Callable[..., Result]) -> None:
        result = run("create", "--json")
        assert [each["status"] for each in outcomes_of(result.stdout)] == ["done"]
        assert result.stderr == ""

    def test_begin_nothing_that_shall_be_left_to_conductors_where_there_are_none(
        self, run: Callable[..., Result], fakes: Substrate
    ) -> None:
        result = run("create", "--detach")
        assert result.exit_code == BAD_INPUT
        assert result.stderr.startswith("Error: --detach: nobody would go on with the operations: ")
        assert not fakes.calls

    def test_import_what_draws_only_where_it_is_drawn(
        self, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("rich.live", "fabric_direct.cli.live"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        run("create")
        assert not {"rich.live", "fabric_direct.cli.live"} & sys.modules.keys()
