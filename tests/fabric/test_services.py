"""Network services with FIM's own slivers, through the actor's processor."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, Labels
from fim.slivers.gateway import Gateway
from fim.slivers.interface_info import InterfaceSliver, InterfaceType
from fim.slivers.network_service import MirrorDirection, NetworkServiceSliver, ServiceType
from fim.slivers.path_info import ERO
from fim.slivers.path_info import Path as Route

from fabric_direct.actor import NetworkServiceHandler
from fabric_direct.actor.site import processor_of
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.model.services import L2PTP, L3VPN, SERVICES, FABNetv4Ext, PortMirror
from tests.conftest import FAKE_DRIVERS
from tests.fabric import slivers
from tests.fabric.slivers import RESERVATION

PORT = "HundredGigE0/0/0/5"
PORTS: dict[str, Any] = {PORT: {}, "HundredGigE0/0/0/7": {}}
V4 = {"ipv4": "10.128.1.1", "ipv4_subnet": "10.128.1.0/24"}
V6 = {"ipv6": "2602:fcfb:1d::1", "ipv6_subnet": "2602:fcfb:1d::/64"}


def interface(
    name: str, device: str = "sw1", vlan: str = "100", bw: int = 0, **labels: Any
) -> InterfaceSliver:
    """Return an interface as the broker leaves it: its allocations are a copy of its labels."""
    made = InterfaceSliver()
    given = {"device_name": device, "local_name": PORT, "vlan": vlan, **labels}
    made.set_properties(
        name=name,
        type=InterfaceType.ServicePort,
        labels=Labels(**given),
        label_allocations=Labels(**given),
        capacities=Capacities(bw=bw),
    )
    return made


def fim(kind: str, *interfaces: InterfaceSliver, **values: Any) -> NetworkServiceSliver:
    given = interfaces or (interface("p1"),)
    made: NetworkServiceSliver = slivers.service_of("net1", ServiceType[kind], *given)
    made.set_properties(**values)
    return made


def peered() -> InterfaceSliver:
    made = interface("p1", ipv4_subnet="192.168.7.1/30")
    peer = Labels(asn="65001", ipv4_subnet="192.168.7.2/30", bgp_key="s3cret-key")
    made.set_properties(peer_labels=peer)
    return made


def route() -> ERO:
    path = Route()
    path.set_symmetric(["10.0.0.1", "link:a+b", "10.0.0.2"])
    made = ERO()
    made.set(path)
    return made


def services() -> dict[str, NetworkServiceSliver]:
    two = (interface("p1"), interface("p2", "sw2"))
    v4, v6 = (Gateway(Labels(**given)) for given in (V4, V6))
    mirror = {"mirror_port": "HundredGigE0/0/0/7", "mirror_direction": MirrorDirection.RX_Only}
    public = Labels(ipv4=["10.128.1.7", "10.128.1.8"])
    return {
        "L2Bridge": fim("L2Bridge", interface("p1", bw=10)),
        "L2PTP": fim("L2PTP", *two, ero=route()),
        "L2STS": fim("L2STS", *two),
        "FABNetv4": fim("FABNetv4", interface("p1", ipv4="10.128.1.2"), gateway=v4),
        "FABNetv6": fim("FABNetv6", interface("p1", ipv6="2602:fcfb:1d::2"), gateway=v6),
        "FABNetv4Ext": fim("FABNetv4Ext", gateway=v4, labels=public),
        "FABNetv6Ext": fim("FABNetv6Ext", gateway=v6),
        "L3VPN": fim("L3VPN", peered(), labels=Labels(asn="398900")),
        "PortMirror": fim("PortMirror", site="TEST", **mirror),
    }


@pytest.fixture
def properties(config: Callable[..., Path]) -> dict[str, str]:
    switches = {"sw1": {"ports": PORTS}, "sw2": {"ports": PORTS}}
    drivers = FAKE_DRIVERS | dict.fromkeys(SERVICES, "fake")
    return {"config.properties.file": str(config(drivers=drivers, switches=switches))}


@pytest.fixture
def handler(logger: logging.Logger, properties: dict[str, str]) -> NetworkServiceHandler:
    return NetworkServiceHandler(logger, properties, None)


@pytest.fixture
def fakes(properties: dict[str, str]) -> Substrate:
    return substrate(processor_of(properties).site, "localhost")


def made(handler: NetworkServiceHandler, fakes: Substrate, kind: str) -> Any:
    result, _ = handler.create(slivers.unit(services()[kind]))
    assert result == {"target.name": "create", "target.code": 0, "action.sequence": 0}
    return fakes.services[RESERVATION]


@pytest.mark.parametrize("kind", SERVICES)
def test_each_type_is_created_and_deleted(
    kind: str, handler: NetworkServiceHandler, fakes: Substrate
) -> None:
    assert made(handler, fakes, kind).type == kind
    result, _ = handler.delete(slivers.unit(services()[kind]))
    assert (result["target.code"], dict(fakes.services)) == (0, {})


def test_values_arrive(handler: NetworkServiceHandler, fakes: Substrate) -> None:
    (port,) = made(handler, fakes, "L2Bridge").interfaces
    assert (port.device, port.port, port.vlan, port.bandwidth) == ("sw1", PORT, 100, 10_000)


def test_the_neighbor_arrives(handler: NetworkServiceHandler, fakes: Substrate) -> None:
    vpn: L3VPN = made(handler, fakes, "L3VPN")
    peer = vpn.interfaces[0].peer
    assert peer
    assert (vpn.asn, str(peer.local), str(peer.address)) == (
        398900,
        "192.168.7.1/30",
        "192.168.7.2",
    )
    assert (peer.asn, peer.key) == (65001, "s3cret-key")


def test_public_addresses_arrive(handler: NetworkServiceHandler, fakes: Substrate) -> None:
    external: FABNetv4Ext = made(handler, fakes, "FABNetv4Ext")
    assert list(map(str, external.public)) == ["10.128.1.7", "10.128.1.8"]


def test_the_mirror_arrives(handler: NetworkServiceHandler, fakes: Substrate) -> None:
    mirror: PortMirror = made(handler, fakes, "PortMirror")
    assert (mirror.mirror.port, mirror.mirror.direction) == ("HundredGigE0/0/0/7", "rx")


def test_the_route_arrives(handler: NetworkServiceHandler, fakes: Substrate) -> None:
    circuit: L2PTP = made(handler, fakes, "L2PTP")
    assert circuit.ero
    assert circuit.ero.model_dump() == {
        "a2z": ("10.0.0.1", "10.0.0.2"),
        "z2a": ("10.0.0.2", "10.0.0.1"),
    }


def test_the_processor_of_the_actor_creates_modifies_and_deletes(
    properties: dict[str, str], fakes: Substrate
) -> None:
    pytest.importorskip("fabric_cf", reason="the actor's fabric_cf is not installed")
    from fabric_direct.actor.processor import DirectHandlerProcessor  # noqa: PLC0415
    from tests.fabric import processor_actor as fabric  # noqa: PLC0415

    processor = DirectHandlerProcessor()
    module = "fabric_direct.actor"
    handlers = fabric.mapping("NetworkServiceHandler", module, "FABNetv4", **properties)
    actor = fabric.plug_in(processor, handlers)
    unit = fabric.unit(rtype="FABNetv4")
    unit.set_sliver(sliver=services()["FABNetv4"])
    now = fim("FABNetv4", interface("p1", vlan="101"), gateway=Gateway(Labels(**V4)))
    unit.set_modified(modified=now)
    done: list[Any] = []
    try:
        for operation in (processor.create, processor.modify, processor.delete):
            operation(unit=unit)
            result = actor.next()[1]
            vlans = [i.vlan for s in fakes.services.values() for i in s.interfaces]
            done.append((result["target.name"], result["target.code"], vlans))
    finally:
        processor.shutdown()

    assert done == [("create", 0, [100]), ("modify", 0, [101]), ("delete", 0, [])]
