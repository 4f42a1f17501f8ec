"""The XML of a server's domain: written from its spec, and read back."""

import hashlib
import json
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice, product
from pathlib import PurePath
from xml.etree import ElementTree

import libvirt

from fabric_direct.drivers.contract import (
    Plug,
    PluggedPort,
    PluggedVolume,
    Port,
    Server,
    ServerSpec,
    Volume,
)
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.storage.pool import CONSOLE, OwnPool
from fabric_direct.drivers.libvirt.xml import attribute, render
from fabric_direct.model import NodeSliver, Stamp, State

# kB/s, libvirt's unit of bandwidth, for one Mbit/s.
KILOBYTES = 125
# PCIe slots beyond what the sliver names, for devices that are plugged in while the guest runs.
SPARE_SLOTS = 10
# Root disk, seed, random numbers, the controllers of USB and of the agent's channel.
_OWN_SLOTS = 5
# What a virtio disk's serial number holds (VIRTIO_BLK_ID_BYTES).
_SERIAL_LENGTH = 20

ComponentIn = Callable[[str | None], str | None]
"""Says which component an alias names, if any that is looked for."""

_SOURCES = {
    "network": ("source", "network"),
    "bridge": ("source", "bridge"),
    "ethernet": ("target", "dev"),
}
"""The element and attribute that say what a NIC is plugged into, by the interface's type."""
_STATES = {
    libvirt.VIR_DOMAIN_RUNNING: State.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: State.RUNNING,
    libvirt.VIR_DOMAIN_SHUTDOWN: State.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: State.PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: State.PAUSED,
    libvirt.VIR_DOMAIN_SHUTOFF: State.STOPPED,
}


@dataclass(frozen=True, slots=True)
class _Disk:
    path: str
    format: str
    target: str
    alias: str | None = None
    serial: str | None = None
    readonly: bool = False


def serial_number(component: str) -> str:
    """Return the serial number of a component's volume: ``/dev/disk/by-id/virtio-<this>`` in the guest.

    It is the component's id. Only 20 characters fit: of a longer id it is the first 11, a ``-`` and
    8 hexadecimal digits of its SHA-256.
    """
    if len(component) <= _SERIAL_LENGTH:
        return component
    return f"{component[:11]}-{hashlib.sha256(component.encode()).hexdigest()[:8]}"


def definition(
    spec: ServerSpec, site: str, store: OwnPool, virt_type: str, nodes: Sequence[int] = ()
) -> str:
    """Return the definition of the server's domain.

    :param site: name of the site, for the stamp.
    :param virt_type: ``kvm`` or ``qemu``.
    :param nodes: the host's NUMA nodes that have memory; none if the host does not tell.
    """
    sliver = spec.sliver
    rates = {nic.id: nic.interface.bandwidth for nic in sliver.vnics()}
    functions = sum(len(device.bdf) for device in sliver.devices())
    return render(
        "domain.xml.j2",
        virt_type=virt_type,
        name=lookup.domain_name(sliver),
        uuid=lookup.domain_uuid(sliver.id),
        site=site,
        stamp=_stamp_json(sliver.stamp()),
        memory=sliver.capacities.ram,
        vcpus=sliver.capacities.core,
        nodes=nodes,
        disks=_disks(spec, store),
        nics=[_nic(sliver.id, port, rates.get(port.component)) for port in spec.ports],
        root_ports=_OWN_SLOTS + len(spec.volumes) + len(spec.ports) + functions + SPARE_SLOTS,
        console=store.console(sliver.id).file(CONSOLE),
    )


def volume_xml(sliver_id: str, component: str, volume: Volume, taken: set[str]) -> str:
    """Return the ``<disk>`` of a data volume, at the first target that is not taken."""
    target = next(name for name in _targets() if name not in taken)
    return render("disk.xml.j2", disk=_data_disk(sliver_id, component, volume, target))


def port_xml(sliver_id: str, port: Port, bandwidth: int | None) -> str:
    """Return the ``<interface>`` of a port, limited to ``bandwidth`` Mbit/s."""
    return render("interface.xml.j2", nic=_nic(sliver_id, port, bandwidth))


def stamp_xml(stamp: Stamp, site: str) -> str:
    """Return the element that libvirt keeps in the domain's metadata."""
    element = ElementTree.Element("stamp", site=site)
    element.text = _stamp_json(stamp)
    return ElementTree.tostring(element, encoding="unicode")


def read_server(domain: libvirt.virDomain, host: str, site: str) -> Server | None:
    """Return the server that a domain is, or None if it has no stamp of the site."""
    state, _, memory, cores, _ = domain.info()
    xml = ElementTree.fromstring(domain.XMLDesc(0))
    stamp = lookup.stamp_in(xml, site)
    if stamp is None:
        return None
    own = partial(lookup.component_of, sliver_id=stamp.sliver.id)
    return Server(
        sliver=stamp.sliver.id,
        instance=domain.name(),
        state=_STATES.get(state, State.ERROR),
        cores=cores,
        ram=memory // 1024,
        stamp=stamp,
        host=host,
        ports=tuple(_nics(xml, own)),
        volumes=tuple(_volumes(xml, own)),
        domain=domain.name(),
    )


