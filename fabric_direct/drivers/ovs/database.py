"""A switch's database (OVSDB): read whole, changed in one transaction.

Each block has a connection of its own. A kept one would go on to answer from its copy of the database
after the server has gone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.exceptions import TimeoutException
from ovsdbapp.schema.open_vswitch.impl_idl import OvsdbIdl

from fabric_direct.deadline import call_within, took_effect, unanswered
from fabric_direct.drivers.ovs.layout import SITE, SLIVER, BridgeRow, Layout, PortRow
from fabric_direct.errors import DriverError, FabricDirectError, NotOurs, Unreachable

_TABLES = ("Open_vSwitch", "Bridge", "Port", "Interface")


@dataclass(frozen=True, slots=True)
class Rows:
    """The bridges and ports of a database, by name, whoever made them."""

    bridges: Mapping[str, BridgeRow]
    ports: Mapping[str, PortRow]

    def of(self, site: str, sliver_id: str) -> Layout:
        """Return what bears a sliver's stamp."""
        stamp = (site, sliver_id)
        bridges = tuple(row for row in self.bridges.values() if _stamp(row.ids) == stamp)
        ports = tuple(row for row in self.ports.values() if _stamp(row.ids) == stamp)
        return Layout(bridges, ports)


def _stamp(ids: Mapping[str, str]) -> tuple[str, str]:
    return ids.get(SITE, ""), ids.get(SLIVER, "")


class Database:
    """The database of a switch.

    :param device: the switch's name, for messages.
    :param limit: seconds for each request.
    """

    def __init__(self, device: str, remote: str, datapath: str, limit: float) -> None:
        self._device, self._remote, self._limit = device, remote, limit
        self._datapath = datapath

    def rows(self) -> Rows:
        """Return all bridges and ports."""
        with self._connected() as api:
            return _rows(api.idl.tables)

    def change(self, site: str, sliver_id: str, wanted: Layout) -> None:
        """Make what bears a sliver's stamp that which is wanted, in one transaction.

        Bridges of ports of which no service is left go with it.

        :raises NotOurs: if something of a wanted name is there without the stamp.
        """
        with self._connected() as api:
            editor = partial(_Editor, self._device, self._datapath, api.idl.tables, site, sliver_id)
            try:
                with api.transaction(check_error=True, log_errors=False) as transaction:
                    transaction.add(_Change(lambda txn: editor(txn).change(wanted)))
            except TimeoutException:
                unanswered(f"the transaction on {self._device} ({sliver_id})")
                raise
            took_effect()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        what, held = f"the database of {self._device}", None
        try:
            held, api = call_within(self._limit, what, self._connect)
            yield api
        except FabricDirectError:
            raise
        except TimeoutException as error:
            raise Unreachable(f"{what} gave no answer", where=self._remote) from error
        except Exception as error:  # ovs and ovsdbapp raise bare ones
            kind = DriverError if held else Unreachable
            raise kind(f"{what} failed", where=self._remote, why=str(error)) from error
        finally:
            if held:
                held.stop(self._limit)

    def _connect(self) -> tuple[Any, Any]:
        idl = connection.OvsdbIdl.from_server(self._remote, "Open_vSwitch", helper_tables=_TABLES)
        held = connection.Connection(idl, self._limit)
        # ovsdbapp keeps the connection in the class: two switches, or threads, would share one
        return held, type("Api", (OvsdbIdl,), {})(held)


def _rows(tables: Any) -> Rows:
    bridges = {r.name: BridgeRow(r.name, dict(r.external_ids)) for r in _all(tables, "Bridge")}
    ports = (_port(bridge.name, row) for bridge in _all(tables, "Bridge") for row in bridge.ports)
    return Rows(bridges, {row.name: row for row in ports})


def _all(tables: Any, name: str) -> tuple[Any, ...]:
    return tuple(tables[name].rows.values())


def _port(bridge: str, row: Any) -> PortRow:
    interface, tag = row.interfaces[0], row.tag[0] if row.tag else None
    options, ids = dict(interface.options), dict(row.external_ids)
    return PortRow(bridge, row.name, ids, interface.type, options, tag)


