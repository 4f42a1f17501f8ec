"""Capacity that is promised to slivers and not visible on their hosts yet; nodes that are promised.

::

    take      after planning, before the server exists: everyone who places counts the claim
    settle    the server exists: the host's inventory shows it; only the chosen host is remembered
    drop      the sliver is deleted
    remember  the sliver names its host: nothing is claimed, its host is remembered

Claims are in ``placement.sqlite`` of ``state_dir``. Placing takes place within :meth:`Claims.changing`,
so that threads and processes of the site place one after the other.

Hosts are read before that, concurrently. A claim therefore counts if it existed when the reading began,
or was made later, even if it has been settled since; no instance can be missed. The same holds for
bare-metal nodes. A claim on one is of all of it; once it has ended, nothing is remembered, for the node
tells its sliver.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fabric_direct.model import PciAddress
from fabric_direct.placement.plan import Choice
from fabric_direct.placement.request import Request
from fabric_direct.placement.state import HostState
from fabric_direct.state.store import StateStore, Transaction

_TAKE = """
INSERT INTO claim VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sliver) DO UPDATE SET
    host = excluded.host, owner = excluded.owner, cores = excluded.cores, ram = excluded.ram,
    disk = excluded.disk, devices = excluded.devices, until = excluded.until
"""

_TAKE_NODE = """
INSERT INTO node_claim VALUES (?, ?, ?)
    ON CONFLICT (sliver) DO UPDATE SET node = excluded.node, until = excluded.until
"""

_SINCE = "SELECT * FROM claim WHERE until >= ? ORDER BY sliver"

_NODES_SINCE = "SELECT sliver, node FROM node_claim WHERE until >= ? ORDER BY sliver"

Clock = Callable[[], float]
"""Tells the seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class HostClaim:
    """The capacity that a sliver will use on a host."""

    sliver: str
    host: str
    cores: int
    ram: float
    """GiB."""
    disk: float
    """GiB."""
    devices: tuple[PciAddress, ...] = ()
    owner: str | None = None


class Book:
    """The claims within a transaction that excludes other writers."""

    def __init__(self, db: Transaction, lifetime: float, clock: Clock) -> None:
        """Use the connection of a transaction."""
        self._db, self._lifetime, self._clock = db, lifetime, clock

    def since(self, moment: float) -> tuple[HostClaim, ...]:
        """Return the claims that a reading of the hosts that began at ``moment`` may have missed.

        :param moment: seconds since the epoch.
        """
        return tuple(map(_claim, self._db.execute(_SINCE, (moment,))))

    def take(self, claims: Iterable[HostClaim]) -> None:
        """Store claims; they replace earlier claims of the same slivers."""
        until = self._clock() + self._lifetime
        for claim in claims:
            devices = json.dumps([str(address) for address in claim.devices])
            size = (claim.cores, claim.ram, claim.disk)
            values = (claim.sliver, claim.host, claim.owner, *size, devices, until)
            self._db.execute(_TAKE, values)

    def nodes_since(self, moment: float) -> dict[str, str]:
        """Return the bare-metal node that each sliver has a claim on, as :meth:`since` counts claims."""
        return dict(self._db.execute(_NODES_SINCE, (moment,)).fetchall())

    def take_nodes(self, nodes: Mapping[str, str]) -> None:
        """Store claims on bare-metal nodes, by sliver; they replace the slivers' earlier ones."""
        now = self._clock()
        rows = [(sliver, node, now + self._lifetime) for sliver, node in nodes.items()]
        # No reading that is still under way began before a claim ended that long ago.
        self._db.execute("DELETE FROM node_claim WHERE until < ?", (now - self._lifetime,))
        self._db.executemany(_TAKE_NODE, rows)


