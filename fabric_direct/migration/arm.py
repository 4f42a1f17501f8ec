"""FABRIC's resource model of a site (ARM, GraphML): the devices of its workers that the AM advertises.

It is read by fabric-fim, which is where the actor runs.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fabric_direct.documents import validate
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Refused
from fabric_direct.model import Mac, PciAddress
from fabric_direct.model.fabric_am import model_name
from fabric_direct.site.config import AllowedDevice

_KINDS = frozenset({"GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"})
_PORT_OF_A_CLOUD = ("SharedNIC", "OpenStack-vNIC")
"""Type and model of a NIC that has no PCI function."""
CARDS = frozenset({"GPU", "FPGA"})
"""Types of which the model names one function of a card, whatever functions the card has."""
_MAC: TypeAdapter[str] = TypeAdapter(Mac)


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of the model that is in no allow-list."""

    what: str
    """``component C of W`` or ``worker W``."""
    why: str


@dataclass(frozen=True, slots=True)
class ResourceModel:
    """What a resource model says of the workers of a site."""

    file: str
    workers: Mapping[str, tuple[AllowedDevice, ...]] = field(default_factory=dict)
    """By the worker's name in the model: an entry for each PCI function, ordered by address. No two
    components of a worker have one function."""
    unread: tuple[Unread, ...] = ()

    def workers_of(self, hosts: Iterable[str]) -> dict[str, str]:
        """Return the model's name of each host that is one of its workers.

        It is the host's own, or that with a domain appended to one of them (``w1``, ``w1.example.org``)
        if there is one such pair alone. No worker is of two hosts.
        """
        pairs = [(host, worker) for host in hosts for worker in self.workers if _same(host, worker)]
        times = Counter(name for pair in pairs for name in {*pair})
        return {
            host: worker
            for host, worker in pairs
            if host == worker or times[host] == times[worker] == 1
        }


def _same(host: str, worker: str) -> bool:
    return host == worker or host.startswith(f"{worker}.") or worker.startswith(f"{host}.")


def read(path: Path) -> ResourceModel:
    """Read a resource model.

    :raises Refused: if fabric-fim is not installed or the file cannot be read.
    """
    graph = attempt(_graph, path)
    if isinstance(graph, ImportError):
        raise Refused(
            f"{path}: a resource model is read by fabric-fim, which is not installed",
            why=str(graph),
            remedy="run this where the AM's actor runs, or: pip install fabric-fim",
        ) from graph
    if isinstance(graph, OSError):
        raise Refused(f"cannot read {path}", why=graph.strerror or str(graph)) from graph
    slivers = graph if isinstance(graph, Exception) else attempt(_Servers, graph)
    if isinstance(slivers, Exception):
        why = f"{type(slivers).__name__}: {slivers}"
        raise Refused(f"{path} is not a resource model of FABRIC", why=why) from slivers
    return slivers.model(str(path))


def _graph(path: Path) -> Any:
    from fim.graph.networkx_property_graph import NetworkXGraphImporter  # noqa: PLC0415 - not where nobody asks

    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(None, "it is not a file")
    with path.open("rb"):  # FIM's own error does not say why it cannot be opened
        return NetworkXGraphImporter().import_graph_from_file_direct(graph_file=str(path))


