"""Networks and ports on a worker: DHCP clients there, and others behind VLANs of its uplinks' wire."""

import json
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Interface
from typing import Any

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import HostDriver, Port
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.drivers.libvirt.networks.strategies import vlan_stamp
from fabric_direct.drivers.netlink import vlan
from fabric_direct.errors import InvalidSite, InvalidSliver, NotFound, NotOurs
from fabric_direct.model import VNicInterface
from fabric_direct.site.config import Site
from tests.worker.conftest import UPLINKS, Worker

ANY = VNicInterface()
UPLINK, OTHER_END = UPLINKS
BRIDGE = "fdtbridge"
NETWORKS: dict[str, dict[str, Any]] = {
    "one": {"strategy": "flat_dhcp", "subnet": "10.231.10.0/24", "subnet6": "fd0f:e7:10::/64"},
    "bridged": {"strategy": "flat", "subnet": "10.231.20.0/24", "bridge": BRIDGE},
    "red": {"strategy": "vlan", "subnet": "10.231.30.0/24", "uplink": UPLINK, "vlan": 304},
    "blue": {"strategy": "vlan", "subnet": "10.231.40.0/24", "uplink": UPLINK, "vlan": 305},
}
TOLD = '#!/bin/sh\necho "$1 ip=$ip|mask=$mask"\n'

# Emulated as it is, the worker takes seconds for a login, and for a client to get an address.
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
def nothing_left(worker: Worker, unchanged: None) -> Iterator[None]:
    """The worker has the links afterwards that it had before."""
    before = links(worker)
    yield
    wait_until(f"the links {sorted(before)}", lambda: links(worker) == before, timeout=300)


def links(worker: Worker) -> set[str]:
    return {link["ifname"] for link in json.loads(worker.run("ip", "-j", "link", "show"))}


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(networks=NETWORKS)


@pytest.fixture
def kernel(site: Site) -> HostDriver:
    return host_driver(site, "worker1")


@pytest.fixture
def driver(site: Site) -> Iterator[LibvirtNetwork]:
    driver = LibvirtNetwork(site, "worker1")
    yield driver
    for name in "abcd":
        for port in driver.ports(f"fdtest-{name}"):
            driver.delete_port(port.sliver, port.component)


@pytest.fixture
def networks(worker: Worker, site: Site) -> Callable[[], set[str]]:
    """The names of the site's networks at the worker's libvirt."""

    def names() -> set[str]:
        prefix = f"fd-{site.site}-"
        found = {network.name() for network in worker.connection.listAllNetworks()}
        return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}

    return names


class Guest:
    """A network namespace of the worker with one NIC."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.name = worker, f"fdt{secrets.token_hex(4)}"
        self.nic = f"{self.name}g"
        worker.run("ip", "netns", "add", self.name)

    def plug(self, bridge: str, mac: str) -> None:
        """Have the NIC in a bridge, as a domain's would be."""
        peer = ("peer", "name", self.nic, "address", mac, "netns", self.name)
        self.worker.run("ip", "link", "add", f"{self.name}h", "type", "veth", *peer)
        self.worker.run("ip", "link", "set", f"{self.name}h", "master", bridge, "up")
        self._up()

    def tag(self, number: int, mac: str | None = None) -> None:
        """Have the NIC on a VLAN at the other end of the uplinks' wire."""
        address = ("address", mac) if mac else ()
        kind = ("type", "vlan", "id", str(number))
        self.worker.run(
            *("ip", "link", "add", "link", OTHER_END, "name", self.nic, *address, *kind)
        )
        self.worker.run("ip", "link", "set", self.nic, "netns", self.name)
        self._up()

    def _up(self) -> None:
        self.worker.run("ip", "-n", self.name, "link", "set", self.nic, "up")

    def has(self, address: str) -> None:
        """Have an address, unasked."""
        self.worker.run("ip", "-n", self.name, "addr", "add", f"{address}/24", "dev", self.nic)

    def dhcp(self) -> str:
        """Ask for an address, take it, and return it with its mask."""
        script = f"/run/{self.name}"
        self.worker.run("install", "-m", "755", "/dev/stdin", script, stdin=TOLD)
        udhcpc = ("busybox", "udhcpc", "-i", self.nic, "-q", "-n", "-f", "-t", "20", "-T", "2")
        out = self.worker.run("ip", "netns", "exec", self.name, *udhcpc, "-s", script)
        self.worker.run("rm", script)
        bound = next(line for line in out.splitlines() if line.startswith("bound "))
        told = dict(word.split("=") for word in bound.removeprefix("bound ").split("|"))
        self.has(told["ip"])
        return f"{told['ip']}/{told['mask']}"

    def addresses6(self) -> str:
        show = ("-6", "addr", "show", "dev", self.nic, "scope", "global")
        return self.worker.run("ip", "-n", self.name, *show)

    def reaches(self, address: str) -> bool:
        ping = ("busybox", "ping", "-c", "5", "-W", "5", address)
        return self.worker.ask("ip", "netns", "exec", self.name, *ping).returncode == 0


