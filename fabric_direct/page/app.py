"""The routes of the page. None of them changes anything at the site."""

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fabric_direct.model import SliverRef
from fabric_direct.page import pictures
from fabric_direct.page.events import Events
from fabric_direct.page.guard import Guard, cookie_of
from fabric_direct.page.overview import (
    DEVICE_STATES,
    SLIVER_STATES,
    Overview,
    SliverRow,
    overview,
    under_way,
)
from fabric_direct.page.rendering import render
from fabric_direct.page.sessions import LIFETIME, Sessions
from fabric_direct.page.watching import Watching
from fabric_direct.processor import HandlerProcessor
from fabric_direct.serving.access import Tokens
from fabric_direct.site.config import Site

log = logging.getLogger(__name__)
T = TypeVar("T")

_LAST = 10
"""Operations of the history on the first page, and on those of slivers."""
_AT_ONCE = 200
"""Operations on a page of the history."""
_REFRESH = 10
"""Seconds after which a browser without scripts asks again."""
_PATH = re.compile(r"/[A-Za-z0-9_.:~%-][A-Za-z0-9_.:/?&=~%-]*|/")
"""Where the form may lead to: a path of this page, not ``//elsewhere``."""
_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
# An SVG that is shown as an image runs nothing; one that somebody opens by itself may not, either.
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


