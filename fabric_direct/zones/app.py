"""The HTTP interface of a zone, and its OpenAPI document."""

import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, WrapValidator
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fabric_direct.errors import Conflict, FabricDirectError, NotFound, Refused
from fabric_direct.model import NodeSliver
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.serving.access import Tokens
from fabric_direct.serving.bodies import TOO_LARGE, TOO_SLOW, BodyRefused, read_body, replayed
from fabric_direct.zones.booting import NotPlaced
from fabric_direct.zones.wire import (
    MOST_BYTES,
    Booted,
    BootRequest,
    Problem,
    Reservation,
    ReservationId,
    Selection,
    SelectRequest,
    ZoneView,
)
from fabric_direct.zones.zone import Zone

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_UNPROCESSABLE = HTTPStatus.UNPROCESSABLE_ENTITY
_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
_BODY_SECONDS = 10.0
"""Time limit for receiving a body."""
_STATUS: dict[type[Exception], HTTPStatus] = {
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Refused: _UNPROCESSABLE,
}
_WORDS = {
    HTTPStatus.BAD_REQUEST: "The body is not JSON.",
    HTTPStatus.UNAUTHORIZED: "The bearer token is missing or not one of the zone's.",
    HTTPStatus.NOT_FOUND: "There is no such reservation.",
    HTTPStatus.CONFLICT: "Not enough hosts; or an offer is expired, was altered or accepted before.",
    TOO_SLOW: f"The body did not arrive within {_BODY_SECONDS:.0f} s.",
    TOO_LARGE: f"The body is longer than {MOST_BYTES // 2**20} MiB.",
    _UNPROCESSABLE: "A field is wrong; the answer names it.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "An internal error. The answer has a number, under which the "
    "operator finds the error in the log.",
    _UNAVAILABLE: "The zone cannot answer now.",
}
_DESCRIPTION = """A zone offers hosts without naming them.

Select first: each offer says what an instance would cost; its sealed blob holds the host. Nothing is
created. Then boot, with or without the offers: the answer comes when all instances have a host, and they
are created in the background. The reservation has the status of each instance.
"""


_NO_FIELDS = {"body", "path", NodeSliver.__name__, BareMetalSliver.__name__}
"""Steps of pydantic's locations that a request does not have; the last are the tags of a union."""
_bearer = HTTPBearer(auto_error=False, description="A token of the zone's token_file.")
_NEEDS = {"capacities": {"core": 2, "ram": 4, "disk": 20}, "image": "rocky9"}
_SELECT = {
    "request_id": "0b7c6f2e-4a51",
    "kinds": [{"kind": "small", "num_instances": 2, "needs": _NEEDS, "apart": True}],
}
_SLIVER = {"id": "s17", "name": "node", **_NEEDS}
_BOOT = {
    "request_id": "5d1e9a70-77c3",
    "kinds": [{"kind": "small", "num_instances": 2, "sliver": _SLIVER, "apart": True}],
}


def application(
    zone: Zone, tokens: Sequence[str] = (), lifespan: Lifespan | None = None
) -> ASGIApp:
    """Return the ASGI application of a zone.

    :param tokens: accepted bearer tokens; if there are none, no token is required.
    :param lifespan: runs before the first request and after the last one; without it, the caller starts
        and closes the zone.
    """
    return _Guard(api(zone, lifespan), Tokens(tokens))


