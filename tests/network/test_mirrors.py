"""Mirrors of ports on real switches: what the receiver sees, and that nobody else does."""

from collections.abc import Callable
from typing import Any

import pytest

from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.model import SliverRef
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from tests.network.conftest import lab, vsctl
from tests.network.wire import Wire, cross
from tests.outcomes import done
from tests.services.slivers import interface, service

At = Callable[..., Wire]


@pytest.fixture(autouse=True)
def mirrored(driver: OvsService) -> None:
    """Make two services between p1 and p2: VLAN 100 is 200 there, 101 is untagged."""
    driver.apply(service(interface("i1", 100), interface("i2", 200, "p2")))
    driver.apply(service(interface("i1", 101), interface("i2", "untagged", "p2"), sliver="net-2"))


def mirror(receiver: str = "p4", sliver: str = "tap", **mirror: Any) -> NetworkService:
    end = interface("tap", "untagged", receiver)
    return service(end, sliver=sliver, kind="PortMirror", mirror={"port": "p1", **mirror})


RECEIVED = {(100, b"from p1 in 100"), (101, b"from p1 in 101")}
SENT = {(100, b"to p1 in 100"), (101, b"to p1 in 101")}


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ({}, RECEIVED | SENT),
        ({"direction": "rx"}, RECEIVED),
        ({"direction": "tx"}, SENT),
        ({"vlan": 100}, {(100, b"from p1 in 100"), (100, b"to p1 in 100")}),
        ({"vlan": 101, "direction": "tx"}, {(101, b"to p1 in 101")}),
    ],
)
def test_the_receiver_sees_what_was_asked_for_and_nobody_else(
    driver: OvsService, at: At, wanted: dict[str, Any], seen: set[tuple[int, bytes]]
) -> None:
    driver.check(mirror(**wanted))
    driver.apply(mirror(**wanted))
    assert driver.differences(mirror(**wanted)) == ()
    one, other, receiver, bystander = at("p1"), at("p2"), at("p4"), at("p3")

    one.send(b"from p1 in 100", 100)
    one.send(b"from p1 in 101", 101)
    other.send(b"to p1 in 100", 200)
    other.send(b"to p1 in 101")

    assert sorted(receiver.received(len(seen))) == sorted(seen)
    assert bystander.received() == []
    assert {content for _, content in other.received(2)} == {c for _, c in RECEIVED}
    assert {content for _, content in one.received(2)} == {c for _, c in SENT}


def test_unicast_in_both_directions_is_seen_once_each(driver: OvsService, at: At) -> None:
    driver.apply(mirror())
    one, other, receiver = at("p1"), at("p2"), at("p4")
    assert cross(one, other, (100, 200))
    receiver.received(2)

    for number in range(3):
        one.send(f"ping {number}".encode(), 100, other.mac)
        other.send(f"pong {number}".encode(), 200, one.mac)

    seen = [content for vlan, content in receiver.received(6) if vlan == 100]
    assert sorted(seen) == [f"{w} {n}".encode() for w in ("ping", "pong") for n in range(3)]


def test_what_the_receiver_sends_reaches_nobody(driver: OvsService, at: At) -> None:
    driver.apply(mirror())
    wires = [at(port) for port in ("p1", "p2", "p3")]

    for vlan in (0, 100, 101, 200):
        at("p4").send(b"from the receiver", vlan)

    assert [wire.received() for wire in wires] == [[], [], []]


def test_a_mirror_ends_with_its_deletion(driver: OvsService, at: At) -> None:
    driver.apply(mirror())
    driver.remove("tap")

    assert cross(at("p1"), at("p2"), (100, 200))
    assert at("p4").received() == []
    assert driver.leftovers("tap") == ()


def test_a_mirror_outlives_the_daemon(driver: OvsService, at: At) -> None:
    driver.apply(mirror())
    one, other, receiver = at("p1"), at("p2"), at("p4")

    lab("restart", "sw1", "daemon")

    assert driver.differences(mirror()) == ()
    assert cross(one, other, (100, 200))
    assert [vlan for vlan, _ in receiver.received(2)] == [100, 100]


def test_where_the_service_of_the_port_goes_the_mirror_says_so(
    processor: HandlerProcessor, driver: OvsService
) -> None:
    done(processor.create(mirror(vlan=100)).result())

    done(processor.delete(SliverRef(id="net-1", type="L2Bridge")).result())

    probed = done(processor.probe(SliverRef(id="tap", type="PortMirror")).result()).observed
    assert probed
    assert probed.differences == ("sw1: no service has VLAN 100 of p1: nothing is mirrored",)
    driver.apply(service(interface("i1", 100), interface("i2", 200, "p2")))
    assert driver.differences(mirror(vlan=100)) == ()


@pytest.mark.parametrize(
    "behind", ["clear Bridge {bridge} mirrors", "set Mirror {mirror} select_vlan=7"]
)
def test_a_mirror_that_others_changed_is_named_and_repaired(
    processor: HandlerProcessor, driver: OvsService, behind: str
) -> None:
    done(processor.create(mirror()).result())
    there = vsctl("sw1", "--bare", "--columns=name", "find", "Mirror").split()
    bridge = vsctl("sw1", "port-to-br", "p1").strip()

    vsctl("sw1", *behind.format(bridge=bridge, mirror=there[0]).split())

    assert driver.differences(mirror()) != ()
    done(processor.modify(mirror()).result())
    assert driver.differences(mirror()) == ()


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (mirror(port="p9"), "mirror.port"),
        (mirror(port="p3"), "mirror.port"),
        (mirror(vlan=300), "mirror.port"),
        (mirror("p2"), "interfaces[0].port"),
    ],
)
def test_a_mirror_that_cannot_be_is_refused_by_its_field(
    driver: OvsService, wanted: NetworkService, field: str
) -> None:
    with pytest.raises((Conflict, InvalidSliver)) as refused:
        driver.check(wanted)

    assert refused.value.field == field


def test_a_receivers_port_is_for_nobody_else(driver: OvsService) -> None:
    driver.apply(mirror())

    for wanted in (service(interface("i1", 5, "p4"), sliver="net-3"), mirror(sliver="other")):
        with pytest.raises(Conflict, match="in use"):
            driver.check(wanted)
