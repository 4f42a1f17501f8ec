"""The mirror of a port, on one switch.

It is in the mirrored port's bridge, which sees all frames of the port, and so is the receiver's port:
a port that a mirror is sent to gives and takes no other frames (``Mirror`` in
``ovs-vswitchd.conf.db(5)``), so that nobody else sees them.
"""

from collections.abc import Iterator, Mapping

from fabric_direct.drivers.contract.link_names import port_bridge, short
from fabric_direct.drivers.contract.switch_checks import refuse_receiver
from fabric_direct.drivers.ovs import layout as names
from fabric_direct.drivers.ovs.database import Rows
from fabric_direct.drivers.ovs.layout import SITE, SLIVER, MirrorRow, OvsLayout, PortRow
from fabric_direct.drivers.ovs.switch import OvsSwitch
from fabric_direct.errors import Conflict
from fabric_direct.model.services import NetworkService, PortMirror
from fabric_direct.site.config import Site

_FIELDS = ("inner_vlan", "bandwidth", "burst")


def mirror_layout(site: Site, sliver: PortMirror, device: str) -> OvsLayout:
    """Return all of a mirror that is on a device."""
    (receiver,) = sliver.interfaces
    if receiver.device != device:
        return OvsLayout()
    bridge, port = port_bridge(site, sliver.mirror.port), str(receiver.port)
    shared, own = {SITE: site.site}, {SITE: site.site, SLIVER: sliver.id}
    ports = (
        PortRow(bridge, sliver.mirror.port, shared),
        PortRow(bridge, port, {**own, names.INTERFACE: receiver.id}),
    )
    bridges = names.service_bridge_row(site, sliver), names.BridgeRow(bridge, shared)
    return OvsLayout(bridges, ports, mirrors=(_row(site, sliver, bridge, port, own),))


def _row(
    site: Site, sliver: PortMirror, bridge: str, output: str, ids: Mapping[str, str]
) -> MirrorRow:
    wanted, name = sliver.mirror, short("m", site.site, sliver.id)
    received = wanted.port if wanted.direction != "tx" else ""
    sent = wanted.port if wanted.direction != "rx" else ""
    return MirrorRow(bridge, name, ids, received, sent, wanted.vlan, output)


def refuse_mirror(sliver: PortMirror) -> None:
    """Raise InvalidSliver if no switch can serve a mirror."""
    refuse_receiver(sliver, _FIELDS)


def refuse_shared(sliver: NetworkService, rows: Mapping[str, Rows]) -> None:
    """Raise Conflict if a port is that of a receiver, or that of a receiver has other services."""
    for number, interface in enumerate(sliver.interfaces):
        there = rows[str(interface.device)]
        row, where = there.ports.get(str(interface.port)), f"interfaces[{number}].port"
        holder = row.ids.get(SLIVER) if row else None
        if holder not in {None, sliver.id}:
            why = f"it receives the mirror of sliver {holder}"
            raise Conflict(f"{interface.where} is in use", field=where, why=why)
        if row and holder is None and isinstance(sliver, PortMirror) and SITE in row.ids:
            users = ", ".join(sorted(_services(there, row.bridge)))
            why = f"a mirror has a port of its own; there is sliver {users}"
            raise Conflict(f"{interface.where} is in use", field=where, why=why)


def refuse_unused(site: Site, sliver: PortMirror, rows: Rows) -> None:
    """Raise Conflict if nothing would be mirrored."""
    for said in unused(site, sliver, rows):
        raise Conflict(said, field="mirror.port", remedy="create the service of the port first")


def unused(site: Site, sliver: PortMirror, rows: Rows) -> Iterator[str]:
    """Yield a sentence if no service has the mirrored port, or its VLAN."""
    bridge, vlan = port_bridge(site, sliver.mirror.port), sliver.mirror.vlan
    if not _patches(rows, bridge, vlan):
        what = f"VLAN {vlan} of {sliver.mirror.port}" if vlan else sliver.mirror.port
        yield f"no service has {what}: nothing is mirrored"


def _services(rows: Rows, bridge: str) -> set[str]:
    ports = (port for port in rows.ports.values() if port.bridge == bridge)
    return {port.ids[SLIVER] for port in ports if SLIVER in port.ids}


def _patches(rows: Rows, bridge: str, vlan: int | None) -> list[PortRow]:
    """Return the ports of services in a port's bridge that have a VLAN, or any."""
    ports = [p for p in rows.ports.values() if p.bridge == bridge and p.tag is not None]
    return [port for port in ports if vlan in {None, port.tag}]


def not_mirrored(switch: OvsSwitch, rows: Rows, mirror: MirrorRow) -> Iterator[str]:
    """Yield a sentence for each direction whose frames the switch does not give to the receiver.

    It is asked what it would do with a frame; that of each direction which its services have there.
    """
    patches = _patches(rows, mirror.bridge, mirror.vlan)
    if not patches:
        return
    (patch, *_), output = patches, mirror.output
    if mirror.received and output not in switch.outputs(mirror.bridge, mirror.received, patch.tag):
        yield f"frames that {mirror.received} receives are not mirrored"
    if mirror.sent and output not in switch.outputs(mirror.bridge, patch.name, patch.inner):
        yield f"frames that {mirror.sent} sends are not mirrored"
