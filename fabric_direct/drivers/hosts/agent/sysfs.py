"""Facts of the kernel as files: attributes, links, directories.

A missing or unreadable file is None or empty: a function may go while it is being read.
"""

import os
import re
from typing import List, Optional

SYS = "/sys"
PROC = "/proc"

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


def content(path: str, size: int = 65536) -> bytes:
    """Return a file's first bytes; none if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, size)
        finally:
            os.close(file)
    except OSError:
        return b""


def value(path: str) -> str:
    """Return an attribute without its line's end; empty if there is none."""
    return content(path).decode(errors="replace").strip()


def lines(path: str) -> List[str]:
    """Return the lines of a file of any length, as those below ``/proc``; none if there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a str is faster
            return file.read().splitlines()
    except OSError:
        return []


def names(path: str) -> List[str]:
    """Return the names in a directory, sorted; none if there is no directory."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - as above
    except OSError:
        return []


def parts(path: str) -> List[str]:
    """Return the parts of the path that a link leads to; none if there is no link."""
    try:
        return os.readlink(path).split("/")
    except OSError:
        return []


def target(path: str) -> Optional[str]:
    """Return the last part of what a link leads to; None if there is no link."""
    return next(reversed(parts(path)), None)


def functions(path: str) -> List[str]:
    """Return the PCI functions in a device's path, the nearest last.

    :param path: a link to the device, as those below ``/sys/class`` are.
    """
    return [part for part in parts(path) if ADDRESS.fullmatch(part)]


def pci(address: str) -> str:
    """Return the directory of a PCI function."""
    return f"{SYS}/bus/pci/devices/{address}"


def write(path: str, text: str) -> None:
    """Write an attribute.

    :raises OSError: what the kernel answers; ENOENT if there is no such attribute.
    """
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
