"""Send requests to the cloud: within a limit, retried where that is safe, each read once per cache.

==================  =======================  ======================================================
method              tries                    with a read cache
==================  =======================  ======================================================
GET                 at most 4, all begun     answered from the cache if it was asked before
HEAD                within the limit         passed
DELETE                                       invalidates what it affects, or the cache
POST, PUT, PATCH    1                        a POST that creates one thing invalidates its kind,
                                             every other write invalidates the cache
POST that reads     as GET                   passed
(token, console)
==================  =======================  ======================================================

A request that changes something and gets no answer, or 500, 502 or 504, is recorded: it may still take
effect (:func:`fabric_direct.calls.deadline.unanswered`).
"""

import copy
import json
import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from queue import Full, LifoQueue
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import requests
from keystoneauth1.session import TCPKeepAliveAdapter
from requests import PreparedRequest, Response
from requests.exceptions import InvalidJSONError
from tenacity import (
    Future,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3.exceptions import ConnectTimeoutError, InvalidHeader, ProxyError

from fabric_direct.calls.deadline import took_effect, trying_again, unanswered
from fabric_direct.calls.read_cache import ReadCache, current
from fabric_direct.calls.tracing import remote
from fabric_direct.drivers.openstack.client.kept_session import KeptSession
from fabric_direct.errors import InvalidSite

COLLECTIONS = frozenset(
    {
        "servers",
        "ports",
        "floatingips",
        "policies",
        "networks",
        "subnets",
        "routers",
        "volumes",
        "flavors",
        "images",
    }
)
# What changes with a thing that is deleted; all, if its kind is not here. With a server go the ports and
# volumes that Nova made for it; it lets go of the others.
_DELETED_WITH = {
    "floatingips": ("floatingips",),
    "policies": ("policies",),
    "ports": ("ports", "floatingips"),
    "servers": ("servers", "ports", "floatingips", "volumes", ""),
}
# POSTs that change nothing in the cloud and may be repeated: the one for a token, and Nova's way of
# reading a console.
LOGIN = "/auth/tokens"
_READ_CONSOLE = '{"os-getConsoleOutput"'
_SAFE = frozenset({"GET", "HEAD", "DELETE"})
_BUSY = frozenset({429, 502, 503, 504})
# The API failed while it worked on the request, or a proxy got no answer: it may still take effect.
# Who answers 501 or 503 has not begun.
_FAILED = frozenset({500, 502, 504})
_TRIES = 4
# Share of a call's limit for one try: a third for a request that is retried, two thirds for one that is
# not, so that there is time left to look whether it was carried out.
_SAFE_SHARE, _UNSAFE_SHARE = 1 / 3, 2 / 3
_CONNECT = 10.0
IDLE = 4
"""Connections that are kept open to an API between requests.

A server of eventlet's, as Neutron's was up to 2025, has a place for a hundred, and keeps one for 900 s
(``wsgi_default_pool_size``, ``client_socket_timeout``): a process that kept 32 took a third of them.
"""
# Headers that distinguish two requests for the same URL.
_HEADERS = ("Accept", "OpenStack-API-Version", "X-OpenStack-Nova-API-Version", "Range")

T = TypeVar("T")

_log = logging.getLogger(__name__)
_past: ContextVar[bool] = ContextVar("past", default=False)


@contextmanager
def uncached() -> Iterator[None]:
    """Read past the read cache within the block.

    For what changes by itself, and what is looked at again. What is written within the block
    invalidates the cache as ever.
    """
    before = _past.set(True)
    try:
        yield
    finally:
        _past.reset(before)


def shared(key: Hashable, question: Callable[[], T], about: str) -> T:
    """Return the answer to a question of one or more requests; with a read cache, ask only once.

    :param about: the collection that it is about.
    """
    reads = current()
    if reads is None or _past.get():
        return question()
    return reads.get(key, question, about)


def server_deleted() -> None:
    """Invalidate what changes with a server: it is gone now, some time after the request."""
    if reads := current():
        reads.invalidate(*_DELETED_WITH["servers"])


def learn(key: Hashable, answer: object, about: str) -> None:
    """Keep the answer to such a question, which was read just now."""
    if reads := current():
        reads.put(key, answer, about)


class _Idle(LifoQueue[Any]):
    """A pool's connections that wait for a request; one that finds no room is closed, without a word."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        try:
            super().put(item, block, timeout)
        except Full:
            if item:  # None stands for one that broke
                item.close()


class _HttpPool(HTTPConnectionPool):
    QueueCls = _Idle


class _HttpsPool(HTTPSConnectionPool):
    QueueCls = _Idle


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class Transport(TCPKeepAliveAdapter):
    """The adapter of a connection's requests.

    Each request has a connection at once, and :data:`IDLE` are kept open to each API for the next ones.

    :param limit: time for a request with all of its tries, in seconds.
    :param kept: what an earlier process has learned of the cloud.
    """

    def __init__(self, limit: float, kept: KeptSession | None = None) -> None:
        self._limit, self._kept = limit, kept
        super().__init__(pool_connections=16, pool_maxsize=IDLE)

    def init_poolmanager(self, *args: Any, **how: Any) -> None:
        """Make what has the pools of connections."""
        super().init_poolmanager(*args, **how)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **how: Any) -> Any:
        """Return what has the pools of a proxy's connections."""
        manager = super().proxy_manager_for(*args, **how)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,  # noqa: ARG002 - each try has a time of its own
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request; with a read cache, answer from it or invalidate it."""
        if self._kept and (known := self._kept.answer(request)):
            return known
        how = {"stream": stream, "verify": verify, "cert": cert, "proxies": proxies}
        reads = current()
        if reads is None or request.method == "HEAD" or _reads(request):
            return self._send(request, how)
        if request.method != "GET":
            return self._change(reads, request, how)
        if stream or _past.get():
            return self._send(request, how)
        return self._read(reads, request, how)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Set what a connection uses of TLS.

        :raises InvalidSite: if a file of certificates or keys, which was there, is not there any more.
        """
        usual: Any = super().cert_verify
        try:
            usual(conn, url, verify, cert)
        except OSError as error:
            what, why = (
                "cannot send anything",
                "a file of cacert, cert or key is not there any more",
            )
            raise InvalidSite(what, field="openstack.cloud", why=why) from error

    def _read(self, reads: ReadCache, request: PreparedRequest, how: dict[str, Any]) -> Response:
        asked = (id(self), request.url, *(request.headers.get(name) for name in _HEADERS))
        try:
            answer = reads.get(asked, lambda: self._good(request, how), about=topic(request))
        except _Refused as refused:
            return refused.response
        return _own(answer)

    def _good(self, request: PreparedRequest, how: dict[str, Any]) -> Response:
        response = self._send(request, how)
        if not response.ok:
            raise _Refused(response)
        return response

    def _change(self, reads: ReadCache, request: PreparedRequest, how: dict[str, Any]) -> Response:
        affected = _affected(request)
        reads.invalidate(*affected)
        try:
            return self._send(request, how)
        finally:
            reads.invalidate(*affected)

    def _send(self, request: PreparedRequest, how: dict[str, Any]) -> Response:
        try:
            response = self._tried(request, how)
        except (requests.ConnectionError, requests.Timeout) as error:
            if not unsent(error):
                _note(request)
            raise
        if response.status_code in _FAILED:
            _note(request)
        elif response.ok and _changes(request):
            took_effect()
        return response

    def _tried(self, request: PreparedRequest, how: dict[str, Any]) -> Response:
        if request.method not in _SAFE and not _reads(request):
            return self._try(request, how, self._limit * _UNSAFE_SHARE)
        retrying = Retrying(
            retry=retry_if_exception_type(_TRANSIENT) | retry_if_result(_busy),
            stop=stop_after_attempt(_TRIES) | stop_before_delay(self._limit),
            wait=_wait,
            before_sleep=trying_again,
            retry_error_callback=lambda state: cast(Future, state.outcome).result(),
        )
        return retrying(self._try, request, how, self._limit * _SAFE_SHARE)

    def _try(self, request: PreparedRequest, how: dict[str, Any], limit: float) -> Response:
        began = time.monotonic()
        with remote(f"{request.method} {_path(request)}"):
            response = super().send(request, timeout=(min(_CONNECT, limit), limit), **how)
            if not how["stream"]:
                # Read the body here, so that a response that breaks off, or is no JSON, is retried, too.
                _refuse_unreadable(response)
        if self._kept and not how["stream"]:
            self._kept.learn(request, response)
        _log.debug(
            "%s %s: %d in %d ms, %s",
            request.method,
            request.url,
            response.status_code,
            (time.monotonic() - began) * 1000,
            response.headers.get("x-openstack-request-id", "no request id"),
        )
        return response


_TRANSIENT = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    InvalidJSONError,
)
_backoff = wait_random_exponential(multiplier=0.5, max=8.0)


