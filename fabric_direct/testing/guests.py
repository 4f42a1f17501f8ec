"""Contract tests for a driver of guests."""

from collections.abc import Iterator

import pytest

from fabric_direct.drivers.contract import GuestAddress, GuestDriver
from fabric_direct.errors import Unreachable
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN contract"


class GuestContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.GuestDriver`.

    The fixture ``guest`` is a guest that has booted and can be logged in to, with at least one NIC;
    ``absent`` one whose server is there, and that does not answer.
    """

    @pytest.fixture(autouse=True)
    def nothing_left(self, driver: GuestDriver, guest: GuestAddress) -> Iterator[None]:
        """Take back the key that a test may let in."""
        yield
        driver.remove_keys(guest, (KEY,))

    def test_a_guest_that_has_booted_answers(
        self, driver: GuestDriver, guest: GuestAddress
    ) -> None:
        driver.wait(guest, timeout=60)

        assert driver.ping(guest)
        assert driver.boot_finished(guest) in {True, None}

    def test_one_that_is_not_there_does_not(
        self, driver: GuestDriver, absent: GuestAddress
    ) -> None:
        assert not driver.ping(absent)
        assert not (driver.keys and driver.listens(absent))  # it is asked before a login alone
        with pytest.raises(Unreachable):
            driver.wait(absent, timeout=0.1)

    def test_its_nics_have_names_and_addresses(
        self, driver: GuestDriver, guest: GuestAddress
    ) -> None:
        found = driver.interfaces(guest)

        assert found
        assert all(nic.name and nic.mac for nic in found)
        assert all("/" in address for nic in found for address in nic.addresses)

    def test_a_command_runs_with_its_input(self, driver: GuestDriver, guest: GuestAddress) -> None:
        done = driver.run(guest, ("cat",), b"a\nb", timeout=60)

        assert (done.code, done.stdout) == (0, b"a\nb")
        assert driver.run(guest, ("cat", "/no/such/file"), timeout=60).code != 0

    def test_a_key_is_let_in_and_no_longer(self, driver: GuestDriver, guest: GuestAddress) -> None:
        before = driver.authorized_keys(guest)

        for _ in range(2):
            driver.add_keys(guest, (KEY,))
        assert [_public(k) for k in driver.authorized_keys(guest)].count(_public(KEY)) == 1
        assert set(before) <= set(driver.authorized_keys(guest))

        for _ in range(2):
            driver.remove_keys(guest, (KEY,))
        assert driver.authorized_keys(guest) == before

    def test_what_is_pinned_is_forgotten(self, driver: GuestDriver, guest: GuestAddress) -> None:
        kept = set(driver.pinned()) - set(guest.addresses)

        for _ in range(2):
            driver.forget(guest)

        assert driver.pins(guest) == ()
        assert set(driver.pinned()) == kept

    def test_a_host_key_that_is_given_is_pinned_alone(
        self, driver: GuestDriver, absent: GuestAddress
    ) -> None:
        first, second = driver.give_host_key(absent), driver.give_host_key(absent)

        assert (first is None) == (second is None) == (not driver.keys)
        if second:
            assert first != second
            assert driver.pins(absent) == absent.addresses
            driver.forget(absent)
        assert driver.pins(absent) == ()

    def test_two_threads_may_ask_at_once(self, driver: GuestDriver, guest: GuestAddress) -> None:
        def nics() -> set[tuple[str, str]]:  # addresses may come meanwhile
            return {(each.name, each.mac) for each in driver.interfaces(guest)}

        assert at_once(nics, nics) == [nics()] * 2


def _public(line: str) -> str:
    return line.split()[1]
