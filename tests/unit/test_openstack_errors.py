"""What the APIs say becomes our errors, in their words; and what to do if it is not clear."""

import pickle
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions as keystone
from openstack import exceptions as sdk
from openstack.connection import Connection

from fabric_direct.calls.deadline import Deadline, bounded
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.openstack.client.errors import (
    make_once,
    status_of,
    translated,
    unclear,
    words,
)
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.errors import (
    Conflict,
    Denied,
    DriverError,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    PoolExhausted,
    QuotaExceeded,
    TimedOut,
    Unreachable,
    Unsupported,
)
from tests.unit.openstack_api import LoopbackCloud, OpenStackApi, hurry, neutron_port

POLICY = "Policy doesn't allow os_compute_api:os-quota-sets:update to be performed."
CORES = "Quota exceeded for cores: Requested 4, but already used 18 of 20 cores"
GIGABYTES = (
    "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota. "
    "Requested 100G, quota is 10G and 0G has been consumed."
)
VOLUMES = (
    "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'."
)
PORTS = "Quota exceeded for resources: ['port']."
NO_ADDRESS = "No more IP addresses available on network 2d8bc0a2-0f9d-4a3f-8f6c-8b5a2b6c7d8e."
NO_FLOATING = (
    "Unable to find any IP address on external network 2d8bc0a2-0f9d-4a3f-8f6c-8b5a2b6c7d8e."
)
BUSY = "Cannot 'reboot' instance 5ac4 while it is in vm_state building"
PROVIDER = "(rule:create_network:provider:physical_network) is disallowed by policy"
UNKNOWN = "The request you have made requires authentication."


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


def nova(name: str, code: int, message: str) -> dict[str, Any]:
    return {name: {"code": code, "message": message}}


def neutron(kind: str, message: str) -> dict[str, Any]:
    return {"NeutronError": {"type": kind, "message": message, "detail": ""}}


class TestAnAnswer:
    @pytest.mark.parametrize(
        ("status", "answer", "kind", "said"),
        [
            (400, nova("badRequest", 400, "Bad networks format"), DriverError, "Bad networks"),
            (401, nova("error", 401, UNKNOWN), Denied, UNKNOWN),
            (403, nova("forbidden", 403, POLICY), Denied, POLICY),
            (403, neutron("PolicyNotAuthorized", PROVIDER), Denied, PROVIDER),
            (403, nova("forbidden", 403, CORES), QuotaExceeded, CORES),
            (404, nova("itemNotFound", 404, "Instance 5ac4 could not be found."), NotFound, "5ac4"),
            (409, nova("conflictingRequest", 409, BUSY), Conflict, BUSY),
            (409, neutron("OverQuota", PORTS), QuotaExceeded, PORTS),
            (409, neutron("IpAddressGenerationFailure", NO_ADDRESS), PoolExhausted, NO_ADDRESS),
            (409, neutron("ExternalIpAddressExhausted", NO_FLOATING), PoolExhausted, NO_FLOATING),
            (413, nova("overLimit", 413, GIGABYTES), QuotaExceeded, GIGABYTES),
            (413, nova("overLimit", 413, VOLUMES), QuotaExceeded, VOLUMES),
            (413, None, DriverError, HTTPStatus(413).phrase),  # Python 3.13 has another one
            (429, None, Unreachable, "Too Many Requests"),
            (500, nova("computeFault", 500, "Unexpected API Error."), DriverError, "Unexpected"),
            (501, None, Unsupported, "Not Implemented"),
            (502, None, Unreachable, "Bad Gateway"),
            (503, None, Unreachable, "Service Unavailable"),
            (504, None, Unreachable, "Gateway Time"),
        ],
    )
    def test_becomes_our_error_in_the_apis_own_words(
        self, api: OpenStackApi, status: int, answer: Any, kind: type[Exception], said: str
    ) -> None:
        api.answer("PUT", "network", "/ports/p", answer, status=status)

        with pytest.raises(kind) as refusal, translated("change the port", "lab"):
            cloud(api.settings).network.update_port("p", name="n")

        assert type(refusal.value) is kind
        assert str(refusal.value).startswith("cannot change the port (lab): ")
        assert said in refusal.value.why
        assert isinstance(refusal.value.__cause__, sdk.HttpException)
        assert status_of(refusal.value) == status

    def test_says_what_right_is_missing_and_whose_it_is(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/os-services", nova("forbidden", 403, POLICY), status=403)

        with pytest.raises(Denied, match="administrator"), translated("list the hosts"):
            list(cloud(api.settings).compute.services())

    def test_says_where_if_nobody_else_does(self, api: OpenStackApi) -> None:
        api.answer("GET", "network", "/ports", status=500)

        with pytest.raises(DriverError, match=r"\(cloud\.test\)"), translated("list the ports"):
            list(cloud(api.settings).network.ports())

    def test_of_several_lines_is_told_in_one(self, api: OpenStackApi) -> None:
        api.answer("GET", "network", "/ports", neutron("X", "one\ntwo"), status=400)

        with pytest.raises(DriverError, match="one two"), translated("list the ports"):
            list(cloud(api.settings).network.ports())

    def test_can_be_sent_to_another_process(self, api: OpenStackApi) -> None:
        api.answer("GET", "network", "/ports", status=500)

        with pytest.raises(DriverError) as refusal, translated("list the ports"):
            list(cloud(api.settings).network.ports())

        assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)  # noqa: S301


