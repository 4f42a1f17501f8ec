"""What importing the package costs, in a process of its own."""

import subprocess
import sys

from tests.bench.measure import line, median_seconds


def main() -> None:
    """Print the figures."""
    cost = _median("import fabric_direct") - _median("")
    line("import fabric_direct", cost, "s", "<= 0.3", cost <= 0.3)
    cost = _median("from fabric_direct import HandlerProcessor") - _median("")
    line("import of all that a processor needs", cost, "s", "-", True)


def _median(code: str) -> float:
    return median_seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True), 7)
