"""An id is one sliver at a site: by its id alone, a sliver of any type is found, or none is touched."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.drivers.fake import FakeService, Substrate, substrate
from fabric_direct.errors import Conflict, Unreachable
from fabric_direct.model import NodeSliver, Operation, Outcome, Sliver, SliverRef, State, Status
from fabric_direct.model.networks import NetworkSliver, VNicPortsSliver
from fabric_direct.model.p4_switches import Switch
from fabric_direct.model.services import SERVICES
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.site.drivers import driven_types
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.conftest import KEY
from tests.outcomes import done

ID = "n"
REF = SliverRef(id=ID)
_SITE: dict[str, Any] = {
    "drivers": dict.fromkeys(driven_types(), "fake"),
    "switches": {"sw1": {"ports": {"p1": {"vlans": ["100-199"]}}}},
    "p4_switches": {"p4a": {"ssh": "ssh://admin@192.0.2.1", "user": "alice"}},
    "services": {"subnets": {"FABNetv4": {"block": "10.128.0.0/22", "prefix": 24}}},
}
_INTERFACE = {"id": "i1", "device": "sw1", "port": "p1", "vlan": 110}
_SIZE = {"core": 1, "ram": 1, "disk": 1}
_NIC = {"type": "vNIC", "id": "eth0", "network": "red"}
_PORT = {"id": "p", "server": "vm-1", "interface": {"mac": "52:54:00:12:34:56"}}


@pytest.fixture
def site(fake_site: Site) -> Site:
    return Site.model_validate(fake_site.model_dump() | _SITE)


def node(sliver: str = ID, **values: Any) -> NodeSliver:
    return NodeSliver.model_validate(
        {"id": sliver, "name": "web", "image": "tiny", "capacities": _SIZE, **values}
    )


def fabnet() -> Sliver:
    values = {"id": ID, "name": "net", "interfaces": [_INTERFACE]}
    return SERVICES["FABNetv4"].model_validate(values)


def network() -> Sliver:
    values = {"strategy": "flat_dhcp", "subnet": "10.20.7.0/24", "physical_network": "physnet1"}
    return NetworkSliver.model_validate({"id": ID, "name": "lan", "network": values})


def switch() -> Sliver:
    values = {"id": ID, "name": "edge", "switch": "p4a", "ssh_keys": [KEY]}
    return Switch.model_validate(values)


def ports() -> Sliver:
    return VNicPortsSliver.model_validate({"id": ID, "network": "red", "ports": [_PORT]})


def damage(file: Path) -> None:
    file.write_bytes(b"no database" * 100)


SLIVERS: dict[str, Callable[[], Sliver]] = {
    "VM": node,
    "FABNetv4": fabnet,
    "L2Bridge": network,
    "Switch": switch,
    "vNICPorts": ports,
}


PAIRS = [*permutations(SLIVERS, 2)]


@pytest.fixture
def server(processor: HandlerProcessor) -> None:
    """A server that ports are plugged into."""
    done(processor.create(node("vm-1")).result(60))


@pytest.fixture(params=SLIVERS)
def sliver(request: pytest.FixtureRequest, processor: HandlerProcessor, server: None) -> Sliver:
    """A sliver of each type that is there."""
    made = SLIVERS[request.param]()
    done(processor.create(made).result(60))
    return made


def state(outcome: Outcome) -> State:
    assert outcome.observed
    return outcome.observed.state


class TestByItsIdAlone:
    def test_is_deleted(self, processor: HandlerProcessor, sliver: Sliver) -> None:
        outcome = processor.delete(REF).result(60)

        assert (outcome.status, outcome.sliver) == (Status.DONE, sliver.ref())
        assert state(processor.probe(sliver.ref()).result(60)) is State.ABSENT

    def test_is_probed(self, processor: HandlerProcessor, sliver: Sliver) -> None:
        outcome = processor.probe(REF).result(60)

        assert (state(outcome), outcome.sliver) == (State.RUNNING, sliver.ref())

    def test_its_deletion_is_planned(self, processor: HandlerProcessor, sliver: Sliver) -> None:
        outcome = done(processor.plan(REF, Operation.DELETE).result(60))

        assert outcome.sliver == sliver.ref()
        assert [step.finding for step in outcome.steps if step.finding]

    def test_an_action_is_one_of_its_type(
        self, processor: HandlerProcessor, sliver: Sliver
    ) -> None:
        outcome = processor.poa(REF, "stop").result(60)

        assert outcome.sliver == sliver.ref()
        assert outcome.ok is (sliver.type == "VM")

    def test_is_deleted_by_the_command(
        self, site: Site, sliver: Sliver, tmp_path: Path, processor: HandlerProcessor
    ) -> None:
        path = tmp_path / "site.yaml"
        path.write_text(site.model_dump_json(exclude_unset=True))

        ended = CliRunner().invoke(
            main, ["--site", str(path), "delete", ID], catch_exceptions=False
        )

        assert ended.exit_code == 0
        assert f"{ID}: deleted in " in ended.stdout
        assert state(processor.probe(sliver.ref()).result(60)) is State.ABSENT

    def test_what_is_nowhere_is_said_to_be_absent(self, processor: HandlerProcessor) -> None:
        assert state(processor.probe(REF).result(60)) is State.ABSENT
        assert done(processor.delete(REF).result(60)).sliver == SliverRef(id=ID, type="VM")

    def test_what_is_unfinished_is_what_its_operation_was_for(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        wanted = fabnet()
        Journal(FileStore(site.state_dir)).begin(
            Operation.CREATE, wanted.model_dump(mode="json"), owns_everything=True
        )

        assert done(processor.delete(REF).result(60)).sliver == wanted.ref()
        assert not processor.unfinished()


class TestWhatIsLeftOfASliver:
    """Its own deletion takes all of it away, also where another type's takes a part."""

    def test_a_vm_of_which_a_port_and_a_volume_are_left(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        components = [
            {"type": "vNIC", "id": "eth0", "network": "red"},
            {"type": "Storage", "id": "data", "size": 1},
        ]
        done(processor.create(node(components=components)).result(60))
        fakes.servers.clear()

        done(processor.delete(REF).result(60))

        assert not fakes.ports
        assert not fakes.volumes


class TestWhereNothingAnswers:
    """What cannot be asked may have the sliver: nothing is said of it."""

    @pytest.fixture(autouse=True)
    def silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def silent(*_: object) -> None:
            raise Unreachable("the switches do not answer")

        monkeypatch.setattr(FakeService, "find", silent)
        monkeypatch.setattr(FakeService, "leftovers", silent)

    @pytest.mark.parametrize("operation", ["delete", "probe"])
    def test_a_sliver_that_is_not_found_may_be_there(
        self, processor: HandlerProcessor, operation: str
    ) -> None:
        outcome = getattr(processor, operation)(REF).result(60)

        assert outcome.status is Status.FAILED
        assert outcome.error.kind == Unreachable.__name__
        assert "is not known: the switches do not answer" in outcome.error.message

    def test_one_that_is_found_is_deleted(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(node()).result(60))

        done(processor.delete(REF).result(60))

        assert not fakes.servers

    def test_with_its_type_no_other_is_asked(self, processor: HandlerProcessor) -> None:
        done(processor.delete(SliverRef(id=ID, type="VM")).result(60))


class TestAnIdIsTakenOnce:
    @pytest.mark.parametrize(("first", "second"), PAIRS)
    def test_a_sliver_of_another_type_is_refused(
        self, processor: HandlerProcessor, server: None, first: str, second: str
    ) -> None:
        done(processor.create(SLIVERS[first]()).result(60))

        outcome = processor.create(SLIVERS[second]()).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert outcome.error.message.startswith(f"sliver {ID} is a")
        assert state(processor.probe(SLIVERS[first]()).result(60)) is State.RUNNING

    @pytest.mark.parametrize(("first", "second"), PAIRS)
    def test_once_it_is_gone_another_type_may_have_it(
        self, processor: HandlerProcessor, server: None, first: str, second: str
    ) -> None:
        done(processor.create(SLIVERS[first]()).result(60))
        done(processor.delete(REF).result(60))

        done(processor.create(SLIVERS[second]()).result(60))

    def test_what_others_took_away_does_not_keep_it(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(node()).result(60))
        fakes.servers.clear()

        done(processor.create(fabnet()).result(60))

    def test_what_could_not_be_created_does_not_keep_it(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("compute.create", kind="fail")
        assert not processor.create(node()).result(60).ok
        fakes.fault("compute.find", at=0, kind="fail")  # nobody has to ask

        done(processor.create(fabnet()).result(60))

    def test_what_does_not_answer_keeps_it(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(node()).result(60))
        fakes.fault("compute.leftovers", at=0, kind="fail")

        outcome = processor.create(fabnet()).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert "compute.leftovers failed" in outcome.error.message

    def test_of_two_that_have_it_all_the_same_neither_is_touched(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        """As where the notes were lost."""
        done(processor.create(node()).result(60))
        (site.state_dir / "types.sqlite").unlink()
        servers = dict(fakes.servers)
        fakes.servers.clear()
        done(processor.create(fabnet()).result(60))
        (site.state_dir / "types.sqlite").unlink()
        fakes.servers.update(servers)

        outcome = processor.delete(REF).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert "several slivers have this id: a FABNetv4, a VM" in outcome.error.message
        assert fakes.servers
        assert fakes.services


class TestWhatIsUnfinished:
    """Nobody else gets its id, or deletes by it, before it is finished."""

    def test_a_deletion_of_another_type_touches_nothing(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(node()).result(60))
        fakes.fault("compute.delete", at=0, kind="fail")
        assert processor.delete(REF).result(60).left

        outcome = processor.delete(SliverRef(id=ID, type="L2Bridge")).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert "its delete is unfinished" in outcome.error.message
        assert processor.unfinished()

    def test_another_type_is_not_created(self, processor: HandlerProcessor, site: Site) -> None:
        wanted = fabnet().model_dump(mode="json")
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, wanted, owns_everything=True)

        outcome = processor.create(node()).result(60)

        assert outcome.error
        assert "its create is unfinished" in outcome.error.message
        assert processor.unfinished()

    def test_a_modification_does_not_take_the_id_of_another_type(
        self, processor: HandlerProcessor, fakes: Substrate, server: None
    ) -> None:
        """Ports are made by a modification, too."""
        done(processor.create(node()).result(60))

        outcome = processor.modify(ports()).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert not fakes.plugs


class TestWithoutTheNotes:
    """As where they were lost, or the sliver was made before there were any: the site is asked."""

    def test_a_sliver_is_found_and_deleted(
        self, processor: HandlerProcessor, sliver: Sliver, site: Site
    ) -> None:
        (site.state_dir / "types.sqlite").unlink()

        assert done(processor.delete(REF).result(60)).sliver == sliver.ref()
        assert state(processor.probe(sliver.ref()).result(60)) is State.ABSENT

    @pytest.mark.parametrize("lose", [Path.unlink, damage], ids=["lost", "damaged"])
    def test_the_ports_of_a_vm_are_its_own(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        site: Site,
        lose: Callable[[Path], object],
    ) -> None:
        done(processor.create(node(components=[_NIC])).result(60))
        lose(site.state_dir / "types.sqlite")

        assert done(processor.delete(REF).result(60)).sliver == SliverRef(id=ID, type="VM")
        assert not fakes.servers
        assert not fakes.ports

    def test_a_port_of_a_vm_whose_nic_others_took_away_is_its_own(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        done(processor.create(node(components=[_NIC])).result(60))
        (site.state_dir / "types.sqlite").unlink()
        fakes.servers[ID] = replace(fakes.servers[ID], ports=())

        assert done(processor.delete(REF).result(60)).sliver == SliverRef(id=ID, type="VM")

    @pytest.mark.parametrize("plugged", [True, False], ids=["plugged in", "not plugged in"])
    def test_of_a_vm_and_ports_in_the_servers_of_others_neither_is_touched(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        site: Site,
        server: None,
        plugged: bool,
    ) -> None:
        done(processor.create(ports()).result(60))
        held, plugs = dict(fakes.ports), dict(fakes.plugs)
        done(processor.delete(REF).result(60))
        done(processor.create(node(components=[_NIC])).result(60))
        (site.state_dir / "types.sqlite").unlink()
        fakes.ports.update(held)
        fakes.plugs.update(plugs if plugged else {})
        before = dict(fakes.servers), dict(fakes.ports), dict(fakes.plugs)

        outcome = processor.delete(REF).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert "several slivers have this id: a VM, a vNICPorts" in outcome.error.message
        assert before == (dict(fakes.servers), dict(fakes.ports), dict(fakes.plugs))

    def test_a_service_does_not_get_the_id_of_a_vm(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        done(processor.create(node()).result(60))
        (site.state_dir / "types.sqlite").unlink()

        outcome = processor.create(network()).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__

    def test_what_never_answers_does_not_keep_one_from_its_deletion(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        over = threading.Event()
        impatient = Site.model_validate(site.model_dump() | {"limits": {"search": 0.2}})
        with HandlerProcessor(impatient) as processor:
            done(processor.create(node()).result(60))
            (site.state_dir / "types.sqlite").unlink()
            monkeypatch.setattr(FakeService, "find", lambda *_: over.wait(60))

            deleted = processor.delete(REF).result(60)

            over.set()
        assert deleted.ok

    def test_one_that_is_found_and_names_nothing_is_one(
        self, processor: HandlerProcessor, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done(processor.create(network()).result(60))
        (site.state_dir / "types.sqlite").unlink()
        done(processor.create(node()).result(60))
        (site.state_dir / "types.sqlite").unlink()
        monkeypatch.setattr(FakeService, "leftovers", lambda *_: ())

        outcome = processor.delete(REF).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__

    def test_a_deletion_does_not_need_them(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        done(processor.create(node()).result(60))
        damage(site.state_dir / "types.sqlite")

        done(processor.delete(REF).result(60))

        assert not fakes.servers


class TestOnSeveralHosts:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        hosts = {"w1": {}, "w2": {}}
        return Site.model_validate(fake_site.model_dump() | _SITE | {"hosts": hosts})

    @pytest.fixture
    def processor(self, site: Site) -> Iterator[HandlerProcessor]:
        with HandlerProcessor(site) as processor:
            yield processor

    @pytest.mark.parametrize("host", ["w1", "w2"])
    def test_a_vm_is_found_on_any(self, processor: HandlerProcessor, site: Site, host: str) -> None:
        done(processor.create(node(host=host)).result(60))

        assert state(processor.probe(REF).result(60)) is State.RUNNING
        done(processor.delete(REF).result(60))

        assert not substrate(site, host).servers

    def test_a_service_is_found_beside_them(self, processor: HandlerProcessor) -> None:
        done(processor.create(fabnet()).result(60))

        assert done(processor.delete(REF).result(60)).sliver == fabnet().ref()
        assert state(processor.probe(fabnet().ref()).result(60)) is State.ABSENT

    def test_a_service_does_not_get_the_id_of_a_vm(self, processor: HandlerProcessor) -> None:
        done(processor.create(node(host="w2")).result(60))

        outcome = processor.create(fabnet()).result(60)

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__

    def test_a_deletion_of_another_type_leaves_the_books_of_a_vm(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(node(host="w2")).result(60))

        assert not processor.delete(fabnet().ref()).result(60).ok
        assert not processor.create(fabnet()).result(60).ok

    def test_where_a_vm_is_still_to_be_looked_for_no_service_gets_its_id(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        done(processor.create(node(host="w1")).result(60))
        w2 = substrate(site, "w2")
        w2.fault("compute.find", at=0, kind="fail")
        done(processor.delete(REF).result(60))

        outcome = processor.create(fabnet()).result(60)

        assert outcome.error
        assert "w2 was not looked at since it was deleted" in outcome.error.message
        w2.mend()

    def test_a_service_is_made_again_as_it_was(self, processor: HandlerProcessor) -> None:
        done(processor.create(fabnet()).result(60))
        done(processor.create(fabnet()).result(60))


def test_a_sweep_deletes_what_it_found_of_its_type(
    processor: HandlerProcessor, server: None, sliver: Sliver
) -> None:
    found = processor.find_unexpected(["vm-1"])
    swept = processor.sweep(["vm-1"], found.token, at_most=100)

    assert [future.result(60).sliver for future in swept.deletions] == [sliver.ref()]
    assert state(processor.probe(REF).result(60)) is State.ABSENT


def test_an_outcome_names_the_type_that_was_found(
    processor: HandlerProcessor, sliver: Sliver
) -> None:
    printed = json.loads(processor.probe(REF).result(60).model_dump_json())

    assert printed["sliver"] == {"id": ID, "type": sliver.type}


class TestTheListOfSlivers:
    """Slivers of all types are listed, with their types."""

    @pytest.fixture
    def listed(self, site: Site, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
        path = tmp_path / "site.yaml"
        path.write_text(site.model_dump_json(exclude_unset=True))

        def listed(*words: str, code: int = 0) -> list[dict[str, Any]]:
            ended = CliRunner().invoke(main, ["--site", str(path), "list", "--json", *words])
            assert ended.exit_code == code, ended.output
            return list(json.loads(ended.stdout)["result"])

        return listed

    def test_has_one_of_each_type(
        self, listed: Callable[..., list[dict[str, Any]]], sliver: Sliver
    ) -> None:
        every = {each["sliver"]: each for each in listed()}

        assert {name: each["type"] for name, each in every.items()} == {
            "vm-1": "VM",
            ID: sliver.type,
        }
        assert every[ID]["state"] == "running"

    def test_those_of_a_type_can_be_asked_for(
        self, listed: Callable[..., list[dict[str, Any]]], sliver: Sliver
    ) -> None:
        assert {each["type"] for each in listed("--type", sliver.type)} == {sliver.type}

    def test_what_is_on_no_host_is_not_on_one(
        self,
        listed: Callable[..., list[dict[str, Any]]],
        processor: HandlerProcessor,
        server: None,
    ) -> None:
        done(processor.create(fabnet()).result(60))

        assert [each["sliver"] for each in listed("--host", "localhost")] == ["vm-1"]

    def test_a_service_of_which_a_part_is_missing_is_in_error(
        self,
        listed: Callable[..., list[dict[str, Any]]],
        processor: HandlerProcessor,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        done(processor.create(fabnet()).result(60))
        monkeypatch.setattr(FakeService, "find", lambda *_: None)

        (found,) = listed("-c", "sliver", "-c", "type", "-c", "state")

        assert found == {"sliver": ID, "type": "FABNetv4", "state": "error"}

    def test_ports_of_which_one_is_not_plugged_in_are_in_error(
        self,
        listed: Callable[..., list[dict[str, Any]]],
        processor: HandlerProcessor,
        fakes: Substrate,
        server: None,
    ) -> None:
        done(processor.create(ports()).result(60))
        fakes.plugs.clear()

        (found,) = listed("--type", "vNICPorts")

        assert (found["sliver"], found["state"]) == (ID, "error")

    @pytest.mark.parametrize("unfinished", [Operation.CREATE, Operation.DELETE])
    def test_a_vm_that_is_unfinished_is_a_vm_in_error(
        self,
        listed: Callable[..., list[dict[str, Any]]],
        processor: HandlerProcessor,
        fakes: Substrate,
        site: Site,
        unfinished: Operation,
    ) -> None:
        """As where a process was killed before the server was made, or after it was deleted."""
        wanted = node(components=[_NIC])
        done(processor.create(wanted).result(60))
        fakes.servers.clear()
        (site.state_dir / "types.sqlite").unlink()
        data = (wanted if unfinished is Operation.CREATE else wanted.ref()).model_dump(mode="json")
        Journal(FileStore(site.state_dir)).begin(unfinished, data, owns_everything=True)

        (found,) = listed("--type", "VM")

        assert (found["sliver"], found["type"], found["state"]) == (ID, "VM", "error")
        assert listed("--type", "vNICPorts") == []

    def test_a_vm_whose_server_others_took_away_is_a_vm_in_error(
        self,
        listed: Callable[..., list[dict[str, Any]]],
        processor: HandlerProcessor,
        fakes: Substrate,
    ) -> None:
        done(processor.create(node(components=[_NIC])).result(60))
        fakes.servers.clear()

        (found,) = listed()

        assert (found["sliver"], found["type"], found["state"]) == (ID, "VM", "error")

    def test_a_list_that_is_not_whole_says_so_and_has_the_others(
        self,
        listed: Callable[..., list[dict[str, Any]]],
        server: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def silent(*_: object) -> None:
            raise Unreachable("the switches do not answer")

        monkeypatch.setattr(FakeService, "stamped", silent)

        assert [each["sliver"] for each in listed(code=1)] == ["vm-1"]
