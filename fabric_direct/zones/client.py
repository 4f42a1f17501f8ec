"""One question to a zone over HTTP, and its answer: in time, not too long, and of the right form."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from fabric_direct.config import ChildZone
from fabric_direct.errors import (
    Conflict,
    Denied,
    FabricDirectError,
    InvalidSite,
    NotFound,
    Refused,
    Unreachable,
)
from fabric_direct.zones.access import is_loopback, is_token, token_lines
from fabric_direct.zones.wire import MOST_BYTES, Problem

_MOST_WORDS = 500
"""Characters of what a zone says is wrong."""

_JSON = "application/json"
_ERRORS: dict[int, type[FabricDirectError]] = {
    HTTPStatus.BAD_REQUEST: Refused,
    HTTPStatus.UNPROCESSABLE_ENTITY: Refused,
    HTTPStatus.UNAUTHORIZED: Denied,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}
# The connection was lost in the middle: whether the zone heard is not known.
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
Answer = TypeVar("Answer", bound=BaseModel)


class ZoneClient:
    """A zone that is asked over HTTP, through one pool of connections that are kept.

    To be used in one event loop, by any number of its tasks at once.
    """

    def __init__(self, name: str, settings: ChildZone) -> None:
        """Make what asks the zone; nothing is sent yet.

        :param name: as errors call the zone: its address is in none of them.
        :raises InvalidSite: if its token or its authorities cannot be read, or the token would go over
            a network in clear.
        """
        self.name = name
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            headers={"Accept": _JSON, "Accept-Encoding": "identity", **_bearer(name, settings)},
            verify=_trusted(name, settings),
            timeout=httpx.Timeout(None),  # the whole of a call is limited, not each read of it
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        *,
        deadline: float,
        body: BaseModel | None = None,
    ) -> Answer:
        """Return the zone's answer to a request.

        If the connection breaks, it is asked once more: all that zones are asked may be asked twice.

        :param deadline: seconds for all of it, from the connection to the last byte.
        :raises Refused: if the zone says that the request is wrong.
        :raises Conflict: if it says that this cannot be had.
        :raises NotFound: if it says that there is no such thing.
        :raises Denied: if it does not let us in.
        :raises Unreachable: if it does not answer, or with something else than such an answer.
        """
        content = await self._send(method, path, deadline, body)
        with self._believed():
            return answer.model_validate_json(content)

    async def tell(self, method: str, path: str, *, deadline: float) -> None:
        """Send a request of whose answer counts only that it is no error; see :meth:`ask`."""
        await self._send(method, path, deadline)

    def unbelievable(self, why: str) -> Unreachable:
        """Return the error for an answer that cannot be meant."""
        return Unreachable(f"the zone {self.name} gave an answer that cannot be believed", why=why)

    async def _send(
        self, method: str, path: str, deadline: float, body: BaseModel | None = None
    ) -> bytes:
        # httpx closes a connection that was not made in time, but not one whose making was cancelled.
        request: dict[str, Any] = {
            "method": method,
            "url": path,
            "timeout": httpx.Timeout(None, connect=deadline / 2),
        }
        if body is not None:
            request |= {"content": body.model_dump_json(), "headers": {"Content-Type": _JSON}}
        with self._translated(deadline):
            async with asyncio.timeout(deadline):
                response, content = await self._answer(request)
        self._refuse(response, content)
        return content

    @retry(retry=retry_if_exception_type(_BROKEN), stop=stop_after_attempt(2), reraise=True)
    async def _answer(self, request: dict[str, Any]) -> tuple[httpx.Response, bytes]:
        async with self._http.stream(**request) as response:
            # What is compressed may be of any length.
            if "content-encoding" in response.headers:
                raise self.unbelievable("it is encoded")
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise self.unbelievable(f"it is longer than {MOST_BYTES // 2**20} MiB")
        return response, bytes(content)

    def _refuse(self, response: httpx.Response, content: bytes) -> None:
        """Raise what the zone says is wrong, or what is wrong with its answer."""
        status = response.status_code
        if status in _ERRORS:
            raise self._said(_ERRORS[status], content)
        if not response.is_success:
            raise Unreachable(f"the zone {self.name} cannot answer", why=f"HTTP status {status}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content and kind != _JSON:
            raise self.unbelievable("it is no JSON")

    def _said(self, error: type[FabricDirectError], content: bytes) -> FabricDirectError:
        """Return the error in the zone's own words, if it has any; who reads them is warned whose."""
        what = f"the zone {self.name} refuses"
        with suppress(ValidationError):
            problem = Problem.model_validate_json(content)
            words = f"{problem.error}: {problem.message}"[:_MOST_WORDS]
            return error(what, why=_printable(words), field=_printable(problem.field[:100]))
        return error(what)

    @contextmanager
    def _believed(self) -> Iterator[None]:
        try:
            yield
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"]))[:100]
            raise self.unbelievable(_printable(f"{field}: {first['msg']}")) from error

    @contextmanager
    def _translated(self, deadline: float) -> Iterator[None]:
        silent = f"the zone {self.name} does not answer"
        try:
            yield
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Unreachable(silent, why=f"not within {deadline:.1f} s") from error
        except httpx.ConnectError as error:
            raise Unreachable(silent, why=_why_not_connected(error)) from error
        except httpx.HTTPError as error:
            raise Unreachable(silent, why="the connection broke") from error


def _why_not_connected(error: httpx.ConnectError) -> str:
    """Return why, without the address that the error names."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not trusted"
    return "no TLS" if "SSL" in str(error) else "no connection"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _bearer(name: str, settings: ChildZone) -> dict[str, str]:
    if settings.token_file is None:
        return {}
    _refuse_in_clear(name, settings.url)
    said = {"where": f"zone {name}", "field": "token_file"}
    token, *_ = token_lines(settings.token_file, **said)
    if not is_token(token):
        raise InvalidSite(f"the first line of {settings.token_file} is no bearer token", **said)
    return {"Authorization": f"Bearer {token}"}


def _refuse_in_clear(name: str, address: str) -> None:
    url = httpx.URL(address)
    if url.scheme == "http" and not is_loopback(url.host):
        raise InvalidSite(
            "a token would go over the network in clear",
            where=f"zone {name}",
            remedy="use https",
            field="url",
        )


def _trusted(name: str, settings: ChildZone) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSite(
            f"cannot read certificates from {settings.ca_file}",
            where=f"zone {name}",
            why=str(error),
            field="ca_file",
        ) from error
