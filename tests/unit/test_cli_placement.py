"""The command line: several slivers placed at once, and slivers that leave their host open."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.drivers.fake import substrate
from fabric_direct.site.config import Site, load_site
from tests.outcomes import result_of

SITE: dict[str, Any] = {
    "site": "TEST",
    "drivers": dict.fromkeys(
        ("VM", "vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"), "fake"
    ),
    "guest": "fake",
    "images": {"tiny": {}},
    "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}},
    "hosts": {"w1": {}, "w2": {}, "w3": {}},
    "fake": {"hosts": {"w1": {"cores": 8}, "w2": {"cores": 8, "gpus": 1}, "w3": {"cores": 4}}},
}
VM: dict[str, Any] = {
    "id": "web",
    "name": "www",
    "host": "auto",
    "image": "tiny",
    "capacities": {"core": 2, "ram": 2, "disk": 2},
    "components": [{"id": "nic1", "type": "vNIC", "network": "red"}],
}
GPU = {"id": "gpu", "type": "GPU"}
Run = Callable[..., Result]
Write = Callable[..., str]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    path = tmp_path / "test-site.yaml"
    path.write_text(yaml.safe_dump(SITE | {"state_dir": str(tmp_path / "state")}))
    return load_site(path)


@pytest.fixture
def run(tmp_path: Path, site: Site) -> Run:
    def invoke(*words: str) -> Result:
        words = ("--site", str(tmp_path / "test-site.yaml"), *words)
        return CliRunner().invoke(main, words, catch_exceptions=False)

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a request, by default for three slivers that are apart, and return its path."""

    def dump(*kinds: dict[str, Any]) -> str:
        asked = kinds or ({"count": 3, "apart": True, "sliver": VM},)
        (tmp_path / "request.yaml").write_text(json.dumps({"slivers": list(asked)}))
        return str(tmp_path / "request.yaml")

    return dump


def rows(result: Result) -> dict[str, list[str]]:
    """Return the rows of a table by their first word."""
    return {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}


def servers(site: Site) -> dict[str, list[str]]:
    return {host: sorted(substrate(site, host).servers) for host in site.hosts}


