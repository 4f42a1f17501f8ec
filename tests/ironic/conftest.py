"""The Ironic of labs/ironic, a site with it, and nodes of each test's own; or why there is none."""

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import openstack
import pytest
from openstack.baremetal.v1._proxy import Proxy
from openstack.baremetal.v1.node import Node

from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.absent import absent
from tests.limits import PATIENT

LAB = Path(__file__).parents[2] / "labs/ironic/lab"
_LAB_NUMBER = int(os.environ.get("FABRIC_IRONIC", "0"))
_NETWORK = f"172.24.{5 + _LAB_NUMBER}"
STATE = Path(f"/var/lib/fabric-direct/bare-metal{_LAB_NUMBER or ''}")
IMAGES = f"http://{_NETWORK}.1:8080/images/fabric-guest"
ADDRESSES = {f"machine{number}": f"{_NETWORK}.{10 + number}" for number in (1, 2)}
DEPLOYED_ADDRESS = f"{_NETWORK}.13"
"""Of machine3, which a full lab has."""
ADDRESS = f"{_NETWORK}.31"
"""Of a machine whose sliver says it."""
DISK = {"disk": "http://192.0.2.1/image.raw", "checksum": "0" * 64}
FAKE_INTERFACES = ("bios", "boot", "deploy", "management", "power")
Enroll = Callable[..., str]
Make = Callable[..., BareMetalSliver]
_numbers = count(1)


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


@pytest.fixture
def never_deployed(ironic: Proxy) -> Iterator[None]:
    """Have fake hardware begin deployments that last longer than any test."""
    lab("fake", "deploy_delay=36000")
    yield
    lab("fake")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return new_key(tmp_path / "key")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """The site's key for its nodes."""
    return new_key(tmp_path / "site-key")


def new_key(file: Path) -> Path:
    """Make a private key, and its public part beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


def ssh(key: Path, address: str, command: str) -> str:
    """Return what a command prints on a machine that may still boot."""
    alone = ("-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", str(key))
    anyone = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
    patient = ("-o", f"ConnectionAttempts={int(PATIENT['guest_boot'])}", "-o", "ConnectTimeout=60")
    argv = ["ssh", "-q", *alone, *anyone, *patient, f"root@{address}", command]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


# --- a site with it


@pytest.fixture
def kind() -> str:
    """A resource class that the nodes of this test have alone."""
    return f"class-{secrets.token_hex(6)}"


@pytest.fixture
def enroll(ironic: Proxy, kind: str) -> Iterator[Enroll]:
    """Make a node of fake hardware that is available, and return its name; it is gone afterwards."""
    made: list[str] = []

    def node(**values: Any) -> str:
        number = next(_numbers)
        size = {"cpus": 8, "memory_mb": 16384, "local_gb": 100, "cpu_arch": "x86_64"}
        usual = {"name": f"{kind}-{number}", "resource_class": kind, "properties": size}
        fakes = {f"{each}_interface": "fake" for each in FAKE_INTERFACES}
        found = ironic.create_node(
            driver="fake-hardware", provision_state="enroll", **fakes, **usual | values
        )
        made.append(found.id)
        mac = f"52:54:00:77:{number // 256:02x}:{number % 256:02x}"
        ironic.create_port(node_uuid=found.id, address=mac)
        for verb, state in (("manage", "manageable"), ("provide", "available")):
            ironic.set_node_provision_state(found.id, verb)
            reached(ironic, found.id, state)
        # Fake hardware has no power state until somebody asks for one; Ironic allocates none without.
        ironic.set_node_power_state(found.id, "power off", wait=True, timeout=int(PATIENT["call"]))
        return str(found.name)

    yield node
    for each in made:
        release(ironic, ironic.get_node(each))
        ironic.set_node_maintenance(each, "its test has ended")
        ironic.delete_node(each)


def reached(ironic: Proxy, node: str, state: str) -> Node:
    """Return a node when it is in a state, and no longer locked unless Ironic changes it."""
    until = time.monotonic() + PATIENT["call"]
    while True:
        found = ironic.get_node(node)
        if found.provision_state == state and not (found.reservation and state != "deploying"):
            return found
        assert time.monotonic() < until, (found.provision_state, found.last_error)
        time.sleep(0.1)


@pytest.fixture
def site(tmp_path: Path, ironic: Proxy) -> Site:
    arguments = (STATE / "images/fabric-guest.cmdline").read_text().strip()
    booted = {"kernel": f"{IMAGES}.kernel", "ramdisk": f"{IMAGES}.ramdisk"}
    images = {"disk": DISK, "guest": booted | {"kernel_arguments": arguments}}
    return Site.model_validate(
        {
            "site": f"S{secrets.token_hex(5)}",
            "state_dir": tmp_path / "state",
            "drivers": {"BareMetal": "ironic"},
            "ironic": {
                "cloud": "ironic",
                "clouds_file": STATE / "clouds.yaml",
                "images": images,
            },
            "limits": PATIENT | {"create": 600.0, "delete": 600.0, "unanswered": 5.0},
        }
    )


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def metal(kind: str) -> Make:
    def make(**values: Any) -> BareMetalSliver:
        usual = {"id": "metal", "name": "box", "image": "disk", "resource_class": kind}
        return BareMetalSliver.model_validate(usual | values)

    return make
