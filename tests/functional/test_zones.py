"""Zones as a tree of real servers on three levels, also with children that are down, slow or lie.

::

    top ─┬─ west ─┬─ w1      two GPUs on one host, and a host without any
         │        └─ w2      two hosts without GPUs
         └─ east (TLS)       one GPU
    left  ── east            right ─┬─ east         another two parents of east
    ring-a ⇄ ring-b                 └─ w1
    troubled ── late, and what goes wrong
"""

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.zones.wire import reservation_of
from tests.outcomes import result_of
from tests.scripted_zone import (
    Authority,
    Floods,
    Reply,
    ScriptedZone,
    breaks_in_the_middle,
    hangs,
    says,
)
from tests.zone_tree import FABRIC_DIRECT, ZoneProcess, fake_site, needs, sliver

TOKEN = "east-lets-in-who-has-this"  # noqa: S105
PLAIN = {"cores": 8, "ram": 16, "disk": 100}
GPUS = {**PLAIN, "gpus": 2}
HOSTS = {
    "w1": {"hidden-w1-gpus": GPUS, "hidden-w1-plain": PLAIN},
    "w2": {"hidden-w2-one": PLAIN, "hidden-w2-two": PLAIN},
    "east": {"hidden-east": {**PLAIN, "gpus": 1}},
    "ring-a": {"hidden-ring": PLAIN},
    "late": {"hidden-late": {**PLAIN, "gpus": 1}},
}
SECRETS = ("hidden", "127.0.0.1", "worker7", TOKEN)
WRONG = ("hangs", "fails", "floods", "babbles", "greedy", "half", "forger")


