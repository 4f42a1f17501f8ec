"""Requests to NSO by RESTCONF (RFC 8040): each on a connection of its own, within a limit, sent once.

What changes something and gets no answer may still take effect, and is noted
(:func:`fabric_direct.deadline.unanswered`). No error repeats the password, or a secret of a body.
"""

import base64
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from fabric_direct import forks
from fabric_direct.deadline import call_within, time_left, took_effect, unanswered
from fabric_direct.errors import (
    Conflict,
    Denied,
    DriverError,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.service_settings import NsoSettings

_JSON = "application/yang-data+json"
_VERSION = "tailf-ncs-monitoring:ncs-state/version"
STRUCTURED = (6, 6)
"""The version from which commit parameters are one JSON document."""
_MOST_BYTES = 64 * 2**20
_LONGEST_REASON = 2000
_UP = "check that NSO is up and that this machine reaches it"
_ERRORS: dict[int, tuple[type[FabricDirectError], str]] = {
    401: (Denied, "check services.nso: user and password_file"),
    403: (Denied, "the user needs the right to it in NSO (NACM)"),
    404: (NotFound, ""),
    405: (Unsupported, ""),
    409: (Conflict, "try again later if another transaction has the lock"),
    501: (Unsupported, ""),
    502: (Unreachable, _UP),
    503: (Unreachable, _UP),
    504: (Unreachable, _UP),
}
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)

Json = dict[str, Any]


class Unclear(Exception):
    """Marks, as ``__cause__``, an error after which a request may have been carried out."""


class Restconf:
    """NSO's RESTCONF API; used by many threads, and across forks: it keeps no connection."""

    def __init__(self, settings: NsoSettings, limit: float) -> None:
        """Send nothing yet.

        :param limit: seconds for a request with its answer.
        """
        self._settings, self._limit = settings, limit
        self.where = urlsplit(settings.url).netloc

    # --- what is asked

    def read(self, path: str, query: str = "") -> Json | None:
        """Return a resource of the datastore, or None if there is none.

        :raises DriverError: if who says so is not NSO's RESTCONF.
        """
        try:
            return self._send("GET", f"/data/{path}{query}")
        except NotFound:
            self.version  # noqa: B018 - another server says 404 of everything
            return None

    def commit(self, method: str, path: str, body: Json | None = None, comment: str = "") -> Json:
        """Change the datastore, in one transaction of NSO and its devices; return what NSO says."""
        asked = {"label": "fabric-direct", "comment": comment} if self._structured else {}
        return self._send(method, f"/data/{path}{self._parameters(asked)}", body)

    def dry_run(self, method: str, path: str, body: Json) -> None:
        """Have NSO say what a change would do, and change nothing.

        :raises InvalidSliver: if NSO refuses it.
        :raises DriverError: if NSO does not say that it was a dry run.
        """
        asked = {"dry-run": {"outformat": "native"}}
        query = self._parameters(asked)
        answer = self._send(
            method, f"/data/{path}{query}", body, changes=False, refused=InvalidSliver
        )
        if not any(key.rpartition(":")[2] == "dry-run-result" for key in answer):
            why = "its answer has no dry-run-result: it may have made the service"
            raise self._error(DriverError, "NSO made no dry run", why)

    def act(self, path: str, values: Json, *, changes: bool = False) -> Json:
        """Call an action; return its output."""
        answer = self._send("POST", f"/data/{path}", {"input": values}, changes=changes)
        outputs = [value for key, value in answer.items() if key.rpartition(":")[2] == "output"]
        return outputs[0] if outputs and isinstance(outputs[0], dict) else {}

    @forks.cached_property
    def version(self) -> tuple[int, ...]:
        """Return NSO's version.

        :raises InvalidSite: if the address is not that of NSO's RESTCONF.
        """
        try:
            answer = self._send("GET", f"/data/{_VERSION}")
        except NotFound as error:
            raise self._no_restconf(error.why) from error
        said = str(next(iter(answer.values()), ""))
        numbers = re.match(r"(\d{1,4})\.(\d{1,4})", said)
        if numbers is None:
            raise self._no_restconf(f"it says that its version is {said[:40]!r}")
        return tuple(map(int, numbers.groups()))

    def _no_restconf(self, why: str) -> InvalidSite:
        field, remedy = "services.nso.url", "it ends with /restconf"
        what = "is not the root of NSO's RESTCONF API"
        return InvalidSite(what, field=field, where=self.where, why=why, remedy=remedy)

    @property
    def _structured(self) -> bool:
        style = self._settings.commit_parameters
        return style == "json" if style else self.version >= STRUCTURED

    def _parameters(self, asked: Json) -> str:
        """Return commit parameters as a query.

        Newer versions take them in a header, too. An unknown header is passed over, and a dry run would
        commit; an unknown query is refused.
        """
        if self._structured:
            text = base64.b64encode(json.dumps(asked).encode()).decode()
            return f"?params={quote(text, safe='')}"
        return "?dry-run=native" if "dry-run" in asked else ""

    # --- how

    def _send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        changes: bool | None = None,
        refused: type[FabricDirectError] = DriverError,
    ) -> Json:
        """Send a request, once; return the JSON of the answer, empty if there is none.

        :param refused: the error of a document that NSO does not take.
        """
        said = f"{method} {path.partition('?')[0]}"
        changes = method != "GET" if changes is None else changes
        try:
            status, content = self._exchanged(said, method, path, body)
            self._raise_for_status(said, status, content, _secrets(body), refused)
            answer = self._parsed(said, content)
        except FabricDirectError as error:
            if changes and unclear(error):
                unanswered(said)
            raise
        if changes:
            took_effect()
        return answer

    def _exchanged(self, said: str, method: str, path: str, body: Json | None) -> tuple[int, bytes]:
        limit, how = time_left(self._limit), self._how()
        try:
            return call_within(limit, said, _exchange, method, self._url(path), body, how)
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
        return self._error(kind, "NSO does not answer", why, _UP)

    def _url(self, path: str) -> str:
        return self._settings.url.rstrip("/") + path

    def _how(self) -> Json:
        self._refuse_in_clear()
        timeout = httpx.Timeout(time_left(self._limit))
        auth = (self._settings.user, self._password())
        return {"auth": auth, "verify": self._trusted, "timeout": timeout, "trust_env": False}

    def _password(self) -> str:
        path = self._settings.password_file
        try:
            line, *_ = path.read_text(encoding="utf-8").splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise InvalidSite(
                f"cannot read {path}", field="services.nso.password_file", why=why
            ) from error
        if not line:
            raise InvalidSite(f"{path} is empty", field="services.nso.password_file")
        return line

    def _refuse_in_clear(self) -> None:
        address = urlsplit(self._settings.url)
        if address.scheme == "http" and not _loopback(address.hostname or ""):
            what = "the password would be sent unencrypted over the network"
            raise InvalidSite(what, field="services.nso.url", remedy="use https")

    @forks.cached_property
    def _trusted(self) -> ssl.SSLContext:
        path = self._settings.ca_file
        try:
            return ssl.create_default_context(cafile=path)
        except (OSError, ssl.SSLError) as error:
            what, field = f"cannot read certificates from {path}", "services.nso.ca_file"
            raise InvalidSite(what, field=field, why=str(error)) from error

    # --- what comes back

    def _parsed(self, said: str, content: bytes) -> Json:
        if not content.strip():
            return {}
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            return answer
        why = f"the answer to {said} is no JSON object"
        raise self._error(DriverError, "NSO's answer is invalid", why) from Unclear()

    def _raise_for_status(
        self,
        said: str,
        status: int,
        content: bytes,
        secrets: tuple[str, ...],
        refused: type[FabricDirectError],
    ) -> None:
        if 200 <= status < 300:
            return
        usual = refused if status == 400 else DriverError
        kind, remedy = _ERRORS.get(status, (usual, ""))
        words = self._words(content, secrets)
        why = words or f"HTTP status {status}"
        cause: Exception | None = Unclear() if _unknown(status, words) else None
        if status == 404 and not words:  # a proxy, or another server
            kind, why = DriverError, "HTTP status 404, not from NSO's RESTCONF"
        raise self._error(kind, f"NSO refuses {said}", why, remedy) from cause

    def _words(self, content: bytes, secrets: tuple[str, ...]) -> str:
        """Return what NSO says of an error, without anything secret."""
        said = "; ".join(_messages(content))[:_LONGEST_REASON]
        for secret in (self._password(), *secrets):
            said = said.replace(secret, "…")
        return "".join(c if c.isprintable() else " " for c in said)

    def _error(
        self, kind: type[FabricDirectError], what: str, why: str, remedy: str = ""
    ) -> FabricDirectError:
        return kind(what, where=self.where, why=why, remedy=remedy)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turn what a document of an unexpected form makes into an error of the driver."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            why = f"{type(error).__name__} in what NSO has"
            raise self._error(DriverError, f"cannot read {what}", why) from error


