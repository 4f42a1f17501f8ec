"""The lab does what its README says: the lives of fake hardware and of a machine, and its faults."""

from collections.abc import Callable
from pathlib import Path

import pytest
from openstack.baremetal.v1._proxy import Proxy
from openstack.baremetal.v1.node import Node

from tests.ironic.conftest import ADDRESSES, IMAGES, STATE, become, lab, ssh


def test_nodes_say_what_they_are(ironic: Proxy) -> None:
    nodes = {node.name: node for node in ironic.nodes(details=True)}

    seeded = {*ADDRESSES, *(f"fake{number}" for number in range(1, 25))}
    assert seeded <= nodes.keys()
    for name in seeded:
        node = nodes[name]
        assert node.resource_class == ("baremetal" if name in ADDRESSES else "fake")
        assert {"cpus", "memory_mb", "local_gb"} <= set(node.properties)
        assert node.traits
        assert [port.address for port in ironic.ports(node=node.id)]


def test_up_leaves_what_is_up(ironic: Proxy) -> None:
    before = {node.id for node in ironic.nodes()}

    lab("up")

    assert {node.id for node in ironic.nodes()} == before


def test_a_fake_node_is_taken_through_its_life(
    ironic: Proxy, reserve: Callable[[str], Node]
) -> None:
    node = reserve("fake")

    states = [
        become(ironic, node, verb).provision_state
        for verb in ("manage", "provide", "active", "rebuild", "deleted")
    ]

    assert states == ["manageable", "available", "active", "active", "available"]


def test_a_fake_node_is_cleaned_if_it_says_so(
    ironic: Proxy, reserve: Callable[[str], Node]
) -> None:
    node = become(ironic, reserve("fake"), "manage")
    settings = {"settings": [{"name": "left", "value": "behind"}]}
    step = {"interface": "bios", "step": "apply_configuration", "args": settings}
    become(ironic, node, "clean", clean_steps=[step])
    assert bios(ironic, node) == ["left"]

    become(ironic, node, "provide")
    assert bios(ironic, node) == ["left"]

    ironic.update_node(node, is_automated_clean_enabled=True)
    try:
        become(ironic, node, "manage")
        become(ironic, node, "provide")
    finally:
        ironic.update_node(node, is_automated_clean_enabled=False)
    assert bios(ironic, node) == []


def bios(ironic: Proxy, node: Node) -> list[str]:
    """Return the names of a node's BIOS settings: the automated cleaning forgets them."""
    answer = ironic.get(f"/nodes/{node.id}/bios", microversion="1.40")
    return [setting["name"] for setting in answer.json()["bios"]]


@pytest.mark.usefixtures("never_deployed")
def test_a_deployment_that_ironic_does_not_survive_has_failed(
    ironic: Proxy, reserve: Callable[[str], Node]
) -> None:
    node = reserve("fake")
    ironic.set_node_provision_state(node, "active")

    refused = ironic.put(
        f"/nodes/{node.id}/states/provision",
        json={"target": "deleted"},
        microversion="1.82",
        status_code_retries=0,
    )
    lab("fake")

    assert refused.status_code == 409
    assert "is locked by host lab" in refused.text
    node = ironic.get_node(node)
    assert node.provision_state == "deploy failed"
    assert "can't be resumed" in node.last_error
    assert become(ironic, node, "deleted").provision_state == "available"


def test_a_machine_is_deployed_reached_and_given_back(
    ironic: Proxy, reserve: Callable[[str], Node], key: Path
) -> None:
    node = reserve("baremetal")
    arguments = (STATE / "images/fabric-guest.cmdline").read_text().strip()
    image = {
        "kernel": f"{IMAGES}.kernel",
        "ramdisk": f"{IMAGES}.ramdisk",
        "ramdisk_kernel_arguments": arguments,
    }
    ironic.update_node(node, instance_info=image)
    public = key.with_suffix(".pub").read_text().strip()
    drive = {
        "meta_data": {"uuid": node.instance_id, "hostname": "lab", "public_keys": {"key": public}}
    }

    deployed = become(ironic, node, "active", config_drive=drive)

    assert (deployed.provision_state, deployed.power_state) == ("active", "power on")
    assert (
        ssh(key, ADDRESSES[node.name], "hostname && cat /run/seed/source") == "lab\nConfigDrive\n"
    )

    given_back = become(ironic, node, "deleted")

    assert (given_back.provision_state, given_back.power_state) == ("available", "power off")
    assert not given_back.instance_info
