"""The contract of drivers of network services, on real switches."""

import pytest

from fabric_direct.network_services import NetworkService
from fabric_direct.testing import ServiceContract
from tests.network.conftest import interface, service


class TestSegments(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return service(interface("i1", 100), interface("i2", "untagged", "p2"), sliver=sliver)

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        ends = interface("i1", 101, bandwidth=50), interface("i3", 7, "p3")
        return service(*ends, sliver=sliver)


class TestCircuits(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._circuit(sliver, 100)

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._circuit(sliver, 101, bandwidth=50)

    def _circuit(self, sliver: str, vlan: int, **values: int) -> NetworkService:
        ends = interface("a", vlan, **values), interface("z", 200, switch="sw2")
        return service(*ends, sliver=sliver, kind="L2PTP")
