"""Contract tests for a volume driver."""

from collections.abc import Iterator
from functools import partial

import pytest

from fabric_direct.drivers.contract import VolumeDriver
from fabric_direct.errors import InvalidSliver, NotFound, NotVerified
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once


class VolumeContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.VolumeDriver`; its volumes have 1 GiB."""

    @pytest.fixture
    def foreign(self) -> str:
        """Make a volume that is not ours, return its name, and remove it after the test."""
        pytest.skip("no fixture 'foreign'")

    @pytest.fixture(autouse=True)
    def nothing_left(self, driver: VolumeDriver, sliver: str, other: str) -> Iterator[None]:
        """Remove what a test made."""
        yield
        for each in (sliver, other):
            for volume in driver.volumes(each):
                driver.delete(each, volume.component)
            assert driver.leftovers(each) == ()

    def test_a_volume_is_as_it_was_asked_for(self, driver: VolumeDriver, sliver: str) -> None:
        made = driver.create(sliver, "data", 1)

        assert (made.sliver, made.component, made.size) == (sliver, "data", 1)
        assert driver.find(sliver, "data") == made
        assert driver.volumes(sliver) == (made,)

    def test_a_volume_made_twice_is_the_same(self, driver: VolumeDriver, sliver: str) -> None:
        first = driver.create(sliver, "data", 1)

        assert driver.create(sliver, "data", 1) == first
        assert driver.volumes(sliver) == (first,)

    def test_one_of_another_size_is_not_taken_for_it(
        self, driver: VolumeDriver, sliver: str
    ) -> None:
        made = driver.create(sliver, "data", 1)

        with pytest.raises(NotVerified):
            driver.create(sliver, "data", 2)

        assert driver.find(sliver, "data") == made

    def test_slivers_with_like_names_keep_their_own(
        self, driver: VolumeDriver, sliver: str, other: str
    ) -> None:
        made = driver.create(sliver, "2-data", 1)
        kept = driver.create(other, "data", 1)

        assert {made, kept} <= set(driver.all_volumes())
        assert [volume.component for volume in driver.volumes(sliver)] == ["2-data"]
        assert driver.find(sliver, "data") is None
        driver.delete(sliver, "2-data")
        assert driver.volumes(other) == (kept,)

    def test_deleting_a_volume_leaves_the_others_of_its_sliver(
        self, driver: VolumeDriver, sliver: str
    ) -> None:
        driver.create(sliver, "data", 1)
        kept = driver.create(sliver, "more", 1)

        driver.delete(sliver, "data")

        assert driver.volumes(sliver) == (kept,)

    def test_volumes_are_found_without_asking_for_their_slivers(
        self, driver: VolumeDriver, sliver: str, other: str
    ) -> None:
        driver.create(sliver, "data", 1)
        driver.create(other, "data", 1)

        assert {sliver, other} <= {thing.sliver for thing in driver.stamped()}
        driver.delete(sliver, "data")
        found = {thing.sliver for thing in driver.stamped()}
        assert other in found
        assert sliver not in found

    def test_deleting_what_is_not_there_is_no_error(
        self, driver: VolumeDriver, sliver: str
    ) -> None:
        driver.delete(sliver, "data")
        driver.create(sliver, "data", 1)
        assert driver.leftovers(sliver) != ()

        for _ in range(2):
            driver.delete(sliver, "data")

        assert driver.find(sliver, "data") is None
        assert driver.leftovers(sliver) == ()

    def test_two_threads_may_make_volumes_at_once(
        self, driver: VolumeDriver, sliver: str, other: str
    ) -> None:
        wanted = ((sliver, "data"), (sliver, "more"), (other, "data"))

        made = at_once(*(partial(driver.create, *each, 1) for each in wanted))

        assert made == [driver.find(*each) for each in wanted]
        assert len({volume.source for volume in made}) == len(wanted)

    def test_a_name_that_no_volume_has_is_refused(self, driver: VolumeDriver) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.check("no-such-volume")
        with pytest.raises(NotFound):
            driver.existing("no-such-volume")

        assert refused.value.field == "volume"

    def test_a_volume_that_is_not_ours_stays(
        self, driver: VolumeDriver, sliver: str, foreign: str
    ) -> None:
        driver.check(foreign)
        found = driver.existing(foreign)

        driver.delete(sliver, foreign)

        assert found.sliver == ""
        assert driver.volumes(sliver) == ()
        assert driver.existing(foreign) == found
