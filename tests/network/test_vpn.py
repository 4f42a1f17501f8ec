"""L3VPNs on real switches, with FRR: routes between devices, and with another autonomous system."""

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fabric_direct.drivers.gateways import bgp
from fabric_direct.drivers.gateways.bgp import Speaker
from fabric_direct.drivers.gateways.gateway import namespace_name
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.errors import DriverError, InvalidSliver
from fabric_direct.model import SliverRef, Status
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.network import foreign
from tests.network.conftest import LAB, ip, vsctl
from tests.network.foreign import Foreign
from tests.network.test_interruptions import killed
from tests.outcomes import done
from tests.services.node import Nodes, bare
from tests.services.slivers import interface, service

ASN, KEY = 65001, "sesame"
REF = SliverRef(id="net-1", type="L3VPN")


class Plan(NamedTuple):
    """A subnet on each switch, with who is in it; and who else speaks BGP."""

    gateways: tuple[str, str]
    nodes: tuple[str, str]
    far: foreign.Plan


V4 = Plan(
    ("10.50.1.1/24", "10.50.2.1/24"),
    ("10.50.1.2/24", "10.50.2.2/24"),
    foreign.Plan(4, "10.200.0.2/30", "10.200.0.1/30", "10.66.0.0/24", "10.66.0.1/24"),
)
V6 = Plan(
    ("fd00:50:1::1/64", "fd00:50:2::1/64"),
    ("fd00:50:1::2/64", "fd00:50:2::2/64"),
    foreign.Plan(6, "fd00:200::2/64", "fd00:200::1/64", "fd00:66::/64", "fd00:66::1/64"),
)
GATEWAYS, NODES, FAR = V4
FAR_ADDRESS, INSIDE = bare(FAR.address), bare(FAR.inside)


def vpn(
    key: str | None = KEY,
    *,
    peer: bool = True,
    third: dict[str, Any] | None = None,
    plan: Plan = V4,
    **values: Any,
) -> NetworkService:
    """Return a VPN with a gateway on each switch; ``third`` is one more interface on the first."""
    ends = [
        interface("one", "untagged", "p1", gateway={"address": plan.gateways[0]}),
        interface("two", "untagged", "p2", "sw2", gateway={"address": plan.gateways[1]}),
    ]
    neighbor = {"local": plan.far.neighbor, "address": bare(plan.far.address)}
    neighbor |= {"asn": foreign.ASN, "key": key}
    if peer:
        ends.append(interface("far", "untagged", "p4", "sw2", peer={**neighbor, **values}))
    if third is not None:
        ends.append(
            interface("third", 300, "p3", **{"gateway": {"address": "10.50.3.1/24"}, **third})
        )
    return service(*ends, kind="L3VPN", asn=ASN)


@pytest.fixture
def site(lab_site: Site) -> Site:
    """Return the site, where a daemon that does not answer is not waited for long."""
    limits = lab_site.limits.model_copy(update={"call": 6.0})
    return lab_site.model_copy(update={"limits": limits})


@pytest.fixture
def world(tmp_path: Path, switches: None) -> Iterator[Callable[[], Foreign]]:
    made: list[Foreign] = []

    def world(plan: Plan = V4) -> Foreign:
        made.append(Foreign(plan.far, ASN, KEY, tmp_path))
        return made[-1]

    yield world
    for each in made:
        each.end()


@pytest.fixture
def space(site: Site) -> str:
    """Return the namespace of the VPN on the switch with the peer."""
    return namespace_name(site, "net-1", "sw2")


@pytest.fixture(autouse=True)
def no_daemon_left(nothing_left: None, driver: OvsService) -> Iterator[None]:
    """See that a test leaves no daemon of a service, and no directory of one."""
    yield
    driver.remove("net-1")
    assert _directories() == []
    assert [argv for argv in map(_argv, Path("/proc").glob("[0-9]*")) if "/run/fdn-" in argv] == []


def _directories() -> list[str]:
    return [str(path) for path in Path("/run").glob("fdn-*")]


