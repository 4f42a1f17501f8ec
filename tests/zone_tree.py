"""Zones as processes of their own, ``fabric-direct zone serve`` on loopback, with sites in memory."""

import json
import signal
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from fabric_direct.calls.forks import cached_property
from tests.conftest import FAKE_DRIVERS
from tests.ports import free_port

FABRIC_DIRECT = (sys.executable, "-c", "from fabric_direct.cli import main; main()")
_START, _END = 180.0, 60.0
"""Seconds that a server may take to start, and to end."""
SMALL = {"capacities": {"core": 1, "ram": 1, "disk": 1}, "image": "tiny"}
GPU = {"id": "gpu", "type": "GPU"}


def fake_site(
    name: str,
    folder: Path,
    hosts: dict[str, dict[str, int]],
    zone: dict[str, Any],
    **values: Any,
) -> dict[str, Any]:
    """Return a site of hosts in memory."""
    return {
        "site": name,
        "state_dir": str(folder / name / "state"),
        "drivers": FAKE_DRIVERS,
        "guest": "fake",
        "images": {"tiny": {}},
        "hosts": {host: {} for host in hosts} or {f"nothing-{name}": {}},
        "fake": {"hosts": hosts},
        "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.20.0.0/16"}},
        "zone": {"own_hosts": bool(hosts), "refresh": 3, **zone},
    } | values


@dataclass(eq=False)
class ZoneProcess:
    """A zone that is served by a process, and can be asked by HTTP."""

    document: dict[str, Any]
    folder: Path
    """Where its site.json and its log are."""
    token: str = ""
    ca_file: Path | None = None
    port: int = field(default_factory=free_port)
    heard: list[str] = field(default_factory=list)
    """All answers that :meth:`ask` got, as text."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return str(self.document["site"])

    @property
    def url(self) -> str:
        return f"{'https' if self.ca_file else 'http'}://127.0.0.1:{self.port}"

    @cached_property
    def _client(self) -> httpx.Client:
        """What asks it; each request has a connection of its own, so that none outlives a server."""
        trusted = ssl.create_default_context(cafile=self.ca_file)
        none_kept = httpx.Limits(max_keepalive_connections=0)
        return httpx.Client(verify=trusted, trust_env=False, timeout=60, limits=none_kept)

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()

    def as_child(self, **values: Any) -> dict[str, Any]:
        """Return how a parent's site.yaml names it."""
        return {
            "url": self.url,
            **({"ca_file": str(self.ca_file)} if self.ca_file else {}),
        } | values

    def begin(self) -> None:
        """Start the process; :meth:`wait` says when it answers."""
        self.document["zone"]["listen"] = f"127.0.0.1:{self.port}"
        path = self.folder / f"{self.name}.json"
        path.write_text(json.dumps(self.document))
        command = [*FABRIC_DIRECT, "--site", str(path), "zone", "serve"]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Return when it answers."""
        end = time.monotonic() + _START
        while not self._answers():
            assert self._process is not None
            assert self._process.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/zones").is_success
        except httpx.TransportError:
            return False

    def end(self) -> int:
        """End the process, if there is one, by SIGTERM; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def kill(self) -> None:
        """End the process by SIGKILL."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait()

    def ask(self, method: str, path: str, document: Any = None, **headers: str) -> httpx.Response:
        """Return what it answers."""
        shown = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = self._client.request(
            method, self.url + path, json=document, headers=shown | headers
        )
        self.heard.append(answer.text)
        return answer

    # --- what is asked often

    def select(self, request_id: str, **kinds: dict[str, Any]) -> dict[str, Any]:
        """Return the selection for kinds."""
        document = {"request_id": request_id, "kinds": list(kinds.values())}
        answer = self.ask("POST", "/zones/select", document)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def boot(
        self, request_id: str, *kinds: dict[str, Any], offers: Any = (), **values: Any
    ) -> httpx.Response:
        document = {"request_id": request_id, "kinds": kinds, "offers": list(offers), **values}
        return self.ask("POST", "/zones/boot", document)

    def reservation(self, reservation: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"/reservations/{reservation}").json())

    def settled(self, reservation: str, seconds: float = 30) -> dict[str, Any]:
        """Return a reservation when nothing of it moves any more."""
        end = time.monotonic() + seconds
        while True:
            found = self.reservation(reservation)
            if not {i["status"] for i in found["instances"]} & {"pending", "deleting", "unknown"}:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.1)

    def delete(self, reservation: str) -> dict[str, Any]:
        """Delete a reservation, and return it when it is."""
        assert self.ask("DELETE", f"/reservations/{reservation}").is_success
        return self.settled(reservation)

    def view(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/zones").json())

    def free(self, kind: str) -> int:
        """Return how many devices of a type it has free."""
        devices = self.view()["capabilities"]["devices"]
        return sum(device["free"] for device in devices if device["type"] == kind)


def needs(kind: str, number: int = 1, **values: Any) -> dict[str, Any]:
    """Return a kind as a selection asks for it."""
    devices = [{"component": "gpu", "type": "GPU"}] if kind == "gpu" else []
    wanted = {"kind": kind, "num_instances": number, "needs": {**SMALL, "devices": devices}}
    return wanted | values


def sliver(kind: str, number: int = 1, **values: Any) -> dict[str, Any]:
    """Return the same kind as a boot asks for it."""
    components = [GPU] if kind == "gpu" else []
    shape = {"id": kind, "name": kind, "host": "auto", **SMALL, "components": components}
    return {"kind": kind, "num_instances": number, "sliver": shape} | values
