"""The page: who is let in, what it shows and in which words, and what it costs the site."""

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from anyio import CapacityLimiter

from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.errors import InvalidSite
from fabric_direct.model import ErrorReport, NodeSliver, Status
from fabric_direct.model.services import L2Bridge
from fabric_direct.operations.progress import Progress
from fabric_direct.page import pictures
from fabric_direct.page.app import PageApp
from fabric_direct.page.events import Events
from fabric_direct.page.overview import overview
from fabric_direct.page.readings import SharedReading, ask_all
from fabric_direct.page.sessions import LIFETIME, VARIABLE, Sessions, accepted_tokens, token_path
from fabric_direct.page.watching import Watching, limited
from fabric_direct.processor import HandlerProcessor
from fabric_direct.serving import access
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import AuditTrail, asked_by
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.lines import now
from fabric_direct.state.repair_history import History, Note, RepairResult
from tests.conftest import FAKE_DRIVERS

pytestmark = pytest.mark.anyio

MakeVm = Callable[..., NodeSliver]
(TOKEN,) = ("the-token",)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PATHS = ["/", "/slivers", "/devices", "/history", "/hosts/w1", "/slivers/vm-1"]
GPUS = [
    {"type": "GPU", "model": "A30", "bdf": address} for address in ("0000:25:00.0", "0000:26:00.0")
]
HOSTILE = "<script>alert('x')</script>\u202e\x1b[2J"
"""Text that runs, turns what follows around, and clears a terminal."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(
        site="SHOWN",
        state_dir=tmp_path / "state",
        drivers=FAKE_DRIVERS | {"L2Bridge": "fake"},
        guest="fake",
        images={"tiny": {}},
        networks={"red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}},
        hosts={"w1": {"devices": GPUS}, "w2": {"maintenance": "new memory"}},
        switches={"sw1": {"ports": {"p1": {"vlans": ["100-199"]}}}},
        limits={"busy": 0.1},
    )


@pytest.fixture
def hosts(site: Site) -> Iterator[dict[str, Substrate]]:
    there = {name: substrate(site, name) for name in site.hosts}
    yield there
    for each in there.values():
        each.mend()


@pytest.fixture
def processor(site: Site, hosts: dict[str, Substrate]) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor
        for each in hosts.values():
            each.mend()


@pytest.fixture
def make(vm: MakeVm, processor: HandlerProcessor) -> Callable[..., NodeSliver]:
    """Create a sliver of that id on w1."""

    def made(name: str = "vm-1", **values: Any) -> NodeSliver:
        nic = {"type": "vNIC", "id": "nic1", "network": "red"}
        sliver = vm(id=name, **({"host": "w1", "components": (nic,)} | values))
        outcome = processor.create(sliver).result()
        assert outcome.ok, outcome.error
        return sliver

    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


@pytest.fixture
def watching(processor: HandlerProcessor, clock: Clock) -> Watching:
    return Watching(processor, patience=30, clock=clock)


@pytest.fixture
async def stranger(watching: Watching, sessions: Sessions) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without a token."""
    app = PageApp(watching, [TOKEN], sessions=sessions).asgi()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
        yield client


@pytest.fixture
async def viewer(stranger: httpx.AsyncClient) -> httpx.AsyncClient:
    """A script that has the token."""
    stranger.headers.update(BEARER)
    return stranger


async def login(client: httpx.AsyncClient, token: str = TOKEN, then: str = "/") -> httpx.Response:
    return await client.post("/login", data={"token": token, "then": then})


async def shown(client: httpx.AsyncClient, path: str = "/") -> str:
    """Return what a page says, without its tags."""
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return told(answer)


def told(answer: httpx.Response) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())