class TestNoAnswer:
    def test_from_an_address_where_nobody_listens_is_unreachable(
        self, loopback: LoopbackCloud
    ) -> None:
        loopback.answer("GET", "network", "/ports", {"ports": []})
        connection = cloud(loopback.settings)
        list(connection.network.ports())
        connection.session.session.close()
        loopback.stop()

        with pytest.raises(Unreachable, match="refused"), translated("list the ports"):
            list(connection.network.ports())

    def test_from_keystone_is_unreachable(self, loopback: LoopbackCloud) -> None:
        loopback.stop()

        with pytest.raises(Unreachable, match=r"refused.*check that the API is up"):
            assert cloud(loopback.settings).network

    def test_to_a_login_alone_is_unreachable_too(self, loopback: LoopbackCloud) -> None:
        loopback.stop()

        with pytest.raises(Unreachable, match="refused"), translated("log in"):
            cloud(loopback.settings).authorize()

    def test_in_time_is_timed_out(self, loopback: LoopbackCloud) -> None:
        gate = Event()

        def hang(_: object) -> tuple[int, Any]:
            gate.wait(60)
            return 200, {}

        loopback.answer("GET", "network", "/ports", hang)
        network = cloud(loopback.settings).network
        hurry(cloud(loopback.settings), 0.3)
        with pytest.raises(TimedOut, match="timed out"), translated("list the ports"):
            list(network.ports())
        gate.set()

    def test_because_the_name_is_unknown_is_unreachable(self, api: OpenStackApi) -> None:
        def fail(_: object) -> Any:
            raise requests.exceptions.ConnectionError("Name or service not known")

        api.answer("GET", "network", "/ports", fail)

        with pytest.raises(Unreachable, match="not known"), translated("list the ports"):
            list(cloud(api.settings).network.ports())


class TestTranslation:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (sdk.ConfigException("no such cloud"), InvalidSite),
            (keystone.MissingRequiredOptions([]), InvalidSite),
            (keystone.NoMatchingPlugin("v9password"), InvalidSite),
            (keystone.EndpointNotFound("no compute"), Unsupported),
            (sdk.ServiceDisabledException("no placement"), Unsupported),
            (sdk.NotSupported("microversion"), Unsupported),
            (keystone.AuthorizationFailure("no"), Denied),
            (keystone.Unauthorized("no"), Denied),
            (keystone.ServiceUnavailable("no"), Unreachable),
            (keystone.SSLError("certificate verify failed"), Unreachable),
            (keystone.DiscoveryFailure("no versions"), Unreachable),
            (sdk.ResourceTimeout("too long"), TimedOut),
            (sdk.ResourceFailure("ERROR"), DriverError),
            (sdk.SDKException("strange"), DriverError),
            (requests.exceptions.JSONDecodeError("not JSON", "<html>", 0), DriverError),
        ],
    )
    def test_of_what_the_libraries_raise(self, error: Exception, kind: type[Exception]) -> None:
        with pytest.raises(kind) as refusal, translated("do it", "lab"):
            raise error

        assert type(refusal.value) is kind
        assert refusal.value.__cause__ is error

    def test_names_the_field_of_a_cloud_that_is_not_there(self) -> None:
        with pytest.raises(InvalidSite) as refusal, translated("do it"):
            raise sdk.ConfigException("Cloud renc was not found.")

        assert str(refusal.value).startswith("openstack.cloud: cannot do it: Cloud renc was not")

    @pytest.mark.parametrize("error", [InvalidSliver("no"), AssertionError(), KeyError("x")])
    def test_leaves_our_own_errors_and_mistakes_alone(self, error: Exception) -> None:
        with pytest.raises(type(error)) as raised, translated("do it"):
            raise error

        assert raised.value is error

    def test_of_the_same_words_from_ours_and_theirs(self) -> None:
        theirs = sdk.SDKException("as the API says")
        with pytest.raises(DriverError) as ours, translated("do it"):
            raise theirs

        assert words(theirs) == words(ours.value) == "as the API says"


