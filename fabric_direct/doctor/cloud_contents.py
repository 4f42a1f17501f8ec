"""What the site names in its cloud: external network, security groups, key pair, volume type, images."""

from typing import Any

from openstack.connection import Connection
from openstack.network.v2.security_group import SecurityGroup

from fabric_direct.config import Site
from fabric_direct.doctor.cloud_rights import listed
from fabric_direct.doctor.diagnosis import Diagnosis, Verdict
from fabric_direct.drivers.openstack.client.errors import translated

_SSH = 22


def check_external_network(connection: Connection, name: str | None) -> Diagnosis:
    """See whether floating IPs can come from the external network that the site names."""
    subject = "external network"
    if name is None:
        return Diagnosis(subject, Verdict.INFO, "none is named: no floating IPs, no routers")
    with translated(f"look for network {name}", connection.name):
        network = connection.network.find_network(name)
        external = [n.name for n in connection.network.networks(is_router_external=True)]
    if network is None or not network.is_router_external:
        wrong = "is not external" if network else "is not there"
        remedy = "name one of these in site.yaml: openstack: external_network"
        return Diagnosis(
            subject, Verdict.FAIL, f"{name} {wrong}; there is {listed(external)}", remedy
        )
    if not network.subnet_ids:
        remedy = "give it a subnet with the addresses that may be used"
        return Diagnosis(subject, Verdict.FAIL, f"{name} has no subnet", remedy)
    return Diagnosis(subject, Verdict.OK, name)


def check_security_groups(connection: Connection, site: Site) -> Diagnosis:
    """See whether the groups that ports will have are there and let SSH in where that is needed."""
    subject, named = "security groups", _group_names(site)
    with translated("list the security groups", connection.name):
        project = connection.current_project_id
        groups = list(connection.network.security_groups(project_id=project))
    wrong = [name for name in named if len(_called(groups, name)) != 1]
    if wrong:
        found = "; ".join(f"{len(_called(groups, name)) or 'none'} called {name}" for name in wrong)
        return Diagnosis(subject, Verdict.FAIL, found, f"there is {listed(g.name for g in groups)}")
    rules = [rule for name in named for rule in _called(groups, name)[0].security_group_rules]
    if site.guest == "ssh" and not any(map(_lets_ssh_in, rules)):
        remedy = f"openstack security group rule create --proto tcp --dst-port 22 {named[0]}"
        found = f"{listed(named)}: no rule lets SSH in, and guests are reached by it"
        return Diagnosis(subject, Verdict.WARN, found, remedy)
    return Diagnosis(subject, Verdict.OK, listed(named))


def _group_names(site: Site) -> tuple[str, ...]:
    return (site.openstack.security_groups if site.openstack else ()) or ("default",)


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
    """See whether the key pair is there, which belongs to the user and not to the project."""
    if name is None:
        return Diagnosis("key pair", Verdict.INFO, "none is named: servers get the sliver's keys")
    with translated(f"look for key pair {name}", connection.name):
        found = connection.compute.find_keypair(name)
    if found is None:
        remedy = f"openstack keypair create --public-key FILE {name}, as this user"
        return Diagnosis("key pair", Verdict.FAIL, f"{name} is not there", remedy)
    return Diagnosis("key pair", Verdict.OK, f"{name}, {found.fingerprint}")


def check_volume_type(connection: Connection, name: str | None) -> Diagnosis:
    """See whether volumes can be made of the type that the site names."""
    subject = "volume type"
    if name is None:
        return Diagnosis(subject, Verdict.INFO, "none is named: volumes get the cloud's default")
    with translated("list the volume types", connection.name):
        known = [kind.name for kind in connection.block_storage.types()]
    if name not in known:
        remedy = "name one of these in site.yaml: openstack: volume_type"
        return Diagnosis(
            subject, Verdict.FAIL, f"{name} is not there; there is {listed(known)}", remedy
        )
    return Diagnosis(subject, Verdict.OK, name)


def check_image(connection: Connection, name: str) -> Diagnosis:
    """See whether an image of the site is there and can be used."""
    subject = f"image {name}"
    with translated(f"look for image {name}", connection.name):
        image = connection.image.find_image(name)
    if image is None:
        remedy = f"openstack image create --disk-format qcow2 --file FILE {name}"
        return Diagnosis(subject, Verdict.FAIL, "is not there", remedy)
    if image.status != "active":
        return Diagnosis(subject, Verdict.FAIL, f"is {image.status}", "wait, or upload it again")
    return Diagnosis(subject, Verdict.OK, f"{image.id}, {(image.size or 0) / 2**20:.0f} MiB")
