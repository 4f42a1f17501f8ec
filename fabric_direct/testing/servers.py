"""Contract tests for a compute driver."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest

from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract import (
    ComputeDriver,
    HostInventory,
    Image,
    Port,
    Server,
    ServerSpec,
    Volume,
)
from fabric_direct.errors import Denied, InvalidSliver, NotOurs, Unsupported
from fabric_direct.model import Capacities, NodeSliver, Stamp, State, VNicInterface
from fabric_direct.site.config import Site
from fabric_direct.testing.slivers import Slivers
from fabric_direct.testing.threads import at_once, hears

SIZE, LARGER = Capacities(core=1, ram=1, disk=1), Capacities(core=2, ram=2, disk=2)
HUGE = Capacities(core=128, ram=1024, disk=100)


class ComputeContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.ComputeDriver` without a server."""

    image: ClassVar[str]
    """An image whose root disk is 1 GiB or less."""

    @pytest.fixture
    def spec(self, site: Site, sliver: str) -> ServerSpec:
        """Return the description of a server without NICs."""
        node = NodeSliver(id=sliver, name="node", image=self.image, capacities=SIZE)
        return ServerSpec(node, Image.of(site, self.image), user_data=user_data(node))

    def test_a_sliver_that_the_host_can_run_passes(
        self, driver: ComputeDriver, spec: ServerSpec
    ) -> None:
        driver.check(spec.sliver, spec.image)

    def test_an_image_that_is_not_there_is_refused(
        self, driver: ComputeDriver, site: Site, spec: ServerSpec
    ) -> None:
        absent = Image.of(site, "no-such-image")

        with pytest.raises(InvalidSliver) as refused:
            driver.check(spec.sliver.model_copy(update={"image": absent.name}), absent)
        with pytest.raises(InvalidSliver) as unneeded:
            driver.image_needs(absent)

        assert refused.value.field == unneeded.value.field == "image"

    def test_what_is_larger_than_the_host_is_refused(
        self, driver: ComputeDriver, spec: ServerSpec
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.check(spec.sliver.model_copy(update={"capacities": HUGE}), spec.image)

        assert refused.value.field.partition(".")[0] in {"capacities", "flavor"}

    def test_the_inventory_has_what_servers_can_use(self, driver: ComputeDriver) -> None:
        found = _inventory(driver)

        assert found
        for host in found:
            assert host.host
            assert min(host.cores, host.ram) > 0
            assert min(host.cores_used, host.ram_used, host.disk_used) >= 0

    def test_it_tells_of_changes_until_nobody_listens(self, driver: ComputeDriver) -> None:
        hears(driver)

    def test_a_server_that_is_not_there_is_not_found(
        self, driver: ComputeDriver, sliver: str
    ) -> None:
        assert driver.find(sliver) is None
        assert sliver not in {server.sliver for server in driver.servers()}
        assert driver.leftovers(sliver) == ()
        assert driver.plugs(sliver) == ()
        assert sliver not in {thing.sliver for thing in driver.stamped()}

    def test_removing_what_is_not_there_is_no_error(
        self, driver: ComputeDriver, sliver: str
    ) -> None:
        driver.delete(sliver)
        driver.detach_port(sliver, "nic", timeout=1)
        driver.detach_volume(sliver, "data", timeout=1)


class ServerContract(ComputeContract):
    """The suite for a compute driver with a server; no guest needs to boot."""

    shutdown: ClassVar[float] = 1.0
    """Seconds that the guest gets to shut down; it need not."""

    @pytest.fixture
    def foreign(self) -> None:
        """Make a server of the description's name that is not ours; remove it after the test."""
        pytest.skip("no fixture 'foreign'")

    @pytest.fixture
    def port(self) -> Port:
        """Return a port that nobody has, of the component ``nic`` of ``sliver``."""
        pytest.fail("the suite needs a fixture 'port': a Port for the NIC 'nic' of the sliver")

    @pytest.fixture
    def volume(self) -> Volume:
        """Return a volume that nobody has, of the component ``data`` of ``sliver``."""
        pytest.fail("the suite needs a fixture 'volume': a Volume 'data' of the sliver")

    @pytest.fixture(autouse=True)
    def nothing_left(self, driver: ComputeDriver, sliver: str, other: str) -> Iterator[None]:
        """Remove what a test made."""
        yield
        for each in (sliver, other):
            driver.delete(each)
            assert driver.leftovers(each) == ()

    def test_a_server_is_as_it_was_asked_for(self, driver: ComputeDriver, spec: ServerSpec) -> None:
        made = driver.create(spec)

        assert (made.sliver, made.state) == (spec.sliver.id, State.RUNNING)
        assert made.stamp == spec.sliver.stamp()
        assert made.cores >= SIZE.core
        assert made.ram >= SIZE.ram * 1024
        assert driver.find(spec.sliver.id) == made
        assert made in driver.servers()

    def test_a_server_is_found_without_asking_for_its_sliver(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        driver.create(spec)

        assert sliver in {thing.sliver for thing in driver.stamped()}
        driver.delete(sliver)
        assert sliver not in {thing.sliver for thing in driver.stamped()}

    def test_a_server_made_twice_is_the_same(self, driver: ComputeDriver, spec: ServerSpec) -> None:
        first = driver.create(spec)

        assert driver.create(spec).instance == first.instance
        assert [s.instance for s in driver.servers() if s.sliver == first.sliver] == [
            first.instance
        ]

    def test_a_server_is_stopped_started_and_rebooted(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        driver.create(spec)

        driver.stop(sliver, timeout=self.shutdown)
        assert _state(driver, sliver) is State.STOPPED
        driver.start(sliver)
        assert _state(driver, sliver) is State.RUNNING
        driver.reboot(sliver, hard=True, timeout=self.shutdown)
        assert _state(driver, sliver) is State.RUNNING

    def test_a_stamp_is_replaced(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        driver.create(spec)
        stamp = spec.sliver.model_copy(update={"owner": "climate"}).stamp()

        driver.write_stamp(sliver, stamp)

        found = driver.find(sliver)
        assert found
        assert found.stamp == stamp

    def test_a_server_is_resized_or_stays_as_it_is(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        made = driver.create(spec)
        stamp = spec.sliver.model_copy(update={"capacities": LARGER}).stamp()

        try:
            driver.resize(stamp)
        except Unsupported:
            assert driver.find(sliver) == made
        else:
            _is_resized(driver, made.sliver, stamp)

    def test_a_deleted_server_is_gone(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        driver.create(spec)
        assert driver.leftovers(sliver) != ()

        for _ in range(2):
            driver.delete(sliver)

        assert driver.find(sliver) is None
        assert driver.leftovers(sliver) == ()

    def test_a_nic_is_plugged_in_and_out_for_later_starts(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str, port: Port
    ) -> None:
        driver.create(spec)
        driver.stop(sliver, timeout=self.shutdown)  # a guest that has not booted releases nothing

        for _ in range(2):
            driver.attach_port(sliver, port, VNicInterface())
        assert [(nic.component, nic.mac) for nic in _found(driver, sliver).ports] == [
            (port.component, port.mac)
        ]
        assert driver.plugs(sliver) == ()
        driver.start(sliver)
        assert [nic.component for nic in _found(driver, sliver).ports] == [port.component]

        driver.stop(sliver, timeout=self.shutdown)
        for _ in range(2):
            driver.detach_port(sliver, port.component, timeout=60)
        assert _found(driver, sliver).ports == ()
        driver.start(sliver)
        assert _found(driver, sliver).ports == ()

    def test_a_nic_may_have_a_port_that_another_sliver_holds(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str, other: str, port: Port
    ) -> None:
        instance = driver.create(spec).instance
        driver.stop(sliver, timeout=self.shutdown)

        driver.attach_port(sliver, replace(port, sliver=other), VNicInterface())
        (plug,) = driver.plugs(other)
        assert (plug.server, plug.instance, plug.nic.mac) == (sliver, instance, port.mac)
        assert _found(driver, sliver).ports == ()

        driver.detach_port(sliver, port.component, timeout=60, holder=other)
        assert driver.plugs(other) == ()

    def test_a_volume_is_plugged_in_and_out_for_later_starts(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str, volume: Volume
    ) -> None:
        driver.create(spec)
        driver.stop(sliver, timeout=self.shutdown)

        for _ in range(2):
            driver.attach_volume(sliver, volume.component, volume)
        assert [(disk.component, disk.source) for disk in _found(driver, sliver).volumes] == [
            (volume.component, volume.source)
        ]
        driver.start(sliver)
        assert [disk.component for disk in _found(driver, sliver).volumes] == [volume.component]

        driver.stop(sliver, timeout=self.shutdown)
        for _ in range(2):
            driver.detach_volume(sliver, volume.component, timeout=60)
        assert _found(driver, sliver).volumes == ()
        driver.start(sliver)
        assert _found(driver, sliver).volumes == ()

    def test_the_inventory_counts_a_server(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        driver.create(spec)

        # Servers of others come and go meanwhile: no count from before compares.
        used = [host.cores_used for host in _inventory(driver) if sliver in host.slivers]
        assert len(used) == 1, "exactly one host names the sliver of the server"
        assert used[0] >= SIZE.core

    def test_a_console_has_its_last_lines(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        driver.create(spec)

        assert len(driver.console(sliver, 1).splitlines()) <= 1
        assert len(driver.console(sliver, 100).splitlines()) <= 100

    def test_two_threads_may_make_servers_at_once(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str, other: str
    ) -> None:
        second = replace(spec, sliver=spec.sliver.model_copy(update={"id": other, "name": "node2"}))

        made = at_once(lambda: driver.create(spec), lambda: driver.create(second))

        assert [server.sliver for server in made] == [sliver, other]
        assert [driver.find(sliver), driver.find(other)] == made
        at_once(lambda: driver.delete(sliver), lambda: driver.delete(other))
        assert driver.find(sliver) is driver.find(other) is None

    @pytest.mark.usefixtures("foreign")
    def test_a_server_that_is_not_ours_is_left_alone(
        self, driver: ComputeDriver, spec: ServerSpec, sliver: str
    ) -> None:
        with pytest.raises(NotOurs):
            driver.create(spec)

        assert driver.find(sliver) is None


def _inventory(driver: ComputeDriver) -> tuple[HostInventory, ...]:
    try:
        return driver.inventory()
    except Denied as error:  # a cloud shows its workers to administrators alone
        pytest.skip(str(error))


def _found(driver: ComputeDriver, sliver: str) -> Server:
    found = driver.find(sliver)
    assert found
    return found


def _state(driver: ComputeDriver, sliver: str) -> State:
    found = driver.find(sliver)
    return found.state if found else State.ABSENT


def _is_resized(driver: ComputeDriver, sliver: str, stamp: Stamp) -> None:
    found = driver.find(sliver)
    assert found
    assert (found.stamp, found.state) == (stamp, State.RUNNING)
    assert found.cores >= LARGER.core
    assert found.ram >= LARGER.ram * 1024
