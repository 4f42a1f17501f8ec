"""What is asked of libvirt and the kernel for each strategy, call by call, without either."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call
from xml.etree import ElementTree

import libvirt
import pytest
from lxml import etree

from fabric_direct.calls.read_cache import reading_once
from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.hosts.ssh import SshHost
from fabric_direct.drivers.libvirt.networks import dnsmasq, strategies
from fabric_direct.drivers.libvirt.networks.address_pools import Pools
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.drivers.netlink.vlan import VlanPort
from fabric_direct.errors import (
    DriverError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
)
from fabric_direct.model import VNicInterface
from fabric_direct.site.config import Host, Site
from fabric_direct.state.file_store import FileStore

SCHEMA = Path("/usr/share/libvirt/schemas/network.rng")
ANY = VNicInterface()
LIVE, CONFIG = libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE, libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
ADD = libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST
DELETE = libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE
HOST = libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"

NETWORKS: dict[str, Any] = {
    "flat": {"strategy": "flat", "bridge": "br0", "subnet": "10.1.0.0/24", "gateway": "10.1.0.1"},
    "dhcp": {"strategy": "flat_dhcp", "subnet": "10.2.0.0/24", "subnet6": "fd02::/64"},
    "routed": {
        "strategy": "flat_dhcp",
        "subnet": "10.3.0.0/24",
        "forward": "route",
        "bridge": "routed0",
        "dns": ["9.9.9.9", "10.3.0.2"],
    },
    "open": {"strategy": "flat_dhcp", "subnet": "10.5.0.0/24", "forward": "open"},
    "vlan": {
        "strategy": "vlan",
        "subnet": "10.4.0.0/24",
        "vlan": 304,
        "uplink": "ens6f1",
        "gateway": "10.4.0.1",
    },
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.model_validate({"site": "RENC", "state_dir": tmp_path, "networks": NETWORKS})


class Libvirt:
    """As much of a libvirt connection as networks need; keeps what it is told."""

    def __init__(self) -> None:
        self.networks: list[Any] = []
        self.calls = MagicMock()
        self.listed = 0

    def listAllNetworks(self) -> list[Any]:  # noqa: N802 - libvirt's name
        self.listed += 1
        return self.networks

    def networkLookupByName(self, name: str) -> Any:  # noqa: N802 - libvirt's name
        return next(n for n in self.networks if n.name() == name)

    def networkDefineXML(self, xml: str) -> Any:  # noqa: N802 - libvirt's name
        self.networks.append(Network(xml, self.calls))
        return self.networks[-1]

    def getURI(self) -> str:  # noqa: N802 - libvirt's name
        return "qemu:///system"


class Network:
    """A libvirt network that has entries for DHCP, for now and for its next start."""

    def __init__(self, xml: str, calls: MagicMock) -> None:
        self.xml, self.calls = ElementTree.fromstring(xml), calls
        self.active, self.connections = 0, "0"
        self.hosts: dict[int, dict[str, str]] = {LIVE: {}, CONFIG: {}}
        self.setAutostart = calls.setAutostart
        self.destroy, self.undefine = calls.destroy, calls.undefine

    def name(self) -> str:
        return self.xml.findtext("name") or ""

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's name
        return self.xml.findtext("uuid") or ""

    def bridgeName(self) -> str:  # noqa: N802 - libvirt's name
        return self.xml.find("bridge").attrib["name"]

    def isActive(self) -> int:  # noqa: N802 - libvirt's name
        return self.active

    def create(self) -> None:
        self.calls.create()
        self.active, self.hosts[LIVE] = 1, dict(self.hosts[CONFIG])

    def DHCPLeases(self) -> list[dict[str, Any]]:  # noqa: N802 - libvirt's name
        return self.calls.leases()

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - libvirt's name
        xml = ElementTree.fromstring(ElementTree.tostring(self.xml))
        xml.set("connections", self.connections)
        leases = ElementTree.SubElement(xml.find("ip"), "dhcp")
        live = self.active and not flags & libvirt.VIR_NETWORK_XML_INACTIVE
        for mac, ip in self.hosts[LIVE if live else CONFIG].items():
            ElementTree.SubElement(leases, "host", mac=mac, ip=ip)
        return ElementTree.tostring(xml, encoding="unicode")

    def update(self, command: int, section: int, index: int, xml: str, flags: int) -> None:
        self.calls.update(command, section, index, xml, flags)
        host = ElementTree.fromstring(xml)
        for scope in (LIVE, CONFIG):
            if flags & scope and command == ADD:
                self.hosts[scope][host.attrib["mac"]] = host.attrib["ip"]
            elif flags & scope:
                del self.hosts[scope][host.attrib["mac"]]


@pytest.fixture
def api(mocker: Any) -> Libvirt:
    api = Libvirt()
    api.calls.leases.return_value = []
    for module in ("driver", "strategies"):
        mocker.patch(f"fabric_direct.drivers.libvirt.networks.{module}.connect", return_value=api)
    return api


@pytest.fixture
def links(mocker: Any) -> MagicMock:
    """The kernel: bridge br0 and uplink ens6f1 are there, and what is attached is attached."""
    links = MagicMock()
    links.is_bridge.side_effect = lambda name, host: name == "br0"
    links.link_exists.side_effect = lambda name, host: name in {"br0", "ens6f1"}
    for name in ("is_bridge", "link_exists", "attach_vlan", "vlan_attached", "remove_vlans"):
        mocker.patch(f"fabric_direct.drivers.netlink.vlan.{name}", getattr(links, name))
    return links


@pytest.fixture
def driver(site: Site, api: Libvirt, links: MagicMock) -> LibvirtNetwork:
    return LibvirtNetwork(site, "localhost")


@pytest.fixture
def kernel(site: Site) -> HostDriver:
    """This machine."""
    return host_driver(site, "localhost")


def entry(mac: str, ip: str) -> str:
    return f"<host mac='{mac}' ip='{ip}'/>"


# --- what is defined


@pytest.mark.parametrize("name", ["dhcp", "routed", "vlan"])
def test_what_is_defined_is_what_libvirts_schema_allows(driver, api, name):
    if not SCHEMA.exists():
        pytest.skip(f"libvirt's schemas are not here: {SCHEMA}")
    driver.create_port("s1", "nic1", name, ANY)
    schema = etree.RelaxNG(etree.parse(SCHEMA))
    schema.assertValid(etree.fromstring(ElementTree.tostring(api.networks[0].xml)))


def test_a_network_bears_our_stamp_and_names_that_follow_from_the_sites(driver, api):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    (network,) = api.networks
    stamp = network.xml.find(f"metadata/{{{STAMP_NAMESPACE}}}network")
    assert stamp.attrib == {"site": "RENC", "name": "dhcp"}
    assert network.name() == "fd-RENC-dhcp"
    assert network.UUIDString() == str(strategies.network_uuid("RENC", "dhcp"))
    assert len(network.bridgeName()) <= 15


def test_two_networks_have_two_bridges(driver, api):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    driver.create_port("s1", "nic2", "vlan", ANY)
    assert len({network.bridgeName() for network in api.networks}) == 2


def test_the_host_has_an_address_of_each_family(driver, api):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    addresses = [ip.attrib for ip in api.networks[0].xml.findall("ip")]
    assert addresses == [
        {"family": "ipv4", "address": "10.2.0.1", "prefix": "24"},
        {"family": "ipv6", "address": "fd02::1", "prefix": "64"},
    ]


@pytest.mark.parametrize(
    ("name", "forward", "bridge", "options"),
    [
        ("dhcp", None, None, []),
        (
            "routed",
            "route",
            "routed0",
            [
                "dhcp-option=option:router,10.3.0.1",
                "dhcp-option=option:dns-server,9.9.9.9,10.3.0.2",
            ],
        ),
        ("open", "open", None, ["dhcp-option=option:router,10.5.0.1"]),
        ("vlan", None, None, ["dhcp-option=option:router,10.4.0.1"]),
    ],
)
def test_forwarding_bridge_router_and_dns_are_those_of_site_yaml(
    driver, api, name, forward, bridge, options
):
    port = driver.create_port("s1", "nic1", name, ANY)
    xml = api.networks[0].xml
    found = xml.find("forward")
    assert (found.get("mode") if found is not None else None) == forward
    assert api.networks[0].bridgeName() == (bridge or strategies.vlan.short_name(port.source))
    tag = "{http://libvirt.org/schemas/network/dnsmasq/1.0}option"
    assert [option.get("value") for option in xml.iter(tag)] == options


# --- what is called


def test_a_first_port_defines_fills_and_starts_its_network(driver, api):
    port = driver.create_port("s1", "nic1", "dhcp", VNicInterface(mac=MAC))
    assert api.calls.mock_calls == [
        call.setAutostart(1),
        call.update(ADD, HOST, 0, entry(MAC, str(port.ipv4.ip)), CONFIG),
        call.create(),
        call.leases(),
    ]


def test_a_second_port_is_added_to_the_network_that_runs(driver, api):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    api.calls.reset_mock()
    port = driver.create_port("s2", "nic1", "dhcp", VNicInterface(mac=MAC))
    assert api.calls.update.mock_calls == [
        call(ADD, HOST, 0, entry(MAC, str(port.ipv4.ip)), LIVE | CONFIG)
    ]
    assert not api.calls.create.called


def test_a_port_that_is_complete_costs_no_change(driver, api):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    api.calls.reset_mock()
    driver.create_port("s1", "nic1", "dhcp", ANY)
    assert not api.calls.update.called
    assert not api.calls.create.called


def test_a_last_port_takes_its_network_along(driver, api, links, kernel):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    api.calls.reset_mock()
    driver.delete_port("s1", "nic1")
    assert api.calls.mock_calls == [call.destroy(), call.undefine()]
    links.remove_vlans.assert_called_once_with("fabric-direct RENC/dhcp", host=kernel)


def test_another_port_leaves_the_network_to_the_rest(driver, api, links):
    driver.create_port("s1", "nic1", "dhcp", ANY)
    port = driver.create_port("s2", "nic1", "dhcp", VNicInterface(mac=MAC))
    api.calls.reset_mock()
    driver.delete_port("s2", "nic1")
    assert api.calls.update.mock_calls == [
        call(DELETE, HOST, 0, entry(MAC, str(port.ipv4.ip)), LIVE | CONFIG)
    ]
    assert not api.calls.destroy.called
    assert not links.remove_vlans.called


def test_a_vlan_is_attached_to_the_bridge_that_libvirt_made(driver, api, links, kernel):
    driver.create_port("s1", "nic1", "vlan", ANY)
    bridge, stamp = api.networks[0].bridgeName(), "fabric-direct RENC/vlan"
    port = VlanPort("ens6f1", 304, bridge, stamp)
    links.attach_vlan.assert_called_once_with(port, host=kernel)
    links.vlan_attached.assert_called_with(port, host=kernel)


def test_a_port_whose_vlan_is_gone_is_not_all_there(driver, links):
    driver.create_port("s1", "nic1", "vlan", ANY)
    links.vlan_attached.return_value = False
    assert driver.find_port("s1", "nic1") is None


def test_a_vlan_goes_before_its_bridge(driver, api, links, kernel):
    driver.create_port("s1", "nic1", "vlan", ANY)
    links.attach_mock(api.calls, "libvirt")
    links.reset_mock()
    driver.delete_port("s1", "nic1")
    assert links.mock_calls == [
        call.remove_vlans("fabric-direct RENC/vlan", host=kernel),
        call.libvirt.destroy(),
        call.libvirt.undefine(),
    ]


def test_a_flat_port_makes_nothing(driver, api):
    port = driver.create_port("s1", "nic1", "flat", ANY)
    assert (port.source, port.bridge, port.dhcp, port.gateway) == ("br0", True, False, "10.1.0.1")
    driver.delete_port("s1", "nic1")
    assert api.networks == api.calls.mock_calls == []


def test_libvirt_that_does_not_keep_an_entry_is_not_a_success(driver, mocker):
    mocker.patch.object(dnsmasq, "set_host")
    with pytest.raises(NotVerified, match="does not serve s1/nic1"):
        driver.create_port("s1", "nic1", "dhcp", ANY)


def test_what_libvirt_refuses_is_told_in_its_words(driver, api):
    error = libvirt.libvirtError("internal error: no dnsmasq")
    error.err = (1, libvirt.VIR_FROM_NETWORK, "internal error: no dnsmasq")
    api.calls.create.side_effect = error
    with pytest.raises(DriverError, match=r"cannot make a port on dhcp.*no dnsmasq") as refused:
        driver.create_port("s1", "nic1", "dhcp", ANY)
    assert refused.value.__cause__ is error


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        "failed to find list of interfaces: No such device",
        "failed to create listening socket for 10.20.1.1: Address already in use",
    ],
)
def test_a_network_is_started_again_if_what_stops_dnsmasq_passes(
    driver, api, monkeypatch, said, made
):
    monkeypatch.setattr(strategies, "_STARTED", 60 if made else 0)
    words = f"internal error: … dnsmasq: {said}"
    error = libvirt.libvirtError(words)
    error.err = (1, libvirt.VIR_FROM_NETWORK, words)
    api.calls.create.side_effect = [*[error] * 2, None]
    if made:
        driver.create_port("s1", "nic1", "dhcp", ANY)
    else:
        with pytest.raises(DriverError, match=said):
            driver.create_port("s1", "nic1", "dhcp", ANY)
    assert api.networks[0].active == made


# --- entries and leases


@pytest.fixture
def network() -> Network:
    xml = "<network><name>n</name><bridge name='br'/><ip address='10.2.0.1'/></network>"
    network = Network(xml, MagicMock())
    network.calls.leases.return_value = []
    network.active = 1
    return network


def test_an_entry_is_added_only_where_it_is_missing(network):
    network.hosts = {LIVE: {MAC: "10.2.0.5"}, CONFIG: {}}
    dnsmasq.set_host(network, MAC, "10.2.0.5")
    network.calls.update.assert_called_once_with(ADD, HOST, 0, entry(MAC, "10.2.0.5"), CONFIG)


def test_an_entry_of_another_address_is_replaced(network):
    network.hosts = {LIVE: {MAC: "10.2.0.6"}, CONFIG: {MAC: "10.2.0.6"}}
    dnsmasq.set_host(network, MAC, "10.2.0.5")
    assert network.calls.update.mock_calls == [
        call(DELETE, HOST, 0, entry(MAC, "10.2.0.6"), LIVE | CONFIG),
        call(ADD, HOST, 0, entry(MAC, "10.2.0.5"), LIVE | CONFIG),
    ]


def test_entries_of_others_are_left_alone(network):
    network.hosts = {LIVE: {OTHER: "10.2.0.6"}, CONFIG: {OTHER: "10.2.0.6"}}
    dnsmasq.remove_host(network, MAC)
    assert not network.calls.update.called


def test_a_network_that_does_not_run_gets_its_entry_for_its_start(network):
    network.active = 0
    dnsmasq.set_host(network, MAC, "10.2.0.5")
    network.calls.update.assert_called_once_with(ADD, HOST, 0, entry(MAC, "10.2.0.5"), CONFIG)


@pytest.fixture
def sent(mocker: Any) -> MagicMock:
    return mocker.patch("socket.socket").return_value.__enter__.return_value


def test_a_lease_is_ended_by_the_message_of_its_client(network, sent, kernel):
    network.calls.leases.side_effect = [[{"mac": MAC, "ipaddr": "10.2.0.5"}], []]
    dnsmasq.release(network, MAC, kernel)
    sent.setsockopt.assert_called_once_with(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"br")
    ((message, to),) = [c.args for c in sent.sendto.mock_calls]
    assert to == ("10.2.0.1", 67)
    assert message[:4] == b"\x01\x01\x06\x00"  # BOOTREQUEST, Ethernet
    assert message[12:16] == bytes((10, 2, 0, 5))  # ciaddr
    assert message[28:34] == bytes.fromhex(MAC.replace(":", ""))  # chaddr
    # DHCPRELEASE to the server, and nothing of the client's id: dnsmasq then goes by the MAC.
    assert message[236:] == bytes.fromhex("6382536335010736040a020001ff")


def test_a_lease_that_is_not_written_down_yet_is_ended_by_the_address_of_its_entry(
    network, sent, kernel
):
    network.hosts = {LIVE: {MAC: "10.2.0.5"}, CONFIG: {MAC: "10.2.0.5"}}
    network.calls.leases.return_value = []
    dnsmasq.release(network, MAC, kernel)
    ((message, _),) = [c.args for c in sent.sendto.mock_calls]
    assert message[12:16] == bytes((10, 2, 0, 5))


def test_a_network_that_lost_its_bridge_has_no_lease_to_end(network, kernel):
    network.hosts = {LIVE: {MAC: "10.2.0.5"}, CONFIG: {MAC: "10.2.0.5"}}
    network.calls.leases.return_value = []
    network.xml.find("bridge").set("name", "fdtest-nowhere")
    dnsmasq.release(network, MAC, kernel)


def test_the_leases_of_others_are_not_ended(network, sent, kernel):
    network.calls.leases.return_value = [{"mac": OTHER, "ipaddr": "10.2.0.6"}]
    dnsmasq.release(network, MAC, kernel)
    dnsmasq.release_others(network, MAC, "10.2.0.5", kernel)
    assert not sent.sendto.called


def test_a_stale_lease_of_an_address_is_ended_for_its_new_holder(network, sent, kernel):
    stale = {"mac": OTHER, "ipaddr": "10.2.0.5"}
    network.calls.leases.side_effect = [[stale], []]
    dnsmasq.release_others(network, MAC, "10.2.0.5", kernel)
    assert sent.sendto.call_count == 1


def test_a_message_that_cannot_be_sent_is_an_error_of_the_host(network, kernel):
    network.calls.leases.return_value = [{"mac": MAC, "ipaddr": "10.2.0.5"}]
    network.xml.find("bridge").set("name", "fdtest-nowhere")
    with pytest.raises(NotFound, match=r"localhost.*ENODEV"):
        dnsmasq.release(network, MAC, kernel)


# --- what is refused


@pytest.mark.parametrize(
    ("network", "asked", "field"),
    [
        ("nowhere", {}, "network"),
        ("dhcp", {"ipv4": "10.9.0.5/24"}, "interface.ipv4"),
        ("dhcp", {"ipv4": "10.2.0.1/24"}, "interface.ipv4"),
        ("dhcp", {"ipv6": "fd09::5/64"}, "interface.ipv6"),
        ("flat", {"ipv6": "fd09::5/64"}, "interface.ipv6"),
    ],
)
def test_what_a_network_cannot_serve_is_refused_before_anything_is_touched(
    driver, api, site, network, asked, field
):
    for refuse in (driver.check, lambda n, i: driver.create_port("s1", "nic1", n, i)):
        with pytest.raises(InvalidSliver) as refused:
            refuse(network, VNicInterface(**asked))
        assert refused.value.field == field
    assert api.networks == api.calls.mock_calls == []
    assert list(site.state_dir.iterdir()) == []


@pytest.mark.parametrize(("network", "missing"), [("flat", "br0"), ("vlan", "ens6f1")])
def test_a_network_whose_host_lacks_what_it_is_built_on_is_refused(driver, links, network, missing):
    links.is_bridge.side_effect = links.link_exists.side_effect = lambda _, host: False
    with pytest.raises(InvalidSliver, match=rf"\(localhost\).*{missing}") as refused:
        driver.check(network, ANY)
    assert refused.value.field == "network"


@pytest.mark.parametrize("network", ["flat", "dhcp", "routed", "vlan"])
def test_a_network_that_can_serve_is_not_changed_by_the_question(driver, api, site, network):
    driver.check(network, ANY, "s1")
    assert api.networks == api.calls.mock_calls == []
    assert list(site.state_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("uuid", "why"),
    [("", "name"), (str(strategies.network_uuid("RENC", "dhcp")), "uuid without a stamp")],
)
def test_a_network_without_our_stamp_is_not_ours(driver, api, uuid, why):
    xml = f"<network><name>fd-RENC-dhcp</name><uuid>{uuid}</uuid><bridge name='b'/><ip/></network>"
    api.networkDefineXML(xml)
    with pytest.raises(NotOurs, match="fd-RENC-dhcp"):
        driver.create_port("s1", "nic1", "dhcp", ANY)
    driver.delete_port("s1", "nic1")
    assert api.calls.mock_calls == []


# --- a worker that is another machine


@pytest.fixture
def make_remote(site: Site, api: Libvirt, links: MagicMock) -> Callable[..., LibvirtNetwork]:
    """Make a driver for a host whose libvirt is another machine's."""

    def make(**host: Any) -> LibvirtNetwork:
        w1 = Host.model_validate({"libvirt": "qemu+tls://w1/system", **host})
        return LibvirtNetwork(site.model_copy(update={"hosts": {"w1": w1}}), "w1")

    return make


