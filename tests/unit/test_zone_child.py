"""A child zone, which is a real server on loopback: what it is asked, and what of it is believed."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fabric_direct.errors import (
    Conflict,
    Denied,
    FabricDirectError,
    InvalidSite,
    NotFound,
    Refused,
    Unreachable,
)
from fabric_direct.site.config import ChildZone
from fabric_direct.zones.child import ChildSource
from fabric_direct.zones.wire import BootRequest, InstanceStatus, SelectRequest, reservation_of
from tests.scripted_zone import (
    Authority,
    Floods,
    Reply,
    ScriptedZone,
    breaks,
    breaks_in_the_middle,
    hangs,
    hangs_in_the_middle,
    says,
    server_context,
)

T = TypeVar("T")
SELECT, BOOT, ZONES = "POST /zones/select", "POST /zones/boot", "GET /zones"
RESERVATION = reservation_of("request-1")
TOKEN = "a-token-that-nobody-may-see"  # noqa: S105
NEEDS = {"capacities": {"core": 1, "ram": 1, "disk": 1}, "image": "tiny"}
REQUEST = SelectRequest.model_validate(
    {
        "request_id": "request-1",
        "kinds": [{"kind": "small", "num_instances": 2, "needs": NEEDS}],
        "deadline": 600,
    }
)
BOOTED = BootRequest.model_validate(
    {
        "request_id": "request-1",
        "kinds": [{"kind": "small", "sliver": {"id": "vm", "name": "vm", **NEEDS}}],
    }
)


@pytest.fixture
def zone() -> Iterator[ScriptedZone]:
    with ScriptedZone() as zone:
        yield zone


def with_child(
    settings: ChildZone, ask: Callable[[ChildSource], Coroutine[Any, Any, T]], name: str = "west"
) -> T:
    async def run() -> T:
        child = ChildSource(name, settings)
        try:
            return await ask(child)
        finally:
            await child.close()

    return asyncio.run(run())


def asked(zone: ScriptedZone, ask: Callable[[ChildSource], Coroutine[Any, Any, T]]) -> T:
    return with_child(ChildZone(url=zone.url), ask)


def select(zone: ScriptedZone, deadline: float = 5.0) -> Any:
    return asked(zone, lambda child: child.select(REQUEST, deadline=deadline))


def offer(**values: Any) -> dict[str, Any]:
    return {"kind": "small", "cost": 3, "zone": "west", "blob": "abc", "expires": 60} | values


def selection(*offers: dict[str, Any], **values: Any) -> Reply:
    return says({"offers": offers, **values})


class TestWhatItIsAsked:
    def test_select_sends_the_request_as_it_is(self, zone: ScriptedZone) -> None:
        zone.reply(SELECT, selection(offer()))

        select(zone)

        assert SelectRequest.model_validate(zone.asked[0].body) == REQUEST

    def test_boot_sends_the_request_and_returns_the_childs_id(self, zone: ScriptedZone) -> None:
        zone.reply(BOOT, says({"reservation_id": RESERVATION}, status=202))

        booted = asked(zone, lambda child: child.boot(BOOTED, deadline=5))

        assert booted == RESERVATION
        assert zone.asked[0].body["kinds"][0]["sliver"]["id"] == "vm"

    def test_capabilities_are_those_of_its_view(self, zone: ScriptedZone) -> None:
        zone.reply(ZONES, says({"zone": "west", "capabilities": {"hosts": 3, "cores": 12.5}}))

        capabilities = asked(zone, lambda child: child.capabilities(deadline=5))

        assert (capabilities.hosts, capabilities.cores) == (3, 12.5)

    def test_a_reservation_is_read_by_its_id(self, zone: ScriptedZone) -> None:
        instance = {"name": "vm-1", "kind": "small", "zone": "west", "status": "done"}
        document = {"reservation_id": RESERVATION, "instances": [instance]}
        zone.reply(f"GET /reservations/{RESERVATION}", says(document))

        (found,) = asked(zone, lambda child: child.instances(RESERVATION, deadline=5))

        assert (found.name, found.status) == ("vm-1", InstanceStatus.DONE)

    @pytest.mark.parametrize("reply", [says(b"", status=204), says({}, status=202)])
    def test_a_reservation_is_deleted_by_its_id(self, zone: ScriptedZone, reply: Reply) -> None:
        zone.reply(f"DELETE /reservations/{RESERVATION}", reply)

        asked(zone, lambda child: child.delete(RESERVATION, deadline=5))

        assert [request.what for request in zone.asked] == [f"DELETE /reservations/{RESERVATION}"]

    def test_connections_are_kept(self, zone: ScriptedZone) -> None:
        ports: list[int] = []
        answer = selection(offer())
        zone.reply(
            SELECT, lambda handler: (ports.append(handler.client_address[1]), answer(handler))
        )

        async def thrice(child: ChildSource) -> None:
            for _ in range(3):
                await child.select(REQUEST, deadline=5)

        asked(zone, thrice)

        assert len(ports) == 3
        assert len(set(ports)) == 1

    def test_proxies_of_the_environment_are_not_asked(
        self, zone: ScriptedZone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        zone.reply(SELECT, selection(offer()))

        assert len(select(zone).offers) == 1


class TestWhatIsBelieved:
    def test_offers_as_they_are(self, zone: ScriptedZone) -> None:
        shortages = [{"kind": "small", "missing": 1, "refused": {"capacity": 4}}]
        left_out = [{"zone": "north", "why": "is down"}]
        zone.reply(SELECT, selection(offer(), shortages=shortages, left_out=left_out))

        answer = select(zone)

        assert [(o.kind, o.cost, o.blob) for o in answer.offers] == [("small", 3, "abc")]
        assert answer.shortages[0].refused == {"capacity": 4}
        assert answer.left_out[0].zone == "north"

    @pytest.mark.parametrize(
        ("reply", "why"),
        [
            (selection(offer(kind="large")), "more instances than were asked for"),
            (selection(*(offer(blob=f"b{n}") for n in range(3))), "more instances"),
            (selection(shortages=[{"kind": "small", "missing": 3}]), "more instances"),
            (selection(offer(), offer()), "the same offer twice"),
            (selection(offer(cost=-1)), "offers.0.cost"),
            (selection(offer(cost=2**63)), "a cost is out of range"),
            (selection(offer(cost=10**100)), "offers.0.cost|a cost is out of range"),
            (selection(offer(cost=1.5)), "offers.0.cost"),
            (selection(offer(cost=float("nan"))), "offers.0.cost"),
            (selection(offer(expires=float("nan"))), "offers.0.expires"),
            (selection(offer(expires=0)), "offers.0.expires"),
            (selection(offer(expires=86_401)), "offers.0.expires"),
            (selection(offer(blob="")), "offers.0.blob"),
            (selection(offer(blob="x" * 16_385)), "offers.0.blob"),
            (selection(offer(blob="two words")), "offers.0.blob"),
            (selection(offer(zone="../..")), "offers.0.zone"),
            (selection(offer(host="worker1")), "offers.0.host"),
            (selection(left_out=[{"zone": 5, "why": ""}]), "left_out.0.zone"),
            (says([]), "Input should be an object"),
            (says(b"nonsense"), "Invalid JSON"),
            (says(b""), "Invalid JSON"),
            (says(b"[" * 100_000), "Invalid JSON"),
            (says(b'{"offers": "\xff"}'), "Invalid JSON"),
            (says({}, kind="text/html"), "it is not JSON"),
            (says({}, Content_Encoding="gzip"), "it is encoded"),
        ],
    )
    def test_nothing_that_cannot_be_meant(self, zone: ScriptedZone, reply: Reply, why: str) -> None:
        zone.reply(SELECT, reply)

        with pytest.raises(Unreachable, match=why) as caught:
            select(zone)

        assert "the zone west sent an invalid response" in str(caught.value)

    @pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1])
    def test_no_capabilities_that_no_zone_can_have(self, zone: ScriptedZone, amount: float) -> None:
        zone.reply(ZONES, says({"zone": "west", "capabilities": {"ram": amount}}))

        with pytest.raises(Unreachable, match=r"capabilities\.ram"):
            asked(zone, lambda child: child.capabilities(deadline=5))

    def test_no_reservation_but_the_one_that_was_asked_for(self, zone: ScriptedZone) -> None:
        document = {"reservation_id": "r-fedcba9876543210", "instances": []}
        zone.reply(f"GET /reservations/{RESERVATION}", says(document))

        with pytest.raises(Unreachable, match="another reservation"):
            asked(zone, lambda child: child.instances(RESERVATION, deadline=5))

    @pytest.mark.parametrize("named", ["../zones", "r-fedcba9876543210"])
    def test_no_reservation_but_the_one_of_the_request(
        self, zone: ScriptedZone, named: str
    ) -> None:
        zone.reply(BOOT, says({"reservation_id": named}))

        with pytest.raises(Unreachable, match="reservation"):
            asked(zone, lambda child: child.boot(BOOTED, deadline=5))

    def test_an_answer_of_100_mb_is_cut_off_early(self, zone: ScriptedZone) -> None:
        flood = Floods()
        zone.reply(SELECT, flood)

        with pytest.raises(Unreachable, match="longer than 4 MiB"):
            select(zone)

        assert flood.sent < flood.size / 2
        assert len(zone.asked) == 1


class TestWhatGoesWrong:
    @pytest.mark.parametrize(
        ("status", "error"),
        [
            (400, Refused),
            (401, Denied),
            (403, Denied),
            (404, NotFound),
            (409, Conflict),
            (422, Refused),
            (301, Unreachable),
            (418, Unreachable),
            (500, Unreachable),
            (503, Unreachable),
        ],
    )
    def test_a_status_is_an_error_of_its_kind(
        self, zone: ScriptedZone, status: int, error: type[FabricDirectError]
    ) -> None:
        zone.reply(BOOT, says({}, status=status))

        with pytest.raises(FabricDirectError) as caught:
            asked(zone, lambda child: child.boot(BOOTED, deadline=5))

        assert type(caught.value) is error
        assert len(zone.asked) == 1

    def test_a_redirect_is_not_followed(self, zone: ScriptedZone) -> None:
        zone.reply(SELECT, says({}, status=307, Location="/elsewhere"))

        with pytest.raises(Unreachable, match="HTTP status 307"):
            select(zone)

        assert [request.what for request in zone.asked] == [SELECT]

    def test_its_own_words_are_passed_on_in_bounds(self, zone: ScriptedZone) -> None:
        problem = {"error": "Conflict", "message": "\x1b[2Jtaken" + "!" * 10_000, "field": "offers"}
        zone.reply(BOOT, says(problem, status=409))

        with pytest.raises(Conflict) as caught:
            asked(zone, lambda child: child.boot(BOOTED, deadline=5))

        assert str(caught.value).startswith("offers: the zone west refuses: Conflict:  [2Jtaken!")
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 600

    @pytest.mark.parametrize("how", [hangs, hangs_in_the_middle])
    def test_one_that_hangs_is_given_up(
        self, zone: ScriptedZone, how: Callable[[ScriptedZone], Reply]
    ) -> None:
        zone.reply(SELECT, how(zone))

        with pytest.raises(
            Unreachable, match=r"the zone west does not answer: timed out after 0\.3 s"
        ):
            select(zone, deadline=0.3)

        assert len(zone.asked) == 1

    def test_one_that_does_not_even_greet_is_given_up(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            settings = ChildZone(url=f"https://127.0.0.1:{silent.getsockname()[1]}")
            with pytest.raises(Unreachable, match=r"timed out after 0\.3 s"):
                with_child(settings, lambda child: child.capabilities(deadline=0.3))

    @pytest.mark.parametrize("how", [breaks, breaks_in_the_middle])
    def test_after_a_broken_connection_it_is_asked_once_more(
        self, zone: ScriptedZone, how: Reply
    ) -> None:
        zone.reply(BOOT, how, says({"reservation_id": RESERVATION}))

        booted = asked(zone, lambda child: child.boot(BOOTED, deadline=5))

        assert booted == RESERVATION
        assert [request.body["request_id"] for request in zone.asked] == ["request-1"] * 2

    @pytest.mark.parametrize("how", [breaks, breaks_in_the_middle])
    def test_and_not_for_a_third_time(self, zone: ScriptedZone, how: Reply) -> None:
        zone.reply(SELECT, how)

        with pytest.raises(
            Unreachable, match="the zone west does not answer: the connection broke"
        ):
            select(zone)

        assert len(zone.asked) == 2

    def test_no_error_names_its_address(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]

        with pytest.raises(Unreachable, match="the zone west does not answer") as caught:
            with_child(
                ChildZone(url=f"http://127.0.0.1:{port}"),
                lambda child: child.capabilities(deadline=5),
            )

        assert "127.0.0.1" not in str(caught.value)
        assert str(port) not in str(caught.value)

    def test_one_that_comes_back_is_believed_again(self, zone: ScriptedZone) -> None:
        zone.reply(SELECT, says({}, status=500), selection(offer()))

        async def twice(child: ChildSource) -> int:
            with pytest.raises(Unreachable):
                await child.select(REQUEST, deadline=5)
            return len((await child.select(REQUEST, deadline=5)).offers)

        assert asked(zone, twice) == 1


class TestItsToken:
    def settings(self, zone: ScriptedZone, folder: Path, content: str) -> ChildZone:
        (folder / "token").write_text(content)
        return ChildZone(url=zone.url, token_file=folder / "token")

    def test_is_the_first_line_of_its_file(self, zone: ScriptedZone, tmp_path: Path) -> None:
        zone.reply(SELECT, selection())

        with_child(
            self.settings(zone, tmp_path, f"{TOKEN}\nanother\n"),
            lambda child: child.select(REQUEST, deadline=5),
        )

        assert zone.asked[0].headers["authorization"] == f"Bearer {TOKEN}"

    def test_is_in_no_error_and_no_log(
        self, zone: ScriptedZone, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        zone.reply(SELECT, says({"error": "Denied", "message": "who are you?"}, status=401))

        with pytest.raises(Denied, match="who are you") as caught:
            with_child(
                self.settings(zone, tmp_path, TOKEN),
                lambda child: child.select(REQUEST, deadline=5),
            )

        assert caplog.text
        assert TOKEN not in caplog.text + str(caught.value)

    @pytest.mark.parametrize("content", ["", "two words", "ü", "\n" + TOKEN])
    def test_that_is_none_is_refused_and_not_shown(
        self, zone: ScriptedZone, tmp_path: Path, content: str
    ) -> None:
        settings = self.settings(zone, tmp_path, content)

        with pytest.raises(InvalidSite, match="token_file") as caught:
            ChildSource("west", settings)

        assert "words" not in str(caught.value)

    def test_whose_file_is_missing_is_refused(self, tmp_path: Path) -> None:
        settings = ChildZone(url="https://127.0.0.1:1", token_file=tmp_path / "none")

        with pytest.raises(InvalidSite, match=r"^token_file: .*zone west"):
            ChildSource("west", settings)

    @pytest.mark.parametrize("url", ["http://192.0.2.1:8750", "http://zone.example:8750"])
    def test_does_not_go_over_a_network_in_clear(self, tmp_path: Path, url: str) -> None:
        (tmp_path / "token").write_text(TOKEN)

        with pytest.raises(InvalidSite, match=r"^url: .*zone west"):
            ChildSource("west", ChildZone(url=url, token_file=tmp_path / "token"))


class TestTls:
    def ask(self, zone: ScriptedZone, authority: Authority | None) -> int:
        settings = ChildZone(url=zone.url, ca_file=authority and authority.file)
        answer = with_child(settings, lambda child: child.select(REQUEST, deadline=5))
        return len(answer.offers)

    def test_a_certificate_of_the_named_authority_is_trusted(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        with ScriptedZone(server_context(authority.issue("west"))) as zone:
            zone.reply(SELECT, selection(offer()))

            assert self.ask(zone, authority) == 1

    def test_one_of_another_authority_is_not(self, tmp_path: Path) -> None:
        authority, other = Authority(tmp_path), Authority(tmp_path, "another CA")
        with ScriptedZone(server_context(authority.issue("west"))) as zone:
            for trusted in (other, None):
                with pytest.raises(Unreachable, match="west does not answer: its certificate"):
                    self.ask(zone, trusted)

            assert zone.asked == []

    def test_nor_one_for_another_address(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        with (
            ScriptedZone(server_context(authority.issue("west", "192.0.2.1"))) as zone,
            pytest.raises(Unreachable, match="its certificate is not trusted") as caught,
        ):
            self.ask(zone, authority)

        assert "127.0.0.1" not in str(caught.value)

    def test_one_that_speaks_no_tls_is_not_asked(self, zone: ScriptedZone) -> None:
        settings = ChildZone(url=zone.url.replace("http", "https"))

        with pytest.raises(Unreachable, match="no TLS"):
            with_child(settings, lambda child: child.capabilities(deadline=5))

    @pytest.mark.parametrize("content", [None, "no certificate"])
    def test_authorities_that_cannot_be_read_are_refused(
        self, tmp_path: Path, content: str | None
    ) -> None:
        if content:
            (tmp_path / "ca.pem").write_text(content)

        with pytest.raises(InvalidSite, match=r"^ca_file: .*zone west"):
            ChildSource("west", ChildZone(url="https://127.0.0.1:1", ca_file=tmp_path / "ca.pem"))


@pytest.mark.parametrize("url", ["http://[::1", "http://a:x", "http://a b\x01"])
def test_a_url_that_names_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidSite, match="url: is not an address"):
        ChildSource("a", ChildZone(url=url))