def asked_for(path: str) -> dict[str, Any]:
    """Return the scope of a request with the token, as a server makes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
    }


class TestWhoIsLetIn:
    async def test_a_stranger_gets_the_form_and_nothing_of_the_site(
        self, stranger: httpx.AsyncClient, make: MakeVm
    ) -> None:
        make("vm-1")

        for path in [*PATHS, "/events", "/hosts/w1/picture.svg", "/nothing"]:
            answer = await stranger.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert 'name="token"' in answer.text
            assert "w1" not in told(answer)
            assert "running" not in told(answer)

    async def test_a_script_is_let_in_by_its_header(self, stranger: httpx.AsyncClient) -> None:
        assert (await stranger.get("/", headers=BEARER)).status_code == 200

    @pytest.mark.parametrize("header", ["Bearer other", "Bearer", "Basic the-token", "the-token"])
    async def test_another_header_lets_nobody_in(
        self, stranger: httpx.AsyncClient, header: str
    ) -> None:
        answer = await stranger.get("/", headers={"Authorization": header})

        assert answer.status_code == 401

    async def test_a_browser_is_let_in_by_the_form_and_comes_to_where_it_wanted(
        self, stranger: httpx.AsyncClient
    ) -> None:
        asked = await stranger.get("/slivers?state=running")
        assert 'value="/slivers?state=running"' in asked.text

        answer = await login(stranger, then="/slivers?state=running")

        assert answer.status_code == 303
        assert answer.headers["location"] == "/slivers?state=running"
        assert (await stranger.get("/")).status_code == 200

    async def test_the_cookie_is_no_token_and_out_of_reach_of_scripts_and_other_sites(
        self, stranger: httpx.AsyncClient
    ) -> None:
        answer = await login(stranger)

        cookie = answer.headers["set-cookie"]
        assert TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie

    async def test_over_tls_the_cookie_goes_over_tls_alone(self, watching: Watching) -> None:
        app = PageApp(watching, [TOKEN], secure=True).asgi()
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="https://page"
        ) as client:
            assert "Secure" in (await login(client)).headers["set-cookie"]

    @pytest.mark.parametrize("token", ["", "other", "the-tokeN", "the-token-", "ä"])
    async def test_a_wrong_token_lets_nobody_in_and_is_in_no_log(
        self, stranger: httpx.AsyncClient, token: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG, logger="fabric_direct"):
            answer = await login(stranger, token)

        assert answer.status_code == 401
        assert "not accepted" in answer.text
        assert 'role="alert"' in answer.text
        assert not stranger.cookies
        assert "a wrong token was given" in caplog.text
        assert not token or token not in caplog.text

    async def test_tokens_are_compared_in_a_time_that_tells_nothing(
        self, stranger: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compared: list[bytes] = []

        def compare(one: bytes, other: bytes) -> bool:
            compared.append(other)
            return one == other

        monkeypatch.setattr(access.hmac, "compare_digest", compare)
        await login(stranger, "other")

        assert TOKEN.encode() in compared

    async def test_who_logs_out_is_out_and_the_cookie_is_worth_nothing(
        self, stranger: httpx.AsyncClient
    ) -> None:
        await login(stranger)
        kept = dict(stranger.cookies)

        answer = await stranger.post("/logout")

        assert answer.headers["location"] == "/login"
        assert (await stranger.get("/")).status_code == 401
        stranger.cookies.update(kept)
        assert (await stranger.get("/")).status_code == 401

    async def test_a_session_ends_by_itself(
        self, stranger: httpx.AsyncClient, clock: Clock
    ) -> None:
        await login(stranger)
        clock.now += LIFETIME

        assert (await stranger.get("/")).status_code == 401

    def test_sessions_are_not_without_number(self, sessions: Sessions) -> None:
        first, *_, last = [sessions.begin() for _ in range(300)]

        assert not sessions.has(first)
        assert sessions.has(last)

    @pytest.mark.parametrize(
        "then", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", ""]
    )
    async def test_the_form_leads_nowhere_else(
        self, stranger: httpx.AsyncClient, then: str
    ) -> None:
        assert (await login(stranger, then=then)).headers["location"] == "/"

    async def test_a_long_form_is_refused(self, stranger: httpx.AsyncClient) -> None:
        assert (await login(stranger, "x" * 5000)).status_code == 413

    async def test_a_cookie_that_is_none_lets_nobody_in(self, stranger: httpx.AsyncClient) -> None:
        for cookie in ("fabric-direct", "=;=;", "a=\xff", "fabric-direct-x=" + "y" * 3000):
            headers = {"Cookie": cookie.encode("latin-1")}
            assert (await stranger.get("/", headers=headers)).status_code == 401  # type: ignore[arg-type]


class TestTheToken:
    def test_is_made_once_for_this_user_alone(self, tmp_path: Path) -> None:
        first = accepted_tokens(tmp_path, None)

        assert accepted_tokens(tmp_path, None) == first
        assert len(first[0]) > 40
        assert token_path(tmp_path).stat().st_mode & 0o777 == 0o600

    def test_of_the_environment_is_in_no_childs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, "given")

        assert accepted_tokens(tmp_path, None) == ("given",)

        assert not token_path(tmp_path).exists()
        assert accepted_tokens(tmp_path, None) != ("given",)

    def test_that_is_none_is_refused_and_not_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, "two words")

        with pytest.raises(InvalidSite) as refused:
            accepted_tokens(tmp_path, None)

        assert refused.value.field == VARIABLE
        assert "two" not in str(refused.value)

    def test_in_a_file_that_others_may_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("one\ntwo\n")
        path.chmod(0o600)
        assert accepted_tokens(tmp_path, path) == ("one", "two")
        path.chmod(0o644)

        with pytest.raises(InvalidSite, match="others may read"):
            accepted_tokens(tmp_path, path)


class TestEveryAnswer:
    async def test_has_headers_that_let_browsers_do_little(
        self, viewer: httpx.AsyncClient, make: MakeVm
    ) -> None:
        make("vm-1")

        for path in [*PATHS, "/login", "/static/page.css", "/nothing"]:
            headers = (await viewer.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe-inline" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"

    async def test_has_nothing_that_the_policy_forbids(
        self, viewer: httpx.AsyncClient, make: MakeVm
    ) -> None:
        make("vm-1")
        forbidden = r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=|https?://"

        for path in [*PATHS, "/login"]:
            assert re.findall(forbidden, (await viewer.get(path)).text) == []

    async def test_has_landmarks_captions_and_labels(
        self, viewer: httpx.AsyncClient, make: MakeVm
    ) -> None:
        make("vm-1")

        for path in [*PATHS, "/login"]:
            text = (await viewer.get(path)).text
            assert '<html lang="en">' in text
            assert text.count("<h1>") == text.count("<main") == 1
            assert text.count("<table>") == text.count("<caption") == text.count("<thead>")
            assert not re.search(r"<th(?! scope=)[ >]", text)
            ids = re.findall(r'\sid="([^"]*)"', text)
            assert len(ids) == len(set(ids))
            for name in re.findall(r'<(?:input|select)[^>]* id="([^"]*)"', text):
                assert f'<label for="{name}"' in text
            assert 'class="skip" href="#main"' in text

    async def test_changes_nothing(self, viewer: httpx.AsyncClient) -> None:
        for path in [*PATHS, "/events", "/picture.svg"]:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert (await viewer.request(method, path)).status_code == 405

    async def test_of_what_is_not_there_says_so(self, viewer: httpx.AsyncClient) -> None:
        for path in ("/hosts/w9", "/slivers/vm-9", "/hosts/w9/picture.svg", "/static/app.py"):
            assert (await viewer.get(path)).status_code == 404

    async def test_that_fails_says_nothing_of_why(
        self, viewer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*_: object) -> None:
            raise RuntimeError("a secret")

        monkeypatch.setattr(Watching, "look", fail)

        answer = await viewer.get("/")

        assert answer.status_code == 500
        assert "secret" not in answer.text


class TestHostileText:
    async def test_stays_text(self, viewer: httpx.AsyncClient, site: Site, make: MakeVm) -> None:
        make("vm-1")
        trail = AuditTrail(FileStore(site.state_dir), 2**20)
        with asked_by(HOSTILE):
            record = trail.begin("create", "vm-1", kind="VM")
        error = ErrorReport(kind="DriverError", message=HOSTILE)
        trail.end(record, Status.FAILED, 1.0, error, (HOSTILE,))
        note = Note(at=now(), did=RepairResult.FAILED, subject="vm-1", cause=HOSTILE, why=HOSTILE)
        History(FileStore(site.state_dir), 2**20).add(note)

        for path in ("/", "/history", "/slivers/vm-1", f"/history?subject={quote(HOSTILE)}"):
            text = (await viewer.get(path)).text
            assert "alert(" in text
            assert "<script>" not in text
            assert not {"\u202e", "\x1b"} & set(text)

    async def test_of_an_address_stays_text(self, viewer: httpx.AsyncClient) -> None:
        text = (await viewer.get("/hosts/<script>alert(1)<%2Fscript>")).text

        assert "alert(1)" in text or "Not Found" in text
        assert "<script>" not in text

    async def test_asked_for_stays_in_its_field(self, viewer: httpx.AsyncClient) -> None:
        text = (await viewer.get('/slivers?text="><script>alert(1)</script>')).text

        assert "<script>" not in text
        assert "alert(1)" in text


class TestTheOverview:
    async def test_says_that_nothing_is_wrong(
        self, viewer: httpx.AsyncClient, make: MakeVm
    ) -> None:
        make("vm-1")

        said = await shown(viewer)

        assert "Nothing needs attention" in said
        assert "Slivers 1 1 running 0 differ" in said
        assert "Devices 2 2 free" in said
        assert "Hosts 2 2 answers 0 silent" in said
        assert "Under way 0 0 interrupted" in said
        assert "w2 answers in maintenance new memory 0 none" in said
        assert "vm-1 running none node w1 1 1024 1 0 0" in said

    async def test_says_what_is_wrong_first(
        self, viewer: httpx.AsyncClient, make: MakeVm, hosts: dict[str, Substrate]
    ) -> None:
        make("vm-1")
        make("vm-2")
        servers = hosts["w1"].servers
        servers["vm-2"] = replace(servers["vm-2"], ports=())

        said = await shown(viewer)

        assert "1 thing needs attention Sliver vm-2 differs: vNIC nic1 is missing" in said
        assert "1 differs" in said
        assert said.index("vm-2 running differs") < said.index("vm-1 running none")

    async def test_names_devices_that_need_a_person(
        self, viewer: httpx.AsyncClient, make: MakeVm, hosts: dict[str, Substrate]
    ) -> None:
        gpu = {"type": "GPU", "id": "gpu", "model": "A30", "bdf": ["0000:25:00.0"]}
        make("vm-1", components=(gpu,))
        hosts["w1"].lose_devices("vm-1")

        said = await shown(viewer)

        assert "Device 0000:25:00.0 of w1 is lost" in said
        assert "1 lost" in said

    async def test_shows_what_a_killed_process_began(
        self, viewer: httpx.AsyncClient, site: Site
    ) -> None:
        AuditTrail(FileStore(site.state_dir), 2**20).begin("create", "vm-7", kind="VM")

        said = await shown(viewer)

        assert "1 interrupted" in said
        assert "no process works on it" in said

    async def test_has_network_services_as_slivers(
        self, viewer: httpx.AsyncClient, hosts: dict[str, Substrate], processor: HandlerProcessor
    ) -> None:
        port = {"id": "i1", "device": "sw1", "port": "p1", "vlan": 100}
        net = L2Bridge(id="net-1", name="net", type="L2Bridge", interfaces=(port,))
        assert processor.create(net).result().ok

        assert "net-1 L2Bridge running see its page net" in await shown(viewer)

    async def test_is_loaded_again_where_scripts_are_off_unless_that_is_declined(
        self, viewer: httpx.AsyncClient
    ) -> None:
        refresh = '<noscript><meta http-equiv="refresh"'

        assert refresh in (await viewer.get("/")).text
        assert refresh not in (await viewer.get("/?refresh=no")).text


class TestOtherPages:
    async def test_slivers_are_those_that_are_asked_for(
        self, viewer: httpx.AsyncClient, make: MakeVm, processor: HandlerProcessor
    ) -> None:
        make("vm-1")
        stopped = make("vm-2", host="w2")
        assert processor.poa(stopped, "stop").result().ok

        for asked in ("state=stopped", "host=w2", "text=VM-2"):
            assert "1 of 2 slivers" in await shown(viewer, f"/slivers?{asked}")
        assert "No such slivers" in await shown(viewer, "/slivers?differs=yes")

    async def test_devices_have_states_and_owners(
        self, viewer: httpx.AsyncClient, make: MakeVm
    ) -> None:
        gpu = {"type": "GPU", "id": "gpu", "model": "A30", "bdf": ["0000:25:00.0"]}
        make("vm-1", components=(gpu,))

        said = await shown(viewer, "/devices?state=used")

        assert "1 of 2 PCI devices" in said
        assert "0000:25:00.0 w1 GPU A30 used vm-1/gpu" in said
        assert "vm-1/gpu" in await shown(viewer, "/hosts/w1")

    async def test_a_sliver_is_shown_as_it_is(
        self, viewer: httpx.AsyncClient, make: MakeVm
    ) -> None:
        make("vm-1")

        said = await shown(viewer, "/slivers/vm-1")

        assert "Instance vm-1-node" in said
        assert "10.20.1.2/24" in said
        assert "The guest answers by fake" in said
        assert "create done" in said

    async def test_one_that_is_gone_has_its_history(
        self, viewer: httpx.AsyncClient, make: MakeVm, processor: HandlerProcessor
    ) -> None:
        assert processor.delete(make("vm-1").ref()).result().ok

        said = await shown(viewer, "/slivers/vm-1")

        assert "It is not there, as far as is known" in said
        assert "delete done" in said

    async def test_the_history_says_who_asked_for_what(
        self, viewer: httpx.AsyncClient, make: MakeVm, site: Site
    ) -> None:
        with asked_by("portal for alice@example.org"):
            make("vm-1")
        make("vm-2")
        note = Note(
            at=now(), did=RepairResult.REPAIRED, subject="vm-1", differences=("nic1 is missing",)
        )
        History(FileStore(site.state_dir), 2**20).add(note)

        said = await shown(viewer, "/history?subject=vm-1")

        assert "portal for alice@example.org" in said
        assert "repaired vm-1 nic1 is missing" in said
        assert "vm-2" not in said

    async def test_a_long_history_has_pages(self, viewer: httpx.AsyncClient, site: Site) -> None:
        records = 201
        trail = AuditTrail(FileStore(site.state_dir), 2**20)
        for number in range(records):
            trail.begin("create", f"vm-{number}", kind="VM")

        first = (await viewer.get("/history")).text
        (older,) = re.findall(r'href="([^"]*)">Older ones', first)

        assert "vm-200<" in first
        assert "vm-0<" not in first
        assert "vm-0<" in (await viewer.get(older.replace("&amp;", "&"))).text

    @pytest.mark.parametrize(
        ("page", "picture"),
        [("/", "/picture.svg"), ("/hosts/w1", None), ("/slivers/vm-1", None)],
    )
    async def test_has_a_picture_of_what_it_is_about(
        self, viewer: httpx.AsyncClient, make: MakeVm, page: str, picture: str | None
    ) -> None:
        make("vm-1")
        picture = picture or f"{page}/picture.svg"
        await shown(viewer)

        assert f'src="{picture}"' in (await viewer.get(page)).text
        drawn = await viewer.get(picture)

        assert drawn.text.startswith("<svg")
        assert "w1" in drawn.text
        assert drawn.headers["content-type"] == "image/svg+xml"
        assert "script-src" not in drawn.headers["content-security-policy"]
        assert "default-src 'none'" in drawn.headers["content-security-policy"]

    async def test_a_picture_that_cannot_be_drawn_is_none(
        self, viewer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pictures, "site_picture", lambda _: str(1 / 0))

        assert (await viewer.get("/picture.svg")).status_code == 503


class TestASilentHost:
    async def test_says_so_and_keeps_nothing_else_back(
        self,
        viewer: httpx.AsyncClient,
        make: MakeVm,
        hosts: dict[str, Substrate],
        clock: Clock,
    ) -> None:
        make("vm-1")
        make("vm-2", host="w2")
        await shown(viewer)
        hosts["w2"].fault("compute.servers", at=0, kind="fail")
        make("vm-3")
        clock.now += 5

        said = await shown(viewer)

        assert "Host w2 does not answer: compute.servers failed" in said
        assert "Hosts 2 1 answers 1 silent" in said
        assert "w2 silent" in said
        assert "5 s ago" in said
        assert "vm-3 running none" in said
        assert "vm-2 running as it was: its host is silent" in said

    async def test_that_never_answered_leaves_its_numbers_open(
        self, viewer: httpx.AsyncClient, hosts: dict[str, Substrate]
    ) -> None:
        hosts["w2"].fault("compute.servers", at=0, kind="fail")

        assert re.search(r"w2 silent .* \? \? never", await shown(viewer))

    async def test_is_asked_again_when_it_may_answer(
        self, viewer: httpx.AsyncClient, hosts: dict[str, Substrate], clock: Clock
    ) -> None:
        hosts["w2"].fault("compute.servers", at=0, kind="fail")
        assert "1 silent" in await shown(viewer)
        hosts["w2"].mend()
        clock.now += 5
        await shown(viewer)  # nobody waits for who did not answer: this asks

        async with asyncio.timeout(30):
            while "Nothing needs attention" not in await shown(viewer):
                await asyncio.sleep(0)

    async def test_is_not_waited_for_while_the_others_are_shown(
        self, watching: Watching, make: MakeVm, hosts: dict[str, Substrate], clock: Clock
    ) -> None:
        make("vm-1")
        hosts["w2"].hang()

        async with asyncio.timeout(30):
            while watching.hosts["w1"].latest.value is None:
                await watching.look(patience=0.01)
        clock.now += 3
        now = overview(watching)

        assert [host.state for host in now.hosts] == ["answers", "no answer yet"]
        assert [row.id for row in now.slivers] == ["vm-1"]
        assert now.waiting


class TestACloud:
    @pytest.fixture(autouse=True)
    def cloud(
        self,
        make: MakeVm,
        site: Site,
        hosts: dict[str, Substrate],
        monkeypatch: pytest.MonkeyPatch,
    ) -> Substrate:
        """A cloud with a server on w1, whose devices are the site's, and one on a worker of its own."""
        make("vm-1")
        cloud = substrate(site, "")
        there = hosts["w1"].servers["vm-1"]
        cloud.servers = {"vm-1": there, "vm-2": replace(there, sliver="vm-2", host="w7")}
        cloud.ports = hosts["w1"].ports
        monkeypatch.setattr(FakeCompute, "cloud", True)
        return cloud

    async def test_has_servers_on_workers_that_only_it_knows(
        self, viewer: httpx.AsyncClient
    ) -> None:
        said = await shown(viewer)

        assert "w1 answers 1 2 free" in said
        assert "w2 not asked in maintenance new memory 0 none" in said
        assert "w7 not asked 1 none" in said

    async def test_shows_its_servers_while_a_worker_is_silent(
        self, viewer: httpx.AsyncClient, hosts: dict[str, Substrate]
    ) -> None:
        hosts["w1"].fault("device.*", at=0, kind="fail")

        said = await shown(viewer)

        assert "Host w1 does not answer" in said
        assert "vm-1 running" in said

    async def test_that_does_not_answer_is_named(
        self, viewer: httpx.AsyncClient, cloud: Substrate
    ) -> None:
        cloud.fault("compute.servers", at=0, kind="fail")

        assert "The cloud does not answer: compute.servers failed" in await shown(viewer)


