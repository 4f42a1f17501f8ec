"""Taps: links whose other end is a virtual machine. They stay while no machine has them."""

import errno
import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Dict, Optional, Tuple

from fabric_direct.drivers.hosts.agent import sysfs

__all__ = ["make", "remove", "taps"]

TUN = "/dev/net/tun"
_TUNSETIFF, _TUNSETPERSIST = 0x400454CA, 0x400454CB  # include/uapi/linux/if_tun.h, as below
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_IFF_UP = 0x1  # include/uapi/linux/if.h
_GONE = {errno.ENOENT, errno.ENODEV, errno.EINVAL}
"""What the kernel answers for an attribute of a link that is being removed, by how far it is."""
_LOOKS, _LOOK = 10, 0.02
"""How often a new tap is looked at until it is up for good, and the seconds between two looks."""


def taps() -> Dict[str, Tuple[str, bool, bool]]:
    """Return for each tap its alias, whether a virtual machine has it, and whether it is set up.

    Virtual machines of others come and go: a tap that is removed meanwhile is none.
    """
    links = filter(_is_tap, sysfs.names(f"{sysfs.SYS}/class/net"))
    return {link: facts for link, facts in ((link, _facts(link)) for link in links) if facts}


def _facts(link: str) -> Optional[Tuple[str, bool, bool]]:
    try:
        return _read(link, "ifalias"), _has_carrier(link), _is_up(link)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return None


def make(name: str, alias: str, mtu: Optional[int]) -> None:
    """Make a tap, which stays, or complete one that was begun, and set it up.

    A switch that takes a new tap for its port sets it promiscuous: Open vSwitch reads the link's flags
    and writes all of them, and what was set in between is lost. So the tap is looked at for a moment.

    :raises FileExistsError: if a link of its name is no tap, or carries another alias.
    """
    there = _path(name).exists()
    if there and not (_is_tap(name) and _read(name, "ifalias") in {"", alias}):
        raise FileExistsError(errno.EEXIST, f"link {name} is not ours")
    if not there:
        _persist(name, 1)
    _write(name, "ifalias", alias)
    _write(name, "mtu", str(mtu or 1500))
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK)
        if not _is_up(name):
            _write(name, "flags", hex(_flags(name) | _IFF_UP))


def remove(name: str, alias: str) -> None:
    """Remove a tap, if one of the name carries the alias.

    :raises OSError: if a virtual machine has it (EBUSY).
    """
    if taps().get(name, ("",))[0] == alias:
        _persist(name, 0)


def _persist(name: str, stay: int) -> None:
    """Open a tap, make one if there is none, and say whether it stays when it is closed."""
    tun = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        fcntl.ioctl(tun, _TUNSETPERSIST, stay)
    finally:
        os.close(tun)


def _is_tap(link: str) -> bool:
    return _path(link, "tun_flags").exists()


def _is_up(link: str) -> bool:
    return bool(_flags(link) & _IFF_UP)


def _flags(link: str) -> int:
    return int(_read(link, "flags"), 16)


def _has_carrier(link: str) -> bool:
    """Return whether somebody has the tap open; unlike ``operstate``, it tells so at once."""
    try:
        return _read(link, "carrier") == "1"
    except OSError as error:
        if error.errno != errno.EINVAL:  # what the kernel answers for a link that is set down
            raise
        return False


def _read(link: str, name: str) -> str:
    return _path(link, name).read_text().strip()


def _write(link: str, name: str, text: str) -> None:
    _path(link, name).write_text(text)


def _path(link: str, name: str = "") -> Path:
    return Path(sysfs.SYS, "class/net", link, name)
