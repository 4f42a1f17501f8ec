"""Which SSH host keys of a worker are trusted; none is learned from the network."""

from pathlib import Path
from typing import NoReturn

import paramiko
from paramiko.hostkeys import HostKeyEntry, HostKeys

from fabric_direct.drivers.ssh.known_hosts import add_keys, known_hosts
from fabric_direct.site.config import Host, Site

SYSTEM = Path("/etc/ssh/ssh_known_hosts")
USER = Path("~/.ssh/known_hosts")


class UnknownHostKey(paramiko.SSHException):
    """A worker showed a host key, and no key of it is trusted."""

    def __init__(self, key: paramiko.PKey) -> None:
        super().__init__(f"it shows {key.get_name()} {key.fingerprint}, which nobody has confirmed")


class Refuse(paramiko.MissingHostKeyPolicy):
    """Rejects a server of which no host key is trusted."""

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002
        hostname: str,  # noqa: ARG002
        key: paramiko.PKey,
    ) -> NoReturn:
        """Raise :class:`UnknownHostKey`."""
        raise UnknownHostKey(key)


def trusted(site: Site, host: Host, name: str) -> HostKeys:
    """Return the keys that are trusted: the pinned one, or those of the known_hosts files.

    :param name: the worker's name in known_hosts: ``name``, or ``[name]:port``.
    """
    keys = HostKeys()
    if host.host_key:
        entry = HostKeyEntry.from_line(f"{name} {host.host_key}")
        if entry is not None:
            keys.add(name, entry.key.get_name(), entry.key)
        return keys
    for path in places(site):
        add_keys(keys, path)
    return keys


def places(site: Site) -> tuple[Path, ...]:
    """Return the known_hosts files, in the order in which they are read."""
    return known_hosts(site), USER.expanduser(), SYSTEM
