"""A VM whose NIC is a port of a real switch, stitched to a service: what passes, and what is left."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.model.services import SERVICES
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, load_site
from tests.network.conftest import HERE, STATE, ip, lab, vsctl
from tests.outcomes import done
from tests.services.node import Node

EXAMPLE = Path(__file__).parents[2] / "examples/stitched/site.yaml"
CABLE = "fd-sw1-p4"
VM = NodeSliver.model_validate(
    {
        "id": "vm-1",
        "name": "vm-1",
        "image": "fabric-guest",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "components": [
            {
                "type": "vNIC",
                "id": "nic",
                "network": "sw1",
                "interface": {
                    "ipv4": "10.78.0.1/24",
                    "service": {"id": "net-1", "interface": "vm"},
                },
            }
        ],
    }
)
NET = SERVICES["L2Bridge"].model_validate(
    {
        "id": "net-1",
        "name": "net",
        "interfaces": [
            {"id": "vm", "device": "sw1", "port": "tap1", "bandwidth": 50},
            {"id": "cable", "device": "sw1", "port": "p4"},
        ],
    }
)


def answers() -> bool:
    """Return whether the VM answers at the cable: it may still be booting."""
    return Node(HERE, CABLE).reaches("10.78.0.1", within=600)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """The example's site with this test's own state, and the host keys that the lab has made."""
    if not shutil.which("libvirtd"):
        pytest.skip("libvirt is not installed: labs/local/lab install")
    example = load_site(EXAMPLE)
    if not Path(str(example.images["fabric-guest"].path)).exists():
        pytest.skip("there is no guest: labs/local/lab image")
    lab("workers")
    keys = {f"worker{n}": (STATE / f"sw{n}/hostkey.pub").read_text().strip() for n in (1, 2)}
    hosts = {
        name: host.model_copy(update={"host_key": keys[name]})
        for name, host in example.hosts.items()
    }
    return example.model_copy(update={"site": "OVSTEST", "state_dir": tmp_path, "hosts": hosts})


@pytest.fixture
def lab_site(site: Site) -> Site:
    return site


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    ip("-n", CABLE, "address", "replace", "10.78.0.9/24", "dev", "eth0")
    with HandlerProcessor(site) as processor:
        yield processor
        for future in processor.delete_all([NET, VM]):
            done(future.result())
    ip("-n", CABLE, "address", "flush", "dev", "eth0")


def test_a_stitched_vm_answers_also_after_a_power_cycle_and_leaves_nothing(
    processor: HandlerProcessor,
) -> None:
    for future in processor.create_all([VM, NET]):
        done(future.result())
    assert answers()

    done(processor.poa(VM.ref(), "reboot", {"hard": True}).result())
    assert answers()
    seen = done(processor.probe(SliverRef(id="net-1", type="L2Bridge")).result()).observed
    assert seen
    assert seen.differences == ()

    for future in processor.delete_all([NET, VM]):
        done(future.result())
    assert "tap1" not in ip("-n", "fd-sw1", "-br", "link")
    assert vsctl("sw1", "list-br").split() == ["underlay"]


def test_a_tap_that_is_missing_is_made_anew(processor: HandlerProcessor) -> None:
    for future in processor.create_all([VM, NET]):
        done(future.result())
    done(processor.poa(VM.ref(), "stop").result())
    ip("-n", "fd-sw1", "tuntap", "del", "tap1", "mode", "tap")

    lost = done(processor.probe(VM.ref()).result()).observed
    done(processor.reconcile(VM.ref()).result())

    assert lost
    assert "vNIC nic is switched off" in lost.differences
    assert "fabric-direct OVSTEST/vm-1/nic" in ip("-n", "fd-sw1", "link", "show", "tap1")
