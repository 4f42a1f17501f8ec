"""Who asked for what, and what came of it: by the library and the command line."""

import multiprocessing
import os
import pwd
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from pytest_mock import MockerFixture

from fabric_direct.cli import main
from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import DeviceUnclean, FabricDirectError
from fabric_direct.model import DeviceState, NodeSliver, Operation, PciAddress, SliverRef, Status
from fabric_direct.operations.create import Create
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state import audit_trail
from fabric_direct.state.audit_trail import AuditTrail, Record, asked_by
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.outcomes import result_of

FORK = multiprocessing.get_context("fork")
ME = pwd.getpwuid(os.geteuid()).pw_name
REF = SliverRef(id="sliver-1", type="VM")
Vm = Callable[..., NodeSliver]
Run = Callable[..., Result]


def only(processor: HandlerProcessor, sliver: str | None = None) -> Record:
    (record,) = processor.history(sliver)
    return record


@pytest.fixture
def run(site: Site, fakes: Substrate, tmp_path: Path) -> Run:
    """Run the command line on the site."""
    values = site.model_dump(mode="json", include={"site", "state_dir", "drivers", "guest"})
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(values | {"images": {"tiny": {}}}))

    def invoke(*words: str) -> Result:
        argv = ["--site", str(tmp_path / "site.yaml"), *words]
        return CliRunner().invoke(main, argv, catch_exceptions=False)

    return invoke


