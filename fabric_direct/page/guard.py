"""In front of all routes: who is let in, how much may be sent, and the headers of every answer."""

from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabric_direct.page.sessions import Sessions
from fabric_direct.serving.access import Tokens
from fabric_direct.serving.bodies import BodyRefused, read_body, replayed

Answer = Callable[[Scope, Receive, Send], Awaitable[None]]
_MOST_BYTES = 4096
"""Length of a body: of the form with the token."""
_BODY_SECONDS = 10.0
_OPEN = frozenset({"/login", "/static/page.css", "/static/page.js", "/static/icon.svg"})
"""What everybody may ask for: the form, and what it looks like."""
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets in who has a token or a session; everybody else gets the form."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens, sessions: Sessions, cookie: str, stranger: Answer
    ) -> None:
        """Take what is behind it.

        :param cookie: the name of the cookie with the session.
        :param stranger: answers who has neither.
        """
        self._app, self._tokens, self._sessions = app, tokens, sessions
        self._cookie, self._stranger = cookie, stranger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            body = await read_body(scope, receive, most=_MOST_BYTES, seconds=_BODY_SECONDS)
        except BodyRefused as refused:
            await _plain(refused.status, send)
            return
        known = scope["path"] in _OPEN or self._knows(scope)
        answer = self._app if known else self._stranger
        await answer(scope, replayed(body, receive), send)

    def _knows(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        if self._tokens.in_header(headers.get(b"authorization", b"")):
            return True
        return self._sessions.has(cookie_of(headers.get(b"cookie", b""), self._cookie))


def cookie_of(header: bytes, name: str) -> str:
    """Return the value of a cookie; empty if there is none."""
    try:
        found = SimpleCookie(header.decode("latin-1")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _with_headers(send: Send) -> Send:
    """Return what sends a response with the headers that each one has, unless it has its own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


async def _plain(status: int, send: Send) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
