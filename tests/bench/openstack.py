"""`make bench-openstack`: our processor against the bare API calls, on a real cloud, in one run.

Both make the same thing: a server of one flavor on one worker, with one NIC and a floating IP, into
whose guest one can log in with a key. *Bare* is what one writes with openstacksdk and no more: a port, a
floating IP with ``port_id``, a server; a look each 0.3 s until it is ACTIVE; SSH until a command
answers. Then the server is deleted, seen to be gone, and the floating IP and the port are deleted.

*Ours* is ``processor.create`` until its outcome (with the guest's host key pinned, and all of it read
back), and ``processor.delete`` until its outcome (with nothing seen to be left).

They take turns, and medians are compared; then ten at once of each; then the requests of one creation.
"""

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from fabric_direct.drivers.openstack.client.stamp import description
from fabric_direct.model import NodeSliver, StepStatus
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from tests.bench.measure import keep, line, median_seconds
from tests.bench.openstack_bare import Bare
from tests.bench.openstack_lab import Lab, new_key
from tests.bench.openstack_requests import recorded, tell
from tests.bench.ssh import Banner

WANTED, AT_ONCE = 1.05, 0.95
CALLS = 12
# Seconds after which the bare calls are no measure of anything.
TOO_LONG = 600
_FIGURES = {
    "create": "create to a command by SSH",
    "delete": "delete to seen absence",
    "banner": "create to the first SSH banner",
}


@dataclass(frozen=True, slots=True)
class Life:
    """How long a server's life took, in seconds: from the first request on, and to delete it."""

    banner: float
    """Until SSH said its first word."""
    create: float
    """Until a command answered, or the outcome was there."""
    delete: float


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    options = _options(arguments)
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="fdbench-") as folder:
        lab = Lab(**vars(options), folder=Path(folder), key=new_key(Path(folder)))
        bare, banners = Bare(lab), _Banners(lab)
        processor = HandlerProcessor(lab.site(), workers=lab.many or 1, on_progress=banners)
        with processor as ours:
            if lab.rounds:
                _one_by_one(lab, bare, ours, banners)
            if lab.many:
                _at_once(lab, bare, ours)
            _requests(lab, ours)
        _command(lab)
    keep("openstack")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.openstack")
    parser.add_argument("rounds", nargs="?", type=int, default=5, help="0 leaves them out")
    parser.add_argument("--many", type=int, default=10, help="how many at once; 0 leaves it out")
    for name, value in Lab.DEFAULTS.items():
        parser.add_argument(f"--{name}", default=value)
    return parser.parse_args(arguments)


# --- one after the other


class _Banners:
    """Looks for the banner of each of our servers as soon as its floating IP is made."""

    def __init__(self, lab: Lab) -> None:
        self._site, self._connection = lab.site().site, Bare(lab).connection
        self._found: dict[str, Future[Banner]] = defaultdict(Future)

    def __call__(self, progress: Progress) -> None:
        if progress.step.startswith("floating IP ") and progress.status is StepStatus.DONE:
            threading.Thread(target=self._look, args=(progress.sliver,), daemon=True).start()

    def _look(self, sliver_id: str) -> None:
        named = description(self._site, sliver_id)
        for found in self._connection.network.ips(description=named):
            self._found[sliver_id].set_result(Banner(found.floating_ip_address))

    def at(self, sliver_id: str) -> float:
        return self._found[sliver_id].result(0).at()


def _one_by_one(lab: Lab, bare: Bare, processor: HandlerProcessor, banners: _Banners) -> None:
    ways: dict[str, Callable[[], Life]] = {
        "bare": lambda: _bare_life(bare, lab.new_id()),
        "ours": lambda: _our_life(lab.sliver(lab.new_id()), processor, banners),
    }
    lives: dict[str, list[Life]] = {name: [] for name in ways}
    print(f"  load of this machine before: {os.getloadavg()[0]:.1f}")  # noqa: T201
    for number in range(lab.rounds + 1):
        for name, live in ways.items():
            life = live()
            print(f"  {number or 'warm-up'} {name}: {_said(life)}")  # noqa: T201
            lives[name] += [life] if number else []
    for field, what in _FIGURES.items():
        bare_median, our_median = (_median(lives[name], field) for name in ways)
        _lines(what, bare_median, our_median)


def _median(lives: list[Life], field: str) -> float:
    return float(statistics.median(getattr(life, field) for life in lives))


def _said(life: Life) -> str:
    return f"banner {life.banner:.2f} s, create {life.create:.2f} s, delete {life.delete:.2f} s"


