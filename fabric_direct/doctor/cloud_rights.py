"""Check what the user of a cloud may do, by requests that cannot succeed.

A service says whether a request is allowed before it looks at what the request names. So each right is
asked for with an id that nothing has, a name that is taken, or a network or zone that is not there: 403
means that the right is missing, and any other refusal that it is there. Nothing is made or changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import raise_from_response
from openstack.network.v2.network import Network
from requests import Response

from fabric_direct.doctor.cloud_contents import access_of
from fabric_direct.doctor.diagnosis import Diagnosis, fail, info, ok, warn
from fabric_direct.site.config import Site

# No resource has this id (RFC 9562, section 5.9).
_NIL = "00000000-0000-0000-0000-000000000000"
ASKING = "fabric-direct-doctor"
"""The name of whatever is asked for."""
_REFUSED_FOR_WHAT_IT_NAMES = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,  # of Cinder's quotas
}
# Cinder's largest (cinder/common/constants.py, DB_MAX_INT).
_MOST_GIB = 2**31 - 1
_UNLIMITED = -1
# Locally administered, and of no NIC: it is never given to one.
_MAC = "02:00:00:00:00:00"


@dataclass(frozen=True, slots=True)
class Right:
    """Something that the user may do or not."""

    to: str
    """What it allows, as an infinitive."""
    policy: str
    """Its name in the service's ``policy.yaml``."""
    ask: Callable[[Connection], Response | None]
    """Send the request; return None if the cloud has nothing to ask with."""
    needed_by: Callable[[Site], str | None]
    """What of site.yaml needs it, or `_EACH_VM`; None if only some slivers do."""


_EACH_VM = "each VM"


def _by_each_vm(site: Site) -> str | None:
    return _EACH_VM if site.serves_vms else None


def _by_some_slivers(_site: Site) -> None:
    return None


def _by_hosts(site: Site) -> str | None:
    return f"hosts ({', '.join(site.hosts)})" if site.hosts else None


def _by_networks(site: Site) -> str | None:
    physical = [name for name, network in site.networks.items() if network.physical_network]
    return f"networks of a physical network ({', '.join(physical)})" if physical else None


def _by_flavors(site: Site) -> str | None:
    makes = site.openstack is not None and site.openstack.make_flavors
    return "openstack: make_flavors" if makes else None


# --- Nova, and Placement


def _create_server(cloud: Connection, **values: str) -> Response:
    server = {"name": ASKING, "flavorRef": _NIL, "imageRef": _NIL, "networks": "none", **values}
    return cloud.compute.post("/servers", json={"server": server}, microversion="2.74")


def _choose_worker(cloud: Connection) -> Response:
    return _create_server(cloud, host=ASKING)


def _list_services(cloud: Connection) -> Response:
    return cloud.compute.get("/os-services?binary=nova-compute")


def _list_hypervisors(cloud: Connection) -> Response:
    return cloud.compute.get("/os-hypervisors?limit=1", microversion="2.53")


def _list_providers(cloud: Connection) -> Response | None:
    if not cloud.has_service("placement"):
        return None
    return cloud.placement.get("/resource_providers?in_tree=" + _NIL, microversion="1.14")


def _create_flavor(cloud: Connection) -> Response | None:
    taken = next(iter(cloud.compute.flavors(details=False, limit=1, paginated=False)), None)
    if taken is None:
        return None
    flavor = {"id": taken.id, "name": taken.name, "ram": 1, "vcpus": 1, "disk": 0}
    return cloud.compute.post("/flavors", json={"flavor": flavor})


# --- Neutron


def _create(cloud: Connection, path: str, kind: str, **values: Any) -> Response:
    return cloud.network.post(path, json={kind: values | {"name": ASKING}})


def _create_port(cloud: Connection) -> Response | None:
    own = cloud.current_project_id
    return _create_port_on(cloud, lambda there: there.is_shared or there.project_id == own)


def _choose_mac(cloud: Connection) -> Response | None:
    own = cloud.current_project_id
    return _create_port_on(
        cloud, lambda there: there.is_shared and there.project_id != own, mac_address=_MAC
    )


def _create_port_on(
    cloud: Connection, wanted: Callable[[Network], bool], **values: str
) -> Response | None:
    """Ask for a port of a subnet that there is not: Neutron says 404 of a network, whoever asks."""
    network = next(filter(wanted, cloud.network.networks()), None)
    if network is None:
        return None
    nowhere = [{"subnet_id": _NIL}]
    return _create(cloud, "/ports", "port", network_id=network.id, fixed_ips=nowhere, **values)


