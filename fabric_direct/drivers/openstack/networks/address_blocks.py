"""The subnets of a network: which fixed address a port may request, and how."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

from openstack.network.v2.subnet import Subnet

from fabric_direct.drivers.openstack.networks.desired_network import subnets
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import VNicInterface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.site.addresses import candidates6

# In these modes a port's address follows from its MAC address; Neutron allows no other.
_AUTOMATIC = {"slaac", "dhcpv6-stateless"}


@dataclass(frozen=True, slots=True)
class AddressBlock:
    """A subnet of a network."""

    network: IPv4Network | IPv6Network
    reserved: frozenset[IPv4Address | IPv6Address]
    automatic: bool = False
    """Whether a port's address follows from its MAC (modified EUI-64)."""


def of_settings(settings: SiteNetwork) -> list[AddressBlock]:
    """Return the blocks of a network of site.yaml, whether it exists or not."""
    return of_subnets(Subnet(**attributes) for attributes in subnets(settings))


def of_subnets(there: Iterable[Subnet]) -> list[AddressBlock]:
    """Return the blocks of existing subnets."""
    return list(map(_block, there))


def _block(subnet: Subnet) -> AddressBlock:
    network, gateway = ip_network(subnet.cidr), subnet.gateway_ip
    edges = {network[0], network[-1]} if network.version == 4 else {network[0]}
    reserved = edges | ({ip_address(gateway)} if gateway else set())
    return AddressBlock(network, frozenset(reserved), subnet.ipv6_address_mode in _AUTOMATIC)


def check_address(
    asked: IPv4Interface | IPv6Interface,
    blocks: Iterable[AddressBlock],
    mac: str | None,
    field: str,
) -> None:
    """Raise InvalidSliver unless a port of the network may have the address; others may hold it.

    :param mac: the MAC address of the port, if the sliver sets it.
    :param field: the field that the error names.
    """
    same = [block for block in blocks if block.network.version == asked.version]
    said = ", ".join(str(block.network) for block in same)
    if not same:
        raise InvalidSliver(
            f"{asked} cannot be had", field=field, why=f"the network has no IPv{asked.version}"
        )
    home = next((block for block in same if asked.ip in block.network), None)
    if home is None:
        raise InvalidSliver(
            f"{asked.ip} is outside of the network", field=field, why=f"it is {said}"
        )
    if asked.network.prefixlen != home.network.prefixlen:
        raise InvalidSliver(f"{asked} has a wrong prefix length", field=field, why=f"it is {said}")
    if asked.ip in home.reserved:
        raise InvalidSliver(f"{asked.ip} is reserved", field=field, why=f"the network is {said}")
    if home.automatic:
        _check_automatic(asked, home, mac, field)


def _check_automatic(
    asked: IPv4Interface | IPv6Interface, block: AddressBlock, mac: str | None, field: str
) -> None:
    network = block.network
    follows = next(candidates6(network, mac)) if mac and isinstance(network, IPv6Network) else None
    if asked.ip != follows:
        raise InvalidSliver(
            f"{asked.ip} cannot be chosen",
            field=field,
            why=f"in {network} it follows from the MAC" + (f": {follows}" if follows else ""),
            remedy="leave it out",
        )


def fixed_ips(there: Iterable[Subnet], interface: VNicInterface) -> list[dict[str, Any]]:
    """Return the ``fixed_ips`` of a request, so that a port has an address of each family.

    Neutron assigns addresses that follow from the MAC address by itself, and refuses a request for one.
    """
    addressed = [s for s in there if s.ipv6_address_mode not in _AUTOMATIC]
    chosen = []
    for version, asked in ((4, interface.ipv4), (6, interface.ipv6)):
        same = [subnet for subnet in addressed if subnet.ip_version == version]
        if not same:
            continue
        fitting = (s for s in same if asked and asked.ip in ip_network(s.cidr))
        fixed = {"ip_address": str(asked.ip)} if asked else {}
        chosen.append({"subnet_id": next(fitting, same[0]).id, **fixed})
    return chosen
