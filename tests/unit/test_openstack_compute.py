"""Servers in Nova: every request of each method, in order, and what becomes of each fault."""

import base64
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from hashlib import sha512
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import libvirt
import pytest
import requests
from pytest_mock import MockerFixture

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import (
    Image,
    Plug,
    PluggedPort,
    PluggedVolume,
    Port,
    ServerSpec,
    Volume,
)
from fabric_direct.drivers.libvirt.connection import connections as libvirt_connection
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.drivers.openstack.client.stamp import (
    COMPONENT,
    SITE,
    SLIVER,
    server_metadata,
    site_tag,
    sliver_tag,
)
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.servers import actions
from fabric_direct.drivers.openstack.servers import driver as module
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.drivers.openstack.servers.flavors import ensure_flavor
from fabric_direct.drivers.openstack.volumes.driver import OpenStackVolume
from fabric_direct.errors import (
    Conflict,
    Denied,
    DriverError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
    QuotaExceeded,
    TimedOut,
)
from fabric_direct.model import NodeSliver, State, VNicInterface
from fabric_direct.site.config import Site
from tests.unit.openstack_api import PROJECT, Call, OpenStackApi, body

TAG = sliver_tag("TEST", "s-1")
ID, OTHER = "610c02c6-1c21-49fd-b0db-efb0d17edb88", "7e3b6a52-4f0e-4a8e-9a41-0d7a5f1d3c11"
IMAGE_ID = "c9b76bcb-c7d4-4571-941d-7b6e5b016deb"
PORT, PORT2 = "9f2de8bb-786e-42b5-ad55-66c1f89ad74a", "5a0fb6f5-4f0e-4c0e-a1b0-59d6f3ad7a3c"
DISK, OLD = "8ee6e661-bed7-4f1d-a952-cd86f65b0e67", "e619ca40-5544-408e-87db-5aea546ed4f5"
IMAGE = Image("tiny", "root")
REQUEST = "req-7765d5b7-40f2-4e64-b432-81ae92743020"
NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
GPU = {"type": "GPU", "id": "gpu1", "bdf": ["0000:25:00.0"]}

# Not to be compressed to what Nova takes.
NOISE = "".join(
    chr(0x4E00 + int.from_bytes(digest[at : at + 2]) % 0x4000)
    for digest in (sha512(str(number).encode()).digest() for number in range(1000))
    for at in range(0, 64, 2)
)

# What the requests look like in ``api.calls``.
BY_TAG: Call = ("GET", "compute", "/servers/detail", {"tags": TAG})
POLL: Call = ("GET", "compute", "/servers/detail", {"tags-any": TAG})
PORTS: Call = ("GET", "network", "/ports", {"description": "fabric-direct TEST/s-1"})
FLAVORS: Call = ("GET", "compute", "/flavors/detail", {"is_public": "None"})
IMAGES: Call = ("GET", "image", "/images", {"name": "tiny"})
SERVICES: Call = ("GET", "compute", "/os-services", {"binary": "nova-compute"})
ONE: Call = ("GET", "compute", f"/servers/{ID}", {})
ACTIONS: Call = ("GET", "compute", f"/servers/{ID}/os-instance-actions", {})
ACTION: Call = ("GET", "compute", f"/servers/{ID}/os-instance-actions/{REQUEST}", {})


MAKE_SERVER: Call = ("POST", "compute", "/servers", {})


def act(action: dict[str, Any]) -> Call:
    return ("POST", "compute", f"/servers/{ID}/action", action)


def sliver(**values: Any) -> NodeSliver:
    given = {
        "id": "s-1",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 2},
    }
    return NodeSliver.model_validate(given | values)


def server(status: str = "ACTIVE", **values: Any) -> dict[str, Any]:
    """Return a server as Nova shows it, with this site's stamp."""
    given = {
        "id": ID,
        "name": "s-1-node",
        "status": status,
        "created": "2026-11-21T10:30:58Z",
        "OS-SRV-USG:launched_at": "2026-11-21T10:31:01.000000",
        "OS-EXT-STS:task_state": None,
        "OS-EXT-STS:power_state": 1 if status == "ACTIVE" else 4,
        "OS-EXT-SRV-ATTR:host": "w1",
        "OS-EXT-SRV-ATTR:instance_name": "instance-00000002",
        "flavor": {"original_name": "small", "vcpus": 1, "ram": 1024, "disk": 2},
        "os-extended-volumes:volumes_attached": [],
        "tags": [TAG, site_tag("TEST")],
        "metadata": server_metadata("TEST", sliver().stamp()),
    }
    names = {"task": "OS-EXT-STS:task_state", "launched": "OS-SRV-USG:launched_at"}
    return given | {names.get(name, name): value for name, value in values.items()}


def with_volumes(*ids: str, **values: Any) -> dict[str, Any]:
    attached = [{"id": volume, "delete_on_termination": False} for volume in ids]
    return server(**{"os-extended-volumes:volumes_attached": attached}, **values)


IPV6 = IPv6Interface("2001:db8::5/64")


def port(component: str = "nic1", **values: Any) -> Port:
    given = {"source": PORT, "mac": "fa:16:3e:00:00:01", "ipv4": IPv4Interface("10.0.0.5/24")}
    return Port("s-1", component, "red", **(given | values))


def neutron_port(component: str = "nic1", **values: Any) -> dict[str, Any]:
    given = {
        "id": PORT,
        "name": f"s-1-{component}",
        "device_id": ID,
        "status": "ACTIVE",
        "mac_address": "fa:16:3e:00:00:01",
        "description": "fabric-direct TEST/s-1",
        "network_id": "n",
        "fixed_ips": [],
        "project_id": PROJECT,
    }
    return given | values


def cinder_volume(status: str = "in-use", *servers: str, **values: Any) -> dict[str, Any]:
    attachments = [{"server_id": server, "device": "/dev/vdb"} for server in servers]
    given = {
        "id": DISK,
        "name": "s-1-data",
        "size": 1,
        "status": status,
        "multiattach": False,
        "metadata": {SITE: "TEST", SLIVER: "s-1", COMPONENT: "data"},
        "attachments": attachments,
    }
    return given | values


def flavor(name: str = "small", **values: Any) -> dict[str, Any]:
    given = {"id": f"id-{name}", "name": name, "vcpus": 1, "ram": 1024, "disk": 2}
    return given | {"extra_specs": {}, "OS-FLV-DISABLED:disabled": False} | values


def image(**values: Any) -> dict[str, Any]:
    given = {"id": IMAGE_ID, "name": "tiny", "status": "active", "min_disk": 1, "min_ram": 96}
    return given | values


def spec(*ports: Port, volumes: tuple[Volume, ...] = (), **values: Any) -> ServerSpec:
    user_data = values.pop("user_data", "")
    return ServerSpec(sliver(**values), IMAGE, ports, volumes, user_data)


def request(**values: Any) -> dict[str, Any]:
    """Return the body of the request that makes the server of ``spec(port())``."""
    given = {
        "name": "s-1-node",
        "hostname": "node",
        "imageRef": IMAGE_ID,
        "flavorRef": "id-small",
        "networks": [{"port": PORT}],
        "tags": [site_tag("TEST"), TAG],
        "metadata": server_metadata("TEST", sliver().stamp()),
    }
    return {"server": given | values}


class Nova:
    """The fixture's cloud, with what every test has it answer."""

    def __init__(self, api: OpenStackApi) -> None:
        self.api = api
        self.has(flavors=[flavor()], images=[image()], ports=[neutron_port()])
        api.answer("POST", "compute", "/servers", {"server": {"id": ID}}, status=202)
        api.answer("POST", "compute", f"/servers/{ID}/action", status=202, headers=_REQUEST)
        api.answer("DELETE", "compute", f"/servers/{ID}", status=204)
        for gone in (ID, OTHER):
            self.refuses("GET", f"/servers/{gone}", 404, "Instance could not be found.")
        services = [{"binary": "nova-compute", "host": host, **_UP} for host in ("w1", "w2")]
        api.answer("GET", "compute", "/os-services", {"services": services})

    def answers(self, call: Call, *answers: Any, status: int = 200) -> None:
        """Say what is answered from now on; an answer may be a status and a body."""
        self.api._answers.pop(call[:3], None)
        for answer in answers:
            code, text = answer if isinstance(answer, tuple) else (status, answer)
            self.api.answer(*call[:3], text, status=code)

    def has(self, **things: list[dict[str, Any]]) -> None:
        for name, found in things.items():
            self.answers(("GET", *_PATHS[name], {}), {name: found})

    def lists(self, *lists: list[dict[str, Any]]) -> None:
        """Say what each list of servers shows, one after the other; the last one stays."""
        for servers in lists:
            self.api.answer("GET", "compute", "/servers/detail", {"servers": servers})

    def says(self, *events: dict[str, Any], action: str) -> None:
        """Say what Nova tells of an action."""
        about = {"request_id": REQUEST, "action": action, "message": None}
        path = f"/servers/{ID}/os-instance-actions"
        self.api.answer("GET", "compute", path, {"instanceActions": [about]})
        told = {"instanceAction": {**about, "events": list(events)}}
        self.api.answer("GET", "compute", f"{path}/{REQUEST}", told)

    def tells(self, *servers: dict[str, Any]) -> None:
        """Say what is told of the one server, one time after the other."""
        self.answers(ONE, *({"server": found} for found in servers))

    def refuses(self, method: str, path: str, status: int, message: str) -> None:
        answer = {"refusal": {"code": status, "message": message}}
        self.answers((method, "compute", path, {}), answer, status=status)

    def compute(self, *, openstack: dict[str, Any] | None = None, **site: Any) -> OpenStackCompute:
        return OpenStackCompute(self.api.site(openstack=openstack, **site), "")

    @property
    def calls(self) -> list[Call]:
        return self.api.calls


_REQUEST = {"X-Openstack-Request-Id": REQUEST}
_UP = {"status": "enabled", "state": "up", "disabled_reason": None}
_PATHS = {
    "flavors": ("compute", "/flavors/detail"),
    "images": ("image", "/images"),
    "ports": ("network", "/ports"),
    "volumes": ("volume", "/volumes/detail"),
}


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def nova(api: OpenStackApi) -> Nova:
    return Nova(api)


