"""A sweep finds what carries the site's stamp and nobody expects, and deletes it by a token."""

import fcntl
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.documents import json_schema
from fabric_direct.drivers.contract import DeviceRecord, Plug, PluggedPort, VfSettings
from fabric_direct.drivers.fake import FakeCompute, FakeService, Substrate, substrate
from fabric_direct.errors import DriverError, NotOurs, Refused, SliverBusy
from fabric_direct.model import DeviceState, NodeSliver, Operation, PciAddress, SliverRef, Status
from fabric_direct.model.networks import NetworkSliver, ServerPort, VNicPortsSliver
from fabric_direct.placement.claims import Claims, HostClaim
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Host, Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.locks import exclusive
from fabric_direct.state.store import sliver_lock
from fabric_direct.upkeep.sweep.books import LocalRecords
from fabric_direct.upkeep.sweep.dry_runs import DryRuns
from fabric_direct.upkeep.sweep.expected import ExpectedSlivers, parse_expected
from fabric_direct.upkeep.sweep.findings import Findings, FoundResource
from tests.outcomes import done, outcomes_of, result_of
from tests.unit.several_hosts import FakeCloud, processor, served_by, w1, w2

__all__ = ["processor", "w1", "w2"]

FORK = multiprocessing.get_context("fork")
MakeVm = Callable[..., NodeSliver]
Make = Callable[..., None]
VF = PciAddress.parse("a1:00.0")
ALL = 100.0


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | {"L2Bridge": "fake"},
        "hosts": {"w1": {}, "w2": {}},
        "fake": {"hosts": {"w1": {"gpus": 2, "vfs": 2}, "w2": {"gpus": 1}}},
        "limits": {"busy": 0.1, "search": 2.0},
    }
    return Site.model_validate(values)


@pytest.fixture
def make(processor: HandlerProcessor, vm: MakeVm) -> Make:
    """Create VMs, of a vNIC and a volume each, on w1 unless it is told otherwise."""

    def make(*ids: str, host: str = "w1", **values: Any) -> None:
        parts = (
            {"type": "vNIC", "id": "nic", "network": "red"},
            {"type": "Storage", "id": "data", "size": 1},
        )
        wanted = {"components": parts, **values}
        slivers = [vm(id=each, name=each, host=host, **wanted) for each in ids]
        for future in [processor.create(sliver) for sliver in slivers]:
            done(future.result())

    return make


@pytest.fixture
def ten(make: Make) -> frozenset[str]:
    """Ten slivers that are expected, one of them with parts; one more may go by the usual share."""
    ids = [f"vm-{number}" for number in range(10)]
    make(*ids[:1])
    make(*ids[1:], components=())
    return frozenset(ids)


def ids_on(things: Substrate) -> set[str]:
    keys = (*things.ports, *things.volumes, *things.plugs)
    records = {record.sliver for record in things.records.values()}
    return {*things.servers, *things.networks, *(sliver for sliver, _ in keys), *records}


def swept(
    processor: HandlerProcessor, expected: Collection[str], at_most: float = ALL
) -> dict[str, Status]:
    """Sweep by the token of a dry run, and return what came of each deletion."""
    found = processor.find_unexpected(expected)
    sweep = processor.sweep(expected, found.token, at_most=at_most)
    assert sweep.kept == ()
    return {outcome.sliver.id: outcome.status for outcome in (f.result() for f in sweep.deletions)}


def kinds(found: Findings, sliver: str) -> set[str]:
    return {thing.kind for thing in found.things if thing.sliver == sliver}


def left_alone(found: Findings) -> dict[str, str]:
    return {each.what: each.why for each in found.left_alone}


