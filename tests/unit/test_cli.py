"""The command line: what it prints, where, and with which exit code. On the fake drivers."""

import errno
import importlib
import importlib.metadata
import io
import json
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import click
import libvirt
import pytest
import yaml
from click.testing import CliRunner, Result
from pytest_mock import MockerFixture
from rich.console import Console

from fabric_direct.calls.read_cache import warn
from fabric_direct.cli import completion, main, running, show, sliver_report
from fabric_direct.cli.options import PLACES, Settings, printable
from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.drivers.fake import FakeDevice, Substrate
from fabric_direct.errors import InvalidSite
from fabric_direct.handlers.vm import actions
from fabric_direct.model import (
    DeviceState,
    Observed,
    ObservedDevice,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    State,
    Status,
)
from fabric_direct.site.config import Site, load_site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.store import sliver_lock
from tests.outcomes import outcomes_of, result_of

SITE = {
    "site": "TEST",
    "drivers": dict.fromkeys(
        ("VM", "vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"), "fake"
    ),
    "guest": "fake",
    "images": {"tiny": {}},
    "networks": {
        "red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"},
        "blue": {"strategy": "flat_dhcp", "subnet": "10.20.2.0/24"},
    },
}
VM: dict[str, Any] = {
    "id": "vm1",
    "name": "node",
    "image": "tiny",
    "capacities": {"core": 1, "ram": 1, "disk": 1},
    "components": [
        {"id": "nic1", "type": "vNIC", "network": "red"},
        {"id": "data", "type": "Storage", "size": 1},
    ],
}
MORE = [*VM["components"], {"id": "nic2", "type": "vNIC", "network": "blue"}]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIVx5rgcm7wGOyXTRpevUXzR1Bfd+zzFPciwGqeYA4XL"
FORK = multiprocessing.get_context("fork")
Run = Callable[..., Result]
Write = Callable[..., str]


@pytest.fixture
def site_path(tmp_path: Path) -> Path:
    path = tmp_path / "test-site.yaml"
    path.write_text(yaml.safe_dump(SITE | {"state_dir": str(tmp_path / "state")}))
    return path


@pytest.fixture
def site(site_path: Path) -> Site:
    return load_site(site_path)


@pytest.fixture
def run(site_path: Path, fakes: Substrate) -> Run:
    """Run the command line on the fake site."""

    def invoke(*words: str, **kw: Any) -> Result:
        return CliRunner().invoke(
            main, ["--site", str(site_path), *words], catch_exceptions=False, **kw
        )

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a sliver's file and return its path."""

    def dump(name: str = "vm.yaml", /, **values: Any) -> str:
        (tmp_path / name).write_text(yaml.safe_dump(VM | values))
        return str(tmp_path / name)

    return dump


class TestHelp:
    @pytest.mark.parametrize(
        "command",
        [
            "plan",
            "create",
            "modify",
            "delete",
            "probe",
            "poa",
            "reconcile",
            "watch",
            "recover",
            "list",
            "devices",
            "uplink",
            "doctor",
            "schema",
        ],
    )
    def test_each_command_is_listed_and_explains_itself(self, command: str) -> None:
        assert f"\n  {command} " in CliRunner().invoke(main, ["--help"]).output
        assert "--json" in CliRunner().invoke(main, [command, "-h"]).output

    @pytest.mark.parametrize("action", actions.NAMES)
    def test_each_action_is_explained(self, action: str) -> None:
        assert re.search(rf"\b{action}\b", CliRunner().invoke(main, ["poa", "--help"]).output)

    def test_exit_codes_and_shell_completion_are_explained(self) -> None:
        output = CliRunner().invoke(main, ["--help"]).output
        assert "3    partly done" in output
        assert "_FABRIC_DIRECT_COMPLETE=bash_source" in output

    def test_the_version_is_told(self) -> None:
        assert CliRunner().invoke(main, ["--version"]).output.startswith("fabric-direct, version ")

    @pytest.mark.parametrize(
        ("words", "meant"),
        [(["crate"], "create"), (["devises"], "devices"), (["zone", "srve"], "serve")],
    )
    def test_a_mistyped_command_is_told_with_the_one_that_was_meant(
        self, run: Run, words: list[str], meant: str
    ) -> None:
        result = run(*words)
        assert result.exit_code == 2
        assert f"Did you mean '{meant}'?" in result.stderr

    @pytest.mark.parametrize(
        ("word", "meant"),
        [("show", "probe ID"), ("stop", "poa ID stop"), ("completion", "--help says how")],
    )
    def test_a_command_of_another_tool_is_told_with_what_it_is_here(
        self, run: Run, word: str, meant: str
    ) -> None:
        result = run(word, "vm1")
        assert result.exit_code == 2
        assert result.stderr.endswith(f"No such command '{word}'. Here it is: {meant}\n")

    @pytest.mark.parametrize(
        "words", [["bogus"], ["create"], ["create", "--bogus", "x"], ["schema", "cloud"]]
    )
    def test_a_wrong_command_line_is_bad_input(self, run: Run, words: list[str]) -> None:
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "Error: " in result.stderr


