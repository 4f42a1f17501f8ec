"""Guests through SSH, for images without an agent.

Required in the guest: an SSH server that accepts the site's key, a POSIX shell, ``cat``, ``test``,
``wc``, ``mv``, ``mkdir``, and ``ip`` of iproute2 or busybox, or ``ifconfig`` of a BSD. The user's own
shell may be another one, such as FreeBSD's csh. The guest's host key is pinned first
(:func:`~fabric_direct.drivers.ssh.known_hosts.pin`).
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from fabric_direct.calls.deadline import Deadline, time_left, wait_until
from fabric_direct.calls.forks import cached_property
from fabric_direct.drivers.cloudinit import BOOT_FINISHED
from fabric_direct.drivers.contract import CommandResult, GuestAddress, GuestInterface, HostKey
from fabric_direct.drivers.guests import ifconfig
from fabric_direct.drivers.guests.authorized_keys import keys_in, matching, missing, verify
from fabric_direct.drivers.guests.connection_attempts import Attempts, Reached
from fabric_direct.drivers.guests.connection_pool import SshClients
from fabric_direct.drivers.ssh.host_keys import new_host_key
from fabric_direct.drivers.ssh.known_hosts import (
    known_hosts,
    pin,
    pinned,
    pinned_addresses,
    trust_pinned,
    unpin,
)
from fabric_direct.drivers.ssh.login import host_name, load_key, log_in, reach, transport_of
from fabric_direct.errors import DriverError, InvalidSite, TimedOut, Unreachable
from fabric_direct.site.config import Site

if TYPE_CHECKING:
    import paramiko

PORT = 22
# Seconds for a last attempt to log in that begins when the time for it is over.
LAST = 10.0

# Bytes of a command's output that are read: a guest may write without end.
OUTPUT = 8 * 1024**2
_KEY_LINE = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp\d+) [A-Za-z0-9+/]+=*( .*)?")

KEYS_FILE = ".ssh/authorized_keys"
# $1 is the size in bytes: a connection that breaks off must not leave half a file.
_WRITE_KEYS = f"""umask 077
mkdir -p .ssh && cat >{KEYS_FILE}.new && [ "$(wc -c <{KEYS_FILE}.new)" -eq "$1" ] &&
mv {KEYS_FILE}.new {KEYS_FILE}"""
# What no shell reads in another way within quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_ ./:=@%+,-]")
_HALF = "--\n"
# One command, because each is slow in a small guest; busybox's ip has no JSON output.
_READ_LINKS = f"""{ifconfig.SHOW}for each in /sys/class/net/*; do
  echo "${{each##*/}} $(cat "$each/address")"
