"""Translate FIM's slivers to our model; nothing behind this module reads a sliver of the actor.

Errors name FIM's field, for example ``attached_components_info.devices[nic1].labels.bdf``.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, cast

from pydantic import TypeAdapter

from fabric_direct.actor.fim_fields import (
    PREFIX,
    below,
    label,
    made,
    prefix_of,
    refuse_other_type,
    text,
    vlan_of,
)
from fabric_direct.actor.names import (
    MANAGEMENT,
    component_id,
    host_name,
    is_valid,
    mount_point,
)
from fabric_direct.actor.sliver import (
    FimComponent,
    FimLabels,
    FimNode,
    FimService,
    FimServiceInfo,
    FimSliver,
    Unit,
)
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.handlers import registry
from fabric_direct.model import (
    Capacities,
    Fpga,
    Gpu,
    Interface,
    NodeSliver,
    Nvme,
    PciComponent,
    SharedNic,
    SmartNic,
    SshPublicKey,
    Storage,
    VNic,
    VNicInterface,
)
from fabric_direct.model import Component as Wanted
from fabric_direct.model.fabric_am import model_name
from fabric_direct.model.networks import ServerPort, VNicPortsSliver
from fabric_direct.operations.whole_cards import with_whole_cards
from fabric_direct.site.config import Site

log = logging.getLogger(__name__)

_KEY: TypeAdapter[str] = TypeAdapter(SshPublicKey)
SSH_KEYS, PROJECT, EMAIL = "user.ssh.key", "project_id", "email"
# Ports of this model come with the network service, not with the VM.
PORT_OF_A_SERVICE = "OpenStack-vNIC"
# Python refuses to read numbers of thousands of digits.
_SIZE = re.compile(r"fabric\.c(\d{1,9})\.m(\d{1,9})\.d(\d{1,9})")
_RESERVATION = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})-.")
_DEVICES: dict[str, type[Gpu | Nvme | Fpga]] = {"GPU": Gpu, "NVME": Nvme, "FPGA": Fpga}
# FIM's field for each field of ours.
_NODE_FIELDS = {
    "id": "reservation_id",
    "host": "label_allocations.instance_parent",
    "image": "image_ref",
    "flavor": "capacity_hints.instance_type",
    "capacities": "capacity_allocations",
    "components": "attached_components_info.devices",
}


def node_of(sliver: object) -> FimNode:
    """Return a unit's sliver as a virtual machine.

    :raises InvalidSliver: if there is none, or it has another type.
    """
    refuse_other_type(sliver, ["VM"], "attached_components_info")
    return cast(FimNode, sliver)


def vm(site: Site, unit: Unit, node: FimNode, there: Iterable[PciComponent] = ()) -> NodeSliver:
    """Return a unit's virtual machine.

    :param there: the devices that the VM has, if it was created before.
    :raises InvalidSliver: with FIM's field, if one is missing or invalid.
    :raises InvalidSite: if the site does not name the management network.
    """
    capacities, flavor = size(site, node)
    named = made(
        NodeSliver,
        _NODE_FIELDS,
        id=str(unit.get_reservation_id()),
        name=host_name(text(node.get_name(), "resource_name")),
        host=_host(site, node),
        image=text(node.get_image_ref(), "image_ref"),
        flavor=flavor if registry.has_flavors(site) else None,
        capacities=capacities,
        ssh_keys=ssh_keys(unit),
        boot_script=boot_script(node),
        components=(_management(site, node), *_components(unit, node, there)),
    )
    return with_whole_cards(site, named)


def changed(was: NodeSliver, unit: Unit, node: FimNode) -> NodeSliver:
    """Return a virtual machine with other components, and all else as it was.

    A user may change the rest in FIM's sliver, without any effect on a VM that is there.

    :param was: the VM by its stamp.
    :raises InvalidSliver: with FIM's field, if one is missing or invalid.
    """
    own = tuple(component for component in was.components if component.id == MANAGEMENT)
    values = dict(was) | {"components": (*own, *_components(unit, node, was.devices()))}
    return made(NodeSliver, _NODE_FIELDS, **values)


def components_of(node: FimNode) -> dict[str, FimComponent]:
    """Return a VM's own components by the component id of our model."""
    info = node.attached_components_info
    devices = info.devices.items() if info else ()
    return {component_id(name): device for name, device in devices if not _of_a_service(device)}


