"""Network services as slivers: the connections between nodes, their gateways and mirrors.

=================  ===========================================================================
type               what it is
=================  ===========================================================================
``L2Bridge``       one Ethernet segment on one device
``L2PTP``          a point-to-point circuit between tagged interfaces of two devices
``L2STS``          one Ethernet segment on two devices (site to site)
``FABNetv4``       a segment with an IPv4 gateway, which routes to the other services of its kind
``FABNetv6``       the same with IPv6
``FABNetv4Ext``    the same, where chosen addresses are reachable from outside
``FABNetv6Ext``    the same with IPv6
``L3VPN``          a routed network of several sites, with BGP to those that are not ours
``PortMirror``     a copy of the frames of a port, for one receiver
=================  ===========================================================================

What FIM forbids is refused here; what a driver cannot serve is refused by its ``check``.
"""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
)
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, RootModel, StringConstraints, model_validator

from fabric_direct.model.base import (
    ComponentId,
    Frozen,
    Mac,
    Mbps,
    Name,
    PortName,
    SliverId,
    Vlan,
    refuse_twice,
    with_prefix,
)
from fabric_direct.model.vm import Sliver

Hop = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,254}$")]
"""A router's loopback address, or ``link:…``."""
Asn = Annotated[int, Field(ge=1, le=4_294_967_295, strict=True)]
"""An autonomous system's number (RFC 6793: 32 bits)."""


def _address(value: Any) -> Any:
    """Refuse what is no address of either version, in one sentence."""
    if not isinstance(value, str | IPv4Address | IPv6Address):
        raise ValueError("must be an address, for example 10.0.0.5")  # noqa: TRY004 - as below
    if isinstance(value, str):
        ip_address(value)
    return value


def _interface(value: Any) -> Any:
    if not isinstance(value, str | IPv4Interface | IPv6Interface):
        why = "must be an address with a prefix length, for example 10.0.0.5/24"
        raise ValueError(why)  # noqa: TRY004 - pydantic makes nothing of a TypeError
    if isinstance(with_prefix(value), str):
        ip_interface(value)
    return value


def _refuse_no_host(field: str, address: IPv4Interface | IPv6Interface) -> None:
    """Raise ValueError for an address that nobody in a subnet can have."""
    network, ip = address.network, address.ip
    if ip.is_loopback or ip.is_multicast or ip.is_unspecified:
        raise ValueError(f"{field}: {ip} is no address of a host")
    ends = network.num_addresses > 2  # else both are hosts: RFC 3021, RFC 6164
    if ends and ip == network.network_address:
        raise ValueError(f"{field}: {ip} is the address of its subnet, not of a host")
    if ends and network.version == 4 and ip == network.broadcast_address:
        raise ValueError(f"{field}: {ip} is the broadcast address of its subnet")


def _tag(value: Any) -> Any:
    """Refuse what is no tag of an interface, in one sentence."""
    number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4094
    if not number and value not in ("untagged", "auto"):
        raise ValueError("must be a VLAN from 1 to 4094, 'untagged' or 'auto'")
    return value


Tag = Annotated[Vlan | Literal["untagged", "auto"], BeforeValidator(_tag)]
Address = Annotated[IPv4Address | IPv6Address, BeforeValidator(_address)]
WithPrefix = Annotated[IPv4Interface | IPv6Interface, BeforeValidator(_interface)]
Secret = Annotated[
    str,
    StringConstraints(pattern=r"^[\x21-\x7e]{1,80}$"),
    Field(json_schema_extra={"writeOnly": True}),
]
"""A key or password: no message repeats it."""


class Attachment(Frozen):
    """The component of a node to which a service's interface is stitched."""

    sliver: SliverId
    """The node."""
    component: ComponentId
    """Its vNIC, SharedNIC or SmartNIC. MAC, port and VLAN of the service's interface are that one's."""
    interface: Annotated[int, Field(ge=0, le=31, strict=True)] = 0
    """Of a SmartNIC: the number of its interface."""


