"""Which :class:`~fabric_direct.drivers.contract.HostDriver` serves a host."""

from collections.abc import Hashable

from fabric_direct.calls import forks
from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.ssh.known_hosts import known_hosts
from fabric_direct.site.config import Site

_drivers: dict[Hashable, HostDriver] = {}
_lock = forks.Lock()


def host_driver(site: Site, host: str) -> HostDriver:
    """Return this process's driver of a host: by SSH if the site has ``ssh`` for it, else this machine.

    The same settings give the same driver, so that all callers share a connection. The site's
    known_hosts file counts only if the site does not pin the host's key: else it is not read.

    :raises NotFound: if the site has no such host.
    """
    settings = site.host(host)
    trusted = settings.host_key or known_hosts(site)
    key = (host, settings.ssh, settings.ssh_key, trusted, settings.python)
    with _lock:
        if key not in _drivers:
            _drivers[key] = _made(site, host) if settings.ssh else LocalHost(host)
        return _drivers[key]


def switch_host(site: Site, device: str) -> HostDriver:
    """Return the driver of the host that a switch of the site runs on: this machine if it names none."""
    host = site.switches[device].host
    return host_driver(site, host) if host else LocalHost(device)


def _made(site: Site, host: str) -> HostDriver:
    from fabric_direct.drivers.hosts.ssh import SshHost  # noqa: PLC0415 - paramiko is large

    return SshHost(site, host)


forks.in_child(_drivers.clear)
