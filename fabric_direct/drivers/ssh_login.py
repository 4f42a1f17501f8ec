"""SSH logins, to guests and to workers: reach the server, load the key, log in."""

import socket
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from fabric_direct.errors import InvalidSite

# Seconds for a TCP connection, and for a server's first line.
REACH = 1.0


def host_name(address: str, port: int) -> str:
    """Return the name of a server in known_hosts: ``address``, or ``[address]:port``."""
    return address if port == 22 else f"[{address}]:{port}"


def load_key(path: Path, whose: str, *, field: str, remedy: str) -> paramiko.PKey:
    """Return a private key.

    :param whose: the key, as in ``the private key for w1``.
    :param field: the field of site.yaml that names its file.
    :raises InvalidSite: if it cannot be read, or has a passphrase.
    """
    try:
        return paramiko.PKey.from_path(path)
    except (OSError, ValueError, TypeError, paramiko.SSHException, UnknownKeyType) as error:
        what, where = f"{whose} cannot be read", str(path)
        raise InvalidSite(what, field=field, where=where, why=str(error), remedy=remedy) from error


def reach(address: str, port: int, limit: float | None = None) -> socket.socket:
    """Return a TCP connection to a server that speaks first, as SSH's do.

    If nothing answers, an attempt takes a second, not the minutes of TCP's own retries.

    :param limit: seconds for the connection, and for the server's first line; :data:`REACH` if absent.
    :raises OSError: if nothing answers in that time.
    """
    connection = socket.create_connection((address, port), limit or REACH)
    try:
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
    handshake: float | None = None,
) -> None:
    """Log in by an open connection; if that fails, close client and connection.

    :param key: the only key to try; if absent, those of an agent and of ``~/.ssh``.
    :param limit: seconds for each of: the server's first line, the login, a new channel.
    :param handshake: seconds for the key exchange; paramiko's own limit if absent.
    """
    try:
        client.connect(
            address,
            port,
            user,
            pkey=key,
            sock=connection,
            timeout=handshake,
            allow_agent=key is None,
            look_for_keys=key is None,
            banner_timeout=limit,
            auth_timeout=limit,
            channel_timeout=limit,
        )
    except BaseException:
        client.close()
        connection.close()
        raise
