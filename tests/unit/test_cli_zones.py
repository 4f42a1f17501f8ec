"""The commands for zones: what they ask a running zone, what they print, and the exit code.

The zone is a real server on loopback that answers as it is told.
"""

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.cli import main, reservations
from fabric_direct.zones.wire import reservation_of
from tests.conftest import FAKE_DRIVERS
from tests.outcomes import result_of
from tests.scripted_zone import Reply, ScriptedZone, says

SLIVER = {
    "id": "web",
    "name": "web",
    "host": "auto",
    "image": "tiny",
    "capacities": {"core": 1, "ram": 1, "disk": 1},
}
OFFERS = [
    {"kind": "web", "cost": cost, "zone": zone, "blob": zone, "expires": 60}
    for cost, zone in ((3, "north"), (5, "south"))
]
SHORT = [{"kind": "web", "missing": 1, "refused": {"capacity": 4}}]
ID = "r-0123456789abcdef"


@pytest.fixture
def zone() -> Iterator[ScriptedZone]:
    with ScriptedZone() as zone:
        zone.reply("POST /zones/select", says({"offers": OFFERS}))
        yield zone


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "_PAUSE", 0.01)


@pytest.fixture
def request_file(tmp_path: Path) -> str:
    path = tmp_path / "request.yaml"
    path.write_text(yaml.safe_dump({"slivers": [{"count": 2, "sliver": SLIVER}]}))
    return str(path)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def reservation(*states: str, named: str = ID) -> Reply:
    instances = [
        {"name": f"web-{n}", "kind": "web", "zone": "north", "status": state}
        for n, state in enumerate(states)
    ]
    return says({"reservation_id": named, "instances": instances})


def boots(zone: ScriptedZone, *states: tuple[str, ...]) -> None:
    """Let the zone take a boot on, and say from look to look how far the instances are."""

    def boot(handler: BaseHTTPRequestHandler) -> None:
        named = reservation_of(zone.asked[-1].body["request_id"])
        looks = (reservation(*each, named=named) for each in states)
        zone.reply(f"GET /reservations/{named}", *looks)
        says({"reservation_id": named}, status=202)(handler)

    zone.reply("POST /zones/boot", boot)


class TestPlace:
    def test_shows_the_offers_of_a_zone_and_makes_nothing(
        self, zone: ScriptedZone, request_file: str
    ) -> None:
        done = run("place", request_file, "--zone", zone.url)

        assert done.exit_code == 0, done.output
        assert [line.split() for line in done.stdout.splitlines()] == [
            ["KIND", "COST", "ZONE", "EXPIRES", "s"],
            ["web", "3", "north", "60"],
            ["web", "5", "south", "60"],
        ]
        (asked,) = zone.asked
        assert asked.body["kinds"][0]["num_instances"] == 2
        assert asked.body["kinds"][0]["needs"]["host"] is None

    def test_boots_with_what_was_offered_and_waits(
        self, zone: ScriptedZone, request_file: str
    ) -> None:
        boots(zone, ("pending", "done"), ("done", "done"))

        done = run("place", request_file, "--zone", zone.url, "--boot")

        assert done.exit_code == 0, done.output
        told = [" ".join(line.split()) for line in done.stdout.splitlines()]
        assert told[-4:] == [
            "web-0 pending north",
            "web-1 done north",
            "web-0 done north",
            "2 of 2 are done.",
        ]
        boot = next(asked for asked in zone.asked if asked.what == "POST /zones/boot")
        assert boot.body["offers"] == OFFERS
        assert boot.body["kinds"][0]["sliver"]["id"] == "web"

    @pytest.mark.parametrize(
        ("states", "code"), [(("done", "failed"), 3), (("failed", "failed"), 1)]
    )
    def test_what_is_not_made_is_in_the_exit_code(
        self, zone: ScriptedZone, request_file: str, states: tuple[str, ...], code: int
    ) -> None:
        boots(zone, states)

        assert run("place", request_file, "--zone", zone.url, "--boot").exit_code == code

    def test_boots_nothing_if_not_all_can_be_had(
        self, zone: ScriptedZone, request_file: str
    ) -> None:
        zone.reply("POST /zones/select", says({"offers": OFFERS[:1], "shortages": SHORT}))

        done = run("place", request_file, "--zone", zone.url, "--boot")

        assert done.exit_code == 1
        assert (
            "web: 1 too few: 4 hosts refused: too few free cores, RAM or disk (filter: capacity)"
            in done.stderr
        )
        assert len(zone.asked) == 1

    def test_boots_as_many_as_fit_if_that_will_do(
        self, zone: ScriptedZone, request_file: str
    ) -> None:
        zone.reply("POST /zones/select", says({"offers": OFFERS[:1], "shortages": SHORT}))
        boots(zone, ("done",))

        done = run("place", request_file, "--zone", zone.url, "--boot", "--partial")

        assert done.exit_code == 0, done.output
        assert zone.asked[1].body["partial"] is True

    def test_names_zones_that_are_left_out(self, zone: ScriptedZone, request_file: str) -> None:
        left_out = [{"zone": "east", "why": "is\x1b[2J down"}]
        zone.reply("POST /zones/select", says({"offers": OFFERS, "left_out": left_out}))

        done = run("place", request_file, "--zone", zone.url)

        assert "east is left out: is\\x1b[2J down" in done.stderr

    def test_prints_one_document_with_json(self, zone: ScriptedZone, request_file: str) -> None:
        boots(zone, ("pending",), ("done",))

        selected = run("--json", "place", request_file, "--zone", zone.url)
        booted = run("--json", "place", request_file, "--zone", zone.url, "--boot")

        assert result_of(selected.stdout)["offers"] == OFFERS
        assert result_of(booted.stdout)["instances"][0]["status"] == "done"

    @pytest.mark.parametrize("change", [{"id": "much-too-long-for-a-kind"}, {"host": "worker1"}])
    def test_refuses_a_sliver_that_no_zone_can_be_asked_for(
        self, zone: ScriptedZone, tmp_path: Path, change: dict[str, str]
    ) -> None:
        path = tmp_path / "one.yaml"
        path.write_text(yaml.safe_dump(SLIVER | change))

        done = run("place", str(path), "--zone", zone.url)

        assert done.exit_code == 2
        assert "a zone cannot be asked for this sliver" in done.stderr
        assert zone.asked == []

    @pytest.mark.parametrize("url", ["north", "ftp://north", "http://user@north"])
    def test_refuses_an_address_that_is_none(self, request_file: str, url: str) -> None:
        done = run("place", request_file, "--zone", url)

        assert done.exit_code == 2
        assert f"{url!r} is not the address of a zone" in done.stderr

    def test_refuses_what_is_about_hosts(self, request_file: str) -> None:
        done = run("place", request_file, "--zone", "http://127.0.0.1:9", "--explain")

        assert done.exit_code == 2
        assert "zones do not" in done.stderr


