"""Check workers and agents of the cloud, and what the site names in it.

Each check may raise errors of openstacksdk; :mod:`.cloud` translates them.
"""

from collections.abc import Iterable
from typing import Any, cast

from keystoneauth1.access import AccessInfo
from keystoneauth1.identity import BaseIdentityPlugin
from openstack.compute.v2.service import Service
from openstack.connection import Connection
from openstack.network.v2.security_group import SecurityGroup

from fabric_direct.doctor.diagnosis import Diagnosis, Verdict, fail, info, ok, warn
from fabric_direct.doctor.drivers import guests_by
from fabric_direct.drivers.contract import Image
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS, names
from fabric_direct.errors import Denied
from fabric_direct.site.config import Site

_SSH = 22
# Texts that Nova takes for true (oslo.utils, strutils).
_YES = {"1", "t", "true", "on", "y", "yes"}
# The agents that connect NICs with networks, and are asked to limit them.
_OF_WORKERS = {"Linux bridge agent", "Open vSwitch agent", "NIC Switch agent"}


def access_of(connection: Connection) -> AccessInfo:
    """Return Keystone's description of the token: user, project, roles.

    :raises Denied: if Keystone rejects the credentials.
    """
    plugin = cast(BaseIdentityPlugin, connection.session.auth)
    with translated("log in", connection.name):
        return plugin.get_access(connection.session)


def _workers(connection: Connection) -> list[Service] | None:
    """Return the compute services, or None if the user may not list them."""
    try:
        with translated("list the workers", connection.name):
            return list(connection.compute.services(binary="nova-compute"))
    except Denied:
        return None


def check_workers(connection: Connection) -> Diagnosis:
    """Check that workers are up and enabled."""
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
        return fail("workers", f"none takes servers: {listed(out)}", remedy)
    if not out:
        return ok("workers", listed(able))
    remedy = "nothing, if it is on purpose; otherwise start or enable nova-compute there"
    return warn("workers", f"{listed(able)}; but not {listed(out)}", remedy)


def check_placement(connection: Connection) -> Diagnosis:
    """Check that what is free on a worker can be asked for."""
    if connection.has_service("placement"):
        return ok("placement", "in the catalog")
    return info(
        "placement",
        "not in the catalog: nothing says what is free on a worker, so slivers name it (host: auto is "
        "refused)",
    )


def _takes(worker: Service) -> bool:
    return (worker.state, worker.status) == ("up", "enabled")


def _state(worker: Service) -> str:
    why = f": {worker.disabled_reason}" if worker.disabled_reason else ""
    return f"{worker.host} ({worker.state}, {worker.status}{why})"


def check_hosts(connection: Connection, names: list[str]) -> Diagnosis:
    """Check that the site's hosts are workers of the cloud, and name the workers that it leaves out."""
    subject, workers = "hosts of site.yaml", _workers(connection)
    if workers is None:
        return _not_told(subject)
    known = sorted(worker.host for worker in workers)
    unknown = [name for name in names if name not in known]
    others = [worker for worker in known if worker not in names]
    if not unknown and others:
        why = "servers there get no devices, and their CPUs are not pinned"
        return info(subject, f"{listed(names)}; not {listed(others)}, which the cloud has: {why}")
    if not unknown:
        return ok(subject, listed(names))
    found = f"the cloud has no worker {listed(unknown)}; it has {listed(known)}"
    return fail(subject, found, "name them in site.yaml as Nova does")


def check_agents(connection: Connection) -> Diagnosis:
    """Check that Neutron's agents are alive."""
    subject = "network agents"
    agents = list(connection.network.agents())
    if not agents:
        return _not_told(subject)
    dead = [f"{a.agent_type} on {a.host}" for a in agents if not a.is_alive]
    if not dead:
        return ok(subject, f"{len(agents)} are alive")
    remedy = (
        "start them there; guests get their address from DHCP agents, floating IPs are L3 agents'"
    )
    return warn(subject, f"dead: {listed(dead)}", remedy)


def check_limits(connection: Connection) -> Diagnosis:
    """Check that Neutron can limit the bandwidth of ports, and that its agents on workers do so."""
    subject = "bandwidth of vNICs"
    if not names(connection).limits_ports():
        lacks = f"Neutron lacks the extensions {listed(sorted(LIMITS_PORTS))}"
        return info(subject, f"cannot be limited: {lacks}")
    idle = [
        f"{agent.agent_type} on {agent.host}"
        for agent in connection.network.agents()
        if agent.agent_type in _OF_WORKERS
        and "qos" not in ((agent.configuration or {}).get("extensions") or ())
    ]
    if not idle:
        return ok(subject, "can be limited by QoS policies")
    remedy = "let it load the extension qos, for example by extensions = qos in its section agent"
    return warn(subject, f"not by the {listed(idle)}, whatever Neutron says of a port", remedy)


def _not_told(subject: str) -> Diagnosis:
    return info(subject, "only an administrator may know")


# --- what site.yaml names


def check_external_network(connection: Connection, name: str | None) -> Diagnosis:
    """Check that the site's external network exists, is external and has a subnet."""
    subject = "external network"
    if name is None:
        return info(subject, "none is named: no floating IPs, no routers")
    network = connection.network.find_network(name)
    external = [n.name for n in connection.network.networks(is_router_external=True)]
    if network is None or not network.is_router_external:
        wrong = "is not external" if network else "is not there"
        remedy = "name one of these in site.yaml: openstack: external_network"
        return fail(subject, f"{name} {wrong}; there is {listed(external)}", remedy)
    if not network.subnet_ids:
        remedy = "give it a subnet with the addresses that may be used"
        return fail(subject, f"{name} has no subnet", remedy)
    return ok(subject, name)


