"""Network services on the site's Open vSwitches."""

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import PurePath
from typing import TypeVar

from fabric_direct.config import Site
from fabric_direct.drivers.contract import HostDriver, Service, Stamped
from fabric_direct.drivers.contract.service_comparison import interface_differences
from fabric_direct.drivers.contract.site_checks import refuse_unknown_ports
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.ovs import layout as names
from fabric_direct.drivers.ovs.database import Database, Rows
from fabric_direct.drivers.ovs.layout import SITE, SLIVER, STAMP, Layout, PortRow
from fabric_direct.drivers.ovs.switch import Switch
from fabric_direct.errors import FabricDirectError, InvalidSliver, NotVerified
from fabric_direct.model import ObservedInterface
from fabric_direct.network_services import SERVICES, NetworkService

T = TypeVar("T")
_SERVED = ("L2Bridge", "L2PTP", "L2STS")
_FIELDS = ("inner_vlan", "mtu")
_log = logging.getLogger(__name__)


class OvsService:
    """The :class:`~fabric_direct.drivers.contract.ServiceDriver` of a site's switches."""

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - the switches name theirs
        """Connect to nothing yet."""
        self._site = site

    def check(self, sliver: NetworkService) -> None:
        """Raise InvalidSliver with the field that the switches cannot serve."""
        if getattr(sliver, "type", None) not in _SERVED or not isinstance(sliver, NetworkService):
            served = ", ".join(_SERVED)
            raise InvalidSliver("is not served by Open vSwitch", field="type", why=f"only {served}")
        refuse_unknown_ports(self._site, sliver)
        self._refuse_fields(sliver)
        for device in sliver.devices() if len(sliver.devices()) > 1 else ():
            if self._site.switches[device].tunnel is None:
                why = f"site.yaml: switches.{device} has no address for tunnels"
                raise InvalidSliver("cannot be reached", field="interfaces", why=why)

    def _refuse_fields(self, sliver: NetworkService) -> None:
        if getattr(sliver, "ero", None) is not None:
            raise InvalidSliver("a tunnel has no hops to choose", field="ero")
        for number, interface in enumerate(sliver.interfaces):
            for field in _FIELDS:
                if getattr(interface, field) is not None:
                    where = f"interfaces[{number}].{field}"
                    raise InvalidSliver("is not set by this driver", field=where)

    # --- reading

    def find(self, sliver_id: str) -> Service | None:
        """Return the service if all of it is there on all of its devices, or None."""
        rows = self._rows()
        stamp = self._stamp(rows, sliver_id)
        if stamp is None or not self._complete(rows, stamp):
            return None
        source = names.service_bridge(self._site, sliver_id)
        order = [interface.id for interface in stamp.interfaces]
        seen = sorted(self._observed(rows, sliver_id), key=lambda i: order.index(i.component))
        return Service(sliver_id, source, stamp.name, interfaces=tuple(seen), stamp=stamp)

    def _rows(self) -> dict[str, Rows]:
        return {device: self._database(device).rows() for device in self._site.switches}

    def _stamp(self, rows: Mapping[str, Rows], sliver_id: str) -> NetworkService | None:
        """Return what the service should be, if all of its devices say the same."""
        bridge = names.service_bridge(self._site, sliver_id)
        found = [there.bridges[bridge].ids for there in rows.values() if bridge in there.bridges]
        if not found or any(ids != found[0] for ids in found):
            return None
        model = SERVICES.get(found[0].get(f"{STAMP}-type", ""))
        return model.model_validate_json(found[0][STAMP]) if model else None

    def _complete(self, rows: Mapping[str, Rows], stamp: NetworkService) -> bool:
        vni = self._vni(rows, stamp)
        wanted = {device: names.layout(self._site, stamp, device, vni) for device in rows}
        return all(not tuple(_row_differences(rows[d], wanted[d])) for d in stamp.devices())

    def _observed(self, rows: Mapping[str, Rows], sliver_id: str) -> Iterator[ObservedInterface]:
        for device, there in rows.items():
            patches = [p for p in there.of(self._site.site, sliver_id).ports if p.tag is not None]
            for patch in patches:
                yield self._interface(device, there, patch)

    def _interface(self, device: str, there: Rows, patch: PortRow) -> ObservedInterface:
        ports = (p.name for p in there.ports.values() if p.bridge == patch.bridge and not p.kind)
        port, switch = next(ports, None), self._switch(device)
        numbers = switch.ports().get(patch.bridge, {})
        return ObservedInterface(
            component=patch.ids[names.INTERFACE],
            device=device,
            port=port,
            vlan=patch.tag or None,
            bandwidth=switch.rate(patch, str(port), numbers) if numbers else None,
        )

    def differences(self, sliver: NetworkService) -> tuple[str, ...]:
        """Return what the rows, the datapath and the meters differ in from the sliver."""
        rows = self._rows()
        vni, sentences = self._vni(rows, sliver), list(self._elsewhere(rows, sliver))
        found = Service(sliver.id, "", "", interfaces=tuple(self._observed(rows, sliver.id)))
        sentences += interface_differences(sliver, found)
        for device in sliver.devices():
            wanted = names.layout(self._site, sliver, device, vni)
            sentences += (f"{device}: {said}" for said in _row_differences(rows[device], wanted))
            sentences += (f"{device}: {said}" for said in self._not_enforced(device, wanted))
        return tuple(dict.fromkeys(sentences))

    def _elsewhere(self, rows: Mapping[str, Rows], sliver: NetworkService) -> Iterator[str]:
        for device in rows.keys() - set(sliver.devices()):
            for name in _names(rows[device].of(self._site.site, sliver.id)):
                yield f"{device}: {name} is there and not asked for"

    def _not_enforced(self, device: str, wanted: Layout) -> Iterator[str]:
        switch = self._switch(device)
        ports = switch.ports()
        for port in wanted.ports:
            if port.name not in ports.get(port.bridge, {}):
                yield f"port {port.name} is not in the datapath"
        for limit in wanted.limits:
            numbers, there = ports.get(limit.bridge, {}), switch.limits(limit.bridge)
            if limit.bridge in ports and not there.enforces(limit, numbers):
                yield f"the limit of VLAN {limit.tag} on {limit.port} is not in force"

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything that bears the sliver's stamp."""
        return tuple(
            f"{name} on {device}"
            for device, there in self._rows().items()
            for name in _names(there.of(self._site.site, sliver_id))
        )

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all services of the site."""
        bridges = [b.ids for rows in self._rows().values() for b in rows.bridges.values()]
        ours = [ids for ids in bridges if ids.get(SITE) == self._site.site and ids.get(SLIVER)]
        kinds = {ids[SLIVER]: ids.get(f"{STAMP}-type", "") for ids in ours}
        named = ((i, kind, names.service_bridge(self._site, i)) for i, kind in kinds.items())
        return tuple(Stamped(sliver, kind, name) for sliver, kind, name in named)

    # --- changing

    def apply(self, sliver: NetworkService) -> Service:
        """Make the service what the sliver describes, on each of its devices in one transaction."""
        rows = self._rows()
        vni = self._vni(rows, sliver)
        for device, there in rows.items():
            self._change(device, there, sliver.id, self._wanted(sliver, device, vni))
        found = self.find(sliver.id)
        if found is None:
            raise NotVerified(f"service {sliver.id} was made, and is not all there")
        return found

    def _wanted(self, sliver: NetworkService, device: str, vni: int) -> Layout:
        here = device in sliver.devices()
        return names.layout(self._site, sliver, device, vni) if here else Layout()

    def _change(self, device: str, there: Rows, sliver_id: str, wanted: Layout) -> None:
        was = there.of(self._site.site, sliver_id)
        if wanted == was == Layout():
            return
        switch, site = self._switch(device), self._site.site
        limited = {(limit.bridge, limit.tag) for limit in wanted.limits}
        for port in was.ports:
            if port.tag is not None and (port.bridge, port.tag) not in limited:
                self._unlimit(switch, port)
        if _names(was) != _names(wanted) or [*_row_differences(there, wanted)]:
            self._database(device).change(site, sliver_id, wanted)
        for limit in wanted.limits:
            switch.enforce(limit)

    def _unlimit(self, switch: Switch, port: PortRow) -> None:
        """Take away an interface's limit, unless its bridge has gone with the daemon's memory."""
        if port.bridge in switch.ports():
            switch.unlimit(port.bridge, port.tag or 0)

    def remove(self, sliver_id: str) -> None:
        """Remove all that bears the sliver's stamp, from every switch that answers.

        :raises Unreachable: if one does not; the others have nothing left then.
        """
        failed = [*filter(None, (self._removed(d, sliver_id) for d in self._site.switches))]
        if failed:
            raise failed[0]

    def _removed(self, device: str, sliver_id: str) -> FabricDirectError | None:
        try:
            self._change(device, self._database(device).rows(), sliver_id, Layout())
        except FabricDirectError as error:
            _log.warning("sliver %s is left on %s: %s", sliver_id, device, error)
            return error
        return None

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
        candidates = (int(port.options["key"]) for port in held)
        first = names.first_vni(self._site, sliver.id)
        fresh = ((first + i - 1) % (names.VNIS - 1) + 1 for i in count())
        free = (v for it in (candidates, fresh) for v in it if self._free(rows, sliver, v))
        return next(free)

    def _free(self, rows: Mapping[str, Rows], sliver: NetworkService, vni: int) -> bool:
        ports = [p for d in sliver.devices() for p in rows[d].ports.values()]
        used = [
            p for p in ports if p.kind == "vxlan" and p.options.get("key") in {str(vni), "flow"}
        ]
        return all(
            p.ids.get(SLIVER) == sliver.id and p.ids.get(SITE) == self._site.site for p in used
        )

    def _database(self, device: str) -> Database:
        switch = self._site.switches[device]
        return Database(device, switch.ovsdb, switch.datapath, self._site.limits.call / 2)

    def _switch(self, device: str) -> Switch:
        settings, limit = self._site.switches[device], self._site.limits.call / 2
        host: HostDriver = (
            host_driver(self._site, settings.host) if settings.host else LocalHost(device)
        )
        return Switch(device, host, _rundir(settings.ovsdb), limit)


def _rundir(ovsdb: str) -> str:
    """Return the directory of a switch's sockets: that of its database's, if it has one."""
    kind, _, path = ovsdb.partition(":")
    return str(PurePath(path).parent) if kind == "unix" else "/run/openvswitch"


def _names(layout: Layout) -> list[str]:
    return sorted(
        [f"bridge {b.name}" for b in layout.bridges] + [f"port {p.name}" for p in layout.ports]
    )


def _row_differences(there: Rows, wanted: Layout) -> Iterator[str]:
    for bridge in wanted.bridges:
        if there.bridges.get(bridge.name) != bridge:
            yield f"bridge {bridge.name} is not as it was made"
    for port in wanted.ports:
        if there.ports.get(port.name) != port:
            yield f"port {port.name} is not as it was made"
