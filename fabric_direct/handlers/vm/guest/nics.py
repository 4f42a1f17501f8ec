"""The addresses of a sliver's NIC in its guest: find the NIC, set them, verify and remove them."""

from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_interface

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import DeviceDomain, HostDrivers, PluggedDevice
from fabric_direct.drivers.guests import scripts
from fabric_direct.drivers.guests.configure import bsd, iproute
from fabric_direct.drivers.guests.configure.freebsd import FreeBsd
from fabric_direct.drivers.guests.configure.ifupdown import Ifupdown
from fabric_direct.drivers.guests.configure.iproute import IpRoute
from fabric_direct.drivers.guests.configure.netplan import Netplan
from fabric_direct.drivers.guests.configure.network import ConfiguredLink, Manager
from fabric_direct.drivers.guests.configure.networkd import Networkd
from fabric_direct.drivers.guests.configure.networkmanager import NetworkManager
from fabric_direct.drivers.guests.configure.openbsd import OpenBsd
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import DriverError, NotFound, NotVerified, TimedOut
from fabric_direct.handlers.vm.guest.access import Inside
from fabric_direct.handlers.vm.guest.settings import GuestNic
from fabric_direct.handlers.vm.observe import plugged_devices
from fabric_direct.model import VNic

MANAGERS: tuple[Manager, ...] = (
    *(FreeBsd(), OpenBsd()),
    *(NetworkManager(), Netplan(), Networkd(), Ifupdown()),
)
_BSDS = {FreeBsd.name, OpenBsd.name}
# Seconds until a guest that answers should have the interface of a NIC; it may have no driver.
_SHOWN = 10.0
# Seconds until an interface should have the addresses that it was given.
_SET = 60.0


def manager(root: GuestRoot, interface: str) -> Manager:
    """Return the network manager of an interface of the guest; :class:`IpRoute` if there is none."""
    found = managers(root, interface)
    return found[0] if found else IpRoute()


def managers(root: GuestRoot, interface: str) -> list[Manager]:
    """Return all network managers that can configure the interface, the best first."""
    words = root.script(scripts.MANAGERS, interface).split()
    return [each for each in MANAGERS if each.name in words]


class NicSetting:
    """An interface has its addresses in the guest, permanently."""

    def __init__(self, inside: Inside, nic: GuestNic, was: GuestNic | None = None) -> None:
        """Make the setting of an interface that ``was`` configured so before, if it was."""
        self._inside, self._nic, self._was = inside, nic, was

    def is_so(self) -> bool:
        """Return whether the guest has the addresses, and keeps them unless they are a vNIC's."""
        root = self._inside.root()
        link = self._seen(root, self._nic)
        if link is None or not has_addresses(root, link):
            return False
        return isinstance(self._nic.component, VNic) or manager(root, link.parent).keeps(root, link)

    def make(self) -> None:
        """Set the addresses.

        :raises DriverError: with the interface, in the guest's words.
        :raises NotVerified: if the interface has not got its addresses then.
        """
        self._give(self._nic, instead_of=self._was)

    def take_back(self) -> None:
        """Give it its former addresses, or remove all that we set."""
        if self._was:
            self._give(self._was, instead_of=self._nic)
            return
        root, link, found = self._found()
        for each in found:
            each.forget(root, self._nic.label)
        if link:
            _take(root, link, found)

    def is_taken_back(self) -> bool:
        """Return whether it has its former addresses, or the guest keeps nothing of ours for it."""
        if self._was:
            return NicSetting(self._inside, self._was).is_so()
        root, _, found = self._found()
        return not any(manager.has(root, self._nic.label) for manager in found)

    def _found(self) -> tuple[GuestRoot, ConfiguredLink | None, list[Manager]]:
        """Return the NIC, None if it is unplugged, and the managers that may keep something for it."""
        root = self._inside.root()
        link = self._seen(root, self._nic)
        return root, link, managers(root, link.parent if link else "")

    def _give(self, nic: GuestNic, instead_of: GuestNic | None) -> None:
        root = self._inside.root()
        link = self._await_link(root, nic)
        by = manager(root, link.parent)
        try:
            with self._inside.drivers.reads.active():
                by.keep(root, link)
        except DriverError as error:
            raise DriverError(
                f"{nic.label} ({link.name} in the guest) could not be given {_list(link)}",
                where=root.guest.address.instance,
                why=f"{by.name}: {error}",
                remedy="look into the guest, or set auto_config to false and configure it there",
            ) from error
        _await_addresses(root, link, by.name, self._inside.drivers.deadline.remaining(_SET))
        if instead_of:
            _take(root, self._link(root, instead_of), [by], but=link)

    def _await_link(self, root: GuestRoot, nic: GuestNic) -> ConfiguredLink:
        """Return the NIC once the guest has its interface: one plugged in during the boot comes late."""
        what = f"the guest to have an interface for {nic.label}"
        limit = self._inside.drivers.deadline.remaining(_SHOWN)
        with suppress(TimedOut):
            wait_until(what, lambda: self._seen(root, nic) is not None, timeout=limit)
        return self._link(root, nic)

    def _seen(self, root: GuestRoot, nic: GuestNic) -> ConfiguredLink | None:
        with suppress(NotFound):
            return self._link(root, nic)
        return None

    def _link(self, root: GuestRoot, nic: GuestNic) -> ConfiguredLink:
        return link_of(root.guest, self._inside.drivers, self._inside.tenant(), nic)