def test_the_driver_serves_all_workers_of_a_cloud() -> None:
    assert OpenStackCompute.cloud


def test_a_site_without_a_cloud_is_refused() -> None:
    with pytest.raises(InvalidSite) as caught:
        OpenStackCompute(Site(site="TEST"), "")
    assert caught.value.field == "openstack"


# --- what can be had


def test_a_check_asks_each_once_and_a_warm_one_only_for_the_servers(nova: Nova) -> None:
    nova.lists([])
    compute = nova.compute()

    for _ in range(2):
        with ReadCache().active():
            compute.check(sliver(host="w1"), IMAGE)

    assert nova.calls == [BY_TAG, FLAVORS, IMAGES, SERVICES, BY_TAG]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"boot_script": NOISE}, "boot_script"),
    ],
)
def test_what_no_cloud_can_have_is_refused_before_anything_is_asked(
    nova: Nova, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSliver) as caught:
        nova.compute().check(sliver(**values), IMAGE)
    assert caught.value.field == field
    assert nova.calls == []


@pytest.mark.parametrize(
    ("found", "values", "field"),
    [
        ({"min_disk": 3}, {}, "capacities.disk"),
        ({"virtual_size": 2 * 1024**3 + 1}, {}, "capacities.disk"),
        ({"min_ram": 2048}, {}, "capacities.ram"),
        ({"min_disk": 3}, {"flavor": "small"}, "flavor"),
    ],
)
def test_an_image_that_does_not_fit_is_refused(
    nova: Nova, found: dict[str, Any], values: dict[str, Any], field: str
) -> None:
    nova.lists([])
    nova.has(images=[image(**found)])
    with pytest.raises(InvalidSliver) as caught:
        nova.compute().check(sliver(**values), IMAGE)
    assert caught.value.field == field


def test_an_unknown_image_is_refused(nova: Nova) -> None:
    nova.lists([])
    nova.has(images=[])
    with pytest.raises(InvalidSliver, match="tiny") as caught:
        nova.compute().check(sliver(), IMAGE)
    assert caught.value.field == "image"


def test_an_unknown_worker_is_looked_for_again_and_refused_with_those_that_there_are(
    nova: Nova,
) -> None:
    nova.lists([])
    with pytest.raises(InvalidSliver, match="known: w1, w2") as caught:
        nova.compute().check(sliver(host="w9"), IMAGE)
    assert caught.value.field == "host"
    assert nova.calls == [BY_TAG, FLAVORS, IMAGES, SERVICES, SERVICES]


def test_a_worker_is_left_to_nova_where_the_user_may_not_list_them(nova: Nova) -> None:
    nova.lists([])
    nova.refuses("GET", "/os-services", 403, "Policy doesn't allow os_compute_api:os-services:list")
    nova.compute().check(sliver(host="w9"), IMAGE)
    assert nova.calls == [BY_TAG, FLAVORS, IMAGES, SERVICES]


def test_a_name_that_a_foreign_server_has_is_refused(nova: Nova) -> None:
    nova.lists([])
    foreign = [{"id": OTHER, "name": "s-1-node"}]
    nova.api.every = foreign
    with pytest.raises(NotOurs, match=OTHER):
        nova.compute().check(sliver(), IMAGE)


def test_a_name_that_only_resembles_is_none_of_ours(nova: Nova) -> None:
    nova.lists([])
    alike = [{"id": OTHER, "name": "S-1-node"}]
    nova.api.every = alike
    nova.compute().check(sliver(), IMAGE)


def test_a_server_of_ours_without_a_stamp_is_no_reason_for_a_second(nova: Nova) -> None:
    nova.lists([server(metadata={})])
    with pytest.raises(NotVerified, match="no stamp that can be read") as caught:
        nova.compute().check(sliver(), IMAGE)
    assert caught.value.remedy == "delete the sliver"
    with pytest.raises(NotVerified):
        nova.compute().create(spec(port()))
    assert nova.calls == [BY_TAG, PORTS, BY_TAG]


def test_a_server_that_nova_begins_to_build_is_looked_at_until_it_shows_its_stamp(
    nova: Nova,
) -> None:
    nova.lists([server(metadata={}, status="BUILD")], [server(status="BUILD")])
    nova.compute().check(sliver(), IMAGE)
    assert nova.calls[:2] == [BY_TAG, BY_TAG]


# --- flavors

SIZES = [
    flavor("huge", vcpus=8, ram=8192, disk=80),
    flavor("roomy", vcpus=1, ram=1024, disk=4),
    flavor("small"),
    flavor("off", disk=2, **{"OS-FLV-DISABLED:disabled": True}),
    flavor("gpu", extra_specs={"pci_passthrough:alias": "a100:1"}),
    flavor("nano", ram=512),
]


def chosen(nova: Nova, **values: Any) -> str:
    """Return the flavor that a server was made with."""
    nova.lists([], [server()])
    nova.compute(openstack=values.pop("openstack", None)).create(spec(port(), **values))
    (made,) = [
        sent for method, _, path, sent in nova.calls if (method, path) == ("POST", "/servers")
    ]
    return str(made["server"]["flavorRef"])


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "small"),
        ({"capacities": {"core": 1, "ram": 1, "disk": 3}}, "roomy"),
        ({"capacities": {"core": 2, "ram": 1, "disk": 3}}, "huge"),
        ({"flavor": "roomy"}, "roomy"),
        ({"flavor": "id-huge"}, "huge"),
        ({"flavor": "gpu"}, "gpu"),
    ],
)
def test_a_sliver_gets_the_flavor_that_it_names_or_the_smallest_that_fits(
    nova: Nova, values: dict[str, Any], name: str
) -> None:
    nova.has(flavors=SIZES)
    assert chosen(nova, **values) == f"id-{name}"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"flavor": "nothing"}, "flavor"),
        ({"flavor": "nano"}, "flavor"),
        ({"capacities": {"core": 9, "ram": 1, "disk": 1}}, "capacities.core"),
        ({"capacities": {"core": 1, "ram": 9, "disk": 1}}, "capacities.ram"),
        ({"capacities": {"core": 1, "ram": 1, "disk": 81}}, "capacities.disk"),
    ],
)
def test_a_flavor_that_is_not_to_be_had_is_looked_for_again_and_refused(
    nova: Nova, values: dict[str, Any], field: str
) -> None:
    nova.lists([])
    nova.has(flavors=SIZES)
    with pytest.raises(InvalidSliver) as caught:
        nova.compute().check(sliver(**values), IMAGE)
    assert caught.value.field == field
    assert nova.calls == [BY_TAG, FLAVORS, FLAVORS]


def test_capacities_that_no_flavor_has_together_are_refused_as_such(nova: Nova) -> None:
    nova.lists([])
    nova.has(flavors=[flavor("wide", vcpus=4), flavor("deep", disk=40)])
    with pytest.raises(InvalidSliver, match="wide with 4 cores") as caught:
        nova.compute().check(sliver(capacities={"core": 4, "ram": 1, "disk": 40}), IMAGE)
    assert caught.value.field == "capacities"


MAKE = {"make_flavors": True}
BIG = {"capacities": {"core": 2, "ram": 4, "disk": 20}}
MADE = flavor("fabric-direct-c2-r4-d20", vcpus=2, ram=4096, disk=20)
MAKE_FLAVOR: Call = (
    "POST",
    "compute",
    "/flavors",
    {"flavor": {"name": "fabric-direct-c2-r4-d20", "vcpus": 2, "ram": 4096, "disk": 20}},
)


def test_a_check_makes_no_flavor(nova: Nova) -> None:
    nova.lists([])
    nova.compute(openstack=MAKE).check(sliver(**BIG), IMAGE)
    assert MAKE_FLAVOR not in nova.calls


@pytest.mark.parametrize("status", [200, 409])
def test_a_flavor_is_made_on_demand_or_was_made_by_another_thread(nova: Nova, status: int) -> None:
    nova.api.answer("POST", "compute", "/flavors", {"flavor": MADE}, status=status)
    nova.api.answer("GET", "compute", "/flavors/detail", {"flavors": [MADE]})
    assert chosen(nova, openstack=MAKE, **BIG) == MADE["id"]
    assert nova.calls[2:6] == [FLAVORS, MAKE_FLAVOR, FLAVORS, IMAGES]


def test_a_flavor_of_that_name_but_of_another_size_is_not_used(nova: Nova) -> None:
    nova.lists([])
    nova.api.answer("POST", "compute", "/flavors", {}, status=409)
    nova.api.answer("GET", "compute", "/flavors/detail", {"flavors": [MADE | {"disk": 10}]})
    with pytest.raises(NotOurs, match="10 GiB"):
        nova.compute(openstack=MAKE).create(spec(port(), **BIG))
    assert ("POST", "compute", "/servers") not in {call[:3] for call in nova.calls}


def test_a_member_who_may_make_no_flavors_is_told_so(nova: Nova) -> None:
    nova.lists([])
    nova.refuses("POST", "/flavors", 403, "Policy doesn't allow os_compute_api:os-flavor-manage")
    with pytest.raises(Denied, match="administrator"):
        nova.compute(openstack=MAKE).create(spec(port(), **BIG))


# --- made


def test_a_server_is_made_by_one_request_and_waited_for(nova: Nova) -> None:
    nova.lists([], [server("BUILD", task="spawning")], [server()])

    with ReadCache().active():
        compute = nova.compute()
        made = compute.create(spec(port()))
        assert compute.find("s-1") == made

    assert made.instance == ID
    assert made.state is State.RUNNING
    assert nova.calls == [
        PORTS,
        BY_TAG,
        FLAVORS,
        IMAGES,
        ("POST", "compute", "/servers", request()),
        POLL,
        POLL,
        PORTS,
    ]


def test_the_request_has_the_microversion_that_the_cloud_and_the_library_know(nova: Nova) -> None:
    nova.lists([], [server()])
    nova.compute().create(spec(port()))
    (made,) = [r for r in nova.api.requests if r.method == "POST"]
    assert made.headers["OpenStack-API-Version"] == "compute 2.93"