def _create_network_with_segment(cloud: Connection) -> Response:
    # Neither the physical network nor the VLAN can be there.
    segment = {"network_type": "vlan", "physical_network": ASKING, "segmentation_id": 4095}
    return _create(
        cloud, "/networks", "network", **{f"provider:{name}": it for name, it in segment.items()}
    )


def _create_floating_ip(cloud: Connection) -> Response:
    values = {"floating_network_id": _NIL, "description": ASKING}
    return cloud.network.post("/floatingips", json={"floatingip": values})


def _create_limit(cloud: Connection) -> Response:
    path = f"/qos/policies/{_NIL}/bandwidth_limit_rules"
    return cloud.network.post(path, json={"bandwidth_limit_rule": {"max_kbps": 1}})


# --- Cinder


def _create_volume(cloud: Connection) -> Response | None:
    """Ask for a volume in a zone that there is not, of a size that no quota allows.

    Cinder may take another zone for one that is not there. Without a quota, too, it would begin to make
    the volume, and deletes none before it has ended that: it is not asked.
    """
    if cloud.block_storage.get_limits().absolute.max_total_volume_gigabytes == _UNLIMITED:
        return None
    volume = {"name": ASKING, "size": _MOST_GIB, "availability_zone": ASKING}
    return cloud.block_storage.post("/volumes", json={"volume": volume})


RIGHTS: Mapping[str, tuple[Right, ...]] = {
    "Nova": (
        Right("make servers", "os_compute_api:servers:create", _create_server, _by_each_vm),
        Right(
            "choose the worker of a server",
            "os_compute_api:servers:create:requested_destination",
            _choose_worker,
            _by_hosts,
        ),
        Right("list the workers", "os_compute_api:os-services:list", _list_services, _by_hosts),
        Right(
            "know the size of a worker",
            "os_compute_api:os-hypervisors:list",
            _list_hypervisors,
            _by_hosts,
        ),
        Right(
            "know what is free on a worker",
            "placement:resource_providers:list",
            _list_providers,
            _by_hosts,
        ),
        Right(
            "make flavors", "os_compute_api:os-flavor-manage:create", _create_flavor, _by_flavors
        ),
    ),
    "Neutron": (
        Right("make ports", "create_port", _create_port, _by_each_vm),
        Right(
            "make provider networks",
            "create_network:provider:physical_network",
            _create_network_with_segment,
            _by_networks,
        ),
        Right("make floating IPs", "create_floatingip", _create_floating_ip, _by_some_slivers),
        Right(
            "limit the bandwidth of a vNIC",
            "create_policy_bandwidth_limit_rule",
            _create_limit,
            _by_some_slivers,
        ),
        Right(
            "choose the MAC or address of a NIC on another project's network",
            "create_port:mac_address",
            _choose_mac,
            _by_some_slivers,
        ),
    ),
    "Cinder": (Right("make volumes", "volume:create", _create_volume, _by_some_slivers),),
}
"""By service, in the order in which they are asked for."""


def check_rights(connection: Connection, site: Site, service: str) -> Diagnosis:
    """Check what the user may do in a service, and name what the site needs and it may not.

    :param service: ``Nova`` (with Placement), ``Neutron`` or ``Cinder``.
    """
    subject = f"rights in {service}"
    access = access_of(connection)
    who = f"{access.username} ({', '.join(sorted(access.role_names or ()))})"
    missing = [right for right in RIGHTS[service] if not _may(right, connection)]
    if not missing:
        return ok(subject, f"{who} may do all that is asked of {service}")
    found = f"{who} may not {_listed('or', (right.to for right in missing))}"
    needed = {right.policy: by for right in missing if (by := right.needed_by(site))}
    if not needed:
        return info(subject, found)
    needing = list(dict.fromkeys(needed.values()))
    found += f"; needed by {_listed('and', needing)}"
    remedy = f"give the user a role that may, or let policy.yaml allow {_listed('and', needed)}"
    return (fail if _EACH_VM in needing else warn)(subject, found, remedy)


def _may(right: Right, connection: Connection) -> bool:
    response = right.ask(connection)
    if response is None or response.status_code in _REFUSED_FOR_WHAT_IT_NAMES:
        return True
    if response.status_code == HTTPStatus.FORBIDDEN:
        return False
    raise_from_response(response)
    if response.request.method == "POST":  # a service that takes what there is not
        (made,) = response.json().values()
        connection.session.delete(f"{response.request.url}/{made['id']}")
    return True


def _listed(conjunction: str, words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last