class TestARecord:
    def test_says_when_who_what_and_what_came_of_it(
        self, processor: HandlerProcessor, vm: Vm
    ) -> None:
        outcome = processor.create(vm()).result()
        record = only(processor)
        assert (record.operation, record.subject, record.type) == ("create", "sliver-1", "VM")
        assert (record.user, record.pid) == (ME, os.getpid())
        assert (record.status, record.error, record.left) == (Status.DONE, None, ())
        assert record.seconds == round(outcome.seconds, 3)
        assert record.at.endswith("+00:00")

    def test_of_a_failure_has_its_error_and_what_is_left(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        fakes.fault("volume.delete", at=0, kind="fail")
        outcome = processor.create(vm()).result()
        record = only(processor)
        assert record.status is outcome.status is Status.PARTIAL
        assert record.error == outcome.error
        assert record.left == outcome.left == ("/fake/sliver-1.data",)

    def test_of_a_refusal_is_there(self, processor: HandlerProcessor, vm: Vm) -> None:
        processor.create(vm(image="none")).result()
        record = only(processor)
        assert record.status is Status.REFUSED
        assert record.error
        assert record.error.kind == "InvalidSliver"

    def test_names_the_action_and_never_its_data(
        self, processor: HandlerProcessor, site: Site, vm: Vm
    ) -> None:
        processor.create(vm(boot_script="#!/bin/sh\necho s3cret")).result()
        processor.poa(REF, "console", {"lines": 1, "password": "s3cret"}).result()
        assert [(r.operation, r.action) for r in processor.history()][1:] == [("poa", "console")]
        kept = b"".join(path.read_bytes() for path in (site.state_dir / "history").iterdir())
        assert b"console" in kept
        assert b"s3cret" not in kept

    def test_of_what_only_reads_is_not_made(self, processor: HandlerProcessor, vm: Vm) -> None:
        processor.plan(vm()).result()
        processor.probe(vm()).result()
        assert processor.history() == ()

    def test_of_an_operation_whose_process_was_killed_has_no_end(
        self, site: Site, processor: HandlerProcessor, vm: Vm, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(Create, "__call__", side_effect=lambda *_: os._exit(9))
        child = FORK.Process(target=lambda: HandlerProcessor(site).create(vm()).result())
        child.start()
        child.join()
        record = only(processor)
        assert (record.status, record.seconds, record.pid) == (None, 0.0, child.pid)

    def test_of_what_is_recovered_says_so(
        self, processor: HandlerProcessor, site: Site, vm: Vm
    ) -> None:
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, vm().model_dump(mode="json"))
        (future,) = processor.recover(undo=True)
        future.result()
        assert only(processor).action == "recover --undo"

    def test_of_one_sliver_can_be_asked_for(self, processor: HandlerProcessor, vm: Vm) -> None:
        processor.create(vm()).result()
        processor.delete(SliverRef(id="other")).result()
        assert only(processor, "other").operation == "delete"
        assert len(processor.history()) == 2

    def test_that_cannot_be_written_changes_no_outcome_and_is_logged(
        self,
        processor: HandlerProcessor,
        site: Site,
        vm: Vm,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level("WARNING", "fabric_direct")
        site.state_dir.mkdir()
        (site.state_dir / "history").write_text("in the way")
        assert processor.create(vm()).result().ok
        assert "cannot write" in caplog.text

    def test_that_cannot_be_read_is_an_error_of_ours(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        (site.state_dir / "history" / "history.jsonl").mkdir(parents=True)
        with pytest.raises(FabricDirectError, match="cannot read the history"):
            processor.history()


class TestWhatIsNoSliver:
    def test_the_release_of_a_device_is_there_and_its_failure_too(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        address = PciAddress.parse("0000:99:00.0")
        device = HostDevice(PciFunction(address, "10de", "1eb8"), DeviceState.QUARANTINED)
        fakes.devices, fakes.dirty = {address: device}, {address}
        with pytest.raises(DeviceUnclean):
            processor.release("localhost", address)
        processor.release("localhost", address, force=True)
        failed, forced = processor.history("localhost/0000:99:00.0")
        assert (failed.operation, failed.status) == ("release", Status.FAILED)
        assert failed.error
        assert failed.error.kind == "DeviceUnclean"
        assert (forced.action, forced.status) == ("force", Status.DONE)

    def test_an_uplink_is_there_if_it_is_set(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.uplinks = {"ens1": "veb"}
        assert processor.bridge_mode("localhost", "ens1", "vepa") == "vepa"
        assert processor.bridge_mode("localhost", "ens1") == "vepa"
        record = only(processor, "localhost/ens1")
        assert (record.operation, record.action) == ("uplink", "vepa")


class TestWhoAsks:
    def test_is_said_by_the_caller(self, processor: HandlerProcessor, vm: Vm) -> None:
        with asked_by("portal for alice"):
            future = processor.create(vm())
        future.result()
        assert only(processor).asked_by == "portal for alice"

    def test_is_nobody_in_particular_outside_of_the_block(
        self, processor: HandlerProcessor
    ) -> None:
        with asked_by("portal"), asked_by("portal for alice"):
            pass
        processor.delete(REF).result()
        assert only(processor).asked_by == ""

    def test_is_a_text(self) -> None:
        wrong: Any = None
        with pytest.raises(TypeError, match="expected a name, not NoneType"), asked_by(wrong):
            pass

    @pytest.mark.parametrize("name", ["", " "])
    def test_has_a_name(self, name: str) -> None:
        with pytest.raises(ValueError, match="the name of who asks is empty"), asked_by(name):
            pass

    def test_is_another_one_in_each_thread(self, processor: HandlerProcessor) -> None:
        asked = threading.Barrier(2)

        def ask(name: str) -> None:
            with asked_by(name):
                asked.wait()
                processor.delete(SliverRef(id=name)).result()

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("a", "b")]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert {(r.subject, r.asked_by) for r in processor.history()} == {("a", "a"), ("b", "b")}

    @pytest.mark.parametrize(
        ("said", "login"),
        [(str(os.geteuid()), ""), ("4294967295", ""), ("", ""), ("123456", "123456")],
        ids=["the user", "a service", "not said", "another one"],
    )
    def test_has_the_login_if_it_is_another_user(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, login: str
    ) -> None:
        (tmp_path / "loginuid").write_text(said)
        monkeypatch.setattr(audit_trail, "_LOGIN", tmp_path / "loginuid")
        assert AuditTrail(FileStore(tmp_path), 1024).begin("create", "s1").login == login


class TestTheCommand:
    def test_shows_a_row_for_each_operation(self, run: Run, processor: HandlerProcessor) -> None:
        with asked_by("portal"):
            processor.poa(REF, "start").result()
        run("delete", "vm2")
        header, first, second = run("history").stdout.splitlines()
        assert header.split() == [
            *("WHEN", "OPERATION", "SLIVER", "OUTCOME", "SECONDS", "WHO", "ERROR")
        ]
        assert "  poa start  sliver-1  failed  " in first
        assert f"  {ME}, portal ({os.getpid()})  " in first
        assert first.endswith("  NotFound")
        assert "  delete     vm2       done  " in second

    def test_shows_those_on_a_sliver_and_the_last(self, run: Run) -> None:
        for name in ("a", "b", "b"):
            run("delete", name)
        assert len(run("history", "b").stdout.splitlines()) == 1 + 2
        assert len(run("history", "--last", "1").stdout.splitlines()) == 1 + 1

    def test_says_that_an_operation_has_not_ended(self, run: Run, site: Site) -> None:
        AuditTrail(FileStore(site.state_dir), 1024).begin("create", "vm1")
        assert "  create     vm1     begun  " in run("history").stdout

    def test_prints_json(self, run: Run, processor: HandlerProcessor) -> None:
        run("delete", "vm1")
        (found,) = result_of(run("history", "--json").stdout)
        assert found == only(processor).model_dump(mode="json")

    def test_says_that_there_is_nothing(self, run: Run, site: Site) -> None:
        site.state_dir.mkdir(exist_ok=True)
        assert run("history").stdout == "Nothing was asked for.\n"
        assert run("history", "vm1").stdout == "Nothing was asked for of vm1.\n"
        assert result_of(run("history", "--json").stdout) == []

    def test_says_that_the_directory_which_would_have_it_is_not_there(
        self, run: Run, site: Site
    ) -> None:
        said = f"The site's state_dir, {site.state_dir}, does not exist."
        assert run("history").stdout == f"Nothing was asked for. {said}\n"

    def test_is_bounded_by_the_site(self, site: Site) -> None:
        values: dict[str, Any] = site.model_dump() | {"history": 16}
        small = Site.model_validate(values)
        with HandlerProcessor(small) as processor:
            for number in range(100):
                processor.delete(SliverRef(id=f"s{number}" + "x" * 40)).result()
            kept = list((small.state_dir / "history").iterdir())
        assert len(kept) == 2
        assert sum(path.stat().st_size for path in kept) < 2 * 17 * 1024
