"""A stand-in for NSO's RESTCONF, for tests; it is not NSO, and shows nothing of a site's own YANG.

What it has of NSO: paths, methods, commit parameters in both forms, dry runs, the commit queue,
deep-check-sync and re-deploy, as Cisco's guide describes them. yangson validates every document against
``yang/``, which is written from the fields that fabric_am sends. Its devices take all that they are
given, unless a test has them refuse.
"""

import base64
import json
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from yangson import DataModel
from yangson.enumerations import ContentType
from yangson.exceptions import YangsonException

Json = dict[str, Any]
YANG = Path(__file__).parent / "yang"
ROOT = "tailf-ncs:services"
MODULES = ("l2bridge", "l2ptp", "l2sts", "l3rt", "l3vpn", "port-mirror", "idipa")
USER, PASSWORD = "am", "correct horse"
_REVISION = "2026-11-23"


@cache
def model() -> DataModel:
    """Return the data model of the services."""
    names = [("tailf-ncs", "http://tail-f.com/ns/ncs", "implement")]
    names += [(name, f"urn:fabric-direct:stand-in:{name}", "implement") for name in MODULES]
    names.append(("service-types", "urn:fabric-direct:stand-in:service-types", "import"))
    modules = [
        {"name": n, "namespace": urn, "revision": _REVISION, "conformance-type": how}
        for n, urn, how in names
    ]
    library = {"ietf-yang-library:modules-state": {"module-set-id": "1", "module": modules}}
    return DataModel(json.dumps(library), [str(YANG)])


def validate(services: Json) -> None:
    """Raise YangsonException unless services, by their lists, are as their YANG says."""
    model().from_raw({ROOT: services}).validate(ctype=ContentType.config)


@dataclass
class Fault:
    """What happens to one request."""

    method: str
    path: str
    kind: str
    """``close`` and ``lose`` end the connection before and after; ``hang`` waits; else a status."""
    words: str = ""
    left: int = 1


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, words: str, tag: str = "invalid-value") -> None:
        super().__init__(words)
        self.status, self.words, self.tag = status, words, tag


