"""Which bare-metal nodes a sliver can have, and how what it has differs from what it asks for."""

from collections.abc import Collection, Hashable, Iterator, Sequence

from fabric_direct.drivers.contract.bare_metal import BareMetalNode, NodeCondition
from fabric_direct.errors import InvalidSliver, NoHost
from fabric_direct.model.bare_metal import BareMetalSliver, BareMetalStamp, NodeNeeds, NodeNic
from fabric_direct.site.config import Site

_GIB = 1024
MOST_NAMED = 5
"""Nodes that a message names."""
_DEPLOYED = frozenset({"image", "nics", "ssh_keys", "boot_script"})
"""Fields that a deployment sets, on whichever node. The name is changed without one, too."""
_REBUILD = "set rebuild: true, which ends what is on its disk"


def choose(nodes: Sequence[BareMetalNode], sliver: BareMetalSliver) -> tuple[BareMetalNode, ...]:
    """Return the free nodes that a sliver can have, the smallest first.

    :raises InvalidSliver: with the field, if no node of the site could ever serve it.
    :raises NoHost: if none that could is free; each is named with the reason.
    """
    needs = sliver.needs
    fitting = [node for node in sorted(nodes, key=order_of) if not any(unfit(node, needs))]
    if not fitting:
        raise never(nodes, needs)
    free = [node for node in fitting if node.condition is NodeCondition.FREE]
    if not free:
        raise NoHost(f"no node is free for {sliver.id}", why=taken(fitting, len(fitting)))
    return tuple(free)


def order_of(node: BareMetalNode) -> tuple[tuple[int, int, int, str], str]:
    """Return the key by which nodes are preferred: the smallest first, then by name."""
    return size_of(node), node.name


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
    for field, why in unfit(node, wanted.needs):
        yield f"{field}: {why}"
    if node.stamp is None:
        yield "its stamp does not say what was asked for"
        return
    if node.stamp.rebuild_due:
        yield f"node {node.name} is to be rebuilt: that was begun, and not seen to end"
    yield from (f"{field} differs" for field in differing(wanted, node.stamp))


def differing(wanted: BareMetalSliver, stamp: BareMetalStamp) -> Iterator[str]:
    """Yield the fields in which a sliver differs from a stamp; a boot script, if the sliver has one.

    Not ``node``: which one it is, the stamp tells by being on it.
    """
    was, now = stamp.sliver.model_dump(), wanted.without_secrets().model_dump()
    yield from (field for field in now if field != "node" and was[field] != now[field])
    asked = wanted.stamp().boot_script_sha256
    if asked not in {None, stamp.boot_script_sha256}:
        yield "boot_script"


def needs_deployment(wanted: BareMetalSliver, stamp: BareMetalStamp) -> bool:
    """Return whether a node has to be deployed anew to become what a sliver asks for."""
    return stamp.rebuild_due or not _DEPLOYED.isdisjoint(differing(wanted, stamp))


def refuse_fixed(wanted: BareMetalSliver, node: BareMetalNode, *, rebuild: bool = False) -> None:
    """Raise InvalidSliver if a field differs from the node's stamp, and is fixed once it is deployed.

    A node without a stamp that can be read, and one that is named by it, are not refused.

    :param node: with its ports, if it may be rebuilt.
    :param rebuild: whether it may be: then it must fit the sliver, and what a deployment sets is free;
        NICs that are on a network keep their ports.
    """
    stamp = node.stamp
    if stamp is None:
        return
    for field in _fixed(wanted, node, stamp, rebuild=rebuild):
        remedy = _REBUILD if field in _DEPLOYED else "delete the sliver and create it again"
        raise InvalidSliver(
            "cannot be changed on a node that is deployed",
            field=field,
            remedy=f"{remedy}, or change it within its system",
        )
    if rebuild:
        _refuse_unfit(wanted, node)
    elif stamp.rebuild_due and node.condition is NodeCondition.ACTIVE:
        raise InvalidSliver(
            f"a rebuild of node {node.name} was begun, and not seen to end",
            field="rebuild",
            remedy=f"{_REBUILD}, or delete the sliver",
        )


def _fixed(
    wanted: BareMetalSliver, node: BareMetalNode, stamp: BareMetalStamp, *, rebuild: bool
) -> Iterator[str]:
    """Yield the fields that differ, and must not."""
    if wanted.node not in {None, node.name}:
        yield "node"
    free = {"name", *_DEPLOYED} if rebuild else {"name"}
    yield from (field for field in differing(wanted, stamp) if field not in free)
    if rebuild and on_networks(wanted) != on_networks(stamp.sliver):
        yield "nics.network"


