"""Fill the lab: `seed.py identity`, `seed.py stock IMAGES`, `seed.py site`; what is there stays."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

NETWORK = os.environ["FABRIC_OPENSTACK_NETWORK"]  # ovn, ovs or, in Zed, linuxbridge
VOLUMES = {"block-storage": ("cinder", "http://127.0.0.1:8776/v3")}
if NETWORK == "linuxbridge":
    VOLUMES = {"volumev3": ("cinderv3", "http://127.0.0.1:8776/v3/%(project_id)s")}
ENDPOINTS = {
    "image": ("glance", "http://127.0.0.1:9292"),
    "compute": ("nova", "http://127.0.0.1:8774/v2.1"),
    "placement": ("placement", "http://127.0.0.1:8778"),
    "network": ("neutron", "http://127.0.0.1:9696"),
    **VOLUMES,
}
ACCOUNTS = (  # user, project, roles
    ("services", "service", ("admin", "service")),
    ("demo", "demo", ("member",)),
    ("manager", "demo", ("manager", "member")),
    ("reader", "demo", ("reader",)),
)
RULES = (  # what comes in: ping and SSH
    ("IPv4", "icmp", None),
    ("IPv4", "tcp", 22),
    ("IPv6", "ipv6-icmp", None),
    ("IPv6", "tcp", 22),
)
FLAVORS = {  # MiB of memory, GB of disk, processors
    "m1.nano": (128, 1, 1),
    "m1.tiny": (256, 1, 1),
    "m1.small": (1024, 2, 1),
    "m1.medium": (2048, 4, 2),
}
IMAGES = {  # GB of disk and MiB of memory, at least
    "fabric-guest": {"min_disk": 1, "min_ram": 128},
    "fabric-debian": {"min_disk": 2, "min_ram": 512},
    "fabric-guest-devices": {"min_disk": 1, "min_ram": 128},  # labs/onesite, as the next
    "fabric-no-system": {"min_disk": 1, "min_ram": 128},
}
PROPERTIES = {"hw_rng_model": "virtio", "hw_qemu_guest_agent": "yes", "os_distro": "debian"}
HOST = "worker1"  # others may have joined it before
HOST_SERVICES = 5  # cinder-scheduler, cinder-volume, nova-compute, nova-conductor, nova-scheduler
AGENTS = 2 if NETWORK == "ovn" else 4  # controller, metadata; bridges, DHCP, routers, metadata
cloud = openstack.connect()


def patiently(ask: Callable[[], Any], seconds: float = 120) -> Any:
    """Return the first answer that is neither an error nor nothing: services may be about to start."""
    end = time.monotonic() + seconds
    while True:
        problem: object = "no answer"
        try:
            if answer := ask():
                return answer
        except (SDKException, ClientException) as error:
            problem = error
        if time.monotonic() > end:
            raise SystemExit(f"seed: still not so after {seconds} s: {problem}")
        time.sleep(0.3)


def identity() -> None:
    """Make what the other services need of keystone before they can start."""
    patiently(lambda: list(cloud.identity.projects()))
    for account in ACCOUNTS:
        add_account(*account)
    known = {service.type for service in cloud.identity.services()}
    for kind in ENDPOINTS.keys() - known:
        add_service(kind, *ENDPOINTS[kind])


def add_account(user: str, project: str, roles: tuple[str, ...]) -> None:
    """Make a project and a user with these roles in it."""
    keystone = cloud.identity
    home = keystone.find_project(project) or keystone.create_project(
        name=project, domain_id="default"
    )
    who = keystone.find_user(user) or keystone.create_user(
        name=user,
        password="lab",  # noqa: S106 (everybody's here, on loopback)
        domain_id="default",
        default_project_id=home.id,
    )
    for name in roles:
        role = keystone.find_role(name) or keystone.create_role(name=name)
        keystone.assign_project_role_to_user(home, who, role)


def add_service(kind: str, name: str, url: str) -> None:
    """Enter a service in the catalog."""
    service = cloud.identity.create_service(name=name, type=kind)
    for interface in ("public", "internal", "admin"):
        cloud.identity.create_endpoint(
            service_id=service.id, interface=interface, region_id="RegionOne", url=url
        )


def networks() -> None:
    """Make the networks and the router that every project may use."""
    patiently(lambda: list(cloud.network.networks()) or True)
    public = network("public", physical_network="public", is_router_external=True)
    outside = outer_subnets(public)
    inside = inner_subnets()
    if cloud.network.find_router("router1"):
        return
    gateway = {"network_id": public.id, "external_fixed_ips": outside}
    router = cloud.network.create_router(name="router1", external_gateway_info=gateway)
    for subnet_id in inside:
        cloud.network.add_interface_to_router(router, subnet_id=subnet_id)


def outer_subnets(public: Any) -> list[dict[str, str]]:
    """Make public's subnets; return the router's fixed addresses in them."""
    pool = [{"start": "172.24.4.10", "end": "172.24.4.250"}]
    static = {"is_dhcp_enabled": False}
    four = subnet(
        public, "public-subnet", "172.24.4.0/24", "172.24.4.1", allocation_pools=pool, **static
    )
    six = subnet(public, "public-subnet6", "fd00:172:24:4::/64", "fd00:172:24:4::1", **static)
    return [
        {"subnet_id": four, "ip_address": "172.24.4.2"},
        {"subnet_id": six, "ip_address": "fd00:172:24:4::2"},
    ]


def inner_subnets() -> list[str]:
    """Make the networks behind the router; return the ids of their subnets."""
    slaac = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
    private, private6 = network("private"), network("private6")
    return [
        subnet(private, "private-subnet", "10.10.0.0/24", "10.10.0.1"),
        subnet(private6, "private6-subnet", "10.10.6.0/24", "10.10.6.1"),
        subnet(private6, "private6-subnet6", "fd00:10:10:6::/64", "fd00:10:10:6::1", **slaac),
    ]


def network(name: str, physical_network: str | None = None, **details: Any) -> Any:
    """Make a network for all projects, on a tunnel or flat on a physical network."""
    if physical_network:
        details["provider_network_type"] = "flat"
        details["provider_physical_network"] = physical_network
    return cloud.network.find_network(name) or cloud.network.create_network(
        name=name, is_shared=True, **details
    )


def subnet(network: Any, name: str, cidr: str, gateway: str, **details: Any) -> str:
    """Make a subnet; return its id."""
    version = 6 if ":" in cidr else 4
    made = cloud.network.find_subnet(name) or cloud.network.create_subnet(
        name=name,
        network_id=network.id,
        ip_version=version,
        cidr=cidr,
        gateway_ip=gateway,
        **details,
    )
    return str(made.id)


def rules() -> None:
    """Let RULES in, in both projects."""
    for name in ("admin", "demo"):
        project = cloud.identity.find_project(name)
        groups = cloud.network.security_groups(project_id=project.id)
        group = next(group for group in groups if group.name == "default")
        known = {(rule["ethertype"], rule["protocol"]) for rule in group.security_group_rules}
        for ethertype, protocol, port in RULES:
            if (ethertype, protocol) not in known:
                cloud.network.create_security_group_rule(
                    security_group_id=group.id,
                    direction="ingress",
                    ethertype=ethertype,
                    protocol=protocol,
                    port_range_min=port,
                    port_range_max=port,
                )


def flavors() -> None:
    """Make FLAVORS."""
    known = patiently(lambda: [None, *cloud.compute.flavors()])
    names = {flavor.name for flavor in known if flavor}
    for name in FLAVORS.keys() - names:
        ram, disk, vcpus = FLAVORS[name]
        cloud.compute.create_flavor(name=name, ram=ram, disk=disk, vcpus=vcpus)


def images(directory: Path) -> None:
    """Upload those that are built; one that was built anew replaces the old one."""
    patiently(lambda: list(cloud.image.images()) or True)
    for name, needs in IMAGES.items():
        built = directory / f"{name}.qcow2.sources"
        if built.exists():
            upload(directory / f"{name}.qcow2", built.read_text().strip(), needs)


def upload(file: Path, source: str, needs: dict[str, int]) -> None:
    """Make an image of a file, unless there is one of the same source."""
    old = cloud.image.find_image(file.stem)
    if old and old.properties.get("fabric_source") == source:
        return
    if old:
        cloud.image.delete_image(old)
    details: dict[str, Any] = {**needs, **PROPERTIES, "fabric_source": source}
    cloud.create_image(
        file.stem,
        filename=str(file),
        disk_format="qcow2",
        container_format="bare",
        visibility="public",
        use_import=False,
        wait=True,
        **details,
    )


def volume_type() -> None:
    """Make the volume type nfs."""
    known = patiently(lambda: [None, *cloud.block_storage.types()])
    if not any(kind.name == "nfs" for kind in known if kind):
        cloud.block_storage.create_type(name="nfs", extra_specs={"volume_backend_name": "nfs"})


def hosts_are_up() -> bool:
    """Tell whether every part of a host has reported itself, and the schedulers know the host."""
    volumes = cloud.block_storage
    states = [service["state"] for service in volumes.get("/os-services").json()["services"]]
    states += [service.state for service in cloud.compute.services(host=HOST)]
    agents = [agent for agent in cloud.network.agents(host=HOST) if agent.is_alive]
    return (
        states == ["up"] * HOST_SERVICES
        and len(agents) == AGENTS
        and any(cloud.compute.hypervisors())
        and any(volumes.backend_pools())
    )


def stock(directory: str) -> None:
    """Make what servers and volumes are made of; this does not wait for any agent."""
    images(Path(directory))
    flavors()
    volume_type()


def site() -> None:
    """Make the networks, and wait for the hosts."""
    networks()
    rules()
    patiently(hosts_are_up)


if __name__ == "__main__":
    {"identity": identity, "stock": stock, "site": site}[sys.argv[1]](*sys.argv[2:])