def test_bridges_vlans_and_leases_are_those_of_the_machine_that_is_logged_in_to(
    make_remote, api, links, mocker
):
    sent = mocker.patch.object(SshHost, "call", autospec=True)
    driver = make_remote(ssh="ssh://root@w1")
    driver.check("vlan", ANY)
    driver.create_port("s1", "nic1", "flat", ANY)
    driver.create_port("s1", "nic2", "vlan", VNicInterface(mac=MAC))
    driver.create_port("s2", "nic1", "vlan", ANY)
    driver.delete_port("s1", "nic2")
    driver.delete_port("s2", "nic1")
    hosts = {c.kwargs["host"] for c in links.method_calls}
    assert [type(host) for host in hosts] == [SshHost]
    (release,) = sent.mock_calls
    assert release.args == (hosts.pop(), "datagrams.send")
    assert release.kwargs["link"] == api.networks[0].bridgeName()


def test_a_machine_that_nobody_can_log_in_to_is_refused_and_what_is_missing_is_named(
    make_remote, api, site
):
    driver = make_remote()
    for refuse in (driver.check, lambda n, i: driver.create_port("s1", "nic1", n, i)):
        for network in NETWORKS:
            with pytest.raises(InvalidSite, match=r"on another machine.*hosts\.w1\.ssh"):
                refuse(network, ANY)
    assert api.networks == api.calls.mock_calls == []
    assert list(site.state_dir.iterdir()) == []


