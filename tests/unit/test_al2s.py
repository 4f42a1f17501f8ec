"""L3VPNs by AL2S, on a stand-in for its API (labs/network/al2s_standin.py)."""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fabric_direct.doctor import Verdict
from fabric_direct.doctor.controllers import check_controllers
from fabric_direct.drivers.al2s.driver import Al2sService
from fabric_direct.errors import Conflict, FabricDirectError, InvalidSite, InvalidSliver, NotOurs
from fabric_direct.model import Outcome, Status
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.testing import ServiceContract, SharedServiceContract
from labs.network import http_standin
from labs.network.al2s_standin import ACCESS_KEY, FOOTPRINT, OWNER, Al2s
from tests.outcomes import done
from tests.scripted_zone import Authority, server_context
from tests.unit.al2s_services import (
    ACCOUNT,
    BGP_KEY,
    CHANGED,
    CLOUD,
    FASTER,
    ID,
    OTHER,
    PORT,
    SERVICE,
    STAR,
    TITLE,
    WASH,
    al2s,
    at,
    peer,
    site,
    vpn,
)

__all__ = ["al2s", "site"]

_STAR_PORT, _WASH_PORT, _ = (str(port["id"]) for port in FOOTPRINT["myinterfaces"])
_CLOUD_PORT = str(FOOTPRINT["cloudconnect"][0]["id"])


@pytest.fixture
def driver(site: Site) -> Al2sService:
    return Al2sService(site, "")


def error(outcome: Outcome, al2s: Al2s) -> tuple[str, str]:
    assert outcome.error, outcome
    for secret in (ACCESS_KEY, BGP_KEY, ACCOUNT, *al2s.tokens):
        assert secret not in outcome.model_dump_json()
    return outcome.error.kind, outcome.error.message


def refused(action: Any, sliver: NetworkService) -> FabricDirectError:
    with pytest.raises(FabricDirectError) as caught:
        action(sliver)
    return caught.value


def served(site: Site, **settings: Any) -> Al2sService:
    """Return a driver with other settings of AL2S."""
    assert site.services.al2s
    al2s = site.services.al2s.model_copy(update=settings)
    services = site.services.model_copy(update={"al2s": al2s})
    return Al2sService(site.model_copy(update={"services": services}), "")


def limited(site: Site, **limits: float) -> Site:
    return site.model_copy(update={"limits": site.limits.model_copy(update=limits)})


def connection(al2s: Al2s, name: str) -> dict[str, Any]:
    """Return the connection of an interface."""
    (found,) = (
        thing
        for thing in al2s.things["l3connections"].values()
        if str(thing["notes"]).split(" last")[0].endswith(f"{ID}/{name}")
    )
    return found


def by_fabric_am(al2s: Al2s, *, title: str = TITLE, vlan: int = 100) -> str:
    """Make what fabric_am makes for the sliver's end at STAR; return the connection's id."""
    space = al2s.add("spaces", title=title, notes=title, ownerPath=OWNER)
    router = al2s.add("routers", virtualSpaceId=space, notes="")
    ends = {"localIPv4": "10.9.1.1", "remoteIPv4": "10.9.1.2", "ipv4PrefixLength": 30}
    asked = {"remoteASN": "64501", "maxBandwidth": 1000, "mtu": 9001, "remoteName": "FABRIC"}
    return al2s.add(
        "l3connections",
        virtualRouterId=router,
        interfaceId=_STAR_PORT,
        vlanOuterId=str(vlan),
        notes=None,
        authnType="MD5",
        authnConfig={"md5": BGP_KEY},
        cloudConnectionType="NONCLOUD",
        cloudConnectionConfig={},
        **ends | asked,
    )


def test_the_whole_life(processor: HandlerProcessor, al2s: Al2s) -> None:
    plan = done(processor.plan(SERVICE).result())
    assert (al2s.names(), [s.finding for s in plan.steps][-1]) == ([], "will create")
    done(processor.create(SERVICE).result())
    made = dict(al2s.things["l3connections"])
    changes = [asked for asked in al2s.requests if not asked.startswith("GET")]
    done(processor.create(SERVICE).result())
    assert [asked for asked in al2s.requests if not asked.startswith("GET")] == changes

    done(processor.modify(CHANGED).result())
    found = done(processor.probe(CHANGED).result()).observed
    assert found
    assert (found.state, found.differences) == ("running", ())
    assert {i.component: (i.device, i.vlan) for i in found.interfaces} == {
        "wash": ("core2.wash", 200),
        "aws": ("core2.ashb", 100),
    }
    assert made.keys() & al2s.things["l3connections"].keys() == {
        connection(al2s, "wash")["virtualL3ConnectionId"]
    }

    done(processor.delete(SERVICE.ref()).result())
    done(processor.delete(SERVICE.ref()).result())
    assert al2s.names() == []


