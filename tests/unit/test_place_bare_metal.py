"""VMs and bare-metal slivers placed at once: on hosts and nodes, by the command line and the library."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.calls.deadline import Deadline
from fabric_direct.cli import main
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.handlers.registry import host_drivers
from fabric_direct.model import NodeSliver, SliverRef, Status
from fabric_direct.model.bare_metal import BareMetalSliver, MachineSliver
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.placer import Placer
from fabric_direct.placement.plan import BuildPlan
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, load_site
from fabric_direct.state.file_store import FileStore
from tests.outcomes import result_of

SITE: dict[str, Any] = {
    "site": "TEST",
    "drivers": {"VM": "fake", "BareMetal": "fake"},
    "guest": "fake",
    "images": {"tiny": {}},
    "hosts": {"w1": {}, "n1": {}},
    "ironic": {"images": {"debian-12": {"kernel": "http://192.0.2.1/k", "ramdisk": "http://192.0.2.1/r"}}},
    "fake": {
        "hosts": {"w1": {"cores": 4}, "n1": {"cores": 4}},
        "nodes": {
            "n1": {"cores": 8, "ram": 32, "disk": 100, "macs": ["52:54:00:00:00:01"]},
            "n2": {"cores": 64, "ram": 512, "disk": 4000, "resource_class": "large"},
        },
    },
}  # fmt: skip
SIZE = {"core": 2, "ram": 2, "disk": 2}
VM: dict[str, Any] = {
    "id": "web",
    "name": "www",
    "host": "auto",
    "image": "tiny",
    "capacities": SIZE,
}
METAL: dict[str, Any] = {"id": "metal", "type": "BareMetal", "name": "box", "image": "debian-12"}
Run = Callable[..., Result]
Write = Callable[..., str]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    path = tmp_path / "test-site.yaml"
    path.write_text(yaml.safe_dump(SITE | {"state_dir": str(tmp_path / "state")}))
    return load_site(path)


@pytest.fixture
def nodes(site: Site) -> Substrate:
    return substrate(site, next(iter(site.hosts)))


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def run(tmp_path: Path, site: Site) -> Run:
    def invoke(*words: str) -> Result:
        words = ("--site", str(tmp_path / "test-site.yaml"), *words)
        return CliRunner().invoke(main, words, catch_exceptions=False)

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def dump(*groups: dict[str, Any]) -> str:
        (tmp_path / "request.yaml").write_text(json.dumps({"slivers": list(groups)}))
        return str(tmp_path / "request.yaml")

    return dump


def vm(id_: str = "web", **values: Any) -> NodeSliver:
    return NodeSliver.model_validate(VM | {"id": id_} | values)


def metal(id_: str = "metal", **values: Any) -> BareMetalSliver:
    return BareMetalSliver.model_validate(METAL | {"id": id_} | values)


def where(plan: BuildPlan) -> dict[str, tuple[str | None, str | None]]:
    """Return the host and the node of each sliver."""
    return {a.request: (a.chosen.host, a.chosen.node) for a in plan.assignments}


def tenants(nodes: Substrate) -> dict[str, str | None]:
    return {name: node.tenant for name, node in nodes.bare_metal.items()}


def take(nodes: Substrate, name: str, tenant: str = "them") -> None:
    there = nodes.bare_metal
    there[name] = replace(there[name], condition=NodeCondition.ACTIVE, tenant=tenant)


class TestPlace:
    def test_vms_go_to_hosts_and_bare_metal_to_nodes_whatever_their_names(
        self, processor: HandlerProcessor
    ) -> None:
        slivers = [metal("m1"), vm("v1"), metal("m2"), vm("v2"), vm("v3"), vm("v4")]

        placed = where(processor.place(slivers))

        assert list(placed) == ["m1", "v1", "m2", "v2", "v3", "v4"]
        assert (placed["m1"], placed["m2"]) == ((None, "n1"), (None, "n2"))
        assert {placed[f"v{n}"] for n in (1, 2, 3, 4)} == {("w1", None), ("n1", None)}

    @pytest.mark.parametrize(
        ("slivers", "lost"),
        [
            ([vm("v1"), metal("m1"), metal("m2"), metal("m3")], "m3"),
            ([metal("m1"), vm("v1"), vm("v2", capacities={**SIZE, "core": 5})], "v2"),
        ],
    )
    def test_all_get_a_place_or_none_unless_a_part_will_do(
        self, processor: HandlerProcessor, slivers: list[MachineSliver], lost: str
    ) -> None:
        plan, part = processor.place(slivers), processor.place(slivers, partial=True)

        assert plan.assignments == ()
        assert [each.request for each in plan.unplaced] == [lost]
        assert len(part.assignments) == len(slivers) - 1

    def test_a_node_that_another_driver_of_the_site_does_not_know_is_no_host(
        self, processor: HandlerProcessor
    ) -> None:
        plan = processor.place([vm(host="n2")])

        assert plan.unplaced[0].refused == {"host": 2}

    def test_one_that_exists_stays_on_its_node(self, processor: HandlerProcessor) -> None:
        processor.create(metal(node="n2")).result()

        plan = processor.place([metal(), metal("m2")])

        assert where(plan) == {"metal": (None, "n2"), "m2": (None, "n1")}
        assert [a.chosen.cost for a in plan.assignments] == [0, 8]

    def test_a_site_of_bare_metal_alone_places_it(self, tmp_path: Path) -> None:
        values = {key: SITE[key] for key in ("site", "ironic")} | {"state_dir": tmp_path}
        values |= {"drivers": {"BareMetal": "fake"}, "fake": {"nodes": SITE["fake"]["nodes"]}}
        with HandlerProcessor(Site.model_validate(values)) as processor:
            assert where(processor.place([metal()])) == {"metal": (None, "n1")}

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"image": "absent"}, "image"),
            ({"node": "w1"}, "node"),
            ({"resource_class": "gold"}, "resource_class"),
            ({"traits": ["CUSTOM_FAST"]}, "traits"),
            ({"capacities": {"ram": 513}}, "capacities"),
            ({"nics": [{"id": "n", "mac": "52:54:00:00:00:02"}]}, "nics"),
        ],
    )
    def test_what_no_node_could_serve_is_refused_by_its_field(
        self, processor: HandlerProcessor, asked: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            processor.place([vm(), metal(**asked)], partial=True)

        assert refused.value.field == field

    def test_of_a_site_without_a_driver_for_nodes_it_is_refused(self, tmp_path: Path) -> None:
        values = SITE | {"drivers": {"VM": "fake"}, "state_dir": tmp_path}
        with (
            HandlerProcessor(Site.model_validate(values)) as processor,
            pytest.raises(InvalidSliver, match="the site has no bare-metal nodes"),
        ):
            processor.place([metal()])


class TestBuild:
    def test_makes_each_on_the_node_of_the_plan(
        self, processor: HandlerProcessor, nodes: Substrate
    ) -> None:
        slivers = [metal("m1", resource_class="large"), metal("m2"), vm()]
        plan = processor.place(slivers)

        outcomes = [future.result() for future in processor.build(plan, slivers)]

        assert [each.status for each in outcomes] == [Status.DONE] * 3
        assert tenants(nodes) == {"n1": "m2", "n2": "m1"}
        stamp = nodes.bare_metal["n1"].stamp
        assert stamp
        assert stamp.sliver.node == "n1"

    def test_again_and_a_creation_without_a_node_change_nothing(
        self, processor: HandlerProcessor, nodes: Substrate
    ) -> None:
        for _ in range(2):
            plan = processor.place([metal()])
            assert processor.build(plan, [metal()])[0].result().ok
        before = dict(nodes.bare_metal)

        assert processor.create(metal()).result().ok
        assert processor.probe(metal()).result().ok
        assert nodes.bare_metal == before

    def test_of_a_node_that_others_took_since_the_plan_begins_nothing(
        self, processor: HandlerProcessor, nodes: Substrate
    ) -> None:
        plan = processor.place([metal(), vm()])
        take(nodes, "n1")

        with pytest.raises(Conflict, match="n1 is active by them"):
            processor.build(plan, [metal(), vm()])

        assert tenants(nodes) == {"n1": "them", "n2": None}
        assert processor.slivers() == ()

    def test_of_a_node_that_others_take_at_the_last_moment_is_refused_and_leaves_nothing(
        self, processor: HandlerProcessor, nodes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = processor.place([metal()])
        operations = processor._operations
        create = operations.create

        def late(*words: Any) -> Any:
            take(nodes, "n1")
            return create(*words)

        monkeypatch.setattr(operations, "create", late)

        outcome = processor.build(plan, [metal()])[0].result()

        assert outcome.error
        assert (outcome.status, outcome.error.kind) == (Status.FAILED, "NoHost")
        assert "n1 is active by them" in outcome.error.message
        assert outcome.left == ()
        assert tenants(nodes) == {"n1": "them", "n2": None}

    @pytest.mark.parametrize(
        ("request_", "chosen"),
        [("metal", {"host": "w1"}), ("web", {"node": "n1"})],
    )
    def test_a_plan_with_a_host_for_bare_metal_or_a_node_for_a_vm_is_refused(
        self, processor: HandlerProcessor, nodes: Substrate, request_: str, chosen: dict[str, str]
    ) -> None:
        assignment = {"request": request_, "chosen": {"cost": 0} | chosen}
        plan = BuildPlan.model_validate({"assignments": [assignment]})

        with pytest.raises(InvalidSliver, match="the plan is for other slivers"):
            processor.build(plan, [metal(), vm()])

        assert tenants(nodes) == {"n1": None, "n2": None}

    def test_two_plans_at_once_for_one_node_are_carried_out_once(
        self, site: Site, nodes: Substrate
    ) -> None:
        def build(id_: str) -> bool:
            sliver = metal(id_, node="n1")
            with HandlerProcessor(site) as processor:
                try:
                    (future,) = processor.build(plans[id_], [sliver])
                except Conflict:
                    return False
                return future.result().ok

        with HandlerProcessor(site) as processor:
            plans = {m: processor.place([metal(m, node="n1")]) for m in ("a", "b", "c")}
        with ThreadPoolExecutor(3) as pool:
            built = dict(zip(plans, pool.map(build, plans), strict=True))

        assert [m for m, ok in built.items() if ok] == [tenants(nodes)["n1"]]


class TestClaims:
    @pytest.fixture
    def claims(self, site: Site) -> Claims:
        return Claims(FileStore(site.state_dir), lifetime=60, timeout=60)

    @pytest.fixture
    def placer(self, site: Site, claims: Claims) -> Placer:
        def drivers(host: str) -> Any:
            return host_drivers(site, host).within(Deadline.within(60), 10)

        return Placer(site, claims, drivers)

    def test_what_is_promised_is_reserved_for_all_others(self, placer: Placer) -> None:
        placer.claim(placer.place([metal()], partial=False), [metal()])

        other = placer.place([metal("other")], partial=False)
        told = placer.explain(metal("other", node="n1")).nodes
        again = placer.place([metal()], partial=False)

        assert where(other) == {"other": (None, "n2")}
        assert [each.why for each in told if each.node == "n1"] == ["n1 is reserved by metal"]
        assert where(again) == {"metal": (None, "n1")}

    def test_it_cannot_be_promised_twice(self, placer: Placer) -> None:
        plans = {m: placer.place([metal(m)], partial=False) for m in ("m1", "m2")}
        placer.claim(plans["m1"], [metal("m1")])

        with pytest.raises(Conflict, match="n1 is reserved by m1"):
            placer.claim(plans["m2"], [metal("m2")])

    def test_a_creation_takes_no_node_that_is_promised(
        self, placer: Placer, processor: HandlerProcessor, nodes: Substrate
    ) -> None:
        placer.claim(placer.place([metal()], partial=False), [metal()])

        other = processor.create(metal("other")).result()
        third = processor.create(metal("third")).result()
        own = processor.create(metal()).result()

        assert other.ok
        assert third.error
        assert "n1 is reserved by metal; n2 is active by other" in third.error.message
        assert third.left == ()
        assert own.ok
        assert tenants(nodes) == {"n1": "metal", "n2": "other"}
        assert processor.create(metal("other")).result().ok

    def test_all_of_a_plan_is_promised_or_nothing(
        self, placer: Placer, claims: Claims, nodes: Substrate
    ) -> None:
        slivers = [vm(), metal()]
        plan = placer.place(slivers, partial=False)
        take(nodes, "n1")

        with pytest.raises(Conflict):
            placer.claim(plan, slivers)

        assert (claims.since(0), claims.nodes_since(0)) == ((), {})

    def test_it_ends_with_the_creation_whatever_its_result(
        self, processor: HandlerProcessor, claims: Claims
    ) -> None:
        slivers = [metal()]
        began = time.time()
        processor.build(processor.place(slivers), slivers)[0].result()

        assert claims.nodes_since(time.time()) == {}
        assert claims.nodes_since(began) == {"metal": "n1"}, "who looked before must not miss it"
        assert processor.delete(SliverRef(id="metal", type="BareMetal")).result().ok
        assert claims.nodes_since(0) == {}

    def test_it_ends_if_the_creation_never_began(self, site: Site, claims: Claims) -> None:
        with claims.changing() as book:
            book.take_nodes({"m1": "n1"})
        claims.drop("m1")
        assert claims.nodes_since(0) == {}

    def test_those_that_ended_long_ago_are_forgotten(self, site: Site) -> None:
        moments = iter([1000.0, 1121.0])
        claims = Claims(
            FileStore(site.state_dir), lifetime=60, timeout=60, clock=lambda: next(moments)
        )
        for name in ("old", "new"):
            with claims.changing() as book:
                book.take_nodes({name: "n1"})

        assert claims.nodes_since(0) == {"new": "n1"}


class TestCommand:
    def test_prints_hosts_and_nodes_apart(self, run: Run, write: Write) -> None:
        result = run("place", write({"sliver": VM}, {"count": 2, "sliver": METAL}))

        assert result.exit_code == 0
        lines = [line.split() for line in result.stdout.splitlines()]
        assert ["INSTANCE", "NODE", "COST"] in lines
        assert ["metal-1", "n1", "8"] in lines
        assert ["metal-2", "n2", "64"] in lines
        assert "3 of 3 are placed" in result.stdout

    def test_takes_the_file_of_one_sliver(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "metal.yaml").write_text(yaml.safe_dump(METAL))

        result = run("place", str(tmp_path / "metal.yaml"))

        assert ["metal", "n1", "8", "n2"] in [line.split() for line in result.stdout.splitlines()]

    def test_boots_them(self, run: Run, write: Write, nodes: Substrate) -> None:
        request = write({"sliver": VM}, {"count": 2, "apart": True, "sliver": METAL})
        for _ in range(2):
            assert run("place", request, "--boot").exit_code == 0

        assert tenants(nodes) == {"n1": "metal-1", "n2": "metal-2"}

    def test_carries_out_a_saved_plan(
        self, run: Run, write: Write, tmp_path: Path, nodes: Substrate
    ) -> None:
        request, plan = write({"sliver": METAL}), str(tmp_path / "plan.json")
        run("place", request, "--save", plan)

        assert run("place", request, "--plan", plan).exit_code == 0
        assert tenants(nodes)["n1"] == "metal"

    def test_tells_who_has_the_nodes_of_one_that_gets_none(
        self, run: Run, write: Write, nodes: Substrate
    ) -> None:
        take(nodes, "n2")

        result = run("place", write({"count": 2, "sliver": METAL}))

        assert result.exit_code == 1
        why = "metal-2: no node is free: n1 is reserved by metal-1; n2 is active by them"
        assert why in result.stderr

    def test_explains_each_node(self, run: Run, write: Write, nodes: Substrate) -> None:
        take(nodes, "n2")
        asked = METAL | {"resource_class": "large"}

        table = run("place", write({"sliver": asked}), "--explain").stdout
        told = run("place", write({"sliver": asked}), "--explain", "--json").stdout

        assert "n1    resource_class  n1 has baremetal" in table
        assert "n2    condition       n2 is active by them" in table
        assert result_of(told)["explained"]["metal"]["nodes"] == [
            {"node": "n1", "refused_by": "resource_class", "why": "n1 has baremetal", "cost": None},
            {"node": "n2", "refused_by": "condition", "why": "n2 is active by them", "cost": None},
        ]

    def test_explains_also_what_no_node_could_serve(self, run: Run, write: Write) -> None:
        result = run("place", write({"sliver": METAL | {"resource_class": "gold"}}), "--explain")

        assert result.exit_code == 2
        assert "n2 has large" in result.stdout
        assert "resource_class: no node has this" in result.stderr

    @pytest.mark.parametrize(
        ("sliver", "said"),
        [
            (METAL | {"flavor": "large"}, "slivers[0].sliver.flavor: unknown field"),
            (
                METAL | {"capacities": {"core": 0}},
                "slivers[0].sliver.capacities.core: must be from 1 to 4096",
            ),
            (VM | {"node": "n1"}, "slivers[0].sliver.node: unknown field"),
            (
                VM | {"capacities": {**SIZE, "core": 0}},
                "slivers[0].sliver.capacities.core: must be from 1",
            ),
        ],
    )
    def test_a_wrong_field_is_refused_by_its_path(
        self, run: Run, write: Write, sliver: dict[str, Any], said: str
    ) -> None:
        result = run("place", write({"sliver": sliver}))

        assert result.exit_code == 2
        assert said in result.stderr

    @pytest.mark.parametrize(
        ("sliver", "valid"),
        [
            (VM, True),
            (METAL | {"capacities": SIZE}, True),
            (METAL | {"node": "n1"}, True),
            (METAL | {"capacities": SIZE, "host": "auto"}, False),
            (VM | {"node": "n1"}, False),
        ],
    )
    def test_the_schema_of_a_request_tells_vms_and_bare_metal_apart(
        self, run: Run, sliver: dict[str, Any], valid: bool
    ) -> None:
        schema = json.loads(run("schema", "request").stdout)

        assert (
            jsonschema.Draft202012Validator(schema).is_valid({"slivers": [{"sliver": sliver}]})
            is valid
        )

    def test_bare_metal_cannot_be_together(self, run: Run, write: Write) -> None:
        result = run("place", write({"count": 2, "together": True, "sliver": METAL}))

        assert result.exit_code == 2
        assert "together: each bare-metal sliver has a node of its own" in result.stderr
