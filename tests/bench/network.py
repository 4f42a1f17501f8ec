"""What our driver costs on the switches of labs/network, as ratios to the commands of Open vSwitch.

*A bridge with two ports*, VLANs and a rate is one ``ovs-vsctl`` with the same rows, and ``ovs-ofctl``
for the meters and the flows. *Another bandwidth* is the two meters. The commands wait for the daemon.
They read nothing back, note nothing for a crash and do not look whether a VLAN is free: only we do.

*100 services on 10 switches* are on the fake driver, whose calls take 50 ms: what is ours is the engine
and the claims. A service's calls come one after the other, so 32 threads make 100 services in four
rounds, in which they are busy for 100 / 128 of the time: calls over threads cannot come above 0.78.
"""

import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

from fabric_direct.drivers.fake import substrate
from fabric_direct.drivers.ovs.layout import OvsLayout, PortRow, layout
from fabric_direct.model import Outcome, Status
from fabric_direct.model.services import L2Bridge
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.bench.measure import keep, line

RUN = Path("/var/lib/fabric-direct/network/sw1")
SERVICES, SWITCHES, THREADS, DELAY = 100, 10, 32, 0.05


def main() -> None:
    """Print the figures, and keep them."""
    with tempfile.TemporaryDirectory() as folder:
        _many(Path(folder) / "fake")
        _one(Path(folder) / "ovs")
    keep("network")


# --- one service on a real switch


def _one(state: Path) -> None:
    site = _site(state, "ovs", {"sw1": {"ovsdb": f"unix:{RUN}/db.sock", "datapath": "netdev"}})
    with HandlerProcessor(site) as processor:
        create, modify, bare = [], [], []
        for _ in range(15):
            create.append(_seconds(lambda: _done(processor.create(_service()).result())))
            modify.append(_seconds(lambda: _done(processor.modify(_service(20)).result())))
            _done(processor.delete(_service()).result())
            bare.append(_bare(site))
    made, changed = zip(*bare, strict=True)
    _ratio("a bridge with two ports, VLANs and a rate, to bare commands", create, made)
    _ratio("another bandwidth, to bare commands", modify, changed)


def _ratio(what: str, ours: Any, bare: Any) -> None:
    value = sorted(ours)[len(ours) // 2] / sorted(bare)[len(bare) // 2]
    line(what, value, "times", "<= 1.5", value <= 1.5)


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _bare(site: Site) -> tuple[float, float]:
    """Make the rows and the limit by commands; return the seconds for these, and for another limit."""
    wanted = layout(site, _service(), "sw1", 0)
    made = _seconds(lambda: (_vsctl(*_rows(wanted)), _limit(wanted, "add-meter", 10)))
    changed = _seconds(lambda: _limit(wanted, "mod-meter", 20))
    _vsctl(*(word for b in wanted.bridges for word in ("--", "del-br", b.name)))
    return made, changed


def _rows(wanted: OvsLayout) -> Iterator[str]:
    for bridge in wanted.bridges:
        yield from ("--", "add-br", bridge.name)
        yield from ("--", "set", "Bridge", bridge.name, "datapath_type=netdev")
    for port in wanted.ports:
        yield from ("--", "add-port", port.bridge, port.name, *_columns(port))


def _columns(port: PortRow) -> Iterator[str]:
    if port.tag is not None:
        yield f"tag={port.tag}"
    if port.kind:
        options = [f"options:{key}={value}" for key, value in port.options.items()]
        yield from ("--", "set", "Interface", port.name, f"type={port.kind}", *options)


def _limit(wanted: OvsLayout, verb: str, rate: int) -> None:
    (limit,) = wanted.limits
    for meter in (1, 2):
        band = (
            f"meter={meter},kbps,burst,bands=type=drop,rate={rate * 1000},burst_size={rate * 200}"
        )
        _ofctl(verb, limit.bridge, band)
    if verb == "add-meter":
        into = f"in_port={limit.port},dl_vlan={limit.tag},actions=meter:1,NORMAL"
        out = f"in_port={limit.patch},actions=meter:2,NORMAL"
        _ofctl("add-flows", limit.bridge, "-", stdin=f"{into}\n{out}\n")


def _vsctl(*words: str) -> None:
    _run("ovs-vsctl", f"--db=unix:{RUN}/db.sock", *words)


def _ofctl(*words: str, stdin: str = "") -> None:
    _run("ovs-ofctl", "-O", "OpenFlow15", *words, stdin=stdin)


def _run(*argv: str, stdin: str = "") -> None:
    command = ["env", f"OVS_RUNDIR={RUN}", *argv]
    subprocess.run(command, input=stdin.encode(), check=True, capture_output=True)


# --- many on the fake


def _many(state: Path) -> None:
    switches = {f"sw{number}": {} for number in range(SWITCHES)}
    site = _site(state, "fake", switches, fake={"delay": DELAY})
    with HandlerProcessor(site, workers=THREADS, step_workers=THREADS) as processor:
        seconds, calls = _create_all(processor, site, 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        for round_ in range(1, 6):
            _create_all(processor, site, round_)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    number, rounds = calls // SERVICES, ceil(SERVICES / THREADS)
    what = f"{SERVICES} services on {SWITCHES} switches, {number} calls of 50 ms: ideal over ours"
    share = rounds * number * DELAY / seconds
    line(what, share, "", ">= 0.8", share >= 0.8)
    busy = calls * DELAY / THREADS / seconds
    line("the same, as calls over threads", busy, "", ">= 0.625", busy >= 0.625)
    line("memory that five more rounds of them take", grown, "MB", "<= 5", grown <= 5)


def _create_all(processor: HandlerProcessor, site: Site, round_: int) -> tuple[float, int]:
    """Create all services, and delete them; return the seconds and calls of the creation."""
    there = substrate(site, "localhost")
    services = [_service(10, number, round_) for number in range(SERVICES)]
    before = sum(there.calls.values())
    seconds = _seconds(lambda: [_done(f.result()) for f in [processor.create(s) for s in services]])
    calls = sum(there.calls.values()) - before
    for future in [processor.delete(service) for service in services]:
        _done(future.result())
    return seconds, calls


def _site(state: Path, driver: str, switches: dict[str, dict[str, Any]], **values: Any) -> Site:
    for switch in switches.values():
        switch["ports"] = {"p1": {}, "p2": {}}
    base = {"site": "BENCH", "state_dir": state, "drivers": {"L2Bridge": driver, "VM": "fake"}}
    fakes = dict.fromkeys(("vNIC", "Storage"), "fake")
    base["drivers"] |= fakes
    return Site.model_validate(base | {"switches": switches, "guest": "fake"} | values)


def _service(bandwidth: int = 10, number: int = 0, round_: int = 0) -> L2Bridge:
    device, vlan = f"sw{number % SWITCHES or 1}", 100 + number
    ends = [
        {"id": "i1", "device": device, "port": "p1", "vlan": vlan, "bandwidth": bandwidth},
        {"id": "i2", "device": device, "port": "p2", "vlan": vlan},
    ]
    return L2Bridge.model_validate({"id": f"n{number}-{round_}", "name": "net", "interfaces": ends})


def _done(outcome: Outcome) -> None:
    assert outcome.status is Status.DONE, outcome


if __name__ == "__main__":
    main()
