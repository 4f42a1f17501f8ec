"""NICs of nodes on networks of Neutron: a port for each, attached to the node as a VIF.

A port has the name and the stamp that ports of VMs have, and the type ``baremetal``: by that the sweep
tells them apart. It is made while the allocation or the node carries the stamp of its sliver, and
deleted before that goes. Ironic detaches VIFs by itself when what is deployed is deleted, and not when
an allocation is given up.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from openstack.baremetal.v1.node import Node
from openstack.exceptions import raise_from_response

from fabric_direct.drivers.contract.bare_metal import BareMetalNode
from fabric_direct.drivers.contract.networks import Port
from fabric_direct.drivers.contract.node_choice import nic_macs, on_networks
from fabric_direct.drivers.contract.node_networks import (
    addresses_of,
    field_of,
    hold_port,
    refuse_networks,
)
from fabric_direct.drivers.contract.stamped import Stamped
from fabric_direct.drivers.ironic.connection import connection
from fabric_direct.drivers.ironic.requests import once_unlocked
from fabric_direct.drivers.openstack.client.errors import make_once, translated
from fabric_direct.drivers.openstack.client.transport import uncached
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.networks.port_records import BARE_METAL
from fabric_direct.errors import DriverError, InvalidSliver, NotVerified
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.site.config import OpenStackSettings, Site

_VERSION = "1.67"
"""The microversion from which on a VIF is attached to a port that is named."""


class NodePorts(OpenStackNetwork):
    """The ports of Neutron for NICs of bare-metal nodes."""

    vnic_type: ClassVar[str] = BARE_METAL


class Vifs:
    """The VIFs of the site's bare-metal slivers."""

    def __init__(self, site: Site, settings: OpenStackSettings) -> None:
        """Make it without a request.

        :param settings: the cloud of Ironic. In another one than that of the site's VMs, the networks of
            site.yaml are not there.
        """
        shared = site.openstack is not None and site.openstack.cloud == settings.cloud
        other = {} if shared else {"openstack": settings, "networks": {}}
        self._site, self._settings = site, settings
        self._where = f"cloud {settings.cloud}"
        self._networks = NodePorts(site.model_copy(update=other), "")

    @property
    def _api(self) -> Any:
        return self._cloud.baremetal

    @property
    def _cloud(self) -> Any:
        return connection(self._site, self._settings)

    @property
    def _has_neutron(self) -> bool:
        """Whether the cloud has a Neutron; one without logins has what its entry names."""
        config = self._cloud.config
        if config.config.get("auth_type") == "none":
            return bool(config.config.get("network_endpoint_override"))
        with translated("look for Neutron in the catalog", self._where):
            return config.get_session_endpoint("network") is not None

    # --- reading

    def check(self, sliver: BareMetalSliver) -> None:
        """Raise an error unless the networks can serve the sliver's NICs.

        :raises InvalidSliver: with the field of the NIC.
        """
        for nic in on_networks(sliver):
            if not self._has_neutron:
                with field_of(sliver, nic):
                    raise InvalidSliver("the cloud has no Neutron", field="network")
        refuse_networks(self._networks, sliver)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the ports that are held for a sliver."""
        return tuple(_name(port) for port in self._held(sliver_id))

    def _held(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the ports of a sliver; the node's stamp is younger than those that a rebuild makes."""
        return self._networks.ports(sliver_id) if self._has_neutron else ()

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the ports of all slivers of the site."""
        found = self._networks.stamped() if self._has_neutron else ()
        return tuple(thing for thing in found if thing.kind == "port")

    def differences(self, sliver: BareMetalSliver, node: BareMetalNode) -> tuple[str, ...]:
        """Name what differs from what the node was deployed with, a sentence each."""
        return tuple(self._differences(sliver, node)) if on_networks(sliver) else ()

    def _differences(self, sliver: BareMetalSliver, node: BareMetalNode) -> Iterator[str]:
        ports = {port.component: port for port in self._networks.ports(sliver.id)}
        attached = self._attached(node)
        known = node.stamp.addresses if node.stamp else {}
        for nic in on_networks(sliver):
            port = ports.get(nic.id)
            if port is None:
                yield f"NIC {nic.id} has no port on network {nic.network}"
                continue
            if port.source not in attached:
                yield f"{_name(port)} is not attached to node {node.name}"
            has = addresses_of({nic.id: port})[nic.id]
            if has != known.get(nic.id, has):
                yield f"{_name(port)} has {', '.join(map(str, has)) or 'no address'}"

    # --- changing

    def attach(self, sliver: BareMetalSliver, node: BareMetalNode) -> dict[str, Port]:
        """Have a port for each NIC on a network, attached to the node; return them by their NICs.

        Ports of an earlier attempt that fit are kept, others are deleted: nothing is deployed.

        :param node: with its ports.
        :raises DriverError: if the node's network interface attaches nothing.
        """
        wanted = on_networks(sliver)
        if not wanted:
            return {}
        macs = nic_macs(sliver, node)
        fitting = {(nic.id, macs[nic.id]) for nic in wanted}
        with uncached():
            left = [
                p for p in self._networks.ports(sliver.id) if (p.component, p.mac) not in fitting
            ]
        self._release(left, node)
        return {
            nic.id: self._attach(node, hold_port(self._networks, sliver, nic, node))
            for nic in wanted
        }

    def _attach(self, node: BareMetalNode, port: Port) -> Port:
        def found() -> str | None:
            return port.source if port.source in self._attached(node) else None

        def request() -> str:
            self._post(node, {"id": port.source, "port_uuid": self._port_of(node, port.mac)})
            return port.source

        with translated(f"attach {_name(port)} to node {node.name}", self._where):
            if found() is None:
                make_once(
                    lambda: once_unlocked(request, self._site.limits.call),
                    found,
                    timeout=self._site.limits.call / 4,
                )
            self._refuse_unattached(node, port)
        return port

    def _refuse_unattached(self, node: BareMetalNode, port: Port) -> None:
        """Raise an error if Ironic said yes, and did nothing, as with ``noop``."""
        if port.source in self._attached(node):
            return
        interface = self._api.get_node(node.id).network_interface
        raise DriverError(
            f"{_name(port)} is not attached to node {node.name}",
            why=f"the node's network interface is {interface}",
            remedy="set the node's network_interface to flat or neutron, or leave out the NIC's network",
        )

    def release(self, sliver_id: str, node: BareMetalNode | None) -> None:
        """Detach and delete the ports of a sliver; nothing of it is deployed.

        :param node: the one that the sliver has; if None, they are looked for at all nodes.
        :raises NotVerified: if one is still there.
        """
        with uncached():
            held = self._held(sliver_id)
        self._release(held, node)

    def _release(self, ports: Any, node: BareMetalNode | None) -> None:
        if not ports:
            return
        holders = self._holders(node)
        for port in ports:
            for node_id in holders.get(port.source, ()):
                self._detach(node_id, port)
            self._networks.delete_port(port.sliver, port.component)

    def _detach(self, node_id: str, port: Port) -> None:
        with translated(f"detach {_name(port)} from node {node_id}", self._where):
            once_unlocked(
                lambda: self._api.detach_vif_from_node(node_id, port.source),
                self._site.limits.call,
            )
            with uncached():
                if port.source in self._api.list_node_vifs(node_id):
                    raise NotVerified(f"{_name(port)} is still attached to node {node_id}")

    # --- requests

    def _attached(self, node: BareMetalNode) -> list[str]:
        """Return the ids of the VIFs of a node."""
        with uncached(), translated(f"list the VIFs of node {node.name}", self._where):
            return list(self._api.list_node_vifs(node.id))

    def _holders(self, node: BareMetalNode | None) -> dict[str, list[str]]:
        """Return which nodes have which VIFs: of one node, or of all if it is None."""
        if node is not None:
            return {vif: [node.id] for vif in self._attached(node)}
        found: dict[str, list[str]] = {}
        with uncached(), translated("list the ports of nodes", self._where):
            for port in self._api.ports(details=True):
                vif = (port.internal_info or {}).get("tenant_vif_port_id")
                found.setdefault(str(vif), []).append(port.node_id)
        return found

    def _port_of(self, node: BareMetalNode, mac: str) -> str:
        """Return the id of the node's port with this MAC address."""
        ports = self._api.ports(details=True, node=node.id)
        return str(next(port.id for port in ports if port.address == mac))

    def _post(self, node: BareMetalNode, asked: dict[str, str]) -> None:
        # The client's own call of the versions that are served names the port each in its way.
        path = f"{Node.base_path}/{node.id}/vifs"
        raise_from_response(self._api.post(path, json=asked, microversion=_VERSION))


def _name(port: Port) -> str:
    return f"port {port.sliver}-{port.component} ({port.source})"