def made_with(nova: Nova, of: ServerSpec, **openstack: Any) -> dict[str, Any]:
    nova.lists([], [server()])
    nova.compute(openstack=openstack).create(of)
    (made,) = [
        sent for method, _, path, sent in nova.calls if (method, path) == ("POST", "/servers")
    ]
    return dict(made["server"])


def test_the_request_has_all_that_the_sliver_and_the_site_want(nova: Nova) -> None:
    of = spec(port(), port("nic2", source=PORT2), host="w1", user_data="#!/bin/sh\n")
    made = made_with(nova, of, key_name="operators", config_drive=True)
    assert (
        made
        == request(
            networks=[{"port": PORT}, {"port": PORT2}],
            metadata=server_metadata("TEST", of.sliver.stamp()),
            host="w1",
            key_name="operators",
            config_drive=True,
            user_data=base64.b64encode(b"#!/bin/sh\n").decode(),
        )["server"]
    )


def test_a_server_without_nics_asks_for_none(nova: Nova) -> None:
    assert made_with(nova, spec())["networks"] == "none"


def test_a_nic_without_dhcp_is_configured_from_a_config_drive(nova: Nova) -> None:
    assert made_with(nova, spec(port(dhcp=False)))["config_drive"] is True


@pytest.mark.parametrize(
    ("ports", "drive"),
    [
        ((), True),
        ((port(ipv4=None, ipv6=IPV6),), True),
        ((port(), port("nic2", source=PORT2, ipv4=None, ipv6=IPV6)), True),
        ((port(ipv6=IPV6),), None),
    ],
    ids=["no NIC", "IPv6 alone", "one of two has IPv6 alone", "both families"],
)
def test_a_guest_that_cannot_ask_the_metadata_service_has_a_config_drive(
    nova: Nova, ports: tuple[Port, ...], drive: bool | None
) -> None:
    """The service answers over IPv4 alone."""
    assert made_with(nova, spec(*ports)).get("config_drive") is drive


def test_a_name_that_is_no_host_name_is_left_to_nova(nova: Nova) -> None:
    made = made_with(nova, spec(port(), name="my.node_1"))
    assert made["name"] == "s-1-my.node_1"
    assert "hostname" not in made


def test_volumes_are_plugged_in_as_the_server_is_made(nova: Nova) -> None:
    components = [
        {"type": "Storage", "id": "old", "volume": "archive"},
        {"type": "Storage", "id": "data", "size": 1},
    ]
    volumes = (Volume("", "", OLD, 5), Volume("s-1", "data", DISK, 1))
    made = made_with(nova, spec(port(), volumes=volumes, components=components))
    plugged = {"source_type": "volume", "destination_type": "volume", "boot_index": -1}
    assert made["block_device_mapping_v2"] == [
        {
            "boot_index": 0,
            "uuid": IMAGE_ID,
            "source_type": "image",
            "destination_type": "local",
            "delete_on_termination": True,
        },
        {"uuid": OLD, "tag": "old", "delete_on_termination": False, **plugged},
        {"uuid": DISK, "tag": "data", "delete_on_termination": False, **plugged},
    ]


def test_user_data_that_are_too_long_are_compressed(nova: Nova) -> None:
    text = "#!/bin/sh\n" + "# much ado\n" * 10_000
    made = made_with(nova, spec(port(), user_data=text))
    assert gzip.decompress(base64.b64decode(made["user_data"])).decode() == text


@pytest.mark.parametrize(
    ("lists", "calls"),
    [
        ([[server()]], [PORTS, BY_TAG, BY_TAG, PORTS]),
        ([[server("BUILD")], [server()]], [PORTS, BY_TAG, POLL, BY_TAG, PORTS]),
        (
            [[server("SHUTOFF")], [server("SHUTOFF", task="powering-on")], [server()]],
            [PORTS, BY_TAG, act({"os-start": None}), POLL, POLL, BY_TAG, PORTS],
        ),
    ],
)
def test_a_server_that_an_earlier_call_made_is_used(
    nova: Nova, lists: list[list[dict[str, Any]]], calls: list[Call]
) -> None:
    nova.lists(*lists)
    nova.compute().create(spec(port()))
    assert nova.calls == calls


def test_a_server_that_never_came_up_is_replaced(nova: Nova) -> None:
    nova.lists([server("ERROR", launched=None)], [], [server()])
    nova.compute().create(spec(port()))
    assert [call[:3] for call in nova.calls] == [
        PORTS[:3],
        BY_TAG[:3],
        ("DELETE", "compute", f"/servers/{ID}"),
        POLL[:3],
        ONE[:3],
        FLAVORS[:3],
        IMAGES[:3],
        ("POST", "compute", "/servers"),
        POLL[:3],
        BY_TAG[:3],
        PORTS[:3],
    ]


def test_a_server_that_ran_once_is_not_replaced_when_it_is_in_error(nova: Nova) -> None:
    nova.lists([server("ERROR")])
    nova.tells(server("ERROR", fault={"message": "the disk is full"}))
    with pytest.raises(DriverError, match="the disk is full"):
        nova.compute().create(spec(port()))
    assert {call[0] for call in nova.calls} == {"GET"}


NO_HOST = "No valid host was found. There are not enough hosts available."


FAULT = {"code": 500, "message": NO_HOST, "details": "Traceback …"}


def test_a_server_that_goes_to_error_is_explained_by_its_fault_and_the_worker(nova: Nova) -> None:
    wanted = spec(port(), host="w1")
    broken = server(
        "ERROR",
        launched=None,
        metadata=server_metadata("TEST", wanted.sliver.stamp()),
        **{"OS-EXT-SRV-ATTR:host": None},
    )
    nova.lists([], [broken])
    nova.tells(broken, broken | {"fault": FAULT})
    off = {"status": "disabled", "disabled_reason": "new fans", "state": "up"}
    nova.answers(SERVICES, {"services": [{"binary": "nova-compute", "host": "w1", **off}]})

    with pytest.raises(DriverError) as caught:
        nova.compute().create(wanted)

    assert caught.value.why == f"{NO_HOST}; nova-compute on w1 is disabled (new fans) and up"
    assert "Traceback" not in str(caught.value)
    asked = ("GET", "compute", "/os-services", SERVICES[3] | {"host": "w1"})
    assert nova.calls[-4:] == [POLL, ONE, ONE, asked]


def test_a_fault_is_told_even_where_the_services_are_not(nova: Nova) -> None:
    nova.lists([], [server("ERROR")])
    nova.tells(server("ERROR", fault=FAULT))
    nova.refuses("GET", "/os-services", 403, "Policy doesn't allow it")
    with pytest.raises(DriverError) as caught:
        nova.compute().create(spec(port()))
    assert caught.value.why == NO_HOST


