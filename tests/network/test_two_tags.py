"""Q-in-Q on real switches: the inner one of two tags belongs to a service."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.model import SliverRef
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from tests.network.conftest import lab, vsctl
from tests.network.meters import dropped, limits
from tests.network.wire import Wire, apart, cross, flood
from tests.outcomes import done
from tests.services.slivers import interface, service

At = Callable[..., Wire]


@pytest.fixture(autouse=True)
def reads_two_tags(nothing_left: None) -> Iterator[None]:
    vsctl("sw1", "set", "Open_vSwitch", ".", "other_config:vlan-limit=2")
    yield
    vsctl("sw1", "remove", "Open_vSwitch", ".", "other_config", "vlan-limit")


def doubled(inner: int = 5, sliver: str = "net-1", port: str = "p2", **more: Any) -> NetworkService:
    one = interface("i1", 100, inner_vlan=inner, **more)
    return service(one, interface("i2", "untagged", port), sliver=sliver)


def test_both_tags_are_put_on_and_taken_off(driver: OvsService, at: At) -> None:
    driver.check(doubled())
    made = driver.apply(doubled())

    assert [(i.vlan, i.inner_vlan) for i in made.interfaces] == [(100, 5), (None, None)]
    assert driver.differences(doubled()) == ()
    assert cross(at("p1"), at("p2"), ((100, 5), 0))


def test_an_outer_tag_of_either_type_is_taken(driver: OvsService, at: At) -> None:
    driver.apply(doubled())
    one, other = at("p1"), at("p2")

    one.send(b"802.1ad", (100, 5), outer=0x88A8)
    one.send(b"802.1Q", (100, 5), outer=0x8100)

    assert other.received(2) == [(0, b"802.1ad"), (0, b"802.1Q")]


def test_services_share_an_outer_vlan_and_no_frame(driver: OvsService, at: At) -> None:
    driver.apply(doubled(5))
    driver.apply(doubled(6, "net-2", "p3"))
    one, five, six = at("p1"), at("p2"), at("p3")

    assert cross(one, five, ((100, 5), 0))
    assert cross(one, six, ((100, 6), 0))
    for vlans in ((100, 6), (100, 7), (101, 5), 100, 5, 0):
        assert apart(one, five, (vlans, 0))
    assert apart(five, six)


def test_a_mac_address_may_be_in_two_inner_vlans(driver: OvsService, at: At) -> None:
    """As of two routers that share a virtual one: the switch must not take one for the other."""
    driver.apply(doubled(5))
    driver.apply(doubled(6, "net-2", "p3"))
    one, five, six = at("p1"), at("p2"), at("p3")
    six.mac = five.mac
    six.send(b"I am here")
    five.send(b"no, here")
    one.received()

    one.send(b"to five", (100, 5), five.mac)
    one.send(b"to six", (100, 6), six.mac)

    assert five.received(1) == [(0, b"to five")]
    assert six.received(1) == [(0, b"to six")]


def test_a_rate_is_that_of_the_inner_vlan(driver: OvsService, at: At) -> None:
    driver.apply(doubled(5, bandwidth=8))
    driver.apply(doubled(6, "net-2", "p3"))
    assert driver.differences(doubled(5, bandwidth=8)) == ()

    assert limits(at("p1"), at("p2"), ((100, 5), 0), 8)
    assert limits(at("p2"), at("p1"), (0, (100, 5)), 8)
    before = dropped()
    flood(at("p1"), at("p3"), ((100, 6), 0), 30)
    assert dropped() == before


def test_it_is_changed_and_removed_beside_another(driver: OvsService, at: At) -> None:
    driver.apply(doubled(5))
    driver.apply(doubled(6, "net-2", "p3"))

    driver.apply(doubled(7))
    assert driver.differences(doubled(7)) == ()
    assert cross(at("p1"), at("p2"), ((100, 7), 0))
    assert apart(at("p1"), at("p2"), ((100, 5), 0))

    driver.remove("net-1")
    assert driver.leftovers("net-1") == ()
    assert cross(at("p1"), at("p3"), ((100, 6), 0))


def test_it_outlives_the_daemon(driver: OvsService, at: At) -> None:
    driver.apply(doubled())
    wires = at("p1"), at("p2")

    lab("restart", "sw1", "daemon")

    assert driver.differences(doubled()) == ()
    assert cross(*wires, ((100, 5), 0))


def test_a_switch_that_stops_reading_the_inner_tag_is_named(
    processor: HandlerProcessor, driver: OvsService
) -> None:
    done(processor.create(doubled()).result())

    vsctl("sw1", "remove", "Open_vSwitch", ".", "other_config", "vlan-limit")

    probed = done(processor.probe(SliverRef(id="net-1", type="L2Bridge")).result()).observed
    assert probed
    assert probed.differences == ("sw1: it reads only the outer one of two tags",)
