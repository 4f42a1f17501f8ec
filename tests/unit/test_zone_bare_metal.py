"""Bare metal in zones: what a site offers of its nodes, what is made there and through a parent."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result
from pydantic import ValidationError

from fabric_direct.calls.deadline import wait_until
from fabric_direct.cli import main, reservations
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import Conflict, Unreachable
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.zones.local_source import LocalSource
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.server import ZoneServer
from fabric_direct.zones.wire import (
    BootRequest,
    FreeNodes,
    Instance,
    InstanceStatus,
    KindNeeds,
    Selection,
)
from tests.scripted_zone import ScriptedZone, says
from tests.unit.zone_sources import NEEDS, asked, kind, sliver_kind, wanted

pytestmark = pytest.mark.anyio

IMAGES = {"debian-12": {"kernel": "http://192.0.2.1/k", "ramdisk": "http://192.0.2.1/r"}}
NODES = {
    "rack1-1": {"cores": 8, "ram": 32, "macs": ["52:54:00:00:00:01"]},
    "rack1-2": {"cores": 64, "ram": 512, "resource_class": "large", "traits": ["CUSTOM_FAST"]},
}
SECONDS = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def own_site(tmp_path: Path) -> Site:
    return leaf(tmp_path, "LEAF", NODES)


def leaf(path: Path, name: str, nodes: dict[str, Any], **values: Any) -> Site:
    """Return a site of one host and some bare-metal nodes."""
    usual: dict[str, Any] = {
        "site": name,
        "state_dir": path / name,
        "drivers": {"VM": "fake", "BareMetal": "fake"},
        "guest": "fake",
        "images": {"tiny": {}},
        "hosts": {"w1": {}},
        "ironic": {"images": IMAGES},
        "fake": {"hosts": {"w1": {"cores": 4}}, "nodes": nodes},
        "zone": {"listen": "127.0.0.1:0"},
    }
    return Site.model_validate(usual | values)


@pytest.fixture
def things(own_site: Site) -> Iterator[Substrate]:
    made = substrate(own_site, "w1")
    yield made
    made.mend()


@pytest.fixture
def at_work(own_site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(own_site) as processor:
        yield processor


@pytest.fixture
def own(own_site: Site, at_work: HandlerProcessor) -> LocalSource:
    return LocalSource(own_site, at_work)


def metal(name: str = "metal", number: int = 1, **needs: Any) -> dict[str, Any]:
    return {
        "kind": name,
        "num_instances": number,
        "node_needs": {"image": "debian-12"} | needs,
    }


def metal_sliver(name: str = "metal", number: int = 1, **values: Any) -> dict[str, Any]:
    sliver = {"id": f"s-{name}", "type": "BareMetal", "name": name, "image": "debian-12"}
    return {"kind": name, "num_instances": number, "sliver": sliver | values}


async def select(own: LocalSource, *kinds: dict[str, Any]) -> Selection:
    return await own.select(asked(*kinds), deadline=10)


async def boot(own: LocalSource, request: BootRequest) -> str:
    return await own.boot(request, deadline=10)


async def until(
    own: LocalSource, reservation: str, *statuses: InstanceStatus
) -> tuple[Instance, ...]:
    """Return the instances once all have one of the statuses."""
    async with asyncio.timeout(20):
        while True:
            instances = await own.instances(reservation, deadline=1)
            if {each.status for each in instances} <= set(statuses):
                return instances
            await asyncio.sleep(0.02)


def take(things: Substrate, name: str) -> None:
    there = things.bare_metal
    there[name] = replace(there[name], condition=NodeCondition.ACTIVE, tenant="them")


def tenants(things: Substrate) -> dict[str, str | None]:
    return {name: node.tenant for name, node in things.bare_metal.items()}


class TestSelecting:
    async def test_offers_each_free_node_once_the_smallest_first(self, own: LocalSource) -> None:
        selection = await select(own, metal(number=3))

        assert [(o.kind, o.cost) for o in selection.offers] == [("metal", 8), ("metal", 64)]
        (shortage,) = selection.shortages
        assert (shortage.missing, shortage.refused) == (1, {"condition": 2})

    async def test_offers_nodes_and_hosts_for_one_request(self, own: LocalSource) -> None:
        selection = await select(own, kind("vm", 4), metal("metal", 2))

        assert [o.kind for o in selection.offers if o.kind == "vm"] == ["vm"] * 4
        assert len(selection.offers) == 6

    async def test_names_no_node(self, own: LocalSource, things: Substrate) -> None:
        take(things, "rack1-2")

        selection = await select(own, metal(number=2), metal("no", traits=["CUSTOM_NONE"]))

        assert "rack" not in selection.model_dump_json()
        assert "them" not in selection.model_dump_json()

    @pytest.mark.parametrize(
        ("needs", "refused"),
        [
            ({"resource_class": "gold"}, {"resource_class": 2}),
            ({"traits": ["CUSTOM_NONE"]}, {"traits": 2}),
            ({"capacities": {"core": 65}}, {"capacities": 2}),
            ({"resource_class": "large", "nics": 3}, {"resource_class": 1, "nics": 1}),
            ({"macs": ["52:54:00:00:00:09"], "nics": 1}, {"nics": 2}),
            ({"image": "absent"}, {}),
        ],
    )
    async def test_of_a_kind_that_no_node_could_serve_says_why_and_serves_the_others(
        self, own: LocalSource, needs: dict[str, Any], refused: dict[str, int]
    ) -> None:
        selection = await select(own, metal("odd", 2, **needs), metal(), kind("vm"))

        assert {o.kind for o in selection.offers} == {"metal", "vm"}
        assert [(s.kind, s.missing, s.refused) for s in selection.shortages] == [
            ("odd", 2, refused)
        ]

    @pytest.mark.parametrize(
        ("needs", "cost"),
        [
            ({"traits": ["CUSTOM_FAST"]}, 64),
            ({"nics": 1, "macs": ["52:54:00:00:00:01"]}, 8),
            ({"nics": 1}, 8),
        ],
    )
    async def test_heeds_what_is_needed(
        self, own: LocalSource, needs: dict[str, Any], cost: int
    ) -> None:
        assert [o.cost for o in (await select(own, metal(**needs))).offers] == [cost]

    @pytest.mark.parametrize(
        ("silent", "left"), [("service.nodes", "vm"), ("compute.inventory", "metal")]
    )
    async def test_offers_hosts_without_the_nodes_and_the_nodes_without_hosts(
        self, own: LocalSource, things: Substrate, silent: str, left: str
    ) -> None:
        things.fault(silent, at=0, kind="fail")

        selection = await select(own, kind("vm"), metal())

        assert [o.kind for o in selection.offers] == [left]

    async def test_of_nodes_that_cannot_be_listed_says_so_and_names_none(
        self, own: LocalSource, things: Substrate
    ) -> None:
        things.fault("service.nodes", at=0, kind="fail")

        with pytest.raises(Unreachable, match="its hosts cannot be used"):
            await select(own, metal())

    async def test_has_the_free_nodes_by_class(self, own: LocalSource, things: Substrate) -> None:
        every = (await own.capabilities(deadline=1)).nodes
        take(things, "rack1-2")

        assert every == (
            FreeNodes(resource_class="baremetal", free=1),
            FreeNodes(resource_class="large", free=1),
        )
        assert (await own.capabilities(deadline=1)).nodes == every[:1]
        assert (await own.capabilities(deadline=1)).hosts == 1

    async def test_a_site_of_bare_metal_alone_offers_it(self, tmp_path: Path) -> None:
        alone = {"drivers": {"BareMetal": "fake"}, "images": {}, "fake": {"nodes": NODES}}
        site = leaf(tmp_path, "ALONE", NODES, **alone)
        with HandlerProcessor(site) as processor:
            source = LocalSource(site, processor)

            assert len((await select(source, metal(number=2))).offers) == 2
            assert len((await source.capabilities(deadline=1)).nodes) == 2
            assert (await source.capabilities(deadline=1)).hosts == 0


class TestBooting:
    async def test_makes_each_on_the_node_that_was_offered_and_deletes_it(
        self, own: LocalSource, things: Substrate, own_site: Site
    ) -> None:
        kinds = metal(number=2), kind("vm")
        offers = (await select(own, *kinds)).offers
        sealed = [seal_of(own_site.state_dir).open(o.blob, "place")[1] for o in offers]

        request = wanted(metal_sliver(number=2), sliver_kind("vm"), offers=offers)
        reservation = await boot(own, request)
        instances = await until(own, reservation, InstanceStatus.DONE)

        digits = reservation.removeprefix("r-")
        nodes = [choice["node"] for choice in sealed if choice["node"]]
        assert tenants(things) == {
            node: f"s-metal-{digits}-{number}" for number, node in enumerate(nodes, 1)
        }
        assert list(things.servers) == [f"s-vm-{digits}-1"]
        assert [each.name for each in instances] == ["metal-1", "metal-2", "vm-1"]

        await own.delete(reservation, deadline=1)
        await until(own, reservation, InstanceStatus.DELETED)
        assert tenants(things) == {"rack1-1": None, "rack1-2": None}
        assert not things.servers

    async def test_of_an_offer_that_others_took_begins_nothing(
        self, own: LocalSource, things: Substrate
    ) -> None:
        kinds = metal(), kind("vm")
        offers = (await select(own, *kinds)).offers
        take(things, "rack1-1")

        with pytest.raises(Conflict, match="not valid any more") as refused:
            await boot(own, wanted(metal_sliver(), sliver_kind("vm"), offers=offers))

        assert "rack" not in f"{refused.value}"
        assert tenants(things) == {"rack1-1": "them", "rack1-2": None}
        assert not things.servers

    async def test_of_the_offer_of_a_host_is_refused(self, own: LocalSource) -> None:
        (offer,) = (await select(own, kind("metal"))).offers

        with pytest.raises(Conflict, match="something else"):
            await boot(own, wanted(metal_sliver(), offers=(offer,)))

    async def test_of_two_for_the_last_node_one_gets_it(
        self, own: LocalSource, things: Substrate
    ) -> None:
        take(things, "rack1-1")
        offers = [(await select(own, metal())).offers for _ in (1, 2)]
        requests = [
            wanted(metal_sliver(), offers=each, request_id=f"request-{number}")
            for number, each in enumerate(offers)
        ]

        answers = await asyncio.gather(
            *(boot(own, each) for each in requests), return_exceptions=True
        )

        assert sorted(type(each).__name__ for each in answers) == ["Conflict", "str"]

    async def test_is_gone_on_with_by_the_next_process(
        self, own: LocalSource, own_site: Site, things: Substrate
    ) -> None:
        offers = (await select(own, metal(number=2))).offers
        with HandlerProcessor(own_site, workers=1) as first:
            things.delay = 0.05
            ending = LocalSource(own_site, first)
            reservation = await boot(ending, wanted(metal_sliver(number=2), offers=offers))
            first.shutdown(timeout=0)  # one is under way, the other has not begun
        things.delay = 0.0
        assert InstanceStatus.PENDING in {
            each.status for each in await own.instances(reservation, deadline=1)
        }

        await own.resume()
        await until(own, reservation, InstanceStatus.DONE)

        assert len(set(tenants(things).values()) - {None}) == 2


class TestRequests:
    @pytest.mark.parametrize(
        ("needs", "why"),
        [
            ({"node_needs": {"image": "debian-12", "node": "rack1-1"}}, "names a node"),
            ({"node_needs": {"image": "debian-12"}, "together": True}, "a node of its own"),
            ({"node_needs": {"image": "debian-12"}, "needs": NEEDS}, "either"),
            ({}, "either"),
        ],
    )
    def test_of_needs_that_cannot_be_are_refused(self, needs: dict[str, Any], why: str) -> None:
        with pytest.raises(ValidationError, match=why):
            KindNeeds.model_validate({"kind": "metal"} | needs)

    @pytest.mark.parametrize(
        ("path", "kinds", "field"),
        [
            ("select", metal(node="rack1-1"), "kinds.0.node_needs"),
            ("select", metal(resource_class="a b"), "kinds.0.node_needs.resource_class"),
            ("select", metal(traits=["fast"]), "kinds.0.node_needs.traits.0"),
            ("select", metal(capacities={"core": "8"}), "kinds.0.node_needs.capacities.core"),
            ("boot", metal_sliver(node="rack1-1"), "kinds.0.sliver"),
            ("boot", metal_sliver(flavor="x"), "kinds.0.sliver.flavor"),
            ("boot", metal_sliver(capacities={"ram": 0}), "kinds.0.sliver.capacities.ram"),
            ("boot", sliver_kind(sliver={"id": "a"}), "kinds.0.sliver.name"),
        ],
    )
    def test_that_are_wrong_are_refused_by_field(
        self, tmp_path: Path, path: str, kinds: dict[str, Any], field: str
    ) -> None:
        with serving(leaf(tmp_path, "LEAF", NODES)) as url:
            body = {"request_id": "request-1", "kinds": [kinds]}
            answer = httpx.post(f"{url}/zones/{path}", json=body, timeout=SECONDS)

        assert (answer.status_code, answer.json()["field"]) == (422, field)


@contextmanager
def serving(site: Site) -> Iterator[str]:
    """Serve a site as a zone; give its URL."""
    server = ZoneServer(site)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


class TestThroughAParent:
    """``fabric-direct place --zone`` of a zone that has no hosts of its own, and two children."""

    @pytest.fixture(autouse=True)
    def no_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reservations, "_PAUSE", 0.01)

    @pytest.fixture
    def below(self, tmp_path: Path) -> dict[str, Site]:
        small, large = NODES.items()
        return {
            "north": leaf(tmp_path, "NORTH", dict([small])),
            "south": leaf(tmp_path, "SOUTH", dict([large])),
        }

    @pytest.fixture
    def parent(self, tmp_path: Path, below: dict[str, Site]) -> Iterator[str]:
        with ExitStack() as stack:
            urls = {name: stack.enter_context(serving(site)) for name, site in below.items()}
            yield stack.enter_context(serving(top(tmp_path, urls)))

    @pytest.fixture
    def request_file(self, tmp_path: Path) -> str:
        path = tmp_path / "request.yaml"
        slivers = [
            {"count": 2, "sliver": metal_sliver()["sliver"] | {"id": "metal"}},
            {"sliver": {"id": "vm", "name": "vm", "host": "auto", **NEEDS}},
        ]
        path.write_text(yaml.safe_dump({"slivers": slivers}))
        return str(path)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, words)

    def test_each_gets_a_node_of_some_zone_and_is_deleted_again(
        self, parent: str, below: dict[str, Site], request_file: str
    ) -> None:
        booted = self.run("place", request_file, "--zone", parent, "--boot")

        assert booted.exit_code == 0, booted.output
        offered = [line.split()[:3] for line in booted.stdout.splitlines()]
        assert ["metal", "8", "north"] in offered
        assert ["metal", "64", "south"] in offered
        assert all(self.holders(below).values())

        (reservation,) = [
            line.split()[1] for line in booted.stdout.splitlines() if line.startswith("reservation")
        ]
        deleted = self.run("zone", "reservation", "delete", reservation, "--zone", parent)
        assert deleted.exit_code == 0, deleted.output
        assert not any(self.holders(below).values())

    def test_all_of_a_request_or_nothing(
        self, parent: str, below: dict[str, Site], request_file: str
    ) -> None:
        take(substrate(below["south"], "w1"), "rack1-2")

        refused = self.run("place", request_file, "--zone", parent, "--boot")

        assert refused.exit_code == 1
        assert "metal: 1 too few: 2 nodes: not free" in refused.stderr
        assert self.holders(below) == {"rack1-1": None, "rack1-2": "them"}

    def test_a_zone_lists_the_free_nodes(self, parent: str) -> None:
        def listed(*words: str) -> Result:
            return self.run("zone", "list", "--zone", parent, *words)

        def heard() -> bool:
            children = json.loads(listed("--json").stdout)["result"]["children"]
            return all(child["age"] is not None for child in children)

        wait_until("the children to be heard", heard, timeout=SECONDS)

        assert json.loads(listed("--json").stdout)["result"]["capabilities"]["nodes"] == [
            {"resource_class": "baremetal", "free": 1},
            {"resource_class": "large", "free": 1},
        ]
        assert "1 baremetal, 1 large" in listed().stdout

    def holders(self, below: dict[str, Site]) -> dict[str, str | None]:
        return {
            name: tenant
            for site in below.values()
            for name, tenant in tenants(substrate(site, "w1")).items()
        }

    def test_an_answer_that_is_incomplete_or_offers_too_much_is_not_used(
        self, tmp_path: Path, below: dict[str, Site], request_file: str
    ) -> None:
        offer = {"kind": "metal", "cost": 1, "zone": "liar", "expires": 60}
        offers = [offer | {"blob": f"blob{number}"} for number in range(3)]
        views = {"zone": "liar", "capabilities": {}}
        with ScriptedZone() as liar, serving(below["north"]) as north:
            liar.reply("GET /zones", says(views))
            with serving(top(tmp_path, {"liar": liar.url, "north": north})) as parent:
                for answer in ({"offers": offers}, {"offers": [offer]}):
                    liar.reply("POST /zones/select", says(answer))

                    refused = self.run("place", request_file, "--zone", parent, "--boot")

                    assert refused.exit_code == 1
                    assert "liar is left out" in refused.stderr
                    assert "1 too few" in refused.stderr
            assert not any(each.what == "POST /zones/boot" for each in liar.asked)
        assert self.holders(below) == {"rack1-1": None, "rack1-2": None}


def top(path: Path, urls: dict[str, str]) -> Site:
    """Return the site of a zone that has children, and no hosts of its own."""
    children = {name: {"url": url} for name, url in urls.items()}
    zone = {"listen": "127.0.0.1:0", "own_hosts": False, "refresh": 60, "children": children}
    return Site.model_validate({"site": "TOP", "state_dir": path / "TOP", "zone": zone})