def test_a_fault_that_nova_never_tells_is_no_reason_to_wait_for_ever(
    nova: Nova, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_WRITTEN", 0.1)
    nova.lists([], [server("ERROR")])
    nova.tells(server("ERROR"))
    with pytest.raises(DriverError, match="Nova says no more than that"):
        nova.compute().create(spec(port()))


def test_a_server_in_error_that_is_gone_meanwhile_is_told_of_all_the_same(nova: Nova) -> None:
    nova.lists([], [server("ERROR")])
    nova.refuses("GET", f"/servers/{ID}", 404, "Instance could not be found.")
    with pytest.raises(DriverError, match="went to ERROR"):
        nova.compute().create(spec(port()))


def test_a_server_that_somebody_deletes_meanwhile_is_not_waited_for(nova: Nova) -> None:
    nova.lists([], [server("BUILD")], [])
    with pytest.raises(NotFound, match="is gone"):
        nova.compute().create(spec(port()))


def test_a_guest_that_powers_itself_off_is_not_running(nova: Nova) -> None:
    nova.lists([], [server()], [server("SHUTOFF")])
    with pytest.raises(NotVerified, match="stopped, not running"):
        nova.compute().create(spec(port()))


def test_a_server_that_takes_too_long_ends_the_wait(nova: Nova) -> None:
    nova.lists([], [server("BUILD")])
    with pytest.raises(TimedOut, match="its status is BUILD"):
        nova.compute(limits={"create": 0.3}).create(spec(port()))


@pytest.mark.parametrize(
    ("status", "words", "kind", "field"),
    [
        (
            403,
            "Quota exceeded for cores: Requested 4, but already used 18 of 20 cores",
            QuotaExceeded,
            "",
        ),
        (
            403,
            "Policy doesn't allow compute:servers:create:requested_destination to be performed.",
            Denied,
            "",
        ),
        (400, "Compute host w9 could not be found.", InvalidSliver, "host"),
        (400, "Invalid volume: Volume 8ee6e661 status must be available", Conflict, ""),
        (400, "Invalid key_name provided.", DriverError, ""),
        (409, "Port 9f2de8bb is still in use.", Conflict, ""),
    ],
)
def test_a_refused_request_is_told_in_novas_words_and_not_repeated(
    nova: Nova, status: int, words: str, kind: type[Exception], field: str
) -> None:
    nova.lists([])
    nova.refuses("POST", "/servers", status, words)
    with pytest.raises(kind, match=words.split(":", maxsplit=1)[0]) as caught:
        nova.compute().create(spec(port(), host="w9"))
    assert type(caught.value) is kind
    assert caught.value.field == field
    assert [call[0] for call in nova.calls].count("POST") == 1


def test_a_member_is_told_that_the_worker_can_be_left_out(nova: Nova) -> None:
    nova.lists([])
    nova.refuses("POST", "/servers", 403, "Policy doesn't allow …:create:requested_destination")
    with pytest.raises(Denied, match="leave out the sliver's host"):
        nova.compute().create(spec(port(), host="w9"))


def _lost(_: requests.PreparedRequest) -> tuple[int, Any]:
    raise requests.exceptions.ReadTimeout


def test_a_server_whose_answer_got_lost_is_found_by_its_tag_and_not_made_again(nova: Nova) -> None:
    nova.answers(MAKE_SERVER, _lost)
    nova.lists([], [], [server("BUILD")], [server()])

    with ReadCache().active():
        assert nova.compute().create(spec(port())).instance == ID

    assert nova.calls == [
        PORTS,
        BY_TAG,
        FLAVORS,
        IMAGES,
        ("POST", "compute", "/servers", request()),
        BY_TAG,
        BY_TAG,
        POLL,
        PORTS,
    ]


def test_a_server_that_does_not_appear_after_a_lost_answer_is_not_made_again(nova: Nova) -> None:
    nova.answers(MAKE_SERVER, _lost)
    nova.lists([])
    with pytest.raises(TimedOut):
        nova.compute(limits={"call": 0.5}).create(spec(port()))
    assert [call[0] for call in nova.calls].count("POST") == 1


def test_an_image_that_is_another_one_by_now_is_looked_up_again(nova: Nova) -> None:
    nova.lists([])
    compute = nova.compute()
    compute.check(sliver(), IMAGE)
    nova.has(images=[image(id=OTHER)])
    gone = {"badRequest": {"code": 400, "message": "Can not find requested image"}}
    nova.answers(MAKE_SERVER, (400, gone), (202, {"server": {"id": ID}}))
    nova.lists([server()])
    before = len(nova.calls)

    compute.create(spec(port()))

    assert nova.calls[before:] == [
        PORTS,
        BY_TAG,
        ("POST", "compute", "/servers", request()),
        IMAGES,
        ("POST", "compute", "/servers", request(imageRef=OTHER)),
        POLL,
        BY_TAG,
        PORTS,
    ]


def test_a_flavor_that_is_another_one_by_now_is_looked_up_again(nova: Nova) -> None:
    nova.api.answer("GET", "compute", "/flavors/detail", {"flavors": [flavor(id="id-new")]})
    gone = {"badRequest": {"code": 400, "message": "Flavor id-small could not be found."}}
    nova.answers(MAKE_SERVER, (400, gone), (202, {"server": {"id": ID}}))
    nova.lists([], [server()])

    nova.compute().create(spec(port()))

    assert nova.calls[:7] == [
        PORTS,
        BY_TAG,
        FLAVORS,
        IMAGES,
        ("POST", "compute", "/servers", request()),
        FLAVORS,
        ("POST", "compute", "/servers", request(flavorRef="id-new")),
    ]


# --- what is there


def test_a_sliver_without_a_server_has_none_in_the_list_by_tag_and_in_that_of_all(
    nova: Nova,
) -> None:
    nova.lists([])
    assert nova.compute().find("s-1") is None
    assert nova.calls == [BY_TAG]
    assert nova.api.unfiltered == 1


def test_a_server_is_read_with_its_size_its_worker_and_its_nics(nova: Nova) -> None:
    nova.lists([server()])
    unplugged = neutron_port("nic2", id=PORT2, device_id="")
    nova.has(ports=[neutron_port(), unplugged])

    found = nova.compute().find("s-1")

    assert found is not None
    assert (found.sliver, found.instance, found.state) == ("s-1", ID, State.RUNNING)
    assert (found.cores, found.ram, found.flavor) == (1, 1024, "small")
    assert (found.host, found.domain) == ("w1", "instance-00000002")
    assert found.stamp == sliver().stamp()
    assert found.ports == (PluggedPort("nic1", "fa:16:3e:00:00:01", PORT),)
    assert found.volumes == ()
    assert nova.calls == [BY_TAG, PORTS]


def test_a_member_is_not_told_the_worker(nova: Nova) -> None:
    hidden = ("OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:instance_name")
    nova.lists([{key: value for key, value in server().items() if key not in hidden}])
    found = nova.compute().find("s-1")
    assert found is not None
    assert (found.host, found.domain) == ("", None)


VOLUMES: Call = (
    "GET",
    "volume",
    "/volumes/detail",
    {"metadata": f'{{"{SITE}": "TEST", "{SLIVER}": "s-1"}}'},
)
ATTACHMENTS: Call = ("GET", "compute", f"/servers/{ID}/os-volume_attachments", {})


def test_volumes_of_the_sliver_are_read_as_cinder_says(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)])
    coming = cinder_volume("attaching", id=OLD, metadata={SITE: "TEST", SLIVER: "s-1"})
    nova.has(volumes=[cinder_volume("in-use", ID), coming])
    found = nova.compute().find("s-1")
    assert found is not None
    assert found.volumes == (PluggedVolume("data", DISK, "vdb", serial=DISK),)
    assert nova.calls == [BY_TAG, VOLUMES, PORTS]


def test_a_present_volume_is_known_by_the_tag_of_its_device(nova: Nova) -> None:
    nova.lists([with_volumes(DISK, OLD, OTHER)])
    nova.has(volumes=[cinder_volume("in-use", ID)])
    attachments = [
        {"volumeId": DISK, "device": "/dev/vdb", "tag": "data"},
        {"volumeId": OLD, "device": "/dev/vdc", "tag": "old"},
        {"volumeId": OTHER, "device": "/dev/vdd", "tag": None},
    ]
    path = f"/servers/{ID}/os-volume_attachments"
    nova.api.answer("GET", "compute", path, {"volumeAttachments": attachments})
    found = nova.compute().find("s-1")
    assert found is not None
    assert found.volumes == (
        PluggedVolume("data", DISK, "vdb", serial=DISK),
        PluggedVolume("old", OLD, "vdc", serial=OLD),
    )
    assert nova.calls == [BY_TAG, VOLUMES, PORTS, ATTACHMENTS]


def test_a_read_cache_answers_all_drivers_who_ask_for_the_same(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)])
    nova.has(volumes=[cinder_volume("in-use", ID)])
    nova.api.answer("GET", "network", "/floatingips", {"floatingips": []})
    nova.has(ports=[])
    with ReadCache().active():
        assert OpenStackVolume(nova.api.site(), "").find("s-1", "data")
        assert OpenStackNetwork(nova.api.site(), "").ports("s-1") == ()
        for _ in range(2):
            assert nova.compute().find("s-1")
    floating = ("GET", "network", "/floatingips", PORTS[3])
    assert nova.calls[0] == VOLUMES
    assert sorted(nova.calls[1:3]) == sorted([PORTS, floating])
    assert nova.calls[3:] == [BY_TAG]


@pytest.mark.parametrize(
    ("status", "power", "state"),
    [
        ("ACTIVE", 1, State.RUNNING),
        ("SHUTOFF", 4, State.STOPPED),
        ("PAUSED", 3, State.PAUSED),
        ("SUSPENDED", 4, State.PAUSED),
        ("RESCUE", 1, State.PAUSED),
        ("ERROR", 1, State.ERROR),
        ("UNKNOWN", 0, State.ERROR),
        ("SHELVED_OFFLOADED", 4, State.STOPPED),
        ("BUILD", 0, State.STOPPED),
        ("REBOOT", 1, State.RUNNING),
        ("VERIFY_RESIZE", 1, State.RUNNING),
        ("VERIFY_RESIZE", 4, State.STOPPED),
    ],
)
def test_novas_states_are_ours(nova: Nova, status: str, power: int, state: State) -> None:
    nova.lists([server(status, **{"OS-EXT-STS:power_state": power})])
    found = nova.compute().find("s-1")
    assert found is not None
    assert found.state is state


def test_of_two_servers_of_a_sliver_the_older_is_meant_and_both_are_named(nova: Nova) -> None:
    later = server(id=OTHER, created="2026-11-21T10:30:59Z")
    nova.lists([later, server()])
    found = nova.compute().find("s-1")
    assert found is not None
    assert found.instance == ID
    assert nova.compute().leftovers("s-1") == (
        f"server s-1-node ({ID}, ACTIVE)",
        f"server s-1-node ({OTHER}, ACTIVE)",
    )


def test_a_server_whose_stamp_cannot_be_read_is_not_found_but_named_and_deleted(nova: Nova) -> None:
    nova.lists([server(metadata={"fabric-direct:stamp-parts": "1"})])
    assert nova.compute().find("s-1") is None
    assert nova.compute().leftovers("s-1") == (f"server s-1-node ({ID}, ACTIVE)",)
    nova.lists([])
    nova.compute().delete("s-1")
    assert nova.calls[-3:] == [("DELETE", "compute", f"/servers/{ID}", {}), POLL, ONE]


def test_all_servers_are_listed_by_the_sites_tag_with_one_list_of_ports(nova: Nova) -> None:
    second = sliver(id="s-2").stamp()
    nova.lists(
        [
            server(id=OTHER, metadata=server_metadata("TEST", second)),
            server(),
            server(id=PORT, created="2026-12-01T00:00:00Z"),
            server(id=OLD, metadata={}),
        ]
    )
    of_second = {"description": "fabric-direct TEST/s-2", "device_id": OTHER}
    nova.has(ports=[neutron_port(), neutron_port(id=PORT2, name="s-2-nic9", **of_second)])

    found = {one.sliver: one for one in nova.compute().servers()}

    assert {name: one.instance for name, one in found.items()} == {"s-1": ID, "s-2": OTHER}
    assert found["s-2"].ports == (PluggedPort("nic9", "fa:16:3e:00:00:01", PORT2),)
    assert nova.calls == [
        ("GET", "compute", "/servers/detail", {"tags": site_tag("TEST")}),
        ("GET", "network", "/ports", {"project_id": PROJECT}),
    ]


def test_the_volumes_of_all_servers_are_listed_once(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)])
    nova.has(volumes=[cinder_volume("in-use", ID)])
    (found,) = nova.compute().servers()
    assert found.volumes == (PluggedVolume("data", DISK, "vdb", serial=DISK),)
    assert nova.calls[2] == (
        "GET",
        "volume",
        "/volumes/detail",
        {"metadata": f'{{"{SITE}": "TEST"}}'},
    )


# --- removed

DELETE: Call = ("DELETE", "compute", f"/servers/{ID}", {})
DELETE_OTHER: Call = ("DELETE", "compute", f"/servers/{OTHER}", {})
THE_OTHER: Call = ("GET", "compute", f"/servers/{OTHER}", {})


def test_a_server_is_deleted_and_waited_for(nova: Nova) -> None:
    nova.lists([server()], [server(task="deleting")], [])
    nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG, DELETE, POLL, POLL, ONE]