def test_what_is_sent(processor: HandlerProcessor, al2s: Al2s) -> None:
    done(processor.create(vpn(STAR, CLOUD)).result())

    (space,), (router,) = al2s.things["spaces"].values(), al2s.things["routers"].values()
    assert (space["title"], space["ownerPath"]) == (TITLE, OWNER)
    assert space["notes"] == f"fabric-direct TEST/{ID} asn 398900"
    assert router["notes"] == f"fabric-direct TEST/{ID}"
    sent = connection(al2s, "aws")
    assert {key: sent[key] for key in _SENT} == _SENT
    assert connection(al2s, "star")["maxBandwidth"] == 1_000
    assert connection(al2s, "star")["remoteName"] == "FABRIC"
    assert connection(al2s, "star")["cloudConnectionConfig"] == {}


_SENT = {
    "interfaceId": _CLOUD_PORT,
    "remoteName": "AWS",
    "notes": f"fabric-direct TEST/{ID}/aws last",
    "displayPosition": 2,
    "encapsulationType": "DOT1Q",
    "vlanOuterId": 100,
    "vlanInnerId": 0,
    "ipv6PrefixLength": 0,
    "localIPv6": None,
    "remoteIPv6": None,
    "ipv4PrefixLength": 30,
    "localIPv4": "10.9.3.1",
    "remoteIPv4": "10.9.3.2",
    "remoteASN": 64503,
    "authnType": "MD5",
    "authnConfig": {"md5": BGP_KEY},
    "mtu": 9001,
    "bfdEnable": True,
    "gtsmEnable": True,
    "cloudConnectionType": "AWS",
    "cloudConnectionConfig": {"ownerAccountId": ACCOUNT},
    "maxBandwidth": 0,
    "authoringState": "LIVE",
}


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (vpn(STAR, id="net-1"), "id"),
        (vpn(STAR | {"vlan": "untagged"}), "interfaces[0].vlan"),
        (vpn(STAR | {"inner_vlan": 7}), "interfaces[0].inner_vlan"),
        (vpn(STAR | {"burst": 1_000}), "interfaces[0].burst"),
        (
            vpn(STAR | {"peer": None, "gateway": {"address": "10.1.0.1/24"}}),
            "interfaces[0].gateway",
        ),
        (vpn(STAR, WASH | {"port": "Bundle-Ether9"}), "interfaces[1].port"),
        (vpn(at("aws", "core1.star", 1, peer=peer(1, cloud="AWS"))), "interfaces[0].peer.account"),
        (
            SERVICES["L2PTP"].model_validate(
                {
                    "id": ID,
                    "name": "circuit",
                    "interfaces": [
                        {"id": "a", "device": "core1.star", "port": PORT, "vlan": 1},
                        {"id": "z", "device": "core2.wash", "port": PORT, "vlan": 1},
                    ],
                }
            ),
            "type",
        ),
    ],
)
def test_what_al2s_does_not_serve_is_refused_by_its_field(
    driver: Al2sService, al2s: Al2s, wanted: NetworkService, field: str
) -> None:
    caught = refused(driver.check, wanted)

    assert (type(caught), caught.field) == (InvalidSliver, field)
    assert refused(driver.apply, wanted).field == field
    assert al2s.names() == []


@pytest.mark.parametrize("what", ["name", "asn"])
def test_a_name_and_an_as_stay(driver: Al2sService, what: str) -> None:
    driver.apply(SERVICE)
    other = {"name": "other", "asn": 7}[what]

    caught = refused(driver.check, SERVICE.model_copy(update={what: other}))

    assert (caught.field, caught.what) == (what, "cannot be changed")