class Peer(Frozen):
    """The BGP neighbor at an interface."""

    local: WithPrefix
    """The service's own address on the interface, with prefix length."""
    address: Address
    """The neighbor's."""
    asn: Asn
    """The neighbor's autonomous system."""
    name: Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{1,255}$")] | None = None
    """What the neighbor is called (AL2S); after its cloud or autonomous system if absent."""
    key: Annotated[Secret | None, Field(repr=False)] = None
    """Secret of TCP's MD5 signatures (RFC 2385: at most 80 bytes); none if absent. It is kept in no
    stamp, and written into no log."""
    cloud: Literal["AWS", "GCP"] | None = None
    """The public cloud at the other end (AL2S)."""
    account: Annotated[Secret | None, Field(repr=False)] = None
    """Its account (AWS) or pairing key (GCP)."""
    secret: bool = False
    """In a stamp: whether it has a key or an account, which the stamp does not say."""

    @model_validator(mode="after")
    def _neighbors(self) -> Self:
        if self.address not in self.local.network:
            raise ValueError(f"address: {self.address} is not in {self.local.network}")
        _refuse_no_host("local", self.local)
        _refuse_no_host("address", ip_interface(f"{self.address}/{self.local.network.prefixlen}"))
        if self.address == self.local.ip:
            raise ValueError(f"address: {self.address} is the service's own")
        if self.cloud is None and self.account is not None:
            raise ValueError("account: needs a cloud")
        return self


class Gateway(Frozen):
    """The service's own address in its subnet, to which its nodes send what goes elsewhere."""

    address: WithPrefix
    """With the subnet's prefix length."""
    mac: Mac | None = None
    """Chosen by the device if absent."""

    @model_validator(mode="after")
    def _host(self) -> Self:
        _refuse_no_host("address", self.address)
        return self


