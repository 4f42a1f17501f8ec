"""The server of a zone: listening socket, TLS, tokens, shutdown."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from types import FrameType

import uvicorn
from anyio.to_thread import run_sync
from fastapi import FastAPI

from fabric_direct.config import Site
from fabric_direct.errors import InvalidSite
from fabric_direct.locks import exclusive
from fabric_direct.processor import HandlerProcessor
from fabric_direct.zones.access import is_loopback, is_token, token_lines
from fabric_direct.zones.app import application
from fabric_direct.zones.child import ChildSource
from fabric_direct.zones.local_source import LocalSource
from fabric_direct.zones.source import Source
from fabric_direct.zones.zone import Zone

log = logging.getLogger(__name__)

_GRACE = 30
"""Seconds to finish running requests at shutdown."""
_CONNECTIONS = 500
_POLL = 0.2
"""Seconds between two checks for a second signal."""


class ZoneServer:
    """A server that offers a site as a zone."""

    def __init__(self, site: Site) -> None:
        """Bind the address; no request is answered yet.

        :raises InvalidSite: if the address is not loopback and TLS or tokens are missing, if
            certificate, key or tokens cannot be read, or if the address cannot be bound.
        """
        self._site = site
        self._tokens = _tokens(site)
        self._host, port = _address(site)
        _refuse_open(site, self._host)
        self._processor = HandlerProcessor(site) if site.zone.own_hosts else None
        self._ended = self._processor is None
        self._socket = _bound(self._host, port)
        self.port = int(self._socket.getsockname()[1])
        """The port that it listens on; the one chosen by the system if the site says 0."""
        try:
            self._server = _Server(self._config())
        except InvalidSite:
            self._socket.close()
            raise

    @property
    def url(self) -> str:
        """The base URL of the zone."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._site.zone.tls else 'http'}://{host}:{self.port}"

    def run(self, started: Callable[[str], None] | None = None) -> bool:
        """Serve until SIGTERM, SIGINT or :meth:`stop`; then accept nothing new and finish the rest.

        A second signal ends the server without waiting; the next server finishes what is unfinished.

        :param started: called with the URL when clients can connect.
        :returns: whether all operations that were begun are finished; if not, threads are still running,
            and the next server finishes what they leave.
        :raises SliverBusy: if another process serves the same site as a zone.
        """
        path = self._site.state_dir / "zone" / "lock"
        alone = exclusive(path, f"the zone {self._site.zone_name}", timeout=self._site.limits.busy)
        with closing(self._socket), alone:
            if started:
                started(self.url)
            self._server.run(sockets=[self._socket])
            return self._ended

    def stop(self) -> None:
        """Shut the server down. May be called from any thread."""
        self._server.should_exit = True

    def _config(self) -> uvicorn.Config:
        tls = self._site.zone.tls
        config = uvicorn.Config(
            application(self._zone(), self._tokens, self._lifespan),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=str(tls.key) if tls else None,
        )
        try:
            config.load()
        except OSError as error:
            raise InvalidSite(
                "cannot use the certificate and its key",
                why=error.strerror or str(error),
                field="zone.tls",
            ) from error
        return config

    def _zone(self) -> Zone:
        self._children = [ChildSource(n, child) for n, child in self._site.zone.children.items()]
        self._own = LocalSource(self._site, self._processor) if self._processor else None
        sources: list[Source] = [*([self._own] if self._own else []), *self._children]
        self._the_zone = Zone(self._site, sources)
        return self._the_zone

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        await self._the_zone.start()
        if self._own:
            await self._own.resume()
        yield
        await self._the_zone.close()
        for child in self._children:
            await child.close()
        if self._processor:
            self._ended = await self._finished(self._processor)

    async def _finished(self, processor: HandlerProcessor) -> bool:
        """Shut the processor down and wait for it, unless a second signal comes."""
        finish = partial(processor.shutdown, timeout=self._site.limits.create)
        finishing = asyncio.create_task(run_sync(finish, abandon_on_cancel=True))
        while not finishing.done() and not self._server.force_exit:
            await asyncio.wait([finishing], timeout=_POLL)
        return finishing.done() and finishing.result()


class _Server(uvicorn.Server):
    """uvicorn's server with other signal handling.

    Any second signal ends it at once, and captured signals are not raised again after the end.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def _address(site: Site) -> tuple[str, int]:
    host, _, port = site.zone.listen.rpartition(":")
    if int(port) > 65535:
        raise InvalidSite(f"{port} is not a port number", field="zone.listen")
    return host.strip("[]"), int(port)


def _refuse_open(site: Site, host: str) -> None:
    """Raise InvalidSite unless the address is loopback or the site has TLS and tokens."""
    if is_loopback(host):
        return
    for field in ("tls", "token_file"):
        if getattr(site.zone, field) is None:
            raise InvalidSite(
                f"is required to listen on {host}",
                why="it is not a loopback address",
                remedy="set it, or listen on 127.0.0.1",
                field=f"zone.{field}",
            )


def _bound(host: str, port: int) -> socket.socket:
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
        raise InvalidSite(
            f"cannot listen on {host}:{port}", why=why, field="zone.listen"
        ) from error
    listening.listen()
    return listening


def _tokens(site: Site) -> Sequence[str]:
    path = site.zone.token_file
    if path is None:
        return ()
    tokens = [line for line in token_lines(path, field="zone.token_file") if line]
    if not tokens or not all(map(is_token, tokens)):
        raise InvalidSite(
            f"{path} must have one token on each line",
            why="a token has letters, digits and -._~+/ only",
            field="zone.token_file",
        )
    return tokens
