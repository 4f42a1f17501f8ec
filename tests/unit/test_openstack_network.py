"""Ports in Neutron: every request, in order, and what comes of what goes wrong."""

from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any

import pytest
import requests

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.errors import (
    Conflict,
    Denied,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
    PoolExhausted,
    QuotaExceeded,
    SliverBusy,
    TimedOut,
)
from fabric_direct.handlers.vm.differences import differences
from fabric_direct.handlers.vm.steps.networks import RemoveUnused
from fabric_direct.handlers.vm.steps.ports import HoldFloatingIp, HoldPort, ReleasePort, held_by
from fabric_direct.model import (
    Finding,
    NodeSliver,
    Observed,
    ObservedInterface,
    State,
    VNic,
    VNicInterface,
)
from fabric_direct.site.config import Site
from fabric_direct.state.locks import exclusive
from tests.trust.clock import skipping_pauses
from tests.unit.neutron import Neutron
from tests.unit.openstack_api import PROJECT, OpenStackApi

RED, BLUE = "fabric-direct TEST network red", "fabric-direct TEST network blue"
STAMP = "fabric-direct TEST/s1"
PORTS = ("GET", "/ports", {"description": STAMP})
FLOATING = ("GET", "/floatingips", {"description": STAMP})
HELD = [PORTS, FLOATING]
NAMED = ("GET", "/ports", {"name": "s1-nic1"})
NONE = [*HELD, NAMED]
"""What shows that there is no port."""
ON_RED = ("GET", "/ports", {"network_id": "net-red"})
NETWORKS = {
    "red": {
        "strategy": "vlan",
        "vlan": 101,
        "physical_network": "physnet1",
        "subnet": "10.20.1.0/24",
        "subnet6": "fd20::/64",
        "dns": ["9.9.9.9"],
        "router": True,
    },
    "blue": {
        "strategy": "flat",
        "physical_network": "physnet1",
        "subnet": "10.20.2.0/24",
        "gateway": "10.20.2.254",
    },
    "here": {"strategy": "flat_dhcp", "subnet": "10.20.3.0/24"},
}
Vnic = VNicInterface


def post(network: str, component: str = "nic1", **values: Any) -> tuple[str, str, Any]:
    named = {"name": f"s1-{component}", "description": STAMP, "network_id": f"net-{network}"}
    return ("POST", "/ports", {"port": named | values})


def float_(port: str, address: str) -> tuple[str, str, Any]:
    asked = {
        "description": STAMP,
        "floating_network_id": "net-public",
        "port_id": port,
        "fixed_ip_address": address,
    }
    return ("POST", "/floatingips", {"floatingip": asked})


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def neutron(api: OpenStackApi) -> Iterator[Neutron]:
    """A cloud with a network for all, of another project, and an external one."""
    made = Neutron(api)
    made.network("public", "172.24.4.0/24", project_id="other", **{"router:external": True})
    made.network("lan", "10.10.0.0/24", "fd10::/64", project_id="other", shared=True)
    yield made
    assert made.unmet() == []


@pytest.fixture
def site(api: OpenStackApi, tmp_path: Path) -> Site:
    return api.site(
        state_dir=tmp_path / "state",
        networks=NETWORKS,
        openstack={"external_network": "public"},
    )


@pytest.fixture
def driver(site: Site, neutron: Neutron) -> OpenStackNetwork:
    return OpenStackNetwork(site, "worker1")


@pytest.fixture
def cache() -> Iterator[ReadCache]:
    cache = ReadCache()
    with cache.active():
        yield cache


@pytest.fixture
def warm(driver: OpenStackNetwork, neutron: Neutron) -> OpenStackNetwork:
    """A driver that has held a port on the network before, with a floating IP."""
    driver.create_port("s0", "nic1", "lan", Vnic(floating_ip=True))
    driver.delete_port("s0", "nic1")
    neutron.asked()
    return driver


@pytest.fixture
def red(driver: OpenStackNetwork, neutron: Neutron) -> str:
    """The id of network red, on which another sliver has a port."""
    driver.create_port("s0", "nic1", "red", Vnic())
    neutron.asked()
    return next(n for n, t in neutron.things["networks"].items() if t["name"] == "red")


def hold(neutron: Neutron, component: str = "nic1", **values: Any) -> dict[str, Any]:
    """Let a port of the sliver be there, on the network lan."""
    address = {"subnet_id": "sub-lan-1", "ip_address": "10.10.0.10"}
    named = {"name": f"s1-{component}", "description": STAMP, "network_id": "net-lan"}
    return neutron.add("ports", **{**named, "fixed_ips": [address], **values})


