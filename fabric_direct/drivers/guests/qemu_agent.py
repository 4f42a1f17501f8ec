"""Guests through the QEMU guest agent: no network, password or key is needed.

libvirt's own calls are used where they exist (interfaces, authorized keys), the agent's commands for
the rest (ping, reading a file, running a command).
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import libvirt
import libvirt_qemu

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.calls.waiting import waiting_for
from fabric_direct.drivers.cloudinit import BOOT_FINISHED
from fabric_direct.drivers.contract import CommandResult, GuestAddress, GuestInterface
from fabric_direct.drivers.guests.authorized_keys import keys_in, matching, missing, verify
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.domains.lookup import the_domain
from fabric_direct.errors import DriverError, NotFound, Unreachable
from fabric_direct.site.config import Site

T = TypeVar("T")
# Seconds that the agent may take for one command; it answers in milliseconds or not at all.
ANSWER = 5
# Seconds between two pings while a guest boots: at first, and at most. An event cuts them short.
FIRST_PAUSE, LAST_PAUSE = 0.2, 2.0
# Bytes of a file that are read; all that are read here are a line long.
FILE_SIZE = 16_384

HOST_KEYS = tuple(f"/etc/ssh/ssh_host_{kind}_key.pub" for kind in ("ed25519", "ecdsa", "rsa"))

_SILENT = {
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
    libvirt.VIR_ERR_AGENT_UNSYNCED,
    libvirt.VIR_ERR_OPERATION_INVALID,  # the domain does not run
    getattr(libvirt, "VIR_ERR_AGENT_COMMAND_TIMEOUT", None),  # younger than libvirt 9.0
}
# Errors of parsing an invalid response: guests may send anything.
_NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# The agent gives no codes: this is the C library's word for ENOENT.
_NO_FILE = "No such file or directory"


class AgentGuest:
    """Accesses the guests of one host through their agents.

    :param site: the site.
    :param host: name of the worker; an unknown one is refused at the first call.
    """

    name = "agent"
    keys: tuple[str, ...] = ()

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._host = site, host

    @property
    def _uri(self) -> str:
        """Return libvirt's URI of the host.

        :raises NotFound: if the site has no such worker.
        """
        return self._site.host(self._host).libvirt

    def listens(self, guest: GuestAddress) -> bool:  # noqa: ARG002 - the agent is asked itself
        """Return True: the agent's channel always exists."""
        return True

    def learn(self, guest: GuestAddress, console: str) -> bool:  # noqa: ARG002 - none is needed
        """Return True: the agent's channel is the host's own and needs no host key."""
        return True

    def give_host_key(self, guest: GuestAddress) -> None:
        """Return None: no host key is needed."""

    def pins(self, guest: GuestAddress) -> tuple[str, ...]:  # noqa: ARG002
        """Return none: no host key is needed."""
        return ()

    def pinned(self) -> tuple[str, ...]:
        """Return none: no host key is needed."""
        return ()

    def forget(self, guest: GuestAddress) -> None:
        """Do nothing: no host key is kept."""

    def ping(self, guest: GuestAddress) -> bool:
        """Return whether the agent answers within :data:`ANSWER` seconds."""
        try:
            with self._translated("ping", guest):
                _command(self._domain(guest), "guest-ping")
        except (Unreachable, NotFound):
            return False
        return True

    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Block until the agent answers.

        :param timeout: seconds; the last ping may end :data:`ANSWER` seconds later.
        :raises Unreachable: if it does not within that time.
        :raises Unsupported: if the domain has no channel for an agent.
        """
        deadline, pause = Deadline.within(timeout), FIRST_PAUSE
        hearing, waiting = self._listening(guest), waiting_for("the guest to answer")
        with self._translated("wait for", guest), hearing as connected, waiting as still:
            while not self.ping(guest):
                still("")
                if deadline.remaining() <= 0:
                    raise self._silent(guest, f"waited {timeout:g} s")
                connected.wait(deadline.remaining(pause))
                connected.clear()
                pause = min(2 * pause, LAST_PAUSE)

    def boot_finished(self, guest: GuestAddress) -> bool:
        """Return whether cloud-init, or its substitute, has finished in the guest."""
        return self._read(guest, BOOT_FINISHED) is not None

    def ssh_host_key(self, guest: GuestAddress) -> str | None:
        """Return the guest's strongest SSH host key, or None if it has none."""
        for path in HOST_KEYS:
            words = (self._read(guest, path) or b"").decode(errors="replace").split()
            if len(words) >= 2:
                return " ".join(words[:2])
        return None

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the guest's network interfaces except loopback."""
        source = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
        with self._translated("read the network interfaces of", guest):
            found = self._domain(guest).interfaceAddresses(source)
            return tuple(_interface(name, data) for name, data in found.items() if name != "lo")

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        """Run a command in the guest as root, without a shell.

        The code of a command that a signal ended is 128 plus the signal, as in a shell.

        :param timeout: seconds that the command may take.
        :raises TimedOut: if the command has not ended by then; it continues in the guest.
        """
        deadline = Deadline.within(timeout)
        with self._translated(f"run {argv[0]} in", guest):
            domain = self._domain(guest)
            pid = _execute(domain, argv, stdin)
            ended: dict[str, Any] = {}

            def has_ended() -> bool:
                ended.update(_command(domain, "guest-exec-status", pid=pid))
                return bool(ended["exited"])

            what = f"{argv[0]}, process {pid} of the guest, to end"
            wait_until(what, has_ended, timeout=deadline.remaining(), where=self._uri)
            return _result(ended)

    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the public keys that may log in as the image's user, with options and comments."""
        with self._translated(f"read the keys of {guest.user} in", guest):
            domain = self._domain(guest)
            return keys_in(_if_present(lambda: domain.authorizedSSHKeysGet(guest.user)) or ())

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Add public keys that may log in as the image's user.

        :raises NotVerified: if one of them, read back, is missing.
        """
        append = libvirt.VIR_DOMAIN_AUTHORIZED_SSH_KEYS_SET_APPEND
        new = keys_in(missing(keys, self.authorized_keys(guest)))
        self._set_keys(guest, new, append)
        verify(guest, not missing(keys, self.authorized_keys(guest)), self._uri)

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Remove public keys that may log in as the image's user.

        :raises NotVerified: if one of them, read back, is still there.
        """
        remove = libvirt.VIR_DOMAIN_AUTHORIZED_SSH_KEYS_SET_REMOVE
        self._set_keys(guest, matching(keys, self.authorized_keys(guest)), remove)
        verify(guest, not matching(keys, self.authorized_keys(guest)), self._uri)

    def _set_keys(self, guest: GuestAddress, keys: tuple[str, ...], flags: int) -> None:
        with self._translated(f"change the keys of {guest.user} in", guest):
            if keys:
                self._domain(guest).authorizedSSHKeysSet(guest.user, list(keys), flags)

    def _domain(self, guest: GuestAddress) -> libvirt.virDomain:
        """Return the guest's domain, with a time limit for libvirt's own calls to its agent."""
        domain = the_domain(connect(self._uri), guest.sliver, self._site.site)
        domain.agentSetResponseTimeout(ANSWER)
        return domain

    @contextmanager
    def _translated(self, what: str, guest: GuestAddress) -> Iterator[None]:
        with translated(f"{what} guest {guest.instance}", self._uri):
            try:
                yield
            except libvirt.libvirtError as error:
                if error.get_error_code() in _SILENT:
                    raise self._silent(guest, error.get_error_message()) from error
                raise
            except _NONSENSE as error:
                raise DriverError(
                    f"the agent of guest {guest.instance} sent an invalid response",
                    where=self._uri,
                    why=f"{type(error).__name__} when it was asked to {what} it",
                ) from error

    def _silent(self, guest: GuestAddress, why: str) -> Unreachable:
        return Unreachable(
            f"the agent of guest {guest.instance} does not answer",
            where=self._uri,
            why=why,
            remedy="look at its console, and whether qemu-guest-agent runs in it",
        )

    @contextmanager
    def _listening(self, guest: GuestAddress) -> Iterator[threading.Event]:
        """Set an event whenever the agent connects or disconnects."""
        heard = threading.Event()
        connection = connect(self._uri)
        domain = the_domain(connection, guest.sliver, self._site.site)
        event = libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE
        number = connection.domainEventRegisterAny(domain, event, lambda *_: heard.set(), None)
        try:
            yield heard
        finally:
            connection.domainEventDeregisterAny(number)

    def _read(self, guest: GuestAddress, path: str) -> bytes | None:
        """Return the beginning of a file, or None if there is none."""
        with self._translated(f"read {path} in", guest):
            return _if_present(lambda: _read_file(self._domain(guest), path))


