"""The USB devices of this machine, by sysfs: where they are plugged in, and what uses them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from fabric_direct.drivers.hosts.agent import sysfs

__all__ = ["survey"]

# bDeviceClass of a hub (Universal Serial Bus Specification 2.0, 11.23.1).
_HUB = "09"

Device = dict[str, Any]


def survey() -> list[Device]:
    """Return every USB device that is no hub: where it is (``bus``, ``port``), what it is, its ``uses``.

    ``port`` has the ports of the hubs before it: ``1.4``. ``device`` is the number that the kernel gave
    it when it was plugged in; it gets another one the next time.
    """
    mounted, swaps = _mounted(), _swaps()
    found = sysfs.names(f"{sysfs.SYS}/bus/usb/devices")
    return [
        _device(name, mounted, swaps) for name in found if ":" not in name and not _is_hub(name)
    ]


def _is_hub(name: str) -> bool:
    return _value(name, "bDeviceClass") in {_HUB, ""}


def _value(name: str, attribute: str) -> str:
    return sysfs.value(f"{sysfs.SYS}/bus/usb/devices/{name}/{attribute}")


def _device(name: str, mounted: dict[str, str], swaps: set[str]) -> Device:
    return {
        "bus": int(_value(name, "busnum") or 0),
        "port": _value(name, "devpath"),
        "device": int(_value(name, "devnum") or 0),
        "vendor": _value(name, "idVendor"),
        "product": _value(name, "idProduct"),
        "uses": [use for block in _blocks(name) for use in _uses(block, mounted, swaps)],
    }


def _blocks(name: str) -> list[str]:
    """Return the disks and partitions that a device brings."""
    directory = f"{sysfs.SYS}/class/block"
    links = ((block, _link(f"{directory}/{block}")) for block in sysfs.names(directory))
    return [block for block, link in links if name in link.split("/")]


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - a str is faster
    except OSError:
        return ""


def _uses(block: str, mounted: dict[str, str], swaps: set[str]) -> Iterator[str]:
    path = f"{sysfs.SYS}/class/block/{block}"
    number = sysfs.value(f"{path}/dev")
    if number in mounted:
        yield f"{block} is mounted on {mounted[number]}"
    if block in swaps:
        yield f"{block} is swap space"
    for holder in sysfs.names(f"{path}/holders"):
        yield f"{block} is part of {holder}"


def _mounted() -> dict[str, str]:
    """Return where the disk of each device number, ``8:1``, is mounted."""
    lines = (line.split() for line in sysfs.lines(f"{sysfs.PROC}/self/mountinfo"))
    return {number: _unescaped(point) for _, _, number, _, point, *_ in lines}


def _swaps() -> set[str]:
    paths = (line.split()[0] for line in sysfs.lines(f"{sysfs.PROC}/swaps")[1:])
    return {os.path.realpath(path).rpartition("/")[2] for path in paths}


def _unescaped(text: str) -> str:
    """Undo the octal escapes of white space (fs/seq_file.c, mangle_path)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