class TestWhatItCosts:
    async def test_many_viewers_are_one_reader(
        self, viewer: httpx.AsyncClient, make: MakeVm, hosts: dict[str, Substrate], clock: Clock
    ) -> None:
        make("vm-1")
        hosts["w1"].calls.clear()

        await asyncio.gather(*(viewer.get(path) for path in [*PATHS[:4]] * 5))
        assert hosts["w1"].calls["compute.servers"] == 1
        clock.now += 4.9
        await viewer.get("/")
        assert hosts["w1"].calls["compute.servers"] == 1
        clock.now += 0.1
        await viewer.get("/")
        assert hosts["w1"].calls["compute.servers"] == 2

    async def test_what_nobody_looks_at_is_not_read(
        self, watching: Watching, hosts: dict[str, Substrate]
    ) -> None:
        assert not hosts["w1"].calls

    def test_who_is_slow_is_given_up_sooner_than_by_operations(self, site: Site) -> None:
        quick = site.model_copy(update={"limits": site.limits.model_copy(update={"call": 0.5})})

        assert limited(site).limits.call == 5
        assert limited(quick).limits.call == 0.5
        assert limited(site).limits.create == site.limits.create


class TestASharedReading:
    def reading(self, ask: Callable[[], Any], clock: Clock) -> SharedReading[Any]:
        return SharedReading(ask, 5, CapacityLimiter(8), clock)

    async def test_is_never_asked_twice_at_a_time(self, clock: Clock) -> None:
        asked, answer = [], threading.Event()

        def ask() -> int:
            asked.append(1)
            answer.wait()
            return len(asked)

        slow = self.reading(ask, clock)
        await ask_all([slow], 0)
        clock.now += 60
        await ask_all([slow], 0)
        assert slow.latest.value is None
        assert slow.latest.asked == 1000
        answer.set()
        await ask_all([slow], 10)

        assert slow.latest.value == 1
        assert slow.latest.asked is None

    async def test_keeps_the_last_answer_when_the_next_try_fails(self, clock: Clock) -> None:
        answers = iter([1])
        reading = self.reading(lambda: next(answers), clock)
        await ask_all([reading], 10)
        clock.now += 5
        await ask_all([reading], 10)

        assert (reading.latest.value, reading.latest.at) == (1, 1000)
        assert reading.latest.error == "StopIteration"

    async def test_counts_answers_that_are_other_ones(self, clock: Clock) -> None:
        answers = iter([1, 1, 2])
        reading = self.reading(lambda: next(answers), clock)
        versions = []
        for _ in range(4):
            await ask_all([reading], 10)
            clock.now += 5
            versions.append(reading.version)

        assert versions == [1, 1, 2, 3]