def _lines(what: str, bare: float, ours: float, wanted: float = WANTED) -> None:
    line(f"{what}, bare calls", bare, "s", "-", True)
    line(f"{what}, ours", ours, "s", "-", True)
    ratio = ours / bare
    line(f"{what}, ours over bare calls", ratio, "times", f"<= {wanted}", ratio <= wanted)


def _bare_life(bare: Bare, name: str) -> Life:
    began = time.perf_counter()
    with bare.server(name) as made:
        banner = Banner(made.address)
        bare.wait_active(made)
        bare.wait_command(made)
        created = time.perf_counter() - began
        shown = banner.at() - began
        began = time.perf_counter()
    return Life(shown, created, time.perf_counter() - began)


def _our_life(sliver: NodeSliver, processor: HandlerProcessor, banners: _Banners) -> Life:
    began = time.perf_counter()
    created = processor.create(sliver).result()
    made = time.perf_counter()
    try:
        # The banner may be seen after the command: a try takes up to two seconds.
        shown = banners.at(sliver.id) if created.ok else 0.0
    finally:
        removal = time.perf_counter()
        deleted = processor.delete(sliver.ref()).result()
        gone = time.perf_counter()
    assert created.ok, (created, deleted)
    assert deleted.ok, deleted
    return Life(shown - began, made - began, gone - removal)


# --- many at once


def _at_once(lab: Lab, bare: Bare, processor: HandlerProcessor) -> None:
    made, gone = _bare_at_once(lab)
    our_made, our_gone = _ours_at_once(lab, processor)
    _lines(f"{lab.many} at once, create to a command by SSH", made, our_made, AT_ONCE)
    _lines(f"{lab.many} at once, delete to seen absence", gone, our_gone)


def _bare_at_once(lab: Lab) -> tuple[float, float]:
    """Return the seconds until the last one answers, and until the last one is gone."""
    all_made = threading.Barrier(lab.many + 1, timeout=TOO_LONG)
    ready = [Bare(lab) for _ in range(lab.many)]

    def live(bare: Bare) -> None:
        with bare.server(lab.new_id()) as made:
            bare.wait_active(made)
            bare.wait_command(made)
            all_made.wait()

    with ThreadPoolExecutor(lab.many) as pool:
        began = time.perf_counter()
        lives = [pool.submit(live, bare) for bare in ready]
        all_made.wait()
        made = time.perf_counter()
        for life in lives:
            life.result()
    return made - began, time.perf_counter() - made


def _ours_at_once(lab: Lab, processor: HandlerProcessor) -> tuple[float, float]:
    slivers = [lab.sliver(lab.new_id()) for _ in range(lab.many)]
    began = time.perf_counter()
    created = [future.result() for future in [processor.create(s) for s in slivers]]
    made = time.perf_counter()
    deleted = [future.result() for future in [processor.delete(s.ref()) for s in slivers]]
    gone = time.perf_counter()
    bad = [outcome for outcome in (*created, *deleted) if not outcome.ok]
    assert not bad, bad
    return made - began, gone - made


# --- requests


def _requests(lab: Lab, processor: HandlerProcessor) -> None:
    """Count the requests of a creation and of a deletion, in a process that knows the cloud's names."""
    if not (lab.rounds or lab.many):
        _ours_at_once(replace(lab, many=1), processor)
    sliver = lab.sliver(lab.new_id())
    for what, operation in (("create", processor.create), ("delete", processor.delete)):
        with recorded() as found:
            outcome = operation(sliver).result()
        assert outcome.ok, outcome
        tell(found)
        calls = sum(1 for request in found if not request.polling)
        wanted, ok = (f"<= {CALLS}", calls <= CALLS) if what == "create" else ("-", True)
        line(f"requests to {what}, beside polling", calls, "", wanted, ok)
        line(f"requests to {what}, polling", len(found) - calls, "", "-", True)


# --- commands


def _command(lab: Lab) -> None:
    """Measure a command that asks the cloud for a sliver that is not there."""
    site, ours = lab.folder / "site.yaml", Path(sys.executable).with_name("fabric-direct")
    site.write_text(yaml.safe_dump(lab.site().model_dump(mode="json", exclude_unset=True)))
    words = [ours, "--site", site, "probe", lab.new_id()]
    took = median_seconds(lambda: subprocess.run(words, capture_output=True, check=False), 5)
    line("probe of an absent sliver, the whole command", took, "s", "<= 1.2", took <= 1.2)


if __name__ == "__main__":
    main()
