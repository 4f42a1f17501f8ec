"""A fake of Nova, Neutron, Cinder and Glance that keeps what it is told, for the real drivers.

It has only what the drivers ask for, and what could make an outcome a lie: each thing is made once for
each request, what is used is not deleted, an address or a segment is given once. What takes time in a
cloud (a server that is built, a volume that is unplugged) has come after the next read.

It does not show what real services add: policies, quotas, schedulers, agents, microversions, messages
between services that get lost, lists that lag behind. What it says in an error is not what they say.
`make test-openstack` tries real ones.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from uuid import UUID

from requests import PreparedRequest

from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS
from tests.unit.openstack_api import NOWHERE, PROJECT, OpenStackApi, _split, body, query

Thing = dict[str, Any]
Answer = tuple[int, Any]
_SOON = 1
"""Reads after which what takes time has come."""
_GROUP = {"id": "group-default", "name": "default", "description": "", "project_id": PROJECT}
_SERVICE = {
    "binary": "nova-compute",
    "host": "w1",
    "status": "enabled",
    "state": "up",
    "disabled_reason": None,
}
_DEFAULTS: dict[str, Thing] = {
    "networks": {"shared": False, "router:external": False, "port_security_enabled": True},
    "subnets": {
        "dns_nameservers": [],
        "gateway_ip": None,
        "ipv6_ra_mode": None,
        "ipv6_address_mode": None,
    },
    "routers": {},
    "floatingips": {"port_id": None},
    "ports": {
        "device_id": "",
        "device_owner": "",
        "port_security_enabled": True,
        "security_groups": ["group-default"],
        "status": "DOWN",
    },
    "policies": {},
}
_STOCK = {"VCPU": 16, "MEMORY_MB": 65_536, "DISK_GB": 100}
_HYPERVISOR = {
    "id": str(UUID(int=8 << 64)),
    "hypervisor_hostname": "w1",
    "service": {"host": "w1", "disabled_reason": None},
    "status": "enabled",
    "state": "up",
    "cpu_info": {"arch": "x86_64"},
}
_HOST, _POWER = "OS-EXT-SRV-ATTR:host", "OS-EXT-STS:power_state"
_FILTERS = {
    *("id", "name", "description", "network_id", "device_id", "project_id"),
    *("port_id", "mac_address"),
}


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class StatefulCloud(OpenStackApi):
    """The services of one cloud."""

    def __init__(self, directory: Path, base: str = NOWHERE) -> None:
        super().__init__(directory, base)
        self.things: dict[str, dict[str, Thing]] = {}
        self.extensions = LIMITS_PORTS
        self.moves_to: str | None = None
        """The worker to which a resize moves a server; where it is if absent."""
        self.rebuilt: Callable[[], object] = lambda: None
        """Called when Nova makes a domain anew: what it does not know of is gone from it."""
        self.silent: set[str] = set()
        """Servers in a cell that does not answer."""
        self.keeps_deleted = False
        """Whether Nova only marks servers as deleted, and keeps them (``reclaim_instance_interval``)."""
        self.forces = True
        """Whether the user may force a deletion."""
        self.stock = dict(_STOCK)
        self._services: dict[str, Callable[[str, list[str], Any], Answer]] = {}
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        """Begin anew: a worker, an image, a flavor, and networks that are not ours."""
        self.things = {kind: {} for kind in (*_DEFAULTS, "servers", "flavors", "volumes")}
        self.coming: list[tuple[int, Callable[[], object]]] = []
        self._made, self.moves_to = 0, None
        self.silent, self.keeps_deleted, self.forces = set(), False, True
        self.rebuilt, self.stock = lambda: None, dict(_STOCK)
        nova, neutron, cinder = Nova(self), Neutron(self), Cinder(self)
        self._services = {
            "compute": nova.serve,
            "network": neutron.serve,
            "volume": cinder.serve,
            "image": _glance,
            "placement": self._placement,
        }
        neutron.make("networks", {"name": "public", "router:external": True})
        lab = neutron.make("networks", {"name": "lab"})
        cidr = {"network_id": lab["id"], "cidr": "10.30.0.0/24", "ip_version": 4}
        neutron.make("subnets", {**cidr, "enable_dhcp": True, "dns_nameservers": []})
        nova.flavor({"name": "small", "vcpus": 1, "ram": 1024, "disk": 1})

    def _placement(self, method: str, path: list[str], _: Any) -> Answer:
        """Tell what the only worker has, and that nothing of it is used."""
        assert (method, path[0]) == ("GET", "resource_providers")
        usual = {"reserved": 0, "allocation_ratio": 1.0}
        answers: dict[str, Any] = {
            "inventories": {
                "inventories": {name: {"total": n, **usual} for name, n in self.stock.items()}
            },
            "usages": {"usages": dict.fromkeys(self.stock, 0)},
        }
        return 200, answers["".join(path[2:])] | {"resource_provider_generation": 1}

    def name(self) -> str:
        """Return the id of something new."""
        self._made += 1
        return str(UUID(int=self._made))

    def mac(self) -> str:
        """Return a MAC address that was not given before."""
        low = self._made.to_bytes(3, "big").hex(":")
        return f"fa:16:3e:{low}"

    def add(self, kind: str, values: Thing) -> Thing:
        """Put something there."""
        name = self.name()
        created = f"2026-01-01T00:{self._made // 60:02}:{self._made % 60:02}Z"
        thing = {"id": name, "created_at": created, **values}
        self.things[kind][name] = thing
        return thing

    def one(self, kind: str, name: str) -> Thing:
        """Return something.

        :raises Refusal: if it is not there.
        """
        if name not in self.things[kind]:
            raise Refusal(404, f"{kind} {name} could not be found.")
        return self.things[kind][name]

    def later(self, effect: Callable[[], object], reads: int = _SOON) -> None:
        """Let something come after some reads."""
        self.coming.append((reads, effect))

    def settle(self) -> None:
        """Let all come that is to come."""
        with self._lock:
            while self.coming:
                self._pass()

    def _pass(self) -> None:
        due = [effect for reads, effect in self.coming if reads <= 1]
        self.coming = [(reads - 1, effect) for reads, effect in self.coming if reads > 1]
        for effect in due:
            effect()

    def _called(self, request: PreparedRequest, path: str) -> tuple[int, dict[str, str], str]:
        method, (service, rest) = request.method or "", _split(path)
        sent = query(request) if method in {"GET", "DELETE"} else body(request)
        with self._lock:
            try:
                status, answer = self._services[service](method, rest[1:].split("/"), sent)
            except Refusal as error:
                status, answer = error.status, {"error": {"message": str(error)}}
            text = "" if answer is None else json.dumps(answer)
            if method == "GET":
                self._pass()
        return status, {"X-Openstack-Request-Id": f"req-{self._made}"}, text


IMAGE = str(UUID(int=7 << 64))


def _glance(method: str, path: list[str], sent: Any) -> Answer:
    image = {"id": IMAGE, "name": "tiny", "status": "active"}
    if (method, path) == ("GET", ["images", IMAGE]):
        return 200, image
    assert (method, path) == ("GET", ["images"])
    return 200, {"images": [image] if sent.get("name", "tiny") == "tiny" else []}


def _one(kind: str) -> str:
    return "policy" if kind == "policies" else kind[:-1]


class Neutron:
    """Networks."""

    def __init__(self, cloud: StatefulCloud) -> None:
        self._cloud = cloud

    def serve(self, method: str, path: list[str], sent: Any) -> Answer:
        """Answer a request."""
        if path[0] == "qos":
            return self._serve_limits(method, *path[1:], sent=sent)
        return self._serve(method, path, sent)

    def _serve(self, method: str, path: list[str], sent: Any) -> Answer:
        kind, *rest = path
        match method, rest:
            case "GET", []:
                return 200, {kind.replace("-", "_"): self._list(kind, sent)}
            case "POST", []:
                (values,) = sent.values()
                return 201, {_one(kind): self.make(kind, values)}
            case "PUT", [router, "add_router_interface"]:
                return 200, self._connect(router, sent["subnet_id"])
            case "PUT", [router, "remove_router_interface"]:
                return 200, self._disconnect(router, sent["port_id"])
            case "PUT", [name, "tags"]:
                self._cloud.one(kind, name)["tags"] = sent["tags"]
                return 200, sent
        return self._on_one(method, kind, rest[0], sent)

    def _on_one(self, method: str, kind: str, name: str, sent: Any) -> Answer:
        found = self._cloud.one(kind, name)
        if method == "PUT":
            found.update(*sent.values())
        if method == "DELETE":
            getattr(self, f"_before_{kind}_go", lambda _: None)(found)
            del self._cloud.things[kind][name]
            return 204, None
        return 200, {_one(kind): found}

    def _serve_limits(self, method: str, *path: str, sent: Any) -> Answer:
        """Answer a request for policies, or one that makes or changes a rule of one."""
        if "bandwidth_limit_rules" not in path:
            return self._serve(method, [*path], sent)
        change = self._new_rule if method == "POST" else self._change_rule
        names = (name for name in path if name not in {"policies", "bandwidth_limit_rules"})
        return 200, change(*names, *sent.values())

    def _new_policies(self, asked: Thing) -> Thing:
        return {**asked, "rules": []}

    def _new_rule(self, policy: str, asked: Thing) -> Thing:
        rules = self._cloud.one("policies", policy)["rules"]
        if any(rule["direction"] == asked["direction"] for rule in rules):
            raise Refusal(409, f"policy {policy} has such a rule")
        rules.append({"id": self._cloud.name(), "type": "bandwidth_limit", **asked})
        return {"bandwidth_limit_rule": rules[-1]}

    def _change_rule(self, policy: str, name: str, asked: Thing) -> Thing:
        rules = self._cloud.one("policies", policy)["rules"]
        rule: Thing = next(rule for rule in rules if rule["id"] == name)
        rule.update(asked)
        return {"bandwidth_limit_rule": rule}

    def _before_policies_go(self, policy: Thing) -> None:
        for port in self._cloud.things["ports"].values():
            if port.get("qos_policy_id") == policy["id"]:
                raise Refusal(409, f"QoS Policy {policy['id']} is used by port {port['id']}")

    def _list(self, kind: str, sent: Any) -> list[Thing]:
        if kind == "security-groups":
            return [_GROUP]
        return [t for t in self._cloud.things[kind].values() if _wanted(t, sent)]

    def make(self, kind: str, values: Thing) -> Thing:
        """Make something of what is asked for."""
        checked = getattr(self, f"_new_{kind}", lambda asked: asked)(values)
        usual = {"description": "", "name": "", "project_id": PROJECT}
        return self._cloud.add(kind, {**usual, **_DEFAULTS[kind], **checked})

    def _new_networks(self, asked: Thing) -> Thing:
        segment = ("provider:physical_network", "provider:segmentation_id")
        wanted = [asked.get(key) for key in segment]
        for other in self._cloud.things["networks"].values():
            if wanted[0] and wanted == [other.get(key) for key in segment]:
                raise Refusal(409, f"The segment {wanted} is in use.")
        return asked

    def _new_subnets(self, asked: Thing) -> Thing:
        self._cloud.one("networks", asked["network_id"])
        for other in self._subnets(asked["network_id"]):
            if other["cidr"] == asked["cidr"]:
                raise Refusal(400, f"{asked['cidr']} overlaps with another subnet")
        return asked

    def _new_floatingips(self, asked: Thing) -> Thing:
        self._cloud.one("networks", asked["floating_network_id"])
        self._cloud.one("ports", asked["port_id"])
        there = self._cloud.things["floatingips"].values()
        if any(ip["port_id"] == asked["port_id"] for ip in there):
            raise Refusal(409, f"port {asked['port_id']} already has a floating IP")
        return {**asked, "floating_ip_address": str(ip_address("192.0.2.10") + len(there))}

    def _new_ports(self, asked: Thing) -> Thing:
        self._cloud.one("networks", asked["network_id"])
        mac = asked.get("mac_address") or self._cloud.mac()
        if any(port["mac_address"] == mac for port in self._cloud.things["ports"].values()):
            raise Refusal(409, f"MAC {mac} is in use")
        return {**asked, "mac_address": mac, "fixed_ips": list(self._addresses(asked))}

    def _addresses(self, asked: Thing) -> Iterator[Thing]:
        there = {subnet["id"]: subnet for subnet in self._subnets(asked["network_id"])}
        for fixed in asked.get("fixed_ips") or [{"subnet_id": name} for name in there]:
            taken = self._taken(fixed["subnet_id"])
            block = ip_network(there[fixed["subnet_id"]]["cidr"])
            numbers = range(10, block.num_addresses * 200 // 256)
            free = (str(block[n]) for n in numbers if str(block[n]) not in taken)
            address = fixed.get("ip_address") or next(free)
            if address in taken:
                raise Refusal(409, f"IP address {address} already allocated")
            yield {"subnet_id": fixed["subnet_id"], "ip_address": str(ip_address(address))}

    def _taken(self, subnet: str) -> set[str]:
        fixed = (ip for p in self._cloud.things["ports"].values() for ip in p["fixed_ips"])
        return {ip["ip_address"] for ip in fixed if ip["subnet_id"] == subnet}

    def _subnets(self, network: str) -> list[Thing]:
        subnets = self._cloud.things["subnets"].values()
        return [subnet for subnet in subnets if subnet["network_id"] == network]

    def _before_ports_go(self, port: Thing) -> None:
        for ip in self._cloud.things["floatingips"].values():
            if ip["port_id"] == port["id"]:
                ip["port_id"] = None

    def _before_networks_go(self, network: Thing) -> None:
        if any(p["network_id"] == network["id"] for p in self._cloud.things["ports"].values()):
            raise Refusal(409, f"There are one or more ports in use on network {network['id']}.")
        for subnet in self._subnets(network["id"]):
            del self._cloud.things["subnets"][subnet["id"]]

    def _before_routers_go(self, router: Thing) -> None:
        if self._interfaces(router["id"]):
            raise Refusal(409, f"Router {router['id']} still has ports")

    def _interfaces(self, router: str) -> list[Thing]:
        return [p for p in self._cloud.things["ports"].values() if p["device_id"] == router]

    def _connect(self, router: str, subnet: str) -> Thing:
        self._cloud.one("routers", router)
        found = self._cloud.one("subnets", subnet)
        for port in self._interfaces(router):
            if any(ip["subnet_id"] == subnet for ip in port["fixed_ips"]):
                raise Refusal(400, f"Router already has a port on subnet {subnet}")
        fixed = [{"subnet_id": subnet, "ip_address": found["gateway_ip"]}]
        asked = {"network_id": found["network_id"], "fixed_ips": fixed, "device_id": router}
        port = self.make("ports", {**asked, "device_owner": "network:router_interface"})
        return {"id": router, "port_id": port["id"], "subnet_id": subnet}

    def _disconnect(self, router: str, port: str) -> Thing:
        self._cloud.one("routers", router)
        self._cloud.one("ports", port)
        del self._cloud.things["ports"][port]
        return {"id": router, "port_id": port}


def _wanted(thing: Thing, sent: Any) -> bool:
    for key, value in sent.items():
        wanted = value if isinstance(value, list) else [value]
        if key in _FILTERS and thing.get(key) not in wanted:
            return False
        has = [f"ip_address={ip['ip_address']}" for ip in thing.get("fixed_ips", ())]
        if key == "fixed_ips" and not set(has) & set(wanted):
            return False
    return True


class Cinder:
    """Volumes."""

    def __init__(self, cloud: StatefulCloud) -> None:
        self._cloud, self._volumes = cloud, cloud.things["volumes"]

    def serve(self, method: str, path: list[str], sent: Any) -> Answer:
        """Answer a request."""
        match method, path:
            case "GET", ["volumes", "detail"]:
                return 200, {"volumes": self._list(sent)}
            case "GET", ["messages"]:
                return 200, {"messages": []}
            case "POST", ["volumes"]:
                return 202, {"volume": self._make(sent["volume"])}
            case "GET", ["volumes", name]:
                return 200, {"volume": self._cloud.one("volumes", name)}
            case _, ["volumes", name, "metadata", *keys]:
                return self._change(self._cloud.one("volumes", name)["metadata"], keys, sent)
        return self._delete(path[1])

    def _list(self, sent: Any) -> list[Thing]:
        stamp = json.loads(sent.get("metadata", "{}").replace("'", '"')).items()
        named = sent.get("name")
        found = (v for v in self._volumes.values() if stamp <= v["metadata"].items())
        return [volume for volume in found if named in {None, volume["name"]}]

    def _make(self, asked: Thing) -> Thing:
        usual = {"status": "creating", "attachments": [], "multiattach": False}
        made = self._cloud.add("volumes", {**asked, **usual})
        self._cloud.later(lambda: made.update(status="available"))
        return dict(made)

    def _change(self, metadata: Thing, keys: list[str], sent: Any) -> Answer:
        for key in keys:
            del metadata[key]
        metadata.update({} if keys else sent["metadata"])
        return 200, {"metadata": metadata}

    def _delete(self, name: str) -> Answer:
        volume = self._cloud.one("volumes", name)
        if volume["status"] not in {"available", "error"}:
            raise Refusal(400, "Invalid volume: Volume status must be available or error")
        volume["status"] = "deleting"
        self._cloud.later(lambda: self._volumes.pop(name, None))
        return 202, None


class Nova:
    """Servers."""

    def __init__(self, cloud: StatefulCloud) -> None:
        self._cloud, self._servers = cloud, cloud.things["servers"]

    def flavor(self, values: Thing) -> Thing:
        """Make a flavor."""
        if any(f["name"] == values["name"] for f in self._cloud.things["flavors"].values()):
            raise Refusal(409, f"Flavor with name {values['name']} already exists.")
        usual = {"extra_specs": {}, "OS-FLV-DISABLED:disabled": False}
        return self._cloud.add("flavors", {**usual, **values})

    def serve(self, method: str, path: list[str], sent: Any) -> Answer:
        """Answer a request."""
        answers: dict[tuple[str, str], Callable[[], Answer]] = {
            ("GET", "servers"): lambda: (200, {"servers": self._with_name(sent)}),
            ("GET", "servers/detail"): lambda: (200, {"servers": self._tagged(sent)}),
            ("POST", "servers"): lambda: (202, {"server": self._make(sent["server"])}),
            ("GET", "flavors/detail"): lambda: (200, {"flavors": self._flavors()}),
            ("POST", "flavors"): lambda: (200, {"flavor": self.flavor(sent["flavor"])}),
            ("GET", "os-services"): lambda: (200, {"services": [_SERVICE]}),
            ("GET", "os-hypervisors/detail"): lambda: (200, {"hypervisors": [_HYPERVISOR]}),
        }
        if answer := answers.get((method, "/".join(path))):
            return answer()
        return self._on_one(method, self._cloud.one("servers", path[1]), path[2:], sent)

    def _with_name(self, sent: Any) -> list[Thing]:
        """Return the servers of that name; without a filter, all, as far as their cells answer."""
        if sent:
            return [s for s in self._listed() if s["name"] == sent["name"].strip("^$")]
        return [*map(_unknown, sorted(self._cloud.silent)), *self._listed()]

    def _listed(self) -> list[Thing]:
        silent = self._cloud.silent
        there = (s for s in self._servers.values() if s["id"] not in silent)
        return [server for server in there if server["status"] != "SOFT_DELETED"]

    def _tagged(self, sent: Any) -> list[Thing]:
        if "name" in sent or not sent.keys() & {"tags", "tags-any"}:
            pattern = re.compile(sent.get("name", ""))
            return [server for server in self._listed() if pattern.search(server["name"])]
        wanted = set((sent.get("tags") or sent["tags-any"]).split(","))
        return [server for server in self._listed() if wanted & set(server["tags"])]

    def _flavors(self) -> list[Thing]:
        return list(self._cloud.things["flavors"].values())

    def _on_one(self, method: str, server: Thing, path: list[str], sent: Any) -> Answer:
        what, *rest = path or [""]
        if server["id"] in self._cloud.silent:
            if (method, what) == ("GET", ""):
                return 200, {"server": _unknown(server["id"])}
            raise Refusal(500, "Cell is not responding, hence instance info is not available.")
        answers: dict[tuple[str, str], Callable[[], Answer]] = {
            ("GET", ""): lambda: (200, {"server": server}),
            ("DELETE", ""): lambda: self._delete(server),
            ("POST", "metadata"): lambda: self._write(server, sent["metadata"]),
            ("DELETE", "metadata"): lambda: self._forget(server, *rest),
            ("PUT", "tags"): lambda: self._tag(server, *rest),
            ("DELETE", "tags"): lambda: self._untag(server, *rest),
            ("POST", "action"): lambda: self._act(server, sent),
            ("GET", "os-instance-actions"): lambda: _actions(rest),
            ("GET", "diagnostics"): lambda: self._diagnostics(server),
            ("POST", "os-interface"): lambda: self._plug_port(server, sent),
            ("DELETE", "os-interface"): lambda: self._unplug_port(server, *rest),
            ("GET", "os-volume_attachments"): lambda: _attachments(server),
            ("POST", "os-volume_attachments"): lambda: self._plug_volume(server, sent),
            ("DELETE", "os-volume_attachments"): lambda: self._unplug_volume(server, *rest),
        }
        return answers[method, what]()

    def _write(self, server: Thing, metadata: Thing) -> Answer:
        server["metadata"].update(metadata)
        return 200, {"metadata": server["metadata"]}

    def _forget(self, server: Thing, key: str) -> Answer:
        if key not in server["metadata"]:
            raise Refusal(404, "Metadata item was not found")
        del server["metadata"][key]
        return 204, None

    def _tag(self, server: Thing, tag: str) -> Answer:
        server["tags"] = [*(each for each in server["tags"] if each != tag), tag]
        return 201, None

    def _untag(self, server: Thing, tag: str) -> Answer:
        if tag not in server["tags"]:
            raise Refusal(404, f"Tag {tag} was not found")
        server["tags"] = [each for each in server["tags"] if each != tag]
        return 204, None

    def _make(self, asked: Thing) -> Thing:
        asked_ports = [] if asked["networks"] == "none" else asked["networks"]
        ports = [self._free_port(network["port"]) for network in asked_ports]
        disks = [d for d in asked.get("block_device_mapping_v2", ()) if d["boot_index"] != 0]
        volumes = [self._free_volume(disk["uuid"]) for disk in disks]
        server = self._cloud.add("servers", self._server(asked))
        for port in ports:
            port.update(device_id=server["id"], device_owner="compute:nova")
        for volume, disk in zip(volumes, disks, strict=True):
            self._attach(server, volume, disk["tag"])
        self._later(server, "ACTIVE", power=1)
        return {"id": server["id"]}

    def _server(self, asked: Thing) -> Thing:
        return {
            "name": asked["name"],
            "image": {"id": IMAGE},
            "metadata": asked["metadata"],
            "tags": asked["tags"],
            "flavor": self._flavor_of(asked["flavorRef"]),
            "status": "BUILD",
            "OS-EXT-STS:task_state": "spawning",
            _POWER: 0,
            _HOST: "w1",
            "OS-EXT-SRV-ATTR:instance_name": "instance-00000001",
            "os-extended-volumes:volumes_attached": [],
        }

    def _flavor_of(self, name: str) -> Thing:
        found = self._cloud.things["flavors"].get(name)
        if found is None:
            raise Refusal(400, f"Flavor {name} could not be found.")
        return {"original_name": found["name"], **{k: found[k] for k in ("vcpus", "ram", "disk")}}

    def _later(self, server: Thing, status: str, power: int) -> None:
        def come() -> None:
            server.update({"status": status, _POWER: power})
            server.update({"OS-EXT-STS:task_state": None, "OS-SRV-USG:launched_at": "2026"})
            for port in self._ports(server):
                port["status"] = "ACTIVE" if power == 1 else "DOWN"

        self._cloud.later(come)

    def _ports(self, server: Thing) -> list[Thing]:
        ports = self._cloud.things["ports"].values()
        return [port for port in ports if port["device_id"] == server["id"]]

    def _free_port(self, name: str) -> Thing:
        port = self._cloud.one("ports", name)
        if port["device_id"]:
            raise Refusal(409, f"Port {name} is still in use.")
        return port

    def _free_volume(self, name: str) -> Thing:
        volume = self._cloud.one("volumes", name)
        if volume["status"] != "available":
            raise Refusal(400, f"Invalid volume: volume {name} status must be available")
        return volume

    def _attach(self, server: Thing, volume: Thing, tag: str) -> None:
        attached = {"id": volume["id"], "tag": tag}
        server["os-extended-volumes:volumes_attached"].append(attached)
        volume["status"] = "attaching"
        attachment = {"server_id": server["id"], "device": "/dev/vdb"}
        self._cloud.later(lambda: volume.update(status="in-use", attachments=[attachment]))

    def _detach(self, server: Thing, volume: Thing) -> None:
        def go() -> None:
            volume.update(status="available", attachments=[])
            attached = server["os-extended-volumes:volumes_attached"]
            attached[:] = [a for a in attached if a["id"] != volume["id"]]

        volume["status"] = "detaching"
        self._cloud.later(go)

    def _delete(self, server: Thing) -> Answer:
        if not self._cloud.keeps_deleted:
            self._remove(server)
        elif server["status"] != "SOFT_DELETED":
            self._later(server, "SOFT_DELETED", power=4)
            server["OS-EXT-STS:task_state"] = "deleting"
        return 204, None

    def _forceDelete(self, server: Thing, _: Any) -> None:  # noqa: N802 - as Nova calls it
        if not self._cloud.forces:
            raise Refusal(403, "Policy doesn't allow os_compute_api:os-deferred-delete:force")
        self._remove(server)

    def _remove(self, server: Thing) -> None:
        def go() -> None:
            self._servers.pop(server["id"], None)
            for port in self._ports(server):
                self._let_go(port)
            for attached in server["os-extended-volumes:volumes_attached"]:
                volume = self._cloud.things["volumes"].get(attached["id"], {})
                volume.update(status="available", attachments=[])

        server["OS-EXT-STS:task_state"] = "deleting"
        self._cloud.later(go)

    def _let_go(self, port: Thing) -> None:
        """Unbind a port, or remove one that Nova made; its floating IP stays."""
        port.update(device_id="", device_owner="", status="DOWN")
        if port.get("made_by_nova"):
            del self._cloud.things["ports"][port["id"]]
            for ip in self._cloud.things["floatingips"].values():
                if ip["port_id"] == port["id"]:
                    ip["port_id"] = None

    def _act(self, server: Thing, sent: Any) -> Answer:
        (name, how), *_ = sent.items()
        if name == "os-getConsoleOutput":
            return 200, {"output": "login: "}
        if server["OS-EXT-STS:task_state"]:
            raise Refusal(409, f"Cannot {name} instance while it is in task_state")
        getattr(self, f"_{name.removeprefix('os-')}")(server, how)
        server["OS-EXT-STS:task_state"] = name
        return 202, None

    def _start(self, server: Thing, _: Any) -> None:
        self._refuse_unless(server, "SHUTOFF")
        self._later(server, "ACTIVE", power=1)

    def _stop(self, server: Thing, _: Any) -> None:
        self._refuse_unless(server, "ACTIVE")
        self._later(server, "SHUTOFF", power=4)

    def _reboot(self, server: Thing, _: Any) -> None:
        self._refuse_unless(server, "ACTIVE")
        self._later(server, "ACTIVE", power=1)

    def _resize(self, server: Thing, how: Any) -> None:
        self._refuse_unless(server, "ACTIVE", "SHUTOFF")
        kept = ("flavor", "status", _HOST, _POWER)
        server["was"] = {name: server[name] for name in kept}
        server["flavor"] = self._flavor_of(how["flavorRef"])
        server[_HOST] = self._cloud.moves_to or server[_HOST]
        self._cloud.rebuilt()
        self._later(server, "VERIFY_RESIZE", power=server[_POWER])

    def _confirmResize(self, server: Thing, _: Any) -> None:  # noqa: N802 - as Nova calls it
        self._refuse_unless(server, "VERIFY_RESIZE")
        self._later(server, server["was"]["status"], power=server[_POWER])

    def _revertResize(self, server: Thing, _: Any) -> None:  # noqa: N802 - as Nova calls it
        self._refuse_unless(server, "VERIFY_RESIZE")
        was = server["was"]
        server.update({"flavor": was["flavor"], _HOST: was[_HOST]})
        self._later(server, was["status"], power=was[_POWER])

    def _diagnostics(self, server: Thing) -> Answer:
        if server[_POWER] != 1:
            raise Refusal(
                409, "Cannot get_instance_diagnostics while it is in power state shutdown"
            )
        return 200, {}

    def _refuse_unless(self, server: Thing, *statuses: str) -> None:
        if server["status"] not in statuses:
            raise Refusal(409, f"Cannot do it while it is in vm_state {server['status']}")

    def _plug_port(self, server: Thing, sent: Any) -> Answer:
        port = self._free_port(sent["interfaceAttachment"]["port_id"])
        up = "ACTIVE" if server["status"] == "ACTIVE" else "DOWN"
        port.update(device_id=server["id"], device_owner="compute:nova", status=up)
        return 200, {"interfaceAttachment": {"port_id": port["id"]}}

    def _unplug_port(self, server: Thing, name: str) -> Answer:
        port = self._cloud.one("ports", name)
        if port["device_id"] != server["id"]:
            raise Refusal(404, f"port {name} is not plugged in")
        gone = {"device_id": "", "device_owner": "", "status": "DOWN"}
        self._cloud.later(lambda: port.update(gone))
        return 202, None

    def _plug_volume(self, server: Thing, sent: Any) -> Answer:
        asked = sent["volumeAttachment"]
        self._attach(server, self._free_volume(asked["volumeId"]), asked["tag"])
        return 200, {"volumeAttachment": {"volumeId": asked["volumeId"]}}

    def _unplug_volume(self, server: Thing, name: str) -> Answer:
        if name not in {a["id"] for a in server["os-extended-volumes:volumes_attached"]}:
            raise Refusal(404, f"volume {name} is not attached")
        volume = self._cloud.one("volumes", name)
        if volume["status"] != "in-use":
            raise Refusal(400, "Invalid input: Unable to detach volume")
        self._detach(server, volume)
        return 202, None


def _unknown(server_id: str) -> Thing:
    """Return what Nova tells of a server whose cell does not answer."""
    return {"id": server_id, "status": "UNKNOWN", "created": "2026-01-01T00:00:00Z", "links": []}


def _actions(path: list[str]) -> Answer:
    """Say that each action succeeded; list none."""
    if not path:
        return 200, {"instanceActions": []}
    events = [{"event": "compute", "result": "Success", "details": None}]
    return 200, {"instanceAction": {"request_id": path[0], "events": events}}


def _attachments(server: Thing) -> Answer:
    attached = server["os-extended-volumes:volumes_attached"]
    told = [{"volumeId": a["id"], "tag": a["tag"], "device": "/dev/vdb"} for a in attached]
    return 200, {"volumeAttachments": told}