def test_what_a_server_lets_go_of_is_read_anew_when_it_is_gone(nova: Nova) -> None:
    nova.api.answer("GET", "network", "/floatingips", {"floatingips": []})
    compute = nova.compute()

    def gone(_: object) -> tuple[int, Any]:
        here.run(list, compute.connection().network.ips())
        return 200, {"servers": []}

    nova.lists([server()])
    nova.api.answer("GET", "compute", "/servers/detail", gone)
    with ReadCache().active():
        here = copy_context()
        compute.delete("s-1")
        list(compute.connection().network.ips())

    assert [path for _, _, path, _ in nova.calls].count("/floatingips") == 2


def test_deleting_what_is_not_there_asks_once(nova: Nova) -> None:
    nova.lists([])
    nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG]


def test_a_server_that_is_gone_between_two_looks_is_deleted(nova: Nova) -> None:
    nova.refuses("DELETE", f"/servers/{ID}", 404, "Instance could not be found.")
    nova.lists([server()], [])
    nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG, DELETE, POLL, ONE]


def test_all_servers_of_a_sliver_are_deleted(nova: Nova) -> None:
    nova.api.answer("DELETE", "compute", f"/servers/{OTHER}", status=204)
    nova.lists([server(), server(id=OTHER)])
    nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG, DELETE, DELETE_OTHER, ONE, THE_OTHER]


def test_of_two_servers_that_cannot_be_deleted_at_first_none_is_forgotten(nova: Nova) -> None:
    nova.api.answer("DELETE", "compute", f"/servers/{OTHER}", status=204)
    nova.lists([server(), server(id=OTHER)])
    nova.tells(server("ERROR"))
    nova.answers(THE_OTHER, *({"server": server("ERROR", id=OTHER)} for _ in range(3)))
    with pytest.raises(NotVerified, match="is not gone"):
        nova.compute().delete("s-1")
    assert [call for call in nova.calls if call[0] == "DELETE"] == [DELETE, DELETE_OTHER] * 2


def test_a_locked_server_is_not_deleted(nova: Nova) -> None:
    nova.refuses("DELETE", f"/servers/{ID}", 409, f"Instance {ID} is locked")
    nova.lists([server()])
    with pytest.raises(Conflict, match="is locked"):
        nova.compute().delete("s-1")


def test_a_server_that_nova_cannot_delete_is_asked_for_twice_and_named(nova: Nova) -> None:
    nova.lists([server()], [server(task="deleting")], [server("ERROR")])
    nova.tells(server("ERROR", fault={"message": "no route to the worker"}))
    with pytest.raises(NotVerified, match=rf"s-1-node \({ID}\) is not gone .*: no route"):
        nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG, DELETE, POLL, POLL, DELETE, POLL, ONE]


def test_a_delete_that_was_lost_while_nova_gave_the_server_up_is_asked_for_again(
    nova: Nova,
) -> None:
    nova.lists([server("BUILD")], [server("ERROR")], [server("ERROR", task="deleting")], [])
    nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG, DELETE, POLL, DELETE, POLL, POLL, ONE]


def test_a_server_that_was_in_error_before_is_waited_for(nova: Nova) -> None:
    nova.lists([server("ERROR")], [server("ERROR", task="deleting")], [])
    nova.compute().delete("s-1")
    assert nova.calls == [BY_TAG, DELETE, POLL, POLL, ONE]


def test_a_server_that_stays_is_named_when_the_time_is_up(nova: Nova) -> None:
    nova.lists([server()], [server(task="deleting")])
    with pytest.raises(TimedOut, match=f"server {ID} to be gone"):
        nova.compute(limits={"delete": 0.3}).delete("s-1")


@pytest.fixture
def domains(mocker: MockerFixture) -> MagicMock:
    """libvirt's connection to the worker."""
    connection = MagicMock()
    mocker.patch.object(libvirt_connection, "connect", return_value=connection)
    found: MagicMock = connection.lookupByUUIDString
    return found


def absent() -> libvirt.libvirtError:
    error = libvirt.libvirtError("no domain")
    error.err = (libvirt.VIR_ERR_NO_DOMAIN, 0, "no domain", 2, "", "", "", 0, 0)
    return error


def test_the_domain_is_looked_for_on_a_worker_whose_libvirt_is_known(
    nova: Nova, domains: MagicMock
) -> None:
    nova.lists([server()], [])
    domains.side_effect = [MagicMock(), absent()]
    nova.compute(hosts={"w1": {"libvirt": "qemu+ssh://w1/system"}}).delete("s-1")
    libvirt_connection.connect.assert_called_with("qemu+ssh://w1/system")
    assert [call.args for call in domains.call_args_list] == [(ID,), (ID,)]


