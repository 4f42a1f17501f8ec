"""Slivers as L3 connections of AL2S: what is sent, what is read, and in what both differ.

A space has this site's stamp in its title (the service's name with the sliver's id) and in its notes;
its one router and each of its L3 connections have theirs in their notes. Those of a connection name the
interface, and those of the one that a creation makes last say so: without it a service is not complete.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from fabric_direct.drivers.contract.fields import refuse_given
from fabric_direct.drivers.contract.service_names import refuse_other_ids
from fabric_direct.drivers.contract.site_checks import refuse_missing_ports
from fabric_direct.drivers.http_api import Json
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.services import L3VPN, NetworkService, Peer, ServiceInterface
from fabric_direct.site.config import Site

PROVISIONED, FAILED = "PROVISIONED", "ERROR"
_NOTES = re.compile(
    r"fabric-direct ([^/\s]+)/([^/\s]+)(?:/(?P<interface>\S+))?(?: asn (?P<asn>\d+))?(?P<last> last)?"
)
_MTU = 9001
_CLOUDS = {
    "AWS": ("AWS", "ownerAccountId"),
    "GCP": ("Google Cloud Platform", "pairingKey"),
}
"""What a connection calls a cloud, and its account."""
_UNSERVED = ("inner_vlan", "burst", "gateway")
_COMPARED = {
    "interfaceId": "port",
    "remoteName": "neighbor's name",
    "vlanOuterId": "VLAN",
    "localIPv4": "address",
    "localIPv6": "address",
    "ipv4PrefixLength": "prefix length",
    "ipv6PrefixLength": "prefix length",
    "remoteIPv4": "neighbor's address",
    "remoteIPv6": "neighbor's address",
    "remoteASN": "neighbor's AS",
    "mtu": "MTU",
    "cloudConnectionType": "cloud",
    "maxBandwidth": "bandwidth",
}


@dataclass(frozen=True, slots=True)
class Notes:
    """Our stamp in the notes of a resource."""

    site: str
    sliver: str
    interface: str = ""
    asn: int | None = None
    last: bool = False

    def __str__(self) -> str:
        """Return the text of the notes."""
        interface = f"/{self.interface}" if self.interface else ""
        asn = f" asn {self.asn}" if self.asn else ""
        return f"fabric-direct {self.site}/{self.sliver}{interface}{asn}{' last' * self.last}"

    @classmethod
    def of(cls, text: object) -> "Notes | None":
        """Return the stamp that a text is; None if it is none of this library's."""
        found = _NOTES.fullmatch(str(text or "").strip())
        if found is None:
            return None
        asn = int(found["asn"]) if found["asn"] else None
        return cls(found[1], found[2], found["interface"] or "", asn, bool(found["last"]))


def refuse(site: Site, service: NetworkService) -> None:
    """Raise InvalidSliver for the first field that AL2S cannot serve."""
    if not isinstance(service, L3VPN):
        why = "its API of circuits is not spoken here, and no driver says that it made what it did not"
        raise InvalidSliver(f"AL2S serves L3VPN, not {service.type}", field="type", why=why)
    refuse_other_ids(service, "AL2S")
    refuse_missing_ports(site, service)
    for number, interface in enumerate(service.interfaces):
        _refuse_interface(interface, f"interfaces[{number}]")


def _refuse_interface(interface: ServiceInterface, field: str) -> None:
    refuse_given(interface, _UNSERVED, "L3VPN of AL2S has none", field)
    if not interface.tag:
        raise InvalidSliver("AL2S needs a VLAN", field=f"{field}.vlan")
    if interface.peer and interface.peer.cloud and not interface.peer.account:
        raise InvalidSliver("a cloud needs one", field=f"{field}.peer.account")


def document(interface: ServiceInterface, place: str, position: int) -> Json:
    """Return what an L3 connection is made from, beside its router and notes.

    :param place: AL2S' id of the port.
    """
    peer: Any = interface.peer
    named, account = _CLOUDS.get(peer.cloud or "", (f"AS{peer.asn}", ""))
    return {
        "interfaceId": place,
        "remoteName": peer.name or named,
        "displayPosition": position,
        "encapsulationType": "DOT1Q",
        "vlanOuterId": interface.tag,
        "vlanInnerId": 0,
        **_addresses(peer),
        "remoteASN": peer.asn,
        "authnType": "MD5" if peer.key else None,
        "authnConfig": {"md5": peer.key} if peer.key else None,
        "mtu": interface.mtu or _MTU,
        "bfdEnable": True,
        "gtsmEnable": True,
        "cloudConnectionType": peer.cloud or "NONCLOUD",
        "cloudConnectionConfig": {account: peer.account} if account else {},
        "maxBandwidth": interface.bandwidth or 0,
        "authoringState": "LIVE",
    }