@pytest.mark.parametrize("word", ["zones", "reservation"])
def test_only_one_group_is_about_zones(word: str) -> None:
    done = run(word)

    assert done.exit_code == 2
    assert "No such command" in done.stderr


class TestReservation:
    def test_show_prints_how_far_each_instance_is(self, zone: ScriptedZone) -> None:
        zone.reply(f"GET /reservations/{ID}", reservation("done", "failed"))

        done = run("zone", "reservation", "show", ID, "--zone", zone.url)

        assert done.exit_code == 0, done.output
        assert [line.split() for line in done.stdout.splitlines()][1:] == [
            ["web-0", "web", "north", "done"],
            ["web-1", "web", "north", "failed"],
        ]

    def test_delete_waits_until_all_are_deleted(self, zone: ScriptedZone) -> None:
        zone.reply(f"DELETE /reservations/{ID}", says({}, status=202))
        states = (("deleting", "unknown"), ("deleted", "deleting"), ("deleted", "deleted"))
        zone.reply(f"GET /reservations/{ID}", *(reservation(*each) for each in states))

        done = run("zone", "reservation", "delete", ID, "--zone", zone.url)

        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[-1] == "2 of 2 are deleted."

    @pytest.mark.parametrize("command", ["show", "delete"])
    def test_what_is_not_there_is_said(self, zone: ScriptedZone, command: str) -> None:
        done = run("zone", "reservation", command, ID, "--zone", zone.url)

        assert done.exit_code == 2
        assert "refuses: NotFound" in done.stderr

    def test_an_id_that_is_none_is_not_asked_for(self, zone: ScriptedZone) -> None:
        done = run("zone", "reservation", "show", "../zones", "--zone", zone.url)

        assert done.exit_code == 2
        assert zone.asked == []


@pytest.mark.parametrize(
    "words", [["zone", "serve"], ["zone", "list"], ["zone", "list", "--zone", "http://north"]]
)
def test_without_its_libraries_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)

    done = run(*words)

    assert done.exit_code == 2
    assert "not installed: httpx. pip install 'fabric-direct[zones]'" in done.stderr


class TestZones:
    def test_a_token_is_shown_to_the_zone_and_to_nobody_else(
        self, zone: ScriptedZone, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("a-token-for-the-zone\n")
        zone.reply("GET /zones", says({"error": "Denied", "message": "no"}, status=403))

        done = run(
            "-v", "zone", "list", "--zone", zone.url, "--token-file", str(tmp_path / "token")
        )

        assert zone.asked[0].headers["authorization"] == "Bearer a-token-for-the-zone"
        assert done.exit_code == 1
        assert "a-token-for-the-zone" not in done.output

    def test_without_a_running_zone_hosts_and_children_are_asked(
        self, zone: ScriptedZone, tmp_path: Path
    ) -> None:
        has = {"hosts": 2, "cores": 8, "devices": [{"type": "GPU", "model": "A30", "free": 3}]}
        zone.reply("GET /zones", says({"zone": "north", "capabilities": has}))
        children = {"north": {"url": zone.url}, "away": {"url": "http://127.0.0.1:9"}}
        site = {
            "site": "campus",
            "state_dir": str(tmp_path / "state"),
            "drivers": FAKE_DRIVERS,
            "guest": "fake",
            "images": {"tiny": {}},
            "zone": {"children": children},
        }
        (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))

        done = run("--site", str(tmp_path / "site.yaml"), "zone", "list")

        assert done.exit_code == 0, done.output
        whole, away, north = done.stdout.splitlines()[1:]
        assert whole.startswith("campus (total)")
        assert whole.split()[2:5] == ["answers", "3", "72"]
        assert "3 GPU A30" in north
        assert "silent" in away
        assert "no connection" in away