def test_of_a_sliver_that_has_nothing_there_all_is_told_without_asking_the_machine(
    make_remote, mocker
):
    connect = mocker.patch("fabric_direct.drivers.libvirt.networks.driver.connect")
    driver = make_remote()
    assert driver.ports("s1") == ()
    assert driver.leftovers("s1") == ()
    assert driver.find_port("s1", "nic1") is None
    driver.delete_port("s1", "nic1")
    assert not connect.called


def test_what_is_left_is_named_by_libvirt_alone(make_remote, links):
    port = make_remote(ssh="ssh://root@w1").create_port("s1", "nic1", "dhcp", ANY)
    links.reset_mock()
    driver = make_remote()
    assert driver.ports("s1") == (port,)
    assert [name.split(" of ")[0].split(" s1")[0] for name in driver.leftovers("s1")] == [
        "port",
        "DHCP entry",
    ]
    assert links.mock_calls == []
    with pytest.raises(InvalidSite, match=r"hosts\.w1\.ssh"):
        driver.delete_port("s1", "nic1")
    assert driver.ports("s1") == (port,)


def test_the_host_must_be_one_of_the_site(site):
    with pytest.raises(NotFound, match="elsewhere"):
        LibvirtNetwork(site, "elsewhere")


# --- found without asking for a sliver


