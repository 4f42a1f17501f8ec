"""An Ironic with nodes that are deployed and cleaned at once, beneath the real openstacksdk.

What it does otherwise, a test says: answers that come first (``faults``), and the states that a node
comes to (``ends``).
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from requests import PreparedRequest

from tests.unit.neutron import Neutron
from tests.unit.openstack_api import OpenStackApi, body

CHANGING = "Node n1 can not be updated while a state transition is in progress."
LOCKED = "Node n1 is locked by host lab, please retry after the current operation is completed."
Answer = tuple[int, Any]


def node(name: str = "n1", state: str = "available", **values: Any) -> dict[str, Any]:
    """Return a node as Ironic tells it."""
    usual = {
        "uuid": f"id-{name}",
        "name": name,
        "provision_state": state,
        "power_state": "power off",
        "target_power_state": None,
        "resource_class": "large",
        "traits": [],
        "properties": {},
        "network_interface": "flat",
        "extra": {},
        "instance_info": {},
        "instance_uuid": None,
        "allocation_uuid": None,
        "automated_clean": None,
        "maintenance": False,
        "maintenance_reason": None,
        "retired": False,
        "last_error": None,
    }
    return usual | values


def refusal(words: str) -> dict[str, Any]:
    """Return the body of an error, as Ironic tells it."""
    return {"error_message": {"faultcode": "Client", "faultstring": words, "debuginfo": None}}


class Ironic:
    """The nodes and allocations of a scripted API.

    :param slivers: the ids of slivers that are asked about.
    """

    def __init__(self, api: OpenStackApi, *nodes: dict[str, Any], slivers: tuple[str, ...]) -> None:
        self.api = api
        self.nodes = {each["uuid"]: each for each in nodes}
        self.allocations: dict[str, dict[str, Any]] = {}
        self.neutron = Neutron(api)
        self.ports: list[dict[str, Any]] = []
        self.vifs: dict[str, dict[str, str]] = {each["uuid"]: {} for each in nodes}
        """What is attached to each node: ports of Neutron, each with the port of the node."""
        self.keeps_vifs = False
        """Whether what was attached stays so when what is deployed is deleted."""
        self.taken = False
        """Whether others take the nodes before they are allocated."""
        self.slow = 0
        """For how many reads a node stays locked once its power was asked to change."""
        self.unfit: dict[str, str] = {}
        """Interfaces that are not valid, and why."""
        self.ends = {"active": "active", "rebuild": "active", "deleted": "available"}
        """The state that a node is in when it was told to be ``active``, ``rebuild`` or ``deleted``."""
        self.comes_to: list[str] = []
        """The states that a node is in when it is read from now on, one after the other."""
        self.faults: dict[tuple[str, str], list[Answer | Exception]] = {}
        """What is answered first, by method and the last part of the path: ``("PUT", "provision")``."""
        self.drives: list[dict[str, Any]] = []
        """The config drives that nodes got."""
        self.boot: Callable[[dict[str, Any]], None] = lambda drive: None
        """Called with the config drive of a node that is deployed."""
        self._on("GET", "/nodes/detail", lambda _: (200, {"nodes": [*self.nodes.values()]}))
        self._on("GET", "/nodes", self._stamps)
        self._on("GET", "/ports/detail", lambda _: (200, {"ports": self.ports}))
        self._on(
            "GET", "/allocations", lambda _: (200, {"allocations": [*self.allocations.values()]})
        )
        self._on("POST", "/allocations", self._allocate)
        for sliver in slivers:
            path = f"/allocations/TEST.{sliver}"
            self._on("GET", path, self._allocation)
            self._on("DELETE", path, self._give_up)
        for each in nodes:
            path = f"/nodes/{each['uuid']}"
            self._on("GET", path, self._node)
            self._on("PATCH", path, self._patch)
            self._on("GET", f"{path}/validate", self._validate)
            self._on("GET", f"{path}/vifs", self._list_vifs)
            self._on("POST", f"{path}/vifs", self._attach)
            self._on("PUT", f"{path}/states/provision", self._provision)
            self._on("PUT", f"{path}/states/power", self._power)

    def foresee_detach(self, node_id: str, vif: str) -> None:
        """Answer what detaches a VIF."""
        self._on("DELETE", f"/nodes/{node_id}/vifs/{vif}", lambda _: self._detach(node_id, vif))

    def changes(self) -> list[tuple[str, str]]:
        """Return what was asked for that changes something: method and last part of the path."""
        return [(m, path.rpartition("/")[2]) for m, _, path, _ in self.api.calls if m != "GET"]

    def _stamps(self, request: PreparedRequest) -> Answer:
        """Tell of each node what is asked for, and no more."""
        (fields,) = parse_qs(urlsplit(str(request.url)).query)["fields"]
        told = [{key: node.get(key) for key in fields.split(",")} for node in self.nodes.values()]
        return 200, {"nodes": told}

    def _on(self, method: str, path: str, answer: Any) -> None:
        last = path.rpartition("/")[2]

        def answered(request: PreparedRequest) -> Answer:
            faults = self.faults.get((method, last), [])
            fault = faults.pop(0) if faults else None
            if isinstance(fault, Exception):
                if getattr(fault, "takes_effect", False):
                    answer(request)
                raise fault
            return fault or answer(request)  # type: ignore[no-any-return]

        self.api.answer(method, "baremetal", path, answered)

    def _of(self, request: PreparedRequest) -> dict[str, Any]:
        parts = (request.url or "").partition("?")[0].split("/")
        return self.nodes[next(part for part in parts if part in self.nodes)]

    def _named(self, request: PreparedRequest) -> str:
        return (request.url or "").partition("?")[0].rpartition("/")[2]

    def _node(self, request: PreparedRequest) -> Answer:
        there = self._of(request)
        if self.comes_to:
            there["provision_state"] = self.comes_to.pop(0)
        if there.get("reservation"):
            self.slow -= 1
            there["reservation"] = "lab" if self.slow > 0 else None
        return 200, there

    def _allocation(self, request: PreparedRequest) -> Answer:
        found = self.allocations.get(self._named(request))
        return (200, found) if found else (404, refusal("no such allocation"))

    def _allocate(self, request: PreparedRequest) -> Answer:
        asked = body(request)
        if asked["name"] in self.allocations:
            return 409, {
                "error_message": f"An allocation with name {asked['name']} already exists."
            }
        free = [
            each
            for each in self.nodes.values()
            if each["uuid"] in asked["candidate_nodes"]
            and each["instance_uuid"] is None
            and each["provision_state"] == "available"
        ]
        made = {"uuid": f"a-{asked['name']}", **asked, "last_error": None, "node_uuid": None}
        made |= {"state": "error", "last_error": "no available nodes"}
        if free and not self.taken:
            made |= {"state": "active", "node_uuid": free[0]["uuid"], "last_error": None}
            free[0].update(instance_uuid=made["uuid"], allocation_uuid=made["uuid"])
        self.allocations[asked["name"]] = made
        return 201, made | {"state": "allocating", "node_uuid": None}

    def _give_up(self, request: PreparedRequest) -> Answer:
        made = self.allocations.pop(self._named(request))
        for each in self.nodes.values():
            if each["allocation_uuid"] == made["uuid"]:
                each.update(instance_uuid=None, allocation_uuid=None)
        return 204, None

    def _patch(self, request: PreparedRequest) -> Answer:
        there = self._of(request)
        for change in body(request):
            _, *fields, key = change["path"].split("/")
            of = there[fields[0]] if fields else there
            if change["op"] == "remove":
                del of[key]
            else:
                of[key] = change["value"]
        return 200, there

    def _validate(self, _: PreparedRequest) -> Answer:
        names = ("boot", "deploy", "management", "network", "power", "console")
        return 200, {n: {"result": n not in self.unfit, "reason": self.unfit.get(n)} for n in names}

    def _list_vifs(self, request: PreparedRequest) -> Answer:
        return 200, {"vifs": [{"id": each} for each in self.vifs[self._of(request)["uuid"]]]}

    def _attach(self, request: PreparedRequest) -> Answer:
        there, asked = self._of(request), body(request)
        if there["network_interface"] == "noop":
            return 204, None
        there_by = [vif for vifs in self.vifs.values() for vif in vifs]
        if asked["id"] in there_by:
            return 409, refusal(f"VIF {asked['id']} is already attached")
        self.vifs[there["uuid"]][asked["id"]] = asked["port_uuid"]
        self.foresee_detach(there["uuid"], asked["id"])
        return 204, None

    def _detach(self, node_id: str, vif: str) -> Answer:
        del self.vifs[node_id][vif]
        return 204, None

    def _provision(self, request: PreparedRequest) -> Answer:
        there, asked = self._of(request), body(request)
        state = self.ends[asked["target"]]
        there["provision_state"] = state
        if asked["target"] in {"active", "rebuild"}:
            self.drives.append(asked["configdrive"])
            there["power_state"] = "power on"
            self.boot(asked["configdrive"])
        else:
            if not self.keeps_vifs:
                self.vifs[there["uuid"]].clear()
            made = there["allocation_uuid"]
            self.allocations = {n: a for n, a in self.allocations.items() if a["uuid"] != made}
            there.update(instance_uuid=None, allocation_uuid=None, power_state="power off")
        return 202, None

    def _power(self, request: PreparedRequest) -> Answer:
        on = "off" not in body(request)["target"]
        there = self._of(request)
        there["power_state"] = "power on" if on else "power off"
        if self.slow:
            there["reservation"] = "lab"
        return 202, None
