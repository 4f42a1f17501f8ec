"""A stand-in for NSO's RESTCONF, for tests; it is not NSO, and shows nothing of a site's own YANG.

What it has of NSO: paths, methods, commit parameters in both forms, dry runs, the commit queue,
deep-check-sync and re-deploy, as Cisco's guide describes them. yangson validates every document against
``yang/``, which is written from the fields that fabric_am sends. Its devices (``nso_devices``) are in
memory, unless a test has others.
"""

import base64
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from yangson import DataModel
from yangson.enumerations import ContentType
from yangson.exceptions import YangsonException

from labs.network import http_standin
from labs.network.http_standin import Fault, Json, Refused, StandIn
from labs.network.nso_devices import Change, DeviceManager, DeviceRefuses, OutOfSync

YANG = Path(__file__).parent / "yang"
ROOT, DEVICES = "tailf-ncs:services", "tailf-ncs:devices"
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


def refusal(services: Json) -> str:
    """Return why services, by their lists, are not as their YANG says; empty if they are."""
    try:
        model().from_raw({ROOT: services}).validate(ctype=ContentType.config)
    except YangsonException as error:
        return str(error) or type(error).__name__
    return ""


@dataclass
class Item:
    """An item of the commit queue."""

    changes: dict[str, Change]
    failed: list[Json] = field(default_factory=list)
    done: bool = False

    @property
    def status(self) -> str:
        """Return what the queue says of it."""
        return "failed" if self.failed else "completed" if self.done else "executing"

    def work_off(self, devices: DeviceManager) -> None:
        """Change its devices, once; one that refuses does not keep the others from it."""
        for device, change in self.changes.items() if not self.done else ():
            try:
                devices.send({device: change})
            except DeviceRefuses as error:
                self.failed.append({"name": device, "reason": error.words})
        self.done = True