class TestCreate:
    def test_prints_a_line_for_each_step_and_then_what_is_there(
        self, run: Run, write: Write
    ) -> None:
        result = run("create", write())
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        steps = [line.rpartition(" s  ")[2] for line in lines if line.startswith("vm1  done ")]
        assert {"port nic1", "volume data", "server"} <= set(steps)
        assert any(line.startswith("vm1: created in ") for line in lines)
        assert any(line.split()[:2] == ["nic1", "red"] and "10.20.1.2/24" in line for line in lines)
        assert result.stderr == ""

    @pytest.mark.parametrize("before", [True, False])
    def test_json_is_one_document_wherever_the_option_stands(
        self, run: Run, write: Write, *, before: bool
    ) -> None:
        words = ["--json", "create", write()] if before else ["create", write(), "--json"]
        result = run(*words)
        (outcome,) = map(Outcome.model_validate, outcomes_of(result.stdout))
        assert (outcome.status, outcome.sliver.id) == (Status.DONE, "vm1")
        assert result.stderr == ""

    def test_json_of_several_slivers_has_them_in_their_order(self, run: Run, write: Write) -> None:
        names = [write(f"{n}.yaml", id=f"vm{n}") for n in (3, 1, 2)]
        outcomes = outcomes_of(run("create", *names, "--json").stdout)
        assert [o["sliver"]["id"] for o in outcomes] == ["vm3", "vm1", "vm2"]

    def test_a_wrong_file_is_bad_input_and_nothing_is_touched(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        result = run(
            "create", write("good.yaml"), write("bad.yaml", id="a b"), write("worse.yaml", name=1)
        )
        assert (result.exit_code, result.stdout) == (2, "")
        assert "bad.yaml:" in result.stderr
        assert "worse.yaml:" in result.stderr
        assert not fakes.calls

    def test_an_error_in_json_names_kind_message_and_field(self, run: Run, write: Write) -> None:
        result = run("create", write(id="a b"), "--json")
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["kind"], error["field"]) == (2, "InvalidSliver", "id")
        assert error["message"] in result.stderr

    def test_one_sliver_in_two_files_is_bad_input(self, run: Run, write: Write) -> None:
        result = run("create", write("a.yaml"), write("b.yaml"))
        assert result.exit_code == 2
        assert "vm1 is given twice" in result.stderr

    @pytest.mark.parametrize(
        "unknown",
        [
            {"image": "vast"},
            {"host": "nowhere"},
            {"components": [{"id": "n", "type": "vNIC", "network": "green"}]},
        ],
        ids=lambda each: next(iter(each)),
    )
    @pytest.mark.parametrize("operation", ["create", "modify"])
    def test_of_several_none_is_begun_if_one_names_what_the_site_does_not_have(
        self,
        run: Run,
        write: Write,
        fakes: Substrate,
        operation: str,
        unknown: dict[str, Any],
    ) -> None:
        bad = write("bad.yaml", id="bad", **unknown)
        result = run(operation, bad, write("good.yaml"), "--json")
        assert result.exit_code == 2
        first, other = outcomes_of(result.stdout)
        assert (first["operation"], first["status"]) == (operation, "refused")
        assert first["error"]["kind"] == "InvalidSliver"
        assert (other["status"], other["error"]["kind"]) == ("refused", "Refused")
        assert "bad" in other["error"]["message"]
        assert not fakes.servers

    def test_a_network_of_another_sliver_of_the_command_is_known(
        self, run: Run, write: Write, tmp_path: Path, site_path: Path, fakes: Substrate
    ) -> None:
        site = yaml.safe_load(site_path.read_text())
        site["drivers"]["L2Bridge"] = "fake"
        site_path.write_text(yaml.safe_dump(site))
        network = {
            "strategy": "flat_dhcp",
            "physical_network": "physnet1",
            "subnet": "10.20.3.0/24",
        }
        made = {"id": "net", "type": "L2Bridge", "name": "green", "network": network}
        (tmp_path / "net.yaml").write_text(yaml.safe_dump(made))
        vm = write(components=[{"id": "n", "type": "vNIC", "network": "green"}])
        result = run("create", vm, str(tmp_path / "net.yaml"))
        assert (result.exit_code, list(fakes.servers)) == (0, ["vm1"]), result.output

    @pytest.mark.parametrize(
        ("other", "first"),
        [
            ({"name": "other"}, "name node → other"),
            ({"capacities": {"core": 2, "ram": 1, "disk": 1}}, "capacities.core 1 → 2"),
            ({"components": MORE[1:]}, "components.nic1"),
            ({"boot_script": "reboot"}, "boot_script_sha256 none → "),
        ],
        ids=["name", "size", "component", "script"],
    )
    def test_of_a_sliver_that_is_there_otherwise_names_the_first_difference(
        self, run: Run, write: Write, other: dict[str, Any], first: str
    ) -> None:
        run("create", write())
        result = run("create", write(**other))
        assert result.exit_code == 1
        assert "is there and differs from what is asked for" in result.stderr
        assert first in result.stderr

    @pytest.mark.parametrize("command", ["create", "modify", "plan"])
    def test_a_file_with_the_size_before_a_resize_is_told_what_to_do(
        self, run: Run, write: Write, command: str
    ) -> None:
        run("create", write())
        larger = {"capacities": {"core": 2, "ram": 2, "disk": 1}}
        assert run("poa", "vm1", "resize", json.dumps(larger)).exit_code == 0

        refused = run(command, write())

        assert refused.exit_code in {1, 2}
        assert (
            "write what the server has into the file, resize it (poa resize), or" in refused.stderr
        )
        assert run("modify", write(**larger)).exit_code == 0

    def test_what_the_site_cannot_serve_is_bad_input(self, run: Run, write: Write) -> None:
        result = run("create", write(components=[{"id": "n", "type": "vNIC", "network": "green"}]))
        assert result.exit_code == 2
        assert "vm1: create refused, nothing was touched" in result.stderr
        assert "components[0].network" in result.stderr

    @pytest.mark.parametrize("as_json", [True, False])
    def test_what_the_site_cannot_serve_is_told_with_its_line(
        self, run: Run, tmp_path: Path, *, as_json: bool
    ) -> None:
        path = tmp_path / "vm.yaml"
        path.write_text(
            "id: vm1\nname: node\nimage: tiny\ncapacities: {core: 1, ram: 1, disk: 1}\n"
            "components:\n  - id: nic1\n    type: vNIC\n    network: green\n"
        )
        result = run("create", str(path), *["--json"] * as_json)
        told = result.stdout if as_json else result.stderr
        assert f"{path}:8: components[0].network: " in told

    def test_an_unknown_type_is_told_with_the_other_errors(self, run: Run, write: Write) -> None:
        path = write(type="VMM", name=7)
        result = run("create", path)
        assert result.exit_code == 2
        assert re.search(rf"{path}:\d+: name: must be text", result.stderr)
        assert re.search(rf"{path}:\d+: type: 'VMM' is unknown, did you mean 'VM'\?", result.stderr)

    def test_a_sliver_that_is_busy_is_told_as_untouched(
        self, run: Run, write: Write, site_path: Path, tmp_path: Path
    ) -> None:
        limits = {"limits": {"busy": 0.1}, "state_dir": str(tmp_path / "state")}
        site_path.write_text(yaml.safe_dump(SITE | limits))
        with FileStore(tmp_path / "state").exclusive(sliver_lock("vm1"), "it", timeout=1):
            result = run("create", write())
        assert result.exit_code == 1
        assert "vm1: create failed, nothing was changed" in result.stderr
        assert "SliverBusy: sliver vm1 is being worked on" in result.stderr

    def test_a_failure_says_why_and_that_nothing_is_left(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        fakes.fault("compute.create", kind="fail")
        result = run("create", write())
        assert result.exit_code == 1
        assert "vm1: create failed, all that it did is undone" in result.stderr
        assert "DriverError: compute.create failed" in result.stderr
        assert not fakes.ports

    def test_a_failure_where_the_sliver_is_there_already_does_not_say_that_nothing_is_left(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write())
        fakes.fault("guest.wait", kind="fail")
        result = run("create", write())
        assert result.exit_code == 1
        assert "vm1: create failed, all that it did is undone" in result.stderr
        assert "left" not in result.stderr
        assert fakes.servers

    def test_what_is_left_is_named_and_has_an_exit_code_of_its_own(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        fakes.fault("compute.create", kind="fail")
        fakes.fault("volume.delete", at=0, kind="fail")
        result = run("create", write())
        assert result.exit_code == 3
        assert "vm1: create partly done" in result.stderr
        assert "still there: " in result.stderr

    def test_a_deletion_that_fails_after_it_removed_all_says_that_nothing_is_left(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[]))
        fakes.fault("compute.delete", at=0, kind="after")
        result = run("delete", "vm1")
        assert result.exit_code == 1
        assert "vm1: delete failed, nothing of it is left" in result.stderr
        assert not fakes.servers

    def test_a_deletion_that_removed_nothing_does_not_say_that_nothing_is_left(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write())
        fakes.fault("compute.delete", kind="fail")
        result = run("delete", "vm1")
        assert result.exit_code == 3
        assert "vm1: delete failed (" in result.stderr
        assert "still there: " in result.stderr

    def test_what_may_be_left_is_not_called_there(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write())
        fakes.fault("compute.leftovers", at=0, kind="fail")
        result = run("delete", "vm1")
        assert "  unknown: compute.leftovers failed" in result.stderr
        assert "still there: " not in result.stderr


class TestModifyAndDelete:
    def test_modify_prints_what_is_there_now(self, run: Run, write: Write) -> None:
        run("create", write())
        result = run("modify", write(components=MORE))
        assert result.exit_code == 0
        assert "\nnic2  blue" in result.stdout

    def test_modify_of_what_is_not_there_fails(self, run: Run, write: Write) -> None:
        result = run("modify", write())
        assert result.exit_code == 1
        assert "vm1 is not there" in result.stderr

    @pytest.mark.parametrize("by_id", [True, False])
    def test_delete_takes_files_and_ids(
        self, run: Run, write: Write, fakes: Substrate, *, by_id: bool
    ) -> None:
        path = write()
        run("create", path)
        result = run("delete", "vm1" if by_id else path)
        assert (result.exit_code, fakes.servers, fakes.ports) == (0, {}, {})
        assert "vm1: deleted in " in result.stdout

    @pytest.mark.parametrize("hosts", [{}, {"w1": {}, "w2": {}}])
    def test_delete_of_what_is_not_there_succeeds_and_says_so(
        self, run: Run, site_path: Path, hosts: dict[str, Any]
    ) -> None:
        kept = {"state_dir": str(site_path.parent / "state")}
        site_path.write_text(yaml.safe_dump(SITE | kept | ({"hosts": hosts} if hosts else {})))
        result = run("delete", "vm1")
        assert result.exit_code == 0
        assert "vm1: nothing to do, there is no sliver of this id," in result.stdout

    def test_what_is_neither_a_file_nor_an_id_is_bad_input(self, run: Run) -> None:
        result = run("delete", "a b")
        assert result.exit_code == 2
        assert "neither a sliver's file nor an id" in result.stderr


@pytest.mark.parametrize("words", ["delete x", "probe x", "poa x stop", "plan --delete x", "list"])
@pytest.mark.parametrize(
    ("kind", "said"), [("Foo", "'Foo'; known: BareMetal, "), ("vm", "'vm', did you mean 'VM'?")]
)
def test_a_type_that_there_is_not_is_an_error_of_the_command_line(
    run: Run, words: str, kind: str, said: str
) -> None:
    result = run(*words.split(), "--type", kind)
    assert result.exit_code == 2
    assert f"Invalid value for '--type': unknown resource type {said}" in result.stderr


class TestPlan:
    def test_a_sliver_that_is_not_there_would_be_created(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        result = run("plan", write())
        assert result.exit_code == 0
        assert "  will create   server\n" in result.stdout
        assert "vm1: would be created: 3 steps. Nothing was changed." in result.stdout
        assert not fakes.servers

    def test_counts_the_steps_that_create_does(self, run: Run, write: Write) -> None:
        planned = outcomes_of(run("plan", write(), "--json").stdout)[0]["steps"]
        done = outcomes_of(run("create", write(), "--json").stdout)[0]["steps"]
        changes = {step["step"] for step in planned if step["finding"] != "already so"}
        assert changes == {step["step"] for step in done if step["status"] == "done"} - {"guest"}

    def test_of_what_is_there_says_that_there_is_nothing_to_do(
        self, run: Run, write: Write
    ) -> None:
        run("create", write())
        assert run("plan", write()).stdout.splitlines()[-1] == "vm1: nothing to do."

    @pytest.mark.parametrize("command", ["modify", "create"])
    def test_says_of_what_is_so_what_the_command_says_that_only_waited(
        self, run: Run, write: Write, command: str
    ) -> None:
        run("create", write())
        assert "vm1: nothing to do, " in run(command, write()).stdout

    def test_has_an_exit_code_for_scripts_that_says_whether_there_is_something_to_do(
        self, run: Run, write: Write
    ) -> None:
        assert run("plan", write(), "--exit-code").exit_code == 4
        assert run("plan", write(), "--delete", "--exit-code").exit_code == 0
        run("create", write())
        assert run("plan", write(), "--exit-code").exit_code == 0
        assert run("plan", write(components=MORE), "--exit-code", "--json").exit_code == 4
        assert run("plan", "vm1", "--delete", "--exit-code").exit_code == 4
        assert run("plan", write(name=7), "--exit-code").exit_code == 2
        green = [{"id": "n", "type": "vNIC", "network": "green"}]
        assert run("plan", write(components=green), "--exit-code").exit_code == 2

    def test_of_the_deletion_of_what_is_not_there_says_so(self, run: Run) -> None:
        result = run("plan", "vm1", "--delete")
        assert result.stdout.splitlines()[-1] == "vm1: nothing to do, it is not there."

    def test_a_sliver_that_is_there_would_be_modified(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write())
        result = run("plan", write(components=MORE))
        assert "  already so    port nic1\n" in result.stdout
        assert "  will create   port nic2\n" in result.stdout
        assert ("vm1", "nic2") not in fakes.ports

    def test_its_removal_can_be_planned(self, run: Run, write: Write, fakes: Substrate) -> None:
        run("create", write())
        result = run("plan", write(), "--delete")
        assert "  will delete   remove server\n" in result.stdout
        assert "vm1: would be deleted: " in result.stdout
        assert fakes.servers

    def test_json_holds_the_findings(self, run: Run, write: Write) -> None:
        (outcome,) = outcomes_of(run("plan", write(), "--json").stdout)
        assert {"will create"} <= {step["finding"] for step in outcome["steps"]}


class TestProbe:
    def test_a_sliver_as_wanted_is_exit_code_0(self, run: Run, write: Write) -> None:
        run("create", write())
        result = run("probe", write())
        assert result.exit_code == 0
        assert "vm1: running, " in result.stdout
        assert "guest: answers by fake" in result.stdout
        assert "differs" not in result.stdout

    def test_an_absent_sliver_is_exit_code_1(self, run: Run) -> None:
        result = run("probe", "vm1")
        assert (result.exit_code, result.stdout) == (1, "vm1: absent\n")

    def test_what_is_missing_and_unwanted_stands_in_the_tables(
        self, run: Run, write: Write
    ) -> None:
        run("create", write())
        result = run("probe", write(components=[MORE[0], MORE[2]]))
        assert result.exit_code == 1
        rows = {line.split()[0]: line.rstrip() for line in result.stdout.splitlines() if line}
        assert rows["nic1"].endswith("found")
        assert rows["nic2"].endswith("missing")
        assert rows["data"].endswith("not wanted")
        assert "differs from what is wanted:" in result.stdout

    def test_json_holds_what_was_observed(self, run: Run, write: Write) -> None:
        run("create", write())
        result = run("probe", "vm1", "--json")
        assert outcomes_of(result.stdout)[0]["observed"]["state"] == "running"


class TestPoa:
    @pytest.mark.parametrize(
        ("action", "data", "said"),
        [
            (
                "cpupin",
                {"vcpu_cpu_map": [{"vcpu": 9, "cpu": 0}]},
                "data.vcpu_cpu_map: there is no virtual CPU 9: known: 0",
            ),
            (
                "cpupin",
                {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 900}]},
                "data.vcpu_cpu_map: there is no host CPU 900: known: 0, 1, 2",
            ),
            ("numatune", {"node_set": [9]}, "data.node_set: there is no NUMA node 9: known: 0, 1"),
        ],
        ids=["virtual", "host", "node"],
    )
    def test_a_cpu_or_node_that_is_not_there_is_told_with_those_that_are(
        self, run: Run, write: Write, action: str, data: dict[str, Any], said: str
    ) -> None:
        run("create", write())
        result = run("poa", "vm1", action, json.dumps(data))
        assert result.exit_code == 2
        assert f"InvalidSliver: {said}" in result.stderr

    def test_of_what_is_not_there_names_no_host_that_was_merely_asked_last(
        self, site_path: Path, run: Run
    ) -> None:
        hosts = {"hosts": {"w1": {}, "w2": {}}}
        site_path.write_text(site_path.read_text() + yaml.safe_dump(hosts))
        result = run("poa", "nosuch", "reboot")
        assert result.exit_code == 1
        assert "NotFound: sliver nosuch is not there\n" in result.stderr

    KEYS = json.dumps({"keys": [{"key": KEY}]})

    def test_a_single_text_is_printed_as_it_is(self, run: Run, write: Write) -> None:
        run("create", write())
        result = run("poa", "vm1", "stop")
        assert (result.exit_code, result.stdout) == (0, "stopped\n")

    @pytest.mark.parametrize("how", ["text", "file", "stdin"])
    def test_data_are_text_a_file_or_stdin(
        self, run: Run, write: Write, fakes: Substrate, tmp_path: Path, how: str
    ) -> None:
        run("create", write())
        (tmp_path / "keys").write_text(self.KEYS)
        word = {"text": self.KEYS, "file": f"@{tmp_path / 'keys'}", "stdin": "-"}[how]
        assert run("poa", "vm1", "addkey", word, input=self.KEYS).exit_code == 0
        assert len(fakes.keys["vm1"]) == 1

    @pytest.mark.parametrize(
        "word", ["{", "[1]", "5", "@/nonexistent", '{"keys": 1}', '{"bogus": 1}']
    )
    def test_wrong_data_are_bad_input(self, run: Run, write: Write, word: str) -> None:
        run("create", write())
        assert run("poa", "vm1", "addkey", word).exit_code == 2

    @pytest.mark.parametrize("how", ["text", "file", "stdin"])
    @pytest.mark.parametrize(
        "text",
        [
            '{\n  "lines": 5,}',
            "{\n  lines: 5}",
            '{\n  "lines": 05}',
            '{\n  "lines": NaN}',
            '{\n  "lines": 5} {}',
            "{\n  'lines': 5}",
        ],
    )
    def test_data_that_are_not_json_are_told_with_line_and_column(
        self, run: Run, write: Write, fakes: Substrate, tmp_path: Path, how: str, text: str
    ) -> None:
        run("create", write())
        calls = len(fakes.calls)
        (tmp_path / "data").write_text(text)
        word = {"text": text, "file": f"@{tmp_path / 'data'}", "stdin": "-"}[how]
        result = run("poa", "vm1", "console", word, input=text)
        source = {"text": "DATA", "file": tmp_path / "data", "stdin": "stdin"}[how]
        assert result.exit_code == 2
        assert re.search(
            rf"^Error: {source}:2: column \d+: is not JSON: ", result.stderr, re.MULTILINE
        )
        assert len(fakes.calls) == calls

    def test_an_unknown_action_is_bad_input_and_the_known_are_named(
        self, run: Run, write: Write
    ) -> None:
        run("create", write())
        result = run("poa", "vm1", "explode")
        assert result.exit_code == 2
        assert "console" in result.stderr


