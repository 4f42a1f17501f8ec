"""A VM's life by the actor's handlers on a real OpenStack: the cloud of tests/openstack."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, CapacityHints, Labels
from openstack.connection import Connection

from fabric_direct.actor import VMHandler, VnicNetHandler
from fabric_direct.site.config import Site
from tests.fabric import slivers
from tests.fabric.slivers import PROJECT, bridge, port, vm
from tests.openstack.conftest import WORKER, Things, cloud, make_site, ssh_key
from tests.openstack.target import TARGET
from tests.openstack.turns import turn

__all__ = ["cloud", "make_site", "ssh_key"]

VM, SERVICE = "c56a4180-65aa-42ec-a945-5fd21dec0538", "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
MACS = {"52:54:00:fd:5b:01", "52:54:00:fd:5b:02"}


@pytest.fixture(autouse=True)
def beside_others() -> Iterator[None]:
    """Not beside tests/openstack's that must be alone on the cloud."""
    with turn(alone=False):
        yield


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """A site with a network for L2Bridge services; its VMs are reached by a floating IP."""
    tag = TARGET.vlans[-1]
    return make_site(
        networks={f"dataplane-{tag}": TARGET.vlan_network(tag, "10.223.1.0/24")},
        actor={"management_network": TARGET.network},
        images={TARGET.image: {"user": TARGET.image_user}},
    )


@pytest.fixture
def ask(site: Site, tmp_path: Path) -> Callable[..., Any]:
    """Ask a handler, and see that it was done."""
    path = tmp_path / "site.yaml"
    path.write_text(site.model_dump_json(exclude_none=True))
    properties = {"config.properties.file": str(path)}

    def ask(handler: type[Any], operation: str, *given: Any) -> dict[str, Any]:
        made = handler(logging.getLogger("actor"), properties, None)
        result: dict[str, Any] = getattr(made, operation)(*given)[0]
        assert result["target.code"] == 0, result["exception.message"]
        return result

    return ask


@pytest.fixture
def volume(cloud: Connection) -> Iterator[str]:
    """A volume of the project, as the testbed makes it for its users."""
    made = cloud.block_storage.create_volume(size=1, name=f"{PROJECT}-data")
    cloud.block_storage.wait_for_status(made, "available", interval=1, wait=60)
    yield made.id
    cloud.block_storage.delete_volume(made)


def node(*components: Any) -> Any:
    return vm(
        *components,
        image_ref=TARGET.image,
        capacity_hints=CapacityHints(instance_type=TARGET.flavor),
        capacity_allocations=Capacities(core=1, ram=1, disk=1),
        label_allocations=Labels(instance_parent=WORKER),
    )


@pytest.mark.timeout(600)
def test_a_life(cloud: Connection, site: Site, ask: Callable[..., Any], volume: str) -> None:
    unit = slivers.unit(node(), rid=VM)
    ask(VMHandler, "create", unit)
    made = unit.get_sliver()
    (server,) = cloud.compute.servers(name=f"^{VM}-node1$")
    assert server.compute_host or server.hypervisor_hostname
    assert made.label_allocations.instance == server.instance_name
    (floating,) = [ip for ip in cloud.network.ips() if VM in (ip.description or "")]
    assert made.management_ip == floating.floating_ip_address

    (tag,) = (name.removeprefix("dataplane-") for name in site.networks)
    parts = [port(f"p{n}", f"{VM}-node1", mac) for n, mac in enumerate(sorted(MACS))]
    service = slivers.unit(bridge(*parts, vlan=tag), rid=SERVICE)
    ask(VnicNetHandler, "create", service)
    plugged = [p for p in cloud.network.ports(device_id=server.id) if p.mac_address in MACS]
    assert {p.mac_address for p in plugged} == MACS
    assert not any(p.is_port_security_enabled for p in plugged)

    unit.set_modified(modified=node(slivers.storage("vol1", "data")))
    ask(VMHandler, "modify", unit)
    attached = unit.get_modified().attached_components_info.devices["vol1"]
    assert attached.label_allocations.device_name.startswith("/dev/vd")
    (attachment,) = cloud.compute.volume_attachments(server)
    assert attachment.volume_id == volume

    asked = {"operation": "cpuinfo", "poa_id": "poa-1"}
    answer = ask(VMHandler, "poa", unit, asked)["poa_info"]["info"]["cpuinfo"]
    assert json.dumps(answer)
    assert server.instance_name in answer

    ask(VMHandler, "delete", unit)
    ask(VnicNetHandler, "delete", service)
    assert Things(cloud, site)() == set()
