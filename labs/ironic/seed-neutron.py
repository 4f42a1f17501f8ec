"""Make the networks of Neutron: `lab`, that of the machines, and `elsewhere`, a VLAN without a link.

``seed-neutron.py ADDRESS`` runs in the lab's root, by Debian's openstacksdk.
"""

import sys
from typing import Any

from openstack.connection import Connection

(ADDRESS,) = sys.argv[1:]
URL = f"http://{ADDRESS}:9696"
PREFIX = ADDRESS.rpartition(".")[0]
neutron = Connection(auth_type="none", endpoint=URL, network_endpoint_override=URL).network


def network(name: str, cidr: str, first: str, last: str, **provider: Any) -> None:
    """Make a shared network whose addresses no DHCP gives."""
    made = neutron.create_network(name=name, shared=True, **provider)
    pool = {"start": first, "end": last}
    neutron.create_subnet(
        network_id=made.id,
        ip_version=4,
        cidr=cidr,
        gateway_ip=None,
        enable_dhcp=False,
        allocation_pools=[pool],
    )


network(
    "lab",
    f"{PREFIX}.0/24",
    f"{PREFIX}.100",
    f"{PREFIX}.199",
    provider_network_type="flat",
    provider_physical_network="lab",
)
network(
    "elsewhere",
    "192.0.2.0/24",
    "192.0.2.10",
    "192.0.2.250",
    provider_network_type="vlan",
    provider_physical_network="physnet1",
    provider_segmentation_id=100,
)
