"""Addresses of the site's networks: reserved ones, available ones, and the check of requested ones.

* The host's own address is the first of the subnet. On a ``vlan`` network, whose gateway is another
  machine of that VLAN, it is the first that is not the gateway.
* Reserved are the subnet's own address, its broadcast address, its first, the host's, the gateway and
  the DNS servers.
* In IPv6, the host's own is the first (``::1``). In a /64, where guests configure themselves by router
  advertisement, a NIC's address is derived from its MAC (modified EUI-64, RFC 4291, appendix A); in any
  other prefix it is the lowest free one.
"""

from collections.abc import Iterator
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from itertools import chain

from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Interface
from fabric_direct.model.networks import SiteNetwork, VlanNetwork


def host_address(network: SiteNetwork) -> IPv4Address:
    """Return the address of the host on the network's bridge."""
    taken = network.gateway if isinstance(network, VlanNetwork) else None
    return next(address for address in network.subnet.hosts() if address != taken)


def host_address6(subnet: IPv6Network) -> IPv6Address:
    """Return the IPv6 address of the host on the network's bridge."""
    return subnet[1]


def reserved(network: SiteNetwork) -> frozenset[IPv4Address]:
    """Return the addresses of the subnet that no NIC may use."""
    subnet = network.subnet
    edges = (subnet[0], subnet[-1], next(iter(subnet.hosts())), host_address(network))
    gateway = (network.gateway,) if network.gateway else ()
    return frozenset(chain(edges, gateway, network.dns))


def candidates(network: SiteNetwork) -> Iterator[IPv4Address]:
    """Yield the addresses that NICs may be given, the lowest first."""
    kept = reserved(network)
    return (address for address in _pool(network) if address not in kept)


def _pool(network: SiteNetwork) -> Iterator[IPv4Address]:
    if network.pool is None:
        return iter(network.subnet.hosts())
    first, last = network.pool
    return (IPv4Address(number) for number in range(int(first), int(last) + 1))


def candidates6(subnet: IPv6Network, mac: str) -> Iterator[IPv6Address]:
    """Yield the IPv6 addresses that a NIC may be given: one in a /64, otherwise the lowest first."""
    if subnet.prefixlen == 64:
        return iter((_eui64(subnet, mac),))
    return (subnet[n] for n in range(2, subnet.num_addresses))


def _eui64(subnet: IPv6Network, mac: str) -> IPv6Address:
    octets = bytes.fromhex(mac.replace(":", ""))
    identifier = bytes((octets[0] ^ 2,)) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return subnet[int.from_bytes(identifier)]


def check_addresses(network: SiteNetwork, interface: Interface) -> None:
    """Raise InvalidSliver unless the network has the addresses that the interface asks for.

    Whether another NIC has them is not checked. An address outside of the network's pool is valid if it
    is in the subnet.

    :raises InvalidSliver: with the field ``interface.ipv4`` or ``interface.ipv6``.
    """
    if interface.ipv4:
        _check(interface.ipv4, network.subnet, reserved(network), "interface.ipv4")
    if interface.ipv6:
        subnet = network.subnet6
        kept = frozenset((subnet[0], host_address6(subnet))) if subnet else frozenset()
        _check(interface.ipv6, subnet, kept, "interface.ipv6")


def _check(
    asked: IPv4Interface | IPv6Interface,
    subnet: IPv4Network | IPv6Network | None,
    kept: frozenset[IPv4Address] | frozenset[IPv6Address],
    field: str,
) -> None:
    if subnet is None:
        raise InvalidSliver(f"{asked} is not available", field=field, why="the network has no IPv6")
    if asked.ip not in subnet:
        raise InvalidSliver(
            f"{asked.ip} is outside of the network", field=field, why=f"it is {subnet}"
        )
    if asked.network.prefixlen != subnet.prefixlen:
        raise InvalidSliver(
            f"{asked} has a wrong prefix length", field=field, why=f"the network is {subnet}"
        )
    if asked.ip in kept:
        raise InvalidSliver(f"{asked.ip} is reserved", field=field, why=f"the network is {subnet}")
