"""Our domains: how they are named, stamped and found."""

import re
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.etree import ElementTree

import libvirt
from pydantic import ValidationError

from fabric_direct.drivers.libvirt.connection.connections import Ignoring
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import NotFound, NotOurs
from fabric_direct.model import NodeSliver, Stamp

# The NUMA nodes in the capabilities of a host.
CELLS = "host/topology/cells/cell"
OURS = "ua-"
"""How aliases begin that libvirt leaves to users; others are libvirt's own."""
_NAMESPACE = uuid5(NAMESPACE_URL, STAMP_NAMESPACE)
# End of the alias of a NIC whose port another sliver holds.
_HELD = re.compile(r"p[0-9]+")


def domain_uuid(sliver_id: str) -> UUID:
    """Return the UUID of the sliver's domain, derived from the sliver's id alone."""
    return uuid5(_NAMESPACE, sliver_id)


def domain_name(sliver: NodeSliver) -> str:
    """Return ``<sliver>-<name>``."""
    return f"{sliver.id}-{sliver.name}"


def alias(sliver_id: str, component: str, number: int = 0) -> str:
    """Return ``ua-<sliver>-<component>-<n>``, a device's stamp (libvirt keeps ``ua-`` for users)."""
    return f"ua-{sliver_id}-{component}-{number}"


def nic_alias(sliver_id: str, component: str, holder: str) -> str:
    """Return the stamp of a NIC: its own sliver's, or that of the ``holder`` of its port.

    The latter is ``ua-<holder>-<component>-p<length of the holder's id>``: ids may contain ``-``, so
    without the length two of them could give the same alias in one domain.
    """
    if holder == sliver_id:
        return alias(sliver_id, component)
    return f"ua-{holder}-{component}-p{len(holder)}"


def component_of(device_alias: str | None, sliver_id: str) -> str | None:
    """Return the component that a device's alias names, or None if it is not this sliver's."""
    component, end = _parts(device_alias, sliver_id)
    return None if _HELD.fullmatch(end) else component or None


def held_component(device_alias: str | None, holder: str) -> str | None:
    """Return the component that a NIC's alias names if its port is held by this sliver, or None."""
    component, end = _parts(device_alias, holder)
    return component or None if end == f"p{len(holder)}" else None


def _parts(device_alias: str | None, sliver_id: str) -> tuple[str, str]:
    """Return the parts of an alias after the sliver: the component, and the end."""
    prefix = f"ua-{sliver_id}-"
    if device_alias is None or not device_alias.startswith(prefix):
        return "", ""
    component, _, end = device_alias.removeprefix(prefix).rpartition("-")
    return component, end


def find_domain(
    connection: libvirt.virConnect, sliver_id: str, site: str
) -> libvirt.virDomain | None:
    """Return the domain of the site's sliver, or None if there is none.

    :raises NotOurs: if a domain has its UUID without its stamp, or with another site's.
    """
    with absent_domain_is_fine():
        domain = connection.lookupByUUID(domain_uuid(sliver_id).bytes)
        check_stamp(read_stamp(domain, site), domain.name(), sliver_id)
        return domain
    return None


def absent_domain_is_fine() -> Ignoring:
    """End the block without an error when libvirt answers that there is no such domain."""
    return Ignoring(libvirt.VIR_ERR_NO_DOMAIN)


def the_domain(connection: libvirt.virConnect, sliver_id: str, site: str) -> libvirt.virDomain:
    """Return the domain of the site's sliver.

    :raises NotFound: if there is none.
    """
    domain = find_domain(connection, sliver_id, site)
    if domain is None:
        raise NotFound(f"sliver {sliver_id} has no domain", where=connection.getURI())
    return domain


def check_stamp(stamp: Stamp | None, name: str, sliver_id: str) -> None:
    """Raise NotOurs unless the stamp of the domain of that name is the sliver's."""
    if stamp is None or stamp.sliver.id != sliver_id:
        raise NotOurs(f"domain {name} is not ours", why="it has no stamp of the sliver")


def read_stamp(domain: libvirt.virDomain, site: str) -> Stamp | None:
    """Return the domain's stamp, or None if it carries none of the site, or none that can be read."""
    with Ignoring(libvirt.VIR_ERR_NO_DOMAIN_METADATA):
        xml = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, STAMP_NAMESPACE)
        return _stamp(ElementTree.fromstring(xml), site)
    return None


