"""Network services by NSO, on a stand-in for its RESTCONF (labs/network/nso_standin.py)."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.cli import show
from fabric_direct.doctor import Verdict
from fabric_direct.doctor.controllers import check_controllers
from fabric_direct.drivers.nso.documents import MODULES, Documents, refuse
from fabric_direct.drivers.nso.driver import NsoService
from fabric_direct.drivers.nso.instances import as_sliver, differences
from fabric_direct.errors import (
    Conflict,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    Unreachable,
)
from fabric_direct.model import Outcome, Status
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.site.services import NsoSettings
from fabric_direct.state.service_claims import ServiceClaims
from fabric_direct.testing import ServiceContract
from labs.network import nso_standin
from labs.network.nso_standin import PASSWORD, Controller
from tests.outcomes import done
from tests.unit.nso_services import (
    BRIDGE,
    CHANGES,
    ID,
    KEY,
    NAME,
    OTHER,
    PEER,
    SAMPLES,
    STS,
    V4,
    V6,
    at,
    nso,
    service,
    site,
)

__all__ = ["nso", "site"]


@pytest.fixture
def driver(site: Site) -> NsoService:
    return NsoService(site, "")


def error(outcome: Outcome) -> tuple[str, str]:
    assert outcome.error, outcome
    assert PASSWORD not in outcome.model_dump_json()
    assert KEY not in outcome.model_dump_json()
    return outcome.error.kind, outcome.error.message


def refused(action: Any, sliver: NetworkService) -> FabricDirectError:
    with pytest.raises(FabricDirectError) as caught:
        action(sliver)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "version"), [*((kind, "6.3") for kind in SERVICES), ("L2STS", "6.7.1")]
)
def test_the_whole_life_of_each_type(
    processor: HandlerProcessor, nso: Controller, kind: str, version: str
) -> None:
    nso.version = version
    made, changed = SAMPLES[kind], CHANGES[kind]

    plan = done(processor.plan(made).result())
    assert (nso.names(), [s.finding for s in plan.steps][-1]) == ([], "will create")
    done(processor.create(made).result())
    changes = len(nso.comments)
    assert f"{MODULES[kind]} {NAME}" in nso.names()
    done(processor.create(made).result())
    done(processor.modify(changed).result())
    found = done(processor.probe(changed).result()).observed
    assert found
    assert found.differences == ()
    assert len(nso.comments) == changes + 1 == 2
    done(processor.delete(made.ref()).result())
    done(processor.delete(made.ref()).result())

    assert nso.names() == []
    stamps = {"TEST/" + ID} if version == "6.7.1" else {""}
    assert set(nso.comments) == stamps


@pytest.mark.parametrize("kind", SERVICES)
def test_a_document_says_what_the_sliver_says(kind: str, site: Site) -> None:
    assert site.services.nso
    documents = Documents(site.services.nso)
    wanted = documents.of(SAMPLES[kind])
    expected = EXPECTED[kind] | {"name": NAME}

    assert wanted == expected
    again = as_sliver(MODULES[kind], wanted, ID, 1_000)
    assert (
        kind == "L3VPN"
        if again is None
        else [*differences(documents.of(again, NAME), wanted)] == []
    )


_PORT = {"type": "HundredGigE", "id": "0/0/0/5"}
_TAGGED = _PORT | {"outervlan": 100}
_ROUTERS = [{"device": "core-1"}, {"device": "core-2"}]
EXPECTED: dict[str, dict[str, Any]] = {
    "L2Bridge": {
        "device": "renc-sw",
        "interface": [_TAGGED | {"bandwidth": 10, "burst-size": 2}, _PORT | {"outervlan": 101}],
    },
    "L2PTP": {
        "stp-a": {"device": "renc-sw", "interface": _TAGGED},
        "stp-z": {"device": "uky-sw", "interface": _TAGGED},
        "ero-a2z": {"hop": [{"index": "1", "address": "10.0.0.1"}]},
        "ero-z2a": {"hop": [{"index": "1", "address": "10.0.0.2"}]},
    },
    "L2STS": {
        "site-a": {"device": "renc-sw", "interface": [_TAGGED]},
        "site-z": {
            "device": "uky-sw",
            "interface": [_TAGGED, _PORT | {"outervlan": 101, "innervlan": 7}],
        },
    },
    "FABNetv4": {
        "device": "renc-sw",
        "interface": [_TAGGED],
        "gateway-ipv4": {"address": "10.1.0.1", "netmask": 24},
        "gateway-mac-address": "02:00:00:00:00:01",
    },
    "FABNetv6": {
        "device": "renc-sw",
        "interface": [_PORT | {"outervlan": 0}],
        "gateway-ipv6": {"address": "fd00:1::1", "netmask": 64},
    },
    "FABNetv4Ext": {
        "device": "renc-sw",
        "interface": [_TAGGED],
        "external-access": {
            "ip-type": "v4",
            "border-router": _ROUTERS,
            "permit-ipv4": [{"id": 10, "address": "10.1.0.9"}],
        },
    },
    "FABNetv6Ext": {
        "device": "renc-sw",
        "interface": [_TAGGED],
        "gateway-ipv6": {"address": "fd00:1::1", "netmask": 64},
        "external-access": {
            "ip-type": "v6",
            "border-router": _ROUTERS,
            "permit-ipv6": [{"id": 10, "address": "fd00:1::9"}],
        },
    },
    "L3VPN": {
        "site": [
            {
                "device": "renc-sw",
                "direct": {
                    "interface": [_TAGGED],
                    "gateway-ipv4": {"address": "10.2.0.1", "netmask": 24},
                },
            },
            {
                "device": "al2s",
                "bgp": [
                    {
                        "interface": _TAGGED,
                        "remote-asn": 64512,
                        "local-ipv4": {"address": "10.9.0.1", "netmask": 30},
                        "remote-ipv4": {"address": "10.9.0.2", "netmask": 30},
                        "auth-key": KEY,
                    }
                ],
            },
        ]
    },
    "PortMirror": {
        "direction": "both",
        "device": "renc-sw",
        "from-interface": [{"type": "HundredGigE", "id": "0/0/0/9"}],
        "to-interface": _TAGGED,
    },
}


@pytest.mark.parametrize(
    ("port", "kind", "number"),
    [
        ("HundredGigE0/0/0/5", "HundredGigE", "0/0/0/5"),
        ("HundredGigE0/0/0/5.100", "HundredGigE", "0/0/0/5.100"),
        ("Bundle-Ether100", "Bundle-Ether", "100"),
        ("Bundle-Ether100.7", "Bundle-Ether", "100.7"),
        ("eth-9", "eth-", "9"),
        ("0/0/0/5", "Generic", "0/0/0/5"),
    ],
)
def test_a_port_is_the_one_that_fabric_am_takes_it_for(
    port: str, kind: str, number: str, processor: HandlerProcessor, nso: Controller
) -> None:
    wanted = service("L2Bridge", at("i1", port=port))

    done(processor.create(wanted).result())

    (made,) = nso.instance("l2bridge", NAME)["interface"]
    assert (made["type"], made["id"]) == (kind, number)
    found = done(processor.probe(wanted.ref()).result()).observed
    assert found
    assert (found.interfaces[0].port, found.differences) == (port, ())


GATEWAY = {"address": "10.2.0.1/24"}


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (service("L2Bridge", at("i1"), id="net-1"), "id"),
        (service("L2Bridge", at("i1", bandwidth=1_500)), "interfaces[0].bandwidth"),
        (service("L2Bridge", at("i1", bandwidth=1_000, burst=7)), "interfaces[0].burst"),
        (service("L2Bridge", at("i1", port="eth0:1")), "interfaces[0].port"),
        (service("L2Bridge", at("i1", port="Eth_1")), "interfaces[0].port"),
        (service("L2Bridge", at("i1", port="Bundle-Ether")), "interfaces[0].port"),
        (service("L2Bridge", at("i1", port="0/0/0/5.100")), "interfaces[0].port"),
        (service("L2Bridge", at("i1", mtu=9000)), "interfaces[0].mtu"),
        (
            service("L2Bridge", {"id": "i1", "attach": {"sliver": "vm", "component": "nic"}}),
            "interfaces[0].device",
        ),
        (service("FABNetv4", at("i1", bandwidth=1_000), gateway=V4), "interfaces[0].bandwidth"),
        (service("L3VPN", at("i1", gateway=GATEWAY), asn=1), "interfaces"),
        (
            service(
                "L3VPN",
                at("i1", gateway=GATEWAY),
                at("i2", "b", gateway=V4 | {"mac": "02:00:00:00:00:01"}),
                asn=1,
            ),
            "interfaces[1].gateway.mac",
        ),
        (
            service(
                "L3VPN",
                at("i1", gateway=GATEWAY),
                at("i2", vlan=7, gateway=V6),
                at("i3", "b", gateway=V4),
                asn=1,
            ),
            "interfaces[1].gateway.address",
        ),
        (
            service(
                "L3VPN",
                at("i1", peer=PEER),
                at("i2", vlan=7, gateway=GATEWAY),
                at("i3", vlan=8, gateway=V4),
                at("i4", "b", gateway={"address": "10.3.0.1/24"}),
                asn=1,
            ),
            "interfaces[2].gateway.address",
        ),
        (
            service(
                "L3VPN",
                at("i1", gateway=GATEWAY),
                at("i2", "b", peer=PEER | {"cloud": "AWS"}),
                asn=1,
            ),
            "interfaces[1].peer.cloud",
        ),
        (service("PortMirror", at("i1"), mirror={"port": "eth9-1"}), "mirror.port"),
    ],
)
def test_what_no_document_can_say_is_refused_before_nso_is_asked(
    processor: HandlerProcessor, nso: Controller, driver: NsoService, wanted: Any, field: str
) -> None:
    caught = refused(driver.check, wanted)

    assert (type(caught), caught.field) == (InvalidSliver, field)
    assert nso.requests == []


DIRECT, FAR = {"gateway": GATEWAY}, {"gateway": {"address": "10.4.0.1/24"}}
_BEHIND = [at("i2", vlan=101, **DIRECT), at("i3", vlan=102, **DIRECT)]
MIXED = service("L3VPN", at("i1", peer=PEER), *_BEHIND, at("i4", "uky-sw", **FAR), asn=1)
"""A device with a neighbor on one interface, and none on two others."""
_AFTER = (
    service("L3VPN", at("i1", peer=PEER), at("i4", "uky-sw", **FAR), asn=1),
    service("L3VPN", *_BEHIND, at("i4", "uky-sw", **FAR), asn=1),
    service("L3VPN", *reversed(_BEHIND), at("i1", peer=PEER), at("i4", "uky-sw", peer=PEER), asn=1),
)


@pytest.mark.parametrize("turned", [False, True], ids=["neighbor first", "neighbor last"])
def test_a_device_of_a_vpn_has_neighbors_and_a_gateway(site: Site, turned: bool) -> None:
    assert site.services.nso
    interfaces = MIXED.interfaces[::-1] if turned else MIXED.interfaces
    wanted = MIXED.model_copy(update={"interfaces": interfaces})

    document = Documents(site.services.nso).of(wanted)

    (found,) = (each for each in document["site"] if each["device"] == "renc-sw")
    direct = found["direct"]["interface"]
    assert sorted(each["outervlan"] for each in direct) == [101, 102]
    assert found["direct"]["gateway-ipv4"] == {"address": "10.2.0.1", "netmask": 24}
    assert found["bgp"] == EXPECTED["L3VPN"]["site"][1]["bgp"]


@pytest.mark.parametrize("after", _AFTER, ids=["neighbor", "gateway", "both, and another neighbor"])
def test_the_life_of_a_vpn_whose_device_has_neighbors_and_a_gateway(
    processor: HandlerProcessor, nso: Controller, after: NetworkService
) -> None:
    done(processor.create(MIXED).result())
    seen = done(processor.probe(MIXED).result()).observed
    assert seen
    assert seen.differences == ()
    assert sorted((i.device, i.vlan) for i in seen.interfaces) == [
        ("renc-sw", 100),
        ("renc-sw", 101),
        ("renc-sw", 102),
        ("uky-sw", 100),
    ]
    for wanted in (after, MIXED):
        done(processor.modify(wanted).result())
        seen = done(processor.probe(wanted).result()).observed
        assert seen
        assert seen.differences == ()
    done(processor.delete(MIXED.ref()).result())
    assert nso.names() == []


def test_a_repair_of_what_is_so_leaves_the_claims_of_its_interfaces(
    processor: HandlerProcessor, site: Site
) -> None:
    """NSO keeps no ids of interfaces: its stamp numbers them."""
    done(processor.create(BRIDGE).result())
    before = ServiceClaims(site).of(ID)

    outcome = done(processor.reconcile(BRIDGE.ref()).result())

    assert outcome.steps == ()
    assert ServiceClaims(site).of(ID) == before


def test_access_from_outside_needs_border_routers(site: Site) -> None:
    assert site.services.nso
    without = site.services.nso.model_copy(update={"border_routers": ()})

    caught = refused(partial(refuse, site, without), SAMPLES["FABNetv4Ext"])

    assert isinstance(caught, InvalidSite)


def test_a_plan_says_what_nso_refuses(processor: HandlerProcessor, nso: Controller) -> None:
    nso.validators = (lambda _: "interface HundredGigE0/0/0/5: is a member of a bundle",)

    outcome = processor.plan(BRIDGE).result()

    assert outcome.status is Status.REFUSED
    assert "is a member of a bundle" in error(outcome)[1]
    assert nso.names() == []


class TestContract(ServiceContract):
    @pytest.fixture
    def sliver(self) -> str:
        return ID

    @pytest.fixture
    def other(self) -> str:
        return OTHER

    @pytest.fixture
    def service(self, site: Site) -> NetworkService:
        return ServiceClaims(site).claim(STS)  # a sweep knows a service by its claims

    @pytest.fixture
    def changed(self) -> NetworkService:
        return CHANGES["L2STS"]


class TestWhatIsThere:
    def test_a_sweep_does_not_see_what_this_site_did_not_make(
        self, processor: HandlerProcessor, driver: NsoService
    ) -> None:
        driver.apply(STS)
        assert driver.stamped() == ()

        done(processor.create(STS).result())

        assert [(thing.sliver, thing.kind) for thing in driver.stamped()] == [(ID, "L2STS")]

    def test_a_service_of_fabric_am_is_found_by_its_reservation(
        self, processor: HandlerProcessor, driver: NsoService, nso: Controller
    ) -> None:
        driver.apply(STS)
        found = driver.find(ID)

        assert found
        assert (found.name, found.stamp and found.stamp.devices()) == (NAME, ("renc-sw", "uky-sw"))
        assert driver.find(OTHER) is None

    def test_a_list_loses_what_left(self, processor: HandlerProcessor, nso: Controller) -> None:
        done(processor.create(BRIDGE).result())
        done(processor.modify(CHANGES["L2Bridge"]).result())

        assert nso.instance("l2bridge", NAME)["interface"] == [_TAGGED | {"bandwidth": 40}]

    def test_service_and_identifiers_are_made_at_once(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(STS).result())

        assert nso.names() == [f"l2sts {NAME}", f"idipa {NAME}"]
        assert nso.instance("idipa", NAME)["group"] == {"service": "l2sts"}
        assert len(nso.comments) == 1

    def test_one_without_identifiers_is_completed(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(STS).result())
        del nso.services["idipa:idipa"]

        found = done(processor.probe(STS.ref()).result()).observed
        assert found
        assert found.state == "error"
        done(processor.modify(STS).result())

        assert nso.names() == [f"l2sts {NAME}", f"idipa {NAME}"]

    @pytest.mark.parametrize("name", ["other", "other--0123456789ab"])
    def test_a_name_and_a_type_stay(self, driver: NsoService, name: str) -> None:
        driver.apply(BRIDGE)

        renamed = refused(driver.check, BRIDGE.model_copy(update={"name": name}))
        retyped = refused(driver.check, STS)

        assert renamed.field == "name"
        assert "another type" in str(retyped)

    def test_of_all_services_tells_of_a_device_that_somebody_changed(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(BRIDGE).result())
        assert processor.drift().drifts == ()
        nso.devices.network.write("renc-sw", {})

        (drift,) = processor.drift().drifts

        assert drift.sliver == BRIDGE.ref()
        assert drift.differences == ("its devices are not as NSO configures them",)

    def test_devices_that_differ_are_told_and_deployed_again(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(BRIDGE).result())
        nso.devices.network.write("renc-sw", {})

        found = done(processor.probe(BRIDGE.ref()).result()).observed
        assert found
        assert found.differences == ("its devices are not as NSO configures them",)
        done(processor.reconcile(BRIDGE.ref()).result())

        assert nso.devices.has(nso.services, deep=True)

    def test_a_device_that_nso_cannot_read_is_named(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(BRIDGE).result())
        nso.devices.network.write("renc-sw", {})
        nso.devices.unreadable = {"renc-sw": "connection refused"}

        outcome = processor.reconcile(BRIDGE.ref()).result()

        assert "cannot read renc-sw" in error(outcome)[1]
        assert "connection refused" in error(outcome)[1]

    def test_a_deployment_in_the_queue_is_followed_to_its_end(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(BRIDGE).result())
        nso.devices.network.write("renc-sw", {})
        nso.queued = True

        done(processor.reconcile(BRIDGE.ref()).result())

    def test_an_encrypted_key_is_no_difference(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        nso.encrypts = True

        done(processor.create(SAMPLES["L3VPN"]).result())

        assert KEY not in json.dumps(nso.services)


class TestFailures:
    def test_a_wrong_password(
        self, processor: HandlerProcessor, site: Site, nso: Controller
    ) -> None:
        assert site.services.nso
        site.services.nso.password_file.write_text("wrong\n")

        assert error(processor.create(BRIDGE).result())[0] == "Denied"

    def test_a_missing_password(self, processor: HandlerProcessor, site: Site) -> None:
        assert site.services.nso
        site.services.nso.password_file.unlink()

        assert error(processor.create(BRIDGE).result())[0] == "InvalidSite"

    def test_a_password_is_not_sent_in_clear(self, site: Site) -> None:
        assert site.services.nso
        far = site.services.nso.model_copy(update={"url": "http://nso.example:8080/restconf"})
        services = site.services.model_copy(update={"nso": far})

        caught = refused(
            NsoService(site.model_copy(update={"services": services}), "").check, BRIDGE
        )

        assert (type(caught), caught.field) == (InvalidSite, "services.nso.url")

    def test_nobody_there(self, site: Site, processor: HandlerProcessor) -> None:
        assert site.services.nso
        nowhere = site.services.nso.model_copy(update={"url": "http://127.0.0.1:1/restconf"})
        services = site.services.model_copy(update={"nso": nowhere})
        with HandlerProcessor(site.model_copy(update={"services": services})) as away:
            created = away.create(BRIDGE).result()
            assert (error(created)[0], created.left) == ("Unreachable", ())
            assert ServiceClaims(site).of(ID) == ()
            done(processor.create(BRIDGE).result())
            deleted = away.delete(BRIDGE.ref()).result()

        assert (deleted.status, error(deleted)[0]) == (Status.FAILED, "Unreachable")
        (unknown,) = deleted.left
        assert unknown.startswith("unknown: NSO does not answer (127.0.0.1:1)")
        assert ServiceClaims(site).of(ID)

    def test_another_server_has_no_services_to_delete(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(BRIDGE).result())
        nso.proxied = True

        outcome = processor.delete(BRIDGE.ref()).result()

        assert "not from NSO" in error(outcome)[1]

    def test_a_device_that_refuses_leaves_nothing(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        nso.devices.refusing = {"uky-sw": "no such interface"}

        outcome = processor.create(STS).result()

        assert "RPC error towards uky-sw: no such interface" in error(outcome)[1]
        assert (outcome.left, nso.names()) == ((), [])

    def test_a_deletion_that_a_device_refuses_is_not_called_done(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        done(processor.create(STS).result())
        nso.devices.refusing = {"uky-sw": "down"}

        outcome = processor.delete(STS.ref()).result()

        assert outcome.status is not Status.DONE
        assert f"l2sts {NAME}" in outcome.left

    @pytest.mark.parametrize("ends", ["completed", "failed"])
    def test_a_queued_commit_is_followed_to_its_end(
        self, processor: HandlerProcessor, nso: Controller, ends: str
    ) -> None:
        nso.queued = True
        nso.devices.refusing = {"renc-sw": "no such interface"} if ends == "failed" else {}

        outcome = processor.create(BRIDGE).result()

        assert outcome.ok == (ends == "completed")
        assert outcome.ok or "renc-sw: no such interface" in error(outcome)[1]

    @pytest.mark.parametrize("version", ["6.3", "6.7.1"])
    def test_a_deletion_does_not_wait_in_the_queue_where_its_failure_would_leave_no_trace(
        self, processor: HandlerProcessor, nso: Controller, version: str
    ) -> None:
        nso.version, nso.queued = version, True
        done(processor.create(STS).result())
        nso.devices.refusing = {"uky-sw": "down"}

        outcome = processor.delete(STS.ref()).result()

        assert outcome.status is not Status.DONE
        assert f"l2sts {NAME}" in outcome.left
        nso.devices.refusing = {}
        done(processor.delete(STS.ref()).result())
        assert nso.devices.network.read("uky-sw") == {}

    @pytest.mark.parametrize("status", ["409", "500", "503"])
    def test_a_commit_that_is_refused_leaves_nothing(
        self, processor: HandlerProcessor, nso: Controller, status: str
    ) -> None:
        nso.fault("PATCH", "services", status, f"is locked, {PASSWORD} {KEY}")

        outcome = processor.create(SAMPLES["L3VPN"]).result()

        assert "is locked" in error(outcome)[1]
        assert nso.names() == []


_OUT_OF_SYNC = "Network Element Driver: device renc-sw: out of sync"
_LOCKED = "Device renc-sw is southbound locked"
_AWAY = "Failed to connect to device renc-sw: connection refused"


class TestErrorsOfNso:
    """Their form and their words, as versions of NSO differ in them."""

    @pytest.fixture(params=["ietf-restconf:errors", "errors"])
    def nso(self, nso: Controller, request: pytest.FixtureRequest) -> Controller:
        nso.bare = request.param == "errors"
        return nso

    def test_a_path_that_is_not_there_is_absence(
        self, nso: Controller, processor: HandlerProcessor, driver: NsoService
    ) -> None:
        assert driver.find(ID) is None

        done(processor.create(STS).result())
        done(processor.delete(STS.ref()).result())
        done(processor.delete(STS.ref()).result())

        assert nso.names() == []

    @pytest.mark.parametrize(
        ("status", "kind"), [("400", "DriverError"), ("409", "Conflict"), ("500", "DriverError")]
    )
    def test_a_refusal_is_told_in_its_words(
        self, nso: Controller, processor: HandlerProcessor, status: str, kind: str
    ) -> None:
        nso.fault("PATCH", "services", status, f"no address left for renc-sw {KEY}")

        outcome = processor.create(SAMPLES["L3VPN"]).result()

        told, message = error(outcome)
        assert (told, outcome.left, nso.names()) == (kind, (), [])
        assert "no address left for renc-sw" in message

    def test_a_document_that_it_does_not_take_is_the_slivers_fault(
        self, nso: Controller, driver: NsoService
    ) -> None:
        nso.fault("PATCH", "dry-run", "400", "outervlan: 5000 is out of range")

        caught = refused(driver.check, BRIDGE)

        assert (type(caught), caught.why) == (InvalidSliver, "outervlan: 5000 is out of range")

    def test_a_form_of_parameters_that_it_does_not_know_is_the_sites_fault(
        self, nso: Controller, driver: NsoService
    ) -> None:
        nso.fault("PATCH", "dry-run", "400", "invalid query parameter: dry-run")

        caught = refused(driver.check, BRIDGE)

        assert type(caught) is InvalidSite
        assert "commit_parameters" in caught.remedy

    @pytest.mark.parametrize("status", ["400", "409", "500", "502"])
    @pytest.mark.parametrize(
        ("words", "kind", "remedy"),
        [
            (_OUT_OF_SYNC, Conflict, "sync-from"),
            (_LOCKED, Conflict, "unlock"),
            (_AWAY, Unreachable, "check the device"),
        ],
    )
    def test_a_device_that_it_cannot_change_is_nobodys_field(
        self,
        nso: Controller,
        processor: HandlerProcessor,
        driver: NsoService,
        status: str,
        words: str,
        kind: type[FabricDirectError],
        remedy: str,
    ) -> None:
        nso.fault("PATCH", "dry-run", status, words)
        caught = refused(driver.check, BRIDGE)
        assert (type(caught), caught.why) == (kind, words)
        assert remedy in caught.remedy

        nso.fault("PATCH", "services", status, words)
        outcome = processor.create(BRIDGE).result()

        told, message = error(outcome)
        assert (outcome.status, told, outcome.left) == (Status.FAILED, kind.__name__, ())
        assert words in message
        assert remedy in message
        assert nso.names() == []

    def test_one_that_somebody_changed_is_told_so_by_a_deletion_too(
        self, nso: Controller, processor: HandlerProcessor
    ) -> None:
        done(processor.create(BRIDGE).result())
        nso.devices.network.write("renc-sw", {})

        outcome = processor.delete(BRIDGE.ref()).result()

        told, message = error(outcome)
        assert (told, outcome.ok) == ("Conflict", False)
        assert f"l2bridge {NAME}" in outcome.left
        assert "renc-sw: out of sync" in message
        assert "sync-from" in message

    def test_one_of_an_item_of_the_queue_is_told_likewise(
        self, nso: Controller, processor: HandlerProcessor
    ) -> None:
        nso.queued = True
        nso.devices.refusing = {"renc-sw": _LOCKED}

        told, message = error(processor.create(BRIDGE).result())

        assert (told, _LOCKED in message, "unlock" in message) == ("Conflict", True, True)

    def test_an_answer_in_its_words_is_no_advice_to_look_whether_it_is_up(
        self, nso: Controller, driver: NsoService
    ) -> None:
        nso.fault("PATCH", "dry-run", "503", "too many sessions")

        caught = refused(driver.check, BRIDGE)

        assert (type(caught), caught.why, caught.remedy) == (Unreachable, "too many sessions", "")


_VERBS = {"create": "PATCH", "modify": "PUT", "delete": "DELETE"}


@pytest.mark.parametrize("kind", ["L2Bridge", "L3VPN"])
@pytest.mark.parametrize("fault", ["close", "lose", "500", "503"])
@pytest.mark.parametrize("operation", _VERBS)
def test_a_change_that_fails_before_or_after_its_commit(
    processor: HandlerProcessor,
    driver: NsoService,
    nso: Controller,
    operation: str,
    fault: str,
    kind: str,
) -> None:
    """What was lost is found again and not made twice; what failed before leaves what was."""
    if operation != "create":
        driver.apply(SAMPLES[kind])
    before, commits = json.dumps(nso.services), len(nso.comments)
    wanted = SAMPLES[kind] if operation == "create" else CHANGES[kind]
    nso.fault(_VERBS[operation], "services", fault)

    request = wanted.ref() if operation == "delete" else wanted
    outcome: Outcome = getattr(processor, operation)(request).result()

    if fault == "lose":
        done(outcome)
        assert bool(nso.names()) == (operation != "delete")
        assert len(nso.comments) == commits + (
            2 if operation == "delete" and kind == "L3VPN" else 1
        )
    elif operation == "create":
        assert (outcome.ok, nso.names()) == (False, [])
    elif operation == "modify":
        assert (outcome.ok, json.dumps(nso.services)) == (False, before)
    else:
        assert outcome.ok == (nso.names() == [])


class TestTheDoctor:
    def test_tells_version_and_what_may_be_read(self, site: Site, driver: NsoService) -> None:
        assert site.services.nso
        site.services.nso.password_file.chmod(0o600)
        driver.apply(STS)

        (found,) = check_controllers(site)

        assert (found.subject, found.verdict) == ("NSO", Verdict.OK)
        assert found.found.startswith("6.3 at 127.0.0.1")
        assert "0 l2bridge, 0 l2ptp, 1 l2sts" in found.found

    def test_tells_of_an_address_that_is_not_that_of_nso(self, site: Site, nso: Controller) -> None:
        nso.proxied = True

        *_, found = check_controllers(site)

        assert (found.subject, found.verdict) == ("NSO", Verdict.FAIL)


class TestADryRun:
    def test_that_is_lost_refuses_and_makes_nothing(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        nso.fault("PATCH", "dry-run", "close")

        outcome = processor.create(BRIDGE).result()

        assert (error(outcome)[0], outcome.left, nso.names()) == ("Unreachable", (), [])

    def test_is_shown_by_a_plan_device_by_device_without_keys(
        self, processor: HandlerProcessor, nso: Controller
    ) -> None:
        """What goes is shown by its name, so a key that nobody but NSO knows must not be in it."""
        vpn = SAMPLES["L3VPN"]

        found = done(processor.plan(vpn).result()).data["device_changes"]

        assert set(found) == {"renc-sw", "al2s"}
        assert all(NAME in lines for lines in found.values())
        assert KEY not in str(found)
        assert nso.names() == []

    def test_is_printed_line_by_line(self, processor: HandlerProcessor, nso: Controller) -> None:
        data = "interface HundredGigE0/0/0/1\n no shutdown\n"
        nso.dry_run = {"native": {"device": [{"name": "renc-sw", "data": data}]}}
        text = io.StringIO()

        show.plan(done(processor.plan(BRIDGE).result()), Console(file=text, width=100))

        *_, device, first, second, _verdict = text.getvalue().splitlines()
        assert (device, first, second) == (
            "  device renc-sw:",
            "    interface HundredGigE0/0/0/1",
            "     no shutdown",
        )

    def test_of_what_changes_nothing_shows_no_device(self, processor: HandlerProcessor) -> None:
        done(processor.create(BRIDGE).result())

        assert "device_changes" not in done(processor.plan(BRIDGE).result()).data

    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            (" neighbor 10.9.0.2 password s3cr3t", " neighbor 10.9.0.2 password …"),
            (" no neighbor 10.9.0.2 password encrypted 0A1B", " no neighbor 10.9.0.2 password …"),
            (" key 7 s3cr3t", " key …"),
            ("  <password>s3cr3t</password>", "  <password …"),
            (" description key-less\x1b[2J", " description key …"),
        ],
    )
    def test_shows_no_key_that_a_device_has(
        self, driver: NsoService, nso: Controller, line: str, shown: str
    ) -> None:
        data = f"router bgp 1\n{line}\n!\n"
        nso.dry_run = {"native": {"device": [{"name": "renc-sw", "data": data}]}}

        reads = ReadCache()
        with reads.active():
            driver.check(BRIDGE)

        assert reads.device_changes == {"renc-sw": f"router bgp 1\n{shown}\n!"}

    @pytest.mark.parametrize("native", [{"device": "x"}, {"device": [{}]}, ["x"], "no"])
    def test_that_cannot_be_read_is_told(
        self, driver: NsoService, nso: Controller, native: Any
    ) -> None:
        nso.dry_run = {"native": native}

        assert "cannot read its dry run" in str(refused(driver.check, BRIDGE))

    def test_is_no_commit_where_nso_does_not_know_its_form(
        self, processor: HandlerProcessor, site: Site, nso: Controller
    ) -> None:
        """A guess of the version that is wrong must not commit."""
        assert site.services.nso
        for form, version in (("json", "6.3"), ("query", "6.7")):
            nso.version = version
            other = site.services.nso.model_copy(update={"commit_parameters": form})
            services = site.services.model_copy(update={"nso": other})
            driver = NsoService(site.model_copy(update={"services": services}), "")

            assert "invalid query parameter" in str(refused(driver.check, BRIDGE))
            assert nso.names() == []


def test_an_answer_that_never_comes_is_waited_for_within_the_limit(
    site: Site, nso: Controller
) -> None:
    limits = site.limits.model_copy(update={"call": 0.4})
    nso.fault("PATCH", "services", "hang")
    with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
        outcome = processor.create(BRIDGE).result()

    assert error(outcome)[0] == "TimedOut"


_BANDWIDTHS = st.integers(1, 400).map(lambda gbps: gbps * 1_000)
_TAGS = st.integers(1, 4094)


@st.composite
def _interfaces(draw: st.DrawFn) -> dict[str, Any]:
    tag = draw(st.one_of(st.just("untagged"), _TAGS))
    inner = draw(st.none() | _TAGS) if tag != "untagged" else None
    numbers = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    kind = draw(st.sampled_from(["HundredGigE", "Bundle-Ether", ""]))
    below = draw(st.sampled_from([".7", ""])) if kind else ""
    bandwidth = draw(st.none() | _BANDWIDTHS)
    burst = draw(st.none() | st.integers(1, 900)) if bandwidth else None
    return {
        "vlan": tag,
        "inner_vlan": inner,
        "port": kind + "/".join(map(str, numbers)) + below,
        "bandwidth": bandwidth,
        "burst": burst and burst * 1_000,
    }


@st.composite
def _slivers(draw: st.DrawFn) -> NetworkService:
    kind = draw(st.sampled_from(["L2Bridge", "L2STS", "FABNetv4", "FABNetv6Ext", "L3VPN"]))
    places = [
        (d, i) for d in ("renc-sw", "uky-sw") for i in draw(st.lists(_interfaces(), max_size=3))
    ]
    seen: dict[Any, dict[str, Any]] = {}
    alone = kind in {"L2Bridge", "FABNetv4", "FABNetv6Ext"}
    for named, values in places:
        device = "renc-sw" if alone else named
        seen.setdefault((device, values["port"], values["vlan"]), values | {"device": device})
    interfaces = [{"id": f"i{n}"} | each for n, each in enumerate(seen.values())]
    if kind not in {"L2Bridge", "L2STS"}:
        interfaces = [i | {"bandwidth": None, "burst": None} for i in interfaces]
    values: dict[str, Any] = {"gateway": V4 if kind == "FABNetv4" else V6}
    if kind == "L3VPN":
        values = {"asn": 7}
        near, far = V6, {"address": "fd00:2::1/64"}
        interfaces = [
            i | {"gateway": near if i["device"] == "renc-sw" else far} for i in interfaces
        ]
    if kind in {"L2Bridge", "L2STS"}:
        values = {}
    devices = {i["device"] for i in interfaces}
    assume(len(devices) == (2 if kind in {"L2STS", "L3VPN"} else 1))
    return service(kind, *interfaces, **values)


@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(_slivers())
def test_the_document_of_any_sliver_validates(sliver: NetworkService) -> None:
    controller = NsoSettings(
        url="http://localhost/restconf",
        user="am",
        password_file=Path("p"),
        border_routers=("core",),
    )
    refuse(Site(site="TEST", state_dir=Path("/nowhere")), controller, sliver)
    module, document = MODULES[sliver.type], Documents(controller).of(sliver)

    assert not nso_standin.refusal({f"{module}:{module}": [document]})
    again = as_sliver(module, document, sliver.id, 1_000)
    assert again is None or [*differences(Documents(controller).of(again), document)] == []
