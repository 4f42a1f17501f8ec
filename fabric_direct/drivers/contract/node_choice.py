"""Which bare-metal nodes a sliver can have, and how what it has differs from what it asks for."""

from collections.abc import Iterator, Sequence

from fabric_direct.drivers.contract.bare_metal import BareMetalNode, NodeCondition
from fabric_direct.errors import InvalidSliver, NoHost
from fabric_direct.model.bare_metal import BareMetalSliver, BareMetalStamp
from fabric_direct.site.config import Site

_GIB = 1024
_MOST = 5
"""Nodes that a message names."""


def choose(nodes: Sequence[BareMetalNode], sliver: BareMetalSliver) -> tuple[BareMetalNode, ...]:
    """Return the free nodes that a sliver can have, the smallest first.

    :raises InvalidSliver: with the field, if no node of the site could ever serve it.
    :raises NoHost: if none that could is free; each is named with the reason.
    """
    if sliver.node is not None and sliver.node not in {node.name for node in nodes}:
        known = ", ".join(node.name for node in nodes) or "none"
        raise InvalidSliver(f"no node {sliver.node!r}", field="node", why=f"known: {known}")
    fitting = [node for node in nodes if not any(_unfit(node, sliver))]
    if not fitting:
        raise _never(nodes, sliver)
    free = [node for node in fitting if node.condition is NodeCondition.FREE]
    if not free:
        named = "; ".join(f"{node.name} is {_taken(node)}" for node in fitting[:_MOST])
        more = f"; and {len(fitting) - _MOST} others" if len(fitting) > _MOST else ""
        raise NoHost(f"no node is free for {sliver.id}", why=f"{named}{more}")
    return tuple(sorted(free, key=lambda node: (size_of(node), node.name)))


def size_of(node: BareMetalNode) -> tuple[int, int, int, str]:
    """Return the size of a node, to order nodes by, with its resource class."""
    return (node.cores or 0, node.ram or 0, node.disk or 0, node.resource_class or "")


def refuse_unknown_image(site: Site, sliver: BareMetalSliver) -> None:
    """Raise InvalidSliver unless site.yaml has the sliver's image."""
    if sliver.image not in site.ironic.images:
        why = f"ironic.images of site.yaml has {', '.join(site.ironic.images) or 'none'}"
        raise InvalidSliver(f"no image {sliver.image!r}", field="image", why=why)


def nic_macs(sliver: BareMetalSliver, node: BareMetalNode) -> dict[str, str]:
    """Return the MAC address of each NIC: the one that it names, or the next that none names."""
    named = {nic.mac for nic in sliver.nics}
    left = iter([port.mac for port in node.ports if port.mac not in named])
    return {nic.id: nic.mac or next(left, "") for nic in sliver.nics}


def node_differences(wanted: BareMetalSliver, node: BareMetalNode) -> tuple[str, ...]:
    """Return the differences between a sliver's node and what it asks for, a sentence each.

    A node that is off does not differ: somebody may have switched it off.
    """
    return tuple(_differences(wanted, node))


def _differences(wanted: BareMetalSliver, node: BareMetalNode) -> Iterator[str]:
    if node.condition is not NodeCondition.ACTIVE:
        why = f": {node.why}" if node.why else ""
        yield f"node {node.name} is {node.condition} ({node.state}){why}"
    for field, why in _unfit(node, wanted):
        yield f"{field}: {why}"
    if node.stamp is None:
        yield "its stamp does not say what was asked for"
        return
    yield from (f"{field} differs" for field in differing(wanted, node.stamp))


def differing(wanted: BareMetalSliver, stamp: BareMetalStamp) -> Iterator[str]:
    """Yield the fields in which a sliver differs from a stamp; a boot script, if the sliver has one."""
    was, now = stamp.sliver.model_dump(), wanted.without_secrets().model_dump()
    yield from (field for field in now if was[field] != now[field])
    asked = wanted.stamp().boot_script_sha256
    if asked not in {None, stamp.boot_script_sha256}:
        yield "boot_script"


def refuse_fixed(wanted: BareMetalSliver, stamp: BareMetalStamp) -> None:
    """Raise InvalidSliver if a field differs from the stamp, and is fixed once a node is deployed."""
    for field in differing(wanted, stamp):
        if field != "name":
            raise InvalidSliver(
                "cannot be changed on a node that is deployed",
                field=field,
                remedy="delete the sliver and create it again, or change it within its system",
            )


def _never(nodes: Sequence[BareMetalNode], sliver: BareMetalSliver) -> InvalidSliver:
    """Return the error of a sliver that no node fits: by the field that rules the last ones out."""
    left = [node for node in nodes if sliver.node in {None, node.name}]
    if not left:
        return InvalidSliver("the site has no bare-metal nodes", field="type")
    fields = ("resource_class", "traits", "capacities", "nics")
    for field in fields:
        reasons = [next((why for f, why in _unfit(n, sliver) if f == field), "") for n in left]
        kept = [node for node, why in zip(left, reasons, strict=True) if not why]
        if not kept:
            named = "; ".join(dict.fromkeys(reasons[:_MOST]))
            return InvalidSliver("no node has this", field=field, why=named)
        left = kept
    raise AssertionError(left)  # one that nothing rules out fits


def _unfit(node: BareMetalNode, sliver: BareMetalSliver) -> Iterator[tuple[str, str]]:
    """Yield the fields by which a node does not fit a sliver, and why."""
    if sliver.node not in {None, node.name}:
        yield "node", f"{node.name} is not {sliver.node}"
    if sliver.resource_class not in {None, node.resource_class}:
        has = node.resource_class or "none"
        yield "resource_class", f"{node.name} has {has}"
    if missing := sorted({*sliver.traits} - {*node.traits}):
        yield "traits", f"{node.name} lacks {', '.join(missing)}"
    asked = sliver.capacities
    sizes = (
        ("core", asked.core, node.cores),
        ("ram", asked.ram and asked.ram * _GIB, node.ram),
        ("disk", asked.disk, node.disk),
    )
    if small := [name for name, least, has in sizes if least and (has is None or has < least)]:
        yield "capacities", f"{node.name} has too little {', '.join(small)}, or does not tell it"
    macs = {port.mac for port in node.ports}
    if len(sliver.nics) > len(macs):
        yield "nics", f"{node.name} has {len(macs)} network interfaces"
    elif foreign := sorted({nic.mac for nic in sliver.nics if nic.mac} - macs):
        yield "nics", f"{node.name} has no {', '.join(foreign)}"


def _taken(node: BareMetalNode) -> str:
    by = f" by {node.tenant}" if node.tenant else ""
    why = f" ({node.why})" if node.why else ""
    return f"{node.condition}{by}{why}"
