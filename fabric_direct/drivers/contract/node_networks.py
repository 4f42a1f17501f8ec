"""NICs of bare-metal nodes on networks: a port for each, which the driver of the networks holds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fabric_direct.drivers.contract.bare_metal import BareMetalNode
from fabric_direct.drivers.contract.networks import NetworkDriver, Port
from fabric_direct.drivers.contract.node_choice import nic_macs, on_networks
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import VNicInterface
from fabric_direct.model.bare_metal import BareMetalSliver, NodeNic, PortAddress


def refuse_networks(networks: NetworkDriver, sliver: BareMetalSliver) -> None:
    """Raise an error, by the field of the sliver, unless its networks can serve its NICs."""
    for nic in on_networks(sliver):
        with field_of(sliver, nic):
            networks.check(str(nic.network), _interface(nic, nic.mac), sliver.id)


def hold_port(
    networks: NetworkDriver, sliver: BareMetalSliver, nic: NodeNic, node: BareMetalNode
) -> Port:
    """Hold the port of a NIC on its network, with the MAC address that it has on this node."""
    with field_of(sliver, nic):
        asked = _interface(nic, nic_macs(sliver, node)[nic.id])
        return networks.create_port(sliver.id, nic.id, str(nic.network), asked)


def addresses_of(ports: Mapping[str, Port]) -> dict[str, tuple[PortAddress, ...]]:
    """Return the addresses of the ports of NICs, as the node's stamp has them."""
    return {
        nic: tuple(each for each in (port.ipv4, port.ipv6) if each) for nic, port in ports.items()
    }


@contextmanager
def field_of(sliver: BareMetalSliver, nic: NodeNic) -> Iterator[None]:
    """Name the field of the NIC in what is refused within the block."""
    try:
        yield
    except InvalidSliver as error:
        error.field = f"nics[{sliver.nics.index(nic)}].{error.field.removeprefix('interface.')}"
        raise


def _interface(nic: NodeNic, mac: str | None) -> VNicInterface:
    return VNicInterface(mac=mac, ipv4=nic.ipv4, ipv6=nic.ipv6)