class TestContract(ServiceContract):
    @pytest.fixture
    def sliver(self) -> str:
        return ID

    @pytest.fixture
    def other(self) -> str:
        return OTHER

    @pytest.fixture
    def service(self) -> NetworkService:
        return vpn(STAR | {"peer": peer(1, key="sesame")}, WASH)

    @pytest.fixture
    def changed(self) -> NetworkService:
        return vpn(STAR | {"peer": peer(1, key="sesame"), "bandwidth": 2_000}, CLOUD)


class TestSharedContract(SharedServiceContract):
    @pytest.fixture
    def sliver(self) -> str:
        return ID

    @pytest.fixture
    def elsewhere(self, site: Site) -> Al2sService:
        return Al2sService(site.model_copy(update={"site": "ELSEWHERE"}), "")

    @pytest.fixture
    def service(self) -> NetworkService:
        return vpn(STAR | {"peer": peer(1, key="sesame")}, WASH)


class TestAStamp:
    def test_says_by_the_id_alone_what_a_service_should_be(
        self, processor: HandlerProcessor
    ) -> None:
        wanted = vpn(WASH)
        done(processor.create(wanted).result())

        done(processor.modify(wanted).result())
        found = done(processor.probe(wanted.ref()).result()).observed

        assert found
        assert found.differences == ()

    def test_of_another_site_is_left_alone(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s
    ) -> None:
        by_fabric_am(al2s)
        (space,) = al2s.things["spaces"].values()
        space["notes"] = f"fabric-direct ELSEWHERE/{ID} asn 1"
        names = al2s.names()

        assert isinstance(refused(driver.apply, SERVICE), NotOurs)
        assert error(processor.create(SERVICE).result(), al2s)[0] == "NotOurs"
        done(processor.delete(SERVICE.ref()).result())

        assert (al2s.names(), driver.stamped(), driver.find(ID)) == (names, (), None)

    def test_of_a_killed_creation_is_completed_by_the_next(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s
    ) -> None:
        """Without what a creation makes last the service is not there yet."""
        driver.apply(SERVICE)
        last = connection(al2s, "wash")["virtualL3ConnectionId"]
        del al2s.things["l3connections"][last]

        found = done(processor.probe(SERVICE.ref()).result()).observed
        assert found
        assert (found.state, driver.find(ID)) == ("error", None)
        done(processor.create(SERVICE).result())

        assert len(al2s.things["l3connections"]) == 2

    def test_stays_when_the_interface_that_was_made_last_goes(
        self, processor: HandlerProcessor, driver: Al2sService
    ) -> None:
        done(processor.create(SERVICE).result())

        done(processor.modify(vpn(STAR)).result())

        assert driver.find(ID)


class TestAServiceOfFabricAm:
    def test_is_found_by_its_reservation_changed_in_place_and_deleted(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s
    ) -> None:
        made = by_fabric_am(al2s)
        found = driver.find(ID)
        assert found
        assert (found.name, found.stamp) == (TITLE, None)
        assert driver.differences(vpn(STAR)) == ()

        done(processor.modify(vpn(STAR | {"bandwidth": 3_000}, WASH)).result())
        assert al2s.things["l3connections"][made]["maxBandwidth"] == 3_000
        done(processor.delete(SERVICE.ref()).result())

        assert al2s.names() == []

    def test_of_another_slice_on_the_same_port_is_not_touched(
        self, processor: HandlerProcessor, al2s: Al2s
    ) -> None:
        others = by_fabric_am(al2s, title=f"theirs-{OTHER}", vlan=300)
        theirs = dict(al2s.things["l3connections"][others])

        done(processor.create(SERVICE).result())
        done(processor.modify(FASTER).result())
        done(processor.delete(SERVICE.ref()).result())

        assert al2s.things["l3connections"] == {others: theirs}

    def test_twice_is_refused_until_both_are_deleted(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s
    ) -> None:
        by_fabric_am(al2s)
        by_fabric_am(al2s)

        assert isinstance(refused(driver.apply, vpn(STAR)), Conflict)
        assert driver.differences(vpn(STAR)) == (f"there are 2 spaces {TITLE}",)
        done(processor.delete(SERVICE.ref()).result())

        assert al2s.names() == []


