"""The HTTP interface: who is let in, what is answered, and what never is."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fabric_direct.drivers.fake import substrate
from fabric_direct.errors import DriverError, Unreachable
from fabric_direct.processor import HandlerProcessor
from fabric_direct.serving import access
from fabric_direct.site.config import Site
from fabric_direct.zones import app as app_module
from fabric_direct.zones.app import MOST_BYTES, api, application
from fabric_direct.zones.local_source import LocalSource
from fabric_direct.zones.wire import Problem, reservation_of
from fabric_direct.zones.zone import Zone
from tests.conftest import FAKE_DRIVERS
from tests.unit.zone_sources import FakeSource, kind, site, sliver_kind

pytestmark = pytest.mark.anyio

TOKENS = ("first-token", "second-token")
NONE = "r-" + "0" * 16


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serving(zone: Zone, *tokens: str) -> AsyncIterator[httpx.AsyncClient]:
    await zone.start()
    transport = httpx.ASGITransport(application(zone, tokens), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://zone") as client:
        yield client
    await zone.close()


@pytest.fixture
def source() -> FakeSource:
    return FakeSource("a", {"small": [3, 4]})


@pytest.fixture
def zone(tmp_path: Path, source: FakeSource) -> Zone:
    return Zone(site(tmp_path), [source])


@pytest.fixture
async def client(zone: Zone) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(zone) as client:
        yield client


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    zone = Zone(site(tmp_path_factory.mktemp("zone")), [FakeSource("a", {"small": [3]})])
    return api(zone).openapi()


def select(*kinds: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"request_id": "request-1", "kinds": list(kinds) or [kind()]} | values


def boot(*kinds: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"request_id": "request-2", "kinds": list(kinds) or [sliver_kind()]} | values


def problem(response: httpx.Response, status: int) -> Problem:
    """Return the problem of a response of that status, which has the interface's form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    return Problem.model_validate_json(response.content)


class TestTheWayOfAReservation:
    async def test_is_select_boot_look_and_delete(self, client: httpx.AsyncClient) -> None:
        selected = await client.post("/zones/select", json=select(kind(number=2)))
        assert selected.status_code == 200
        offers = selected.json()["offers"]
        assert [offer["cost"] for offer in offers] == [3, 4]

        booted = await client.post("/zones/boot", json=boot(sliver_kind(number=2), offers=offers))
        assert booted.status_code == 202
        path = f"/reservations/{booted.json()['reservation_id']}"

        there = await client.get(path)
        assert {i["status"] for i in there.json()["instances"]} == {"done"}

        deleted = await client.delete(path)
        assert deleted.status_code == 202
        assert {i["status"] for i in (await client.get(path)).json()["instances"]} == {"deleted"}

    async def test_begins_with_what_there_is(self, client: httpx.AsyncClient) -> None:
        await asyncio.sleep(0.05)

        view = (await client.get("/zones")).json()

        assert view["zone"] == "PARENT"
        assert [(c["zone"], c["heard"]) for c in view["children"]] == [("a", True)]


