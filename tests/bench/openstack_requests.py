"""Which requests our drivers send: noted by the log of the transport that sends them."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

# The poller's threads, see fabric_direct/drivers/openstack/client/poller.py.
_POLLING = ("fabric-direct-servers", "fabric-direct-ports", "fabric-direct-volumes")
_LOG = logging.getLogger("fabric_direct.drivers.openstack.client.transport")


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as it went over the wire."""

    at: float
    """Seconds after the first moment of the recording."""
    method: str
    path: str
    status: int
    polling: bool
    """Whether it was repeated by waiting for something."""


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.began = time.time()
        self.found: list[Request] = []

    def emit(self, record: logging.LogRecord) -> None:
        method, url, status, *_ = record.args or ("", "", 0)  # type: ignore[misc]
        address = urlsplit(str(url))
        path = f"{address.path}?{address.query}" if address.query else address.path
        # What the console is asked for is repeated until the guest has shown its host key.
        polling = (record.threadName or "").startswith(_POLLING) or (
            method == "POST" and address.path.endswith("/action")
        )
        at = record.created - self.began
        self.found.append(Request(at, str(method), path, int(str(status)), polling))


@contextmanager
def recorded() -> Iterator[list[Request]]:
    """Note all requests that are sent within the block, in order."""
    recorder, level = _Recorder(), _LOG.level
    _LOG.addHandler(recorder)
    _LOG.setLevel(logging.DEBUG)
    try:
        yield recorder.found
    finally:
        _LOG.removeHandler(recorder)
        _LOG.setLevel(level)


def tell(requests: list[Request]) -> None:
    """Print them, what was repeated once with its number."""
    polls = [request for request in requests if request.polling]
    seen: set[str] = set()
    for request in requests:
        what = f"{request.method} {request.path.partition('?')[0] if request.polling else request.path}"
        if request.polling and what in seen:
            continue
        seen.add(what)
        count = sum(1 for p in polls if p.method == request.method and _same(p, request))
        times = f"  (polling, {count} times)" if request.polling else ""
        print(f"  {request.at:7.3f} s  {what[:110]}  {request.status}{times}")  # noqa: T201


def _same(one: Request, other: Request) -> bool:
    return one.path.partition("?")[0] == other.path.partition("?")[0]
