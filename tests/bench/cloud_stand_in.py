"""A stand-in for OpenStack behind HTTP, in a process of its own, with latencies.

It is the stateful cloud of the trust tests, and no more right than that one. Its latencies are chosen,
not measured: some times those of the lab, which serves nobody else. ``GET /bench`` returns how many
requests of each kind there were since the last time.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from requests import PreparedRequest

from tests.trust.http_cloud import StatefulCloud
from tests.unit.openstack_api import _Server, _split

LATENCY = {
    ("POST", "servers"): 0.60,
    ("POST", "ports"): 0.45,
    ("POST", "floatingips"): 0.70,
    ("DELETE", "servers"): 0.25,
    ("DELETE", "ports"): 0.45,
    ("DELETE", "floatingips"): 0.45,
}
"""Seconds for a request to be answered."""
READ, TAKES = 0.05, 2.0
"""The same for any other request; and seconds until a server is built, or gone."""


class StandIn(StatefulCloud):
    """The cloud, which counts and takes its time."""

    def __init__(self, directory: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.connections, self.open = 0, 0
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._server = _Server(self)
        super().__init__(directory, f"http://127.0.0.1:{self._server.server_port}")
        subnets = self.things["subnets"].values()
        next(s for s in subnets if s["cidr"] == "10.30.0.0/24")["cidr"] = "10.32.0.0/16"

    @contextmanager
    def serving(self) -> "Iterator[StandIn]":
        """Serve in the block."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        yield self
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: PreparedRequest) -> tuple[int, dict[str, str], str]:
        """Answer a request after its latency."""
        if request.url == f"{self.base}/bench":
            counts, self.counts = self.counts, Counter()
            return 200, {}, json.dumps(counts)
        return super().serve(request)

    def later(self, effect: Callable[[], object], reads: int = 1) -> None:
        """Let something come after some seconds."""
        self._due.append((time.monotonic() + TAKES, effect))

    def _pass(self) -> None:
        now = time.monotonic()
        due = [effect for when, effect in self._due if when <= now]
        self._due = [(when, effect) for when, effect in self._due if when > now]
        for effect in due:
            effect()

    def _called(self, request: PreparedRequest, path: str) -> tuple[int, dict[str, str], str]:
        service, rest = _split(path)
        kind = rest.split("/")[1]
        self.counts[f"{request.method} {service} {kind}"] += 1
        time.sleep(LATENCY.get((request.method or "", kind), READ))
        with self._lock:
            self._pass()
        return super()._called(request, path)


if __name__ == "__main__":
    with StandIn(Path(sys.argv[1])).serving() as standing_in:
        print(standing_in.base, flush=True)  # noqa: T201
        sys.stdin.read()
