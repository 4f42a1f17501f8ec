"""FABNets on real switches of any kind: gateways that answer, networks that route to each other."""

import re
from typing import Any, NamedTuple

import pytest

from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.errors import DriverError, NotOurs
from fabric_direct.model import SliverRef
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from tests.outcomes import done
from tests.services.node import Machine, Nodes, bare
from tests.services.slivers import interface, service


class Plan(NamedTuple):
    """Two FABNets of a version of IP."""

    kind: str
    gateways: tuple[str, str]
    nodes: tuple[str, str]


V4 = Plan("FABNetv4", ("10.128.1.1/24", "10.128.2.1/24"), ("10.128.1.2/24", "10.128.2.2/24"))
V6 = Plan("FABNetv6", ("fd00:1::1/64", "fd00:2::1/64"), ("fd00:1::2/64", "fd00:2::2/64"))
MAC = "02:00:5e:10:00:01"
both = pytest.mark.parametrize("plan", [V4, V6], ids=["IPv4", "IPv6"])


def fabnet(
    plan: Plan, number: int = 0, switch: str = "sw1", *more: dict[str, Any], **gateway: Any
) -> NetworkService:
    return service(
        interface("i1", "untagged", f"p{number + 1}", switch),
        *more,
        kind=plan.kind,
        sliver=f"net-{number + 1}",
        gateway={"address": plan.gateways[number], **gateway},
    )


def space_of(driver: ServiceDriver, sliver: str = "net-1") -> str:
    """Return the namespace of a service."""
    return re.findall(r"namespace (\S+)", " ".join(driver.leftovers(sliver)))[0]


def link_of(machine: Machine, space: str, kind: str) -> str:
    """Return a link in a namespace by the begin of its name."""
    names = (name.partition("@")[0] for name in machine.ip("-n", space, "-br", "link").split())
    return next(name for name in names if name.startswith(f"fd{kind}-"))


class Gateways:
    @pytest.fixture(params=["sw1", "sw2"])
    def far(self, request: pytest.FixtureRequest) -> str:
        """Return the switch of the second network."""
        return str(request.param)

    @both
    def test_gateways_answer_and_two_networks_route(
        self, driver: ServiceDriver, nodes: Nodes, plan: Plan, far: str
    ) -> None:
        made = driver.apply(fabnet(plan, mac=MAC))
        driver.apply(fabnet(plan, 1, far))
        one = nodes("p1", plan.nodes[0], plan.gateways[0])
        other = nodes("p2", plan.nodes[1], plan.gateways[1], far)

        assert one.reaches(bare(plan.gateways[0]))
        assert one.neighbor(bare(plan.gateways[0])) == MAC
        assert one.reaches(bare(plan.nodes[1]))
        assert other.reaches(bare(plan.nodes[0]))
        assert made.gateway
        assert (made.gateway.address, made.gateway.mac) == (plan.gateways[0], MAC)
        assert driver.find("net-1") == made
        for wanted in (fabnet(plan, mac=MAC), fabnet(plan, 1, far)):
            assert driver.differences(wanted) == ()

    def test_a_gateway_is_changed_and_its_former_address_goes(
        self, driver: ServiceDriver, nodes: Nodes
    ) -> None:
        driver.apply(fabnet(V4))
        driver.apply(fabnet(V4, 1))
        driver.apply(fabnet(V4._replace(gateways=("10.128.9.1/24", "")), mac=MAC))
        one = nodes("p1", "10.128.9.2/24", "10.128.9.1")
        other = nodes("p2", V4.nodes[1], V4.gateways[1])

        assert one.reaches(bare(V4.nodes[1]))
        assert not other.reaches(bare(V4.gateways[0]), within=1)

    def test_what_changes_does_not_disturb_the_rest(
        self, driver: ServiceDriver, nodes: Nodes
    ) -> None:
        driver.apply(fabnet(V4))
        driver.apply(fabnet(V4, 1, "sw2"))
        one = nodes("p1", V4.nodes[0], V4.gateways[0])
        nodes("p2", V4.nodes[1], V4.gateways[1], "sw2")
        assert one.reaches(bare(V4.nodes[1]))
        more = interface("i2", 300, "p3", bandwidth=20)

        with one.loses_nothing(bare(V4.nodes[1])):
            for ends in ((more,), (more | {"bandwidth": 8},), ()):
                driver.apply(fabnet(V4, 0, "sw1", *ends))

    def test_who_changes_the_kernel_is_found_out_and_corrected(
        self, driver: ServiceDriver, machine: Machine
    ) -> None:
        wanted = fabnet(V4, mac=MAC)
        driver.apply(wanted)
        space = space_of(driver)
        port, uplink = link_of(machine, space, "g"), link_of(machine, "fd-router", "u")
        changes = {
            "gateway is none": ("-n", space, "address", "flush", "dev", port),
            "MAC is": ("-n", space, "link", "set", port, "address", "02:00:00:00:00:99"),
            "not connected": ("-n", space, "link", "set", port, "down"),
            "not forward": ("netns", "exec", space, "sysctl", "-qw", "net.ipv4.ip_forward=0"),
            "has other routes": ("-n", space, "route", "flush", "default"),
            "routes to the service": ("-n", "fd-router", "route", "flush", "dev", uplink),
            "pair to fd-router": ("-n", space, "link", "delete", "uplink"),
            "not asked for": ("-n", space, "link", "add", "theirs", "type", "veth"),
            "is missing": ("netns", "delete", space),
        }
        for said, change in changes.items():
            machine.ip(*change)
            assert any(said in each for each in driver.differences(wanted)), said
            driver.apply(wanted)
            assert driver.differences(wanted) == ()

    def test_a_namespace_of_others_is_left_alone(
        self, driver: ServiceDriver, machine: Machine
    ) -> None:
        driver.apply(fabnet(V4))
        space = space_of(driver)
        driver.remove("net-1")
        machine.ip("netns", "add", space)
        machine.ip("-n", space, "link", "set", "lo", "alias", "theirs")
        try:
            for call in (lambda: driver.apply(fabnet(V4)), lambda: driver.remove("net-1")):
                with pytest.raises(NotOurs):
                    call()
            assert "theirs" in machine.ip("-n", space, "link", "show", "lo")
        finally:
            machine.ip("netns", "delete", space)

    def test_a_subnet_that_the_router_has_elsewhere_is_left_alone(
        self, driver: ServiceDriver, machine: Machine
    ) -> None:
        machine.ip("-n", "fd-router", "route", "add", "unreachable", "10.128.1.0/24")
        try:
            with pytest.raises(DriverError, match="File exists"):
                driver.apply(fabnet(V4))
            said = machine.ip("-n", "fd-router", "route", "show")
            assert "unreachable 10.128.1.0/24" in said
        finally:
            machine.ip("-n", "fd-router", "route", "delete", "unreachable", "10.128.1.0/24")

    @both
    def test_the_whole_life(
        self, processor: HandlerProcessor, driver: ServiceDriver, plan: Plan
    ) -> None:
        for outcome in (processor.create(fabnet(plan)), processor.modify(fabnet(plan, mac=MAC))):
            done(outcome.result())
        ref = SliverRef(id="net-1", type=plan.kind)

        probed = done(processor.probe(ref).result()).observed

        assert probed
        assert probed.gateway
        assert probed.gateway.mac == MAC
        done(processor.delete(ref).result())
        assert driver.leftovers("net-1") == ()
