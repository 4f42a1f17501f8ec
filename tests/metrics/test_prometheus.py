"""Prometheus, with the configuration and rules of examples/monitoring, of a site where much goes wrong.

Its answers to the queries of the dashboard and of the alerts are those that the site's story asks for.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/monitoring"
UNPACKED = ROOT / "build/prometheus/usr/bin"
ROUNDS = 3
SOON = 60.0
COLLECTED = "fabric_direct_operation_waiting"
RECORDED_LAST = "fabric_direct:repairs:count1h"
DASHBOARD = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
GROUPS = yaml.safe_load((EXAMPLES / "fabric-direct.rules.yml").read_text())["groups"]
ALERTS = {r["alert"]: r["expr"] for g in GROUPS for r in g["rules"] if "alert" in r}
VARIABLES = {"$instance": ".*", "$type": ".*", "$__rate_interval": "5m"}

Vector = dict[tuple[str, ...], float]


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{UNPACKED}:{os.environ['PATH']}")
    if not found:
        pytest.skip(f"{name} is not installed: `make test-metrics` unpacks Debian's")
    return found


def in_time(so: Callable[[], Any]) -> Any:
    """Return the first answer that is one; the last one if none came in time."""
    until, pause = time.monotonic() + SOON, threading.Event()
    while not (answer := so()) and time.monotonic() < until:
        pause.wait(0.2)
    return answer


class Prometheus:
    """The HTTP API of a Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            return requests.get(f"{self._url}/-/ready", timeout=60).ok
        except requests.ConnectionError:
            return False

    def get(self, path: str, **parameters: Any) -> Any:
        answer = requests.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=60).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def vector(self, query: str, *labels: str, **parameters: Any) -> Vector:
        """Return the values by those labels that are named, which tell them apart."""
        result = self.get("query", query=query, **parameters)["result"]
        found = {tuple(each["metric"].get(n, "") for n in labels): number(each) for each in result}
        assert len(found) == len(result)
        return found

    def numbers(self, query: str) -> list[float]:
        """Return the values."""
        return [number(each) for each in self.get("query", query=query)["result"]]

    def newest(self, metric: str) -> float:
        """Return the time of the newest sample of that metric; 0 if it has none."""
        return max(self.numbers(f"timestamp({metric})"), default=0)


def number(sample: dict[str, Any]) -> float:
    return float(sample["value"][1])


