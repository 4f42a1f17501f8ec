"""The host's own uses of its PCI functions: disks and network interfaces.

A use is counted for every function in the path of the disk or interface: the drive, its controller, and
the bridges before it. A VF is not below its PF: its uses are its own.
"""

import errno
import ipaddress
import os
import re
import time
from typing import Dict, Iterable, List, Optional, Set

from fabric_direct.drivers.hosts.agent import sysfs
from fabric_direct.drivers.hosts.agent.addresses import addresses
from fabric_direct.drivers.hosts.agent.signatures import member_of

__all__ = ["uses"]

DEV = "/dev"
_IFF_UP = 0x1  # include/uapi/linux/if.h
_RTF_UP, _RTF_REJECT = 0x1, 0x200  # include/uapi/linux/route.h
# Seconds between the tries to claim a disk that is busy.
_ASK_AGAIN = (0.01, 0.03, 0.1)
_PATH = re.compile(r"nvme(\d+)c\d+n(\d+)")

Uses = Dict[str, List[str]]
"""Sentences, by the name of a disk or by the address of a PCI function."""


def uses(functions: Set[str]) -> Uses:
    """Return the host's uses of PCI functions, a sentence for each.

    They include members of volume groups, arrays and pools that do not run, and disks that cannot be
    read. Functions that are not used are left out.

    :param functions: those that are asked about; of others some uses may be left out.
    """
    blocks = blocks_in_use()
    in_use = {_disk(block) for block in blocks}
    for block in sysfs.names(f"{sysfs.SYS}/class/block"):
        if functions.isdisjoint(_functions(block)) or _disk(block) in in_use:
            continue
        if _is_hardware(block):
            blocks[block] = _dormant(block)
    return _of_functions(blocks, _links_in_use(functions))


def active(functions: Set[str]) -> Uses:
    """Return the uses that are active: :func:`uses` without those that only a disk's content shows."""
    return _of_functions(blocks_in_use(), _links_in_use(functions))


def _of_functions(blocks: Uses, links: Uses) -> Uses:
    found: Uses = {}
    for block, sentences in blocks.items():
        _add(found, _functions(block), sentences)
    for link, sentences in links.items():
        _add(found, sysfs.functions(_link(link)), sentences)
    return found


def _add(found: Uses, keys: Iterable[str], sentences: List[str]) -> None:
    for key in dict.fromkeys(keys) if sentences else ():
        found.setdefault(key, []).extend(sentences)


# -- disks


def _block(name: str) -> str:
    return f"{sysfs.SYS}/class/block/{name}"


def _disk(block: str) -> str:
    """Return the disk that a partition is of; a disk itself otherwise, or what is gone meanwhile."""
    if not sysfs.value(f"{_block(block)}/partition"):
        return block
    *_, disk, _ = sysfs.parts(_block(block)) or (block, "")
    return disk


def _functions(block: str) -> List[str]:
    """Return the PCI functions below a disk, through partitions, volumes, arrays and NVMe paths."""
    disk = _disk(block)
    lower = sysfs.names(f"{_block(disk)}/slaves") or _paths(disk)
    own = sysfs.functions(_block(disk))
    return own + [address for name in lower for address in _functions(name)]


def _paths(disk: str) -> List[str]:
    """Return the paths of an NVMe namespace that several controllers may have: ``nvme0c1n1``."""
    if not disk.startswith("nvme") or _PATH.fullmatch(disk):
        return []
    found = ((name, _PATH.fullmatch(name)) for name in sysfs.names(f"{sysfs.SYS}/class/block"))
    return [name for name, match in found if match and disk == f"nvme{match[1]}n{match[2]}"]


def blocks_in_use() -> Uses:
    """Return the uses of each disk and partition: mounts, swap space, volumes and file systems on it."""
    found: Uses = {}
    for block, point in _mounts().items():
        _add(found, [block], [f"{block} is mounted on {point}"])
    for block in _swaps():
        _add(found, [block], [f"{block} is swap space"])
    for block in sysfs.names(f"{sysfs.SYS}/class/block"):
        holders = sysfs.names(f"{_block(block)}/holders")
        _add(found, [block], [f"{block} is part of {_in_words(holder)}" for holder in holders])
    for volume in sysfs.names(f"{sysfs.SYS}/fs/btrfs"):
        for block in sysfs.names(f"{sysfs.SYS}/fs/btrfs/{volume}/devices"):
            _add(found, [block], [f"{block} is part of the mounted btrfs {volume}"])
    return found


def _in_words(holder: str) -> str:
    name = sysfs.value(f"{_block(holder)}/dm/name")
    return f"{holder} ({name})" if name else holder


