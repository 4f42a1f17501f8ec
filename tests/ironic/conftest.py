"""The Ironic of labs/ironic, or the reason why there is none."""

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import openstack
import pytest
from openstack.baremetal.v1._proxy import Proxy
from openstack.baremetal.v1.node import Node

from tests.absent import absent
from tests.limits import PATIENT

LAB = Path(__file__).parents[2] / "labs/ironic/lab"
STATE = Path("/var/lib/fabric-direct/bare-metal")


def lab(*words: str) -> str:
    """Return what a command of the lab prints."""
    return subprocess.run([LAB, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def ironic() -> Proxy:
    if subprocess.run([LAB, "status"], check=False, capture_output=True).returncode:
        absent(f"no Ironic lab here: {LAB} up")
    os.environ["OS_CLIENT_CONFIG_FILE"] = str(STATE / "clouds.yaml")
    return openstack.connect(cloud="ironic").baremetal


@pytest.fixture
def reserve(ironic: Proxy) -> Iterator[Callable[[str], Node]]:
    """Reserve an available node of a resource class for the test; it is available afterwards."""
    taken: list[Node] = []

    def reserve(resource_class: str) -> Node:
        name = f"fdtest-{secrets.token_hex(3)}"
        allocation = ironic.create_allocation(name=name, resource_class=resource_class)
        allocation = ironic.wait_for_allocation(allocation, timeout=PATIENT["call"])
        taken.append(ironic.get_node(allocation.node_id))
        return taken[-1]

    yield reserve
    for node in taken:
        release(ironic, ironic.get_node(node))


def release(ironic: Proxy, node: Node) -> None:
    """Take a node from any state in which a test may end to available."""
    if node.provision_state in ("manageable", "clean failed"):
        become(ironic, node, "manage" if node.provision_state == "clean failed" else "provide")
        node = ironic.get_node(node)
    if node.provision_state == "manageable":
        become(ironic, node, "provide")
    if node.provision_state in ("active", "deploy failed", "error"):
        become(ironic, node, "deleted")
    if allocation := ironic.get_node(node).allocation_id:
        ironic.delete_allocation(allocation)


def become(ironic: Proxy, node: Node, verb: str, **how: object) -> Node:
    """Change a node's provision state, and wait until it has it."""
    return ironic.set_node_provision_state(
        node, verb, wait=True, timeout=int(PATIENT["guest_boot"]), **how
    )
