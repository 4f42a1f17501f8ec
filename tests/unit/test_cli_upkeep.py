"""`fabric-direct reconcile` and `watch`: what they print, and with which exit code; on the fakes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pytest_mock import MockerFixture

from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import State
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.repair_history import History, Note, RepairResult
from fabric_direct.upkeep.watch import Watcher
from tests.outcomes import outcomes_of, result_of
from tests.unit.test_cli import Run, Write, run, site, site_path, write

__all__ = ["run", "site", "site_path", "write"]


@pytest.fixture
def living(run: Run, write: Write) -> None:
    assert (
        run("create", write("one.yaml"), write("two.yaml", id="vm2", name="other")).exit_code == 0
    )


def unplug(fakes: Substrate, sliver: str = "vm1") -> None:
    fakes.servers[sliver] = replace(fakes.servers[sliver], ports=())


@pytest.mark.usefixtures("living")
class TestReconcile:
    def test_of_slivers_that_nobody_touched_says_so(self, run: Run) -> None:
        done = run("reconcile", "vm1", "vm2")

        assert (done.exit_code, done.stdout) == (
            0,
            "vm1: nothing differs.\nvm2: nothing differs.\n",
        )

    def test_says_what_it_repaired(self, run: Run, fakes: Substrate) -> None:
        unplug(fakes)

        done = run("reconcile", "vm1")

        assert done.exit_code == 0
        assert "vm1: repaired: vNIC nic1 is missing\n" in done.stdout
        assert "vm1: is as it should be" in done.stdout
        assert run("probe", "vm1").exit_code == 0

    def test_names_what_cannot_be_repaired_and_fails(self, run: Run, fakes: Substrate) -> None:
        fakes.servers["vm1"] = replace(fakes.servers["vm1"], state=State.PAUSED)

        done = run("reconcile", "vm1")

        assert done.exit_code == 1
        assert "the server is paused, not running" in done.stderr

    def test_repairs_in_part_what_it_can(self, run: Run, fakes: Substrate) -> None:
        unplug(fakes)
        fakes.servers["vm1"] = replace(fakes.servers["vm1"], cores=9)

        done = run("reconcile", "vm1")

        assert done.exit_code == 3
        assert "vm1: reconcile repaired in part" in done.stderr

    def test_of_all_repairs_those_that_differ_alone(self, run: Run, fakes: Substrate) -> None:
        unplug(fakes, "vm2")
        fakes.calls.clear()

        done = run("reconcile", "--all")

        assert done.exit_code == 0
        assert "Slivers that differ: 1, of 2 looked at.\n" in done.stdout
        assert "vm2: repaired: vNIC nic1 is missing\n" in done.stdout
        assert "vm1" not in done.stdout
        assert fakes.calls["compute.attach_port"] == 1

    def test_of_all_at_a_site_that_nobody_touched_lists_it_once(
        self, run: Run, fakes: Substrate
    ) -> None:
        fakes.calls.clear()

        done = run("reconcile", "--all")

        assert (done.exit_code, done.stdout) == (0, "Slivers that differ: 0, of 2 looked at.\n")
        listings = ("compute.servers", "network.all_ports", "volume.all_volumes")
        assert fakes.calls == dict.fromkeys(listings, 1)

    def test_of_all_says_which_host_it_could_not_look_at(self, run: Run, fakes: Substrate) -> None:
        fakes.fault("compute.servers", kind="fail")

        done = run("reconcile", "--all")

        assert done.exit_code == 3
        assert "localhost could not be looked at: compute.servers failed" in done.stderr

    @pytest.mark.parametrize("which", ["vm1", "--all"])
    def test_dry_shows_the_difference_and_the_plan_and_changes_nothing(
        self, run: Run, fakes: Substrate, which: str
    ) -> None:
        unplug(fakes)
        fakes.calls.clear()

        done = run("reconcile", "--dry-run", which)

        assert done.exit_code == 1
        assert "vm1: differs: vNIC nic1 is missing\n" in done.stdout
        assert "will create   nic nic1\n" in done.stdout
        assert not fakes.calls["compute.attach_port"]

    def test_dry_of_what_nobody_touched_succeeds(self, run: Run) -> None:
        done = run("reconcile", "--dry-run", "vm1")

        assert (done.exit_code, done.stdout) == (0, "vm1: nothing differs.\n")

    def test_prints_one_document(self, run: Run, fakes: Substrate) -> None:
        unplug(fakes)

        done = run("reconcile", "--all", "--json")

        (outcome,) = outcomes_of(done.stdout)
        assert outcome["operation"] == "reconcile"
        assert outcome["data"] == {"repaired": ["vNIC nic1 is missing"]}

    @pytest.mark.parametrize("words", [[], ["vm1", "--all"]])
    def test_needs_ids_or_all(self, run: Run, words: list[str]) -> None:
        done = run("reconcile", *words)

        assert done.exit_code == 2
        assert "name slivers by their ids, or all of them by --all" in done.stderr

    def test_of_a_sliver_that_is_not_there_fails(self, run: Run) -> None:
        done = run("reconcile", "nobody")

        assert done.exit_code == 1
        assert "sliver nobody is not there" in done.stderr


class TestWatch:
    NOTE = Note(
        at="2026-01-01T00:00:00.000+00:00",
        did=RepairResult.REPAIRED,
        subject="vm1",
        cause="the domain was started",
        differences=("GPU gpu is missing",),
        seconds=1.5,
    )
    LINE = (
        "2026-01-01T00:00:00.000+00:00  repaired  vm1 (1.5 s): GPU gpu is missing "
        "(after: the domain was started)\n"
    )

    def test_of_a_site_that_does_not_ask_for_it_is_refused(self, run: Run) -> None:
        done = run("watch")

        assert done.exit_code == 2
        assert "the site does not ask for repairs" in done.stderr

    @pytest.fixture
    def once(
        self, run: Run, write: Write, fakes: Substrate, site_path: Path, mocker: MockerFixture
    ) -> None:
        """A sliver that lacks a NIC, at a site whose watcher stops after one repair."""
        asks = yaml.safe_load(site_path.read_text()) | {"watch": {"enabled": True}}
        site_path.write_text(yaml.safe_dump(asks))
        assert run("create", write()).exit_code == 0
        unplug(fakes)
        noted = Watcher._note

        def note(watcher: Watcher, did: RepairResult, subject: str, **said: object) -> None:
            noted(watcher, did, subject, **said)  # type: ignore[arg-type]
            watcher.stop()

        mocker.patch.object(Watcher, "_note", note)

    @pytest.mark.usefixtures("once")
    def test_tells_what_it_does_until_it_is_interrupted(self, run: Run) -> None:
        done = run("watch")

        assert done.exit_code == 0
        assert "  repaired  vm1" in done.stdout
        assert "vNIC nic1 is missing" in done.stdout

    @pytest.mark.usefixtures("once")
    @pytest.mark.parametrize("form", ["json", "yaml"])
    def test_tells_programs_a_document_for_each_repair(self, run: Run, form: str) -> None:
        printed = run("watch", "-f", form).stdout
        lines = [*map(json.loads, printed.splitlines())] if form == "json" else None

        documents = lines or [*yaml.safe_load_all(printed)]

        assert [(d["command"], d["result"]["subject"]) for d in documents] == [("watch", "vm1")]

    def test_prints_its_history(self, run: Run, site: Site) -> None:
        History(FileStore(site.state_dir), 1024).add(self.NOTE)

        assert run("watch", "--history").stdout == self.LINE
        assert result_of(run("watch", "--history", "--json").stdout) == [
            self.NOTE.model_dump(mode="json")
        ]

    def test_says_that_there_is_no_history(self, run: Run) -> None:
        done = run("watch", "--history")

        assert (done.exit_code, done.stdout) == (0, "No watcher has done anything yet.\n")
