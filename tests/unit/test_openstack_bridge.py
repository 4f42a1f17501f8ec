"""Networks of their own in Neutron: every request, in order, and what comes of what goes wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from fabric_direct.drivers.contract import Service
from fabric_direct.drivers.openstack.networks.bridge import OpenStackBridge
from fabric_direct.drivers.openstack.networks.desired_network import subnets
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.errors import (
    Conflict,
    Denied,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotOurs,
    NotVerified,
    QuotaExceeded,
    SliverBusy,
)
from fabric_direct.model import VNicInterface
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.locks import exclusive
from tests.outcomes import done
from tests.trust.clock import skipping_pauses
from tests.unit.neutron import Neutron
from tests.unit.openstack_api import OpenStackApi

STAMP = "fabric-direct TEST/n1"
FIND = ("GET", "/networks", {"description": STAMP})
ROUTERS = ("GET", "/routers", {"description": STAMP})
NAMED = {"name": "lab", "description": STAMP}
SUBNET = {"strategy": "flat_dhcp", "physical_network": "physnet1", "subnet": "10.30.0.0/24"}


def sliver(name: str = "lab", **network: Any) -> NetworkSliver:
    return NetworkSliver.model_validate({"id": "n1", "name": name, "network": SUBNET | network})


def vlan(number: int = 105, **network: Any) -> NetworkSliver:
    return sliver(strategy="vlan", vlan=number, **network)


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def neutron(api: OpenStackApi) -> Iterator[Neutron]:
    made = Neutron(api)
    made.network("public", "172.24.4.0/24", project_id="other", **{"router:external": True})
    yield made
    assert made.unmet() == []


@pytest.fixture
def site(api: OpenStackApi, tmp_path: Path) -> Site:
    return api.site(
        state_dir=tmp_path / "state",
        openstack={"external_network": "public"},
        networks={"red": {**SUBNET, "subnet": "10.20.1.0/24"}},
    )


@pytest.fixture
def bridge(site: Site, neutron: Neutron) -> OpenStackBridge:
    return OpenStackBridge(site, "")


def made(bridge: OpenStackBridge, neutron: Neutron, wanted: NetworkSliver) -> str:
    """Make a network and return its id; what was asked for that is forgotten."""
    network = bridge.apply(wanted).source
    neutron.asked()
    return network


def changing(neutron: Neutron) -> list[tuple[str, str, Any]]:
    return [call for call in neutron.asked() if call[0] != "GET"]


def left(neutron: Neutron) -> dict[str, int]:
    """How many things of each kind there are beside the external network."""
    kinds = ("networks", "subnets", "routers")
    counted = {kind: len(neutron.things[kind]) for kind in kinds}
    return counted | {"networks": counted["networks"] - 1, "subnets": counted["subnets"] - 1}


NOTHING = {"networks": 0, "subnets": 0, "routers": 0}


class TestMaking:
    def test_asks_for_the_network_and_its_subnet(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        wanted = sliver(gateway="10.30.0.1", dns=["9.9.9.9"], pool=["10.30.0.10", "10.30.0.99"])

        network = bridge.apply(wanted)

        segment = {
            "provider:network_type": "flat",
            "provider:physical_network": "physnet1",
        }
        assert network == Service("n1", network.source, "lab", ("10.30.0.0/24",), type="L2Bridge")
        assert neutron.asked() == [
            FIND,
            ("GET", "/networks", {"name": "lab"}),
            ("POST", "/networks", {"network": {**NAMED, **segment}}),
            ("GET", "/subnets", {"network_id": network.source}),
            ROUTERS,
            (
                "POST",
                "/subnets",
                {
                    "subnet": {
                        **NAMED,
                        "network_id": network.source,
                        "ip_version": 4,
                        "cidr": "10.30.0.0/24",
                        "gateway_ip": "10.30.0.1",
                        "enable_dhcp": True,
                        "dns_nameservers": ["9.9.9.9"],
                        "allocation_pools": [{"start": "10.30.0.10", "end": "10.30.0.99"}],
                    }
                },
            ),
        ]

    def test_finds_it_by_the_slivers_stamp(self, bridge: OpenStackBridge, neutron: Neutron) -> None:
        wanted = vlan(subnet6="fd30::/64", router=True)
        source = made(bridge, neutron, wanted)

        found = bridge.find("n1")

        assert found == Service(
            "n1", source, "lab", ("10.30.0.0/24", "fd30::/64"), 105, type="L2Bridge"
        )
        assert neutron.asked() == [
            FIND,
            ("GET", "/subnets", {"network_id": source}),
            ("GET", "/ports", {"network_id": source}),
            ROUTERS,
        ]
        assert bridge.differences(wanted) == ()

    def test_twice_is_the_same_as_once(self, bridge: OpenStackBridge, neutron: Neutron) -> None:
        wanted = vlan(subnet6="fd30::/64", router=True, dns=["9.9.9.9"])
        source = made(bridge, neutron, wanted)

        assert bridge.apply(wanted).source == source
        assert changing(neutron) == []

    @pytest.mark.parametrize("at", range(1, 7))
    def test_that_was_cut_short_is_not_there_and_is_completed(
        self, bridge: OpenStackBridge, neutron: Neutron, at: int
    ) -> None:
        wanted = vlan(subnet6="fd30::/64", router=True)
        self.break_at(neutron, at)

        with pytest.raises(QuotaExceeded):
            bridge.apply(wanted)
        assert bridge.find("n1") is None

        bridge.apply(wanted)
        assert bridge.differences(wanted) == ()
        assert left(neutron) == {"networks": 1, "subnets": 2, "routers": 1}

    def break_at(self, neutron: Neutron, at: int) -> None:
        """Let the n-th request that makes something fail: network, router, subnets, interfaces."""
        router = f"/routers/router-{neutron.made + 2}/add_router_interface"
        requests = [("POST", path) for path in ("/networks", "/routers", "/subnets", "/subnets")]
        requests += [("PUT", router)] * 2
        for method, path in requests[: at - 1]:
            neutron.fault(method, path)
        neutron.fault(*requests[at - 1], 409, "Quota exceeded for resources")

    def test_a_network_whose_answer_got_lost_is_found(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        def lost() -> None:
            neutron.add("networks", id="net-lab", name="lab", description=STAMP)
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/networks", effect=lost)

        assert bridge.apply(sliver()).source == "net-lab"
        assert [method for method, path, _ in changing(neutron) if path == "/networks"] == ["POST"]

    def test_a_subnet_whose_answer_got_lost_is_found(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        def lost() -> None:
            network = next(n for n in neutron.things["networks"] if n != "net-public")
            neutron.add("subnets", network_id=network, cidr="10.30.0.0/24")
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/subnets", effect=lost)

        bridge.apply(sliver())

        assert left(neutron)["subnets"] == 1

    def test_a_router_whose_answer_got_lost_is_found(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        def lost() -> None:
            neutron.add("routers", name="lab", description=STAMP)
            raise requests.exceptions.ReadTimeout

        neutron.fault("POST", "/routers", effect=lost)

        bridge.apply(vlan(router=True))

        assert left(neutron)["routers"] == 1

    @pytest.mark.parametrize(
        ("status", "message", "error"),
        [
            (409, "Physical network physnet1 is in use.", NotOurs),
            (409, "Quota exceeded for resources: ['network'].", QuotaExceeded),
            (403, "disallowed by policy", Denied),
            (
                400,
                "physical_network 'physnet1' unknown for flat provider network.",
                FabricDirectError,
            ),
        ],
    )
    def test_that_neutron_refuses_fails_in_its_words(
        self,
        bridge: OpenStackBridge,
        neutron: Neutron,
        status: int,
        message: str,
        error: type[FabricDirectError],
    ) -> None:
        neutron.fault("POST", "/networks", status, message)

        with pytest.raises(error) as caught:
            bridge.apply(sliver())

        assert message in str(caught.value)
        assert left(neutron) == NOTHING

    @pytest.mark.parametrize(
        ("wanted", "message", "field"),
        [
            (
                sliver(),
                "physical_network 'physnet1' unknown for flat provider network.",
                "physical_network",
            ),
            (
                vlan(),
                "physical_network 'physnet1' unknown for VLAN provider network.",
                "physical_network",
            ),
            (vlan(), "segmentation_id out of range (1 through 4094).", "vlan"),
        ],
    )
    def test_on_a_segment_that_neutron_does_not_have_is_refused_by_field(
        self,
        bridge: OpenStackBridge,
        neutron: Neutron,
        wanted: NetworkSliver,
        message: str,
        field: str,
    ) -> None:
        neutron.fault("POST", "/networks", 400, message)

        with pytest.raises(InvalidSliver) as caught:
            bridge.apply(wanted)

        assert caught.value.field == f"network.{field}"
        assert caught.value.why == message

    def test_waits_for_others_that_make_a_network_of_its_name(
        self, site: Site, bridge: OpenStackBridge
    ) -> None:
        with (
            exclusive(site.state_dir / "locks" / "network-test-lab", "it", timeout=1),
            skipping_pauses(),
            pytest.raises(SliverBusy),
        ):
            bridge.apply(sliver())

    def test_a_name_that_had_another_network_before_is_looked_up_again(
        self, site: Site, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        network = OpenStackNetwork(site, "")
        bridge.apply(sliver())
        first = network.create_port("s1", "nic1", "lab", VNicInterface())
        network.delete_port("s1", "nic1")
        bridge.remove("n1")

        again = bridge.apply(sliver())
        second = network.create_port("s1", "nic1", "lab", VNicInterface())

        assert first.network_id != second.network_id == again.source


class TestItsSubnets:
    @pytest.mark.parametrize(
        ("network", "ranges"),
        [
            ({}, ["10.30.0.2-10.30.0.254"]),
            ({"gateway": "10.30.0.254", "dns": ["9.9.9.9"]}, ["10.30.0.2-10.30.0.253"]),
            (
                {"gateway": "10.30.0.100", "dns": ["10.30.0.53", "10.30.0.54"]},
                ["10.30.0.2-10.30.0.52", "10.30.0.55-10.30.0.99", "10.30.0.101-10.30.0.254"],
            ),
            ({"pool": ["10.30.0.0", "10.30.0.9"]}, ["10.30.0.1-10.30.0.9"]),
            ({"pool": ["10.30.0.1", "10.30.0.9"], "router": True}, ["10.30.0.2-10.30.0.9"]),
        ],
    )
    def test_give_out_neither_gateway_nor_dns_servers(
        self, network: dict[str, Any], ranges: list[str]
    ) -> None:
        (ipv4,) = subnets(sliver(**network).network)

        assert [f"{p['start']}-{p['end']}" for p in ipv4["allocation_pools"]] == ranges

    @pytest.mark.parametrize(
        ("strategy", "prefix", "mode"),
        [("flat_dhcp", 64, "slaac"), ("flat_dhcp", 112, "dhcpv6-stateful"), ("flat", 64, None)],
    )
    def test_give_ipv6_addresses_by_their_size(
        self, strategy: str, prefix: int, mode: str | None
    ) -> None:
        ipv6, _ = subnets(sliver(strategy=strategy, subnet6=f"fd30::/{prefix}").network)

        assert (ipv6.get("ipv6_address_mode"), ipv6["is_dhcp_enabled"]) == (mode, mode is not None)


class TestWhatCannotBeHad:
    @pytest.mark.parametrize(
        ("wanted", "field"),
        [
            (sliver("red"), "name"),
            (sliver(physical_network=None), "network.physical_network"),
            (sliver(gateway="10.30.0.5", pool=["10.30.0.5", "10.30.0.5"]), "network.pool"),
        ],
    )
    def test_is_refused_by_field_and_touches_nothing(
        self, bridge: OpenStackBridge, neutron: Neutron, wanted: NetworkSliver, field: str
    ) -> None:
        for attempt in (bridge.check, bridge.apply):
            with pytest.raises(InvalidSliver) as caught:
                attempt(wanted)
            assert caught.value.field == field
        assert changing(neutron) == []

    def test_a_router_needs_an_external_network(self, api: OpenStackApi, neutron: Neutron) -> None:
        with pytest.raises(InvalidSliver, match="needs an external network") as caught:
            OpenStackBridge(api.site(), "").check(vlan(router=True))
        assert caught.value.field == "network.router"

    def test_an_external_network_that_is_not_there_is_the_sites_fault(
        self, api: OpenStackApi, neutron: Neutron
    ) -> None:
        bridge = OpenStackBridge(api.site(openstack={"external_network": "internet"}), "")

        with pytest.raises(InvalidSite) as caught:
            bridge.check(vlan(router=True))
        assert caught.value.field == "openstack.external_network"

    def test_a_network_of_its_name_that_is_not_ours_is_not_touched(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        neutron.network("lab", "10.30.0.0/24", description="fabric-direct TEST/n2")

        for attempt in (bridge.check, bridge.apply):
            with pytest.raises(NotOurs, match=r"its description is 'fabric-direct TEST/n2'"):
                attempt(sliver())
        bridge.remove("n1")

        assert changing(neutron) == []

    @pytest.mark.parametrize(
        ("wanted", "field"),
        [
            (vlan(106), "network.vlan"),
            (vlan(physical_network="physnet2"), "network.physical_network"),
            (sliver(), "network.strategy"),
            (vlan(subnet="10.31.0.0/24"), "network.subnet"),
            (vlan(subnet6="fd30::/64"), "network.subnet6"),
            (sliver("other", strategy="vlan", vlan=105), "name"),
        ],
    )
    def test_a_fixed_field_of_a_network_that_is_there_cannot_be_changed(
        self, bridge: OpenStackBridge, neutron: Neutron, wanted: NetworkSliver, field: str
    ) -> None:
        made(bridge, neutron, vlan())

        with pytest.raises(InvalidSliver, match="cannot be changed") as caught:
            bridge.check(wanted)
        with pytest.raises(Conflict, match="differs from what is wanted"):
            bridge.apply(wanted)

        assert caught.value.field == field
        assert bridge.differences(wanted)
        assert changing(neutron) == []

    def test_an_ipv6_subnet_cannot_be_taken_away(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        made(bridge, neutron, vlan(subnet6="fd30::/64"))

        with pytest.raises(InvalidSliver, match="fd30::/64") as caught:
            bridge.check(vlan())
        assert caught.value.field == "network.subnet6"


class TestChanging:
    def test_dns_pool_and_gateway_are_changed_by_one_request(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        made(bridge, neutron, sliver(dns=["9.9.9.9"]))
        wanted = sliver(dns=["1.1.1.1"], gateway="10.30.0.1", pool=["10.30.0.1", "10.30.0.9"])
        subnet = list(neutron.things["subnets"])[-1]

        before = bridge.differences(wanted)
        bridge.check(wanted)
        neutron.asked()
        bridge.apply(wanted)

        assert before == (
            "gateway ip of 10.30.0.0/24 is none, not 10.30.0.1",
            "dns nameservers of 10.30.0.0/24 is 9.9.9.9, not 1.1.1.1",
            "allocation pools of 10.30.0.0/24 is 10.30.0.2-10.30.0.254, not 10.30.0.2-10.30.0.9",
        )
        changes = {
            "gateway_ip": "10.30.0.1",
            "dns_nameservers": ["1.1.1.1"],
            "allocation_pools": [{"start": "10.30.0.2", "end": "10.30.0.9"}],
        }
        assert changing(neutron) == [("PUT", f"/subnets/{subnet}", {"subnet": changes})]
        assert bridge.differences(wanted) == ()

    def test_a_router_is_added_when_the_subnets_have_their_gateways(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        made(bridge, neutron, vlan(subnet6="fd30::/64"))
        wanted = vlan(subnet6="fd30::/64", router=True)
        six, four = list(neutron.things["subnets"])[-2:]

        assert "it has no router" in bridge.differences(wanted)
        neutron.asked()
        bridge.apply(wanted)

        router = next(iter(neutron.things["routers"]))
        assert [(method, path) for method, path, _ in changing(neutron)] == [
            ("POST", "/routers"),
            ("PUT", f"/subnets/{six}"),
            ("PUT", f"/subnets/{four}"),
            ("PUT", f"/routers/{router}/add_router_interface"),
            ("PUT", f"/routers/{router}/add_router_interface"),
        ]
        assert bridge.differences(wanted) == ()

    def test_a_router_is_removed_before_the_subnets_lose_their_gateways(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        made(bridge, neutron, vlan(router=True))
        router, subnet = (list(neutron.things[kind])[-1] for kind in ("routers", "subnets"))

        bridge.apply(vlan())

        assert [(method, path) for method, path, _ in changing(neutron)] == [
            ("PUT", f"/routers/{router}/remove_router_interface"),
            ("DELETE", f"/routers/{router}"),
            ("PUT", f"/subnets/{subnet}"),
        ]
        assert bridge.differences(vlan()) == ()

    def test_of_a_router_that_is_half_removed_is_finished_by_the_next_one(
        self, site: Site, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        made(bridge, neutron, vlan(router=True))
        (router,) = neutron.things["routers"]
        neutron.fault("DELETE", f"/routers/{router}", 500, "no")
        drivers = {"VM": "openstack", "L2Bridge": "openstack"}
        limits = site.limits.model_copy(update={"unanswered": 0.0})
        cloud = site.model_copy(update={"drivers": drivers, "guest": "none", "limits": limits})

        with HandlerProcessor(cloud) as processor:
            assert not processor.modify(vlan()).result().ok
            done(processor.modify(vlan()).result())

        assert bridge.differences(vlan()) == ()

    def test_a_router_that_floating_ips_need_stays_with_all_its_interfaces(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        wanted = vlan(subnet6="fd30::/64", router=True)
        made(bridge, neutron, wanted)
        remove = f"/routers/{next(iter(neutron.things['routers']))}/remove_router_interface"
        neutron.fault("PUT", remove)
        neutron.fault("PUT", remove, 409, "it is required by one or more floating IPs")

        with pytest.raises(Conflict, match="required by one or more floating IPs"):
            bridge.apply(vlan(subnet6="fd30::/64"))

        assert bridge.differences(wanted) == ()

    def test_a_gateway_that_is_in_use_is_a_conflict(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        made(bridge, neutron, vlan(router=True))
        subnet = list(neutron.things["subnets"])[-1]
        message = "Current gateway ip 10.30.0.1 already in use by port. Unable to update."
        neutron.fault("PUT", f"/subnets/{subnet}", 409, message)

        with pytest.raises(Conflict, match="already in use by port"):
            bridge.apply(vlan(router=True, gateway="10.30.0.9"))

    def test_a_segment_that_neutron_does_not_tell_is_not_compared(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        network = made(bridge, neutron, vlan())
        for key in ("network_type", "physical_network", "segmentation_id"):
            del neutron.things["networks"][network][f"provider:{key}"]

        bridge.check(vlan(106))

        assert bridge.differences(vlan(106)) == ()


class TestDeleting:
    def test_removes_the_router_and_then_the_network(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        network = made(bridge, neutron, vlan(router=True))
        router = next(iter(neutron.things["routers"]))
        interface = next(iter(neutron.things["ports"]))
        neutron.add("ports", network_id=network, device_owner="network:dhcp")

        bridge.remove("n1")

        assert neutron.asked() == [
            FIND,
            ROUTERS,
            ("GET", "/ports", {"network_id": network}),
            ("PUT", f"/routers/{router}/remove_router_interface", {"port_id": interface}),
            ("DELETE", f"/routers/{router}", {}),
            ("DELETE", f"/networks/{network}", {}),
            FIND,
            ROUTERS,
        ]
        assert left(neutron) == NOTHING

    def test_what_is_not_there_succeeds(self, bridge: OpenStackBridge, neutron: Neutron) -> None:
        bridge.remove("n1")

        assert neutron.asked() == [FIND, ROUTERS, FIND, ROUTERS]
        assert bridge.leftovers("n1") == ()

    def test_names_whose_ports_are_on_it_and_removes_nothing(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        network = made(bridge, neutron, vlan(router=True))
        neutron.add(
            "ports", name="s2-nic1", description="fabric-direct TEST/s2", network_id=network
        )
        neutron.add("ports", id="p9", network_id=network, device_id="x", device_owner="compute:az")
        users = ("port p9 (compute:az x)", "s2/nic1")

        with pytest.raises(Conflict, match=r"on it are port p9 \(compute:az x\), s2/nic1"):
            bridge.remove("n1")

        assert changing(neutron) == []
        found = bridge.find("n1")
        assert found
        assert found.users == users

    def test_makes_the_router_again_if_somebody_plugged_in_meanwhile(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        wanted = vlan(subnet6="fd30::/64", router=True)
        network = made(bridge, neutron, wanted)
        message = "There are one or more ports still in use on the network"
        neutron.fault("DELETE", f"/networks/{network}", 409, message)

        with pytest.raises(Conflict, match="one or more ports still in use"):
            bridge.remove("n1")

        assert bridge.differences(wanted) == ()

    def test_finishes_one_that_was_cut_short(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        router = neutron.add("routers", name="lab", description=STAMP)

        assert bridge.leftovers("n1") == (f"router lab ({router['id']})",)
        bridge.remove("n1")

        assert left(neutron) == NOTHING

    def test_of_what_goes_meanwhile_succeeds(
        self, bridge: OpenStackBridge, neutron: Neutron
    ) -> None:
        network = made(bridge, neutron, vlan(router=True))
        router = next(iter(neutron.things["routers"]))
        remove = f"/routers/{router}/remove_router_interface"
        neutron.fault("PUT", remove, 404, "Router could not be found")
        neutron.fault("DELETE", f"/routers/{router}", effect=neutron.things["routers"].clear)
        neutron.fault(
            "DELETE", f"/networks/{network}", effect=lambda: neutron.things["networks"].pop(network)
        )

        bridge.remove("n1")

        assert bridge.leftovers("n1") == ()

    def test_of_what_stays_is_no_success(self, bridge: OpenStackBridge, neutron: Neutron) -> None:
        network = made(bridge, neutron, sliver())
        neutron.fault(
            "DELETE",
            f"/networks/{network}",
            effect=lambda: neutron.network("lab", description=STAMP),
        )

        with pytest.raises(NotVerified, match=r"network lab \(net-lab\)"):
            bridge.remove("n1")
