"""Ctrl-C and SIGTERM: the first begins nothing more, the second ends the process; nothing is lost."""

import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.calls import deadline
from fabric_direct.cli import main
from fabric_direct.drivers.fake import FakeCompute, FakeGuest, Substrate, substrate
from fabric_direct.drivers.fake.substrate import _substrates
from fabric_direct.errors import Conflict
from fabric_direct.model import NodeSliver, Operation, Outcome, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, load_site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.store import sliver_lock
from tests.conftest import FAKE_DRIVERS
from tests.trust.clock import await_in_earnest

FORK = multiprocessing.get_context("fork")
MakeVm = Callable[..., NodeSliver]
VM: dict[str, Any] = {
    "name": "node",
    "image": "tiny",
    "capacities": {"core": 1, "ram": 1, "disk": 1},
    "components": [{"id": "nic1", "type": "vNIC", "network": "red"}],
}
SITE = {
    "site": "TEST",
    "drivers": FAKE_DRIVERS,
    "guest": "fake",
    "fake": {"keep": True},
    "images": {"tiny": {}},
    "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}},
}
SERVER_IS_MADE = "done: port nic1, server; not done: power, guest, verify"


class Held:
    """A method of a driver that is held, in the process that calls it, until it is interrupted."""

    def __init__(self, driver: type, method: str) -> None:
        self._driver, self._method = driver, method
        self._call = getattr(driver, method)
        self.reached, self.released = threading.Event(), threading.Event()

    def patch(self, monkeypatch: pytest.MonkeyPatch, *, ends: bool = True) -> None:
        def held(driver: Any, *args: Any, **kw: Any) -> Any:
            self.reached.set()
            interruption = deadline.interruption()
            assert interruption
            assert interruption.begun.wait(60)
            self.interrupted()
            return self._call(driver, *args, **kw) if ends else self.released.wait(60)

        monkeypatch.setattr(self._driver, self._method, held)

    def interrupted(self) -> None:
        """Do nothing more."""


