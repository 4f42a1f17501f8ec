"""Network services on the site's Open vSwitches."""

from collections.abc import Iterator, Mapping

from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.contract.fields import refuse_given
from fabric_direct.drivers.contract.link_names import port_bridge, service_bridge
from fabric_direct.drivers.contract.service_comparison import interface_differences
from fabric_direct.drivers.contract.site_checks import refuse_unknown_ports
from fabric_direct.drivers.contract.switch_checks import (
    refuse_hops,
    refuse_other_types,
    refuse_without_tunnel,
)
from fabric_direct.drivers.contract.vnis import choose_vni
from fabric_direct.drivers.gateways.gateway import FABNET_TYPES
from fabric_direct.drivers.gateways.routers import Routers
from fabric_direct.drivers.ovs import layout as names
from fabric_direct.drivers.ovs.database import Rows
from fabric_direct.drivers.ovs.layout import SITE, SLIVER, STAMP, OvsLayout, PortRow
from fabric_direct.drivers.ovs.mirrors import (
    mirror_layout,
    not_mirrored,
    refuse_mirror,
    refuse_shared,
    refuse_unused,
    unused,
)
from fabric_direct.drivers.ovs.switch import OvsSwitch
from fabric_direct.drivers.ovs.switches import DRIVER, Switches, stamp_of
from fabric_direct.errors import InvalidSliver, NotVerified
from fabric_direct.model import ObservedInterface
from fabric_direct.model.services import NetworkService, PortMirror
from fabric_direct.site.config import Site

_SERVED = ("L2Bridge", "L2PTP", "L2STS", "PortMirror", *FABNET_TYPES, "L3VPN")
_FIELDS = ("mtu",)
_ONE_TAG = "it reads only the outer one of two tags"