class TestTokens:
    @pytest.fixture
    async def guarded(self, zone: Zone) -> AsyncIterator[httpx.AsyncClient]:
        async with serving(zone, *TOKENS) as client:
            yield client

    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "Bearer",
            "Bearer ",
            "Bearer first-toke",
            "Bearer first-tokens",
            "Bearer FIRST-TOKEN",
            "Basic first-token",
            "first-token",
            "Bearer first-token second-token",
            "Bearer first-token\nsecond-token",
            b"Bearer \xff\xfe",
        ],
    )
    @pytest.mark.parametrize("path", ["/zones", "/openapi.json", "/nowhere"])
    async def test_that_are_none_are_refused_everywhere(
        self, guarded: httpx.AsyncClient, header: str | bytes | None, path: str
    ) -> None:
        headers = [] if header is None else [(b"Authorization", header)]

        response = await guarded.get(path, headers=headers)  # type: ignore[arg-type]

        assert problem(response, 401).error == "Denied"
        assert response.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize("token", TOKENS)
    @pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
    async def test_of_the_zone_are_let_in(
        self, guarded: httpx.AsyncClient, token: str, scheme: str
    ) -> None:
        response = await guarded.get("/zones", headers={"Authorization": f"{scheme} {token}"})

        assert response.status_code == 200

    async def test_are_looked_at_before_the_body(
        self, guarded: httpx.AsyncClient, source: FakeSource
    ) -> None:
        problem(await guarded.post("/zones/select", content=b"x" * (MOST_BYTES + 1)), 401)
        problem(await guarded.post("/zones/select", content=b"no json"), 401)

    async def test_are_compared_in_a_time_that_tells_nothing(
        self, guarded: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compared: list[bytes] = []

        def compare(one: bytes, other: bytes) -> bool:
            compared.append(other)
            return one == other

        monkeypatch.setattr(access.hmac, "compare_digest", compare)
        await guarded.get("/zones", headers={"Authorization": f"Bearer {TOKENS[0]}"})

        assert compared == [token.encode() for token in TOKENS]


class TestABody:
    @pytest.mark.parametrize("path", ["/zones/select", "/zones/boot"])
    async def test_that_is_too_large_is_refused_by_its_length(
        self, client: httpx.AsyncClient, path: str
    ) -> None:
        problem(await client.post(path, content=b" " * (MOST_BYTES + 1)), 413)

    async def test_that_does_not_tell_its_length_is_read_no_further_than_it_may_go(
        self, client: httpx.AsyncClient
    ) -> None:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 1
                yield b" " * 65_536

        problem(await client.post("/zones/select", content=endless()), 413)

        assert sent <= MOST_BYTES / 65_536 + 2

    async def test_that_does_not_come_is_not_waited_for(
        self, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app_module, "_BODY_SECONDS", 0.05)

        async def slow() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.sleep(3600)

        problem(await client.post("/zones/select", content=slow()), 408)

    @pytest.mark.parametrize(
        "content", [b"{", b"\xff\xfe\x00", b"[" * 100_000, b"{'a': 1}", b"1" * 5000]
    )
    async def test_that_is_no_json_is_refused(
        self, client: httpx.AsyncClient, content: bytes
    ) -> None:
        headers = {"Content-Type": "application/json"}

        problem(await client.post("/zones/select", content=content, headers=headers), 400)

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"request_id": "short"}, "request_id"),
            ({"request_id": "../../etc/passwd"}, "request_id"),
            ({"kinds": []}, "kinds"),
            ({"kinds": [kind(), kind()]}, ""),
            ({"kinds": [kind(number=0)]}, "kinds.0.num_instances"),
            ({"kinds": [kind(number=-3)]}, "kinds.0.num_instances"),
            ({"kinds": [kind(number=1001)]}, "kinds.0.num_instances"),
            ({"kinds": [kind(num_instances="2")]}, "kinds.0.num_instances"),
            ({"kinds": [kind("a", 600), kind("b", 600)]}, ""),
            ({"kinds": [kind(together=True, apart=True)]}, "kinds.0"),
            ({"kinds": [kind(needs={"image": "tiny"})]}, "kinds.0.needs.capacities"),
            ({"deadline": 0}, "deadline"),
            ({"deadline": 601}, "deadline"),
            ({"deadline": "5"}, "deadline"),
            ({"deadline": float("nan")}, "deadline"),
            ({"more": 1}, "more"),
        ],
    )
    async def test_with_a_field_that_is_wrong_is_refused_by_that_field(
        self, client: httpx.AsyncClient, change: dict[str, Any], field: str
    ) -> None:
        body = json.dumps(select() | change)
        headers = {"Content-Type": "application/json"}

        response = await client.post("/zones/select", content=body, headers=headers)

        assert problem(response, 422).field == field

    @pytest.mark.parametrize(
        "sliver",
        [
            {"host": "worker-1"},
            {"placement": {"exclude_hosts": ["worker-1"]}},
            {"id": "i" * 42},
            {"name": "n" * 59},
            {"id": "a/../../b"},
            {"ssh_keys": ["no key"]},
        ],
    )
    async def test_with_a_sliver_that_is_wrong_is_refused(
        self, client: httpx.AsyncClient, sliver: dict[str, Any]
    ) -> None:
        wrong = sliver_kind()
        wrong["sliver"] |= sliver

        response = await client.post("/zones/boot", json=boot(wrong))

        assert problem(response, 422).field.startswith("kinds.0.sliver")

    async def test_that_names_a_host_is_refused_and_not_repeated(
        self, client: httpx.AsyncClient
    ) -> None:
        needs = {**kind()["needs"], "host": "worker-1"}

        response = await client.post("/zones/select", json=select(kind(needs=needs)))

        assert "hosts are not known outside their zone" in problem(response, 422).message
        assert "worker-1" not in response.text

    async def test_with_half_a_character_is_refused(self, client: httpx.AsyncClient) -> None:
        content = json.dumps(select(request_id="request-\ud800"))
        headers = {"Content-Type": "application/json"}

        problem(await client.post("/zones/select", content=content, headers=headers), 422)

    async def test_of_offers_that_were_not_asked_for_is_refused(
        self, client: httpx.AsyncClient
    ) -> None:
        offers = (await client.post("/zones/select", json=select(kind(number=2)))).json()["offers"]

        problem(await client.post("/zones/boot", json=boot(offers=offers)), 422)