def interfaces_of(holder: FimComponent) -> dict[str, FimSliver]:
    """Return a component's interfaces by name, in the order of its PCI functions."""
    info: FimServiceInfo | None = holder.network_service_info
    services = (info.network_services or {}).values() if info else ()
    found: dict[str, FimSliver] = {}
    for service in services:
        found |= dict(named_interfaces(service))
    return found


def named_interfaces(service: FimService) -> Iterable[tuple[str, FimSliver]]:
    """Return a service's interfaces with their names.

    :raises InvalidSliver: if a name is no text, or has no interface.
    """
    info = service.interface_info
    found: Mapping[Any, Any] = (info.interfaces or {}) if info else {}
    for name, interface in found.items():
        if not isinstance(name, str):
            why = f"one is {name!r}"
            raise InvalidSliver("names must be text", field="interface_info.interfaces", why=why)
        if interface is None:
            raise InvalidSliver("is missing", field=f"interface_info.interfaces[{name}]")
    return found.items()


def size(site: Site, node: FimNode) -> tuple[Capacities, str]:
    """Return the size of a VM and its flavor: those requested, limited to the site's largest.

    :raises InvalidSliver: if the sliver has neither capacities nor a flavor that tells them.
    """
    hints = node.capacity_hints
    flavor = text(hints.instance_type if hints else None, "capacity_hints.instance_type")
    asked = _asked(node) or _numbers(flavor)
    wanted = made(Capacities, below("capacity_allocations", *asked), **asked)
    if site.actor.max_flavor is None:
        return wanted, flavor
    largest = Capacities(**_numbers(site.actor.max_flavor))
    fits = all(getattr(wanted, name) <= getattr(largest, name) for name in asked)
    return (wanted, flavor) if fits else (largest, site.actor.max_flavor)


def _asked(node: FimNode) -> dict[str, object]:
    """Return the requested capacities; empty if all are 0, which is none."""
    asked = node.capacity_allocations
    numbers = {name: getattr(asked, name, 0) for name in ("core", "ram", "disk")}
    return numbers if any(numbers.values()) else {}


def _numbers(flavor: str) -> dict[str, int]:
    match = _SIZE.fullmatch(flavor)
    if not match:
        raise InvalidSliver(
            "is missing", field="capacity_allocations", why=f"flavor {flavor} does not say it"
        )
    return dict(zip(("core", "ram", "disk"), map(int, match.groups()), strict=True))


def _host(site: Site, node: FimNode) -> str:
    """Return the site's name of the worker, matched in full or up to the first dot."""
    named = node.label_allocations.instance_parent if node.label_allocations else None
    parent = text(named, "label_allocations.instance_parent")
    if parent in site.hosts:
        return parent
    same = [host for host in site.hosts if host.split(".")[0] == parent.split(".")[0]]
    return same[0] if len(same) == 1 else parent


def boot_script(node: FimNode) -> str | None:
    """Return the boot script; None for one that has nothing but blanks."""
    script = text(node.get_boot_script() or " ", "boot_script")
    return script if script.strip() else None


def ssh_keys(unit: Unit) -> tuple[str, ...]:
    """Return the public keys; a comment ends at its first comma, and what is no key is left out.

    What is left out is not shown: somebody may have given a private key.

    :raises InvalidSliver: if there are keys, and none of them is good.
    """
    given = re.split(r"[,\r\n]", str(_properties(unit).get(SSH_KEYS) or ""))
    lines = [line.strip() for line in given if line.strip()]
    good = [is_valid(_KEY, line) for line in lines]
    for number in (number for number, is_good in enumerate(good) if not is_good):
        log.warning("properties[%s][%d] is not a public SSH key; it is left out", SSH_KEYS, number)
    if lines and not any(good):
        raise InvalidSliver("has no public SSH key", field=f"properties[{SSH_KEYS}]")
    return tuple(dict.fromkeys(compress(lines, good)))


def _properties(unit: Unit) -> Mapping[str, object]:
    return unit.get_properties() or {}


# --- the management NIC


def _management(site: Site, node: FimNode) -> VNic:
    if site.actor.management_network is None:
        raise InvalidSite(
            "is missing",
            field="actor.management_network",
            remedy="name in site.yaml the network by which people reach their VMs",
        )
    interface = VNicInterface(floating_ip=_floats(site, node))
    return VNic(id=MANAGEMENT, network=site.actor.management_network, interface=interface)


