"""A zone on loopback that answers as it is told: what children may do wrong. And a CA for tests."""

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    what: str
    """Method and path."""
    headers: dict[str, str]
    """By name in lower case."""
    body: Any


@dataclass
class ScriptedZone:
    """Answers each request with the next of its replies; the last one stays.

    What it was not told to answer it answers with 404.
    """

    tls: ssl.SSLContext | None = None
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    """By method and path."""
    asked: list[Asked] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when it ends: what hangs goes on then."""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_port}"

    def reply(self, what: str, *replies: Reply) -> None:
        """Answer ``METHOD /path`` so from now on."""
        self.replies[what] = list(replies)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        what = f"{handler.command} {handler.path}"
        headers = {name.lower(): value for name, value in handler.headers.items()}
        content = handler.rfile.read(int(headers.get("content-length", "0")))
        self.asked.append(Asked(what, headers, json.loads(content) if content else None))
        there = self.replies.get(what, [says({"error": "NotFound", "message": what}, status=404)])
        (there.pop(0) if len(there) > 1 else there[0])(handler)


def _handler(zone: ScriptedZone) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            zone.answer(self)

        do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def says(
    document: Any, *, status: int = 200, kind: str = "application/json", **headers: str
) -> Reply:
    """Return a reply with a JSON document, or with bytes as they are."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return reply


def hangs(zone: ScriptedZone) -> Reply:
    """Return a reply that does not come before the zone ends."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        zone.ended.wait()
        handler.close_connection = True

    return reply


def hangs_in_the_middle(zone: ScriptedZone) -> Reply:
    """Return a reply that begins, and does not end before the zone does."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        _begin(handler, length=1000)
        handler.wfile.write(b'{"offers": [')
        hangs(zone)(handler)

    return reply


def breaks(handler: BaseHTTPRequestHandler) -> None:
    """End the connection instead of an answer."""
    handler.close_connection = True


def breaks_in_the_middle(handler: BaseHTTPRequestHandler) -> None:
    """End the connection after half an answer."""
    _begin(handler, length=1000)
    handler.wfile.write(b'{"offers": [')
    handler.close_connection = True


@dataclass
class Floods:
    """A reply of 100 MB, which counts what it could send."""

    sent: int = 0
    size: int = 100_000_000

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        _begin(handler, length=self.size)
        handler.close_connection = True
        chunk = b" " * 65_536
        try:
            while self.sent < self.size:
                handler.wfile.write(chunk)
                self.sent += len(chunk)
        except OSError:
            pass  # the other side has gone, as it should


def _begin(handler: BaseHTTPRequestHandler, *, length: int) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(length))
    handler.end_headers()


# Python 3.13 asks a certificate for all that RFC 5280 does: an authority for what its key is used.
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    **dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment"), False),
    **dict.fromkeys(("data_encipherment", "key_agreement"), False),
    **dict.fromkeys(("encipher_only", "decipher_only"), False),
)


def _identifier(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


class Authority:
    """A CA of the test's own."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        itself = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        extensions = {
            x509.BasicConstraints(ca=True, path_length=0): True,
            _SIGNS: True,
            itself: False,
        }
        certificate = self._signed(self._name, self._key.public_key(), extensions)
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, address: str = "127.0.0.1") -> dict[str, str]:
        """Return the files of a new certificate and its key, as ``zone.tls`` names them."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = self._signed(_named(name), key.public_key(), {names: False})
        files = {part: self._folder / f"{name}.{part}.pem" for part in ("certificate", "key")}
        files["certificate"].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files["key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return {part: str(file) for part, file in files.items()}

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, extensions: dict[Any, bool]
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )
        identifier = {_identifier(self._key.public_key()): False}
        for extension, critical in (extensions | identifier).items():
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def server_context(files: dict[str, str]) -> ssl.SSLContext:
    """Return with what a server shows who it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])
    return context
