"""What a node is deployed with: ``instance_info`` and the config drive."""

from collections.abc import Iterator, Mapping
from typing import Any

from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract.bare_metal import BareMetalNode, NodeAccess
from fabric_direct.drivers.contract.networks import Port
from fabric_direct.drivers.contract.node_choice import nic_macs
from fabric_direct.model.bare_metal import BareMetalSliver, NodeNic
from fabric_direct.site.config import NodeImage

_OF_DEPLOYMENT = frozenset(
    {"display_name", "kernel", "ramdisk", "ramdisk_kernel_arguments", "root_device"}
)
_ALGORITHMS = {64: "sha256", 128: "sha512"}
"""Of a checksum, by the number of its hexadecimal digits."""


def instance_info(sliver: BareMetalSliver, image: NodeImage) -> dict[str, Any]:
    """Return what Ironic deploys, and on which disk."""
    info: dict[str, Any] = {"display_name": sliver.name, **_image(image)}
    if sliver.root_device:
        info["root_device"] = sliver.root_device.model_dump(exclude_none=True)
    return info


def deployed_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``instance_info`` that says what is deployed, and on which disk.

    Ironic keeps it from one deployment to the next, and adds to it what it finds out about the image
    (``image_type``).
    """
    ours = (key for key in info if key in _OF_DEPLOYMENT or key.startswith("image_"))
    return {key: info[key] for key in ours}


def _image(image: NodeImage) -> dict[str, Any]:
    if image.disk is None:
        booted = {"kernel": image.kernel, "ramdisk": image.ramdisk}
        arguments = {"ramdisk_kernel_arguments": image.kernel_arguments}
        return booted | (arguments if image.kernel_arguments else {})
    checksum, info = str(image.checksum), {"image_source": image.disk}
    if image.format:
        info["image_disk_format"] = image.format
    algorithm = _ALGORITHMS.get(len(checksum))
    if algorithm is None:  # the URL of a file of checksums
        return info | {"image_checksum": checksum}
    return info | {"image_os_hash_algo": algorithm, "image_os_hash_value": checksum}


def config_drive(
    sliver: BareMetalSliver,
    node: BareMetalNode,
    access: NodeAccess,
    ports: Mapping[str, Port],
) -> dict[str, Any]:
    """Return what the node's system reads at its first boot, in the form of OpenStack.

    It makes the host key of that system.

    :param sliver: with the addresses that networks have chosen for its NICs.
    :param ports: of the NICs that are on a network.
    """
    keys = access.keys
    drive: dict[str, Any] = {
        "meta_data": {
            "uuid": sliver.id,
            "name": sliver.name,
            "hostname": sliver.name,
            "public_keys": {f"key{n}": key for n, key in enumerate((*sliver.ssh_keys, *keys))},
        },
        "user_data": user_data(sliver, keys, access.host_key()),
    }
    if sliver.nics:
        drive["network_data"] = _network_data(sliver, node, ports)
    return drive


def _network_data(
    sliver: BareMetalSliver, node: BareMetalNode, ports: Mapping[str, Port]
) -> dict[str, Any]:
    macs: Mapping[str, str] = nic_macs(sliver, node)
    links = [
        {"id": nic.id, "type": "phy", "ethernet_mac_address": macs[nic.id]} for nic in sliver.nics
    ]
    networks = [each for nic in sliver.nics for each in _networks(nic, ports.get(nic.id))]
    servers = dict.fromkeys(server for port in ports.values() for server in port.dns)
    services = [{"type": "dns", "address": server} for server in servers]
    return {"links": links, "networks": networks, "services": services}


def _networks(nic: NodeNic, port: Port | None) -> Iterator[dict[str, Any]]:
    if nic.ipv4 is None and port is None:
        yield {"id": f"{nic.id}-ipv4", "link": nic.id, "type": "ipv4_dhcp"}
    for kind, address in (("ipv4", nic.ipv4), ("ipv6", nic.ipv6)):
        if address is not None:
            yield {
                "id": f"{nic.id}-{kind}",
                "link": nic.id,
                "type": kind,
                "ip_address": str(address.ip),
                "netmask": str(address.netmask),
                "routes": _routes(port) if port and kind == "ipv4" else [],
            }


def _routes(port: Port) -> list[dict[str, str]]:
    if port.gateway is None:
        return []
    return [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": port.gateway}]  # noqa: S104 - the default route