class TestTheDoctor:
    def found(self, site: Site) -> list[tuple[str, Verdict, str]]:
        return [(d.subject, d.verdict, d.found) for d in check_controllers(site)]

    def test_tells_what_al2s_shows(self, site: Site, al2s: Al2s) -> None:
        assert site.services.al2s
        site.services.al2s.key_file.chmod(0o600)
        by_fabric_am(al2s)

        ((subject, verdict, found),) = self.found(site)

        assert (subject, verdict) == ("AL2S", Verdict.OK)
        assert found.endswith("1 spaces, 5 ports")

    def test_tells_of_a_wrong_key_and_of_one_that_others_may_read(
        self, site: Site, al2s: Al2s
    ) -> None:
        assert site.services.al2s
        site.services.al2s.key_file.write_text("wrong-access-key\n")
        site.services.al2s.key_file.chmod(0o644)

        readable, denied = self.found(site)

        assert readable[:2] == ("services.al2s", Verdict.WARN)
        assert denied[:2] == ("AL2S", Verdict.FAIL)
        assert "wrong-access-key" not in denied[2]
        assert al2s.names() == []

    def test_tells_what_to_do_once(self, site: Site, al2s: Al2s) -> None:
        assert site.services.al2s
        site.services.al2s.key_file.write_text("wrong-access-key\n")
        site.services.al2s.key_file.chmod(0o600)

        (denied,) = check_controllers(site)

        assert denied.remedy
        assert denied.remedy not in denied.found