def on_networks(sliver: BareMetalSliver) -> tuple[NodeNic, ...]:
    """Return the NICs that are on a network."""
    return tuple(nic for nic in sliver.nics if nic.network is not None)


def _refuse_unfit(wanted: BareMetalSliver, node: BareMetalNode) -> None:
    for field, why in unfit(node, wanted.needs):
        raise InvalidSliver("its node does not fit", field=field, why=why)


def never(nodes: Sequence[BareMetalNode], needs: NodeNeeds) -> InvalidSliver:
    """Return the error of a sliver that no node fits: by the field that rules the last ones out."""
    if needs.node is not None and needs.node not in {node.name for node in nodes}:
        known = ", ".join(node.name for node in nodes) or "none"
        return InvalidSliver(f"no node {needs.node!r}", field="node", why=f"known: {known}")
    left = [node for node in nodes if needs.node in {None, node.name}]
    if not left:
        return InvalidSliver("the site has no bare-metal nodes", field="type")
    fields = ("resource_class", "traits", "capacities", "nics")
    for field in fields:
        reasons = [next((why for f, why in unfit(n, needs) if f == field), "") for n in left]
        kept = [node for node, why in zip(left, reasons, strict=True) if not why]
        if not kept:
            named = "; ".join(dict.fromkeys(reasons[:MOST_NAMED]))
            return InvalidSliver("no node has this", field=field, why=named)
        left = kept
    raise AssertionError(left)  # one that nothing rules out fits


def taken(nodes: Sequence[BareMetalNode], number: int) -> str:
    """Return why none of some nodes is free.

    :param nodes: the first ``MOST_NAMED`` of them, or all; these are named.
    :param number: how many there are.
    """
    named = [not_free(node) for node in nodes[:MOST_NAMED]]
    more = number - len(named)
    return "; ".join(named + ([f"and {more} others"] if more else []))


def why_not(node: BareMetalNode, needs: NodeNeeds) -> Iterator[tuple[str, str]]:
    """Yield why a sliver cannot have a node now: the field or ``condition``, and the reason."""
    yield from unfit(node, needs)
    if node.condition is not NodeCondition.FREE:
        yield "condition", not_free(node)


def unfit(node: BareMetalNode, needs: NodeNeeds) -> Iterator[tuple[str, str]]:
    """Yield the fields by which a node does not fit a sliver, and why.

    What it looks at of a node is in :func:`shape_of`, too.
    """
    if needs.node not in {None, node.name}:
        yield "node", f"{node.name} is not {needs.node}"
    if needs.resource_class not in {None, node.resource_class}:
        has = node.resource_class or "none"
        yield "resource_class", f"{node.name} has {has}"
    if missing := sorted({*needs.traits} - {*node.traits}):
        yield "traits", f"{node.name} lacks {', '.join(missing)}"
    asked = needs.capacities
    sizes = (
        ("core", asked.core, node.cores),
        ("ram", asked.ram and asked.ram * _GIB, node.ram),
        ("disk", asked.disk, node.disk),
    )
    if small := [name for name, least, has in sizes if least and (has is None or has < least)]:
        yield "capacities", f"{node.name} has too little {', '.join(small)}, or does not tell it"
    macs = {port.mac for port in node.ports}
    if needs.nics > len(macs):
        yield "nics", f"{node.name} has {len(macs)} network interfaces"
    elif foreign := sorted({*needs.macs} - macs):
        yield "nics", f"{node.name} has no {', '.join(foreign)}"


def shape_of(node: BareMetalNode, names: Collection[str], macs: Collection[str]) -> Hashable:
    """Return a key that is equal for nodes that fit the same slivers.

    :param names: the nodes that slivers name, and ``macs``: the MAC addresses. A node that has neither
        is like any other of its model.
    """
    named = node.name if node.name in names else None
    own = {port.mac for port in node.ports}
    size = (node.cores, node.ram, node.disk)
    return (
        named,
        node.resource_class,
        node.traits,
        size,
        len(own),
        frozenset(own.intersection(macs)),
    )


def not_free(node: BareMetalNode) -> str:
    """Return in a few words why a node is not free."""
    by = f" by {node.tenant}" if node.tenant else ""
    why = f" ({node.why})" if node.why else ""
    return f"{node.name} is {node.condition}{by}{why}"