@pytest.fixture
def guest(worker: Worker) -> Iterator[Callable[[], Guest]]:
    guests: list[Guest] = []

    def make() -> Guest:
        guests.append(Guest(worker))
        return guests[-1]

    yield make
    for each in guests:
        worker.run("ip", "netns", "del", each.name)


@pytest.fixture
def plug(worker: Worker, guest: Callable[[], Guest]) -> Callable[[Port], Guest]:
    """Make a guest that has the port."""

    def plug(port: Port) -> Guest:
        plugged = guest()
        plugged.plug(bridge_of(worker, port), port.mac)
        return plugged

    return plug


def network_of(worker: Worker, port: Port) -> libvirt.virNetwork:
    return worker.connection.networkLookupByName(port.source)


def bridge_of(worker: Worker, port: Port) -> str:
    name: str = network_of(worker, port).bridgeName()
    return name


class TestFlatDhcp:
    def test_a_network_is_made_with_its_first_port_and_goes_with_its_last(
        self, driver: LibvirtNetwork, worker: Worker, networks: Callable[[], set[str]]
    ) -> None:
        driver.check("one", ANY, "fdtest-a")
        assert networks() == set()
        port = driver.create_port("fdtest-a", "nic1", "one", ANY)
        driver.create_port("fdtest-b", "nic1", "one", ANY)
        assert networks() == {"one"}
        assert bridge_of(worker, port) in links(worker)
        assert driver.find_port("fdtest-a", "nic1") == port
        driver.delete_port("fdtest-a", "nic1")
        assert networks() == {"one"}
        driver.delete_port("fdtest-b", "nic1")
        assert networks() == set()

    def test_a_guest_gets_exactly_the_addresses_that_are_held(
        self, driver: LibvirtNetwork, plug: Callable[[Port], Guest]
    ) -> None:
        driver.create_port("fdtest-a", "nic1", "one", ANY)
        port = driver.create_port("fdtest-b", "nic1", "one", ANY)
        plugged = plug(port)
        assert IPv4Interface(plugged.dhcp()) == port.ipv4
        wait_until("IPv6", lambda: str(port.ipv6) in plugged.addresses6(), timeout=300)

    def test_a_lease_is_ended_there_when_its_port_goes(
        self, driver: LibvirtNetwork, worker: Worker, plug: Callable[[Port], Guest]
    ) -> None:
        driver.create_port("fdtest-a", "nic1", "one", ANY)
        before = driver.create_port("fdtest-b", "nic1", "one", ANY)
        plug(before).dhcp()
        network = network_of(worker, before)
        wait_until("the lease", lambda: bool(network.DHCPLeases(before.mac)), timeout=300)
        kinds = [name.split(" of ")[0].split(" fdtest")[0] for name in driver.leftovers("fdtest-b")]
        assert kinds == ["port", "DHCP entry", "DHCP lease"]
        driver.delete_port("fdtest-b", "nic1")
        assert not network.DHCPLeases(before.mac)
        assert driver.leftovers("fdtest-b") == ()
        after = driver.create_port("fdtest-c", "nic1", "one", ANY)
        assert after.ipv4 == before.ipv4
        assert IPv4Interface(plug(after).dhcp()) == after.ipv4

    def test_a_lease_that_nobody_ended_does_not_stand_in_the_way(
        self,
        driver: LibvirtNetwork,
        worker: Worker,
        guest: Callable[[], Guest],
        plug: Callable[[Port], Guest],
    ) -> None:
        port = driver.create_port("fdtest-a", "nic1", "one", ANY)
        assert port.ipv4
        network, mac = network_of(worker, port), "52:54:00:00:00:99"
        entry = f"<host mac='{mac}' ip='{port.ipv4.ip + 1}'/>"
        section = libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
        network.update(libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, section, 0, entry, 3)
        stale = guest()
        stale.plug(network.bridgeName(), mac)
        stale.dhcp()
        wait_until("the lease", lambda: bool(network.DHCPLeases(mac)), timeout=300)
        network.update(libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, section, 0, entry, 3)
        after = driver.create_port("fdtest-b", "nic1", "one", ANY)
        assert not network.DHCPLeases(mac)
        assert after.ipv4
        assert after.ipv4.ip == port.ipv4.ip + 1
        assert IPv4Interface(plug(after).dhcp()) == after.ipv4

    def test_a_bridge_of_its_name_that_is_not_ours_is_not_touched(
        self, site: Site, worker: Worker
    ) -> None:
        one = site.networks["one"].model_copy(update={"bridge": BRIDGE})
        driver = LibvirtNetwork(site.model_copy(update={"networks": {"one": one}}), "worker1")
        worker.run("ip", "link", "add", BRIDGE, "type", "bridge")
        try:
            with pytest.raises(NotOurs, match=rf"\(worker1\).*{BRIDGE}"):
                driver.create_port("fdtest-a", "nic1", "one", ANY)
            driver.delete_port("fdtest-a", "nic1")
            assert BRIDGE in links(worker)
        finally:
            worker.run("ip", "link", "del", BRIDGE)

    def test_ports_that_come_while_others_go_have_their_network(
        self, driver: LibvirtNetwork, networks: Callable[[], set[str]]
    ) -> None:
        def come_and_go(sliver: str) -> Port:
            port = driver.create_port(sliver, "nic1", "one", ANY)
            assert driver.find_port(sliver, "nic1") == port
            driver.delete_port(sliver, "nic1")
            return port

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(come_and_go, [f"fdtest-{name}" for name in "abcd"]))
        assert networks() == set()