def link_of(
    guest: Guest, drivers: HostDrivers, tenant: DeviceDomain, nic: GuestNic
) -> ConfiguredLink:
    """Return a NIC as the guest has it: found by its MAC address, or else by its PCI function.

    :raises NotFound: if the guest has no such interface.
    """
    ports = {port.component: port for port in drivers.network.ports(tenant.sliver)}
    port = ports.get(nic.component.id) if isinstance(nic.component, VNic) else None
    device = None if isinstance(nic.component, VNic) else _function(drivers, tenant, nic)
    mac = nic.interface.mac or (port.mac if port else None) or (device.mac if device else None)
    name = _by_mac(guest, mac) if mac else _by_function(guest, device)
    if name is None:
        raise NotFound(
            f"the guest has no interface for {nic.label}",
            where=guest.address.instance,
            why=f"none has the MAC address {mac}" if mac else "its function has none, or several",
            remedy="see whether the image has a driver for it; if it has several, give the MAC address",
        )
    handed_out = port is not None and port.dhcp
    given = tuple(map(ip_interface, nic.addresses))
    kept = tuple(a for a in given if not (handed_out and a.version == 4))
    return ConfiguredLink(
        nic.label, name, mac.lower() if mac else None, nic.vlan, kept, dhcp=handed_out
    )


def has_addresses(root: GuestRoot, link: ConfiguredLink) -> bool:
    """Return whether the guest's interface has all of its addresses now."""
    return set(map(str, link.addresses)) <= set(_addresses(root, link.name))


def _addresses(root: GuestRoot, interface: str) -> tuple[str, ...]:
    return next((each.addresses for each in root.guest.links() if each.name == interface), ())


def _function(drivers: HostDrivers, tenant: DeviceDomain, nic: GuestNic) -> PluggedDevice | None:
    if isinstance(nic.component, VNic) or nic.number >= len(nic.component.bdf):
        return None
    where = nic.component.bdf[nic.number]
    plugged = plugged_devices(drivers, tenant, [nic.component])
    return next((device for device in plugged if device.host_address == where), None)


def _by_mac(guest: Guest, mac: str) -> str | None:
    real = (link for link in guest.links() if link.real and link.mac == mac.lower())
    return next((link.name for link in real), None)


def _by_function(guest: Guest, device: PluggedDevice | None) -> str | None:
    seen = guest.devices([device]).get(device.alias) if device else None
    return seen.interfaces[0] if seen and len(seen.interfaces) == 1 else None


def _await_addresses(root: GuestRoot, link: ConfiguredLink, by: str, timeout: float) -> None:
    try:
        wait_until(
            f"{link.label} to have its addresses",
            lambda: has_addresses(root, link),
            timeout=timeout,
        )
    except TimedOut as error:
        has = ", ".join(_addresses(root, link.name)) or "no address"
        raise NotVerified(
            f"{link.label} was given {_list(link)}, but has not got them",
            where=f"{link.name} in {root.guest.address.instance}",
            why=f"{by} succeeded; after {timeout:.0f} s it has {has}",
            remedy="look into the guest",
        ) from error


def _take(
    root: GuestRoot,
    link: ConfiguredLink,
    managers: Collection[Manager],
    but: ConfiguredLink | None = None,
) -> None:
    """Remove the addresses that an interface still has, or a VLAN interface of ours as a whole.

    :param managers: those of the guest: they tell a BSD.
    :param but: what has addresses instead; those that it has in common stay.
    """
    tool = bsd if {each.name for each in managers} & _BSDS else iproute
    wanted = set(map(str, but.addresses)) if but else set()
    there = [a for a in map(str, link.addresses) if a in _addresses(root, link.name)]
    for address in there:
        if address not in wanted:
            tool.remove_address(root, link.name, address)
    if link.vlan and but is None and link.name in {each.name for each in root.guest.links()}:
        tool.destroy(root, link.name)


def _list(link: ConfiguredLink) -> str:
    return ", ".join(map(str, link.addresses))
