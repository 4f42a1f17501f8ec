"""Write docs/benchmarks.md: the figures of the last run of each part, and a plot of the ratios.

What each run brought is in `results/`; a part that was not run again keeps its figures.
"""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from tests.bench.measure import RESULTS

DOCS = Path(__file__).parents[2] / "docs"
ABOUT = {
    "openstack": {
        "title": "OpenStack",
        "command": "make bench-openstack",
        "about": """\
A server with a port and a floating IP, until a command answers by SSH, and until it is seen to be gone.
The bare calls are what one writes with openstacksdk and no more.
The cloud is the lab's (2026.2, OVN), all of it on the same machine: each request, and each guest that
boots, takes time of its two processors.""",
    },
    "ironic": {
        "title": "Bare metal",
        "command": "make bench-ironic",
        "about": """\
A machine until a command answers by SSH, and until it is available again; nodes of fake hardware at
once. The bare calls are what one writes with openstacksdk and no more. Ironic is the lab's, and the
machine is emulated beside it.""",
    },
    "scale": {
        "title": "Many at once",
        "command": "make bench-scale",
        "about": """\
Servers with a port and a floating IP on a stand-in for OpenStack. Its latencies are chosen, not measured
on a cloud: 0.25 to 0.7 s for a change, 50 ms for a read, 2 s for a server.
The ideal is the longest chain of requests of one sliver, in 100 threads. A process has one processor for
all of its threads, and half of what a sliver takes of it is the making of openstacksdk's resources: who
makes more than a few slivers a second has [conductors](conductors.md) make them.""",
    },
    "hosts": {
        "title": "Many hosts",
        "command": "make bench-hosts",
        "about": """\
VMs with a NIC each, on fakes whose calls take 50 ms. A list and a drift ask each host the same few
questions, 32 hosts at a time, as the bare listings do; what names one sliver asks one host.""",
    },
    "worker": {
        "title": "Devices on a worker",
        "command": "make bench-worker",
        "about": """\
Functions attached to a domain of the lab's worker. The whole worker is emulated, without KVM: a system
call takes seven times as long as on the machine itself, which weighs most on what we read before
and after. The playbook is that of fabric_am 1.9.1, run by its own Ansible. libvirt plugs the devices of
one domain one after the other, whoever asks.""",
    },
    "machine": {
        "title": "One machine",
        "command": "make bench",
        "about": "Start, engine, libvirt, upkeep, placement, zones.",
    },
    "conductors": {
        "title": "Conductors",
        "command": "make bench-conductors",
        "about": """\
Operations on the fakes that conductors carry out, on a PostgreSQL of the same machine: conductors, who
asks and the database share its processors.""",
    },
    "network": {
        "title": "Network services",
        "command": "make bench-network",
        "about": """\
On one Open vSwitch with its datapath in user space, to `ovs-vsctl` and `ovs-ofctl`, which wait for the
daemon; a service is also claimed, noted for a crash and read back twice. 100 services are on stand-ins
whose calls take 50 ms.""",
    },
}
LARGEST = 4.0
"""Ratios above it, those to a playbook, are in the tables alone."""
_BAR, _ROW, _LEFT, _WIDE = 14, 26, 420, 800

Run = dict[str, Any]


def main() -> None:
    """Write the page and its plot."""
    found = {part: RESULTS / f"{part}.json" for part in ABOUT}
    runs = {part: json.loads(path.read_text()) for part, path in found.items() if path.exists()}
    (DOCS / "benchmarks.md").write_text(page(runs))
    (DOCS / "benchmarks.svg").write_text(plot(runs))


def page(runs: dict[str, Run]) -> str:
    """Return the page."""
    parts = [about | runs[name] for name, about in ABOUT.items() if name in runs]
    return _environment().get_template("benchmarks.md.j2").render(parts=parts)


def plot(runs: dict[str, Run]) -> str:
    """Return a picture of the ratios, with a mark for what is wanted of each."""
    figures = [figure for name in ABOUT if name in runs for figure in runs[name]["figures"]]
    ratios = [f for f in figures if f["unit"] == "times" and f["value"] <= LARGEST]
    rows = [figure | {"most": _most(figure["wanted"])} for figure in ratios]
    largest = max((max(1.0, row["value"], row["most"] or 0) for row in rows), default=1.0)
    sizes = {"bar": _BAR, "row_height": _ROW, "left": _LEFT, "wide": _WIDE}
    return (
        _environment()
        .get_template("ratios.svg.j2")
        .render(
            rows=rows,
            height=36 + _ROW * len(rows),
            scale=(_WIDE - _LEFT - 60) / largest,
            **sizes,
        )
    )


def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(
        loader=loader,
        autoescape=select_autoescape(("svg.j2",)),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= {"sign": _sign, "verdict": _verdict}
    return made


def _sign(wanted: str) -> str:
    return "" if wanted == "-" else wanted.replace("<=", "≤").replace(">=", "≥")


def _verdict(figure: dict[str, Any]) -> str:
    if figure["wanted"] == "-":
        return ""
    return "ok" if figure["ok"] else "**missed**"


def _most(wanted: str) -> float | None:
    return float(wanted.removeprefix("<= ")) if wanted.startswith("<= ") else None


if __name__ == "__main__":
    main()