class TestPlace:
    def test_prints_where_each_goes_and_makes_nothing(
        self, run: Run, write: Write, site: Site
    ) -> None:
        result = run("place", write())

        assert result.exit_code == 0
        table = rows(result)
        assert table["INSTANCE"][:3] == ["INSTANCE", "HOST", "COST"]
        assert sorted(table[f"web-{n}"][1] for n in (1, 2, 3)) == ["w1", "w2", "w3"]
        assert "3 of 3 are placed" in result.stdout
        assert not any(servers(site).values())

    def test_says_which_slivers_are_there_already(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "vm.yaml"
        file.write_text(yaml.safe_dump(VM | {"components": [GPU]}))
        made = run("create", str(file))
        assert made.exit_code == 0, made.output

        result = run("place", str(file), "--explain")

        assert rows(result)["web"][:3] == ["web", "w2", "0"]
        assert "warning: web is on w2 already: it stays there, at no cost" in result.stderr

    def test_takes_a_slivers_file_too(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "vm.yaml").write_text(yaml.safe_dump(VM | {"components": [GPU]}))

        result = run("place", str(tmp_path / "vm.yaml"))

        assert rows(result)["web"][1] == "w2"
        assert "gpu 0000:40:00.0" in result.stdout

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            (
                {"id": "n", "type": "L2Bridge"},
                "is of type L2Bridge: only VMs and bare-metal slivers",
            ),
            ({"id": "n", "type": "Foo"}, "type: 'Foo' is unknown; known: BareMetal, "),
            ({"site": "x", "hosts": {}}, "is a site's configuration; name it by --site"),
            ({"version": 1, "slivers": []}, "is a saved plan; give it to create --plan"),
        ],
        ids=["service", "unknown", "site", "plan"],
    )
    def test_refuses_what_is_not_placed_as_what_it_is(
        self, run: Run, tmp_path: Path, values: dict[str, Any], said: str
    ) -> None:
        (tmp_path / "other.yaml").write_text(yaml.safe_dump(values))

        result = run("place", str(tmp_path / "other.yaml"))

        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stderr.count("other.yaml") == 1

    def test_what_cannot_be_placed_is_told_with_the_filters_that_refuse(
        self, run: Run, write: Write
    ) -> None:
        result = run("place", write({"count": 2, "sliver": VM | {"components": [GPU]}}))

        assert result.exit_code == 1
        refused = "3 hosts refused: no free GPU as asked for (filter: devices)"
        assert f"web-2: no host can take it: {refused}\n" in result.stderr
        assert "web-1 " not in result.stdout

    @pytest.mark.parametrize(
        ("others", "said"),
        [([], "0 of 5 are placed"), ([{"sliver": VM | {"id": "db"}}], "0 of 6 are placed")],
    )
    def test_all_that_are_asked_for_are_counted_where_some_do_not_fit(
        self, run: Run, write: Write, others: list[dict[str, Any]], said: str
    ) -> None:
        result = run("place", write({"count": 5, "apart": True, "sliver": VM}, *others))

        assert result.exit_code == 1
        assert said in result.stdout

    def test_as_many_as_fit_are_placed_where_that_will_do(self, run: Run, write: Write) -> None:
        request = write({"count": 2, "sliver": VM | {"components": [GPU]}})

        result = run("place", request, "--partial")

        assert result.exit_code == 3
        assert rows(result)["web-1"][1] == "w2"
        assert "web-2: no host can take it" in result.stderr
        assert "1 of 2 are placed" in result.stdout

    def test_explains_each_kind_by_filters_and_weighted_costs(self, run: Run, write: Write) -> None:
        kinds = ({"sliver": VM}, {"sliver": VM | {"id": "gpus", "components": [GPU]}})

        result = run("place", write(*kinds), "--explain")

        of_gpus = result.stdout.partition("gpus:")[2]
        assert "web:\n" in result.stdout
        assert " x" in of_gpus.splitlines()[1]
        assert {"w1", "devices"} <= set(of_gpus.split())

    def test_prints_one_json_document(self, run: Run, write: Write) -> None:
        document = result_of(run("place", write(), "--explain", "--json").stdout)

        assert [a["request"] for a in document["plan"]["assignments"]] == [
            "web-1",
            "web-2",
            "web-3",
        ]
        assert {v["host"] for v in document["explained"]["web"]["hosts"]} == {"w1", "w2", "w3"}

    def test_hosts_that_do_not_answer_are_warned_of(
        self, run: Run, write: Write, site: Site
    ) -> None:
        things = substrate(site, "w3")
        things.fault("compute.inventory", at=0, kind="fail")

        result = run("place", write({"count": 2, "sliver": VM}))
        things.mend()

        assert result.exit_code == 0
        assert "warning: host w3 is left out: compute.inventory failed" in result.stderr

    def test_a_request_that_is_wrong_is_refused_by_line_and_field(
        self, run: Run, write: Write
    ) -> None:
        result = run("place", write({"count": 0, "sliver": VM}))
        assert result.exit_code == 2
        assert "request.yaml:1: slivers[0].count: must be from 1 to 1000, is 0" in result.stderr

    def test_the_schema_of_a_request_can_be_printed(self, run: Run) -> None:
        assert json.loads(run("schema", "request").stdout)["title"] == "BatchRequest"


class TestBoot:
    def test_makes_them_where_the_plan_says(self, run: Run, write: Write, site: Site) -> None:
        result = run("place", write(), "--boot")

        assert result.exit_code == 0
        assert sorted(servers(site).values()) == [["web-1"], ["web-2"], ["web-3"]]
        for host, there in servers(site).items():
            assert f"{there[0]}: created on {host} in " in result.stdout

    def test_twice_is_the_same_as_once(self, run: Run, write: Write, site: Site) -> None:
        run("place", write(), "--boot")
        before = servers(site)

        result = run("place", write(), "--boot")

        assert (result.exit_code, servers(site)) == (0, before)
        assert "3 of 3 are placed, at a total cost of 0." in result.stdout

    def test_makes_nothing_if_not_all_fit(self, run: Run, write: Write, site: Site) -> None:
        request = write({"count": 2, "sliver": VM | {"components": [GPU]}})
        assert run("place", request, "--boot").exit_code == 1
        assert not any(servers(site).values())

    def test_makes_as_many_as_fit_where_that_will_do(
        self, run: Run, write: Write, site: Site
    ) -> None:
        request = write({"count": 2, "sliver": VM | {"components": [GPU]}})
        assert run("place", request, "--boot", "--partial").exit_code == 3
        assert servers(site)["w2"] == ["web-1"]

    def test_prints_plan_and_outcomes_as_one_json_document(self, run: Run, write: Write) -> None:
        document = json.loads(run("place", write(), "--boot", "--json").stdout)

        assigned = document["result"]["plan"]["assignments"]
        planned = {a["request"]: a["chosen"]["host"] for a in assigned}
        made = {o["sliver"]["id"]: o["data"]["host"] for o in document["outcomes"]}
        assert made == planned

    def test_a_host_that_refused_is_named(self, run: Run, write: Write, site: Site) -> None:
        things = substrate(site, "w1")
        things.fault("compute.create", at=0, kind="fail")

        result = run("place", write({"sliver": VM}), "--boot")
        things.mend()

        assert result.exit_code == 0
        assert "web: warning: host w1 refused: compute.create failed" in result.stderr


