"""FABRIC's resource model of a site (ARM, GraphML): the devices of its workers that the AM advertises.

It is read by fabric-fim, which is where the actor runs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fabric_direct.engine.run import attempt
from fabric_direct.errors import Refused
from fabric_direct.model import Mac, PciAddress
from fabric_direct.model.fabric_am import model_name
from fabric_direct.site.config import AllowedDevice

_KINDS = frozenset({"GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"})
_PORT_OF_A_CLOUD = "OpenStack-vNIC"
"""The model of a SharedNIC that has no PCI function."""
CARDS = frozenset({"GPU", "FPGA"})
"""Types of which the model names one function of a card, whatever functions the card has."""
_MAC: TypeAdapter[str] = TypeAdapter(Mac)


@dataclass(frozen=True, slots=True)
class Unread:
    """A component of the model that names no function which could be allowed."""

    component: str
    why: str


@dataclass
class ResourceModel:
    """What a resource model says of the workers of a site."""

    file: str
    workers: dict[str, list[AllowedDevice]] = field(default_factory=dict)
    """By the worker's name in the model: an entry for each PCI function, ordered by address."""
    unread: list[Unread] = field(default_factory=list)

    def worker(self, host: str) -> str | None:
        """Return the model's name of a host: the same, or the only one that is the same up to a dot."""
        if host in self.workers:
            return host
        short = host.partition(".")[0]
        same = [name for name in self.workers if name.partition(".")[0] == short]
        return same[0] if len(same) == 1 else None


def read(path: Path) -> ResourceModel:
    """Read a resource model.

    :raises Refused: if fabric-fim is not installed or the file cannot be read.
    """
    slivers = attempt(_servers, path)
    if isinstance(slivers, ImportError):
        raise Refused(
            f"{path}: a resource model is read by fabric-fim, which is not installed",
            why=str(slivers),
            remedy="run this where the AM's actor runs, or: pip install fabric-fim",
        ) from slivers
    if isinstance(slivers, OSError):
        raise Refused(f"cannot read {path}", why=slivers.strerror or "") from slivers
    if isinstance(slivers, Exception):
        why = f"{type(slivers).__name__}: {slivers}"
        raise Refused(f"{path} is not a resource model of FABRIC", why=why) from slivers
    model = ResourceModel(str(path))
    for server in slivers:
        _take(server, model)
    return model


def _servers(path: Path) -> list[Any]:
    """Return FIM's slivers of the workers, with their components and interfaces."""
    from fim.graph.abc_property_graph import ABCPropertyGraph  # noqa: PLC0415 - not where nobody asks
    from fim.graph.networkx_property_graph import NetworkXGraphImporter  # noqa: PLC0415

    with path.open("rb"):  # FIM's own error does not say why it cannot be opened
        graph = NetworkXGraphImporter().import_graph_from_file_direct(graph_file=str(path))
    kind = {"label": ABCPropertyGraph.CLASS_NetworkNode, "ntype": "Server"}
    nodes = graph.get_all_nodes_by_class_and_type(**kind)
    return [graph.build_deep_node_sliver(node_id=node) for node in nodes]


def _take(server: Any, model: ResourceModel) -> None:
    name = str(server.get_name())
    found: dict[PciAddress, AllowedDevice] = {}
    info = server.attached_components_info
    components = info.devices.values() if info else ()
    for component in sorted(components, key=lambda each: str(each.get_name())):
        if str(component.get_type()) in _KINDS and component.get_model() != _PORT_OF_A_CLOUD:
            try:
                for entry in _entries(component):
                    _add(entry, found)
            except ValueError as error:
                model.unread.append(Unread(str(component.get_name()), str(error)))
    model.workers[name] = [found[address] for address in sorted(found)]


def _add(entry: AllowedDevice, found: dict[PciAddress, AllowedDevice]) -> None:
    if entry.bdf in found:
        raise ValueError(f"names {entry.bdf}, which another component has")
    if entry.bdf is not None:
        found[entry.bdf] = entry


def _entries(component: Any) -> list[AllowedDevice]:
    """Return an entry for each function of a component.

    :raises ValueError: if it names none, or none that is valid.
    """
    listed = _listed(component.labels, "bdf")
    if not listed:
        raise ValueError("names no PCI address (labels.bdf)")
    functions = [PciAddress.parse(text) for text in listed]
    macs = _macs(component, listed)
    kind, model = str(component.get_type()), model_name(component.get_model())
    return [
        AllowedDevice.model_validate(
            {"type": kind, "model": model, "bdf": bdf, "mac": macs.get(text)}
        )
        for text, bdf in zip(listed, functions, strict=True)
    ]


def _macs(component: Any, functions: list[str]) -> Mapping[str, str]:
    """Return the hardware addresses of a NIC's functions, as far as the model tells which has which.

    A port of a SharedNIC lists functions and addresses side by side; those of a SmartNIC are its
    functions in the order of their names. The ports of an FPGA are not functions.
    """
    kind = str(component.get_type())
    ports = sorted(_ports(component), key=lambda port: str(port.get_name()))
    if kind == "SharedNIC":
        pairs = [(_listed(p.labels, "bdf"), _listed(p.labels, "mac")) for p in ports]
        return {f: m for fs, ms in pairs if len(fs) == len(ms) for f, m in _valid(fs, ms)}
    each = [_listed(port.labels, "mac") for port in ports]
    fits = kind == "SmartNIC" and [len(macs) for macs in each] == [1] * len(functions)
    return dict(_valid(functions, [mac for (mac,) in each])) if fits else {}


def _valid(functions: list[str], macs: list[str]) -> Iterator[tuple[str, str]]:
    for function, mac in zip(functions, macs, strict=True):
        try:
            yield function, _MAC.validate_python(mac)
        except ValidationError:
            continue


def _ports(component: Any) -> Iterator[Any]:
    info = component.network_service_info
    for service in info.network_services.values() if info else ():
        if service.interface_info:
            yield from service.interface_info.interfaces.values()


def _listed(labels: Any, name: str) -> list[str]:
    value = getattr(labels, name, None)
    if not value:
        return []
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
