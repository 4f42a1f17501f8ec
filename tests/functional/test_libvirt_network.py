"""Networks and ports on real libvirt and dnsmasq, with DHCP clients in network namespaces."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Interface
from pathlib import Path

import libvirt
import pytest
from pyroute2 import IPRoute

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.errors import (
    Conflict,
    InvalidSliver,
    NotFound,
    NotOurs,
    PoolExhausted,
)
from fabric_direct.model import VNicInterface
from fabric_direct.site.config import Site
from tests.functional.apart import BRIDGE, NUMBER, TAG, subnet
from tests.limits import PATIENT

ANY = VNicInterface()

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root")


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def site(connection: libvirt.virConnect, tmp_path: Path) -> Iterator[Site]:
    one, two, small, routed, bridged = (subnet(second) for second in range(201, 206))
    site = Site.model_validate(
        {
            "site": f"{TAG}-nets",
            "state_dir": tmp_path / "state",
            "limits": PATIENT,
            "networks": {
                "one": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{one}.0/24",
                    "subnet6": f"fd0f:d:{NUMBER + 1:x}::/64",
                    "forward": "open",
                },
                "two": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{two}.0/24",
                    "gateway": f"{two}.254",
                    "dns": [f"{two}.253"],
                    "forward": "open",
                },
                "small": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{small}.0/24",
                    "pool": [f"{small}.10", f"{small}.10"],
                },
                "routed": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{routed}.0/24",
                    "forward": "route",
                },
                "bridged": {
                    "strategy": "flat",
                    "bridge": f"{BRIDGE}bridged",
                    "subnet": f"{bridged}.0/24",
                    "gateway": f"{bridged}.1",
                },
            },
        }
    )
    yield site
    for network in connection.listAllNetworks():
        if network.name().startswith(f"fd-{site.site}-"):
            if network.isActive():
                network.destroy()
            network.undefine()


@pytest.fixture
def driver(site: Site) -> LibvirtNetwork:
    return LibvirtNetwork(site, "localhost")


@pytest.fixture
def networks(connection: libvirt.virConnect, site: Site) -> Callable[[], set[str]]:
    """The names of the site's networks at libvirt."""
    prefix = f"fd-{site.site}-"
    return lambda: {
        n.name().removeprefix(prefix)
        for n in connection.listAllNetworks()
        if n.name().startswith(prefix)
    }


class Guest:
    """A namespace with one NIC, plugged into a bridge."""

    def __init__(self, bridge: str, mac: str) -> None:
        self.name = f"fdt{secrets.token_hex(4)}"
        self.nic, tap = f"{self.name}g", f"{self.name}h"
        run("ip", "netns", "add", self.name)
        peer = ("peer", "name", self.nic, "address", mac, "netns", self.name)
        run("ip", "link", "add", tap, "type", "veth", *peer)
        run("ip", "link", "set", tap, "master", bridge, "up")
        run("ip", "-n", self.name, "link", "set", self.nic, "up")

    def dhcp(self, script: Path) -> dict[str, str]:
        """Ask for an address, and return what dnsmasq said as udhcpc's variables."""
        udhcpc = ("busybox", "udhcpc", "-i", self.nic, "-q", "-n", "-f", "-t", "60", "-T", "1")
        out = run("ip", "netns", "exec", self.name, *udhcpc, "-s", str(script))
        bound = next(line for line in out.splitlines() if line.startswith("bound "))
        return dict(word.split("=") for word in bound.removeprefix("bound ").split("|"))

    def addresses6(self) -> str:
        return run("ip", "-n", self.name, "-6", "addr", "show", "dev", self.nic, "scope", "global")