class TestStoredPlans:
    def test_one_is_carried_out_later(
        self, run: Run, write: Write, site: Site, tmp_path: Path
    ) -> None:
        stored = str(tmp_path / "plan.json")
        saved = rows(run("place", write(), "--save", stored))
        assert not any(servers(site).values())

        result = run("place", write(), "--plan", stored)

        assert result.exit_code == 0
        assert servers(site) == {saved[f"web-{n}"][1]: [f"web-{n}"] for n in (1, 2, 3)}

    def test_one_is_readable_by_its_owner_alone(
        self, run: Run, write: Write, tmp_path: Path
    ) -> None:
        run("place", write(), "--save", str(tmp_path / "plan.json"))
        assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600

    def test_one_is_refused_when_the_world_has_moved_on(
        self, run: Run, write: Write, site: Site, tmp_path: Path
    ) -> None:
        stored = str(tmp_path / "plan.json")
        run("place", write({"sliver": VM | {"components": [GPU]}}), "--save", stored)
        other = write({"sliver": VM | {"id": "quicker", "components": [GPU]}})
        assert run("place", other, "--boot").exit_code == 0

        result = run("place", write({"sliver": VM | {"components": [GPU]}}), "--plan", stored)

        assert result.exit_code == 1
        assert "w2" in result.stderr
        assert servers(site)["w2"] == ["quicker"]

    @pytest.mark.parametrize("text", ["{}}", '{"assignments": [{"request": "web"}]}', "\0"])
    def test_one_that_is_none_is_refused(
        self, run: Run, write: Write, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "plan.json").write_text(text)
        result = run("place", write(), "--plan", str(tmp_path / "plan.json"))
        assert result.exit_code == 2
        assert "plan.json:1: " in result.stderr

    def test_one_that_cannot_be_written_is_said(
        self, run: Run, write: Write, tmp_path: Path
    ) -> None:
        result = run("place", write(), "--save", str(tmp_path / "no" / "plan.json"))
        assert result.exit_code == 2
        assert "cannot write" in result.stderr


class TestOpenSlivers:
    @pytest.fixture
    def vm(self, tmp_path: Path) -> str:
        (tmp_path / "vm.yaml").write_text(yaml.safe_dump(VM))
        return str(tmp_path / "vm.yaml")

    def test_a_plan_says_where_it_would_go(self, run: Run, vm: str) -> None:
        result = run("plan", vm)
        assert result.stdout.startswith("web: goes to w1, cost ")
        assert "; next: " in result.stdout.splitlines()[0]

    def test_creating_it_says_where_it_went(self, run: Run, vm: str) -> None:
        result = run("create", vm)
        assert "web on w1  done " in result.stdout
        assert "web: created on w1 in " in result.stdout
        assert run("probe", vm).exit_code == 0
        assert "web: nothing to do." in run("plan", vm).stdout

    def test_no_room_is_a_failure_in_one_sentence(self, run: Run, tmp_path: Path) -> None:
        huge = VM | {"capacities": {"core": 900, "ram": 1, "disk": 1}}
        (tmp_path / "huge.yaml").write_text(yaml.safe_dump(huge))
        result = run("create", str(tmp_path / "huge.yaml"))
        assert result.exit_code == 1
        assert (
            "NoHost: no host can take sliver web: 3 hosts refused: too few free cores"
            in result.stderr
        )