class TestRecover:
    def test_nothing_unfinished_is_said(self, run: Run) -> None:
        result = run("recover")
        assert (result.exit_code, result.stdout) == (0, "Nothing is unfinished.\n")

    def test_json_of_nothing_has_no_outcomes(self, run: Run) -> None:
        assert outcomes_of(run("recover", "--json").stdout) == []

    @pytest.mark.parametrize("words", [(), ("--undo",), ("--json",)])
    def test_an_entry_that_cannot_be_read_is_named(
        self, run: Run, site: Site, words: tuple[str, ...]
    ) -> None:
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, VM | {"type": "VM"})
        entry = site.state_dir / "journal/vm1.json"
        entry.write_text(entry.read_text()[:50])

        result = run("recover", *words)

        assert result.exit_code == 3
        assert f"{entry} is no valid entry of the journal: probe the sliver" in result.stderr
        assert "Nothing is unfinished" not in result.output

    def test_what_was_begun_is_finished(self, run: Run, site: Site, fakes: Substrate) -> None:
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, VM | {"type": "VM"})
        assert run("recover").exit_code == 0
        assert list(fakes.servers) == ["vm1"]

    def test_what_was_begun_is_undone_if_asked_for(
        self, run: Run, site: Site, fakes: Substrate
    ) -> None:
        Journal(FileStore(site.state_dir)).begin(
            Operation.CREATE, VM | {"type": "VM"}, owns_everything=True
        )
        assert run("recover", "--undo").exit_code == 0
        assert not fakes.servers


