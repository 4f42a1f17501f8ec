"""Contract tests for a network driver."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import ClassVar

import pytest

from fabric_direct.drivers.contract import NetworkDriver
from fabric_direct.errors import Conflict, InvalidSliver, NotFound, NotOurs
from fabric_direct.model import VNicInterface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.site.addresses import candidates
from fabric_direct.site.config import Site
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once

MAC, OTHER_MAC = "52:54:00:fd:00:01", "52:54:00:fd:00:02"
ANY = VNicInterface()
VALUES = {
    "service": {"id": "net-1", "interface": "i1"},
    "vlan": 100,
    "bandwidth": 10,
    "port": "tap1",
    "mtu": 9000,
    "routes": [{"to": "10.128.0.0/16", "via": "10.128.0.1"}],
    "floating_ip": True,
    "port_security": True,
}
"""Of fields that a driver may not serve."""


def interface(**values: object) -> VNicInterface:
    """Return an interface that asks for these values."""
    return VNicInterface.model_validate(values)


class NetworkRefusals(Slivers):
    """The suite for what a :class:`~fabric_direct.drivers.contract.NetworkDriver` refuses."""

    network: ClassVar[str]
    """A network of the site."""

    @pytest.fixture
    def settings(self, site: Site) -> SiteNetwork:
        """Return the network as the site describes it."""
        return site.networks[self.network]

    def test_what_the_network_does_not_have_is_refused(
        self, driver: NetworkDriver, sliver: str, settings: SiteNetwork
    ) -> None:
        subnet = settings.subnet
        length = subnet.prefixlen
        addresses = {
            "outside": f"{subnet.broadcast_address + 5}/{length}",
            "a wrong prefix": f"{subnet[5]}/{length - 1}",
            "the subnet's own": f"{subnet[0]}/{length}",
            "the broadcast address": f"{subnet[-1]}/{length}",
            **({"the gateway's": f"{settings.gateway}/{length}"} if settings.gateway else {}),
        }
        for what, address in addresses.items():
            asked = interface(ipv4=address)
            with pytest.raises(InvalidSliver) as refused:
                driver.check(self.network, asked)
            assert refused.value.field == "interface.ipv4", what
            with pytest.raises(InvalidSliver):
                driver.create_port(sliver, "nic", self.network, asked)

    def test_a_network_that_is_not_there_is_refused(self, driver: NetworkDriver) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.check("no-such-network", ANY)

        assert refused.value.field == "network"

    def test_a_floating_ip_that_no_cloud_gives_is_refused(
        self, driver: NetworkDriver, site: Site
    ) -> None:
        if site.openstack and site.openstack.external_network:
            pytest.skip("the site has an external network")

        with pytest.raises(InvalidSliver) as refused:
            driver.check(self.network, interface(floating_ip=True))

        assert refused.value.field == "interface.floating_ip"

    def test_what_the_driver_does_not_serve_is_refused(self, driver: NetworkDriver) -> None:
        for field in driver.unserved:
            with pytest.raises(InvalidSliver) as refused:
                driver.check(self.network, interface(**{field: VALUES[field]}))
            assert refused.value.field == f"interface.{field}"


class _Ports(Slivers):
    @pytest.fixture(autouse=True)
    def nothing_left(self, driver: NetworkDriver, sliver: str, other: str) -> Iterator[None]:
        """Remove what a test made."""
        yield
        for each in (sliver, other):
            for port in driver.ports(each):
                driver.delete_port(each, port.component)
            assert driver.leftovers(each) == ()


class FloatingIpContract(_Ports):
    """The suite for a network driver that gives floating IPs."""

    network: ClassVar[str]
    """A network of the site whose ports can have floating IPs."""

    def test_a_port_gets_one_once_and_is_as_before_without_it(
        self, driver: NetworkDriver, sliver: str
    ) -> None:
        driver.check(self.network, interface(floating_ip=True))
        made = driver.create_port(sliver, "nic", self.network, ANY)

        driver.create_floating_ip(sliver, "nic")
        given = driver.find_port(sliver, "nic")
        driver.create_floating_ip(sliver, "nic")

        assert given is not None
        assert given.floating_ip
        assert given == replace(made, floating_ip=given.floating_ip)
        assert driver.find_port(sliver, "nic") == given
        for _ in range(2):
            driver.delete_floating_ip(sliver, "nic")
            assert driver.find_port(sliver, "nic") == made

    def test_a_port_may_begin_with_one(self, driver: NetworkDriver, sliver: str) -> None:
        made = driver.create_port(sliver, "nic", self.network, interface(floating_ip=True))

        assert made.floating_ip
        assert driver.find_port(sliver, "nic") == made

    def test_two_slivers_get_different_ones(
        self, driver: NetworkDriver, sliver: str, other: str
    ) -> None:
        for each in (sliver, other):
            driver.create_port(each, "nic", self.network, ANY)
            driver.create_floating_ip(each, "nic")

        ports = [driver.find_port(each, "nic") for each in (sliver, other)]
        assert len({port.floating_ip for port in ports if port}) == 2

    def test_a_port_that_is_not_there_gets_none(self, driver: NetworkDriver, sliver: str) -> None:
        with pytest.raises(NotFound):
            driver.create_floating_ip(sliver, "nic")

        assert driver.ports(sliver) == ()


class NetworkContract(NetworkRefusals, _Ports):
    """The suite for a network driver, with ports; nobody else uses the network meanwhile."""

    @pytest.fixture
    def asked(self, settings: SiteNetwork) -> VNicInterface:
        """Return an interface that asks for a MAC and an address that a driver would not choose."""
        address = next(islice(candidates(settings), 6, None))
        return interface(mac=MAC, ipv4=f"{address}/{settings.subnet.prefixlen}")

    @pytest.fixture
    def foreign(self) -> None:
        """Make a network of the name that is not ours, and remove it after the test."""
        pytest.skip("no fixture 'foreign'")

    def test_a_port_is_as_it_was_asked_for(
        self, driver: NetworkDriver, sliver: str, asked: VNicInterface
    ) -> None:
        made = driver.create_port(sliver, "nic", self.network, asked)

        assert (made.sliver, made.component, made.network) == (sliver, "nic", self.network)
        assert (made.mac, made.ipv4) == (asked.mac, asked.ipv4)
        assert driver.find_port(sliver, "nic") == made

    def test_a_port_has_an_address_of_each_family(
        self, driver: NetworkDriver, sliver: str, settings: SiteNetwork
    ) -> None:
        made = driver.create_port(sliver, "nic", self.network, ANY)

        assert made.mac
        assert made.ipv4
        assert made.ipv4.network == settings.subnet
        assert made.ipv6 is None or made.ipv6.network == settings.subnet6
        assert (made.ipv6 is None) == (settings.subnet6 is None)

    def test_a_port_made_twice_is_the_same(self, driver: NetworkDriver, sliver: str) -> None:
        first = driver.create_port(sliver, "nic", self.network, ANY)

        assert driver.create_port(sliver, "nic", self.network, ANY) == first
        assert driver.ports(sliver) == (first,)

    def test_a_nic_has_no_second_port(
        self, driver: NetworkDriver, sliver: str, asked: VNicInterface
    ) -> None:
        made = driver.create_port(sliver, "nic", self.network, asked)

        with pytest.raises(Conflict):
            driver.create_port(sliver, "nic", self.network, interface(mac=OTHER_MAC))

        assert driver.ports(sliver) == (made,)

    def test_a_port_is_found_by_its_sliver_and_component(
        self, driver: NetworkDriver, sliver: str, other: str
    ) -> None:
        made = driver.create_port(other, "nic", self.network, ANY)

        assert made in driver.all_ports()
        assert driver.find_port(sliver, "nic") is None
        assert driver.find_port(other, "nic2") is None
        assert driver.ports(sliver) == ()
        assert [port.component for port in driver.ports(other)] == ["nic"]

    def test_ports_are_found_without_asking_for_their_slivers(
        self, driver: NetworkDriver, sliver: str, other: str
    ) -> None:
        made = driver.create_port(sliver, "nic", self.network, ANY)
        driver.create_port(other, "nic", self.network, ANY)

        held = {thing.sliver: thing.addresses for thing in driver.stamped()}
        assert {sliver, other} <= held.keys()
        assert made.ipv4
        assert str(made.ipv4.ip) in held[sliver]
        driver.delete_port(sliver, "nic")
        found = {thing.sliver for thing in driver.stamped()}
        assert other in found
        assert sliver not in found

    def test_deleting_a_port_lets_those_of_others_be(
        self, driver: NetworkDriver, sliver: str, other: str
    ) -> None:
        driver.create_port(sliver, "nic", self.network, ANY)
        kept = driver.create_port(other, "nic", self.network, ANY)

        driver.delete_port(sliver, "nic")

        assert driver.ports(sliver) == ()
        assert driver.find_port(other, "nic") == kept

    def test_deleting_a_port_leaves_the_others_of_its_sliver(
        self, driver: NetworkDriver, sliver: str
    ) -> None:
        driver.create_port(sliver, "nic", self.network, ANY)
        kept = driver.create_port(sliver, "nic2", self.network, ANY)

        driver.delete_port(sliver, "nic")

        assert driver.ports(sliver) == (kept,)

    def test_two_threads_may_make_ports_at_once(
        self, driver: NetworkDriver, sliver: str, other: str
    ) -> None:
        made = at_once(
            lambda: driver.create_port(sliver, "nic", self.network, ANY),
            lambda: driver.create_port(other, "nic", self.network, ANY),
        )

        assert [port.sliver for port in made] == [sliver, other]
        assert [driver.find_port(sliver, "nic"), driver.find_port(other, "nic")] == made
        assert made[0].mac != made[1].mac
        assert made[0].ipv4 != made[1].ipv4

    def test_a_network_without_ports_is_not_left(self, driver: NetworkDriver, sliver: str) -> None:
        driver.create_port(sliver, "nic", self.network, ANY)
        driver.delete_port(sliver, "nic")

        driver.remove_unused()

        assert driver.unused() == ()

    def test_deleting_what_is_not_there_is_no_error(
        self, driver: NetworkDriver, sliver: str
    ) -> None:
        driver.delete_port(sliver, "nic")
        driver.create_port(sliver, "nic", self.network, ANY)
        assert driver.leftovers(sliver) != ()

        for _ in range(2):
            driver.delete_port(sliver, "nic")

        assert driver.find_port(sliver, "nic") is None
        assert driver.leftovers(sliver) == ()

    def test_an_address_that_is_held_is_refused_to_others_alone(
        self, driver: NetworkDriver, sliver: str, other: str, asked: VNicInterface
    ) -> None:
        driver.create_port(sliver, "nic", self.network, asked)
        same = interface(ipv4=asked.ipv4)

        driver.check(self.network, same, sliver)
        with pytest.raises(InvalidSliver) as refused:
            driver.check(self.network, same, other)
        with pytest.raises(Conflict):
            driver.create_port(other, "nic", self.network, same)

        assert refused.value.field == "interface.ipv4"
        assert driver.ports(other) == ()

    @pytest.mark.usefixtures("foreign")
    def test_a_network_that_is_not_ours_is_left_alone(
        self, driver: NetworkDriver, sliver: str
    ) -> None:
        with pytest.raises(NotOurs):
            driver.check(self.network, ANY)
        with pytest.raises(NotOurs):
            driver.create_port(sliver, "nic", self.network, ANY)
