"""What it takes to start: in processes of their own, beside a Python that does nothing."""

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.bench.measure import line, median_seconds
from tests.conftest import FAKE_DRIVERS

_COMMAND = "from fabric_direct.cli import main; main()"
_PROCESSOR = "from fabric_direct import HandlerProcessor, Site; HandlerProcessor(Site(site='x'))"
_ROUNDS = 7


def main() -> None:
    """Print the figures."""
    line("python -c pass", _median("pass"), "s", "-", True)
    _start("import fabric_direct", "import fabric_direct", 0.3)
    _start("HandlerProcessor imported and made", _PROCESSOR, 0.4)
    _start(
        "fabric_direct.actor and its VMHandler imported", "import fabric_direct.actor.handlers", 0.5
    )
    _start("fabric-direct --help", _COMMAND, 0.2, "--help")
    with tempfile.TemporaryDirectory() as directory:
        site, sliver = _files(Path(directory))
        _start("fabric-direct list, on the fakes", _COMMAND, 0.6, "--site", site, "list")
        _start("fabric-direct plan, on the fakes", _COMMAND, 0.6, "--site", site, "plan", sliver)


def _start(what: str, code: str, wanted: float, *words: str) -> None:
    took = _median(code, *words)
    line(what, took, "s", f"<= {wanted}", took <= wanted)


def _median(code: str, *words: str) -> float:
    argv = [sys.executable, "-c", code, *words]
    return median_seconds(lambda: subprocess.run(argv, check=True, capture_output=True), _ROUNDS)


def _files(directory: Path) -> tuple[str, str]:
    """Write a site on the fake drivers and a sliver, and return their paths."""
    site = {"site": "X", "state_dir": str(directory), "drivers": FAKE_DRIVERS, "guest": "fake"}
    site["images"] = {"fabric-guest": {}}
    sliver = {"id": "vm1", "name": "one", "image": "fabric-guest"}
    sliver["capacities"] = {"core": 1, "ram": 1, "disk": 10}
    for name, content in (("site.yaml", site), ("vm.yaml", sliver)):
        (directory / name).write_text(yaml.safe_dump(content))
    return str(directory / "site.yaml"), str(directory / "vm.yaml")
