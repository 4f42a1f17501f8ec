"""DHCP entries and leases of NICs in libvirt's dnsmasq.

IPv6 needs no entry: dnsmasq advertises the prefix and guests configure themselves. An entry has no name,
because dnsmasq would send it to the guest as its host name.
"""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

import libvirt
from pyroute2.dhcp.dhcp4msg import dhcp4msg
from pyroute2.dhcp.enums import bootp, dhcp

from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.read_cache import read
from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.errors import NotFound

Lease = dict[str, Any]

_LIVE, _CONFIG = libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE, libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
# Seconds that dnsmasq's helper may take to record that a lease has ended.
_RELEASE_LIMIT = 10.0
# Seconds that the host may take to send a message; it may have to be connected to first.
_SEND_LIMIT = 40.0
# RFC 2131, section 4.1.
_SERVER_PORT = 67


def hosts(network: libvirt.virNetwork, flags: int = 0) -> dict[str, str]:
    """Return the network's DHCP entries: IPv4 address by MAC.

    :param flags: ``VIR_NETWORK_XML_INACTIVE`` for those of the network's next start.
    """
    entries = definition(network, flags).findall("ip/dhcp/host[@mac]")
    return {entry.attrib["mac"].lower(): entry.attrib["ip"] for entry in entries}


@read
def definition(network: libvirt.virNetwork, flags: int) -> ElementTree.Element:
    """Return the network's XML, live or as ``flags`` say."""
    return ElementTree.fromstring(network.XMLDesc(flags))


def set_host(network: libvirt.virNetwork, mac: str, ipv4: str) -> None:
    """Assign this address, and no other, to the MAC, now and after the network's next start."""
    remove_host(network, mac, keep=ipv4)
    missing = sum(scope for scope, there in _scopes(network) if mac not in there)
    if missing:
        _update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, mac, ipv4, missing)


def remove_host(network: libvirt.virNetwork, mac: str, keep: str | None = None) -> None:
    """Remove the MAC's DHCP entry, if there is one.

    :param keep: an address; an entry that has it stays.
    """
    scopes = _scopes(network)
    for ipv4 in {there[mac] for _, there in scopes if mac in there} - {keep}:
        present = sum(scope for scope, there in scopes if there.get(mac) == ipv4)
        _update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, mac, ipv4, present)


def has_host(network: libvirt.virNetwork, mac: str, ipv4: str) -> bool:
    """Return whether the address is assigned to the MAC, now and after the network's next start."""
    scopes = (0, libvirt.VIR_NETWORK_XML_INACTIVE)
    return all(hosts(network, scope).get(mac) == ipv4 for scope in scopes)


def leases(network: libvirt.virNetwork, mac: str) -> list[Lease]:
    """Return the leases that dnsmasq gave to the MAC and that have not ended."""
    return [lease for lease in _leases(network) if lease["mac"] == mac]


def release(network: libvirt.virNetwork, mac: str, host: HostDriver) -> None:
    """End the MAC's leases; they are gone on return.

    dnsmasq gives an address to nobody else before its lease has ended, and the only way to end one is
    the message that a client sends (DHCPRELEASE, RFC 2131, section 4.4.6). The machine that dnsmasq
    runs on sends it on the bridge, in place of the guest. It is sent for the address of the MAC's DHCP
    entry whether a lease is recorded or not: dnsmasq's helper records one after the guest has it.

    :param host: that machine.
    :raises TimedOut: if dnsmasq keeps the lease.
    :raises Unreachable: if the host does not answer.
    """
    if network.isActive() and (ipv4 := hosts(network).get(mac)):
        with suppress(NotFound):  # without its bridge it serves nobody
            _send_release(network, host, mac, ipv4)
    _release(network, host, lambda lease: lease["mac"] == mac)


def release_others(network: libvirt.virNetwork, mac: str, ipv4: str, host: HostDriver) -> None:
    """End the leases of this address that were given to another MAC; they are gone on return.

    :param host: the machine that dnsmasq runs on.
    :raises TimedOut: if dnsmasq keeps the lease.
    :raises Unreachable: if the host does not answer.
    """
    _release(network, host, lambda lease: lease["ipaddr"] == ipv4 and lease["mac"] != mac)


def _leases(network: libvirt.virNetwork) -> list[Lease]:
    return network.DHCPLeases() if network.isActive() else []


def _release(
    network: libvirt.virNetwork, host: HostDriver, unwanted: Callable[[Lease], bool]
) -> None:
    def gone() -> bool:
        there = [lease for lease in _leases(network) if unwanted(lease)]
        for lease in there:
            _send_release(network, host, lease["mac"], lease["ipaddr"])
        return not there

    # Connecting to the host for the first message does not count as dnsmasq's time.
    if not gone():
        wait_until("dnsmasq to end a lease", gone, timeout=_RELEASE_LIMIT, where=network.name())


def _send_release(network: libvirt.virNetwork, host: HostDriver, mac: str, ipv4: str) -> None:
    server = ElementTree.fromstring(network.XMLDesc(0)).findall("ip")[0].attrib["address"]
    message = _release_message(mac, ipv4, server)
    host.call(
        "datagrams.send",
        timeout=_SEND_LIMIT,
        # dnsmasq takes the message for the network of the interface that it comes in by.
        link=network.bridgeName(),
        address=server,
        port=_SERVER_PORT,
        content=b64encode(message).decode(),
    )


def _release_message(mac: str, address: str, server: str) -> bytes:
    message = dhcp4msg(
        {
            "op": bootp.MessageType.BOOTREQUEST,
            "ciaddr": address,
            "chaddr": mac,
            "options": {"message_type": dhcp.MessageType.RELEASE, "server_id": server},
        }
    )
    return bytes(message.encode().buf)


def _scopes(network: libvirt.virNetwork) -> list[tuple[int, dict[str, str]]]:
    """Return the DHCP entries of the running network, if it runs, and of its next start."""
    config = (_CONFIG, hosts(network, libvirt.VIR_NETWORK_XML_INACTIVE))
    return [(_LIVE, hosts(network)), config] if network.isActive() else [config]


def _update(network: libvirt.virNetwork, command: int, mac: str, ipv4: str, scope: int) -> None:
    # Each call costs libvirt 0.2 to 0.4 s for its firewall, so both scopes go into one where they can.
    # The first <ip> is the IPv4 one: a -1 would look for one that has hosts already.
    entry = render("dhcp-host.xml.j2", mac=mac, ip=ipv4)
    network.update(command, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST, 0, entry, scope)
