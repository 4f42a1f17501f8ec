"""A VM's life by the actor's handlers: Nova's server, devices of its worker (labs/onesite)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, CapacityHints, Labels
from openstack.connection import Connection

from fabric_direct.actor import VMHandler
from fabric_direct.model import DeviceState, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.fabric import slivers
from tests.fabric.slivers import component, interface, storage, vm
from tests.fabric.test_cloud import VM, ask, volume
from tests.openstack.conftest import Things, cloud, ssh_key
from tests.openstack.target import TARGET
from tests.outcomes import done
from tests.site.conftest import (
    DRIVE,
    GUEST,
    HOST,
    UPLINK,
    VF,
    domain_of,
    hostdevs,
    make_site,
    nothing_left,
    processor,
    things,
    worker,
)
from tests.worker.conftest import Worker

__all__ = [
    "ask",
    "cloud",
    "make_site",
    "nothing_left",
    "processor",
    "ssh_key",
    "things",
    "volume",
    "worker",
]

MAC = "52:54:00:0F:51:05"
CARD = ["0000:06:00.0", "0000:06:00.1"]
ALL = {VF, DRIVE, *CARD}


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site], ssh_key: Path) -> Site:
    """A site that looks into its guests."""
    return make_site(
        actor={"management_network": TARGET.network},
        guest="ssh",
        guest_access={"ssh_key": str(ssh_key)},
        limits={"create": 900, "modify": 900, "guest_boot": 600, "guest_devices": 600},
    )


def node(*components: Any) -> Any:
    return vm(
        *components,
        image_ref=GUEST,
        capacity_hints=CapacityHints(instance_type=TARGET.flavor),
        capacity_allocations=Capacities(core=1, ram=1, disk=1),
        label_allocations=Labels(instance_parent=HOST),
    )


def shared_nic(vlan: str) -> Any:
    nic = interface("p1", mac=MAC, vlan=vlan)
    return component("SharedNIC", "nic1", VF, "ConnectX-6", nic)


def smart_nic() -> Any:
    ports = (interface(f"p{n}", mac=f"52:54:00:0F:51:1{n}") for n in range(2))
    return component("SmartNIC", "nic2", CARD, "ConnectX-6", *ports)


def in_the_guest(processor: HandlerProcessor) -> dict[str, tuple[bool, int]]:
    """Whether the guest sees each component, and how many interfaces that has there."""
    observed = done(processor.probe(SliverRef(id=VM)).result()).observed
    assert observed
    return {d.component: (bool(d.guest_name), len(d.guest_interfaces)) for d in observed.devices}


def used(processor: HandlerProcessor) -> set[str]:
    found = processor.devices(HOST)
    return {str(d.address) for d in found if d.state is DeviceState.USED} & ALL


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("nothing_left")
def test_a_life_with_devices(
    cloud: Connection,
    site: Site,
    worker: Worker,
    processor: HandlerProcessor,
    ask: Callable[..., Any],
    volume: str,
) -> None:
    unit = slivers.unit(
        node(
            shared_nic("304"),
            smart_nic(),
            component("NVME", "drive1", DRIVE, "P4510"),
            storage("vol1", "data"),
        ),
        rid=VM,
    )
    ask(VMHandler, "create", unit)
    (floating,) = [ip for ip in cloud.network.ips() if VM in (ip.description or "")]
    assert unit.get_sliver().management_ip == floating.floating_ip_address
    assert hostdevs(domain_of(worker, processor, VM)) == len(ALL)
    assert used(processor) == ALL
    seen = in_the_guest(processor)
    assert seen == {"nic1": (True, 1), "nic2": (True, 1), "drive1": (True, 0)}
    (server,) = cloud.compute.servers(name=f"^{VM}-node1$")
    (attachment,) = cloud.compute.volume_attachments(server)
    assert attachment.volume_id == volume

    unit.set_modified(modified=node(shared_nic("304"), storage("vol1", "data")))
    ask(VMHandler, "modify", unit)
    assert used(processor) == {VF}
    assert worker.vf(UPLINK, 0)["vlan_list"][0]["vlan"] == 304

    ask(VMHandler, "delete", unit)
    assert used(processor) == set()
    assert Things(cloud, site)() == set()
