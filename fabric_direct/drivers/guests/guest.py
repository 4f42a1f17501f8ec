"""One guest through its driver: wait for it, read its interfaces, disks and devices."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from math import inf
from typing import NamedTuple

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.drivers.contract import (
    CommandResult,
    GuestAddress,
    GuestDriver,
    GuestInterface,
    PluggedDevice,
    Port,
)
from fabric_direct.drivers.guests import ifconfig
from fabric_direct.drivers.guests.boot import ENABLED, RESULT, STATUS, Boot, errors_of, stage_of
from fabric_direct.drivers.guests.scripts import DISKS, LINKS
from fabric_direct.errors import Denied, DriverError, TimedOut, Unreachable, Unsupported
from fabric_direct.model import ObservedGuest

# Characters of a serial number that a virtio disk shows (VIRTIO_BLK_ID_BYTES).
VIRTIO_SERIAL = 20
# Seconds that a guest has for all that is asked of it at once, where nobody says otherwise.
_LIMIT = 60.0
# Seconds between two looks at the console of a guest whose SSH server has not answered.
CONSOLE = 10.0
# Seconds in which a guest should notice a new device by itself: Linux waits 5 s after a slot's attention
# button before it powers the slot (pciehp).
_HOTPLUG = 10.0
# Seconds more for the guest's driver to make an interface or disk of it; a guest may have no driver.
_PROBE = 10.0
# Seconds between cloud-init's last module, which says that the boot has finished, and its result.
_RESULT = 5.0

# Shell built-ins only: in a small guest each process is expensive. $1 is where sysfs is.
# A bond gives all its interfaces one MAC and keeps their own aside.
_PCI = """show() {
  kind=$1 value=
  cd -P "$2" || return 0
  shift 2
  for file; do read -r value <"$file" && break; done
  echo "$kind $PWD $value"
}
exec 2>/dev/null
for each in "$1"/bus/pci/devices/*; do show pci "$each" class; done
for each in "$1"/class/net/*; do show net "$each" bonding_slave/perm_hwaddr address; done
for each in "$1"/block/*; do show block "$each"; done"""
_HAS_SYSFS = """[ -d "$1/bus/pci" ]"""
_RESCAN = """if [ -w "$1" ]; then echo 1 >"$1"; else echo 1 | sudo -n tee "$1" >/dev/null; fi"""
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_FUNCTION = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAME = re.compile(r"[!-~]{1,255}")
# 6 bytes on Ethernet, 20 on InfiniBand.
_HARDWARE_ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5,19}")
_OCTAL = re.compile(r"\\([0-7]{3})")
# Class of a bridge between PCI buses.
_BRIDGE = "0x0604"
# A drive that could be reached by several controllers: Linux shows its paths below them, and hides them.
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")


@dataclass(frozen=True, slots=True)
class GuestDevice:
    """A PCI function as the guest sees it."""

    name: str
    """Its address there, for example ``0000:05:00.0``."""
    kind: str
    """The class code as the guest has it: ``0x020000`` is an Ethernet controller."""
    interfaces: tuple[str, ...] = ()
    """Names of its network interfaces; of a function with a MAC of ours those that have this MAC."""
    disks: tuple[str, ...] = ()
    """Names of its disks, for example ``nvme0n1``."""
    macs: tuple[str, ...] = ()
    """MAC addresses of its network interfaces, in the same order; of those in a bond their own."""

    def driven(self) -> bool:
        """Return whether the guest has the interface or disk that the device's class promises."""
        promised = {"0x02": self.interfaces, "0x01": self.disks}
        return promised.get(self.kind[:4]) != ()


@dataclass(frozen=True, slots=True)
class GuestLink(GuestInterface):
    """A network interface, real or made by the guest."""

    real: bool = True
    """Whether it is a device's, and not created by the guest: a VLAN interface, a bridge."""
    below: tuple[str, ...] = ()
    """Names of its lower interfaces."""


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """A disk as the guest sees it."""

    name: str
    """For example ``vdb``."""
    mounted: tuple[str, ...] = ()
    """Directories where its file system is mounted."""

    @property
    def path(self) -> str:
        """Return its device file."""
        return f"/dev/{self.name}"


class Guest:
    """One guest, through the driver that looks into it."""

    def __init__(
        self,
        driver: GuestDriver,
        address: GuestAddress,
        deadline: Deadline | None = None,
        limit: float = _LIMIT,
    ) -> None:
        """Make it.

        :param deadline: when the operation ends; None if it does not.
        :param limit: seconds that a guest may take which works: ``limits.guest_boot``.
        """
        self.driver, self.address = driver, address
        self.listened = False
        """Whether its SSH server has answered while :meth:`meet` waited."""
        self._deadline, self._limit = deadline or Deadline(inf), limit

    @property
    def patience(self) -> float:
        """Seconds for one command: half of the time left, so that one that hangs leaves the rest."""
        return self._deadline.remaining(self._limit) / 2

    def meet(self, console: Callable[[], str], *, timeout: float) -> None:
        """Block until the guest's host key is pinned, from its console.

        Reading a cloud's console is expensive, so it is read when the guest's SSH server has answered,
        and until then every :data:`CONSOLE` seconds: a slow guest shows its key long before.

        :raises TimedOut: if the console does not show a key within ``timeout`` seconds.
        """
        look = _ConsoleLook(self.driver, self.address, console)
        what = "the guest to show its SSH host key on its console"
        try:
            wait_until(what, look.shows_key, timeout=timeout)
        except TimedOut as error:
            error.why = look.trouble
            raise
        finally:
            self.listened |= look.listened

    def boot(self) -> Boot:
        """Return how far its boot is; ``UNKNOWN`` if it answers and does not say.

        :raises Unreachable: if it does not answer.
        :raises TimedOut: if it does not answer in time.
        """
        try:
            finished = self.driver.boot_finished(self.address)
        except (Unreachable, TimedOut):
            raise
        except DriverError:  # an agent may be forbidden to read files
            return Boot.UNKNOWN
        if finished is None:
            return Boot.UNKNOWN
        return Boot.FINISHED if finished else self._stage()

    def _stage(self) -> Boot:
        said = self._of_cloud_init(STATUS)
        if said is not None:
            return stage_of(said)
        begins = self._of_cloud_init(ENABLED) is not None
        return Boot.SETTING_UP if begins else Boot.UNFINISHED

    def boot_errors(self) -> tuple[str, ...]:
        """Return what cloud-init says has failed in a finished boot; nothing if it does not say.

        It says so some time after it has said that the boot has finished: that is waited for, 5 s.
        """
        result: bytes | None = None

        def has_said() -> bool:
            nonlocal result
            result = self._of_cloud_init(RESULT)
            return result is not None or self._of_cloud_init(STATUS) is None

        with suppress(DriverError):
            wait_until("cloud-init to say how the boot ended", has_said, timeout=_RESULT)
        return errors_of(result or b"")

    def _of_cloud_init(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is none, or it cannot be read."""
        try:
            said = self.driver.run(self.address, ("cat", path), timeout=self.patience)
        except (Unreachable, TimedOut):
            raise
        except DriverError:  # an agent may be forbidden to run commands
            return None
        return said.stdout if said.code == 0 else None

    def wait_boot(self, enough: Collection[Boot], *, timeout: float) -> Boot:
        """Block until its boot is as far as is enough; return how far it is, enough or not.

        While it boots it may not answer each time.

        :param timeout: seconds; with 0 it is looked at once.
        """
        seen = Boot.UNFINISHED

        def far_enough() -> bool:
            nonlocal seen
            with suppress(Unreachable, TimedOut):
                seen = self.boot()
                return seen in enough
            return False

        with suppress(TimedOut):
            wait_until("the guest to finish its boot", far_enough, timeout=timeout)
        return seen

    def wait_addresses(self, ports: Sequence[Port], *, timeout: float) -> tuple[Port, ...]:
        """Block until its NICs have the addresses of their ports; return the ports of those without.

        :param timeout: seconds; with 0 they are looked at once.
        """
        without = tuple(ports)

        def all_have() -> bool:
            nonlocal without
            found = self.interfaces()
            without = tuple(port for port in ports if not _on(found.get(port.mac), port))
            return not without

        with suppress(TimedOut):
            what = "the guest's NICs to have their addresses"
            wait_until(what, all_have, timeout=timeout)
        return without

    def observe(self) -> ObservedGuest:
        """Ask the guest; one that does not answer is reported as not reachable."""
        with suppress(DriverError):
            if self.driver.ping(self.address):
                return ObservedGuest(
                    reachable=True,
                    via=self.driver.name,
                    boot_finished=self.driver.boot_finished(self.address),
                    ssh_host_key=self.driver.ssh_host_key(self.address),
                )
        return ObservedGuest(reachable=False)

    def interfaces(self) -> dict[str, GuestInterface]:
        """Return the guest's interfaces by MAC address; none if it does not answer."""
        with suppress(DriverError):
            # A VLAN interface or bridge comes after its lower interface and has the same MAC.
            found = reversed(self.driver.interfaces(self.address))
            return {interface.mac.lower(): interface for interface in found}
        return {}

    def links(self) -> tuple[GuestLink, ...]:
        """Return the guest's interfaces, with their lower interfaces.

        Where there is neither sysfs nor, as on a BSD, ifconfig, the first interface with a MAC address
        counts as real.

        :raises DriverError: if it does not answer.
        """
        said = self._script(LINKS, "/sys").stdout
        if said.startswith(ifconfig.HEAD.encode()):
            return tuple(_link(each) for each in ifconfig.parse(said.decode(errors="replace")))
        kinds = dict(_kinds(said))
        found = self.driver.interfaces(self.address)
        macs = [interface.mac.lower() for interface in found]
        return tuple(
            GuestLink(
                interface.name,
                interface.mac.lower(),
                interface.addresses,
                kinds[interface.name][0] if kinds else macs.index(macs[number]) == number,
                kinds[interface.name][1] if kinds else (),
            )
            for number, interface in enumerate(found)
            if not kinds or interface.name in kinds
        )

    def disks(self) -> dict[str, GuestDisk]:
        """Return the guest's virtio disks by serial number; none if it does not say."""
        with suppress(DriverError):
            answer = self._script(DISKS, "/sys", "/proc/self/mountinfo")
            return _disks(answer.stdout.decode(errors="replace"))
        return {}

    def _script(self, script: str, *arguments: str) -> CommandResult:
        argv = ("sh", "-c", script, "sh", *arguments)
        return self.driver.run(self.address, argv, timeout=self.patience)

    def devices(self, devices: Sequence[PluggedDevice]) -> dict[str, GuestDevice]:
        """Return the devices that the guest sees, by alias; empty if it does not answer.

        A device is found by its root port, or by its own address if it is on none: the guest assigns
        the numbers of the buses below itself.
        """
        with suppress(DriverError):
            entries = tuple(_entries(self._script(_PCI, "/sys").stdout))
            seen = {device.alias: _guest_device(device, entries) for device in devices}
            return {alias: found for alias, found in seen.items() if found}
        return {}

    def wait_devices(self, devices: Sequence[PluggedDevice], *, timeout: float) -> None:
        """Block until the guest sees the devices; if it does not, have it rescan its PCI buses.

        Devices that the running domain does not have are not waited for. The devices' interfaces and
        disks are waited for as well, but at most 10 s: a guest may have no driver.

        :param timeout: seconds; the last look may take half of what the operation has left.
        :raises TimedOut: if it does not see all of them in time; the message names the missing ones.
        :raises Unsupported: if it is a guest that cannot show them, as a BSD; the message names all.
        """
        deadline, why = Deadline.within(timeout), ""
        devices = [device for device in devices if device.guest_address]
        found = self._look_for(devices, deadline.remaining(_HOTPLUG))
        if len(found) < len(devices):
            if not self._has_sysfs():
                raise self._cannot_show(devices)
            why = self._rescanned()
            found = self._look_for(devices, deadline.remaining())
        unseen = [device for device in devices if device.alias not in found]
        if unseen:
            raise self._not_seen(unseen, f"waited {timeout:g} s; {why}")
        if not _all_driven(found):
            self._wait_driven(devices, deadline.remaining(_PROBE))

    def rescan_pci(self) -> None:
        """Have the guest rescan its PCI buses, as root or by sudo without a password.

        :raises DriverError: if that fails.
        """
        answer = self._script(_RESCAN, "/sys/bus/pci/rescan")
        if answer.code != 0:
            raise DriverError(
                "the guest's PCI buses could not be rescanned",
                where=self.address.instance,
                why=answer.stderr.decode(errors="replace").strip(),
                remedy="let the image's user become root by sudo, or restart the guest",
            )

    def _look_for(self, devices: Sequence[PluggedDevice], timeout: float) -> dict[str, GuestDevice]:
        """Return the devices that the guest sees: all of them, or what it sees after ``timeout``."""
        found: dict[str, GuestDevice] = {}

        def all_seen() -> bool:
            nonlocal found
            found = self.devices(devices)
            return len(found) == len(devices)

        with suppress(TimedOut):
            wait_until("the guest to see its devices", all_seen, timeout=timeout)
        return found

    def _wait_driven(self, devices: Sequence[PluggedDevice], timeout: float) -> None:
        what = "the guest's drivers to take its devices"
        with suppress(TimedOut):
            wait_until(what, lambda: _all_driven(self.devices(devices)), timeout=timeout)

    def _has_sysfs(self) -> bool:
        """Return whether it has one; True if it does not answer."""
        with suppress(DriverError):
            return self._script(_HAS_SYSFS, "/sys").code != 1
        return True

    def _rescanned(self) -> str:
        try:
            self.rescan_pci()
        except DriverError as error:
            return str(error)
        return "its PCI buses were rescanned"

    def _cannot_show(self, devices: Sequence[PluggedDevice]) -> Unsupported:
        return Unsupported(
            f"the guest cannot show whether it has {_named(devices)}",
            where=self.address.instance,
            why="it has no sysfs: it is a BSD, for example",
            remedy="look into the guest",
        )

    def _not_seen(self, devices: Sequence[PluggedDevice], why: str) -> TimedOut:
        return TimedOut(
            f"the guest does not see {_named(devices)}",
            where=self.address.instance,
            why=why,
            remedy="restart the guest, or look at its console",
        )


def _named(devices: Sequence[PluggedDevice]) -> str:
    return ", ".join(f"{each.host_address} ({each.component})" for each in devices)


class _ConsoleLook:
    """Looks for a guest's host key on its console, now and then."""

    def __init__(
        self, driver: GuestDriver, address: GuestAddress, console: Callable[[], str]
    ) -> None:
        self.trouble = ""
        """Why the console could not be read last; empty if it could."""
        self.listened = False
        """Whether the guest's SSH server has answered."""
        self._driver, self._address, self._console = driver, address, console
        self._next = Deadline.within(CONSOLE)

    def shows_key(self) -> bool:
        """Return whether the key is pinned now."""
        listens = self._driver.listens(self._address)
        self.listened |= listens
        if not listens and self._next.remaining():
            return False
        said = self._read()
        self._next = Deadline.within(CONSOLE)
        return self._driver.learn(self._address, said)

    def _read(self) -> str:
        """Return what the console says; nothing while the API has trouble, which may pass."""
        self.trouble = ""
        try:
            return self._console()
        except (Denied, Unsupported):
            raise
        except DriverError as error:
            self.trouble = str(error)
            return ""


def _link(shown: ifconfig.Shown) -> GuestLink:
    addresses, below = tuple(shown.addresses), tuple(shown.below)
    return GuestLink(shown.name, shown.mac, addresses, shown.real, below)


def _kinds(answer: bytes) -> Iterator[tuple[str, tuple[bool, tuple[str, ...]]]]:
    """Parse the output of :data:`LINKS`."""
    for line in answer.decode(errors="replace").splitlines():
        name, *kinds = line.split() or [""]
        if kinds:
            yield name, (kinds[0] == "real", tuple(kinds[1:]))


def _disks(text: str) -> dict[str, GuestDisk]:
    """Parse the output of :data:`DISKS`: lines of mountinfo(5) after the disks."""
    lines = [line.split() for line in text.splitlines()]
    mounts = [line[1:] for line in lines if line[:1] == ["mount"] and len(line) > 9]
    return {
        serial: GuestDisk(name, tuple(_plain(m[4]) for m in mounts if _is_of(m, name, number)))
        for kind, name, number, serial in (line for line in lines if len(line) == 4)
        if kind == "disk" and _NAME.fullmatch(name)
    }


def _is_of(mount: list[str], name: str, number: str) -> bool:
    """Return whether a mount is of a disk: by its number, or by its name for btrfs, which has none."""
    source = mount[mount.index("-") + 2] if "-" in mount[:-2] else ""
    return mount[2] == number or source == f"/dev/{name}"


def _plain(directory: str) -> str:
    """Decode a directory of mountinfo(5), in which blanks are octal escapes."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), directory)


def _on(interface: GuestInterface | None, port: Port) -> bool:
    """Return whether the guest's interface has the IPv4 address that is held for it."""
    if interface is None:
        return False
    have = {address.partition("/")[0] for address in interface.addresses}
    return port.ipv4 is None or str(port.ipv4.ip) in have


def _all_driven(devices: dict[str, GuestDevice]) -> bool:
    return all(device.driven() for device in devices.values())


class _Entry(NamedTuple):
    """Something of sysfs that belongs to a PCI function."""

    kind: str
    """``pci`` (the function itself), ``net`` or ``block``."""
    path: tuple[str, ...]
    """The host bridge, the ports, and the function, as in ``pci0000:00``, ``0000:00:02.3``, …"""
    name: str
    value: str
    """The class of a function, the MAC of an interface."""


def _entries(answer: bytes) -> Iterator[_Entry]:
    """Parse the output of :data:`_PCI`; other lines are ignored."""
    for line in answer.decode(errors="replace").split("\n"):
        kind, path, value = (*line.split(), "", "", "")[:3]
        parts = path.split("/")
        host = tuple(dropwhile(lambda part: not _HOST_BRIDGE.fullmatch(part), parts))
        functions = tuple(takewhile(_FUNCTION.fullmatch, host[1:]))
        if functions and _NAME.fullmatch(parts[-1]):
            yield _Entry(kind, host[:1] + functions, parts[-1], value)


def _guest_device(device: PluggedDevice, entries: Sequence[_Entry]) -> GuestDevice | None:
    found = [entry for entry in entries if _is(entry, device)]
    if len(found) != 1:
        return None
    [function] = found
    its = [entry for entry in entries if entry.path == function.path]
    macs = {entry.name: _mac(entry.value) for entry in its if entry.kind == "net"}
    own = {name: mac for name, mac in macs.items() if (device.mac or mac).lower() == mac}
    disks = (_NVME_PATH.sub(r"\1\2", entry.name) for entry in its if entry.kind == "block")
    return GuestDevice(
        function.name, function.value, tuple(own), tuple(disks), macs=tuple(own.values())
    )


def _mac(text: str) -> str:
    """Return a hardware address; empty for what is none, since a guest may say anything."""
    return text.lower() if _HARDWARE_ADDRESS.fullmatch(text.lower()) else ""


def _is(entry: _Entry, device: PluggedDevice) -> bool:
    """Return whether an entry is the device: below its port, of its slot and function, not a bridge."""
    where, port = device.guest_address, device.guest_port
    itself = entry.kind == "pci" and entry.name == entry.path[-1]
    if where is None or not itself or entry.value.startswith(_BRIDGE):
        return False
    first = port or where
    host, outermost, *below = entry.path
    if (host, outermost) != (f"pci{first.domain:04x}:{first.bus:02x}", str(first)):
        return False
    if port is None:
        return not below
    return bool(below) and below[-1].endswith(f":{where.slot:02x}.{where.function}")
