"""The page of benchmarks is written from the figures of the last runs."""

from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench.report import page, plot

SVG = "{http://www.w3.org/2000/svg}"


def figure(what: str, value: float, unit: str, wanted: str, ok: bool = True) -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit, "wanted": wanted, "ok": ok}


@pytest.fixture
def runs() -> dict[str, Any]:
    good = figure("create, ours over bare calls", 1.04, "times", "<= 1.05")
    missed = figure("delete, ours <over> bare calls", 1.2, "times", "<= 1.05", ok=False)
    playbook = figure("the playbook, to our attach", 16.0, "times", "-")
    figures = [good, missed, playbook, figure("create", 9.1, "s", "-")]
    return {"openstack": {"of": "2 cores of a machine", "figures": figures}}


def test_the_page_has_each_figure_and_says_what_is_missed(runs: dict[str, Any]) -> None:
    text = page(runs)

    assert "`make bench-openstack`, 2 cores of a machine." in text
    assert "| create, ours over bare calls | 1.040 | times | ≤ 1.05 | ok |" in text
    assert "| delete, ours <over> bare calls | 1.200 | times | ≤ 1.05 | **missed** |" in text
    assert "| create | 9.100 | s |  |  |" in text
    assert "Devices on a worker" not in text


def test_the_plot_has_the_ratios_with_what_is_wanted(runs: dict[str, Any]) -> None:
    root = ElementTree.fromstring(plot(runs))
    bars = [bar.get("class") for bar in root.iter(f"{SVG}rect")]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    marks = [each for each in root.iter(f"{SVG}line") if each.get("class") == "wanted"]

    assert bars == ["ok", "missed"]
    assert "delete, ours <over> bare calls" in texts
    assert "the playbook, to our attach" not in texts
    assert len(marks) == 2


def test_without_any_run_both_are_there() -> None:
    assert page({}).startswith("# Benchmarks")
    assert ElementTree.fromstring(plot({})).tag == f"{SVG}svg"
