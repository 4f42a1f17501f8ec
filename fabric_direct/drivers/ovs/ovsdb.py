"""OVSDB's protocol (RFC 7047), as far as one connection with transactions needs it."""

import json
import re
import socket
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from fabric_direct.calls.deadline import Deadline
from fabric_direct.errors import DriverError, Unreachable

T = TypeVar("T")
Row = Mapping[str, Any]
Operation = dict[str, Any]
_TO_BRACE = re.compile(r'(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+([{}])', re.DOTALL)


class Ref(str):
    """The UUID of a row."""

    __slots__ = ()


class NewRef(Ref):
    """The name of a row that the same transaction inserts."""

    __slots__ = ()


class Changed(DriverError):
    """The database is not as a transaction waited for it to be; it was not made."""


class OvsdbConnection(AbstractContextManager["OvsdbConnection"]):
    """A connection to a server, for one block.

    :param what: whose it is, for messages.
    :param limit: seconds for the whole of it.
    :raises Unreachable: if nobody answers.
    """

    def __init__(self, remote: str, what: str, limit: float) -> None:
        self._remote, self._what, self._deadline = remote, what, Deadline.within(limit)
        self._messages, self._number = _Messages(), 0
        self._socket = self._reach(lambda: _opened(remote, limit))

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def transact(self, *operations: Operation) -> list[Any]:
        """Make a transaction; return the result of each operation.

        :raises Changed: if an operation ``wait`` says so.
        :raises DriverError: if it is refused.
        :raises Unreachable: if there is no answer: it may have been made.
        """
        self._number += 1
        request = {"method": "transact", "params": ["Open_vSwitch", *operations]}
        self._send(request | {"id": self._number})
        results = self._reply()
        for result in results:
            if result and "error" in result:
                kind = Changed if result["error"] == "timed out" else DriverError
                why = f"{result['error']}: {result.get('details', '')}"
                raise kind(f"{self._what} refused a change", where=self._remote, why=why)
        return results

    def _reply(self) -> list[Any]:
        while True:
            message = self._message()
            if message.get("method") == "echo":
                answer = {"id": message.get("id"), "result": message.get("params"), "error": None}
                self._send(answer)
            elif message.get("id") == self._number:
                return self._results(message)

    def _results(self, message: Row) -> list[Any]:
        results = message.get("result")
        if not isinstance(results, list):
            why = str(message.get("error"))
            raise DriverError(f"{self._what} refused", where=self._remote, why=why)
        return results

    def _message(self) -> Row:
        try:
            while (message := self._messages.take()) is None:
                self._messages.add(self._reach(self._received))
        except (ValueError, RecursionError) as error:
            raise DriverError(f"{self._what} does not speak OVSDB", where=self._remote) from error
        return message

    def _received(self) -> bytes:
        self._socket.settimeout(max(0.001, self._deadline.remaining()))
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the connection was closed")
        return data

    def _send(self, message: Any) -> None:
        self._reach(lambda: self._socket.sendall(json.dumps(message).encode()))

    def _reach(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except OSError as error:
            why = str(error)
            raise Unreachable(
                f"{self._what} did not answer", where=self._remote, why=why
            ) from error


class _Messages:
    """JSON objects out of a stream: cut where their braces close, so that each is parsed once."""

    def __init__(self) -> None:
        self._characters = getincrementaldecoder("utf-8")()
        self._text, self._seen, self._depth = "", 0, 0

    def add(self, data: bytes) -> None:
        """Add what was received; raise ValueError if it is not the beginning of an object."""
        self._text += self._characters.decode(data)
        if not self._text.lstrip().startswith("{"):
            raise ValueError("not an object")

    def take(self) -> Row | None:
        """Return the next object, or None if it is not there as a whole."""
        while found := _TO_BRACE.match(self._text, self._seen):
            self._seen = found.end()
            self._depth += 1 if found[1] == "{" else -1
            if not self._depth:
                message, self._text = self._text[: self._seen], self._text[self._seen :].lstrip()
                self._seen = 0
                return dict(json.loads(message))
        return None


def _opened(remote: str, limit: float) -> socket.socket:
    kind, _, where = remote.partition(":")
    if kind == "tcp":
        host, _, port = where.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), limit)
    opened = socket.socket(socket.AF_UNIX)
    opened.settimeout(limit)
    try:
        opened.connect(where)
    except OSError:
        opened.close()
        raise
    return opened


def read(value: Any) -> Any:
    """Return a value of a column: a set as a list, a map as a dict, a UUID as a :class:`Ref`."""
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "set":
        return [read(item) for item in content]
    return {read(k): read(v) for k, v in content} if kind == "map" else Ref(content)


def written(value: Any) -> Any:
    """Return a value as the protocol has it."""
    if isinstance(value, Ref):
        return ["named-uuid" if isinstance(value, NewRef) else "uuid", str(value)]
    if isinstance(value, Mapping):
        return ["map", [[written(k), written(v)] for k, v in value.items()]]
    return ["set", [written(item) for item in value]] if isinstance(value, list) else value


def select(table: str, *columns: str) -> Operation:
    """Return the operation that reads columns of all rows."""
    return {"op": "select", "table": table, "where": [], "columns": ["_uuid", *columns]}


def insert(table: str, name: NewRef, row: Row) -> Operation:
    """Return the operation that makes a row."""
    values = {column: written(value) for column, value in row.items()}
    return {"op": "insert", "table": table, "row": values, "uuid-name": str(name)}


def update(table: str, ref: Ref, row: Row) -> Operation:
    """Return the operation that sets columns of a row."""
    values = {column: written(value) for column, value in row.items()}
    return {"op": "update", "table": table, "where": _is(ref), "row": values}


def unchanged(table: str, ref: Ref, row: Row) -> Operation:
    """Return the operation that fails the transaction unless columns of a row are as they were read."""
    values = {column: written(value) for column, value in row.items()}
    where = {"op": "wait", "timeout": 0, "table": table, "where": _is(ref), "until": "=="}
    return where | {"columns": [*row], "rows": [values]}


def other_than(table: str, row: Row, timeout: int) -> Operation:
    """Return the operation that waits until columns of the one row of a table have other values.

    :param timeout: in milliseconds.
    """
    values = {"columns": [*row], "rows": [dict(row)], "until": "!="}
    return {"op": "wait", "timeout": timeout, "table": table, "where": [], **values}


def _is(ref: Ref) -> list[Any]:
    return [["_uuid", "==", written(ref)]]


def many(value: Any) -> list[Any]:
    """Return a set that was read: OVSDB writes one of a single value as that."""
    return value if isinstance(value, list) else [value]


def rows_of(result: Mapping[str, Iterable[Row]]) -> list[dict[str, Any]]:
    """Return the rows that a selection read."""
    return [{column: read(value) for column, value in row.items()} for row in result["rows"]]
