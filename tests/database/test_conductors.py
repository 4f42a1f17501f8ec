"""Operations that conductors carry out, in processes that die, freeze and wake."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.sql import SQL, Identifier

from fabric_direct.calls.deadline import wait_until
from fabric_direct.cli import main
from fabric_direct.conductors.conductor import Conductor
from fabric_direct.drivers.fake.substrate import substrate
from fabric_direct.errors import Interrupted
from fabric_direct.model import NodeSliver, Outcome, Status
from fabric_direct.model.services import L2Bridge
from fabric_direct.operations.operations import Operations
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Conductors, Site
from fabric_direct.state.postgresql.queue import OperationQueue, queue_of
from tests.database.conftest import MakeSite
from tests.database.slivers import vm
from tests.unit import test_actor_services as actor

Upset = Callable[[str], None]
PATIENCE = 120.0
_MAIN = "from fabric_direct.cli import main; main()"


class AConductor:
    """A process that is a conductor of a site."""

    def __init__(self, site: Site, folder: Path, *options: str) -> None:
        path = folder / "site.json"
        path.write_text(site.model_dump_json(exclude_defaults=True))
        command = [sys.executable, "-c", _MAIN, "conductor", "-v", "--site", str(path), *options]
        self.log = (folder / f"conductor-{os.urandom(4).hex()}.log").open("w")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline()
        assert self.said, Path(self.log.name).read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self) -> int:
        """Have it end; return its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


Conduct = Callable[..., AConductor]


@pytest.fixture
def make_conducted(make_site: MakeSite) -> MakeSite:
    """Make a site that has conductors."""

    def make(**settings: object) -> Site:
        fake = {"keep": True, "delay": settings.pop("delay", 0.0)}
        return make_site(conductors={}, fake=fake, **settings)

    return make


@pytest.fixture
def conducted(make_conducted: MakeSite) -> Site:
    return make_conducted()


@pytest.fixture
def conduct(tmp_path: Path) -> Iterator[Conduct]:
    """Start a conductor of a site."""
    with ExitStack() as stack:

        def start(site: Site, *options: str) -> AConductor:
            it = AConductor(site, tmp_path, *options)
            stack.callback(it.close)
            return it

        yield start


@pytest.fixture
def queue(conducted: Site) -> OperationQueue:
    assert conducted.state_database
    return queue_of(conducted.site, conducted.state_database)


def fast(site: Site) -> Site:
    """Return the site, with a driver that takes no time."""
    return site.model_copy(update={"fake": site.fake.model_copy(update={"delay": 0.0})})


def another(name: str) -> NodeSliver:
    return vm().model_copy(update={"id": name, "name": name})


def servers(site: Site) -> list[str]:
    with (things := substrate(site, "localhost")).current():
        return sorted(things.servers)


class Steps:
    """The steps that a front hears of."""

    def __init__(self) -> None:
        self._heard = SimpleQueue[Progress]()

    def hear(self, progress: Progress) -> None:
        self._heard.put(progress)

    def until(self, step: str) -> None:
        """Wait until a step has begun."""
        while self._heard.get(timeout=PATIENCE).step != step:
            pass

    def waits(self) -> str:
        """Wait until an operation waits for something; return for what."""
        while not (waiting := self._heard.get(timeout=PATIENCE).waiting):
            pass
        return str(waiting)


@contextmanager
def front(site: Site, steps: Steps | None = None) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site, on_progress=steps and steps.hear) as processor:
        yield processor