def _mounts() -> Dict[str, str]:
    """Return where each disk is mounted, the first place only: the others are bind mounts of it."""
    found: Dict[str, str] = {}
    for line in sysfs.lines(f"{sysfs.PROC}/self/mountinfo"):
        _, _, number, _, point, *_ = line.split()
        block = sysfs.target(f"{sysfs.SYS}/dev/block/{number}") or _by_source(line)
        if block:
            found.setdefault(block, _unescaped(point))
    return found


def _by_source(line: str) -> Optional[str]:
    """Return the disk that a mount names: a btrfs has a device number that is no disk's."""
    source = line.partition(" - ")[2].split()[1]
    return _node(_unescaped(source)) if source.startswith("/dev/") else None


def _swaps() -> List[str]:
    sources = [line.split()[0] for line in sysfs.lines(f"{sysfs.PROC}/swaps")[1:]]
    nodes = [_node(_unescaped(source)) for source in sources if source.startswith("/dev/")]
    return [node for node in nodes if node]


def _node(path: str) -> Optional[str]:
    """Return the kernel's name of a device file, through links like those of ``/dev/mapper``."""
    name = os.path.realpath(path).rpartition("/")[2]
    return name if sysfs.target(_block(name)) else None


def _unescaped(text: str) -> str:
    """Undo the octal escapes of white space (fs/seq_file.c, mangle_path)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _is_hardware(block: str) -> bool:
    """Return whether a disk is a medium that can be read, and nothing on top of other disks."""
    hidden = sysfs.value(f"{_block(block)}/hidden") == "1"
    empty = sysfs.value(f"{_block(block)}/size") in {"", "0"}
    return not (hidden or empty or sysfs.names(f"{_block(_disk(block))}/slaves"))


def _dormant(block: str) -> List[str]:
    """Return the use that sysfs does not show: what the disk is a member of, or that it is held."""
    try:
        _claim_briefly(f"{DEV}/{block}")
        member = member_of(f"{DEV}/{block}")
    except OSError as error:
        if error.errno == errno.EBUSY:
            return [f"{block} is held by the kernel or a program"]
        return [f"{block} cannot be read: {error.strerror}"]
    return [f"{block} is a member of {member}"] if member else []


def _claim_briefly(path: str) -> None:
    """Raise OSError (EBUSY) if the disk is claimed: by a ZFS pool, a journal, a container's mount.

    Another survey claims it for an instant, too, so a busy disk is tried again.
    """
    for pause in _ASK_AGAIN:
        if _is_free(path):
            return
        time.sleep(pause)
    _claim(path)


def _is_free(path: str) -> bool:
    try:
        _claim(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _claim(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))


# -- network interfaces


def _links_in_use(functions: Set[str]) -> Uses:
    """Return the uses of each link of these functions."""
    by_index = addresses()
    gateways = _default_routes()
    found: Uses = {}
    for link in sysfs.names(f"{sysfs.SYS}/class/net"):
        if functions.isdisjoint(sysfs.functions(_link(link))):
            continue
        own = _given(by_index.get(int(sysfs.value(f"{_link(link)}/ifindex") or 0), []))
        route = [f"{link} has the default route"] if link in gateways else []
        given = [f"{link} has the address {address}" for address in own]
        found[link] = [*route, *given, *_uppers(link)]
    return found


def _link(name: str) -> str:
    return f"{sysfs.SYS}/class/net/{name}"


def _given(found: List[str]) -> List[str]:
    """Return the addresses without link-local IPv6 ones: the kernel assigns one when a link comes up."""
    return [a for a in found if not (":" in a and ipaddress.ip_interface(a).ip.is_link_local)]


def _uppers(link: str) -> List[str]:
    """Return the bridge, bond or switch that a link is a port of, and what is up on top of it."""
    master = sysfs.target(f"{_link(link)}/master")
    names = (n[len("upper_") :] for n in sysfs.names(_link(link)) if n.startswith("upper_"))
    up = [name for name in names if name != master and _is_up(name)]
    ports = [f"{link} is a port of {master}"] if master else []
    return ports + [f"{name} runs on {link}" for name in up]


def _is_up(link: str) -> bool:
    return bool(int(sysfs.value(f"{_link(link)}/flags") or "0", 16) & _IFF_UP)


def _default_routes() -> Set[str]:
    """Return the links of the default routes, IPv4 and IPv6."""
    found = set()
    for line in sysfs.lines(f"{sysfs.PROC}/net/route")[1:]:
        link, destination, _, flags, _, _, _, mask = line.split()[:8]
        if destination == mask == "00000000" and _works(flags):
            found.add(link)
    for line in sysfs.lines(f"{sysfs.PROC}/net/ipv6_route"):
        destination, length, *_, flags, link = line.split()
        if length == "00" and not destination.strip("0") and _works(flags):
            found.add(link)
    return found


def _works(flags: str) -> bool:
    return int(flags, 16) & (_RTF_UP | _RTF_REJECT) == _RTF_UP