@dataclass
class Controller:
    """What the stand-in has, and what it does wrong."""

    version: str = "6.3"
    services: Json = field(default_factory=dict)
    """The instances, by their lists."""
    devices: Json = field(default_factory=dict)
    """The same, as the devices have it."""
    refusing: dict[str, str] = field(default_factory=dict)
    """What a device says when it is to be changed."""
    faults: list[Fault] = field(default_factory=list)
    at: tuple[int, str] | None = None
    requests: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    queued: str = ""
    """``completed`` or ``failed``: commits are queued, and end so."""
    encrypts: bool = False
    proxied: bool = False
    """Something that is not NSO answers: 404 of everything."""
    items: Json = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def fault(self, method: str, path: str, kind: str, words: str = "", times: int = 1) -> None:
        """Have the next requests of a method, with this in their path, fail."""
        self.faults.append(Fault(method, path, kind, words, times))

    def fault_at(self, number: int, kind: str) -> None:
        """Have one request fail, by its number from now, from 1; a dry run, too."""
        self.at = (len(self.requests) + number, kind)

    def next_fault(self, method: str, path: str) -> Fault | None:
        """Return what happens to a request, if anything; a dry run must be named to fail."""
        if self.at and len(self.requests) == self.at[0]:
            return Fault(method, path, self.at[1])
        for fault in self.faults:
            meant = fault.path in path and ("dry-run" in fault.path or "dry-run" not in path)
            if fault.left and fault.method == method and meant:
                fault.left -= 1
                return fault
        return None

    def instance(self, module: str, name: str) -> Json:
        """Return an instance."""
        for each in self.services.get(f"{module}:{module}", []):
            if each["name"] == name:
                return dict(each)
        raise Refused(404, "uri keypath not found")

    def names(self) -> list[str]:
        """Return what there is."""
        lists = self.services.items()
        return [f"{key.partition(':')[0]} {each['name']}" for key, all_ in lists for each in all_]

    # --- transactions

    def commit(self, changed: Json, parameters: Json) -> Json:
        """Make ``changed`` what there is, or say what a dry run would do."""
        changed = {key: entries for key, entries in changed.items() if entries}
        try:
            validate(changed)
        except YangsonException as error:
            raise Refused(400, str(error), "malformed-message") from error
        if "dry-run" in parameters:
            return {"dry-run-result": {"native": {"device": []}}}
        self._refuse_by_devices(changed)
        self.comments.append(parameters.get("comment", ""))
        self.services = deepcopy(changed)
        if self.queued:
            return self._queue()
        self.devices = deepcopy(changed)
        return {}

    def _refuse_by_devices(self, changed: Json) -> None:
        text = json.dumps([changed, self.services]) if changed != self.services else ""
        for device, words in self.refusing.items():
            if f'"{device}"' in text:
                why = f"RPC error towards {device}: {words}"
                raise Refused(400, why, "operation-failed")

    def _queue(self) -> Json:
        number = str(1498812003922 + len(self.items))
        self.items[number] = {"id": int(number), "status": self.queued, "polls": 1}
        if self.queued == "completed":
            self.devices = deepcopy(self.services)
        return {"tailf-restconf:result": {"commit-queue": {"id": int(number), "status": "async"}}}

    def queue_item(self, number: str, *, completed: bool) -> Json:
        """Return an item of the queue, which ends when it was looked at once."""
        item = self.items.get(number)
        if item is None or bool(item["polls"]) == completed:
            raise Refused(404, "uri keypath not found")
        item["polls"] -= 0 if completed else 1
        shown = {"id": item["id"], "status": item["status"] if completed else "executing"}
        if completed and item["status"] == "failed":
            shown["failed"] = [{"name": "renc-sw", "reason": "no such interface"}]
        return {"tailf-ncs:queue-item": [shown]}

    # --- requests

    def answer(self, method: str, target: str, headers: Any, body: Json) -> tuple[int, Json]:
        """Return the status and the body of an answer."""
        if self.proxied:
            return 404, {"error": "not found"}
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if headers.get("Authorization") != f"Basic {expected}":
            raise Refused(401, "access denied", "access-denied")
        url = urlsplit(target)
        path, query = unquote(url.path), parse_qs(url.query)
        if method == "GET":
            return 200, self._get(path, query)
        if method == "POST":
            return 200, self._act(path, body)
        parameters = self._parameters(query, headers)
        return self._change(method, path, body, parameters)

    def _get(self, path: str, query: dict[str, list[str]]) -> Json:
        tail = path.removeprefix("/restconf/data/")
        if tail == "tailf-ncs-monitoring:ncs-state/version":
            return {"tailf-ncs-monitoring:version": self.version}
        if tail.startswith("tailf-ncs:devices/commit-queue"):
            number = tail.rpartition("=")[2]
            return self.queue_item(number, completed="/completed/" in tail)
        key, _, name = tail.removeprefix(f"{ROOT}/").partition("=")
        module = key.partition(":")[0]
        if name:
            return {key: [self.instance(module, name)]}
        if not self.services.get(key):
            raise Refused(404, "uri keypath not found")
        whole = self.services[key]
        return {key: [{"name": e["name"]} for e in whole] if query.get("fields") else whole}

    def _act(self, path: str, _body: Json) -> Json:
        place, _, action = path.removeprefix(f"/restconf/data/{ROOT}/").rpartition("/")
        key, _, name = place.partition("=")
        module = key.partition(":")[0]
        wanted = self.instance(module, name)
        if action == "deep-check-sync":
            return {f"{module}:output": {"in-sync": self._on_devices(key, name) == wanted}}
        if action == "re-deploy":
            self.devices = deepcopy(self.services)
            return {}
        raise Refused(404, "uri keypath not found")

    def _on_devices(self, key: str, name: str) -> Json | None:
        return next((e for e in self.devices.get(key, []) if e["name"] == name), None)

    def undermine(self, module: str) -> None:
        """Have the devices lose what a list configures."""
        del self.devices[f"{module}:{module}"]

    def _parameters(self, query: dict[str, list[str]], headers: Any) -> Json:
        structured = tuple(map(int, self.version.split(".")[:2])) >= (6, 6)
        known = {"params"} if structured else {"dry-run"}
        for name in query.keys() - known:
            raise Refused(400, f"invalid query parameter: {name}")
        if not structured:
            return {name: values[0] for name, values in query.items()}
        given = query.get("params", [headers.get("X-Cisco-NSO-Commit-Params")])[0]
        return dict(json.loads(base64.b64decode(given))) if given else {}

    def _change(self, method: str, path: str, body: Json, parameters: Json) -> tuple[int, Json]:
        changed = deepcopy(self.services)
        tail = path.removeprefix(f"/restconf/data/{ROOT}").removeprefix("/")
        key, _, name = tail.partition("=")
        others = [e for e in changed.get(key, []) if e["name"] != name]
        there = len(others) < len(changed.get(key, []))
        if method == "PATCH" and not tail:
            for each, entries in body[ROOT].items():
                for entry in entries:
                    _merge(changed.setdefault(each, []), self._stored(entry))
        elif method == "PUT":
            changed[key] = [*others, self._stored(body[key][0])]
        elif method == "DELETE" and there:
            changed[key] = others
        else:
            raise Refused(404, "uri keypath not found")
        answer = self.commit(changed, parameters)
        return (200 if answer else 204 if there or not tail else 201), answer

    def _stored(self, entry: Json) -> Json:
        """Return an instance as it is stored: with its keys encrypted, if that is asked for."""
        if not self.encrypts:
            return entry
        text = json.dumps(entry)
        return dict(json.loads(text, object_hook=_encrypted))


