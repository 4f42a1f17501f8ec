"""What can go wrong with a request to a cloud, and time that passes at once meanwhile.

The adapter of requests is replaced: below it is the fake cloud, above it all of the drivers' own code,
with their retries. A run without a fault lists the requests: they are the points at which a fault is
tried.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import requests
import tenacity
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from fabric_direct.calls import deadline
from fabric_direct.drivers.openstack.client import poller
from fabric_direct.operations import late_calls
from tests.trust.clock import _IN_EARNEST, Clock, Over, current
from tests.trust.http_cloud import StatefulCloud, _unknown

REFUSALS = ("401", "403", "404", "409", "413", "429")
"""The API says no: there is no effect."""
UNANSWERED = ("time-out", "reset", "500", "503")
"""It does not say what it did; it did nothing."""
AFTER = ("time-out after", "time-out, later", "reset after", "500 after", "503 after")
"""The same, and it did what was asked: at once, or some reads later, or while somebody waits for it."""
UNSEEN = ("time-out, unseen", "time-out, last")
"""The same, and it does what was asked after it was looked for in vain: while the operation waits for
it, or when the operation has ended."""
UNREADABLE = ("truncated", "malformed", "empty")
"""It did what was asked, and says so in a body that breaks off, is no JSON, or tells nothing."""
INCOMPLETE = "incomplete"
"""A success that leaves out what a list has; Nova does so with servers of a cell that does not answer,
and tells by id, and in a list without a filter, that it does not know them."""
READS = (*UNANSWERED, *REFUSALS, *UNREADABLE)
CHANGES = (*UNANSWERED, *REFUSALS, *AFTER, *UNSEEN, *UNREADABLE)

_ONCE = {"429", "reset after"}
"""What does not happen again when the request is sent again."""
_LATER = 3
"""Reads after which a request whose answer was given up takes effect."""
_RETRY_AFTER = 7
_ROUND = 0.02
"""Seconds after which a request that rests looks at the clock."""
_BODIES = {"malformed": b"<html>502 Bad Gateway</html>", "empty": b"{}"}
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LISTING = re.compile(
    r"GET (compute /servers|networking /|volume /volumes/detail)(?!.*/(os-|metadata|extensions))"
)
_READING = re.compile(r"GET|POST \w+ /auth/tokens|POST compute \S+ os-getConsoleOutput")


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """The n-th request of its kind."""

    what: str
    """Method, service and path, with an action's name, without ids."""
    number: int

    def faults(self) -> tuple[str, ...]:
        """Return what can go wrong with it."""
        if not _READING.match(self.what):
            return CHANGES
        return (*READS, INCOMPLETE) if _LISTING.match(self.what) else READS


class HttpClock(Clock):
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Callable[[], object] = lambda: None
        """Called when somebody begins to wait for requests without an answer."""
        self._due: dict[Over, float] = {}
        self._ended = False

    def rest(self, known: threading.Event, until: float) -> None:
        """Let the current call return at this time, or when it is known what came of it."""
        over = current()
        self._due[over] = until
        over.known.set()
        while self.monotonic() < until and not (self._ended or known.is_set()):
            known.wait(_ROUND)

    def wait(self, futures: Collection[Over], timeout: float) -> None:
        """Wait for calls: until all that rest are due, or the time is over."""
        for future in futures:
            future.known.wait(_IN_EARNEST)
        self.waits()
        until = max((self._due.get(future, 0.0) for future in futures), default=0.0)
        self.sleep(min(timeout, max(0.0, until - self.monotonic())))
        for future in futures:
            if self._due.get(future, inf) <= self.monotonic():
                future.ended.wait(_IN_EARNEST)

    def end(self) -> None:
        """Let all return that rest."""
        self._ended = True

    def limit(
        self, future: "Future[Any]", seconds: float | None, result: Callable[..., Any]
    ) -> Any:
        """Wait for a future until the time is over by this clock."""
        until = self.monotonic() + (seconds or 0.0)
        while seconds is not None and not future.done():
            try:
                return result(0.01)
            except TimeoutError:
                if self.monotonic() >= until and not future.done():
                    raise
        return result(None)


