"""What a store of state promises, of files and of a database: the same."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.libvirt.networks.address_pools import Pools
from fabric_direct.drivers.p4switch.records import SwitchRecords
from fabric_direct.errors import Conflict, SliverBusy, TimedOut
from fabric_direct.model import Interface, Operation, SliverRef
from fabric_direct.model.networks import FlatDhcpNetwork
from fabric_direct.placement.claims import Claims, HostClaim
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import AuditTrail
from fabric_direct.state.journal import Journal
from fabric_direct.state.pending_looks import PendingLook, PendingLooks
from fabric_direct.state.site_store import store_of
from fabric_direct.state.sliver_types import SliverTypes
from fabric_direct.state.step_notes import StepNote, StepNotes
from fabric_direct.state.stitches import Stitch, Stitches
from fabric_direct.state.store import StateStore
from fabric_direct.upkeep.sweep.dry_runs import DryRuns
from fabric_direct.upkeep.sweep.findings import Findings

MakeSite = Callable[..., Site]
SLIVER = {"id": "s-1", "type": "VM"}
REF = SliverRef(id="s-1", type="VM")


@pytest.fixture(params=["files", "database"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "files":
        return Site(site="test", state_dir=tmp_path / "state")
    return request.getfixturevalue("make_site")()


@pytest.fixture
def store(site: Site) -> StateStore:
    return store_of(site)


class TestLocks:
    def test_one_is_held_once_and_free_again(self, store: StateStore) -> None:
        for _ in range(2):
            with (
                store.exclusive("sliver-a", "sliver a", timeout=5),
                pytest.raises(SliverBusy, match="sliver a is being worked on"),
                store.exclusive("sliver-a", "sliver a", timeout=0),
            ):
                pass

    def test_others_are_not_concerned(self, store: StateStore) -> None:
        with (
            store.exclusive("sliver-a", "sliver a", timeout=5),
            store.exclusive("sliver-b", "sliver b", timeout=5),
        ):
            assert sorted(store.held("sliver-")) == ["sliver-a", "sliver-b"]
            assert store.held("sliver-a") == ("sliver-a",)
            assert store.stale_locks() == ()
        assert store.held("") == ()

    def test_one_is_waited_for(self, store: StateStore) -> None:
        held, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with store.exclusive("sliver-a", "sliver a", timeout=5):
                held.set()
                leave.wait(60)

        with ThreadPoolExecutor(1) as threads:
            other = threads.submit(hold)
            assert held.wait(60)
            threading.Timer(0.2, leave.set).start()
            with store.exclusive("sliver-a", "sliver a", timeout=60):
                other.result(60)

    def test_one_is_free_after_an_error(self, store: StateStore) -> None:
        with pytest.raises(ZeroDivisionError), store.exclusive("a", "it", timeout=0):
            raise ZeroDivisionError
        with store.exclusive("a", "it", timeout=0):
            pass

    def test_threads_that_want_one_have_it_one_at_a_time(self, store: StateStore) -> None:
        there: list[int] = []
        most: list[int] = []

        def enter(number: int) -> None:
            with store.exclusive("a", "it", timeout=120):
                there.append(number)
                most.append(len(there))
                there.remove(number)

        with ThreadPoolExecutor(6) as threads:
            for done in [threads.submit(enter, number) for number in range(12)]:
                done.result(120)
        assert most == [1] * 12


class TestTables:
    def test_of_two_writers_one_waits(self, store: StateStore) -> None:
        types = SliverTypes(store, timeout=0.05)
        with (
            store.database("types", what="it", timeout=60).changing(),
            pytest.raises(TimedOut, match="cannot use the types of slivers"),
        ):
            types.note(REF)
        types.note(REF)
        assert types.of("s-1") == "VM"

    def test_what_raises_changes_nothing(self, store: StateStore) -> None:
        types = SliverTypes(store, timeout=60)
        types.note(REF)

        def fail() -> None:
            with store.database("types", what="it", timeout=60).changing() as db:
                db.execute("DELETE FROM sliver")
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fail()
        assert types.of("s-1") == "VM"

    def test_a_statement_says_how_much_it_changed(self, store: StateStore) -> None:
        SliverTypes(store, timeout=60).note(REF)
        types = store.database("types", what="it", timeout=60)
        statement = "DELETE FROM sliver WHERE id = ?"
        assert [types.change(statement, "s-1") for _ in range(2)] == [1, 0]


class TestTheJournal:
    def test_has_what_was_begun_until_it_has_ended(self, store: StateStore) -> None:
        journal = Journal(store)
        assert not journal.begin(Operation.CREATE, SLIVER, owns_everything=True).resumed
        again = Journal(store).begin(Operation.CREATE, SLIVER)
        assert (again.resumed, again.owns_everything) == (True, True)
        assert [entry.sliver for entry in journal.unfinished()] == [SLIVER]
        journal.expect("s-1", 4711.5)
        found = journal.of("s-1")
        assert found
        assert found.until == 4711.5
        journal.end("s-1")
        journal.end("s-1")
        assert (journal.unfinished(), journal.of("s-1")) == ((), None)

    def test_keeps_what_cannot_be_read(self, store: StateStore) -> None:
        journal = Journal(store)
        store.documents("journal", "it").write("s-1", '{"more": "than that"}', new=True)
        assert journal.unfinished() == ()
        assert len(journal.foreign()) == 1
        begun = journal.begin(Operation.CREATE, SLIVER, owns_everything=True)
        assert begun.resumed
        journal.end("s-1")
        (kept,) = journal.foreign()
        assert "s-1.unreadable-" in kept


class TestWhatIsSaidOfOperations:
    def test_the_history_has_both_lines_in_their_order(self, store: StateStore) -> None:
        trail = AuditTrail(store, 10_000)
        before = trail.mark()
        for number in range(3):
            trail.begin("create", f"s-{number}", kind="VM")
        assert [record.subject for record in trail.records()] == ["s-0", "s-1", "s-2"]
        assert trail.mark() != before

    def test_the_history_is_bounded(self, store: StateStore) -> None:
        log = store.log("history", 2000)
        for number in range(200):
            log.append(f"{number:03}" * 20)
        there = [line for line in log.lines() if line]
        assert there[-1].startswith("199")
        # Twice the size, and what was added since it was looked at.
        assert 2000 <= sum(len(line) + 1 for line in there) <= 2 * 2000 + 50 * 61

    def test_steps_are_seen_until_the_operation_ends(self, store: StateStore) -> None:
        notes = StepNotes(store)
        with notes.kept("s-1"):
            notes.add("s-1", StepNote(step="port"))
            notes.add("s-1", StepNote(step="server", total=2))
            assert [each.step for each in StepNotes(store).of("s-1")] == ["port", "server"]
        assert notes.of("s-1") == ()


class TestWhatIsPromised:
    def test_capacity_of_hosts_and_nodes(self, store: StateStore) -> None:
        claims = Claims(store, lifetime=60, timeout=60, clock=lambda: 1000.25)
        for cores in (2, 4):  # the later one replaces the earlier one
            with claims.changing() as book:
                book.take([HostClaim("s-1", "w1", cores, 1.5, 2.0)])
                book.take_nodes({"s-2": "node-1"})
                assert book.nodes_since(0) == {"s-2": "node-1"}
        (claim,) = claims.since(1000)
        assert (claim.cores, claim.ram) == (4, 1.5)
        assert claims.renew("s-1", "w1")
        claims.settle("s-1")
        assert (claims.since(1000.25), claims.since(1000.5)) == ((claim,), ())
        assert claims.home("s-1") == "w1"
        claims.drop("s-1")
        assert claims.home("s-1") is None

    def test_addresses(self, store: StateStore) -> None:
        pools = Pools(store, timeout=60)
        network = FlatDhcpNetwork(strategy="flat_dhcp", subnet=IPv4Network("10.0.0.0/29"))
        held = [
            pools.hold("s", name, "w1", "red", network, Interface()) for name in ("a", "b", "a")
        ]
        assert held[0] == held[2]
        assert len({each.ipv4 for each in held}) == 2
        pools.release("s", "a")
        assert pools.of_sliver("s", "w1") == (held[1],)

    def test_stitches(self, site: Site) -> None:
        stitches = Stitches(site)
        first = Stitch("s-1", "nic", "net", "end1", "an address", "10.0.0.5")
        open_ = Stitch("s-1", "nic2", "net", "end1", "a VLAN")
        stitches.hold([first, open_, first])
        with pytest.raises(Conflict, match=r"s-1/nic has it"):
            stitches.hold([Stitch("s-2", "nic", "net", "end1", "an address", "10.0.0.5")])
        assert stitches.to("net") == (first, open_)
        stitches.release([open_, Stitch("s-1", "nic", "net", "end1", "an address")])
        assert stitches.of("s-1") == (first,)

    def test_whole_switches(self, site: Site) -> None:
        records = SwitchRecords(site)
        records.claim("p4", "s-1")
        with pytest.raises(Conflict, match="sliver s-1 has it"):
            records.claim("p4", "s-2")
        assert records.claim("p4", "s-1") == records.of("s-1")


class TestWhatIsNoted:
    def test_looks_that_are_due(self, store: StateStore) -> None:
        looks = PendingLooks(store, timeout=60)
        looks.write([PendingLook(REF, "w1", found=True), PendingLook(REF, "w2")])
        looks.write([PendingLook(REF, "w1")])  # what was found once is known
        looks.made("s-1", "w2")
        assert looks.all() == (PendingLook(REF, "w1", found=True, latest=False),)

    def test_a_dry_run(self, store: StateStore) -> None:
        runs = DryRuns(store, timeout=60)
        assert not runs.end("s-1")
        for _ in range(2):
            runs.begin(["s-1", "s-2"])
            runs.keep(Findings(types={"s-1": "VM"}))
        assert runs.last().types == {"s-1": "VM"}
        assert [runs.end("s-1") for _ in range(2)] == [True, False]