def test_a_domain_that_stays_is_named(
    nova: Nova, domains: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DOMAIN_GONE", 0.1)
    nova.lists([server()], [])
    with pytest.raises(
        NotVerified, match=f"domain instance-00000002 of server {ID} is still there"
    ):
        nova.compute(hosts={"w1": {}}).delete("s-1")


def test_a_worker_that_the_site_does_not_know_is_not_asked(nova: Nova, domains: MagicMock) -> None:
    nova.lists([server()], [])
    nova.compute(hosts={"w2": {}}).delete("s-1")
    domains.assert_not_called()


# --- power


def test_a_stopped_server_is_started(nova: Nova) -> None:
    nova.lists([server("SHUTOFF")], [server("SHUTOFF", task="powering-on")], [server()])
    nova.compute().start("s-1")
    assert nova.calls == [BY_TAG, act({"os-start": None}), POLL, POLL]


def test_a_start_whose_answer_got_lost_is_waited_for(nova: Nova) -> None:
    nova.lists([server("SHUTOFF")], [server("SHUTOFF")], [server("SHUTOFF", task="x")], [server()])
    nova.answers(act({}), _lost)
    nova.compute().start("s-1")
    assert nova.calls == [BY_TAG, act({"os-start": None}), BY_TAG, BY_TAG, POLL]


def test_a_start_that_is_not_begun_after_a_lost_answer_is_told_so(nova: Nova) -> None:
    nova.lists([server("SHUTOFF")])
    nova.answers(act({}), _lost)
    with pytest.raises(TimedOut):
        nova.compute(limits={"call": 0.5}).start("s-1")
    assert [call[0] for call in nova.calls].count("POST") == 1


def test_a_running_server_is_not_started(nova: Nova) -> None:
    nova.lists([server()])
    nova.compute().start("s-1")
    assert nova.calls == [BY_TAG]


def test_a_server_that_is_being_built_is_waited_for(nova: Nova) -> None:
    nova.lists([server("BUILD")], [server()])
    nova.compute().start("s-1")
    assert nova.calls == [BY_TAG, POLL]


def test_a_paused_server_is_not_running(nova: Nova) -> None:
    nova.lists([server("PAUSED")])
    with pytest.raises(NotVerified, match="PAUSED, not ACTIVE"):
        nova.compute().start("s-1")


def test_a_start_that_fails_is_explained_by_nova(nova: Nova) -> None:
    nova.lists([server("SHUTOFF")])
    nova.says(
        {"event": "compute_start_instance", "result": "Error", "details": "no such disk"},
        action="start",
    )
    with pytest.raises(DriverError, match=r"SHUTOFF, not ACTIVE .*: no such disk"):
        nova.compute().start("s-1")
    assert nova.calls == [BY_TAG, act({"os-start": None}), POLL, ACTIONS, ACTION]


def test_a_running_server_is_stopped(nova: Nova) -> None:
    nova.lists([server()], [server(task="powering-off")], [server("SHUTOFF")])
    nova.compute().stop("s-1", timeout=60)
    assert nova.calls == [BY_TAG, act({"os-stop": None}), POLL, POLL]


def test_a_stopped_server_is_not_stopped(nova: Nova) -> None:
    nova.lists([server("SHUTOFF")])
    nova.compute().stop("s-1", timeout=60)
    assert nova.calls == [BY_TAG]


def test_a_guest_that_went_off_by_itself_meanwhile_is_stopped(nova: Nova) -> None:
    nova.refuses("POST", f"/servers/{ID}/action", 409, "Cannot 'stop' … in vm_state stopped")
    nova.lists([server()], [server("SHUTOFF")])
    nova.compute().stop("s-1", timeout=60)
    assert nova.calls == [BY_TAG, act({"os-stop": None}), BY_TAG]


def test_a_server_that_may_not_be_stopped_is_told_in_novas_words(nova: Nova) -> None:
    nova.refuses("POST", f"/servers/{ID}/action", 409, f"Instance {ID} is locked")
    nova.lists([server()])
    with pytest.raises(Conflict, match="is locked"):
        nova.compute().stop("s-1", timeout=60)


def test_a_guest_that_does_not_go_off_in_time_ends_the_wait(nova: Nova) -> None:
    nova.lists([server()], [server(task="powering-off")])
    with pytest.raises(TimedOut, match=f"server {ID} to stop"):
        nova.compute().stop("s-1", timeout=0.3)


@pytest.mark.parametrize(("hard", "kind"), [(False, "SOFT"), (True, "HARD")])
def test_a_reboot_is_waited_for_and_nova_asked_how_it_ended(
    nova: Nova, hard: bool, kind: str
) -> None:
    nova.lists([server()], [server("REBOOT", task="rebooting")], [server()])
    event = {"event": "compute_reboot_instance", "result": None}
    nova.says(event, action="reboot")
    nova.says(event | {"result": "Success"}, action="reboot")
    nova.compute().reboot("s-1", hard=hard, timeout=60)
    asked = act({"reboot": {"type": kind}})
    assert nova.calls == [BY_TAG, asked, POLL, POLL, ACTION, ACTION]


def test_a_reboot_that_fails_is_explained_by_nova(nova: Nova) -> None:
    nova.lists([server()])
    nova.says(
        {"event": "compute_reboot_instance", "result": "Error", "details": "no"}, action="reboot"
    )
    with pytest.raises(DriverError, match=rf"cannot reboot server {ID} \(cloud test\): no"):
        nova.compute().reboot("s-1", hard=True, timeout=60)


def test_a_reboot_of_what_is_not_there_is_refused(nova: Nova) -> None:
    nova.lists([])
    with pytest.raises(NotFound, match="no server of sliver s-1"):
        nova.compute().reboot("s-1", hard=True, timeout=60)


def test_what_changes_by_itself_is_read_past_the_read_cache(nova: Nova) -> None:
    nova.lists([server()], [server("SHUTOFF")], [server("SHUTOFF", task="powering-on")], [server()])
    with ReadCache().active():
        compute = nova.compute()
        assert compute.find("s-1")
        compute.start("s-1")
    assert nova.calls == [BY_TAG, PORTS, BY_TAG, act({"os-start": None}), POLL, POLL]


@pytest.mark.parametrize(
    ("lines", "text"), [(2, "login:\nlast"), (9, "first\nlogin:\nlast"), (0, "")]
)
def test_the_console_gives_its_last_lines(nova: Nova, lines: int, text: str) -> None:
    nova.lists([server()])
    nova.answers(act({}), {"output": "first\nlogin:\nlast\n"})
    assert nova.compute().console("s-1", lines) == text
    assert nova.calls == [BY_TAG, act({"os-getConsoleOutput": {"length": lines}})]


def test_reading_the_console_changes_nothing(nova: Nova) -> None:
    nova.lists([server()])
    nova.answers(act({}), {"output": ""})
    with ReadCache().active():
        compute = nova.compute()
        for _ in range(2):
            compute.console("s-1", 1)
        assert compute.find("s-1")
    console = act({"os-getConsoleOutput": {"length": 1}})
    assert nova.calls == [BY_TAG, console, console, PORTS]


# --- resized

LARGE = {"original_name": "large", "vcpus": 2, "ram": 2048, "disk": 4}
LARGER = sliver(capacities={"core": 2, "ram": 2, "disk": 3})
STAMP: Call = (
    "POST",
    "compute",
    f"/servers/{ID}/metadata",
    {"metadata": server_metadata("TEST", LARGER.stamp())},
)
RESIZE = act({"resize": {"flavorRef": "id-large"}})
DIAGNOSTICS: Call = ("GET", "compute", f"/servers/{ID}/diagnostics", {})
HYPERVISORS: Call = ("GET", "compute", "/os-hypervisors/detail", {})
_GENERATION = {"resource_provider_generation": 1}


def told(result: str) -> dict[str, Any]:
    """Return what Nova tells of an action."""
    event = {"event": "compute", "result": result, "details": "no room"}
    return {"instanceAction": {"request_id": REQUEST, "events": [event]}}


def stock(what: str) -> Call:
    return ("GET", "placement", f"/resource_providers/{OTHER}/{what}", {})


@pytest.fixture
def resizable(nova: Nova) -> Nova:
    nova.has(flavors=[flavor(), flavor("large", vcpus=2, ram=2048, disk=4)])
    nova.api.answer("POST", "compute", f"/servers/{ID}/metadata", {"metadata": {}})
    nova.answers(DIAGNOSTICS, {})
    nova.answers(HYPERVISORS, {"hypervisors": []})
    nova.says({"event": "cold_migrate", "result": "Error", "details": NO_HOST}, action="resize")
    return nova


@pytest.mark.parametrize("was", ["ACTIVE", "SHUTOFF"])
def test_a_server_is_resized_confirmed_and_stamped_last(resizable: Nova, was: str) -> None:
    resizable.lists(
        [server(was)],
        [server("RESIZE", task="resize_prep")],
        [server("VERIFY_RESIZE", flavor=LARGE)],
        [server("VERIFY_RESIZE", flavor=LARGE)],
        [server(was, flavor=LARGE)],
    )
    resizable.compute().resize(LARGER.stamp())
    assert resizable.calls == [
        FLAVORS,
        BY_TAG,
        RESIZE,
        POLL,
        POLL,
        act({"confirmResize": None}),
        POLL,
        POLL,
        BY_TAG,
        STAMP,
    ]


def test_a_server_that_has_the_flavor_is_only_stamped(resizable: Nova) -> None:
    resizable.lists([server(flavor=LARGE)])
    resizable.compute().resize(LARGER.stamp())
    assert resizable.calls == [FLAVORS, BY_TAG, BY_TAG, STAMP]


def test_a_resize_that_was_interrupted_before_it_was_confirmed_is_finished(resizable: Nova) -> None:
    resizable.lists(
        [server("VERIFY_RESIZE", flavor=LARGE)],
        [server(flavor=LARGE)],
    )
    resizable.compute().resize(LARGER.stamp())
    assert resizable.calls == [
        FLAVORS,
        BY_TAG,
        act({"confirmResize": None}),
        POLL,
        BY_TAG,
        STAMP,
    ]


def test_a_root_disk_does_not_shrink(resizable: Nova) -> None:
    resizable.lists([server(flavor=LARGE)])
    with pytest.raises(InvalidSliver, match="from 4 GiB to 2 GiB") as caught:
        resizable.compute().resize(sliver().stamp())
    assert caught.value.field == "capacities.disk"
    assert resizable.calls == [FLAVORS, BY_TAG]


def test_a_resize_that_nova_refuses_inwardly_is_explained(resizable: Nova) -> None:
    resizable.lists([server()])
    with pytest.raises(DriverError, match=r"was not resized.*not enough hosts"):
        resizable.compute().resize(LARGER.stamp())
    asked = [FLAVORS, BY_TAG, RESIZE, POLL, ACTIONS, ACTION, ACTION, BY_TAG, DIAGNOSTICS]
    assert resizable.calls == asked


WITH_GPU = LARGER.model_copy(update={"components": sliver(components=[GPU]).components})


def test_why_a_resize_failed_is_told_though_nova_writes_it_down_a_moment_later(
    resizable: Nova,
) -> None:
    resizable.lists([server()])
    going_on = {"event": "compute", "result": None, "details": None}
    begun = {"instanceAction": {"request_id": REQUEST, "events": [going_on]}}
    resizable.answers(ACTION, begun, told("Error"))
    with pytest.raises(DriverError, match=r"was not resized.*no room"):
        resizable.compute().resize(LARGER.stamp())


PINNED = LARGER.model_copy(update={"host": "w1"})
AWAY = {"OS-EXT-SRV-ATTR:host": "w2"}


def test_a_server_that_would_move_from_the_worker_that_it_must_be_on_is_taken_back(
    resizable: Nova,
) -> None:
    resizable.lists(
        [server()],
        [server("VERIFY_RESIZE", flavor=LARGE, **AWAY)],
        [server("REVERT_RESIZE", task="resize_reverting", flavor=LARGE, **AWAY)],
        [server()],
    )
    with pytest.raises(Conflict, match=r"cannot be resized on w1.*moved it to w2"):
        resizable.compute().resize(PINNED.stamp())
    reverted = [act({"revertResize": None}), POLL, POLL, BY_TAG, DIAGNOSTICS]
    assert resizable.calls == [FLAVORS, BY_TAG, HYPERVISORS, RESIZE, POLL, *reverted]


def test_one_that_has_devices_stays_on_its_worker_though_it_names_none(resizable: Nova) -> None:
    resizable.lists(
        [server()],
        [server("VERIFY_RESIZE", flavor=LARGE, **AWAY)],
        [server()],
    )
    with pytest.raises(Conflict, match="cannot be resized on w1"):
        resizable.compute().resize(WITH_GPU.stamp())
    assert act({"revertResize": None}) in resizable.calls


def test_one_that_has_devices_and_moved_in_an_interrupted_resize_is_taken_back_first(
    resizable: Nova,
) -> None:
    resizable.lists(
        [server("VERIFY_RESIZE", flavor=LARGE, **AWAY)],
        [server()],
        [server("VERIFY_RESIZE", flavor=LARGE)],
        [server(flavor=LARGE)],
    )
    resizable.compute().resize(WITH_GPU.stamp())
    actions = [call for call in resizable.calls if call[:1] == ("POST",) and "action" in call[2]]
    assert actions == [act({"revertResize": None}), RESIZE, act({"confirmResize": None})]


def test_one_that_a_failed_resize_left_off_runs_again(resizable: Nova) -> None:
    """Nova calls it active for minutes."""
    resizable.answers(DIAGNOSTICS, {"conflictingRequest": {"message": "shutdown"}}, status=409)
    resizable.lists([server()])
    resizable.answers(ACTION, told("Error"), told("Error"), told("Success"))
    with pytest.raises(DriverError, match=r"was not resized.*it was off, and runs again"):
        resizable.compute().resize(LARGER.stamp())
    assert act({"reboot": {"type": "HARD"}}) in resizable.calls


def test_one_that_a_failed_resize_stopped_is_started(resizable: Nova) -> None:
    resizable.lists([server()], [server("SHUTOFF")], [server("SHUTOFF")], [server()])
    with pytest.raises(DriverError, match=r"was not resized.*it was off, and runs again"):
        resizable.compute().resize(LARGER.stamp())
    assert act({"os-start": None}) in resizable.calls


def test_one_that_cannot_be_started_again_says_so(resizable: Nova) -> None:
    resizable.lists([server()], [server("ERROR")])
    with pytest.raises(DriverError, match=r"was not resized.*is ERROR, not ACTIVE"):
        resizable.compute().resize(LARGER.stamp())


def test_one_that_is_left_on_another_worker_is_not_started_there(resizable: Nova) -> None:
    resizable.lists([server()], [server("ERROR", **AWAY)])
    with pytest.raises(DriverError, match=r"was not resized.*it is ERROR on w2 now"):
        resizable.compute().resize(PINNED.stamp())
    assert act({"reboot": {"type": "HARD"}}) not in resizable.calls


def test_one_that_was_off_is_not_started_after_a_failure(resizable: Nova) -> None:
    resizable.lists([server("SHUTOFF")])
    with pytest.raises(DriverError, match="was not resized"):
        resizable.compute().resize(LARGER.stamp())
    assert act({"os-start": None}) not in resizable.calls


def test_a_resize_whose_answer_got_lost_is_finished(resizable: Nova) -> None:
    lost = (503, {"error": {"message": "lost"}})
    resizable.answers(RESIZE, lost, (202, {}))
    resizable.lists(
        [server()],
        [server("VERIFY_RESIZE", flavor=LARGE)],
        [server("VERIFY_RESIZE", flavor=LARGE)],
        [server(flavor=LARGE)],
    )
    resizable.compute().resize(LARGER.stamp())
    assert resizable.calls.count(RESIZE) == 1
    assert resizable.calls[-1] == STAMP


class TestRoom:
    """The worker that a server must stay on holds both sizes until the resize ends."""

    @pytest.fixture(autouse=True)
    def worker(self, resizable: Nova) -> None:
        about = {"host": "w1", "disabled_reason": None}
        found = {"id": OTHER, "service": about, "state": "up", "status": "enabled"}
        resizable.answers(HYPERVISORS, {"hypervisors": [{**found, "cpu_info": None}]})
        resizable.lists([server()], [server("VERIFY_RESIZE", flavor=LARGE)], [server(flavor=LARGE)])

    def has(self, resizable: Nova, *, largest: int = 1 << 30, **stocks: int) -> None:
        usual = {"reserved": 0, "allocation_ratio": 2.0, "max_unit": largest}
        told = {name: {"total": total, **usual} for name, total in stocks.items()}
        resizable.answers(stock("inventories"), {"inventories": told, **_GENERATION})
        resizable.answers(stock("usages"), {"usages": dict.fromkeys(stocks, 1), **_GENERATION})

    def test_that_is_enough_is_enough(self, resizable: Nova) -> None:
        self.has(resizable, VCPU=2, MEMORY_MB=2048, DISK_GB=3)
        resizable.compute().resize(PINNED.stamp())
        assert RESIZE in resizable.calls

    def test_that_is_not_enough_is_told_before_nova_is_asked(self, resizable: Nova) -> None:
        self.has(resizable, VCPU=1, MEMORY_MB=1024)
        little = "VCPU: 2 asked for, 1 left; MEMORY_MB: 2048 asked for, 2047 left"
        with pytest.raises(InvalidSliver, match=little) as caught:
            resizable.compute().resize(PINNED.stamp())
        assert caught.value.field == "capacities"
        assert RESIZE not in resizable.calls

    def test_that_no_single_server_may_have_is_told_before_nova_is_asked(
        self, resizable: Nova
    ) -> None:
        self.has(resizable, DISK_GB=300, largest=3)
        little = "DISK_GB: 4 asked for, 3 at most for one server"
        with pytest.raises(InvalidSliver, match=little):
            resizable.compute().resize(PINNED.stamp())
        assert RESIZE not in resizable.calls

    def test_of_flavors_that_ask_in_their_own_way_is_not_judged(self, resizable: Nova) -> None:
        self.has(resizable, VCPU=1)
        pinned = {"hw:cpu_policy": "dedicated"}
        large = flavor("large", vcpus=2, ram=2048, disk=4, extra_specs=pinned)
        resizable.has(flavors=[flavor(), large])
        by_name = PINNED.model_copy(update={"flavor": "large"})
        resizable.compute().resize(by_name.stamp())
        assert RESIZE in resizable.calls

    def test_that_may_not_be_known_is_nobodys_concern(self, resizable: Nova) -> None:
        resizable.answers(HYPERVISORS, {"forbidden": {"message": "no"}}, status=403)
        resizable.compute().resize(PINNED.stamp())
        assert RESIZE in resizable.calls


def test_a_stamp_is_written_by_one_request(resizable: Nova) -> None:
    resizable.lists([server()])
    resizable.compute().write_stamp("s-1", LARGER.stamp())
    assert resizable.calls == [BY_TAG, STAMP]


# --- ports plugged in

PLUG_PORT: Call = (
    "POST",
    "compute",
    f"/servers/{ID}/os-interface",
    {"interfaceAttachment": {"port_id": PORT}},
)
UNPLUG_PORT: Call = ("DELETE", "compute", f"/servers/{ID}/os-interface/{PORT}", {})
PORT_POLL: Call = ("GET", "network", "/ports", {"id": PORT})


def sees_ports(nova: Nova, *lists: list[dict[str, Any]]) -> None:
    nova.answers(PORTS, *({"ports": ports} for ports in lists))


def test_a_port_is_plugged_in_and_waited_for_until_it_is_up(nova: Nova) -> None:
    nova.lists([server()])
    nova.api.answer("POST", "compute", f"/servers/{ID}/os-interface", {"interfaceAttachment": {}})
    free, coming = neutron_port(device_id="", status="DOWN"), neutron_port(status="BUILD")
    sees_ports(nova, [free], [free], [coming], [neutron_port()])
    nova.compute().attach_port("s-1", port(), VNicInterface())
    assert nova.calls == [PORTS, BY_TAG, PORTS, PLUG_PORT, PORT_POLL, PORT_POLL]


def test_a_port_that_is_plugged_in_is_only_waited_for(nova: Nova) -> None:
    nova.lists([server()])
    nova.compute().attach_port("s-1", port(), VNicInterface())
    assert nova.calls == [PORTS, BY_TAG, PORTS, PORT_POLL]


def test_a_port_of_a_server_that_is_off_need_not_be_up(nova: Nova) -> None:
    nova.lists([server("SHUTOFF")])
    sees_ports(nova, [neutron_port(status="DOWN")])
    nova.compute().attach_port("s-1", port(), VNicInterface())
    assert nova.calls == [PORTS, BY_TAG, PORTS, PORT_POLL]


def test_a_port_whose_answer_got_lost_is_found_plugged_in(nova: Nova) -> None:
    nova.lists([server()])
    nova.api.answer("POST", "compute", f"/servers/{ID}/os-interface", _lost)
    free = neutron_port(device_id="")
    sees_ports(nova, [free], [free], [free], [neutron_port()])
    nova.compute().attach_port("s-1", port(), VNicInterface())
    assert nova.calls == [PORTS, BY_TAG, PORTS, PLUG_PORT, PORTS, PORTS, PORT_POLL]


def test_a_port_that_another_server_has_is_not_plugged_in(nova: Nova) -> None:
    nova.lists([server()])
    sees_ports(nova, [neutron_port(device_id=OTHER)])
    nova.refuses("POST", f"/servers/{ID}/os-interface", 409, f"Port {PORT} is still in use.")
    with pytest.raises(Conflict, match="still in use"):
        nova.compute().attach_port("s-1", port(), VNicInterface())


def test_a_port_that_is_gone_is_not_waited_for(nova: Nova) -> None:
    nova.lists([server()])
    sees_ports(nova, [neutron_port()], [neutron_port()], [])
    with pytest.raises(NotFound, match=f"port {PORT} is gone"):
        nova.compute().attach_port("s-1", port(), VNicInterface())


def test_a_port_is_unplugged_and_waited_for(nova: Nova) -> None:
    nova.lists([server()])
    nova.api.answer("DELETE", "compute", f"/servers/{ID}/os-interface/{PORT}", status=202)
    sees_ports(nova, [neutron_port()], [neutron_port()], [neutron_port(device_id="")])
    nova.compute().detach_port("s-1", "nic1", timeout=60)
    assert nova.calls == [BY_TAG, PORTS, UNPLUG_PORT, PORT_POLL, PORT_POLL]


def test_a_port_that_is_not_plugged_in_is_not_unplugged(nova: Nova) -> None:
    nova.lists([server()])
    sees_ports(nova, [neutron_port(device_id=""), neutron_port("nic2", id=PORT2)])
    nova.compute().detach_port("s-1", "nic1", timeout=60)
    assert nova.calls == [BY_TAG, PORTS]


def test_a_port_of_no_server_is_not_unplugged(nova: Nova) -> None:
    nova.lists([])
    nova.compute().detach_port("s-1", "nic1", timeout=60)
    assert nova.calls == [BY_TAG]


# --- ports that another sliver holds

HELD: Call = ("GET", "network", "/ports", {"description": "fabric-direct TEST/net-1"})


def held_port(component: str = "p1", **values: Any) -> dict[str, Any]:
    whose = {"name": f"net-1-{component}", "description": HELD[3]["description"]}
    return neutron_port(component, **(whose | values))


def test_a_port_of_another_sliver_is_plugged_in_by_the_stamp_of_its_holder(nova: Nova) -> None:
    nova.lists([server()])
    nova.api.answer("POST", "compute", f"/servers/{ID}/os-interface", {"interfaceAttachment": {}})
    free = held_port(device_id="", status="DOWN")
    sees_ports(nova, [free], [free], [held_port()])

    nova.compute().attach_port("s-1", replace(port("p1"), sliver="net-1"), VNicInterface())

    assert nova.calls == [HELD, BY_TAG, HELD, PLUG_PORT, PORT_POLL]


def test_a_port_of_another_sliver_is_unplugged_by_the_stamp_of_its_holder(nova: Nova) -> None:
    nova.lists([server()])
    nova.api.answer("DELETE", "compute", f"/servers/{ID}/os-interface/{PORT}", status=202)
    sees_ports(nova, [held_port()], [held_port(device_id="")])

    nova.compute().detach_port("s-1", "p1", timeout=60, holder="net-1")

    assert nova.calls == [BY_TAG, HELD, UNPLUG_PORT, PORT_POLL]


def test_a_port_of_a_server_that_is_being_deleted_goes_with_it(nova: Nova) -> None:
    nova.lists([server()], [server(task="deleting")], [])
    nova.refuses("DELETE", f"/servers/{ID}/os-interface/{PORT}", 409, "task_state deleting")
    sees_ports(nova, [held_port()], [held_port(device_id="")])

    nova.compute().detach_port("s-1", "p1", timeout=60, holder="net-1")

    assert nova.calls == [BY_TAG, HELD, UNPLUG_PORT, POLL, POLL, ONE, PORT_POLL]


def test_a_port_of_a_server_that_is_being_rebooted_is_unplugged_afterwards(nova: Nova) -> None:
    nova.lists([server()], [server(task="rebooting")], [server()])
    refusal = {"conflictingRequest": {"code": 409, "message": "task_state rebooting"}}
    nova.answers(UNPLUG_PORT, (409, refusal), (202, None))
    sees_ports(nova, [held_port()], [held_port(device_id="")])

    nova.compute().detach_port("s-1", "p1", timeout=60, holder="net-1")

    assert nova.calls == [BY_TAG, HELD, UNPLUG_PORT, POLL, POLL, UNPLUG_PORT, PORT_POLL]


def test_ports_are_found_plugged_into_servers_of_ours_and_of_others(nova: Nova) -> None:
    foreign = server(id=OTHER, tags=[], name="somebody's")
    held = [held_port(), held_port("p2", id=PORT2, device_id=OTHER), held_port("p3", device_id="")]
    sees_ports(nova, held)
    nova.tells(server())
    nova.answers(("GET", "compute", f"/servers/{OTHER}", {}), {"server": foreign})

    plugs = {plug.nic.component: plug for plug in nova.compute().plugs("net-1")}

    nic = PluggedPort("p1", "fa:16:3e:00:00:01", PORT)
    assert plugs["p1"] == Plug("s-1", ID, nic)
    assert (plugs["p2"].server, plugs["p2"].instance) == ("", OTHER)
    assert nova.calls[0] == HELD
    assert len(nova.calls) == 3


def test_the_nics_of_a_server_of_its_own_are_no_ports_in_the_servers_of_others(nova: Nova) -> None:
    sees_ports(nova, [neutron_port()])
    nova.tells(server())

    assert nova.compute().plugs("s-1") == ()


def test_a_port_of_a_server_that_is_gone_is_plugged_into_none(nova: Nova) -> None:
    sees_ports(nova, [held_port()])
    nova.refuses("GET", f"/servers/{ID}", 404, f"Instance {ID} could not be found.")

    assert nova.compute().plugs("net-1") == ()


def test_a_sliver_without_ports_asks_for_no_server(nova: Nova) -> None:
    sees_ports(nova, [])

    assert nova.compute().plugs("net-1") == ()
    assert nova.calls == [HELD]


def test_a_listed_server_does_not_count_the_ports_that_others_hold(nova: Nova) -> None:
    nova.lists([server()])
    nova.has(ports=[neutron_port(), held_port(id=PORT2)])

    (found,) = nova.compute().servers()

    assert [nic.component for nic in found.ports] == ["nic1"]


def test_a_nic_that_the_guest_keeps_is_told_so(nova: Nova) -> None:
    nova.lists([server()])
    nova.api.answer("DELETE", "compute", f"/servers/{ID}/os-interface/{PORT}", status=202)
    nova.says({"event": "compute_detach_interface", "result": None}, action="detach_interface")
    with pytest.raises(TimedOut, match=r"NIC nic1 is still plugged into .* did not release it"):
        nova.compute().detach_port("s-1", "nic1", timeout=0.3)


# --- volumes plugged in

PLUG_VOLUME: Call = (
    "POST",
    "compute",
    f"/servers/{ID}/os-volume_attachments",
    {"volumeAttachment": {"volumeId": DISK, "tag": "data"}},
)
UNPLUG_VOLUME: Call = ("DELETE", "compute", f"/servers/{ID}/os-volume_attachments/{DISK}", {})
VOLUME_POLL: Call = ("GET", "volume", f"/volumes/{DISK}", {})
VOLUME = Volume("s-1", "data", DISK, 1)


def sees_volume(nova: Nova, *volumes: dict[str, Any]) -> None:
    for volume in volumes:
        nova.api.answer("GET", "volume", f"/volumes/{DISK}", {"volume": volume})


def takes_volumes(nova: Nova) -> None:
    path = f"/servers/{ID}/os-volume_attachments"
    nova.api.answer("POST", "compute", path, {"volumeAttachment": {}})
    nova.api.answer("DELETE", "compute", f"{path}/{DISK}", status=202)


def test_a_volume_is_plugged_in_with_its_component_as_tag_and_waited_for(nova: Nova) -> None:
    nova.lists([server()])
    takes_volumes(nova)
    sees_volume(
        nova, *(cinder_volume(s) for s in ("reserved", "attaching")), cinder_volume("in-use", ID)
    )
    nova.compute().attach_volume("s-1", "data", VOLUME)
    assert nova.calls == [BY_TAG, PLUG_VOLUME, VOLUME_POLL, VOLUME_POLL, VOLUME_POLL]


def test_a_volume_that_is_plugged_in_is_only_waited_for(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)])
    sees_volume(nova, cinder_volume("in-use", ID))
    nova.compute().attach_volume("s-1", "data", VOLUME)
    assert nova.calls == [BY_TAG, VOLUME_POLL]


