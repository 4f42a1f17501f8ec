"""A cloud that answers what a test says, under the real openstacksdk, and notes every request.

A test takes the fixture ``api``, says what is answered, and lists what was asked, in order::

    def test_a_port_is_made_by_one_request(api: OpenStackApi) -> None:
        api.answer("GET", "network", "/ports", {"ports": []})
        api.answer("POST", "network", "/ports", {"port": PORT}, status=201)

        OpenStackNetwork(api.site(), "").create_port(...)

        assert api.calls == [
            ("GET", "network", "/ports", {"description": "fabric-direct TEST/s"}),
            ("POST", "network", "/ports", {"port": {"network_id": NET, ...}}),
        ]

* The service is ``compute``, ``network``, ``volume``, ``image``, ``identity``, ``placement`` or
  ``baremetal``. The path is what follows the service's endpoint (``/servers/detail``, ``/ports/ID``,
  ``/volumes/detail``: versions and Cinder's project are not in it).
* The fourth is the query of a GET, HEAD or DELETE (a value given more than once is a list), and the JSON
  body of anything else.
* Tokens, version documents, Neutron's extensions (``api.extensions``) and the list of servers without a
  filter (``api.every``) are answered by the fixture and are not in ``calls``; ``api.logins`` counts the
  tokens.
* ``answer`` given more than once for the same request: one after the other, the last one stays. An
  answer that is a function gets the request (``requests.PreparedRequest``; ``query(request)`` and
  ``body(request)`` read it) and returns ``(status, json)``, or raises, for example
  ``requests.exceptions.ReadTimeout()``, as if that had happened to the request.
* What was not foreseen is noted in ``calls`` and is an :class:`AssertionError` in the driver.
* What is retried by the transport (GET and DELETE answered with 503) is in ``calls`` each time.
* The read cache works as in the library: ``with ReadCache().active():``.
"""

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import responses
import tenacity
from keystoneauth1 import _utils
from keystoneauth1.access.service_catalog import ServiceCatalog
from openstack.connection import Connection
from openstack.fields import Body, Header
from openstack.resource import Resource
from requests import PreparedRequest, Request

from fabric_direct.drivers.openstack.client import name_cache, poller, session
from fabric_direct.drivers.openstack.networks import neutron
from fabric_direct.site.config import OpenStackSettings, Site
from tests.trust.clock import Clock

Call = tuple[str, str, str, Any]
Answer = dict[str, Any] | str | Callable[[PreparedRequest], tuple[int, Any]] | None

PROJECT = "f388bba2d5d9467c8697fdbfc3993d5e"
USER = "b10bbd3a9a3342ad911fa35638583092"
PASSWORD = "correct horse battery staple"  # noqa: S105 - it opens nothing
TOKEN = "gAAAAABpIEtm-token-"  # noqa: S105
NOWHERE = "http://cloud.test"
_ENDPOINTS = {
    "identity": "/identity/v3",
    "compute": "/compute/v2.1",
    "network": "/networking",
    "volume": f"/volume/v3/{PROJECT}",
    "image": "/image",
    "placement": "/placement",
    "baremetal": "/baremetal",
}
# What is between the endpoint and the path.
_PREFIXES = {"network": "/v2.0", "image": "/v2", "baremetal": "/v1"}
# What Cinder is called in the catalog.
_TYPES = {"volume": "volumev3"}
_IRONIC = {"id": "v1", "status": "CURRENT", "version": "1.82", "min_version": "1.1"}
# As a cloud of the release Zed answers them; Glance's is shortened.
VERSIONS: dict[str, tuple[int, str, dict[str, str]]] = {
    "/identity/v3": (200, "version", {"id": "v3.14", "status": "stable"}),
    "/compute/v2.1": (
        200,
        "version",
        {"id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1"},
    ),
    "/networking/v2.0": (200, "version", {"id": "v2.0", "status": "CURRENT"}),
    "/volume/v3": (
        200,
        "versions",
        {"id": "v3.0", "status": "CURRENT", "version": "3.70", "min_version": "3.0"},
    ),
    "/image": (300, "versions", {"id": "v2.15", "status": "CURRENT", "path": "/image/v2"}),
    "/placement": (
        200,
        "versions",
        {"id": "v1.0", "status": "CURRENT", "max_version": "1.39", "min_version": "1.0"},
    ),
    "/baremetal": (200, "versions", {**_IRONIC, "path": "/baremetal/v1"}),
    "/baremetal/v1": (200, "version", _IRONIC),
}


