"""Bandwidths of ports in Neutron: every request, in order, and what comes of what goes wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from fabric_direct.drivers.contract import Stamped
from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.errors import Conflict, Denied, InvalidSliver, NotFound, NotVerified
from fabric_direct.handlers.vm.steps.ports import HoldPort
from fabric_direct.model import Finding, VNic, VNicInterface
from tests.unit.neutron import Neutron
from tests.unit.openstack_api import PROJECT, OpenStackApi

STAMP = "fabric-direct TEST/s1"
ROOT = "/qos/policies"
PORTS = ("GET", "/ports", {"description": STAMP})
POLICIES = ("GET", ROOT, {"description": STAMP})
NAMED = ("GET", ROOT, {"name": "s1-nic1"})
MAKE = ("POST", ROOT, {"policy": {"name": "s1-nic1", "description": STAMP}})
LIMITED = VNicInterface(bandwidth=10)


def rule(kbps: int, direction: str = "") -> dict[str, Any]:
    asked = {"direction": direction} if direction else {}
    return {"bandwidth_limit_rule": {**asked, "max_kbps": kbps, "max_burst_kbps": 0}}


def give(port: str, policy: str | None) -> tuple[str, str, Any]:
    return ("PUT", f"/ports/{port}", {"port": {"qos_policy_id": policy}})


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def neutron(api: OpenStackApi) -> Iterator[Neutron]:
    api.extensions = LIMITS_PORTS
    made = Neutron(api)
    made.network("lan", "10.10.0.0/24", shared=True)
    yield made
    assert made.unmet() == []


@pytest.fixture
def compute(api: OpenStackApi, neutron: Neutron) -> OpenStackCompute:
    return OpenStackCompute(api.site())


@pytest.fixture
def network(api: OpenStackApi, neutron: Neutron) -> OpenStackNetwork:
    return OpenStackNetwork(api.site(), "")


@pytest.fixture
def port(neutron: Neutron) -> dict[str, Any]:
    """The port of NIC nic1."""
    address = {"subnet_id": "sub-lan-1", "ip_address": "10.10.0.10"}
    named = {"name": "s1-nic1", "description": STAMP, "network_id": "net-lan"}
    return neutron.add("ports", id="p1", device_id="", fixed_ips=[address], **named)


@pytest.fixture
def policy(compute: OpenStackCompute, neutron: Neutron, port: dict[str, Any]) -> dict[str, Any]:
    """The policy of the port, which limits it to 10 Mbit/s."""
    compute.set_bandwidth("s1", "nic1", 10)
    neutron.asked()
    return next(iter(neutron.things["qos/policies"].values()))


def limits(policy: dict[str, Any]) -> dict[str, int]:
    return {rule["direction"]: rule["max_kbps"] for rule in policy["rules"]}


class TestALimit:
    def test_is_a_policy_that_is_complete_before_the_port_gets_it(
        self, compute: OpenStackCompute, neutron: Neutron, port: dict[str, Any]
    ) -> None:
        compute.set_bandwidth("s1", "nic1", 10)

        (made,) = neutron.things["qos/policies"]
        rules = f"{ROOT}/{made}/bandwidth_limit_rules"
        assert neutron.asked() == [
            PORTS,
            POLICIES,
            NAMED,
            MAKE,
            ("POST", rules, rule(10_000, "egress")),
            ("POST", rules, rule(10_000, "ingress")),
            give("p1", made),
        ]

    def test_is_changed_in_place_and_asked_for_twice_is_the_same(
        self, compute: OpenStackCompute, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        for _ in range(2):
            compute.set_bandwidth("s1", "nic1", 20)

        rules = f"{ROOT}/{policy['id']}/bandwidth_limit_rules/{policy['id']}"
        assert neutron.asked() == [
            PORTS,
            POLICIES,
            ("PUT", f"{rules}-egress", rule(20_000)),
            ("PUT", f"{rules}-ingress", rule(20_000)),
            PORTS,
            POLICIES,
        ]

    def test_that_is_lifted_leaves_no_policy(
        self, compute: OpenStackCompute, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        for _ in range(2):
            compute.set_bandwidth("s1", "nic1", None)

        assert neutron.things["qos/policies"] == {}
        assert neutron.asked() == [
            PORTS,
            POLICIES,
            give("p1", None),
            ("DELETE", f"{ROOT}/{policy['id']}", {}),
            POLICIES,
            PORTS,
            NAMED,
        ]

    def test_whose_policy_stays_though_neutron_says_that_it_is_gone_is_an_error(
        self, compute: OpenStackCompute, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        neutron.fault("DELETE", f"{ROOT}/{policy['id']}", 404, "it is gone")

        with pytest.raises(NotVerified, match=policy["id"]):
            compute.set_bandwidth("s1", "nic1", None)

    def test_of_a_port_that_another_sliver_holds_bears_that_ones_stamp(
        self, compute: OpenStackCompute, neutron: Neutron
    ) -> None:
        stamp = "fabric-direct TEST/net-1"
        neutron.add("ports", name="net-1-p1", description=stamp, network_id="net-lan")

        compute.set_bandwidth("s1", "p1", 10, "net-1")

        (made,) = neutron.things["qos/policies"].values()
        assert (made["name"], made["description"]) == ("net-1-p1", stamp)

    def test_of_a_port_that_is_not_there_is_an_error_and_none_is_not(
        self, compute: OpenStackCompute, neutron: Neutron
    ) -> None:
        with pytest.raises(NotFound, match="port nic1 of sliver s1"):
            compute.set_bandwidth("s1", "nic1", 10)
        compute.set_bandwidth("s1", "nic1", None)
        assert neutron.asked() == [PORTS, PORTS]

    def test_where_the_project_may_make_no_policies_is_denied_with_what_it_takes(
        self, compute: OpenStackCompute, neutron: Neutron, port: dict[str, Any]
    ) -> None:
        neutron.fault("POST", ROOT, 403, "rule:create_policy is disallowed by policy")

        with pytest.raises(Denied, match=r"may not limit a NIC.*create_policy") as caught:
            compute.set_bandwidth("s1", "nic1", 10)

        assert "administrator" in caught.value.remedy

    @pytest.mark.parametrize("extensions", [frozenset(), frozenset({"qos"})])
    def test_is_refused_before_anything_is_made_where_neutron_has_none(
        self,
        api: OpenStackApi,
        neutron: Neutron,
        network: OpenStackNetwork,
        extensions: frozenset[str],
    ) -> None:
        api.extensions = extensions
        with pytest.raises(InvalidSliver) as caught:
            network.check("lan", LIMITED)
        assert caught.value.field == "interface.bandwidth"
        assert network.leftovers("s1") == ()
        assert ROOT not in {path for _, path, _ in neutron.asked()}

    def test_is_served_as_soon_as_neutron_is_configured_for_it(
        self, api: OpenStackApi, network: OpenStackNetwork
    ) -> None:
        api.extensions = frozenset()
        with pytest.raises(InvalidSliver):
            network.check("lan", LIMITED)
        api.extensions = LIMITS_PORTS
        network.check("lan", LIMITED)


def _lost(_: requests.PreparedRequest) -> tuple[int, Any]:
    raise requests.exceptions.ReadTimeout


class TestAnAnswerThatGotLost:
    def test_makes_no_second_policy(
        self, compute: OpenStackCompute, neutron: Neutron, port: dict[str, Any]
    ) -> None:
        def made_all_the_same() -> None:
            neutron.add("qos/policies", name="s1-nic1", description=STAMP)

        neutron.fault("POST", ROOT, 502, effect=made_all_the_same)

        compute.set_bandwidth("s1", "nic1", 10)

        (made,) = neutron.things["qos/policies"].values()
        assert port["qos_policy_id"] == made["id"]
        assert limits(made) == {"egress": 10_000, "ingress": 10_000}

    def test_makes_no_second_rule(
        self, compute: OpenStackCompute, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        egress, ingress = policy["rules"]
        policy["rules"].remove(egress)
        path = f"{ROOT}/{policy['id']}/bandwidth_limit_rules"
        neutron.fault("POST", path, 502, effect=lambda: policy["rules"].append(egress))

        compute.set_bandwidth("s1", "nic1", 10)

        assert policy["rules"] == [ingress, egress]

    def test_leaves_what_the_next_call_completes(
        self, compute: OpenStackCompute, neutron: Neutron, port: dict[str, Any]
    ) -> None:
        there = neutron.add("qos/policies", name="s1-nic1", description=STAMP)

        compute.set_bandwidth("s1", "nic1", 10)

        assert list(neutron.things["qos/policies"]) == [there["id"]]
        assert limits(there) == {"egress": 10_000, "ingress": 10_000}


class TestAPolicyOfOthers:
    @pytest.fixture
    def theirs(self, neutron: Neutron, port: dict[str, Any]) -> dict[str, Any]:
        """A policy of another project, which somebody gave the port."""
        rules = [
            {"id": d, "type": "bandwidth_limit", "direction": d, "max_kbps": 5_000}
            for d in ("egress", "ingress")
        ]
        there = neutron.add("qos/policies", id="theirs", name="gold", rules=rules, project_id="o")
        port["qos_policy_id"] = "theirs"
        return there

    def test_is_taken_from_the_port_and_stays(
        self, compute: OpenStackCompute, neutron: Neutron, theirs: Any, port: dict[str, Any]
    ) -> None:
        compute.set_bandwidth("s1", "nic1", 10)
        ours = port["qos_policy_id"]
        compute.set_bandwidth("s1", "nic1", None)

        assert ours != "theirs"
        assert port["qos_policy_id"] is None
        assert limits(theirs) == {"egress": 5_000, "ingress": 5_000}
        assert list(neutron.things["qos/policies"]) == ["theirs"]

    def test_that_limits_nothing_stays_at_a_port_without_a_limit(
        self, compute: OpenStackCompute, theirs: dict[str, Any], port: dict[str, Any]
    ) -> None:
        theirs["rules"] = [{"id": "r", "type": "dscp_marking", "dscp_mark": 26}]

        compute.set_bandwidth("s1", "nic1", None)

        assert port["qos_policy_id"] == "theirs"


class TestAPortThatIsDeleted:
    def test_takes_its_policy_with_it(
        self, network: OpenStackNetwork, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        name = f"QoS policy s1-nic1 ({policy['id']})"
        assert name in network.leftovers("s1")
        assert Stamped("s1", "QoS policy", f"s1-nic1 ({policy['id']})") in network.stamped()
        neutron.asked()

        network.delete_port("s1", "nic1")

        changes = [(method, path) for method, path, _ in neutron.asked() if method != "GET"]
        assert changes == [("DELETE", "/ports/p1"), ("DELETE", f"{ROOT}/{policy['id']}")]
        assert network.leftovers("s1") == ()

    def test_may_leave_one_behind_that_is_found_and_deleted_by_itself(
        self, network: OpenStackNetwork, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        del neutron.things["ports"]["p1"]

        (left,) = network.ports("s1")
        assert (left.component, left.source, left.mac) == ("nic1", policy["id"], "")
        assert network.all_ports() == (left,)
        network.delete_port("s1", left.component)

        assert neutron.things["qos/policies"] == {}

    def test_may_leave_one_behind_that_goes_with_its_floating_ip(
        self, network: OpenStackNetwork, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        del neutron.things["ports"]["p1"]
        tags = {"tags": ["fabric-direct-component=nic1"], "floating_network_id": "net-lan"}
        neutron.add("floatingips", description=STAMP, **tags)

        network.delete_port("s1", "nic1")

        assert network.leftovers("s1") == ()

    def test_that_left_a_policy_behind_is_made_anew_and_undone(
        self, network: OpenStackNetwork, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        del neutron.things["ports"]["p1"]
        step = HoldPort(network, "s1", VNic(id="nic1", network="lan", interface=LIMITED))

        assert step.check() is Finding.WILL_CHANGE
        step.look()
        step.make()
        assert step.check() is Finding.ALREADY_SO
        assert neutron.things["qos/policies"] == {}
        step.undo()

        assert network.leftovers("s1") == ()

    def test_whose_policy_another_port_got_is_told_so(
        self, network: OpenStackNetwork, neutron: Neutron, policy: dict[str, Any]
    ) -> None:
        used = f"QoS Policy {policy['id']} is used by port p9"
        neutron.fault("DELETE", f"{ROOT}/{policy['id']}", 409, used)

        with pytest.raises(Conflict, match="used by port p9"):
            network.delete_port("s1", "nic1")


class TestWhatIsRead:
    @pytest.fixture
    def bound(self, api: OpenStackApi, neutron: Neutron, port: dict[str, Any]) -> dict[str, Any]:
        """The port, plugged into a server that is not ours."""
        port["device_id"] = "server-1"
        found = {"id": "server-1", "metadata": {}, "tags": []}
        api.answer("GET", "compute", "/servers/server-1", {"server": found})
        return port

    @pytest.mark.parametrize(
        ("rates", "bandwidth"),
        [
            ({"egress": 10_000, "ingress": 10_000}, 10),
            ({}, None),
            ({"egress": 10_000}, 0),
            ({"ingress": 10_000}, 0),
            ({"egress": 10_000, "ingress": 20_000}, 0),
            ({"egress": 1_500, "ingress": 1_500}, 0),
            ({"egress": None, "ingress": None}, 0),
        ],
    )
    def test_is_one_limit_for_both_directions_or_0(
        self,
        compute: OpenStackCompute,
        neutron: Neutron,
        bound: dict[str, Any],
        rates: dict[str, int | None],
        bandwidth: int | None,
    ) -> None:
        rules = [
            {"id": d, "type": "bandwidth_limit", "direction": d, "max_kbps": kbps}
            for d, kbps in rates.items()
        ]
        neutron.add("qos/policies", id="q", name="s1-nic1", description=STAMP, rules=rules)
        bound["qos_policy_id"] = "q"

        (found,) = compute.plugs("s1")

        assert found.nic.bandwidth == bandwidth
        assert found.nic.interface().bandwidth == (bandwidth or None)

    def test_of_a_policy_that_the_project_may_not_see_is_0(
        self, api: OpenStackApi, compute: OpenStackCompute, bound: dict[str, Any]
    ) -> None:
        bound["qos_policy_id"] = "hidden"
        api.answer("GET", "network", f"{ROOT}/hidden", {}, status=404)

        (found,) = compute.plugs("s1")

        assert found.nic.bandwidth == 0

    def test_is_read_by_one_list_for_all_servers_of_the_site(
        self, api: OpenStackApi, compute: OpenStackCompute, neutron: Neutron, policy: Any
    ) -> None:
        neutron.add("ports", network_id="net-lan", qos_policy_id="of somebody else")
        api.answer("GET", "compute", "/servers/detail", {"servers": [{"id": "i", "metadata": {}}]})

        compute.servers()

        asked = [(path, sent) for _, path, sent in neutron.asked() if path.startswith(ROOT)]
        assert asked == [(ROOT, {"project_id": PROJECT})]
