"""The contract of drivers as tests: for authors of drivers, and run on all drivers of this package.

Each class is a suite for one kind of driver. A subclass in a module of tests gives it the fixtures
``site`` and ``driver``, and what the class names as its own; pytest does the rest::

    from fabric_direct.testing import VolumeContract


    class TestMyVolumes(VolumeContract):
        @pytest.fixture
        def driver(self, site: Site) -> VolumeDriver:
            return MyVolumes(site, "w1")

A suite makes slivers of its own, ``sliver`` and ``other``, and leaves nothing of them. What only the
author knows how to make, such as a server that is not ours (``foreign``), is a fixture too; its tests
are skipped without it. Only pytest itself is needed.
"""

import pytest

_SUITES = (
    *("bare_metal", "devices", "guests", "hosts", "networks", "servers", "services", "threads"),
    "volumes",
)
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _SUITES))

from fabric_direct.testing.bare_metal import BareMetalContract  # noqa: E402 - rewritten from here on
from fabric_direct.testing.devices import DeviceContract  # noqa: E402
from fabric_direct.testing.guests import GuestContract  # noqa: E402
from fabric_direct.testing.hosts import TuningContract, UplinkContract  # noqa: E402
from fabric_direct.testing.networks import FloatingIpContract, NetworkContract, NetworkRefusals  # noqa: E402
from fabric_direct.testing.servers import ComputeContract, ServerContract  # noqa: E402
from fabric_direct.testing.services import (  # noqa: E402
    CloudNetworkContract,
    ServiceContract,
    SharedServiceContract,
)
from fabric_direct.testing.volumes import VolumeContract  # noqa: E402

__all__ = [
    "BareMetalContract",
    "CloudNetworkContract",
    "ComputeContract",
    "DeviceContract",
    "FloatingIpContract",
    "GuestContract",
    "NetworkContract",
    "NetworkRefusals",
    "ServerContract",
    "ServiceContract",
    "SharedServiceContract",
    "TuningContract",
    "UplinkContract",
    "VolumeContract",
]
