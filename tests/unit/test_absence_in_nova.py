"""What Nova does not show is not for that reason gone: a cell that does not answer, what is only marked.

The drivers are real, the cloud is a fake that keeps what it is told.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.openstack.servers import driver as servers
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.drivers.openstack.servers.records import ServerRecords
from fabric_direct.errors import Unreachable
from fabric_direct.model import NodeSliver, Outcome, State
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.trust.http_cloud import Nova, Refusal, StatefulCloud
from tests.unit.openstack_api import answering

NIC = {"type": "vNIC", "id": "nic1", "network": "lab"}
DISK = {"type": "Storage", "id": "data", "size": 1}


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def cloud(clouds_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatefulCloud]:
    cloud = StatefulCloud(clouds_folder)
    with answering(cloud, monkeypatch):
        yield cloud


@pytest.fixture
def site(cloud: StatefulCloud, tmp_path: Path) -> Site:
    return cloud.site(
        state_dir=tmp_path / "state",
        drivers={"VM": "openstack"},
        guest="none",
        openstack={"make_flavors": True},
        limits={"unanswered": 0.1, "delete": 5},
    )


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


def sliver(*components: dict[str, Any], name: str = "s-1") -> NodeSliver:
    size = {"core": 1, "ram": 1, "disk": 1}
    values = {"id": name, "name": "node", "image": "tiny", "capacities": size}
    return NodeSliver.model_validate({**values, "components": components})


def done(outcome: Outcome) -> Outcome:
    assert outcome.ok, (outcome.error, outcome.left)
    assert not outcome.left
    return outcome


def not_known(outcome: Outcome) -> Outcome:
    assert not outcome.ok
    assert outcome.error
    assert "a cell does not answer" in outcome.error.message, outcome.error
    return outcome


class TestACellThatDoesNotAnswer:
    """Nova's list by tag is a success, and leaves out the servers of the cell."""

    @pytest.fixture(autouse=True)
    def made(self, processor: HandlerProcessor, cloud: StatefulCloud) -> dict[str, Any]:
        """The sliver's server, in a cell that does not answer any more."""
        done(processor.create(sliver(NIC, DISK)).result())
        (server,) = cloud.things["servers"].values()
        cloud.silent = {server["id"]}
        return server

    @pytest.fixture(params=["recorded", "records lost", "records damaged"])
    def books(self, request: pytest.FixtureRequest, site: Site) -> str:
        """What the library remembers of the server."""
        if request.param == "records lost":
            (site.state_dir / "servers.sqlite").unlink()
        if request.param == "records damaged":
            (site.state_dir / "servers.sqlite").write_text("no database" * 100)
        return str(request.param)

    def test_does_not_make_the_sliver_absent(self, processor: HandlerProcessor, books: str) -> None:
        outcome = not_known(processor.probe(sliver().ref()).result())
        assert outcome.observed is None

    def test_lets_no_deletion_remove_what_the_server_has(
        self, processor: HandlerProcessor, cloud: StatefulCloud, books: str
    ) -> None:
        there = {kind: dict(things) for kind, things in cloud.things.items()}

        outcome = not_known(processor.delete(sliver().ref()).result())

        assert any(text.startswith("unknown:") for text in outcome.left), outcome.left
        assert [entry.sliver["id"] for entry in processor.unfinished()] == ["s-1"]
        assert {kind: dict(things) for kind, things in cloud.things.items()} == there

    def test_is_waited_for_by_the_next_deletion(
        self, processor: HandlerProcessor, cloud: StatefulCloud, books: str
    ) -> None:
        not_known(processor.delete(sliver().ref()).result())
        cloud.silent = set()
        done(processor.delete(sliver().ref()).result())
        assert not cloud.things["servers"]
        assert not cloud.things["volumes"]
        assert processor.unfinished() == ()

    @pytest.mark.parametrize("components", [(NIC, DISK), ()], ids=["with a NIC", "with none"])
    def test_lets_no_creation_make_a_second_server_or_undo_the_first(
        self,
        processor: HandlerProcessor,
        cloud: StatefulCloud,
        books: str,
        components: tuple[dict[str, Any], ...],
    ) -> None:
        there = {kind: dict(things) for kind, things in cloud.things.items()}

        not_known(processor.create(sliver(*components)).result())

        assert {kind: dict(things) for kind, things in cloud.things.items()} == there

    def test_makes_no_list_of_the_site_look_whole(self, site: Site, books: str) -> None:
        compute = OpenStackCompute(site)
        with pytest.raises(Unreachable, match="a cell does not answer"):
            compute.servers()
        with pytest.raises(Unreachable, match="a cell does not answer"):
            compute.stamped()

    def test_is_not_suspected_for_a_server_that_lost_its_tags(
        self, cloud: StatefulCloud, site: Site, made: dict[str, Any]
    ) -> None:
        cloud.silent = set()
        made["tags"] = []

        assert OpenStackCompute(site).servers() == ()
        assert ServerRecords(site).all() == ()

    def test_keeps_up_no_sliver_of_which_it_has_nothing(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        done(processor.create(sliver(name="s-2")).result())
        done(processor.delete(sliver(name="s-2").ref()).result())

    def test_leaves_open_whose_servers_the_ports_of_others_are_in(
        self, processor: HandlerProcessor, cloud: StatefulCloud, made: dict[str, Any]
    ) -> None:
        cloud.silent = set()
        values = {"id": "p-1", "network": "lab", "ports": [{"id": "p1", "server": "s-1"}]}
        ports = VNicPortsSliver.model_validate(values)
        done(processor.create(ports).result())
        cloud.silent = {made["id"]}

        not_known(processor.delete(ports.ref()).result())

        cloud.silent = set()
        done(processor.delete(ports.ref()).result())


def test_a_list_that_lacks_a_server_once_is_asked_for_again(
    processor: HandlerProcessor, cloud: StatefulCloud, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(processor.create(sliver()).result())
    (site.state_dir / "servers.sqlite").unlink()
    nova = cloud._services["compute"]
    lacking = [(200, {"servers": []})]

    def once(method: str, path: list[str], sent: Any) -> tuple[int, Any]:
        lists = (method, path) == ("GET", ["servers", "detail"]) and lacking
        return lacking.pop() if lists else nova(method, path, sent)

    cloud._services["compute"] = once

    observed = done(processor.probe(sliver().ref()).result()).observed

    assert observed
    assert observed.state is State.RUNNING
    assert not lacking


class TestAServerThatNovaKeeps:
    """With ``reclaim_instance_interval``, a deletion only marks a server, and hides it from lists."""

    @pytest.fixture(autouse=True)
    def made(self, processor: HandlerProcessor, cloud: StatefulCloud) -> None:
        done(processor.create(sliver(NIC, DISK)).result())
        cloud.keeps_deleted = True

    def test_is_deleted_by_force(self, processor: HandlerProcessor, cloud: StatefulCloud) -> None:
        done(processor.delete(sliver().ref()).result())

        assert not cloud.things["servers"]
        assert not cloud.things["volumes"]
        assert not [p for p in cloud.things["ports"].values() if p["device_id"]]

    def test_that_nova_reclaims_meanwhile_is_gone(
        self, processor: HandlerProcessor, cloud: StatefulCloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def reclaimed(self: Nova, server: dict[str, Any], _: Any) -> None:
            self._remove(server)
            cloud.settle()
            raise Refusal(404, f"Instance {server['id']} could not be found.")

        monkeypatch.setattr(Nova, "_forceDelete", reclaimed)

        done(processor.delete(sliver().ref()).result())

        assert not cloud.things["servers"]

    def test_is_named_as_long_as_the_user_may_not_force_it(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        cloud.forces = False
        for _ in range(2):
            outcome = processor.delete(sliver().ref()).result()
            assert not outcome.ok
            assert outcome.error
            assert "is only marked as deleted, and Nova keeps it" in outcome.error.message
            assert any("SOFT_DELETED" in text for text in outcome.left), outcome.left
            assert len(cloud.things["volumes"]) == 1

        cloud.things["servers"].clear()  # Nova reclaims it
        for volume in cloud.things["volumes"].values():
            volume.update(status="available", attachments=[])
        done(processor.delete(sliver().ref()).result())

    def test_keeps_its_ports_though_nobody_has_recorded_it(
        self, processor: HandlerProcessor, cloud: StatefulCloud, site: Site
    ) -> None:
        (server,) = cloud.things["servers"].values()
        server["status"] = "SOFT_DELETED"
        (site.state_dir / "servers.sqlite").unlink()

        outcome = processor.delete(sliver().ref()).result()

        assert not outcome.ok
        assert any("s-1-nic1" in text for text in outcome.left), outcome.left
        assert [p["device_id"] for p in cloud.things["ports"].values()] == [server["id"]]

    def test_that_others_have_marked_is_told_and_neither_used_nor_replaced(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        (server,) = cloud.things["servers"].values()
        server["status"] = "SOFT_DELETED"

        outcome = processor.create(sliver(NIC, DISK)).result()

        assert not outcome.ok
        assert outcome.error
        assert "is marked as deleted" in outcome.error.message
        assert f"openstack server restore {server['id']}" in outcome.error.message
        observed = done(processor.probe(sliver().ref()).result()).observed
        assert observed
        assert observed.differences == (
            "there is no such server",
            f"there is server s-1-node ({server['id']}, SOFT_DELETED)",
        )
        assert list(cloud.things["servers"].values()) == [server]


class TestADomainThatOutlivesItsServer:
    """Nova has removed the server, and its domain runs on the worker."""

    @pytest.fixture
    def site(self, cloud: StatefulCloud, tmp_path: Path) -> Site:
        return cloud.site(
            state_dir=tmp_path / "state",
            drivers={"VM": "openstack", "GPU": "fake"},
            guest="none",
            openstack={"make_flavors": True},
            hosts={"w1": {}},
        )

    @pytest.fixture(autouse=True)
    def domains(
        self, cloud: StatefulCloud, processor: HandlerProcessor, monkeypatch: pytest.MonkeyPatch
    ) -> set[str]:
        """The UUIDs of the domains on the worker."""
        done(processor.create(sliver()).result())
        there = set(cloud.things["servers"])
        monkeypatch.setattr(servers, "_DOMAIN_GONE", 0.1)
        monkeypatch.setattr(servers, "_has_domain", lambda _, uuid: uuid in there)
        return there

    def test_is_named_by_each_deletion_until_it_is_gone(
        self, processor: HandlerProcessor, domains: set[str]
    ) -> None:
        (uuid,) = domains
        for _ in range(2):
            outcome = processor.delete(sliver().ref()).result()
            assert not outcome.ok
            assert outcome.error
            assert f"of server {uuid} is still there" in outcome.error.message
            assert f"domain instance-00000001 of server {uuid}" in outcome.left

        domains.clear()
        done(processor.delete(sliver().ref()).result())
        assert processor.unfinished() == ()

    def test_keeps_a_second_server_from_being_made(
        self, processor: HandlerProcessor, cloud: StatefulCloud, domains: set[str]
    ) -> None:
        processor.delete(sliver().ref()).result()

        outcome = processor.create(sliver()).result()

        assert not outcome.ok
        assert outcome.error
        assert re.search("domain .* is still there", outcome.error.message)
        assert not cloud.things["servers"]

    def test_is_forgotten_when_it_is_gone(
        self, processor: HandlerProcessor, site: Site, domains: set[str]
    ) -> None:
        domains.clear()
        done(processor.delete(sliver().ref()).result())
        assert ServerRecords(site).all() == ()