class TestARefusal:
    async def test_of_what_does_not_fit_says_what_is_missing(
        self, client: httpx.AsyncClient, source: FakeSource
    ) -> None:
        source.raises["capabilities"] = Unreachable("down")

        response = await client.post("/zones/boot", json=boot(sliver_kind(number=3)))

        refused = problem(response, 409)
        assert [(s.kind, s.missing) for s in refused.shortages] == [("small", 1)]

    async def test_of_an_offer_says_why(self, client: httpx.AsyncClient) -> None:
        offers = (await client.post("/zones/select", json=select())).json()["offers"]
        await client.post("/zones/boot", json=boot(offers=offers))

        again = await client.post("/zones/boot", json=boot(offers=offers, request_id="request-3"))

        assert problem(again, 409).message == "an offer was accepted before. select again"

    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    async def test_of_an_unknown_reservation_is_not_found(
        self, client: httpx.AsyncClient, method: str
    ) -> None:
        problem(await client.request(method, f"/reservations/{NONE}"), 404)

    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    async def test_of_what_is_no_id_names_the_field(
        self, client: httpx.AsyncClient, method: str
    ) -> None:
        response = await client.request(method, "/reservations/r-1")

        assert problem(response, 422).field == "reservation_id"

    async def test_of_an_unknown_path_or_method_has_the_same_form(
        self, client: httpx.AsyncClient
    ) -> None:
        problem(await client.get("/nowhere"), 404)
        refused = await client.put("/zones", json={})
        problem(refused, 405)
        assert refused.headers["allow"] == "GET"


class TestWhatGoesWrongInside:
    INSIDE = "worker-alpha at 10.1.2.3"

    @pytest.mark.parametrize(
        ("error", "status"), [(RuntimeError(INSIDE), 500), (DriverError(INSIDE), 503)]
    )
    async def test_is_told_by_a_number_and_logged_with_it(
        self,
        client: httpx.AsyncClient,
        zone: Zone,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
        status: int,
    ) -> None:
        async def view() -> None:
            raise error

        monkeypatch.setattr(zone, "view", view)
        with caplog.at_level(logging.ERROR):
            response = await client.get("/zones")

        message = problem(response, status).message
        number = message.rpartition(" ")[2]
        assert "10.1.2.3" not in response.text
        assert "Traceback" not in response.text
        assert number in caplog.text
        assert self.INSIDE in caplog.text


class TestTheDocument:
    def test_has_all_paths(self, document: dict[str, Any]) -> None:
        assert {path: sorted(of) for path, of in document["paths"].items()} == {
            "/zones": ["get"],
            "/zones/select": ["post"],
            "/zones/boot": ["post"],
            "/reservations/{reservation_id}": ["delete", "get"],
        }

    def test_says_for_each_what_it_does_and_answers(self, document: dict[str, Any]) -> None:
        for operations in document["paths"].values():
            for operation in operations.values():
                assert operation["summary"]
                assert operation["description"]
                assert {"401", "500", "503"} <= operation["responses"].keys()
                for status, response in operation["responses"].items():
                    schema = response["content"]["application/json"]["schema"]["$ref"]
                    assert (schema == "#/components/schemas/Problem") == (int(status) >= 400)

    def test_says_how_to_get_in(self, document: dict[str, Any]) -> None:
        (scheme,) = document["components"]["securitySchemes"].values()
        assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
        assert all(o["security"] for of in document["paths"].values() for o in of.values())

    def test_describes_the_fields(self, document: dict[str, Any]) -> None:
        fields = document["components"]["schemas"]["BootRequest"]["properties"]

        assert fields["partial"]["description"]

    async def test_has_examples_that_are_served(
        self, client: httpx.AsyncClient, document: dict[str, Any]
    ) -> None:
        for path in ("/zones/select", "/zones/boot"):
            body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            for example in body["examples"].values():
                response = await client.post(path, json=example["value"])
                assert response.status_code in {200, 202, 409}, response.text

    @pytest.mark.parametrize("path", ["/docs", "/redoc"])
    async def test_is_shown_by_no_page_that_loads_scripts_from_elsewhere(
        self, client: httpx.AsyncClient, path: str
    ) -> None:
        assert (await client.get(path)).status_code == 404