class TestInspection:
    def test_list_shows_a_row_for_each_sliver(self, run: Run, write: Write) -> None:
        run("create", write())
        header, row = run("list").stdout.splitlines()
        assert header.split()[:3] == ["SLIVER", "TYPE", "NAME"]
        assert row.split()[:3] == ["vm1", "VM", "node"]

    def test_list_says_that_there_are_none(self, run: Run) -> None:
        assert run("list").stdout == "No slivers.\n"

    def test_list_asks_the_services_of_the_wanted_type_alone(
        self, run: Run, write: Write, site_path: Path
    ) -> None:
        drivers = SITE["drivers"] | {"L2STS": "nso", "L2Bridge": "fake"}
        nso = {"url": "http://127.0.0.1:9/restconf", "user": "am", "password_file": "/nowhere"}
        values = SITE | {"drivers": drivers, "services": {"nso": nso}}
        site_path.write_text(
            yaml.safe_dump(values | {"state_dir": str(site_path.parent / "state")})
        )
        run("create", write())

        listed, vms = run("list"), run("list", "--type", "VM")
        bridges, services = run("list", "--type", "L2Bridge"), run("list", "--type", "L2STS")

        assert [each.exit_code for each in (listed, services, vms, bridges)] == [1, 1, 0, 0]
        assert (vms.stderr, bridges.stderr) == ("", "")
        assert vms.stdout == listed.stdout
        assert "L2STS cannot be listed" in services.stderr

    def test_list_takes_several_types_and_states(
        self, run: Run, write: Write, site_path: Path
    ) -> None:
        values = yaml.safe_load(site_path.read_text())
        values["drivers"] |= {"L2Bridge": "fake", "L3VPN": "fake"}
        site_path.write_text(yaml.safe_dump(values | {"switches": {"sw1": {"ports": {"p1": {}}}}}))
        segment = site_path.with_name("segment.yaml")
        segment.write_text(
            "{type: L2Bridge, name: seg, id: seg,"
            " interfaces: [{id: a, device: sw1, port: p1, vlan: 5}]}"
        )
        run("create", write(), str(segment))

        asked = {
            ("--type", "L2Bridge", "--type", "VM"): ["seg", "vm1"],
            ("--type", "VM", "--type", "L3VPN"): ["vm1"],
            ("--state", "running", "--state", "paused"): ["seg", "vm1"],
            ("--state", "stopped", "--state", "paused"): [],
        }

        for words, ids in asked.items():
            assert [
                each["sliver"] for each in result_of(run("list", "--json", *words).stdout)
            ] == ids

    def test_list_says_that_there_are_others_than_those_asked_for(
        self, run: Run, write: Write
    ) -> None:
        run("create", write())
        assert run("list", "--name", "web-*").stdout == "No such slivers.\n"

    def test_list_takes_the_nodes_that_it_shows_as_hosts(self, run: Run, site_path: Path) -> None:
        values = yaml.safe_load(site_path.read_text())
        values["drivers"]["BareMetal"] = "fake"
        values["fake"] = values.get("fake", {}) | {"nodes": {"rack1-1": {}, "rack1-2": {}}}
        image = {"kernel": "http://192.0.2.1/kernel", "ramdisk": "http://192.0.2.1/ramdisk"}
        values |= {
            "ironic": {"images": {"os": image}},
            "state_dir": str(site_path.parent / "metal"),
        }
        site_path.write_text(yaml.safe_dump(values))
        metal = site_path.with_name("metal.yaml")
        metal.write_text("{type: BareMetal, id: m, name: m, image: os, node: rack1-1}")
        made = run("create", str(metal))
        assert made.exit_code == 0, made.output

        mine, free, neither = (run("list", "--host", h) for h in ("rack1-1", "rack1-2", "rack9"))

        assert mine.stdout.splitlines()[1].split()[0] == "m"
        assert (free.exit_code, free.stdout) == (0, "No such slivers.\n")
        assert neither.exit_code == 2

    def test_list_as_json_holds_the_stamps(self, run: Run, write: Write) -> None:
        run("create", write())
        (server,) = result_of(run("list", "--json").stdout)
        assert server["stamp"]["sliver"]["id"] == "vm1"

    def test_doctor_prints_a_line_for_each_check(self, run: Run) -> None:
        result = run("doctor")
        assert result.exit_code == 0
        assert all(line.startswith("ok    ") for line in result.stdout.splitlines())

    def test_doctor_says_how_to_mend_what_fails(self, run: Run, site: Site) -> None:
        site.state_dir.mkdir()
        site.state_dir.chmod(0o777)
        result = run("doctor")
        assert result.exit_code == 1
        assert f"      -> chmod go-w {site.state_dir}\n" in result.stdout

    def test_doctor_on_a_wrong_site_fails_by_its_line(self, site_path: Path, run: Run) -> None:
        site_path.write_text("site: x\nhosts: {}\n")
        result = run("doctor", "--json")
        assert result.exit_code == 2
        assert "test-site.yaml:2: hosts: " in result_of(result.stdout)[1]["found"]

    @pytest.mark.parametrize(("kind", "title"), [("sliver", "NodeSliver"), ("site", "Site")])
    def test_schema_prints_json_schema(self, run: Run, kind: str, title: str) -> None:
        assert json.loads(run("schema", kind).stdout)["title"] == title


