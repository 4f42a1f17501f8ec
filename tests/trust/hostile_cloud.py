"""Parsers of what comes over HTTP: a zone's requests, other zones' answers, a cloud's answers."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import responses
import tenacity
from requests import PreparedRequest

from fabric_direct.drivers.contract import Image
from fabric_direct.drivers.openstack.client import name_cache, session
from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS
from fabric_direct.drivers.openstack.client.stamp import read_stamp, server_metadata
from fabric_direct.drivers.openstack.networks import neutron
from fabric_direct.drivers.openstack.networks.bridge import OpenStackBridge
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.drivers.openstack.volumes.driver import OpenStackVolume
from fabric_direct.model import NodeSliver, VNicInterface
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.site.config import ChildZone, Site
from fabric_direct.zones.app import application
from fabric_direct.zones.client import ZoneClient
from fabric_direct.zones.wire import SelectRequest
from fabric_direct.zones.zone import Zone
from tests.trust.clock import Clock
from tests.trust.hostile_inputs import (
    Parser,
    any_value,
    as_json,
    changed,
    changed_text,
    documents,
    texts,
)
from tests.trust.hostile_texts import BRIDGE, VM
from tests.unit.openstack_api import NOWHERE, PROJECT, OpenStackApi

_SLIVER = NodeSliver.model_validate_json(json.dumps(VM))
_GREEN = NetworkSliver.model_validate_json(json.dumps(BRIDGE))
_NIC = VNicInterface.model_validate({"ipv4": "10.20.1.9/24"}, strict=False)
_NEEDS = {"capacities": {"core": 1, "ram": 1, "disk": 1}, "image": "tiny"}
_SELECT = {"request_id": "request-1", "kinds": [{"kind": "small", "needs": _NEEDS}]}
_OFFER = {"kind": "small", "cost": [1], "zone": "a", "blob": "gAAAA", "expires": 60}
_BOOT = {
    "request_id": "request-1",
    "kinds": [{"kind": "small", "sliver": {"id": "s", "name": "n", **_NEEDS}, "numbers": [1]}],
    "offers": [_OFFER],
}
_RESERVATION = "r-0123456789abcdef"
_INSTANCE = {"name": "n-1", "kind": "small", "zone": "a", "status": "done"}
_ANSWERS: tuple[Any, ...] = (
    {
        "zone": "a",
        "capabilities": {"zones": [], "hosts": 1, "devices": [{"type": "GPU", "free": 1}]},
    },
    {"offers": [_OFFER], "shortages": [{"kind": "small", "missing": 1, "refused": {"x": 1}}]},
    {"reservation_id": _RESERVATION, "instances": [_INSTANCE]},
    {"error": "Conflict", "message": "no", "shortages": [{"kind": "small", "missing": 1}]},
)
_STATUSES = (200, 200, 200, 200, 201, 202, 301, 302, 400, 401, 403, 404, 409, 413, 418, 422, 500)
_PATHS = ("/zones/select", "/zones/boot", "/zones", f"/reservations/{_RESERVATION}")
_KINDS = ("application/json", "application/json", "text/html", "", "application/json; charset=x")
_ID = "b10bbd3a-9a33-42ad-911f-a35638583092"
_PORT = {
    "id": _ID,
    "name": "sliver-1-nic1",
    "network_id": _ID,
    "description": "fabric-direct TEST/sliver-1",
    "mac_address": "52:54:00:00:00:01",
    "fixed_ips": [{"subnet_id": _ID, "ip_address": "10.20.1.5"}],
    "created_at": "2026-01-01T00:00:00Z",
    "project_id": PROJECT,
    "device_id": "",
    "port_security_enabled": True,
    "qos_policy_id": _ID,
}
_POLICY = {
    "id": _ID,
    "name": "sliver-1-nic1",
    "description": "fabric-direct TEST/sliver-1",
    "project_id": PROJECT,
    "rules": [
        {"id": _ID, "type": "bandwidth_limit", "direction": way, "max_kbps": 9_000}
        for way in ("egress", "ingress")
    ],
}
_SERVER = {
    "id": _ID,
    "name": "node",
    "status": "ACTIVE",
    "metadata": server_metadata("TEST", _SLIVER.stamp()),
    "addresses": {},
    "flavor": {"original_name": "m1", "vcpus": 2, "ram": 4096, "disk": 10},
    "OS-EXT-SRV-ATTR:host": "w1",
    "os-extended-volumes:volumes_attached": [{"id": _ID}],
    "created": "2026-01-01T00:00:00Z",
    "tags": [],
}
_VOLUME = {
    "id": _ID,
    "name": "sliver-1-data",
    "size": 1,
    "status": "in-use",
    "metadata": {"fabric-direct:site": "TEST", "fabric-direct:sliver": "sliver-1"},
    "attachments": [{"server_id": _ID, "device": "/dev/vdb"}],
    "created_at": "2026-01-01T00:00:00Z",
}
_SUBNET = {"id": _ID, "cidr": "10.20.1.0/24", "ip_version": 4, "dns_nameservers": []}
_NETWORK = {
    "id": _ID,
    "name": "green",
    "description": "fabric-direct TEST/net-1",
    "project_id": PROJECT,
    "provider:segmentation_id": 7,
    "provider:network_type": "vlan",
}
_FLOATING = {
    "id": _ID,
    "port_id": None,
    "floating_ip_address": "192.0.2.7",
    "floating_network_id": _ID,
    "project_id": PROJECT,
}
_PORTS: tuple[Any, ...] = (
    {
        "ports": [_PORT],
        "floatingips": [_FLOATING],
        "policies": [_POLICY],
        "policy": _POLICY,
        "networks": [_NETWORK],
        "network": _NETWORK,
        "subnets": [_SUBNET],
        "routers": [],
    },
    {"NeutronError": {"type": "X", "message": "no", "detail": ""}},
)
_SERVERS = (
    {"servers": [_SERVER], "server": _SERVER, "ports": [_PORT], "volumes": [_VOLUME]},
    {"computeFault": {"code": 500, "message": "no"}},
)
_WORKERS: tuple[Any, ...] = (
    {
        "hypervisors": [
            {
                "id": _ID,
                "service": {"host": "w1", "disabled_reason": None},
                "state": "up",
                "status": "enabled",
                "cpu_info": {"arch": "x86_64"},
            }
        ],
        "servers": [_SERVER],
        "resource_provider_generation": 1,
        "inventories": {"VCPU": {"total": 4, "reserved": 0, "allocation_ratio": 2.0}},
        "usages": {"VCPU": 1},
        "traits": ["COMPUTE_ARCH_X86_64"],
    },
    {"forbidden": {"code": 403, "message": "no"}},
)
_CHOICES: tuple[Any, ...] = (
    {
        "servers": [_SERVER],
        "flavors": [
            {"id": "1", "name": "m1", "vcpus": 2, "ram": 4096, "disk": 10, "extra_specs": {}}
        ],
        "images": [
            {"id": _ID, "name": "tiny", "status": "active", "min_ram": 0, "min_disk": 0}
            | {"virtual_size": 10, "hw_architecture": "x86_64", "trait:X": "required"}
        ],
        "services": [{"host": "w1", "binary": "nova-compute", "status": "enabled", "state": "up"}],
    },
    {"badRequest": {"code": 400, "message": "no"}},
)
_VOLUMES = (
    {"volumes": [_VOLUME], "volumeAttachments": [{"volumeId": _ID, "device": "/dev/vdb"}]},
    {"itemNotFound": {"code": 404, "message": "no"}},
)


def parsers(folder: Path, stack: ExitStack) -> tuple[Parser, ...]:
    """Return the parsers.

    :param folder: for the files of a zone and of a cloud.
    :param stack: ends what they open.
    """
    runner = stack.enter_context(asyncio.Runner())
    cloud = _Cloud(folder, stack)
    return (
        Parser("zone request", documents(_SELECT, _BOOT), _Requests(folder, runner), 2),
        Parser("zone answer", _answer, _Answers(runner), 2),
        Parser("cloud: server stamp", texts(as_json(_SERVER["metadata"])), _stamp),
        Parser("cloud: ports", partial(_said, _PORTS), cloud.ports, 1),
        Parser("cloud: servers", partial(_said, _SERVERS), cloud.servers, 1),
        Parser("cloud: volumes", partial(_said, _VOLUMES), cloud.volumes, 1),
        Parser("cloud: networks", partial(_said, _PORTS), cloud.networks, 1),
        Parser("cloud: workers", partial(_said, _WORKERS), cloud.workers, 1),
        Parser("cloud: images and flavors", partial(_said, _CHOICES), cloud.choices, 1),
    )


class _Answer(NamedTuple):
    status: int
    kind: str
    body: str


def _said(seeds: tuple[Any, ...], random: Random) -> _Answer:
    seed = random.choice((seeds[0], seeds[0], *seeds))
    body = random.choice(
        (
            as_json(changed(seed, random)),
            as_json(changed(seed, random)),
            changed_text(as_json(seed), random),
            as_json(any_value(random)),
        )
    )
    status = random.choice(_STATUSES) if random.randrange(3) == 0 else 200
    return _Answer(status, random.choice(_KINDS), body)


# --- zones


class _Requests:
    """A zone that is asked; an answer of 500 is a crash in it."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        zone = Zone(Site(site="TEST", state_dir=folder / "zone"), [])
        transport = httpx.ASGITransport(application(zone), raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://zone")
        self._run = runner.run
        self._run(zone.start())

    def __call__(self, body: str) -> None:
        content = body.encode(errors="surrogatepass")
        path = _PATHS[len(body) % len(_PATHS)]
        headers = {"Content-Type": "application/json"}
        answer = self._run(self._client.post(path, content=content, headers=headers))
        assert answer.status_code != 500, answer.text


def _answer(random: Random) -> _Answer:
    return _said(_ANSWERS, random)


class _Answers:
    """A client of a zone that answers so."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._client = ZoneClient("a", ChildZone(url="http://127.0.0.1:1"))
        self._said = _Answer(200, "", "")
        transport = httpx.MockTransport(self._reply)
        self._client._http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1")
        self._run = runner.run
        self._request = SelectRequest.model_validate_json(json.dumps(_SELECT))

    def _reply(self, request: httpx.Request) -> httpx.Response:
        said = self._said
        headers = {"Content-Type": said.kind, "Location": ascii(said.body[:40])}
        content = said.body.encode(errors="surrogatepass")
        return httpx.Response(said.status, headers=headers, content=content)

    def __call__(self, said: _Answer) -> None:
        self._said = said
        asks: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = (
            lambda: self._client.view(deadline=10),
            lambda: self._client.select(self._request, deadline=10),
            lambda: self._client.reservation(_RESERVATION, deadline=10),
            lambda: self._client.delete(_RESERVATION, deadline=10),
        )
        self._run(asks[len(said.body) % len(asks)]())


# --- a cloud


def _stamp(text: str) -> None:
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(metadata, dict):
        read_stamp(type("Server", (), {"metadata": metadata}))


class _Cloud(OpenStackApi):
    """A cloud that lets in, and answers all else with the same."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder)
        self._said = _Answer(200, "", "{}")
        self.extensions = LIMITS_PORTS
        mock = stack.enter_context(responses.RequestsMock(assert_all_requests_are_fired=False))
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
            mock.add_callback(method, re.compile(f"{NOWHERE}/.*"), self.serve)
        clock = Clock()  # what is sent again is sent at once
        for module in (tenacity, tenacity.nap):
            stack.enter_context(patch.object(module, "time", clock))
        self._site = self.site(state_dir=folder)
        stack.callback(session._connections.clear)

    def _called(self, request: PreparedRequest, path: str) -> tuple[int, dict[str, str], str]:
        headers = {"Content-Type": self._said.kind}
        return self._said.status, headers, self._said.body.encode(errors="replace").decode()

    def ports(self, said: _Answer) -> None:
        """List the ports of a sliver, or limit one."""
        self._said = said
        self.forget()
        limit = partial(OpenStackCompute(self._site, "").set_bandwidth, "sliver-1", "nic1")
        asks: tuple[Callable[[], object], ...] = (
            lambda: OpenStackNetwork(self._site, "").ports("sliver-1"),
            lambda: limit(9),
            lambda: limit(None),
        )
        asks[len(said.body) % len(asks)]()

    def networks(self, said: _Answer) -> None:
        """Read a network that is a sliver, or check a NIC on any."""
        self._said = said
        self.forget()
        asks: tuple[Callable[[], object], ...] = (
            lambda: OpenStackBridge(self._site, "").find("net-1"),
            lambda: OpenStackBridge(self._site, "").differences(_GREEN),
            lambda: OpenStackNetwork(self._site, "").check("green", _NIC, "sliver-2"),
        )
        asks[len(said.body) % len(asks)]()

    def workers(self, said: _Answer) -> None:
        """Read what the workers have."""
        self._said = said
        OpenStackCompute(self._site, "").inventory()

    def choices(self, said: _Answer) -> None:
        """Check a sliver against images, flavors and workers, or read what an image needs."""
        self._said = said
        self.forget()
        compute, image = OpenStackCompute(self._site, ""), Image("tiny", "user")
        compute.check(_SLIVER, image) if len(said.body) % 2 else compute.image_needs(image)

    def forget(self) -> None:
        """Forget what the names of the cloud stood for."""
        name_cache._names.clear()
        neutron._caches.clear()

    def servers(self, said: _Answer) -> None:
        """List the servers of the site, or find one."""
        self._said = said
        compute = OpenStackCompute(self._site, "")
        compute.servers() if len(said.body) % 2 else compute.find("sliver-1")

    def volumes(self, said: _Answer) -> None:
        """List the volumes of a sliver."""
        self._said = said
        OpenStackVolume(self._site, "").volumes("sliver-1")