class TestNoHostIsNamed:
    """All answers to a whole life of instances on hosts with telling names are searched."""

    HOSTS = {
        "worker-alpha": {
            "ssh": "ssh://root@10.99.1.1",
            "libvirt": "qemu+ssh://root@10.99.1.1/system",
            "devices": [{"type": "GPU", "bdf": "0000:40:00.0"}],
        },
        "worker-beta": {"ssh": "ssh://root@10.99.1.2", "maintenance": "worker-beta is broken"},
        "worker-gamma": {},
    }
    WORDS = ("worker", "alpha", "beta", "gamma", "10.99", "0000:40", "qemu", "ssh:")
    GPU = {"devices": [{"component": "gpu", "type": "GPU"}]}

    @pytest.fixture
    def own_site(self, tmp_path: Path) -> Site:
        return Site(
            site="LEAF",
            state_dir=tmp_path / "leaf",
            drivers=FAKE_DRIVERS,
            guest="fake",
            images={"tiny": {}},
            hosts=self.HOSTS,
            fake={"hosts": {"worker-alpha": {"gpus": 1}}},
        )

    @pytest.fixture
    def processor(self, own_site: Site) -> Iterator[HandlerProcessor]:
        with HandlerProcessor(own_site) as processor:
            yield processor
            for host in own_site.hosts:
                substrate(own_site, host).mend()

    async def test_in_any_answer(self, own_site: Site, processor: HandlerProcessor) -> None:
        told: list[str] = []
        zone = Zone(own_site, [LocalSource(own_site, processor)])
        async with serving(zone) as client:

            async def ask(method: str, path: str, body: Any = None) -> Any:
                response = await client.request(method, path, json=body)
                told.append(response.text + str(response.headers))
                return response.json()

            await self.live(ask, own_site)

        assert len(told) >= 9
        assert not [word for word in self.WORDS if word in "\n".join(told)]

    async def live(self, ask: Callable[..., Any], own_site: Site) -> None:
        gpus = kind("gpu", 2, needs={**kind()["needs"], **self.GPU})
        await ask("GET", "/zones")
        selected = await ask("POST", "/zones/select", select(kind(number=3), gpus))
        assert selected["shortages"]
        offers = selected["offers"]
        sliver = sliver_kind()["sliver"] | {"components": [{"id": "gpu", "type": "GPU"}]}
        slivers = sliver_kind("gpu", 1, sliver=sliver | {"id": "g", "name": "g"})
        booted = await ask(
            "POST", "/zones/boot", boot(sliver_kind(number=3), slivers, offers=offers)
        )
        path = f"/reservations/{booted['reservation_id']}"
        await ask("GET", path)
        await ask("POST", "/zones/boot", boot(slivers, request_id="request-4"))  # none is left
        await ask("POST", "/zones/boot", boot(offers=offers[:1], request_id="request-5"))
        await ask("DELETE", path)
        for host in set(own_site.hosts) - {"worker-beta"}:
            substrate(own_site, host).fault("compute.create", at=0, kind="fail")
        failing = await ask("POST", "/zones/boot", boot(request_id="request-6"))
        path = f"/reservations/{failing['reservation_id']}"
        async with asyncio.timeout(20):
            while (await ask("GET", path))["instances"][0]["status"] == "pending":
                await asyncio.sleep(0.05)
        for host in own_site.hosts:
            substrate(own_site, host).fault("compute.inventory", at=0, kind="fail")
        await ask("POST", "/zones/select", select(request_id="request-7"))
        await ask("GET", "/zones")


def test_a_reservations_id_follows_from_the_request() -> None:
    assert reservation_of("request-1") == reservation_of("request-1") != reservation_of("request-2")