def test_ports_are_found_by_the_rows_of_this_host_alone(driver, api, site):
    made = driver.create_port("s1", "nic1", "dhcp", ANY)
    Pools(FileStore(site.state_dir), timeout=1).hold(
        "s2", "nic1", "elsewhere", "dhcp", site.networks["dhcp"], ANY
    )
    (found,) = driver.stamped()
    assert (found.sliver, found.kind, found.name) == ("s1", "port", "nic1 on dhcp")
    assert str(made.ipv4.ip) in found.addresses


@pytest.fixture
def orphan(driver, api, site):
    """A network whose address pools were lost."""
    driver.create_port("s1", "nic1", "dhcp", ANY)
    (site.state_dir / "pools.sqlite").unlink()
    (network,) = api.networks
    network.hosts = {LIVE: {}, CONFIG: {}}
    return network


def test_a_network_without_a_port_is_unused_and_is_removed(driver, api, orphan, links):
    assert driver.unused() == ("dhcp",)
    driver.remove_unused()
    assert api.calls.undefine.called
    assert links.remove_vlans.called


@pytest.mark.parametrize("user", ["a NIC", "an entry for now", "an entry for later", "a port"])
def test_a_network_that_has_a_user_is_neither_unused_nor_removed(
    driver, api, orphan, user, monkeypatch
):
    if user == "a NIC":
        orphan.connections = "1"
    elif user == "a port":
        driver.create_port("s2", "nic1", "dhcp", ANY)
    else:
        orphan.hosts[LIVE if user == "an entry for now" else CONFIG]["52:54:00:00:00:07"] = (
            "10.0.0.7"
        )
    assert driver.unused() == ()
    monkeypatch.setattr(driver, "unused", lambda: ("dhcp",))  # as it was a moment ago
    driver.remove_unused()
    assert not api.calls.undefine.called


def test_the_networks_of_other_sites_are_not_ours_to_remove(driver, api, orphan):
    stamp = orphan.xml.find(f"metadata/{{{STAMP_NAMESPACE}}}network")
    stamp.set("site", "OTHER")
    assert driver.unused() == ()


def test_a_plan_lists_the_networks_once(api: Libvirt, site: Site, links: MagicMock) -> None:
    driver = LibvirtNetwork(site, "localhost")
    for name in ("dhcp", "open"):
        driver.create_port("vm-1", name, name, ANY)
    api.listed = 0

    with reading_once():
        assert all(driver.find_port("vm-1", name) for name in ("dhcp", "open"))
        assert driver.unused() == ()

    assert api.listed == 1
