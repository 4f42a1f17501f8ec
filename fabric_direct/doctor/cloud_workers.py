"""Check whether the workers of a cloud are the machines of site.yaml, and can take devices.

What Nova says of a worker is compared with what the libvirt says that site.yaml names for it: the name
of the machine, and the servers there. Each check may raise errors of openstacksdk; :mod:`.cloud`
translates them. What only an administrator may know, or a libvirt that does not answer, is *not known*.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from xml.etree import ElementTree

from openstack.connection import Connection
from openstack.exceptions import ForbiddenException

from fabric_direct.calls.deadline import call_within
from fabric_direct.doctor.diagnosis import Diagnosis, fail, info, ok, warn
from fabric_direct.drivers.openstack.client.answers import Hypervisor
from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Site

_NOVA = "http://openstack.org/xmlns/libvirt/nova/"
_PORTS = (
    "have Nova make servers with spare root ports: [libvirt] hw_machine_type = x86_64=q35 and "
    "num_pcie_ports = 16 in nova.conf of the worker, or hw_machine_type=q35 as a property of the image; "
    "it counts for servers made, or hard rebooted, after that"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker as its libvirt describes it."""

    name: str
    uuid: str = ""
    """The system's UUID (SMBIOS); empty if libvirt knows none."""
    domains: dict[str, ElementTree.Element] = field(default_factory=dict)
    """The definitions of its domains, by UUID."""


def check_machine(connection: Connection, site: Site, name: str) -> Diagnosis:
    """Check that site.yaml names the libvirt of the machine on which Nova's worker of this name is."""
    subject, uri = f"machine of {name}", site.host(name).libvirt
    told, servers = _hypervisor(connection, name), _servers(connection, name)
    machine = _machine(uri, site.limits.call)
    if isinstance(machine, str) or told is None:
        return info(subject, f"not known: {machine if told else 'Nova does not tell its name'}")
    here = servers & machine.domains.keys()
    remedy = f"name the libvirt of that machine in site.yaml: hosts.{name}.libvirt"
    if servers and not here:
        found = f"{uri} is {machine.name}, which has none of the servers that Nova has on {name}"
        return fail(subject, f"{found}, {told}", remedy)
    if not here and not _same(machine.name, told):
        return fail(subject, f"{uri} is {machine.name}, and Nova's worker is {told}", remedy)
    shown = f", {len(here)} of Nova's {len(servers)} active servers" if here else ""
    return ok(subject, f"{uri} is {machine.name}{shown}")


def check_distinct(_: Connection, site: Site) -> Diagnosis:
    """Check that no two hosts of site.yaml are the same machine: each would promise its devices."""
    subject, names = "machines of site.yaml", defaultdict(list)
    for name, host in site.hosts.items():
        machine = _machine(host.libvirt, site.limits.call)
        if isinstance(machine, Machine) and machine.uuid:
            names[machine.name, machine.uuid].append(name)
    twice = [found for found in names.values() if len(found) > 1]
    if twice:
        found = "; ".join(f"{' and '.join(each)} are the same machine" for each in twice)
        return fail(subject, found, "remove all but one of them from hosts in site.yaml")
    known = sum(map(len, names.values()))
    return ok(subject, f"{known} of {len(site.hosts)} tell their system's UUID, each another one")


def check_root_ports(connection: Connection, site: Site, name: str) -> Diagnosis:
    """Check that servers on a worker have root ports to spare for devices."""
    subject = f"root ports on {name}"
    machine = _machine(site.host(name).libvirt, site.limits.call)
    if isinstance(machine, str):
        return info(subject, f"not known: {machine}")
    servers = [root for root in machine.domains.values() if _is_novas(root)]
    if not servers:
        named = ", ".join(_named_types(connection, site)) or "no image of site.yaml names one"
        return info(subject, f"not known: no server of Nova's is there; machine types: {named}")
    spare, root = max(((_spare(root), root) for root in servers), key=lambda each: each[0])
    server = root.findtext("name")
    kind = root.find("os/type")
    found = f"{server} ({kind.get('machine') if kind is not None else '?'}) has {spare} to spare"
    return ok(subject, found) if spare else warn(subject, found, _PORTS)


def _spare(root: ElementTree.Element) -> int:
    # Here, because libvirt-python may be missing.
    from fabric_direct.drivers.libvirt.passthrough.pcie_ports import free_ports  # noqa: PLC0415

    return len(free_ports(root))


def _is_novas(root: ElementTree.Element) -> bool:
    return any(each.tag.startswith(f"{{{_NOVA}") for each in root.iterfind("metadata/*"))


def _named_types(connection: Connection, site: Site) -> Iterable[str]:
    for name in site.images:
        image = connection.image.find_image(name)
        if image is not None and image.hw_machine_type:
            yield f"{image.hw_machine_type} ({name})"


def _same(one: str, other: str) -> bool:
    """Return whether two names are one machine's; one of them may lack its domain."""
    first, second = one.lower(), other.lower()
    short = "." not in first or "." not in second
    return first == second or (short and first.partition(".")[0] == second.partition(".")[0])


def _hypervisor(connection: Connection, name: str) -> str | None:
    """Return the name of the machine on which a compute service runs, if we may know it."""
    try:
        there = list(connection.compute._list(Hypervisor))
    except ForbiddenException:
        return None
    return next((h.hypervisor_hostname for h in there if h.service["host"] == name), None)


def _servers(connection: Connection, name: str) -> set[str]:
    """Return the ids of the active servers on a worker, of all projects."""
    list_servers = partial(connection.compute.servers, details=False, all_projects=True)
    try:
        return {server.id for server in list_servers(compute_host=name, status="ACTIVE")}
    except ForbiddenException:
        return set()


def _machine(uri: str, limit: float) -> Machine | str:
    """Return what libvirt says of its machine, or why it says nothing."""
    try:
        return call_within(limit, f"libvirt at {uri}", _read, uri)
    except ImportError as error:
        return str(error)
    except FabricDirectError as error:
        return error.what


def _read(uri: str) -> Machine:
    # Here, because libvirt-python may be missing.
    from fabric_direct.drivers.libvirt.connection import connections  # noqa: PLC0415

    connection = connections.connect(uri)
    with connections.translated("ask which machine it is", uri):
        host = ElementTree.fromstring(connection.getCapabilities())
        domains = {d.UUIDString(): d.XMLDesc() for d in connection.listAllDomains()}
        found = {uuid: ElementTree.fromstring(xml) for uuid, xml in domains.items()}
        return Machine(connection.getHostname(), host.findtext("host/uuid", ""), found)
