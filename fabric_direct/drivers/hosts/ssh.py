"""A worker by SSH: one connection, shared by all threads, and on it the relay."""

import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import paramiko

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.hosts.functions import ANSWER, NETLINK, HostFunctions
from fabric_direct.drivers.hosts.host_keys import Refuse, UnknownHostKey, places, trusted
from fabric_direct.drivers.hosts.relay import Relay
from fabric_direct.drivers.hosts.remote_iproute import iproute
from fabric_direct.drivers.ssh.login import host_name, load_key, log_in, reach
from fabric_direct.errors import Denied, DriverError, FabricDirectError, TimedOut, Unreachable
from fabric_direct.site.config import Site

# Seconds for each of: the TCP connection, the server's first line, the key exchange, the login.
CONNECT = 10.0


class SshHost(HostFunctions):
    """A :class:`~fabric_direct.drivers.contract.HostDriver` by SSH.

    The connection is opened at the first call, and again at the next call after it broke.

    :param site: the site; its host has ``ssh``.
    :param host: name of the worker.
    """

    def __init__(self, site: Site, host: str) -> None:
        super().__init__(host)
        self._site, self._settings = site, site.host(host)
        parts = urlsplit(self._settings.ssh or "")
        self._address, self._port = parts.hostname or "", parts.port or 22
        self._user = parts.username
        self._where = f"{host}, {self._settings.ssh}"
        self._lock = forks.Lock()
        self._opening: Future[Relay] | None = None
        self._newest: Relay | None = None
        forks.in_child(self._forget)

    def relay(self, *, timeout: float) -> Relay:
        """Return our process on the worker, started if there is none.

        Callers share an attempt to open it.

        :raises Unreachable: if the worker does not answer, or its host key is unknown.
        :raises DriverError: if its host key is not the trusted one.
        :raises Denied: if it rejects the login.
        :raises Unsupported: if it has no Python that can run the relay.
        :raises TimedOut: if the relay is not open in time.
        """
        with self._lock:
            if self._opening is None or _over(self._opening):
                self._opening = _begun(self._open)
            opening = self._opening
        try:
            return opening.result(min(timeout, threading.TIMEOUT_MAX))
        except TimeoutError as error:
            raise TimedOut("the worker was not reached in time", where=self._where) from error

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with self._lock:
            opening, self._opening = self._opening, None
        if opening:
            opening.add_done_callback(_close)

    @contextmanager
    def netlink(self, netns: str | None = None) -> Iterator[Any]:
        """Return a pyroute2 ``IPRoute`` on the worker's kernel, for one thread and one ``with`` block.

        It supports requests and answers, but no events. Each request may take :data:`NETLINK` seconds.

        :raises NotFound: at the first request, if there is no such network namespace.
        """
        with iproute(partial(self._exchange, netns)) as ip:
            yield ip

    def _exchange(self, netns: str | None, request: bytes) -> bytes:
        given = {"request": b64encode(request).decode(), "limit": NETLINK, "netns": netns}
        return b64decode(self.call("sockets.exchange", timeout=NETLINK + ANSWER, **given))

    def _ask(self, function: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        deadline = Deadline.within(timeout)
        relay = self.relay(timeout=deadline.remaining())
        return relay.ask(function, arguments, deadline)

    def _open(self) -> Relay:
        with self._translated_ssh():
            client = self._connect()
            try:
                self._newest = Relay(client, self._where, self._settings.python)
            except BaseException:
                client.close()
                raise
            return self._newest

    def _connect(self) -> paramiko.SSHClient:
        """Log in with a key, after the worker's host key is verified."""
        to = (self._address, self._port)
        key, client = self._key(), paramiko.SSHClient()
        client.get_host_keys().update(trusted(self._site, self._settings, host_name(*to)))
        client.set_missing_host_key_policy(Refuse())
        connection = reach(*to, connect=CONNECT, first_line=CONNECT)
        log_in(client, connection, *to, self._user, key=key, limit=CONNECT)
        return client

    def _key(self) -> paramiko.PKey | None:
        path, field = self._settings.ssh_key, f"hosts.{self._host}.ssh_key"
        remedy = "name a key without a passphrase, or omit it to use an SSH agent"
        whose = f"the private key for {self._host}"
        return load_key(path, whose, field=field, remedy=remedy) if path else None

    @contextmanager
    def _translated_ssh(self) -> Iterator[None]:
        try:
            yield
        except FabricDirectError:
            raise
        except paramiko.BadHostKeyException as error:
            raise self._changed(error) from error
        except UnknownHostKey as error:
            raise self._unconfirmed(error) from error
        except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
            raise self._refused(error) if _denied(error) else self._silent(error) from error

    def _changed(self, error: paramiko.BadHostKeyException) -> FabricDirectError:
        shown, known = error.key, error.expected_key
        return DriverError(
            f"the host key of {self._host} is not the one that is trusted",
            where=self._settings.ssh or "",
            why=f"it shows {shown.get_name()} {shown.fingerprint}, "
            f"and {known.get_name()} {known.fingerprint} is trusted",
            remedy="if the worker was installed again, compare the new key on the worker itself, then "
            "trust it; otherwise suspect a man-in-the-middle attack",
        )

    def _unconfirmed(self, error: UnknownHostKey) -> FabricDirectError:
        return Unreachable(
            f"no host key of {self._host} is known",
            where=self._settings.ssh or "",
            why=str(error),
            remedy="compare it with what ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub says there; "
            f"then add what ssh-keyscan -p {self._port} {self._address} prints to "
            f"{places(self._site)[0]}, or name the key in site.yaml: hosts.{self._host}.host_key",
        )

    def _refused(self, error: Exception) -> FabricDirectError:
        who = self._settings.ssh_key or "an agent, ~/.ssh"
        return Denied(
            f"{self._host} rejected the login",
            where=self._settings.ssh or "",
            why=f"{error}; keys of: {who}",
            remedy="add the public key to authorized_keys of that user there",
        )

    def _silent(self, error: Exception) -> FabricDirectError:
        return Unreachable(
            f"{self._host} cannot be reached",
            where=self._settings.ssh or "",
            why=str(error) or type(error).__name__,
            remedy="check that it runs, and that its SSH server does",
        )

    def _forget(self) -> None:
        """Start empty in a forked child, without the locks that threads of the parent may hold."""
        newest, self._newest = self._newest, None
        self._opening = None
        if newest:
            newest.forget()


def _begun(work: Any) -> Future[Relay]:
    """Open a relay in a thread; it continues if the caller stops waiting."""
    opening: Future[Relay] = Future()

    def run() -> None:
        try:
            opening.set_result(work())
        except BaseException as error:  # noqa: BLE001 - carried to who waits, not swallowed
            opening.set_exception(error)

    threading.Thread(target=run, name="fabric-direct-ssh", daemon=True).start()
    return opening


def _close(opening: Future[Relay]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _over(opening: Future[Relay]) -> bool:
    return opening.done() and (opening.exception() is not None or not opening.result().alive)


def _denied(error: Exception) -> bool:
    # paramiko has no class of its own for "there is no key to try".
    nothing = str(error) == "No authentication methods available"
    return nothing or isinstance(error, paramiko.AuthenticationException)
