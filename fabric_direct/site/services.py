"""Network services in site.yaml: switches, address pools, controllers."""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from fabric_direct.model import Frozen, LinkName, LocalPath, Name, PciAddress, PortName
from fabric_direct.site.drivers import check_service

_LINK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")


def _vlans(text: str) -> str:
    first, last = _ends(text)
    if not 1 <= first <= last <= 4094:
        raise ValueError("must be a VLAN or a range of them, within 1-4094")
    return text


VlanRange = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?$"),
    AfterValidator(_vlans),
    Field(examples=["100-199", "7"]),
]


def _ends(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def vlans_of(ranges: Iterable[str]) -> Iterator[int]:
    """Yield the VLANs of ranges in their order."""
    for text in ranges:
        first, last = _ends(text)
        yield from range(first, last + 1)


class SwitchPort(Frozen):
    """A port of a switch that services may use."""

    vlans: tuple[VlanRange, ...] = ("1-4094",)
    """The VLANs that services may have on it; ``auto`` takes the first free one."""
    untagged: bool = True
    """Whether a service may have it without a VLAN."""
    host: Name | None = None
    """The worker whose NIC is plugged into it, if one is."""
    uplink: LinkName | None = None
    """With ``host``: the NIC, if its VFs are SharedNICs."""
    bdf: PciAddress | None = None
    """With ``host``: the NIC, if it is a SmartNIC."""
    tap: bool = False
    """Whether a vNIC of a server on the switch's own host is it; the site makes and removes it."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        ends = (self.uplink is not None) + (self.bdf is not None)
        if ends != (self.host is not None):
            raise ValueError("needs 'host' with one of 'uplink' and 'bdf', or none of them")
        if self.tap and ends:
            raise ValueError("tap: a NIC of a host is plugged into it")
        return self


NetnsName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""A network namespace, as ``ip netns`` names it."""


class Routing(Frozen):
    """The routing namespaces to which a switch's services with a gateway are connected."""

    router: NetnsName | None = None
    """The namespace that routes between ``FABNetv4`` and ``FABNetv6``; none are served if absent."""
    outside: NetnsName | None = None
    """The namespace that routes to the outside, for ``FABNetv4Ext`` and ``FABNetv6Ext``."""
    external: IPv4Interface | None = None
    """The gateway of all ``FABNetv4Ext``, with prefix length."""


class SwitchSettings(Frozen):
    """A switch whose ports services are connected to."""

    driver: Annotated[Name, AfterValidator(check_service)] = "ovs"
    """The driver of services that reaches it. A controller (``nso``) reaches those that it knows."""
    host: Name | None = None
    """The worker that it runs on; this machine if absent."""
    netns: NetnsName | None = None
    """The network namespace of its links; the host's own if absent."""
    ovsdb: Annotated[str, StringConstraints(pattern=r"^(unix:/.+|tcp:.+:[0-9]{1,5})$")] = (
        "unix:/run/openvswitch/db.sock"
    )
    """Open vSwitch: its database, ``unix:/…`` or ``tcp:<address>:<port>``."""
    datapath: Literal["system", "netdev"] = "system"
    """Open vSwitch: the kernel's datapath, or the one in user space."""
    tunnel: IPv4Address | IPv6Address | None = None
    """The address of its tunnels (VXLAN) to other switches; it has none if absent."""
    routing: Routing | None = None
    """How services with gateways are routed; it has none if absent."""
    ports: dict[PortName, SwitchPort] = {}
    """Its ports, by name; no others are used."""

    @model_validator(mode="after")
    def _taps_are_links(self) -> Self:
        taps = (name for name, port in self.ports.items() if port.tap)
        for name in taps:
            if not _LINK.fullmatch(name) or name.startswith("vnet"):
                raise ValueError(
                    f"ports: {name} is not a name for a tap: at most 15 characters, not vnet…"
                )
        return self


class SubnetPool(Frozen):
    """A pool of subnets for services."""

    block: IPv4Network | IPv6Network
    prefix: Annotated[int, Field(ge=8, le=127, strict=True)]
    """Prefix length of each subnet."""

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if not self.block.prefixlen <= self.prefix <= self.block.max_prefixlen - 2:
            raise ValueError(f"prefix: must be {self.block.prefixlen} or more, and leave two hosts")
        return self


BurstUnit = Literal["Mbit", "MB"]
"""What FIM's ``burst_size`` counts: megabits as FIM says, or megabytes as fabric_am does."""
KBIT: dict[str, int] = {"Mbit": 1_000, "MB": 8_000}
"""How many kbit each of these is."""


class NsoSettings(Frozen):
    """Cisco's Network Services Orchestrator."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^/?#@]+(/[^?#@]*)?$")]
    """The root of its RESTCONF API: ``https://nso.example:8888/restconf``."""
    user: Name
    password_file: LocalPath
    """Its first line is the password."""
    ca_file: LocalPath | None = None
    """PEM: the authorities to trust for its certificate; the system's own if absent."""
    border_routers: tuple[Name, ...] = ()
    """The devices with access to the outside (``FABNetv4Ext``, ``FABNetv6Ext``)."""
    burst_unit: BurstUnit = "Mbit"
    """What ``burst-size`` of its services counts: megabits as in FIM, or megabytes."""
    commit_parameters: Literal["query", "json"] | None = None
    """How it takes commit parameters: each in the query, or as one JSON document. By its version if
    absent: JSON from 6.6 on."""


class Al2sSettings(Frozen):
    """Internet2's Virtual Networks."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^/?#@]+(/[^?#@]*)?$")]
    """The root of its API."""
    key_file: LocalPath
    """Its first line is the API access key."""
    owner: Annotated[str, Field(min_length=1, max_length=255)]
    """The owner's path, under which spaces are made."""
    ca_file: LocalPath | None = None
    """PEM: the authorities to trust for its certificate; the system's own if absent."""


class ServiceSettings(Frozen):
    """Settings of network services: subnet pools and controllers."""

    subnets: dict[Literal["FABNetv4", "FABNetv6", "FABNetv6Ext"], SubnetPool] = {}
    """Where subnets of services without a gateway come from, by type."""
    nso: NsoSettings | None = None
    al2s: Al2sSettings | None = None
