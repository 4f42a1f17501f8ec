"""The contract of drivers, on this machine's libvirt; no guest boots."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from fabric_direct.drivers.contract import Image, Port, ServerSpec, Volume
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
from fabric_direct.drivers.libvirt.servers.tuning import LibvirtTuning
from fabric_direct.drivers.libvirt.storage.driver import LibvirtVolume
from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.model import Capacities, NodeSliver, VNicInterface
from fabric_direct.site.config import Site
from fabric_direct.testing import (
    NetworkContract,
    ServerContract,
    TuningContract,
    VolumeContract,
)
from tests.functional.apart import BRIDGE, NUMBER, TAG, subnet
from tests.functional.conftest import with_empty_image
from tests.limits import PATIENT

HOST = "localhost"


@pytest.fixture(scope="module")
def site(room: Path) -> Site:
    """A site with a network and a pool of its own, and an image that boots nothing."""
    site = Site.model_validate(
        {
            "site": f"{TAG}-contract",
            "state_dir": room / "contract" / "state",
            "volume_pool": room / "contract" / "volumes",
            "limits": PATIENT,
            "networks": {
                "red": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{subnet(206)}.0/24",
                    "subnet6": f"fd12:{NUMBER + 1:x}::/64",
                    "forward": "open",
                }
            },
        }
    )
    return with_empty_image(site)


def new_id() -> str:
    return f"{TAG}-contract-{secrets.token_hex(3)}"


@pytest.mark.skipif(os.geteuid() != 0, reason="bridges need root")
class TestNetworks(NetworkContract):
    network = "red"

    @pytest.fixture
    def sliver(self) -> str:
        return new_id()

    @pytest.fixture
    def driver(self, site: Site) -> LibvirtNetwork:
        return LibvirtNetwork(site, HOST)

    @pytest.fixture
    def foreign(self, connection: libvirt.virConnect, site: Site) -> Iterator[None]:
        name = f"fd-{site.site}-{self.network}"
        xml = f"<network><name>{name}</name><bridge name='{BRIDGE}alien'/></network>"
        network = connection.networkDefineXML(xml)
        yield
        network.undefine()


class TestVolumes(VolumeContract):
    @pytest.fixture
    def sliver(self) -> str:
        return new_id()

    @pytest.fixture
    def driver(self, site: Site) -> LibvirtVolume:
        return LibvirtVolume(site, HOST)

    @pytest.fixture
    def foreign(self, site: Site) -> Iterator[str]:
        path = OwnPool.of(site, HOST).path / "archive"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1G"], check=True)
        yield path.name
        path.unlink()


class TestServers(ServerContract):
    image = "empty"

    @pytest.fixture
    def sliver(self) -> str:
        return new_id()

    @pytest.fixture
    def driver(self, site: Site) -> LibvirtCompute:
        return LibvirtCompute(site, HOST)

    @pytest.fixture
    def port(self, site: Site, sliver: str) -> Iterator[Port]:
        if os.geteuid() != 0:
            pytest.skip("bridges need root")
        networks = LibvirtNetwork(site, HOST)
        yield networks.create_port(sliver, "nic", "red", VNicInterface())
        networks.delete_port(sliver, "nic")

    @pytest.fixture
    def volume(self, site: Site, sliver: str) -> Iterator[Volume]:
        volumes = LibvirtVolume(site, HOST)
        yield volumes.create(sliver, "data", 1)
        volumes.delete(sliver, "data")

    @pytest.fixture
    def foreign(self, connection: libvirt.virConnect, sliver: str) -> Iterator[None]:
        domain = connection.defineXML(
            f"<domain type='qemu'><name>{sliver}-node</name><memory unit='MiB'>64</memory>"
            "<os><type>hvm</type></os></domain>"
        )
        yield
        domain.undefine()


class TestTuning(TuningContract):
    @pytest.fixture
    def sliver(self) -> str:
        return new_id()

    @pytest.fixture
    def driver(self, site: Site) -> LibvirtTuning:
        return LibvirtTuning(site, HOST)

    @pytest.fixture
    def instance(self, site: Site, sliver: str) -> Iterator[str]:
        size = Capacities(core=1, ram=1, disk=1)
        node = NodeSliver(id=sliver, name="node", image="empty", capacities=size)
        servers = LibvirtCompute(site, HOST)
        yield servers.create(ServerSpec(node, Image.of(site, "empty"))).instance
        servers.delete(sliver)