def stamp_in(root: ElementTree.Element, site: str | None = None) -> Stamp | None:
    """Return the stamp in a domain's whole XML, or None if it carries none that can be read.

    :param site: the site whose stamp counts; any site's if absent.
    """
    element = root.find(f"metadata/{{{STAMP_NAMESPACE}}}stamp")
    return None if element is None else _stamp(element, site)


def _stamp(element: ElementTree.Element, site: str | None) -> Stamp | None:
    if site not in {None, element.get("site")}:
        return None
    try:
        return Stamp.model_validate_json(element.text or "")
    except ValidationError:
        return None


def stamped_sliver(domain: libvirt.virDomain, site: str) -> str | None:
    """Return the sliver whose domain it is, None if it has no stamp of the site.

    Empty if the stamp cannot be read, or was copied from another domain: its UUID is another one then.
    """
    found = stamped_site(domain)
    if found != site:
        return None
    stamp = read_stamp(domain, site)
    own = stamp is not None and str(domain_uuid(stamp.sliver.id)) == domain.UUIDString()
    return stamp.sliver.id if stamp and own else ""


def stamped_site(domain: libvirt.virDomain) -> str | None:
    """Return the site that stamped a domain, or None if none has."""
    with Ignoring(libvirt.VIR_ERR_NO_DOMAIN_METADATA):
        xml = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, STAMP_NAMESPACE)
        return ElementTree.fromstring(xml).get("site")
    return None


def of_other_sites(connection: libvirt.virConnect, site: str) -> set[str]:
    """Return the slivers whose domains another site has stamped."""
    found: set[str] = set()
    for domain in connection.listAllDomains():
        with absent_domain_is_fine():
            other = stamped_site(domain)
            stamp = read_stamp(domain, other) if other not in {None, site} else None
            found |= {stamp.sliver.id} if stamp else set()
    return found


def held_nics(domain: libvirt.virDomain) -> set[tuple[str, str]]:
    """Return holder and component of the NICs whose ports other slivers hold, live or as defined."""
    roots = map(ElementTree.fromstring, definitions(domain).values())
    aliases = (
        a.get("name", "") for root in roots for a in root.iterfind("devices/interface/alias")
    )
    return {held for alias in aliases if (held := _holder(alias))}


def _holder(device_alias: str) -> tuple[str, str] | None:
    """Return holder and component of ``ua-<holder>-<component>-p<length of the holder's id>``."""
    end = device_alias.rpartition("-")[2]
    if not _HELD.fullmatch(end):
        return None
    holder = device_alias.removeprefix("ua-")[: int(end[1:])]
    component = held_component(device_alias, holder)
    return (holder, component) if component else None


def scope(domain: libvirt.virDomain) -> int:
    """Return the flags for a change now, if the domain runs, and for later starts."""
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0
    return int(libvirt.VIR_DOMAIN_AFFECT_CONFIG | live)


def scopes(domain: libvirt.virDomain) -> list[int]:
    """Return the flags of :func:`scope` one by one, live first: what fails now changes no definition."""
    both = (libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    return [flag for flag in both if scope(domain) & flag]


def definitions(domain: libvirt.virDomain) -> dict[int, str]:
    """Return the domain's XML by scope: as defined and, if it runs, live.

    :raises libvirt.libvirtError: if the domain is gone or libvirt does not answer.
    """
    text = domain.XMLDesc(0)
    # Only what runs has an id; a call to ask for that would cost as much as the XML.
    if " id=" not in text.partition(">")[0]:
        return {libvirt.VIR_DOMAIN_AFFECT_CONFIG: text}
    inactive = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    return {libvirt.VIR_DOMAIN_AFFECT_CONFIG: inactive, libvirt.VIR_DOMAIN_AFFECT_LIVE: text}


def has_alias(text: str, name: str) -> bool:
    """Return whether a domain's XML has a device of this alias."""
    # Most looks end here: reading XML takes longer than libvirt takes to send it.
    if name not in text:
        return False
    aliases = ElementTree.fromstring(text).iterfind("devices/*/alias")
    return any(element.get("name") == name for element in aliases)
