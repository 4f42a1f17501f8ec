"""The API of Internet2's Virtual Networks, with its sessions.

An access key gives a refresh token, as a cookie; that gives a bearer token, and another refresh token.
Each process has a session of its own. Tokens are in memory alone: no message, log or stamp has them.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any
from urllib.parse import quote

import httpx

from fabric_direct.calls import forks
from fabric_direct.drivers.http_api import (
    Access,
    Answer,
    HttpApi,
    Json,
    changing,
    legible,
    values_of,
)
from fabric_direct.errors import Denied, DriverError, NotFound
from fabric_direct.site.services import Al2sSettings

_COOKIE = "arroyoRefreshToken"
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_REMEDIES = {
    401: "check services.al2s.key_file",
    403: "the access key needs the right to it: ask Internet2",
}
_SECRETS = ("md5", "ownerAccountId", "pairingKey")
_WORDS = ("message", "error", "detail", "title")


class Session:
    """Requests with a bearer token, which is renewed when it is rejected; used by many threads."""

    def __init__(self, settings: Al2sSettings, limit: float) -> None:
        """Send nothing yet.

        :param limit: seconds for a request with its answer.
        """
        self._settings = settings
        http = HttpApi(Access("AL2S", "services.al2s", settings.url, settings.ca_file), limit)
        self._http, self.where = http, http.where
        self.reading, self.error = http.reading, http.error
        self._lock = forks.Lock()
        self._forget()
        forks.in_child(self._forget)

    def _forget(self) -> None:
        self._bearer = self._refresh = ""

    # --- what is asked

    def read(self, path: str) -> Json | None:
        """Return a resource, or None if there is none."""
        try:
            answer = self._send("GET", path)
        except NotFound:
            return None
        return dict(self._http.parsed(f"GET {path}", answer.content))

    def listed(self, path: str) -> Any:
        """Return a list of resources, in the form that the API gives it.

        :raises DriverError: if the API has no such list: an address that is wrong has no services.
        """
        try:
            answer = self._send("GET", path)
        except NotFound as error:
            why = "HTTP status 404: the address may be wrong"
            raise self.error(DriverError, f"AL2S refuses GET {path}", why) from error
        return self._http.parsed(f"GET {path}", answer.content, list, dict)

    def change(self, method: str, path: str, body: Json | None = None) -> str:
        """Change a resource; return the id of one that was made, empty if the answer has none."""
        answer = self._send(method, path, body)
        location: str = answer.headers.get("location", "")
        return location.rstrip("/").rpartition("/")[2]

    # --- how

    def _send(self, method: str, path: str, body: Json | None = None) -> Answer:
        said = f"{method} {path.partition('?')[0]}"
        with changing(said) if method != "GET" else nullcontext():
            answer = self._authorized(said, method, path, body)
            self._raise_for_status(said, answer, body)
            return answer

    def _authorized(self, said: str, method: str, path: str, body: Json | None) -> Answer:
        """Send a request; once more, with another token, if its token is rejected: it did nothing."""
        token = self._token()
        answer = self._exchange(said, method, path, {"Authorization": token}, body)
        if answer.status == httpx.codes.UNAUTHORIZED:
            other = {"Authorization": self._token(rejected=token)}
            answer = self._exchange(said, method, path, other, body)
        return answer

    def _exchange(
        self, said: str, method: str, path: str, login: dict[str, str], body: Json | None = None
    ) -> Answer:
        return self._http.exchange(said, method, f"/v1/{path}", body, headers=_HEADERS | login)

    def _raise_for_status(self, said: str, answer: Answer, body: Json | None = None) -> None:
        status = answer.status
        if 200 <= status < 300 or status == httpx.codes.SEE_OTHER:
            return
        key = self._http.secret("key_file", self._settings.key_file)
        secrets = (key, self._bearer, self._refresh, *values_of(_SECRETS, body))
        words = legible("; ".join(_messages(answer.content)), secrets)
        unknown = status in {500, 502, 504}
        self._http.refuse(said, status, words, remedies=_REMEDIES, unknown=unknown)

    # --- tokens

    def _token(self, rejected: str = "") -> str:
        """Return a bearer token that is not the rejected one; threads share it."""
        with self._lock:
            if self._bearer == rejected:
                self._renew()
            return self._bearer

    def _renew(self) -> None:
        if self._refresh:
            with suppress(Denied):
                self._redeem()
                return
        said, key = "POST sessions/access", self._http.secret("key_file", self._settings.key_file)
        answer = self._exchange(said, "POST", "sessions/access", {"x-api-key": key})
        self._raise_for_status(said, answer)
        self._refresh = _cookie(answer)
        self._redeem()

    def _redeem(self) -> None:
        """Get a bearer token for the refresh token."""
        said, cookie = "GET sessions/refresh", {"Cookie": f"{_COOKIE}={self._refresh}"}
        answer = self._exchange(said, "GET", "sessions/refresh", cookie)
        self._raise_for_status(said, answer)
        self._bearer = answer.headers.get("authorization", "")
        self._refresh = _cookie(answer) or self._refresh
        if not self._bearer:
            raise self.error(Denied, "AL2S began no session", "its answer has no token")


def _cookie(answer: Answer) -> str:
    request = httpx.Request("GET", "http://localhost")
    cookies = httpx.Response(answer.status, headers=answer.headers, request=request).cookies
    return cookies.get(_COOKIE) or ""


def quoted(resource_id: str) -> str:
    """Return an id as part of a path."""
    return quote(resource_id, safe="")


def _messages(content: bytes) -> Iterator[str]:
    try:
        said = json.loads(content)
        yield from (said[key] for key in _WORDS if isinstance(said.get(key), str))
    except (ValueError, RecursionError, AttributeError):
        return
