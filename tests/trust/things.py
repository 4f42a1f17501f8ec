"""What there is on the fakes, thing by thing, but for what an equal operation may choose anew."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from fabric_direct.drivers.contract import PluggedPort, Server
from fabric_direct.drivers.fake import Substrate

Thing = tuple[str, str, str]
"""The driver that makes it, its sliver, and its component or what else names it."""
Things = Mapping[Thing, object]
_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def things_of(hosts: Mapping[str, Substrate]) -> Things:
    """Return what there is on the hosts of a site."""
    found: dict[Thing, object] = {}
    for has in hosts.values():
        for (driver, sliver, name), value in _all(has):
            twice = (driver, sliver, name) in found
            found[driver, sliver, f"{name} twice" if twice else name] = value
    return found


def _all(has: Substrate) -> Iterator[tuple[Thing, Any]]:
    yield from _servers(has)
    yield from _held(has)
    yield from _devices(has)
    yield from _inside(has)


def _servers(has: Substrate) -> Iterator[tuple[Thing, Any]]:
    for sliver, server in has.servers.items():
        what = server.stamp.sliver.model_copy(update={"host": None})
        size = (server.state, server.cores, server.ram, what)
        yield ("compute", sliver, "server"), size
        yield from _plugged(has, server)
    for (sliver, component), plug in has.plugs.items():
        yield ("compute", sliver, component), (plug.server, _nic(has, sliver, plug.nic))
    for sliver, server in has.servers.items():
        pins, nodes = has.pins.get(server.instance), has.nodes.get(server.instance)
        yield ("tuning", sliver, "server"), (pins or None, nodes)


def _plugged(has: Substrate, server: Server) -> Iterator[tuple[Thing, Any]]:
    for nic in server.ports:
        yield ("compute", server.sliver, nic.component), _nic(has, server.sliver, nic)
    for disk in server.volumes:
        yield ("compute", server.sliver, disk.component), disk.source


def _nic(has: Substrate, sliver: str, nic: PluggedPort) -> Any:
    """Return its limit, and whether it is plugged into the port that is held for it."""
    port = has.ports.get((sliver, nic.component))
    return nic.bandwidth, port is not None and port.mac == nic.mac


def _held(has: Substrate) -> Iterator[tuple[Thing, Any]]:
    for (sliver, component), port in has.ports.items():
        value = (port.network, port.floating_ip is not None, port.port_security)
        yield ("network", sliver, component), value
    for (sliver, component), volume in has.volumes.items():
        yield ("volume", sliver, component), volume.size
    for sliver, service in has.services.items():
        yield ("service", sliver, service.name), service
    for sliver, network in has.networks.items():
        yield ("network", sliver, network.name), network


def _devices(has: Substrate) -> Iterator[tuple[Thing, Any]]:
    for sliver, devices in has.plugged.items():
        for device in devices:
            yield ("device", sliver, f"{device.component} {device.host_address}"), device
    for address, record in has.records.items():
        yield ("device", record.sliver, f"{record.component} {address} record"), record
    for address, device in has.devices.items():
        if device.owner:
            sliver, component = device.owner.split("/")
            yield ("device", sliver, f"{component} {address} owner"), None
    for sliver in has.pending:
        yield ("device", sliver, "server"), "waits for a power cycle"


def _inside(has: Substrate) -> Iterator[tuple[Thing, Any]]:
    for sliver, keys in has.keys.items():
        yield ("guest", sliver, "keys"), frozenset(keys)
    for sliver, inside in has.inside.items():
        for path, text in inside.files.items():
            if text:
                yield ("guest", sliver, path), _UUID.sub(b"UUID", text)
        for directory, source in inside.mounts.items():
            yield ("guest", sliver, directory), source


def claims_in(pools: Path) -> Things:
    """Return what network services hold, read past the taps of the library's own reading."""
    if not pools.exists():
        return {}
    with closing(sqlite3.connect(pools)) as db:
        tables = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'service_claim'").fetchall()
        rows = db.execute("SELECT sliver, kind, key, part FROM service_claim") if tables else ()
        return {("claims", sliver, f"{kind} {key}"): part for sliver, kind, key, part in rows}


def differing(one: Things, other: Things) -> set[Thing]:
    """Return what is not the same in both."""
    every = one.keys() | other.keys()
    absent = object()
    return {thing for thing in every if one.get(thing, absent) != other.get(thing, absent)}