class Tree:
    """The zones by name, and the children that go wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zones: dict[str, ZoneProcess] = {}
        self.wrong: dict[str, ScriptedZone] = {}

    def __getattr__(self, name: str) -> ZoneProcess:
        return self.zones[name.replace("_", "-")]

    def add(self, name: str, *children: str, **values: Any) -> ZoneProcess:
        below = {child: self.zones[child].as_child() for child in children}
        zone = {"children": below} | values.pop("zone", {})
        document = fake_site(name, self.folder, HOSTS.get(name, {}), zone)
        self.zones[name] = ZoneProcess(document, self.folder, **values)
        return self.zones[name]


pytestmark = pytest.mark.xdist_group("zones")  # they share a tree of a dozen servers


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    folder = tmp_path_factory.mktemp("zones")
    with ExitStack() as stack:
        tree = Tree(folder)
        tree.wrong = {name: stack.enter_context(ScriptedZone()) for name in WRONG}
        _grow(tree)
        begun = [zone for name, zone in tree.zones.items() if name != "late"]
        for zone in begun:
            zone.begin()
        stack.callback(_end, tree)
        for zone in begun:
            zone.wait()
        _hear(tree)
        yield tree
        nothing_was_told(tree)


def _grow(tree: Tree) -> None:
    authority = Authority(tree.folder)
    stranger = Authority(tree.folder, "another CA")
    (tree.folder / "token").write_text(TOKEN + "\n")
    (tree.folder / "wrong").write_text("w" * 24 + "\n")
    token = {"token_file": str(tree.folder / "token")}
    tls = {"tls": authority.issue("east"), **token}

    tree.add("w1"), tree.add("w2")
    tree.add("west", "w1", "w2")
    east = tree.add("east", zone=tls, token=TOKEN, ca_file=authority.file)
    known = {"east": east.as_child(**token)}
    west = {"west": tree.west.as_child()}
    tree.add("top", zone={"children": {**west, **known}})
    tree.add("left", zone={"children": known})
    w1 = {"w1": tree.w1.as_child()}
    tree.add("right", zone={"children": {**w1, **known}, "offer_lifetime": 0.5})
    ring = ZoneProcess(fake_site("ring-b", tree.folder, {}, {}), tree.folder)
    tree.add("ring-a", zone={"children": {"ring-b": ring.as_child()}})
    ring.document["zone"]["children"] = {"ring-a": tree.ring_a.as_child()}
    tree.zones["ring-b"] = ring
    tree.add("late")
    wrong = {name: {"url": zone.url} for name, zone in tree.wrong.items()}
    doors = {
        "wrong-token": east.as_child(token_file=str(tree.folder / "wrong")),
        "no-token": east.as_child(),
        "wrong-ca": east.as_child(ca_file=str(stranger.file), **token),
        "late": tree.late.as_child(),
    }
    tree.add("troubled", zone={"children": wrong | doors, "deadline": 6})


def _end(tree: Tree) -> None:
    """End all servers, each while the others do."""
    zones = tree.zones.values()
    with ThreadPoolExecutor(len(zones)) as pool:
        list(pool.map(lambda zone: zone.end(), zones))


def _hear(tree: Tree) -> None:
    """Return when each parent has heard of all that is below it."""
    for name, hosts in (("west", 4), ("top", 5), ("left", 1), ("right", 3)):
        until(lambda zone=tree.zones[name], n=hosts: zone.view()["capabilities"]["hosts"] == n)


def until(so: Callable[[], bool], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end
        time.sleep(0.1)


def _hear_again(zone: ZoneProcess) -> None:
    """Return when the zone has heard its only child once more: the age of what it knows falls."""
    ages = [0.0]

    def fell() -> bool:
        (child,) = zone.view()["children"]
        ages.append(child["age"] or 0)
        return ages[-1] < ages[-2]

    until(fell)


@pytest.fixture
def new() -> str:
    """A request id."""
    return secrets.token_hex(16)


@pytest.fixture
def made(tree: Tree) -> Iterator[Callable[..., str]]:
    """Boot, and delete it when the test ends; return the reservation."""
    there: list[tuple[ZoneProcess, str]] = []

    def boot(zone: ZoneProcess, *kinds: dict[str, Any], **values: Any) -> str:
        answer = zone.boot(secrets.token_hex(16), *kinds, **values)
        assert answer.status_code == 202, answer.text
        there.append((zone, answer.json()["reservation_id"]))
        return there[-1][1]

    yield boot
    for zone, reservation in there:
        left = zone.delete(reservation)
        assert {each["status"] for each in left["instances"]} <= {"deleted"}


def zones_of(answer: dict[str, Any]) -> list[str]:
    return [each["zone"] for each in answer.get("offers", answer.get("instances"))]


def statuses(answer: dict[str, Any]) -> list[str]:
    return [each["status"] for each in answer["instances"]]


class TestCapabilities:
    def test_are_those_of_all_levels(self, tree: Tree) -> None:
        until(lambda: tree.top.free("GPU") == 3)  # it looks at them each second
        view = tree.top.view()

        assert view["capabilities"]["hosts"] == 5
        assert {c["zone"]: c["capabilities"]["hosts"] for c in view["children"]} == {
            "west": 4,
            "east": 1,
        }


class TestOffers:
    def test_of_all_levels_are_merged_the_cheapest_first(self, tree: Tree, new: str) -> None:
        found = tree.top.select(new, gpu=needs("gpu", 3), small=needs("small", 4))

        costs = [offer["cost"] for offer in found["offers"]]
        assert costs == sorted(costs)
        assert len(costs) == 7
        assert sorted(zones_of({"offers": [o for o in found["offers"] if o["kind"] == "gpu"]})) == [
            "east",
            "west",
            "west",
        ]
        assert found["left_out"] == found["shortages"] == []

    def test_that_are_too_few_come_with_the_filters_that_refused(
        self, tree: Tree, new: str
    ) -> None:
        found = tree.top.select(new, gpu=needs("gpu", 4))

        (shortage,) = found["shortages"]
        assert len(found["offers"]) == 3
        assert (shortage["kind"], shortage["missing"]) == ("gpu", 1)
        assert shortage["refused"]["devices"] == 5

    def test_make_nothing(self, tree: Tree, new: str) -> None:
        tree.top.select(new, gpu=needs("gpu", 3))

        assert tree.w1.free("GPU") + tree.east.free("GPU") == 3

    def test_of_a_kind_that_must_share_a_host_are_from_one_zone(self, tree: Tree, new: str) -> None:
        found = tree.top.select(new, gpu=needs("gpu", 2, together=True))

        assert zones_of(found) == ["west", "west"]

    def test_of_a_kind_no_two_of_which_may_share_a_host_are_for_different_hosts(
        self, tree: Tree, new: str
    ) -> None:
        found = tree.top.select(new, small=needs("small", 6, apart=True))

        assert len(found["offers"]) == 5
        assert found["shortages"][0]["missing"] == 1


class TestBooting:
    def test_makes_each_instance_in_the_zone_that_offered_it(
        self, tree: Tree, new: str, made: Callable[..., str]
    ) -> None:
        offers = tree.top.select(new, gpu=needs("gpu", 3))["offers"]

        reservation = made(tree.top, sliver("gpu", 3), offers=offers)

        found = tree.top.settled(reservation)
        assert statuses(found) == ["done"] * 3
        assert sorted(zones_of(found)) == ["east", "west", "west"]
        assert (tree.w1.free("GPU"), tree.east.free("GPU")) == (0, 0)

    def test_without_offers_selects_by_itself(self, tree: Tree, made: Callable[..., str]) -> None:
        found = tree.top.settled(made(tree.top, sliver("gpu", 3), sliver("small", 2)))

        assert statuses(found) == ["done"] * 5

    def test_asked_twice_it_is_the_same_reservation(
        self, tree: Tree, new: str, made: Callable[..., str]
    ) -> None:
        reservation = made(tree.top, sliver("small"))
        tree.top.settled(reservation)
        one = tree.top.boot(new, sliver("gpu"))

        again = tree.top.boot(new, sliver("gpu"))

        assert one.json() == again.json() == {"reservation_id": reservation_of(new)}
        assert len(tree.top.settled(reservation_of(new))["instances"]) == 1
        tree.top.delete(reservation_of(new))

    def test_of_more_than_there_is_makes_nothing(self, tree: Tree, new: str) -> None:
        answer = tree.top.boot(new, sliver("gpu", 4))

        assert answer.status_code == 409
        assert answer.json()["shortages"][0]["missing"] == 1
        until(lambda: tree.w1.free("GPU") + tree.east.free("GPU") == 3)

    def test_of_as_many_as_fit_makes_those(self, tree: Tree, made: Callable[..., str]) -> None:
        found = tree.top.settled(made(tree.top, sliver("gpu", 4), partial=True))

        assert statuses(found) == ["done"] * 3


class TestDeleting:
    def test_goes_through_the_levels_and_leaves_nothing(self, tree: Tree, new: str) -> None:
        tree.top.boot(new, sliver("gpu", 3))
        tree.top.settled(reservation_of(new))

        found = tree.top.delete(reservation_of(new))

        assert statuses(found) == ["deleted"] * 3
        assert tree.w1.free("GPU") + tree.east.free("GPU") == 3

    def test_what_is_not_there_is_not_found(self, tree: Tree) -> None:
        answer = tree.top.ask("DELETE", "/reservations/r-0123456789abcdef")

        assert answer.status_code == 404


class TestASealedOffer:
    @pytest.fixture
    def offer(self, tree: Tree, new: str) -> dict[str, Any]:
        return dict(tree.top.select(new, gpu=needs("gpu"))["offers"][0])

    def test_is_taken_up_once(
        self, tree: Tree, new: str, offer: dict[str, Any], made: Callable[..., str]
    ) -> None:
        made(tree.top, sliver("gpu"), offers=[offer])

        answer = tree.top.boot(new, sliver("gpu"), offers=[offer])

        assert answer.status_code == 409

    def test_that_was_altered_is_refused(self, tree: Tree, new: str, offer: dict[str, Any]) -> None:
        middle = len(offer["blob"]) // 2
        other = "A" if offer["blob"][middle] != "A" else "B"
        blob = offer["blob"][:middle] + other + offer["blob"][middle + 1 :]

        answer = tree.top.boot(new, sliver("gpu"), offers=[offer | {"blob": blob}])

        assert answer.status_code == 409

    def test_of_another_zone_is_refused(self, tree: Tree, new: str, offer: dict[str, Any]) -> None:
        for other in (tree.left, tree.west, tree.east):
            answer = other.boot(secrets.token_hex(16), sliver("gpu"), offers=[offer])
            assert answer.status_code == 409, answer.text

    def test_that_is_expired_is_refused(self, tree: Tree, new: str) -> None:
        offers = tree.right.select(new, gpu=needs("gpu"))["offers"]
        assert offers[0]["expires"] <= 0.5
        time.sleep(1.6)

        answer = tree.right.boot(secrets.token_hex(16), sliver("gpu"), offers=offers)

        assert answer.status_code == 409

    def test_for_another_kind_of_instance_is_refused(
        self, tree: Tree, new: str, offer: dict[str, Any]
    ) -> None:
        larger = sliver("gpu")
        larger["sliver"]["capacities"] = {"core": 8, "ram": 16, "disk": 100}

        answer = tree.west.boot(new, larger, offers=[offer])

        assert answer.status_code == 409


class TestTheLastGpu:
    def test_of_two_parents_that_boot_it_at_once_one_wins(
        self, tree: Tree, made: Callable[..., str]
    ) -> None:
        made(tree.right, sliver("gpu", 2, together=True))  # those of w1
        parents = (tree.left, tree.right)

        with ThreadPoolExecutor() as pool:
            answers = list(
                pool.map(lambda zone: zone.boot(secrets.token_hex(16), sliver("gpu")), parents)
            )

        assert sorted(answer.status_code for answer in answers) == [202, 409]
        won, lost = sorted(zip(parents, answers, strict=True), key=lambda pair: pair[1].status_code)
        assert lost[1].json()["message"]
        assert statuses(won[0].settled(won[1].json()["reservation_id"])) == ["done"]
        won[0].delete(won[1].json()["reservation_id"])

    def test_the_other_gets_its_next_choice_if_it_has_one(
        self, tree: Tree, new: str, made: Callable[..., str]
    ) -> None:
        offers = tree.top.select(new, gpu=needs("gpu", 3))["offers"]
        wanted = [offer for offer in offers if offer["zone"] == "east"]
        made(tree.left, sliver("gpu"))

        reservation = made(tree.top, sliver("gpu"), offers=wanted)

        found = tree.top.settled(reservation)
        assert (zones_of(found), statuses(found)) == (["west"], ["done"])


class TestARing:
    def test_of_zones_comes_to_an_end(self, tree: Tree, new: str) -> None:
        zones = (tree.ring_a, tree.ring_b)
        for zone in zones:  # one begins before the other, and is not heard from at first
            until(lambda zone=zone: zone.view()["children"][0]["heard"])  # type: ignore[misc]
        for zone in zones:
            found = zone.select(secrets.token_hex(16), small=needs("small", 3))

            assert len(found["offers"]) == 3
            assert "form a loop" in str(found["left_out"])

    def test_counts_each_zone_once(self, tree: Tree) -> None:
        for zone in (tree.ring_b, tree.ring_a, tree.ring_b, tree.ring_a):
            _hear_again(zone)

        assert tree.ring_a.view()["capabilities"]["hosts"] == 1


def _wrong_replies(name: str, zone: ScriptedZone) -> dict[str, Reply]:
    """Return what a child that goes wrong answers to a selection and to a look."""
    offer = {"kind": "small", "cost": 0, "zone": name, "blob": "abc", "expires": 60}
    view = says({"zone": name, "capabilities": {"hosts": 1}})
    select: Reply = {
        "hangs": hangs(zone),
        "fails": says({"error": "Whatever", "message": "worker7 is full"}, status=500),
        "floods": Floods(),
        "babbles": says(b"<html>nonsense</html>", kind="text/html"),
        "greedy": says({"offers": [offer | {"blob": f"b{n}"} for n in range(5)]}),
        "half": breaks_in_the_middle,
        "forger": says({"offers": [offer]}),
    }[name]
    return {"GET /zones": view, "POST /zones/select": select}


class TestChildrenThatGoWrong:
    @pytest.fixture(autouse=True)
    def replies(self, tree: Tree) -> None:
        for name, zone in tree.wrong.items():
            for what, reply in _wrong_replies(name, zone).items():
                zone.reply(what, reply)
        wrong = set(tree.wrong)
        until(lambda: {c["zone"] for c in tree.troubled.view()["children"] if c["heard"]} >= wrong)

    @pytest.fixture
    def late(self, tree: Tree) -> ZoneProcess:
        """A child that is right."""
        self.come(tree)
        return tree.late

    def come(self, tree: Tree) -> None:
        if not tree.late.running:
            tree.late.begin()
            tree.late.wait()
        until(lambda: self.seen(tree)["late"]["heard"])

    def seen(self, tree: Tree) -> dict[str, Any]:
        return {child["zone"]: child for child in tree.troubled.view()["children"]}

    @pytest.fixture
    def absent(self, tree: Tree) -> None:
        """The child that is right does not run."""
        tree.late.end()

    @pytest.mark.usefixtures("absent")
    def test_are_left_out_and_named_with_the_reason(self, tree: Tree, new: str) -> None:
        found = tree.troubled.select(new, small=needs("small", 2))

        why = {each["zone"]: each["why"] for each in found["left_out"]}
        assert "5.4 s" in why["hangs"]
        assert "HTTP status 500" in why["fails"]
        assert "longer than 4 MiB" in why["floods"]
        assert "not JSON" in why["babbles"]
        assert "more instances than were asked for" in why["greedy"]
        assert "the connection broke" in why["half"]
        assert "no connection" in why["late"]
        assert "refuses" in why["wrong-token"]
        assert "refuses" in why["no-token"]
        assert "certificate is not trusted" in why["wrong-ca"]
        assert zones_of(found) == ["forger"]

    def test_do_not_keep_others_from_being_asked(
        self, tree: Tree, new: str, late: ZoneProcess
    ) -> None:
        found = tree.troubled.select(new, small=needs("small", 2))

        assert zones_of(found) == ["forger", "late"]

    def test_do_not_keep_others_from_getting_the_instances(
        self, tree: Tree, late: ZoneProcess, made: Callable[..., str]
    ) -> None:
        tree.wrong["hangs"].reply("POST /zones/select", says({}, status=500))
        tree.wrong["forger"].reply("POST /zones/boot", says({}, status=409))

        reservation = made(tree.troubled, sliver("small", 2), deadline=20)

        found = tree.troubled.settled(reservation)
        assert (zones_of(found), statuses(found)) == (["late"] * 2, ["done"] * 2)
        assert "POST /zones/boot" in {asked.what for asked in tree.wrong["forger"].asked}

    def test_that_end_are_asked_again_when_they_are_back(
        self, tree: Tree, new: str, late: ZoneProcess
    ) -> None:
        late.end()
        until(lambda: not self.seen(tree)["late"]["heard"])
        assert "not heard from" in self.seen(tree)["late"]["why"]

        self.come(tree)

        until(lambda: "late" in zones_of(tree.troubled.select(new, small=needs("small", 2))))

    def test_that_end_are_told_to_delete_when_they_are_back(
        self, tree: Tree, new: str, late: ZoneProcess
    ) -> None:
        tree.wrong["forger"].reply("POST /zones/select", says({}))
        tree.wrong["hangs"].reply("POST /zones/select", says({}))
        booted = tree.troubled.boot(new, sliver("gpu"), deadline=20)
        reservation = booted.json()["reservation_id"]
        tree.troubled.settled(reservation)
        late.end()

        answer = tree.troubled.ask("DELETE", f"/reservations/{reservation}").json()

        assert statuses(answer) == ["unknown"]
        assert [each["zone"] for each in answer["left_out"]] == ["late"]
        self.come(tree)
        assert statuses(tree.troubled.settled(reservation)) == ["deleted"]


class TestTheServer:
    @pytest.fixture
    def slow(self, tree: Tree) -> Iterator[ZoneProcess]:
        """A zone alone, which takes its time to make something."""
        name = f"slow-{secrets.token_hex(2)}"
        site = fake_site(name, tree.folder, {f"hidden-{name}": PLAIN}, {})
        site["fake"]["delay"] = 0.05
        zone = ZoneProcess(site, tree.folder)
        zone.begin()
        zone.wait()
        yield zone
        zone.end()

    def test_ends_well_by_sigterm_when_it_has_finished_what_it_is_making(
        self, slow: ZoneProcess, new: str
    ) -> None:
        reservation = slow.boot(new, sliver("small")).json()["reservation_id"]

        assert slow.end() == 0

        assert slow.log.startswith(f"zone {slow.name} listens on {slow.url}, offers its own hosts")
        assert "Traceback" not in slow.log
        slow.begin()
        slow.wait()
        assert statuses(slow.reservation(reservation)) == ["done"]

    def test_that_is_killed_goes_on_where_it_was(self, slow: ZoneProcess, new: str) -> None:
        reservation = slow.boot(new, sliver("small")).json()["reservation_id"]
        slow.kill()

        slow.begin()
        slow.wait()

        assert statuses(slow.settled(reservation)) == ["done"]

    def test_lets_nobody_in_without_its_token(self, tree: Tree) -> None:
        for header in ("", "Bearer " + "w" * 24, TOKEN):
            answer = tree.east.ask("GET", "/zones", Authorization=header)
            assert answer.status_code == 401


class TestOnTheCommandLine:
    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*FABRIC_DIRECT, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def test_zones_shows_a_running_zone(self, tree: Tree) -> None:
        lines: list[str] = []

        def all_are_free() -> bool:
            """Levels hear of what other tests had one after the other: 3 may become 2 once more."""
            done = self.run("zone", "list", "--zone", tree.top.url)
            assert done.returncode == 0, done.stderr
            lines[:] = done.stdout.splitlines()
            return "3 GPU A30" in lines[1]

        until(all_are_free)
        assert lines[0].split()[:3] == ["ZONE", "STATE", "HOSTS"]
        assert lines[1].startswith("top (total)  answers  5")
        assert {line.split()[0] for line in lines[2:]} == {"west", "east"}

    def test_zones_asks_for_itself_without_a_running_zone(self, tree: Tree) -> None:
        done = self.run("--site", str(tree.folder / "west.json"), "zone", "list")

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[1].startswith("west (total)  answers  4")

    def test_slivers_are_placed_shown_and_deleted_by_a_running_zone(
        self, tree: Tree, tmp_path: Path
    ) -> None:
        wanted = {"slivers": [{"count": 2, "sliver": sliver("gpu")["sliver"]}]}
        (tmp_path / "request.json").write_text(json.dumps(wanted))
        at = ("--json", "--zone", tree.top.url)

        booted = CliRunner().invoke(main, ["place", str(tmp_path / "request.json"), *at, "--boot"])
        reservation = result_of(booted.stdout)["reservation_id"]
        shown = CliRunner().invoke(main, ["zone", "reservation", "show", reservation, *at])
        deleted = CliRunner().invoke(main, ["zone", "reservation", "delete", reservation, *at])

        assert [each.exit_code for each in (booted, shown, deleted)] == [0, 0, 0]
        assert statuses(result_of(shown.stdout)) == ["done"] * 2
        assert statuses(result_of(deleted.stdout)) == ["deleted"] * 2

    def test_a_zone_that_is_not_there_is_named(self) -> None:
        done = self.run("zone", "list", "--zone", "http://127.0.0.1:9")

        assert done.returncode == 1
        assert "the zone http://127.0.0.1:9 does not answer: no connection" in done.stderr


def nothing_was_told(tree: Tree) -> None:
    """See that no answer and no log so far has what is nobody's business."""
    answers = "\n".join(text for zone in tree.zones.values() for text in zone.heard)
    for word in (*SECRETS, str(tree.folder)):
        assert word not in answers
    logs = "\n".join(zone.log for name, zone in tree.zones.items() if name != "late")
    assert "listens on" in logs
    assert TOKEN not in logs
    assert "Traceback" not in logs


def test_no_host_no_address_and_no_token_is_in_any_answer_or_log(
    tree: Tree, new: str, made: Callable[..., str]
) -> None:
    """Here after a few requests; and when the tree ends, after all that the other tests asked."""
    reservation = made(tree.top, sliver("gpu", 3))
    tree.top.settled(reservation)
    tree.top.boot(new, sliver("gpu", 4))
    tree.troubled.select(new, small=needs("small", 2))
    for zone in tree.zones.values():
        if zone.running:
            zone.view()

    assert any("reservation_id" in text for text in tree.top.heard)
    nothing_was_told(tree)