def test_a_volume_whose_answer_got_lost_is_found_plugged_in(nova: Nova) -> None:
    nova.lists([server()], [server()], [with_volumes(DISK)])
    nova.api.answer("POST", "compute", f"/servers/{ID}/os-volume_attachments", _lost)
    sees_volume(nova, cinder_volume("in-use", ID))
    nova.compute().attach_volume("s-1", "data", VOLUME)
    assert nova.calls == [BY_TAG, PLUG_VOLUME, BY_TAG, BY_TAG, VOLUME_POLL]


def test_a_volume_that_is_in_use_is_a_conflict(nova: Nova) -> None:
    nova.lists([server()])
    words = f"Invalid volume: volume {DISK} is already attached to instances: {OTHER}"
    nova.refuses("POST", f"/servers/{ID}/os-volume_attachments", 400, words)
    with pytest.raises(Conflict, match="already attached") as caught:
        nova.compute().attach_volume("s-1", "data", VOLUME)
    assert caught.value.why == words


def test_a_volume_that_the_worker_cannot_have_is_explained_by_nova(nova: Nova) -> None:
    nova.lists([server()])
    takes_volumes(nova)
    sees_volume(nova, cinder_volume("attaching"), cinder_volume("available"))
    event = {"event": "compute_attach_volume", "result": "Error", "details": "no route to the disk"}
    nova.says(event, action="attach_volume")
    with pytest.raises(DriverError, match=r"it is available .*: no route to the disk"):
        nova.compute().attach_volume("s-1", "data", VOLUME)


