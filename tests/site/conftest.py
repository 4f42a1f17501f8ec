"""What the tests on one site share: its cloud, its worker with devices, and what could be left."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import libvirt
import pytest
from openstack.connection import Connection

from fabric_direct.model import DeviceState, NodeSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.absent import absent
from tests.openstack.conftest import Things, cloud, cloud_site, processor, site, things
from tests.openstack.target import TARGET
from tests.outcomes import done
from tests.worker.conftest import Worker, alone

__all__ = ["cloud", "processor", "site", "things"]

LAB = Path(__file__).parents[2] / "labs/onesite/lab"
HOST, UPLINK = "worker2", "enp1s0"
IMAGE = "fabric-no-system"  # lets go of devices at once
GUEST = "fabric-guest-devices"  # a Linux
VF, OTHER_VF = "0000:01:10.0", "0000:01:10.2"
DRIVE, OTHER_DRIVE = "0000:04:00.0", "0000:05:00.0"
DEVICES: tuple[dict[str, Any], ...] = (
    {"type": "SharedNIC", "model": "ConnectX-6", "uplink": UPLINK, "vepa": True},
    {"type": "SmartNIC", "bdf": "0000:06:00.0"},
    {"type": "SmartNIC", "bdf": "0000:06:00.1"},
    {"type": "NVME", "model": "P4510", "bdf": DRIVE},
    {"type": "NVME", "model": "P4510", "bdf": OTHER_DRIVE},
)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(900))


def lab_worker() -> Worker:
    """The worker that the lab has joined to its cloud."""
    told = subprocess.run([LAB, "env"], check=True, capture_output=True, text=True).stdout
    return Worker.of(told)


@pytest.fixture(scope="session")
def worker(cloud: Connection) -> Iterator[Worker]:
    """The worker of the site, or the reason why there is none."""
    if not any(each.name == HOST for each in cloud.compute.hypervisors()):
        absent(f"no compute host {HOST} here: {LAB} up")
    worker = lab_worker()
    with alone(worker):
        yield worker


@pytest.fixture(scope="session")
def make_site(cloud: Connection, worker: Worker, tmp_path_factory: Any) -> Callable[..., Site]:
    """Make a site of the cloud and its worker, with other settings where given."""

    def make(**values: Any) -> Site:
        return cloud_site(tmp_path_factory.mktemp("state"), **(settings(worker) | values))

    return make


def settings(worker: Worker) -> dict[str, Any]:
    """The settings of a site of the cloud and its worker."""
    return {
        "hosts": {HOST: worker.as_host(DEVICES)},
        "images": {name: {"user": TARGET.image_user} for name in (IMAGE, GUEST)},
        "guest": "none",
        "networks": {"red": TARGET.vlan_network(190, "10.224.1.0/24")},
        "limits": {"create": 600, "modify": 600, "guest_boot": 300, "guest_devices": 300},
    }


@pytest.fixture(scope="module")
def nothing_left(worker: Worker, things: Things, processor: HandlerProcessor) -> Iterator[None]:
    """Nothing of the tests is left in the cloud, and the worker is as it was; else it is taken away."""
    before = worker.state
    yield
    left = things()
    for server in processor.slivers():
        done(processor.delete(server.stamp.sliver.ref()).result())
    worker.run("bridge", "link", "set", "dev", UPLINK, "hwmode", "veb")
    assert (left, worker.restore(before)) == (set(), {})


@pytest.fixture(scope="module")
def with_devices(processor: HandlerProcessor, nothing_left: None) -> Iterator[NodeSliver]:
    """A sliver with a VF and a drive on the worker, which each test leaves there with both."""
    wanted = sliver(nic(), drive())
    done(processor.create(wanted).result())
    yield wanted
    done(processor.delete(wanted.ref()).result())


# --- slivers


def sliver(*components: dict[str, Any], **values: Any) -> NodeSliver:
    """A sliver on the worker with a NIC, and with these components."""
    eth0 = {"type": "vNIC", "id": "eth0", "network": TARGET.network, "interface": {}}
    defaults: dict[str, Any] = {
        "id": "fdtest-site",
        "name": "node",
        "host": HOST,
        "image": IMAGE,
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "components": (eth0, *components),
    }
    return NodeSliver.model_validate(defaults | values)


def nic(bdf: str = VF, **interface: Any) -> dict[str, Any]:
    wanted = {"mac": "52:54:00:0f:51:01", "vlan": 304, **interface}
    return {"type": "SharedNIC", "id": "nic1", "bdf": [bdf], "interface": wanted}


def drive(bdf: str = DRIVE, name: str = "drive1") -> dict[str, Any]:
    return {"type": "NVME", "id": name, "bdf": [bdf]}


# --- what is really there


def is_disabled(cloud: Connection, host: str) -> bool:
    """Whether Placement offers nothing of the host, which Nova tells it a while later."""
    hypervisors = cloud.compute.hypervisors(details=True)
    (name,) = (each.name for each in hypervisors if each.service_details["host"] == host)
    (provider,) = cloud.placement.resource_providers(name=name)
    told = cloud.placement.get(f"/resource_providers/{provider.id}/traits", microversion="1.6")
    return "COMPUTE_STATUS_DISABLED" in told.json()["traits"]


def domain_of(worker: Worker, processor: HandlerProcessor, sliver_id: str) -> libvirt.virDomain:
    """Nova's domain of a sliver, as the worker's libvirt has it."""
    (server,) = (each for each in processor.slivers() if each.sliver == sliver_id)
    return worker.connection.lookupByName(server.domain)


def hostdevs(domain: libvirt.virDomain) -> int:
    """How many PCI functions a domain has, live."""
    devices = ElementTree.fromstring(domain.XMLDesc())
    return sum(
        len(devices.findall(f"devices/{kind}"))
        for kind in ("hostdev", "interface[@type='hostdev']")
    )


def states(processor: HandlerProcessor) -> dict[str, DeviceState]:
    """The states of the site's VF and drives."""
    known = {VF, OTHER_VF, DRIVE, OTHER_DRIVE}
    found = processor.devices(HOST)
    return {str(d.address): d.state for d in found if str(d.address) in known}
