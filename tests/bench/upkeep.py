"""What looking after slivers costs, on 200 slivers, each with a NIC and a VF, on 10 hosts.

The drivers are fakes whose calls take some time.

*The drift of a site*, to its bare listings: the same calls, host beside host, and nothing is compared.
*A watcher's repair*, to one that is asked for: from the start of a domain that has lost its VF until
the VF is back. *An idle watcher*, which hears this machine's libvirt: its share of a processor.
"""

import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.drivers.contract.changes import Change
from fabric_direct.drivers.fake import substrate
from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.errors import Unreachable
from fabric_direct.handlers import registry
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.repair_history import Note
from tests.bench.fakes import fake_site, node
from tests.bench.measure import line, median_seconds, ratio

SLIVERS, HOSTS = 200, tuple(f"w{number}" for number in range(10))
DELAYS, REPAIR_DELAY = (0.05, 0.005), 0.05
URI, SETTLE, IDLE = "qemu:///system", 2.0, 2.0
"""Seconds until a watcher has looked at all that there is, and seconds that it is idle each time."""
VFS = {"type": "SharedNIC", "uplink": "ens1"}


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        site = _site(Path(folder))
        with HandlerProcessor(site) as processor:
            futures = [processor.create(_sliver(site, number)) for number in range(SLIVERS)]
            assert all(future.result().ok for future in futures)
            for delay in DELAYS:
                _slow(site, delay)
                _drift(site, processor, delay)
            _slow(site, REPAIR_DELAY)
            _repairs(site, processor)
    _idle()


def _slow(site: Site, delay: float) -> None:
    for host in HOSTS:
        substrate(site, host).delay = delay


def _drift(site: Site, processor: HandlerProcessor, delay: float) -> None:
    drivers = [registry.host_drivers(site, host) for host in HOSTS]
    drift = processor.drift()
    assert (drift.drifts, len(drift.servers)) == ((), SLIVERS)
    with ThreadPoolExecutor(len(HOSTS)) as pool:
        value = ratio(processor.drift, lambda: list(pool.map(bare_listing, drivers)), rounds=51)
    what = f"drift of {SLIVERS} slivers on {len(HOSTS)} hosts, to bare listings of {delay * 1000:.0f} ms"
    line(what, value, "times", "<= 2", value <= 2)


def bare_listing(drivers: HostDrivers) -> None:
    """Ask a host for its servers, its ports, and what each driver says of its devices."""
    drivers.compute.servers()
    drivers.network.all_ports()
    for driver in dict.fromkeys(drivers.devices.values()):
        driver.survey(())


def _repairs(site: Site, processor: HandlerProcessor) -> None:
    told: SimpleQueue[Note] = SimpleQueue()
    ours, asked = iter(range(0, SLIVERS, 2)), iter(range(1, SLIVERS, 2))

    def heard() -> None:
        sliver = _lose(site, next(ours))
        change = Change("server", (f"{sliver}-node",), "the domain was started")
        substrate(site, _host_of(sliver)).listeners.fire(change)
        assert told.get().subject == sliver

    def bare() -> None:
        outcome = processor.reconcile(SliverRef(id=_lose(site, next(asked)))).result()
        assert outcome.data["repaired"]

    with processor.watch(told.put):
        time.sleep(SETTLE)
        seconds = median_seconds(heard)
        value = ratio(heard, bare)
    line(
        "a VF that a domain has lost: heard and put back, to a reconcile", value, "times", "-", True
    )
    line(
        f"the same, in seconds, with calls of {REPAIR_DELAY * 1000:.0f} ms", seconds, "s", "-", True
    )


def _lose(site: Site, number: int) -> str:
    """Take the VF of a sliver from its domain, as Nova's hard reboot does; return the sliver."""
    sliver = f"s{number}"
    substrate(site, _host_of(sliver)).lose_devices(sliver)
    return sliver


def _host_of(sliver: str) -> str:
    return HOSTS[int(sliver[1:]) % len(HOSTS)]


def _idle() -> None:
    try:
        connect(URI)
    except Unreachable as error:
        print(f"idle watcher: skipped: {error}")  # noqa: T201
        return
    with _listening():
        time.sleep(SETTLE)
        # It looks at what others do to their domains meanwhile: not each time, most likely.
        share = statistics.median(_seconds_idle() for _ in range(5)) / IDLE * 100
    line("an idle watcher of one libvirt: share of a processor", share, "%", "<= 0.5", share <= 0.5)


def _seconds_idle() -> float:
    """Return the processor time of some idle seconds."""
    began = time.process_time()
    time.sleep(IDLE)
    return time.process_time() - began


@contextmanager
def _listening() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        site = {"site": f"fdtest-{secrets.token_hex(3)}", "state_dir": folder, "guest": "none"}
        watching = Site.model_validate(site | {"watch": {"enabled": True}})
        with HandlerProcessor(watching) as processor, processor.watch():
            yield


def _site(folder: Path) -> Site:
    return fake_site(
        folder,
        watch={"enabled": True, "per_site": SLIVERS},
        fake={"hosts": {host: {"vfs": SLIVERS // len(HOSTS)} for host in HOSTS}},
        hosts={host: {"devices": [VFS]} for host in HOSTS},
    )


def _sliver(site: Site, number: int) -> NodeSliver:
    host, nth = HOSTS[number % len(HOSTS)], number // len(HOSTS)
    _pf, *vfs = sorted(substrate(site, host).devices)
    vf = str(vfs[nth])
    return node(number, {"type": "SharedNIC", "id": "vf", "bdf": [vf]}, host=host)


if __name__ == "__main__":
    main()
