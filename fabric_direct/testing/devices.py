"""Contract tests for a device driver."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fabric_direct.drivers.contract import Belongings, DeviceDomain, DeviceDriver
from fabric_direct.errors import DeviceClaimed, InvalidSliver, NotFound
from fabric_direct.model import DeviceState, PciAddress, PciComponent
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once, hears

NOWHERE = PciAddress.parse("ffff:ff:1f.7")


class DeviceContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.DeviceDriver`.

    The fixture ``component`` is a device that the site allows and nobody has, ``unlisted`` one that the
    allow-list does not name. The server of ``tenant`` exists if the driver needs one.
    """

    @pytest.fixture
    def tenant(self, sliver: str) -> DeviceDomain:
        """Return whose domain gets the device."""
        return DeviceDomain(sliver)

    @pytest.fixture(autouse=True)
    def nothing_left(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> Iterator[None]:
        """Remove and clean what a test passed through."""
        yield
        driver.detach(tenant, component.id, timeout=60)
        for record in driver.records(tenant.sliver):
            driver.clean(record)

    def test_a_device_is_passed_through(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        driver.check(component, tenant)
        made = driver.attach(tenant, component)

        assert [function.host_address for function in made] == list(component.bdf)
        assert {function.component for function in made} == {component.id}
        assert driver.keeps(tenant, component.id)
        assert _domains(driver, component) == {1}
        assert driver.differences(component, tenant) == ()
        assert driver.domain_differences(tenant) == ()
        assert driver.survey([Belongings(tenant, None, (component,))]) == {tenant.sliver: ()}

    def test_a_device_passed_through_twice_is_there_once(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        driver.attach(tenant, component)
        driver.check(component, tenant)
        driver.attach(tenant, component)

        addresses = [function.host_address for function in driver.plugged(tenant)]
        assert addresses == list(component.bdf)

    def test_a_device_is_not_free_until_it_is_clean(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        assert _states(driver, component) == {DeviceState.FREE}
        driver.attach(tenant, component)
        assert _states(driver, component) == {DeviceState.USED}

        driver.detach(tenant, component.id, timeout=60)

        assert not driver.keeps(tenant, component.id)
        assert _states(driver, component) == {DeviceState.UNCLEAN}
        assert _domains(driver, component) == {0}
        for record in driver.records(tenant.sliver):
            driver.clean(record)
        assert driver.records(tenant.sliver) == ()
        assert _states(driver, component) == {DeviceState.FREE}

    def test_a_device_is_released_when_it_is_clean(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        driver.attach(tenant, component)
        driver.detach(tenant, component.id, timeout=60)

        for address in component.bdf:
            driver.release(address, force=False)

        assert driver.records(tenant.sliver) == ()
        assert _states(driver, component) == {DeviceState.FREE}

    @pytest.mark.parametrize("force", [False, True])
    def test_what_is_not_there_and_has_no_record_is_not_released(
        self, driver: DeviceDriver, force: bool
    ) -> None:
        with pytest.raises(NotFound):
            driver.release(NOWHERE, force=force)

    def test_it_tells_of_changes_until_nobody_listens(self, driver: DeviceDriver) -> None:
        hears(driver)

    def test_two_threads_may_look_at_it_at_once(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        driver.attach(tenant, component)

        assert at_once(*[lambda: driver.plugged(tenant)] * 2) == [driver.plugged(tenant)] * 2
        assert at_once(*[lambda: _states(driver, component)] * 2) == [{DeviceState.USED}] * 2

    def test_a_device_is_found_without_asking_for_its_sliver_until_it_is_clean(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        driver.attach(tenant, component)
        assert tenant.sliver in {thing.sliver for thing in driver.stamped()}

        driver.detach(tenant, component.id, timeout=60)
        assert tenant.sliver in {thing.sliver for thing in driver.stamped()}
        for record in driver.records(tenant.sliver):
            driver.clean(record)
        assert tenant.sliver not in {thing.sliver for thing in driver.stamped()}

    def test_a_device_whose_record_is_anothers_is_not_cleaned(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent, other: str
    ) -> None:
        driver.attach(tenant, component)
        driver.detach(tenant, component.id, timeout=60)

        for record in driver.records(tenant.sliver):
            driver.clean(replace(record, sliver=other))

        assert _states(driver, component) == {DeviceState.UNCLEAN}

    def test_a_device_that_a_server_has_is_refused_to_others(
        self, driver: DeviceDriver, tenant: DeviceDomain, component: PciComponent, other: str
    ) -> None:
        driver.attach(tenant, component)
        (record, *_) = driver.records(tenant.sliver)

        with pytest.raises(DeviceClaimed):
            driver.check(component, DeviceDomain(other))
        with pytest.raises(DeviceClaimed):
            driver.clean(record)

    def test_a_device_that_the_site_does_not_allow_is_refused(
        self, driver: DeviceDriver, tenant: DeviceDomain, unlisted: PciComponent
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.check(unlisted, tenant)

        assert refused.value.field == "bdf[0]"

    def test_detaching_what_is_not_there_is_no_error(
        self, driver: DeviceDriver, tenant: DeviceDomain
    ) -> None:
        driver.detach(tenant, "no-such-device", timeout=1)


def _domains(driver: DeviceDriver, component: PciComponent) -> set[int]:
    """Return how many domains have the component's functions."""
    return {len(d.domains) for d in driver.inventory() if d.address in component.bdf}


def _states(driver: DeviceDriver, component: PciComponent) -> set[DeviceState]:
    return {d.state for d in driver.inventory() if d.address in component.bdf}
