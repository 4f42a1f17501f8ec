"""A Neutron that keeps what it is told, behind the fixture ``api``, so that tests can list the requests.

It refuses nothing by itself: what a test needs is put there by ``add``, what is to go wrong is said by
``fault``. Each port gets the tenth address of each subnet.
"""

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

from requests import PreparedRequest

from tests.unit.openstack_api import PROJECT, OpenStackApi, body, query

_DEFAULTS: dict[str, dict[str, Any]] = {
    "networks": {
        "description": "",
        "shared": False,
        "router:external": False,
        "port_security_enabled": True,
    },
    "subnets": {
        "description": "",
        "ip_version": 4,
        "gateway_ip": None,
        "enable_dhcp": True,
        "dns_nameservers": [],
        "allocation_pools": [],
        "ipv6_ra_mode": None,
        "ipv6_address_mode": None,
    },
    "routers": {"description": ""},
    "ports": {
        "description": "",
        "name": "",
        "device_id": "",
        "device_owner": "",
        "mac_address": "fa:16:3e:00:00:01",
        "fixed_ips": [],
        "port_security_enabled": True,
        "security_groups": ["group-default"],
    },
    "floatingips": {"description": "", "port_id": None, "floating_ip_address": "192.0.2.7"},
    "security-groups": {"description": ""},
    "qos/policies": {"description": ""},
}
_FILTERS = ("id", "name", "description", "network_id", "device_id", "project_id")
_LIMITS = "bandwidth_limit_rules"
_LISTS = ("/ports", "/qos/policies", "/floatingips")
Answer = tuple[int, Any]


