"""What a shell completes: slivers, hosts, actions, files."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete

from fabric_direct.cli import completion, main
from fabric_direct.drivers.fake import Substrate
from fabric_direct.handlers.vm.actions import NAMES
from fabric_direct.model import Operation
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.unit.test_cli import SITE, VM, Run, Write, run, site, site_path, write

__all__ = ["run", "site", "site_path", "write"]

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(
    site_path: Path, tmp_path: Path, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Complete]:
    """Complete the last of some words, in a directory of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def completed(*words: str) -> list[str]:
        *before, last = ["--site", str(site_path), *words]
        shell = ShellComplete(main, {}, "fabric-direct", "_FABRIC_DIRECT_COMPLETE")
        return [item.value for item in shell.get_completions(before, last)]

    yield completed
    fakes.mend()


class TestSlivers:
    @pytest.mark.parametrize(
        "words", [["delete"], ["delete", "vm2"], ["probe"], ["poa"], ["reconcile"]]
    )
    def test_that_are_there_are_completed(
        self, run: Run, write: Write, complete: Complete, words: list[str]
    ) -> None:
        run("create", write(), write("other.yaml", id="vm2"), write("third.yaml", id="x"))
        assert complete(*words, "v") == ["vm1", "vm2"]

    def test_are_told_with_their_names(self, run: Run, write: Write, site_path: Path) -> None:
        run("create", write(name="node"))
        shell = ShellComplete(main, {}, "fabric-direct", "_FABRIC_DIRECT_COMPLETE")
        (found,) = shell.get_completions(["--site", str(site_path), "reconcile"], "")
        assert (found.value, found.help) == ("vm1", "node")

    def test_are_looked_for_without_a_word(
        self, complete: Complete, fakes: Substrate, capfd: pytest.CaptureFixture[str]
    ) -> None:
        before = logging.root.manager.disable
        fakes.fault("compute.servers", kind="fail")

        assert complete("reconcile", "") == []

        assert capfd.readouterr() == ("", "")
        assert logging.root.manager.disable == before

    def test_that_were_interrupted_are_completed(self, complete: Complete, site: Site) -> None:
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, VM | {"type": "VM"})
        assert complete("delete", "") == ["vm1"]

    def test_of_a_host_that_hangs_are_those_that_are_remembered(
        self, complete: Complete, site: Site, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(completion, "_LIMIT", 0.05)
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, VM | {"type": "VM"})
        fakes.hang()
        assert complete("reconcile", "") == ["vm1"]

    def test_stand_beside_the_documents_of_the_directory(
        self, run: Run, write: Write, complete: Complete
    ) -> None:
        run("create", write())
        for name in ("vm.yaml", "notes.txt"):
            Path(name).touch()
        assert complete("delete", "vm") == ["vm1", "vm.yaml"]

    def test_that_are_none_leave_the_word_to_the_shell_as_a_file(self, complete: Complete) -> None:
        assert complete("delete", "./x") == ["./x"]


class TestHosts:
    @pytest.fixture(autouse=True)
    def two(self, site_path: Path, tmp_path: Path) -> None:
        hosts = {"hosts": {"w1": {}, "w2": {}, "other": {}}, "state_dir": str(tmp_path / "state")}
        site_path.write_text(yaml.safe_dump(SITE | hosts))

    @pytest.mark.parametrize(
        "words", [["devices"], ["devices", "release"], ["uplink"], ["list", "--host"]]
    )
    def test_are_those_of_site_yaml(self, complete: Complete, words: list[str]) -> None:
        assert complete(*words, "w") == ["w1", "w2"]

    def test_of_a_site_that_is_wrong_are_none(self, site_path: Path, complete: Complete) -> None:
        site_path.write_text("site: x\nhosts: {}\n")
        assert complete("uplink", "") == []


def test_actions_are_completed(complete: Complete) -> None:
    assert complete("poa", "vm1", "") == list(NAMES)
    assert complete("poa", "vm1", "cpu") == ["cpuinfo", "cpupin"]


@pytest.mark.parametrize("command", ["plan", "create", "modify", "place"])
def test_files_are_left_to_the_shell(complete: Complete, command: str, site_path: Path) -> None:
    shell = ShellComplete(main, {}, "fabric-direct", "_FABRIC_DIRECT_COMPLETE")
    (item,) = shell.get_completions(["--site", str(site_path), command], "v")
    assert (item.value, item.type) == ("v", "file")


def test_columns_are_completed(complete: Complete) -> None:
    assert complete("list", "-c", "s") == ["sliver", "state"]
