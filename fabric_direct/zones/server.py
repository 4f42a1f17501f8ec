"""The server of a zone: listening socket, TLS, tokens, shutdown."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial

import uvicorn
from anyio.to_thread import run_sync
from fastapi import FastAPI

from fabric_direct.processor import HandlerProcessor
from fabric_direct.serving.access import read_tokens, refuse_open
from fabric_direct.serving.listening import UvicornServer, address, base_url, bound, configured
from fabric_direct.site.config import Site
from fabric_direct.state.locks import exclusive
from fabric_direct.zones.app import application
from fabric_direct.zones.child import ChildSource
from fabric_direct.zones.local_source import LocalSource
from fabric_direct.zones.source import Source
from fabric_direct.zones.zone import Zone

log = logging.getLogger(__name__)

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
        file = site.zone.token_file
        self._tokens = read_tokens(file, "zone.token_file") if file else ()
        self._host, port = address(site.zone.listen, "zone.listen")
        refuse_open(self._host, {"zone.tls": site.zone.tls, "zone.token_file": file})
        self._processor = HandlerProcessor(site) if site.zone.own_hosts else None
        self._ended = self._processor is None
        self._server = UvicornServer(self._config())
        self._socket = bound(self._host, port, "zone.listen")
        self.port = int(self._socket.getsockname()[1])
        """The port that it listens on; the one chosen by the system if the site says 0."""

    @property
    def url(self) -> str:
        """The base URL of the zone."""
        return base_url(self._host, self.port, tls=self._site.zone.tls is not None)

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
        app = application(self._zone(), self._tokens, self._lifespan)
        return configured(app, self._site.zone.tls, "zone.tls", connections=_CONNECTIONS)

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
