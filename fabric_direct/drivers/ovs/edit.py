"""The operations that make of what a database has that which is wanted."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabric_direct.drivers.ovs.layout import (
    PHYSICAL,
    SITE,
    SLIVER,
    BridgeRow,
    MirrorRow,
    OvsLayout,
    PortRow,
)
from fabric_direct.drivers.ovs.ovsdb import (
    NewRef,
    Operation,
    OvsdbConnection,
    Ref,
    insert,
    many,
    rows_of,
    select,
    unchanged,
    update,
)
from fabric_direct.errors import NotOurs

_MIRROR = ("select_src_port", "select_dst_port", "select_vlan", "output_port")
_READ = (
    select("Open_vSwitch", "bridges", "other_config"),
    select("Bridge", "name", "external_ids", "ports", "mirrors", "flood_vlans"),
    select("Port", "name", "external_ids", "interfaces", "tag", "vlan_mode", "cvlans"),
    select("Interface", "type", "options"),
    select("Mirror", "name", "external_ids", *_MIRROR),
)
Raw = dict[str, Any]


def stamp_of(ids: Mapping[str, str]) -> tuple[str, str]:
    """Return the site and the sliver that a row's ``external_ids`` name; empty if none."""
    return ids.get(SITE, ""), ids.get(SLIVER, "")


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of a database as read, by UUID."""

    root: Raw
    bridges: Mapping[Ref, Raw]
    ports: Mapping[Ref, Raw]
    interfaces: Mapping[Ref, Raw]
    mirrors: Mapping[Ref, Raw]

    @classmethod
    def by(cls, connection: OvsdbConnection) -> "Found":
        """Read all in one transaction."""
        (root,), *tables = (rows_of(result) for result in connection.transact(*_READ))
        return cls(root, *({row["_uuid"]: row for row in table} for table in tables))

    def rows(self) -> tuple[dict[str, BridgeRow], dict[str, PortRow], dict[str, MirrorRow]]:
        """Return bridges, ports and mirrors by name."""
        bridges = {
            b["name"]: BridgeRow(b["name"], b["external_ids"]) for b in self.bridges.values()
        }
        ports = [
            self._port(bridge["name"], self.ports[ref])
            for bridge in self.bridges.values()
            for ref in many(bridge["ports"])
        ]
        mirrors = [
            self._mirror(bridge["name"], self.mirrors[ref])
            for bridge in self.bridges.values()
            for ref in many(bridge["mirrors"])
        ]
        return bridges, {p.name: p for p in ports}, {m.name: m for m in mirrors}

    def _mirror(self, bridge: str, mirror: Raw) -> MirrorRow:
        received, sent, output = (
            ", ".join(self.ports[ref]["name"] for ref in many(mirror[column]))
            for column in ("select_src_port", "select_dst_port", "output_port")
        )
        (vlan,) = many(mirror["select_vlan"]) or [None]
        ids = mirror["external_ids"]
        return MirrorRow(bridge, mirror["name"], ids, received, sent, vlan, output)

    def _port(self, bridge: str, port: Raw) -> PortRow:
        interface = self.interfaces[many(port["interfaces"])[0]]
        (tag,) = many(port["tag"]) or [None]
        kind, options = interface["type"], interface["options"]
        inner = _inner(port)
        return PortRow(bridge, port["name"], port["external_ids"], kind, options, tag, inner)


class Edit:
    """A transaction: what is as wanted is not written, and what has no stamp of ours not touched."""

    def __init__(self, device: str, datapath: str, found: Found, site: str, sliver_id: str) -> None:
        self._device, self._datapath, self._found = device, datapath, found
        self._stamp, self._site = (site, sliver_id), site
        self._bridges = {row["name"]: ref for ref, row in found.bridges.items()}
        self._ports = {row["name"]: ref for ref, row in found.ports.items()}
        self._mirrors = {row["name"]: ref for ref, row in found.mirrors.items()}
        self._stay: list[Ref] = many(found.root["bridges"])
        self._tunnels = {r: p["tag"] for r, p in found.ports.items() if _inner(p) is not None}
        """The outer VLANs of ports that take these off."""
        self._of: dict[Ref, dict[str, list[Any]]] = {}
        """The ports and mirrors of bridges of ours, old and new."""
        self._new: dict[NewRef, Raw] = {}
        self._made: list[Operation] = []

    def operations(self, wanted: OvsLayout) -> list[Operation]:
        """Return the operations; none if all is as wanted.

        :raises NotOurs: if something of a wanted name is there without the stamp.
        """
        self._drop(wanted)
        for bridge in wanted.bridges:
            self._bridge(bridge)
        for port in wanted.ports:
            self._port(port)
        for mirror in wanted.mirrors:
            self._mirror(mirror)
        return [*self._made, *self._lists()]

    def _lists(self) -> Iterator[Operation]:
        """Yield what sets the ports and mirrors of bridges, then the bridges."""
        for columns in self._of.values():
            columns["flood_vlans"] = self._flooded(columns["ports"])
        for new, row in self._new.items():
            yield insert("Bridge", new, row | self._of[new])
        for ref in self._of.keys() - self._new.keys():
            row, stays = self._found.bridges[ref], ref in self._stay
            for column, refs in self._of[ref].items():
                yield from (
                    _set_list("Bridge", row, column, refs) if stays else _as_read(row, column)
                )
        stay = [*self._stay, *self._new]
        yield from _set_list("Open_vSwitch", self._found.root, "bridges", stay)

    def _flooded(self, ports: Iterable[Ref]) -> list[int]:
        """Return the outer VLANs in which the bridge must not learn: a MAC may be in two inner ones."""
        return sorted({self._tunnels[port] for port in ports if port in self._tunnels})

    # --- what is not wanted

    def _drop(self, wanted: OvsLayout) -> None:
        there = self._found.bridges
        self._stay = [ref for ref in self._stay if self._stays(there[ref], wanted)]

    def _stays(self, bridge: Raw, wanted: OvsLayout) -> bool:
        """Drop what a bridge has of the sliver that is not wanted; return whether the bridge stays."""
        ours, name = stamp_of(bridge["external_ids"]), bridge["name"]
        if ours[0] != self._site:
            return True
        ports = self._left(self._found.ports, bridge["ports"], wanted.ports, name)
        mirrors = self._left(self._found.mirrors, bridge["mirrors"], wanted.mirrors, name)
        self._of[bridge["_uuid"]] = {"ports": ports, "mirrors": mirrors}
        if name in {row.name for row in wanted.bridges}:
            return True
        used = any(_of_a_service(self._found.ports[ref]) for ref in ports)
        return ours != self._stamp and (bool(ours[1]) or used)

    def _left(
        self,
        table: Mapping[Ref, Raw],
        there: Any,
        wanted: Iterable[PortRow | MirrorRow],
        bridge: str,
    ) -> list[Ref]:
        """Return the rows of a bridge that are not the sliver's, or wanted there."""
        names = {row.name for row in wanted if row.bridge == bridge}
        rows = (table[ref] for ref in many(there))
        return [
            row["_uuid"]
            for row in rows
            if row["name"] in names or stamp_of(row["external_ids"]) != self._stamp
        ]

    # --- what is wanted

    def _bridge(self, wanted: BridgeRow) -> None:
        ref = self._bridges.get(wanted.name)
        if ref is not None:
            row = self._found.bridges[ref]
            self._refuse_others(row, wanted.ids, f"bridge {wanted.name}")
            self._made += _set("Bridge", row, {"external_ids": dict(wanted.ids)})
            return
        self._bridges[wanted.name] = new = NewRef(f"bridge{len(self._new)}")
        kind = self._datapath if self._datapath != "system" else ""
        values = {"name": wanted.name, "external_ids": dict(wanted.ids), "datapath_type": kind}
        self._new[new], self._of[new] = values, {"ports": [], "mirrors": []}
        self._insert(PortRow(wanted.name, wanted.name, {}, "internal"))

    def _port(self, wanted: PortRow) -> None:
        ref = self._ports.get(wanted.name)
        if ref is None:
            self._insert(wanted)
            return
        row = self._found.ports[ref]
        self._refuse_others(row, wanted.ids, f"port {wanted.name}")
        interface = self._found.interfaces[many(row["interfaces"])[0]]
        self._made += _set("Port", row, _values(wanted))
        self._note(ref, wanted)
        self._made += _set("Interface", interface, {"options": dict(wanted.options)})
        self._put(wanted.bridge, "ports", ref)

    def _mirror(self, wanted: MirrorRow) -> None:
        values = {
            "name": wanted.name,
            "external_ids": dict(wanted.ids),
            "select_src_port": self._named(wanted.received),
            "select_dst_port": self._named(wanted.sent),
            "select_vlan": [] if wanted.vlan is None else wanted.vlan,
            "output_port": self._named(wanted.output),
        }
        ref = self._mirrors.get(wanted.name)
        if ref is not None:
            self._made += _set("Mirror", self._found.mirrors[ref], values)
        else:
            self._made += [insert("Mirror", ref := NewRef("mirror"), values)]
        self._put(wanted.bridge, "mirrors", ref)

    def _named(self, port: str) -> Ref | list[Ref]:
        return self._ports[port] if port else []

    def _put(self, bridge: str, column: str, ref: Ref) -> None:
        """Put a row into a bridge."""
        refs = self._of[self._bridges[bridge]][column]
        if ref not in refs:
            refs.append(ref)

    def _insert(self, wanted: PortRow) -> None:
        number = len(self._made)
        interface, port = NewRef(f"interface{number}"), NewRef(f"port{number}")
        options: Raw = {"type": wanted.kind, "options": dict(wanted.options)}
        options |= {} if wanted.kind else {"ofport_request": PHYSICAL}
        self._made += [
            insert("Interface", interface, {"name": wanted.name, **options}),
            insert(
                "Port", port, {"name": wanted.name, "interfaces": [interface], **_values(wanted)}
            ),
        ]
        self._ports[wanted.name] = port
        self._note(port, wanted)
        self._put(wanted.bridge, "ports", port)

    def _note(self, ref: Ref, wanted: PortRow) -> None:
        self._tunnels.pop(ref, None)
        if wanted.inner is not None:
            self._tunnels[ref] = wanted.tag

    def _refuse_others(self, row: Raw, ids: Mapping[str, str], what: str) -> None:
        if stamp_of(row["external_ids"]) != stamp_of(ids):
            raise NotOurs(f"{what} is there without the stamp", where=self._device)