def test_a_volume_that_others_have_too_is_waited_for(nova: Nova) -> None:
    nova.lists([server()])
    takes_volumes(nova)
    shared = {"multiattach": True}
    sees_volume(
        nova, cinder_volume("in-use", OTHER, **shared), cinder_volume("in-use", OTHER, ID, **shared)
    )
    nova.compute().attach_volume("s-1", "data", VOLUME)
    assert nova.calls == [BY_TAG, PLUG_VOLUME, VOLUME_POLL, VOLUME_POLL]


def test_a_volume_is_unplugged_until_cinder_and_nova_have_forgotten_it(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)], [with_volumes(DISK)], [server()])
    nova.has(volumes=[cinder_volume("in-use", ID)])
    takes_volumes(nova)
    sees_volume(nova, cinder_volume("detaching", ID), cinder_volume("available"))
    nova.compute().detach_volume("s-1", "data", timeout=60)
    assert nova.calls == [BY_TAG, VOLUMES, UNPLUG_VOLUME, VOLUME_POLL, VOLUME_POLL, POLL, POLL]


@pytest.mark.parametrize("there", [[], [server()]])
def test_a_volume_that_is_not_plugged_in_is_not_unplugged(
    nova: Nova, there: list[dict[str, Any]]
) -> None:
    nova.lists(there)
    nova.compute().detach_volume("s-1", "data", timeout=60)
    assert nova.calls == [BY_TAG]


def test_a_volume_that_the_guest_keeps_is_told_so_at_once(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)])
    nova.has(volumes=[cinder_volume("in-use", ID)])
    takes_volumes(nova)
    sees_volume(nova, cinder_volume("detaching", ID), cinder_volume("in-use", ID))
    details = "Device detach failed for vdb: Unable to detach the device from the live config."
    nova.says(
        {"event": "compute_detach_volume", "result": "Error", "details": details},
        action="detach_volume",
    )
    with pytest.raises(TimedOut, match=r"volume data is still plugged into .*Device detach failed"):
        nova.compute().detach_volume("s-1", "data", timeout=60)


def test_a_volume_that_the_guest_keeps_till_the_time_is_up_is_told_so(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)])
    nova.has(volumes=[cinder_volume("in-use", ID)])
    takes_volumes(nova)
    sees_volume(nova, cinder_volume("detaching", ID))
    nova.says({"event": "compute_detach_volume", "result": None}, action="detach_volume")
    with pytest.raises(TimedOut, match=r"volume data is still plugged into .* did not release it"):
        nova.compute().detach_volume("s-1", "data", timeout=0.3)


def test_a_volume_that_an_earlier_call_is_unplugging_is_waited_for(nova: Nova) -> None:
    nova.lists([with_volumes(DISK)], [server()])
    nova.has(volumes=[cinder_volume("detaching", ID)])
    words = "Invalid volume: Unable to detach volume. Volume status must be 'in-use' …"
    nova.refuses("DELETE", f"/servers/{ID}/os-volume_attachments/{DISK}", 400, words)
    sees_volume(nova, cinder_volume("available"))
    nova.compute().detach_volume("s-1", "data", timeout=60)
    assert nova.calls == [BY_TAG, VOLUMES, UNPLUG_VOLUME, VOLUME_POLL, POLL]


# --- at the same time


def test_two_threads_that_need_the_same_flavor_both_get_the_one_that_one_of_them_makes(
    nova: Nova,
) -> None:
    both, made = threading.Barrier(2, timeout=60), threading.Lock()

    def make(sent: requests.PreparedRequest) -> tuple[int, Any]:
        both.wait()
        return (200 if made.acquire(blocking=False) else 409), {"flavor": body(sent)["flavor"]}

    def known(_: requests.PreparedRequest) -> tuple[int, Any]:
        return 200, {"flavors": [MADE] if made.locked() else []}

    nova.answers(FLAVORS, known)
    nova.answers(MAKE_FLAVOR, make)
    connection = cloud(nova.api.settings)
    with ThreadPoolExecutor(2) as pool:
        each = [pool.submit(ensure_flavor, connection, sliver(**BIG), make=True) for _ in range(2)]
        assert [one.result().id for one in each] == [MADE["id"]] * 2

    assert nova.calls.count(MAKE_FLAVOR) == 2
