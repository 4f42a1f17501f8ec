"""A switch's database (OVSDB): read whole, changed in one transaction."""

from collections.abc import Mapping
from dataclasses import dataclass

from fabric_direct.calls.deadline import took_effect, unanswered
from fabric_direct.drivers.ovs import ovsdb
from fabric_direct.drivers.ovs.edit import Edit, Found, stamp_of
from fabric_direct.drivers.ovs.layout import BridgeRow, MirrorRow, OvsLayout, PortRow
from fabric_direct.drivers.ovs.ovsdb import Changed, OvsdbConnection
from fabric_direct.drivers.ovs.switch import forget
from fabric_direct.errors import Unreachable

ROWS = "rows of switches"
"""What answers in an operation's cache are about."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The bridges, ports and mirrors of a database, by name, whoever made them."""

    bridges: Mapping[str, BridgeRow]
    ports: Mapping[str, PortRow]
    mirrors: Mapping[str, MirrorRow]
    one_tag: bool
    """Whether it reads only the outer one of two tags (``vlan-limit``)."""

    def of(self, site: str, sliver_id: str) -> OvsLayout:
        """Return what carries a sliver's stamp."""
        stamp = (site, sliver_id)
        bridges = tuple(row for row in self.bridges.values() if stamp_of(row.ids) == stamp)
        ports = tuple(row for row in self.ports.values() if stamp_of(row.ids) == stamp)
        mirrors = tuple(row for row in self.mirrors.values() if stamp_of(row.ids) == stamp)
        return OvsLayout(bridges, ports, mirrors=mirrors)


@dataclass(frozen=True, slots=True)
class Datapaths:
    """The datapath types that a daemon knows, and those of its bridges."""

    types: frozenset[str]
    bridges: Mapping[str, str]
    """The type of each bridge, whoever made it."""


class SwitchDatabase:
    """The database of a switch.

    :param device: the switch's name, for messages.
    :param datapath: of the bridges that are made.
    :param limit: seconds for each request.
    """

    def __init__(self, device: str, remote: str, datapath: str, limit: float) -> None:
        self._device, self._remote, self._limit = device, remote, limit
        self._datapath = datapath

    def rows(self) -> Rows:
        """Return all bridges, ports and mirrors."""
        with self._connected() as connection:
            found = Found.by(connection)
            limit = found.root["other_config"].get("vlan-limit", "1")
            return Rows(*found.rows(), one_tag=limit == "1")

    def datapaths(self) -> Datapaths:
        """Return the datapaths that the daemon knows; one that never ran knows none."""
        with self._connected() as connection:
            roots, bridges = map(ovsdb.rows_of, connection.transact(*_DATAPATHS))
        types = frozenset(kind for root in roots for kind in ovsdb.many(root["datapath_types"]))
        return Datapaths(types, {b["name"]: b["datapath_type"] or "system" for b in bridges})

    def change(self, site: str, sliver_id: str, wanted: OvsLayout) -> None:
        """Make what carries a sliver's stamp that which is wanted, in one transaction.

        It is computed again if the database changes meanwhile. Bridges of ports of which no service is
        left go with it. When it returns, the daemon has done what there is for it to do.

        :raises NotOurs: if something of a wanted name is there without the stamp.
        """
        with self._connected() as connection:
            while True:
                edit = Edit(self._device, self._datapath, Found.by(connection), site, sliver_id)
                operations = edit.operations(wanted)
                try:
                    number = self._committed(connection, operations, sliver_id)
                except Changed:
                    continue
                if not _is_a_note(operations):
                    self._wait_for_daemon(connection, number)
                return

    def _connected(self) -> OvsdbConnection:
        return OvsdbConnection(self._remote, f"the database of {self._device}", self._limit)

    def _committed(
        self, connection: OvsdbConnection, operations: list[ovsdb.Operation], sliver_id: str
    ) -> int:
        """Make a transaction, and return its number, by which the daemon says that it has done it."""
        try:
            *_, counted = connection.transact(*operations, *_COUNT)
        except Unreachable as error:
            if self._may_come(error):
                unanswered(f"the transaction on {self._device} ({sliver_id})")
            raise
        finally:
            forget(*([ROWS] if _is_a_note(operations) else []))
        took_effect()
        (row,) = ovsdb.rows_of(counted)
        return int(row["next_cfg"])

    def _may_come(self, error: Unreachable) -> bool:
        """Return whether a transaction without an answer may still be made.

        A server that has closed a Unix socket makes nothing that it was sent by it.
        """
        closed = isinstance(error.__cause__, ConnectionError)
        return not (closed and self._remote.startswith("unix:"))

    def _wait_for_daemon(self, connection: OvsdbConnection, number: int) -> None:
        timeout = int(self._limit * 1000)
        while (done := _done(connection)) < number:
            try:
                connection.transact(ovsdb.other_than("Open_vSwitch", {"cur_cfg": done}, timeout))
            except Changed as error:
                what = f"the daemon of {self._device} did not answer"
                raise Unreachable(what, where=self._remote) from error


_DATAPATHS = (
    ovsdb.select("Open_vSwitch", "datapath_types"),
    ovsdb.select("Bridge", "name", "datapath_type"),
)
_COUNT = (
    {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]},
    ovsdb.select("Open_vSwitch", "next_cfg"),
)


def _is_a_note(operations: list[ovsdb.Operation]) -> bool:
    """Return whether only stamps are written: these are nothing to the daemon."""
    return bool(operations) and all(
        o["op"] == "update" and o["row"].keys() == {"external_ids"} for o in operations
    )


def _done(connection: OvsdbConnection) -> int:
    """Return the number of the last transaction that the daemon has done."""
    (row,) = ovsdb.rows_of(connection.transact(ovsdb.select("Open_vSwitch", "cur_cfg"))[0])
    return int(row["cur_cfg"])