class OvsService:
    """The :class:`~fabric_direct.drivers.contract.ServiceDriver` of a site's switches."""

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - the switches name theirs
        """Connect to nothing yet."""
        self._site, self._switches = site, Switches(site)
        self._routers = Routers(site, bgp=True)

    def check(self, sliver: NetworkService) -> None:
        """Raise InvalidSliver with the field that the switches cannot serve.

        :raises Unreachable: if one of its switches does not answer.
        """
        refuse_other_types(sliver, _SERVED, "Open vSwitch")
        refuse_unknown_ports(self._site, sliver, DRIVER)
        self._refuse_fields(sliver)
        self._routers.check(sliver)
        refuse_without_tunnel(self._site, sliver)
        rows = self._switches.search.all(sliver.devices())
        _refuse_two_tags(sliver, rows)
        refuse_shared(sliver, rows)
        if isinstance(sliver, PortMirror):
            refuse_mirror(sliver)
            refuse_unused(self._site, sliver, rows[sliver.devices()[0]])

    def _refuse_fields(self, sliver: NetworkService) -> None:
        refuse_hops(sliver)
        for number, interface in enumerate(sliver.interfaces):
            refuse_given(interface, _FIELDS, "is not set by this driver", f"interfaces[{number}]")

    # --- reading

    def find(self, sliver_id: str) -> Service | None:
        """Return the service if all of it is there on all of its devices, or None."""
        rows = self._switches.search.ask(sliver_id).sure()
        stamp = self._stamp(rows, sliver_id)
        if stamp is None or not self._complete(rows, stamp):
            return None
        source = service_bridge(self._site, sliver_id)
        order = [interface.id for interface in stamp.interfaces]
        seen = sorted(self._observed(rows, sliver_id), key=lambda i: order.index(i.component))
        gateway = self._routers.gateway(stamp)
        return Service(
            sliver_id, source, stamp.name, interfaces=tuple(seen), gateway=gateway, stamp=stamp
        )

    def _stamp(self, rows: Mapping[str, Rows], sliver_id: str) -> NetworkService | None:
        """Return what the service should be, if all of its devices say the same."""
        bridge = service_bridge(self._site, sliver_id)
        found = [there for there in rows.values() if bridge in there.bridges]
        if len({tuple(there.bridges[bridge].ids.items()) for there in found}) != 1:
            return None
        return stamp_of(found[0], bridge)

    def _complete(self, rows: Mapping[str, Rows], stamp: NetworkService) -> bool:
        vni = self._vni(rows, stamp)
        wanted = {device: _layout(self._site, stamp, device, vni) for device in rows}
        return all(not tuple(_row_differences(rows[d], wanted[d])) for d in stamp.devices())

    def _observed(self, rows: Mapping[str, Rows], sliver_id: str) -> Iterator[ObservedInterface]:
        for device, there in rows.items():
            for port in there.of(self._site.site, sliver_id).ports:
                if names.INTERFACE not in port.ids:
                    continue
                if port.tag is not None:
                    yield self._interface(device, there, port)
                elif not port.kind:
                    name = port.ids[names.INTERFACE]
                    yield ObservedInterface(component=name, device=device, port=port.name)

    def _interface(self, device: str, there: Rows, patch: PortRow) -> ObservedInterface:
        """Return what a patch of a port's bridge connects."""
        ports = (p for p in there.ports if port_bridge(self._site, p) == patch.bridge)
        port, switch = next(ports, None), self._switches.daemon(device)
        limited, outside = patch, str(port)
        if patch.inner:
            outside = patch.options["peer"]
            limited = names.to_service(there.ports, outside) or patch
        numbers = switch.ports().get(limited.bridge, {})
        return ObservedInterface(
            component=patch.ids[names.INTERFACE],
            device=device,
            port=port,
            vlan=patch.tag or None,
            inner_vlan=patch.inner,
            bandwidth=switch.rate(limited, outside, numbers) if numbers else None,
        )

    def differences(self, sliver: NetworkService) -> tuple[str, ...]:
        """Return what the rows, the datapath and the meters differ in from the sliver."""
        rows = self._switches.search.ask(sliver.id, sliver.devices()).sure()
        vni, sentences = self._vni(rows, sliver), list(self._elsewhere(rows, sliver))
        found = Service(sliver.id, "", "", interfaces=tuple(self._observed(rows, sliver.id)))
        sentences += interface_differences(sliver, found)
        for device in sliver.devices():
            wanted = _layout(self._site, sliver, device, vni)
            said = self._device_differences(device, sliver, rows[device], wanted)
            sentences += (f"{device}: {words}" for words in said)
        return tuple(dict.fromkeys(sentences))

    def _device_differences(
        self, device: str, sliver: NetworkService, there: Rows, wanted: OvsLayout
    ) -> Iterator[str]:
        yield from _row_differences(there, wanted)
        yield from self._not_enforced(device, there, wanted)
        yield from self._not_mirrored(device, sliver, there, wanted)
        yield from self._routers.differences(device, sliver)

    def _elsewhere(self, rows: Mapping[str, Rows], sliver: NetworkService) -> Iterator[str]:
        for device in rows.keys() - set(sliver.devices()):
            for name in _names(rows[device].of(self._site.site, sliver.id)):
                yield f"{device}: {name} is there and not asked for"

    def _not_enforced(self, device: str, there: Rows, wanted: OvsLayout) -> Iterator[str]:
        switch = self._switches.daemon(device)
        ports = switch.ports()
        for port in wanted.ports:
            known = self._site.switch_port(device, port.name)
            if port.name not in ports.get(port.bridge, {}) and not (known and known.tap):
                yield f"port {port.name} is not in the datapath"
        if there.one_tag and any(port.inner for port in wanted.ports):
            yield _ONE_TAG
        for limit in wanted.limits:
            numbers = ports.get(limit.bridge)
            if numbers and not switch.limits(limit.bridge).enforces(limit, numbers):
                yield f"the limit of VLAN {limit.tag} on {limit.port} is not in force"

    def _not_mirrored(
        self, device: str, sliver: NetworkService, there: Rows, wanted: OvsLayout
    ) -> Iterator[str]:
        if isinstance(sliver, PortMirror):
            yield from unused(self._site, sliver, there)
        for mirror in wanted.mirrors:
            if there.mirrors.get(mirror.name) == mirror:
                yield from not_mirrored(self._switches.daemon(device), there, mirror)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything that carries the sliver's stamp."""

        def left(device: str, there: Rows) -> tuple[str, ...]:
            rows = _names(there.of(self._site.site, sliver_id))
            return (*rows, *self._routers.left(device, sliver_id))

        return self._switches.search.ask(sliver_id).left(left)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all services of the site."""
        bridges = [
            b.ids for rows in self._switches.search.all().values() for b in rows.bridges.values()
        ]
        ours = [ids for ids in bridges if ids.get(SITE) == self._site.site and ids.get(SLIVER)]
        ours.sort(key=lambda ids: STAMP in ids)
        kinds = {ids[SLIVER]: ids.get(f"{STAMP}-type", "") for ids in ours}
        named = ((i, kind, service_bridge(self._site, i)) for i, kind in kinds.items())
        return tuple(Stamped(sliver, kind, name) for sliver, kind, name in named)

    # --- changing

    def apply(self, sliver: NetworkService) -> Service:
        """Make the service what the sliver describes, on each of its devices in one transaction."""
        rows = self._switches.search.ask(sliver.id, sliver.devices()).sure()
        vni = self._vni(rows, sliver)
        for device, there in rows.items():
            self._make(device, there, sliver, self._wanted(sliver, device, vni))
        self._routers.settle(sliver)
        found = self.find(sliver.id)
        if found is None:
            raise NotVerified(f"service {sliver.id} was made, and is not all there")
        return found

    def _make(self, device: str, there: Rows, sliver: NetworkService, wanted: OvsLayout) -> None:
        """Make what is on a device; its rows say that all is made once its gateways are."""
        if wanted == OvsLayout():
            self._routers.remove(device, sliver.id)
        if lost := self._routers.lost(device, sliver) & there.ports.keys():
            there = self._without(device, sliver.id, names.without(wanted, lost))
        first = wanted if names.made(there.of(self._site.site, sliver.id)) else names.begun(wanted)
        self._change(device, there, sliver.id, first)
        self._routers.apply(device, sliver)
        if first != wanted:
            self._switches.database(device).change(self._site.site, sliver.id, wanted)

    def _without(self, device: str, sliver_id: str, wanted: OvsLayout) -> Rows:
        """Drop ports whose links are gone: the switch makes no other while their rows are there."""
        database = self._switches.database(device)
        database.change(self._site.site, sliver_id, wanted)
        return database.rows()

    def _wanted(self, sliver: NetworkService, device: str, vni: int) -> OvsLayout:
        here = device in sliver.devices()
        return _layout(self._site, sliver, device, vni) if here else OvsLayout()

    def _change(self, device: str, there: Rows, sliver_id: str, wanted: OvsLayout) -> None:
        was = there.of(self._site.site, sliver_id)
        if wanted == was == OvsLayout():
            return
        switch, site = self._switches.daemon(device), self._site.site
        limited = {(limit.bridge, limit.tag) for limit in wanted.limits}
        for port in was.ports:
            known = port.tag is None or port.inner is not None
            if not known and (port.bridge, port.tag) not in limited:
                self._unlimit(switch, port)
        first = wanted if names.made(was) else names.begun(wanted)
        if _names(was) != _names(first) or [*_row_differences(there, first)]:
            self._switches.database(device).change(site, sliver_id, first)
        for limit in wanted.limits:
            switch.enforce(limit)
        if first != wanted:
            self._switches.database(device).change(site, sliver_id, wanted)

    def _unlimit(self, switch: OvsSwitch, port: PortRow) -> None:
        """Take away an interface's limit, unless its bridge has gone with the daemon's memory."""
        if port.bridge in switch.ports():
            switch.unlimit(port.bridge, port.tag or 0)

    def remove(self, sliver_id: str) -> None:
        """Remove all that carries the sliver's stamp, from every switch that answers.

        :raises Unreachable: if one does not that it may be on; the others have nothing left then.
        """

        def remove(device: str, there: Rows) -> None:
            self._routers.remove(device, sliver_id)
            self._change(device, there, sliver_id, OvsLayout())

        self._switches.search.ask(sliver_id).remove(remove)

    # --- the switches

    def _vni(self, rows: Mapping[str, Rows], sliver: NetworkService) -> int:
        """Return the VNI that the service has, or else the first that is free on all its devices."""
        if len(sliver.devices()) < 2:
            return 0
        held = [
            p
            for r in rows.values()
            for p in r.of(self._site.site, sliver.id).ports
            if p.kind == "vxlan"
        ]
        vnis = (int(port.options["key"]) for port in held)
        return choose_vni(self._site.site, sliver.id, vnis, lambda v: self._free(rows, sliver, v))

    def _free(self, rows: Mapping[str, Rows], sliver: NetworkService, vni: int) -> bool:
        ports = [p for d in sliver.devices() for p in rows[d].ports.values()]
        used = [
            p for p in ports if p.kind == "vxlan" and p.options.get("key") in {str(vni), "flow"}
        ]
        return all(
            p.ids.get(SLIVER) == sliver.id and p.ids.get(SITE) == self._site.site for p in used
        )


def _layout(site: Site, sliver: NetworkService, device: str, vni: int) -> OvsLayout:
    """Return all of a service that is on a device; ``vni`` is that of its tunnels."""
    if isinstance(sliver, PortMirror):
        return mirror_layout(site, sliver, device)
    return names.layout(site, sliver, device, vni)


def _refuse_two_tags(sliver: NetworkService, rows: Mapping[str, Rows]) -> None:
    for number, interface in enumerate(sliver.interfaces):
        if interface.inner_vlan and rows[str(interface.device)].one_tag:
            raise InvalidSliver(
                "cannot be seen by the switch",
                field=f"interfaces[{number}].inner_vlan",
                where=str(interface.device),
                why=_ONE_TAG,
                remedy="ovs-vsctl set Open_vSwitch . other_config:vlan-limit=2",
            )


def _names(layout: OvsLayout) -> list[str]:
    return sorted(
        [f"bridge {b.name}" for b in layout.bridges]
        + [f"mirror {m.name}" for m in layout.mirrors]
        + [f"port {p.name}" for p in layout.ports]
    )


def _row_differences(there: Rows, wanted: OvsLayout) -> Iterator[str]:
    for bridge in wanted.bridges:
        if there.bridges.get(bridge.name) != bridge:
            yield f"bridge {bridge.name} is not as it was made"
    for port in wanted.ports:
        if there.ports.get(port.name) != port:
            yield f"port {port.name} is not as it was made"
    for mirror in wanted.mirrors:
        if there.mirrors.get(mirror.name) != mirror:
            yield f"mirror {mirror.name} is not as it was made"