def _of_a_service(port: Raw) -> bool:
    return bool(stamp_of(port["external_ids"])[1])


def _values(port: PortRow) -> Raw:
    """Return the columns of a port that its row says."""
    mode = "access" if port.inner is None else "dot1q-tunnel"
    return {
        "external_ids": dict(port.ids),
        "tag": [] if port.tag is None else port.tag,
        "vlan_mode": [] if port.tag is None else mode,
        "cvlans": [] if port.inner is None else port.inner,
    }


def _inner(port: Raw) -> int | None:
    """Return the inner VLAN of a port that takes the outer one off."""
    vlans = many(port["cvlans"]) if port["vlan_mode"] == "dot1q-tunnel" else []
    return vlans[0] if vlans else None


def _set(table: str, row: Raw, values: Raw) -> list[Operation]:
    """Return the operation that sets columns of a row, if they are otherwise."""
    differ = {column: value for column, value in values.items() if row[column] != value}
    return [update(table, row["_uuid"], differ)] if differ else []


def _set_list(table: str, row: Raw, column: str, refs: list[Ref]) -> list[Operation]:
    """Return the operations that set a list of rows, if nobody else changes it meanwhile."""
    if set(many(row[column])) == set(refs):
        return []
    before = unchanged(table, row["_uuid"], {column: row[column]})
    return [before, update(table, row["_uuid"], {column: refs})]


def _as_read(bridge: Raw, column: str) -> list[Operation]:
    """Return the operation that fails if something was put into a bridge that goes."""
    return [unchanged("Bridge", bridge["_uuid"], {column: bridge[column]})]
