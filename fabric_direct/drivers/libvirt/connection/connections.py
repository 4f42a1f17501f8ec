"""Connections to libvirt: one for each URI and process, shared by its threads.

A connection used in a forked child hangs and breaks the parent's, so a child drops what it inherited
without a message to the daemon and opens its own.

Shared connections do without libvirt's keepalive: when that gives a connection up on which two threads
wait, one of them may wait for ever, and the process crash as soon as the peer goes on (libvirt 9.0, see
docs/decisions/0046). The kernel notices a TCP peer that is gone, see
:mod:`fabric_direct.drivers.ssh.tcp`.
"""

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import unanswered
from fabric_direct.calls.tracing import remote
from fabric_direct.drivers.libvirt.connection.event_loop import EventLoop
from fabric_direct.errors import (
    DriverError,
    FabricDirectError,
    NotFound,
    TimedOut,
    Unreachable,
    Unsupported,
)

# A peer that answers none of 3 probes, one every 5 s, is gone.
_KEEPALIVE_INTERVAL, _KEEPALIVE_COUNT = 5, 3

_KINDS: dict[int, type[FabricDirectError]] = {
    libvirt.VIR_ERR_NO_DOMAIN: NotFound,
    libvirt.VIR_ERR_NO_NETWORK: NotFound,
    libvirt.VIR_ERR_NO_STORAGE_POOL: NotFound,
    libvirt.VIR_ERR_NO_STORAGE_VOL: NotFound,
    libvirt.VIR_ERR_NO_NODE_DEVICE: NotFound,
    libvirt.VIR_ERR_DEVICE_MISSING: NotFound,
    libvirt.VIR_ERR_NO_CONNECT: Unreachable,
    libvirt.VIR_ERR_RPC: Unreachable,
    libvirt.VIR_ERR_INVALID_CONN: Unreachable,
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE: Unreachable,
    libvirt.VIR_ERR_OPERATION_TIMEOUT: TimedOut,
    libvirt.VIR_ERR_NO_SUPPORT: Unsupported,
    libvirt.VIR_ERR_CONFIG_UNSUPPORTED: Unsupported,
    libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED: Unsupported,
    libvirt.VIR_ERR_OPERATION_UNSUPPORTED: Unsupported,
}

_lock = forks.Lock()
# One for each URI: a host that does not answer does not block connections to others.
_opening: dict[str, threading.Lock] = {}
_connections: dict[str, libvirt.virConnect] = {}
# Those that nobody shares.
_apart: dict[int, libvirt.virConnect] = {}
_events = EventLoop()


def connect(uri: str) -> libvirt.virConnect:
    """Return this process's open connection to ``uri``.

    :raises Unreachable: if libvirt does not answer there.
    """
    with _lock:
        opening = _opening.setdefault(uri, threading.Lock())
    with opening, translated("connect to libvirt", uri, asked=False):
        connection = _connections.get(uri)
        if connection is None or not _is_alive(connection):
            connection = _connections[uri] = _open(uri)
        return connection


@contextmanager
def translated(what: str, where: str, *, asked: bool = True) -> Iterator[None]:
    """Turn libvirt's errors into ours: the code chooses the class, the message is kept as the reason.

    XML of libvirt's that cannot be read is an error of ours, too. If the connection breaks, the daemon
    may still do what it was asked for: that is noted (:func:`fabric_direct.calls.deadline.unanswered`).

    :param what: what is being done, as an infinitive: ``start the domain``.
    :param where: the URI it is done at.
    :param asked: whether the daemon may have been asked for something.
    """
    try:
        with remote(what, libvirt=where):
            yield
    except libvirt.libvirtError as error:
        if asked and _is_broken(error):
            unanswered(f"the request to {what} ({where})")
        raise _translate(error, what, where) from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        why = f"libvirt's answer is invalid: {type(error).__name__}: {error}"
        raise DriverError(f"cannot {what}", where=where, why=why) from error


class Ignoring:
    """Ends a block without an error when libvirt answers with one of these codes."""

    def __init__(self, *codes: int) -> None:
        self._codes = codes

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        return isinstance(error, libvirt.libvirtError) and error.get_error_code() in self._codes


def _translate(error: libvirt.libvirtError, what: str, where: str) -> FabricDirectError:
    kind, why = _KINDS.get(error.get_error_code(), DriverError), error.get_error_message()
    if _is_broken(error):
        kind = Unreachable
    remedy = "check that libvirtd runs there: fabric-direct doctor" if kind is Unreachable else ""
    return kind(f"cannot {what}", where=where, why=why or str(error), remedy=remedy)


def _is_broken(error: libvirt.libvirtError) -> bool:
    """Return whether the connection broke, or could not be opened: VIR_ERR_SYSTEM_ERROR and others."""
    return bool(error.get_error_domain() == libvirt.VIR_FROM_RPC)


def _is_alive(connection: libvirt.virConnect) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        # It was closed, and cannot even be asked.
        return False


def _open(uri: str) -> libvirt.virConnect:
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    _events.start()
    return libvirt.open(uri)


@contextmanager
def connected_apart(uri: str) -> Iterator[libvirt.virConnect]:
    """Give a connection of one's own within the block; its loss is noticed while nothing is asked.

    :raises Unreachable: if libvirt does not answer.
    """
    with translated("connect to libvirt", uri, asked=False):
        connection = _open(uri)
        connection.setKeepAlive(_KEEPALIVE_INTERVAL, _KEEPALIVE_COUNT)
    _apart[id(connection)] = connection
    try:
        yield connection
    finally:
        if _apart.pop(id(connection), None) is not None:
            with suppress(libvirt.libvirtError):
                connection.close()


def _forget() -> None:
    """Drop all connections without closing them."""
    for connection in (*_connections.values(), *_apart.values()):
        connection._o = None
    _connections.clear()
    _apart.clear()


@forks.in_child
def _after_fork() -> None:
    """Drop the parent's connections: closing them would send a message on its sockets."""
    _opening.clear()
    _forget()


@atexit.register
def _at_exit() -> None:
    """Leave the connections to the kernel: closing one while the interpreter ends may block for ever.

    The event loop's thread may be stopped while it holds the lock that closing needs.
    """
    _events.stop()
    _forget()