def api(zone: Zone, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the FastAPI application that :func:`application` guards."""
    app = FastAPI(
        title="Zone",
        summary="Hosts on offer.",
        description=_DESCRIPTION,
        version=version("fabric-direct"),
        lifespan=lifespan,
        docs_url=None,  # the pages load scripts from elsewhere
        redoc_url=None,
        dependencies=[Depends(_bearer)],
        responses=_refusals(
            HTTPStatus.UNAUTHORIZED, HTTPStatus.INTERNAL_SERVER_ERROR, _UNAVAILABLE
        ),
        exception_handlers=_ANSWERS,
    )
    app.include_router(_zones(zone))
    app.include_router(_reservations(zone))
    return app


def _refusals(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    return {s.value: {"model": Problem, "description": _WORDS[s]} for s in statuses}


def _strict(model: type[M]) -> Callable[[Any, Any], M]:
    def validate(value: Any, _: Any) -> M:
        """Validate without conversions: a number in quotes is not a number."""
        return model.model_validate_json(to_json(value), strict=True)

    return validate


_BODY = _refusals(HTTPStatus.BAD_REQUEST, TOO_SLOW, TOO_LARGE, _UNPROCESSABLE)
_Select = Annotated[
    SelectRequest,
    WrapValidator(_strict(SelectRequest)),
    Body(openapi_examples={"two": {"value": _SELECT}}),
]
_Boot = Annotated[
    BootRequest,
    WrapValidator(_strict(BootRequest)),
    Body(openapi_examples={"two": {"value": _BOOT}}),
]
_Id = Annotated[ReservationId, Path(description="Id of a reservation.")]


def _zones(zone: Zone) -> APIRouter:
    paths = APIRouter(prefix="/zones", tags=["zones"])

    @paths.post("/select", summary="Ask for offers", responses=_BODY)
    async def select(request: _Select) -> Selection:
        """Return offers, the cheapest first. Nothing is created."""
        return await zone.select(request)

    refusals = _BODY | _refusals(HTTPStatus.CONFLICT)

    @paths.post(
        "/boot", status_code=HTTPStatus.ACCEPTED, summary="Create instances", responses=refusals
    )
    async def boot(request: _Boot) -> Booted:
        """Answer when all instances have a host; they are created in the background."""
        return Booted(reservation_id=await zone.boot(request))

    @paths.get("", summary="Show the capacity of the zone")
    async def zones() -> ZoneView:
        """Return the capacity of the zone, with its children as they last answered."""
        return await zone.view()

    return paths


def _reservations(zone: Zone) -> APIRouter:
    refusals = _refusals(HTTPStatus.NOT_FOUND, _UNPROCESSABLE)
    paths = APIRouter(prefix="/reservations", tags=["reservations"], responses=refusals)

    @paths.get("/{reservation_id}", summary="Show a reservation")
    async def reservation(reservation_id: _Id) -> Reservation:
        """Return the status of each instance."""
        return await zone.reservation(reservation_id)

    @paths.delete(
        "/{reservation_id}", status_code=HTTPStatus.ACCEPTED, summary="Delete a reservation"
    )
    async def delete(reservation_id: _Id) -> Reservation:
        """Start to delete all instances. A reservation that is still being placed will be refused."""
        return await zone.delete(reservation_id)

    return paths


# --- errors


def _problem(status: int, problem: Problem, **headers: str) -> JSONResponse:
    return JSONResponse(problem.model_dump(mode="json"), status, headers)


async def _invalid(_: Request, error: RequestValidationError) -> Response:
    """Name the wrong field; the answer does not repeat the value."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _refusal(HTTPStatus.BAD_REQUEST)
    field = ".".join(str(step) for step in first["loc"] if step not in _NO_FIELDS)
    words = first["msg"].removeprefix("Value error, ")
    return _problem(_UNPROCESSABLE, Problem(error="Refused", message=words, field=field[:200]))


def _refusal(status: HTTPStatus, **headers: str) -> Response:
    return _problem(status, Problem(error="Refused", message=_WORDS[status]), **headers)


async def _not_served(_: Request, error: HTTPException) -> Response:
    """Answer what the framework rejects: an unknown path or method, a body that is not text."""
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return _refusal(HTTPStatus.BAD_REQUEST)
    words = HTTPStatus(error.status_code).phrase
    kind = "NotFound" if error.status_code == HTTPStatus.NOT_FOUND else "Refused"
    return _problem(
        error.status_code, Problem(error=kind, message=words), **dict(error.headers or {})
    )


async def _refused(_: Request, error: FabricDirectError) -> Response:
    """Explain a refusal; other errors are logged, and the answer has only their number."""
    kind = next((kind for kind in _STATUS if isinstance(error, kind)), None)
    if kind is None:
        return _unexpected(error, _UNAVAILABLE)
    words = ". ".join(filter(None, (error.what, error.why, error.remedy)))
    problem = Problem(error=kind.__name__, message=words, field=error.field)
    if isinstance(error, NotPlaced):
        more = {"shortages": error.shortages, "left_out": error.left_out}
        problem = problem.model_copy(update=more)
    return _problem(_STATUS[kind], problem)


async def _failed(_: Request, error: Exception) -> Response:
    return _unexpected(error, HTTPStatus.INTERNAL_SERVER_ERROR)


def _unexpected(error: Exception, status: HTTPStatus) -> Response:
    """Log an error under a number; the answer has only the number."""
    number = secrets.token_hex(4)
    log.error("%s (number %s)", status.phrase, number, exc_info=error)
    words = f"the zone cannot answer; its log has the details under number {number}"
    return _problem(status, Problem(error=type(error).__name__, message=words))


_ANSWERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    RequestValidationError: _invalid,
    HTTPException: _not_served,
    FabricDirectError: _refused,
    Exception: _failed,
}


# --- tokens, limits


class _Guard:
    """Checks the token and limits the body before a request is parsed."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._stranger(scope):
            problem = Problem(error="Denied", message=_WORDS[HTTPStatus.UNAUTHORIZED])
            headers = {"WWW-Authenticate": "Bearer"}
            await _problem(HTTPStatus.UNAUTHORIZED, problem, **headers)(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, most=MOST_BYTES, seconds=_BODY_SECONDS)
        except BodyRefused as refused:
            await _refusal(refused.status, Connection="close")(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)

    def _stranger(self, scope: Scope) -> bool:
        header = dict(scope["headers"]).get(b"authorization", b"")
        return bool(self._tokens) and not self._tokens.in_header(header)