class Neutron:
    """The collections of a Neutron."""

    def __init__(self, api: OpenStackApi) -> None:
        self.api = api
        self.things: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in _DEFAULTS}
        self.made = 0
        """How many things were made; the next one's id ends with one more."""
        self._faults: dict[tuple[str, str], list[Callable[[], Answer | None]]] = {}
        for kind in _DEFAULTS:
            self._serve("GET", f"/{kind}", lambda r, k=kind: self._list(k, r))
            self._serve("POST", f"/{kind}", lambda r, k=kind: self._post(k, r))

    def add(self, kind: str, **values: Any) -> dict[str, Any]:
        """Put something there; it belongs to the project unless it says otherwise."""
        self.made += 1
        name = values.get("id", f"{kind.rstrip('s')}-{self.made}")
        thing = {
            "id": name,
            "project_id": PROJECT,
            "created_at": f"2026-01-01T00:00:{self.made:02}Z",
            **_DEFAULTS[kind],
            **values,
        }
        self.things[kind][name] = thing
        for method, answer in (("GET", self._get), ("PUT", self._put), ("DELETE", self._delete)):
            self._serve(method, f"/{kind}/{name}", lambda r, a=answer: a(kind, name, r))
        if kind == "qos/policies":
            thing["rules"] = [*values.get("rules", ())]
            self._serve("POST", f"/{kind}/{name}/{_LIMITS}", lambda r: self._rule(name, r))
        if kind == "routers":
            self._serve(
                "PUT", f"/routers/{name}/add_router_interface", lambda r: self._plug(name, r)
            )
            self._serve("PUT", f"/routers/{name}/remove_router_interface", self._unplug)
        return thing

    def network(self, name: str, *cidrs: str, **values: Any) -> dict[str, Any]:
        """Put a network with subnets there, the first address of each being its gateway."""
        network = self.add("networks", name=name, id=f"net-{name}", **values)
        for number, cidr in enumerate(cidrs):
            block = ip_network(cidr)
            automatic = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
            self.add(
                "subnets",
                id=f"sub-{name}-{number + 1}",
                network_id=network["id"],
                cidr=cidr,
                ip_version=block.version,
                gateway_ip=str(block[1]),
                **(automatic if block.version == 6 else {}),
            )
        return network

    def fault(
        self, method: str, path: str, status: int = 0, message: str = "", *, effect: Any = None
    ) -> None:
        """Let the next such request fail, or have another effect (a function, called first).

        An effect that returns None goes on to what the request does.
        """

        def fail() -> Answer | None:
            if effect is not None:
                effect()
            return (status, {"NeutronError": {"message": message}}) if status else None

        self._faults.setdefault((method, path), []).append(fail)

    def lacks(self, path: str) -> None:
        """Let the next such list be a success, and have nothing in it."""
        kind = path.rpartition("/")[2]
        self._faults.setdefault(("GET", path), []).append(lambda: (200, {kind: []}))

    def unmet(self) -> list[tuple[str, str]]:
        """Return the requests with a fault that none of them met."""
        return [request for request, faults in self._faults.items() if faults]

    def asked(self) -> list[tuple[str, str, Any]]:
        """Return all requests since the last call, without their service, and forget them.

        Lists that are read at the same time are in the order of ``_LISTS``.
        """
        calls: list[tuple[str, str, Any]] = []
        together: dict[int, tuple[str, str, Any]] = {}
        for method, _, path, sent in self.api.calls:
            number = _LISTS.index(path) if method == "GET" and path in _LISTS else None
            if number is None or number in together:
                calls += (together.pop(each) for each in sorted(together))
            if number is None:
                calls.append((method, path, sent))
            else:
                together[number] = (method, path, sent)
        self.api.calls.clear()
        return calls + [together[each] for each in sorted(together)]

    def _serve(self, method: str, path: str, answer: Callable[[PreparedRequest], Answer]) -> None:
        def faulty(request: PreparedRequest) -> Answer:
            faults = self._faults.get((method, path))
            failed = faults.pop(0)() if faults else None
            return failed or answer(request)

        self.api.answer(method, "network", path, faulty)

    def _list(self, kind: str, request: PreparedRequest) -> Answer:
        found = list(self.things[kind].values())
        for key, value in query(request).items():
            wanted = value if isinstance(value, list) else [value]
            if key in _FILTERS:
                found = [thing for thing in found if thing.get(key) in wanted]
            elif key == "fixed_ips":
                found = [thing for thing in found if _has_address(thing, wanted)]
        return 200, {kind.rpartition("/")[2].replace("-", "_"): found}

    def _post(self, kind: str, request: PreparedRequest) -> Answer:
        (values,) = body(request).values()
        if kind == "ports":
            values["fixed_ips"] = self._addresses(values)
        return 201, {_one(kind): self.add(kind, **values)}

    def _addresses(self, port: dict[str, Any]) -> list[dict[str, str]]:
        """Return an address in each subnet that is named or, if none is, in all of the network."""
        subnets = self.things["subnets"].values()
        there = [s for s in subnets if s["network_id"] == port["network_id"]]
        automatic = [{"subnet_id": s["id"]} for s in there if s["ipv6_address_mode"] == "slaac"]
        asked = port.get(
            "fixed_ips", [{"subnet_id": s["id"]} for s in there if s["ip_version"] == 4]
        )
        cidrs = {subnet["id"]: subnet["cidr"] for subnet in there}
        return [
            {"ip_address": str(ip_network(cidrs[ip["subnet_id"]])[9]), **ip}
            for ip in (*asked, *automatic)
        ]

    def _rule(self, policy: str, request: PreparedRequest) -> Answer:
        """Add a limit to a policy, which has one for each direction."""
        (values,) = body(request).values()
        rules = self.things["qos/policies"][policy]["rules"]
        if any(rule["direction"] == values["direction"] for rule in rules):
            return 409, {"NeutronError": {"message": "Rule bandwidth_limit already exists"}}
        name = f"{policy}-{values['direction']}"
        rules.append({"id": name, "type": "bandwidth_limit", **values})
        path = f"/qos/policies/{policy}/{_LIMITS}/{name}"
        self._serve("PUT", path, lambda r: self._change_rule(rules, name, r))
        return 201, {"bandwidth_limit_rule": rules[-1]}

    def _change_rule(
        self, rules: list[dict[str, Any]], name: str, request: PreparedRequest
    ) -> Answer:
        (values,) = body(request).values()
        rule = next(rule for rule in rules if rule["id"] == name)
        rule.update(values)
        return 200, {"bandwidth_limit_rule": rule}

    def _get(self, kind: str, name: str, _: PreparedRequest) -> Answer:
        thing = self.things[kind].get(name)
        return (200, {_one(kind): thing}) if thing else _not_found(name)

    def _put(self, kind: str, name: str, request: PreparedRequest) -> Answer:
        (values,) = body(request).values()
        self.things[kind][name].update(values)
        return 200, {_one(kind): self.things[kind][name]}

    def _delete(self, kind: str, name: str, _: PreparedRequest) -> Answer:
        thing = self.things[kind].pop(name, None)
        if kind == "networks":
            subnets = self.things["subnets"]
            for subnet in [s for s in subnets.values() if s["network_id"] == name]:
                del subnets[subnet["id"]]
        return (204, None) if thing else _not_found(name)

    def _plug(self, router: str, request: PreparedRequest) -> Answer:
        subnet = self.things["subnets"][body(request)["subnet_id"]]
        port = self.add(
            "ports",
            network_id=subnet["network_id"],
            device_id=router,
            device_owner="network:router_interface",
            fixed_ips=[{"subnet_id": subnet["id"], "ip_address": subnet["gateway_ip"]}],
        )
        return 200, {"port_id": port["id"], "subnet_id": subnet["id"]}

    def _unplug(self, request: PreparedRequest) -> Answer:
        self.things["ports"].pop(body(request)["port_id"])
        return 200, {}


def _one(kind: str) -> str:
    if kind == "qos/policies":
        return "policy"
    return kind.removesuffix("s").replace("-", "_")


def _not_found(name: str) -> Answer:
    return 404, {"NeutronError": {"message": f"{name} could not be found."}}


def _has_address(thing: dict[str, Any], wanted: list[str]) -> bool:
    return any(f"ip_address={ip['ip_address']}" in wanted for ip in thing["fixed_ips"])