@pytest.fixture
def plug(connection: libvirt.virConnect) -> Iterator[Callable[[Port], Guest]]:
    guests = []

    def plug(port: Port) -> Guest:
        bridge = connection.networkLookupByName(port.source).bridgeName()
        guests.append(Guest(bridge, port.mac))
        return guests[-1]

    yield plug
    for guest in guests:
        run("ip", "netns", "del", guest.name)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """What udhcpc calls: it prints what dnsmasq said."""
    if not shutil.which("busybox") or "udhcpc" not in run("busybox", "--list").split():
        pytest.skip("no udhcpc here: apt install busybox-static")
    path = tmp_path / "told"
    path.write_text('#!/bin/sh\necho "$1 ip=$ip|mask=$mask|router=$router|dns=$dns"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def bridge(site: Site) -> Iterator[str]:
    name = site.networks["bridged"].bridge
    run("ip", "link", "add", name, "type", "bridge")
    yield name
    run("ip", "link", "del", name)


def in_new_process(site: Site, code: str) -> subprocess.CompletedProcess[str]:
    """Run code that has a ``driver`` for the site."""
    head = (
        "import os, sys\n"
        "from fabric_direct.site.config import Site\n"
        "from fabric_direct.model import VNicInterface\n"
        "from fabric_direct.drivers.libvirt.networks import driver as network, strategies\n"
        "from fabric_direct.drivers.libvirt.networks.address_pools import Pools\n"
        "site = Site.model_validate_json(sys.argv[1])\n"
        "driver = network.LibvirtNetwork(site, 'localhost')\n"
    )
    argv = (sys.executable, "-c", head + code, site.model_dump_json())
    return subprocess.run(argv, check=False, capture_output=True, text=True)


def wait_for_lease(connection: libvirt.virConnect, port: Port) -> libvirt.virNetwork:
    """Block until the lease is written: dnsmasq has a helper do that after it has told the guest."""
    network = connection.networkLookupByName(port.source)
    wait_until("the lease", lambda: bool(network.DHCPLeases(port.mac)), timeout=60)
    return network


# --- the life of a network


def test_a_network_is_made_with_its_first_port_and_goes_with_its_last(driver, networks):
    assert networks() == set()
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    driver.create_port("fdtest-b", "nic1", "one", ANY)
    assert networks() == {"one"}
    driver.delete_port("fdtest-a", "nic1")
    assert networks() == {"one"}
    driver.delete_port("fdtest-b", "nic1")
    assert networks() == set()


def test_a_network_starts_with_its_host(driver, connection):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    assert connection.networkLookupByName(port.source).autostart()


def test_the_bridge_and_the_files_of_dnsmasq_go_with_the_network(driver, connection):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    bridge = connection.networkLookupByName(port.source).bridgeName()
    driver.delete_port("fdtest-a", "nic1")
    with IPRoute() as ip:
        assert not ip.link_lookup(ifname=bridge)
    left = [p.name for p in Path("/var/lib/libvirt/dnsmasq").glob("*")]
    assert not [name for name in left if port.source in name or bridge in name]


def test_two_networks_have_their_own_addresses(driver, site, networks):
    ports = [driver.create_port("fdtest-a", f"nic-{n}", n, ANY) for n in ("one", "two")]
    assert networks() == {"one", "two"}
    for port in ports:
        assert port.ipv4 in site.networks[port.network].subnet


def test_a_port_made_twice_is_the_same_port(driver):
    first = driver.create_port("fdtest-a", "nic1", "one", ANY)
    assert driver.create_port("fdtest-a", "nic1", "one", ANY) == first
    assert driver.find_port("fdtest-a", "nic1") == first
    assert driver.ports("fdtest-a") == (first,)


def test_a_port_deleted_twice_is_gone(driver):
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    driver.delete_port("fdtest-a", "nic1")
    driver.delete_port("fdtest-a", "nic1")
    assert driver.find_port("fdtest-a", "nic1") is None
    assert driver.leftovers("fdtest-a") == ()


def test_a_port_of_a_network_that_site_yaml_no_longer_has_can_be_deleted(driver, site, networks):
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    later = LibvirtNetwork(site.model_copy(update={"networks": {}}), "localhost")
    assert [p.component for p in later.ports("fdtest-a")] == ["nic1"]
    later.delete_port("fdtest-a", "nic1")
    assert networks() == set()


# --- what guests get


def test_dnsmasq_gives_exactly_the_address_that_is_held(driver, plug, script):
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    port = driver.create_port("fdtest-b", "nic1", "one", ANY)
    told = plug(port).dhcp(script)
    assert IPv4Interface(f"{told['ip']}/{told['mask']}") == port.ipv4
    assert told["router"] == port.gateway


def test_dnsmasq_gives_an_address_that_was_asked_for(driver, site, plug, script):
    asked = IPv4Interface((site.networks["one"].subnet[77], 24))
    port = driver.create_port("fdtest-a", "nic1", "one", VNicInterface(ipv4=asked))
    assert plug(port).dhcp(script)["ip"] == str(asked.ip)


def test_the_router_and_dns_servers_of_site_yaml_are_handed_out(driver, site, plug, script):
    settings = site.networks["two"]
    told = plug(driver.create_port("fdtest-a", "nic1", "two", ANY)).dhcp(script)
    assert told["router"] == str(settings.gateway)
    assert told["dns"] == str(settings.dns[0])


def test_a_network_with_the_firewall_rules_of_libvirt_serves_its_guests(driver, plug, script):
    port = driver.create_port("fdtest-a", "nic1", "routed", ANY)
    told = plug(port).dhcp(script)
    assert (told["ip"], told["router"]) == (str(port.ipv4.ip), port.gateway)


def test_a_network_that_leads_nowhere_hands_out_no_router(driver, plug, script):
    assert plug(driver.create_port("fdtest-a", "nic1", "small", ANY)).dhcp(script)["router"] == ""


def test_a_guest_configures_itself_with_the_ipv6_address_that_is_held(driver, plug):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    guest = plug(port)
    wait_until("an address", lambda: str(port.ipv6) in guest.addresses6(), timeout=60)


def test_what_is_left_of_a_port_is_named(driver, connection, plug, script):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    plug(port).dhcp(script)
    wait_for_lease(connection, port)
    names = driver.leftovers("fdtest-a")
    assert [name.split(" of ")[0].split(" fdtest")[0] for name in names] == [
        "port",
        "DHCP entry",
        "DHCP lease",
    ]


def test_no_lease_is_left_of_a_port_whose_network_stays(driver, connection, plug, script):
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    port = driver.create_port("fdtest-b", "nic1", "one", ANY)
    plug(port).dhcp(script)
    network = wait_for_lease(connection, port)
    driver.delete_port("fdtest-b", "nic1")
    assert not network.DHCPLeases(port.mac)
    assert port.mac not in network.XMLDesc(0)
    assert driver.leftovers("fdtest-b") == ()


def test_an_address_that_was_given_up_is_served_to_its_next_holder(driver, plug, script):
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    before = driver.create_port("fdtest-b", "nic1", "one", ANY)
    plug(before).dhcp(script)
    driver.delete_port("fdtest-b", "nic1")
    after = driver.create_port("fdtest-c", "nic1", "one", ANY)
    assert after.ipv4 == before.ipv4
    assert plug(after).dhcp(script)["ip"] == str(after.ipv4.ip)


def test_a_lease_that_nobody_ended_does_not_stand_in_the_way(driver, connection, plug, script):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    network = connection.networkLookupByName(port.source)
    other = f"<host mac='52:54:00:00:00:99' ip='{port.ipv4.ip + 1}'/>"
    section = libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
    network.update(libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, section, 0, other, 3)
    stale = Port("", "", "one", port.source, "52:54:00:00:00:99")
    assert plug(stale).dhcp(script)["ip"] == str(port.ipv4.ip + 1)
    wait_for_lease(connection, stale)
    network.update(libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, section, 0, other, 3)
    after = driver.create_port("fdtest-b", "nic1", "one", ANY)
    assert after.ipv4.ip == port.ipv4.ip + 1
    assert plug(after).dhcp(script)["ip"] == str(after.ipv4.ip)


# --- many at once


def test_eight_threads_never_get_the_same_address(driver, networks):
    slivers = [f"fdtest-{n}" for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(lambda s: driver.create_port(s, "nic1", "two", ANY), slivers))
    assert len({p.ipv4 for p in ports}) == len({p.mac for p in ports}) == len(slivers)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda s: driver.delete_port(s, "nic1"), slivers))
    assert networks() == set()


