"""The resources of a libvirt host, and what its domains use of them."""

from collections.abc import Iterator
from urllib.parse import urlsplit
from xml.etree import ElementTree

import libvirt

from fabric_direct.drivers.contract import HostInventory, HostNode
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.servers.cpu_traits import cpu_traits
from fabric_direct.drivers.libvirt.storage.pool import GIB, OwnPool
from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Site

_KIB_PER_MIB = 1024
# The machine type of our domains, whose architecture is the host's.
_MACHINE = "q35"


def read_inventory(
    connection: libvirt.virConnect, site: Site, host: str, virt_type: str
) -> HostInventory:
    """Return what a host has for domains of a virtualization type.

    Native errors pass through: the caller translates them.
    """
    capabilities = ElementTree.fromstring(connection.getCapabilities())
    architecture, memory, cores, *_ = connection.getInfo()
    domains = list(_domains(connection))
    slivers = [sliver for domain in domains if (sliver := _sliver(domain, site.site))]
    # After the domains: the disks of each that was seen are there, and so are counted.
    disk, disk_used = OwnPool.of(site, host).room()
    return HostInventory(
        host=host,
        cores=cores,
        ram=memory,
        disk=disk // GIB,
        cores_used=sum(int(domain.findtext("vcpu", "0")) for domain in domains),
        ram_used=-(-sum(int(d.findtext("memory", "0")) for d in domains) // _KIB_PER_MIB),
        disk_used=-(-disk_used // GIB),
        nodes=tuple(_nodes(capabilities)),
        architectures=frozenset(_architectures(capabilities, virt_type)),
        traits=cpu_traits(architecture, _cpu_features(connection, architecture, virt_type)),
        images=_images(site, host),
        slivers={sliver.id: sliver.owner for sliver in slivers},
    )


def _domains(connection: libvirt.virConnect) -> Iterator[ElementTree.Element]:
    """Yield the XML of all domains, running or not, whoever made them."""
    for domain in connection.listAllDomains():
        with lookup.absent_domain_is_fine():
            yield ElementTree.fromstring(domain.XMLDesc(0))


def _sliver(domain: ElementTree.Element, site: str) -> NodeSliver | None:
    """Return the site's sliver in a domain's stamp; None if it has no stamp that can be read."""
    stamp = lookup.stamp_in(domain, site)
    return stamp.sliver if stamp else None


def _nodes(capabilities: ElementTree.Element) -> Iterator[HostNode]:
    for cell in capabilities.iterfind(lookup.CELLS):
        siblings = cell.iterfind("distances/sibling")
        yield HostNode(
            id=int(cell.attrib["id"]),
            cores=len(cell.findall("cpus/cpu")),
            ram=int(cell.findtext("memory", "0")) // _KIB_PER_MIB,
            distances={int(each.attrib["id"]): int(each.attrib["value"]) for each in siblings},
        )


def _architectures(capabilities: ElementTree.Element, virt_type: str) -> Iterator[str]:
    """Yield those that have our domains' machine type, by this virtualization type."""
    for arch in capabilities.iterfind("guest/arch"):
        types = {each.get("type") for each in arch.iterfind("domain")}
        machines = {each.text for each in arch.iter("machine")}
        if virt_type in types and _MACHINE in machines:
            yield arch.attrib["name"]


def _cpu_features(
    connection: libvirt.virConnect, architecture: str, virt_type: str
) -> tuple[str, ...]:
    """Return the features of the CPU that a domain is given: of the host's own, or QEMU's."""
    text = connection.getDomainCapabilities(None, architecture, _MACHINE, virt_type)
    mode = ElementTree.fromstring(text).find("cpu/mode[@name='host-model'][@supported='yes']")
    if mode is None:
        return ()
    cpu = ElementTree.Element("cpu")
    cpu.extend(mode)
    whole = connection.baselineHypervisorCPU(
        None,
        architecture,
        _MACHINE,
        virt_type,
        [ElementTree.tostring(cpu, encoding="unicode")],
        libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES,
    )
    features = ElementTree.fromstring(whole).iterfind("feature")
    return tuple(each.attrib["name"] for each in features if each.get("policy") != "disable")


def _images(site: Site, host: str) -> frozenset[str] | None:
    """Return the site's images whose files are on the host; None if the host cannot be asked."""
    settings = site.host(host)
    if settings.ssh is None and urlsplit(settings.libvirt).hostname:
        return None
    paths = {name: str(image.path) for name, image in site.images.items() if image.path}
    limit = site.limits.call
    there = host_driver(site, host).call("files.there", timeout=limit, paths=[*paths.values()])
    return frozenset(name for name, path in paths.items() if path in there)