def read_plugs(domain: libvirt.virDomain, holder: str, site: str) -> Iterator[Plug]:
    """Yield the NICs of a domain of the site whose ports this other sliver holds.

    One that is only live, or only defined, is not whole: a call was killed midway.
    """
    scopes = [
        _plugs_in(text, domain.name(), holder, site) for text in lookup.definitions(domain).values()
    ]
    for component in sorted({component for scope in scopes for component in scope}):
        plugs = [scope[component] for scope in scopes if component in scope]
        yield replace(plugs[-1], whole=len(plugs) == len(scopes))


def _plugs_in(text: str, name: str, holder: str, site: str) -> dict[str, Plug]:
    # Most domains have none: reading XML takes longer than libvirt takes to send it.
    if f"ua-{holder}-" not in text:
        return {}
    xml = ElementTree.fromstring(text)
    stamp = lookup.stamp_in(xml, site)
    nics = _nics(xml, partial(lookup.held_component, holder=holder))
    return {nic.component: Plug(stamp.sliver.id, name, nic) for nic in nics} if stamp else {}


def targets_of(domain: libvirt.virDomain) -> set[str]:
    """Return the target names that the domain's disks have, live or as defined."""
    return {
        element.attrib["dev"]
        for xml in lookup.definitions(domain).values()
        for element in ElementTree.fromstring(xml).iterfind("devices/disk/target")
    }


def _stamp_json(stamp: Stamp) -> str:
    # ASCII alone: XML cannot hold every character that JSON can.
    return json.dumps(stamp.model_dump(mode="json", exclude_none=True))


def _disks(spec: ServerSpec, store: OwnPool) -> list[_Disk]:
    sliver, (root, *rest) = spec.sliver, islice(_targets(), 2 + len(spec.volumes))
    data = [
        _data_disk(sliver.id, _component(sliver, volume), volume, target)
        for volume, target in zip(spec.volumes, rest, strict=False)
    ]
    # The seed comes last: the first data volume is vdb.
    seed = _Disk(store.file(f"{sliver.id}.seed"), "raw", rest[-1], readonly=True)
    return [_Disk(store.file(f"{sliver.id}.root"), "qcow2", root), *data, seed]


def _component(sliver: NodeSliver, volume: Volume) -> str:
    """Return the component that a volume is for: a present one is told by its name."""
    name = PurePath(volume.source).name
    present = (c.id for c in sliver.volumes() if c.volume == name)
    return volume.component or next(present)


def _data_disk(sliver_id: str, component: str, volume: Volume, target: str) -> _Disk:
    return _Disk(
        path=volume.source,
        format="qcow2",
        target=target,
        alias=lookup.alias(sliver_id, component),
        serial=serial_number(component),
    )


def _nic(sliver_id: str, port: Port, bandwidth: int | None) -> dict[str, object]:
    return {
        "kind": "ethernet" if port.tap else "bridge" if port.bridge else "network",
        "source": port.source,
        "mtu": port.mtu,
        "mac": port.mac,
        "rate": None if bandwidth is None else bandwidth * KILOBYTES,
        "alias": lookup.nic_alias(sliver_id, port.component, port.sliver),
    }


def _targets() -> Iterator[str]:
    """Yield vda, vdb … vdz, vdaa …."""
    for length in count(1):
        for letters in product(string.ascii_lowercase, repeat=length):
            yield "vd" + "".join(letters)


def _nics(xml: ElementTree.Element, component_in: ComponentIn) -> Iterator[PluggedPort]:
    for element, component in _plugged(xml, "interface", component_in):
        kind = element.attrib["type"]
        if kind in _SOURCES:
            yield PluggedPort(
                component=component,
                mac=attribute(element, "mac", "address") or "",
                source=attribute(element, *_SOURCES[kind]) or "",
                bandwidth=_bandwidth(element),
                enabled=attribute(element, "link", "state") != "down",
            )


def _volumes(xml: ElementTree.Element, component_in: ComponentIn) -> Iterator[PluggedVolume]:
    for element, component in _plugged(xml, "disk", component_in):
        yield PluggedVolume(
            component=component,
            source=attribute(element, "source", "file") or "",
            target=attribute(element, "target", "dev") or "",
            serial=element.findtext("serial", ""),
        )


def _plugged(
    xml: ElementTree.Element, kind: str, component_in: ComponentIn
) -> Iterator[tuple[ElementTree.Element, str]]:
    for element in xml.iterfind(f"devices/{kind}"):
        component = component_in(attribute(element, "alias", "name"))
        if component is not None:
            yield element, component


def _bandwidth(element: ElementTree.Element) -> int | None:
    rate = attribute(element, "bandwidth/inbound", "average")
    return int(rate) // KILOBYTES if rate else None
