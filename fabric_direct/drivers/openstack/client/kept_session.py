"""Token and API versions from a login to a cloud, kept in a file for the next process.

Without them, a command that takes a second would spend half of it on a new token, and on asking each API
for its versions again. A token is kept for its credentials: other credentials, or a changed password, do
not find it. keystoneauth logs in again to replace a token that the cloud no longer accepts.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fabric_direct.state import files

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

VERSIONS_HOLD = 3600.0
"""Seconds after which an API is asked again which versions it has: it may have been upgraded."""
_OK, _MULTIPLE_CHOICES = 200, 300
_PARTS = ("status", "document", "until")
_VERSIONS = re.compile(rb'\s*{\s*"versions?"\s*:')
_log = logging.getLogger(__name__)
_directory: ContextVar[Path | None] = ContextVar("directory", default=None)


@contextmanager
def keeping(directory: Path) -> Iterator[None]:
    """Keep the sessions of the connections that are made within the block in this directory."""
    before = _directory.set(directory)
    try:
        yield
    finally:
        _directory.reset(before)


def kept_session(cloud: str, auth: Any) -> "KeptSession | None":
    """Return what is kept of a cloud; None where nothing shall be, or no credentials can be told apart.

    :param cloud: its name in clouds.yaml.
    :param auth: keystoneauth's plugin.
    """
    directory, credentials = _directory.get(), auth.get_cache_id()
    return KeptSession(directory, cloud, auth) if directory and credentials else None


class KeptSession:
    """The token of one cloud, and the version documents of its APIs, in a file of mode 0600."""

    def __init__(self, directory: Path, cloud: str, auth: Any) -> None:
        """Read the file; one that is missing, damaged, or of other credentials has nothing."""
        self._path, self._auth = directory / f"{quote(cloud, safe='')}.json", auth
        self._versions: dict[str, dict[str, Any]] = {}
        self._lock, self._saved = threading.Lock(), (None, 0)
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            self._load(json.loads(self._path.read_text()))

    def _load(self, kept: dict[str, Any]) -> None:
        if kept["credentials"] != self._auth.get_cache_id():
            return
        now = time.time()
        for url, version in kept["versions"].items():
            if 0 <= version["until"] - now <= VERSIONS_HOLD:
                self._versions[url] = {part: version[part] for part in _PARTS}
        self._auth.set_auth_state(kept["token"])
        self._saved = self._now()

    def _now(self) -> tuple[Any, int]:
        return self._auth.auth_ref, len(self._versions)

    def answer(self, request: "PreparedRequest") -> "Response | None":
        """Return the kept answer to a request for versions, or None."""
        known = self._versions.get(request.url or "") if request.method == "GET" else None
        if known is None:
            return None
        from requests import Response  # noqa: PLC0415 - commands import this module before they need it

        answer = Response()
        answer.status_code, answer.request, answer.url = known["status"], request, str(request.url)
        answer.headers["Content-Type"], answer.encoding = "application/json", "utf-8"
        answer._content = json.dumps(known["document"]).encode()
        return answer

    def learn(self, request: "PreparedRequest", response: "Response") -> None:
        """Keep an answer if it tells versions."""
        tells = request.method == "GET" and response.status_code in {_OK, _MULTIPLE_CHOICES}
        if tells and _VERSIONS.match(response.content):
            self._versions[str(request.url)] = {
                "status": response.status_code,
                "document": response.json(),
                "until": time.time() + VERSIONS_HOLD,
            }

    def save(self) -> None:
        """Write the file if there is anything new; that it cannot be written changes nothing else."""
        now = self._now()
        if now == self._saved or now[0] is None or not self._lock.acquire(blocking=False):
            return
        try:
            self._saved = now
            self._write()
        except OSError as error:
            _log.debug("cannot keep the session of the cloud: %s", error)
        finally:
            self._lock.release()

    def _write(self) -> None:
        kept = {
            "credentials": self._auth.get_cache_id(),
            "token": self._auth.get_auth_state(),
            "versions": dict(self._versions),
        }
        files.make_directory(self._path.parent)
        files.replace_lazily(self._path, json.dumps(kept))