class Playing:
    """The process of the site."""

    def __init__(self, folder: Path) -> None:
        argv = [sys.executable, "-u", "-m", "tests.metrics.site", str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(argv, cwd=ROOT, text=True, stderr=log, **pipes)  # type: ignore[call-overload]
        self._log = folder / "log"

    def address(self) -> str:
        """Return where its metrics are."""
        found = in_time(lambda: re.search(r"http://([\d.:]+)/metrics", self._log.read_text()))
        assert found, self._log.read_text()
        return str(found[1])

    def play(self) -> None:
        """Let a round pass."""
        print(file=self.process.stdin, flush=True)
        assert self.process.stdout.readline().startswith("passed"), self._log.read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    tool("prometheus")
    playing = Playing(tmp_path_factory.mktemp("site"))
    yield playing
    playing.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def collecting(site: Playing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that collects from the site; its second target ended long ago."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    shutil.copy(EXAMPLES / "fabric-direct.rules.yml", folder)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(hurried(site.address())))
    argv = [tool("prometheus"), f"--web.listen-address=127.0.0.1:{port}"]
    argv += [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(argv, cwd=folder, stderr=log)
    prometheus = Prometheus(port)
    try:
        assert in_time(prometheus.is_ready), (folder / "log").read_text()
        yield prometheus
    finally:
        process.terminate()
        process.wait(SOON)


def hurried(address: str) -> dict[str, Any]:
    """Return the example's configuration for this site, with everything each second."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    (static,) = job["static_configs"]
    static["targets"] = [address, f"127.0.0.1:{free_port()}"]
    return config


@pytest.fixture(scope="module")
def prometheus(collecting: Prometheus, site: Playing) -> Prometheus:
    """The same when it has seen each round, and the rules were evaluated after the last one."""
    for _ in range(ROUNDS):
        site.play()
        passed = time.time()
        assert in_time(lambda passed=passed: collecting.newest(COLLECTED) > passed)
    # A sample has the time at which its collection began: rules of a moment after that may miss it.
    seen = time.time()
    assert in_time(lambda: collecting.newest(RECORDED_LAST) > seen)
    lost = 'fabric_direct_device_count{fabric_direct_state="lost"} > 0'
    assert in_time(lambda: collecting.numbers(lost))
    return collecting


class TestDashboard:
    @pytest.mark.parametrize("query", QUERIES)
    def test_each_query_has_an_answer(self, query: str, prometheus: Prometheus) -> None:
        for name, stands_for in VARIABLES.items():
            query = query.replace(name, stands_for)

        answer = in_time(lambda: prometheus.numbers(query))

        assert any(map(math.isfinite, answer))

    @pytest.mark.parametrize(
        ("title", "shown"),
        [
            ("Processes", 1),
            ("Under way", 1),
            ("Waiting", 1),
            ("Left in 1 h", ROUNDS + 2),
            ("Late calls", 1),
            ("Devices to look at", 2),
        ],
    )
    def test_what_it_shows_of_now_is_so(
        self, title: str, shown: int, prometheus: Prometheus
    ) -> None:
        panel = next(p for p in DASHBOARD["panels"] if p["title"] == title and p["type"] == "stat")
        query = panel["targets"][0]["expr"].replace("$instance", ".*")

        assert prometheus.vector(query) == {(): shown}

    @pytest.mark.parametrize(
        ("query", "name"),
        [(each["definition"], each["name"]) for each in DASHBOARD["templating"]["list"][1:]],
    )
    def test_its_variables_have_values(self, query: str, name: str, prometheus: Prometheus) -> None:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found

        values = prometheus.get(f"label/{found[2]}/values", **{"match[]": found[1]})

        assert "VM" in values if name == "type" else len(values) == 2


OPERATION = ("fabric_direct_operation", "fabric_direct_type")
DEVICE = ("fabric_direct_host", "fabric_direct_type", "fabric_direct_state")
EXPECTED: dict[str, tuple[tuple[str, ...], Vector]] = {
    "FabricDirectDown": ((), {(): 0}),
    "FabricDirectOperationsFail": (OPERATION, {("create", "VM"): 2 * ROUNDS + 1}),
    "FabricDirectLeftovers": (OPERATION, {("create", "VM"): ROUNDS + 1, ("delete", "VM"): 1}),
    "FabricDirectOperationsWait": ((), {(): 1}),
    "FabricDirectLateCalls": ((), {(): 1}),
    "FabricDirectDevicesUnclean": (DEVICE, {("w1", "NVME", "unclean"): 1}),
    "FabricDirectDevicesLost": (DEVICE, {("w1", "GPU", "lost"): 1}),
    "FabricDirectHostSilent": (("fabric_direct_host",), {("w3",): 0}),
    "FabricDirectNodesQuarantined": ((), {(): 1}),
    "FabricDirectNodesSilent": ((), {}),
    "FabricDirectWatcherDeaf": (("fabric_direct_watch_source",), {("domains of w3",): 0}),
    "FabricDirectRepairsFail": (("fabric_direct_watch_result",), {("reported",): 1}),
}
"""What each alert is for, of all that went wrong at the site."""


class TestAlerts:
    @pytest.mark.parametrize("alert", EXPECTED)
    def test_each_is_raised_for_what_went_wrong_and_nothing_else(
        self, alert: str, prometheus: Prometheus
    ) -> None:
        labels, expected = EXPECTED[alert]

        assert prometheus.vector(ALERTS[alert], *labels) == expected

    def test_an_operation_that_is_unfinished_for_long(self, prometheus: Prometheus) -> None:
        (seconds,) = prometheus.vector(ALERTS["FabricDirectUnfinished"]).values()
        assert 7200 <= seconds < 7200 + 600

    def test_nothing_was_collected_before_it_began(self, prometheus: Prometheus) -> None:
        query, long_ago = ALERTS["FabricDirectNoData"], time.time() - 3600
        assert prometheus.vector(query, time=long_ago) == {(): 1}
        assert prometheus.vector(query) == {}

    def test_these_are_all(self) -> None:
        assert {*EXPECTED, "FabricDirectUnfinished", "FabricDirectNoData"} == ALERTS.keys()

    def test_prometheus_takes_the_rules_as_they_are(self, prometheus: Prometheus) -> None:
        rules = [r for g in prometheus.get("rules")["groups"] for r in g["rules"]]
        assert {r["health"] for r in rules} == {"ok"}
        at_once = {r["name"] for r in rules if r.get("state") == "firing"}
        assert at_once == {"FabricDirectLeftovers", "FabricDirectRepairsFail"}


class TestPromtool:
    @pytest.mark.parametrize(
        "words",
        [
            ("check", "config", "prometheus.yml"),
            ("check", "rules", "fabric-direct.rules.yml"),
            ("test", "rules", "fabric-direct.rules.test.yml"),
        ],
        ids=" ".join,
    )
    def test_the_examples_are_as_it_wants_them(self, words: tuple[str, ...]) -> None:
        done = subprocess.run(
            [tool("promtool"), *words], cwd=EXAMPLES, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout
