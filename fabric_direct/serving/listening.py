"""Listening: socket, TLS, and how a server ends."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import TlsSettings

GRACE = 30
"""Seconds to finish running requests at shutdown."""


class UvicornServer(uvicorn.Server):
    """uvicorn's server with other signal handling.

    Any second signal ends it at once, and captured signals are not raised again after the end.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End at the first signal, and at once at the second one."""
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in the block."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def address(listen: str, field: str) -> tuple[str, int]:
    """Return host and port of ``host:port``.

    :param field: which setting it is.
    :raises InvalidSite: if the port is none.
    """
    host, _, port = listen.rpartition(":")
    if int(port) > 65535:
        raise InvalidSite(f"{port} is not a port number", field=field)
    return host.strip("[]"), int(port)


def base_url(host: str, port: int, *, tls: bool) -> str:
    """Return the URL of a server."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def bound(host: str, port: int, field: str) -> socket.socket:
    """Return a socket that listens on an address.

    :param field: which setting names the address.
    :raises InvalidSite: if it cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer on a kept
    # connection waits 40 ms for the other side's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        why = error.strerror or str(error)
        raise InvalidSite(f"cannot listen on {host}:{port}", why=why, field=field) from error
    listening.listen()
    return listening


def configured(
    app: ASGIApp, tls: TlsSettings | None, field: str, *, connections: int, grace: int = GRACE
) -> uvicorn.Config:
    """Return the configuration of a server that logs no request and does not say what it is made of.

    :param field: which setting ``tls`` is.
    :param connections: how many there may be at once.
    :param grace: seconds to finish running requests at shutdown.
    :raises InvalidSite: if certificate or key cannot be used.
    """
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=connections,
        timeout_graceful_shutdown=grace,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=str(tls.key) if tls else None,
    )
    try:
        config.load()
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidSite("cannot use the certificate and its key", why=why, field=field) from error
    return config
