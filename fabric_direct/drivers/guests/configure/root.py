"""Commands and files of a guest's root."""

from fabric_direct.calls.forks import cached_property
from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.guests import scripts
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import DriverError

_SUDO, _DOAS = ("sudo", "-n"), ("doas", "-n")
# Characters of a guest's message that an error of ours quotes.
_WORDS = 500


class GuestRoot:
    """The root of a guest: the agent itself, or by SSH its user through sudo without a password.

    A guest that has no sudo is asked by doas, as OpenBSD.
    """

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self._by: tuple[str, ...] = ()
        if guest.driver.name == "ssh" and guest.address.user != "root":
            self._by = _SUDO

    def run(self, *argv: str, stdin: bytes = b"") -> CommandResult:
        """Run a command; no shell reads its arguments."""
        answer = self._run((*self._by, *argv), stdin)
        if answer.code != 0 and self._by == _SUDO and not self._has_sudo:
            self._by = _DOAS
            return self._run((*self._by, *argv), stdin)
        return answer

    @cached_property
    def _has_sudo(self) -> bool:
        return self._run(("sh", "-c", scripts.HAS, "sh", "sudo")).stdout.split() == [b"yes"]

    def _run(self, argv: tuple[str, ...], stdin: bytes = b"") -> CommandResult:
        limit = self.guest.patience
        return self.guest.driver.run(self.guest.address, argv, stdin, timeout=limit)

    def do(self, *argv: str, stdin: bytes = b"") -> str:
        """Run a command that has to succeed and return what it writes.

        :raises DriverError: in the guest's words if it fails.
        """
        answer = self.run(*argv, stdin=stdin)
        if answer.code != 0:
            raise DriverError(
                f"{_named(argv)} failed in guest {self.guest.address.instance}",
                why=_words(answer) or f"exit status {answer.code}",
            )
        return answer.stdout.decode(errors="replace")

    def script(self, script: str, *arguments: str, stdin: bytes = b"") -> str:
        """Run one of our scripts, which has to succeed, and return what it writes."""
        return self.do("sh", "-c", script, "sh", *arguments, stdin=stdin)

    def has(self, command: str) -> bool:
        """Return whether the guest has a command."""
        return self.script(scripts.HAS, command).strip() == "yes"

    def read(self, path: str) -> str:
        """Return the content of a file; nothing if there is none."""
        return self.script(scripts.READ, path)

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """Replace a file in one step, and make its directory."""
        content = text.encode()
        self.script(scripts.WRITE, path, mode, str(len(content)), stdin=content)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self.do("rm", "-f", path)


def _named(argv: tuple[str, ...]) -> str:
    """Name a command, and of one of our scripts what it is about."""
    if argv[:2] != ("sh", "-c"):
        return " ".join(argv)
    return " ".join(["a script", *(f"on {each}" for each in argv[4:5])])


def _words(answer: CommandResult) -> str:
    said = (answer.stderr.strip() or answer.stdout.strip()).decode(errors="replace")
    return " ".join(said.split())[:_WORDS]
