"""Uplinks by netlink: the bridge mode of a NIC and the settings of its virtual functions (VFs).

An ``IPRoute`` of the host lives for one call, so that threads share none and none crosses a fork. The
bridge mode is set and read back on the host itself, which takes one round trip instead of three.
"""

import errno
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import PurePath
from socket import AF_BRIDGE
from typing import Any

from pyroute2.netlink.exceptions import NetlinkDecodeError, NetlinkError

from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.read_cache import current, read
from fabric_direct.drivers.contract import HostDriver, VfSettings
from fabric_direct.drivers.contract.changes import Change, Hearing, Tell
from fabric_direct.drivers.hosts.agent.serve import ERROR_NAMES
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.hosts.functions import ANSWER, NETLINK
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.errors import (
    DriverError,
    FabricDirectError,
    NotFound,
    NotVerified,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.site.config import Site

# linux/if_bridge.h: BRIDGE_MODE_VEB, _VEPA.
_MODES = {"veb": 0, "vepa": 1}
# linux/rtnetlink.h: RTEXT_FILTER_VF asks for the VFs along with their link.
_WITH_VFS = 1
# include/uapi/linux/if_arp.h: ARPHRD_INFINIBAND, the kind of an InfiniBand port.
_INFINIBAND = 32
IN_RESET = 5.0
"""Seconds for a VF to be told of again: drivers such as ice tell nothing of one that is in reset."""
# Seconds that the host waits for a change before it is asked to wait again.
_LISTEN = 60.0
_INVALID_VF = (
    "see that the uplink is up (many NICs accept a rate only then), that no rate is above its speed, "
    "and that no value is out of range"
)
# Errors of reading an answer of another form: that of another machine comes from there.
_NONSENSE = (AttributeError, LookupError, TypeError, ValueError, struct.error, NetlinkDecodeError)
# A driver that does not know a setting reports all bits set.
_UNKNOWN = 0xFFFFFFFF
# Settings of a VF by their names in pyroute2. Those of an attribute can only be set together.
_ATTRIBUTES = {
    "mac": ("mac",),
    "vlan": ("vlan", "qos"),
    "rate": ("max_tx_rate", "min_tx_rate"),
    "spoofchk": ("spoof_check",),
    "link_state": ("link_state",),
    "trust": ("trust",),
}


@contextmanager
def session(
    what: str, where: str, netns: str | None = None, host: HostDriver | None = None
) -> Iterator[Any]:
    """Yield a pyroute2 ``IPRoute`` for one call, and turn its errors into ours.

    :param what: what is being done, as an infinitive: ``set the bridge mode``.
    :param where: the link that it is done to.
    :param netns: name of a network namespace; the host's own if absent. It is never created.
    :param host: whose kernel is spoken with; this machine's if absent.
    :raises NotFound: if there is no such link or namespace.
    :raises Unsupported: if the kernel or the link's driver does not know how (EOPNOTSUPP).
    """
    with _translated(what, where), (host or LocalHost()).netlink(netns) as ip:
        yield ip


@contextmanager
def _translated(what: str, where: str) -> Iterator[None]:
    """Turn errors of pyroute2 into ours within the block; the arguments are those of ``session``."""
    try:
        yield
    except NetlinkError as error:
        raise _translate(error, what, where) from error
    except OSError as error:
        raise DriverError(f"cannot {what}", where=where, why=str(error)) from error
    except _NONSENSE as error:
        why = f"the kernel's answer is invalid: {type(error).__name__}: {error}"
        raise DriverError(f"cannot {what}", where=where, why=why) from error


def _translate(error: NetlinkError, what: str, where: str) -> FabricDirectError:
    kinds = {
        errno.EOPNOTSUPP: Unsupported,
        errno.ENODEV: NotFound,
        errno.ENOENT: NotFound,
        errno.ETIMEDOUT: TimedOut,
    }
    remedies = {errno.EPERM: "run it with CAP_NET_ADMIN", errno.ENETDOWN: "bring the link up"}
    name = ERROR_NAMES.get(error.code, str(error.code))
    return kinds.get(error.code, DriverError)(
        f"cannot {what}",
        where=where,
        why=f"{name}, {error.args[1]}",
        remedy=remedies.get(error.code, ""),
    )


def link_index(ip: Any, link: str) -> int:
    """Return the index of a link.

    :raises NotFound: if there is none of that name.
    """
    found: list[int] = ip.link_lookup(ifname=link)
    if not found:
        raise NotFound(f"no link {link}")
    return found[0]


class NetlinkUplink:
    """An :class:`~fabric_direct.drivers.contract.UplinkDriver` for any host of the site."""

    def __init__(self, site: Site, host: str, netns: str | None = None) -> None:
        """Create the driver.

        :param netns: name of the network namespace that the uplinks are in, if not the host's own.
        :raises NotFound: if the site has no such host.
        """
        self._host, self._netns, self._kernel = host, netns, host_driver(site, host)
        self._links = {entry.uplink: None for entry in site.host(host).devices if entry.uplink}

    @read
    def bridge_mode(self, link: str) -> str:
        """Return ``veb`` or ``vepa``, as the NIC says.

        :raises Unsupported: if the NIC has no such mode.
        :raises NotFound: if there is no such link.
        """
        with self._session("read the bridge mode", link) as ip:
            return self._bridge_mode(ip, link)

    def set_bridge_mode(self, link: str, mode: str) -> None:
        """Set ``veb`` or ``vepa`` and read it back.

        :raises Unsupported: if the NIC refuses (EOPNOTSUPP), or knows no such mode.
        :raises NotFound: if there is no such link.
        :raises NotVerified: if the NIC says otherwise afterwards.
        """
        if mode not in _MODES:
            raise Unsupported(f"no bridge mode {mode!r}", where=link, why="known: veb, vepa")
        with self._explained(f"set the bridge mode {mode}", link):
            found = self._put_bridge_mode(link, _MODES[mode])
        name = self.bridge_mode(link) if found is None else _mode_name(found)
        if name != mode:
            raise NotVerified(f"{link} is in mode {name}, not {mode}", where=self._host)

    def _put_bridge_mode(self, link: str, mode: int) -> int | None:
        """Set a bridge mode and return what the NIC says then; raise NetlinkError if it is refused."""
        given = {"link": link, "mode": mode, "limit": NETLINK, "netns": self._netns}
        try:
            found = self._kernel.call("bridge_modes.put", timeout=NETLINK + ANSWER, **given)
            return None if found is None else int(found)
        except Unreachable:
            raise
        except FabricDirectError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno:
                _, _, words = error.why.partition(", ")  # without the name of the number
                raise NetlinkError(cause.errno, words) from error
            raise

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of the allow-list's uplinks, as the host's kernel tells of its links.

        :raises Unreachable: if the host does not answer, or the connection is lost.
        """
        modes: dict[str, int] | None = None
        while not hearing.over:
            found = self._kernel.call(
                "link_changes.wait",
                timeout=_LISTEN + ANSWER,
                links=list(self._links),
                known=modes,
                limit=_LISTEN,
                netns=self._netns,
            )
            changed = found["changed"] if modes is not None else ()
            if modes is None:
                tell(Change("unknown"))
            modes = found["modes"]
            for link in changed:
                tell(Change("uplink", (link,), f"uplink {link} was changed"))

    @read
    def vfs(self, link: str) -> Mapping[int, VfSettings]:
        """Return the settings of the VFs by number, without those that the kernel leaves out.

        It leaves out a VF whose settings the NIC's driver does not give (rtnl_fill_vfinfo).

        :raises NotFound: if there is no such link.
        """
        with self._session("read the VFs", link) as ip:
            return _settings_in(_with_vfs(ip, link))

    def set_vf(self, link: str, vf: int, settings: VfSettings) -> None:
        """Change those settings of a VF that are not None and read them back.

        Only settings that differ are sent: a NIC may report a setting that it does not let change.
        Each is sent by itself, so an error is of one setting; those before it are set then.

        :raises NotFound: if there is no such link or VF.
        :raises DriverError: if the kernel does not tell the settings of the VF.
        :raises Unsupported: if the NIC's driver has no such setting.
        :raises NotVerified: if the NIC says otherwise afterwards.
        """
        with session(f"change VF {vf}", f"{link} on {self._host}", self._netns, self._kernel) as ip:
            before = self._vf(ip, link, vf)
            changes = _differing(settings, before)
            if not changes:
                return
            index = link_index(ip, link)
            for said, request in _requests(changes, before):
                with self._explained(f"set {said} of VF {vf}", link, _INVALID_VF):
                    ip.link("set", index=index, vf={"vf": vf} | request)
            after = self._vf(ip, link, vf)
        self._verify(link, vf, _differing(settings, after), asdict(after))

    def _verify(self, link: str, vf: int, wrong: dict[str, Any], found: dict[str, Any]) -> None:
        if wrong:
            raise NotVerified(
                f"VF {vf} of {link} did not take {', '.join(wrong)}",
                where=self._host,
                why=", ".join(f"{n} is {found[n]}, not {value}" for n, value in wrong.items()),
            )

    def _bridge_mode(self, ip: Any, link: str) -> str:
        """Return a link's bridge mode, by one request: the answer has the names of all such links."""
        for message in ip.get_links(family=AF_BRIDGE):
            mode = message.get_nested("IFLA_AF_SPEC", "IFLA_BRIDGE_MODE")
            if message.get("ifname") == link and mode is not None:
                return _mode_name(mode)
        index = link_index(ip, link)
        raise Unsupported(
            f"{link} has no bridge mode",
            where=self._host,
            why=f"its driver, {self._kernel_driver(ip, index)}, reports none",
            remedy="use an uplink whose driver has hwmode, for example mlx5_core, ice or ixgbe",
        )

    def _vf(self, ip: Any, link: str, vf: int) -> VfSettings:
        message = _with_vfs(ip, link)
        count, there = message.get("num_vf") or 0, _settings_in(message)
        if vf in there:
            return there[vf]
        if not 0 <= vf < count:
            raise NotFound(f"{link} has no VF {vf}", where=self._host, why=f"it has {count} VFs")
        found = settings_of_vf(lambda: _settings_in(_with_vfs(ip, link)), link, vf)
        if found is None:
            raise settings_unknown(link, vf, self._host)
        return found

    @contextmanager
    def _session(self, what: str, link: str) -> Iterator[Any]:
        """Open a session whose refusals name the kernel driver of the link."""
        where = f"{link} on {self._host}"
        with self._explained(what, link), session(what, where, self._netns, self._kernel) as ip:
            yield ip

    @contextmanager
    def _explained(self, what: str, link: str, invalid: str = "") -> Iterator[None]:
        """Have a refusal say what the link is: of which driver, and that it is InfiniBand.

        :param what: what is being done, as an infinitive.
        :param invalid: what to do about EINVAL.
        """
        try:
            with _translated(what, f"{link} on {self._host}"):
                yield
        except DriverError as error:
            code = getattr(error.__cause__, "code", None)
            if code is not None:
                error.why += self._nature(link, code)
            if code == errno.EINVAL:
                error.remedy = invalid
            raise

    def _nature(self, link: str, code: int) -> str:
        """Return what a link is, as an addition to a refusal; nothing if it cannot be read."""
        with (
            suppress(FabricDirectError),
            session("read the link", link, self._netns, self._kernel) as ip,
        ):
            index = link_index(ip, link)
            (message,) = ip.get_links(index)
            port = ": the port is InfiniBand" if message["ifi_type"] == _INFINIBAND else ""
            unknown = code == errno.EOPNOTSUPP
            return (f": its driver is {self._kernel_driver(ip, index)}" if unknown else "") + port
        return ""

    def _kernel_driver(self, ip: Any, index: int) -> str:
        """Return the driver of a link: its kind if it is virtual, else that of its parent device."""
        (message,) = ip.get_links(index)
        kind = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
        parent, bus = message.get("parent_dev_name"), message.get("parent_dev_bus_name")
        path = f"/sys/bus/{bus}/devices/{parent}/driver"
        found = kind or self._kernel.call("files.resolve", timeout=ANSWER, path=path)
        return PurePath(found).name if found else "unknown"


def _mode_name(mode: int) -> str:
    return next((name for name, number in _MODES.items() if number == mode), f"mode {mode}")


def settings_of_vf(
    read_vfs: Callable[[], Mapping[int, VfSettings]], link: str, vf: int
) -> VfSettings | None:
    """Return the settings of a VF; None if the kernel leaves it out for long.

    While the kernel leaves it out, as it may in a reset, it is asked again; but not in what changes
    nothing, where the answer to a question stays the same.

    :param read_vfs: returns the settings of the link's VFs.
    """
    found: Mapping[int, VfSettings] = {}

    def is_told() -> bool:
        nonlocal found
        found = read_vfs()
        return vf in found

    reads = current()
    limit = 0.0 if reads and reads.read_only else IN_RESET
    with suppress(TimedOut):
        wait_until(f"{link} to tell of VF {vf}", is_told, timeout=limit)
    return found.get(vf)


def settings_unknown(link: str, vf: int, host: str) -> DriverError:
    """Return the error that the kernel does not tell the settings of a VF."""
    return DriverError(
        f"the uplink {link} tells nothing of VF {vf}",
        where=host,
        why="the kernel leaves it out: the NIC's driver does not give its settings",
        remedy=f"see dmesg, and whether `ip link show {link}` lists it",
    )


def _with_vfs(ip: Any, link: str) -> Any:
    """Return what the kernel tells of a link, by one request: it is asked for by its name."""
    (message,) = ip.link("get", ifname=link, ext_mask=_WITH_VFS)
    return message


def _settings_in(message: Any) -> dict[int, VfSettings]:
    infos = message.get("vfinfo_list")
    told = infos.get_attrs("IFLA_VF_INFO") if infos else ()
    return {info.get_attr("IFLA_VF_MAC")["vf"]: _settings(info) for info in told}


def _settings(info: Any) -> VfSettings:
    def read(attribute: str, name: str) -> Any:
        value = info.get_attr(f"IFLA_VF_{attribute}")
        return None if value is None or value[name] == _UNKNOWN else value[name]

    spoof_check, trust = read("SPOOFCHK", "spoofchk"), read("TRUST", "trust")
    return VfSettings(
        mac=read("MAC", "mac"),
        vlan=read("VLAN", "vlan"),
        qos=read("VLAN", "qos"),
        trust=None if trust is None else bool(trust),
        spoof_check=None if spoof_check is None else bool(spoof_check),
        max_tx_rate=read("RATE", "max_tx_rate"),
        min_tx_rate=read("RATE", "min_tx_rate"),
        link_state=read("LINK_STATE", "link_state"),
    )


def _differing(wanted: VfSettings, there: VfSettings) -> dict[str, Any]:
    """Return those of the wanted settings that are not there already, by name."""
    found = asdict(there)
    return {n: v for n, v in asdict(wanted).items() if v is not None and v != found[n]}


def _requests(
    changes: Mapping[str, Any], before: VfSettings
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each attribute to send, as pyroute2 takes it, with the settings that it changes in words."""
    there: dict[str, Any] = asdict(before) | dict(changes)
    for attribute, names in _ATTRIBUTES.items():
        said = " and ".join(_in_words(name, changes[name]) for name in names if name in changes)
        value = there[names[0]] if len(names) == 1 else {name: there[name] or 0 for name in names}
        if said:
            yield said, {attribute: int(value) if isinstance(value, bool) else value}


def _in_words(name: str, value: Any) -> str:
    text = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    return f"{name.replace('_', ' ')} {text}"
