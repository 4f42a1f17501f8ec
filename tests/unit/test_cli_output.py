"""What commands print for programs: one document for all, tables in four formats, columns, filters."""

import csv
import io
import json
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from fabric_direct.cli.inspection import DEVICE_STATES, TYPES
from fabric_direct.cli.sliver_list import STATES
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import DeviceState, State
from fabric_direct.site.config import AllowedDevice
from tests.outcomes import result_of
from tests.unit.test_cli import MORE, Run, Write, run, site, site_path, write

__all__ = ["run", "site", "site_path", "write"]


@pytest.fixture
def living(run: Run, write: Write) -> str:
    """Two slivers, of which one is stopped; return the file of the first."""
    run("create", write("two.yaml", id="vm2", name="web-1"), write())
    run("poa", "vm2", "stop")
    return write()


def rows(printed: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(printed)))


class TestTheDocument:
    @pytest.mark.parametrize(
        ("words", "command", "code"),
        [
            (["list"], "list", 0),
            (["devices"], "devices list", 0),
            (["topology", "vm1"], "topology", 0),
            (["plan", "FILE"], "plan", 0),
            (["create", "FILE"], "create", 0),
            (["probe", "vm1", "nobody"], "probe", 1),
            (["poa", "vm1", "cpuinfo"], "poa", 0),
            (["recover"], "recover", 0),
            (["reconcile", "--all"], "reconcile", 0),
            (["place", "FILE"], "place", 0),
            (["doctor"], "doctor", 0),
            (["watch", "--history"], "watch", 0),
            (["delete", "vm1", "vm2"], "delete", 0),
            (["modify", "MORE"], "modify", 0),
            (["create", "/nowhere.yaml"], "create", 2),
            (["create"], "create", 2),
            (["devices", "release", "localhost", "zz"], "devices release", 2),
            (["devices", "release", "localhost", "99:00.0"], "devices release", 2),
        ],
        ids=lambda each: " ".join(each) if isinstance(each, list) else "",
    )
    def test_of_every_command_is_as_the_schema_says(
        self, run: Run, write: Write, living: str, words: list[str], command: str, code: int
    ) -> None:
        files = {"FILE": living, "MORE": write("more.yaml", components=MORE)}
        schema = json.loads(run("schema", "outcome").stdout)

        printed = run(*(files.get(word, word) for word in words), "--json")

        document = json.loads(printed.stdout)
        jsonschema.validate(document, schema)
        assert (document["version"], document["command"]) == (1, command)
        assert printed.exit_code == code

    @pytest.mark.parametrize("field", ["version", "command", "outcomes", "result", "error"])
    def test_always_has(self, run: Run, field: str) -> None:
        schema = json.loads(run("schema", "outcome").stdout)
        document = json.loads(run("list", "--json").stdout)
        del document[field]
        with pytest.raises(jsonschema.ValidationError, match=f"'{field}' is a required property"):
            jsonschema.validate(document, schema)

    def test_says_why_a_command_failed(self, run: Run) -> None:
        document = json.loads(run("create", "/nowhere.yaml", "--json").stdout)
        assert document["outcomes"] == []
        assert document["error"]["kind"] == "InvalidSliver"
        assert "cannot read /nowhere.yaml" in document["error"]["message"]

    def test_has_the_errors_of_slivers_in_their_outcomes(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        fakes.fault("compute.create", kind="fail")
        document = json.loads(run("create", write(), "--json").stdout)
        assert document["error"] is None
        assert document["outcomes"][0]["error"]["kind"] == "DriverError"

    @pytest.mark.parametrize("words", [["create", "--json"], ["list", "-c", "x", "--json"]])
    def test_says_what_is_wrong_with_a_command_line(self, run: Run, words: list[str]) -> None:
        result = run(*words)
        assert result.exit_code == 2
        assert json.loads(result.stdout)["error"]["message"] in result.stderr.replace("\n", "")

    @pytest.mark.parametrize("words", [["probe", "vm1"], ["list"], ["create", "/nowhere.yaml"]])
    def test_is_the_same_in_yaml(self, run: Run, living: str, words: list[str]) -> None:
        as_json, as_yaml = run(*words, "-f", "json"), run(*words, "-f", "yaml")

        def timeless(document: Any) -> Any:
            return [{**each, "seconds": 0} for each in document.pop("outcomes")], document

        assert timeless(yaml.safe_load(as_yaml.stdout)) == timeless(json.loads(as_json.stdout))

    @pytest.mark.parametrize("words", [["--json", "list"], ["-f", "json", "list"]])
    def test_may_be_asked_for_before_the_command(self, run: Run, words: list[str]) -> None:
        assert result_of(run(*words).stdout) == []


@pytest.mark.usefixtures("living")
class TestColumns:
    def test_are_those_that_are_asked_for_in_that_order(self, run: Run) -> None:
        lines = run("list", "-c", "HOST", "-c", "sliver").stdout.splitlines()
        assert [line.split() for line in lines] == [
            ["HOST", "SLIVER"],
            ["localhost", "vm1"],
            ["localhost", "vm2"],
        ]

    def test_that_are_asked_for_are_shown_when_they_are_empty(self, run: Run) -> None:
        assert "LACKS" not in run("list").stdout
        assert run("list", "-c", "LACKS").stdout.split() == ["LACKS", "-", "-"]

    @pytest.mark.parametrize("form", ["json", "yaml"])
    def test_are_fields_for_programs(self, run: Run, form: str) -> None:
        printed = run("list", "-f", form, "-c", "sliver", "-c", "CORES").stdout
        result = yaml.safe_load(printed)["result"]
        assert result == [{"sliver": "vm1", "cores": 1}, {"sliver": "vm2", "cores": 1}]

    def test_that_are_unknown_are_bad_input_and_the_known_are_named(self, run: Run) -> None:
        result = run("list", "-c", "colour")
        assert result.exit_code == 2
        assert "'sliver'" in result.stderr


@pytest.mark.usefixtures("living")
class TestCsv:
    def test_has_all_columns_and_a_line_for_each_row(self, run: Run) -> None:
        header, *found = rows(run("list", "-f", "csv").stdout)
        assert header[:3] == ["SLIVER", "TYPE", "NAME"]
        assert header[-1] == "LACKS"
        assert [row[:4] for row in found] == [
            ["vm1", "VM", "node", "running"],
            ["vm2", "VM", "web-1", "stopped"],
        ]

    def test_has_the_columns_that_are_asked_for(self, run: Run) -> None:
        assert run("list", "-f", "csv", "-c", "name").stdout == "NAME\nnode\nweb-1\n"

    def test_of_nothing_has_its_header(self, run: Run) -> None:
        assert run("list", "-f", "csv", "-c", "name", "--name", "x*").stdout == "NAME\n"

    def test_is_for_tables_alone_and_nothing_is_touched(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        result = run("create", write(id="vm3"), "-f", "csv")
        assert result.exit_code == 2
        assert "'csv' is not one of" in result.stderr
        assert "vm3" not in fakes.servers


@pytest.mark.usefixtures("living")
class TestFilters:
    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["--name", "web-*"], ["vm2"]),
            (["--state", "running"], ["vm1"]),
            (["--host", "localhost"], ["vm1", "vm2"]),
            (["--name", "web-*", "--state", "running"], []),
        ],
    )
    def test_of_slivers_leave_those_that_match_all(
        self, run: Run, words: list[str], found: list[str]
    ) -> None:
        printed = run("list", *words, "--json").stdout
        assert [each["sliver"] for each in result_of(printed)] == found

    def test_know_all_states_and_types(self) -> None:
        assert {*STATES, "absent"} == {state.value for state in State}
        assert set(DEVICE_STATES) == {state.value for state in DeviceState}
        assert set(TYPES) == set(get_args(AllowedDevice.model_fields["type"].annotation))
