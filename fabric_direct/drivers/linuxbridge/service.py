"""Network services on the site's hosts, by Linux bridges."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from fabric_direct.calls.deadline import time_left
from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.contract.fields import refuse_given
from fabric_direct.drivers.contract.link_names import port_bridge, service_bridge
from fabric_direct.drivers.contract.service_comparison import interface_differences
from fabric_direct.drivers.contract.site_checks import refuse_unknown_ports
from fabric_direct.drivers.contract.switch_checks import (
    refuse_hops,
    refuse_other_types,
    refuse_receiver,
    refuse_without_tunnel,
)
from fabric_direct.drivers.contract.switch_search import SwitchSearch
from fabric_direct.drivers.contract.vnis import choose_vni
from fabric_direct.drivers.gateways.gateway import EXTERNAL, FABNET_TYPES, FABNETS
from fabric_direct.drivers.gateways.routers import Routers
from fabric_direct.drivers.hosts.choice import switch_host
from fabric_direct.drivers.linuxbridge import DRIVER
from fabric_direct.drivers.linuxbridge import layout as names
from fabric_direct.drivers.linuxbridge.layout import BridgeLayout, BridgeLink, belongs
from fabric_direct.drivers.linuxbridge.links import Editor, KernelBridges, Links, differences
from fabric_direct.drivers.linuxbridge.support import Need, missing
from fabric_direct.errors import InvalidSliver, NotFound, NotVerified
from fabric_direct.model import ObservedInterface
from fabric_direct.model.services import NetworkService, PortMirror, ServiceInterface
from fabric_direct.site.config import Site
from fabric_direct.state.site_store import store_of

_SERVED = ("L2Bridge", "L2PTP", "L2STS", "PortMirror", *FABNET_TYPES)
_FIELDS = ("inner_vlan", "mtu")
_ALIAS = 250
"""Bytes of a stamp: the kernel takes 255."""
_NAME = 15


class LinuxBridgeService:
    """The :class:`~fabric_direct.drivers.contract.ServiceDriver` of a site's Linux bridges."""

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - the switches name theirs
        """Connect to nothing yet."""
        self._site, self._routers = site, Routers(site, bgp=False)
        self._search = SwitchSearch(site, DRIVER, lambda d: self._switch(d).links(), self._places)

    # --- refusing

    def check(self, sliver: NetworkService) -> None:
        """Raise InvalidSliver with the field that the hosts cannot serve."""
        refuse_other_types(sliver, _SERVED, "Linux bridges")
        refuse_unknown_ports(self._site, sliver, DRIVER)
        refuse_hops(sliver)
        for number, interface in enumerate(sliver.interfaces):
            _refuse_fields(f"interfaces[{number}]", interface)
        if isinstance(sliver, PortMirror):
            self._refuse_mirror(sliver)
        self._routers.check(sliver)
        self._refuse_long(sliver)
        refuse_without_tunnel(self._site, sliver)
        self._refuse_kernels(sliver)
        for number, interface in enumerate(sliver.interfaces):
            self._refuse_port(f"interfaces[{number}].port", interface)

    def _refuse_mirror(self, sliver: PortMirror) -> None:
        refuse_receiver(sliver, ("bandwidth",))
        if sliver.mirror.vlan is not None:
            raise InvalidSliver("all frames of a port are mirrored", field="mirror.vlan")

    def _refuse_kernels(self, sliver: NetworkService) -> None:
        limit, needs = self._site.limits.call / 4, _needs(sliver)
        for device in sliver.devices():
            if lacking := missing(switch_host(self._site, device), needs, limit):
                number = next(n for n, i in enumerate(sliver.interfaces) if i.device == device)
                field, why = f"interfaces[{number}].device", f"its kernel lacks {lacking}"
                raise InvalidSliver(f"{device} cannot serve it", field=field, why=why)

    def _refuse_port(self, field: str, interface: ServiceInterface) -> None:
        """Raise InvalidSliver if the host has an address on a port, which it would lose."""
        try:
            found = self._switch(str(interface.device)).addresses(str(interface.port))
        except NotFound as error:
            raise InvalidSliver(error.what, field=field, where=interface.device or "") from error
        if found:
            why = f"the host has {', '.join(found)} there"
            raise InvalidSliver(
                f"{interface.where} is not a port of a switch", field=field, why=why
            )

    def _refuse_long(self, sliver: NetworkService) -> None:
        for device in sliver.devices():
            there = names.layout(self._site, sliver, device, 0)
            stamps = [*((link.name, link.alias) for link in there.links), *there.stamps.items()]
            name, stamp = max(stamps, key=lambda pair: len(pair[1]))
            if len(stamp) > _ALIAS:
                field = "public" if name == names.gateway_end(self._site, sliver.id) else "name"
                why = f"the stamp of one of its links has {len(stamp)} bytes, and {_ALIAS} are free"
                raise InvalidSliver("is too long", field=field, why=why)

    # --- reading

    def find(self, sliver_id: str) -> Service | None:
        """Return the service if all of it is there on all of its devices, or None."""
        return self._found(self._search.ask(sliver_id).sure(), sliver_id)

    def _found(self, there: Mapping[str, Links], sliver_id: str) -> Service | None:
        stamp = self._stamp(there, sliver_id)
        if stamp is None or not self._complete(there, stamp):
            return None
        order = [interface.id for interface in stamp.interfaces]
        seen = sorted(self._observed(there, sliver_id), key=lambda i: order.index(i.component))
        source, gateway = service_bridge(self._site, sliver_id), self._routers.gateway(stamp)
        return Service(
            sliver_id, source, stamp.name, interfaces=tuple(seen), gateway=gateway, stamp=stamp
        )

    def _places(self, device: str, links: Links, sliver_id: str) -> Iterator[str]:
        """Yield the devices of a service of which one has these links: it, and its tunnel's far end."""
        for link in self._of(links, sliver_id):
            yield device
            for other, switch in self._site.switches_of(DRIVER).items():
                if link.tunnel and link.tunnel.remote == switch.tunnel:
                    yield other

    def _of(self, links: Links, sliver_id: str) -> list[BridgeLink]:
        """Return what is a service's: by its alias, or by a name that follows from it."""
        alias, named = names.owner(self._site, sliver_id), names.unstamped(self._site, sliver_id)
        return [
            link
            for link in links.values()
            if belongs(link, alias) or (link.name in named and not link.alias)
        ]

    def _stamp(self, there: Mapping[str, Links], sliver_id: str) -> NetworkService | None:
        ours = [link for links in there.values() for link in self._of(links, sliver_id)]
        bridges = {link.alias for link in ours if link.kind == "bridge"}
        ends = [link.alias for link in ours if link.kind == "veth" and link.alias.endswith("}")]
        return names.stamped(bridges, ends)

    def _complete(self, there: Mapping[str, Links], stamp: NetworkService) -> bool:
        return all(
            link.name in there[device]
            for device in stamp.devices()
            for link in names.layout(self._site, stamp, device, 0).links
        )

    def _observed(self, there: Mapping[str, Links], sliver_id: str) -> Iterator[ObservedInterface]:
        for device, links in there.items():
            for link in self._of(links, sliver_id):
                component = link.alias.rpartition(" ")[2]
                outer, inner = names.ends(self._site, sliver_id, component)
                if link.name == outer and inner in links:
                    yield self._interface(device, component, link, links)
            yield from self._receivers(device, links, sliver_id)

    def _receivers(self, device: str, links: Links, sliver_id: str) -> Iterator[ObservedInterface]:
        """Yield the ports in the bridge of a service: of mirrors alone, whose stamp is all in one."""
        bridge = service_bridge(self._site, sliver_id)
        stamp = names.stamped({links[bridge].alias}, []) if bridge in links else None
        for port in names.ports_of(bridge, links.values()) if stamp else ():
            component = stamp.interfaces[0].id if stamp else ""
            yield ObservedInterface(component=component, device=device, port=port.name)

    def _interface(
        self, device: str, component: str, outer: BridgeLink, links: Links
    ) -> ObservedInterface:
        ports = names.ports_of(outer.bridge, links.values())
        tags = [v for v, flags in outer.vlans.items() if flags]
        inner = links[names.ends(self._site, outer.alias.split(" ")[2], component)[1]]
        limit = outer.limit if outer.limit == inner.limit else None
        return ObservedInterface(
            component=component,
            device=device,
            port=ports[0].name if ports else None,
            vlan=tags[0] if tags and tags[0] != names.UNTAGGED else None,
            bandwidth=limit.bandwidth if limit else None,
        )

    def differences(self, sliver: NetworkService) -> tuple[str, ...]:
        """Return what the links of all hosts differ in from the sliver."""
        there = self._search.ask(sliver.id, sliver.devices()).sure()
        vni = self._vni(there, sliver)
        found = Service(sliver.id, "", "", interfaces=tuple(self._observed(there, sliver.id)))
        sentences = [*interface_differences(sliver, found)]
        for device, links in there.items():
            wanted = self._wanted(sliver, device, vni)
            said = (
                *self._device_differences(links, sliver.id, wanted),
                *self._routed(device, sliver),
            )
            sentences += (f"{device}: {words}" for words in said)
        return tuple(dict.fromkeys(sentences))

    def _device_differences(
        self, links: Links, sliver_id: str, wanted: BridgeLayout
    ) -> Iterator[str]:
        for link in wanted.links:
            yield from differences(link, links.get(link.name))
        bridge, asked = service_bridge(self._site, sliver_id), {w.name for w in wanted.links}
        inside = {port.name for port in names.ports_of(bridge, links.values())}
        for link in links.values():
            copies = inside & {target for _, target in link.mirrors}
            ours = link.name in inside or link in self._of(links, sliver_id)
            if link.name not in asked and (ours or copies):
                yield f"link {link.name} is there and not asked for"

    def _routed(self, device: str, sliver: NetworkService) -> tuple[str, ...]:
        if device in sliver.devices():
            return self._routers.differences(device, sliver)
        left = self._routers.left(device, sliver.id)
        return tuple(f"{name} is there and not asked for" for name in left)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything that carries the sliver's stamp."""

        def left(device: str, links: Links) -> tuple[str, ...]:
            own = (f"link {link.name}" for link in self._of(links, sliver_id))
            return (*own, *self._routers.left(device, sliver_id))

        return self._search.ask(sliver_id).left(left)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all services of the site."""
        aliases = {
            tuple(link.alias.split(" ")[2:4])
            for links in self._search.all().values()
            for link in links.values()
            if link.kind == "bridge" and belongs(link, f"{names.OURS} {self._site.site}")
        }
        return tuple(
            Stamped(sliver, kind, service_bridge(self._site, sliver))
            for sliver, kind in sorted(aliases)
        )

    # --- changing

    def apply(self, sliver: NetworkService) -> Service:
        """Make the service what the sliver describes, on each of its devices in turn."""
        there = self._search.ask(sliver.id, sliver.devices()).sure()
        vni = self._vni(there, sliver)
        wanted = {device: self._wanted(sliver, device, vni) for device in there}
        for device, layout in wanted.items():
            self._make(device, sliver, there[device], layout)
        made = self._search.all(sliver.devices())
        for device, layout in wanted.items():
            self._finish(device, made.get(device, {}), layout.stamps)
        found = self.find(sliver.id)
        if found is None:
            raise NotVerified(f"service {sliver.id} was made, and is not all there")
        return found

    def _make(
        self, device: str, sliver: NetworkService, there: Links, wanted: BridgeLayout
    ) -> None:
        """Make what is on a device, or remove it: its links first, which go last."""
        if not wanted.links:
            self._routers.remove(device, sliver.id)
        if wanted.links or self._of(there, sliver.id):
            self._change(device, sliver.id, wanted, self._routers.lost(device, sliver))
        self._routers.apply(device, sliver)

    def _wanted(self, sliver: NetworkService, device: str, vni: int) -> BridgeLayout:
        here = device in sliver.devices()
        return names.layout(self._site, sliver, device, vni) if here else BridgeLayout()

    def _change(
        self, device: str, sliver_id: str, wanted: BridgeLayout, lost: Collection[str] = ()
    ) -> None:
        """Make the links of a service on a device what they should be.

        First goes what is not wanted: two links of one VLAN between two bridges would be a loop.

        :param lost: other ends of pairs that are nowhere.
        """
        with self._editing(device) as editor:
            links = editor.links()
            editor.refuse_others(wanted.links, links, names.owner(self._site, sliver_id))
            ours = self._of(links, sliver_id)
            bridge = service_bridge(self._site, sliver_id)
            editor.release(bridge, wanted.links, links)
            gone = [link.name for link in ours if not _stays(link, wanted, lost)]
            editor.delete(gone)
            links = editor.links() if gone else links
            editor.part(wanted.links, links)
            newborn = names.newborn(self._site, sliver_id)
            for link in wanted.links:
                editor.ensure(link, links.get(link.name), newborn)
            self._tidy(device, editor)

    def _tidy(self, device: str, editor: Editor) -> None:
        """Leave ports and their bridges as the services need them that there are now."""
        links = editor.links()
        newborn = {port_bridge(self._site, p): p for p in self._site.switches[device].ports}
        for bridge in links.values():
            port = bridge.alias.rpartition(" ")[2] or newborn.get(bridge.name, "")
            if bridge.alias in {"", names.port_owner(self._site, port)} and port:
                inside = [link for link in links.values() if link.bridge == bridge.name]
                ours = [link for link in inside if link.name != port]
                editor.tidy(port, bridge.name, names.port_vlans(ours), links)

    def _finish(self, device: str, links: Links, stamps: Mapping[str, str]) -> None:
        named = [(links[name], stamp) for name, stamp in stamps.items() if name in links]
        if missing_ := [(link, stamp) for link, stamp in named if link.alias != stamp]:
            with self._editing(device) as editor:
                for link, stamp in missing_:
                    editor.name(link.index, link.name, stamp)

    @contextmanager
    def _editing(self, device: str) -> Iterator[Editor]:
        """Change links of a device while nobody else does: services share its ports."""
        store, limit = store_of(self._site), time_left(self._site.limits.call)
        alone = store.exclusive(f"switch-{device}", f"switch {device}", timeout=limit)
        with alone, self._switch(device).changing() as it:
            yield it

    def remove(self, sliver_id: str) -> None:
        """Remove all that carries the sliver's stamp, from every switch that answers.

        :raises Unreachable: if one does not that it may be on; the others have nothing left then.
        """

        def remove(device: str, _: Links) -> None:
            self._routers.remove(device, sliver_id)
            self._change(device, sliver_id, BridgeLayout())

        self._search.ask(sliver_id).remove(remove)

    # --- the switches

    def _vni(self, there: Mapping[str, Links], sliver: NetworkService) -> int:
        """Return the VNI that the service has, or else the first that is free on all its devices."""
        if len(sliver.devices()) < 2:
            return 0
        held = [
            link.tunnel.vni
            for links in there.values()
            for link in self._of(links, sliver.id)
            if link.tunnel
        ]
        alias = names.owner(self._site, sliver.id)
        used = {
            link.tunnel.vni
            for device in sliver.devices()
            for link in there[device].values()
            if link.tunnel and not belongs(link, alias)
        }
        return choose_vni(self._site.site, sliver.id, held, lambda vni: vni not in used)

    def _switch(self, device: str) -> KernelBridges:
        return KernelBridges(
            device, switch_host(self._site, device), self._site.switches[device].netns
        )


def _needs(sliver: NetworkService) -> dict[Need, bool]:
    return {
        Need.TUNNELS: len(sliver.devices()) > 1,
        Need.MIRRORS: isinstance(sliver, PortMirror),
        Need.GATEWAYS: isinstance(sliver, FABNETS),
        Need.FILTERS: isinstance(sliver, EXTERNAL),
    }


def _stays(link: BridgeLink, wanted: BridgeLayout, lost: Collection[str]) -> bool:
    """Return whether a link of the service is wanted, and can be changed into that."""
    target = next((each for each in wanted.links if each.name == link.name), None)
    return target is not None and target.tunnel == link.tunnel and target.peer not in lost


def _refuse_fields(where: str, interface: ServiceInterface) -> None:
    refuse_given(interface, _FIELDS, "is not set by this driver", where)
    if interface.vlan == names.UNTAGGED:
        why = "the bridges have frames without a tag in it"
        raise InvalidSliver(f"{interface.vlan} cannot be used", field=f"{where}.vlan", why=why)
    if len(str(interface.port)) > _NAME or "/" in str(interface.port):
        raise InvalidSliver("is not the name of a link", field=f"{where}.port")
    _refuse_burst(where, interface)


def _refuse_burst(where: str, interface: ServiceInterface) -> None:
    """Raise InvalidSliver unless a burst is a frame at least, and lasts from 1 ms to 250 s."""
    if interface.bandwidth is not None:
        least, most = max(16, interface.bandwidth), 250_000 * interface.bandwidth
        if not least <= names.burst(interface) <= most:
            why = f"from {least} to {most} kbit can be enforced"
            raise InvalidSliver(f"is {interface.burst}", field=f"{where}.burst", why=why)
