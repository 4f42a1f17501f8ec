"""FIM's whole machines, as the actor gives them to its handler, on nodes that are held in memory."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, Flags, Labels
from fim.slivers.network_node import NodeSliver, NodeType

from fabric_direct.actor import ServerHandler, fim_server
from fabric_direct.actor.site import processor_of
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.bare_metal import NodeNic, NodeSize
from tests.conftest import FAKE_DRIVERS
from tests.fabric import slivers
from tests.fabric.slivers import KEY, RESERVATION, component, interface
from tests.fabric.test_handlers import ok, why_not

MACS = ["52:54:00:00:00:01", "52:54:00:00:00:02"]
NODES = {
    "rack1": {"cores": 32, "ram": 128, "disk": 900, "resource_class": "large", "macs": MACS},
    "rack2": {"cores": 16, "ram": 64, "disk": 400, "resource_class": "small"},
}
IMAGE = {"disk": "https://images.example.org/debian-12.raw", "checksum": "0" * 64}
CONFIGURED = Flags(auto_config=True)


@pytest.fixture
def server_site(config: Callable[..., Path]) -> dict[str, str]:
    """The properties of a site that has nodes beside its worker."""
    path = config(
        drivers=FAKE_DRIVERS | {"BareMetal": "fake"},
        fake={"nodes": NODES},
        ironic={"images": {"debian-12": IMAGE}},
        actor={"management_network": "mgmt", "resource_classes": {"R750": "large"}},
    )
    return {"config.properties.file": str(path)}


@pytest.fixture
def servers(server_site: dict[str, str], logger: logging.Logger) -> ServerHandler:
    return ServerHandler(logger, server_site, None)


@pytest.fixture
def machines(server_site: dict[str, str]) -> Substrate:
    return substrate(processor_of(server_site).site, "localhost")


def server(*components: Any, **values: Any) -> NodeSliver:
    """Return a machine; ``values`` replace or, with None, leave out what it has otherwise."""
    usual = {"image_ref": "debian-12", "capacity_allocations": None, "label_allocations": Labels()}
    sliver = slivers.vm(*components, capacity_hints=None, **usual | values)
    sliver.set_properties(type=NodeType.Server)
    return sliver


def nic(*addresses: str, flags: Flags | None = CONFIGURED) -> Any:
    ports = [
        interface(f"nic1-p{n}", flags=flags, mac=MACS[n], ipv4=ip, ipv4_subnet="192.0.2.0/24")
        for n, ip in enumerate(addresses)
    ]
    return component("SmartNIC", "nic1", None, None, *ports)


def holders(machines: Substrate) -> dict[str, str | None]:
    return {name: node.tenant for name, node in machines.bare_metal.items()}


def test_a_machine_is_given_and_told(servers: ServerHandler, machines: Substrate) -> None:
    unit = slivers.unit(server(nic("192.0.2.5")))

    result, same = servers.create(unit)

    assert result == ok("create")
    assert same is unit
    assert holders(machines) == {"rack1": RESERVATION, "rack2": None}
    made = unit.get_sliver()
    assert made.management_ip == "192.0.2.5"
    labels = made.label_allocations
    assert (labels.instance, labels.instance_parent) == ("fake-rack1", "rack1")


@pytest.mark.parametrize(
    ("asked", "node"),
    [
        ({}, "rack2"),
        ({"model": "R750"}, "rack1"),
        ({"capacity_allocations": Capacities(core=17)}, "rack1"),
        ({"capacity_allocations": Capacities(disk=400)}, "rack2"),
        ({"label_allocations": Labels(instance_parent="rack1")}, "rack1"),
    ],
)
def test_it_is_one_that_fits(
    servers: ServerHandler, machines: Substrate, asked: dict[str, Any], node: str
) -> None:
    assert servers.create(slivers.unit(server(**asked)))[0] == ok("create")

    assert machines.bare_metal[node].tenant == RESERVATION


def test_all_that_is_asked_for_is_translated(server_site: dict[str, str]) -> None:
    site = processor_of(server_site).site
    sliver = server(
        nic("192.0.2.5", "192.0.2.6"), capacity_allocations=Capacities(core=8, ram=16, disk=0)
    )
    sliver.set_properties(boot_script="#!/bin/sh\n")

    made = fim_server.bare_metal(site, slivers.unit(sliver), sliver)

    assert (made.id, made.name, made.image, made.ssh_keys) == (
        *(RESERVATION, "node1", "debian-12"),
        (KEY,),
    )
    assert made.capacities == NodeSize(core=8, ram=16)
    assert made.boot_script == "#!/bin/sh\n"
    assert made.nics == tuple(
        NodeNic.model_validate({"id": f"nic1-p{n}", "mac": MACS[n], "ipv4": f"192.0.2.{n + 5}/24"})
        for n in range(2)
    )


def test_an_address_that_the_user_configures_is_not_given(server_site: dict[str, str]) -> None:
    site, sliver = processor_of(server_site).site, server(nic("192.0.2.5", flags=None))

    (found,) = fim_server.bare_metal(site, slivers.unit(sliver), sliver).nics

    assert (found.mac, found.ipv4) == (MACS[0], None)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"image_ref": None}, "image_ref"),
        ({"image_ref": "absent"}, "image"),
        ({"model": "R99"}, "resource_model"),
        ({"label_allocations": Labels(instance_parent="rack9")}, "node"),
        ({"capacity_allocations": Capacities(core=999)}, "capacities"),
    ],
)
def test_what_no_node_can_be_is_refused(
    servers: ServerHandler, machines: Substrate, asked: dict[str, Any], field: str
) -> None:
    unit = slivers.unit(server(**asked))

    message = why_not(servers.create(unit)[0], "create")

    assert field in message
    assert holders(machines) == {"rack1": None, "rack2": None}
    assert unit.get_sliver().label_allocations.instance is None


def test_a_device_is_refused_by_its_field(server_site: dict[str, str]) -> None:
    site, sliver = processor_of(server_site).site, server(component("GPU", "gpu1", "0000:25:00.0"))

    with pytest.raises(InvalidSliver) as caught:
        fim_server.bare_metal(site, slivers.unit(sliver), sliver)

    assert caught.value.field == "attached_components_info.devices[gpu1].resource_type"


def test_a_virtual_machine_is_none(servers: ServerHandler) -> None:
    message = why_not(servers.create(slivers.unit(slivers.vm()))[0], "create")

    assert "must be of type Server, is VM" in message


def test_its_nics_are_fixed_and_nothing_else_is_looked_at(
    servers: ServerHandler, machines: Substrate
) -> None:
    sliver = server(nic("192.0.2.5"))
    servers.create(slivers.unit(sliver))
    same, other = server(nic("192.0.2.5"), image_ref="absent"), server(nic("192.0.2.7"))

    assert servers.modify(slivers.unit(sliver, modified=same))[0] == ok("modify")
    assert same.label_allocations.instance == "fake-rack1"
    message = why_not(servers.modify(slivers.unit(sliver, modified=other))[0], "modify")
    assert "nics" in message
    assert holders(machines)["rack1"] == RESERVATION


def test_it_is_restarted_and_its_keys_are_changed(
    servers: ServerHandler, machines: Substrate
) -> None:
    unit = slivers.unit(server())
    servers.create(unit)

    for operation in (
        {"operation": "reboot"},
        {"operation": "addkey", "keys": [{"key": KEY, "comment": "x"}]},
        {"operation": "removekey", "keys": [{"key": KEY, "comment": "x"}]},
    ):
        result, _ = servers.poa(unit, operation | {"poa_id": "1"})
        assert result["poa_info"]["code"] == 0, result
    result, _ = servers.poa(unit, {"operation": "cpuinfo", "poa_id": "1"})
    assert result["poa_info"]["code"] != 0


def test_it_is_given_back(servers: ServerHandler, machines: Substrate) -> None:
    unit = slivers.unit(server())
    servers.create(unit)

    assert servers.delete(unit)[0] == ok("delete")

    assert {node.condition for node in machines.bare_metal.values()} == {NodeCondition.FREE}


def test_a_clean_restart_gives_all_back(servers: ServerHandler, machines: Substrate) -> None:
    other = "16fd2706-8baf-433b-82eb-8c7fada847da"
    for rid in (RESERVATION, other):
        servers.create(slivers.unit(server(), rid=rid))
    assert None not in holders(machines).values()

    assert servers.clean_restart() == ok("clean_restart")

    assert holders(machines) == {"rack1": None, "rack2": None}


def test_without_an_answer_a_clean_restart_deletes_nothing(
    servers: ServerHandler, machines: Substrate
) -> None:
    servers.create(slivers.unit(server()))
    machines.fault("service.stamped", at=0, kind="fail")

    message = why_not(servers.clean_restart(), "clean_restart")

    machines.mend()
    assert "nothing was deleted" in message
    assert holders(machines)["rack2"] == RESERVATION