def _encrypted(values: Json) -> Json:
    if "auth-key" in values:
        values["auth-key"] = "$8$" + base64.b64encode(values["auth-key"].encode()).decode()
    return values


def _merge(entries: list[Json], new: Json) -> None:
    """Merge an entry into a list: what is there and not named stays."""
    old = next((each for each in entries if _key(each) == _key(new)), None)
    if old is None:
        entries.append(deepcopy(new))
        return
    _merge_into(old, new)


def _merge_into(old: Json, new: Json) -> None:
    for key, value in new.items():
        if isinstance(value, list):
            for entry in value:
                _merge(old.setdefault(key, []), entry)
        elif isinstance(value, dict):
            _merge_into(old.setdefault(key, {}), value)
        else:
            old[key] = value


def _key(entry: Json) -> tuple[Any, ...]:
    names = ("name", "type", "id", "outervlan", "index", "device", "remote-asn")
    return tuple(entry.get(name) for name in names)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    controller: Controller

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        controller = self.controller
        with controller.lock:
            controller.requests.append(f"{self.command} {self.path}")
            fault = controller.next_fault(self.command, self.path)
            if fault and fault.kind != "lose":
                status, said = 0, {}
            else:
                status, said = self._carried_out(body)
        if fault and fault.kind == "hang":
            controller.released.wait(30)
        if fault and fault.kind in {"close", "lose", "hang"}:
            self.close_connection = True
            return
        if fault:
            status, said = int(fault.kind), _errors(fault.words) if fault.words else {}
        self._send(status, said)

    def _carried_out(self, body: Json) -> tuple[int, Json]:
        try:
            return self.controller.answer(self.command, self.path, self.headers, body)
        except Refused as refused:
            return refused.status, _errors(refused.words, refused.tag)

    def _send(self, status: int, said: Json) -> None:
        text = json.dumps(said).encode() if said else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/yang-data+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _answer  # noqa: N815 - of http.server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _errors(words: str, tag: str = "operation-failed") -> Json:
    error = {"error-type": "application", "error-tag": tag, "error-message": words}
    return {"ietf-restconf:errors": {"error": [error]}}


def serve(controller: Controller) -> tuple[str, Callable[[], None]]:
    """Serve it on a free port of this machine; return the root's address, and what ends it."""
    handler = type("Handler", (_Handler,), {"controller": controller})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()

    def end() -> None:
        controller.released.set()
        server.shutdown()
        server.server_close()
        thread.join()

    return f"http://127.0.0.1:{server.server_address[1]}/restconf", end
