"""Processes that die, freeze and wake, and a database that goes away: nothing is done twice or lost."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.fence import refuse_lost
from fabric_direct.drivers.fake.substrate import substrate
from fabric_direct.errors import DriverError, InvalidSite, LockLost, SliverBusy, Unreachable
from fabric_direct.model import Operation, Outcome, Status
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Journal
from fabric_direct.state.postgresql.connections import Connections
from fabric_direct.state.postgresql.locks import Beats
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import StateStore, sliver_lock
from tests.database.conftest import LEASE
from tests.database.slivers import vm

MakeSite = Callable[..., Site]
Upset = Callable[[str], None]
PATIENCE = 120.0
LOCK = sliver_lock("s-1")
SLIVER = {"id": "s-1", "type": "VM"}


class Another:
    """Another process of the site."""

    def __init__(self, site: Site, what: str) -> None:
        command = [sys.executable, "-m", "tests.database.another", site.model_dump_json(), what]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def asked(self) -> str:
        """Return what it says when it is asked whether it still holds its lock."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def another(site: Site, what: str) -> Iterator[Another]:
    it = Another(site, what)
    try:
        yield it
    finally:
        it.kill()
        for stream in (it.process.stdin, it.process.stdout):
            if stream:
                stream.close()


class TestALock:
    def test_of_a_process_that_was_killed_is_free_two_leases_later(self, site: Site) -> None:
        store = store_of(site)
        with another(site, "hold") as other:
            assert other.asked() == "held"
            with pytest.raises(SliverBusy), store.exclusive(LOCK, "sliver s-1", timeout=0):
                pass
            other.kill()
            with pytest.raises(SliverBusy), store.exclusive(LOCK, "sliver s-1", timeout=0):
                pass  # it may be alive, for all that is known
            with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
                assert Journal(store).of("s-1")

    def test_that_a_killed_process_left_is_told_and_removed(self, site: Site) -> None:
        store = store_of(site)
        with another(site, "hold") as other:
            assert other.asked() == "held"
        wait_until("its lease to be over", store.stale_locks, timeout=PATIENCE)  # type: ignore[arg-type]
        assert (store.stale_locks(), store.held("")) == ((LOCK,), ())
        store.remove_stale_lock(LOCK)
        assert store.stale_locks() == ()

    def test_of_a_process_that_was_frozen_is_lost_to_who_took_it(self, site: Site) -> None:
        store = store_of(site)
        with another(site, "hold") as other:
            assert other.asked() == "held"
            other.freeze()
            with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
                Journal(store).end("s-1")
                other.wake()
                assert "not locked by this process any more" in other.asked()
            assert "not locked by this process any more" in other.asked()
        assert Journal(store).of("s-1") is None

    def test_of_a_process_that_was_frozen_is_its_own_if_nobody_took_it(self, site: Site) -> None:
        with another(site, "hold") as other:
            assert other.asked() == "held"
            other.freeze()
            wait_until("its lease to be over", store_of(site).stale_locks, timeout=PATIENCE)  # type: ignore[arg-type]
            other.wake()
            assert other.asked() == "held"
            assert store_of(site).held("") == (LOCK,)

    def test_is_not_touched_by_a_forked_child(self, store: StateStore) -> None:
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            block = store.exclusive("sliver-s-2", "sliver s-2", timeout=PATIENCE)
            block.__enter__()
            child = os.fork()
            if child == 0:
                try:
                    block.__exit__(None, None, None)
                    with store.exclusive("sliver-s-3", "sliver s-3", timeout=PATIENCE):
                        os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert "sliver-s-2" in store.held("")
            block.__exit__(None, None, None)

    def test_is_released_later_if_the_database_does_not_answer(
        self, store: StateStore, upset: Upset
    ) -> None:
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            upset("stop")
        upset("start")
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            pass

    def test_is_lost_with_what_a_restored_database_does_not_know(
        self, site: Site, store: StateStore, server: str
    ) -> None:
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            with psycopg.connect(server) as connection:
                holder = SQL("DELETE FROM {}.holder").format(Identifier(site.site))
                connection.execute(holder)
            with pytest.raises(LockLost):
                refuse_lost(PATIENCE)
            with pytest.raises(LockLost):
                Journal(store).begin(Operation.CREATE, SLIVER)
        assert Journal(store).of("s-1") is None

    def test_can_be_taken_again_after_that(
        self, site: Site, store: StateStore, server: str
    ) -> None:
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            pass
        with psycopg.connect(server) as connection:
            connection.execute(SQL("DELETE FROM {}.holder").format(Identifier(site.site)))
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            refuse_lost(PATIENCE)

    def test_that_was_taken_without_an_answer_is_released(
        self, store: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin = Connections.begin

        @contextmanager
        def unanswered(*given: Any) -> Iterator[Any]:
            with begin(*given) as db:
                yield db
            raise Unreachable("the connection was cut as COMMIT was answered")

        with store.exclusive("another", "it", timeout=PATIENCE):  # this process is a holder
            pass
        with monkeypatch.context() as cut:
            cut.setattr(Connections, "begin", unanswered)
            with (
                pytest.raises(Unreachable, match="was cut"),
                store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE),
            ):
                pass
        with store.exclusive(LOCK, "sliver s-1", timeout=PATIENCE):
            pass

    def test_is_not_held_by_a_process_that_did_not_reach_the_database(self) -> None:
        nowhere = Connections("postgresql://fabric@127.0.0.1:9/fabric", "test", LEASE)
        beats = Beats(nowhere, LEASE)
        for _ in range(2):
            with pytest.raises(Unreachable), beats.holding():
                pass
            assert not beats.id


