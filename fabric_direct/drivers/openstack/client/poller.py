"""Waiting for servers, ports, volumes and nodes, with as few requests as possible.

One request lists all servers that any thread of the process waits for, another all ports, a third all
volumes, a fourth all nodes. Each kind has a polling thread of its own while anybody waits, so that an
API that hangs delays only those who wait for it.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeVar

from openstack.connection import Connection

from fabric_direct.calls import forks
from fabric_direct.calls.read_cache import current
from fabric_direct.calls.waiting import waiting_for
from fabric_direct.drivers.openstack.client.errors import if_there, translated
from fabric_direct.drivers.openstack.client.stamp import age
from fabric_direct.errors import Denied, DriverError, NotFound, TimedOut, Unsupported

Kind = Literal["server", "volume", "port", "node"]
T = TypeVar("T")

# Seconds between two polls: a tenth of the youngest waiter's time, at least what the last poll took.
_SHORTEST, _LONGEST, _AGE_SHARE = 0.2, 2.0, 0.1
# Longest pause between two polls in seconds, however slow the API is.
_PATIENCE = 10.0
# What to read again after waiting; networks and floating IPs do not change by themselves.
_CHANGED = ("servers", "ports", "volumes", "")
# Number of ids in one URL.
_AT_ONCE = 50
# From so many ids on, list all volumes of the project, or all nodes: no filter by ids is there.
_MANY = 4


def wait_for(
    cloud: Connection,
    kind: Kind,
    name: str,
    done: Callable[[T | None], bool],
    *,
    timeout: float,
    what: str,
) -> T | None:
    """Wait for a condition of a server, volume, port or node, and return it; None if it is gone.

    It invalidates what the caller's read cache knows of servers, ports and volumes.

    :param name: a server's tag (its oldest server is meant); the id of a volume, port or node.
    :param done: the condition; its argument is None if the resource does not exist. It must not block.
        An exception that it raises ends the waiting and is raised here.
    :param timeout: in seconds.
    :param what: the condition, as in *waiting for* ``server x to be ACTIVE``.
    :raises TimedOut: if the condition is not met in time; the reason says what was read last.
    :raises Denied: if it may not be read.
    """
    with waiting_for(what) as still:
        waiter = _Waiter(name, done, still)
        answer: Future[T | None] = waiter.answer
        _await(cloud, kind, waiter, timeout, what)
        return answer.result()


def _await(cloud: Connection, kind: Kind, waiter: "_Waiter", timeout: float, what: str) -> None:
    answer = waiter.answer
    try:
        _join(cloud, kind, waiter)
        answer.result(timeout)
    except TimeoutError as error:
        if answer.done():
            raise
        said = f"timed out after {timeout:.0f} s waiting for {what}"
        raise TimedOut(said, why=waiter.seen) from error
    finally:
        _leave(waiter)
        if reads := current():
            reads.invalidate(*_CHANGED)


class _Waiter:
    def __init__(
        self, name: str, done: Callable[[Any], bool], still: Callable[[str], object]
    ) -> None:
        self.name, self._still = name, still
        self.seen = "it was not read yet"
        self.since = time.monotonic()
        self.answer: Future[Any] = Future()
        self._done = done

    def look(self, found: Any, kind: Kind) -> None:
        """Check the condition against what was read."""
        state = found and (getattr(found, "provision_state", None) or found.status)
        self.seen = "there is none" if found is None else f"its status is {state}"
        try:
            if self._done(found):
                self._end(partial(self.answer.set_result, found))
            else:
                self._still(f"no {kind}" if found is None else f"{kind} {state}")
        except Exception as error:  # noqa: BLE001 - carried to the waiting thread, not swallowed
            self._end(partial(self.answer.set_exception, error))

    def fail(self, error: Exception) -> None:
        """Note that the read failed; end the waiting if trying again cannot help.

        A list that is not found says nothing of what is waited for: the API is not there just now.
        """
        self.seen = str(error)
        self._still("no answer to read")
        known = isinstance(error, DriverError | NotFound)
        if not known or isinstance(error, Denied | Unsupported):
            self._end(partial(self.answer.set_exception, error))

    def _end(self, tell: Callable[[], None]) -> None:
        # Not if the waiting thread gave up.
        if self.answer.set_running_or_notify_cancel():
            tell()


class _Watch:
    """Polls one kind of resource of one cloud while anybody waits for some."""

    def __init__(self, cloud: Connection, kind: Kind) -> None:
        self.waiters: list[_Waiter] = []
        self._cloud, self._kind = cloud, kind
        threading.Thread(target=self._run, name=f"fabric-direct-{kind}s", daemon=True).start()

    def _run(self) -> None:
        while waiters := self._waiting():
            began = time.monotonic()
            self._round(waiters)
            self._pause(time.monotonic() - began)

    def _waiting(self) -> list[_Waiter]:
        """Return who still waits; if nobody does, the thread ends: the next waiter starts another."""
        with _changed:
            self.waiters = [waiter for waiter in self.waiters if not waiter.answer.done()]
            if not self.waiters:
                del _watches[id(self._cloud), self._kind]
            return list(self.waiters)

    def _round(self, waiters: list[_Waiter]) -> None:
        names = {waiter.name for waiter in waiters}
        try:
            with translated(f"read the {self._kind}s that are under way", self._cloud.name):
                found = _READERS[self._kind](self._cloud, names)
        except Exception as error:  # noqa: BLE001 - carried to the waiting threads, not swallowed
            for waiter in waiters:
                waiter.fail(error)
        else:
            for waiter in waiters:
                waiter.look(found.get(waiter.name), self._kind)

    def _pause(self, took: float) -> None:
        """Wait until the next poll is due; waiters that come or go change when that is."""
        ended = time.monotonic()
        with _changed:
            while (left := ended + self._interval(took) - time.monotonic()) > 0:
                _changed.wait(left)

    def _interval(self, took: float) -> float:
        since = [waiter.since for waiter in self.waiters if not waiter.answer.done()]
        if not since:
            return 0.0
        by_age = _AGE_SHARE * (time.monotonic() - max(since))
        return max(min(_PATIENCE, took), min(_LONGEST, max(_SHORTEST, by_age)))


# Guards the watches and their waiters; notified when a waiter comes or goes.
_changed = threading.Condition()
_watches: dict[tuple[int, Kind], _Watch] = {}


def _join(cloud: Connection, kind: Kind, waiter: _Waiter) -> None:
    with _changed:
        watch = _watches.get((id(cloud), kind))
        if watch is None:
            watch = _watches[id(cloud), kind] = _Watch(cloud, kind)
        watch.waiters.append(waiter)
        _changed.notify_all()


def _leave(waiter: _Waiter) -> None:
    waiter.answer.cancel()
    with _changed:
        _changed.notify_all()


@forks.in_child
def _after_fork() -> None:
    global _changed  # noqa: PLW0603 - the parent's may be held for ever
    _changed = threading.Condition()
    _watches.clear()


def _servers(cloud: Connection, tags: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for some in _parts(tags):
        servers = cloud.compute.servers(details=True, any_tags=",".join(some))
        for server in sorted(servers, key=age, reverse=True):
            found.update(dict.fromkeys(server.tags or (), server))
    return found


def _ports(cloud: Connection, ids: Collection[str]) -> dict[str, Any]:
    return {port.id: port for some in _parts(ids) for port in cloud.network.ports(id=some)}


def _volumes(cloud: Connection, ids: Collection[str]) -> dict[str, Any]:
    if len(ids) >= _MANY:
        return {volume.id: volume for volume in cloud.block_storage.volumes(details=True)}
    return {name: if_there(cloud.block_storage.get_volume, name) for name in sorted(ids)}


def _nodes(cloud: Connection, ids: Collection[str]) -> dict[str, Any]:
    if len(ids) >= _MANY:
        return {node.id: node for node in cloud.baremetal.nodes(details=True)}
    return {name: if_there(cloud.baremetal.get_node, name) for name in sorted(ids)}


_READERS: dict[Kind, Callable[[Connection, Collection[str]], dict[str, Any]]] = {
    "server": _servers,
    "port": _ports,
    "volume": _volumes,
    "node": _nodes,
}


def _parts(names: Iterable[str]) -> list[list[str]]:
    ordered = sorted(names)
    return [ordered[at : at + _AT_ONCE] for at in range(0, len(ordered), _AT_ONCE)]
