"""Hosts in memory that are kept in a file: what one command makes, the next one finds.

The file is ``<state_dir>/fake.sqlite``, with a row for each host. Each call of a driver is a
transaction: it begins with what the file says, alone among threads and processes, and the file has all
of what it did or nothing. What site.yaml gives a host (sizes, devices, delay) and the faults of tests
are not kept.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, ValidationError

from fabric_direct.drivers.contract import (
    BareMetalNode,
    DeviceRecord,
    Plug,
    PluggedDevice,
    Port,
    Server,
    VfSettings,
    Volume,
)
from fabric_direct.drivers.fake.hardware import freed
from fabric_direct.drivers.fake.inside import GuestState
from fabric_direct.drivers.fake.state import Key, SubstrateState
from fabric_direct.errors import DriverError
from fabric_direct.model import PciAddress
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.p4_switches import Switch
from fabric_direct.model.services import Services
from fabric_direct.site.config import Site
from fabric_direct.state.database import SqliteDatabase

FILE = "fake.sqlite"
_UNKNOWN = ""
"""No state: of a block that failed, memory may have what the file has not."""
_TABLE = "CREATE TABLE IF NOT EXISTS hosts (name TEXT PRIMARY KEY, state TEXT NOT NULL)"


class _State(BaseModel):
    """The stored state of a host: the fields of its substrate, by name."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )

    servers: dict[str, Server] = {}
    ports: tuple[Port, ...] = ()
    plugs: tuple[tuple[str, Plug], ...] = ()
    """Each with its holder."""
    networks: dict[str, NetworkSliver] = {}
    services: dict[str, Services] = {}
    """Without the secrets of peers, as their stamps."""
    service_stamps: dict[str, Services] = {}
    switches: dict[str, Switch] = {}
    bare_metal: dict[str, BareMetalNode] = {}
    """Nodes that slivers have, by name."""
    volumes: tuple[Volume, ...] = ()
    owners: dict[PciAddress, str] = {}
    """Owners of devices."""
    plugged: dict[str, tuple[PluggedDevice, ...]] = {}
    domains: dict[str, str] = {}
    records: dict[PciAddress, DeviceRecord] = {}
    pending: set[str] = set()
    uplinks: dict[str, str] = {}
    vfs: dict[str, list[VfSettings]] = {}
    inside: dict[str, GuestState] = {}
    keys: dict[str, dict[str, str]] = {}
    pins: dict[str, dict[int, int]] = {}
    nodes: dict[str, frozenset[int]] = {}


_AS_THEY_ARE = (
    *("servers", "networks", "service_stamps", "switches", "plugged", "domains", "records"),
    *("pending", "inside", "keys", "pins", "nodes"),
)


class Kept:
    """The file of a site's hosts, as one host uses it. The caller keeps other threads away."""

    def __init__(self, site: Site, host: str) -> None:
        """Read nothing yet."""
        self._host = host
        self._path = site.state_dir / FILE
        self._file = SqliteDatabase(
            self._path, _TABLE, what="the site in memory", timeout=site.limits.call
        )
        self._known: str | None = None
        """The state as this process has it in memory; None if nothing is kept."""
        self._within = False
        """Whether a block is under way: one within it is part of it."""

    @contextmanager
    def current(self, things: SubstrateState) -> Iterator[None]:
        """Bring a host up to date for the block, and keep what the block did to it.

        A block that raises an error has done nothing. A block within another is part of it.

        :raises DriverError: if the file cannot be used, or has another form.
        :raises TimedOut: if another process has the file for longer than the limit of a call.
        """
        if self._within:
            yield
            return
        with self._file.changing() as db:
            self._load(db, things)
            known, self._known = self._known, _UNKNOWN
            self._within = True
            try:
                yield
            finally:
                self._within = False
            state = _state(things).model_dump_json()
            if state != known:
                db.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?)", (self._host, state))
        self._known = state

    def _load(self, db: sqlite3.Connection, things: SubstrateState) -> None:
        row = db.execute("SELECT state FROM hosts WHERE name = ?", (self._host,)).fetchone()
        state = row[0] if row else None
        if state != self._known:
            _restore(self._parsed(state or "{}"), things)
        self._known = state

    def _parsed(self, state: str) -> _State:
        try:
            return _State.model_validate_json(state)
        except ValidationError as error:
            raise DriverError(
                f"cannot read what is kept of host {self._host}",
                where=str(self._path),
                why="another version wrote it, or it is damaged",
                remedy="remove the file, and begin with an empty site",
            ) from error


def _state(things: SubstrateState) -> _State:
    """Return what is kept of a host."""
    return _State(
        **{name: getattr(things, name) for name in _AS_THEY_ARE},
        ports=tuple(things.ports.values()),
        volumes=tuple(things.volumes.values()),
        plugs=tuple((holder, plug) for (holder, _), plug in things.plugs.items()),
        services={s.id: s.without_secrets() for s in things.services.values()},
        bare_metal={n.name: n for n in things.bare_metal.values() if n.sliver},
        owners={d.address: d.owner for d in things.devices.values() if d.owner},
        uplinks=things.uplinks,
        vfs=things.vfs,
    )


def _restore(state: _State, things: SubstrateState) -> None:
    """Make a host what was kept of it; devices and uplinks are those that site.yaml has now."""
    for name in _AS_THEY_ARE:
        setattr(things, name, getattr(state, name))
    things.ports = {_key(port): port for port in state.ports}
    things.volumes = {_key(volume): volume for volume in state.volumes}
    things.plugs = {(holder, plug.nic.component): plug for holder, plug in state.plugs}
    things.services = dict(state.services)
    things.bare_metal = {
        name: state.bare_metal.get(name, freed(node)) for name, node in things.bare_metal.items()
    }
    things.devices = {
        address: replace(device, owner=state.owners.get(address))
        for address, device in things.devices.items()
    }
    things.uplinks |= {link: mode for link, mode in state.uplinks.items() if link in things.uplinks}
    for link, now in things.vfs.items():
        settings = state.vfs.get(link, [])[: len(now)]
        things.vfs[link] = settings + now[len(settings) :]


def _key(held: Port | Volume) -> Key:
    return held.sliver, held.component
