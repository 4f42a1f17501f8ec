"""SSH logins, to guests and to workers: reach the server, load the key, log in."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabric_direct.drivers.ssh import tcp
from fabric_direct.errors import InvalidSite

if TYPE_CHECKING:
    import paramiko

# Seconds for a TCP connection. The server's kernel answers, whatever else its machine does. Ours asks at
# once and after 1 s, and knows after 3 s that a neighbor is not there (RFC 6298; arp(7)).
CONNECT = 3.0
# Seconds for the server's first line. OpenSSH's hangs up after as long (LoginGraceTime, sshd_config(5)).
FIRST_LINE = 120.0


def host_name(address: str, port: int) -> str:
    """Return the name of a server in known_hosts: ``address``, or ``[address]:port``."""
    return address if port == 22 else f"[{address}]:{port}"


def load_key(path: Path, whose: str, *, field: str, remedy: str) -> paramiko.PKey:
    """Return a private key.

    :param whose: the key, as in ``the private key for w1``.
    :param field: the field of site.yaml that names its file.
    :raises InvalidSite: if it cannot be read, or has a passphrase.
    """
    import paramiko  # noqa: PLC0415 - it is large
    from paramiko.pkey import UnknownKeyType  # noqa: PLC0415

    try:
        return paramiko.PKey.from_path(path)
    except (OSError, ValueError, TypeError, paramiko.SSHException, UnknownKeyType) as error:
        what, where = f"{whose} cannot be read", str(path)
        raise InvalidSite(what, field=field, where=where, why=str(error), remedy=remedy) from error


def reach(
    address: str, port: int, *, connect: float = CONNECT, first_line: float = FIRST_LINE
) -> socket.socket:
    """Return a TCP connection to a server that speaks first, as SSH's do.

    The kernel ends it within 25 s when the other end is gone.

    :param connect: seconds for the connection.
    :param first_line: seconds for the server's first line after that.
    :raises OSError: if nothing answers in that time.
    """
    connection = socket.create_connection((address, port), connect)
    try:
        tcp.notice_loss(connection)
        connection.settimeout(first_line)
        if not connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the server closed the connection at once")
    except OSError:
        connection.close()
        raise
    return connection


def log_in(
    client: paramiko.SSHClient,
    connection: socket.socket,
    address: str,
    port: int,
    user: str | None,
    *,
    key: paramiko.PKey | None,
    limit: float,
) -> None:
    """Log in by an open connection; if that fails, close client and connection.

    :param key: the only key to try; if absent, those of an agent and of ``~/.ssh``.
    :param limit: seconds for each of: the key exchange, the login, a new channel.
    """
    try:
        client.connect(
            address,
            port,
            user,
            pkey=key,
            sock=connection,
            timeout=limit,
            allow_agent=key is None,
            look_for_keys=key is None,
            banner_timeout=limit,
            auth_timeout=limit,
            channel_timeout=limit,
            transport_factory=partial(_transport, limit),
        )
    except BaseException:
        client.close()
        connection.close()
        raise


def transport_of(client: paramiko.SSHClient) -> paramiko.Transport:
    """Return what a client's channels are opened on.

    :raises paramiko.SSHException: if the connection is closed.
    """
    transport = client.get_transport()
    if transport is None:
        import paramiko  # noqa: PLC0415 - it is large

        raise paramiko.SSHException("the connection is closed")
    return transport


def _transport(limit: float, connection: socket.socket, **settings: Any) -> paramiko.Transport:
    """Return a transport that allows the key exchange ``limit`` seconds; paramiko's own limit is 15."""
    import paramiko  # noqa: PLC0415 - it is large

    transport = paramiko.Transport(connection, **settings)
    transport.handshake_timeout = limit
    return transport