GPU, AUDIO, VF, IDLE = map(PciAddress.parse, ("25:00.0", "25:00.1", "27:10.0", "28:00.0"))
PASSED = {"id": "gpu", "type": "GPU", "bdf": [str(GPU)]}


class TestDevices:
    def test_help_shows_each_form_on_a_line_of_its_own(self) -> None:
        output = CliRunner().invoke(main, ["devices", "--help"]).output

        assert "\n  fabric-direct devices [HOST]... [--all] [--json]\n" in output
        assert "\n  fabric-direct devices release HOST ADDRESS [--force]\n" in output

    @pytest.fixture
    def site_path(self, site_path: Path) -> Path:
        """A site that may pass devices through."""
        site = yaml.safe_load(site_path.read_text())
        hosts = {"localhost": {"devices": [{"type": "GPU", "bdf": str(GPU)}]}}
        site_path.write_text(yaml.safe_dump(site | {"hosts": hosts}))
        return site_path

    @pytest.fixture(autouse=True)
    def there(self, fakes: Substrate, mocker: MockerFixture) -> None:
        """A GPU, a VF that another domain has, and a function that is not allowed."""
        gpu = PciFunction(
            GPU, "10de", "1eb8", label="Tesla T4", driver="nouveau", iommu_group=16, numa_node=1
        )
        pf = PciAddress.parse("27:00.0")
        vf = PciFunction(VF, "8086", "10ca", physical=pf, vf=3, links=("ens6f1v3",), link_up=True)
        devices = (
            HostDevice(gpu, DeviceState.FREE, peers=(AUDIO,), type="GPU", model="Tesla-T4"),
            HostDevice(
                vf,
                DeviceState.USED,
                type="SharedNIC",
                owner="foreign",
                uplink="ens6f1",
                bridge_mode="vepa",
            ),
            HostDevice(PciFunction(IDLE, "10ee", "5000"), DeviceState.NOT_ALLOWED),
        )
        fakes.devices = {device.address: device for device in devices}
        fakes.uplinks = {"ens6f1": "veb"}

    def test_are_those_that_may_be_passed_through(self, run: Run) -> None:
        assert str(IDLE) not in run("devices").stdout
        assert "not allowed" in run("devices", "localhost", "--all").stdout

    def test_stand_in_a_table_with_state_owner_and_uplink(self, run: Run) -> None:
        header, gpu, vf = (line.split() for line in run("devices").stdout.splitlines())

        assert header[:7] == ["HOST", "PCI", "ID", "TYPE", "STATE", "OWNER", "DRIVER"]
        assert gpu[:6] == ["localhost", str(GPU), "10de:1eb8", "GPU", "Tesla-T4", "free"]
        assert {"nouveau", "16", "+25:00.1", "1", "T4"} <= set(gpu)
        assert vf[3:6] == ["SharedNIC", "used", "foreign"]
        assert "VF 3 of 27:00.0 ens6f1v3 up ens6f1 vepa" in " ".join(vf)

    def test_are_a_list_in_json(self, run: Run) -> None:
        gpu, vf = result_of(run("devices", "--json").stdout)

        assert (gpu["host"], gpu["function"]["address"]) == ("localhost", str(GPU))
        assert (gpu["state"], gpu["peers"]) == ("free", [str(AUDIO)])
        assert (vf["uplink"], vf["bridge_mode"], vf["owner"]) == ("ens6f1", "vepa", "foreign")

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (("--type", "gpu"), [str(GPU)]),
            (("--state", "used"), [str(VF)]),
            (("--type", "GPU", "--state", "used"), []),
            (("--all", "--state", "not allowed"), [str(IDLE)]),
        ],
    )
    def test_are_filtered_by_type_and_state(
        self, run: Run, words: tuple[str, ...], found: list[str]
    ) -> None:
        printed = run("devices", *words, "--json").stdout
        assert [each["function"]["address"] for each in result_of(printed)] == found

    def test_that_no_filter_leaves_are_not_said_to_be_forbidden(self, run: Run) -> None:
        assert run("devices", "--state", "lost").stdout == "No such devices.\n"

    def test_that_are_none_are_said_to_be_none(self, run: Run, fakes: Substrate) -> None:
        fakes.devices = {IDLE: fakes.devices[IDLE]}

        assert "1 others exist: --all lists them." in run("devices").stdout

    def test_of_an_unknown_host_fail_with_those_that_are_known(self, run: Run) -> None:
        result = run("devices", "nowhere")

        assert result.exit_code == 2
        assert "known: localhost" in result.stderr

    def test_that_could_not_be_cleaned_make_a_delete_partly_done_until_they_are_released(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        assert run("create", write(components=[PASSED])).exit_code == 0
        fakes.dirty = {GPU}

        deleted = run("delete", "vm1")
        tried = run("devices", "release", "localhost", "25:00.0")
        forced = run("devices", "release", "localhost", "25:00.0", "--force")

        assert deleted.exit_code == 3
        assert f"device {GPU} of gpu" in deleted.stderr
        assert (tried.exit_code, forced.exit_code) == (1, 0)
        assert "is quarantined" in tried.stderr
        assert "is free, without having been cleaned" in forced.stdout
        assert run("delete", "vm1").exit_code == 0

    def test_are_released_when_they_are_clean_now(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[PASSED]))
        fakes.dirty = {GPU}
        run("delete", "vm1")
        fakes.dirty = set()

        result = run("devices", "release", "localhost", str(GPU))

        assert (result.exit_code, fakes.records) == (0, {})
        assert "is clean and free" in result.stdout

    def test_that_their_sliver_has_lost_are_said_to_be_and_are_not_released(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[PASSED]))
        fakes.lose_devices("vm1")

        told = run("devices").stdout
        released = run("devices", "release", "localhost", str(GPU), "--force")

        assert " lost " in told
        assert "fabric-direct reconcile vm1 gives it back" in told
        assert (released.exit_code, released.stdout) == (1, "")
        assert f"{GPU} is vm1/gpu's (localhost): the stamp of server vm1-node" in released.stderr
        assert GPU in fakes.records

    def test_that_a_running_server_lacks_are_in_the_list(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[PASSED]))
        whole = run("list").stdout
        fakes.lose_devices("vm1")

        header, row = (line.rstrip() for line in run("list").stdout.splitlines())
        (server,) = result_of(run("list", "--json").stdout)

        assert "LACKS" not in whole
        assert header.endswith("LACKS")
        assert row.endswith(f"gpu {GPU}")
        assert [lack["why"] for lack in server["lacks"]] == ["no domain has it"]

    def test_that_cannot_be_read_are_said_to_be_unknown_in_the_list(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[PASSED]))
        fakes.fault("device.inventory", at=0, kind="fail")

        listed = run("list")

        assert listed.exit_code == 0
        assert listed.stdout.rstrip().endswith("?")
        assert "whether servers on localhost lack devices is not known" in listed.stderr
        assert result_of(run("list", "--json").stdout)[0]["lacks"] is None

    def test_that_a_server_lacks_are_named_by_the_doctor(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[PASSED]))
        fakes.lose_devices("vm1")

        result = run("doctor")

        assert result.exit_code == 0
        assert f"warn  devices of vm1: its server is running and lacks gpu {GPU}" in result.stdout
        assert "      -> fabric-direct reconcile vm1\n" in result.stdout

    def test_that_are_released_are_told_as_json(self, run: Run) -> None:
        result = run("devices", "release", "localhost", str(GPU), "--json")

        told = {"host": "localhost", "address": str(GPU), "cleaned": True}
        assert result_of(result.stdout) == told

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("localhost", "no-address"), 2),
            (("nowhere", str(GPU)), 2),
            (("localhost", "99:00.0"), 2),
        ],
        ids=["no address", "unknown host", "no such device"],
    )
    def test_that_are_not_there_are_not_released(
        self, run: Run, words: tuple[str, ...], code: int
    ) -> None:
        assert run("devices", "release", *words).exit_code == code

    def test_that_is_not_there_and_has_no_record_is_not_released_by_force_either(
        self, run: Run
    ) -> None:
        result = run("devices", "release", "localhost", "99:00.0", "--force")

        assert (result.exit_code, result.stdout) == (2, "")
        assert "there is no PCI function 0000:99:00.0, and no record of one" in result.stderr

    def test_that_was_pulled_out_is_released_by_force_and_its_record_removed(
        self, run: Run, write: Write, fakes: Substrate
    ) -> None:
        run("create", write(components=[PASSED]))
        fakes.dirty = {GPU}
        run("delete", "vm1")
        assert GPU in fakes.records
        del fakes.devices[GPU]

        tried = run("devices", "release", "localhost", str(GPU))
        kept = GPU in fakes.records
        forced = run("devices", "release", "localhost", str(GPU), "--force")

        assert (tried.exit_code, kept) == (2, True)
        assert (forced.exit_code, fakes.records) == (0, {})

    def test_warnings_are_told_beside_the_outcome(
        self, run: Run, write: Write, mocker: MockerFixture
    ) -> None:
        attach = FakeDevice.attach

        def drifted(*args: Any) -> Any:
            warn("uplink ens6f1 had left vepa")
            return attach(*args)

        mocker.patch.object(FakeDevice, "attach", drifted)

        result = run("create", write(components=[PASSED]))

        assert result.exit_code == 0
        assert "vm1: warning: uplink ens6f1 had left vepa\n" in result.stderr

    @pytest.mark.parametrize(
        ("options", "mode"), [((), "veb"), (("--vepa", "on"), "vepa"), (("--vepa", "off"), "veb")]
    )
    def test_the_bridge_mode_of_an_uplink_is_shown_and_set(
        self, run: Run, fakes: Substrate, options: tuple[str, ...], mode: str
    ) -> None:
        result = run("uplink", "localhost", "ens6f1", *options)

        assert (result.exit_code, result.stdout) == (0, f"ens6f1 of localhost: {mode}\n")
        assert fakes.uplinks == {"ens6f1": mode}

    @pytest.mark.parametrize(
        "words",
        [
            ("uplink", "localhost", "ens9", "--vepa", "on"),
            ("uplink", "nowhere", "ens6f1"),
            ("devices", "localhost", "nowhere"),
            ("topology", "nowhere"),
        ],
        ids=" ".join,
    )
    def test_an_argument_that_names_what_is_not_there_is_bad_input(
        self, run: Run, words: tuple[str, ...]
    ) -> None:
        result = run(*words, "--json")
        assert result.exit_code == 2
        assert json.loads(result.stdout)["error"]["kind"] == "NotFound"