def unclear(error: FabricDirectError) -> bool:
    """Return whether the request may have been carried out although it failed."""
    return isinstance(error.__cause__, Unclear)


def _exchange(method: str, url: str, body: Json | None, how: Json) -> tuple[int, bytes]:
    headers = {"Accept": _JSON, "Content-Type": _JSON, "Accept-Encoding": "identity"}
    content = None if body is None else json.dumps(body).encode()
    with (
        httpx.Client(**how) as client,
        client.stream(method, url, headers=headers, content=content) as response,
    ):
        whole = bytearray()
        for chunk in response.iter_bytes():
            whole += chunk
            if len(whole) > _MOST_BYTES:
                raise httpx.StreamError(f"longer than {_MOST_BYTES} bytes")
        return response.status_code, bytes(whole)


def _cause(error: Exception) -> Exception:
    """Return what is to be the cause: the error, or a mark that the request may have been sent."""
    if isinstance(error, _UNSENT):
        return error
    mark = Unclear(type(error).__name__)
    mark.__cause__ = error
    return mark


def _unknown(status: int, words: str) -> bool:
    """Return whether it is unknown what came of a request: NSO itself says what it took back."""
    return status in {500, 502, 504} and not words


def _why_not(error: httpx.ConnectError) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not trusted"
    return "no TLS" if "SSL" in str(error) else "no connection"


def _messages(content: bytes) -> Iterator[str]:
    try:
        said = json.loads(content)["ietf-restconf:errors"]["error"]
        for each in said if isinstance(said, list) else [said]:
            texts = (each.get("error-path"), each.get("error-message") or each.get("error-tag"))
            yield ": ".join(str(text) for text in texts if text)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return


def _secrets(body: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the keys in a document."""
    return tuple(_keys(body)) if body else ()


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "auth-key" in value:
            yield str(value["auth-key"])
        for each in value.values():
            yield from _keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each)


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
