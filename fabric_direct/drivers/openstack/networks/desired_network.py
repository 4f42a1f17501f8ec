"""Networks of site.yaml and network slivers in Neutron's terms, and how an existing one differs.

==============  ===============================================================================
strategy        in Neutron
==============  ===============================================================================
``flat``        provider network ``flat``; subnets without DHCP
``flat_dhcp``   provider network ``flat``; DHCP, IPv6 by router advertisement (SLAAC) in a /64
``vlan``        provider network ``vlan``, the same
==============  ===============================================================================

Neutron's allocation pools leave out the gateway, the DNS servers and, unless a pool is given, the first
address of a subnet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.subnet import Subnet

from fabric_direct.drivers.contract.provider_networks import gateway, impossibility, pools
from fabric_direct.drivers.openstack.client.stamp import description, network_description
from fabric_direct.errors import Conflict, InvalidSite, InvalidSliver, Refused
from fabric_direct.model.networks import FlatNetwork, NetworkSliver, SiteNetwork, VlanNetwork
from fabric_direct.site.config import Site

# What Neutron can change of an existing subnet; the names are openstacksdk's.
_CHANGEABLE = ("gateway_ip", "dns_nameservers", "allocation_pools")
_FIELDS = {
    "cidr": "subnet",
    "is_dhcp_enabled": "strategy",
    "ipv6_ra_mode": "subnet6",
    "ipv6_address_mode": "subnet6",
    "gateway_ip": "gateway",
    "dns_nameservers": "dns",
    "allocation_pools": "pool",
    "provider_network_type": "strategy",
    "provider_physical_network": "physical_network",
    "provider_segmentation_id": "vlan",
}
_ANEW = "delete the sliver and create it anew"


@dataclass(frozen=True, slots=True)
class DesiredNetwork:
    """A network as configured."""

    name: str
    stamp: str
    """Description of the network, its subnets and its router."""
    settings: SiteNetwork
    refusal: type[Refused]
    """The error to raise if the cloud cannot provide it."""
    path: str
    """Path of its settings: ``networks.red`` of site.yaml, ``network`` of a sliver."""

    def refuse(self, field: str, what: str, *, why: str = "", remedy: str = "") -> Refused:
        """Return the error that the cloud cannot provide it."""
        path = f"{self.path}.{field}" if field != "name" else field
        return self.refusal(what, why=why, remedy=remedy, field=path)


def of_site(site: Site, name: str) -> DesiredNetwork:
    """Return a network of site.yaml."""
    stamp = network_description(site.site, name)
    return DesiredNetwork(name, stamp, site.networks[name], InvalidSite, f"networks.{name}")


def of_sliver(site: Site, sliver: NetworkSliver) -> DesiredNetwork:
    """Return the network of a sliver."""
    stamp = description(site.site, sliver.id)
    return DesiredNetwork(sliver.name, stamp, sliver.network, InvalidSliver, "network")


def refuse_impossible(desired: DesiredNetwork, external: str | None) -> None:
    """Raise InvalidSite or InvalidSliver, with the field, unless Neutron can provide the network.

    :param external: the cloud's external network, if the site names one.
    """
    found = impossibility(desired.settings, external)
    if found:
        raise desired.refuse(found.field, found.what, why=found.why, remedy=found.remedy)


def provider(settings: SiteNetwork) -> dict[str, Any]:
    """Return the ``provider_*`` attributes of the network."""
    on = {"provider_physical_network": settings.physical_network}
    if isinstance(settings, VlanNetwork):
        return {
            "provider_network_type": "vlan",
            **on,
            "provider_segmentation_id": settings.vlan,
        }
    return {"provider_network_type": "flat", **on}


def subnets(settings: SiteNetwork) -> list[dict[str, Any]]:
    """Return the attributes of each subnet, IPv6 first."""
    dhcp = not isinstance(settings, FlatNetwork)
    ipv4 = {
        "ip_version": 4,
        "cidr": str(settings.subnet),
        "gateway_ip": _text(gateway(settings)),
        "is_dhcp_enabled": dhcp,
        "dns_nameservers": [str(address) for address in settings.dns],
        "allocation_pools": [{"start": str(a), "end": str(b)} for a, b in pools(settings)],
    }
    return [*_ipv6(settings, dhcp=dhcp), ipv4]


def _ipv6(settings: SiteNetwork, *, dhcp: bool) -> list[dict[str, Any]]:
    subnet = settings.subnet6
    if subnet is None:
        return []
    mode = "slaac" if subnet.prefixlen == 64 else "dhcpv6-stateful"
    return [
        {
            "ip_version": 6,
            "cidr": str(subnet),
            "gateway_ip": str(subnet[1]) if settings.router else None,
            "is_dhcp_enabled": dhcp,
            **({"ipv6_ra_mode": mode, "ipv6_address_mode": mode} if dhcp else {}),
        }
    ]


def _text(address: object) -> str | None:
    return None if address is None else str(address)


# --- what differs


def fixed_differences(
    desired: DesiredNetwork, network: NeutronNetwork, there: Iterable[Subnet]
) -> Iterator[tuple[str, str]]:
    """Yield the field and a sentence for each fixed setting that differs.

    Only administrators see the segment. What does not exist yet does not differ: the IPv4 subnet is
    created last, so a network without it is incomplete.
    """
    if network.name != desired.name:
        yield "name", f"it is named {network.name}, not {desired.name}"
    for key, value in provider(desired.settings).items():
        has = getattr(network, key)
        if has not in {None, value}:
            yield _FIELDS[key], f"its {_said(key)} is {has}, not {value}"
    yield from _fixed_subnets(desired, {subnet.ip_version: subnet for subnet in there})


def _fixed_subnets(desired: DesiredNetwork, there: dict[int, Subnet]) -> Iterator[tuple[str, str]]:
    if desired.settings.subnet6 is None and 6 in there:
        yield "subnet6", f"it has the IPv6 subnet {there[6].cidr}"
    for body in subnets(desired.settings):
        found = there.get(body["ip_version"])
        if found is not None:
            yield from _fixed_subnet(body, found)
        elif 4 in there:
            yield "subnet6", f"it has no IPv6 subnet {body['cidr']}"


def _fixed_subnet(body: dict[str, Any], found: Subnet) -> Iterator[tuple[str, str]]:
    six = found.ip_version == 6
    for key, value in body.items():
        has = getattr(found, key)
        if key not in _CHANGEABLE and has != value:
            field = "subnet6" if six and key == "cidr" else _FIELDS[key]
            yield field, f"{_said(key)} of {found.cidr} is {has}, not {value}"


def changes(body: dict[str, Any], found: Subnet) -> dict[str, Any]:
    """Return the attributes of an existing subnet that need a change."""
    return {
        key: body[key]
        for key in _CHANGEABLE
        if key in body and _plain(getattr(found, key)) != _plain(body[key])
    }


def _plain(value: Any) -> Any:
    """Return a value that can be compared: pools have no order."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {(pool["start"], pool["end"]) for pool in value}
    return value or None


