"""The life of network services on the fake drivers: claims, what is done in place, what fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabric_direct.calls.read_cache import current
from fabric_direct.cli import main
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.fake.service import FakeService
from fabric_direct.model import Finding, Operation, Outcome, SliverRef, State, Status, StepStatus
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.service_claims import ServiceClaims
from tests.outcomes import done
from tests.unit.faults import at_each_call

PORTS = {"p1": {"vlans": ["100-102"]}, "p2": {"vlans": ["100-199"], "untagged": False}}
SWITCHES = {"sw1": {"ports": PORTS}, "sw2": {"ports": {"p1": {}}}}
POOLS = {"FABNetv4": {"block": "10.128.0.0/22", "prefix": 24}}


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | dict.fromkeys(SERVICES, "fake"),
        "switches": SWITCHES,
        "services": {"subnets": POOLS},
    }
    return Site.model_validate(values)


@pytest.fixture
def claims(site: Site) -> ServiceClaims:
    return ServiceClaims(site)


def held(claims: ServiceClaims, sliver: str = "net-1") -> list[str]:
    return [str(claim) for claim in claims.of(sliver)]


def port(name: str, vlan: Any = "auto", where: str = "p1", **more: Any) -> dict[str, Any]:
    return {"id": name, "device": "sw1", "port": where, "vlan": vlan, **more}


def bridge(*interfaces: dict[str, Any], sliver: str = "net-1") -> NetworkService:
    values = {"id": sliver, "name": "net", "interfaces": interfaces or [port("i1")]}
    return SERVICES["L2Bridge"].model_validate(values)


def fabnet(*interfaces: dict[str, Any], sliver: str = "net-1", **values: Any) -> NetworkService:
    document = {"id": sliver, "name": "net", "interfaces": interfaces or [port("i1")], **values}
    return SERVICES["FABNetv4"].model_validate(document)


def vpn(vlan: int) -> NetworkService:
    peer = {"local": "10.0.0.1/30", "address": "10.0.0.2", "asn": 65001, "key": "sesame"}
    interfaces = [port("i1", vlan, peer=peer)]
    values = {"id": "net-1", "name": "net", "asn": 65000, "interfaces": interfaces}
    return SERVICES["L3VPN"].model_validate(values)


def vlans(outcome: Outcome) -> list[int | None]:
    assert outcome.observed
    return [interface.vlan for interface in outcome.observed.interfaces]


class TestCreate:
    def test_takes_the_first_free_vlan_of_a_port_and_keeps_it(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        first = done(processor.create(bridge()).result())
        other = done(processor.create(bridge(sliver="net-2")).result())
        again = done(processor.create(bridge()).result())

        assert (vlans(first), vlans(other), vlans(again)) == ([100], [101], [100])
        assert held(claims) == ["VLAN 100 on p1 of sw1"]

    def test_claims_before_anything_is_made(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())

        outcome = processor.create(bridge(port("i1", 100), sliver="net-2")).result()

        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == ("Conflict", "interfaces[0].vlan")
        assert "in use by sliver net-1" in outcome.error.message
        assert list(fakes.services) == ["net-1"]

    def test_refuses_a_vlan_outside_of_the_range_as_such(self, processor: HandlerProcessor) -> None:
        outcome = processor.create(bridge(port("i1", 500))).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert "outside of the range of p1 of sw1: its range is 100-102" in outcome.error.message

    @pytest.mark.parametrize(
        ("interface", "field"),
        [
            (port("i1", device="sw9"), "interfaces[0].vlan"),
            (port("i1", 5, device="sw9"), "interfaces[0].device"),
            (port("i1", 100, where="p9"), "interfaces[0].port"),
            (port("i1", "untagged", where="p2"), "interfaces[0].vlan"),
        ],
    )
    def test_refuses_what_the_site_does_not_have(
        self, processor: HandlerProcessor, interface: dict[str, Any], field: str
    ) -> None:
        outcome = processor.create(bridge(interface)).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == field

    def test_says_when_all_vlans_are_in_use(self, processor: HandlerProcessor) -> None:
        wanted = bridge(port("i1"), port("i2"), port("i3"))
        assert vlans(done(processor.create(wanted).result())) == [100, 101, 102]

        outcome = processor.create(bridge(sliver="net-2")).result()

        assert outcome.error
        assert outcome.error.kind == "PoolExhausted"

    def test_an_inner_vlan_clashes_with_the_whole_outer_one_alone(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(bridge(port("i1", 100, inner_vlan=5))).result())
        done(processor.create(bridge(port("i1", 100, inner_vlan=6), sliver="net-2")).result())

        whole = processor.create(bridge(port("i1", 100), sliver="net-3")).result()
        same = processor.create(bridge(port("i1", 100, inner_vlan=6), sliver="net-4")).result()

        assert [o.error and o.error.kind for o in (whole, same)] == ["Conflict", "Conflict"]

    def test_gives_a_subnet_a_gateway_and_addresses(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        outcome = done(processor.create(fabnet(port("i1"), port("i2"))).result())
        other = done(
            processor.create(fabnet(sliver="net-2", interfaces=[port("i1", 102)])).result()
        )

        assert outcome.observed
        assert other.observed
        assert outcome.observed.gateway
        assert other.observed.gateway
        assert outcome.observed.gateway.address == "10.128.0.1/24"
        assert other.observed.gateway.address == "10.128.1.1/24"
        assert {"address 10.128.0.2", "address 10.128.0.3", "subnet 10.128.0.0/24"} < {
            *held(claims)
        }

    @pytest.mark.parametrize(
        ("address", "why"),
        [("192.168.5.5/24", "is not in 10.128.0.0/24"), ("10.128.0.1/24", "is the gateway's")],
    )
    def test_refuses_an_address_that_does_not_fit_the_subnet_that_is_chosen(
        self, processor: HandlerProcessor, claims: ServiceClaims, address: str, why: str
    ) -> None:
        wanted = fabnet(port("i1"), port("i2", 101, address=address))

        outcome = processor.create(wanted).result()

        assert outcome.error
        assert outcome.error.field == "interfaces[1].address"
        assert why in outcome.error.message
        assert held(claims) == []

    @pytest.mark.parametrize(
        ("gateway", "interfaces", "room"),
        [
            ("10.0.0.1/32", 1, "1 hosts, not for the gateway and 1 interfaces"),
            ("10.0.0.1/31", 2, "2 hosts, not for the gateway and 2 interfaces"),
            ("10.0.0.1/30", 2, "2 hosts, not for the gateway and 2 interfaces"),
        ],
    )
    def test_refuses_a_subnet_without_room_for_all_interfaces(
        self,
        processor: HandlerProcessor,
        claims: ServiceClaims,
        gateway: str,
        interfaces: int,
        room: str,
    ) -> None:
        ports = [port(f"i{number}") for number in range(interfaces)]

        outcome = processor.create(fabnet(*ports, gateway={"address": gateway})).result()

        assert outcome.error
        assert (outcome.status, outcome.error.field) == (Status.REFUSED, "gateway.address")
        assert room in outcome.error.message
        assert held(claims) == []

    @pytest.mark.parametrize(
        ("kind", "gateway"),
        [("FABNetv4", "10.0.0.1/31"), ("FABNetv4", "10.0.0.1/30"), ("FABNetv6", "fd00::1/127")],
    )
    def test_fills_a_subnet_that_has_just_room_enough(
        self, processor: HandlerProcessor, kind: str, gateway: str
    ) -> None:
        values = {"id": "net-1", "name": "net", "interfaces": [port("i1")]}
        wanted = SERVICES[kind].model_validate(values | {"gateway": {"address": gateway}})

        done(processor.create(wanted).result())

    def test_gives_the_address_of_an_interface_that_goes_to_one_that_comes(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        gateway = {"address": "10.0.0.1/30"}
        done(processor.create(fabnet(port("i1"), gateway=gateway)).result())

        done(processor.modify(fabnet(port("i2"), gateway=gateway)).result())

        assert [c.part for c in claims.of("net-1") if c.key == "10.0.0.2"] == ["i2"]

    def test_refuses_a_mirror_of_a_port_that_the_site_does_not_have(
        self, processor: HandlerProcessor
    ) -> None:
        values = {"id": "net-1", "name": "net", "interfaces": [port("i1", "untagged")]}
        mirror = SERVICES["PortMirror"].model_validate(values | {"mirror": {"port": "p9"}})

        outcome = processor.create(mirror).result()

        assert outcome.error
        assert (outcome.status, outcome.error.field) == (Status.REFUSED, "mirror.port")

    def test_refuses_a_subnet_that_overlaps_with_a_held_one(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(fabnet()).result())

        wide = fabnet(port("i1", 102), sliver="net-2", gateway={"address": "10.128.0.1/16"})
        outcome = processor.create(wide).result()

        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == ("Conflict", "gateway.address")

    def test_external_services_share_a_subnet_but_no_public_address(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        def external(sliver: str, vlan: int, *public: str) -> NetworkService:
            values = {"gateway": {"address": "192.0.2.1/24"}, "public": public}
            ends = {"id": sliver, "name": "net", "interfaces": [port("i1", vlan)]}
            return SERVICES["FABNetv4Ext"].model_validate(values | ends)

        done(processor.create(external("net-1", 100, "192.0.2.7")).result())
        done(processor.create(external("net-2", 101, "192.0.2.8")).result())
        outcome = processor.create(external("net-3", 102, "192.0.2.7")).result()

        assert held(claims) == ["VLAN 100 on p1 of sw1", "address 192.0.2.7"]
        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == ("Conflict", "public")

    def test_a_public_address_of_an_interface_is_claimed_once(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        values = {"gateway": {"address": "192.0.2.1/24"}, "public": ["192.0.2.7"]}
        ends = [port("i1", 100, address="192.0.2.7/24")]
        named = {"id": "net-1", "name": "net", "interfaces": ends}

        done(processor.create(SERVICES["FABNetv4Ext"].model_validate(values | named)).result())

        assert held(claims) == ["VLAN 100 on p1 of sw1", "address 192.0.2.7"]

    @at_each_call({"service.find": (1, 2, 3), "service.apply": (1,), "service.differences": (1,)})
    def test_leaves_nothing_when_a_call_fails(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        claims: ServiceClaims,
        method: str,
        at: int,
    ) -> None:
        fakes.fault(method, at=at, kind="fail")

        outcome = processor.create(bridge()).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert (fakes.services, held(claims)) == ({}, [])

    def test_keeps_the_claims_of_what_it_cannot_take_back(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        fakes.fault("service.apply", kind="after")
        fakes.fault("service.remove", at=0, kind="fail")

        outcome = processor.create(bridge(port("a", 100))).result()

        assert set(outcome.left) == {"net", "VLAN 100 on p1 of sw1"}
        assert held(claims) == ["VLAN 100 on p1 of sw1"]

    def test_says_how_what_the_driver_made_differs(
        self, processor: HandlerProcessor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = ("interface a has VLAN 7, not 100", "nothing answers at the gateway")
        monkeypatch.setattr(FakeService, "differences", lambda _self, _sliver: said)

        outcome = processor.create(bridge(port("a", 100))).result()

        assert outcome.error is not None
        assert outcome.error.kind == "NotVerified"
        assert f"is not so when read back: {'; '.join(said)}" in outcome.error.message

    def test_keeps_the_claims_of_what_only_says_that_it_is_removed(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        fakes.fault("service.apply", kind="after")
        fakes.fault("service.remove", at=0, kind="lie")

        outcome = processor.create(bridge(port("a", 100))).result()

        assert set(outcome.left) == {"net", "VLAN 100 on p1 of sw1"}
        assert held(claims) == ["VLAN 100 on p1 of sw1"]

    @pytest.mark.parametrize("vlan", [100, 101])
    def test_does_not_touch_what_is_there_and_one_answer_lacks(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims, vlan: int
    ) -> None:
        done(processor.create(bridge(port("a", 100))).result())
        before = dict(fakes.services)
        fakes.fault("service.find", kind="incomplete")
        if vlan == 100:
            fakes.fault("service.differences", kind="fail")

        outcome = processor.create(bridge(port("a", vlan))).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert (fakes.services, held(claims)) == (before, ["VLAN 100 on p1 of sw1"])

    def test_gives_up_claims_that_an_earlier_one_left(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("a", 100))).result())
        fakes.services.clear()

        done(processor.create(bridge(port("a", 101))).result())

        assert held(claims) == ["VLAN 101 on p1 of sw1"]

    def test_is_verified_by_what_is_read_after_it_was_made(
        self, processor: HandlerProcessor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        apply, differences, seen = FakeService.apply, FakeService.differences, list[str]()

        def applied(driver: FakeService, sliver: Any) -> Any:
            made, reads = apply(driver, sliver), current()
            assert reads
            reads.put("state", "as read before the end of the change")
            return made

        def compared(driver: FakeService, sliver: Any) -> tuple[str, ...]:
            reads = current()
            assert reads
            seen.append(reads.get("state", lambda: "as it is"))
            return differences(driver, sliver)

        monkeypatch.setattr(FakeService, "apply", applied)
        monkeypatch.setattr(FakeService, "differences", compared)
        done(processor.create(bridge()).result())

        assert seen[-1] == "as it is"


class TestModify:
    def test_changes_in_place_and_gives_up_what_it_does_not_need(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("i1", 100), port("i2", 101))).result())

        changed = bridge(port("i1", 102, bandwidth=50), port("i3", 150, where="p2"))
        outcome = done(processor.modify(changed).result())

        assert vlans(outcome) == [102, 150]
        assert held(claims) == ["VLAN 102 on p1 of sw1", "VLAN 150 on p2 of sw1"]

    def test_of_nothing_does_nothing(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(bridge()).result())
        applied = fakes.calls["service.apply"]

        outcome = done(processor.modify(bridge()).result())

        assert {step.status for step in outcome.steps} == {StepStatus.ALREADY_SO}
        assert fakes.calls["service.apply"] == applied

    def test_that_fails_makes_it_what_it_was(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())
        before = dict(fakes.services)
        fakes.fault("service.differences", at=3, kind="fail")

        outcome = processor.modify(bridge(port("i1", 101))).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert fakes.services == before
        assert held(claims) == ["VLAN 100 on p1 of sw1"]

    def test_with_secrets_that_fails_says_what_is_not_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(vpn(100)).result())
        fakes.fault("service.differences", at=3, kind="fail")

        outcome = processor.modify(vpn(101)).result()

        assert outcome.status is Status.PARTIAL
        assert [text.partition(":")[0] for text in outcome.left] == [
            "verify again",
            "release claims",
        ]
        assert fakes.services == {"net-1": vpn(101)}
        done(processor.modify(vpn(101)).result())

    @pytest.mark.parametrize(
        "wanted",
        [
            [port("b", 100), port("c", 101)],
            [port("a", 101), port("b", 100)],
        ],
    )
    def test_that_fails_leaves_it_all_that_it_held(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        claims: ServiceClaims,
        wanted: list[dict[str, Any]],
    ) -> None:
        """Also what another of its interfaces was to have: nobody else may be given it."""
        done(processor.create(bridge(port("a", 100), port("b", 101))).result())
        before = claims.of("net-1")
        fakes.fault("service.apply", kind="fail")

        outcome = processor.modify(bridge(*wanted)).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert claims.of("net-1") == before

    def test_that_is_not_taken_back_keeps_old_and_new_claims(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("a", 100))).result())
        fakes.fault("service.apply", at=2, kind="fail")
        fakes.fault("service.differences", at=3, kind="fail")

        outcome = processor.modify(bridge(port("a", 150, "p2"))).result()

        assert "claims: kept: something may use it still" in outcome.left
        assert held(claims) == ["VLAN 100 on p1 of sw1", "VLAN 150 on p2 of sw1"]
        (again,) = processor.recover()
        done(again.result())
        assert held(claims) == ["VLAN 150 on p2 of sw1"]

    def test_gives_an_interface_another_vlan_if_a_sibling_asks_for_its_own(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("a"))).result())

        outcome = done(processor.modify(bridge(port("a"), port("b", 100))).result())

        assert vlans(outcome) == [101, 100]
        assert [c.part for c in claims.of("net-1")] == ["b", "a"]

    def test_gives_an_interface_another_vlan_if_the_one_it_holds_is_not_whole(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(bridge(port("a", 100, inner_vlan=5))).result())
        done(processor.create(bridge(port("x", 100, inner_vlan=6), sliver="net-2")).result())

        assert vlans(done(processor.modify(bridge(port("a"))).result())) == [101]

    def test_with_secrets_is_not_undone(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        """Nothing says what it was, and to finish it is no undoing."""
        done(processor.create(vpn(100)).result())
        fakes.fault("service.apply", kind="fail")
        assert processor.modify(vpn(101)).result().status is Status.PARTIAL

        (undone,) = processor.recover(undo=True)

        assert undone.result().error
        assert undone.result().error.kind == "Unsupported"
        assert (fakes.services["net-1"].interfaces[0].vlan, len(held(claims))) == (100, 2)
        (finished,) = processor.recover()
        done(finished.result())
        assert held(claims) == ["VLAN 101 on p1 of sw1"]

    def test_of_what_is_not_there_is_not_found(self, processor: HandlerProcessor) -> None:
        outcome = processor.modify(bridge()).result()

        assert outcome.error
        assert outcome.error.kind == "NotFound"


class TestDelete:
    REF = SliverRef(id="net-1", type="L2Bridge")

    def test_removes_the_service_and_then_its_claims(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge()).result())

        done(processor.delete(self.REF).result())
        done(processor.delete(self.REF).result())

        assert (fakes.services, held(claims)) == ({}, [])

    def test_keeps_the_claims_of_what_it_cannot_remove(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge()).result())
        fakes.fault("service.remove", at=0, kind="fail")

        outcome = processor.delete(self.REF).result()

        assert outcome.status is not Status.DONE
        assert set(outcome.left) == {"net", "VLAN 100 on p1 of sw1"}
        assert held(claims) == ["VLAN 100 on p1 of sw1"]


class TestLooking:
    REF = SliverRef(id="net-1", type="L2Bridge")

    def test_a_plan_claims_nothing(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        plan = done(processor.plan(bridge()).result())

        assert [(s.step, s.finding) for s in plan.steps] == [
            ("claims", Finding.WILL_CREATE),
            ("service", Finding.WILL_CREATE),
        ]
        assert held(claims) == []

    def test_a_probe_by_id_compares_with_the_stamp(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())

        found = done(processor.probe(self.REF).result()).observed
        wanted = done(processor.probe(bridge(port("i1", 101))).result()).observed

        assert found
        assert wanted
        assert (found.state, found.differences) == (State.RUNNING, ())
        assert wanted.differences == ("interface i1: its VLAN is 100, not 101",)

    @pytest.mark.parametrize(
        ("asked", "differences", "warning"),
        [
            (
                [port("i1", 102), port("i2")],
                ("interface i1: its VLAN is 100, not 102",),
                "VLAN 102 on p1 of sw1 is taken",
            ),
            (
                [port("i1", 900), port("i2", 101)],
                ("interface i1: its VLAN is 100, not 900",),
                "VLAN 900 is outside of the range",
            ),
            (
                [port("i1"), port("i2"), port("i3")],
                ("interface i3 is missing",),
                "no VLAN of p1 of sw1 is free",
            ),
            (
                [port("i1", where="p9"), port("i2")],
                ("interface i1: its port is p1, not p9",),
                "site.yaml has no port p9 of sw1",
            ),
            (
                [port("i3")],
                ("interface i1 is there and not asked for",),
                "no VLAN of p1 of sw1 is free",
            ),
        ],
        ids=["another's", "out of range", "none free", "no such port", "all of another id"],
    )
    def test_a_probe_compares_also_what_cannot_be_had(
        self,
        processor: HandlerProcessor,
        asked: list[dict[str, Any]],
        differences: tuple[str, ...],
        warning: str,
    ) -> None:
        done(processor.create(bridge(port("i1", 100), port("i2", 101))).result())
        done(processor.create(bridge(port("i1", 102), sliver="net-2")).result())

        outcome = done(processor.probe(bridge(*asked)).result())

        assert outcome.observed
        assert outcome.observed.state is State.RUNNING
        assert set(outcome.observed.differences) >= set(differences)
        (said,) = outcome.warnings
        assert warning in said

    def test_a_probe_of_what_is_as_the_file_says_only_warns_of_a_range_that_was_narrowed(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        wanted = bridge(port("i1", 102))
        done(processor.create(wanted).result())
        narrow = {"sw1": {"ports": PORTS | {"p1": {"vlans": ["100"]}}}}

        with HandlerProcessor(
            Site.model_validate(site.model_dump() | {"switches": narrow})
        ) as other:
            outcome = done(other.probe(wanted).result())

        assert outcome.observed
        assert outcome.observed.differences == ()
        assert "VLAN 102 is outside of the range" in outcome.warnings[0]

    def test_a_probe_of_a_network_without_a_subnet_left_compares_the_rest(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        done(processor.create(fabnet()).result())
        claims.release(claims.of("net-1"))
        for number in range(4):
            block = f"10.128.{number}.1/24"
            away = port("i1", 150 + number, where="p2")
            held = fabnet(away, sliver=f"other-{number}", gateway={"address": block})
            claims.claim(held)

        outcome = done(processor.probe(fabnet()).result())

        assert outcome.observed
        assert outcome.observed.differences == ()
        assert "no subnet for FABNetv4 is free" in outcome.warnings[0]

    def test_a_repair_of_what_is_as_its_stamp_says_does_nothing(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(bridge()).result())

        outcome = done(processor.reconcile(self.REF).result())

        assert outcome.steps == ()

    def test_a_repair_compares_twice_before_it_says_that_nothing_differs(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())
        fakes.services["net-1"] = bridge(port("i1", 101))
        fakes.fault("service.differences", kind="incomplete")

        assert vlans(done(processor.reconcile(self.REF).result())) == [100]

    def test_a_repair_claims_what_is_not_claimed(
        self, processor: HandlerProcessor, fakes: Substrate, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("a", 100))).result())
        claims.release(claims.of("net-1"))
        applied = fakes.calls["service.apply"]

        done(processor.reconcile(self.REF).result())

        assert held(claims) == ["VLAN 100 on p1 of sw1"]
        assert fakes.calls["service.apply"] == applied

    def test_a_repair_names_who_has_claimed_what_the_service_has(
        self, processor: HandlerProcessor, claims: ServiceClaims
    ) -> None:
        done(processor.create(bridge(port("a", 100))).result())
        claims.release(claims.of("net-1"))
        claims.claim(bridge(port("x", 100), sliver="net-2"))

        outcome = processor.reconcile(self.REF).result()

        assert outcome.error
        assert outcome.error.kind == "Conflict"
        assert "net-2" in outcome.error.message

    @pytest.mark.parametrize(
        "other",
        [SliverRef(id="net-1", type="FABNetv4"), SliverRef(id="net-1", type="VM"), vpn(100)],
    )
    @pytest.mark.parametrize("ask", ["probe", "reconcile", "differences"])
    def test_by_another_type_is_refused(
        self, processor: HandlerProcessor, fakes: Substrate, other: SliverRef, ask: str
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())
        changed = bridge(port("i1", 101))
        fakes.services["net-1"] = changed

        outcome = getattr(processor, ask)(other).result()

        assert outcome.error
        assert outcome.error.kind == "Conflict"
        assert outcome.error.message == (
            f"sliver net-1 is a L2Bridge, not a {other.type}. name its type, or choose another id."
        )
        assert (fakes.services, processor.unfinished()) == ({"net-1": changed}, ())

    def test_a_list_has_the_type_that_it_was_made_as(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        """What a controller has may say another one, once somebody changed it there."""
        done(processor.create(bridge(port("i1", 100))).result())
        fakes.service_stamps["net-1"] = fabnet(port("i1", 100))

        (found,) = processor.services().found

        assert found.ref == self.REF
        assert done(processor.probe(found.ref).result()).observed

    def test_a_list_of_several_types_asks_their_driver_once(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())
        fakes.calls.clear()

        found = processor.services("L2Bridge", "FABNetv4").found

        assert [each.ref for each in found] == [self.REF]
        assert fakes.calls["service.stamped"] == 1

    def test_where_no_note_says_the_type_another_one_is_a_difference(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())
        (site.state_dir / "types.sqlite").unlink()

        found = done(processor.probe(vpn(100)).result()).observed

        assert found
        assert found.differences == ("it is a L2Bridge, not a L3VPN",)

    def test_a_repair_that_fails_removes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(bridge(port("i1", 100))).result())
        other = bridge(port("i1", 101))
        fakes.services["net-1"] = other
        fakes.fault("service.apply", kind="fail")

        failed = processor.reconcile(self.REF).result()

        assert failed.status is Status.FAILED
        assert fakes.services == {"net-1": other}
        assert vlans(done(processor.reconcile(self.REF).result())) == [100]


def test_a_service_is_on_no_host(site: Site) -> None:
    hosts = {"w1": site.hosts["localhost"], "w2": site.hosts["localhost"]}
    with HandlerProcessor(site.model_copy(update={"hosts": hosts})) as processor:
        done(processor.create(bridge()).result())
        assert done(processor.probe(TestDelete.REF).result()).observed
        outcome = done(processor.delete(TestDelete.REF).result())

    assert outcome.operation is Operation.DELETE


def test_the_command_line_prints_where_a_service_is_connected(site: Site, tmp_path: Path) -> None:
    files = {"site.yaml": site.model_dump(mode="json", exclude_none=True)}
    files["net.yaml"] = fabnet(port("i1", bandwidth=50)).model_dump(mode="json", exclude_none=True)
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))

    asked = ["--site", str(tmp_path / "site.yaml"), "create", str(tmp_path / "net.yaml")]
    said = CliRunner().invoke(main, asked)

    assert said.exit_code == 0, said.output
    assert "gateway: 10.128.0.1/24" in said.output
    assert "INTERFACE  DEVICE  PORT  VLAN  MBIT/S" in said.output
    assert "i1         sw1     p1    100   50" in said.output
