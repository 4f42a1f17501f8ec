"""Claims of network services on VLANs of ports, subnets and addresses, and the choice of free ones.

They are in ``pools.sqlite`` of ``state_dir``, beside the address pools. Its constraint refuses to
claim a thing twice, whichever threads and processes ask. A claim is made before anything else of the
service, and released after the service was seen to be absent.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from fabric_direct.model.services import NetworkService
from fabric_direct.site.config import Site
from fabric_direct.state.service_choice import ServiceClaim, claims_of, resolved
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import Transaction

S = TypeVar("S", bound=NetworkService)
_CLAIM = """
INSERT INTO service_claim VALUES (?, ?, ?, ?) ON CONFLICT (kind, key)
    DO UPDATE SET sliver = excluded.sliver, part = excluded.part
"""


class ServiceClaims:
    """The claims of a site's network services."""

    def __init__(self, site: Site, changed: Callable[[], object] = lambda: None) -> None:
        """Create nothing yet.

        :param changed: called after each change of what is held.
        """
        self._site, self._changed = site, changed
        what, limit = "the address pools", site.limits.call
        self._database = store_of(site).database("pools", what=what, timeout=limit)

    def resolve(self, service: S) -> S:
        """Return the service with what it leaves open: what it holds already, or what is free now.

        Nothing is claimed.

        :raises InvalidSliver: if a VLAN is outside the range of its port, or no pool has a subnet.
        :raises Conflict: if another service holds what it asks for; the holder is named.
        :raises PoolExhausted: if nothing is free.
        """
        return cast("S", resolved(self._site, service, self._all(*_near(service))))

    def claim(self, service: S) -> S:
        """Claim all that the service needs, beside what it holds, and return it resolved.

        :raises InvalidSliver, Conflict, PoolExhausted: as :meth:`resolve` does; nothing is claimed then.
        """
        with self._database.changing() as db:
            made = cast("S", resolved(self._site, service, _select(db, *_near(service))))
            _insert(db, claims_of(made))
        self._changed()
        return made

    def missing(self, service: NetworkService) -> tuple[ServiceClaim, ...]:
        """Return what the service, once resolved, needs and does not hold."""
        held = self._all(*_near(service))
        needed = claims_of(resolved(self._site, service, held))
        return tuple(claim for claim in needed if claim not in held)

    def surplus(self, service: NetworkService) -> tuple[ServiceClaim, ...]:
        """Return what the service holds and does not need."""
        held = self._all(*_near(service))
        needed = set(claims_of(resolved(self._site, service, held)))
        return tuple(c for c in held if c.sliver == service.id and c not in needed)

    def of(self, sliver_id: str) -> tuple[ServiceClaim, ...]:
        """Return what a service holds."""
        return self._all("WHERE sliver = ?", sliver_id)

    def ports(self, device: str) -> frozenset[str]:
        """Return the ports of a device of which services hold anything."""
        ends = (claim.key.partition(" on ")[2] for claim in self._all() if claim.kind == "VLAN")
        return frozenset(
            end.removesuffix(f" of {device}") for end in ends if end.endswith(f" of {device}")
        )

    def slivers(self) -> frozenset[str]:
        """Return the services that hold anything."""
        return frozenset(claim.sliver for claim in self._all())

    def release(self, claims: tuple[ServiceClaim, ...]) -> None:
        """Release claims, as far as they are held."""
        with self._database.changing() as db:
            rows = [(c.kind, c.key, c.sliver) for c in claims]
            db.executemany(
                "DELETE FROM service_claim WHERE kind = ? AND key = ? AND sliver = ?", rows
            )
        self._changed()

    def restore(self, sliver_id: str, claims: tuple[ServiceClaim, ...]) -> None:
        """Have a service hold just these claims, in one transaction."""
        with self._database.changing() as db:
            db.execute("DELETE FROM service_claim WHERE sliver = ?", (sliver_id,))
            _insert(db, claims)
        self._changed()

    def _all(self, *which: str) -> tuple[ServiceClaim, ...]:
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            return _select(db, *which)


def _near(service: NetworkService) -> tuple[str, ...]:
    """Return the condition, and its values, for what a service has, and may want or clash with.

    Of VLANs that are those of its ports, and perhaps of others whose names are alike: of thousands, few
    are read.
    """
    places = {f"% on {interface.where}" for interface in service.interfaces if interface.device}
    where = "WHERE sliver = ? OR kind <> 'VLAN'" + " OR key LIKE ?" * len(places)
    return where, service.id, *places


def _insert(db: Transaction, claims: Iterable[ServiceClaim]) -> None:
    """Write claims; one of another interface of the service, or of all of it, becomes that one."""
    rows = [(c.kind, c.key, c.sliver, c.part) for c in claims]
    db.executemany(_CLAIM, rows)


def _select(db: Transaction, where: str = "", *values: str) -> tuple[ServiceClaim, ...]:
    columns = "SELECT kind, key, sliver, part FROM service_claim"
    rows = db.execute(f"{columns} {where} ORDER BY kind, key", values)
    return tuple(ServiceClaim(*row) for row in rows)
