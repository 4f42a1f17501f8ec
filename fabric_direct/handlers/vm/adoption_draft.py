"""Draft a sliver for a server that fabric_am made, as far as that works without the original sliver.

The original ids of volumes and devices are not known: ids are derived from what the volumes and devices
are, and an adoption may replace them with the sliver's own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from fabric_direct.documents.reasons import problems
from fabric_direct.documents.tree import Tree
from fabric_direct.drivers.contract import (
    DeviceDomain,
    FoundPort,
    FoundServer,
    HostDevice,
    HostDrivers,
)
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import ErrorReport, PciAddress
from fabric_direct.model.adoption import Adoption
from fabric_direct.model.fabric_am import is_of_a_service, parts_of
from fabric_direct.site.config import Site

_MANAGEMENT = "management"
"""The component id that the actor gives the NIC on the management network."""
_ALONE = {"SharedNIC", "NVME"}
"""Devices each function of which is a component; of others all functions of a slot are one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A server of fabric_am, and what its adoption would be."""

    server: FoundServer
    adoption: Adoption | None
    error: ErrorReport | None = None
    """Why it cannot be adopted as it is."""


def draft(site: Site, drivers: HostDrivers, found: FoundServer) -> Adoption:
    """Return the adoption of a server as it was found.

    :param drivers: those of the server's host.
    :raises InvalidSliver: if it cannot be told as a sliver: its image is gone, a device is not allowed.
    """
    reservation, name = parts_of(found.name) or ("", "")
    ports = _ports(site, found, reservation)
    sliver = {
        "id": reservation,
        "name": found.hostname or name,
        "host": found.host if found.host in site.hosts else None,
        "image": found.image or "",
        "flavor": found.flavor,
        "capacities": {"core": found.cores, "ram": found.ram // 1024, "disk": max(1, found.disk)},
        "components": [
            *_nics(ports),
            *_volumes(found),
            *_devices(drivers, found),
        ],
    }
    named = {component: port.id for component, port in ports}
    values = {"sliver": sliver, "server": found.id, "ports": named}
    try:
        return Adoption.model_validate(values)
    except ValidationError as error:
        first, *_ = problems(error, Adoption, Tree(values, {}))
        raise InvalidSliver(first.text, field=first.field, where=str(found)) from error


def _ports(site: Site, found: FoundServer, reservation: str) -> list[tuple[str, FoundPort]]:
    """Return the server's own ports with their components: that of the management network first."""
    own = [port for port in found.ports if not is_of_a_service(port.name, reservation)]
    managed = site.actor.management_network
    ordered = sorted(own, key=lambda port: managed not in {port.network, port.network_id})
    return [(f"nic{n}" if n else _MANAGEMENT, port) for n, port in enumerate(ordered)]


def _nics(ports: Iterable[tuple[str, FoundPort]]) -> Iterator[dict[str, Any]]:
    for component, port in ports:
        interface = {"floating_ip": bool(port.floating)}
        values = {"network": port.network, "interface": interface}
        yield {"type": "vNIC", "id": component, **values}


def _volumes(found: FoundServer) -> Iterator[dict[str, Any]]:
    names = [volume.name for volume in found.volumes]
    for volume in found.volumes:
        unique = volume.name and names.count(volume.name) == 1
        name = volume.name if unique else volume.id
        yield {"type": "Storage", "id": f"volume-{volume.id[:8]}", "volume": name}


def _devices(drivers: HostDrivers, found: FoundServer) -> Iterator[dict[str, Any]]:
    driver = next(iter(drivers.devices.values()), None)
    strange = set(driver.strange(DeviceDomain("", found.id)) if driver else ())
    there = {device.address: device for device in drivers.functions() if strange}
    known = [there[a] for a in sorted(strange) if a in there and there[a].type]
    _refuse_not_allowed(strange - {device.address for device in known}, found)
    for _, functions in groupby(known, key=_component):
        yield _device(list(functions))


def _component(device: HostDevice) -> tuple[Any, ...]:
    at = device.address
    return device.type, device.model, at if device.type in _ALONE else at.slot_address


def _device(functions: list[HostDevice]) -> dict[str, Any]:
    first, *_ = functions
    where = str(first.address).replace(":", "-").replace(".", "-")
    bdf = [str(function.address) for function in functions]
    name = f"{str(first.type).lower()}-{where}"
    return {"type": first.type, "id": name, "model": first.model, "bdf": bdf}


def _refuse_not_allowed(addresses: Iterable[PciAddress], found: FoundServer) -> None:
    if missing := sorted(addresses):
        raise InvalidSliver(
            f"{found} has {', '.join(map(str, missing))}, which may not be passed through",
            field="components",
            where=f"site.yaml: hosts.{found.host}.devices",
            remedy="add it to the list, or detach it",
        )
