"""The files for Prometheus and Grafana name metrics that there are, and are told of in the page.

What they answer is tested with a real Prometheus: tests/metrics.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_direct.calls.metrics import METRICS, InstrumentKind, Metric

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/monitoring"
DASHBOARD = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = [
    rule
    for group in yaml.safe_load((EXAMPLES / "fabric-direct.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def title(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def in_prometheus(metric: Metric) -> set[str]:
    """Return the names that the exporter gives to a metric."""
    name = f"fabric_direct_{metric.name.replace('.', '_')}"
    name += "_seconds" if metric.unit == "s" else ""
    if metric.kind is InstrumentKind.HISTOGRAM:
        return {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    return {f"{name}_total" if metric.kind is InstrumentKind.COUNTER else name}


def labels() -> set[str]:
    named = {attribute for metric in METRICS for attribute in metric.attributes}
    own = {"error.type"}
    return {(n if n in own else f"fabric_direct.{n}").replace(".", "_") for n in named}


def queried(text: str) -> set[str]:
    return set(re.findall(r"\b(?:fabric_direct_\w+|error_type)\b(?!:)", text))


class TestDashboard:
    def test_it_asks_for_metrics_and_labels_that_there_are_and_for_all_metrics(self) -> None:
        names = {name for metric in METRICS for name in in_prometheus(metric)}
        text = json.dumps(DASHBOARD["panels"]) + json.dumps([r["expr"] for r in RULES])

        assert queried(text) <= names | labels()
        assert [m.name for m in METRICS if not in_prometheus(m) & queried(text)] == []

    def test_what_it_takes_of_rules_is_recorded(self) -> None:
        recorded = {rule["record"] for rule in RULES if "record" in rule}
        text = json.dumps(DASHBOARD["panels"]) + json.dumps([r["expr"] for r in RULES])
        assert set(re.findall(r"fabric_direct:\w+:\w+", text)) == recorded

    @pytest.mark.parametrize("panel", PANELS, ids=title)
    def test_a_panel_asks_the_chosen_prometheus_and_has_a_unit(self, panel: dict[str, Any]) -> None:
        assert panel["datasource"] == DATASOURCE
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert {panel["type"]} <= {"stat", "timeseries", "table"}
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"] == DATASOURCE
            assert target["expr"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)

    def test_panels_have_places_of_their_own(self) -> None:
        cells = [cell for panel in DASHBOARD["panels"] for cell in cells_of(panel["gridPos"])]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        assert len(set(ids)) == len(ids)

    def test_each_variable_that_is_used_is_there(self) -> None:
        text = json.dumps(DASHBOARD["panels"])
        used = set(re.findall(r"\$\{?([a-z]\w*)\}?", text))
        there = {each["name"] for each in DASHBOARD["templating"]["list"]}
        assert used == there


def cells_of(place: dict[str, int]) -> list[tuple[int, int]]:
    columns = range(place["x"], place["x"] + place["w"])
    return [(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])]


def test_each_alert_is_told_of_with_what_to_do() -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    told = re.findall(r"^\| `(FabricDirect\w+)` \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    assert told == [rule["alert"] for rule in RULES if "alert" in rule]


@pytest.mark.parametrize("rule", [r for r in RULES if "alert" in r], ids=lambda r: r["alert"])
def test_an_alert_has_a_severity_and_a_sentence(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["summary"]