class TestWhichSite:
    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("FABRIC_DIRECT_SITE", raising=False)

    def test_the_option_comes_before_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FABRIC_DIRECT_SITE", "variable.yaml")
        assert Settings(Path("option.yaml")).found_site() == Path("option.yaml")
        assert Settings().found_site() == Path("variable.yaml")

    def test_then_site_yaml_of_the_directory_one_is_in(self) -> None:
        Path("site.yaml").touch()
        assert Settings().found_site() == Path("site.yaml")
        assert PLACES[1] == Path("/etc/fabric-direct/site.yaml")

    def test_else_it_is_this_machine_with_its_libvirt(self, mocker: MockerFixture) -> None:
        mocker.patch("fabric_direct.cli.options.PLACES", ())
        site = Settings().site()
        assert [host.libvirt for host in site.hosts.values()] == ["qemu:///system"]

    def test_a_named_file_that_is_not_there_is_bad_input(self) -> None:
        result = CliRunner().invoke(main, ["list", "--site", "gone.yaml"])
        assert result.exit_code == 2
        assert "cannot read gone.yaml" in result.stderr


def outcome(status: Status, **values: Any) -> Outcome:
    return Outcome(operation=Operation.CREATE, sliver=SliverRef(id="x"), status=status, **values)


class TestWhatIsWrongInASite:
    def test_is_told_with_its_line_also_where_it_is_found_by_its_use(
        self, site_path: Path, run: Run, write: Write
    ) -> None:
        text = site_path.read_text()
        site_path.write_text(f"driver_settings: {{fake: {{delay: 1}}}}\n{text}")
        result = run("create", write(), "--json")
        assert result.exit_code == 2
        error = json.loads(result.stdout)["error"]
        assert error["field"] == "driver_settings.fake"
        assert error["message"].startswith(
            f"{site_path}:1: driver_settings.fake: the driver 'fake' takes no settings"
        )

    def test_is_told_with_its_line_where_it_ends_an_operation(
        self, site_path: Path, run: Run, write: Write
    ) -> None:
        text = site_path.read_text()
        site_path.write_text(f"placement:\n  without: [nosuch]\n{text}")
        result = run("create", write(host="auto"), "--json")
        assert result.exit_code == 2
        (outcome,) = outcomes_of(result.stdout)
        assert outcome["error"]["message"].startswith(
            f"{site_path}:2: placement.without.nosuch: no filter or cost of this name"
        )

    def test_is_told_once_with_the_line_where_the_file_itself_is_wrong(
        self, site_path: Path, run: Run
    ) -> None:
        site_path.write_text("site: x\nhosts: {}\n")
        assert run("list").stderr.count(str(site_path)) == 1

    def test_has_no_line_if_it_is_of_an_option(self, run: Run) -> None:
        result = run("zone", "list", "--zone", "nowhere")
        assert result.exit_code == 2
        assert "test-site.yaml" not in result.stderr