def _argv(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def _probed(processor: HandlerProcessor) -> tuple[str, ...]:
    observed = done(processor.probe(REF).result()).observed
    assert observed
    return observed.differences


@pytest.mark.parametrize("plan", [V4, V6], ids=["IPv4", "IPv6"])
def test_devices_and_another_system_exchange_routes(
    driver: OvsService, nodes: Nodes, world: Callable[..., Foreign], plan: Plan
) -> None:
    far, wanted, without = world(plan), vpn(plan=plan), vpn(plan=plan, peer=False)
    driver.check(wanted)
    driver.apply(wanted)
    one = nodes("p1", plan.nodes[0], plan.gateways[0])
    two = nodes("p2", plan.nodes[1], plan.gateways[1], "sw2")

    assert driver.differences(wanted) == ()
    assert one.reaches(bare(plan.nodes[1]))
    assert far.learns(str(ip_interface(plan.gateways[0]).network))
    for node in (one, two):
        assert node.reaches(bare(plan.far.inside))
    driver.apply(without)
    assert driver.differences(without) == ()
    assert one.reaches(bare(plan.nodes[1]))
    assert not one.reaches(bare(plan.far.inside), within=1)


def test_vpns_with_the_same_subnets_are_apart(driver: OvsService, nodes: Nodes) -> None:
    ends = [
        interface(f"i{n}", "untagged", "p3", f"sw{n}", gateway={"address": GATEWAYS[n - 1]})
        for n in (1, 2)
    ]
    driver.apply(vpn(peer=False))
    driver.apply(service(*ends, sliver="net-2", kind="L3VPN", asn=ASN))
    one, other = nodes("p1", NODES[0], GATEWAYS[0]), nodes("p3", NODES[0], GATEWAYS[0])

    nodes("p2", NODES[1], GATEWAYS[1], "sw2")
    assert one.reaches(bare(NODES[1]))
    assert not other.reaches(bare(NODES[1]), within=1)
    nodes("p3", NODES[1], GATEWAYS[1], "sw2")
    assert other.reaches(bare(NODES[1]))
    driver.remove("net-2")
    assert one.reaches(bare(NODES[1]))


def test_what_changes_does_not_disturb_the_rest(
    driver: OvsService, nodes: Nodes, world: Callable[[], Foreign], space: str
) -> None:
    world()
    driver.apply(vpn(peer=False))
    before = _links(space)
    one = nodes("p1", NODES[0], GATEWAYS[0])
    two = nodes("p2", NODES[1], GATEWAYS[1], "sw2")
    assert one.reaches(bare(NODES[1]))
    other = {"gateway": {"address": "10.50.4.1/24"}}
    changes = [vpn(peer=False, third={"bandwidth": 20}), vpn(peer=False, third={"bandwidth": 8})]
    changes += [vpn(third={}), vpn(third=other), vpn(peer=False, third=other), vpn()]

    with one.loses_nothing(bare(NODES[1])), two.loses_nothing(bare(NODES[0])):
        for change in changes:
            driver.apply(change)
            assert driver.differences(change) == ()
    assert before.items() <= _links(space).items()
    assert one.reaches(INSIDE)
    with one.loses_nothing(INSIDE):
        driver.apply(vpn(third={"bandwidth": 8}))


def _links(space: str) -> dict[str, int]:
    """Return the numbers of the links in a namespace, which those that are made anew have not."""
    return {link["ifname"]: link["ifindex"] for link in json.loads(ip("-n", space, "-j", "link"))}


def test_a_wrong_key_is_told_and_the_creation_fails(
    processor: HandlerProcessor, driver: OvsService, world: Callable[[], Foreign]
) -> None:
    world()

    outcome = processor.create(vpn("wrong")).result()

    assert outcome.status is Status.FAILED
    assert f"BGP with {FAR_ADDRESS} is" in str(outcome.error)
    assert "wrong" not in str(outcome)
    assert driver.leftovers("net-1") == ()


def test_a_neighbor_that_does_not_answer_is_named_and_no_failure(
    processor: HandlerProcessor, driver: OvsService
) -> None:
    outcome = done(processor.create(vpn()).result())

    assert any(f"BGP with {FAR_ADDRESS} is" in said for said in outcome.warnings)
    found = driver.find("net-1")
    assert found
    assert found.stamp
    assert driver.differences(found.stamp) == ()
    assert any("configured otherwise" in each for each in driver.differences(vpn("other")))
    assert any("configured otherwise" in each for each in driver.differences(vpn(None)))
    done(processor.delete(REF).result())
    assert driver.leftovers("net-1") == ()
    assert _directories() == []


def test_a_key_is_in_no_file_row_log_or_list_of_processes(
    processor: HandlerProcessor,
    world: Callable[[], Foreign],
    site: Site,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argvs, run = [], Namespaces._run

    def recorded(self: Namespaces, argv: tuple[str, ...], *more: Any) -> str:
        argvs.append(" ".join(argv))
        return run(self, argv, *more)

    monkeypatch.setattr(Namespaces, "_run", recorded)
    world()
    with caplog.at_level(logging.DEBUG):
        outcome = done(processor.create(vpn()).result())

    said = [*argvs, str(outcome), caplog.text, *map(_argv, Path("/proc").glob("[0-9]*"))]
    said += (vsctl("sw2", "list", table) for table in ("Bridge", "Port", "Interface"))
    assert [each for each in said if KEY in each] == []
    files = "/etc/frr", "/var/log", str(site.state_dir), *_directories()
    found = subprocess.run(["grep", "-rslaF", "--devices=skip", KEY, *files], check=False)
    assert found.returncode == 1


def test_a_refused_configuration_is_told_without_its_key(
    driver: OvsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f"router bgp {ASN}\n neighbor 10.200.0.9 password {KEY}\n"
    monkeypatch.setattr(bgp, "_text", lambda _: iter([lines]))

    with pytest.raises(DriverError, match=r"password \*\*\*") as refused:
        driver.apply(vpn())

    assert KEY not in str(refused.value)


@pytest.mark.parametrize("name", ["zebra", "bgpd"])
def test_a_daemon_that_ended_is_named_and_comes_back_with_the_file(
    processor: HandlerProcessor, nodes: Nodes, world: Callable[[], Foreign], space: str, name: str
) -> None:
    world()
    done(processor.create(vpn()).result())
    one = nodes("p1", NODES[0], GATEWAYS[0])
    assert one.reaches(INSIDE)
    os.kill(_pid(space, name), signal.SIGKILL)

    assert any("does not run" in said for said in _probed(processor))
    done(processor.modify(vpn()).result())
    assert _probed(processor) == ()
    assert one.reaches(INSIDE)


def _pid(space: str, name: str) -> int:
    return int(Path(f"/run/{space}/{name}.pid").read_text())


def test_what_others_do_is_named_and_taken_back_by_the_stamp(
    processor: HandlerProcessor, nodes: Nodes, space: str
) -> None:
    done(processor.create(vpn(peer=False)).result())
    one = nodes("p1", NODES[0], GATEWAYS[0])
    nodes("p2", NODES[1], GATEWAYS[1], "sw2")
    theirs = ("conf t", f"router bgp {ASN}", "neighbor 10.200.0.9 remote-as 65009")
    commands = (word for line in theirs for word in ("-c", line))
    changes = {
        "configured otherwise": ("vtysh", "--vty_socket", f"/run/{space}", *commands),
        "does not run": ("kill", "-STOP", f"{_pid(space, 'bgpd')}"),
        "not connected": (LAB, "restart", "sw2", "daemon"),
        "is missing": ("ip", "netns", "delete", space),
    }
    for said, change in changes.items():
        subprocess.run(change, check=True)
        assert any(said in each for each in _probed(processor)), said
        done(processor.reconcile(REF).result())
        assert _probed(processor) == ()
        assert one.reaches(bare(NODES[1]))


def test_daemons_that_outlive_their_namespace_are_left_and_go_with_the_service(
    processor: HandlerProcessor, driver: OvsService, space: str
) -> None:
    done(processor.create(vpn(peer=False)).result())
    ip("netns", "delete", space)

    assert f"BGP of {space} on sw2" in driver.leftovers("net-1")
    done(processor.delete(REF).result())


def alone(subnet: str, bandwidth: int) -> NetworkService:
    """Return a VPN on one device."""
    end = interface("i1", 100, bandwidth=bandwidth, gateway={"address": subnet})
    return service(end, kind="L3VPN", asn=ASN)


def test_killed_between_any_two_changes_each_operation_is_continued(
    processor: HandlerProcessor, driver: OvsService, site: Site, tmp_path: Path
) -> None:
    first, second = alone(GATEWAYS[1], 20), alone("10.50.3.1/24", 10)
    for number in killed(site, tmp_path, first, "create"):
        if number % 2:
            done(processor.create(first).result())
            assert driver.differences(first) == ()
        done(processor.delete(REF).result())
        assert driver.leftovers("net-1") == ()
    for _ in killed(site, tmp_path, second, "modify"):
        done(processor.modify(second).result())
        assert driver.differences(second) == ()
        done(processor.modify(first).result())
    for _ in killed(site, tmp_path, second, "delete"):
        done(processor.delete(REF).result())
        assert driver.leftovers("net-1") == ()
        done(processor.create(second).result())
    assert driver.leftovers("net-1") == ()


def test_killed_before_it_is_configured_nothing_is_left(
    driver: OvsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise DriverError("died")

    with monkeypatch.context() as patched:
        patched.setattr(Speaker, "_configure", dies)
        with pytest.raises(DriverError):
            driver.apply(vpn())

    assert driver.find("net-1") is None
    driver.remove("net-1")
    assert driver.leftovers("net-1") == ()


@pytest.mark.parametrize(("values", "field"), [({"cloud": "AWS"}, "cloud"), ({"asn": ASN}, "asn")])
def test_what_no_peer_can_be_is_refused(
    driver: OvsService, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        driver.check(vpn(**values))

    assert refused.value.field == f"interfaces[2].peer.{field}"


def test_a_host_without_frr_refuses_it(driver: OvsService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bgp, "NEEDED", ("/nowhere/bgpd",))

    with pytest.raises(InvalidSliver) as refused:
        driver.check(vpn())

    assert (refused.value.field, refused.value.remedy) == ("type", "install frr")


def test_a_switch_without_routing_refuses_it(site: Site) -> None:
    switches = {name: s.model_copy(update={"routing": None}) for name, s in site.switches.items()}
    driver = OvsService(site.model_copy(update={"switches": switches}), "localhost")

    with pytest.raises(InvalidSliver) as refused:
        driver.check(vpn())

    assert refused.value.field == "type"
