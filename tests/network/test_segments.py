"""Segments on real switches: what crosses, and what does not."""

from collections.abc import Callable

from fabric_direct.drivers.ovs.service import OvsService
from tests.network.wire import Wire, apart, cross
from tests.services.slivers import interface, service

At = Callable[..., Wire]


def test_frames_cross_between_the_vlans_of_a_service(driver: OvsService, at: At) -> None:
    wanted = service(
        interface("i1", 100), interface("i2", 200, "p2"), interface("i3", "untagged", "p3")
    )
    made = driver.apply(wanted)

    assert cross(at("p1"), at("p2"), (100, 200))
    assert cross(at("p1"), at("p3"), (100, 0))
    assert driver.find(wanted.id) == made
    assert driver.differences(wanted) == ()
    assert made.stamp == wanted


def test_no_frame_crosses_between_services_or_into_other_vlans(driver: OvsService, at: At) -> None:
    driver.apply(service(interface("i1", 100), interface("i2", 100, "p2")))
    driver.apply(service(interface("i1", 101), interface("i2", 200, "p2"), sliver="net-2"))
    wires = at("p1"), at("p2")

    assert cross(*wires, (100, 100))
    assert cross(*wires, (101, 200))
    for vlans in ((100, 200), (101, 100), (100, 101), (0, 0), (300, 300)):
        assert apart(*wires, vlans)


def test_what_is_made_twice_is_the_same(driver: OvsService) -> None:
    wanted = service(interface("i1", 100, bandwidth=10), interface("i2", 200, "p2"))

    assert driver.apply(wanted) == driver.apply(wanted)


def test_a_tunnel_joins_two_switches(driver: OvsService, at: At) -> None:
    for kind, sliver, vlans in (("L2STS", "net-1", (100, 200)), ("L2PTP", "net-2", (101, 201))):
        ends = interface("i1", vlans[0]), interface("i2", vlans[1], switch="sw2")
        wanted = service(*ends, kind=kind, sliver=sliver)
        driver.apply(wanted)
        assert driver.differences(wanted) == ()
    wires = at("p1"), at("p1", "sw2")

    wires[0].send(b"the switch asks for its neighbor's MAC, and drops this", 100)
    wires[1].received()

    assert cross(*wires, (100, 200))
    assert cross(*wires, (101, 201))
    assert apart(*wires, (100, 201))