class TestFlat:
    def test_a_bridge_that_is_there_is_used_and_stays(
        self, driver: LibvirtNetwork, worker: Worker, networks: Callable[[], set[str]]
    ) -> None:
        worker.run("ip", "link", "add", BRIDGE, "type", "bridge")
        try:
            driver.check("bridged", ANY)
            port = driver.create_port("fdtest-a", "nic1", "bridged", ANY)
            assert (port.source, port.bridge, port.dhcp) == (BRIDGE, True, False)
            assert driver.find_port("fdtest-a", "nic1") == port
            driver.delete_port("fdtest-a", "nic1")
            assert networks() == set()
            assert BRIDGE in links(worker)
        finally:
            worker.run("ip", "link", "del", BRIDGE)

    def test_a_bridge_that_is_missing_is_named_with_its_host(self, driver: LibvirtNetwork) -> None:
        with pytest.raises(InvalidSliver, match=rf"\(worker1\).*no bridge {BRIDGE}") as refused:
            driver.check("bridged", ANY)
        assert refused.value.field == "network"
        with pytest.raises(NotFound, match=rf"\(worker1\).*no bridge {BRIDGE}"):
            driver.create_port("fdtest-a", "nic1", "bridged", ANY)


class TestVlan:
    @pytest.fixture
    def wire(self, worker: Worker, nothing_left: None) -> Iterator[None]:
        """The uplinks as they are without VFs: QEMU's igb that has some drops what is tagged."""
        for address in UPLINKS.values():
            worker.write(f"/sys/bus/pci/devices/{address}/sriov_numvfs", "0")
        yield
        worker.run("lab-devices")

    @pytest.fixture
    def red(self, driver: LibvirtNetwork, plug: Callable[[Port], Guest]) -> Guest:
        """A guest on VLAN 304 of the uplink."""
        plugged = plug(driver.create_port("fdtest-a", "nic1", "red", ANY))
        plugged.dhcp()
        return plugged

    def test_guests_of_one_vlan_reach_each_other(
        self, driver: LibvirtNetwork, plug: Callable[[Port], Guest], red: Guest
    ) -> None:
        other = driver.create_port("fdtest-b", "nic1", "red", ANY)
        assert other.ipv4
        plug(other).dhcp()
        assert red.reaches(str(other.ipv4.ip))

    def test_others_on_the_wire_are_reached_by_the_same_vlan_and_by_no_other(
        self,
        wire: None,
        driver: LibvirtNetwork,
        guest: Callable[[], Guest],
        plug: Callable[[Port], Guest],
        red: Guest,
    ) -> None:
        same, another = guest(), guest()
        same.tag(304)
        same.has("10.231.30.201")
        another.tag(305)
        another.has("10.231.30.202")
        blue = plug(driver.create_port("fdtest-b", "nic1", "blue", ANY))
        blue.has("10.231.30.203")
        assert red.reaches("10.231.30.201")
        assert blue.reaches("10.231.30.202")
        assert not red.reaches("10.231.30.202")
        assert not red.reaches("10.231.30.203")
        assert not blue.reaches("10.231.30.201")

    def test_one_on_the_wire_gets_the_address_that_is_held_for_it(
        self, wire: None, driver: LibvirtNetwork, guest: Callable[[], Guest]
    ) -> None:
        port = driver.create_port("fdtest-a", "nic1", "red", ANY)
        far = guest()
        far.tag(304, port.mac)
        assert IPv4Interface(far.dhcp()) == port.ipv4

    def test_the_vlan_interface_goes_with_its_network(
        self, driver: LibvirtNetwork, site: Site, kernel: HostDriver, worker: Worker
    ) -> None:
        stamp = vlan_stamp(site.site, "red")
        driver.create_port("fdtest-a", "nic1", "red", ANY)
        driver.create_port("fdtest-b", "nic1", "blue", ANY)
        assert vlan.vlans(stamp, host=kernel) == (f"{UPLINK}.304",)
        assert {f"{UPLINK}.304", f"{UPLINK}.305"} <= links(worker)
        driver.delete_port("fdtest-a", "nic1")
        assert vlan.vlans(stamp, host=kernel) == ()
        assert f"{UPLINK}.305" in links(worker)

    def test_what_is_missing_of_it_is_made_again(
        self, driver: LibvirtNetwork, worker: Worker
    ) -> None:
        port = driver.create_port("fdtest-a", "nic1", "red", ANY)
        worker.run("ip", "link", "del", f"{UPLINK}.304")
        assert driver.find_port("fdtest-a", "nic1") is None
        assert driver.create_port("fdtest-a", "nic1", "red", ANY) == port
        assert driver.find_port("fdtest-a", "nic1") == port
        network_of(worker, port).destroy()
        assert driver.find_port("fdtest-a", "nic1") is None
        assert driver.create_port("fdtest-a", "nic1", "red", ANY) == port
        (shown,) = json.loads(worker.run("ip", "-j", "link", "show", "dev", f"{UPLINK}.304"))
        assert shown["master"] == bridge_of(worker, port)
        assert "UP" in shown["flags"]

    def test_a_vlan_interface_that_is_not_ours_is_not_touched(
        self, driver: LibvirtNetwork, worker: Worker
    ) -> None:
        kind = ("type", "vlan", "id", "304")
        worker.run("ip", "link", "add", "link", UPLINK, "name", "fdtother", *kind)
        try:
            with pytest.raises(NotOurs, match="fdtother"):
                driver.create_port("fdtest-a", "nic1", "red", ANY)
            driver.delete_port("fdtest-a", "nic1")
            assert "fdtother" in links(worker)
        finally:
            worker.run("ip", "link", "del", "fdtother")

    def test_an_uplink_that_is_missing_is_named_with_its_host(self, site: Site) -> None:
        red = site.networks["red"].model_copy(update={"uplink": "fdtest9"})
        driver = LibvirtNetwork(site.model_copy(update={"networks": {"red": red}}), "worker1")
        with pytest.raises(InvalidSliver, match=r"\(worker1\).*no link fdtest9"):
            driver.check("red", ANY)


class TestWithoutLogin:
    @pytest.fixture
    def site(self, make_site: Callable[..., Site]) -> Site:
        return make_site(host={"ssh": None}, networks=NETWORKS)

    @pytest.mark.parametrize("network", NETWORKS)
    def test_a_network_is_refused_and_what_is_missing_is_named(
        self, driver: LibvirtNetwork, networks: Callable[[], set[str]], network: str
    ) -> None:
        with pytest.raises(InvalidSite, match=r"hosts\.worker1\.ssh"):
            driver.check(network, ANY)
        with pytest.raises(InvalidSite, match=r"hosts\.worker1\.ssh"):
            driver.create_port("fdtest-a", "nic1", network, ANY)
        assert networks() == set()

    def test_a_sliver_that_has_nothing_there_can_be_looked_at_and_deleted(
        self, driver: LibvirtNetwork
    ) -> None:
        assert driver.ports("fdtest-a") == ()
        assert driver.leftovers("fdtest-a") == driver.unused() == ()
        assert driver.find_port("fdtest-a", "nic1") is None
        driver.delete_port("fdtest-a", "nic1")