class TestADryRun:
    def test_finds_everything_of_a_sliver_that_nobody_expects_and_nothing_of_the_others(
        self, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost", host="w2")

        found = processor.find_unexpected(ten)

        assert found.types == {"ghost": "VM"}
        assert {thing.sliver for thing in found.things} == {"ghost"}
        assert kinds(found, "ghost") == {"server", "port", "volume", "claim"}
        assert {thing.host for thing in found.things} == {"w2", ""}
        assert (found.exist, found.missing) == (11, ())

    def test_deletes_nothing(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        calls = w1.calls.copy()

        processor.find_unexpected(ten)

        changed = {m for m in w1.calls - calls if m.partition(".")[2] not in {"stamped", "unused"}}
        assert changed == {"device.inventory", "uplink.vfs", "guest.pinned"}
        assert "ghost" in ids_on(w1)

    def test_of_a_site_with_what_is_expected_finds_nothing_and_has_no_token(
        self, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        found = processor.find_unexpected({*ten, "to-come"})

        assert (found.things, found.token, found.left_alone) == ((), "", ())
        assert found.missing == ("to-come",)

    def test_twice_has_the_same_token(
        self, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost")

        tokens = {processor.find_unexpected(ten).token for _ in range(2)}

        assert len(tokens) == 1
        assert "" not in tokens

    def test_of_other_things_has_another_token(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        before = processor.find_unexpected(ten).token

        del w1.volumes["ghost", "data"]

        assert processor.find_unexpected(ten).token != before


class TestWhatIsFound:
    def test_a_server_alone(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost", components=[])

        assert swept(processor, ten) == {"ghost": Status.DONE}
        assert ids_on(w1) == ten

    @pytest.mark.parametrize("kept", ["ports", "volumes"])
    def test_what_is_left_of_a_vm_without_its_server(
        self,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        kept: str,
    ) -> None:
        make("ghost")
        del w1.servers["ghost"]
        gone = w1.volumes if kept == "ports" else w1.ports
        for key in [key for key in gone if key[0] == "ghost"]:
            del gone[key]

        assert processor.find_unexpected(ten).types == {"ghost": "VM"}
        assert swept(processor, ten) == {"ghost": Status.DONE}
        assert ids_on(w1) == ten

    def test_a_device_that_was_not_cleaned_is_cleaned(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost", components=[{"type": "GPU", "id": "gpu"}])
        (address,) = w1.records
        done_badly = w1.servers.pop("ghost")
        w1.plugged.pop(done_badly.sliver)

        assert kinds(processor.find_unexpected(ten), "ghost") == {"device", "claim"}
        assert swept(processor, ten) == {"ghost": Status.DONE}
        assert address not in w1.records

    def test_a_network_that_is_a_sliver(
        self, site: Site, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        network = {"strategy": "vlan", "vlan": 7, "physical_network": "p", "subnet": "10.9.0.0/24"}
        values = {"id": "lan", "name": "lan", "network": network}
        FakeService(site, "w1").apply(NetworkSliver.model_validate(values))

        assert processor.find_unexpected(ten).types == {"lan": "L2Bridge"}
        assert swept(processor, ten) == {"lan": Status.DONE}
        assert not w1.networks

    def test_ports_in_the_servers_of_others_which_stay(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        ports = (ServerPort(id="p1", server="vm-1"),)
        sliver = VNicPortsSliver(id="ports", host="w1", network="blue", ports=ports)
        done(processor.create(sliver).result())

        assert processor.find_unexpected(ten).types == {"ports": "vNICPorts"}
        assert swept(processor, ten) == {"ports": Status.DONE}
        assert ids_on(w1) == ten
        assert not w1.plugs

    def test_a_nic_whose_port_is_gone(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        nic = PluggedPort("p1", "52:54:00:00:00:99", "fake-blue")
        w1.plugs["ports", "p1"] = Plug("vm-1", "vm-1-vm-1", nic)

        assert swept(processor, ten) == {"ports": Status.DONE}
        assert not w1.plugs

    def test_a_claim_alone(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        claims = Claims(FileStore(site.state_dir), lifetime=1, timeout=1)
        claims.remember("ghost", "w1")

        assert kinds(processor.find_unexpected(ten), "ghost") == {"claim"}
        assert swept(processor, ten) == {"ghost": Status.DONE}
        assert "ghost" not in claims.homes()

    def test_an_entry_of_the_journal_alone_with_its_type(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        journal = Journal(FileStore(site.state_dir))
        journal.begin(Operation.DELETE, {"id": "lan", "type": "L2Bridge"}, owns_everything=True)

        assert processor.find_unexpected(ten).types == {"lan": "L2Bridge"}
        assert swept(processor, ten) == {"lan": Status.DONE}
        assert journal.unfinished() == ()

    def test_networks_that_nobody_uses(
        self, processor: HandlerProcessor, w2: Substrate, ten: frozenset[str]
    ) -> None:
        w2.unused.add("blue")

        found = processor.find_unexpected(ten)
        sweep = processor.sweep(ten, found.token)

        assert [str(thing) for thing in found.of_nobody()] == ["unused network blue on w2"]
        assert (sweep.kept, sweep.deletions, w2.unused) == ((), [], set())

    def test_locks_that_a_killed_process_left(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        lock = site.state_dir / "locks" / "network-w1-red"
        lock.touch()

        found = processor.find_unexpected(ten)
        sweep = processor.sweep(ten, found.token)

        assert [thing.name for thing in found.of_nobody()] == ["network-w1-red"]
        assert sweep.kept == ()
        assert not lock.exists()


class TestWhatIsLeftAlone:
    """It is named with a reason, and no token has it."""

    def test_a_sliver_that_another_process_works_on(
        self, site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost")

        with FileStore(site.state_dir).exclusive(sliver_lock("ghost"), "it", timeout=1):
            found = processor.find_unexpected(ten)

        assert (found.types, found.token) == ({}, "")
        assert left_alone(found) == {"sliver ghost": "an operation on it is under way"}

    def test_a_sliver_for_which_a_request_may_still_take_effect(
        self, site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost")
        journal = Journal(FileStore(site.state_dir))
        journal.begin(Operation.MODIFY, {"id": "ghost", "type": "VM"})
        journal.expect("ghost", time.time() + 60)

        found = processor.find_unexpected(ten)

        assert found.types == {}
        assert "may still take effect" in left_alone(found)["sliver ghost"]

    def test_a_sliver_that_is_being_placed(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        with Claims(FileStore(site.state_dir), lifetime=60, timeout=1).changing() as book:
            book.take([HostClaim("ghost", "w1", 1, 1, 1)])

        found = processor.find_unexpected(ten)

        assert found.types == {}
        assert "sliver ghost" in left_alone(found)

    @pytest.mark.parametrize("claimed", [False, True])
    def test_a_device_in_quarantine(
        self,
        site: Site,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        claimed: bool,
    ) -> None:
        make("ghost", components=[{"type": "GPU", "id": "gpu"}])
        done(processor.delete(SliverRef(id="ghost")).result())
        if claimed:
            Claims(FileStore(site.state_dir), lifetime=1, timeout=1).remember("ghost", "w1")
        address = next(a for a, d in w1.devices.items() if d.type == "GPU")
        w1.records[address] = DeviceRecord(
            address, "GPU", None, "ghost", "gpu", "10de", "20b7", quarantined="it was not erased"
        )

        found = processor.find_unexpected(ten)

        assert (found.types, found.token) == ({}, "")
        (why,) = left_alone(found).values()
        assert f"devices release w1 {address}" in why

    def test_an_unclean_device_of_which_no_record_says_whose_it_is(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        address = next(a for a, d in w1.devices.items() if d.type == "GPU")
        unclean = replace(w1.devices[address], state=DeviceState.UNCLEAN, owner="theirs/gpu")
        w1.devices[address] = unclean

        found = processor.find_unexpected(ten)

        assert found.token == ""
        assert list(left_alone(found)) == [f"device {address} on w1"]

    @pytest.mark.parametrize("setting", ["vlan", "max_tx_rate", "min_tx_rate"])
    def test_a_free_vf_with_settings_that_no_record_explains(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str], setting: str
    ) -> None:
        w1.vfs["ens1"][1] = replace(VfSettings(), **{setting: 304})

        found = processor.find_unexpected(ten)

        assert found.token == ""
        (why,) = left_alone(found).values()
        assert f"VF 1 of ens1 has {setting.replace('_', ' ')} 304" in why

    def test_a_free_vf_whose_settings_the_host_does_not_tell(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        w1.vfs["ens1"].pop()

        (why,) = left_alone(processor.find_unexpected(ten)).values()

        assert "the host does not tell what VF 1 of ens1 has" in why

    def test_a_host_key_of_an_address_that_no_guest_has(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        held = next(port.ipv4 for port in w1.ports.values())
        assert held
        w1.host_keys |= {str(held.ip), "10.20.1.250"}

        found = processor.find_unexpected(ten)

        assert list(left_alone(found)) == ["host key of 10.20.1.250"]
        assert found.token == ""

    def test_no_host_key_of_a_worker(self, site: Site, w1: Substrate, ten: frozenset[str]) -> None:
        w1.host_keys.add("10.20.1.250")
        hosts = site.hosts | {"w2": Host(ssh="ssh://root@10.20.1.250")}

        with HandlerProcessor(site.model_copy(update={"hosts": hosts})) as processor:
            assert processor.find_unexpected(ten).left_alone == ()

    def test_what_has_a_stamp_that_names_no_sliver(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        for sliver in ("", "../etc"):
            server = replace(w1.servers["vm-1"], sliver=sliver, instance=f"odd-{sliver}")
            w1.servers[f"odd{sliver}"] = server

        found = processor.find_unexpected(ten)

        assert found.types == {}
        assert list(left_alone(found)) == ["server odd- on w1", "server odd-../etc on w1"]

    def test_a_file_in_the_journal_that_is_no_entry(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        odd = site.state_dir / "journal" / "odd.json"
        odd.write_text("{")

        found = processor.find_unexpected(ten)

        assert list(left_alone(found)) == [f"file {odd}"]
        assert odd.exists()


class TestItStops:
    def test_if_nothing_is_expected(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        with pytest.raises(Refused, match="no sliver is expected"):
            processor.find_unexpected(())
        with pytest.raises(Refused):
            processor.sweep((), "any", at_most=ALL)

        assert ids_on(w1) == ten

    @pytest.mark.parametrize(
        "method",
        [
            *("compute.stamped", "network.stamped", "volume.stamped"),
            *("device.stamped", "network.unused", "device.inventory", "guest.pinned"),
        ],
    )
    @pytest.mark.parametrize("kind", ["fail", "after", "lie"])
    def test_if_a_list_is_not_whole(
        self,
        processor: HandlerProcessor,
        make: Make,
        w2: Substrate,
        ten: frozenset[str],
        method: str,
        kind: Any,
    ) -> None:
        make("ghost")
        w2.fault(method, kind=kind)

        with pytest.raises(Refused, match="what is on w2 is not known"):
            processor.find_unexpected(ten)

    @pytest.mark.parametrize("kind", ["fail", "after", "lie"])
    def test_if_the_list_of_network_services_is_not_whole(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str], kind: Any
    ) -> None:
        w1.fault("service.stamped", kind=kind)

        with pytest.raises(Refused, match="what is on w1 is not known"):
            processor.find_unexpected(ten)

    def test_if_a_host_stops_answering_after_the_dry_run(
        self,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        w2: Substrate,
        ten: frozenset[str],
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token
        w2.fault("compute.stamped", kind="fail")

        with pytest.raises(Refused, match="what is on w2 is not known"):
            processor.sweep(ten, token)

        assert "ghost" in ids_on(w1)

    def test_if_more_than_the_share_would_go(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost-1", "ghost-2")
        found = processor.find_unexpected(ten)

        with pytest.raises(
            Refused, match="2 of the 12 slivers that exist would go, more than 10 %"
        ):
            found.refuse_share(10)
        with pytest.raises(Refused, match="more than 10 %"):
            processor.sweep(ten, found.token)

        assert ids_on(w1) == {*ten, "ghost-1", "ghost-2"}

    def test_if_all_would_go_although_the_list_is_not_empty(
        self, processor: HandlerProcessor, w1: Substrate, ten: frozenset[str]
    ) -> None:
        found = processor.find_unexpected({"of-another-site"})

        with pytest.raises(Refused, match="10 of the 10"):
            processor.sweep({"of-another-site"}, found.token)

        assert ids_on(w1) == ten

    def test_while_another_sweep_is_under_way(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        with (
            exclusive(site.state_dir / "locks" / "sweep", "it", timeout=1),
            pytest.raises(SliverBusy),
        ):
            processor.find_unexpected(ten)

    def test_if_the_books_cannot_be_read(
        self, site: Site, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        (site.state_dir / "placement.sqlite").write_bytes(b"no database" * 100)

        with pytest.raises(DriverError):
            processor.find_unexpected(ten)


class TestAToken:
    def test_deletes_just_what_the_dry_run_found(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")

        assert swept(processor, ten, at_most=10) == {"ghost": Status.DONE}
        assert ids_on(w1) == ten
        assert processor.unfinished() == ()
        assert processor.find_unexpected(ten).things == ()

    @pytest.mark.parametrize("token", ["", "0123456789abcdef", "../found"])
    def test_that_is_none_is_refused(
        self,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        token: str,
    ) -> None:
        make("ghost")
        processor.find_unexpected(ten)

        with pytest.raises(Refused, match="is not the token of the last dry run"):
            processor.sweep(ten, token)

        assert "ghost" in ids_on(w1)

    def test_without_a_dry_run_is_refused(
        self, processor: HandlerProcessor, ten: frozenset[str]
    ) -> None:
        with pytest.raises(Refused, match="is not the token of the last dry run"):
            processor.sweep(ten, "0123456789abcdef")

    def test_of_a_dry_run_that_cannot_be_read_is_refused(
        self, site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token
        with FileStore(site.state_dir).database("sweep", what="it", timeout=60).changing() as db:
            db.execute("UPDATE dry_run SET found = '{'")

        with pytest.raises(Refused, match="is not the token"):
            processor.sweep(ten, token)

    def test_is_refused_with_what_came_and_what_went_since(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token
        make("late", components=[])
        del w1.volumes["ghost", "data"]

        with pytest.raises(Refused) as refused:
            processor.sweep(ten, token, at_most=ALL)

        assert "new: server late-late of late on w1" in refused.value.why
        assert "gone: volume /fake/ghost.data of ghost on w1" in refused.value.why
        assert ids_on(w1) == {*ten, "ghost", "late"}

    def test_is_refused_while_an_operation_on_what_would_go_is_under_way(
        self, site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token

        with (
            FileStore(site.state_dir).exclusive(sliver_lock("ghost"), "it", timeout=1),
            pytest.raises(Refused) as refused,
        ):
            processor.sweep(ten, token)

        assert "sliver ghost: an operation on it is under way" in refused.value.why

    def test_deletes_no_sliver_that_was_made_anew_after_the_dry_run_just_as_it_was(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        found = processor.find_unexpected(ten)
        done(processor.delete(SliverRef(id="ghost")).result())
        make("ghost")

        sweep = processor.sweep(ten, found.token)

        assert sweep.findings.things == found.things
        (outcome,) = (future.result() for future in sweep.deletions)
        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert "another operation on it was begun after the dry run" in outcome.error.message
        assert "ghost" in ids_on(w1)

    def test_counts_an_action_as_an_operation_and_a_look_as_none(
        self, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("idle", "rebooted")
        token = processor.find_unexpected(ten).token
        done(processor.poa(SliverRef(id="rebooted"), "reboot").result())
        done(processor.probe(SliverRef(id="idle")).result())

        sweep = processor.sweep(ten, token, at_most=ALL)

        statuses = [future.result().status for future in sweep.deletions]
        assert statuses == [Status.DONE, Status.REFUSED]

    def test_of_one_process_is_good_in_another(
        self, site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token

        with HandlerProcessor(site) as another:
            sweep = another.sweep(ten, token)

        assert [done(future.result()).sliver.id for future in sweep.deletions] == ["ghost"]

    def test_an_operation_that_comes_between_the_search_and_the_deletion_ends_it(
        self,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token

        def then_stop(*_: object) -> None:
            done(processor.poa(SliverRef(id="ghost"), "stop").result())

        monkeypatch.setattr(Findings, "refuse_share", then_stop)

        sweep = processor.sweep(ten, token)

        assert [future.result().status for future in sweep.deletions] == [Status.REFUSED]
        assert "ghost" in ids_on(w1)

    def test_an_operation_that_ends_while_the_dry_run_looks_for_those_under_way_ends_it(
        self,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        make("ghost")

        def none_by_now(*_: object) -> dict[str, str]:
            done(processor.poa(SliverRef(id="ghost"), "stop").result())
            return {}

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(LocalRecords, "busy", none_by_now)
            token = processor.find_unexpected(ten).token

        assert [f.result().status for f in processor.sweep(ten, token).deletions] == [
            Status.REFUSED
        ]
        assert "ghost" in ids_on(w1)

    def test_is_refused_with_the_sliver_whose_deletion_would_be_another_one(self) -> None:
        things = (FoundResource(sliver="a", kind="port", name="p"),)
        before, after = (Findings(types={"a": t}, things=things) for t in ("VM", "vNICPorts"))

        with pytest.raises(Refused, match="a is a vNICPorts, not a VM"):
            after.refuse_changed(before)


class TestWhenADeletionFails:
    def test_the_others_go_on_and_it_is_named(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost-1", "ghost-2")
        w1.fault("compute.delete", kind="fail")

        assert sorted(swept(processor, ten).values()) == [Status.DONE, Status.FAILED]
        assert len(ids_on(w1) - ten) == 1

    def test_the_next_sweep_removes_what_is_left(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        w1.fault("volume.delete", kind="fail")
        assert swept(processor, ten) == {"ghost": Status.PARTIAL}
        w1.mend()

        assert "journal entry" in kinds(processor.find_unexpected(ten), "ghost")
        assert swept(processor, ten) == {"ghost": Status.DONE}
        assert ids_on(w1) == ten
        assert processor.unfinished() == ()

    def test_one_that_deletes_nothing_and_says_so_not_is_found_out(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        w1.fault("compute.delete", at=0, kind="lie")

        assert swept(processor, ten) == {"ghost": Status.FAILED}

    @pytest.mark.parametrize("kind", ["fail", "lie"])
    def test_what_belongs_to_nobody_and_stays_is_named(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, ten: frozenset[str], kind: Any
    ) -> None:
        make("ghost")
        w1.unused.add("blue")
        token = processor.find_unexpected(ten).token
        w1.fault("network.remove_unused", at=0, kind=kind)

        sweep = processor.sweep(ten, token)

        assert [each.what for each in sweep.kept] == ["unused network blue on w1"]
        w1.mend()
        w1.unused.clear()
        assert [future.result().status for future in sweep.deletions] == [Status.DONE]

    def test_what_another_site_has_is_refused_by_its_driver(
        self,
        processor: HandlerProcessor,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        make("ghost")

        def refuse(*_: object) -> None:
            raise NotOurs("domain ghost is not ours")

        monkeypatch.setattr(FakeCompute, "delete", refuse)

        assert swept(processor, ten) == {"ghost": Status.FAILED}
        assert "ghost" in ids_on(w1)


class TestKilled:
    """A process dies at a call of the sweep; another sweeps again."""

    @pytest.mark.parametrize("method", ["compute.delete", "network.delete_port", "volume.delete"])
    def test_in_the_middle_of_a_deletion_the_next_one_ends_it(
        self,
        site: Site,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        processor: HandlerProcessor,
        method: str,
    ) -> None:
        make("ghost")
        # What a process that was killed leaves: the journal's entry, and what it had not removed yet.
        Journal(FileStore(site.state_dir)).begin(
            Operation.DELETE, {"id": "ghost", "type": "VM"}, owns_everything=True
        )
        if method != "compute.delete":
            del w1.servers["ghost"]
        if method == "volume.delete":
            del w1.ports["ghost", "nic"]

        assert swept(processor, ten) == {"ghost": Status.DONE}
        assert ids_on(w1) == ten
        assert processor.unfinished() == ()

    def test_between_two_deletions_the_old_token_is_refused_and_a_new_one_goes_on(
        self,
        site: Site,
        make: Make,
        w1: Substrate,
        ten: frozenset[str],
        processor: HandlerProcessor,
    ) -> None:
        make("ghost-1", "ghost-2")
        token = processor.find_unexpected(ten).token
        done(processor.delete(SliverRef(id="ghost-1")).result())  # and then it was killed

        with pytest.raises(Refused, match="gone: server ghost-1-ghost-1"):
            processor.sweep(ten, token, at_most=ALL)
        assert swept(processor, ten) == {"ghost-2": Status.DONE}
        assert ids_on(w1) == ten

    def test_a_dry_run_that_was_killed_leaves_no_token_that_is_good(
        self, site: Site, make: Make, ten: frozenset[str], processor: HandlerProcessor
    ) -> None:
        make("ghost")
        token = processor.find_unexpected(ten).token
        DryRuns(FileStore(site.state_dir), timeout=60).begin(["ghost"])  # and then it was killed

        with pytest.raises(Refused, match="is not the token of the last dry run"):
            processor.sweep(ten, token)


class TestTheCommand:
    """Its exit codes and what it prints, on the same fakes."""

    @pytest.fixture
    def run(self, site: Site, tmp_path: Path, ten: frozenset[str]) -> Callable[..., Result]:
        """Run the command with a list of ten expected slivers."""
        (tmp_path / "site.yaml").write_text(site.model_dump_json(exclude_unset=True))
        listed = {"count": len(ten), "slivers": sorted(ten)}
        (tmp_path / "expected.json").write_text(json.dumps(listed))

        def run(*args: str, expected: str = "expected.json", **more: Any) -> Result:
            names = ["--site", str(tmp_path / "site.yaml"), "sweep"]
            source = expected if expected == "-" else str(tmp_path / expected)
            return CliRunner().invoke(main, [*names, "--expected", source, *args], **more)

        return run

    def test_shows_what_would_go_with_its_token_and_deletes_it_by_that(
        self, run: Callable[..., Result], make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")

        shown = run()
        token = shown.stdout.split()[-1]
        deleted = run("--token", token)

        assert (shown.exit_code, deleted.exit_code) == (0, 0), shown.output + deleted.output
        assert "ghost   VM    server" in shown.stdout
        assert "1 of the 11 slivers that exist would go." in shown.stdout
        assert "ghost: deleted in" in deleted.stdout
        assert ids_on(w1) == ten

    def test_prints_one_document(
        self, run: Callable[..., Result], make: Make, w1: Substrate, ten: frozenset[str]
    ) -> None:
        make("ghost")
        w1.unused.add("blue")

        shown = result_of(run("--json").stdout)
        deleted = run("--json", "--token", shown["token"]).stdout

        (sliver,) = shown["slivers"]
        assert (sliver["id"], sliver["type"]) == ("ghost", "VM")
        assert {"kind": "server", "name": "ghost-ghost", "host": "w1"} in sliver["things"]
        assert [thing["name"] for thing in shown["of_nobody"]] == ["blue"]
        assert (shown["exist"], shown["missing"], shown["left_alone"]) == (11, [], [])
        assert [outcome["status"] for outcome in outcomes_of(deleted)] == ["done"]
        assert result_of(deleted)["kept"] == []

    def test_of_nothing_to_sweep_shows_no_token(
        self, run: Callable[..., Result], ten: frozenset[str]
    ) -> None:
        shown = run()

        assert shown.exit_code == 0
        assert shown.stdout == "None of the 10 slivers that exist would go.\n"

    def test_shows_what_would_be_too_much_without_a_token(
        self, run: Callable[..., Result], make: Make
    ) -> None:
        make("ghost-1", "ghost-2")

        shown, as_json = run(), run("--json")

        assert (shown.exit_code, as_json.exit_code) == (2, 2)
        assert "ghost-2" in shown.stdout
        assert "more than 10 %" in shown.stderr
        assert "--token" not in shown.stdout
        assert result_of(as_json.stdout)["token"] == ""
        assert json.loads(as_json.stdout)["error"]["kind"] == "Refused"
        assert run("--at-most", "20%").exit_code == 0

    @pytest.mark.parametrize("share", [(), ("--at-most", "50%")], ids=["usual", "larger"])
    def test_shows_the_command_that_deletes(
        self, run: Callable[..., Result], make: Make, w1: Substrate, share: tuple[str, ...]
    ) -> None:
        make(*("ghost-1", "ghost-2")[: 1 + len(share) // 2])

        command = run(*share).stdout.splitlines()[-1].split()
        deleted = run(*command[4:])

        assert command[:3] == ["fabric-direct", "sweep", "--expected"]
        assert deleted.exit_code == 0, deleted.output

    @pytest.mark.parametrize("share", ["10", "101%", "-1%", "ten%"])
    def test_refuses_a_share_that_is_none(self, run: Callable[..., Result], share: str) -> None:
        assert run(f"--at-most={share}").exit_code == 2

    def test_a_number_is_told_how_to_write_it_as_a_share(self, run: Callable[..., Result]) -> None:
        assert "'10' is not a share from 0% to 100%: write 10%" in run("--at-most", "10").stderr

    def test_refuses_a_token_of_something_else(
        self, run: Callable[..., Result], make: Make, w1: Substrate
    ) -> None:
        make("ghost")

        refused = run("--token", "0123456789abcdef")

        assert refused.exit_code == 2
        assert "is not the token of the last dry run" in refused.stderr
        assert "ghost" in ids_on(w1)

    def test_says_by_its_exit_code_that_a_part_failed_and_names_it(
        self, run: Callable[..., Result], make: Make, w1: Substrate
    ) -> None:
        make("ghost-1", "ghost-2")
        token = result_of(run("--json", "--at-most", "50%").stdout)["token"]
        w1.fault("compute.delete", kind="fail")

        deleted = run("--at-most", "50%", "--token", token)

        assert deleted.exit_code == 3
        assert "still there: ghost-" in deleted.stderr

    def test_says_so_too_of_what_belongs_to_nobody(
        self, run: Callable[..., Result], w1: Substrate
    ) -> None:
        w1.unused.add("blue")
        token = result_of(run("--json").stdout)["token"]
        w1.fault("network.remove_unused", kind="fail")

        deleted = run("--token", token)

        assert deleted.exit_code == 3
        assert "unused network blue on w1 is not gone" in deleted.stderr

    def test_reads_the_list_from_stdin(
        self, run: Callable[..., Result], ten: frozenset[str], make: Make
    ) -> None:
        make("ghost")
        listed = json.dumps({"count": 10, "slivers": sorted(ten)})

        whole = run("--json", expected="-", input=listed)
        cut_off = run("--json", expected="-", input=listed[:-20])

        assert [each["id"] for each in result_of(whole.stdout)["slivers"]] == ["ghost"]
        assert cut_off.exit_code == 2
        assert "stdin ends in the middle of a line" in cut_off.stderr

    @pytest.mark.parametrize("content", [b"", b"count: 1\n", b"\xff\n", b"x" * (2 << 20)])
    def test_refuses_a_list_that_it_cannot_read(
        self, run: Callable[..., Result], tmp_path: Path, w1: Substrate, content: bytes
    ) -> None:
        (tmp_path / "bad.yaml").write_bytes(content)
        before = ids_on(w1)

        assert run(expected="bad.yaml").exit_code == 2
        assert run(expected="absent.yaml").exit_code == 2
        assert ids_on(w1) == before


def _hold(path: Path, ready: Any, go: Any) -> None:
    with exclusive(path, "it", timeout=1):
        ready.set()
        go.wait()


def test_what_another_process_works_on_is_left_alone(
    site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
) -> None:
    make("ghost")
    ready, go = FORK.Event(), FORK.Event()
    other = FORK.Process(
        target=_hold, args=(site.state_dir / "locks" / sliver_lock("ghost"), ready, go)
    )
    other.start()
    assert ready.wait(60)

    found = processor.find_unexpected(ten)
    go.set()
    other.join()

    assert found.types == {}
    assert processor.find_unexpected(ten).types == {"ghost": "VM"}


def test_the_lock_of_a_process_that_was_killed_keeps_nothing_from_a_sweep(
    site: Site, processor: HandlerProcessor, make: Make, ten: frozenset[str]
) -> None:
    make("ghost")
    lock = site.state_dir / "locks" / sliver_lock("ghost")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)  # as the kernel does for it

    assert swept(processor, ten) == {"ghost": Status.DONE}
    assert not lock.exists()


class UnpluggingCloud(FakeCloud):
    """A worker that loses a server has its devices back."""

    def delete(self, sliver_id: str) -> None:
        super().delete(sliver_id)
        worker = substrate(self.site, "w1")
        for plugged in worker.plugged.pop(sliver_id, ()):
            worker.own(plugged.host_address, None)


class TestOfACloud:
    @pytest.fixture
    def site(self, site: Site) -> Site:
        """Nobody looks into its guests, which are on the substrates of the hosts."""
        return site.model_copy(update={"guest": "none"})

    @pytest.fixture
    def cloud(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> Substrate:
        return served_by(UnpluggingCloud, site, monkeypatch)

    def test_servers_are_the_clouds_and_devices_the_workers(
        self, cloud: Substrate, processor: HandlerProcessor, make: Make, w1: Substrate
    ) -> None:
        make("ghost", components=[{"type": "GPU", "id": "gpu"}])

        found = processor.find_unexpected({"other"})

        hosts = {thing.kind: thing.host for thing in found.things}
        assert (hosts["server"], hosts["device"]) == ("", "w1")
        assert swept(processor, {"other"}) == {"ghost": Status.DONE}
        assert (cloud.servers, w1.records) == ({}, {})

    def test_a_device_is_cleaned_on_its_worker_though_the_server_is_gone(
        self, cloud: Substrate, processor: HandlerProcessor, make: Make, w1: Substrate
    ) -> None:
        make("ghost", components=[{"type": "GPU", "id": "gpu"}])
        cloud.servers.clear()
        w1.plugged.clear()

        assert swept(processor, {"other"}) == {"ghost": Status.DONE}
        assert w1.records == {}

    def test_a_deletion_without_a_server_names_a_worker_that_may_have_a_device(
        self, cloud: Substrate, processor: HandlerProcessor, w2: Substrate
    ) -> None:
        w2.fault("device.records", at=0, kind="fail")

        outcome = processor.delete(SliverRef(id="ghost")).result()

        assert outcome.status is Status.FAILED
        assert outcome.left
        assert "device.records failed" in outcome.left[0]

    def test_it_stops_if_a_worker_does_not_answer(
        self, cloud: Substrate, processor: HandlerProcessor, make: Make, w2: Substrate
    ) -> None:
        make("ghost")
        w2.fault("device.stamped", kind="fail")

        with pytest.raises(Refused, match="what is on w2 is not known"):
            processor.find_unexpected({"other"})


class TestTheListOfWhatIsExpected:
    def read(self, text: str) -> frozenset[str]:
        return parse_expected(text, "expected.yaml").ids()

    @pytest.mark.parametrize(
        "text",
        [
            "count: 2\nslivers: [vm-1, vm-2]\n",
            "slivers:\n- vm-1\n- vm-2\ncount: 2\n",
            '{"count": 2, "slivers": ["vm-1", {"id": "vm-2", "type": "VM", "name": "n"}]}',
            "count: 2\nslivers:\n- id: vm-1\n  capacities: {core: 1}\n- vm-2\n",
        ],
    )
    def test_has_ids_or_whole_slivers_in_yaml_or_json(self, text: str) -> None:
        assert self.read(text) == {"vm-1", "vm-2"}

    @pytest.mark.parametrize(
        ("document", "valid"),
        [
            ({"count": 2, "slivers": ["vm-1", {"id": "vm-2", "name": "n"}]}, True),
            ({"count": 1, "slivers": [{"name": "n"}]}, False),
            ({"slivers": ["vm-1"]}, False),
            ({"count": 0, "slivers": []}, False),
        ],
    )
    def test_has_a_schema(self, document: dict[str, Any], valid: bool) -> None:
        schema = jsonschema.Draft202012Validator(json_schema(ExpectedSlivers))

        assert schema.is_valid(document) is valid

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "the document is empty"),
            ("count: 0\nslivers: []\n", "count"),
            ("count: 1\nslivers: []\n", "slivers"),
            ("slivers: [vm-1]\n", "count: is missing"),
            ("count: 2\n", "slivers: is missing"),
            ("- vm-1\n", "must be a mapping"),
            ("count: 2\nslivers: [vm-1]\n", "count: is 2, but 1 slivers are listed"),
            ("count: 2\nslivers: [vm-1, vm-1]\n", "id vm-1 is given twice"),
            ("count: 2\nslivers: [vm-1, {id: vm-1}]\n", "id vm-1 is given twice"),
            ("count: 1\nslivers: ['vm 1']\n", "slivers[0]"),
            ("count: 1\nslivers: [{name: vm}]\n", "slivers[0]"),
            ("count: 1\nslivers: [7]\n", "slivers[0]"),
            ("count: '1'\nslivers: [vm-1]\n", "count"),
            ("count: 1\nslivers: [vm-1]\nhosts: []\n", "hosts"),
            ('{"count": 2, "slivers": ["vm-1", ', "ends in the middle"),
            ('{"count": 2, "slivers": ["vm-1"]', "cannot be read as YAML or JSON"),
            ("count: 1\nslivers:\n- vm-1", "ends in the middle of a line"),
        ],
    )
    def test_that_is_empty_or_wrong_or_cut_off_is_refused_by_its_field(
        self, text: str, says: str
    ) -> None:
        with pytest.raises(Refused) as refused:
            self.read(text)

        assert says in str(refused.value)

    @pytest.mark.parametrize(
        "whole",
        [
            "count: 12\nslivers:\n" + "".join(f"- vm-{n}\n" for n in range(12)),
            "slivers:\n" + "".join(f"- vm-{n}\n" for n in range(12)) + "count: 12\n",
            json.dumps({"count": 12, "slivers": [f"vm-{n}" for n in range(12)]}, indent=1) + "\n",
            "count: 12\nslivers: [" + ", ".join(f"vm-{n}" for n in range(12)) + "]\n",
        ],
        ids=["count first", "count last", "JSON", "flow"],
    )
    def test_that_is_cut_off_anywhere_is_refused(self, whole: str) -> None:
        all_of_them = {f"vm-{n}" for n in range(12)}
        assert self.read(whole) == all_of_them

        for length in range(len(whole)):
            try:
                assert self.read(whole[:length]) == all_of_them
            except Refused:
                continue

    def test_of_any_thing_says_the_same_token_whatever_the_order(self) -> None:
        things = [FoundResource(sliver="a", kind="port", name=name) for name in ("p1", "p2")]

        tokens = {
            Findings(types={"a": "VM"}, things=tuple(t)).token for t in (things, things[::-1])
        }

        assert len(tokens) == 1
