"""BGP by FRR: its configuration, what of one that is there must go before, and how long it may take."""

import json
from collections.abc import Callable
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, cast

import pytest

from fabric_direct.calls import deadline
from fabric_direct.drivers.gateways.bgp import Speaker, _dropped, _lines, _same, _text
from fabric_direct.drivers.gateways.gateway import Bgp, Neighbor, namespace
from fabric_direct.drivers.gateways.namespaces import NamespaceRoute, Namespaces
from fabric_direct.drivers.gateways.routers import Routers
from fabric_direct.drivers.gateways.routing import NamespaceRouting
from fabric_direct.errors import NotVerified
from fabric_direct.site.config import Site
from tests.services.slivers import interface, service

OURS = Neighbor(ip_address("169.254.0.2"), 65001)
THEIRS = Neighbor(ip_address("10.200.0.2"), 65002, "sesame")
V6 = Neighbor(ip_address("fd00:200::2"), 65003)


def bgp(*neighbors: Neighbor, asn: int = 65001, subnets: tuple[str, ...] = ()) -> Bgp:
    announced = frozenset(map(ip_network, subnets))
    return Bgp(asn, IPv4Address("10.1.2.3"), neighbors, announced, frozenset())


def shown(wanted: Bgp) -> str:
    """Return a configuration as FRR shows it, with blocks that it adds."""
    text = "".join(_text(wanted))
    return f"frr version 8.4.4\n!\n{text}!\nend\n".partition("!\n")[2]


def dropped(there: Bgp, wanted: Bgp) -> list[str]:
    return [line.strip() for line in "".join(_dropped(_lines(shown(there)), wanted)).splitlines()]


@pytest.mark.parametrize("neighbors", [(), (OURS,), (OURS, THEIRS), (V6,)])
def test_what_was_sent_is_the_same(neighbors: tuple[Neighbor, ...]) -> None:
    wanted = bgp(*neighbors, subnets=("10.50.1.0/24", "fd00:50::/64"))

    assert _same(_lines(shown(wanted)), wanted)
    assert not _same(_lines(shown(wanted)), bgp(*neighbors))
    assert not _same(_lines(""), wanted)


def test_a_family_has_the_subnets_and_neighbors_of_its_version_alone() -> None:
    wanted = bgp(OURS, V6, subnets=("10.50.1.0/24", "fd00:50::/64"))

    families = {family for family, line in _lines(shown(wanted)) if "fd00:50::/64" in line}
    assert families == {"address-family ipv6 unicast"}
    assert ("address-family ipv4 unicast", "neighbor 169.254.0.2 activate") in _lines(shown(wanted))


def test_of_a_key_that_a_stamp_does_not_say_only_its_presence_counts() -> None:
    there, stamped = bgp(THEIRS), Neighbor(THEIRS.address, THEIRS.asn, secret=True)

    assert _same(_lines(shown(there)), bgp(stamped))
    assert not _same(_lines(shown(bgp(Neighbor(THEIRS.address, THEIRS.asn)))), bgp(stamped))


def test_only_the_neighbor_that_changes_is_dropped() -> None:
    other = Neighbor(THEIRS.address, THEIRS.asn, "other")

    there = bgp(OURS, THEIRS, subnets=("10.50.1.0/24",))
    said = dropped(there, bgp(OURS, other, subnets=("10.50.2.0/24",)))

    assert "no neighbor 10.200.0.2" in said
    assert "no network 10.50.1.0/24" in said
    assert not any("169.254.0.2" in line for line in said)


def test_nothing_is_dropped_where_all_is_new_or_the_same() -> None:
    for there in (bgp(OURS), bgp(OURS, THEIRS)):
        assert dropped(there, bgp(OURS, THEIRS)) == ["router bgp 65001", "exit"]


def test_another_asn_begins_anew() -> None:
    assert dropped(bgp(OURS), bgp(asn=65009)) == ["no router bgp 65001"]