@dataclass
class Controller(StandIn):
    """What the stand-in has, and what it does wrong."""

    version: str = "6.3"
    services: Json = field(default_factory=dict)
    """The instances, by their lists."""
    devices: DeviceManager = field(default_factory=DeviceManager)
    validators: tuple[Callable[[Json], str], ...] = (refusal,)
    """Each returns why it refuses services, or nothing."""
    verdicts: list[tuple[str, ...]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    dry_run: Any = None
    """What it says of a dry run, if that is not what it would send to its devices."""
    queued: bool = False
    """Commits are queued, and reach the devices when their item was looked at once."""
    encrypts: bool = False
    bare: bool = False
    """Its errors are below ``errors``, without the name of the module, as older versions send them."""
    proxied: bool = False
    """Something that is not NSO answers: 404 of everything."""
    items: dict[str, Item] = field(default_factory=dict)

    def meant(self, fault: Fault, path: str) -> bool:
        """Return whether a fault is for a path; a dry run must be named to fail."""
        return fault.path in path and ("dry-run" in fault.path or "dry-run" not in path)

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
        self._validate(changed)
        if "dry-run" in parameters:
            return {"dry-run-result": self.dry_run or self._native(changed)}
        bypass = "bypass" in parameters.get("commit-queue", "")
        answer = self._deploy(self.services, changed, queued=self.queued and not bypass)
        self.comments.append(parameters.get("comment", ""))
        self.services = deepcopy(changed)
        return answer

    def _native(self, after: Json) -> Json:
        """Return what would be sent to each device: lines that go, and those that come or change."""
        changes = self.devices.changes(self.services, after)
        lines = {d: [*(f"no {w}" for w in goes), *c.values()] for d, (goes, c) in changes.items()}
        devices = [{"name": name, "data": "\n".join(of)} for name, of in lines.items()]
        return {"native": {"device": devices}}

    def _validate(self, services: Json) -> None:
        self.verdicts.append(tuple(validator(services) for validator in self.validators))
        if said := next(filter(None, self.verdicts[-1]), ""):
            raise Refused(400, said, "malformed-message")

    def _deploy(self, before: Json, after: Json, *, queued: bool) -> Json:
        """Bring a change of services to the devices, or into the queue."""
        changes = self.devices.changes(before, after)
        if queued:
            return self._queue(changes)
        self.devices.send(changes)
        self.devices.record(changes)
        return {}

    def _queue(self, changes: dict[str, Change]) -> Json:
        self.devices.record(changes)
        number = str(1498812003922 + len(self.items))
        self.items[number] = Item(changes)
        return {"commit-queue": {"id": int(number), "status": "async"}}

    def queue_item(self, number: str, *, completed: bool) -> Json:
        """Return an item of the queue, and have it worked off."""
        item = self.items.get(number)
        if item is None or item.done != completed:
            raise Refused(404, "uri keypath not found")
        shown: Json = {"id": int(number), "status": item.status}
        if item.failed:
            shown["failed"] = item.failed
        item.work_off(self.devices)
        return {"tailf-ncs:queue-item": [shown]}

    # --- requests

    def answer(self, method: str, target: str, headers: Any, body: Json) -> tuple[int, Any, Json]:
        """Return the status, the document and the headers of an answer."""
        if self.proxied:
            return 404, {"error": "not found"}, {}
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if headers.get("Authorization") != f"Basic {expected}":
            raise Refused(401, "access denied", "access-denied")
        url = urlsplit(target)
        path, query = unquote(url.path), parse_qs(url.query)
        try:
            return *self._answer(method, path, query, headers, body), {}
        except (DeviceRefuses, OutOfSync) as error:
            raise Refused(400, str(error), "operation-failed") from error

    def _answer(
        self, method: str, path: str, query: dict[str, list[str]], headers: Any, body: Json
    ) -> tuple[int, Json]:
        if method == "GET":
            return 200, self._get(path, query)
        if method == "POST":
            return 200, self._act(path)
        return self._change(method, path, body, self._parameters(query, headers))

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

    def _act(self, path: str) -> Json:
        place, _, action = path.removeprefix("/restconf/data/").rpartition("/")
        key, _, name = place.rpartition("/")[2].partition("=")
        if place.startswith(f"{DEVICES}/device=") and action == "sync-from":
            return {"tailf-ncs:output": self.devices.sync_from(name)}
        module = key.partition(":")[0]
        instance = {key: [self.instance(module, name)]}
        if action in {"check-sync", "deep-check-sync"}:
            in_sync = self.devices.has(instance, deep=action.startswith("deep"))
            return {f"{module}:output": {"in-sync": in_sync}}
        if action == "re-deploy":
            answer = self._deploy({}, instance, queued=self.queued)
            return {f"{module}:output": answer} if answer else {}
        raise Refused(404, "uri keypath not found")

    def _parameters(self, query: dict[str, list[str]], headers: Any) -> Json:
        structured = tuple(map(int, self.version.split(".")[:2])) >= (6, 6)
        known = {"params"} if structured else {"dry-run", "commit-queue"}
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
        answer = {"tailf-restconf:result": answer} if "commit-queue" in answer else answer
        return (200 if answer else 204 if there or not tail else 201), answer

    def _stored(self, entry: Json) -> Json:
        """Return an instance as it is stored: with its keys encrypted, if that is asked for."""
        if not self.encrypts:
            return entry
        text = json.dumps(entry)
        return dict(json.loads(text, object_hook=_encrypted))

    def errors(self, words: str, tag: str = "operation-failed") -> Json:
        """Return the document that tells of an error."""
        error = {"error-type": "application", "error-tag": tag, "error-message": words}
        return {"errors" if self.bare else "ietf-restconf:errors": {"error": [error]}}


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


def serve(controller: Controller) -> tuple[str, Callable[[], None]]:
    """Serve it on a free port of this machine; return the root's address, and what ends it."""
    address, end = http_standin.serve(controller)
    return f"{address}/restconf", end
