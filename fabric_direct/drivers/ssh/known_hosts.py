"""Pinned SSH host keys of guests: OpenSSH's ``known_hosts``, a line for each address.

Only what was read in a trusted way (by the guest agent, from the console) is pinned; nothing is
learned from the network.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

from paramiko import SSHException
from paramiko.hostkeys import HostKeyEntry, HostKeys, InvalidHostKey

from fabric_direct.errors import DriverError, Refused, unusable
from fabric_direct.site.config import Site
from fabric_direct.state import files
from fabric_direct.state.locks import exclusive

# Seconds to wait for another process that writes the file; it takes milliseconds.
BUSY = 10.0
# Characters of an error about a line that are told.
_WORDS = 200
_WITH_PORT = re.compile(r"\[(.*)\]:[0-9]+")


def known_hosts(site: Site) -> Path:
    """Return the file of the site's pinned keys."""
    return site.guest_access.known_hosts or site.state_dir / "known_hosts"


def pinned(site: Site) -> HostKeys:
    """Return the site's pinned keys; none if there is no file yet."""
    keys = HostKeys()
    add_keys(keys, known_hosts(site))
    return keys


def pinned_addresses(site: Site) -> Iterator[str]:
    """Yield the IP addresses at which a key is pinned; names of hosts, and hashed ones, are left out.

    :raises DriverError: if the keys cannot be read.
    """
    for name in pinned(site).keys():  # noqa: SIM118 - iterating yields entries, not names
        with suppress(ValueError):
            yield str(ip_address(_WITH_PORT.sub(r"\1", name)))


def add_keys(keys: HostKeys, path: Path) -> None:
    """Add the keys of a known_hosts file, if there is one.

    :raises DriverError: if it cannot be read, or a line has no key.
    """
    try:
        if path.exists():
            keys.load(str(path))
    except (OSError, SSHException, InvalidHostKey, ValueError) as error:
        words = f"{type(error).__name__}: {error}"[:_WORDS]
        raise DriverError(
            "cannot read the known host keys",
            where=str(path),
            why=words,
            remedy="remove the line that is not a host key",
        ) from error


def pin(site: Site, address: str, key: str) -> None:
    """Trust this host key, and no other, at this address.

    :param address: IP address, or ``[address]:port`` for a port other than 22.
    :param key: ``algorithm base64``.
    :raises Refused: if the key is none.
    :raises SliverBusy: if the file is locked for longer than :data:`BUSY` seconds.
    :raises DriverError: if it cannot be read or written.
    """
    line = f"{address} {' '.join(key.split()[:2])}"
    if not _is_entry(line):
        raise Refused(
            f"the host key of {address} is not a public key", where=str(known_hosts(site))
        )
    with _changing(site, address) as lines:
        lines.append(line)


def unpin(site: Site, address: str) -> None:
    """Trust no host key at this address any more.

    :raises SliverBusy: if the file is locked for longer than :data:`BUSY` seconds.
    :raises DriverError: if it cannot be read or written.
    """
    with _changing(site, address):
        pass


def _is_entry(line: str) -> bool:
    try:
        return "\n" not in line and HostKeyEntry.from_line(line) is not None
    except (InvalidHostKey, SSHException, ValueError):
        return False


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unusable("change the known host keys", path, error) from error


@contextmanager
def _changing(site: Site, address: str) -> Iterator[list[str]]:
    """Give the lines of all other addresses, to be added to; then replace the file in one step."""
    path = known_hosts(site)
    lock = exclusive(path.with_name(f"{path.name}.lock"), str(path), timeout=BUSY)
    with lock, _translated(path):
        # As they are, whoever wrote them: what is no UTF-8 is kept.
        lines = path.read_text(errors="surrogateescape").splitlines() if path.exists() else []
        others = [line for line in lines if line.split(maxsplit=1)[:1] != [address]]
        yield others
        if others != lines:
            files.replace(path, "".join(f"{line}\n" for line in others))
