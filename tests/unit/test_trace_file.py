"""`--trace FILE`: what was called when, in the format that Perfetto opens."""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.calls import tracing
from fabric_direct.calls.tracing import Recorded, Recording, recording, remote, span
from fabric_direct.cli import main
from fabric_direct.cli.trace_file import document
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.site.config import Site

Slices = list[dict[str, Any]]


@pytest.fixture
def run(fake_site: Site, fakes: Substrate, tmp_path: Path) -> Callable[..., Result]:
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(fake_site.model_dump(mode="json", exclude_unset=True)))

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(main, ["--site", str(path), *map(str, words)])

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    values = {"id": "vm1", "name": "node", "image": "tiny", "host": "localhost"}
    nic = {"id": "nic1", "type": "vNIC", "network": "red"}
    path = tmp_path / "vm1.yaml"
    sizes = {"capacities": {"core": 1, "ram": 1, "disk": 1}, "components": [nic]}
    path.write_text(yaml.safe_dump(values | sizes))
    return path


def slices(path: Path) -> Slices:
    """Return the slices of a trace, each with the names of its process and its thread."""
    return named(json.loads(path.read_text()))


def named(trace: dict[str, Any]) -> Slices:
    events = trace["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    return [
        e
        | {"process": names["process_name", e["pid"], 0]}
        | {"thread": names["thread_name", e["pid"], e["tid"]]}
        for e in events
        if e["ph"] == "X"
    ]


def the(found: Slices, name: str) -> dict[str, Any]:
    (one,) = (each for each in found if each["name"] == name)
    return one


def is_within(one: dict[str, Any], other: dict[str, Any]) -> bool:
    ends = one["ts"] + one["dur"], other["ts"] + other["dur"]
    return bool(other["ts"] <= one["ts"] and ends[0] <= ends[1])


class TestAFile:
    def test_has_operations_their_steps_and_these_their_calls(
        self, run: Callable[..., Result], file: Path, tmp_path: Path
    ) -> None:
        assert run("create", file, "--trace", tmp_path / "out.json").exit_code == 0

        found = slices(tmp_path / "out.json")
        operation, step, call = (the(found, n) for n in ("create", "server", "compute.create"))
        assert {each["process"] for each in found} == {"vm1"}
        assert operation["thread"] == "operation"
        assert (step["thread"], call["thread"]) == ("server", "server")
        assert is_within(call, step)
        assert is_within(step, operation)
        assert call["args"] == {"host": "localhost"}

    def test_says_which_call_failed(
        self, run: Callable[..., Result], file: Path, tmp_path: Path, fakes: Substrate
    ) -> None:
        fakes.fault("compute.create", kind="fail")

        assert run("create", file, "--trace", tmp_path / "out.json").exit_code == 1

        found = slices(tmp_path / "out.json")
        assert the(found, "compute.create")["args"]["error"] == "DriverError"
        assert the(found, "undo server")["thread"] == "server"

    def test_is_for_its_owner_alone(
        self, run: Callable[..., Result], file: Path, tmp_path: Path
    ) -> None:
        run("create", file, "--trace", tmp_path / "out.json")

        assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o600

    def test_that_cannot_be_written_is_told_and_changes_nothing_of_the_outcome(
        self, run: Callable[..., Result], file: Path, tmp_path: Path, fakes: Substrate
    ) -> None:
        (tmp_path / ".out.json.new").mkdir()

        result = run("create", file, "--trace", tmp_path / "out.json")

        assert result.exit_code == 0
        assert f"Warning: no trace in {tmp_path}/out.json: Is a directory" in result.stderr
        assert list(fakes.servers) == ["vm1"]

    def test_in_no_directory_is_refused_before_anything_is_done(
        self, run: Callable[..., Result], file: Path, tmp_path: Path, fakes: Substrate
    ) -> None:
        result = run("create", file, "--trace", tmp_path / "nowhere/out.json")

        assert result.exit_code == 2
        assert "there is no directory" in result.stderr
        assert not fakes.servers


class TestARecording:
    def test_has_calls_of_functions_on_a_worker_within_the_drivers_call(self) -> None:
        with recording() as found, span("create", sliver="s1"), span("uplink.vfs", host="w1"):
            LocalHost("w1").call("files.resolve", timeout=60, path="/proc/self")

        function, call, operation = found.spans
        assert (function.name, function.attributes) == ("files.resolve", {"host": "w1"})
        assert (call.name, operation.name) == ("uplink.vfs", "create")
        assert {each.sliver for each in found.spans} == {"s1"}

    def test_ends_with_its_block(self) -> None:
        with recording() as found:
            pass
        with remote("later"):
            assert tracing._recording is None

        assert not found.spans


class TestThreads:
    @pytest.fixture
    def together(self) -> Recording:
        """Calls of one step that overlap, and one within the first."""
        found = Recording()
        found.began = 10.0
        for name, began, ended in (("a", 10, 14), ("b", 11, 15), ("c", 12, 13), ("d", 14, 16)):
            found.spans.append(Recorded("s1", "step", name, began, ended, "", {}))
        return found

    def test_have_slices_that_nest(self, together: Recording) -> None:
        found = sorted(named(document(together)), key=lambda each: (each["tid"], each["ts"]))
        rows = [[e["name"] for e in row] for _, row in groupby(found, lambda each: each["tid"])]

        assert rows == [["a", "c", "d"], ["b"]]
        assert {each["thread"] for each in found} == {"step"}

    def test_have_times_in_microseconds_since_the_begin(self, together: Recording) -> None:
        found = the(named(document(together)), "b")

        assert (found["ts"], found["dur"]) == (1e6, 4e6)
