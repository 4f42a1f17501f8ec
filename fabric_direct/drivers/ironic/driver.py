"""The driver of bare-metal nodes: Ironic's API, by openstacksdk."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from openstack.baremetal.v1.node import Node
from openstack.baremetal.v1.port import Port
from openstack.connection import Connection

from fabric_direct.drivers.contract.bare_metal import BareMetalNode, NodePort
from fabric_direct.drivers.ironic.states import condition
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import OpenStackSettings, Site

STAMP = "fabric-direct"
"""The key of a node's ``extra`` that has the stamp: the site's name and the sliver's id."""
_POWER: Mapping[str | None, Literal["on", "off"]] = {"power on": "on", "power off": "off"}


class IronicBareMetal:
    """A :class:`~fabric_direct.drivers.contract.BareMetalDriver` by Ironic."""

    def __init__(self, site: Site, host: str = "") -> None:  # noqa: ARG002 - as for all drivers
        """Make a driver; it sends no request before its first call.

        :raises InvalidSite: if neither ``ironic`` nor ``openstack`` of site.yaml names a cloud.
        """
        self._site = site
        self._settings = _settings(site)
        self._where = f"cloud {self._settings.cloud}"

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return all nodes that this user sees, by name."""
        with translated("list bare-metal nodes", self._where):
            ports = _by_node(self._cloud().baremetal.ports(details=True))
            found = [
                self._node(node, ports[node.id])
                for node in self._cloud().baremetal.nodes(details=True)
            ]
        return tuple(sorted(found, key=lambda node: (node.name, node.id)))

    def examine(self) -> tuple[str, ...]:
        """Return how many nodes this user sees, in which conditions."""
        counted: dict[str, int] = defaultdict(int)
        for node in self.nodes():
            counted[node.condition.value] += 1
        each = (f"{number} {name}" for name, number in sorted(counted.items()))
        return (f"{sum(counted.values())} nodes", *each)

    def _cloud(self) -> Connection:
        return cloud(self._settings, call_limit=self._site.limits.call)

    def _node(self, node: Node, ports: tuple[NodePort, ...]) -> BareMetalNode:
        stamp = (node.extra or {}).get(STAMP)
        sliver = self._sliver(stamp)
        tenant = node.instance_id or node.allocation_id
        has: Mapping[str, Any] = node.properties or {}
        return BareMetalNode(
            id=node.id,
            name=node.name or node.id,
            condition=condition(
                node.provision_state,
                taken=bool(tenant),
                stamped=isinstance(stamp, dict),
                set_apart=bool(node.is_maintenance or node.is_retired),
            ),
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
            why=node.maintenance_reason or node.last_error or "",
        )

    def _sliver(self, stamp: object) -> str | None:
        """Return the sliver of a stamp of this site; None of others'."""
        if isinstance(stamp, dict) and stamp.get("site") == self._site.site:
            return str(stamp["sliver"]) if stamp.get("sliver") else None
        return None


def _settings(site: Site) -> OpenStackSettings:
    own, shared = site.ironic, site.openstack
    if own:
        file = own.clouds_file or (shared.clouds_file if shared else None)
        return OpenStackSettings(cloud=own.cloud, clouds_file=file)
    if shared is None:
        raise InvalidSite(
            "is missing, and the driver 'ironic' needs it",
            field="ironic",
            remedy="name an entry of clouds.yaml: `ironic: {cloud: …}`",
        )
    return shared


def _by_node(ports: Iterable[Port]) -> Mapping[str, tuple[NodePort, ...]]:
    found: dict[str, tuple[NodePort, ...]] = defaultdict(tuple)
    for port in sorted(ports, key=lambda each: str(each.address)):
        found[port.node_id] += (NodePort(port.address, port.physical_network),)
    return found


def _number(value: object) -> int | None:
    """Return a property's number: Ironic keeps what its operator wrote, a number or its digits."""
    return int(str(value)) if str(value).isdecimal() else None
