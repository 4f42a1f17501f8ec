"""The contract of drivers of network services, on real switches."""

from typing import Any

import pytest

from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.model.services import NetworkService
from fabric_direct.testing import ServiceContract
from tests.services.contracts import Circuits, PublicNetworks, RoutedNetworks, Segments
from tests.services.slivers import interface, service


class TestSegments(Segments):
    pass


class TestCircuits(Circuits):
    pass


class TestRoutedNetworks(RoutedNetworks):
    pass


class TestPublicNetworks(PublicNetworks):
    pass


class TestMirrors(ServiceContract):
    @pytest.fixture(autouse=True)
    def mirrored(self, driver: OvsService) -> None:
        driver.apply(service(interface("i1", 100), interface("i2", 100, "p2"), sliver="mirrored"))

    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._mirror(sliver, port="p1")

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._mirror(sliver, port="p2", vlan=100, direction="rx")

    def _mirror(self, sliver: str, **mirror: object) -> NetworkService:
        receiver = interface("tap", "untagged", "p4")
        return service(receiver, sliver=sliver, kind="PortMirror", mirror=mirror)


class TestVpns(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._vpn(sliver, interface("i1", 100, gateway={"address": "10.50.1.1/24"}))

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        one, two = {"address": "10.50.3.1/24"}, {"address": "fd00:50::1/64"}
        ends = interface("i1", 100, gateway=one), interface("i2", 7, "p2", gateway=two)
        return self._vpn(sliver, *ends)

    def _vpn(self, sliver: str, *ends: dict[str, Any]) -> NetworkService:
        return service(*ends, sliver=sliver, kind="L3VPN", asn=65001)