done
echo -- && ip -o addr"""


class SshGuest:
    """Accesses the guests of a site through SSH, as the image's user.

    A guest may be slow, so no constant limits a login, a channel or a command: a call that is given no
    time by its caller may take half of what the caller has left, at most half of ``limits.guest_boot``.

    :param site: the site; its key, and its pinned host keys.
    :param host: name of the worker.
    :raises InvalidSite: if the site has no key of its own for guests.
    """

    name = "ssh"

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - as for all drivers
        if site.guest_access.ssh_key is None:
            raise InvalidSite(
                "the driver 'ssh' for guests needs a private key",
                field="guest_access.ssh_key",
                remedy="make one with ssh-keygen and name its file there",
            )
        self._site, self._key = site, site.guest_access.ssh_key
        self._clients, self._attempts = SshClients(), Attempts()

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The public part of the site's key.

        :raises InvalidSite: if the key cannot be read.
        """
        key = self._load_key()
        return (f"{key.get_name()} {key.get_base64()} {self._site.site}",)

    def listens(self, guest: GuestAddress) -> bool:
        """Return whether an SSH server has answered at one of the guest's addresses; do not wait."""
        to = guest.addresses
        return bool(to) and self._attempts.answered(to, partial(_reach, to))

    def learn(self, guest: GuestAddress, console: str) -> bool:
        """Pin the host key that cloud-init printed on the console; return whether one is pinned.

        A guest may print any key there, but only the guest itself can: nobody on the network can.
        """
        shown = _shown_keys(console)
        for address in guest.addresses if shown else ():
            pin(self._site, host_name(address, PORT), shown[0])
        return bool(self.pins(guest))

    def give_host_key(self, guest: GuestAddress) -> HostKey:
        """Make an Ed25519 host key, and pin it at all of the guest's addresses in place of any other."""
        key = new_host_key()
        self._clients.close(_whom(guest))
        for address in guest.addresses:
            pin(self._site, host_name(address, PORT), key.public)
        return key

    def pins(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the guest's addresses that have a pinned host key."""
        known = pinned(self._site)
        return tuple(a for a in guest.addresses if known.lookup(host_name(a, PORT)))

    def pinned(self) -> tuple[str, ...]:
        """Return all IP addresses of the site's known hosts."""
        return tuple(pinned_addresses(self._site))

    def forget(self, guest: GuestAddress) -> None:
        """Remove the pinned host keys of the guest's addresses, and close its connections."""
        self._clients.close(_whom(guest))
        self._attempts.close(guest.addresses)
        for address in self.pins(guest):
            unpin(self._site, host_name(address, PORT))

    def ping(self, guest: GuestAddress) -> bool:
        """Return whether a login to the guest succeeds now."""
        return self._answers(guest, self._patience())

    def _answers(self, guest: GuestAddress, limit: float) -> bool:
        try:
            with self._client(guest, limit):
                return True
        except Unreachable:
            return False

    def _patience(self) -> float:
        """Return half of the time that the caller has: the rest is for what it does afterwards."""
        return time_left(self._site.limits.guest_boot) / 2

    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Block until a login to the guest succeeds.

        :param timeout: seconds; the last attempt may end :data:`LAST` seconds later.
        :raises Unreachable: if none succeeds within that time, or at once if no host key is pinned.
        :raises DriverError: if its host key is not the pinned one.
        """
        self._pinned_addresses(guest)
        deadline = Deadline.within(timeout)

        def answers() -> bool:
            return self._answers(guest, max(LAST, deadline.remaining()))

        try:
            wait_until("the guest to answer", answers, timeout=timeout)
        except TimedOut as error:
            raise Unreachable(
                f"guest {guest.instance} does not answer",
                where=", ".join(guest.addresses),
                why=f"no login as {guest.user} succeeded within {timeout:g} s",
                remedy="look at its console, and whether it has the site's key",
            ) from error

    def boot_finished(self, guest: GuestAddress) -> bool:
        """Return whether cloud-init, or its substitute, has finished in the guest."""
        return self._run(guest, ("test", "-e", BOOT_FINISHED)).code == 0

    def ssh_host_key(self, guest: GuestAddress) -> str:
        """Return the host key with which the guest authenticated itself: the pinned one."""
        with self._translated(guest, "ask"), self._client(guest, self._patience()) as client:
            key = transport_of(client).get_remote_server_key()
        return f"{key.get_name()} {key.get_base64()}"

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the guest's network interfaces except loopback.

        :raises DriverError: if the guest has neither ``ip`` nor, as a BSD, ``ifconfig``.
        """
        said = self._output(guest, ("sh", "-c", _READ_LINKS))
        try:
            if said.startswith(ifconfig.HEAD):
                return _of_bsd(said)
            macs, _, lines = said.partition(_HALF)
            return _interfaces(macs, lines)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            # Guests may send anything.
            raise DriverError(
                f"guest {guest.instance} sent an invalid response",
                why=f"{type(error).__name__} when it was asked for its network interfaces",
            ) from error

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        """Run a command in the guest as the image's user; every argument is quoted for its shell.

        :param timeout: seconds that the command may take after the login.
        :raises TimedOut: if the command has not ended by then; it may continue in the guest.
        :raises Unreachable: if the login fails, or the connection breaks.
        :raises InvalidSite: if the site's key cannot be read.
        """
        login = self._patience()
        with self._translated(guest, f"run {argv[0]}"), self._client(guest, login) as client:
            return _run(client, _quoted(argv), stdin, Deadline.within(timeout))

    def _run(self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"") -> CommandResult:
        """Run one of this driver's short commands."""
        return self.run(guest, argv, stdin, timeout=self._patience())

    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the public keys that may log in as the image's user, with options and comments."""
        return keys_in(self._read_keys(guest))

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Add public keys that may log in as the image's user.

        :raises NotVerified: if one of them, read back, is missing.
        """
        lines = self._read_keys(guest)
        self._write_keys(guest, lines, [*lines, *keys_in(missing(keys, lines))])
        verify(guest, not missing(keys, self._read_keys(guest)), KEYS_FILE)

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Remove public keys that may log in as the image's user.

        :raises NotVerified: if one of them, read back, is still there.
        """
        lines = self._read_keys(guest)
        unwanted = matching(keys, lines)
        self._write_keys(guest, lines, [line for line in lines if line not in unwanted])
        verify(guest, not matching(keys, self._read_keys(guest)), KEYS_FILE)

    def _read_keys(self, guest: GuestAddress) -> list[str]:
        if self._run(guest, ("test", "-e", KEYS_FILE)).code != 0:
            return []
        return self._output(guest, ("cat", KEYS_FILE)).splitlines()

    def _write_keys(self, guest: GuestAddress, old: list[str], new: list[str]) -> None:
        if new != old:
            content = "".join(f"{line}\n" for line in new).encode(errors="surrogateescape")
            self._output(guest, ("sh", "-c", _WRITE_KEYS, "sh", str(len(content))), content)

    def _output(self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"") -> str:
        """Run a command that must succeed and return its output."""
        result = self._run(guest, argv, stdin)
        if result.code != 0:
            raise DriverError(
                f"{argv[0]} failed in guest {guest.instance}",
                where=", ".join(guest.addresses),
                why=result.stderr.decode(errors="replace").strip() or f"code {result.code}",
            )
        return result.stdout.decode(errors="surrogateescape")

    def _pinned_addresses(self, guest: GuestAddress) -> list[str]:
        found = list(self.pins(guest))
        if not found:
            raise Unreachable(
                f"no host key is pinned for guest {guest.instance}",
                where=str(known_hosts(self._site)),
                why=f"none for {', '.join(guest.addresses) or 'it, as it has no address'}",
                remedy="read the key by the agent or from the console, and pin it",
            )
        return found

    @contextmanager
    def _client(self, guest: GuestAddress, limit: float) -> Iterator[paramiko.SSHClient]:
        """Log in to the guest as its user within ``limit`` seconds, for one block."""
        deadline, whom = Deadline.within(limit), _whom(guest)
        connect = partial(self._connect, guest, deadline)
        with (
            self._translated(guest, "log in to"),
            self._clients.use(whom, connect, limit / 2) as client,
        ):
            yield client

    def _connect(self, guest: GuestAddress, deadline: Deadline) -> paramiko.SSHClient:
        """Log in at the first address that has a pinned host key and answers."""
        import paramiko  # noqa: PLC0415 - it is large

        key, pinned = self._load_key(), tuple(self._pinned_addresses(guest))
        connect = partial(_reach, pinned)
        address, connection = self._attempts.take(pinned, connect, deadline.remaining())
        client = paramiko.SSHClient()
        trust_pinned(self._site, client)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        # The key exchange and the login have half of the time each.
        limit = deadline.remaining() / 2
        log_in(client, connection, address, PORT, guest.user, key=key, limit=limit)
        return client

    def _load_key(self) -> paramiko.PKey:
        whose, field = "the site's private key for guests", "guest_access.ssh_key"
        remedy = "make one without a passphrase: ssh-keygen -N ''"
        return load_key(self._key, whose, field=field, remedy=remedy)

    @contextmanager
    def _translated(self, guest: GuestAddress, what: str) -> Iterator[None]:
        import paramiko  # noqa: PLC0415 - it is large

        where = f"{guest.user}@{', '.join(guest.addresses)}"
        try:
            yield
        except paramiko.BadHostKeyException as error:
            raise DriverError(
                f"the host key of guest {guest.instance} is not the pinned one",
                where=where,
                why=str(error),
                remedy="if the guest was created again, pin its new key; otherwise suspect a "
                "man-in-the-middle attack",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Unreachable(
                f"cannot {what} guest {guest.instance}",
                where=where,
                why=str(error) or type(error).__name__,
                remedy="look at its console, and whether it has the site's key",
            ) from error


def _quoted(argv: tuple[str, ...]) -> str:
    """Return a command as any user's shell takes it.

    csh, which users of FreeBSD have, lets no quotes go over lines, and reads ``!`` within them: ``sh``
    is told such a command in octal.
    """
    command = shlex.join(argv)
    if "\n" not in command and "!" not in command:
        return command
    told = "".join(
        chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"\\0{byte:03o}"
        for byte in command.encode(errors="surrogateescape")
    )
    return f"""sh -c 'eval "exec $(printf %b "$1")"' sh '{told}'"""


def _whom(guest: GuestAddress) -> tuple[str, ...]:
    return (guest.user, *guest.addresses)


def _reach(addresses: tuple[str, ...]) -> Reached:
    """Return a connection to the first of a guest's addresses where an SSH server answers."""
    *others, last = addresses
    for address in others:
        with suppress(OSError):
            return Reached(address, reach(address, PORT))
    return Reached(last, reach(last, PORT))


def _shown_keys(console: str) -> list[str]:
    """Return the host keys between cloud-init's last markers, an Ed25519 one first."""
    _, begun, rest = console.rpartition("-----BEGIN SSH HOST KEY KEYS-----")
    shown, ended, _ = rest.partition("-----END SSH HOST KEY KEYS-----")
    lines = [line.strip() for line in shown.splitlines()] if begun and ended else []
    keys = [line for line in lines if _KEY_LINE.fullmatch(line)]
    return sorted(keys, key=lambda line: not line.startswith("ssh-ed25519 "))


def _of_bsd(said: str) -> tuple[GuestInterface, ...]:
    shown = (each for each in ifconfig.parse(said) if each.mac)
    return tuple(GuestInterface(each.name, each.mac, tuple(each.addresses)) for each in shown)


def _run(
    client: paramiko.SSHClient, command: str, stdin: bytes, deadline: Deadline
) -> CommandResult:
    channel = transport_of(client).open_session(timeout=deadline.remaining())
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        with suppress(OSError, EOFError):  # the connection may be gone by then
            channel.close()

    # Closing the channel ends every wait: for input, output or the end of the command.
    timer = threading.Timer(deadline.remaining(), expire)
    timer.start()
    try:
        channel.exec_command(command)
        result = _communicate(channel, stdin)
    finally:
        timer.cancel()
    if expired.is_set():
        raise TimedOut("the command in the guest did not end in time", remedy="allow it more time")
    return result


def _communicate(channel: paramiko.Channel, stdin: bytes) -> CommandResult:
    """Write and read at the same time, because either side may block until the other reads.

    :raises DriverError: if the command writes more than :data:`OUTPUT`.
    """
    with ThreadPoolExecutor(2) as pool:
        errors = pool.submit(channel.makefile_stderr("rb").read, OUTPUT)
        pool.submit(_feed, channel, stdin)
        output = channel.makefile("rb").read(OUTPUT)
        if len(output) == OUTPUT:
            channel.close()
            raise DriverError("the command in the guest writes too much", why=f"{OUTPUT} bytes")
        # -1 if the server gave no code: a signal ended the command.
        return CommandResult(channel.recv_exit_status(), output, errors.result())


def _feed(channel: paramiko.Channel, stdin: bytes) -> None:
    # A command need not read all of its input before it ends.
    with suppress(OSError):
        channel.sendall(stdin)
        channel.shutdown_write()


def _interfaces(macs: str, lines: str) -> tuple[GuestInterface, ...]:
    """Read ``eth0 52:54:…`` lines, and ``2: eth0    inet 192.0.2.7/28 …`` as ``ip -o addr`` writes."""
    found: dict[str, list[str]] = {}
    for _, name, family, address, *_ in (line.split() for line in lines.splitlines()):
        if family in {"inet", "inet6"}:
            found.setdefault(name, []).append(address)
    pairs = (line.split(" ") for line in macs.splitlines())
    # An interface that went between the list and the read has no address.
    return tuple(
        GuestInterface(name, mac, tuple(found.get(name, ())))
        for name, mac in pairs
        if mac and name != "lo"
    )