class _Change:
    """The one command of a transaction; it is run again if the database has changed meanwhile."""

    result = None

    def __init__(self, make: Callable[[Any], None]) -> None:
        self._make = make

    def run_idl(self, txn: Any) -> None:
        """Do what is to be done in the transaction."""
        self._make(txn)

    def post_commit(self, txn: Any) -> None:
        """Do nothing more."""


class _Editor:
    """Changes rows within a transaction; what is as wanted is not written."""

    def __init__(
        self, device: str, datapath: str, tables: Any, site: str, sliver_id: str, txn: Any
    ) -> None:
        self._device, self._datapath, self._tables, self._txn = device, datapath, tables, txn
        self._stamp, self._site = (site, sliver_id), site
        (self._root,) = _all(tables, "Open_vSwitch")

    def change(self, wanted: Layout) -> None:
        self._drop({row.name for row in wanted.ports}, {row.name for row in wanted.bridges})
        for bridge in wanted.bridges:
            self._bridge(bridge)
        for port in wanted.ports:
            self._port(port)

    # --- what is not wanted

    def _drop(self, ports: set[str], bridges: set[str]) -> None:
        self._root.verify("bridges")
        stay = [b for b in self._root.bridges if self._stays(b, ports, bridges)]
        _set(self._root, "bridges", stay)

    def _stays(self, bridge: Any, ports: set[str], bridges: set[str]) -> bool:
        """Drop the sliver's ports of a bridge that are not wanted; return whether the bridge stays."""
        ours = _stamp(bridge.external_ids)
        if ours[0] != self._site:
            return True
        bridge.verify("ports")
        left = [p for p in bridge.ports if p.name in ports or _stamp(p.external_ids) != self._stamp]
        _set(bridge, "ports", left)
        if ours == self._stamp:
            return bridge.name in bridges
        return bridge.name in bridges or bool(ours[1]) or any(map(_of_a_service, left))

    # --- what is wanted

    def _bridge(self, wanted: BridgeRow) -> None:
        row = self._found("Bridge", wanted.name)
        if row is None:
            row = self._insert("Bridge", wanted.name)
            row.datapath_type = self._datapath if self._datapath != "system" else ""
            row.ports = [self._inserted_port(wanted.name, "internal")]
            self._root.bridges = [*self._root.bridges, row]
        else:
            self._refuse_others(row, wanted.ids, f"bridge {wanted.name}")
        _set(row, "external_ids", dict(wanted.ids))

    def _port(self, wanted: PortRow) -> None:
        row, bridge = self._found("Port", wanted.name), self._found("Bridge", wanted.bridge)
        if row is None:
            row = self._inserted_port(wanted.name, wanted.kind)
            bridge.ports = [*bridge.ports, row]
        else:
            self._refuse_others(row, wanted.ids, f"port {wanted.name}")
        _set(row, "external_ids", dict(wanted.ids))
        _set(row, "tag", [] if wanted.tag is None else [wanted.tag])
        _set(row, "vlan_mode", [] if wanted.tag is None else ["access"])
        _set(row.interfaces[0], "options", dict(wanted.options))

    def _refuse_others(self, row: Any, ids: Mapping[str, str], what: str) -> None:
        if _stamp(row.external_ids) != _stamp(ids):
            raise NotOurs(f"{what} is there without the stamp", where=self._device)

    def _inserted_port(self, name: str, kind: str) -> Any:
        interface, port = self._insert("Interface", name), self._insert("Port", name)
        interface.type = kind
        port.interfaces = [interface]
        return port

    def _insert(self, table: str, name: str) -> Any:
        row = self._txn.insert(self._tables[table])
        row.name = name
        return row

    def _found(self, table: str, name: str) -> Any:
        return next((row for row in _all(self._tables, table) if row.name == name), None)


def _of_a_service(port: Any) -> bool:
    return bool(_stamp(port.external_ids)[1])


def _set(row: Any, column: str, value: Any) -> None:
    if getattr(row, column, None) != value:  # a new row has no value yet
        setattr(row, column, value)
