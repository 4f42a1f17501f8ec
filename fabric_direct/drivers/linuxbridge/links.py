"""The links of a switch as its kernel has them: read by netlink, and made as they should be."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import ENODEV
from ipaddress import ip_address
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from fabric_direct.calls.deadline import took_effect
from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.linuxbridge.layout import (
    ACCESS,
    BridgeLink,
    HtbClass,
    Tunnel,
    belongs,
    ports_of,
)
from fabric_direct.drivers.netlink.uplink import link_index, session
from fabric_direct.errors import NotFound, NotOurs

_ROOT, _CLASS = 0x10000, 0x10001
# linux/pkt_sched.h: where filters on what a link receives, and on what it sends, are attached.
_WAYS = {"rx": 0xFFFFFFF2, "tx": 0xFFFFFFF3}
_MIRROR = 2  # linux/tc_act/tc_mirred.h: TCA_EGRESS_MIRROR
_VXLAN_PORT = 4789  # assigned by IANA
_MTU = 9216
"""Of a pair: that of the ports limits what passes."""
_QUEUE = 100
"""Frames that wait for a limited rate."""
_QUANTUM = 1 << 16
_NO_ADDRESS = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", 1)]})]}
"""So that the kernel sends nothing of its own into a service: no IPv6 address by itself."""

Links = Mapping[str, BridgeLink]


class KernelBridges:
    """The kernel of a switch.

    :param where: the switch, for messages.
    """

    def __init__(self, where: str, host: HostDriver, netns: str | None) -> None:
        self._where, self._host, self._netns = where, host, netns

    def links(self) -> dict[str, BridgeLink]:
        """Return all links, by name."""
        with self._session("read the links") as ip:
            return _links(ip)

    def addresses(self, port: str) -> tuple[str, ...]:
        """Return the addresses that the host has on a port, except those of the link alone.

        :raises NotFound: if there is no such port.
        """
        with self._session("read the addresses") as ip:
            found = ip.get_addr(index=link_index(ip, port))
            return tuple(str(m.get("address")) for m in found if m["scope"] == 0)

    @contextmanager
    def changing(self) -> Iterator["Editor"]:
        """Yield what changes links, while the block runs."""
        with self._session("change the links") as ip:
            yield Editor(self._where, ip)

    def _session(self, what: str) -> Any:
        return session(what, self._where, self._netns, self._host)


# --- reading


def _links(ip: Any) -> dict[str, BridgeLink]:
    messages = list(ip.get_links())
    names = {m["index"]: m.get("ifname") for m in messages}
    vlans = {names.get(m["index"]): dict(_vlans(m)) for m in ip.get_vlans()}
    qdiscs = list(ip.get_qdiscs())
    shaped = {names.get(m["index"]) for m in qdiscs if _is_ours(m)}
    hooked = {names.get(m["index"]) for m in qdiscs if m.get_attr("TCA_KIND") == "clsact"}
    links = (_link(m, names) for m in messages)
    return {
        link.name: replace(
            link,
            vlans=vlans.get(link.name, {}),
            shaped=link.name in shaped,
            limit=_limit(ip, link.index) if link.name in shaped else None,
            hooked=link.name in hooked,
            mirrors=_mirrors(ip, link.index, names) if link.name in hooked else frozenset(),
        )
        for link in links
    }


def _is_ours(qdisc: Any) -> bool:
    return bool(qdisc.get("kind") == "htb" and qdisc["handle"] == _ROOT)


def _link(message: Any, names: Mapping[int, str]) -> BridgeLink:
    data = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA")
    kind = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") or ""
    return BridgeLink(
        name=message.get("ifname"),
        kind=kind,
        alias=message.get("ifalias") or "",
        bridge=names.get(message.get("master") or 0, ""),
        filters=bool(data and kind == "bridge" and data.get("br_vlan_filtering")),
        tunnel=_tunnel(data) if data and kind == "vxlan" else None,
        up=bool(message["flags"] & 1),
        index=message["index"],
    )


def _vlans(message: Any) -> Iterator[tuple[int, int]]:
    spec = message.get("af_spec")
    for info in spec.get_attrs("IFLA_BRIDGE_VLAN_INFO") if spec else ():
        yield info["vid"], info["flags"] & ACCESS


def _tunnel(data: Any) -> Tunnel | None:
    ends = [data.get(f"vxlan_{end}") or data.get(f"vxlan_{end}6") for end in ("local", "group")]
    if not all(ends):
        return None
    return Tunnel(data.get("vxlan_id"), *(ip_address(end) for end in ends))


def _limit(ip: Any, index: int) -> HtbClass | None:
    for message in ip.get_classes(index=index):
        if message["handle"] == _CLASS:
            options = message.get_attr("TCA_OPTIONS")
            parms, rate = options.get_attr("TCA_HTB_PARMS"), options.get_attr("TCA_HTB_RATE64")
            return HtbClass(rate or parms["rate"], parms["buffer"])
    return None


def _mirrors(ip: Any, index: int, names: Mapping[int, str]) -> frozenset[tuple[str, str]]:
    """Return what is mirrored of a link."""
    return frozenset(
        (way, names.get(_target(message), ""))
        for way, parent in _WAYS.items()
        for message in ip.get_filters(index=index, parent=parent)
        if _target(message)
    )


def _target(message: Any) -> int:
    """Return the index of the link that a filter sends a copy of all frames to; 0 if it does not."""
    if message.get_attr("TCA_KIND") != "matchall":
        return 0
    actions = message.get_nested("TCA_OPTIONS", "TCA_MATCHALL_ACT")
    for _, action in actions["attrs"] if actions else ():
        if action.get_attr("TCA_ACT_KIND") == "mirred":
            parms = action.get_nested("TCA_ACT_OPTIONS", "TCA_MIRRED_PARMS")
            return parms["ifindex"] if parms["eaction"] == _MIRROR else 0
    return 0


# --- comparing


def differences(wanted: BridgeLink, found: BridgeLink | None) -> Iterator[str]:
    """Yield what a link that is there differs in from what it should be, a sentence each."""
    if found is None:
        yield f"link {wanted.name} is missing"
        return
    if wanted.bridge not in {None, found.bridge}:
        yield f"link {wanted.name} is in {found.bridge or 'no bridge'}, not {wanted.bridge}"
    if surplus(wanted, found) or _missing(wanted, found):
        yield f"link {wanted.name} has VLANs {_text(found.vlans)}, not {_text(wanted.vlans)}"
    wrong = {
        "does not bear the stamp": not belongs(found, wanted.alias),
        "has another tunnel": wanted.tunnel != found.tunnel,
        "does not filter VLANs": wanted.filters > found.filters,
        "mirrors other frames": wanted.mirrors != _aimed(found, wanted),
        "has another limit": wanted.shaped > found.shaped or wanted.limit != found.limit,
        "is down": not found.up,
    }
    yield from (f"link {wanted.name} {what}" for what, so in wrong.items() if so)


def surplus(wanted: BridgeLink, found: BridgeLink) -> tuple[int, ...]:
    """Return the VLANs that a link has and should not; a port has those of other services, too."""
    strange = () if not wanted.kind else found.vlans.keys() - wanted.vlans.keys()
    return (*strange, *(v for v, f in wanted.vlans.items() if found.vlans.get(v, f) != f))


def _aimed(found: BridgeLink, wanted: BridgeLink) -> frozenset[tuple[str, str]]:
    """Return what is mirrored of a link to where it should be, also what should not be."""
    targets = {target for _, target in wanted.mirrors}
    return frozenset((way, target) for way, target in found.mirrors if target in targets)


def _missing(wanted: BridgeLink, found: BridgeLink) -> dict[int, int]:
    return {v: flags for v, flags in wanted.vlans.items() if found.vlans.get(v) != flags}


def _text(vlans: Mapping[int, int]) -> str:
    return ", ".join(f"{v} untagged" if f else str(v) for v, f in sorted(vlans.items())) or "none"


# --- changing


@dataclass
class Editor:
    """Makes links as they should be; what is so is not touched."""

    where: str
    ip: Any

    def links(self) -> dict[str, BridgeLink]:
        """Return all links, by name."""
        return _links(self.ip)

    def refuse_others(self, wanted: Iterable[BridgeLink], links: Links, owner: str) -> None:
        """Raise NotOurs if a name is taken, or a port in somebody's bridge."""
        for link in wanted:
            found = links.get(link.name)
            if found is None and not link.kind:
                raise NotFound(f"no port {link.name}", where=self.where)
            if found and link.kind and found.alias and not _may_be(found, link, owner):
                raise NotOurs(f"link {link.name} is there without the stamp", where=self.where)
            strange = link.bridge is not None and found and found.bridge not in {"", link.bridge}
            if found and not link.kind and strange:
                why = f"it is in {found.bridge}"
                raise NotOurs(f"port {link.name} is in use", where=self.where, why=why)

    def delete(self, names: Iterable[str]) -> None:
        """Delete links; a pair goes with either end, or with the namespace of the other one."""
        for name in names:
            if found := self.ip.link_lookup(ifname=name):
                self._delete(found[0])
                took_effect()

    def _delete(self, index: int) -> None:
        try:
            self.ip.link("del", index=index)
        except NetlinkError as error:
            if error.code != ENODEV:
                raise

    def part(self, wanted: Iterable[BridgeLink], links: Links) -> None:
        """Take VLANs away that links should not have, before others get them."""
        for link in wanted:
            if found := links.get(link.name):
                moved = link.kind and found.bridge != link.bridge
                self._part(found, found.vlans if moved else surplus(link, found))

    def ensure(self, link: BridgeLink, there: BridgeLink | None, newborn: tuple[str, str]) -> None:
        """Make a link as it should be.

        :param newborn: the names of links that have no alias yet.
        """
        found = there or self._made(link, newborn)
        if not belongs(found, link.alias):
            self.name(found.index, link.name, link.alias)
        if link.filters > found.filters:
            self._set(index=found.index, kind="bridge", br_vlan_filtering=1)
        self._shape(link, found)
        if link.bridge not in {None, found.bridge}:
            self._set(index=found.index, master=link_index(self.ip, link.bridge))
            found = replace(found, vlans={})
        for number, flags in _missing(link, found).items():
            info = {"vid": number, "flags": flags}
            self.ip.vlan_filter("add", index=found.index, vlan_info=info)
        if not found.up:
            self._set(index=found.index, state="up")
        self._mirror(link, found)

    def name(self, index: int, name: str, alias: str) -> None:
        """Give a link its name and alias in one message, and what none should be without."""
        self._set(index=index, ifname=name, ifalias=alias, txqlen=_QUEUE, af_spec=_NO_ADDRESS)

    def tidy(self, port: str, bridge: str, vlans: Mapping[int, int], links: Links) -> None:
        """Leave a port the VLANs of its services; without any, its bridge goes."""
        if not vlans:
            self.delete([bridge])
        elif port in links:
            self._part(links[port], links[port].vlans.keys() - vlans.keys())

    def release(self, bridge: str, wanted: Iterable[BridgeLink], links: Links) -> None:
        """End copies to ports of a bridge that are not wanted; ports that are not wanted leave it."""
        kept = {link.name: link.mirrors for link in wanted}
        ports = {port.name for port in ports_of(bridge, links.values())}
        for link in links.values():
            copies = {copy for copy in link.mirrors if copy[1] in ports}
            self._unmirror(link, copies - kept.get(link.name, frozenset()))
        for name in ports - kept.keys():
            self._set(index=links[name].index, master=0)

    def _mirror(self, link: BridgeLink, found: BridgeLink) -> None:
        missing = link.mirrors - found.mirrors
        if missing and not found.hooked:
            self.ip.tc("add", "clsact", found.index)
        for way, target in sorted(missing):
            index = link_index(self.ip, target)
            action = {"kind": "mirred", "direction": "egress", "action": "mirror", "ifindex": index}
            self.ip.tc("add-filter", "matchall", found.index, parent=_WAYS[way], action=action)
            took_effect()

    def _unmirror(self, link: BridgeLink, copies: Collection[tuple[str, str]]) -> None:
        """End copies, and remove what filters are attached to if there are no others."""
        for way, target in copies:
            index = link_index(self.ip, target)
            for message in self.ip.get_filters(index=link.index, parent=_WAYS[way]):
                if _target(message) == index:
                    which = {"prio": message["info"] >> 16, "handle": message["handle"]}
                    self.ip.tc("del-filter", "matchall", link.index, parent=_WAYS[way], **which)
                    took_effect()
        filters = (
            f for p in _WAYS.values() for f in self.ip.get_filters(index=link.index, parent=p)
        )
        if copies and not list(filters):
            self.ip.tc("del", "clsact", link.index)

    def _part(self, found: BridgeLink, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.ip.vlan_filter("del", index=found.index, vlan_info={"vid": number})
            took_effect()

    def _set(self, **values: Any) -> None:
        self.ip.link("set", **values)
        took_effect()

    def _made(self, link: BridgeLink, newborn: tuple[str, str]) -> BridgeLink:
        """Make a link, and return it as it is then; of a pair both ends come with the first."""
        name, peer = link.name if link.kind == "bridge" else newborn[0], link.peer or newborn[1]
        second = link.kind == "veth" and self.ip.link_lookup(ifname=newborn[1])
        if not second:
            self.ip.link("add", ifname=name, kind=link.kind, **_settings(link, peer))
            took_effect()
        index = link_index(self.ip, newborn[1] if second else name)
        return BridgeLink(link.name, link.kind, filters=link.filters, up=False, index=index)

    def _shape(self, link: BridgeLink, found: BridgeLink) -> None:
        index = found.index
        if link.shaped and not found.shaped:
            self.ip.tc("add", "htb", index, _ROOT, default=1)
        if link.limit == found.limit:
            return
        if link.limit:
            given = {"rate": link.limit.rate, "burst": link.limit.burst, "cburst": link.limit.burst}
            self.ip.tc(
                "replace-class", "htb", index, _CLASS, parent=_ROOT, quantum=_QUANTUM, **given
            )
        else:
            self.ip.tc("del-class", index=index, handle=_CLASS, parent=_ROOT)
        took_effect()


def _settings(link: BridgeLink, peer: str) -> dict[str, Any]:
    if link.kind == "bridge":
        return {"br_vlan_filtering": 1, "br_vlan_default_pvid": 0, "br_mcast_snooping": 0}
    if link.tunnel:
        return _vxlan(link.tunnel)
    return {"mtu": _MTU, "peer": {"ifname": peer, "mtu": _MTU}}


def _may_be(found: BridgeLink, wanted: BridgeLink, owner: str) -> bool:
    return belongs(found, wanted.alias) or belongs(found, owner)


def _vxlan(tunnel: Tunnel) -> dict[str, Any]:
    version = "6" if tunnel.remote.version == 6 else ""
    return {
        "vxlan_id": tunnel.vni,
        "vxlan_port": _VXLAN_PORT,
        f"vxlan_local{version}": str(tunnel.local),
        f"vxlan_group{version}": str(tunnel.remote),
    }