class TestAPortOnANetworkOfTheCloud:
    def test_is_made_by_one_request_and_its_floating_ip_by_another(
        self, warm: OpenStackNetwork, neutron: Neutron, cache: ReadCache
    ) -> None:
        vnic = VNic(id="nic1", network="lan", interface=Vnic(floating_ip=True))
        warm.check(vnic.network, vnic.interface, "s1")
        step = HoldPort(warm, "s1", vnic)

        assert step.check() is Finding.WILL_CREATE
        step.make()
        assert step.check() is Finding.ALREADY_SO

        port = next(iter(neutron.things["ports"]))
        assert neutron.asked() == [
            *NONE,
            post("lan"),
            float_(port, "10.10.0.9"),
            *HELD,
        ]

    def test_has_what_neutron_says_of_it(self, driver: OpenStackNetwork, neutron: Neutron) -> None:
        neutron.things["subnets"]["sub-lan-1"]["dns_nameservers"] = ["9.9.9.9"]

        port = driver.create_port("s1", "nic1", "lan", Vnic(floating_ip=True))

        assert port == Port(
            sliver="s1",
            component="nic1",
            network="lan",
            network_id="net-lan",
            source=port.source,
            mac="fa:16:3e:00:00:01",
            ipv4=IPv4Interface("10.10.0.9/24"),
            ipv6=IPv6Interface("fd10::9/64"),
            gateway="10.10.0.1",
            dns=("9.9.9.9",),
            dhcp=True,
            floating_ip="192.0.2.7",
            port_security=True,
        )
        assert driver.ports("s1") == (port,)
        assert driver.find_port("s1", "nic1") == port

    def test_asks_for_what_the_sliver_fixes(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        interface = Vnic(mac="52:54:00:00:00:07", ipv4="10.10.0.50/24", port_security=False)

        warm.create_port("s1", "nic1", "lan", interface)

        assert neutron.asked() == [
            *NONE,
            post(
                "lan",
                mac_address="52:54:00:00:00:07",
                fixed_ips=[{"subnet_id": "sub-lan-1", "ip_address": "10.10.0.50"}],
                port_security_enabled=False,
            ),
        ]

    def test_may_be_asked_for_with_the_address_that_follows_from_its_mac(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        interface = Vnic(mac="52:54:00:00:00:07", ipv6="fd10::5054:ff:fe00:7/64")

        warm.create_port("s1", "nic1", "lan", interface)

        fixed = [{"subnet_id": "sub-lan-1"}]
        assert post("lan", mac_address="52:54:00:00:00:07", fixed_ips=fixed) in neutron.asked()

    def test_may_be_on_a_network_named_by_its_id(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        network_id = "70c1db1f-b701-45bd-96e0-a313ee3430b3"
        neutron.add("networks", name="wan", id=network_id)
        vnic = VNic(id="nic1", network=network_id)
        step = HoldPort(driver, "s1", vnic)

        step.make()

        assert step.check() is Finding.ALREADY_SO
        assert driver.ports("s1")[0].network == "wan"

    def test_on_a_network_named_by_its_id_is_no_difference(self) -> None:
        wanted = NodeSliver.model_validate(
            {
                "id": "s1",
                "name": "node",
                "image": "tiny",
                "capacities": {"core": 1, "ram": 1, "disk": 1},
                "components": [{"type": "vNIC", "id": "nic1", "network": "net-lan"}],
            }
        )
        found = ObservedInterface(component="nic1", mac="x", network="lan", network_id="net-lan")

        assert not [
            text
            for text in differences(wanted, Observed(state=State.RUNNING, interfaces=(found,)))
            if "nic1" in text
        ]

    def test_has_the_security_groups_of_the_site(self, api: OpenStackApi, neutron: Neutron) -> None:
        neutron.add("security-groups", name="web", id="group-web")
        neutron.add("security-groups", name="web", id="group-other", project_id="other")
        driver = OpenStackNetwork(api.site(openstack={"security_groups": ["web"]}), "")

        driver.create_port("s1", "nic1", "lan", Vnic())
        driver.create_port("s1", "nic2", "lan", Vnic(port_security=False))

        posts = [sent["port"] for method, path, sent in neutron.asked() if method == "POST"]
        assert [port.get("security_groups") for port in posts] == [["group-web"], None]

    @pytest.mark.parametrize("values", [{"port_security_enabled": False}, {}])
    def test_has_none_where_nothing_can_be_filtered(
        self, api: OpenStackApi, neutron: Neutron, values: dict[str, Any]
    ) -> None:
        cidrs = ("10.11.0.0/24",) if values else ()
        neutron.network("open", *cidrs, **values)
        neutron.add("security-groups", name="web")
        driver = OpenStackNetwork(api.site(openstack={"security_groups": ["web"]}), "")

        driver.create_port("s1", "nic1", "open", Vnic())

        assert neutron.asked()[-1] == post("open")

    def test_twice_is_the_same_as_once(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        interface = Vnic(floating_ip=True)
        first = warm.create_port("s1", "nic1", "lan", interface)
        neutron.asked()

        assert warm.create_port("s1", "nic1", "lan", interface) == first
        assert neutron.asked() == HELD * 2

    def test_that_the_list_by_description_lacks_once_is_found_by_its_name(
        self, warm: OpenStackNetwork, neutron: Neutron, cache: ReadCache
    ) -> None:
        port = hold(neutron)
        neutron.lacks("/ports")

        found = warm.create_port("s1", "nic1", "lan", Vnic())

        assert found.source == port["id"]
        assert list(neutron.things["ports"]) == [port["id"]]

    def test_of_another_project_with_our_stamp_is_not_ours(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron, project_id="other")
        neutron.add("floatingips", description=STAMP, project_id="other")

        assert driver.ports("s1") == ()
        assert driver.leftovers("s1") == ()


class TestAFloatingIpOfAPortThatIsHeld:
    def test_is_made_by_one_request(
        self, warm: OpenStackNetwork, neutron: Neutron, cache: ReadCache
    ) -> None:
        port = hold(neutron)
        step = HoldFloatingIp(warm, "s1", "nic1")

        assert step.check() is Finding.WILL_CREATE
        step.make()
        assert step.check() is Finding.ALREADY_SO

        assert neutron.asked() == [*HELD, float_(port["id"], "10.10.0.10"), FLOATING]

    def test_is_not_made_again(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        port = hold(neutron)
        neutron.add("floatingips", description=STAMP, port_id=port["id"])

        warm.create_floating_ip("s1", "nic1")

        assert neutron.asked() == HELD

    def test_whose_answer_got_lost_is_found(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        port = hold(neutron)

        def lost() -> None:
            neutron.add("floatingips", description=STAMP, port_id=port["id"])
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/floatingips", effect=lost)

        warm.create_floating_ip("s1", "nic1")

        assert len(neutron.things["floatingips"]) == 1
        assert neutron.asked() == [*HELD, float_(port["id"], "10.10.0.10"), FLOATING]

    def test_of_an_unreachable_network_is_told_in_neutrons_words(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron)
        message = "External network net-public is not reachable from subnet sub-lan-1."
        for _ in range(2):
            neutron.fault("POST", "/floatingips", 404, message)

        with pytest.raises(NotFound, match="is not reachable from subnet"):
            warm.create_floating_ip("s1", "nic1")

    def test_that_neutron_has_no_quota_for_is_refused(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron)
        message = "Quota exceeded for resources: ['floatingip']."
        neutron.fault("POST", "/floatingips", 409, message)

        with pytest.raises(QuotaExceeded, match="Quota exceeded"):
            warm.create_floating_ip("s1", "nic1")

    def test_needs_the_port(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        with pytest.raises(NotFound, match="port nic1 of sliver s1 is not there"):
            warm.create_floating_ip("s1", "nic1")

        assert neutron.things["floatingips"] == {}


class TestSettingsOfAPortThatIsHeld:
    def settle(
        self, driver: OpenStackNetwork, neutron: Neutron, **interface: Any
    ) -> list[tuple[str, str, Any]]:
        driver.ports("s1")
        neutron.asked()
        driver.create_port("s1", "nic1", "lan", Vnic(**interface))
        return neutron.asked()

    def test_it_gets_a_floating_ip(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        port = hold(neutron)

        assert self.settle(warm, neutron, floating_ip=True) == [
            *HELD * 2,
            float_(port["id"], "10.10.0.10"),
        ]

    def test_it_loses_its_floating_ip(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        port = hold(neutron)
        ip = neutron.add("floatingips", description=STAMP, port_id=port["id"])

        assert self.settle(warm, neutron) == [*HELD * 2, ("DELETE", f"/floatingips/{ip['id']}", {})]

    def test_a_second_floating_ip_is_removed(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = hold(neutron)
        neutron.add("floatingips", description=STAMP, port_id=port["id"])
        second = neutron.add("floatingips", description=STAMP, port_id=port["id"])

        calls = self.settle(warm, neutron, floating_ip=True)

        assert calls == [*HELD * 2, ("DELETE", f"/floatingips/{second['id']}", {})]

    def test_its_port_security_is_switched_off_with_its_security_groups(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = hold(neutron)
        off = {"port": {"port_security_enabled": False, "security_groups": []}}

        calls = self.settle(warm, neutron, port_security=False)

        assert calls == [*HELD * 2, ("PUT", f"/ports/{port['id']}", off)]

    def test_that_was_switched_off_is_switched_on(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = hold(neutron, admin_state_up=False)
        before = warm.find_port("s1", "nic1")
        neutron.asked()
        on = {"port": {"admin_state_up": True}}

        calls = self.settle(warm, neutron)

        assert before is not None
        assert not before.enabled
        assert ("PUT", f"/ports/{port['id']}", on) in calls

    def test_of_all_slivers_are_two_lists_whatever_their_number(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron)
        ours = hold(neutron, name="s2-nic1", description="fabric-direct TEST/s2")
        neutron.add("floatingips", description="fabric-direct TEST/s2", port_id=ours["id"])
        hold(neutron, name="s3-nic1", description="fabric-direct OTHER/s3")
        neutron.asked()

        found = warm.all_ports()

        assert [(p.sliver, p.component) for p in found] == [("s1", "nic1"), ("s2", "nic1")]
        assert found == (*warm.ports("s1"), *warm.ports("s2"))
        assert found[1].floating_ip is not None

    @pytest.mark.parametrize(("status", "down"), [("ACTIVE", False), ("DOWN", True)])
    def test_says_whether_it_is_down(
        self, warm: OpenStackNetwork, neutron: Neutron, status: str, down: bool
    ) -> None:
        hold(neutron, status=status)

        found = warm.find_port("s1", "nic1")

        assert found is not None
        assert (found.down, found.enabled) == (down, True)

    def test_switched_on_again_it_has_the_projects_default_group(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.add("security-groups", name="default", id="group-default")
        port = hold(neutron, port_security_enabled=False, security_groups=[])
        on = {"port": {"port_security_enabled": True, "security_groups": ["group-default"]}}

        calls = self.settle(warm, neutron, port_security=True)

        assert calls == [
            *HELD * 2,
            ("GET", "/security-groups", {"name": "default", "project_id": PROJECT}),
            ("PUT", f"/ports/{port['id']}", on),
        ]

    @pytest.mark.parametrize(
        ("network", "interface"),
        [
            ("public", {}),
            ("lan", {"mac": "52:54:00:00:00:09"}),
            ("lan", {"ipv4": "10.10.0.77/24"}),
        ],
    )
    def test_another_place_than_the_held_one_is_a_conflict(
        self, warm: OpenStackNetwork, neutron: Neutron, network: str, interface: dict[str, Any]
    ) -> None:
        hold(neutron)

        with pytest.raises(Conflict, match="s1/nic1 has another port"):
            warm.create_port("s1", "nic1", network, Vnic(**interface))


class TestAPortOnANetworkOfTheSite:
    def test_the_network_is_made_with_its_first_port(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = driver.create_port("s1", "nic1", "red", Vnic())

        named = {"name": "red", "description": RED}
        net, router = port.network_id, next(iter(neutron.things["routers"]))
        six, four = list(neutron.things["subnets"])[-2:]
        assert neutron.asked() == [
            *NONE,
            ("GET", "/networks", {"description": RED}),
            ("GET", "/networks", {"name": "red"}),
            (
                "POST",
                "/networks",
                {
                    "network": {
                        **named,
                        "provider:network_type": "vlan",
                        "provider:physical_network": "physnet1",
                        "provider:segmentation_id": 101,
                    }
                },
            ),
            ("GET", "/subnets", {"network_id": net}),
            ("GET", "/routers", {"description": RED}),
            ("GET", "/networks", {"name": "public"}),
            (
                "POST",
                "/routers",
                {"router": {**named, "external_gateway_info": {"network_id": "net-public"}}},
            ),
            (
                "POST",
                "/subnets",
                {
                    "subnet": {
                        **named,
                        "network_id": net,
                        "ip_version": 6,
                        "cidr": "fd20::/64",
                        "gateway_ip": "fd20::1",
                        "enable_dhcp": True,
                        "ipv6_ra_mode": "slaac",
                        "ipv6_address_mode": "slaac",
                    }
                },
            ),
            (
                "POST",
                "/subnets",
                {
                    "subnet": {
                        **named,
                        "network_id": net,
                        "ip_version": 4,
                        "cidr": "10.20.1.0/24",
                        "gateway_ip": "10.20.1.1",
                        "enable_dhcp": True,
                        "dns_nameservers": ["9.9.9.9"],
                        "allocation_pools": [{"start": "10.20.1.2", "end": "10.20.1.254"}],
                    }
                },
            ),
            ("GET", "/ports", {"device_id": router}),
            ("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": six}),
            ("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": four}),
            (
                "POST",
                "/ports",
                {
                    "port": {
                        "name": "s1-nic1",
                        "description": STAMP,
                        "network_id": net,
                        "fixed_ips": [{"subnet_id": four}],
                    }
                },
            ),
        ]
        assert (port.network, port.ipv4, port.dns) == (
            "red",
            IPv4Interface("10.20.1.9/24"),
            ("9.9.9.9",),
        )

    def test_a_flat_one_has_no_dhcp_and_no_router(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = driver.create_port("s1", "nic1", "blue", Vnic())

        posts = [(path, sent) for method, path, sent in neutron.asked() if method == "POST"]
        assert [path for path, _ in posts] == ["/networks", "/subnets", "/ports"]
        assert posts[0][1]["network"] == {
            "name": "blue",
            "description": BLUE,
            "provider:network_type": "flat",
            "provider:physical_network": "physnet1",
        }
        assert posts[1][1]["subnet"]["enable_dhcp"] is False
        assert posts[1][1]["subnet"]["gateway_ip"] == "10.20.2.254"
        assert (port.dhcp, port.gateway) == (False, "10.20.2.254")

    def test_the_next_port_needs_one_request(
        self, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        subnet = next(s for s in neutron.things["subnets"].values() if s["cidr"] == "10.20.1.0/24")

        driver.check("red", Vnic(), "s1")
        driver.create_port("s1", "nic1", "red", Vnic())

        values = {"network_id": red, "fixed_ips": [{"subnet_id": subnet["id"]}]}
        assert neutron.asked() == [*NONE, post("red", **values)]

    def test_a_half_made_network_is_completed(
        self, site: Site, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.add("networks", name="red", description=RED)
        neutron.add("routers", name="red", description=RED)

        driver.create_port("s1", "nic1", "red", Vnic())

        asked = [(method, path) for method, path, _ in neutron.asked() if method != "GET"]
        connected = (
            "PUT",
            f"/routers/{next(iter(neutron.things['routers']))}/add_router_interface",
        )
        subnet = ("POST", "/subnets")
        assert asked == [subnet, subnet, connected, connected, ("POST", "/ports")]

    def test_a_network_of_its_name_without_our_stamp_is_not_touched(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.network("red", "10.20.1.0/24")

        for attempt in (driver.check, lambda *a: driver.create_port("s1", "nic1", *a)):
            with pytest.raises(NotOurs, match="exists without this site's stamp"):
                attempt("red", Vnic())
        assert {method for method, _, _ in neutron.asked()} == {"GET"}

    def test_one_of_another_project_of_its_name_is_no_matter(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.network("red", "10.20.1.0/24", project_id="other", description=RED)

        assert driver.create_port("s1", "nic1", "red", Vnic()).network_id != "net-red"

    def test_that_another_process_made_at_the_same_time_is_used(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        def meanwhile() -> None:
            neutron.network("blue", "10.20.2.0/24", description=BLUE)
            neutron.things["subnets"]["sub-blue-1"]["enable_dhcp"] = False

        neutron.fault("POST", "/networks", 409, "physnet1 is in use", effect=meanwhile)

        port = driver.create_port("s1", "nic1", "blue", Vnic())

        assert port.network_id == "net-blue"

    def test_whose_segment_is_another_networks_is_not_ours(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.fault("POST", "/networks", 409, "The VLAN 101 on physnet1 is in use.")

        with pytest.raises(NotOurs, match=r"The VLAN 101 on physnet1 is in use"):
            driver.create_port("s1", "nic1", "red", Vnic())

    def test_that_takes_an_administrator_is_denied(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.fault("POST", "/networks", 403, "disallowed by policy")

        with pytest.raises(Denied, match="it needs an administrator's right"):
            driver.create_port("s1", "nic1", "red", Vnic())

    def test_that_was_made_otherwise_is_a_conflict(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.network("blue", "10.99.0.0/24", description=BLUE)

        with pytest.raises(Conflict, match=r"cidr of 10.99.0.0/24 is 10.99.0.0/24, not 10.20.2.0"):
            driver.create_port("s1", "nic1", "blue", Vnic())

    def test_that_was_deleted_meanwhile_is_made_again(
        self, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        def meanwhile() -> None:
            for kind in ("networks", "routers", "ports"):
                for name, thing in list(neutron.things[kind].items()):
                    if RED in thing["description"] or red == thing.get("network_id"):
                        del neutron.things[kind][name]

        neutron.fault("POST", "/ports", 404, f"Network {red} could not be found.", effect=meanwhile)

        port = driver.create_port("s1", "nic1", "red", Vnic())

        assert port.network_id != red
        assert neutron.things["ports"][port.source]["network_id"] == port.network_id

    @pytest.mark.parametrize(
        ("status", "message", "error"),
        [
            (409, "Quota exceeded for resources: ['port'].", QuotaExceeded),
            (409, "No more IP addresses available on network net-red.", PoolExhausted),
            (409, "IP address 10.20.1.5 already allocated in subnet", Conflict),
        ],
    )
    def test_is_gone_again_if_its_first_port_cannot_be_made(
        self,
        driver: OpenStackNetwork,
        neutron: Neutron,
        status: int,
        message: str,
        error: type[FabricDirectError],
    ) -> None:
        neutron.fault("POST", "/ports", status, message)

        with pytest.raises(error, match=message[:20]):
            driver.create_port("s1", "nic1", "red", Vnic())

        assert {n["name"] for n in neutron.things["networks"].values()} == {"public", "lan"}
        assert not neutron.things["routers"]
        assert driver.leftovers("s1") == ()

    def test_is_gone_again_if_it_cannot_be_completed(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.fault("POST", "/subnets", 409, "Quota exceeded for resources: ['subnet'].")

        with pytest.raises(QuotaExceeded):
            driver.create_port("s1", "nic1", "red", Vnic())

        assert {n["name"] for n in neutron.things["networks"].values()} == {"public", "lan"}

    def test_that_others_work_on_is_busy(self, site: Site, driver: OpenStackNetwork) -> None:
        lock = site.state_dir / "locks" / "network-test-red"

        with (
            exclusive(lock, "it", timeout=1),
            skipping_pauses(),
            pytest.raises(SliverBusy, match="network red is being worked on"),
        ):
            driver.create_port("s1", "nic1", "red", Vnic())


class TestWhatCannotBeHad:
    @pytest.mark.parametrize(
        ("network", "interface", "field", "why"),
        [
            ("lam", {}, "network", "no network 'lam'.*lan"),
            ("lan", {"bandwidth": 10}, "interface.bandwidth", "lacks the extensions qos, qos-bw"),
            ("lan", {"vlan": 10}, "interface.vlan", "is not available in a cloud"),
            ("lan", {"ipv4": "10.11.0.5/24"}, "interface.ipv4", "outside"),
            ("lan", {"ipv4": "10.10.0.5/16"}, "interface.ipv4", "prefix length"),
            ("lan", {"ipv4": "10.10.0.1/24"}, "interface.ipv4", "reserved"),
            ("lan", {"ipv6": "fd10::5/64"}, "interface.ipv6", "follows from the MAC"),
            ("public", {"ipv6": "fd10::5/64"}, "interface.ipv6", "has no IPv6"),
            ("red", {"ipv4": "10.21.1.5/24"}, "interface.ipv4", "outside"),
            ("red", {"ipv4": "10.20.1.1/24"}, "interface.ipv4", "reserved"),
            ("red", {"ipv4": "10.20.1.255/24"}, "interface.ipv4", "reserved"),
            ("blue", {"ipv4": "10.20.2.254/24"}, "interface.ipv4", "reserved"),
        ],
    )
    def test_is_refused_by_field_and_touches_nothing(
        self,
        driver: OpenStackNetwork,
        neutron: Neutron,
        network: str,
        interface: dict[str, Any],
        field: str,
        why: str,
    ) -> None:
        with pytest.raises(InvalidSliver, match=why) as caught:
            driver.check(network, Vnic(**interface), "s1")

        assert caught.value.field == field
        assert {method for method, _, _ in neutron.asked()} <= {"GET"}

    def test_a_floating_ip_needs_an_external_network(
        self, api: OpenStackApi, neutron: Neutron
    ) -> None:
        with pytest.raises(InvalidSliver, match="names no external network") as caught:
            OpenStackNetwork(api.site(), "").check("lan", Vnic(floating_ip=True))
        assert caught.value.field == "interface.floating_ip"

    def test_an_external_network_that_is_not_there_is_the_sites_fault(
        self, api: OpenStackApi, neutron: Neutron
    ) -> None:
        driver = OpenStackNetwork(api.site(openstack={"external_network": "internet"}), "")

        with pytest.raises(InvalidSite, match="'internet'") as caught:
            driver.check("lan", Vnic(floating_ip=True))
        assert caught.value.field == "openstack.external_network"

    def test_a_network_of_the_site_without_a_physical_network_is_the_sites_fault(
        self, driver: OpenStackNetwork
    ) -> None:
        with pytest.raises(InvalidSite, match="is missing") as caught:
            driver.check("here", Vnic())
        assert caught.value.field == "networks.here.physical_network"

    def test_a_router_needs_an_external_network(self, api: OpenStackApi, neutron: Neutron) -> None:
        with pytest.raises(InvalidSite, match="needs an external network") as caught:
            OpenStackNetwork(api.site(networks=NETWORKS), "").check("red", Vnic())
        assert caught.value.field == "networks.red.router"

    def test_a_site_without_a_cloud_has_no_such_driver(self) -> None:
        with pytest.raises(InvalidSite, match="needs it"):
            OpenStackNetwork(Site(site="TEST"), "")

    def test_an_address_that_another_sliver_has_is_taken(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        description = "fabric-direct TEST/s2"
        hold(neutron, name="s2-eth0", description=description)
        interface = Vnic(ipv4="10.10.0.10/24")

        with pytest.raises(InvalidSliver, match="it is held for s2/eth0") as caught:
            driver.check("lan", interface, "s1")
        driver.check("lan", interface, "s2")
        driver.check("lan", interface)

        assert caught.value.field == "interface.ipv4"
        taken = {"network_id": "net-lan", "fixed_ips": "ip_address=10.10.0.10"}
        assert [c for c in neutron.asked() if c[1] == "/ports"] == [("GET", "/ports", taken)] * 2

    def test_an_address_that_something_else_has_is_taken_by_it(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = hold(neutron, description="", device_id="vm-7", device_owner="compute:nova")

        with pytest.raises(InvalidSliver, match=rf"port {port['id']} \(compute:nova vm-7\)"):
            driver.check("lan", Vnic(ipv4="10.10.0.10/24"), "s1")


class TestWhenARequestGoesWrong:
    def test_a_port_whose_answer_got_lost_is_found(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        def lost() -> None:
            hold(neutron)
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/ports", effect=lost)

        warm.create_port("s1", "nic1", "lan", Vnic())

        assert neutron.asked() == [*NONE, post("lan"), PORTS]
        assert len(neutron.things["ports"]) == 1

    @pytest.mark.parametrize("plugged", [False, True])
    def test_of_two_ports_the_one_counts_that_is_plugged_in_or_has_the_floating_ip(
        self, warm: OpenStackNetwork, neutron: Neutron, plugged: bool
    ) -> None:
        """A killed process's request was carried out beside the one of the next."""
        server = {"device_id": "vm-7", "device_owner": "compute:nova"}
        older = hold(neutron, **(server if plugged else {}))
        newer = hold(neutron)
        neutron.add("floatingips", description=STAMP, port_id=newer["id"])

        (found,) = warm.ports("s1")

        assert found.source == (older if plugged else newer)["id"]

    def test_a_port_that_was_not_made_is_not_asked_for_again(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        def lost() -> None:
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/ports", effect=lost)

        with pytest.raises(TimedOut):
            warm.create_port("s1", "nic1", "lan", Vnic())

        assert [method for method, _, _ in neutron.asked()].count("POST") == 1

    def test_a_floating_ip_whose_answer_got_lost_is_found(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = hold(neutron)
        warm.ports("s1")
        neutron.asked()

        def lost() -> None:
            neutron.add("floatingips", description=STAMP, port_id=port["id"])
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/floatingips", effect=lost)

        found = warm.create_port("s1", "nic1", "lan", Vnic(floating_ip=True))

        assert found.floating_ip == "192.0.2.7"
        assert neutron.asked() == [*HELD * 2, float_(port["id"], "10.10.0.10"), FLOATING]

    def test_a_mac_that_is_in_use_is_a_conflict(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.fault("POST", "/ports", 409, "The mac address 52:54:00:00:00:07 is in use.")

        with pytest.raises(Conflict, match="52:54:00:00:00:07 is in use"):
            warm.create_port("s1", "nic1", "lan", Vnic(mac="52:54:00:00:00:07"))

    def test_a_network_that_was_deleted_and_made_again_is_looked_up_again(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        def meanwhile() -> None:
            del neutron.things["networks"]["net-lan"]
            neutron.network("lan2", "10.10.0.0/24", shared=True)
            neutron.things["networks"]["net-lan2"]["name"] = "lan"

        message = "Network net-lan could not be found."
        neutron.fault("POST", "/ports", 404, message, effect=meanwhile)

        port = warm.create_port("s1", "nic1", "lan", Vnic())

        assert port.network_id == "net-lan2"
        assert neutron.asked() == [
            *NONE,
            post("lan"),
            ("GET", "/networks", {"name": "lan"}),
            ("GET", "/subnets", {"network_id": "net-lan2"}),
            post("lan2"),
        ]

    def test_a_network_that_is_gone_for_good_is_refused_by_field(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        def meanwhile() -> None:
            del neutron.things["networks"]["net-lan"]

        neutron.fault("POST", "/ports", 404, "could not be found", effect=meanwhile)

        with pytest.raises(InvalidSliver, match="no network 'lan'") as caught:
            warm.create_port("s1", "nic1", "lan", Vnic())
        assert caught.value.field == "network"

    def test_a_subnet_that_is_not_known_yet_is_looked_up(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.add("subnets", id="sub-new", network_id="net-lan", cidr="10.12.0.0/24")
        hold(neutron, fixed_ips=[{"subnet_id": "sub-new", "ip_address": "10.12.0.5"}])

        assert warm.ports("s1")[0].ipv4 == IPv4Interface("10.12.0.5/24")

    def test_an_external_network_that_was_made_again_is_looked_up_again(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        def meanwhile() -> None:
            neutron.things["networks"]["net-new"] = neutron.things["networks"].pop("net-public")
            neutron.things["networks"]["net-new"]["id"] = "net-new"

        message = "External network net-public could not be found."
        neutron.fault("POST", "/floatingips", 404, message, effect=meanwhile)

        warm.create_port("s1", "nic1", "lan", Vnic(floating_ip=True))

        made = [
            sent["floatingip"]
            for _, path, sent in neutron.asked()
            if path == "/floatingips" and "floatingip" in sent
        ]
        assert [ip["floating_network_id"] for ip in made] == ["net-public", "net-new"]

    def test_a_port_on_a_network_that_may_not_be_seen_any_more_can_be_given_up(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron)
        del neutron.things["networks"]["net-lan"]

        (port,) = driver.ports("s1")
        driver.delete_port("s1", "nic1")

        assert (port.network, port.ipv4) == ("net-lan", None)
        assert driver.ports("s1") == ()

    def test_a_floating_ip_of_an_unreachable_network_is_told_in_neutrons_words(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        message = "External network net-public is not reachable from subnet sub-lan-1."
        for _ in range(2):  # a 404 may also mean that another network has the name by now
            neutron.fault("POST", "/floatingips", 404, message)

        with pytest.raises(NotFound, match="is not reachable from subnet"):
            warm.create_port("s1", "nic1", "lan", Vnic(floating_ip=True))

        warm.delete_port("s1", "nic1")
        assert neutron.things["ports"] == {}


class TestDeleting:
    def test_a_port_goes_after_its_floating_ip(
        self, warm: OpenStackNetwork, neutron: Neutron, cache: ReadCache
    ) -> None:
        port = hold(neutron)
        ip = neutron.add("floatingips", description=STAMP, port_id=port["id"])
        step = ReleasePort(warm, "s1", "nic1")

        assert step.check() is Finding.WILL_DELETE
        step.make()
        assert step.check() is Finding.ALREADY_SO

        assert neutron.asked() == [
            *HELD,
            ("DELETE", f"/floatingips/{ip['id']}", {}),
            ("DELETE", f"/ports/{port['id']}", {}),
            *HELD,
        ]

    def test_what_the_lists_left_out_goes_too(
        self, warm: OpenStackNetwork, neutron: Neutron, cache: ReadCache
    ) -> None:
        hold(neutron)
        warm.ports("s1")
        hold(neutron)

        warm.delete_port("s1", "nic1")

        assert neutron.things["ports"] == {}

    def test_what_is_not_there_succeeds(self, warm: OpenStackNetwork, neutron: Neutron) -> None:
        warm.delete_port("s1", "nic1")

        asked = neutron.asked()
        assert asked[: len(HELD)] == HELD
        assert {method for method, *_ in asked} == {"GET"}

    def test_a_port_that_goes_meanwhile_is_gone(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        port = hold(neutron)
        path = f"/ports/{port['id']}"
        neutron.fault("DELETE", path, effect=neutron.things["ports"].clear)

        warm.delete_port("s1", "nic1")

        assert warm.leftovers("s1") == ()

    def test_a_port_that_stays_is_no_success(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron, id="first")
        for name, following in (("first", "second"), ("second", "third")):
            again = partial(hold, neutron, id=following)
            neutron.fault("DELETE", f"/ports/{name}", effect=again)

        with pytest.raises(NotVerified, match=r"port s1-nic1 \(third\)"):
            warm.delete_port("s1", "nic1")

    def test_a_second_port_of_the_same_nic_goes_too(
        self, warm: OpenStackNetwork, neutron: Neutron
    ) -> None:
        hold(neutron)
        hold(neutron)

        assert [port.component for port in warm.ports("s1")] == ["nic1"]
        warm.delete_port("s1", "nic1")

        assert neutron.things["ports"] == {}

    @pytest.mark.parametrize("port_id", [None, "gone while both lists were read"])
    def test_a_floating_ip_without_its_port_is_seen_and_given_up(
        self, warm: OpenStackNetwork, neutron: Neutron, port_id: str | None
    ) -> None:
        ip = neutron.add(
            "floatingips", description=STAMP, floating_network_id="net-public", port_id=port_id
        )

        (port,) = warm.ports("s1")
        left = warm.leftovers("s1")
        warm.delete_port("s1", port.component)

        assert (port.component, port.network, port.floating_ip) == (
            "floating-192-0-2-7",
            "public",
            None,
        )
        assert VNic(id=port.component, network=port.network, interface=held_by(port))
        assert left == (f"floating IP 192.0.2.7 ({ip['id']})",)
        assert neutron.things["floatingips"] == {}

    def test_a_network_of_the_site_stays_while_others_use_it(
        self, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        port = driver.create_port("s1", "nic1", "red", Vnic())
        neutron.asked()

        driver.delete_port("s1", "nic1")

        assert neutron.asked() == [
            *HELD,
            ("DELETE", f"/ports/{port.source}", {}),
            *HELD,
            ("GET", "/ports", {"network_id": red}),
        ]

    def test_a_network_of_the_site_goes_with_its_last_port(
        self, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        router = next(iter(neutron.things["routers"]))
        neutron.add("ports", network_id=red, device_owner="network:dhcp")
        interfaces = [n for n, p in neutron.things["ports"].items() if p["device_id"] == router]
        (port,) = driver.ports("s0")
        neutron.asked()

        driver.delete_port("s0", "nic1")

        held = [
            (method, path, {"description": "fabric-direct TEST/s0"}) for method, path, _ in HELD
        ]
        left = [("GET", f"/{kind}", {"description": RED}) for kind in ("networks", "routers")]
        remove = f"/routers/{router}/remove_router_interface"
        assert neutron.asked() == [
            *held,
            ("DELETE", f"/ports/{port.source}", {}),
            *held,
            ("GET", "/ports", {"network_id": red}),
            *left,
            ("GET", "/ports", {"network_id": red}),
            *(("PUT", remove, {"port_id": interface}) for interface in interfaces),
            ("DELETE", f"/routers/{router}", {}),
            ("DELETE", f"/networks/{red}", {}),
            *left,
        ]
        assert len(interfaces) == 2

    def test_a_network_that_gets_a_user_meanwhile_stays_with_its_router(
        self, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        def come() -> None:
            neutron.add("ports", network_id=red, device_owner="compute:nova")

        message = "There are one or more ports still in use"
        neutron.fault("DELETE", f"/networks/{red}", 409, message, effect=come)

        driver.delete_port("s0", "nic1")

        assert red in neutron.things["networks"]
        (router,) = neutron.things["routers"]
        interfaces = [p for p in neutron.things["ports"].values() if p["device_id"] == router]
        assert {p["fixed_ips"][0]["ip_address"] for p in interfaces} == {"10.20.1.1", "fd20::1"}

    def test_a_conflict_about_a_network_that_has_no_user_is_told(
        self, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        neutron.fault("DELETE", f"/networks/{red}", 409, "try again later")

        with pytest.raises(Conflict, match="try again later"):
            driver.delete_port("s0", "nic1")

    def test_a_network_that_is_half_removed_is_completed_by_the_next_port(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        driver.create_port("s1", "nic1", "red", Vnic())
        (router,) = neutron.things["routers"]
        lost = neutron.things["routers"].clear
        neutron.fault("DELETE", f"/routers/{router}", 500, "lost", effect=lost)
        with pytest.raises(FabricDirectError, match="lost"):
            driver.delete_port("s1", "nic1")

        driver.create_port("s1", "nic1", "red", Vnic())

        (router,) = neutron.things["routers"]
        assert [p["device_id"] for p in neutron.things["ports"].values()].count(router) == 2

    def test_a_network_that_site_yaml_no_longer_names_goes_with_its_last_port(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.network("old", description="fabric-direct TEST network old")
        hold(neutron, network_id="net-old", fixed_ips=[])

        driver.delete_port("s1", "nic1")

        assert "net-old" not in neutron.things["networks"]

    def test_a_network_of_another_site_stays(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        neutron.network("theirs", description="fabric-direct OTHER network theirs")
        hold(neutron, network_id="net-theirs", fixed_ips=[])

        driver.delete_port("s1", "nic1")

        assert "net-theirs" in neutron.things["networks"]


class TestANetworkThatNobodyUses:
    """It is left by a call that was killed between the port and its network."""

    @pytest.fixture
    def left(self, driver: OpenStackNetwork, neutron: Neutron, red: str) -> tuple[str, ...]:
        for name, port in list(neutron.things["ports"].items()):
            if not port["device_id"]:
                del neutron.things["ports"][name]
        return (f"network red ({red})", f"router red ({next(iter(neutron.things['routers']))})")

    def test_is_left_over_until_it_is_removed(
        self, driver: OpenStackNetwork, neutron: Neutron, left: tuple[str, ...]
    ) -> None:
        step = RemoveUnused(driver, driver.unused())

        assert driver.leftovers("s1") == left
        assert step.check() is Finding.WILL_DELETE
        step.make()
        assert step.check() is Finding.ALREADY_SO
        assert driver.leftovers("s1") == ()
        assert neutron.things["routers"] == {}

    def test_is_used_by_the_next_port(
        self, driver: OpenStackNetwork, neutron: Neutron, left: tuple[str, ...]
    ) -> None:
        driver.create_port("s1", "nic1", "red", Vnic())

        assert driver.unused() == ()

    def test_goes_with_a_port_that_is_not_there(
        self, driver: OpenStackNetwork, neutron: Neutron, left: tuple[str, ...]
    ) -> None:
        driver.delete_port("s1", "nic1")

        assert driver.unused() == ()

    def test_is_looked_for_by_one_request_and_its_router_by_another(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        assert driver.unused() == ()
        assert neutron.asked() == [
            ("GET", "/networks", {"name": ["red", "blue"]}),
            ("GET", "/routers", {"description": "fabric-direct TEST network red"}),
        ]

    def test_is_also_a_router_whose_request_came_when_the_network_was_gone(
        self, driver: OpenStackNetwork, neutron: Neutron
    ) -> None:
        router = neutron.add("routers", name="red", description="fabric-direct TEST network red")

        assert driver.unused() == (f"router red ({router['id']})",)
        driver.remove_unused()
        assert driver.unused() == ()

    def test_is_not_looked_for_where_the_site_makes_none(
        self, api: OpenStackApi, neutron: Neutron
    ) -> None:
        assert OpenStackNetwork(api.site(), "").unused() == ()
        assert neutron.asked() == []

    def test_that_another_thread_is_just_making_is_not_called_so(
        self, site: Site, driver: OpenStackNetwork, neutron: Neutron, left: tuple[str, ...]
    ) -> None:
        lock = site.state_dir / "locks" / "network-test-red"

        with exclusive(lock, "it", timeout=1), skipping_pauses():
            assert driver.unused() == ()

    def test_that_another_thread_is_just_leaving_is_not_called_so(
        self, site: Site, driver: OpenStackNetwork, neutron: Neutron, left: tuple[str, ...]
    ) -> None:
        lock = site.state_dir / "locks" / "network-test-red.leaving.s7-nic1"

        with exclusive(lock, "it", timeout=1), skipping_pauses():
            assert driver.unused() == ()
        assert driver.unused() == left

    def test_is_not_called_so_by_others_while_its_last_port_is_deleted(
        self, site: Site, driver: OpenStackNetwork, neutron: Neutron, red: str
    ) -> None:
        seen: list[tuple[str, ...]] = []
        others = [OpenStackNetwork(site, "")]
        stamp = {"description": "fabric-direct TEST/s0"}
        deleted = [
            ("DELETE", f"/ports/{driver.ports('s0')[0].source}", {}),
            ("GET", "/ports", stamp),
        ]
        neutron.asked()

        def look() -> None:
            asked = [(m, p, s) for m, _, p, s in neutron.api.calls if (m, p, s) in deleted]
            if asked[-2:] == deleted and others:
                seen.append(others.pop().unused())

        for _ in range(3):
            neutron.fault("GET", "/ports", effect=look)

        driver.delete_port("s0", "nic1")

        assert seen == [()]
        assert red not in neutron.things["networks"]
