"""A bare-metal node as what a sliver has."""

from fabric_direct.drivers.contract.bare_metal import BareMetalNode
from fabric_direct.drivers.contract.network_services import Service
from fabric_direct.drivers.contract.node_choice import nic_macs
from fabric_direct.drivers.contract.stamped import Stamped
from fabric_direct.model import ObservedInterface, State


def node_service(node: BareMetalNode) -> Service:
    """Return a node that is deployed as the service of the sliver whose stamp it carries."""
    asked = node.stamp.sliver if node.stamp else None
    settled = node.stamp.settled if node.stamp else None
    macs = nic_macs(asked, node) if asked else {}
    return Service(
        sliver=node.sliver or "",
        source=node.id,
        name=asked.name if asked else node.name,
        interfaces=tuple(
            ObservedInterface(
                component=nic.id,
                mac=macs[nic.id],
                network=nic.network,
                addresses=tuple(str(a) for a in (nic.ipv4, nic.ipv6) if a),
            )
            for nic in (settled.nics if settled else ())
        ),
        stamp=asked,
        type="BareMetal",
        host=node.name,
        state=State.STOPPED if node.power == "off" else State.RUNNING,
    )


def stamped_node(node: BareMetalNode) -> Stamped:
    """Return a node as what carries the stamp of a sliver, with the addresses that this names."""
    nics = node.stamp.settled.nics if node.stamp else ()
    addresses = tuple(str(each.ip) for nic in nics for each in (nic.ipv4, nic.ipv6) if each)
    return Stamped(node.sliver or "", "BareMetal", node.name, addresses=addresses)
