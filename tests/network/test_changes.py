"""Services that are changed, broken and removed on real switches."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.errors import DriverError, InvalidSliver, NotOurs
from fabric_direct.model import SliverRef, State, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.network.conftest import LAB, lab, vsctl
from tests.network.meters import dropped, limits
from tests.network.wire import PATIENCE, Wire, apart, cross, flood
from tests.outcomes import done
from tests.services.slivers import interface, limited, service

At = Callable[..., Wire]
VLANS = (100, 200)


@contextmanager
def nothing_lost(one: Wire, other: Wire) -> Iterator[None]:
    """See that each of a hundred small frames a second arrives while the block runs."""
    over, sent = threading.Event(), []

    def send() -> None:
        while not over.wait(0.01):
            sent.append(f"ping {len(sent)}".encode())
            one.send(sent[-1], VLANS[0])

    other.received()
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    missing = set(sent)
    assert missing
    for vlan, content in other.frames(PATIENCE):
        if vlan == VLANS[1]:
            missing.discard(content)
        if not missing:
            return
    assert not missing


def test_a_rate_is_enforced_in_both_directions_and_changed_without_a_loss(
    driver: OvsService, at: At
) -> None:
    one, other = at("p1"), at("p2")
    driver.apply(limited(20))
    assert driver.differences(limited(20)) == ()
    assert limits(one, other, VLANS, 20)
    assert limits(other, one, VLANS[::-1], 20)

    with nothing_lost(one, other):
        driver.apply(limited(8))

    assert driver.differences(limited(20)) != ()
    assert limits(one, other, VLANS, 8)
    with nothing_lost(one, other):
        driver.apply(limited(None))
    assert driver.differences(limited(None)) == ()
    before = dropped()
    flood(one, other, VLANS, 30)
    assert dropped() == before == 0


def test_interfaces_come_and_go_without_disturbing_the_others(driver: OvsService, at: At) -> None:
    driver.apply(limited(20))
    with nothing_lost(at("p1"), at("p2")):
        driver.apply(limited(20, interface("i3", 300, "p3")))
    assert cross(at("p1"), at("p3"), (100, 300))

    with nothing_lost(at("p1"), at("p2")):
        driver.apply(limited(20))

    assert apart(at("p1"), at("p3"), (100, 300))


def test_after_a_restart_of_the_daemon_what_it_forgot_is_named_and_restored(
    processor: HandlerProcessor, driver: OvsService, at: At
) -> None:
    wanted = limited(8)
    done(processor.create(wanted).result())

    lab("restart", "sw1", "daemon")

    assert any("not in force" in said for said in driver.differences(wanted))
    assert cross(at("p1"), at("p2"), VLANS)
    done(processor.reconcile(SliverRef(id="net-1", type="L2Bridge")).result())
    assert driver.differences(wanted) == ()


def test_what_others_made_is_left_alone(driver: OvsService) -> None:
    vsctl("sw1", "add-br", "theirs", "--", "set", "Bridge", "theirs", "datapath_type=netdev")
    vsctl("sw1", "add-port", "theirs", "p1")
    try:
        with pytest.raises(NotOurs):
            driver.apply(limited(None))
        assert driver.leftovers("net-1") == ()
        driver.apply(service(interface("i1", 100, "p2")))
        driver.remove("net-1")
        assert vsctl("sw1", "list-ports", "theirs").split() == ["p1"]
    finally:
        vsctl("sw1", "del-br", "theirs")


def test_a_port_keeps_its_bridge_until_its_last_service_goes(driver: OvsService, at: At) -> None:
    driver.apply(limited(None))
    driver.apply(service(interface("i1", 101), sliver="net-2"))

    driver.remove("net-2")
    assert cross(at("p1"), at("p2"), VLANS)

    driver.remove("net-1")
    driver.remove("net-1")
    assert driver.find("net-1") is None
    assert driver.leftovers("net-1") == ()


def test_without_a_database_a_delete_fails_and_says_so(
    processor: HandlerProcessor, driver: OvsService
) -> None:
    done(processor.create(limited(8)).result())
    pid = int(lab("pid", "sw1", "database"))
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    try:
        outcome = processor.delete(SliverRef(id="net-1", type="L2Bridge")).result()
    finally:
        lab("restart", "sw1", "database")

    assert outcome.status is Status.FAILED
    assert "sw1" in str(outcome.error)
    (unknown,) = outcome.left
    assert unknown.startswith("unknown: the database of sw1 did not answer")
    done(processor.delete(SliverRef(id="net-1", type="L2Bridge")).result())
    assert driver.leftovers("net-1") == ()


@pytest.mark.parametrize("last", ["database", "enforce"])
def test_what_was_begun_is_found_and_removed(
    driver: OvsService, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """As after a kill: the second switch was not asked, or no limit was set."""
    ends = interface("i1", 100, bandwidth=5), interface("i2", 100, switch="sw2", bandwidth=5)
    wanted = service(*ends, kind="L2STS")

    def dies(*_: object) -> None:
        raise DriverError("died")

    change = OvsService._change
    with monkeypatch.context() as patched:
        if last == "enforce":
            patched.setattr("fabric_direct.drivers.ovs.switch.OvsSwitch.enforce", dies)
        else:
            patched.setattr(
                OvsService, "_change", lambda s, d, *a: dies() if d == "sw2" else change(s, d, *a)
            )
        with pytest.raises(DriverError):
            driver.apply(wanted)

    assert driver.find("net-1") is None
    assert driver.leftovers("net-1") != ()
    driver.remove("net-1")
    assert driver.leftovers("net-1") == ()


@pytest.mark.parametrize(
    ("values", "field"),
    [({"inner_vlan": 5}, "interfaces[0].inner_vlan"), ({"mtu": 9000}, "interfaces[0].mtu")],
)
def test_what_it_cannot_serve_is_refused_by_its_field(
    driver: OvsService, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        driver.check(service(interface("i1", 100, **values)))

    assert refused.value.field == field


def test_a_limit_where_no_bridge_is_yet_is_missing(driver: OvsService) -> None:
    driver.apply(service(interface("i1", 100)))

    assert driver.differences(service(interface("i1", 100), interface("i2", 7, "p2", bandwidth=5)))


def test_the_whole_life(processor: HandlerProcessor, driver: OvsService, at: At) -> None:
    ref = SliverRef(id="net-1", type="L2Bridge")
    done(processor.create(limited(20)).result())
    done(processor.modify(limited(10, interface("i3", 7, "p3"))).result())

    probed = done(processor.probe(ref).result()).observed
    assert probed
    assert (probed.state, probed.differences) == (State.RUNNING, ())
    assert [i.bandwidth for i in probed.interfaces] == [10, None, None]
    assert cross(at("p1"), at("p3"), (100, 7))
    done(processor.delete(ref).result())
    assert driver.leftovers("net-1") == ()


def test_the_whole_life_by_the_command_line(site: Site, tmp_path: Any, driver: OvsService) -> None:
    paths = tmp_path / "site.yaml", tmp_path / "net.yaml"
    for path, model in zip(paths, (site, limited(20)), strict=True):
        path.write_text(model.model_dump_json(exclude_defaults=path.name == "site.yaml"))

    for command in ("create", "probe", "delete"):
        result = CliRunner().invoke(main, ["--site", str(paths[0]), command, str(paths[1])])
        assert result.exit_code == 0, result.output
    assert driver.leftovers("net-1") == ()


def test_the_examples_live(driver: OvsService, tmp_path: Any) -> None:
    examples = LAB.parents[2] / "examples/network"
    here = tmp_path / "site.yaml"
    document = (examples / "site.yaml").read_text().replace("DEMO", "OVSTEST")
    here.write_text(document.replace("/var/lib/fabric-direct/state-network", str(tmp_path)))

    for command, name in product(
        ("create", "probe", "delete"), ("net.yaml", "fabnet.yaml", "public.yaml")
    ):
        given = ["--site", str(here), command, str(examples / name)]
        result = CliRunner().invoke(main, given)
        assert result.exit_code == 0, result.output
