"""Requests to a zone over HTTP; every answer is limited in time and length and is validated."""

import asyncio
import ssl
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from fabric_direct.errors import (
    Conflict,
    Denied,
    FabricDirectError,
    InvalidSite,
    NotFound,
    Refused,
    Unreachable,
)
from fabric_direct.serving.access import is_loopback, is_token, token_lines
from fabric_direct.site.config import ChildZone
from fabric_direct.zones.wire import (
    MOST_BYTES,
    Booted,
    BootRequest,
    Problem,
    Reservation,
    Selection,
    SelectRequest,
    ZoneView,
)

_LONGEST_REASON = 500
"""Characters of a zone's own error message that are kept."""

_JSON = "application/json"
_ERRORS: dict[int, type[FabricDirectError]] = {
    HTTPStatus.BAD_REQUEST: Refused,
    HTTPStatus.UNPROCESSABLE_ENTITY: Refused,
    HTTPStatus.UNAUTHORIZED: Denied,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}
# The connection was lost midway: whether the zone received the request is not known.
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
Answer = TypeVar("Answer", bound=BaseModel)


class ZoneClient:
    """A client of one zone with a pool of persistent connections.

    Use it in one event loop; its tasks may call it concurrently. If the connection breaks, a request is
    sent once more: all requests to zones are idempotent. The time limit of a request, ``deadline``
    seconds, reaches from connecting to the last byte. Every request raises

    * :class:`Refused` if the zone rejects it as invalid,
    * :class:`Conflict` if the zone cannot serve it,
    * :class:`NotFound` if the zone has no such reservation or path,
    * :class:`Denied` if the zone rejects our token,
    * :class:`Unreachable` if the zone does not answer, or with an invalid response.
    """

    def __init__(self, name: str, settings: ChildZone) -> None:
        """Send nothing yet.

        :param name: the zone's name in error messages, which never contain its address.
        :raises InvalidSite: if the token or the CA certificates cannot be read, or the token would be
            sent unencrypted over a network.
        """
        self.name = name
        self._http = httpx.AsyncClient(
            base_url=_address(name, settings),
            headers={"Accept": _JSON, "Accept-Encoding": "identity", **_bearer(name, settings)},
            verify=_trusted(name, settings),
            timeout=httpx.Timeout(None),  # the whole of a call is limited, not each read of it
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def view(self, *, deadline: float) -> ZoneView:
        """Return the zone's capacity and its children."""
        return await self._ask("GET", "/zones", ZoneView, deadline)

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        """Return the zone's offers. Nothing is created."""
        return await self._ask("POST", "/zones/select", Selection, deadline, request)

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        """Accept offers; return the id of the reservation."""
        booted = await self._ask("POST", "/zones/boot", Booted, deadline, request)
        return booted.reservation_id

    async def reservation(self, reservation: str, *, deadline: float) -> Reservation:
        """Return a reservation with the status of its instances."""
        return await self._ask("GET", f"/reservations/{reservation}", Reservation, deadline)

    async def delete(self, reservation: str, *, deadline: float) -> None:
        """Start to delete all instances of a reservation."""
        await self._send("DELETE", f"/reservations/{reservation}", deadline)

    def invalid(self, why: str) -> Unreachable:
        """Return the error for an invalid response of the zone."""
        return Unreachable(f"the zone {self.name} sent an invalid response", why=why)

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        deadline: float,
        body: BaseModel | None = None,
    ) -> Answer:
        content = await self._send(method, path, deadline, body)
        try:
            return answer.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"]))[:100]
            raise self.invalid(_printable(f"{field}: {first['msg']}")) from error

    async def _send(
        self, method: str, path: str, deadline: float, body: BaseModel | None = None
    ) -> bytes:
        """Send a request and return the body of the answer as it is."""
        # httpx closes a connection whose connect timed out, but not one whose connect was cancelled.
        request: dict[str, Any] = {
            "method": method,
            "url": path,
            "timeout": httpx.Timeout(None, connect=deadline / 2),
        }
        if body is not None:
            request |= {"content": body.model_dump_json(), "headers": {"Content-Type": _JSON}}
        response, content = await self._answer(request, deadline)
        self._raise_for_status(response, content)
        return content

    @retry(retry=retry_if_exception_type(_BROKEN), stop=stop_after_attempt(2), reraise=True)
    async def _exchange(self, request: dict[str, Any]) -> tuple[httpx.Response, bytes]:
        async with self._http.stream(**request) as response:
            # A short compressed body may expand to any length.
            if "content-encoding" in response.headers:
                raise self.invalid("it is encoded")
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise self.invalid(f"it is longer than {MOST_BYTES // 2**20} MiB")
        return response, bytes(content)

    def _raise_for_status(self, response: httpx.Response, content: bytes) -> None:
        """Raise the error that the zone reports, unless the answer is a successful one in JSON."""
        status = response.status_code
        if status in _ERRORS:
            raise self._reported(_ERRORS[status], content)
        if not response.is_success:
            raise Unreachable(f"the zone {self.name} cannot answer", why=f"HTTP status {status}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content and kind != _JSON:
            raise self.invalid("it is not JSON")

    def _reported(self, error: type[FabricDirectError], content: bytes) -> FabricDirectError:
        """Return the error with the zone's own message, if it sent one, marked as the zone's."""
        what = f"the zone {self.name} refuses"
        with suppress(ValidationError):
            problem = Problem.model_validate_json(content)
            words = f"{problem.error}: {problem.message}"[:_LONGEST_REASON]
            return error(what, why=_printable(words), field=_printable(problem.field[:100]))
        return error(what)

    async def _answer(
        self, request: dict[str, Any], deadline: float
    ) -> tuple[httpx.Response, bytes]:
        """Return the answer to a request, and its body."""
        silent = f"the zone {self.name} does not answer"
        try:
            async with asyncio.timeout(deadline):
                return await self._exchange(request)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Unreachable(silent, why=f"timed out after {deadline:.1f} s") from error
        except httpx.ConnectError as error:
            raise Unreachable(silent, why=_why_not_connected(error)) from error
        except httpx.HTTPError as error:
            raise Unreachable(silent, why="the connection broke") from error


def _why_not_connected(error: httpx.ConnectError) -> str:
    """Return the reason without the address, which the error contains."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not trusted"
    return "no TLS" if "SSL" in str(error) else "no connection"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _bearer(name: str, settings: ChildZone) -> dict[str, str]:
    if settings.token_file is None:
        return {}
    said = {"where": f"zone {name}", "field": "token_file"}
    token, *_ = token_lines(settings.token_file, **said)
    if not is_token(token):
        raise InvalidSite(f"the first line of {settings.token_file} is not a bearer token", **said)
    return {"Authorization": f"Bearer {token}"}


def _address(name: str, settings: ChildZone) -> httpx.URL:
    said = {"where": f"zone {name}", "field": "url"}
    try:
        url = httpx.URL(settings.url)
    except httpx.InvalidURL as error:
        raise InvalidSite("is not an address", why=str(error), **said) from error
    if settings.token_file and url.scheme == "http" and not is_loopback(url.host):
        what = "the token would be sent unencrypted over the network"
        raise InvalidSite(what, remedy="use https", **said)
    return url


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
