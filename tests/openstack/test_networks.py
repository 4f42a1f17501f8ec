"""Networks on a real Neutron: of site.yaml, made with their first port; and slivers of their own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.model import SliverRef, State, Status, VNicInterface
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import BLUE, RED, WORKER, Things, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done, made

LAN, USER = SliverRef(id=ours("lan"), type="L2Bridge"), ours("user")


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """A site that does not look into its guests."""
    return make_site(guest="none")


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    for ref in (SliverRef(id=USER), LAN):
        processor.delete(ref).result()
    assert things() == set()


@pytest.fixture
def network(site: Site) -> OpenStackNetwork:
    return OpenStackNetwork(site, WORKER)


VLAN = {
    "strategy": "vlan",
    "vlan": TARGET.own_vlans[1],
    "physical_network": TARGET.physical_network,
}


def lan(**values: Any) -> NetworkSliver:
    network = {"subnet": "10.223.1.0/24", **(values or VLAN)}
    return NetworkSliver.model_validate({"id": LAN.id, "name": LAN.id, "network": network})


class TestOfTheSite:
    def test_one_is_made_with_its_first_port_and_goes_with_its_last(
        self, network: OpenStackNetwork, cloud: Connection, things: Things
    ) -> None:
        for component in ("eth0", "eth1"):
            network.create_port(USER, component, RED, VNicInterface())
        (red,) = cloud.network.networks(name=RED)
        assert red.provider_network_type == "vlan"

        network.delete_port(USER, "eth0")
        assert cloud.network.find_network(RED)
        network.delete_port(USER, "eth1")

        assert things() == set()

    def test_a_flat_one_has_no_dhcp(
        self, network: OpenStackNetwork, cloud: Connection, flat_network: str
    ) -> None:
        port = network.create_port(USER, "eth0", BLUE, VNicInterface())

        assert not port.dhcp
        (subnet,) = cloud.network.subnets(network_id=cloud.network.find_network(BLUE).id)
        assert not subnet.is_dhcp_enabled
        network.delete_port(USER, "eth0")

    def test_one_of_its_name_that_is_not_ours_is_untouched(
        self, processor: HandlerProcessor, cloud: Connection
    ) -> None:
        foreign = cloud.network.create_network(name=RED)
        try:
            outcome = processor.create(sliver("user", components=[nic("eth0", RED)])).result()
            assert cloud.network.get_network(foreign.id)
        finally:
            cloud.network.delete_network(foreign)

        assert outcome.error
        assert outcome.error.kind == "NotOurs"
        assert outcome.left == ()


class TestASliverOfItsOwn:
    @pytest.mark.parametrize("values", [{}, {"router": True}])
    def test_of_a_vlan_is_made_found_and_deleted(
        self, processor: HandlerProcessor, things: Things, values: dict[str, Any]
    ) -> None:
        self.is_made_found_and_deleted(processor, things, VLAN | values)

    @pytest.mark.parametrize("strategy", ["flat", "flat_dhcp"])
    def test_that_is_flat_is_made_found_and_deleted(
        self, processor: HandlerProcessor, things: Things, flat_network: str, strategy: str
    ) -> None:
        values = {"strategy": strategy, "physical_network": flat_network}
        self.is_made_found_and_deleted(processor, things, values)

    def is_made_found_and_deleted(
        self, processor: HandlerProcessor, things: Things, values: dict[str, Any]
    ) -> None:
        wanted = lan(**values)

        observed = done(processor.create(wanted).result()).observed

        assert observed
        assert observed.state is State.RUNNING
        assert made(done(processor.create(wanted).result())) == set()
        assert done(processor.probe(wanted).result()).observed.differences == ()  # type: ignore[union-attr]
        done(processor.delete(LAN).result())
        assert things() == set()
        done(processor.delete(LAN).result())

    def test_carries_the_nics_of_other_slivers_and_is_not_deleted_under_them(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(lan()).result())
        user = sliver(
            "user",
            components=[nic("eth0", TARGET.network, floating_ip=True), nic("eth1", LAN.id)],
        )
        done(processor.create(user).result())

        refused = processor.delete(LAN).result()

        assert refused.status is not Status.DONE
        assert refused.error
        assert USER in refused.error.message
        done(processor.delete(user.ref()).result())
        done(processor.delete(LAN).result())

    def test_of_a_vlan_that_is_taken_fails_and_leaves_nothing(
        self, processor: HandlerProcessor, cloud: Connection, things: Things
    ) -> None:
        taken = cloud.network.create_network(
            name=ours("taken"),
            provider_network_type="vlan",
            provider_physical_network=TARGET.physical_network,
            provider_segmentation_id=VLAN["vlan"],
        )
        try:
            outcome = processor.create(lan()).result()
        finally:
            cloud.network.delete_network(taken)

        assert outcome.status is Status.FAILED
        assert things() == set()