class _Servers:
    """The servers of a graph, and what FIM makes of their components."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        kind = {"label": graph.CLASS_NetworkNode, "ntype": "Server"}
        self._nodes = {
            node: self._name(node) for node in graph.get_all_nodes_by_class_and_type(**kind)
        }
        self._unread: list[Unread] = []

    def model(self, file: str) -> ResourceModel:
        """Return what the graph says, and what of it is not understood."""
        times = Counter(self._nodes.values())
        workers = {
            name: tuple(self._devices(node, name))
            for node, name in self._nodes.items()
            if times[name] == 1
        }
        twice = [Unread(f"worker {name}", "is there twice") for name, n in times.items() if n > 1]
        return ResourceModel(file, workers, (*twice, *self._unread))

    def _name(self, node: str) -> str:
        _, properties = self._graph.get_node_properties(node_id=node)
        return str(properties["Name"])

    def _devices(self, node: str, worker: str) -> Iterator[AllowedDevice]:
        found: dict[str, list[AllowedDevice]] = {}
        for component in self._components(node):
            name, entries = self._name(component), attempt(self._entries, component)
            what = f"component {name} of {worker}"
            if isinstance(entries, Exception):
                self._unread.append(Unread(what, _told(entries)))
            elif entries:
                found.setdefault(what, []).extend(entries)
        yield from _each_by_one(found, self._unread)

    def _components(self, node: str) -> list[str]:
        graph = self._graph
        of = {"rel": graph.REL_HAS, "node_label": graph.CLASS_Component}
        return sorted(graph.get_first_neighbor(node_id=node, **of), key=self._name)

    def _entries(self, node: str) -> list[AllowedDevice]:
        return _entries(self._graph.build_deep_component_sliver(node_id=node))


def _told(error: Exception) -> str:
    if isinstance(error, ValueError | Refused):
        return str(error)
    return f"cannot be read by fabric-fim: {type(error).__name__}: {error}"


def _each_by_one(
    found: Mapping[str, Collection[AllowedDevice]], unread: list[Unread]
) -> list[AllowedDevice]:
    """Return the entries of the components all of whose functions are of no other, nor named twice."""
    times = Counter(entry.bdf for entries in found.values() for entry in entries)
    taken: list[AllowedDevice] = []
    for what, entries in found.items():
        twice = sorted({str(entry.bdf) for entry in entries if times[entry.bdf] > 1})
        if twice:
            unread.append(Unread(what, f"names {', '.join(twice)}, which the model names twice"))
        else:
            taken.extend(entries)
    return sorted(taken, key=lambda entry: str(entry.bdf))


def _entries(component: Any) -> list[AllowedDevice]:
    """Return an entry for each function of a component; none if it has no PCI function.

    :raises ValueError: if it names no function, or what it is cannot be named in an allow-list.
    :raises Refused: if an entry would not be valid.
    """
    kind, model = str(component.get_type()), component.get_model()
    if kind == "Storage" or (kind, model) == _PORT_OF_A_CLOUD:
        return []
    if kind not in _KINDS:
        raise ValueError(f"is of an unknown type: {kind}")
    listed = _listed(component.labels, "bdf")
    if not listed:
        raise ValueError("names no PCI address (labels.bdf)")
    named = model_name(model)
    if model and not named:
        raise ValueError(f"its model cannot be named in site.yaml: {model!r}")
    macs, usb = _macs(component, kind, listed), _usb(component)
    return [
        validate(
            {
                "type": kind,
                "model": named,
                "bdf": str(PciAddress.parse(text)),
                "mac": macs.get(text),
                "usb": [] if number else usb,
            },
            AllowedDevice,
            "",
            Refused,
        )
        for number, text in enumerate(listed)
    ]


def _macs(component: Any, kind: str, functions: list[str]) -> Mapping[str, str]:
    """Return the hardware addresses of a NIC's functions, as far as the model tells which has which.

    A port of a SharedNIC lists functions and addresses side by side; those of a SmartNIC are its
    functions, in the order of names and addresses. The ports of an FPGA are not functions.
    """
    ports = sorted(_ports(component), key=lambda port: str(port.get_name()))
    if kind == "SharedNIC":
        pairs = [(_listed(p.labels, "bdf"), _listed(p.labels, "mac")) for p in ports]
        return {f: m for fs, ms in pairs if len(fs) == len(ms) for f, m in _valid(fs, ms)}
    each = [_listed(port.labels, "mac") for port in ports]
    fits = kind == "SmartNIC" and [len(macs) for macs in each] == [1] * len(functions)
    ordered = sorted(functions, key=PciAddress.parse)
    return dict(_valid(ordered, [mac for (mac,) in each])) if fits else {}


def _valid(functions: list[str], macs: list[str]) -> Iterator[tuple[str, str]]:
    for function, mac in zip(functions, macs, strict=True):
        try:
            yield function, _MAC.validate_python(mac)
        except ValidationError:
            continue


def _usb(component: Any) -> list[dict[str, str]]:
    """Return the USB devices that go with it: ``0403:6011``."""
    pairs = (text.split(":", 1) for text in _listed(component.labels, "usb_id"))
    return [dict(zip(("vendor", "product"), pair, strict=False)) for pair in pairs]


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