class Claims:
    """The claims of a site's slivers."""

    def __init__(
        self, store: StateStore, *, lifetime: float, timeout: float, clock: Clock = time.time
    ) -> None:
        """Create nothing yet.

        :param lifetime: seconds after which an unsettled claim expires.
        :param timeout: seconds to wait for another thread or process that is placing.
        :param clock: returns seconds since the epoch.
        """
        self._lifetime, self._clock = lifetime, clock
        self._database = store.database(
            "placement",
            what="the claims on hosts",
            timeout=timeout,
            damaged="remove it while no process of the site runs: it is made anew, and the hosts are "
            "asked which slivers they have",
        )

    def check(self) -> None:
        """Raise DriverError if the file is damaged, or cannot be read."""
        self._database.check()

    @contextmanager
    def changing(self) -> Iterator[Book]:
        """Exclude other writers while the block runs; if it raises, nothing is claimed.

        :raises TimedOut: if the lock is not released before the timeout.
        """
        with self._database.changing() as db:
            yield Book(db, self._lifetime, self._clock)

    def since(self, moment: float) -> tuple[HostClaim, ...]:
        """Return what :meth:`Book.since` does, without a lock."""
        return tuple(map(_claim, self._database.rows(_SINCE, moment)))

    def nodes_since(self, moment: float) -> dict[str, str]:
        """Return what :meth:`Book.nodes_since` does, without a lock."""
        return dict(self._database.rows(_NODES_SINCE, moment))

    def homes(self) -> dict[str, str]:
        """Return the hosts of all slivers that have a claim, expired or not, or are remembered."""
        return dict(self._database.rows("SELECT sliver, host FROM claim ORDER BY sliver"))

    def renew(self, sliver: str, host: str) -> bool:
        """Extend a sliver's claim on a host; return False if it has none or it is expired."""
        now = self._clock()
        changed = self._database.change(
            "UPDATE claim SET until = ? WHERE sliver = ? AND host = ? AND until >= ?",
            *(now + self._lifetime, sliver, host, now),
        )
        return changed == 1

    def remember(self, sliver: str, host: str) -> None:
        """Remember the host of a sliver that names it; nothing is claimed there."""
        nothing = HostClaim(sliver, host, 0, 0, 0)
        with self._database.changing() as db:
            Book(db, lifetime=0, clock=lambda: 0.0).take([nothing])

    def settle(self, sliver: str) -> None:
        """End a claim, if there is one: the sliver is visible on its host."""
        if self._database.exists():
            now = self._clock()
            with self._database.changing() as db:
                for table in ("claim", "node_claim"):
                    statement = f"UPDATE {table} SET until = ? WHERE sliver = ? AND until > ?"  # noqa: S608
                    db.execute(statement, (now, sliver, now))

    def drop(self, sliver: str) -> None:
        """Delete everything about a sliver."""
        if self._database.exists():
            with self._database.changing() as db:
                for table in ("claim", "node_claim"):
                    db.execute(f"DELETE FROM {table} WHERE sliver = ?", (sliver,))  # noqa: S608

    def home(self, sliver: str) -> str | None:
        """Return the host that was last chosen for a sliver, or None if it was dropped since."""
        rows = self._database.rows("SELECT host FROM claim WHERE sliver = ?", sliver)
        return str(rows[0][0]) if rows else None


def claim_of(request: Request, choice: Choice) -> HostClaim:
    """Return the claim of an instance on the host that was chosen for it."""
    size = request.needs.capacities
    devices = tuple(address for chosen in choice.devices.values() for address in chosen)
    return HostClaim(
        *(request.id, choice.place, size.core, size.ram, size.disk),
        devices=devices,
        owner=request.needs.owner,
    )


def _claim(row: tuple[Any, ...]) -> HostClaim:
    sliver, host, owner, cores, ram, disk, devices, _until = row
    addresses = tuple(map(PciAddress.parse, json.loads(devices)))
    return HostClaim(sliver, host, cores, ram, disk, addresses, owner)


def depleted(hosts: Sequence[HostState], claims: Iterable[HostClaim]) -> tuple[HostState, ...]:
    """Return the hosts without what is claimed.

    The size of a sliver that is visible on its host is not subtracted again. Its claimed devices are
    always removed: they may be attached after the server becomes visible.
    """
    by_host: dict[str, list[HostClaim]] = defaultdict(list)
    for claim in claims:
        by_host[claim.host].append(claim)
    return tuple(_without(host, by_host[host.name]) for host in hosts)


def _without(host: HostState, claims: Sequence[HostClaim]) -> HostState:
    if not claims:
        return host
    unseen = [claim for claim in claims if claim.sliver not in host.slivers]
    taken = {address for claim in claims for address in claim.devices}
    return replace(
        host,
        cores_used=host.cores_used + sum(claim.cores for claim in unseen),
        ram_used=host.ram_used + sum(claim.ram for claim in unseen),
        disk_used=host.disk_used + sum(claim.disk for claim in unseen),
        devices=tuple(d for d in host.devices if taken.isdisjoint(d.functions)),
        slivers={**host.slivers, **{claim.sliver: claim.owner for claim in unseen}},
    )
