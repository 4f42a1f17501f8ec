"""What network services hold: VLANs of ports, subnets, addresses; and the choice of free ones.

SQLite keeps it in ``<state_dir>/pools.sqlite``, beside the address pools. Its constraint refuses to give
a thing twice, whichever threads and processes ask. A claim is made before anything else of the service,
and released after its absence was seen.
"""

import sqlite3
from typing import TypeVar, cast

from fabric_direct.config import Site
from fabric_direct.database import Database
from fabric_direct.network_services import NetworkService
from fabric_direct.service_choice import Claim, claims_of, resolved

S = TypeVar("S", bound=NetworkService)
_TABLE = """
CREATE TABLE IF NOT EXISTS service_claim (
    kind TEXT NOT NULL, key TEXT NOT NULL, sliver TEXT NOT NULL, part TEXT NOT NULL,
    PRIMARY KEY (kind, key)
)
"""


class ServiceClaims:
    """The claims of a site's network services."""

    def __init__(self, site: Site) -> None:
        """Create no file yet."""
        self._site = site
        path, limit = site.state_dir / "pools.sqlite", site.limits.call
        self._database = Database(path, _TABLE, what="the address pools", timeout=limit)

    def resolve(self, service: S) -> S:
        """Return the service with what it leaves open: what it holds already, or what is free now.

        Nothing is claimed.

        :raises InvalidSliver: if a VLAN is outside the range of its port, or no pool has a subnet.
        :raises Conflict: if another service holds what it asks for; the holder is named.
        :raises PoolExhausted: if nothing is free.
        """
        return cast("S", resolved(self._site, service, self._all()))

    def claim(self, service: S) -> S:
        """Claim all that the service needs, beside what it holds, and return it resolved.

        :raises InvalidSliver, Conflict, PoolExhausted: as :meth:`resolve` does; nothing is claimed then.
        """
        with self._database.changing() as db:
            made = cast("S", resolved(self._site, service, _select(db)))
            rows = [(c.kind, c.key, c.sliver, c.part) for c in claims_of(made)]
            db.executemany("INSERT OR REPLACE INTO service_claim VALUES (?, ?, ?, ?)", rows)
        return made

    def missing(self, service: NetworkService) -> tuple[Claim, ...]:
        """Return what the service, once resolved, needs and does not hold."""
        held = set(self._all())
        return tuple(claim for claim in claims_of(self.resolve(service)) if claim not in held)

    def surplus(self, service: NetworkService) -> tuple[Claim, ...]:
        """Return what the service holds and does not need."""
        needed = set(claims_of(self.resolve(service)))
        return tuple(claim for claim in self.of(service.id) if claim not in needed)

    def of(self, sliver_id: str) -> tuple[Claim, ...]:
        """Return what a service holds."""
        return tuple(claim for claim in self._all() if claim.sliver == sliver_id)

    def slivers(self) -> frozenset[str]:
        """Return the services that hold anything."""
        return frozenset(claim.sliver for claim in self._all())

    def release(self, claims: tuple[Claim, ...]) -> None:
        """Release claims, as far as they are held."""
        with self._database.changing() as db:
            rows = [(c.kind, c.key, c.sliver) for c in claims]
            db.executemany(
                "DELETE FROM service_claim WHERE kind = ? AND key = ? AND sliver = ?", rows
            )

    def _all(self) -> tuple[Claim, ...]:
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            return _select(db)


def _select(db: sqlite3.Connection) -> tuple[Claim, ...]:
    rows = db.execute("SELECT kind, key, sliver, part FROM service_claim ORDER BY kind, key")
    return tuple(Claim(*row) for row in rows)
