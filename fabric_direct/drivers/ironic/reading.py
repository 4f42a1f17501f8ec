"""Nodes as Ironic tells them, as bare-metal nodes of a site."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from openstack.baremetal.v1.node import Node
from openstack.baremetal.v1.port import Port
from pydantic import ValidationError

from fabric_direct.drivers.contract.bare_metal import BareMetalNode, NodeCondition, NodePort, Power
from fabric_direct.drivers.ironic.states import condition
from fabric_direct.model.bare_metal import BareMetalStamp

STAMP = "fabric-direct"
"""The key of ``extra`` that has the stamp: ``site``, ``sliver``, ``asked``; of a node, not of an
allocation, also the ``allocation`` that it was given by."""
_POWER: Mapping[str | None, Power] = {"power on": "on", "power off": "off"}


def stamp_of(site: str, stamp: BareMetalStamp) -> dict[str, Any]:
    """Return the stamp of a sliver, as ``extra`` has it."""
    asked = stamp.model_dump(mode="json", exclude_defaults=True)
    return {"site": site, "sliver": stamp.sliver.id, "asked": asked}


def sliver_of(site: str, extra: Mapping[str, Any] | None) -> str | None:
    """Return the sliver of a stamp of this site; None of others'."""
    stamp = (extra or {}).get(STAMP)
    if isinstance(stamp, dict) and stamp.get("site") == site and stamp.get("sliver"):
        return str(stamp["sliver"])
    return None


def tenant_of(site: str, node: Node) -> str | None:
    """Return the sliver whose stamp a node carries, unless somebody else has got it since.

    Who was killed before the stamp was removed leaves it, and Ironic gives the node away all the same.
    """
    sliver = sliver_of(site, node.extra)
    ours = sliver and node.instance_id in {None, node.extra[STAMP].get("allocation")}
    return sliver if ours else None


def read_node(site: str, node: Node, ports: tuple[NodePort, ...] = ()) -> BareMetalNode:
    """Return a node.

    :param site: the site whose stamp makes a sliver its tenant.
    """
    stamp = (node.extra or {}).get(STAMP)
    sliver = tenant_of(site, node)
    tenant = node.instance_id or node.allocation_id
    has: Mapping[str, Any] = node.properties or {}
    means = condition(
        node.provision_state,
        taken=bool(tenant),
        stamped=isinstance(stamp, dict),
        set_apart=bool(node.is_maintenance or node.is_retired or _flaw(node)),
    )
    why = _why(node)
    if means is NodeCondition.FREE and not node.resource_class:  # Ironic allocates by it alone
        means, why = NodeCondition.WITHHELD, "it has no resource class"
    return BareMetalNode(
        id=node.id,
        name=node.name or node.id,
        condition=means,
        state=node.provision_state,
        power=_POWER.get(node.power_state),
        resource_class=node.resource_class,
        traits=tuple(sorted(node.traits or ())),
        cores=_number(has.get("cpus")),
        ram=_number(has.get("memory_mb")),
        disk=_number(has.get("local_gb")),
        architecture=str(has["cpu_arch"]) if has.get("cpu_arch") else None,
        ports=ports,
        tenant=sliver or tenant,
        sliver=sliver,
        stamp=_stamp(stamp) if sliver else None,
        why=why,
    )


def by_node(ports: Iterable[Port]) -> Mapping[str, tuple[NodePort, ...]]:
    """Return ports by the ids of their nodes."""
    found: dict[str, tuple[NodePort, ...]] = defaultdict(tuple)
    for port in sorted(ports, key=lambda each: str(each.address)):
        found[port.node_id] += (NodePort(port.address, port.physical_network),)
    return found


def _flaw(node: Node) -> str:
    """Return why a node is not fit for anybody; empty if it is.

    Ironic allocates no node whose power state it does not know. Who gets one that it is told not to
    clean gets what is on it.
    """
    if node.is_automated_clean_enabled is False:
        return "automated_clean is off"
    return "" if node.power_state else "Ironic does not know its power state"


def _why(node: Node) -> str:
    if node.is_maintenance or node.is_retired:
        return str(node.maintenance_reason or node.retired_reason or "")
    return str(node.last_error or _flaw(node))


def _stamp(found: Any) -> BareMetalStamp | None:
    """Return what a stamp says that the sliver asked for; None if it cannot be read."""
    try:
        return BareMetalStamp.model_validate(found["asked"])
    except (LookupError, ValidationError):
        return None


def _number(value: object) -> int | None:
    """Return a property's number: Ironic keeps what its operator wrote, a number or its digits."""
    return int(str(value)) if str(value).isdecimal() else None
