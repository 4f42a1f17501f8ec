"""Contract tests for what is set on hosts: the placing of CPUs and memory, and uplinks."""

from collections.abc import Iterator
from dataclasses import asdict

import pytest

from fabric_direct.drivers.contract import TuningDriver, UplinkDriver, VfSettings
from fabric_direct.drivers.contract.tuning import node_set
from fabric_direct.errors import FabricDirectError, InvalidSliver, NotFound, Unsupported
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once, hears

MAC = "52:54:00:fd:00:03"


class TuningContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.TuningDriver`.

    The fixture ``instance`` is the name of a running server with one virtual CPU.
    """

    def test_cpus_are_told(self, driver: TuningDriver, instance: str) -> None:
        found = driver.cpu_info(instance)

        assert [vcpu["vcpu"] for vcpu in found["vcpus"]] == [0]
        assert {"cpu", "state", "cpu_time", "affinity"} <= found["vcpus"][0].keys()
        assert found["host_cpus"] >= 1
        assert isinstance(found["pinned"], list)

    def test_a_cpu_is_pinned(self, driver: TuningDriver, instance: str) -> None:
        last = driver.cpu_info(instance)["host_cpus"] - 1

        for cpu in (last, 0):
            driver.pin_cpus(instance, {0: cpu})
            assert driver.cpu_info(instance)["vcpus"][0]["affinity"] == [cpu]

    def test_cpus_that_are_not_there_are_refused(self, driver: TuningDriver, instance: str) -> None:
        beyond = driver.cpu_info(instance)["host_cpus"]
        before = driver.cpu_info(instance)["vcpus"][0]["affinity"]

        for pins in ({0: beyond}, {99: 0}):
            with pytest.raises(InvalidSliver):
                driver.pin_cpus(instance, pins)

        assert driver.cpu_info(instance)["vcpus"][0]["affinity"] == before

    def test_nodes_are_told_and_set(self, driver: TuningDriver, instance: str) -> None:
        nodes = driver.numa_info(instance)["nodes"]
        assert nodes
        assert all({"node", "memory", "free", "cpus"} <= node.keys() for node in nodes)

        for node in nodes:
            driver.set_numa_nodes(instance, frozenset({node["node"]}))
            assert node_set(driver.numa_info(instance)["node_set"]) == {node["node"]}

    def test_nodes_that_are_not_there_are_refused(
        self, driver: TuningDriver, instance: str
    ) -> None:
        with pytest.raises(InvalidSliver):
            driver.set_numa_nodes(instance, frozenset({63}))

    def test_a_server_that_is_not_there_is_told(self, driver: TuningDriver) -> None:
        for ask in (driver.cpu_info, driver.numa_info):
            with pytest.raises(FabricDirectError):
                ask("no-such-instance")

    def test_two_threads_may_ask_at_once(self, driver: TuningDriver, instance: str) -> None:
        asked = at_once(*[lambda: driver.numa_info(instance)["node_set"]] * 2)

        assert asked == [driver.numa_info(instance)["node_set"]] * 2


class UplinkContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.UplinkDriver`.

    The fixture ``link`` is an uplink that the site allows, with a VF 0 that nobody has.
    """

    @pytest.fixture(autouse=True)
    def as_before(self, driver: UplinkDriver, link: str) -> Iterator[None]:
        """Put back what a test set."""
        settings = driver.vfs(link)[0]
        yield
        driver.set_vf(link, 0, settings)

    def test_a_bridge_mode_is_set_and_back(self, driver: UplinkDriver, link: str) -> None:
        try:
            before = driver.bridge_mode(link)
        except Unsupported as error:
            pytest.skip(str(error))
        assert before in {"veb", "vepa"}

        for mode in ({"veb", "vepa"} - {before}, {before}):
            (wanted,) = mode
            driver.set_bridge_mode(link, wanted)
            assert driver.bridge_mode(link) == wanted

    def test_settings_of_a_vf_are_set_and_the_others_stay(
        self, driver: UplinkDriver, link: str
    ) -> None:
        before = driver.vfs(link)

        driver.set_vf(link, 0, VfSettings(mac=MAC))
        driver.set_vf(link, 0, VfSettings(vlan=100))

        after = driver.vfs(link)
        assert asdict(after[0]) == asdict(before[0]) | {"mac": MAC, "vlan": 100}
        assert {n: vf for n, vf in after.items() if n} == {n: vf for n, vf in before.items() if n}

    def test_a_link_that_is_not_there_is_told(self, driver: UplinkDriver) -> None:
        with pytest.raises(NotFound):
            driver.bridge_mode("nolink0")
        with pytest.raises(NotFound):
            driver.set_bridge_mode("nolink0", "vepa")
        with pytest.raises(FabricDirectError):
            driver.vfs("nolink0")

    def test_it_tells_of_changes_until_nobody_listens(self, driver: UplinkDriver) -> None:
        hears(driver)

    def test_two_threads_may_ask_at_once(self, driver: UplinkDriver, link: str) -> None:
        assert at_once(*[lambda: driver.vfs(link)] * 2) == [driver.vfs(link)] * 2
