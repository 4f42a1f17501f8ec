"""NSO's RESTCONF (RFC 8040): resources, commit parameters, actions, and what it says of errors."""

import base64
import json
import re
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from typing import Any
from urllib.parse import quote

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
from fabric_direct.errors import (
    Conflict,
    DriverError,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    Unreachable,
)
from fabric_direct.site.services import NsoSettings

_JSON = "application/yang-data+json"
_HEADERS = {"Accept": _JSON, "Content-Type": _JSON}
_VERSION = "tailf-ncs-monitoring:ncs-state/version"
STRUCTURED = (6, 6)
"""The version from which commit parameters are one JSON document."""
_REMEDIES = {
    401: "check services.nso: user and password_file",
    403: "the user needs the right to it in NSO (NACM)",
    409: "try again later if another transaction has the lock",
}
_SAID: tuple[tuple[re.Pattern[str], type[FabricDirectError], str], ...] = (
    (
        re.compile(r"device \S+: out of sync"),
        Conflict,
        "compare the device with NSO (compare-config), then let NSO read it (sync-from)",
    ),
    (
        re.compile(r"device \S+ is (southbound )?locked", re.IGNORECASE),
        Conflict,
        "unlock the device in NSO (state admin-state)",
    ),
    (
        re.compile(r"failed to (connect to|authenticate towards) device", re.IGNORECASE),
        Unreachable,
        "check the device, and how NSO logs in to it (authgroup)",
    ),
    (
        re.compile(r"invalid query parameter: (params|dry-run|commit-queue)"),
        InvalidSite,
        "set services.nso.commit_parameters as this version of NSO takes them",
    ),
)
"""What NSO says of its devices and of the request, with whatever status: the sliver is not wrong.

Versions differ in the status of the same words: a device out of sync was seen with 400, 409 and 502.
"""
_ERRORS = ("ietf-restconf:errors", "errors")
"""What has the errors, as RFC 8040 says and as older versions of NSO send it."""
_SECRETS = ("auth-key",)
_NAMES_SECRET = re.compile(r"((?:password|secret|key|md5)\b).*", re.IGNORECASE)
"""What comes after the name of a secret in a line of a device's configuration."""


class Restconf:
    """NSO's RESTCONF API; used by many threads, and across forks: it keeps no connection."""

    def __init__(self, settings: NsoSettings, limit: float) -> None:
        """Send nothing yet.

        :param limit: seconds for a request with its answer.
        """
        self._settings = settings
        self._http = HttpApi(Access("NSO", "services.nso", settings.url, settings.ca_file), limit)
        self.where, self.reading = self._http.where, self._http.reading

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
        """Change the datastore, in one transaction of NSO and its devices; return what NSO says.

        A deletion bypasses the commit queue: if its item failed, nothing in NSO would say what is left.
        """
        asked: Json = {"label": "fabric-direct", "comment": comment} if self._structured else {}
        if method == "DELETE":
            asked["commit-queue"] = {"bypass": [None]}
        return self._send(method, f"/data/{path}{self._parameters(asked)}", body)

    def dry_run(self, method: str, path: str, body: Json) -> dict[str, str]:
        """Have NSO say what a change would do, and change nothing.

        :returns: what it would send to each device, by its name, without anything secret.
        :raises InvalidSliver: if NSO refuses it.
        :raises DriverError: if NSO does not say that it was a dry run.
        """
        asked = {"dry-run": {"outformat": "native"}}
        query = self._parameters(asked)
        answer = self._send(
            method, f"/data/{path}{query}", body, changes=False, refused=InvalidSliver
        )
        found = [v for key, v in answer.items() if key.rpartition(":")[2] == "dry-run-result"]
        if not found:
            why = "its answer has no dry-run-result: it may have made the service"
            raise self._http.error(DriverError, "NSO made no dry run", why)
        with self.reading("its dry run"):
            devices = ((found[0] or {}).get("native") or {}).get("device") or []
            secrets = tuple(values_of(_SECRETS, body))
            return {str(d["name"]): _without_secrets(str(d["data"]), secrets) for d in devices}

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
        known = {"dry-run": "dry-run=native", "commit-queue": "commit-queue=bypass"}
        return "".join(f"?{known[name]}" for name in asked)

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
        with changing(said) if changes else nullcontext():
            login = (self._settings.user, self._password())
            answer = self._http.exchange(said, method, path, body, headers=_HEADERS, auth=login)
            self._raise_for_status(said, answer, (login[1], *values_of(_SECRETS, body)), refused)
            return dict(self._http.parsed(said, answer.content))

    def _password(self) -> str:
        return self._http.secret("password_file", self._settings.password_file)

    def _raise_for_status(
        self,
        said: str,
        answer: Answer,
        secrets: tuple[str, ...],
        refused: type[FabricDirectError],
    ) -> None:
        status = answer.status
        if 200 <= status < 300:
            return
        words = legible("; ".join(_messages(answer.content)), secrets)
        if status == 404 and not words:  # a proxy, or another server
            why = "HTTP status 404, not from NSO's RESTCONF"
            raise self._http.error(DriverError, f"NSO refuses {said}", why)
        if status not in {401, 403, 404}:
            self.raise_said(f"NSO refuses {said}", words)
        self._http.refuse(
            said,
            status,
            words,
            usual=refused if status == 400 else DriverError,
            remedies=_REMEDIES,
            unknown=status in {500, 502, 504} and not words,  # NSO itself says what it took back
        )

    def raise_said(self, what: str, words: str) -> None:
        """Raise the error of what NSO says of a device or of the request, if it is known.

        :param what: what failed.
        """
        for pattern, kind, remedy in _SAID:
            if pattern.search(words):
                raise self._http.error(kind, what, words, remedy)


def _without_secrets(data: str, secrets: Collection[str]) -> str:
    """Return what a device would be sent, without keys: neither those that come nor those that go."""
    lines = (_NAMES_SECRET.sub(r"\1 …", legible(line, secrets)) for line in data.splitlines())
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _messages(content: bytes) -> Iterator[str]:
    try:
        document = json.loads(content)
        errors: Any = next((document[key] for key in _ERRORS if key in document), None)
        said = errors["error"]
        for each in said if isinstance(said, list) else [said]:
            texts = (each.get("error-path"), each.get("error-message") or each.get("error-tag"))
            yield ": ".join(str(text) for text in texts if text)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return
