"""Listening: on which address, with what, and how it ends."""

import datetime
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.fake import substrate
from fabric_direct.errors import InvalidSite, SliverBusy
from fabric_direct.site.config import Site
from fabric_direct.zones.server import ZoneServer
from tests.conftest import FAKE_DRIVERS
from tests.unit.processes import APART
from tests.unit.zone_sources import sliver_kind

SECONDS = 30


def site(path: Path, delay: float = 0.0, **zone: Any) -> Site:
    return Site(
        site="SERVED",
        state_dir=path / "state",
        drivers=FAKE_DRIVERS,
        guest="fake",
        images={"tiny": {}},
        hosts={"w1": {}},
        limits={"busy": 0.1},
        fake={"delay": delay},
        zone={"listen": "127.0.0.1:0"} | zone,
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a certificate for 127.0.0.1 that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "zone")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return {"certificate": folder / "cert.pem", "key": folder / "key.pem"}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("first-token\n\nsecond-token\n")
    return path


@contextmanager
def running(server: ZoneServer) -> Iterator[ZoneServer]:
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


class TestListening:
    def test_answers_on_a_free_port_of_the_loopback(self, tmp_path: Path) -> None:
        with running(ZoneServer(site(tmp_path))) as server:
            view = httpx.get(f"{server.url}/zones", timeout=SECONDS).json()

        assert server.url == f"http://127.0.0.1:{server.port}"
        assert view["zone"] == "SERVED"
        assert view["capabilities"]["hosts"] == 1

    def test_answers_on_ipv6(self, tmp_path: Path) -> None:
        with running(ZoneServer(site(tmp_path, listen="[::1]:0"))) as server:
            assert httpx.get(f"{server.url}/zones", timeout=SECONDS).status_code == 200

    def test_does_not_tell_what_it_is_made_of(self, tmp_path: Path) -> None:
        with running(ZoneServer(site(tmp_path))) as server:
            response = httpx.get(f"{server.url}/zones", timeout=SECONDS)

        assert "server" not in response.headers

    def test_lets_in_who_has_a_token(self, tmp_path: Path, tokens: Path) -> None:
        with running(ZoneServer(site(tmp_path, token_file=tokens))) as server:
            url = f"{server.url}/zones"
            header = {"Authorization": "Bearer second-token"}

            assert httpx.get(url, timeout=SECONDS).status_code == 401
            assert httpx.get(url, headers=header, timeout=SECONDS).status_code == 200

    def test_shows_its_certificate(
        self, tmp_path: Path, tokens: Path, certificate: dict[str, Path]
    ) -> None:
        trusting = ssl.create_default_context(cafile=certificate["certificate"])
        header = {"Authorization": "Bearer first-token"}

        with running(ZoneServer(site(tmp_path, tls=certificate, token_file=tokens))) as server:
            assert server.url.startswith("https://")
            url = f"{server.url}/zones"
            answer = httpx.get(url, headers=header, verify=trusting, timeout=SECONDS)

        assert answer.status_code == 200

    def test_does_not_hold_answers_back_on_kept_connections(self, tmp_path: Path) -> None:
        with (
            running(ZoneServer(site(tmp_path))) as server,
            httpx.Client(base_url=server.url, timeout=SECONDS) as client,
        ):
            client.get("/zones")
            (kept,) = server._server.server_state.connections
            accepted = kept.transport.get_extra_info("socket")

            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    def test_of_a_site_without_hosts_of_its_own_has_children_alone(self, tmp_path: Path) -> None:
        with running(ZoneServer(site(tmp_path, own_hosts=False))) as server:
            view = httpx.get(f"{server.url}/zones", timeout=SECONDS).json()

        assert view["capabilities"]["hosts"] == 0