class PageApp:
    """The page of one site.

    :param tokens: who has one is let in.
    :param secure: whether browsers may send the session over TLS alone.
    """

    def __init__(
        self,
        watching: Watching,
        tokens: Iterable[str],
        *,
        secure: bool = False,
        sessions: Sessions | None = None,
        events: Events | None = None,
    ) -> None:
        self._watching, self._secure = watching, secure
        self._tokens, self._sessions = Tokens(tokens), sessions or Sessions()
        self.events = events or Events(watching)
        self._cookie = _cookie_of(watching.site)

    def asgi(self) -> ASGIApp:
        """Return the application, guarded."""
        app = Starlette(
            routes=[
                Route("/", self._home),
                Route("/slivers", self._slivers),
                Route("/slivers/{sliver}", self._sliver),
                Route("/slivers/{sliver}/picture.svg", self._sliver_picture),
                Route("/devices", self._devices),
                Route("/hosts/{host}", self._host),
                Route("/hosts/{host}/picture.svg", self._host_picture),
                Route("/picture.svg", self._site_picture),
                Route("/history", self._history),
                Route("/events", self._stream),
                Route("/login", self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Route("/static/{name}", _static),
            ],
            exception_handlers={HTTPException: self._problem, Exception: self._failed},
        )
        return Guard(app, self._tokens, self._sessions, self._cookie, self._stranger)

    # --- pages

    async def _home(self, request: Request) -> Response:
        now = await self._now()
        picture = "/picture.svg"
        last = now.books.history[: -_LAST - 1 : -1]
        return self._page(request, "home", "Overview", now=now, picture=picture, last=last)

    async def _slivers(self, request: Request) -> Response:
        now, asked = await self._now(), _asked(request, "text", "state", "host", "differs")
        rows = [row for row in now.slivers if _is_asked_for(row, asked)]
        states = [*SLIVER_STATES, "not known"]
        return self._page(
            request, "slivers", "Slivers", now=now, rows=rows, asked=asked, states=states
        )

    async def _devices(self, request: Request) -> Response:
        now, asked = await self._now(), _asked(request, "text", "state", "host")
        rows = [
            row
            for row in now.devices
            if asked["state"] in {"", row.device.state.value}
            and asked["host"] in {"", row.host}
            and asked["text"].lower() in _text_of(row.device).lower()
        ]
        values = {"rows": rows, "asked": asked, "states": DEVICE_STATES}
        return self._page(request, "devices", "Devices", now=now, **values)

    async def _host(self, request: Request) -> Response:
        now, name = await self._now(), request.path_params["host"]
        host = now.host(name)
        if host is None:
            raise _missing(f"The site has no host {name}.", now)
        picture = f"{host.link}/picture.svg"
        values = {
            "host": host,
            "rows": [row for row in now.slivers if row.host == name],
            "devices": [row for row in now.devices if row.host == name],
            "history": _last_of(now, lambda subject: subject.startswith(f"{name}/")),
        }
        return self._page(request, "host", f"Host {name}", now=now, picture=picture, **values)

    async def _sliver(self, request: Request) -> Response:
        now, name = await self._now(), request.path_params["sliver"]
        row, works = now.sliver(name), under_way(now.books, name)
        past = _last_of(now, lambda subject: subject == name)
        if row is None and works is None and not past:
            raise _missing(f"There is no sliver {name}, and nothing was asked for of one.", now)
        probe = await self._watching.probe(SliverRef(id=name, type=row.type)) if row else None
        picture = f"{row.link}/picture.svg" if row else ""
        values = {
            "sliver": name,
            "row": row,
            "works": works,
            "history": past,
            "repairs": [note for note in now.books.repairs if note.subject == name][
                : -_LAST - 1 : -1
            ],
            "devices": [each for each in now.devices if each.sliver == name],
            "probe": probe.latest if probe else None,
        }
        return self._page(request, "sliver", f"Sliver {name}", now=now, picture=picture, **values)

    async def _history(self, request: Request) -> Response:
        now, asked = await self._now(), _asked(request, "subject", "before")
        subject = asked["subject"]
        found = [each for each in now.books.history if subject in {"", each.subject}]
        ids = [record.id for record in found]
        before = ids.index(asked["before"]) if asked["before"] in ids else len(found)
        rows = found[max(0, before - _AT_ONCE) : before][::-1]
        older = rows[-1].id if before > len(rows) else ""
        repairs = [note for note in now.books.repairs if subject in {"", note.subject}]
        values = {"rows": rows, "older": older, "repairs": repairs[: -_AT_ONCE - 1 : -1]}
        return self._page(request, "history", "History", now=now, asked=asked, **values)

    async def _now(self) -> Overview:
        await self._watching.look()
        return overview(self._watching)

    def _page(self, request: Request, name: str, title: str, **values: Any) -> Response:
        refresh = _REFRESH if request.query_params.get("refresh") != "no" else 0
        return HTMLResponse(self._rendered(f"{name}.html.j2", title, refresh=refresh, **values))

    def _rendered(self, template: str, title: str, **values: Any) -> str:
        return render(
            template,
            title=title,
            site=self._watching.site.site,
            every=self._watching.every,
            version=version("fabric-direct"),
            shown=datetime.now().astimezone(),
            clock=self._watching.clock(),
            wall=time.time(),
            **values,
        )

    # --- pictures

    async def _site_picture(self, _: Request) -> Response:
        return await self._picture("/", pictures.site_picture)

    async def _host_picture(self, request: Request) -> Response:
        host = self._known((await self._now()).host(request.path_params["host"]))
        return await self._picture(host.link, lambda p: pictures.host_picture(p, host.name))

    async def _sliver_picture(self, request: Request) -> Response:
        row = self._known((await self._now()).sliver(request.path_params["sliver"]))
        return await self._picture(row.link, lambda p: pictures.sliver_picture(p, row.id))

    @staticmethod
    def _known(row: T | None) -> T:
        if row is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return row

    async def _picture(self, name: str, draw: Callable[[HandlerProcessor], str]) -> Response:
        """Return the picture as an image; what cannot be drawn now is none."""
        drawn = (await self._watching.picture(name, draw)).latest
        if drawn.value is None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, drawn.error or "It is being drawn.")
        headers = {"Content-Security-Policy": _PICTURE_POLICY}
        return Response(drawn.value, media_type="image/svg+xml", headers=headers)

    # --- events

    async def _stream(self, _: Request) -> Response:
        if self.events.full:
            return Response("Too many listen.", HTTPStatus.SERVICE_UNAVAILABLE)
        return StreamingResponse(self.events.stream(), media_type="text/event-stream")

    # --- who is let in

    async def _stranger(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        status = HTTPStatus.UNAUTHORIZED
        response = self._form(asked if request.method == "GET" else "/", status)
        response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _form(self, then: str, status: HTTPStatus, *, wrong: bool = False) -> Response:
        then = then if _PATH.fullmatch(then) else "/"
        text = self._rendered("login.html.j2", "Log in", then=then, wrong=wrong, refresh=0)
        return HTMLResponse(text, status)

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return self._form("/", HTTPStatus.OK)
        given = parse_qs((await request.body()).decode("ascii", "replace"), max_num_fields=8)
        token, then = (given.get(name, [""])[0] for name in ("token", "then"))
        if not self._tokens.has(token.strip().encode()):
            log.warning("a wrong token was given, from %s", request.client and request.client.host)
            return self._form(then, HTTPStatus.UNAUTHORIZED, wrong=True)
        response = RedirectResponse(
            then if _PATH.fullmatch(then) else "/", status_code=HTTPStatus.SEE_OTHER
        )
        response.set_cookie(
            self._cookie,
            self._sessions.begin(),
            max_age=LIFETIME,
            httponly=True,
            samesite="strict",
            secure=self._secure,
        )
        return response

    async def _logout(self, request: Request) -> Response:
        header = request.headers.get("cookie", "").encode("latin-1", "replace")
        self._sessions.end(cookie_of(header, self._cookie))
        response = RedirectResponse("/login", status_code=HTTPStatus.SEE_OTHER)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._secure)
        return response

    # --- problems

    async def _problem(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - Starlette's table says so
        status = HTTPStatus(error.status_code)
        words = error.detail if error.detail != status.phrase else f"{status.phrase}."
        return self._told(status, words, dict(error.headers or {}))

    async def _failed(self, _: Request, error: Exception) -> Response:
        log.error("a page failed", exc_info=error)
        words = "The page cannot be shown; the log of the server says why."
        return self._told(HTTPStatus.INTERNAL_SERVER_ERROR, words, {})

    def _told(self, status: HTTPStatus, words: str, headers: dict[str, str]) -> Response:
        text = self._rendered("problem.html.j2", status.phrase, words=words, refresh=0)
        return HTMLResponse(text, status, headers)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _TYPES:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    content = (files("fabric_direct.page") / "static" / name).read_bytes()
    return Response(content, media_type=_TYPES[name])


def _cookie_of(site: Site) -> str:
    """Return the cookie's name: browsers send it to all ports of a host, where other pages may be."""
    which = hashlib.sha256(f"{site.site} {site.state_dir}".encode()).hexdigest()
    return f"fabric-direct-{which[:8]}"


def _missing(words: str, now: Overview) -> HTTPException:
    more = " Not all that there is has been read yet." if now.waiting or now.silent else ""
    return HTTPException(HTTPStatus.NOT_FOUND, words + more)


def _asked(request: Request, *names: str) -> dict[str, str]:
    """Return what was asked for by these names; the first 200 characters of each."""
    return {name: request.query_params.get(name, "").strip()[:200] for name in names}


def _is_asked_for(row: SliverRow, asked: dict[str, str]) -> bool:
    return (
        asked["state"] in {"", row.state or "not known"}
        and asked["host"] in {"", row.host}
        and (not asked["differs"] or bool(row.differences))
        and asked["text"].lower() in f"{row.id} {row.name} {row.type}".lower()
    )


def _text_of(device: Any) -> str:
    return f"{device.address} {device.type} {device.model} {device.owner} {device.function.label}"


def _last_of(now: Overview, wanted: Callable[[str], bool]) -> list[Any]:
    found = [record for record in now.books.history if wanted(record.subject)]
    return found[: -_LAST - 1 : -1]
