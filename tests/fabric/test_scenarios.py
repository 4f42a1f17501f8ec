"""The scenarios that are published for the handlers of fabric_am, with slivers as they are built there.

They have no owner, no project, no worker but the one they name; their devices' addresses are in the
allocations alone.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.attached_components import AttachedComponentsInfo, ComponentSliver, ComponentType
from fim.slivers.capacities_labels import Capacities, CapacityHints, Labels
from fim.slivers.instance_catalog import InstanceCatalog
from fim.slivers.interface_info import InterfaceInfo, InterfaceSliver
from fim.slivers.network_node import NodeSliver, NodeType
from fim.slivers.network_service import NetworkServiceInfo, NetworkServiceSliver

from fabric_direct.actor import VMHandler
from fabric_direct.actor.site import processor_of
from fabric_direct.drivers.fake import Substrate, substrate
from tests.fabric import slivers
from tests.fabric.conftest import ALLOWED

WORKER = "renc-w1.fabric-testbed.net"
NIC = ["0000:41:00.0", "0000:41:00.1"]
OK, FAILED = 0, -1


def published(
    *, pci: bool = True, image: bool = True, name: bool = True, services: bool = False
) -> Any:
    """Return the unit of the scenarios; each part may be left out."""
    sliver, catalog = NodeSliver(), InstanceCatalog()
    flavor = catalog.map_capacities_to_instance(cap=Capacities(core=4, ram=64, disk=500))
    sliver.set_properties(
        type=NodeType.VM,
        site="RENC",
        capacity_hints=CapacityHints(instance_type=flavor),
        capacity_allocations=catalog.get_instance_capacities(instance_type=flavor),
    )
    sliver.label_allocations = Labels(instance_parent=WORKER)
    if name:
        sliver.set_properties(name="n1")
    if image:
        sliver.set_properties(image_type="qcow2", image_ref="default_centos_8")
    if pci:
        sliver.attached_components_info = AttachedComponentsInfo()
        sliver.attached_components_info.add_device(device_info=smart_nic())
    if services:
        sliver.network_service_info = two_interfaces()
    unit = slivers.unit(sliver, rid="rid-1")
    unit.get_properties().clear()
    return unit


def smart_nic() -> ComponentSliver:
    component = ComponentSliver()
    component.set_properties(
        type=ComponentType.SmartNIC,
        model="ConnectX-6",
        name="nic1",
        label_allocations=Labels(bdf=NIC),
    )
    return component


def two_interfaces() -> NetworkServiceInfo:
    """Return a network service of the node itself."""
    service = NetworkServiceSliver()
    service.interface_info = InterfaceInfo()
    for number in (1, 2):
        interface = InterfaceSliver()
        interface.capacities = Capacities(bw=100, unit=1)
        interface.labels = Labels(ipv4=f"192.168.11.{number}", local_name=f"p{number}")
        interface.label_allocations = Labels(mac=f"0C:42:A1:EA:C7:5{number}", vlan="200")
        service.interface_info.interfaces[f"ifs{number}"] = interface
    info = NetworkServiceInfo()
    info.network_services = {"ns1": service}
    return info


@pytest.fixture
def properties(config: Callable[..., Path]) -> dict[str, str]:
    return {"config.properties.file": str(config(hosts={WORKER: {"devices": ALLOWED}}))}


@pytest.fixture(autouse=True)
def fakes(properties: dict[str, str]) -> Substrate:
    return substrate(processor_of(properties).site, WORKER)


def answered(answer: tuple[dict[str, Any], Any], target: str, code: int) -> Any:
    """Return the sliver, if the result is as expected."""
    result, unit = answer
    assert result["target.name"] == target
    assert result["action.sequence"] == 0
    assert result["target.code"] == code, result
    return unit.get_sliver()


@pytest.mark.parametrize(
    "parts", [{}, {"pci": False}, {"services": True}], ids=["PCI", "no PCI", "NIC configuration"]
)
def test_create(handler: VMHandler, parts: dict[str, bool]) -> None:
    sliver = answered(handler.create(published(**parts)), "create", OK)
    assert sliver.label_allocations.instance is not None
    assert sliver.management_ip is not None


def test_create_without_image(handler: VMHandler) -> None:
    sliver = answered(handler.create(published(image=False)), "create", FAILED)
    assert sliver.label_allocations.instance is None
    assert sliver.management_ip is None


def test_create_without_configuration(logger: logging.Logger) -> None:
    handler = VMHandler(logger=logger, properties={})
    sliver = answered(handler.create(published()), "create", FAILED)
    assert sliver.label_allocations.instance is None
    assert sliver.management_ip is None


@pytest.mark.parametrize("pci", [True, False], ids=["PCI", "no PCI"])
@pytest.mark.parametrize("made", [True, False], ids=["made", "never made"])
def test_delete(handler: VMHandler, fakes: Substrate, pci: bool, made: bool) -> None:
    if made:
        answered(handler.create(published(pci=pci)), "create", OK)
    answered(handler.delete(published(pci=pci)), "delete", OK)
    assert not fakes.servers


def test_delete_without_configuration(logger: logging.Logger) -> None:
    handler = VMHandler(logger=logger, properties={})
    answered(handler.delete(published()), "delete", FAILED)


def test_delete_without_name(handler: VMHandler, fakes: Substrate) -> None:
    """It is told, as published; what the reservation has is removed all the same."""
    answered(handler.create(published()), "create", OK)
    answered(handler.delete(published(name=False)), "delete", FAILED)
    assert not fakes.servers


def test_modify(handler: VMHandler) -> None:
    answered(handler.create(published()), "create", OK)
    answered(handler.modify(published()), "modify", OK)