class TestADatabaseThatGoesAway:
    def test_is_waited_for_by_what_is_under_way(self, make_site: MakeSite, upset: Upset) -> None:
        site = make_site(fake={"delay": 0.02})
        begun = threading.Event()

        def heard(progress: Progress) -> None:
            if progress.status and not begun.is_set():
                upset("stop")
                begun.set()

        with HandlerProcessor(site, on_progress=heard) as processor:
            future = processor.create(vm())
            assert begun.wait(PATIENCE)
            upset("start")
            assert future.result(PATIENCE).status is Status.DONE
            assert processor.unfinished() == ()

    @pytest.mark.parametrize("how", ["stop", "hang"])
    def test_ends_what_waits_too_long_and_nothing_is_changed(
        self, make_site: MakeSite, upset: Upset, how: str
    ) -> None:
        site = make_site(limits={"call": 1, "create": 5, "busy": 1})
        upset(how)
        with HandlerProcessor(site) as processor:
            outcome = processor.create(vm()).result(PATIENCE)
        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "postgresql://127.0.0.1" in outcome.error.message
        assert not substrate(site, "localhost").servers

    def test_at_the_end_of_an_operation_leaves_it_ended_for_this_process(
        self, make_site: MakeSite, upset: Upset
    ) -> None:
        journal = Journal(store_of(make_site()))
        journal.begin(Operation.CREATE, SLIVER)
        upset("stop")
        with pytest.raises(Unreachable):
            journal.end("s-1")
        upset("start")
        assert (journal.unfinished(), journal.of("s-1")) == ((), None)

    def test_for_reading_alone_is_not_used(self, site: Site, server: str) -> None:
        only_read = "?options=-c%20default_transaction_read_only%3Don"
        database = site.state_database.model_copy(update={"url": server + only_read})  # type: ignore[union-attr]
        other = site.model_copy(update={"state_database": database})
        with pytest.raises(Unreachable, match="session is read-only"):
            Journal(store_of(other)).unfinished()

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("postgresql://192.0.2.5/fabric?sslmod=require", "sslmod"),
            ("postgresql://192.0.2.5/fabric%00", "%00"),
        ],
    )
    def test_whose_url_is_none_is_refused(self, site: Site, url: str, said: str) -> None:
        database = site.state_database.model_copy(update={"url": url})  # type: ignore[union-attr]
        with pytest.raises(InvalidSite, match=said):
            store_of(site.model_copy(update={"state_database": database}))

    def test_that_nobody_serves_is_told(self, site: Site) -> None:
        nowhere = site.model_copy(
            update={
                "state_database": site.state_database.model_copy(  # type: ignore[union-attr]
                    update={"url": "postgresql://fabric@127.0.0.1:9/fabric"}
                )
            }
        )
        with pytest.raises(Unreachable, match="cannot use the journal"):
            Journal(store_of(nowhere)).unfinished()

    def test_that_does_not_know_us_is_told(self, site: Site, server: str) -> None:
        for url, said in (
            (server.replace("fabric@", "nobody@"), 'role "nobody" does not exist'),
            (server.removesuffix("fabric") + "none", 'database "none" does not exist'),
        ):
            database = site.state_database.model_copy(update={"url": url})  # type: ignore[union-attr]
            other = site.model_copy(update={"state_database": database})
            with pytest.raises(DriverError, match=said):
                Journal(store_of(other)).unfinished()