class _Refused(Exception):
    """Carries an answer that is an error, so that it is not kept."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def unsent(error: BaseException | None) -> bool:
    """Return whether a request failed before anything was sent."""
    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = error.args[0] if error is not None and error.args else None
    reason = getattr(reason, "reason", reason)
    return isinstance(reason, ConnectTimeoutError | ProxyError) or (
        "CERTIFICATE_VERIFY_FAILED" in str(reason)
    )


def _changes(request: PreparedRequest) -> bool:
    return request.method not in {"GET", "HEAD"} and not _reads(request)


def _note(request: PreparedRequest) -> None:
    """Note a request that got no answer, unless it only reads; what it does no cache sees."""
    if _changes(request):
        reads = current() or ReadCache()
        unanswered(f"{request.method} {_path(request)}{_name(request)}", reads.invalidate)


def _name(request: PreparedRequest) -> str:
    """Return the name of what a request is to make, if it has one."""
    with suppress(ValueError, TypeError, AttributeError):
        asked: Any = next(iter(json.loads(request.body or "{}").values()), {})
        return f" ({asked['name']})" if "name" in asked else ""
    return ""


def _own(answer: Response) -> Response:
    """Return a copy for one caller: what sends requests writes on their answers."""
    own = copy.copy(answer)
    own.history = []
    return own


def topic(request: PreparedRequest) -> str:
    """Return the collection that a request is about, or "" if it is about none of them."""
    return next((part for part in _path(request).split("/") if part in COLLECTIONS), "")


def _affected(request: PreparedRequest) -> tuple[str, ...]:
    """Return the collections of which a request changes something, or nothing if it may be of all."""
    *_, kind, last = ("", *_path(request).split("/"))
    if request.method == "POST" and last in COLLECTIONS:
        return (last,)
    return _DELETED_WITH.get(kind, ()) if request.method == "DELETE" else ()


def _reads(request: PreparedRequest) -> bool:
    """Return whether it is a POST that changes nothing."""
    content = request.body if isinstance(request.body, str) else ""
    return _path(request).endswith(LOGIN) or content.startswith(_READ_CONSOLE)


def _path(request: PreparedRequest) -> str:
    return urlsplit(request.url or "").path.rstrip("/")


def _refuse_unreadable(response: Response) -> None:
    """Raise InvalidJSONError if a success has a body that is no JSON.

    openstacksdk would take what a creation made, or what was read, for a thing without an id.
    """
    if not (response.ok and response.content):
        return
    try:
        response.json()
    except InvalidJSONError:
        raise
    except (RecursionError, ValueError) as error:  # too deep, or a number of too many digits
        raise InvalidJSONError(f"{type(error).__name__}: {error}", response=response) from error


def _busy(response: Response) -> bool:
    return response.status_code in _BUSY


def _wait(state: RetryCallState) -> float:
    """Return how long the API wants us to wait, or what the backoff says."""
    outcome = state.outcome
    if outcome is not None and not outcome.failed:
        wanted = outcome.result().headers.get("Retry-After")
        with suppress(InvalidHeader):
            return float(Retry().parse_retry_after(wanted)) if wanted else _backoff(state)
    return _backoff(state)