class TestExitCodes:
    DONE, FAILED, REFUSED, PARTIAL = Status.DONE, Status.FAILED, Status.REFUSED, Status.PARTIAL

    @pytest.mark.parametrize(
        ("statuses", "code"),
        [
            ([], 0),
            ([DONE], 0),
            ([DONE, DONE], 0),
            ([FAILED], 1),
            ([FAILED, FAILED], 1),
            ([REFUSED], 2),
            ([REFUSED, FAILED], 1),
            ([PARTIAL], 3),
            ([DONE, FAILED], 3),
            ([DONE, REFUSED], 3),
            ([FAILED, PARTIAL], 3),
        ],
    )
    def test_the_outcomes_together_make_one_code(self, statuses: list[Status], code: int) -> None:
        assert running.exit_code(running.Results([outcome(status) for status in statuses])) == code

    def test_an_interrupt_has_a_code_of_its_own(self) -> None:
        assert running.exit_code(running.Results([outcome(Status.DONE)], interrupted=True)) == 130

    def test_a_probe_that_found_differences_is_a_failure(self) -> None:
        observed = Observed(state=State.RUNNING, differences=("vNIC x is missing",))
        probed = Outcome(
            operation=Operation.PROBE,
            sliver=SliverRef(id="x"),
            status=Status.DONE,
            observed=observed,
        )
        assert running.exit_code(running.Results([probed])) == 1


def test_a_device_is_shown_with_what_the_guest_has_of_it() -> None:
    vf = ObservedDevice(
        component="vf1",
        host_address=PciAddress.parse("0000:03:10.0"),
        guest_name="0000:05:00.0",
        guest_interfaces=("enp5s0",),
        alias="ua-x-vf1-0",
        mac="52:54:00:00:00:01",
        vlan=100,
        bridge_mode="vepa",
    )
    text = io.StringIO()
    observed = Observed(state=State.RUNNING, instance="x-node", devices=(vf,))
    sliver_report.show(observed, SliverRef(id="x"), Console(file=text, width=120))
    table = [" ".join(line.split()) for line in text.getvalue().splitlines()[-2:]]
    assert table == [
        "DEVICE HOST PCI MAC VLAN UPLINK IN THE GUEST",
        "vf1 0000:03:10.0 52:54:00:00:00:01 100 vepa 0000:05:00.0: enp5s0",
    ]


class Ran(NamedTuple):
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


def run_without(library: str, *words: str) -> Ran:
    """Run the command line in a process that cannot import a library, and has imported nothing of ours.

    It is forked: to import all else takes longer than the command.
    """
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_run_without, args=(theirs, library, words))
    child.start()
    theirs.close()
    ran: Ran = ours.recv()
    child.join()
    return ran


def _run_without(told: Connection, library: str, words: tuple[str, ...]) -> None:
    for name in tuple(sys.modules):
        if name.partition(".")[0] in {"fabric_direct", library}:
            del sys.modules[name]
    sys.modules[library] = None  # type: ignore[assignment]
    # libvirt takes one event loop for a process, and a test before this one may have given it ours.
    libvirt.virEventRegisterImpl = lambda *_: None
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            importlib.import_module("fabric_direct.cli").main(words)
        except SystemExit as ended:
            told.send(Ran(int(ended.code or 0), out.getvalue(), err.getvalue()))