class TestWhetherItWasCarriedOut:
    @staticmethod
    def failure(connection: Connection) -> Exception:
        with pytest.raises((keystone.ClientException, sdk.SDKException)) as failure:
            connection.network.create_port(name="p")
        return failure.value

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_is_unclear_if_the_api_broke_down(self, api: OpenStackApi, status: int) -> None:
        api.answer("POST", "network", "/ports", status=status)

        assert unclear(self.failure(cloud(api.settings)))

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 429])
    def test_is_clear_if_the_api_refused(self, api: OpenStackApi, status: int) -> None:
        api.answer("POST", "network", "/ports", status=status)

        assert not unclear(self.failure(cloud(api.settings)))

    def test_is_unclear_if_the_connection_was_cut(self, loopback: LoopbackCloud) -> None:
        def cut(_: object) -> tuple[int, Any]:
            raise ConnectionResetError

        loopback.answer("POST", "network", "/ports", cut)

        assert unclear(self.failure(cloud(loopback.settings)))

    def test_is_unclear_if_no_answer_came_in_time(self, loopback: LoopbackCloud) -> None:
        gate = Event()

        def hang(_: object) -> tuple[int, Any]:
            gate.wait(60)
            return 201, {"port": neutron_port()}

        loopback.answer("POST", "network", "/ports", hang)
        connection = cloud(loopback.settings)
        assert connection.network
        hurry(connection, 0.3)

        assert unclear(self.failure(connection))
        gate.set()

    def test_is_unclear_if_the_answer_broke_off(self, loopback: LoopbackCloud) -> None:
        longer = {"Content-Length": "999", "Connection": "close"}
        loopback.answer("POST", "network", "/ports", {"port": neutron_port()}, headers=longer)

        assert unclear(self.failure(cloud(loopback.settings)))

    def test_is_clear_if_nobody_listened(self, loopback: LoopbackCloud) -> None:
        connection = cloud(loopback.settings)
        assert connection.network
        connection.session.session.close()
        loopback.stop()

        assert not unclear(self.failure(connection))

    @pytest.mark.parametrize(
        ("fault", "is_unclear"),
        [
            (requests.exceptions.ConnectTimeout(), False),
            (requests.exceptions.ReadTimeout(), True),
            (requests.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] expired"), False),
            (requests.exceptions.SSLError("EOF occurred in violation of protocol"), True),
            (requests.exceptions.ChunkedEncodingError("IncompleteRead"), True),
        ],
    )
    def test_follows_from_what_happened(
        self, api: OpenStackApi, fault: Exception, is_unclear: bool
    ) -> None:
        def fail(_: object) -> Any:
            raise fault

        api.answer("POST", "network", "/ports", fail)

        assert unclear(self.failure(cloud(api.settings))) is is_unclear

    def test_is_said_of_a_translated_error_too(self, api: OpenStackApi) -> None:
        api.answer("POST", "network", "/ports", status=504)

        with pytest.raises(Unreachable) as failure, translated("make the port"):
            cloud(api.settings).network.create_port(name="p")

        assert unclear(failure.value)

    def test_is_clear_if_the_cloud_was_not_even_asked(self) -> None:
        assert not unclear(InvalidSliver("no"))
        assert not unclear(ValueError())


