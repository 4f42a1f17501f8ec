"""Drivers that are wrong on purpose, each with the suite of its kind: run by ``test_wrong_drivers``.

``WRONG`` names, for each, what a method does instead of what it should, and the test that finds it.
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fabric_direct.drivers.contract import VfSettings
from fabric_direct.drivers.contract.changes import Change
from fabric_direct.drivers.fake import (
    FakeCompute,
    FakeDevice,
    FakeGuest,
    FakeNetwork,
    FakeService,
    FakeTuning,
    FakeUplink,
    FakeVolume,
)
from fabric_direct.errors import DriverError
from fabric_direct.site.config import Site
from tests.unit import test_contract as right

site = right.site


@dataclass(frozen=True)
class Wrong:
    """A driver whose method does something else."""

    suite: type
    base: Any
    method: str
    does: Any
    found_by: str

    @property
    def name(self) -> str:
        """How its suite is called."""
        return f"Test{self.base.__name__}{self.method.title().replace('_', '')}{_name(self.does)}"


def nothing(*_: object, **__: object) -> None:
    """Do nothing, and say so by returning."""


def gives(answer: object) -> Callable[..., object]:
    """Return a method that always returns the same."""
    given = lambda *_, **__: answer  # noqa: E731 - its name is what it gives
    given.__name__ = f"gives {answer!r}"
    return given


def fails(*_: object, **__: object) -> None:
    raise DriverError("not made yet")


def tells_and_returns(_driver: Any, tell: Callable[[Change], None], _hearing: Any) -> None:
    tell(Change("unknown"))


def listens_in_silence(_driver: Any, _tell: object, hearing: Any) -> None:
    hearing.wait(1)


def _name(does: Any) -> str:
    words = getattr(does, "__name__", "x")
    return "".join(c for c in words.title() if c.isalnum())


class Sharing:
    """A driver that keeps the arguments of a call in itself, where another thread's replace them."""

    def __init__(self, driver: Any, method: str) -> None:
        self._driver, self._method, self._arguments = driver, method, ()
        self._earlier, self._another_came = itertools.count(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return self._shared if name == self._method else getattr(self._driver, name)

    def _shared(self, *arguments: Any) -> Any:
        self._arguments = arguments
        if next(self._earlier):
            self._another_came.set()
        self._another_came.wait(60)
        return getattr(self._driver, self._method)(*self._arguments)


def keeps_its_arguments() -> None:
    """Stand for :class:`Sharing`."""


def waits_for_a_start(self: Any, sliver_id: str, component: str, volume: Any) -> None:
    """Plug a disk into a running server alone: it is gone with its next start."""
    if self.find(sliver_id).state.value == "running":
        super(type(self), self).attach_volume(sliver_id, component, volume)


def forgets_at_start(self: Any, sliver_id: str) -> None:
    FakeCompute.start(self, sliver_id)
    for nic in self.find(sliver_id).ports:
        FakeCompute.detach_port(self, sliver_id, nic.component, timeout=1)


def of_the_server(self: Any, sliver_id: str, port: Any, interface: Any) -> None:
    FakeCompute.attach_port(self, sliver_id, replace(port, sliver=sliver_id), interface)


def names_none(self: Any) -> Any:
    return tuple(replace(host, slivers=()) for host in FakeCompute.inventory(self))


def counts_none(self: Any) -> Any:
    return tuple(replace(host, cores_used=0) for host in FakeCompute.inventory(self))


def all_volumes_of_the_sliver(self: Any, sliver_id: str, _component: str) -> None:
    for volume in self.volumes(sliver_id):
        FakeVolume.delete(self, sliver_id, volume.component)


def all_ports_of_the_sliver(self: Any, sliver_id: str, _component: str) -> None:
    for port in self.ports(sliver_id):
        FakeNetwork.delete_port(self, sliver_id, port.component)


def as_a_whole(self: Any, link: str, vf: int, settings: VfSettings) -> None:
    self.substrate.vfs[link][vf] = settings


_PORT = "test_a_nic_is_plugged_in_and_out_for_later_starts"
_HELD = "test_a_nic_may_have_a_port_that_another_sliver_holds"
_VOLUME = "test_a_volume_is_plugged_in_and_out_for_later_starts"
_HEARS = "test_it_tells_of_changes_until_nobody_listens"
_TWICE = "test_deleting_what_is_not_there_is_no_error"

WRONG = tuple(
    Wrong(suite, base, method, does, found_by)
    for suite, base, rows in (
        (
            right.TestServers,
            FakeCompute,
            (
                ("attach_port", nothing, _PORT),
                ("detach_port", nothing, _PORT),
                ("attach_port", of_the_server, _HELD),
                ("attach_volume", nothing, _VOLUME),
                ("attach_volume", waits_for_a_start, _VOLUME),
                ("detach_volume", nothing, _VOLUME),
                ("start", forgets_at_start, _PORT),
                ("plugs", gives(()), _HELD),
                ("create", nothing, "test_a_server_is_as_it_was_asked_for"),
                ("delete", nothing, "test_a_deleted_server_is_gone"),
                ("start", nothing, "test_a_server_is_stopped_started_and_rebooted"),
                ("stop", nothing, "test_a_server_is_stopped_started_and_rebooted"),
                ("resize", nothing, "test_a_server_is_resized_or_stays_as_it_is"),
                ("write_stamp", nothing, "test_a_stamp_is_replaced"),
                ("check", nothing, "test_what_is_larger_than_the_host_is_refused"),
                ("inventory", gives(()), "test_the_inventory_has_what_servers_can_use"),
                ("inventory", fails, "test_the_inventory_has_what_servers_can_use"),
                ("inventory", counts_none, "test_the_inventory_counts_a_server"),
                ("inventory", names_none, "test_the_inventory_counts_a_server"),
                ("servers", gives(()), "test_a_server_is_as_it_was_asked_for"),
                ("stamped", gives(()), "test_a_server_is_found_without_asking_for_its_sliver"),
                ("leftovers", gives(()), "test_a_deleted_server_is_gone"),
                ("console", fails, "test_a_console_has_its_last_lines"),
                ("console", gives("1\n2\n3"), "test_a_console_has_its_last_lines"),
                ("listen", nothing, _HEARS),
                ("listen", tells_and_returns, _HEARS),
                ("listen", listens_in_silence, _HEARS),
                ("listen", fails, _HEARS),
                ("create", keeps_its_arguments, "test_two_threads_may_make_servers_at_once"),
            ),
        ),
        (
            right.TestNetworks,
            FakeNetwork,
            (
                ("create_port", nothing, "test_a_port_is_as_it_was_asked_for"),
                ("delete_port", nothing, _TWICE),
                (
                    "delete_port",
                    all_ports_of_the_sliver,
                    "test_deleting_a_port_leaves_the_others_of_its_sliver",
                ),
                ("check", nothing, "test_a_network_that_is_not_there_is_refused"),
                ("all_ports", gives(()), "test_a_port_is_found_by_its_sliver_and_component"),
                ("stamped", gives(()), "test_ports_are_found_without_asking_for_their_slivers"),
                ("leftovers", gives(()), _TWICE),
                ("create_port", keeps_its_arguments, "test_two_threads_may_make_ports_at_once"),
            ),
        ),
        (
            right.TestVolumes,
            FakeVolume,
            (
                ("create", nothing, "test_a_volume_is_as_it_was_asked_for"),
                ("delete", nothing, _TWICE),
                (
                    "delete",
                    all_volumes_of_the_sliver,
                    "test_deleting_a_volume_leaves_the_others_of_its_sliver",
                ),
                ("check", nothing, "test_a_name_that_no_volume_has_is_refused"),
                ("all_volumes", gives(()), "test_slivers_with_like_names_keep_their_own"),
                ("stamped", gives(()), "test_volumes_are_found_without_asking_for_their_slivers"),
                ("leftovers", gives(()), _TWICE),
                ("create", keeps_its_arguments, "test_two_threads_may_make_volumes_at_once"),
            ),
        ),
        (
            right.TestServices,
            FakeService,
            (
                ("apply", nothing, "test_a_service_is_as_it_was_asked_for"),
                ("remove", nothing, "test_removing_what_is_not_there_is_no_error"),
                ("differences", gives(()), "test_what_is_not_there_differs"),
                ("stamped", gives(()), "test_a_service_is_found_without_asking_for_its_sliver"),
                ("leftovers", gives(()), "test_removing_what_is_not_there_is_no_error"),
            ),
        ),
        (
            right.TestSharedServices,
            FakeService,
            (
                ("find", gives("theirs"), "test_what_another_site_made_is_left_alone"),
                ("leftovers", gives(("theirs",)), "test_what_another_site_made_is_left_alone"),
            ),
        ),
        (
            right.TestDevices,
            FakeDevice,
            (
                ("attach", gives(()), "test_a_device_is_passed_through"),
                ("detach", nothing, "test_a_device_is_not_free_until_it_is_clean"),
                ("clean", nothing, "test_a_device_is_not_free_until_it_is_clean"),
                ("release", nothing, "test_a_device_is_released_when_it_is_clean"),
                ("check", nothing, "test_a_device_that_the_site_does_not_allow_is_refused"),
                ("inventory", gives(()), "test_a_device_is_passed_through"),
                ("plugged", gives(()), "test_a_device_passed_through_twice_is_there_once"),
                ("records", gives(()), "test_a_device_is_not_free_until_it_is_clean"),
                (
                    "stamped",
                    gives(()),
                    "test_a_device_is_found_without_asking_for_its_sliver_until_it_is_clean",
                ),
                ("listen", nothing, _HEARS),
                ("listen", tells_and_returns, _HEARS),
            ),
        ),
        (
            right.TestGuests,
            FakeGuest,
            (
                ("add_keys", nothing, "test_a_key_is_let_in_and_no_longer"),
                ("remove_keys", nothing, "test_a_key_is_let_in_and_no_longer"),
                ("ping", gives(True), "test_one_that_is_not_there_does_not"),
                ("wait", nothing, "test_one_that_is_not_there_does_not"),
                ("boot_finished", gives(False), "test_a_guest_that_has_booted_answers"),
                ("interfaces", gives(()), "test_its_nics_have_names_and_addresses"),
                ("run", nothing, "test_a_command_runs_with_its_input"),
                ("pins", gives(("192.0.2.1",)), "test_what_is_pinned_is_forgotten"),
            ),
        ),
        (
            right.TestTuning,
            FakeTuning,
            (
                ("pin_cpus", nothing, "test_a_cpu_is_pinned"),
                ("set_numa_nodes", nothing, "test_nodes_are_told_and_set"),
                ("cpu_info", gives({"vcpus": []}), "test_cpus_are_told"),
                ("numa_info", gives({"nodes": []}), "test_nodes_are_told_and_set"),
            ),
        ),
        (
            right.TestUplinks,
            FakeUplink,
            (
                ("set_bridge_mode", nothing, "test_a_bridge_mode_is_set_and_back"),
                ("bridge_mode", gives("veb"), "test_a_link_that_is_not_there_is_told"),
                ("set_vf", nothing, "test_settings_of_a_vf_are_set_and_the_others_stay"),
                ("set_vf", as_a_whole, "test_settings_of_a_vf_are_set_and_the_others_stay"),
                ("listen", nothing, _HEARS),
                ("listen", tells_and_returns, _HEARS),
            ),
        ),
    )
    for method, does, found_by in rows
)


def _suite(wrong: Wrong) -> type:
    """Return the suite with the test that should find the driver, and no other."""

    @pytest.fixture
    def driver(_suite: object, site: Site) -> Any:
        if wrong.does is keeps_its_arguments:
            return Sharing(wrong.base(site, right.HOST), wrong.method)
        made = type(f"Wrong{wrong.base.__name__}", (wrong.base,), {wrong.method: wrong.does})
        return made(site, right.HOST)

    tests = (name for name in dir(wrong.suite) if name.startswith("test_"))
    others = dict.fromkeys(name for name in tests if name != wrong.found_by)
    return type(wrong.name, (wrong.suite,), {"driver": driver, **others})


globals().update({wrong.name: _suite(wrong) for wrong in WRONG})