def _addresses(peer: Peer) -> Json:
    has, other = (4, 6) if peer.local.version == 4 else (6, 4)
    return {
        f"ipv{has}PrefixLength": peer.local.network.prefixlen,
        f"localIPv{has}": str(peer.local.ip),
        f"remoteIPv{has}": str(peer.address),
        f"ipv{other}PrefixLength": 0,
        f"localIPv{other}": None,
        f"remoteIPv{other}": None,
    }


@dataclass(frozen=True, slots=True)
class L3Connection:
    """An L3 connection as it is."""

    id: str
    values: Json

    @property
    def notes(self) -> Notes | None:
        """Our stamp, if it has one."""
        return Notes.of(self.values.get("notes"))

    @property
    def state(self) -> str:
        """AL2S' word for how far it is: ``PROVISIONED``, ``PENDING``, ``ERROR`` and others."""
        return str(self.values["provisioningState"])

    @property
    def where(self) -> tuple[str, int]:
        """The id of its port, and its VLAN."""
        return str(self.values["interfaceId"]), int(self.values["vlanOuterId"])

    def differences(self, wanted: Json, *, secrets: bool) -> tuple[str, ...]:
        """Name in what it differs from its document; its position on a page does not count.

        :param secrets: whether the document has its keys and accounts, if it needs any.
        """
        said = [
            f"its {what} is {self.values.get(key)}, not {wanted[key]}"
            for key, what in _COMPARED.items()
            if _plain(self.values.get(key)) != _plain(wanted[key])
        ]
        if secrets:
            said += [f"its {what} is another one" for what in self._other_secrets(wanted)]
        return tuple(said)

    def _other_secrets(self, wanted: Json) -> Iterator[str]:
        signed, key = self.values.get("authnType") == "MD5", wanted["authnConfig"]
        if signed != bool(key) or _another(self.values.get("authnConfig"), key):
            yield "key"
        account = wanted["cloudConnectionConfig"]
        if _another(self.values.get("cloudConnectionConfig"), account):
            yield "account"


def _plain(value: object) -> str:
    """Return a value as text, by which numbers and texts of the same digits are equal."""
    text = "" if value in (None, 0, "0") else str(value).lower()
    return str(ip_address(text)) if ":" in text else text


def _another(found: Any, wanted: Json | None) -> bool:
    """Return whether a secret is another one; one that is not shown, or masked, is the same."""
    shown = dict(found or {})
    return any(
        shown.get(key) and set(str(shown[key])) != {"*"} and str(shown[key]) != value
        for key, value in (wanted or {}).items()
    )


def interface_values(connection: L3Connection, name: str, port: tuple[str, str]) -> Json:
    """Return a connection as the interface of a sliver, without its secrets.

    :param port: its device, and the port's name.
    """
    values = connection.values
    return {
        "id": name,
        "device": port[0],
        "port": port[1],
        "vlan": connection.where[1],
        "bandwidth": int(values.get("maxBandwidth") or 0) or None,
        "mtu": values.get("mtu"),
        "peer": _peer(values),
    }


def _peer(values: Json) -> Json:
    version = 4 if values.get("localIPv4") else 6
    cloud = values.get("cloudConnectionType")
    return {
        "local": f"{values[f'localIPv{version}']}/{values[f'ipv{version}PrefixLength']}",
        "address": values[f"remoteIPv{version}"],
        "asn": int(values["remoteASN"]),
        "name": values.get("remoteName"),
        "cloud": cloud if cloud in _CLOUDS else None,
        "secret": values.get("authnType") == "MD5" or cloud in _CLOUDS,
    }


def names(connections: list[L3Connection]) -> Iterator[tuple[str, L3Connection]]:
    """Yield connections with the ids of their interfaces; those without the site's are numbered."""
    for number, connection in enumerate(connections, 1):
        notes = connection.notes
        yield (notes.interface if notes else "") or str(number), connection