class TestASession:
    def test_serves_all_requests(self, processor: HandlerProcessor, al2s: Al2s) -> None:
        done(processor.create(SERVICE).result())

        assert sum("sessions" in asked for asked in al2s.requests) == 2

    @pytest.mark.parametrize(("whole", "asked"), [(False, 1), (True, 3)])
    def test_that_expires_is_renewed(
        self, driver: Al2sService, al2s: Al2s, whole: bool, asked: int
    ) -> None:
        """By its refresh token, and with the access key if that has expired, too."""
        driver.apply(SERVICE)
        before = sum("sessions" in each for each in al2s.requests)
        al2s.expire(session=whole)

        assert driver.differences(SERVICE) == ()

        assert sum("sessions" in each for each in al2s.requests) - before == asked

    def test_that_expires_before_a_creation_makes_one_space(
        self, driver: Al2sService, al2s: Al2s
    ) -> None:
        al2s.fault("POST", "spaces", "401")

        driver.apply(SERVICE)

        assert len(al2s.things["spaces"]) == 1

    def test_a_wrong_key(self, processor: HandlerProcessor, site: Site, al2s: Al2s) -> None:
        assert site.services.al2s
        site.services.al2s.key_file.write_text("wrong-access-key\n")

        outcome = processor.create(SERVICE).result()

        assert error(outcome, al2s)[0] == "Denied"
        assert "wrong-access-key" not in outcome.model_dump_json()

    def test_a_missing_key(self, processor: HandlerProcessor, site: Site, al2s: Al2s) -> None:
        assert site.services.al2s
        site.services.al2s.key_file.unlink()

        assert error(processor.create(SERVICE).result(), al2s)[0] == "InvalidSite"

    def test_a_key_is_not_sent_in_clear(self, site: Site) -> None:
        caught = refused(served(site, url="http://al2s.example").check, SERVICE)

        assert (type(caught), caught.field) == (InvalidSite, "services.al2s.url")

    def test_begins_only_with_a_server_whose_certificate_is_trusted(
        self, site: Site, al2s: Al2s, tmp_path: Path
    ) -> None:
        authority = Authority(tmp_path)
        url, end = http_standin.serve(al2s, server_context(authority.issue("al2s")))

        strange = refused(served(site, url=url).apply, SERVICE)
        assert (strange.why, al2s.requests) == ("its certificate is not trusted", [])
        served(site, url=url, ca_file=authority.file).apply(SERVICE)

        end()

    def test_leaves_no_token_in_a_log(
        self, processor: HandlerProcessor, al2s: Al2s, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        done(processor.create(SERVICE).result())
        al2s.fault("GET", "spaces", "500", f"{ACCESS_KEY} {al2s.tokens[-1]}")
        error(processor.probe(SERVICE).result(), al2s)

        for secret in (ACCESS_KEY, BGP_KEY, ACCOUNT, *al2s.tokens):
            assert secret not in caplog.text

    def test_is_not_shared_with_a_forked_child(self, driver: Al2sService, al2s: Al2s) -> None:
        driver.apply(SERVICE)
        token = al2s.tokens[-1]
        if (child := os.fork()) == 0:
            os._exit(0 if driver.differences(SERVICE) == () else 1)

        assert os.waitpid(child, 0)[1] == 0
        assert al2s.tokens[-1] != token
        assert driver.differences(SERVICE) == ()


class TestFailures:
    def test_a_connection_that_cannot_be_provisioned_is_told_and_taken_back(
        self, processor: HandlerProcessor, al2s: Al2s
    ) -> None:
        al2s.states = ("PENDING", "ERROR")

        outcome = processor.create(SERVICE).result()

        assert "could not provision interface" in error(outcome, al2s)[1]
        assert (outcome.left, al2s.names()) == ((), [])

    @pytest.mark.parametrize("state", ["PENDING", "WHATEVER"])
    def test_one_that_is_never_provisioned_is_not_called_done(
        self, site: Site, al2s: Al2s, state: str
    ) -> None:
        al2s.states = (state,)
        with HandlerProcessor(limited(site, create=1.0)) as processor:
            outcome = processor.create(SERVICE).result()

        assert error(outcome, al2s)[0] == "TimedOut"
        assert al2s.names() == []

    def test_one_that_fails_later_is_a_difference_and_is_provisioned_again(
        self, processor: HandlerProcessor, al2s: Al2s
    ) -> None:
        wanted = vpn(WASH)
        done(processor.create(wanted).result())
        connection(al2s, "wash")["_states"] = ["ERROR"]

        found = done(processor.probe(wanted.ref()).result()).observed
        assert found
        assert found.differences == ("interface wash is ERROR, not PROVISIONED",)
        done(processor.reconcile(wanted.ref()).result())

        assert done(processor.probe(wanted).result()).observed

    def test_a_vlan_that_is_in_use_is_told_without_secrets(
        self, processor: HandlerProcessor, al2s: Al2s
    ) -> None:
        by_fabric_am(al2s, title="theirs")
        names = al2s.names()

        outcome = processor.create(SERVICE).result()

        assert "VLAN 100 is in use there" in error(outcome, al2s)[1]
        assert (outcome.left, al2s.names()) == ((), names)

    def test_a_key_that_is_not_shown_is_no_difference(
        self, processor: HandlerProcessor, al2s: Al2s
    ) -> None:
        al2s.masks = True

        done(processor.create(SERVICE).result())

    @pytest.mark.parametrize(
        ("value", "said"),
        [({"key": "another"}, "its key is another one"), ({"asn": 7}, "neighbor's AS is 64501")],
    )
    def test_another_neighbor_is_a_difference(
        self, driver: Al2sService, value: dict[str, Any], said: str
    ) -> None:
        driver.apply(SERVICE)

        found = driver.differences(vpn(STAR | {"peer": STAR["peer"] | value}, WASH))

        assert len(found) == 1
        assert said in found[0]

    def test_what_is_being_deleted_is_waited_for(
        self, processor: HandlerProcessor, al2s: Al2s, mocker: MockerFixture
    ) -> None:
        again = mocker.patch("fabric_direct.drivers.al2s.driver.trying_again")
        done(processor.create(SERVICE).result())
        al2s.busy = 3

        done(processor.delete(SERVICE.ref()).result())

        assert al2s.names() == []
        assert again.call_count == 3

    def test_a_deletion_that_does_nothing_is_not_called_done(
        self, site: Site, driver: Al2sService, al2s: Al2s
    ) -> None:
        driver.apply(SERVICE)
        al2s.keeps = True
        with HandlerProcessor(limited(site, delete=2.0)) as processor:
            outcome = processor.delete(SERVICE.ref()).result()

        assert outcome.status is not Status.DONE
        assert outcome.left == (f"space {TITLE}",)

    def test_another_server_has_no_services_to_delete(
        self, processor: HandlerProcessor, al2s: Al2s
    ) -> None:
        done(processor.create(SERVICE).result())
        al2s.fault("GET", "spaces", "404", times=100)

        outcome = processor.delete(SERVICE.ref()).result()

        assert "the address may be wrong" in error(outcome, al2s)[1]


_LOST = [
    *(("create", request) for request in ("POST spaces", "POST routers", "POST l3connections")),
    *(("modify", f"{verb} l3connections") for verb in ("PUT", "POST", "DELETE")),
    *(("delete", f"DELETE {kind}") for kind in ("l3connections", "routers", "spaces")),
]


@pytest.mark.parametrize(
    ("operation", "request_", "fault"),
    [
        *((*lost, fault) for lost in _LOST for fault in ("close", "lose")),
        ("create", "POST l3connections", "500"),
    ],
)
def test_a_change_that_fails_before_or_after_it_took_effect(
    processor: HandlerProcessor,
    driver: Al2sService,
    al2s: Al2s,
    operation: str,
    request_: str,
    fault: str,
) -> None:
    """What was lost is found again and not made twice; what failed before is not called done."""
    if operation != "create":
        driver.apply(SERVICE)
    wanted = SERVICE if operation == "create" else CHANGED
    al2s.fault(*request_.split(), fault)

    asked = wanted.ref() if operation == "delete" else wanted
    outcome: Outcome = getattr(processor, operation)(asked).result()

    if fault == "lose":
        done(outcome)
    if outcome.ok and operation == "delete":
        assert al2s.names() == []
    elif outcome.ok:
        assert driver.differences(wanted) == ()
        assert [len(al2s.things[kind]) for kind in al2s.things] == [1, 1, 2]
    elif operation == "create":
        assert al2s.names() == []
    else:
        assert outcome.left or operation == "modify"


_A, _B, _C, _D = (at(n, "core2.wash", k, vlan=99 + k) for k, n in enumerate("abcd", 1))
_STAYS = at("stays", "core1.star", 9)
_OTHER_PORT = "HundredGigE0/0/0/6"


@dataclass(frozen=True)
class _Move:
    """A modification by which connections take the places of others."""

    was: NetworkService
    now: NetworkService
    asked: tuple[str, ...]
    """The methods of the requests that change something."""


def _moved(interface: dict[str, Any], vlan: int, **more: Any) -> dict[str, Any]:
    return interface | {"vlan": vlan} | more


_RENAMED = _A | {"id": "b"}
_MOVES = {
    "a rename": _Move(vpn(_A, _STAYS), vpn(_RENAMED, _STAYS), ("PUT",)),
    "a rename of the marked one": _Move(vpn(_STAYS, _A), vpn(_STAYS, _RENAMED), ("PUT",)),
    "the VLAN of one that goes": _Move(
        vpn(_A, _B, _STAYS), vpn(_moved(_B, 100), _STAYS), ("DELETE", "PUT")
    ),
    "the VLAN of the marked one, which goes": _Move(
        vpn(_STAYS, _B, _A), vpn(_STAYS, _moved(_B, 100)), ("DELETE", "PUT")
    ),
    "the VLAN of one that moves": _Move(
        vpn(_A, _B, _STAYS), vpn(_moved(_A, 101), _moved(_B, 400), _STAYS), ("PUT", "PUT")
    ),
    "two VLANs swapped": _Move(
        vpn(_A, _B, _STAYS),
        vpn(_moved(_A, 101), _moved(_B, 100), _STAYS),
        ("DELETE", "PUT", "POST"),
    ),
    "two VLANs swapped, one marked": _Move(
        vpn(_STAYS, _A, _B),
        vpn(_STAYS, _moved(_A, 101), _moved(_B, 100)),
        ("DELETE", "PUT", "POST"),
    ),
    "four VLANs, and two of them for new ones": _Move(
        vpn(_A, _B, _C, _D, _STAYS),
        vpn(_moved(_D, 102), _moved(_C, 103), _moved(_A, 400), _B | {"id": "e"}, _STAYS),
        ("PUT", "PUT", "DELETE", "PUT", "POST"),
    ),
    "two ports swapped": _Move(
        vpn(_A, _moved(_B, 100, port=_OTHER_PORT), _STAYS),
        vpn(_A | {"port": _OTHER_PORT}, _moved(_B, 100), _STAYS),
        ("DELETE", "DELETE", "POST", "POST"),
    ),
    "another port of the marked one": _Move(
        vpn(_STAYS, _A), vpn(_STAYS, _A | {"port": _OTHER_PORT}), ("DELETE", "POST")
    ),
}


@pytest.fixture(params=_MOVES)
def move(request: pytest.FixtureRequest) -> _Move:
    return _MOVES[request.param]


def _changes(al2s: Al2s, since: int) -> tuple[str, ...]:
    asked = (request.split()[0] for request in al2s.requests[since:])
    return tuple(method for method in asked if method != "GET")


class TestAModificationByWhichConnectionsTakeThePlacesOfOthers:
    def test_is_made_by_few_requests_and_touches_nothing_else(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s, move: _Move
    ) -> None:
        done(processor.create(move.was).result())
        stays, since = connection(al2s, "stays")["virtualL3ConnectionId"], len(al2s.requests)

        done(processor.modify(move.now).result())

        assert sorted(_changes(al2s, since)) == sorted(move.asked)
        assert not [r for r in al2s.requests[since:] if r.endswith(stays) and r[:3] != "GET"]
        assert driver.differences(move.now) == ()
        found = driver.find(ID)
        assert found
        assert found.stamp
        assert {i.id for i in found.stamp.interfaces} == {i.id for i in move.now.interfaces}
        done(processor.modify(move.was).result())
        assert driver.differences(move.was) == ()

    def test_that_ends_anywhere_is_finished_and_taken_back(
        self, driver: Al2sService, al2s: Al2s, move: _Move
    ) -> None:
        """As if killed: by whatever connections are left."""
        for wanted in (move.now, move.was):
            for number in range(1, len(move.asked) + 1):
                for things in al2s.things.values():
                    things.clear()
                driver.apply(move.was)
                _fail_change(al2s, number, "close")
                with suppress(FabricDirectError):
                    driver.apply(move.now)
                _fail_change(al2s, 0, "close")

                driver.apply(wanted)

                assert driver.differences(wanted) == ()
                assert driver.find(ID)

    @pytest.mark.parametrize("number", range(1, 6))
    def test_that_loses_an_answer_is_made_once(
        self, driver: Al2sService, al2s: Al2s, number: int
    ) -> None:
        move = _MOVES["four VLANs, and two of them for new ones"]
        driver.apply(move.was)
        _fail_change(al2s, number, "lose")

        driver.apply(move.now)

        assert driver.differences(move.now) == ()
        assert len(al2s.things["l3connections"]) == len(move.now.interfaces)

    def test_that_fails_is_taken_back_or_can_be_asked_for_again(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s, move: _Move
    ) -> None:
        done(processor.create(move.was).result())
        for method in dict.fromkeys(move.asked):
            al2s.fault(method, "l3connections", "400")

            outcome = processor.modify(move.now).result()

            assert (outcome.status, outcome.left) == (Status.FAILED, ())
            assert driver.differences(move.was) == ()
        done(processor.modify(move.now).result())

    @pytest.mark.parametrize("undo", [False, True])
    def test_that_cannot_be_taken_back_is_recovered(
        self, processor: HandlerProcessor, driver: Al2sService, al2s: Al2s, undo: bool
    ) -> None:
        move = _MOVES["two VLANs swapped, one marked"]
        done(processor.create(move.was).result())
        faults = [al2s.fault(m, "l3connections", "400", times=50) for m in ("PUT", "POST")]
        outcome = processor.modify(move.now).result()
        assert outcome.left
        assert driver.find(ID) is None
        for fault in faults:
            fault.left = 0

        (recovered,) = processor.recover(undo=undo)

        done(recovered.result())
        assert driver.differences(move.was if undo else move.now) == ()

    def test_waits_until_what_was_deleted_is_not_in_use(
        self, driver: Al2sService, al2s: Al2s, mocker: MockerFixture
    ) -> None:
        move = _MOVES["two VLANs swapped"]
        driver.apply(move.was)
        waits = mocker.spy(Al2sService, "_unused")

        driver.apply(move.now)

        assert waits.call_count == 1


def _fail_change(al2s: Al2s, number: int, fault: str) -> None:
    """Have one of the requests that change connections fail, by its number from 1."""
    left = number

    def fails(method: str, path: str) -> Any:
        nonlocal left
        if method != "GET" and "l3connections" in path:
            left -= 1
            if left == 0:
                return http_standin.Fault(method, path, fault)
        return None

    al2s.next_fault = fails  # type: ignore[method-assign]
