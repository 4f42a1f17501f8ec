"""Check workers that are reached by SSH: the login, Python, and the user."""

from typing import TYPE_CHECKING

from fabric_direct.doctor.daemon import is_local
from fabric_direct.doctor.diagnosis import Diagnosis, Verdict, fail, failed, ok
from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Host, Site

if TYPE_CHECKING:
    from fabric_direct.drivers.hosts.relay import Relay

_REACH = "check that ssh to it works by hand, without a password"


def needs_login(host: Host) -> bool:
    """Return whether programs have to run on a host that is not this machine."""
    return host.ssh is not None or bool(host.devices and not is_local(host))


def check_login(site: Site, name: str) -> Diagnosis:
    """Log in to a worker, and check for what devices need: Python, as root."""
    subject, host = f"SSH of {name}", site.host(name)
    if host.ssh is None:
        found = "it has devices to pass through, and site.yaml has no SSH login for it"
        remedy = f"name one in site.yaml: hosts.{name}.ssh: ssh://root@{name}"
        return fail(subject, found, remedy)
    try:
        relay = _looked(site, name)
    except (ImportError, FabricDirectError) as error:
        return failed(subject, error, _REACH, of=host.ssh)
    if relay.user != 0:
        found = f"{host.ssh}: we are user {relay.user} there; devices and networks need root"
        verdict = Verdict.FAIL if host.devices else Verdict.WARN
        remedy = f"name root in site.yaml: hosts.{name}.ssh: ssh://root@…"
        return Diagnosis(subject, verdict, found, remedy)
    version = ".".join(map(str, relay.python))
    return ok(subject, f"{host.ssh}: root, Python {version} ({relay.executable})")


def _looked(site: Site, name: str) -> "Relay":
    """Return what ran on the worker: it is closed."""
    from fabric_direct.drivers.hosts.ssh import SshHost  # noqa: PLC0415 - paramiko may be missing

    host = SshHost(site, name)
    try:
        return host.relay(timeout=site.limits.call)
    finally:
        host.close()
