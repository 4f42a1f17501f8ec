"""Pinned SSH host keys of guests: OpenSSH's ``known_hosts``, a line for each address.

Only what was read in a trusted way (by the guest agent, from the console) is pinned; nothing is
learned from the network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paramiko import SSHException
from paramiko.hostkeys import HostKeyEntry, HostKeys, InvalidHostKey

from fabric_direct import files
from fabric_direct.config import Site
from fabric_direct.errors import Refused
from fabric_direct.locks import exclusive

# Seconds to wait for another process that writes the file; it takes milliseconds.
BUSY = 10.0


def known_hosts(site: Site) -> Path:
    """Return the file of the site's pinned keys."""
    return site.guest_access.known_hosts or site.state_dir / "known_hosts"


def pinned(site: Site) -> HostKeys:
    """Return the site's pinned keys; none if there is no file yet."""
    path = known_hosts(site)
    return HostKeys(str(path)) if path.exists() else HostKeys()


def pin(site: Site, address: str, key: str) -> None:
    """Trust this host key, and no other, at this address.

    :param address: IP address, or ``[address]:port`` for a port other than 22.
    :param key: ``algorithm base64``.
    :raises Refused: if the key is none.
    :raises SliverBusy: if the file is locked for longer than :data:`BUSY` seconds.
    """
    line = f"{address} {' '.join(key.split()[:2])}"
    if not _is_entry(line):
        raise Refused(f"the host key of {address} is no public key", where=str(known_hosts(site)))
    with _changing(site, address) as lines:
        lines.append(line)


def unpin(site: Site, address: str) -> None:
    """Trust no host key at this address any more.

    :raises SliverBusy: if the file is locked for longer than :data:`BUSY` seconds.
    """
    with _changing(site, address):
        pass


def _is_entry(line: str) -> bool:
    try:
        return "\n" not in line and HostKeyEntry.from_line(line) is not None
    except (InvalidHostKey, SSHException):
        return False


@contextmanager
def _changing(site: Site, address: str) -> Iterator[list[str]]:
    """Give the lines of all other addresses, to be added to; then replace the file in one step."""
    path = known_hosts(site)
    with exclusive(path.with_name(f"{path.name}.lock"), str(path), timeout=BUSY):
        lines = path.read_text().splitlines() if path.exists() else []
        others = [line for line in lines if line.split(maxsplit=1)[:1] != [address]]
        yield others
        if others != lines:
            files.replace(path, "".join(f"{line}\n" for line in others))