def test_two_processes_never_get_the_same_address(driver, site):
    code = (
        "for n in range(4):\n"
        "    sliver = f'fdtest-{os.getpid()}-{n}'\n"
        "    print(driver.create_port(sliver, 'nic1', 'one', VNicInterface()).ipv4)\n"
    )
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: in_new_process(site, code), range(2)))
    addresses = [line for process in done for line in process.stdout.split()]
    assert len(addresses) == 8, [process.stderr for process in done]
    assert len(set(addresses)) == 8


def test_ports_that_come_while_others_go_have_their_network(driver, networks):
    def come_and_go(sliver: str) -> None:
        driver.create_port(sliver, "nic1", "two", ANY)
        assert driver.find_port(sliver, "nic1") is not None
        driver.delete_port(sliver, "nic1")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, [f"fdtest-{n}" for n in range(8)]))
    assert networks() == set()


def test_a_new_process_knows_the_ports_of_the_last(driver, site):
    process = in_new_process(site, "driver.create_port('fdtest-a', 'nic1', 'one', VNicInterface())")
    assert process.returncode == 0, process.stderr
    port = driver.find_port("fdtest-a", "nic1")
    assert port is not None
    assert driver.create_port("fdtest-b", "nic1", "one", ANY).ipv4 != port.ipv4