class TestMakeOnce:
    """A port is made, and looked for by its stamp if the answer got lost."""

    PORT = neutron_port(description="ours")

    @pytest.fixture
    def connection(self, api: OpenStackApi) -> Connection:
        return cloud(api.settings)

    @staticmethod
    def make(connection: Connection, timeout: float = 60) -> str:
        def find() -> str | None:
            return next((port.id for port in connection.network.ports(description="ours")), None)

        return make_once(
            lambda: connection.network.create_port(description="ours").id, find, timeout=timeout
        )

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each pause lasts as long as it should, by a clock of its own."""
        now = [0.0]
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
        monkeypatch.setattr("tenacity.time", SimpleNamespace(monotonic=lambda: now[0]))

    def test_looks_for_nothing_if_all_goes_well(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("POST", "network", "/ports", {"port": self.PORT}, status=201)

        assert self.make(connection) == "p"
        assert [method for method, *_ in api.calls] == ["POST"]

    def test_returns_what_was_made_although_the_answer_got_lost(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("POST", "network", "/ports", status=504)
        api.answer("GET", "network", "/ports", {"ports": []})
        api.answer("GET", "network", "/ports", {"ports": [self.PORT]})

        assert self.make(connection) == "p"
        assert [method for method, *_ in api.calls] == ["POST", "GET", "GET"]

    def test_looks_past_the_read_cache(self, api: OpenStackApi, connection: Connection) -> None:
        def lose(_: object) -> Any:
            # Somebody of the same operation reads while the request is on its way.
            list(connection.network.ports(description="ours"))
            raise requests.exceptions.ReadTimeout

        api.answer("POST", "network", "/ports", lose)
        for _ in range(3):
            api.answer("GET", "network", "/ports", {"ports": []})
        api.answer("GET", "network", "/ports", {"ports": [self.PORT]})

        with ReadCache().active():
            list(connection.network.ports(description="ours"))
            assert self.make(connection) == "p"

    def test_goes_on_looking_while_the_api_is_down(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("POST", "network", "/ports", status=503)
        for _ in range(4):
            api.answer("GET", "network", "/ports", status=503)
        api.answer("GET", "network", "/ports", {"ports": [self.PORT]})

        assert self.make(connection) == "p"

    def test_raises_the_first_error_if_it_finds_nothing_in_time(
        self, api: OpenStackApi, connection: Connection, clock: None
    ) -> None:
        api.answer("POST", "network", "/ports", status=504)
        api.answer("GET", "network", "/ports", {"ports": []})

        with pytest.raises(sdk.HttpException, match="504"):
            self.make(connection, timeout=10)

        assert len(api.calls) > 3
        assert [method for method, *_ in api.calls].count("POST") == 1

    def test_does_not_look_if_the_api_refused(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("POST", "network", "/ports", neutron("OverQuota", PORTS), status=409)

        with pytest.raises(QuotaExceeded), translated("make the port"):
            self.make(connection)

        assert [method for method, *_ in api.calls] == ["POST"]

    def test_finds_what_it_is_in_conflict_with_if_that_is_the_thing_itself(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        refusal = neutron("FloatingIPPortAlreadyAssociated", "that fixed IP already has one")
        api.answer("POST", "network", "/ports", refusal, status=409)
        api.answer("GET", "network", "/ports", {"ports": [self.PORT]})

        assert self.make(connection) == "p"

    def test_a_conflict_with_another_thing_stays_one(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        refusal = neutron("FloatingIPPortAlreadyAssociated", "that fixed IP already has one")
        api.answer("POST", "network", "/ports", refusal, status=409)
        api.answer("GET", "network", "/ports", {"ports": []})

        with pytest.raises(Conflict), translated("make the port"):
            self.make(connection)

        assert [method for method, *_ in api.calls] == ["POST", "GET"]

    def test_takes_errors_that_were_translated_already(self) -> None:
        def make() -> str:
            with translated("make it"):
                raise keystone.UnknownConnectionError("broken", OSError())

        assert make_once(make, lambda: "found", timeout=1) == "found"

    @pytest.mark.parametrize("found", [["port"], []])
    def test_what_was_found_cannot_come_any_more(
        self, api: OpenStackApi, connection: Connection, clock: None, found: list[str]
    ) -> None:
        api.answer("POST", "network", "/ports", status=504)
        api.answer("GET", "network", "/ports", {"ports": [self.PORT for _ in found]})
        deadline, make = Deadline.within(60), partial(self.make, connection)

        class Driver:
            def create_port(self) -> None:
                with suppress(sdk.HttpException):
                    make()

        bounded(Driver(), "network", deadline, 30).create_port()

        assert len(deadline.late()) == 1 - len(found)

    def test_leaves_mistakes_alone(self) -> None:
        with pytest.raises(ZeroDivisionError):
            make_once(lambda: 1 // 0, lambda: 1, timeout=1)


def test_every_error_is_ours(api: OpenStackApi) -> None:
    api.answer("GET", "network", "/ports", status=418)

    with pytest.raises(FabricDirectError), translated("list the ports"):
        list(cloud(api.settings).network.ports())


@pytest.mark.parametrize("answer", [1, [], {}, {"ports": 1}, {"ports": [1]}], ids=str)
def test_an_answer_of_another_form_is_an_error_of_ours(api: OpenStackApi, answer: Any) -> None:
    api.answer("GET", "network", "/ports", answer)
    api.answer("GET", "network", "/floatingips", {"floatingips": []})

    with pytest.raises(DriverError, match="the API's answer is invalid"):
        OpenStackNetwork(api.site(), "").ports("s")


@pytest.mark.parametrize("answer", [{"port": 1}, {"port": {}}, {}, "<html>", '{"port": {'], ids=str)
def test_a_creation_whose_answer_cannot_be_read_is_looked_for(
    api: OpenStackApi, answer: Any
) -> None:
    api.answer("POST", "network", "/ports", answer, status=201)
    network = cloud(api.settings).network

    def make() -> object:
        with translated("make it"):
            return network.create_port(name="x")

    assert make_once(make, lambda: "found", timeout=1) == "found"
