"""Contract tests for a driver of network services."""

from collections.abc import Iterator

import pytest

from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.errors import InvalidSliver, NotOurs
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.site.config import Site
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once


class _Services(Slivers):
    @pytest.fixture(autouse=True)
    def nothing_left(self, driver: ServiceDriver, sliver: str, other: str) -> Iterator[None]:
        """Remove what a test made."""
        yield
        for each in (sliver, other):
            driver.remove(each)
            assert driver.leftovers(each) == ()


class ServiceContract(_Services):
    """The suite for a :class:`~fabric_direct.drivers.contract.ServiceDriver` of connections.

    The fixture ``service`` is a service that the driver can make, with the id ``sliver``, and nothing
    left open; ``changed`` is what it can be changed into, with other interfaces or settings of them.
    A key of a BGP peer in it is ``sesame``.
    """

    def test_a_service_is_as_it_was_asked_for(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        driver.check(service)
        made = driver.apply(service)

        assert made.sliver == service.id
        there = {(i.device, i.port, i.vlan, i.bandwidth) for i in made.interfaces}
        assert there == {(i.device, i.port, i.tag or None, i.bandwidth) for i in service.interfaces}
        assert driver.find(service.id) == made
        assert driver.differences(service) == ()

    def test_a_service_applied_twice_is_the_same(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        assert driver.apply(service) == driver.apply(service)

    def test_two_threads_may_look_at_it_at_once(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        made = driver.apply(service)

        assert at_once(*[lambda: driver.find(service.id)] * 2) == [made] * 2
        assert at_once(*[lambda: driver.differences(service)] * 2) == [()] * 2

    def test_a_service_is_changed_in_place_and_back(
        self, driver: ServiceDriver, service: NetworkService, changed: NetworkService
    ) -> None:
        source = driver.apply(service).source
        assert driver.differences(changed)

        driver.check(changed)
        assert driver.apply(changed).source == source
        assert driver.differences(changed) == ()
        driver.apply(service)

        assert driver.differences(service) == ()

    def test_what_is_not_there_differs(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        assert driver.find(service.id) is None
        assert driver.differences(service)
        assert driver.leftovers(service.id) == ()

    def test_its_stamp_says_what_it_should_be_but_no_secrets(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        stamp = driver.apply(service).stamp

        assert stamp is None or not driver.differences(stamp)
        assert "sesame" not in repr(stamp)

    def test_a_service_is_found_without_asking_for_its_sliver(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        driver.apply(service)

        kinds = {thing.kind for thing in driver.stamped() if thing.sliver == service.id}
        assert kinds
        assert kinds <= SERVICES.keys(), "the kind of what is stamped is the type of its service"
        driver.remove(service.id)
        assert service.id not in {thing.sliver for thing in driver.stamped()}

    def test_removing_what_is_not_there_is_no_error(
        self, driver: ServiceDriver, service: NetworkService
    ) -> None:
        driver.remove(service.id)
        driver.apply(service)
        assert driver.leftovers(service.id) != ()

        for _ in range(2):
            driver.remove(service.id)

        assert driver.find(service.id) is None
        assert driver.leftovers(service.id) == ()


class SharedServiceContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.ServiceDriver` that other sites use, too.

    The fixture ``elsewhere`` is a driver of another site for the same API; ``service`` is a service that
    both can make, with the id ``sliver``.
    """

    @pytest.fixture(autouse=True)
    def nothing_left_elsewhere(self, elsewhere: ServiceDriver, sliver: str) -> Iterator[None]:
        """Remove what a test made."""
        yield
        elsewhere.remove(sliver)
        assert elsewhere.leftovers(sliver) == ()

    def test_what_another_site_made_is_left_alone(
        self, driver: ServiceDriver, elsewhere: ServiceDriver, service: NetworkService
    ) -> None:
        made = elsewhere.apply(service)

        assert driver.find(service.id) is None
        assert driver.leftovers(service.id) == ()
        assert service.id not in {thing.sliver for thing in driver.stamped()}
        driver.remove(service.id)

        assert elsewhere.find(service.id) == made
        assert elsewhere.differences(service) == ()


class CloudNetworkContract(_Services):
    """The suite for a driver of networks of a cloud.

    The fixture ``lan`` is a network sliver that the driver can make, with the id ``sliver``.
    """

    def test_a_network_is_as_it_was_asked_for(
        self, driver: ServiceDriver, lan: NetworkSliver
    ) -> None:
        driver.check(lan)
        made = driver.apply(lan)

        assert (made.sliver, made.name) == (lan.id, lan.name)
        assert made.subnets == tuple(map(str, lan.network.blocks()))
        assert driver.find(lan.id) == made
        assert driver.differences(lan) == ()

    def test_a_network_made_twice_is_the_same(
        self, driver: ServiceDriver, lan: NetworkSliver
    ) -> None:
        assert driver.apply(lan) == driver.apply(lan)

    def test_a_network_of_another_sliver_is_left_alone(
        self, driver: ServiceDriver, lan: NetworkSliver, other: str
    ) -> None:
        made = driver.apply(lan)

        with pytest.raises(NotOurs):
            driver.apply(lan.model_copy(update={"id": other}))

        assert driver.find(other) is None
        assert driver.find(lan.id) == made

    def test_a_network_is_found_without_asking_for_its_sliver(
        self, driver: ServiceDriver, lan: NetworkSliver
    ) -> None:
        driver.apply(lan)

        assert lan.id in {thing.sliver for thing in driver.stamped()}
        driver.remove(lan.id)
        assert lan.id not in {thing.sliver for thing in driver.stamped()}

    def test_the_name_of_a_network_of_the_site_is_refused(
        self, driver: ServiceDriver, site: Site, lan: NetworkSliver
    ) -> None:
        for name in site.networks:
            with pytest.raises(InvalidSliver) as refused:
                driver.check(lan.model_copy(update={"name": name}))
            assert refused.value.field == "name"

    def test_deleting_what_is_not_there_is_no_error(
        self, driver: ServiceDriver, lan: NetworkSliver
    ) -> None:
        driver.remove(lan.id)
        driver.apply(lan)
        assert driver.leftovers(lan.id) != ()

        for _ in range(2):
            driver.remove(lan.id)

        assert driver.find(lan.id) is None
        assert driver.leftovers(lan.id) == ()
