"""A switch that does not answer: services on others live, and nothing is taken for absent."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_direct.doctor import Verdict
from fabric_direct.doctor.switches import check_switches
from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.errors import InvalidSliver, TimedOut, Unreachable
from fabric_direct.model import Operation, Outcome, SliverRef, Status
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.service_claims import ServiceClaims
from tests.outcomes import done
from tests.services.slivers import interface, service

REF = SliverRef(id="net-1", type="L2Bridge")


@pytest.fixture
def away(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the socket of a database that accepts connections and says nothing."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "silent.sock"))
        listening.listen()
        listening.setblocking(False)
        yield listening


@pytest.fixture
def site(lab_site: Site, away: socket.socket) -> Site:
    """Return the lab's site with a switch that says nothing, one that is off, and one of NSO."""
    values = {
        "silent": {"ovsdb": f"unix:{away.getsockname()}", "ports": {"p1": {}}},
        "off": {"ovsdb": "tcp:127.0.0.1:1", "ports": {"p1": {}}},
        "router": {"driver": "nso", "ports": {"p1": {}}},
    }
    document = lab_site.model_dump()
    document["switches"] |= values
    document["limits"] |= {"search": 2, "call": 8}  # the switches of the lab answer within that
    return Site.model_validate(document)


@pytest.fixture
def wanted() -> NetworkService:
    return service(interface("i1", 100, bandwidth=10), interface("i2", 200, "p2"))


def was_asked(listening: socket.socket) -> bool:
    """Return whether anybody has connected since the last time."""
    asked = False
    while True:
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return asked
        asked = True


def named(outcome: Outcome) -> set[str]:
    return {name for name in ("silent", "off", "router") for w in outcome.warnings if name in w}


def test_a_service_lives_while_switches_are_away_that_have_nothing_of_it(
    processor: HandlerProcessor, wanted: NetworkService, away: socket.socket
) -> None:
    created = done(processor.create(wanted).result())
    assert named(created) == {"silent", "off"}
    assert was_asked(away)

    changed = wanted.model_copy(update={"interfaces": wanted.interfaces[:1]})
    for outcome in (
        processor.modify(changed),
        processor.probe(REF),
        processor.probe(changed),
        processor.reconcile(REF),
        processor.delete(REF),
    ):
        assert done(outcome.result()).warnings == ()
    assert not was_asked(away)


def test_what_is_left_without_claims_is_removed_and_what_was_not_seen_is_named(
    processor: HandlerProcessor, driver: OvsService, site: Site, wanted: NetworkService
) -> None:
    driver.apply(wanted)

    assert named(done(processor.probe(REF).result())) == {"silent", "off"}
    assert named(done(processor.delete(REF).result())) == {"silent", "off"}

    with pytest.raises(Unreachable):
        driver.leftovers("net-1")


@pytest.mark.parametrize("operation", [Operation.PROBE, Operation.RECONCILE, Operation.DELETE])
def test_what_nothing_is_known_of_is_not_said_to_be_absent(
    processor: HandlerProcessor, operation: Operation
) -> None:
    outcome = getattr(processor, operation)(REF).result()

    assert outcome.status is Status.FAILED
    assert "the database of" in str(outcome.error)
    unknown = ["unknown: the database of"] if operation is Operation.DELETE else []
    assert [left[:24] for left in outcome.left] == unknown


def test_a_switch_that_the_service_names_must_answer(
    processor: HandlerProcessor, wanted: NetworkService, site: Site
) -> None:
    there = service(interface("i1", 100, switch="silent"))

    outcome = processor.create(there).result()

    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    assert ServiceClaims(site).of("net-1") == ()


def test_a_switch_of_another_driver_is_not_asked_and_refused(driver: OvsService) -> None:
    with pytest.raises(InvalidSliver, match="'router' of driver ovs") as refused:
        driver.check(service(interface("i1", 100, switch="router")))

    assert refused.value.field == "interfaces[0].device"


def test_a_list_of_all_services_needs_all_switches(driver: OvsService) -> None:
    with pytest.raises((Unreachable, TimedOut)):  # of which switch first
        driver.stamped()


def test_a_plan_names_them_too(processor: HandlerProcessor, wanted: NetworkService) -> None:
    assert named(done(processor.plan(wanted).result())) == {"silent", "off"}


def test_the_doctor_names_them_and_finds_in_the_others_what_services_need(site: Site) -> None:
    """Also meters of the bridge that the lab's tunnels use, and the programs of routed services."""
    verdicts = {found.subject: (found.verdict, found.found) for found in check_switches(site)}

    for well in ("switch sw1", "switch sw2"):
        verdict, said = verdicts.pop(well)
        assert (verdict, said[:28]) == (Verdict.OK, "ovs-vswitchd (Open vSwitch) ")
    assert {subject: verdict for subject, (verdict, _) in verdicts.items()} == {
        "switch silent": Verdict.FAIL,
        "switch off": Verdict.FAIL,
    }
    assert all("did not answer" in said for _, said in verdicts.values())