def changed(body: dict[str, Any], found: Subnet) -> Iterator[str]:
    """Yield a sentence for each attribute that needs a change."""
    for key, value in changes(body, found).items():
        yield f"{_said(key)} of {found.cidr} is {_shown(getattr(found, key))}, not {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value['start']}-{value['end']}" if isinstance(value, dict) else str(value or "none")


def _said(key: str) -> str:
    return key.removeprefix("provider_").removeprefix("is_").replace("_", " ")


def refuse_changed(
    desired: DesiredNetwork, network: NeutronNetwork, there: Iterable[Subnet]
) -> None:
    """Raise InvalidSite or InvalidSliver, with the field, if a fixed setting differs."""
    for field, sentence in fixed_differences(desired, network, there):
        raise desired.refuse(
            field, "cannot be changed once the network is made", why=sentence, remedy=_ANEW
        )


def refuse_different(
    desired: DesiredNetwork, network: NeutronNetwork, there: Iterable[Subnet]
) -> None:
    """Raise Conflict if a fixed setting of the existing network differs."""
    found = [sentence for _, sentence in fixed_differences(desired, network, there)]
    if found:
        raise Conflict(
            f"network {desired.name} ({network.id}) is there and differs from what is wanted",
            why="; ".join(found),
            remedy="delete what uses it first",
        )
