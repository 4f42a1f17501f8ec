"""Run every suite whole, in parts, each of which writes its line into ``docs/verified.md``.

``make test-whole`` runs all of them, ``make test-whole PART=worker`` one.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/verified.md"


@dataclass(frozen=True)
class Part:
    """A target of the Makefile with its variables, and what its tests cover."""

    make: tuple[str, ...]
    covers: tuple[str, ...]


LIBRARY = "fabric_direct"
LIBVIRT, GUESTS = f"{LIBRARY}/drivers/libvirt", f"{LIBRARY}/drivers/guests"
NETWORKS = ("tests/worker/test_networks.py", "tests/worker/test_linuxbridge.py")
_LEFT_OUT = " ".join(f"--ignore {file}" for file in NETWORKS)

PARTS = {
    "trust": Part(("test-trust",), (LIBRARY, "tests/trust")),
    "python": Part(("test-python",), (LIBRARY, "tests/unit", "labs/debian")),
    "actor": Part(("test-fabric",), (LIBRARY, "tests/fabric", "labs/fabric")),
    "debian": Part(
        ("test-debian",),
        (LIBVIRT, GUESTS, "tests/functional", "labs/local", "labs/openstack"),
    ),
    "database": Part(("test-database",), (f"{LIBRARY}/state", "tests/database", "labs/postgresql")),
    "network": Part(("test-network", "WHOLE=1"), (LIBRARY, "tests/network", "labs/network")),
    "ironic": Part(
        ("test-ironic", "FULL=1"), (f"{LIBRARY}/drivers/ironic", "tests/ironic", "labs/ironic")
    ),
    "openstack": Part(
        ("openstack-down", "test-openstack"), (LIBRARY, "tests/openstack", "labs/openstack")
    ),
    "openstack-zed": Part(
        ("openstack-down", "test-openstack", "RELEASE=zed"),
        (LIBRARY, "tests/openstack", "labs/openstack"),
    ),
    "openstack-ovs": Part(
        ("openstack-down", "test-openstack", "OPENSTACK_NETWORK=ovs"),
        (LIBRARY, "tests/openstack", "labs/openstack"),
    ),
    "worker": Part(
        ("test-worker", f"PYTEST_ARGS={_LEFT_OUT}"), (LIBRARY, "tests/worker", "labs/worker")
    ),
    "worker-networks": Part(
        ("test-worker", f"FILES={' '.join(NETWORKS)}"), (LIBRARY, "tests/worker", "labs/worker")
    ),
    "site": Part(("openstack-down", "test-site"), (LIBRARY, "tests/site", "labs/onesite")),
    "page": Part(("test-page",), (f"{LIBRARY}/page", "tests/page")),
    "package": Part(("test-deb",), ("packaging", "pyproject.toml", "labs/debian")),
}
"""In the order in which they run: first what needs no lab. One OpenStack runs at a time."""

COLUMNS = ("part", "commit", "date", "cores", "passed", "skipped", "seconds")


@dataclass(frozen=True)
class Line:
    """What a part showed when it passed last."""

    part: str
    commit: str
    date: str
    cores: int
    passed: int
    skipped: int
    seconds: int


class Refusal(click.ClickException):
    """Why nothing is run, in a sentence."""

    exit_code = 2


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, metavar="[PART]...")
@click.option("--since", is_flag=True, help="Print how many commits touch a part since its line.")
def main(parts: tuple[str, ...], *, since: bool) -> None:
    """Run the parts that are asked for; exit with 1 if one failed, with 2 if none can be run."""
    if unknown := [name for name in parts if name not in PARTS]:
        raise Refusal(f"there is no part {', '.join(unknown)}: {', '.join(PARTS)}")
    if since:
        click.echo("\n".join(commits_since(lines())))
        return
    commit = _commit()
    failed = [name for name in parts or PARTS if not run(name, commit)]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


def _commit() -> str:
    """Return the commit that is tried: a line is of one, so nothing else may be in the checkout."""
    if changed := _git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}"):
        files = len(changed.splitlines())
        raise Refusal(f"commit first, for a line is of a commit; changed files: {files}")
    return _git("rev-parse", "--short=10", "HEAD")


def run(name: str, commit: str) -> bool:
    """Run a part, and write its line; tell whether it passed."""
    click.echo(f"=== {name}")
    began, counts = time.monotonic(), dict.fromkeys(("passed", "skipped"), 0)
    environment = os.environ | {"CI": "true"}  # what a test needs and is not there fails it
    command = ["make", "--no-print-directory", *PARTS[name].make]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as made:
        assert made.stdout
        for line in made.stdout:
            click.echo(line, nl=False)
            for kind, number in _counted(line):
                counts[kind] += number
    seconds = round(time.monotonic() - began)
    if made.returncode:
        click.echo(f"=== {name} failed after {seconds} s: its line stays as it was")
        return False
    before = lines().get(name)
    now = Line(
        name,
        commit,
        f"{datetime.now(UTC):%Y-%m-%d}",
        os.cpu_count() or 1,
        **counts,
        seconds=seconds,
    )
    if before and now.skipped > before.skipped:
        click.echo(
            f"=== {name} failed: {now.skipped} tests were skipped, {before.skipped} at {before.commit}."
            f" If that is right, remove its line from {PAGE.relative_to(ROOT)}"
        )
        return False
    write(lines() | {name: now})
    click.echo(f"=== {name} took {seconds} s: {now.passed} passed, {now.skipped} skipped")
    return True


def _counted(line: str) -> Iterator[tuple[str, int]]:
    """Read the last line of a run of pytest."""
    if re.search(r" in [\d.]+s\b", line):
        for number, kind in re.findall(r"\b(\d+) (passed|skipped)\b", line):
            yield kind, int(number)


def lines() -> dict[str, Line]:
    """Read the page's table."""
    rows = (
        row.strip("|").split("|") for row in PAGE.read_text().splitlines() if row.startswith("|")
    )
    found = {}
    for part, *cells in ([cell.strip() for cell in row] for row in rows):
        if part in PARTS:
            commit, date, *numbers = cells
            found[part] = Line(part, commit, date, *map(int, numbers))
    return found


def write(known: dict[str, Line]) -> None:
    """Write the page's table, which is its end."""
    text, _, _ = PAGE.read_text().partition("| part |")
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    rows += [
        tuple(str(getattr(known[name], column)) for column in COLUMNS)
        for name in PARTS
        if name in known
    ]
    PAGE.write_text(text + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")


def commits_since(known: dict[str, Line]) -> Iterator[str]:
    """Say of each part how many commits since its line touch what it covers."""
    for name, part in PARTS.items():
        line = known.get(name)
        if not line:
            yield f"{name:16} never run whole"
            continue
        try:
            count = _git("rev-list", "--count", f"{line.commit}..HEAD", "--", *part.covers)
        except subprocess.CalledProcessError:
            count = "unknown:"  # a checkout without its history
        yield f"{name:16} {count} commits since {line.commit} of {line.date}"


def _git(*arguments: str) -> str:
    return subprocess.check_output(
        ["git", *arguments], cwd=ROOT, text=True, stderr=subprocess.DEVNULL
    ).strip()


if __name__ == "__main__":
    main()
