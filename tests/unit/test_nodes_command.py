"""``fabric-direct nodes``, and what doctor says of bare metal."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.cli.inspection import NODE_CONDITIONS
from fabric_direct.doctor.controllers import check_bare_metal
from fabric_direct.doctor.diagnosis import Verdict
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site

NODES = {
    "rack1-2": {"cores": 32, "ram": 128, "traits": ["HW_CPU_X86_AVX2"]},
    "rack1-1": {"resource_class": "large", "macs": ["52:54:00:00:00:01"]},
}


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    values: dict[str, Any] = {
        "site": "TEST",
        "state_dir": str(tmp_path / "state"),
        "drivers": {"BareMetal": "fake"},
        "fake": {"nodes": NODES},
    }
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture
def site(site_file: Path) -> Site:
    return Site.model_validate(yaml.safe_load(site_file.read_text()))


@pytest.fixture
def run(site_file: Path, fakes: Substrate) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(main, ["--site", str(site_file), "nodes", *words])


def test_it_lists_the_nodes_by_name(run: Callable[..., Result]) -> None:
    result = run()

    heading, first, second = result.output.splitlines()
    assert result.exit_code == 0
    assert heading.split()[:3] == ["NODE", "CONDITION", "STATE"]
    assert first.split()[:4] == ["rack1-1", "free", "available", "off"]
    assert "52:54:00:00:00:01" in first
    assert "HW_CPU_X86_AVX2" in second


def test_for_programs_it_has_all_of_them(run: Callable[..., Result]) -> None:
    first, second = json.loads(run("--json").output)["result"]

    assert (first["name"], first["resource_class"]) == ("rack1-1", "large")
    assert first["ports"] == [{"mac": "52:54:00:00:00:01", "physical_network": None}]
    assert (second["cores"], second["ram"], second["traits"]) == (32, 131072, ["HW_CPU_X86_AVX2"])


def test_it_can_show_one_condition_alone(run: Callable[..., Result], fakes: Substrate) -> None:
    there = fakes.bare_metal
    there["rack1-1"] = replace(there["rack1-1"], condition=NodeCondition.ACTIVE, tenant="s1")

    assert run("--condition", "active", "-c", "node", "-c", "tenant").output.split() == [
        *("NODE", "TENANT", "rack1-1", "s1")
    ]
    assert run("--condition", "failed").output == "No such nodes.\n"


def test_it_offers_each_condition_that_there_is() -> None:
    assert tuple(condition.value for condition in NodeCondition) == NODE_CONDITIONS


def test_a_site_without_bare_metal_is_told_what_to_name(fake_site: Site, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump({"site": "T", "drivers": {"VM": "fake"}}))

    result = CliRunner().invoke(main, ["--site", str(path), "nodes"])

    assert (result.exit_code, result.output) == (
        0,
        "site.yaml names no driver for them (drivers: BareMetal).\n",
    )
    with HandlerProcessor(fake_site) as processor:
        assert processor.nodes() == ()


@pytest.mark.parametrize("words", [["nodes"], ["doctor"]])
def test_a_driver_of_something_else_is_told(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "other.yaml"
    drivers = {"BareMetal": "linuxbridge"}
    path.write_text(yaml.safe_dump({"site": "T", "state_dir": str(tmp_path), "drivers": drivers}))

    result = CliRunner().invoke(main, ["--site", str(path), *words])

    assert result.exit_code in {1, 2}
    assert "'linuxbridge'" in result.output
    assert "lacks examine, nodes, power, rebuild, set_power" in result.output


def test_a_driver_that_fails_is_told(run: Callable[..., Result], fakes: Substrate) -> None:
    fakes.fault("service.nodes", kind="fail")

    result = run()

    assert result.exit_code == 1
    assert "service.nodes failed" in result.output


class TestDoctor:
    def test_says_what_there_is(self, site: Site, fakes: Substrate) -> None:
        (found,) = check_bare_metal(site)

        assert (found.verdict, found.found) == (Verdict.OK, "2 nodes in memory")

    def test_names_the_nodes_that_may_be_unclean(self, site: Site, fakes: Substrate) -> None:
        there = fakes.bare_metal
        bad = {"condition": NodeCondition.QUARANTINED, "state": "clean failed"}
        there["rack1-1"] = replace(there["rack1-1"], **bad)  # type: ignore[arg-type]
        there["rack1-2"] = replace(there["rack1-2"], **bad, why="no power")  # type: ignore[arg-type]

        _, first, second = check_bare_metal(site)

        assert (first.subject, first.verdict) == ("node rack1-1", Verdict.WARN)
        assert first.found == "it may be unclean: it is clean failed"
        assert second.found == "it may be unclean: no power"

    def test_tells_an_api_that_does_not_answer(self, site: Site, fakes: Substrate) -> None:
        fakes.fault("service.examine", kind="fail")

        (found,) = check_bare_metal(site)

        assert (found.verdict, found.subject) == (Verdict.FAIL, "bare metal")

    def test_asks_nothing_where_there_is_none(self, fake_site: Site) -> None:
        assert [*check_bare_metal(fake_site)] == []


def test_the_nodes_are_those_of_the_site(site: Site) -> None:
    assert {*substrate(site, "localhost").bare_metal} == {*NODES}