class TestAnOperation:
    def test_of_a_killed_process_is_finished_by_another(self, make_site: MakeSite) -> None:
        site = make_site(fake={"keep": True, "delay": 0.05})
        with another(site, "create") as other:
            while "server DONE" not in (said := other.says().replace("done", "DONE")):
                assert said, "it has ended"
            other.kill()
        with HandlerProcessor(site) as processor:
            (outcome,) = (future.result(PATIENCE) for future in processor.recover())
            assert outcome.status is Status.DONE
            assert processor.unfinished() == ()
        assert list(substrate(site, "localhost").servers) == ["vm-1"]

    def test_of_a_frozen_process_is_finished_by_another_and_it_does_nothing_more(
        self, make_site: MakeSite
    ) -> None:
        site = make_site(fake={"keep": True, "delay": 0.05})
        with another(site, "create") as other:
            assert other.says()
            other.freeze()
            with HandlerProcessor(site) as processor:
                assert processor.delete(vm().ref()).result(PATIENCE).status is Status.DONE
                assert processor.unfinished() == ()
            other.wake()
            last = ""
            while said := other.says():
                last = said
        outcome = Outcome.model_validate(json.loads(last))
        assert outcome.error
        assert outcome.error.kind == "LockLost"
        assert Journal(store_of(site)).unfinished() == ()

    def test_that_fails_since_another_took_over_says_so(
        self, make_site: MakeSite, server: str
    ) -> None:
        site = make_site()
        here = substrate(site, "localhost")
        here.fault("guest.*", at=0, kind="fail")

        def heard(progress: Progress) -> None:
            if progress.step == "guest" and not progress.status:
                with psycopg.connect(server) as connection:
                    lock = SQL("DELETE FROM {}.lock").format(Identifier(site.site))
                    connection.execute(lock)

        with HandlerProcessor(site, on_progress=heard) as processor:
            outcome = processor.create(vm()).result(PATIENCE)
        assert outcome.error
        assert outcome.error.kind == "LockLost"
        assert list(here.servers) == ["vm-1"]

    def test_is_refused_while_another_process_works_on_the_sliver(
        self, make_site: MakeSite
    ) -> None:
        site = make_site(limits={"busy": 0.1})
        held = store_of(site).exclusive(sliver_lock("vm-1"), "it", timeout=PATIENCE)
        with held, HandlerProcessor(site) as processor, ThreadPoolExecutor(1) as threads:
            # In a thread that does not hold the lock.
            outcome = threads.submit(processor.create, vm()).result().result(PATIENCE)
        assert outcome.error
        assert outcome.error.kind == "SliverBusy"
