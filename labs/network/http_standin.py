"""What stand-ins for controllers have in common: an HTTP server of this machine, faults on demand."""

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass
class Fault:
    """What happens to one request."""

    method: str
    path: str
    kind: str
    """``close`` and ``lose`` end the connection before and after; ``hang`` waits until the end, ``late``
    does so and is carried out; else a status."""
    words: str = ""
    left: int = 1
    over: threading.Event = field(default_factory=threading.Event)


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, words: str, tag: str = "invalid-value") -> None:
        super().__init__(words)
        self.status, self.words, self.tag = status, words, tag


@dataclass
class StandIn:
    """An API: what it was asked, and what goes wrong."""

    faults: list[Fault] = field(default_factory=list)
    at: tuple[int, str] | None = None
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def fault(self, method: str, path: str, kind: str, words: str = "", times: int = 1) -> Fault:
        """Have the next requests of a method, with this in their path, fail."""
        self.faults.append(Fault(method, path, kind, words, times))
        return self.faults[-1]

    def fault_at(self, number: int, kind: str) -> None:
        """Have one request fail, by its number from now, from 1."""
        self.at = (len(self.requests) + number, kind)

    def next_fault(self, method: str, path: str) -> Fault | None:
        """Return what happens to a request, if anything."""
        if self.at and len(self.requests) == self.at[0]:
            return Fault(method, path, self.at[1])
        for fault in self.faults:
            if fault.left and fault.method == method and self.meant(fault, path):
                fault.left -= 1
                return fault
        return None

    def meant(self, fault: Fault, path: str) -> bool:
        """Return whether a fault is for a path."""
        return fault.path in path

    def answer(self, method: str, target: str, headers: Any, body: Json) -> tuple[int, Any, Json]:
        """Return the status, the document and the headers of an answer.

        :raises Refused: with a status and words.
        """
        raise NotImplementedError

    def errors(self, words: str, tag: str = "operation-failed") -> Json:
        """Return the document that tells of an error."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        stand_in, status, said, headers = self.stand_in, 0, {}, {}
        with stand_in.lock:
            stand_in.requests.append(f"{self.command} {self.path}")
            fault = stand_in.next_fault(self.command, self.path)
        if fault and fault.kind in {"hang", "late"}:
            stand_in.released.wait(30)
        if fault is None or fault.kind in {"lose", "late"}:
            with stand_in.lock:
                status, said, headers = self._carried_out(body)
        if fault and fault.kind in {"close", "lose", "hang", "late"}:
            fault.over.set()
            self.close_connection = True
            return
        if fault:
            status, said = int(fault.kind), stand_in.errors(fault.words) if fault.words else {}
        self._send(status, said, headers)

    def _carried_out(self, body: Json) -> tuple[int, Any, Json]:
        try:
            return self.stand_in.answer(self.command, self.path, self.headers, body)
        except Refused as refused:
            return refused.status, self.stand_in.errors(refused.words, refused.tag), {}

    def _send(self, status: int, said: Any, headers: Json) -> None:
        text = json.dumps(said).encode() if said or isinstance(said, list) else b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _answer  # noqa: N815 - of http.server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(stand_in: StandIn, tls: ssl.SSLContext | None = None) -> tuple[str, Callable[[], None]]:
    """Serve it on a free port of this machine; return its address, and what ends it."""
    handler = type("Handler", (_Handler,), {"stand_in": stand_in})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()

    def end() -> None:
        stand_in.released.set()
        server.shutdown()
        server.server_close()
        thread.join()

    return f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}", end
