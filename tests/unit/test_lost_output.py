"""What commands do when their stdout cannot be written: full, closed, or its reader has left."""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from fabric_direct.cli import main
from fabric_direct.drivers.fake import Substrate
from tests.outcomes import outcomes_of
from tests.unit.test_cli import Run, Write, run, site, site_path, write

__all__ = ["run", "site", "site_path", "write"]

OTHER = {"name": "other"}
FORK = multiprocessing.get_context("fork")
Lost = Callable[..., tuple[int, str]]


def _without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


STDOUTS: dict[str, Callable[[], int | None]] = {
    "full": lambda: os.open("/dev/full", os.O_WRONLY),
    "without reader": _without_reader,
    "closed": lambda: None,
}


@pytest.fixture(params=list(STDOUTS))
def lost(request: pytest.FixtureRequest, site_path: Path, fakes: Substrate, tmp_path: Path) -> Lost:
    """Run the command line in a process whose stdout cannot be written; return its code and stderr."""
    errors = tmp_path / "stderr"

    def invoke(*words: str) -> tuple[int, str]:
        ours, theirs = FORK.Pipe()
        child = FORK.Process(
            target=_run,
            args=(theirs, STDOUTS[request.param](), errors, ("--site", str(site_path), *words)),
        )
        child.start()
        theirs.close()
        try:
            assert ours.poll(120), "it does not end"
            return ours.recv(), errors.read_text()
        finally:
            child.kill()
            child.join()

    return invoke


def _run(told: Connection, stdout: int | None, errors: Path, words: tuple[str, ...]) -> None:
    sys.stderr = errors.open("w")
    if stdout is None:  # as Python begins then
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]
    else:
        os.dup2(stdout, 1)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the process ends
    code = 0
    try:
        main(words, prog_name="fabric-direct")
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stderr.flush()
    sys.stdout.flush()  # as Python does when it ends
    told.send(code)


class TestWhatWasDone:
    @pytest.mark.parametrize("options", [(), ("--json",), ("-f", "yaml")], ids=" ".join)
    def test_is_told_on_stderr_and_not_called_a_failure_that_left_nothing(
        self, lost: Lost, write: Write, options: tuple[str, ...]
    ) -> None:
        code, said = lost("create", write(), *options)
        assert code == 3
        assert said.startswith("Error: stdout cannot be written: ")
        assert said.endswith("\n  vm1: create done\n")
        assert "Traceback" not in said

    def test_is_told_of_each_sliver(self, run: Run, lost: Lost, write: Write) -> None:
        run("create", write())
        code, said = lost("create", write(**OTHER), write("b.yaml", id="vm2"))
        assert code == 3
        assert "\n  vm2: create done\n" in said
        assert "\n  vm1: create failed: Conflict: " in said

    def test_that_is_a_failure_which_left_nothing_keeps_its_code(
        self, run: Run, lost: Lost, write: Write
    ) -> None:
        run("create", write())
        code, said = lost("create", write(**OTHER), "--json")
        assert (code, "vm1: create failed: Conflict: " in said) == (1, True)

    def test_by_an_action_is_told(self, run: Run, lost: Lost, write: Write) -> None:
        run("create", write())
        code, said = lost("poa", "vm1", "stop")
        assert (code, said.splitlines()[-1]) == (3, "  vm1: poa done")

    def test_to_an_uplink_is_told(self, lost: Lost, fakes: Substrate) -> None:
        fakes.uplinks = {"ens6f1": "veb"}
        code, said = lost("uplink", "localhost", "ens6f1", "--vepa", "on")
        assert (code, said.splitlines()[-1]) == (3, "  ens6f1 of localhost: vepa")


class TestWhatOnlyLooks:
    @pytest.mark.parametrize("words", [("--help",), ("--version",), ("create", "--help")])
    def test_that_tells_of_the_program_fails(self, lost: Lost, words: tuple[str, ...]) -> None:
        code, said = lost(*words)
        assert code == 1
        assert "Traceback" not in said

    @pytest.mark.parametrize("words", [("list",), ("probe", "vm1"), ("devices", "--json")])
    def test_fails(self, run: Run, lost: Lost, write: Write, words: tuple[str, ...]) -> None:
        run("create", write())
        code, said = lost(*words)
        assert code == 1
        assert "Traceback" not in said
        assert "bug" not in said

    def test_keeps_the_code_of_bad_input(self, lost: Lost, write: Write) -> None:
        code, said = lost("create", write(name=7), "--json")
        assert code == 2
        assert "name: must be text" in said


class TestAWrongCommandLine:
    @pytest.mark.parametrize(
        "words",
        [
            ("create", "--bogus", "x", "--json"),
            ("create", "--json", "--bogus"),
            ("--json", "--bogus"),
            ("--bogus", "list", "-f", "json"),
            ("--bogus", "list", "--format=json"),
            ("create", "-fjson"),
            ("crate", "--json"),
            ("devices", "release", "--json"),
        ],
        ids=" ".join,
    )
    def test_is_told_to_programs_wherever_they_ask_for_json(
        self, run: Run, words: tuple[str, ...]
    ) -> None:
        result = run(*words)
        document = json.loads(result.stdout)
        assert result.exit_code == 2
        assert outcomes_of(result.stdout) == []
        assert document["error"]["message"]

    def test_is_told_in_yaml(self, run: Run) -> None:
        result = run("create", "--bogus", "-f", "yaml")
        assert result.stdout.startswith("version: 1\ncommand: create\n")

    def test_keeps_its_code_where_nobody_can_be_told(self, lost: Lost) -> None:
        assert lost("create", "--bogus", "--json")[0] == 2