_OF_THIS_MACHINE = (
    *("OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""Variables of the environment that are not a test's."""


def query(request: PreparedRequest) -> dict[str, Any]:
    """Return the query of a request; a value given more than once is a list."""
    found = parse_qs(urlsplit(request.url or "").query, keep_blank_values=True)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def body(request: PreparedRequest) -> Any:
    """Return the JSON body of a request."""
    return json.loads(request.body) if request.body else None


def neutron_port(name: str = "p", **values: Any) -> dict[str, Any]:
    """Return a port as Neutron tells it, as far as the drivers rely on it.

    :param name: its id.
    """
    usual = {"network_id": "n", "mac_address": "fa:16:3e:00:00:01", "fixed_ips": []}
    return {"id": name, **usual, **values}


class OpenStackApi:
    """The cloud: what it answers, and what it was asked.

    :param directory: where its clouds.yaml is written.
    :param base: URL before the services' paths.
    """

    def __init__(self, directory: Path, base: str = NOWHERE) -> None:
        _remember()
        self.calls: list[Call] = []
        """Every request beside tokens, versions and extensions, in order."""
        self.requests: list[PreparedRequest] = []
        """The same, with headers and all."""
        self.documents: list[str] = []
        """The version documents that were asked for, by their path."""
        self.logins = 0
        self.refused: set[str] = set()
        """Passwords, tokens (``api.token``) and paths of version documents that are refused."""
        self.roles = ["reader", "member", "admin"]
        self.extensions: frozenset[str] = frozenset()
        self.every: list[dict[str, Any]] = []
        """What the list of servers without a filter shows."""
        self.max_limit = 1000
        """How many of them a page has."""
        self.unfiltered = 0
        """How often it was asked for."""
        self.base = base
        self.clouds = directory / "clouds.yaml"
        self.write_clouds()
        self._answers: dict[tuple[str, str, str], list[tuple[int, Answer, dict[str, str]]]] = {}

    def write_clouds(self, *, password: str = PASSWORD, **more: Any) -> None:
        """Write clouds.yaml anew.

        :param more: more of the cloud's entry, for example ``connect_retries=3``.
        """
        auth = {
            "auth_url": self.base + _ENDPOINTS["identity"],
            "username": "fabric",
            "password": password,
            "project_name": "fabric",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        }
        entry = {"auth": auth, "region_name": "RegionOne", **more}
        self.clouds.write_text(json.dumps({"clouds": {"test": entry}}))

    @property
    def token(self) -> str:
        """The token that was given last."""
        return f"{TOKEN}{self.logins}"

    @property
    def settings(self) -> OpenStackSettings:
        """The ``openstack:`` of a site that is served by it."""
        return OpenStackSettings(cloud="test", clouds_file=self.clouds)

    def site(self, *, openstack: dict[str, Any] | None = None, **more: Any) -> Site:
        """Return a site that is served by it.

        :param openstack: more settings of the cloud, for example ``{"external_network": "public"}``.
        :param more: more fields of the site.
        """
        settings = {**self.settings.model_dump(exclude_none=True), **(openstack or {})}
        usual = {"site": "TEST", "state_dir": self.clouds.parent / "state"}
        return Site.model_validate({**usual, "openstack": settings, **more})

    def answer(
        self,
        method: str,
        service: str,
        path: str,
        json: Answer = None,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Say what is answered; given again for the same request, what is answered next.

        :param json: the body, a text that is no JSON, or a function as the module's docstring says.
        """
        if service not in _ENDPOINTS:
            raise ValueError(f"there is no service {service!r}, but {sorted(_ENDPOINTS)}")
        known = self._answers.setdefault((method, service, path), [])
        known.append((status, json, headers or {}))

    def serve(self, request: PreparedRequest) -> tuple[int, dict[str, str], str]:
        """Answer a request: status, headers and body."""
        path = urlsplit(request.url or "").path.rstrip("/")
        if path.endswith("/auth/tokens"):
            return self._login(request)
        if path in VERSIONS:
            return self._document(path)
        if path == "/networking/v2.0/extensions":
            return 200, {}, _text({"extensions": [{"alias": name} for name in self.extensions]})
        if path in {"/identity", "/compute", "/volume", *_ENDPOINTS.values()}:
            # Asked for if the version document does not come.
            return 404, {}, ""
        return self._called(request, path)

    def _document(self, path: str) -> tuple[int, dict[str, str], str]:
        self.documents.append(path)
        if path in self.refused:
            return 503, {}, ""
        status, key, about = VERSIONS[path]
        href = f"{self.base}{about.get('path', path)}/"
        version = {**about, "links": [{"rel": "self", "href": href}]}
        return status, {}, json.dumps({key: version if key == "version" else [version]})

    def _called(self, request: PreparedRequest, path: str) -> tuple[int, dict[str, str], str]:
        method, (service, rest) = request.method or "", _split(path)
        sent = query(request) if method in {"GET", "HEAD", "DELETE"} else body(request)
        if (method, service, rest) == ("GET", "compute", "/servers") and sent.keys() <= {"marker"}:
            self.unfiltered += 1
            return 200, {}, _text(self.page(sent.get("marker")))
        self.calls.append((method, service, rest, sent))
        self.requests.append(request)
        if request.headers.get("X-Auth-Token") in self.refused:
            return _unknown()
        status, answer, headers = self._next(method, service, rest)
        if callable(answer):
            status, answer = answer(request)
        return status, headers, _text(answer)

    def page(self, marker: str | None) -> dict[str, Any]:
        """Return what is on the page after a server, or the first page."""
        after = [server.get("id") for server in self.every].index(marker) + 1 if marker else 0
        shown = self.every[after : after + self.max_limit]
        if after + len(shown) == len(self.every):
            return {"servers": shown}
        following = f"http://elsewhere.invalid/v2.1/servers?marker={shown[-1]['id']}"
        return {"servers": shown, "servers_links": [{"rel": "next", "href": following}]}

    def _next(self, method: str, service: str, path: str) -> tuple[int, Answer, dict[str, str]]:
        known = self._answers.get((method, service, path))
        if not known:
            raise AssertionError(f"the test foresees no {method} {service} {path}")
        return known.pop(0) if len(known) > 1 else known[0]

    def _login(self, request: PreparedRequest) -> tuple[int, dict[str, str], str]:
        self.logins += 1
        if body(request)["auth"]["identity"]["password"]["user"]["password"] in self.refused:
            return _unknown()
        domain = {"id": "default", "name": "Default"}
        token = {
            "methods": ["password"],
            "user": {"domain": domain, "id": USER, "name": "fabric"},
            "audit_ids": ["qD5_HV7NTw62-LD95G9rcQ"],
            "expires_at": "2999-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "project": {"domain": domain, "id": PROJECT, "name": "fabric"},
            "is_domain": False,
            "roles": [{"id": f"{number:032x}", "name": r} for number, r in enumerate(self.roles)],
            "catalog": [_entry(name, self.base + path) for name, path in _ENDPOINTS.items()],
        }
        return 201, {"X-Subject-Token": self.token}, json.dumps({"token": token})


@cache
def _remember() -> None:
    """Let openstacksdk search each class for its attributes once, not thrice for each resource.

    And let keystoneauth copy the catalog of each token once, not for each request, and read its time.
    """
    _utils.parse_isotime = cache(_utils.parse_isotime)
    ServiceCatalog.normalize_catalog = cache(ServiceCatalog.normalize_catalog)  # type: ignore[method-assign]
    search = Resource._attributes_iterator.__func__  # type: ignore[attr-defined]
    found = cache(lambda kind, parts: tuple(search(kind, parts)))

    def attributes(kind: type[Resource], parts: Any = (Body, Header)) -> Iterator[Any]:
        return iter(found(kind, parts))

    mapping = cache(Resource._get_mapping.__func__)  # type: ignore[attr-defined]
    Resource._attributes_iterator = classmethod(attributes)  # type: ignore[assignment]
    Resource._get_mapping = classmethod(mapping)  # type: ignore[assignment,arg-type]


def _text(answer: Any) -> str:
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json.dumps(answer)


def _unknown() -> tuple[int, dict[str, str], str]:
    words = "The request you have made requires authentication."
    error = {"code": 401, "title": "Unauthorized", "message": words}
    return 401, {}, json.dumps({"error": error})


def _entry(name: str, url: str) -> dict[str, Any]:
    endpoints = [
        {
            "id": f"{name}-{interface}",
            "interface": interface,
            "region_id": "RegionOne",
            "region": "RegionOne",
            "url": url,
        }
        for interface in ("public", "internal", "admin")
    ]
    return {"id": name, "type": _TYPES.get(name, name), "name": name, "endpoints": endpoints}


def _split(path: str) -> tuple[str, str]:
    for service, endpoint in _ENDPOINTS.items():
        root = endpoint + _PREFIXES.get(service, "")
        if path.startswith(f"{root}/"):
            return service, path.removeprefix(root)
    raise AssertionError(f"the cloud has no API at {path}")


@pytest.fixture
def clouds_folder(tmp_path: Path) -> Iterator[Path]:
    """Where clouds.yaml is; so a connection of its own for each test."""
    yield tmp_path
    session._connections.clear()


@pytest.fixture(scope="session")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cloud")


@pytest.fixture
def kept_connection(kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a connection that tests share, since each new one discovers all services anew.

    What was found out of networks and names is forgotten between them, and what is waited for is read
    every 10 ms. A file of tests takes it by a fixture ``clouds_folder`` of its own.
    """
    name_cache._names.clear()
    neutron._caches.clear()
    (kept_folder / "state/servers.sqlite").unlink(missing_ok=True)
    monkeypatch.setattr(poller, "_SHORTEST", 0.01)
    return kept_folder


@pytest.fixture
def api(clouds_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenStackApi]:
    """A cloud for each test; no request leaves the process."""
    for name in _OF_THIS_MACHINE:
        monkeypatch.delenv(name, raising=False)
    made = OpenStackApi(clouds_folder)
    with answering(made, monkeypatch):
        yield made


@contextmanager
def answering(cloud: OpenStackApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block, let a cloud answer all requests; what is sent again is sent at once."""
    # It reads the whole environment twice at each request.
    monkeypatch.setattr(requests.sessions, "get_environ_proxies", lambda *_, **__: {})
    clock = Clock()
    for module in (tenacity, tenacity.nap):
        monkeypatch.setattr(module, "time", clock)
    anywhere = re.compile(f"{NOWHERE}/.*")
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
            mock.add_callback(method, anywhere, cloud.serve, content_type="application/json")
        yield
        end_waiting()


def end_waiting() -> None:
    """Let the poller's threads end: their requests would be the next test's."""
    for thread in threading.enumerate():
        if thread.name in {"fabric-direct-servers", "fabric-direct-ports", "fabric-direct-volumes"}:
            thread.join(60)


class LoopbackCloud(OpenStackApi):
    """The same behind a real HTTP server on the loopback, for what happens on the wire.

    An answer that is a function may wait, as an API does that hangs, or raise
    :class:`ConnectionResetError`: then the connection is cut without an answer.
    """

    def __init__(self, directory: Path) -> None:
        self.connections, self.open = 0, 0
        """How many were made, by whatever process, and how many of them are open."""
        self._server = _Server(self)
        super().__init__(directory, f"http://127.0.0.1:{self._server.server_port}")
        serving = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        serving.start()

    def stop(self) -> None:
        """End the server; its address refuses connections then."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # More that come at once, on a busy machine, would wait for seconds until they ask again.
    request_queue_size = 64

    def __init__(self, cloud: LoopbackCloud) -> None:
        self.cloud, self.counting = cloud, threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.counting:
            self.cloud.connections += 1
            self.cloud.open += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self.counting:
            self.cloud.open -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is sent in one piece: a second one would wait 40 ms, until the first is acknowledged.
    wbufsize = -1
    server: _Server

    def serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = self.server.cloud.base + self.path
        request = Request(self.command, url, dict(self.headers), data=content).prepare()
        try:
            status, headers, text = self.server.cloud.serve(request)
        except ConnectionResetError:
            self.cut()
        else:
            self.reply(status, headers, text.encode())

    def cut(self) -> None:
        # With SO_LINGER at 0 s the peer is told with a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        for name, value in (usual | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def hurry(connection: Connection, limit: float) -> None:
    """Limit the requests of a connection from now on.

    To log in and to discover services may take as long as a busy machine needs.
    """
    connection.session.session.get_adapter("http://")._limit = limit


@pytest.fixture
def loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackCloud]:
    """A cloud on the loopback; proxies of the environment are not asked."""
    for name in _OF_THIS_MACHINE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = LoopbackCloud(tmp_path)
    yield made
    end_waiting()
    made.stop()