class Clock:
    """Seconds that pass in pauses alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadline, "time", clock)
    return clock


class Daemons:
    """A namespace whose neighbors are established from a time on, and who answers a connection."""

    def __init__(self, clock: Clock, since: dict[Neighbor, float], *answer: Neighbor) -> None:
        self._clock, self._since = clock, since
        self._answer = {n.address: n in answer for n in since}

    def run(self, *_: str) -> str:
        now = self._clock.now
        states = {
            n: "Established" if since <= now else "Active" for n, since in self._since.items()
        }
        return json.dumps({str(n.address): {"bgpState": state} for n, state in states.items()})

    def neighbors(self, _: str) -> dict[Any, bool]:
        return self._answer


@pytest.fixture
def settle(clock: Clock) -> Callable[..., None]:
    def settle(since: dict[Neighbor, float], *answer: Neighbor) -> None:
        host = cast(Namespaces, Daemons(clock, since, *answer))
        Speaker(host, "netns").settle(bgp(*since))

    return settle


def test_gateways_of_one_service_have_30_s_to_find_each_other(settle: Callable[..., None]) -> None:
    settle({OURS: 29.0}, OURS)
    with pytest.raises(NotVerified, match=r"169\.254\.0\.2 is Active"):
        settle({OURS: 99.0}, OURS)


def test_another_neighbor_that_answers_has_8_s_from_then_on(settle: Callable[..., None]) -> None:
    settle({OURS: 20.0, THEIRS: 27.0}, OURS, THEIRS)
    with pytest.raises(NotVerified, match=r"10\.200\.0\.2 is Active.*compare keys"):
        settle({OURS: 0.0, THEIRS: 60.0}, OURS, THEIRS)


def test_a_neighbor_that_does_not_answer_is_not_waited_for(
    clock: Clock, settle: Callable[..., None]
) -> None:
    settle({THEIRS: 60.0})

    assert clock.now == 0


class Gateway:
    """A device's namespace, which holds its sessions for established in some of the seconds."""

    def __init__(self, clock: Clock, wanted: Bgp, *connected: range) -> None:
        self._clock, self._wanted, self._connected = clock, wanted, connected

    def run(self, *_: str) -> str:
        there = any(int(self._clock.now) in each for each in self._connected)
        state = {"bgpState": "Established" if there else "Idle"}
        return json.dumps({str(neighbor.address): state for neighbor in self._wanted.neighbors})

    def routes(self, *_: Any) -> frozenset[NamespaceRoute]:
        there = "Established" in self.run()
        return frozenset(NamespaceRoute(s, "transit") for s in self._wanted.learned if there)

    def neighbors(self, _: str) -> dict[Any, bool]:
        return {}


def test_a_gateway_that_still_held_its_old_session_is_looked_at_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one began anew; the first learns it after 20 s, and its routes come a while later."""
    routing = {"router": "router", "outside": "border", "external": "203.0.113.1/24"}
    one, two = (
        {
            "ovsdb": "unix:/nowhere",
            "tunnel": f"192.0.2.{n}",
            "routing": routing,
            "ports": {"p1": {}},
        }
        for n in (1, 2)
    )
    site = Site.model_validate(
        {"site": "TEST", "drivers": {"L3VPN": "ovs"}, "switches": {"sw1": one, "sw2": two}}
    )
    ends = (
        interface(f"i{n}", 100, switch=f"sw{n}", gateway={"address": f"10.50.{n}.1/24"})
        for n in (1, 2)
    )
    vpn = service(*ends, kind="L3VPN", asn=65001)
    wanted = {device: namespace(site, vpn, device) for device in ("sw1", "sw2")}
    connected = {"sw1": (range(20), range(24, 99)), "sw2": (range(22, 99),)}
    gateways = {d: Gateway(clock, w.bgp, *connected[d]) for d, w in wanted.items() if w and w.bgp}

    def of(_: Routers, device: str) -> NamespaceRouting:
        return NamespaceRouting(device, cast(Namespaces, gateways[device]), None, bgp=True)

    monkeypatch.setattr(Routers, "_routing", of)
    Routers(site, bgp=True).settle(vpn)

    assert all(gateway.routes() for gateway in gateways.values())