class TestAProcessor:
    @pytest.fixture
    def interrupted(
        self, processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., Outcome]:
        """Interrupt an operation while a driver's method is called."""

        def interrupt(
            driver: type, method: str, ask: Callable[..., Future[Outcome]], *, ends: bool = True
        ) -> Outcome:
            held = Held(driver, method)
            with monkeypatch.context() as patch:
                held.patch(patch, ends=ends)
                future = ask(processor, vm())
                assert held.reached.wait(60)
                processor.interrupt()
                outcome = future.result(60)
            held.released.set()
            return outcome

        return interrupt

    @pytest.fixture
    def again(self, site: Site) -> Iterator[HandlerProcessor]:
        with HandlerProcessor(site) as processor:
            yield processor

    def test_ends_the_call_under_way_and_leaves_what_is_made(
        self,
        interrupted: Callable[..., Outcome],
        vm: MakeVm,
        site: Site,
        again: HandlerProcessor,
        fakes: Substrate,
    ) -> None:
        outcome = interrupted(FakeCompute, "create", HandlerProcessor.create)

        assert outcome.error
        assert (outcome.status, outcome.error.kind) == (Status.PARTIAL, "Interrupted")
        assert "done: port nic1, port nic2, volume data, server; not" in outcome.error.message
        assert set(fakes.servers) == {"sliver-1"}
        assert "port nic1" in outcome.left
        (entry,) = Journal(FileStore(site.state_dir)).unfinished()
        assert (entry.operation, entry.owns_everything) == (Operation.CREATE, True)

        assert again.create(vm()).result().ok
        assert Journal(FileStore(site.state_dir)).unfinished() == ()

    @pytest.mark.parametrize("method", ["find", "check"])
    def test_that_ends_before_a_call_is_not_named_by_it(
        self, interrupted: Callable[..., Outcome], method: str
    ) -> None:
        outcome = interrupted(FakeCompute, method, HandlerProcessor.create)

        assert outcome.error
        assert outcome.error.kind == "Interrupted"
        assert outcome.error.message == "the operation was interrupted"

    def test_can_be_undone_afterwards(
        self,
        interrupted: Callable[..., Outcome],
        vm: MakeVm,
        again: HandlerProcessor,
        fakes: Substrate,
    ) -> None:
        interrupted(FakeCompute, "create", HandlerProcessor.create)

        (undone,) = again.recover(undo=True)

        assert undone.result().ok
        assert not fakes.servers
        assert not fakes.ports

    def test_waits_for_no_guest(self, interrupted: Callable[..., Outcome]) -> None:
        outcome = interrupted(FakeGuest, "wait", HandlerProcessor.create, ends=False)

        assert outcome.error
        assert "; not done: guest, verify" in outcome.error.message

    def test_of_a_deletion_names_what_is_still_there(
        self,
        interrupted: Callable[..., Outcome],
        vm: MakeVm,
        site: Site,
        again: HandlerProcessor,
        fakes: Substrate,
    ) -> None:
        assert again.create(vm()).result().ok

        outcome = interrupted(FakeCompute, "delete", HandlerProcessor.delete)

        assert (outcome.status, not fakes.servers) == (Status.PARTIAL, True)
        assert "port nic1" in outcome.left
        assert Journal(FileStore(site.state_dir)).of("sliver-1")
        assert again.delete(vm()).result().ok

    def test_of_a_modification_names_what_is_not_done(
        self,
        interrupted: Callable[..., Outcome],
        vm: MakeVm,
        again: HandlerProcessor,
        fakes: Substrate,
    ) -> None:
        assert again.create(vm()).result().ok
        fewer = vm(components=[{"type": "vNIC", "id": "nic1", "network": "red"}])

        outcome = interrupted(
            FakeCompute, "detach_volume", lambda processor, _: processor.modify(fewer)
        )

        assert outcome.status is Status.PARTIAL
        assert "not done: stamp" in outcome.left
        assert again.modify(fewer).result().ok
        assert set(fakes.ports) == {("sliver-1", "nic1")}

    def test_before_anything_was_changed_leaves_nothing_to_finish(
        self, processor: HandlerProcessor, vm: MakeVm, site: Site, fakes: Substrate
    ) -> None:
        reached, go = threading.Event(), threading.Event()
        begin = Journal.begin

        def held(*args: Any, **kw: Any) -> Any:
            entry = begin(*args, **kw)
            reached.set()
            assert go.wait(60)
            return entry

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "begin", held)
            future = processor.create(vm())
            assert reached.wait(60)
            processor.interrupt()
            go.set()
            outcome = future.result(60)

        assert outcome.error
        assert outcome.error.message.endswith("was interrupted before it changed anything")
        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert Journal(FileStore(site.state_dir)).unfinished() == ()

    def test_cancels_what_has_not_begun_and_takes_nothing_new(
        self, processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = Held(FakeCompute, "create")
        held.patch(monkeypatch)
        first, second = processor.create(vm()), processor.delete(vm())
        assert held.reached.wait(60)

        assert processor.interrupt() == (vm().ref(),)

        assert (second.cancelled(), first.result(60).error is not None) == (True, True)
        with pytest.raises(Conflict, match="shut down"):
            processor.create(vm())

    def test_waits_for_no_sliver_of_another_process(
        self, site: Site, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        with FileStore(site.state_dir).exclusive(sliver_lock("sliver-1"), "it", timeout=1):
            processor._interruption.begin()
            outcome = processor.create(vm()).result(60)

        assert outcome.error
        assert "interrupted while waiting for another process" in outcome.error.message


class TestOneOperation:
    def test_ends_and_the_others_go_on(
        self, processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = Held(FakeCompute, "create")
        with monkeypatch.context() as patch:
            held.patch(patch)
            future = processor.create(vm())
            assert held.reached.wait(60)
            again = processor.create(vm())
            cancelled = future.interrupt()
            outcome = future.result(60)

        assert outcome.error
        assert (cancelled, outcome.error.kind, outcome.status) == (
            False,
            "Interrupted",
            Status.PARTIAL,
        )
        assert again.result(60).ok
        assert processor.create(vm(id="sliver-2")).result(60).ok

    def test_that_has_not_begun_is_cancelled(
        self, processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = Held(FakeCompute, "create")
        held.patch(monkeypatch)
        first, second = processor.create(vm()), processor.delete(vm())
        assert held.reached.wait(60)

        assert (second.interrupt(), second.cancelled()) == (True, True)

        first.interrupt()
        assert not first.result(60).ok

    def test_that_has_ended_stays_done(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        future = processor.create(vm())
        outcome = future.result(60)

        assert (future.interrupt(), future.result()) == (False, outcome)


@pytest.fixture
def site_path(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(SITE | {"state_dir": str(tmp_path / "state")}))
    for name in ("vm1", "vm2"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(VM | {"id": name}))
    return path


@pytest.fixture
def run(site_path: Path) -> Callable[..., Result]:
    """Run a command on what other processes have left."""

    def invoke(*words: str) -> Result:
        _substrates.clear()
        return CliRunner().invoke(main, ["--site", str(site_path), *words], catch_exceptions=False)

    return invoke


class InterruptedWhileWriting(io.FileIO):
    """A file whose writer is interrupted while it writes how to interrupt again."""

    def write(self, data: Any) -> int:
        written = super().write(data)
        if b"Interrupt again" in bytes(data):
            os.kill(os.getpid(), signal.SIGINT)
        return written


class Child:
    """The command line in a process of its own, at a call that is held."""

    def __init__(self, site_path: Path, driver: type, method: str, *words: str, **how: Any) -> None:
        self._ours, theirs = FORK.Pipe()
        self._err = site_path.parent / "stderr"
        words = ("--site", str(site_path), *words)
        self._process = FORK.Process(
            target=self._run, args=(theirs, Held(driver, method), words), kwargs=how
        )
        self._process.start()
        theirs.close()
        assert self.says() == "reached"

    def _run(
        self,
        told: Connection,
        held: Held,
        words: tuple[str, ...],
        *,
        ends: bool,
        file: type[io.FileIO] = io.FileIO,
    ) -> None:
        _substrates.clear()
        held.reached.set = lambda: told.send("reached")  # type: ignore[method-assign]
        held.interrupted = lambda: self._go_on(told)  # type: ignore[method-assign]
        held.patch(pytest.MonkeyPatch(), ends=ends)
        err = io.TextIOWrapper(io.BufferedWriter(file(self._err, "w")), "utf-8")
        with err as sys.stderr, Path(os.devnull).open("w") as sys.stdout:
            main(words)

    def _go_on(self, told: Connection) -> None:
        await_in_earnest(lambda: "Interrupt again" in self._err.read_text())
        told.send("interrupted")

    def says(self) -> str:
        assert self._ours.poll(60)
        return str(self._ours.recv())

    def send(self, number: signal.Signals) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def end(self) -> tuple[int | None, list[str]]:
        """Return the exit code, and what it said of the end."""
        self._process.join(60)
        lines = self._err.read_text().splitlines()
        return self._process.exitcode, lines


class TestACommand:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_says_what_is_left_and_is_finished_by_the_same_again(
        self,
        site_path: Path,
        run: Callable[..., Result],
        tmp_path: Path,
        number: signal.Signals,
    ) -> None:
        words = ("create", str(tmp_path / "vm1.yaml"))
        child = Child(site_path, FakeCompute, "create", *words, ends=True)
        child.send(number)

        code, said = child.end()

        assert code == 130
        assert said[0] == "Interrupted: nothing more is begun; 0 cancelled."
        assert said[1].startswith("Waiting for the calls under way: vm1.")
        assert f"  Interrupted: create of vm1 was interrupted: {SERVER_IS_MADE}" in said
        assert "Unfinished: vm1." in said
        assert any("give the same command again, or `fabric-direct recover`" in s for s in said)
        assert Journal(FileStore(tmp_path / "state")).of("vm1")
        assert run(*words).exit_code == 0
        assert Journal(FileStore(tmp_path / "state")).unfinished() == ()

    def test_a_deletion_is_finished_and_not_undone(
        self, site_path: Path, run: Callable[..., Result], tmp_path: Path
    ) -> None:
        assert run("create", str(tmp_path / "vm1.yaml")).exit_code == 0
        child = Child(site_path, FakeCompute, "delete", "delete", "vm1", ends=True)
        child.send(signal.SIGINT)

        code, said = child.end()

        assert code == 130
        assert "To finish it, give the same command again, or `fabric-direct recover`." in said

    def test_ends_at_once_when_it_is_interrupted_again(
        self, site_path: Path, run: Callable[..., Result], tmp_path: Path
    ) -> None:
        words = ("create", str(tmp_path / "vm1.yaml"), str(tmp_path / "vm2.yaml"))
        child = Child(site_path, FakeCompute, "create", *words, ends=False)
        assert child.says() == "reached"
        child.send(signal.SIGINT)
        assert {child.says(), child.says()} == {"interrupted"}
        child.send(signal.SIGINT)

        code, said = child.end()

        assert code == 130
        assert said[-3:-1] == ["Ended at once.", "Unfinished: vm1, vm2."]
        assert {e.sliver["id"] for e in Journal(FileStore(tmp_path / "state")).unfinished()} == {
            "vm1",
            "vm2",
        }
        assert run("recover", "--undo").exit_code == 0
        assert not substrate(load_site(site_path), "localhost").servers

    def test_ends_at_once_when_it_is_interrupted_while_it_writes(self, site_path: Path) -> None:
        words = ("create", str(site_path.parent / "vm1.yaml"))
        child = Child(
            site_path, FakeCompute, "create", *words, ends=False, file=InterruptedWhileWriting
        )
        child.send(signal.SIGINT)

        code, said = child.end()

        assert code == 130
        assert said[-3:-1] == ["Ended at once.", "Unfinished: vm1."]
