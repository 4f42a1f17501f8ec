"""Answers of a cloud in which a value has not the form that the drivers rely on."""

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from fabric_direct.drivers.contract import Image
from fabric_direct.drivers.openstack.client.stamp import server_metadata, volume_metadata
from fabric_direct.drivers.openstack.networks.bridge import OpenStackBridge
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.drivers.openstack.volumes.driver import OpenStackVolume
from fabric_direct.errors import DriverError
from fabric_direct.model import NodeSliver
from tests.unit.openstack_api import PROJECT, OpenStackApi, neutron_port

SLIVER = NodeSliver.model_validate_json(
    json.dumps(
        {
            "id": "s",
            "name": "node",
            "image": "tiny",
            "components": [{"type": "Storage", "id": "data", "size": 1}],
            "capacities": {"core": 1, "ram": 1, "disk": 1},
        }
    )
)
OURS = {"description": "fabric-direct TEST/s", "project_id": PROJECT}
PORT = neutron_port(
    name="s-nic1", fixed_ips=[{"subnet_id": "sub", "ip_address": "10.0.0.5"}], **OURS
)
FLOATING = {
    "id": "f",
    "port_id": None,
    "floating_ip_address": "192.0.2.7",
    "floating_network_id": "n",
    **OURS,
}
NETWORK = {"id": "n", "name": "red", **OURS}
SUBNET = {"id": "sub", "cidr": "10.0.0.0/24", "ip_version": 4, "dns_nameservers": []}
SERVER = {
    "id": "i",
    "name": "s-node",
    "status": "ACTIVE",
    "metadata": server_metadata("TEST", SLIVER.stamp()),
    "flavor": {"original_name": "m1", "vcpus": 1, "ram": 1024, "disk": 1},
    "os-extended-volumes:volumes_attached": [{"id": "v"}],
}
VOLUME = {
    "id": "v",
    "name": "s-data",
    "size": 1,
    "status": "in-use",
    "metadata": volume_metadata("TEST", "s", "data"),
    "attachments": [{"server_id": "i", "device": "/dev/vdb"}],
}
IMAGE = {"id": "im", "name": "tiny", "status": "active", "min_ram": 0, "min_disk": 0}
FLAVOR = {"id": "fl", "name": "m1", "vcpus": 1, "ram": 1024, "disk": 1}
_LISTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "port": ("network", "/ports", PORT),
    "floatingip": ("network", "/floatingips", FLOATING),
    "network": ("network", "/networks", NETWORK),
    "subnet": ("network", "/subnets", SUBNET),
    "server": ("compute", "/servers/detail", SERVER),
    "volume": ("volume", "/volumes/detail", VOLUME),
    "image": ("image", "/images", IMAGE),
    "flavor": ("compute", "/flavors/detail", FLAVOR),
}


class Cloud:
    """A cloud with one thing of each kind."""

    def __init__(self, api: OpenStackApi) -> None:
        self.api, self.site = api, api.site()

    def has(self, kind: str = "", **values: Any) -> None:
        """Say that one of these things has other values, or lacks those that are ``...``."""
        for name, (service, path, usual) in _LISTS.items():
            given = usual | values if name == kind else usual
            thing = {key: value for key, value in given.items() if value is not ...}
            self.api.answer("GET", service, path, {f"{name}s": [thing]})
        self.api.answer("GET", "network", "/networks/n", {"network": NETWORK})
        self.api.answer("GET", "network", "/routers", {"routers": []})
        self.api.answer("GET", "compute", "/servers", {"servers": [{"id": "i", "name": "s-node"}]})

    def ports(self) -> object:
        return OpenStackNetwork(self.site, "").ports("s")

    def bridge(self) -> object:
        return OpenStackBridge(self.site, "").find("s")

    def server(self) -> object:
        return OpenStackCompute(self.site, "").find("s")

    def servers(self) -> object:
        return OpenStackCompute(self.site, "").servers()

    def volumes(self) -> object:
        return OpenStackVolume(self.site, "").volumes("s")

    def image(self) -> object:
        return OpenStackCompute(self.site, "").image_needs(Image("tiny", "user"))

    def check(self) -> object:
        return OpenStackCompute(self.site, "").check(SLIVER, Image("tiny", "user"))


