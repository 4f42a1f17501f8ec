"""FABNets on real Open vSwitches."""

from typing import Any

import pytest

from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import SliverRef
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.network.conftest import lab
from tests.outcomes import done
from tests.services import outside
from tests.services.gateways import V4, Gateways, fabnet
from tests.services.node import Nodes, bare
from tests.services.outside import Outside


class TestGateways(Gateways):
    pass


class TestOutside(Outside):
    pass


def test_after_a_restart_of_the_daemon_the_gateway_is_restored(
    driver: OvsService, processor: HandlerProcessor, nodes: Nodes
) -> None:
    wanted = fabnet(V4)
    done(processor.create(wanted).result())
    lab("restart", "sw1", "daemon")

    assert any("not connected" in said for said in driver.differences(wanted))
    done(processor.reconcile(SliverRef(id="net-1", type="FABNetv4")).result())

    assert nodes("p1", V4.nodes[0], V4.gateways[0]).reaches(bare(V4.gateways[0]))


class Died(BaseException):
    """As if the process was killed."""


def test_killed_at_any_change_it_is_removed_or_completed(
    driver: OvsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, wanted = 0, fabnet(V4)
    while _dies_at(driver, monkeypatch, at, wanted):
        assert driver.find("net-1") is None
        if at % 2:
            driver.apply(wanted)
            assert driver.differences(wanted) == ()
        driver.remove("net-1")
        assert driver.leftovers("net-1") == ()
        at += 1
    assert at > 5


def _dies_at(
    driver: OvsService, monkeypatch: pytest.MonkeyPatch, at: int, wanted: NetworkService
) -> bool:
    """Apply a service until a number of changes are made; return whether that was not all."""
    left, change = iter(range(at)), Namespaces.change

    def counted(self: Namespaces, netns: str | None, *lines: str) -> None:
        if lines and next(left, None) is None:
            raise Died
        change(self, netns, *lines)

    with monkeypatch.context() as patched:
        patched.setattr(Namespaces, "change", counted)
        try:
            driver.apply(wanted)
        except Died:
            return True
    return False


def test_a_site_without_a_router_refuses_it(site: Site) -> None:
    switches = {name: s.model_copy(update={"routing": None}) for name, s in site.switches.items()}
    driver = OvsService(site.model_copy(update={"switches": switches}), "localhost")

    with pytest.raises(InvalidSliver) as refused:
        driver.check(fabnet(V4))

    assert refused.value.field == "type"


@pytest.mark.parametrize(
    ("settings", "public", "field"),
    [
        ({"outside": None}, (), "type"),
        ({"external": None}, (), "gateway"),
        ({}, ("10.0.0.1",), "public[0]"),
        ({}, ("203.0.113.2", "203.0.113.1"), "public[1]"),
    ],
)
def test_what_leads_nowhere_is_refused(
    site: Site, settings: dict[str, Any], public: tuple[str, ...], field: str
) -> None:
    document = site.model_dump()
    document["switches"]["sw1"]["routing"] |= settings
    driver = OvsService(Site.model_validate(document), "localhost")

    with pytest.raises(InvalidSliver) as refused:
        driver.check(outside.fabnet(outside.V4, *public))

    assert refused.value.field == field