# --- what others made


@pytest.fixture
def foreign(connection: libvirt.virConnect, site: Site) -> libvirt.virNetwork:
    xml = f"<network><name>fd-{site.site}-one</name><bridge name='{BRIDGE}foreign'/></network>"
    return connection.networkDefineXML(xml)


def test_a_network_of_its_name_that_is_not_ours_is_not_touched(driver, foreign):
    before = foreign.XMLDesc(0)
    with pytest.raises(NotOurs):
        driver.check("one", ANY)
    with pytest.raises(NotOurs):
        driver.create_port("fdtest-a", "nic1", "one", ANY)
    driver.delete_port("fdtest-a", "nic1")
    assert foreign.XMLDesc(0) == before
    assert driver.leftovers("fdtest-a") == ()


def test_a_bridge_of_its_name_that_is_not_ours_is_not_touched(site, bridge):
    taken = site.networks["one"].model_copy(update={"bridge": bridge})
    driver = LibvirtNetwork(site.model_copy(update={"networks": {"one": taken}}), "localhost")
    with pytest.raises(NotOurs, match=bridge):
        driver.create_port("fdtest-a", "nic1", "one", ANY)
    driver.delete_port("fdtest-a", "nic1")
    with IPRoute() as ip:
        assert ip.link_lookup(ifname=bridge)


def test_a_network_with_entries_that_are_not_in_the_pool_stays(driver, connection, networks):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    other = f"<host mac='52:54:00:00:00:99' ip='{port.ipv4.ip + 1}'/>"
    command, section = 3, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
    connection.networkLookupByName(port.source).update(command, section, 0, other, 3)
    driver.delete_port("fdtest-a", "nic1")
    assert networks() == {"one"}
    assert driver.ports("fdtest-a") == ()


@pytest.fixture
def plugged_domain(driver: LibvirtNetwork, connection: libvirt.virConnect) -> Iterator[Port]:
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    domain = connection.createXML(
        f"<domain type='qemu'><name>{TAG}-plugged</name><memory unit='MiB'>32</memory>"
        "<os><type>hvm</type></os><devices><interface type='network'>"
        f"<mac address='{port.mac}'/><source network='{port.source}'/></interface></devices></domain>",
        libvirt.VIR_DOMAIN_START_PAUSED,
    )
    yield port
    domain.destroy()


def test_a_network_that_a_domain_is_plugged_into_is_not_deleted(driver, plugged_domain, networks):
    with pytest.raises(Conflict, match="1 NICs are plugged into it"):
        driver.delete_port("fdtest-a", "nic1")
    assert networks() == {"one"}
    assert driver.find_port("fdtest-a", "nic1") == plugged_domain


# --- what was interrupted


def test_a_network_that_does_not_run_is_started_again(driver, connection):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    network = connection.networkLookupByName(port.source)
    network.destroy()
    assert driver.find_port("fdtest-a", "nic1") is None
    assert driver.create_port("fdtest-a", "nic1", "one", ANY) == port
    assert network.isActive()