def check_security_groups(connection: Connection, site: Site) -> Diagnosis:
    """Check that the security groups of ports exist, and allow SSH if guests are reached by it."""
    subject = "security groups"
    named = (site.openstack and site.openstack.security_groups) or ("default",)
    project = connection.current_project_id
    groups = list(connection.network.security_groups(project_id=project))
    wrong = [name for name in named if len(_called(groups, name)) != 1]
    if wrong:
        found = "; ".join(f"{len(_called(groups, name)) or 'none'} called {name}" for name in wrong)
        return fail(subject, found, f"there is {listed(g.name for g in groups)}")
    rules = [rule for name in named for rule in _called(groups, name)[0].security_group_rules]
    if guests_by(site) == "ssh" and not any(map(_lets_ssh_in, rules)):
        remedy = f"openstack security group rule create --proto tcp --dst-port 22 {named[0]}"
        found = f"{listed(named)}: no rule allows SSH, by which guests are reached"
        return warn(subject, found, remedy)
    return ok(subject, listed(named))


def _called(groups: list[SecurityGroup], name: str) -> list[SecurityGroup]:
    return [group for group in groups if name in {group.name, group.id}]


def _lets_ssh_in(rule: dict[str, Any]) -> bool:
    first, last = rule["port_range_min"], rule["port_range_max"]
    return (
        rule["direction"] == "ingress"
        and rule["protocol"] in {None, "any", "tcp", "6"}
        and not rule["remote_group_id"]
        and (first is None or first <= _SSH <= last)
    )


def check_key_pair(connection: Connection, name: str | None) -> Diagnosis:
    """Check that the key pair exists; key pairs belong to users, not to projects."""
    if name is None:
        return info("key pair", "none is named: servers get the sliver's keys")
    found = connection.compute.find_keypair(name)
    if found is None:
        remedy = f"openstack keypair create --public-key FILE {name}, as this user"
        return fail("key pair", f"{name} is not there", remedy)
    return ok("key pair", f"{name}, {found.fingerprint}")


def check_volume_type(connection: Connection, name: str | None) -> Diagnosis:
    """Check that the cloud has the volume type that the site names."""
    subject = "volume type"
    if name is None:
        return info(subject, "none is named: volumes get the cloud's default")
    known = [kind.name for kind in connection.block_storage.types()]
    if name not in known:
        remedy = "name one of these in site.yaml: openstack: volume_type"
        return fail(subject, f"{name} is not there; there is {listed(known)}", remedy)
    return ok(subject, name)


def check_image(connection: Connection, name: str, site: Site) -> Diagnosis:
    """Check that an image of the site is active, and has the properties that the site's guests need."""
    subject = f"image {name}"
    image = connection.image.find_image(name)
    if image is None:
        remedy = f"openstack image create --disk-format qcow2 --file FILE {name}"
        return fail(subject, "is not there", remedy)
    if image.status != "active":
        return fail(subject, f"is {image.status}", "wait, or upload it again")
    about = f"{image.id}, {(image.size or 0) / 2**20:.0f} MiB"
    for judge in (_without_agent, _other_user, _without_root_ports, _without_entropy):
        if wrong := judge(image, name, site):
            verdict, found, remedy = wrong
            return Diagnosis(subject, verdict, f"{about}; {found}", remedy)
    return ok(subject, about)


_Wrong = tuple[Verdict, str, str] | None


def _without_agent(image: Any, name: str, site: Site) -> _Wrong:
    if guests_by(site) != "agent" or _property(image, "hw_qemu_guest_agent").lower() in _YES:
        return None
    found = "no property hw_qemu_guest_agent=yes, and site.yaml has guest: agent"
    return Verdict.FAIL, found, _set(name, "hw_qemu_guest_agent=yes")


def _other_user(image: Any, name: str, site: Site) -> _Wrong:
    """Return what is wrong if logins go to another user than the image says that it has."""
    told, user = _property(image, "os_admin_user"), Image.of(site, name).user
    if guests_by(site) != "ssh" or told in {"", user}:
        return None
    found = f"its user is {told} (os_admin_user), and site.yaml logs in as {user}"
    return Verdict.WARN, found, f"name the user in site.yaml: images.{name}.user"


def _without_root_ports(image: Any, name: str, site: Site) -> _Wrong:
    kind = _property(image, "hw_machine_type")
    if not kind.startswith("pc") or "q35" in kind or not any(map(site.passes_devices, site.hosts)):
        return None
    found = f"its machine type {kind} has no root ports, on which devices are plugged in"
    return Verdict.WARN, found, _set(name, "hw_machine_type=q35")


def _without_entropy(image: Any, name: str, site: Site) -> _Wrong:  # noqa: ARG001 - as the others
    if _property(image, "hw_rng_model"):
        return None
    return Verdict.INFO, "no property hw_rng_model: a guest may lack entropy when it boots", ""


def _property(image: Any, name: str) -> str:
    """Return a property of an image; openstacksdk has a field for some of them."""
    return str(getattr(image, name, None) or (image.properties or {}).get(name) or "")


def _set(name: str, value: str) -> str:
    return f"openstack image set --property {value} {name}"


def listed(names: Iterable[str]) -> str:
    """Return names as a list in a sentence."""
    return ", ".join(names) or "none"