def _floats(site: Site, node: FimNode) -> bool:
    given = site.actor.floating_ip
    wanted = site.openstack is not None if given is None else given
    return wanted and (node.flags is None or bool(node.flags.ipv4_management))


# --- components


def _components(unit: Unit, node: FimNode, there: Iterable[PciComponent] = ()) -> Iterator[Wanted]:
    """Yield the components.

    :param there: the devices that the VM has.
    """
    project = _properties(unit).get(PROJECT)
    on_host = _addresses_on_host(there)
    for name, component in components_of(node).items():
        field = f"attached_components_info.devices[{component.get_name()}]"
        yield _component(name, component, field, project, on_host.get(name, ()))


def _of_a_service(component: FimComponent) -> bool:
    return str(component.get_type()) == "SharedNIC" and component.get_model() == PORT_OF_A_SERVICE


def _model(component: FimComponent, field: str) -> str | None:
    model = component.get_model()
    return model_name(text(model, field)) if model else None


def _addresses_on_host(there: Iterable[PciComponent]) -> dict[str, tuple[str, ...]]:
    return {device.id: tuple(map(str, device.bdf)) for device in there}


def _component(
    name: str, component: FimComponent, field: str, project: object, there: tuple[str, ...]
) -> Wanted:
    kind = str(component.get_type())
    if kind == "Storage":
        return _storage(name, component, field, project)
    if kind not in {*_DEVICES, "SmartNIC", "SharedNIC"}:
        raise InvalidSliver(f"{kind} is not served", field=f"{field}.resource_type")
    functions = {
        "id": name,
        "model": _model(component, f"{field}.resource_model"),
        "bdf": _functions(component, field, there),
    }
    fields = {"model": f"{field}.resource_model", **below(f"{field}.labels", "bdf")}
    if kind in _DEVICES:
        return made(_DEVICES[kind], fields, **functions)
    return _nic(kind, functions, fields, _interfaces(component, kind, field))


def _nic(
    kind: str, functions: dict[str, Any], fields: dict[str, str], interfaces: tuple[Interface, ...]
) -> Wanted:
    if kind == "SmartNIC":
        return made(SmartNic, fields, **functions, interfaces=interfaces)
    own = {"interface": interfaces[0]} if interfaces else {}
    return made(SharedNic, fields, **functions, **own)


def _functions(component: FimComponent, field: str, there: tuple[str, ...]) -> tuple[str, ...]:
    """Return the PCI addresses on the host, from a string or any kind of list.

    :param there: those of a device that the VM has; its allocations have its addresses in the guest.
    """
    bdf = _listed(component.labels) or there or _listed(component.label_allocations)
    if not bdf:
        raise InvalidSliver("is missing", field=f"{field}.labels.bdf")
    if not all(isinstance(address, str) for address in bdf):
        raise InvalidSliver("must be a PCI address or a list of them", field=f"{field}.labels.bdf")
    return cast(tuple[str, ...], bdf)


def host_functions(was: NodeSliver, node: FimNode, addresses: object) -> object:
    """Return the PCI addresses on the host for addresses on the host or in the guest.

    Users know the addresses in the guest, which are written to the allocations. An address that no
    device has on the host, and one device has in the guest, stands for that device. What is no list of
    addresses is returned as it is.

    :param was: the VM by its stamp.
    """
    given = [addresses] if isinstance(addresses, str) else addresses
    if not isinstance(given, list) or not all(isinstance(address, str) for address in given):
        return addresses
    on_host, parts = _addresses_on_host(was.devices()), components_of(node)
    in_guest = {name: _listed(parts[name].label_allocations) for name in on_host if name in parts}
    known = {address for functions in on_host.values() for address in functions}
    found: dict[str, None] = {}
    for address in given:
        having = [on_host[name] for name, guest in in_guest.items() if address in guest]
        meant = having[0] if address not in known and len(having) == 1 else (address,)
        found |= dict.fromkeys(meant)
    return list(found)


def _listed(labels: FimLabels | None) -> tuple[object, ...]:
    bdf = labels.bdf if labels else None
    several = isinstance(bdf, Sequence) and not isinstance(bdf, str | bytes)
    return tuple(cast(Sequence[object], bdf)) if several else (bdf,) if bdf else ()