class Wire:
    """The wire to the cloud: counts the requests, and lets one of them go wrong."""

    def __init__(self, cloud: StatefulCloud, clock: HttpClock) -> None:
        self.asked: list[Asked] = []
        self.fired = False
        self._cloud, self._clock = cloud, clock
        self._counts: Counter[str] = Counter()
        self._due: tuple[Asked, str] | None = None
        self._faulty: list[PreparedRequest] = []
        self._held: list[PreparedRequest] = []
        self._lock = threading.RLock()

    def arm(self, asked: Asked | None = None, fault: str = "") -> None:
        """Count anew, and let a request go wrong."""
        self.asked, self.fired, self._faulty = [], False, []
        self._counts.clear()
        self._due = (asked, fault) if asked else None
        coming = {"time-out, unseen": self.let_come, "time-out, later": self._cloud.settle}
        self._clock.waits = coming.get(fault, lambda: None)

    def let_come(self) -> None:
        """Let those take effect that were looked for in vain."""
        with self._lock:
            held, self._held = self._held, []
            for request in held:
                self._cloud.serve(request)

    def send(self, _: HTTPAdapter, request: PreparedRequest, **how: Any) -> Response:
        """Answer a request in place of the adapter."""
        with self._lock:
            fault = self._fault_of(request)
            return self._wrong(fault, request, how["timeout"]) if fault else self._serve(request)

    def _fault_of(self, request: PreparedRequest) -> str:
        if any(request is known for known in self._faulty):
            again = self._due is not None and self._due[1] not in _ONCE
            return self._due[1] if self._due and again else ""
        asked = self._count(request)
        if self._due is None or not (asked == self._due[0] or self._logged_in_again(request)):
            return ""
        self._faulty, self.fired = [*self._faulty, request], True
        return self._due[1]

    def _logged_in_again(self, request: PreparedRequest) -> bool:
        """Return whether it is the one that was refused, with another token."""
        refused = self._due is not None and self._due[1] == "401" and len(self._faulty) == 1
        return refused and (request.method, request.url) == (
            self._faulty[0].method,
            self._faulty[0].url,
        )

    def _count(self, request: PreparedRequest) -> Asked:
        what = _label(request)
        self._counts[what] += 1
        asked = Asked(what, self._counts[what])
        self.asked.append(asked)
        return asked

    def _serve(self, request: PreparedRequest) -> Response:
        status, headers, text = self._cloud.serve(request)
        return _response(request, status, headers, text.encode())

    def _wrong(self, fault: str, request: PreparedRequest, timeout: Any) -> Response:
        what, _, when = fault.partition(" ")
        reads = _READING.match(_label(request))
        if when == "after" or (fault in UNREADABLE and not reads):
            self._serve(request)
        if fault == "time-out, later":
            self._cloud.later(lambda: self._cloud.serve(request), _LATER)
        if fault in UNSEEN:
            self._held.append(request)
        if what.startswith("time-out"):
            self._clock.sleep(timeout[1])
            raise requests.exceptions.ReadTimeout("timed out", request=request)
        if what == "reset":
            raise requests.exceptions.ConnectionError("Connection reset by peer", request=request)
        if fault == INCOMPLETE:
            return _incomplete(self._serve(request))
        if fault == "truncated":
            raise requests.exceptions.ChunkedEncodingError("IncompleteRead", request=request)
        return _answer(fault, what, request)


def _answer(fault: str, what: str, request: PreparedRequest) -> Response:
    if fault in UNREADABLE:
        return _response(request, 200, {}, _BODIES[fault])
    headers = {"Retry-After": str(_RETRY_AFTER)} if what in {"413", "429"} else {}
    return _response(request, int(what), headers, b'{"error": {"message": "it was told to"}}')


def _incomplete(response: Response) -> Response:
    """Leave out of an answer what it lists."""
    told = response.json()
    ((kind, found),) = told.items() if len(told) == 1 else (("", None),)
    alone = isinstance(found, dict) and kind == "server"
    if kind in {"server", "servers"} and not urlsplit(response.url).query:
        # Asked for by id, or without a filter: Nova says that it does not know.
        hidden = [_unknown(server["id"]) for server in ([found] if alone else found)]
        told = {kind: hidden[0] if alone else hidden}
    elif isinstance(found, list):
        told = {kind: []}
    response._content = json.dumps(told).encode()
    return response


def _response(
    request: PreparedRequest, status: int, headers: dict[str, str], content: bytes
) -> Response:
    response = Response()
    response.status_code, response.request, response.url = status, request, request.url or ""
    response.headers.update({"Content-Type": "application/json", **headers})
    response._content, response._content_consumed = content, True  # type: ignore[attr-defined]
    return response


def _label(request: PreparedRequest) -> str:
    path = _ID.sub("ID", urlsplit(request.url or "").path)
    _, service, *rest = path.split("/", 2)
    name = re.match(r'{"([^"]+)"', str(request.body)) if path.endswith("/action") else None
    action = f" {name[1]}" if name else ""
    tail = re.sub(r"^v[\d.]+(/[0-9a-f]{32})?", "", "/".join(rest))
    return f"{request.method} {service} {tail or '/'}{action}"


@contextmanager
def on(cloud: StatefulCloud) -> Iterator[tuple[Wire, HttpClock]]:
    """Let the drivers of this process ask the cloud while the block runs; time is skipped."""
    clock = HttpClock()
    wire = Wire(cloud, clock)

    def send(adapter: HTTPAdapter, request: PreparedRequest, **how: Any) -> Response:
        return wire.send(adapter, request, **how)

    with ExitStack() as stack:
        replace = lambda *what: stack.enter_context(patch.object(*what))  # noqa: E731
        replace(HTTPAdapter, "send", send)
        # It looks for files in the home directory, and reads the environment, at each request.
        replace(requests.sessions, "get_netrc_auth", lambda _: None)
        replace(requests.sessions, "get_environ_proxies", lambda *_, **__: {})
        for module in (deadline, poller, tenacity, tenacity.nap):
            replace(module, "time", clock)
        for module in (deadline, late_calls):
            replace(module, "wait", clock.wait)
        replace(deadline, "_rest", clock.rest)
        replace(deadline, "Future", _future(clock, Over))
        replace(poller, "Future", _future(clock, Future))
        replace(poller, "_changed", _Condition(clock))
        stack.callback(clock.end)
        yield wire, clock


def _future(clock: HttpClock, base: type["Future[Any]"]) -> type["Future[Any]"]:
    class Limited(base):  # type: ignore[misc,valid-type]
        def result(self, timeout: float | None = None) -> Any:
            return clock.limit(self, timeout, lambda t: Future.result(self, t))

    Limited.clock = clock  # type: ignore[attr-defined]
    return Limited


class _Condition(threading.Condition):
    """Who waits for something to change waits by the clock."""

    def __init__(self, clock: HttpClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return super().wait(0)
