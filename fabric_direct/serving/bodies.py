"""Limits for the body of a request: its length, and the time that it takes to arrive."""

import asyncio
from http import HTTPStatus

from starlette.types import Message, Receive, Scope

TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
TOO_SLOW = HTTPStatus.REQUEST_TIMEOUT


class BodyRefused(Exception):
    """A body is too long, or too slow."""

    def __init__(self, status: HTTPStatus) -> None:
        """Take the status to answer with; the connection is closed then."""
        super().__init__(status.phrase)
        self.status = status


async def read_body(scope: Scope, receive: Receive, *, most: int, seconds: float) -> bytes:
    """Return the body of a request.

    :param most: bytes.
    :raises BodyRefused: if it is longer, or does not arrive within ``seconds``.
    """
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if length.isdigit() and int(length) > most:
        raise BodyRefused(TOO_LARGE)
    try:
        async with asyncio.timeout(seconds):
            return await _received(receive, most)
    except TimeoutError as error:
        raise BodyRefused(TOO_SLOW) from error


async def _received(receive: Receive, most: int) -> bytes:
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > most:
            raise BodyRefused(TOO_LARGE)
        if not message.get("more_body"):
            break
    return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return what an application receives if the body of its request was read before."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message
