"""What a driver of networks that are slivers must do."""

from collections.abc import Iterator

import pytest

from fabric_direct.config import Site
from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.errors import InvalidSliver, NotOurs
from fabric_direct.networks import NetworkSliver
from fabric_direct.testing.slivers import Slivers


class ServiceContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.ServiceDriver`.

    The fixture ``lan`` is a network sliver that the driver can make, with the id ``sliver``.
    """

    @pytest.fixture(autouse=True)
    def nothing_left(self, driver: ServiceDriver, sliver: str, other: str) -> Iterator[None]:
        """Remove what a test made."""
        yield
        for each in (sliver, other):
            driver.remove(each)
            assert driver.leftovers(each) == ()

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
