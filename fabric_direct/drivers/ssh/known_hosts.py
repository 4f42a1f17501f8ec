"""Pinned SSH host keys of guests: OpenSSH's ``known_hosts``, a line for each address.

Only what was read in a trusted way (by the guest agent, from the console) is pinned; nothing is
learned from the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from fabric_direct.errors import DriverError, Refused, unusable
from fabric_direct.site.config import Site
from fabric_direct.state import files
from fabric_direct.state.locks import exclusive
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import StateDocuments

if TYPE_CHECKING:
    from paramiko import SSHClient
    from paramiko.hostkeys import HostKeys

# Seconds to wait for another process that writes the file; it takes milliseconds.
BUSY = 10.0
_ALL = "guests"
# Characters of an error about a line that are told.
_WORDS = 200
_WITH_PORT = re.compile(r"\[(.*)\]:[0-9]+")


def known_hosts(site: Site) -> Path:
    """Return the file of the site's pinned keys."""
    return site.guest_access.known_hosts or site.state_dir / "known_hosts"


def _shared(site: Site) -> StateDocuments | None:
    """Return where machines that share the site's state have the keys of guests; None if they do not."""
    own = site.state_database is None or site.guest_access.known_hosts
    return None if own else store_of(site).documents("known-hosts", "the known host keys")


def pinned(site: Site) -> HostKeys:
    """Return the site's pinned keys; none if none was pinned yet."""
    from paramiko.hostkeys import HostKeyEntry, HostKeys  # noqa: PLC0415 - it is large

    keys, shared = HostKeys(), _shared(site)
    add_keys(keys, known_hosts(site))
    for line in (shared.read(_ALL) or "").splitlines() if shared else ():
        if entry := HostKeyEntry.from_line(line):
            for name in entry.hostnames:
                keys.add(name, entry.key.get_name(), entry.key)
    return keys


def trust_pinned(site: Site, client: SSHClient) -> None:
    """Have a client trust the site's pinned keys."""
    trusted = client.get_host_keys()
    for name, of_name in pinned(site).items():
        for kind, key in of_name.items():
            trusted.add(name, kind, key)


def copy_pins(source: Site, target: Site) -> int:
    """Pin at the site's other store what is pinned at IP addresses; return how many these are."""
    keys = pinned(source)
    addresses = [name for name in keys.keys() if _is_address(name)]  # noqa: SIM118 - see below
    for address in addresses:
        with _changing(target, address) as lines:
            every = keys[address].values()
            lines.extend(f"{address} {key.get_name()} {key.get_base64()}" for key in every)
    return len(addresses)


def _is_address(name: str) -> bool:
    try:
        ip_address(_WITH_PORT.sub(r"\1", name))
    except ValueError:
        return False
    return True


def pinned_addresses(site: Site) -> Iterator[str]:
    """Yield the IP addresses at which a key is pinned; names of hosts, and hashed ones, are left out.

    :raises DriverError: if the keys cannot be read.
    """
    for name in pinned(site).keys():  # noqa: SIM118 - iterating yields entries, not names
        if _is_address(name):
            yield str(ip_address(_WITH_PORT.sub(r"\1", name)))


def add_keys(keys: HostKeys, path: Path) -> None:
    """Add the keys of a known_hosts file, if there is one.

    :raises DriverError: if it cannot be read, or a line has no key.
    """
    from paramiko import SSHException  # noqa: PLC0415 - it is large
    from paramiko.hostkeys import InvalidHostKey  # noqa: PLC0415

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
    _forget_own(site, address)


def unpin(site: Site, address: str) -> None:
    """Trust no host key at this address any more.

    :raises SliverBusy: if the file is locked for longer than :data:`BUSY` seconds.
    :raises DriverError: if it cannot be read or written.
    """
    with _changing(site, address):
        pass
    _forget_own(site, address)


def _is_entry(line: str) -> bool:
    from paramiko import SSHException  # noqa: PLC0415 - it is large
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey  # noqa: PLC0415

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
    """Give the lines of all other addresses, to be added to; then replace all in one step."""
    shared = _shared(site)
    if shared is None:
        with _changing_file(known_hosts(site), address) as others:
            yield others
        return
    with store_of(site).exclusive("known-hosts", shared.where, timeout=BUSY):
        lines = (shared.read(_ALL) or "").splitlines()
        others = _of_others(lines, address)
        yield others
        if others != lines:
            shared.write(_ALL, "".join(f"{line}\n" for line in others), new=not lines)


def _forget_own(site: Site, address: str) -> None:
    """Forget what this machine has of an address from before the state was shared."""
    path = known_hosts(site)
    if _shared(site) and path.exists():
        with _changing_file(path, address):
            pass


@contextmanager
def _changing_file(path: Path, address: str) -> Iterator[list[str]]:
    lock = exclusive(path.with_name(f"{path.name}.lock"), str(path), timeout=BUSY)
    with lock, _translated(path):
        # As they are, whoever wrote them: what is no UTF-8 is kept.
        lines = path.read_text(errors="surrogateescape").splitlines() if path.exists() else []
        others = _of_others(lines, address)
        yield others
        if others != lines:
            files.replace(path, "".join(f"{line}\n" for line in others))


def _of_others(lines: list[str], address: str) -> list[str]:
    return [line for line in lines if line.split(maxsplit=1)[:1] != [address]]