class TestEvents:
    async def test_tell_of_an_operation_step_by_step(
        self, site: Site, watching: Watching, vm: MakeVm, clock: Clock
    ) -> None:
        reached, seen = threading.Event(), threading.Event()

        def tell(progress: Progress) -> None:
            if progress.step == "guest" and progress.status is None:
                reached.set()
                seen.wait(60)

        with HandlerProcessor(site, on_progress=tell) as works:
            created = works.create(vm(id="vm-1", host="w1", components=()))
            assert reached.wait(60)
            stream = Events(watching, pause=self.pause(clock, watching)).stream()
            first = await self.event(stream, lambda event: "vm-1" in event)
            seen.set()
            created.result()
            last = await self.event(stream, lambda event: "operations" in event)

        assert '"sliver": "vm-1", "operation": "create"' in first
        assert '{"step": "server", "status": "done"' in first
        assert '{"step": "guest", "status": null' in first
        assert "event: operations\ndata: []" in last

    def pause(self, clock: Clock, watching: Watching) -> Callable[[float], Any]:
        async def pause(seconds: float) -> None:
            clock.now += seconds
            await watching.look(patience=10)

        return pause

    async def event(self, stream: AsyncIterator[str], wanted: Callable[[str], bool]) -> str:
        async with asyncio.timeout(10):
            async for event in stream:
                if wanted(event):
                    return event
        raise AssertionError("the stream has ended")

    async def test_are_silent_but_for_a_sign_of_life(
        self, watching: Watching, clock: Clock
    ) -> None:
        await watching.look(patience=10)
        stream = Events(watching, pause=self.pause(clock, watching)).stream()

        assert (await anext(stream)).count("event:") == 2
        assert await anext(stream) == ": nothing new\n\n"
        assert clock.now == 1015

    async def test_end_with_the_server_and_are_not_for_everybody(
        self, watching: Watching, clock: Clock
    ) -> None:
        events = Events(watching, most=1, pause=self.pause(clock, watching))
        stream = events.stream()
        await anext(stream)
        assert events.full
        events.end()

        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert not events.full

    async def test_go_to_a_browser_until_it_goes(self, watching: Watching) -> None:
        page = PageApp(watching, [TOKEN])
        sent: list[dict[str, Any]] = []
        gone, asked = asyncio.Event(), [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message.get("body"):
                gone.set()

        scope = asked_for("/events")
        async with asyncio.timeout(10):
            await page.asgi()(scope, receive, send)  # type: ignore[arg-type]

        headers = dict(sent[0]["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert sent[1]["body"].startswith(b"event: operations\ndata: []")
        assert not page.events.full
