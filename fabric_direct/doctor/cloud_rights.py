"""What we may do in the cloud, and what only an administrator is told: workers and agents."""

from collections.abc import Iterable
from typing import cast

from keystoneauth1.access import AccessInfo
from keystoneauth1.identity import BaseIdentityPlugin
from openstack.compute.v2.service import Service
from openstack.connection import Connection

from fabric_direct.config import Site
from fabric_direct.doctor.diagnosis import Diagnosis, Verdict
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.errors import Denied

_ADMINISTRATORS = (
    "pin a worker",
    "make provider networks or flavors",
    "give a NIC its MAC or address on another project's network",
    "learn the worker or the domain of a server",
)


def access_of(connection: Connection) -> AccessInfo:
    """Return what Keystone said with our token: user, project, roles.

    :raises Denied: if it does not let us in.
    """
    plugin = cast(BaseIdentityPlugin, connection.session.auth)
    with translated("log in", connection.name):
        return plugin.get_access(connection.session)


def check_rights(connection: Connection, site: Site) -> Diagnosis:
    """Tell an administrator from a member, and what a member cannot do that the site asks for."""
    access = access_of(connection)
    who = f"{access.username} ({', '.join(sorted(access.role_names or ()))})"
    if _workers(connection) is not None:
        return Diagnosis("rights", Verdict.OK, f"{who} is an administrator")
    found = f"{who} is no administrator: cannot {', '.join(_ADMINISTRATORS)}"
    asked = _asked_of_administrators(site)
    if not asked:
        return Diagnosis("rights", Verdict.INFO, found)
    remedy = "give the user the role admin in its project, or do without these"
    return Diagnosis("rights", Verdict.WARN, f"{found}; site.yaml has {', '.join(asked)}", remedy)


def _asked_of_administrators(site: Site) -> list[str]:
    """Name what the site has that only an administrator can do."""
    physical = [name for name, network in site.networks.items() if network.physical_network]
    makes = site.openstack is not None and site.openstack.make_flavors
    return [
        *([f"hosts ({', '.join(site.hosts)})"] if site.hosts else []),
        *([f"networks of a physical network ({', '.join(physical)})"] if physical else []),
        *(["openstack: make_flavors"] if makes else []),
    ]


def _workers(connection: Connection) -> list[Service] | None:
    """Return the compute services, or None if only an administrator is told."""
    try:
        with translated("list the workers", connection.name):
            return list(connection.compute.services(binary="nova-compute"))
    except Denied:
        return None


def check_workers(connection: Connection) -> Diagnosis:
    """See which workers can take servers."""
    workers = _workers(connection)
    if workers is None:
        return _not_told("workers")
    out = [_state(worker) for worker in workers if not _takes(worker)]
    able = [worker.host for worker in workers if _takes(worker)]
    if not able:
        remedy = (
            "start nova-compute there, or enable it: "
            "openstack compute service set --enable HOST nova-compute"
        )
        return Diagnosis("workers", Verdict.FAIL, f"none takes servers: {listed(out)}", remedy)
    if not out:
        return Diagnosis("workers", Verdict.OK, listed(able))
    remedy = "none is needed if it is on purpose; else see to nova-compute there"
    return Diagnosis("workers", Verdict.WARN, f"{listed(able)}; but not {listed(out)}", remedy)


def _takes(worker: Service) -> bool:
    return (worker.state, worker.status) == ("up", "enabled")


def _state(worker: Service) -> str:
    why = f": {worker.disabled_reason}" if worker.disabled_reason else ""
    return f"{worker.host} ({worker.state}, {worker.status}{why})"


def check_hosts(connection: Connection, names: list[str]) -> Diagnosis:
    """See whether the cloud knows the site's hosts as workers."""
    subject, workers = "hosts of site.yaml", _workers(connection)
    if workers is None:
        return _not_told(subject)
    known = sorted(worker.host for worker in workers)
    unknown = [name for name in names if name not in known]
    if not unknown:
        return Diagnosis(subject, Verdict.OK, listed(names))
    found = f"the cloud has no worker {listed(unknown)}; it has {listed(known)}"
    return Diagnosis(subject, Verdict.FAIL, found, "name them in site.yaml as Nova does")


def check_agents(connection: Connection) -> Diagnosis:
    """See whether Neutron's agents are alive."""
    subject = "network agents"
    with translated("list the agents", connection.name):
        agents = list(connection.network.agents())
    if not agents:
        return _not_told(subject)
    dead = [f"{a.agent_type} on {a.host}" for a in agents if not a.is_alive]
    if not dead:
        return Diagnosis(subject, Verdict.OK, f"{len(agents)} are alive")
    remedy = (
        "start them there; guests get their address from DHCP agents, floating IPs are L3 agents'"
    )
    return Diagnosis(subject, Verdict.WARN, f"dead: {listed(dead)}", remedy)


def _not_told(subject: str) -> Diagnosis:
    return Diagnosis(subject, Verdict.INFO, "only an administrator is told")


def listed(names: Iterable[str]) -> str:
    """Return names as a sentence has them."""
    return ", ".join(names) or "none"
