"""Enroll the machines, with their BMC, and nodes of fake hardware; all are available when it ends.

``seed.py ADDRESS KERNEL_ARGUMENTS FAKES "NAME UUID MAC MEMORY DISK"…`` runs in the lab's root, by
Debian's openstacksdk. The third machine is deployed to, and cleaned, by a deployment ramdisk.
"""

import sys
import time
from typing import Any

from openstack.connection import Connection

ADDRESS, KERNEL_ARGUMENTS, FAKES, *MACHINES = sys.argv[1:]
URL = f"http://{ADDRESS}:6385"
IMAGES = f"http://{ADDRESS}:8080/images"
FAKE_INTERFACES = ("bios", "boot", "deploy", "management", "power")
DEPLOYED = {
    "deploy_kernel": f"{IMAGES}/ipa.kernel",
    "deploy_ramdisk": f"{IMAGES}/ipa.initramfs",
    "kernel_append_params": f"console=ttyS0 {KERNEL_ARGUMENTS}",
}
ironic = Connection(auth_type="none", endpoint=URL, baremetal_endpoint_override=URL).baremetal


def node(mac: str, traits: list[str], **details: Any) -> Any:
    """Enroll a node with one port."""
    # without its state the SDK takes it to available, and waits
    made = ironic.create_node(provision_state="enroll", **details)
    ironic.set_node_traits(made, traits)
    ironic.create_port(node_uuid=made.id, address=mac)
    return made


def machine(name: str, uuid: str, mac: str, memory: str, disk: str) -> Any:
    """Enroll a machine of the lab's libvirt."""
    deployed = DEPLOYED if name == "machine3" else {}
    return node(
        mac,
        ["CUSTOM_VIRTUAL_MEDIA", f"CUSTOM_{name.upper()}"],
        name=name,
        driver="redfish",
        driver_info={
            "redfish_address": f"http://{ADDRESS}:8000",
            "redfish_system_id": f"/redfish/v1/Systems/{uuid}",
            "redfish_username": "admin",
            "redfish_password": "lab",
        }
        | deployed,
        boot_interface="redfish-virtual-media",
        deploy_interface="direct" if deployed else "ramdisk",
        resource_class="disk" if deployed else "baremetal",
        properties=size(1, int(memory), int(disk)) | {"capabilities": "boot_mode:bios"},
    )


def fake(number: int) -> Any:
    """Enroll what is no machine; each second one is twice as large, and has a trait that says so."""
    large = number % 2 == 0
    made = node(
        f"52:54:00:fa:00:{number:02x}",
        ["CUSTOM_FAKE", "CUSTOM_LARGE"] if large else ["CUSTOM_FAKE"],
        name=f"fake{number}",
        driver="fake-hardware",
        resource_class="fake",
        properties=size(64, 262144, 1920) if large else size(32, 131072, 960),
        **{f"{kind}_interface": "fake" for kind in FAKE_INTERFACES},
    )
    # allocations pass over nodes whose power is not known
    ironic.set_node_power_state(made, "power off")
    return made


def size(cpus: int, memory_mb: int, local_gb: int) -> dict[str, Any]:
    """Return what operators write into properties."""
    return {"cpu_arch": "x86_64", "cpus": cpus, "memory_mb": memory_mb, "local_gb": local_gb}


def become(nodes: list[Any], verb: str, state: str) -> None:
    """Ask all at once, and wait for all."""
    for each in nodes:
        ironic.set_node_provision_state(each, verb)
    late = nodes
    while late := [each for each in map(ironic.get_node, late) if not is_in(each, state)]:
        time.sleep(0.2)


def is_in(node: Any, state: str) -> bool:
    """Tell whether a node is in a state, and end all if it will never be."""
    if node.last_error:
        sys.exit(f"{node.name}: {node.last_error}")
    # for a moment it is in its new state and still locked
    return bool(node.provision_state == state and not node.reservation)


nodes = [machine(*each.split()) for each in MACHINES]
nodes += [fake(number) for number in range(1, int(FAKES) + 1)]
become(nodes, "manage", "manageable")
become(nodes, "provide", "available")
for each in nodes:
    if each.deploy_interface == "direct":  # from now on: its disk is as somebody left it
        ironic.update_node(each, is_automated_clean_enabled=True)