def _storage(name: str, component: FimComponent, field: str, project: object) -> Storage:
    labels = component.label_allocations
    volume = text(labels.local_name if labels else None, f"{field}.label_allocations.local_name")
    mounts = component.flags is not None and component.flags.auto_mount
    fields = dict.fromkeys(("volume", "mount"), f"{field}.label_allocations.local_name")
    return made(
        Storage,
        fields,
        id=name,
        volume=f"{text(project, f'properties[{PROJECT}]')}-{volume}",
        mount=mount_point(volume) if mounts else None,
    )


def _interfaces(component: FimComponent, kind: str, field: str) -> tuple[Interface, ...]:
    below = f"{field}.interfaces"
    return tuple(
        _interface(sliver, kind, f"{below}[{name}]")
        for name, sliver in interfaces_of(component).items()
    )


def _interface(sliver: FimSliver, kind: str, field: str) -> Interface:
    """Return an interface; a SharedNIC's VF tags its VLAN, on a SmartNIC the guest does.

    Its capacity is not a request of the user: FIM's catalogue has there what the NIC's port can do.
    """
    labels, shared = sliver.label_allocations, kind == "SharedNIC"
    configured = addresses(sliver, f"{field}.label_allocations")
    return made(
        Interface,
        below(f"{field}.label_allocations", "mac", "vlan", "ipv4", "ipv6"),
        mac=label(labels, "mac"),
        vlan=vlan_of(labels) if shared or configured else None,
        auto_config=bool(configured),
        **configured,
    )


def _configures(sliver: FimSliver) -> bool:
    return sliver.flags is not None and bool(sliver.flags.auto_config)


def addresses(interface: FimSliver, field: str) -> dict[str, str]:
    """Return the addresses that are set, by family, each with its subnet's prefix length.

    :param field: FIM's field of its label allocations.
    """
    labels, found = interface.label_allocations, dict[str, str]()
    if not _configures(interface):
        return found
    for family in PREFIX:
        address = label(labels, family)
        if address:
            subnet = label(labels, f"{family}_subnet")
            found[family] = f"{address}/{prefix_of(subnet, family, field)}"
    return found


# --- a network service


def service_of(sliver: object) -> FimService:
    """Return a unit's sliver as a network service whose ports are vNICs.

    :raises InvalidSliver: if there is none, or it has another type.
    """
    refuse_other_type(sliver, ["L2Bridge"], "interface_info")
    return cast(FimService, sliver)


def ports(site: Site, unit: Unit, service: FimService, allocated: FimService) -> VNicPortsSliver:
    """Return a unit's ports.

    :param allocated: the sliver that has the VLAN; a modified one may lack it.
    :raises InvalidSliver: with FIM's field that is missing or wrong.
    """
    vlan = vlan_of(allocated.label_allocations)
    if vlan is None:
        raise InvalidSliver("is missing", field="label_allocations.vlan")
    return made(
        VNicPortsSliver,
        {"id": "reservation_id", "network": "label_allocations.vlan", "ports": "interface_info"},
        id=str(unit.get_reservation_id()),
        network=f"{site.actor.network_prefix}-{vlan}",
        ports=tuple(_port(name, sliver) for name, sliver in named_interfaces(service)),
    )


def _port(name: str, sliver: FimSliver) -> ServerPort:
    field = f"interface_info.interfaces[{name}]"
    mac = text(label(sliver.labels, "mac"), f"{field}.labels.mac")
    interface = made(
        VNicInterface,
        {"mac": f"{field}.labels.mac", **below(f"{field}.label_allocations", *PREFIX)},
        mac=mac,
        port_security=False,
        **_one_address(sliver, field),
    )
    server = _server(sliver, f"{field}.labels.instance_parent")
    return made(ServerPort, {}, id=component_id(name), server=server, interface=interface)


def _one_address(sliver: FimSliver, field: str) -> dict[str, str]:
    """Return the IPv4 address, or else the IPv6 one, of an interface with ``auto_config``."""
    found = addresses(sliver, f"{field}.label_allocations")
    return dict(list(found.items())[:1])


def _server(sliver: FimSliver, field: str) -> str:
    """Return the reservation id of the interface's VM from ``<reservation>-<name of the VM>``."""
    parent = text(label(sliver.labels, "instance_parent"), field)
    match = _RESERVATION.match(parent)
    if not match:
        raise InvalidSliver("must begin with the reservation's UUID and '-'", field=field)
    return match.group(1)
