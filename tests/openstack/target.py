"""The cloud that the tests use: the lab of this machine, or the one that ``FABRIC_CLOUD`` names.

docs/testing-on-a-cloud.md lists the variables.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LAB_CLOUDS = Path("/var/lib/fabric-direct/openstack/clouds.yaml")
XDIST_NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
VLANS_EACH = 2  # one of the site, one of a network sliver


@dataclass(frozen=True)
class Target:
    """A cloud, and what the tests use of it."""

    is_lab: bool
    cloud: str
    """An administrator's entry of clouds.yaml."""
    member: str | None
    """An entry of somebody without the rights of an administrator."""
    clouds_file: Path | None
    """clouds.yaml; looked for where openstacksdk does if absent."""
    worker: str
    """A compute host, as Nova names it."""
    image: str
    image_user: str
    """The user that logs in to its guests."""
    cloud_init_image: str | None
    cloud_init_user: str
    flavor: str
    """The smallest for 1 core, 1 GiB of memory and 1 GB of disk."""
    external_network: str
    network: str
    """A network of the project with a router to the external network."""
    physical_network: str
    vlans: range
    flat_networks: tuple[str, ...]
    """Physical networks without VLANs: each carries one flat network at a time."""

    @property
    def own_vlans(self) -> tuple[int, ...]:
        """VLANs that no other xdist worker uses; the last one of all is for tests/fabric."""
        first = XDIST_NUMBER * VLANS_EACH
        own = tuple(self.vlans[:-1][first : first + VLANS_EACH])
        if len(own) < VLANS_EACH:
            raise _too_many_workers("VLANs (FABRIC_VLANS)")
        return own

    def vlan_network(self, vlan: int, subnet: str) -> dict[str, Any]:
        """A network with a VLAN, as a site or a sliver describes it."""
        network = {"strategy": "vlan", "physical_network": self.physical_network}
        return {**network, "vlan": vlan, "subnet": subnet}

    @property
    def own_flat_network(self) -> str | None:
        """A physical network that no other xdist worker uses."""
        if not self.flat_networks:
            return None
        if len(self.flat_networks) <= XDIST_NUMBER:
            raise _too_many_workers("physical networks (FABRIC_FLAT_NETWORKS)")
        return self.flat_networks[XDIST_NUMBER]


def _too_many_workers(of_what: str) -> pytest.UsageError:
    return pytest.UsageError(f"pytest -n: there are more workers than {of_what}")


def _lab() -> Target:
    return Target(
        is_lab=True,
        cloud="lab",
        member="lab-member",
        clouds_file=LAB_CLOUDS,
        worker="worker1",
        image="fabric-guest",
        image_user="root",
        cloud_init_image="fabric-debian",
        cloud_init_user="debian",
        flavor="m1.small",
        external_network="public",
        network="private",
        physical_network="physnet1",
        vlans=range(100, 200),
        flat_networks=tuple(f"physnet{number}" for number in range(2, 10)),
    )


def _of_environment() -> Target:
    told = os.environ.get
    return Target(
        is_lab=False,
        cloud=_needed("FABRIC_CLOUD"),
        member=told("FABRIC_CLOUD_MEMBER"),
        clouds_file=None,
        worker=_needed("FABRIC_WORKER"),
        image=_needed("FABRIC_IMAGE"),
        image_user=_needed("FABRIC_IMAGE_USER"),
        cloud_init_image=told("FABRIC_CLOUD_INIT_IMAGE"),
        cloud_init_user=told("FABRIC_CLOUD_INIT_USER", "debian"),
        flavor=_needed("FABRIC_FLAVOR"),
        external_network=told("FABRIC_EXTERNAL_NETWORK", "public"),
        network=told("FABRIC_NETWORK", "private"),
        physical_network=_needed("FABRIC_PHYSICAL_NETWORK"),
        vlans=_vlans(_needed("FABRIC_VLANS")),
        flat_networks=tuple(told("FABRIC_FLAT_NETWORKS", "").replace(",", " ").split()),
    )


def _needed(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise pytest.UsageError(f"{name} is not set: see docs/testing-on-a-cloud.md")
    return value


def _vlans(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1)


TARGET = _of_environment() if os.environ.get("FABRIC_CLOUD") else _lab()
