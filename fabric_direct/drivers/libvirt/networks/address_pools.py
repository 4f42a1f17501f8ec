"""Address pools that survive a restart: which NIC holds which MAC and addresses on which network.

They are in ``pools.sqlite`` of ``state_dir``. The database itself prevents two NICs of a
network from having the same MAC or address, whichever threads and processes ask.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import astuple
from ipaddress import IPv4Address, IPv6Address
from itertools import count
from typing import TypeVar

from pydantic.dataclasses import dataclass

from fabric_direct.calls.read_cache import read
from fabric_direct.errors import Conflict, PoolExhausted
from fabric_direct.model import Interface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.site.addresses import candidates, candidates6
from fabric_direct.state.store import StateStore, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """The addresses that one NIC holds: a row of the database, with its texts parsed."""

    sliver: str
    component: str
    host: str
    """The host whose network it is."""
    network: str
    mac: str
    ipv4: IPv4Address
    ipv6: IPv6Address | None = None

    def __str__(self) -> str:
        """Return the port's name, for messages."""
        return f"{self.sliver}/{self.component} on {self.network}"


class Pools:
    """The address pools of a site."""

    def __init__(self, store: StateStore, *, timeout: float) -> None:
        """Create nothing yet.

        :param timeout: seconds to wait for another thread or process that writes.
        """
        what = "the address pools"
        self._database = store.database("pools", what=what, timeout=timeout)

    def hold(
        self,
        sliver: str,
        component: str,
        host: str,
        name: str,
        network: SiteNetwork,
        asked: Interface,
    ) -> Held:
        """Hold a MAC and one address of each family for a NIC; the same NIC gets the same again.

        What is not asked for is chosen: the lowest free IPv4 address, an IPv6 address by
        :mod:`~fabric_direct.site.addresses`, and a MAC derived from the ids.

        :param name: the network's name in site.yaml.
        :raises PoolExhausted: if no address is free.
        :raises Conflict: if something asked for is held for another NIC, or the NIC holds a port on
            another network or host, or another MAC or address than asked for.
        """
        with self._database.changing() as db:
            held = _select(db, "sliver = ? AND component = ?", sliver, component)
            if held:
                _refuse_other(held[0], host, name, asked)
                return held[0]
            there = _select(db, "network = ?", name)
            _refuse_taken(there, asked)
            mac = asked.mac or _free_mac(sliver, component, there)
            ipv4 = _ipv4(network, asked, there, name)
            ipv6 = _ipv6(network, asked, there, name, mac)
            new = Held(sliver, component, host, name, mac, ipv4, ipv6)
            values = [None if value is None else str(value) for value in astuple(new)]
            db.execute("INSERT INTO port VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            return new

    def release(self, sliver: str, component: str) -> None:
        """Release what a NIC holds, if anything."""
        with self._database.changing() as db:
            db.execute("DELETE FROM port WHERE sliver = ? AND component = ?", (sliver, component))

    def of_sliver(self, sliver: str, host: str) -> tuple[Held, ...]:
        """Return what the sliver's NICs hold on the networks of a host, by component."""
        return self._read("sliver = ? AND host = ?", sliver, host)

    def of_network(self, name: str, host: str) -> tuple[Held, ...]:
        """Return what is held on a network of a host."""
        return self._read("network = ? AND host = ?", name, host)

    def of_host(self, host: str) -> tuple[Held, ...]:
        """Return what is held on all networks of a host, by sliver and component."""
        return self._read("host = ?", host)

    def taken(self, name: str, asked: Interface, sliver: str) -> tuple[tuple[str, Held], ...]:
        """Return what of ``asked`` is held for other slivers, as pairs of the field and its holder."""
        if not _asked(asked):
            return ()
        others = [held for held in self._read("network = ?", name) if held.sliver != sliver]
        return tuple(_clashes(others, asked))

    @read
    def _read(self, condition: str, *values: str) -> tuple[Held, ...]:
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            return _select(db, condition, *values)


def _select(db: Transaction, condition: str, *values: str) -> tuple[Held, ...]:
    # The condition is one of this file's; values are bound.
    query = f"SELECT * FROM port WHERE {condition} ORDER BY sliver, component"  # noqa: S608
    return tuple(Held(*row) for row in db.execute(query, values))


def _asked(asked: Interface) -> dict[str, str | IPv4Address | IPv6Address]:
    """Return what an interface fixes, by its field."""
    wanted = {
        "mac": asked.mac,
        "ipv4": asked.ipv4 and asked.ipv4.ip,
        "ipv6": asked.ipv6 and asked.ipv6.ip,
    }
    return {field: value for field, value in wanted.items() if value is not None}


def _clashes(there: list[Held] | tuple[Held, ...], asked: Interface) -> Iterator[tuple[str, Held]]:
    for field, value in _asked(asked).items():
        yield from ((field, held) for held in there if getattr(held, field) == value)


def _refuse_taken(there: tuple[Held, ...], asked: Interface) -> None:
    for field, held in _clashes(there, asked):
        raise Conflict(f"{getattr(held, field)} is held for {held}", field=f"interface.{field}")


def _refuse_other(held: Held, host: str, name: str, asked: Interface) -> None:
    wanted = {"host": host, "network": name, **_asked(asked)}
    for field, value in wanted.items():
        if getattr(held, field) != value:
            raise Conflict(
                f"{held} holds another port than asked for",
                why=f"its {field} is {getattr(held, field)}, not {value}",
                remedy="delete the port first",
            )


def _free_mac(sliver: str, component: str, there: tuple[Held, ...]) -> str:
    """Return the first free MAC derived from the ids, with QEMU's prefix 52:54:00."""
    macs = {held.mac for held in there}
    return next(mac for n in count() if (mac := derived_mac(sliver, component, n)) not in macs)


def derived_mac(sliver: str, component: str, number: int = 0) -> str:
    """Return the MAC derived from the ids: the same in each run, with QEMU's prefix 52:54:00."""
    digest = hashlib.sha256(f"{sliver}/{component}/{number}".encode()).digest()
    return "52:54:00:" + digest[:3].hex(":")


def _ipv4(
    network: SiteNetwork, asked: Interface, there: tuple[Held, ...], name: str
) -> IPv4Address:
    if asked.ipv4:
        return asked.ipv4.ip
    return _first_free(candidates(network), {held.ipv4 for held in there}, name, "IPv4")


def _ipv6(
    network: SiteNetwork, asked: Interface, there: tuple[Held, ...], name: str, mac: str
) -> IPv6Address | None:
    if asked.ipv6 or network.subnet6 is None:
        return asked.ipv6.ip if asked.ipv6 else None
    taken = {held.ipv6 for held in there if held.ipv6}
    return _first_free(candidates6(network.subnet6, mac), taken, name, "IPv6")


def _first_free(addresses: Iterator[T], taken: set[T], name: str, family: str) -> T:
    for address in addresses:
        if address not in taken:
            return address
    raise PoolExhausted(
        f"network {name} has no {family} address left",
        why=f"{len(taken)} are held",
        remedy="delete a port, or widen the network's pool in site.yaml",
    )
