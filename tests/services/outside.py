"""FABNets with public addresses on real switches of any kind: what the outside reaches, and what not."""

from typing import Any, NamedTuple

import pytest

from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from tests.outcomes import done
from tests.services.gateways import link_of, space_of
from tests.services.node import Machine, Node, Nodes, bare
from tests.services.slivers import interface, service


class Plan(NamedTuple):
    """A subnet of which one address is public, and somebody outside."""

    kind: str
    gateway: str
    public: str
    other: str
    world: str
    values: dict[str, Any]


V4 = Plan(
    "FABNetv4Ext",
    "203.0.113.1/24",
    "203.0.113.10/24",
    "203.0.113.11/24",
    "198.51.100.2",
    {},
)
V6 = Plan(
    "FABNetv6Ext",
    "2001:db8:1::1/64",
    "2001:db8:1::10/64",
    "2001:db8:1::11/64",
    "2001:db8:ff::2",
    {"gateway": {"address": "2001:db8:1::1/64"}},
)


def fabnet(plan: Plan, *public: str, sliver: str = "net-1") -> NetworkService:
    ends = interface("i1", "untagged", "p1"), interface("i2", "untagged", "p2")
    given = [bare(address) for address in public]
    return service(*ends, kind=plan.kind, sliver=sliver, public=given, **plan.values)


class Outside:
    @pytest.mark.parametrize("plan", [V4, V6], ids=["IPv4", "IPv6"])
    def test_only_public_addresses_pass_in_and_out(
        self, driver: ServiceDriver, nodes: Nodes, machine: Machine, plan: Plan
    ) -> None:
        open_one, other = fabnet(plan, plan.public), fabnet(plan, plan.public, plan.other)
        made = driver.apply(open_one)
        one, two = nodes("p1", plan.public, plan.gateway), nodes("p2", plan.other, plan.gateway)
        world = Node(machine, "fd-outside")

        assert made.gateway
        assert made.gateway.address == plan.gateway
        assert driver.differences(open_one) == ()
        assert one.reaches(plan.world)
        assert world.reaches(bare(plan.public))
        assert two.reaches(bare(plan.gateway))
        _route_in_spite(machine, plan)
        assert not two.reaches(plan.world, within=1)
        assert not world.reaches(bare(plan.other), within=1)
        assert any("other routes" in said for said in driver.differences(open_one))

        with world.loses_nothing(bare(plan.public)):
            driver.apply(other)
        assert two.reaches(plan.world)
        assert world.reaches(bare(plan.other))
        driver.apply(fabnet(plan))
        assert not one.reaches(plan.world, within=1)
        assert driver.differences(fabnet(plan)) == ()

    def test_a_filter_that_others_changed_is_found_out_and_corrected(
        self, driver: ServiceDriver, machine: Machine
    ) -> None:
        wanted = fabnet(V4, V4.public)
        driver.apply(wanted)
        space = space_of(driver)
        for change in (
            ("flush", "ruleset"),
            ("add", "element", "inet", "fabric-direct", "public", "{ 203.0.113.99 }"),
            ("flush", "chain", "inet", "fabric-direct", "forward"),
            ("add", "rule", "inet", "fabric-direct", "forward", "accept"),
        ):
            machine.ip("netns", "exec", space, "nft", *change)
            assert any("other packets" in said for said in driver.differences(wanted)), change
            driver.apply(wanted)
            assert driver.differences(wanted) == ()

    def test_two_services_have_addresses_of_the_shared_subnet(
        self, processor: HandlerProcessor, nodes: Nodes, machine: Machine
    ) -> None:
        first = fabnet(V4, V4.public)
        second = first.model_copy(update={"id": "net-2", "interfaces": (_at_p3(),)})
        done(processor.create(first).result())
        taken = processor.create(second).result()
        assert "net-1" in str(taken.error)
        done(processor.create(_public(second, V4.other)).result())
        nodes("p1", V4.public, V4.gateway)
        nodes("p3", V4.other, V4.gateway)

        for address in (V4.public, V4.other):
            assert Node(machine, "fd-outside").reaches(bare(address))


def _route_in_spite(machine: Machine, plan: Plan) -> None:
    """Let the router send to an address that is not public, so that the filter alone is tried."""
    via = ("inet6", "fe80::2") if plan is V4 else ("fe80::2",)
    route = (bare(plan.other), "via", *via, "dev", link_of(machine, "fd-border", "u"))
    machine.ip("-n", "fd-border", "route", "add", *route)


def _at_p3() -> Any:
    return service(interface("i1", "untagged", "p3")).interfaces[0]


def _public(wanted: NetworkService, address: str) -> NetworkService:
    document = wanted.model_dump(exclude_none=True) | {"public": [bare(address)]}
    return type(wanted).model_validate(document)
