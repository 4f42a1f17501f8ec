"""Requests to the HTTP API of a controller: each on a connection of its own, within a limit, sent once.

What changes something and gets no answer may still take effect, and is noted
(:func:`fabric_direct.calls.deadline.unanswered`). No error repeats a credential, or a secret of a body.
"""

import json
import logging
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay
from tenacity import wait_exponential as exponential

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import (
    call_within,
    noting,
    time_left,
    took_effect,
    unanswered,
    wait_until,
)
from fabric_direct.errors import (
    Conflict,
    Denied,
    DriverError,
    FabricDirectError,
    InvalidSite,
    NotFound,
    TimedOut,
    Unreachable,
    Unsupported,
)

T = TypeVar("T")
Json = dict[str, Any]

_MOST_BYTES = 64 * 2**20
_LONGEST_REASON = 2000
# Share of a request's limit in which an answer that was lost is looked for.
_LOOKING = 1 / 4
_KINDS: dict[int, type[FabricDirectError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    405: Unsupported,
    409: Conflict,
    501: Unsupported,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)


_of_ours: ContextVar[bool] = ContextVar("of_ours", default=False)
"""Whether a request of this module is under way."""


class _WithoutHeaders(logging.Filter):
    """Keeps the headers of answers, which may have tokens, out of httpcore's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (_of_ours.get() and "response_headers.complete" in record.getMessage())


logging.getLogger("httpcore.http11").addFilter(_WithoutHeaders())


class Unclear(Exception):
    """Marks, as ``__cause__``, an error after which a request may have been carried out."""


def unclear(error: FabricDirectError) -> bool:
    """Return whether the request may have been carried out although it failed."""
    return isinstance(error.__cause__, Unclear)


@dataclass(frozen=True, slots=True)
class Access:
    """The URL and CA file of an API, and its names for messages."""

    name: str
    """What messages call it."""
    field: str
    """Of site.yaml: ``services.nso``."""
    url: str
    ca_file: Path | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request, whatever its status."""

    status: int
    headers: httpx.Headers
    content: bytes


class HttpApi:
    """An HTTP API; used by many threads, and across forks: it keeps no connection."""

    def __init__(self, access: Access, limit: float) -> None:
        """Send nothing yet.

        :param limit: seconds for a request with its answer.
        """
        self._access, self._limit = access, limit
        self.where = urlsplit(access.url).netloc
        self._up = f"check that {access.name} is up and that this machine reaches it"

    def exchange(
        self,
        said: str,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        headers: Mapping[str, str],
        auth: tuple[str, str] | None = None,
    ) -> Answer:
        """Send a request; return the answer, whatever its status.

        :param said: the request, for messages.
        :raises Unreachable: with :class:`Unclear` as its cause if the request may have been sent.
        :raises TimedOut: likewise.
        """
        self._refuse_in_clear()
        limit, url = time_left(self._limit), self._access.url.rstrip("/") + path
        how = {"verify": self._trusted, "timeout": limit, "trust_env": False, "auth": auth}
        try:
            return call_within(limit, said, _exchange, method, url, body, dict(headers), how)
        except TimedOut as error:
            error.where = self.where
            raise error from (Unclear() if limit else None)
        except httpx.TimeoutException as error:
            raise self._silent(TimedOut, f"no answer within {limit:.1f} s") from _cause(error)
        except httpx.ConnectError as error:
            raise self._silent(Unreachable, _why_not(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self._silent(Unreachable, "the connection broke") from _cause(error)

    def _silent(self, kind: type[FabricDirectError], why: str) -> FabricDirectError:
        return self.error(kind, f"{self._access.name} does not answer", why, self._up)

    def _refuse_in_clear(self) -> None:
        address = urlsplit(self._access.url)
        if address.scheme == "http" and not _loopback(address.hostname or ""):
            what = "the password would be sent unencrypted over the network"
            field = f"{self._access.field}.url"
            raise InvalidSite(what, field=field, remedy="use https")

    @forks.cached_property
    def _trusted(self) -> ssl.SSLContext:
        path = self._access.ca_file
        try:
            return ssl.create_default_context(cafile=path)
        except (OSError, ssl.SSLError) as error:
            what, field = f"cannot read certificates from {path}", f"{self._access.field}.ca_file"
            raise InvalidSite(what, field=field, why=str(error)) from error

    def secret(self, name: str, path: Path) -> str:
        """Return the first line of a file.

        :param name: its field below that of the API.
        :raises InvalidSite: if it cannot be read, or is empty.
        """
        field = f"{self._access.field}.{name}"
        try:
            line, *_ = path.read_text(encoding="utf-8").splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise InvalidSite(f"cannot read {path}", field=field, why=why) from error
        if not line:
            raise InvalidSite(f"{path} is empty", field=field)
        return line

    # --- what comes back

    def parsed(self, said: str, content: bytes, *kinds: type) -> Any:
        """Return the JSON of an answer, an empty object if it says nothing.

        :param kinds: what it may be; an object if absent.
        """
        if not content.strip():
            return {}
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, kinds or (dict,)):
            return answer
        why = f"the answer to {said} is not the JSON that it should be"
        what = f"{self._access.name}'s answer is invalid"
        raise self.error(DriverError, what, why) from Unclear()

    def refuse(
        self,
        said: str,
        status: int,
        words: str,
        *,
        usual: type[FabricDirectError] = DriverError,
        remedies: Mapping[int, str],
        unknown: bool,
    ) -> NoReturn:
        """Raise the error of a status.

        :param words: the reason that the API gives, if it gives one.
        :param usual: the error of a status that has none of its own.
        :param unknown: whether the request may have been carried out.
        """
        kind = _KINDS.get(status, usual)
        remedy = self._up if kind is Unreachable and not words else remedies.get(status, "")
        what, why = f"{self._access.name} refuses {said}", words or f"HTTP status {status}"
        raise self.error(kind, what, why, remedy) from (Unclear() if unknown else None)

    def error(
        self, kind: type[FabricDirectError], what: str, why: str, remedy: str = ""
    ) -> FabricDirectError:
        """Return an error of this API."""
        return kind(what, where=self.where, why=why, remedy=remedy)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turn what a document of an unexpected form makes into an error of the driver."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            why = f"{type(error).__name__} in what {self._access.name} has"
            raise self.error(DriverError, f"cannot read {what}", why) from error


@contextmanager
def changing(said: str) -> Iterator[None]:
    """Note a request that changes something: as unanswered if it is unclear what came of it."""
    try:
        yield
    except FabricDirectError as error:
        if unclear(error):
            unanswered(said)
        raise
    took_effect()


def change_once(change: Callable[[], T], so: Callable[[], bool], limit: float) -> T | None:
    """Change something once; if the answer was lost, look whether it was done.

    :param so: returns whether it is done.
    :param limit: seconds that a request may take.
    :return: the answer; None if it was lost, and the change is done.
    """
    with noting() as noted:
        try:
            answer = change()
        except FabricDirectError as error:
            if not unclear(error) or not _comes(so, limit):
                raise
            answer = None
    for request in noted:
        request.known()
    return answer


def await_end(what: str, so: Callable[[], bool], limit: float) -> None:
    """Block until what was asked for has ended.

    :param limit: seconds, if the current call is not given up before.
    :raises TimedOut: if it has not ended then; it may still take effect, which is noted.
    """
    try:
        wait_until(what, so, timeout=time_left(limit))
    except TimedOut:
        unanswered(what)
        raise


def _comes(so: Callable[[], bool], limit: float) -> bool:
    """Look for what a lost answer would have said; return whether it is so."""
    retrying = Retrying(
        retry=retry_if_result(lambda done: not done) | retry_if_exception_type(FabricDirectError),
        wait=exponential(multiplier=0.1, max=2.0),
        stop=stop_after_delay(time_left(limit * _LOOKING)),
        retry_error_callback=lambda _: False,
    )
    return bool(retrying(so))


def legible(said: str, secrets: Collection[str]) -> str:
    """Return what an API says without anything secret, on one line, cut if it is long."""
    for secret in filter(None, secrets):
        said = said.replace(secret, "…")
    return "".join(c if c.isprintable() else " " for c in said[:_LONGEST_REASON])


def values_of(names: Collection[str], document: Any) -> Iterator[str]:
    """Yield the values that a document has of fields of these names, at whatever depth."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            if key in names:
                yield str(value)
            yield from values_of(names, value)
    elif isinstance(document, list):
        for each in document:
            yield from values_of(names, each)


def _exchange(
    method: str, url: str, body: Json | None, headers: dict[str, str], how: Json
) -> Answer:
    content = None if body is None else json.dumps(body).encode()
    headers |= {"Accept-Encoding": "identity"}
    _of_ours.set(True)
    with (
        httpx.Client(**how) as client,
        client.stream(method, url, headers=headers, content=content) as response,
    ):
        whole = bytearray()
        for chunk in response.iter_bytes():
            whole += chunk
            if len(whole) > _MOST_BYTES:
                raise httpx.StreamError(f"longer than {_MOST_BYTES} bytes")
        return Answer(response.status_code, response.headers, bytes(whole))


def _cause(error: Exception) -> Exception:
    """Return what is to be the cause: the error, or a mark that the request may have been sent."""
    if isinstance(error, _UNSENT):
        return error
    mark = Unclear(type(error).__name__)
    mark.__cause__ = error
    return mark


def _why_not(error: httpx.ConnectError) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not trusted"
    return "no TLS" if "SSL" in str(error) else "no connection"


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
