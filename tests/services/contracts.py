"""The contract of drivers of network services, for each kind of service that all switches serve."""

from typing import Any

import pytest

from fabric_direct.model.services import NetworkService
from fabric_direct.testing import ServiceContract
from tests.services.slivers import interface, service


class Segments(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return service(interface("i1", 100), interface("i2", "untagged", "p2"), sliver=sliver)

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        ends = interface("i1", 101, bandwidth=50), interface("i3", 7, "p3")
        return service(*ends, sliver=sliver)


class Circuits(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._circuit(sliver, 100)

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._circuit(sliver, 101, bandwidth=50)

    def _circuit(self, sliver: str, vlan: int, **values: int) -> NetworkService:
        ends = interface("a", vlan, **values), interface("z", 200, switch="sw2")
        return service(*ends, sliver=sliver, kind="L2PTP")


class RoutedNetworks(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._fabnet(sliver, "10.128.1.1/24")

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._fabnet(sliver, "10.128.2.1/25", interface("i2", 7, "p2", bandwidth=50))

    def _fabnet(self, sliver: str, address: str, *more: dict[str, Any]) -> NetworkService:
        one, gateway = interface("i1", 100), {"address": address}
        return service(one, *more, sliver=sliver, kind="FABNetv4", gateway=gateway)


class PublicNetworks(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._fabnet(sliver, "203.0.113.10")

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._fabnet(sliver, "203.0.113.11", "203.0.113.12")

    def _fabnet(self, sliver: str, *public: str) -> NetworkService:
        one = interface("i1", 100)
        return service(one, sliver=sliver, kind="FABNetv4Ext", public=public)