class TestAnOperation:
    def test_is_carried_out_by_a_conductor(self, conducted: Site, conduct: Conduct) -> None:
        steps, told = Steps(), list[Outcome]()
        conduct(conducted)
        with HandlerProcessor(conducted, on_progress=steps.hear, on_done=told.append) as processor:
            outcome = processor.create(vm()).result(PATIENCE)
            steps.until("server")
            (record,) = processor.history()

        assert (outcome.status, told, servers(conducted)) == (Status.DONE, [outcome], ["vm-1"])
        assert (record.pid, record.status) == (os.getpid(), Status.DONE)

    def test_comes_after_those_that_were_asked_for_before_on_its_sliver(
        self, conducted: Site, conduct: Conduct
    ) -> None:
        with front(conducted) as processor:
            asked = [
                processor.create(vm()),
                processor.delete(vm()),
                processor.create(vm()),
                processor.probe(vm().ref()),
                processor.delete(vm()),
            ]
            conduct(conducted)
            conduct(conducted)
            outcomes = [future.result(PATIENCE) for future in asked]

        assert {outcome.status for outcome in outcomes} == {Status.DONE}
        assert servers(conducted) == []

    def test_that_needs_another_is_not_begun_if_that_fails(
        self, conducted: Site, conduct: Conduct
    ) -> None:
        conduct(conducted)
        service = L2Bridge.model_validate(
            {
                "id": "net-1",
                "name": "net-1",
                "interfaces": [{"id": "i1", "device": "s", "port": "p"}],
            }
        )
        nic = {"type": "vNIC", "id": "nic", "network": "red"}
        stitched = vm().model_validate(
            vm().model_dump(exclude_none=True)
            | {"components": [nic | {"interface": {"service": {"id": "net-1", "interface": "i1"}}}]}
        )
        with front(conducted) as processor:
            outcomes = [f.result(PATIENCE) for f in processor.create_all([stitched, service])]
        outcomes.reverse()

        assert [outcome.status for outcome in outcomes] == [Status.REFUSED, Status.FAILED]
        assert outcomes[1].error
        assert "create of net-1 was not done, which must be first" in outcomes[1].error.message

    def test_is_refused_by_field_as_without_conductors(
        self, conducted: Site, conduct: Conduct
    ) -> None:
        conduct(conducted)
        with front(conducted) as processor:
            outcome = processor.create(vm().model_copy(update={"image": "huge"})).result(PATIENCE)

        assert outcome.error
        assert (outcome.status, outcome.error.field) == (Status.REFUSED, "image")

    def test_whose_data_cannot_be_sent_is_refused(self, conducted: Site) -> None:
        with front(conducted) as processor:
            outcome = processor.poa(vm(), "reboot", {"hard": object()}).result(PATIENCE)

        assert outcome.error
        assert (outcome.status, outcome.error.field) == (Status.REFUSED, "data")

    def test_is_not_refused_with_another_that_cannot_be_sent(
        self, conducted: Site, conduct: Conduct, upset: Upset
    ) -> None:
        conduct(conducted)
        upset("hang")  # all are posted together
        with front(conducted) as processor:
            first = processor.create(vm())
            bad, good = processor.poa(vm(), "re\0boot"), processor.create(another("b"))
            upset("resume")
            outcomes = [future.result(PATIENCE) for future in (first, bad, good)]

        assert [outcome.ok for outcome in outcomes] == [True, False, True]

    def test_waits_for_a_conductor_and_says_so(self, conducted: Site, conduct: Conduct) -> None:
        steps = Steps()
        with front(conducted, steps) as processor:
            future = processor.create(vm())
            assert steps.waits() == "waits for a conductor: none runs"
            conduct(conducted)
            assert future.result(PATIENCE).ok

    def test_can_be_cancelled_before_it_begins(self, conducted: Site, conduct: Conduct) -> None:
        with front(conducted) as processor:
            first, second = processor.create(vm()), processor.create(another("b"))
            assert (first.cancel(), first.cancelled()) == (True, True)
            conduct(conducted)
            assert second.result(PATIENCE).ok

        assert servers(conducted) == ["b"]

    def test_can_be_cancelled_also_by_a_program_that_does_not_wait_for_it(
        self, conducted: Site, queue: OperationQueue
    ) -> None:
        processor = HandlerProcessor(conducted)
        future = processor.create(vm())
        processor.leave()

        assert (future.cancel(), future.cancelled(), queue.listed()) == (True, True, [])

    def test_that_is_under_way_can_be_interrupted(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        site, steps = make_conducted(delay=0.5), Steps()
        it = conduct(site)
        with front(site, steps) as processor:
            future = processor.create(vm())
            steps.until("port nic")
            assert (future.cancel(), future.interrupt()) == (False, False)
            outcome = future.result(PATIENCE)
            assert outcome.failed_by(Interrupted)
            assert it.end() == 0
            conduct(fast(site))
            assert processor.create(vm()).result(PATIENCE).ok

    def test_of_a_program_that_is_interrupted_begins_nothing_more(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        site, steps = make_conducted(delay=0.5), Steps()
        conduct(site, "--slots", "1")
        with front(site, steps) as processor:
            first, second = processor.create(vm()), processor.create(another("b"))
            steps.until("port nic")
            assert processor.interrupt() == (another("b").ref(),)
            assert second.cancelled()
            assert not first.result(PATIENCE).ok

    def test_can_be_awaited(self, conducted: Site, conduct: Conduct) -> None:
        conduct(conducted)

        async def create() -> Outcome:
            async with HandlerProcessor(conducted) as processor:
                return await processor.create(vm())

        assert asyncio.run(create()).ok

    def test_can_be_asked_for_by_a_forked_child(self, conducted: Site, conduct: Conduct) -> None:
        conduct(conducted)
        with front(conducted) as processor:
            assert processor.create(vm()).result(PATIENCE).ok
            child = os.fork()
            if child == 0:
                os._exit(0 if processor.delete(vm()).result(PATIENCE).ok else 1)
            assert os.waitpid(child, 0)[1] == 0

        assert servers(conducted) == []

    def test_that_is_one_too_many_is_refused(self, make_conducted: MakeSite) -> None:
        site = make_conducted()
        site = site.model_copy(
            update={"conductors": site.conductors.model_copy(update={"waiting": 1})}  # type: ignore[union-attr]
        )
        with front(site) as processor:
            first = processor.create(vm())
            outcome = processor.create(another("b")).result(PATIENCE)
            assert first.cancel()

        assert outcome.error
        assert "too many operations wait" in outcome.error.message


def test_the_actor_is_answered_when_a_conductor_has_done_it(
    make_conducted: MakeSite, conduct: Conduct, tmp_path: Path
) -> None:
    switches = {name: {"ports": {actor.PORT: {}}} for name in ("sw1", "sw2")}
    site = make_conducted(drivers={"VM": "fake", "L2Bridge": "fake"}, switches=switches)
    handler, unit = actor.handler_of(site, tmp_path), actor.unit(actor.service("L2Bridge"))
    conduct(site)

    assert actor.code(handler.create(unit)) == (0, "")
    assert actor.code(handler.delete(unit)) == (0, "")
    with front(site) as processor:
        records = processor.history()
    assert [record.operation for record in records] == ["create", "delete"]


class TestAConductor:
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
    def test_that_dies_is_taken_over(
        self, make_conducted: MakeSite, conduct: Conduct, how: int
    ) -> None:
        site, steps = make_conducted(delay=0.1), Steps()
        first = conduct(site)
        with front(site, steps) as processor:
            future = processor.create(vm())
            steps.until("server")
            first.signal(how)
            conduct(site)
            outcome = future.result(PATIENCE)
            if how == signal.SIGSTOP:
                first.signal(signal.SIGCONT)
                assert processor.delete(vm()).result(PATIENCE).ok
                assert first.end() == 0
            assert processor.unfinished() == ()

        assert outcome.status is Status.DONE
        assert servers(site) == ([] if how == signal.SIGSTOP else ["vm-1"])

    def test_that_ends_finishes_what_it_has_begun(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        site, steps = make_conducted(delay=0.1), Steps()
        it = conduct(site)
        with front(site, steps) as processor:
            future = processor.create(vm())
            steps.until("port nic")
            assert it.end() == 0
            assert future.result(PATIENCE).ok

    def test_that_must_end_hands_back_what_it_has_begun(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        site, steps = make_conducted(delay=0.5), Steps()
        it = conduct(site, "--drain", "0")
        with front(site, steps) as processor:
            future = processor.create(vm())
            steps.until("port nic")
            assert (it.end(), future.done()) == (0, False)
            conduct(fast(site))
            assert future.result(PATIENCE).ok

        assert servers(site) == ["vm-1"]

    def test_with_which_others_died_gives_up_and_says_so(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        site = make_conducted(delay=0.5)
        assert site.state_database
        queue = queue_of(site.site, site.state_database)

        def taken(times: int) -> bool:
            return [each.tries for each in queue.listed()] == [times]

        with front(site) as processor:
            future = processor.create(vm())
            for times in (1, 2, 3):
                it = conduct(site)
                wait_until("it to be taken", partial(taken, times), timeout=PATIENCE)
                it.signal(signal.SIGKILL)
            conduct(site)
            outcome = future.result(PATIENCE)

        assert outcome.error
        assert "3 conductors have died" in outcome.error.message
        assert outcome.left == ("unknown: what create had done before",)

    def test_of_a_host_gets_the_operations_of_that_host(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        hosts = {name: {"libvirt": f"qemu+ssh://{name}/system"} for name in ("w1", "w2")}
        site = make_conducted(hosts=hosts)
        conduct(site, "--slots", "1", "--hosts", "w2")
        with front(site) as processor:
            for name in ("w1", "w2"):
                sliver = another(name).model_copy(update={"host": name})
                assert processor.create(sliver).result(PATIENCE).ok

    def test_of_a_host_that_the_site_does_not_have_is_refused(
        self, conducted: Site, tmp_path: Path
    ) -> None:
        path = tmp_path / "site.json"
        path.write_text(conducted.model_dump_json(exclude_defaults=True))
        said = CliRunner().invoke(main, ["conductor", "--hosts", "w9", "--site", str(path)])
        assert said.exit_code == 2
        assert "no host 'w9'" in said.stderr

    def test_carries_out_only_what_is_signed_where_the_site_says_so(
        self, make_conducted: MakeSite, conduct: Conduct, tmp_path: Path
    ) -> None:
        key, other = tmp_path / "key", tmp_path / "other"
        key.write_text(f"{'1' * 32}\n{'2' * 32}\n")
        other.write_text(f"{'2' * 32}\n")
        for path in (key, other):
            path.chmod(0o600)
        site = make_conducted()
        signed, renewed = (
            site.model_copy(update={"conductors": Conductors(key_file=path)})
            for path in (key, other)
        )
        conduct(signed)
        for asking in (signed, renewed):
            with front(asking) as processor:
                assert processor.create(vm()).result(PATIENCE).ok
        with front(site) as processor:
            outcome = processor.delete(vm()).result(PATIENCE)

        assert outcome.error
        assert (outcome.error.kind, servers(site)) == ("Denied", ["vm-1"])

    def test_that_gets_one_that_was_interrupted_and_handed_back_does_not_know_what_was_done(
        self, make_conducted: MakeSite, conduct: Conduct
    ) -> None:
        site, steps = make_conducted(delay=0.5), Steps()
        it = conduct(site, "--drain", "0")
        with front(site, steps) as processor:
            future = processor.create(vm())
            steps.until("port nic")
            assert it.end() == 0
            assert not future.interrupt()
            conduct(fast(site))
            outcome = future.result(PATIENCE)

        assert outcome.failed_by(Interrupted)
        assert outcome.left == ("unknown: what create had done before",)

    @pytest.mark.parametrize(
        "garbage",
        [("operation", "fly"), ("asker", "{"), ("request", "x"), ("type", ""), ("sliver", "")],
    )
    def test_that_cannot_read_one_carries_out_the_others(
        self,
        conducted: Site,
        conduct: Conduct,
        queue: OperationQueue,
        server: str,
        garbage: tuple[str, str],
    ) -> None:
        with front(conducted) as processor:
            bad, good = processor.create(vm()), processor.create(another("b"))
            wait_until("both to be posted", lambda: len(queue.listed()) == 2, timeout=PATIENCE)
            column, value = garbage
            with psycopg.connect(server) as connection:
                statement = SQL("UPDATE {}.operation SET {} = %s WHERE id = %s").format(
                    Identifier(conducted.site), Identifier(column)
                )
                connection.execute(statement, (value, bad.id))
            conduct(conducted)
            outcomes = [future.result(PATIENCE) for future in (bad, good)]

        assert outcomes[1].ok
        assert {each.state for each in queue.listed(ended=True)} <= {"done", "not done"}

    def test_that_cannot_send_an_outcome_says_so(
        self, conducted: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it, carry_out = Conductor(conducted), Operations.carry_out

        def no_text(*given: Any) -> Outcome:
            return carry_out(*given).model_copy(update={"data": {"name": "\udcff"}})

        monkeypatch.setattr(Operations, "carry_out", no_text)
        with ThreadPoolExecutor(1) as threads, front(conducted) as processor:
            ended = threads.submit(it.run, drain=0)
            outcome = processor.create(vm()).result(PATIENCE)
            it.stop()
            ended.result(PATIENCE)

        assert outcome.error
        assert "the outcome cannot be sent" in outcome.error.message
        assert outcome.left == ("unknown: what came of it",)


class TestADatabaseThatGoesAway:
    def test_is_waited_for_and_nothing_is_lost(
        self, make_conducted: MakeSite, conduct: Conduct, upset: Upset
    ) -> None:
        site, steps = make_conducted(delay=0.1), Steps()
        conduct(site)
        with front(site, steps) as processor:
            futures = [processor.create(another(f"vm-{number}")) for number in range(4)]
            steps.until("port nic")
            upset("stop")
            late = processor.create(another("late"))
            upset("start")
            outcomes = [future.result(PATIENCE) for future in (*futures, late)]

        assert {outcome.status for outcome in outcomes} == {Status.DONE}
        assert servers(site) == ["late", "vm-0", "vm-1", "vm-2", "vm-3"]

    def test_has_nothing_posted_for_a_program_that_was_interrupted_meanwhile(
        self, make_conducted: MakeSite, upset: Upset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = make_conducted()
        assert site.state_database
        tried = Event()
        post = OperationQueue.post

        def noted(*posts: Any, **limits: Any) -> bool:
            tried.set()
            return post(*posts, **limits)

        monkeypatch.setattr(OperationQueue, "post", noted)
        upset("stop")
        with front(site) as processor:
            future = processor.create(vm())
            assert tried.wait(PATIENCE)  # one that is interrupted before is cancelled
            processor.interrupt()
            outcome = future.result(PATIENCE)
            upset("start")

        assert outcome.error
        assert (outcome.error.kind, outcome.left) == ("Unreachable", ())
        assert queue_of(site.site, site.state_database).listed() == []

    def test_ends_what_is_asked_for_meanwhile_after_a_while(
        self, make_conducted: MakeSite, upset: Upset
    ) -> None:
        site = make_conducted(limits={"call": 1})
        upset("stop")
        with front(site) as processor:
            outcome = processor.create(vm()).result(PATIENCE)

        assert outcome.error
        assert (outcome.status, outcome.error.kind, outcome.left) == (
            Status.FAILED,
            "Unreachable",
            (),
        )


def test_what_a_program_does_not_wait_for_is_cancelled_together(
    conducted: Site, queue: OperationQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    cancel = OperationQueue.cancel

    def noted(queue: OperationQueue, ids: list[str], *, interrupt: bool) -> tuple[str, ...]:
        asked.append(sorted(ids))
        return cancel(queue, ids, interrupt=interrupt)

    monkeypatch.setattr(OperationQueue, "cancel", noted)
    with front(conducted) as processor:
        futures = [processor.create(another(f"vm-{number}")) for number in range(5)]
        wait_until("all to be posted", lambda: len(queue.listed()) == 5, timeout=PATIENCE)
        processor.shutdown(timeout=0)

    assert all(future.cancelled() for future in futures)
    assert asked == [sorted(future.id for future in futures)]


def test_what_is_asked_for_as_a_program_ends_is_posted(
    conducted: Site, queue: OperationQueue
) -> None:
    program = """if True:
        import sys
        from fabric_direct.processor import HandlerProcessor
        from fabric_direct.site.config import Site
        from tests.database.slivers import vm

        print(HandlerProcessor(Site.model_validate_json(sys.argv[1])).create(vm()).id)
        """
    command = [sys.executable, "-c", program, conducted.model_dump_json()]
    folder = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)

    assert [each.id for each in queue.listed()] == [ran.stdout.strip()]


def test_no_secret_stays_when_an_operation_has_ended(
    conducted: Site, conduct: Conduct, server: str
) -> None:
    conduct(conducted)
    secret = another("s").model_copy(update={"boot_script": "password=hunter2\n"})
    with front(conducted) as processor:
        assert processor.create(secret).result(PATIENCE).ok

    with psycopg.connect(server) as connection:
        query = SQL("SELECT operation::text FROM {}.operation").format(Identifier(conducted.site))
        rows = connection.execute(query).fetchall()
    assert len(rows) == 1
    assert "hunter2" not in str(rows)


def test_conductors_that_are_there_are_known(
    conducted: Site, conduct: Conduct, queue: OperationQueue
) -> None:
    one, other = conduct(conducted), conduct(conducted)

    assert {it.pid for it in queue.conductors()} == {one.process.pid, other.process.pid}

    assert one.end() == 0
    wait_until("it to be gone", lambda: len(queue.conductors()) == 1, timeout=PATIENCE)


class TestACommand:
    def test_leaves_operations_to_conductors(
        self, conducted: Site, conduct: Conduct, tmp_path: Path, queue: OperationQueue
    ) -> None:
        site, sliver = tmp_path / "site.json", tmp_path / "vm.json"
        site.write_text(conducted.model_dump_json(exclude_defaults=True))
        sliver.write_text(vm().model_dump_json(exclude_none=True))

        def run(*words: str) -> Result:
            return CliRunner().invoke(main, [*words, "--site", str(site)])

        said = run("create", "--detach", str(sliver), "--json")
        assert (said.exit_code, said.stderr) == (0, "")
        ((asked),) = json.loads(said.stdout)["result"]
        assert asked["sliver"] == "vm-1"
        assert "waiting" in run("operations", "list").stdout

        conduct(conducted)
        wait_until("it to end", lambda: not queue.listed(), timeout=PATIENCE)
        shown = json.loads(run("operations", "show", asked["id"], "--json").stdout)["result"]
        assert (shown[0]["state"], shown[0]["outcome"]["status"]) == ("done", "done")
        assert servers(conducted) == ["vm-1"]

    def test_leaves_what_was_placed_to_conductors(
        self, conducted: Site, tmp_path: Path, queue: OperationQueue
    ) -> None:
        site, sliver = tmp_path / "site.json", tmp_path / "vm.json"
        site.write_text(conducted.model_dump_json(exclude_defaults=True))
        sliver.write_text(vm().model_dump_json(exclude_none=True))
        words = ["place", str(sliver), "--boot", "--detach", "--json", "--site", str(site)]

        said = CliRunner().invoke(main, words)

        assert (said.exit_code, said.stderr) == (0, "")
        (asked,) = json.loads(said.stdout)["result"]["operations"]
        assert asked == {"sliver": "vm-1", "id": queue.listed()[0].id}

    def test_cancels_operations(self, conducted: Site, tmp_path: Path) -> None:
        site = tmp_path / "site.json"
        site.write_text(conducted.model_dump_json(exclude_defaults=True))
        with front(conducted) as processor:
            future = processor.create(vm())
            wait_until("it to be posted", lambda: future.id, timeout=PATIENCE)  # type: ignore[arg-type]
            words = ["operations", "cancel", future.id, "--site", str(site)]
            wait_until(
                "it to be cancelled",
                lambda: "cancelled" in CliRunner().invoke(main, words).stdout,
                timeout=PATIENCE,
            )
            wait_until("that to be known", future.cancelled, timeout=PATIENCE)

    def test_lists_also_what_it_cannot_read(
        self, conducted: Site, tmp_path: Path, queue: OperationQueue, server: str
    ) -> None:
        path = tmp_path / "site.json"
        path.write_text(conducted.model_dump_json(exclude_defaults=True))
        with front(conducted) as processor:
            future = processor.create(vm())
            wait_until("it to be posted", queue.listed, timeout=PATIENCE)  # type: ignore[arg-type]
            processor.leave()
        with psycopg.connect(server) as connection:
            statement = SQL("UPDATE {}.operation SET asker = '{{', outcome = '{{', ended = now()")
            connection.execute(statement.format(Identifier(conducted.site)))
        for option in ((), ("--json",)):
            words = ["operations", "list", "--all", *option, "--site", str(path)]
            said = CliRunner().invoke(main, words)
            assert (said.exit_code, future.id in said.stdout) == (0, True)

    def test_of_an_id_that_is_no_text_says_that_there_is_none(
        self, conducted: Site, tmp_path: Path
    ) -> None:
        path = tmp_path / "site.json"
        path.write_text(conducted.model_dump_json(exclude_defaults=True))
        said = CliRunner().invoke(main, ["operations", "show", "\udcff", "--site", str(path)])
        assert (said.exit_code, "there is no operation" in said.stderr) == (2, True)

    def test_that_needs_conductors_says_so_without_them(
        self, make_site: MakeSite, tmp_path: Path
    ) -> None:
        path = tmp_path / "site.json"
        path.write_text(make_site().model_dump_json(exclude_defaults=True))
        for words in (["conductor"], ["operations", "list"]):
            said = CliRunner().invoke(main, [*words, "--site", str(path)])
            assert said.exit_code == 2
            assert "conductors: is missing" in said.stderr
