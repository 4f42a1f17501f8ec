"""A process with a site in memory where much goes wrong; its metrics are served.

``python -m tests.metrics.site DIRECTORY`` says where they are. Each line on stdin lets a round of
operations pass, and is answered by one.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import click

from fabric_direct.calls.deadline import trying_again
from fabric_direct.cli.metrics_endpoint import served
from fabric_direct.cli.options import Settings
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import FakeVolume, Substrate, substrate
from fabric_direct.errors import Unreachable
from fabric_direct.model import NodeSliver, Outcome, SliverRef, Status
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.repair_history import Note

SITE = """
site: TEST
state_dir: {folder}
drivers: {{VM: fake, BareMetal: fake}}
fake: {{nodes: {{n1: {{}}, n2: {{}}, n3: {{}}}}}}
guest: fake
images: {{tiny: {{}}}}
networks:
  red: {{strategy: flat_dhcp, subnet: 10.20.0.0/16}}
limits: {{call: 0.5, undo: 0.5, busy: 0.5}}
watch: {{enabled: true}}
metrics: {{refresh: 1}}
hosts:
  w1:
    devices:
      - {{type: GPU, model: A30, bdf: "0000:25:00.0"}}
      - {{type: GPU, model: A30, bdf: "0000:26:00.0"}}
      - {{type: NVME, model: P4510, bdf: "0000:21:00.0"}}
  w2: {{}}
  w3:
    devices: [{{type: GPU, model: A30, bdf: "0000:25:00.0"}}]
"""
GPU = {"type": "GPU", "id": "gpu", "model": "A30"}
NVME = {"type": "NVME", "id": "drive", "model": "P4510"}
NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
DATA = {"type": "Storage", "id": "data", "size": 1}
HELD = "held"
GOES_ON = threading.Event()


def vm(name: str, *components: dict[str, Any], **values: Any) -> NodeSliver:
    """Return a sliver on the first host."""
    size = {"core": 1, "ram": 1, "disk": 1}
    plain = {"id": name, "name": name, "image": "tiny", "host": "w1", "capacities": size}
    return NodeSliver.model_validate(plain | {"components": components} | values)


class Rounds:
    """What happens at the site."""

    def __init__(self, processor: HandlerProcessor, w1: Substrate) -> None:
        self._processor, self._w1 = processor, w1

    def first(self) -> None:
        """Let a device be lost, another one stay unclean, a node too, and a call be late."""
        nodes = self._w1.bare_metal
        nodes["n3"] = replace(nodes["n3"], condition=NodeCondition.QUARANTINED)
        self._create(vm("loser", GPU, watch=False))
        self._w1.lose_devices("loser")
        self._create(vm("tenant", NVME, watch=False))
        self._w1.dirty.update(a for a, d in self._w1.devices.items() if d.type == "NVME")
        assert self._delete("tenant").left
        self._two_hours_ago("tenant")
        with self._faults(("volume.create", "hang")):
            assert self._asked(vm("late", DATA)).left
        self._changed_by_others()

    def _two_hours_ago(self, name: str) -> None:
        """Let what is unfinished have begun so long ago."""
        path = self._processor.site.state_dir / "journal" / f"{name}.json"
        entry = json.loads(path.read_text())
        entry["since"] = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
        path.write_text(json.dumps(entry))

    def _changed_by_others(self) -> None:
        """Let a watcher repair what it can."""
        notes: SimpleQueue[Note] = SimpleQueue()
        self._create(vm("mended", NIC))
        self._create(vm("grown"))
        servers = self._w1.servers
        servers["mended"] = replace(servers["mended"], ports=())
        servers["grown"] = replace(servers["grown"], cores=7)
        self._processor.watch(notes.put)
        # The repair, what cannot be repaired, and the host that says nothing.
        assert {notes.get(timeout=60).did.value for _ in range(3)} == {
            "repaired",
            "reported",
            "deaf",
        }

    def each(self, number: int) -> None:
        """Create and delete, fail, and leave something."""
        names = [f"vm{number}-{n}" for n in range(3)]
        for name in names:
            self._create(vm(name, NIC, DATA, watch=False))
        assert all(self._delete(name).ok for name in names)
        with self._faults(("volume.create", "fail")):
            assert self._asked(vm(f"failing{number}", DATA)).status is Status.FAILED
        with self._faults(("guest.wait", "fail"), ("volume.delete", "fail")):
            assert self._asked(vm(f"leaving{number}", DATA)).left

    def hold(self) -> None:
        """Begin an operation that does not end, and ask for another one that waits for it."""
        self._processor.create(vm(HELD, watch=False))
        self._processor.delete(SliverRef(id=HELD))

    def _asked(self, sliver: NodeSliver) -> Outcome:
        return self._processor.create(sliver).result()

    def _create(self, sliver: NodeSliver) -> None:
        outcome = self._asked(sliver)
        assert outcome.ok, outcome.error

    def _delete(self, name: str) -> Outcome:
        return self._processor.delete(SliverRef(id=name)).result()

    @contextmanager
    def _faults(self, *asked: tuple[str, Any]) -> Iterator[None]:
        for method, kind in asked:
            self._w1.fault(method, at=0, kind=kind)
        yield
        self._w1.faults.clear()


def retrying(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a driver as it is where an API is busy at first."""

    def created(*args: Any) -> Any:
        trying_again()
        return create(*args)

    return created


def held(progress: Progress) -> None:
    """Keep one operation from going on."""
    if progress.sliver == HELD:
        GOES_ON.wait()


def main(folder: Path) -> None:
    """Serve the site until stdin ends."""
    (folder / "site.yaml").write_text(SITE.format(folder=folder))
    settings = Settings(site_path=folder / "site.yaml")
    site = settings.site()
    FakeVolume.create = retrying(FakeVolume.create)  # type: ignore[method-assign]
    with served(("127.0.0.1", 0), settings), HandlerProcessor(site, on_progress=held) as processor:
        rounds = Rounds(processor, substrate(site, "w1"))
        silence(site)
        rounds.first()
        rounds.hold()
        for number, _ in enumerate(sys.stdin):
            rounds.each(number)
            click.echo(f"passed {number}")
        GOES_ON.set()


def silence(site: Site) -> None:
    """Let the last host answer nothing that is asked about its devices."""
    w3 = substrate(site, "w3")
    w3.listeners.deaf = Unreachable("domains of w3 cannot be listened to")
    w3.fault("device.inventory", at=0, kind="fail")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