class TestWithoutLibraries:
    @pytest.mark.parametrize(
        ("library", "driver"),
        [
            ("libvirt", "libvirt"),
            ("libvirt", "openstack"),
            ("paramiko", "libvirt"),
            ("openstack", "openstack"),
        ],
    )
    def test_the_doctor_names_what_is_missing(
        self, site_path: Path, tmp_path: Path, library: str, driver: str
    ) -> None:
        hosts = {"w1": {"libvirt": "qemu+unix:///nowhere", "ssh": "ssh://127.0.0.1:1"}}
        site = {"site": "TEST", "state_dir": str(tmp_path), "drivers": {"VM": driver}}
        cloud = {"cloud": "nowhere", "clouds_file": str(tmp_path / "clouds.yaml")}
        site_path.write_text(yaml.safe_dump(site | {"hosts": hosts, "openstack": cloud}))

        result = run_without(library, "--site", str(site_path), "doctor")

        assert result.returncode == 1
        # A package that is not there is said so by the import of a module in it.
        missing = f"import of {library} halted|No module named '{library}[.]"
        assert re.search(missing, result.stdout)
        assert "  libvirt of w1: " in result.stdout
        assert "  SSH of w1: " in result.stdout
        assert result.stderr == ""

    def test_a_create_in_a_cloud_names_what_is_missing(
        self, site_path: Path, tmp_path: Path, write: Write
    ) -> None:
        site = {"site": "TEST", "state_dir": str(tmp_path), "drivers": {"VM": "openstack"}}
        cloud = {"openstack": {"cloud": "nowhere"}, "hosts": {"w1": {}}}
        site_path.write_text(yaml.safe_dump(site | cloud))

        result = run_without("libvirt", "--site", str(site_path), "create", write())

        assert result.returncode == 2
        assert f"InvalidSite: {site_path}:2: drivers.VM: cannot load the " in result.stderr
        assert "driver 'libvirt' of fabric-direct" in result.stderr
        assert "import of libvirt halted" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_conductor_of_a_site_without_any_names_what_the_site_lacks(
        self, site_path: Path
    ) -> None:
        result = run_without("psycopg", "--site", str(site_path), "conductor")

        assert result.returncode == 2
        assert "conductors: is missing" in result.stderr
        assert "beside state_database" in result.stderr
        assert "pip install" not in result.stderr

    def test_a_create_without_a_place_for_its_state_says_so(
        self, site_path: Path, tmp_path: Path, run: Run, write: Write
    ) -> None:
        (tmp_path / "file").touch()
        site_path.write_text(yaml.safe_dump(SITE | {"state_dir": str(tmp_path / "file/state")}))

        result = run("create", write())

        assert result.exit_code == 1
        assert "DriverError: cannot lock sliver vm1" in result.stderr
        assert "Traceback" not in result.stderr


class TestInterrupts:
    def test_one_outside_of_operations_is_told_without_a_traceback(
        self, run: Run, mocker: MockerFixture
    ) -> None:
        mocker.patch(
            "fabric_direct.processor.HandlerProcessor.slivers", side_effect=KeyboardInterrupt
        )
        result = run("list")
        assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield (*path, name)


def command_of(words: tuple[str, ...]) -> click.Command:
    command: click.Command | None = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command
    return command


class TestBugs:
    """An exception that nothing foresees."""

    SECRET = "correct horse"  # noqa: S105 - it opens nothing

    @pytest.mark.parametrize("words", tuple(leaves(main)), ids=" ".join)
    def test_no_command_ends_with_a_traceback(
        self, run: Run, mocker: MockerFixture, words: tuple[str, ...]
    ) -> None:
        command = command_of(words)
        mocker.patch.object(command, "parse_args", return_value=[])
        mocker.patch.object(command, "invoke", side_effect=KeyError(self.SECRET))

        result = run(*words)

        assert result.exit_code == 70
        assert result.stdout == ""
        version = importlib.metadata.version("fabric-direct")
        assert result.stderr == (
            f"Error: unexpected KeyError: this is a bug of fabric-direct {version}. "
            "Please report it, with the traceback that --verbose shows.\n"
        )

    def test_verbose_shows_the_traceback(self, run: Run, mocker: MockerFixture) -> None:
        mocker.patch("fabric_direct.processor.HandlerProcessor.slivers", side_effect=KeyError("x"))

        result = run("-v", "list")

        assert result.exit_code == 70
        assert "with the traceback below.\n" in result.stderr
        assert "Traceback (most recent call last):\n" in result.stderr
        assert "KeyError: 'x'" in result.stderr

    def test_programs_get_a_document(self, run: Run, mocker: MockerFixture) -> None:
        mocker.patch("fabric_direct.processor.HandlerProcessor.slivers", side_effect=KeyError("x"))

        result = run("--json", "list")

        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["kind"]) == (70, "KeyError")
        assert "this is a bug" in error["message"]

    def test_one_while_an_error_is_told_is_told_too(self, run: Run, mocker: MockerFixture) -> None:
        refused = InvalidSite("is wrong", field="site")
        mocker.patch("fabric_direct.processor.HandlerProcessor.slivers", side_effect=refused)
        mocker.patch("fabric_direct.cli.options.tell_error", side_effect=ValueError)

        result = run("list")

        assert (result.exit_code, "unexpected ValueError" in result.stderr) == (70, True)

    def test_a_reader_of_stdout_that_has_left_is_none(
        self, run: Run, mocker: MockerFixture
    ) -> None:
        left = BrokenPipeError(errno.EPIPE, "Broken pipe")
        mocker.patch("fabric_direct.processor.HandlerProcessor.slivers", side_effect=left)

        result = run("list")

        assert (result.exit_code, result.stderr) == (1, "")

    def test_completion_finds_nothing(self, run: Run, mocker: MockerFixture) -> None:
        mocker.patch("fabric_direct.cli.completion._there", side_effect=KeyError("x"))
        context = click.Context(main, info_name="fabric-direct")

        assert completion.ids(context, click.Argument(["sliver"]), "") == []


class TestWhatTerminalsObey:
    def test_control_characters_are_written_out(self) -> None:
        assert printable("a\x1b[31mb\x07\tc\nd\u202e") == "a\\x1b[31mb\\x07\tc\nd\\u202e"

    def test_brackets_are_no_markup(self) -> None:
        text = io.StringIO()
        show.say(Console(file=text, width=100), "components[0] [red]x[/red]")
        assert text.getvalue() == "components[0] [red]x[/red]\n"

    def test_a_guests_console_cannot_steer_the_terminal(
        self, run: Run, write: Write, mocker: MockerFixture
    ) -> None:
        run("create", write())
        mocker.patch(
            "fabric_direct.drivers.fake.FakeCompute.console", return_value="login:\x1b]0;owned\x07"
        )
        assert run("poa", "vm1", "console").stdout == "login:\\x1b]0;owned\\x07\n"

    def test_a_narrow_terminal_cuts_nothing_in_a_table(self) -> None:
        text = io.StringIO()
        show.table(
            Console(file=text, width=20),
            ["NIC", "MAC", "ADDRESSES"],
            [["a", "52:54:00:12:34:56", "10.0.0.1/24"]],
        )
        assert "52:54:00:12:34:56" in text.getvalue()
        assert "…" not in text.getvalue()