class ServiceInterface(Frozen):
    """An interface of a service: a VLAN of a port of a device."""

    id: ComponentId
    """Unique within the sliver; a modification matches interfaces by it."""
    device: Name | None = None
    """The switch or router, as site.yaml or its controller names it."""
    port: PortName | None = None
    vlan: Tag = "untagged"
    """Its outer VLAN. ``auto`` takes a free one of the port's range, and keeps it."""
    inner_vlan: Vlan | None = None
    """With a VLAN: the inner one of two tags (802.1ad, Q-in-Q)."""
    bandwidth: Mbps | None = None
    """Limit in Mbit/s in each direction; none if absent."""
    burst: Annotated[int, Field(ge=1, le=10_000_000, strict=True)] | None = None
    """With a bandwidth: how much may exceed it for a moment, in kbit; chosen by the driver if absent."""
    mac: Mac | None = None
    """The MAC address of who is connected."""
    mtu: Annotated[int, Field(ge=576, le=9216, strict=True)] | None = None
    """Bytes of an IP packet; the device's default if absent."""
    address: WithPrefix | None = None
    """In a FABNet: the address of who is connected; the next free one of the subnet if absent."""
    gateway: Gateway | None = None
    """In an L3VPN without ``peer``: the service's own address there."""
    peer: Peer | None = None
    """In an L3VPN: the BGP neighbor there."""
    attach: Attachment | None = None
    """What it is stitched to, instead of ``device`` and ``port``."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.inner_vlan is not None and self.vlan == "untagged":
            raise ValueError("inner_vlan: needs a VLAN")
        if self.burst is not None and self.bandwidth is None:
            raise ValueError("burst: needs a bandwidth")
        named = (self.device is not None, self.port is not None)
        if self.attach is None and not all(named):
            raise ValueError("needs 'device' and 'port', or 'attach'")
        if any(named) and not all(named):
            raise ValueError("needs both or none of 'device' and 'port'")
        return self

    @property
    def tag(self) -> int:
        """The outer VLAN as a number; 0 if there is none, or it is not chosen yet."""
        return self.vlan if isinstance(self.vlan, int) else 0

    @property
    def where(self) -> str:
        """The interface for messages: ``p1 of sw1``."""
        return f"{self.port} of {self.device}"


class NetworkService(Sliver):
    """The common base of all kinds of network services."""

    few: ClassVar[int] = 1
    """How many interfaces it needs."""
    many: ClassVar[int] = 128
    """How many it may have."""
    devices_at_most: ClassVar[int | None] = None
    only_in: ClassVar[dict[str, tuple[str, ...]]] = {
        "address": ("FABNetv4", "FABNetv6", "FABNetv4Ext", "FABNetv6Ext"),
        "gateway": ("L3VPN",),
        "peer": ("L3VPN",),
    }
    """The types that have these fields of interfaces."""

    name: Name
    interfaces: Annotated[tuple[ServiceInterface, ...], Field(max_length=128)]

    @model_validator(mode="after")
    def _interfaces_fit(self) -> Self:
        number = len(self.interfaces)
        if not self.few <= number <= self.many:
            raise ValueError(f"interfaces: {self.type} needs {self._number()}, not {number}")
        refuse_twice("interfaces: id", [i.id for i in self.interfaces])
        _refuse_shared_vlan(self.interfaces)
        refuse_twice("interfaces: mac", [i.mac for i in self.interfaces if i.mac])
        for number, interface in enumerate(self.interfaces):
            self._refuse_fields(number, interface)
        self._refuse_devices()
        return self

    @classmethod
    def _number(cls) -> str:
        if cls.few == cls.many:
            return f"exactly {cls.few}"
        return f"at least {cls.few}"

    def _refuse_fields(self, number: int, interface: ServiceInterface) -> None:
        for field, types in self.only_in.items():
            if getattr(interface, field) is not None and self.type not in types:
                where = f"interfaces[{number}].{field}"
                raise ValueError(f"{where}: {self.type} has none, only {', '.join(types)}")

    def _refuse_devices(self) -> None:
        devices, most = self.devices(), self.devices_at_most
        if most is not None and len(devices) > most:
            named = ", ".join(devices)
            raise ValueError(f"interfaces: {self.type} is on at most {most} devices, not {named}")

    def devices(self) -> tuple[str, ...]:
        """Return the devices that its interfaces name, each once."""
        return tuple(dict.fromkeys(i.device for i in self.interfaces if i.device))

    def interface(self, interface_id: str) -> ServiceInterface | None:
        """Return one of its interfaces by its id, or None."""
        return next((i for i in self.interfaces if i.id == interface_id), None)

    @property
    def has_secrets(self) -> bool:
        """Return whether peers have keys or accounts that its stamp omits."""
        return any(i.peer and i.peer.secret for i in self.interfaces)

    def without_secrets(self) -> Self:
        """Return the service as its stamp may say it: without the keys and accounts of peers."""
        hidden = tuple(_without_secrets(interface) for interface in self.interfaces)
        return self.model_copy(update={"interfaces": hidden})


def _refuse_shared_vlan(interfaces: Iterable[ServiceInterface]) -> None:
    """Raise ValueError if two have the same VLAN of a port; a whole one includes all inner ones."""
    inner: dict[str, set[int | None]] = {}
    for interface in interfaces:
        if interface.device is not None and interface.vlan != "auto":
            vlan = f"{interface.vlan} on {interface.where}"
            has = inner.setdefault(vlan, set())
            if has and (interface.inner_vlan in has | {None} or None in has):
                raise ValueError(f"interfaces: VLAN {vlan} is given twice")
            has.add(interface.inner_vlan)


def _without_secrets(interface: ServiceInterface) -> ServiceInterface:
    if interface.peer is None:
        return interface
    peer = interface.peer
    secret = peer.secret or peer.key is not None or peer.account is not None
    peer = peer.model_copy(update={"key": None, "account": None, "secret": secret})
    return interface.model_copy(update={"peer": peer})


class L2Bridge(NetworkService):
    """One Ethernet segment on one device."""

    devices_at_most: ClassVar[int | None] = 1

    type: Literal["L2Bridge"] = "L2Bridge"


class Ero(Frozen):
    """An explicit route (ERO): the hops in both directions."""

    a2z: Annotated[tuple[Hop, ...], Field(min_length=1, max_length=32)]
    """From the first interface's device to the second's."""
    z2a: Annotated[tuple[Hop, ...], Field(min_length=1, max_length=32)]


class L2PTP(NetworkService):
    """A point-to-point circuit between two tagged interfaces, on two devices."""

    few: ClassVar[int] = 2
    many: ClassVar[int] = 2
    devices_at_most: ClassVar[int | None] = 2

    type: Literal["L2PTP"] = "L2PTP"
    ero: Ero | None = None
    """Its route; chosen by the network if absent."""

    @model_validator(mode="after")
    def _circuit(self) -> Self:
        for number, interface in enumerate(self.interfaces):
            if interface.vlan == "untagged":
                raise ValueError(f"interfaces[{number}].vlan: L2PTP needs one, or 'auto'")
        _refuse_one_device(self)
        return self


def _refuse_one_device(service: NetworkService) -> None:
    """Raise ValueError if all interfaces name their devices, and it is one."""
    named = all(interface.device for interface in service.interfaces)
    if named and len(service.devices()) < 2:
        (device,) = service.devices()
        raise ValueError(f"interfaces: {service.type} needs two devices, not {device} alone")


class L2STS(NetworkService):
    """One Ethernet segment on two devices."""

    few: ClassVar[int] = 2
    devices_at_most: ClassVar[int | None] = 2

    type: Literal["L2STS"] = "L2STS"

    @model_validator(mode="after")
    def _two_sites(self) -> Self:
        _refuse_one_device(self)
        return self


class _FabNet(NetworkService):
    devices_at_most: ClassVar[int | None] = 1
    version: ClassVar[int]
    """The version of IP."""
    own_subnet: ClassVar[bool] = True
    """Whether no other service has its subnet."""

    gateway: Gateway | None = None
    """Its gateway; if absent, the first host of a free subnet of the site's pool. ``FABNetv4Ext`` needs
    none: its devices have it."""

    @model_validator(mode="after")
    def _one_family(self) -> Self:
        if self.gateway and self.gateway.address.version != self.version:
            raise ValueError(f"gateway.address: {self.type} has IPv{self.version}")
        for number, interface in enumerate(self.interfaces):
            self._refuse_address(f"interfaces[{number}].address", interface.address)
        given = [str(i.address.ip) for i in self.interfaces if i.address]
        refuse_twice("interfaces: address", given)
        return self

    def _refuse_address(self, field: str, address: Any) -> None:
        if address is None:
            return
        if address.version != self.version:
            raise ValueError(f"{field}: {self.type} has IPv{self.version}")
        _refuse_no_host(field, address)
        if self.gateway and address.network != self.gateway.address.network:
            raise ValueError(f"{field}: {address} is not in {self.gateway.address.network}")
        if self.gateway and address.ip == self.gateway.address.ip:
            raise ValueError(f"{field}: {address.ip} is the gateway's")


class FABNetv4(_FabNet):
    """A segment with an IPv4 gateway."""

    version: ClassVar[int] = 4

    type: Literal["FABNetv4"] = "FABNetv4"


class FABNetv6(_FabNet):
    """A segment with an IPv6 gateway."""

    version: ClassVar[int] = 6

    type: Literal["FABNetv6"] = "FABNetv6"


class _FabNetExt(_FabNet):
    public: Annotated[tuple[Address, ...], Field(max_length=1024)] = ()
    """The addresses of its subnet that are reachable from outside; none at first."""

    @model_validator(mode="after")
    def _of_the_subnet(self) -> Self:
        refuse_twice("public:", [str(address) for address in self.public])
        for number, address in enumerate(self.public):
            if address.version != self.version:
                raise ValueError(f"public[{number}]: {self.type} has IPv{self.version}")
            if self.gateway and address not in self.gateway.address.network:
                subnet = self.gateway.address.network
                raise ValueError(f"public[{number}]: {address} is not in {subnet}")
            if self.gateway and address == self.gateway.address.ip:
                raise ValueError(f"public[{number}]: {address} is the gateway's")
        return self


class FABNetv4Ext(_FabNetExt):
    """A segment with an IPv4 gateway, of which chosen addresses are reachable from outside.

    All of a site share one subnet, so only their public addresses are their own.
    """

    version: ClassVar[int] = 4
    own_subnet: ClassVar[bool] = False

    type: Literal["FABNetv4Ext"] = "FABNetv4Ext"


class FABNetv6Ext(_FabNetExt):
    """A segment with an IPv6 gateway, of which chosen addresses are reachable from outside."""

    version: ClassVar[int] = 6

    type: Literal["FABNetv6Ext"] = "FABNetv6Ext"


class L3VPN(NetworkService):
    """A routed network of several sites."""

    type: Literal["L3VPN"] = "L3VPN"
    asn: Asn
    """Its own autonomous system."""

    @model_validator(mode="after")
    def _sites(self) -> Self:
        for number, interface in enumerate(self.interfaces):
            if (interface.peer is None) == (interface.gateway is None):
                where = f"interfaces[{number}]"
                raise ValueError(f"{where}: L3VPN needs exactly one of 'peer' and 'gateway'")
        self._refuse_overlap()
        return self

    def _refuse_overlap(self) -> None:
        """Raise ValueError if two gateways share addresses; interfaces of a device may have the same."""
        seen: list[tuple[ServiceInterface, Gateway]] = []
        for number, one in enumerate(self.interfaces):
            if one.gateway is None:
                continue
            where, mine = f"interfaces[{number}].gateway.address", one.gateway.address
            for other, gateway in seen:
                theirs = gateway.address
                same = mine == theirs and one.device == other.device
                if (
                    not same
                    and mine.version == theirs.version
                    and mine.network.overlaps(theirs.network)
                ):
                    raise ValueError(f"{where}: {mine} overlaps with {theirs} of {other.id}")
            seen.append((one, one.gateway))


class Mirror(Frozen):
    """The traffic that is mirrored."""

    port: PortName
    """The port whose frames are copied, of the receiver's device."""
    vlan: Vlan | None = None
    """Only frames of this VLAN; all if absent."""
    direction: Literal["rx", "tx", "both"] = "both"
    """Frames that the device receives there (``rx``), sends (``tx``), or both."""


class PortMirror(NetworkService):
    """A copy of the frames of a port; its one interface is the receiver."""

    many: ClassVar[int] = 1
    devices_at_most: ClassVar[int | None] = 1

    type: Literal["PortMirror"] = "PortMirror"
    mirror: Mirror

    @model_validator(mode="after")
    def _not_itself(self) -> Self:
        if self.interfaces[0].port == self.mirror.port:
            raise ValueError("mirror.port: is the receiver itself")
        return self


FabNet = FABNetv4 | FABNetv6 | FABNetv4Ext | FABNetv6Ext
Services = Annotated[
    L2Bridge | L2PTP | L2STS | FabNet | L3VPN | PortMirror, Field(discriminator="type")
]
SERVICES: dict[str, type[NetworkService]] = {
    str(model.model_fields["type"].default): model
    for model in (L2Bridge, L2PTP, L2STS, *get_args(FabNet), L3VPN, PortMirror)
}
"""The models by type."""


class AnyService(RootModel[Services]):
    """A network service of whatever type."""
