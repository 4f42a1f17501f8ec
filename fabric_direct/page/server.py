"""The server of the page: what it listens on, and how it ends."""

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from fabric_direct.errors import FabricDirectError, InvalidSite
from fabric_direct.page.app import PageApp
from fabric_direct.page.events import Events
from fabric_direct.page.sessions import accepted_tokens
from fabric_direct.page.watching import Watching, limited
from fabric_direct.processor import HandlerProcessor
from fabric_direct.serving.access import refuse_open
from fabric_direct.serving.listening import UvicornServer, address, base_url, bound, configured
from fabric_direct.site.config import Site, TlsSettings

_CONNECTIONS = 300
_GRACE = 5
"""Seconds to finish running requests at shutdown; they only read."""


@dataclass(frozen=True)
class Listening:
    """The address of the page's server, its tokens and its certificate."""

    listen: str = "127.0.0.1:8760"
    """Address and port."""
    token_file: Path | None = None
    """Tokens that are let in, one on each line; by default the environment's, or an own one."""
    certificate: Path | None = None
    """PEM; with its ``key`` required unless it listens on a loopback address."""
    key: Path | None = None

    def tls(self) -> TlsSettings | None:
        """Return the certificate with its key, if there is one.

        :raises InvalidSite: if only one of both is given.
        """
        if self.certificate and self.key:
            return TlsSettings(certificate=self.certificate, key=self.key)
        if self.certificate or self.key:
            missing = "--key" if self.certificate else "--certificate"
            raise InvalidSite("is required beside the other", field=missing)
        return None


class PageServer:
    """A server that shows a site."""

    def __init__(self, site: Site, at: Listening, every: float = 5.0) -> None:
        """Bind the address; no request is answered yet.

        :param every: seconds between two readings of the same thing of the site.
        :raises InvalidSite: if the address is not loopback and there is no TLS, if certificate, key or
            tokens cannot be read, or if the address cannot be bound.
        """
        self._tls = at.tls()
        self._host, port = address(at.listen, "--listen")
        refuse_open(self._host, {"--certificate": self._tls})
        tokens = accepted_tokens(site.state_dir, at.token_file)
        self._socket = bound(self._host, port, "--listen")
        self.port = int(self._socket.getsockname()[1])
        """The port that it listens on; the one chosen by the system if that is 0."""
        try:
            self._processor = HandlerProcessor(limited(site))
            page = PageApp(Watching(self._processor, every), tokens, secure=self._tls is not None)
            config = configured(
                page.asgi(), self._tls, "--certificate", connections=_CONNECTIONS, grace=_GRACE
            )
        except FabricDirectError:
            self._socket.close()
            raise
        self._server = _Server(config, page.events)

    @property
    def url(self) -> str:
        """Return the URL at which browsers find the page."""
        return f"{base_url(self._host, self.port, tls=self._tls is not None)}/"

    def run(self, started: Callable[[str], None] | None = None) -> None:
        """Serve until SIGTERM, SIGINT or :meth:`stop`.

        Threads that wait for a silent host may still be there afterwards; they only read.

        :param started: called with the URL when browsers can connect.
        """
        if started:
            self._server.on_start = lambda: started(self.url)
        with closing(self._socket):
            self._server.run(sockets=[self._socket])
        self._processor.shutdown(wait=False)

    def stop(self) -> None:
        """End the server. May be called from any thread."""
        self._server.end()


class _Server(UvicornServer):
    """A server whose streams of events end when it does."""

    def __init__(self, config: uvicorn.Config, events: Events) -> None:
        super().__init__(config)
        self._events = events
        self.on_start: Callable[[], None] = lambda: None
        """Called when it answers, and when a signal ends it in order."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and tell so."""
        await super().startup(sockets)
        self.on_start()

    def end(self) -> None:
        """End the streams, and then the server."""
        self._events.end()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, too."""
        self._events.end()
        super().handle_exit(sig, frame)