@pytest.fixture
def cloud(api: OpenStackApi) -> Cloud:
    return Cloud(api)


READS: dict[str, Callable[[Cloud], object]] = {
    "port": Cloud.ports,
    "floatingip": Cloud.ports,
    "network": Cloud.bridge,
    "subnet": Cloud.bridge,
    "server": Cloud.server,
    "volume": Cloud.volumes,
    "image": Cloud.image,
    "flavor": Cloud.check,
}


@pytest.mark.parametrize("kind", READS)
def test_as_the_cloud_gives_them_are_read(cloud: Cloud, kind: str) -> None:
    cloud.has()

    READS[kind](cloud)


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        ("port", {"fixed_ips": [{"ip_address": "10.0.0.5"}]}, "fixed_ips.0.subnet_id"),
        ("port", {"fixed_ips": [{"subnet_id": "sub", "ip_address": "x"}]}, "ip_address"),
        ("port", {"fixed_ips": [{"subnet_id": "sub", "ip_address": "::1"}]}, "fixed_ips"),
        ("port", {"network_id": ["n"]}, "network_id"),
        ("port", {"mac_address": ...}, "mac_address"),
        ("floatingip", {"floating_ip_address": None}, "floating_ip_address"),
        ("network", {"id": []}, "id"),
        ("network", {"description": 1}, "description"),
        ("network", {"provider:network_type": {}}, "provider_network_type"),
        ("network", {"provider:physical_network": []}, "provider_physical_network"),
        ("subnet", {"cidr": "10.0.0.0/99"}, "cidr"),
        ("subnet", {"dns_nameservers": ...}, "dns_nameservers"),
        ("server", {"status": []}, "status"),
        ("server", {"metadata": {"a": 1}}, "metadata.a"),
        ("server", {"OS-EXT-STS:power_state": {}, "status": "BUILD"}, "power_state"),
        ("server", {"os-extended-volumes:volumes_attached": {"a": 1}}, "attached_volumes"),
        ("server", {"os-extended-volumes:volumes_attached": [{"id": {}}]}, "attached_volumes"),
        ("server", {"flavor": ...}, "flavor"),
        ("volume", {"metadata": ...}, "metadata"),
        ("volume", {"attachments": [1]}, "attachments.0"),
        ("volume", {"id": ["v"]}, "id"),
        ("image", {"name": []}, "name"),
        ("image", {"hw_architecture": []}, "hw_architecture"),
        ("flavor", {"name": 5}, "name"),
    ],
)
def test_of_another_form_are_an_error_that_names_the_field(
    cloud: Cloud, kind: str, values: dict[str, Any], field: str
) -> None:
    cloud.has(kind, **values)

    with pytest.raises(DriverError, match="the cloud's answer is invalid") as error:
        READS[kind](cloud)

    assert field in error.value.why


@pytest.mark.parametrize("form", [None, {"a": 1}])
def test_a_volume_of_another_form_does_not_hide_in_a_list_of_servers(
    cloud: Cloud, form: object
) -> None:
    cloud.has("volume", metadata=form)

    with pytest.raises(DriverError, match="Volume v"):
        cloud.server()


def test_a_server_whose_metadata_lack_the_site_is_read(cloud: Cloud) -> None:
    metadata = {k: v for k, v in SERVER["metadata"].items() if k != "fabric-direct:site"}  # type: ignore[attr-defined]
    cloud.has("server", metadata=metadata)

    assert cloud.server()


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("maximum recursion depth exceeded"),
        ValueError("Exceeds the limit (4300 digits) for integer string conversion"),
    ],
    ids=["too deep", "a number that is too long"],
)
def test_an_answer_that_python_does_not_read_is_an_error_of_ours(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    cloud.has()
    cloud.volumes()
    monkeypatch.setattr("requests.Response.json", Mock(side_effect=error))
    with pytest.raises(DriverError, match=type(error).__name__):
        cloud.volumes()


def test_what_is_there_in_place_of_an_id_is_not_shown_whole(cloud: Cloud) -> None:
    cloud.has("volume", id="v" * 70_000, metadata=...)

    with pytest.raises(DriverError) as error:
        cloud.volumes()

    assert len(str(error.value)) < 300