class TestWhatIsRefused:
    @pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "zone.example:0"])
    @pytest.mark.parametrize("missing", ["tls", "token_file"])
    def test_is_an_open_address_without_tls_or_tokens(
        self,
        tmp_path: Path,
        tokens: Path,
        certificate: dict[str, Path],
        listen: str,
        missing: str,
    ) -> None:
        given = {"tls": certificate, "token_file": tokens}
        del given[missing]

        with pytest.raises(InvalidSite, match="not a loopback address") as refused:
            ZoneServer(site(tmp_path, listen=listen, **given))

        assert refused.value.field == f"zone.{missing}"

    def test_is_an_address_that_is_taken(self, tmp_path: Path) -> None:
        with running(ZoneServer(site(tmp_path))) as server:
            taken = f"127.0.0.1:{server.port}"
            with pytest.raises(InvalidSite, match="cannot listen") as refused:
                ZoneServer(site(tmp_path / "other", listen=taken))

        assert refused.value.field == "zone.listen"

    def test_is_a_port_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSite, match="65536 is not a port number"):
            ZoneServer(site(tmp_path, listen="127.0.0.1:65536"))

    @pytest.mark.parametrize(
        "content", ["", "\n\n", "two words\n", "good-one\nnot;good\n", "gr\u00fcn\n"]
    )
    def test_is_a_file_without_good_tokens(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "tokens"
        path.write_text(content)

        with pytest.raises(InvalidSite) as refused:
            ZoneServer(site(tmp_path, token_file=path))

        assert refused.value.field == "zone.token_file"
        assert not [word for word in content.split() if word in str(refused.value)]

    def test_is_a_file_of_tokens_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSite) as refused:
            ZoneServer(site(tmp_path, token_file=tmp_path / "none"))

        assert refused.value.field == "zone.token_file"

    def test_is_a_certificate_that_cannot_be_used(
        self, tmp_path: Path, certificate: dict[str, Path]
    ) -> None:
        bad = tmp_path / "bad.pem"
        bad.write_text("no certificate")

        for tls in (
            {**certificate, "certificate": bad},
            {**certificate, "key": bad},
            {**certificate, "key": tmp_path / "none"},
        ):
            with pytest.raises(InvalidSite) as refused:
                ZoneServer(site(tmp_path, tls=tls))
            assert refused.value.field == "zone.tls"

    def test_is_a_second_server_of_the_same_state(self, tmp_path: Path) -> None:
        with running(ZoneServer(site(tmp_path))) as server:
            httpx.get(f"{server.url}/zones", timeout=SECONDS)
            with pytest.raises(SliverBusy, match="the zone SERVED"):
                ZoneServer(site(tmp_path)).run()


def _serve(where: Site, told: Connection, hang: bool) -> None:
    if hang:
        substrate(where, "w1").fault("compute.create", kind="hang")
    ended = ZoneServer(where).run(told.send)
    told.send((ended, sorted(substrate(where, "w1").servers)))
    if not ended:
        os._exit(0)


@contextmanager
def process(where: Site, *, hang: bool = False) -> Iterator[tuple[Any, Connection]]:
    """Serve a site in a process of its own; give it, and what it tells."""
    ours, theirs = APART.Pipe()
    child = APART.Process(target=_serve, args=(where, theirs, hang))
    child.start()
    yield child, ours
    child.join(SECONDS)
    assert child.exitcode == 0


def heard(told: Connection) -> Any:
    assert told.poll(SECONDS)
    return told.recv()


def booted(url: str) -> str:
    request = {"request_id": "request-1", "kinds": [sliver_kind()], "deadline": 20}
    answer = httpx.post(f"{url}/zones/boot", json=request, timeout=SECONDS)
    assert answer.status_code == 202
    return f"{url}/reservations/{answer.json()['reservation_id']}"


class TestTheEnd:
    @pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
    def test_finishes_what_is_under_way(self, tmp_path: Path, signal_number: int) -> None:
        with process(site(tmp_path, delay=0.03)) as (child, told):
            url = heard(told)
            booted(url)
            os.kill(child.pid, signal_number)
            ended, there = heard(told)

        assert ended
        assert [sliver.rpartition("-")[2] for sliver in there] == ["1"]
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/zones", timeout=SECONDS)

    def test_comes_at_once_by_a_second_signal_and_the_next_server_goes_on(
        self, tmp_path: Path
    ) -> None:
        with process(site(tmp_path), hang=True) as (child, told):
            url = booted(heard(told))
            path = urlsplit(url).path
            os.kill(child.pid, signal.SIGTERM)
            wait_until("the server to stop listening", lambda: _refused(url), timeout=SECONDS)
            os.kill(child.pid, signal.SIGTERM)
            ended, there = heard(told)

        assert (ended, there) == (False, [])
        with running(ZoneServer(site(tmp_path))) as server:
            wait_until(
                "the instance",
                lambda: _statuses(server.url + path) == ["done"],
                timeout=SECONDS,
            )


def _refused(url: str) -> bool:
    try:
        httpx.get(url, timeout=SECONDS)
    except httpx.TransportError:
        return True
    return False


def _statuses(url: str) -> list[str]:
    return [i["status"] for i in httpx.get(url, timeout=SECONDS).json()["instances"]]