def _command(domain: libvirt.virDomain, name: str, **arguments: Any) -> Any:
    request = json.dumps({"execute": name, "arguments": arguments})
    return json.loads(libvirt_qemu.qemuAgentCommand(domain, request, ANSWER, 0))["return"]


def _execute(domain: libvirt.virDomain, argv: tuple[str, ...], stdin: bytes) -> int:
    arguments: dict[str, Any] = {"path": argv[0], "arg": argv[1:], "capture-output": True}
    if stdin:
        arguments["input-data"] = base64.b64encode(stdin).decode()
    return int(_command(domain, "guest-exec", **arguments)["pid"])


def _result(status: dict[str, Any]) -> CommandResult:
    code = int(status["exitcode"]) if "exitcode" in status else 128 + status["signal"]
    out, err = (base64.b64decode(status.get(name, "")) for name in ("out-data", "err-data"))
    return CommandResult(code, out, err)


def _read_file(domain: libvirt.virDomain, path: str) -> bytes:
    handle = _command(domain, "guest-file-open", path=path, mode="r")
    try:
        data = _command(domain, "guest-file-read", handle=handle, count=FILE_SIZE)
        return base64.b64decode(data["buf-b64"])[:FILE_SIZE]
    finally:
        _command(domain, "guest-file-close", handle=handle)


def _if_present(read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns, or None if the guest does not have the file that it reads."""
    try:
        return read()
    except libvirt.libvirtError as error:
        if _NO_FILE in error.get_error_message():
            return None
        raise


def _interface(name: str, data: dict[str, Any]) -> GuestInterface:
    addresses = tuple(f"{a['addr']}/{a['prefix']}" for a in data["addrs"] or ())
    return GuestInterface(name, data["hwaddr"] or "", addresses)