def test_a_network_that_does_not_run_can_be_deleted(driver, connection, networks):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    connection.networkLookupByName(port.source).destroy()
    driver.delete_port("fdtest-a", "nic1")
    assert networks() == set()


@pytest.mark.parametrize("scope", [1, 2, 3], ids=["live", "config", "both"])
def test_an_entry_that_is_missing_is_made_again(driver, connection, scope):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    network = connection.networkLookupByName(port.source)
    entry = f"<host mac='{port.mac}' ip='{port.ipv4.ip}'/>"
    command, section = 2, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
    network.update(command, section, 0, entry, scope)
    assert driver.find_port("fdtest-a", "nic1") is None
    assert driver.create_port("fdtest-a", "nic1", "one", ANY) == port
    assert driver.find_port("fdtest-a", "nic1") == port


@pytest.mark.parametrize(
    "where",
    [
        "strategies.FlatDhcp.make",
        "strategies.FlatDhcp._start",
        "strategies.dnsmasq.set_host",
        "strategies.dnsmasq.release_others",
    ],
)
def test_a_port_whose_making_was_killed_is_completed(driver, site, where):
    code = (
        f"{where} = lambda *a: os.kill(os.getpid(), 9)\n"
        "driver.create_port('fdtest-a', 'nic1', 'one', VNicInterface())\n"
    )
    assert in_new_process(site, code).returncode == -9
    assert [p.component for p in driver.ports("fdtest-a")] == ["nic1"]
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    assert driver.find_port("fdtest-a", "nic1") == port
    driver.delete_port("fdtest-a", "nic1")
    assert driver.leftovers("fdtest-a") == ()


@pytest.mark.parametrize(
    "where", ["strategies.delete_network", "network.vlan.remove_vlans", "Pools.release"]
)
def test_a_port_whose_taking_away_was_killed_is_taken_away(driver, site, networks, where):
    driver.create_port("fdtest-a", "nic1", "one", ANY)
    code = f"{where} = lambda *a, **k: os.kill(os.getpid(), 9)\ndriver.delete_port('fdtest-a', 'nic1')\n"
    assert in_new_process(site, code).returncode == -9
    driver.delete_port("fdtest-a", "nic1")
    assert networks() == set()
    assert driver.leftovers("fdtest-a") == ()


# --- pools


def test_an_exhausted_pool_says_so(driver):
    driver.create_port("fdtest-a", "nic1", "small", ANY)
    with pytest.raises(PoolExhausted, match="small"):
        driver.create_port("fdtest-b", "nic1", "small", ANY)
    assert driver.ports("fdtest-b") == ()


def test_an_address_that_is_taken_is_refused_to_others_alone(driver):
    port = driver.create_port("fdtest-a", "nic1", "one", ANY)
    asked = VNicInterface(ipv4=port.ipv4)
    driver.check("one", asked, "fdtest-a")
    with pytest.raises(InvalidSliver) as refused:
        driver.check("one", asked, "fdtest-b")
    assert refused.value.field == "interface.ipv4"
    with pytest.raises(Conflict):
        driver.create_port("fdtest-b", "nic1", "one", asked)


# --- flat


def test_a_port_on_an_existing_bridge_is_configured_in_the_guest(driver, bridge, networks):
    driver.check("bridged", ANY)
    port = driver.create_port("fdtest-a", "nic1", "bridged", ANY)
    assert (port.source, port.bridge, port.dhcp) == (bridge, True, False)
    assert driver.find_port("fdtest-a", "nic1") == port
    driver.delete_port("fdtest-a", "nic1")
    assert networks() == set()
    with IPRoute() as ip:
        assert ip.link_lookup(ifname=bridge)


def test_a_bridge_that_is_missing_is_named(driver, site):
    name = site.networks["bridged"].bridge
    with pytest.raises(InvalidSliver, match=name) as refused:
        driver.check("bridged", ANY)
    assert refused.value.field == "network"
    with pytest.raises(NotFound, match=name):
        driver.create_port("fdtest-a", "nic1", "bridged", ANY)
