"""Signatures on disks: the volume group, array or pool that a disk is a member of, running or not.

Offsets and values are those of the formats' own sources, which the table names.
"""

import os
from pathlib import Path
from typing import Iterable, Optional, Tuple

_HEAD, _TAIL = 256 * 1024, 192 * 1024
_SECTOR = 512

Signature = Tuple[str, int, bytes]
"""Name, offset from the disk's beginning, bytes there."""

# OpenZFS, include/sys/uberblock_impl.h, in either byte order; the ring of uberblocks fills the second
# half of the label of 256 KiB, in slots of at least 1 KiB.
_ZFS = (b"\x0c\xb1\xba\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\xba\xb1\x0c")
_AT_BEGINNING: Tuple[Signature, ...] = (
    # LVM2, lib/format_text/layout.h: a label in one of the first four sectors.
    *(("an LVM volume group", n * _SECTOR, b"LABELONE") for n in range(4)),
    # Linux, include/uapi/linux/raid/md_p.h: MD_SB_MAGIC; version 1.1 at 0, 1.2 at 4 KiB.
    ("an md array", 0, b"\xfc\x4e\x2b\xa9"),
    ("an md array", 4096, b"\xfc\x4e\x2b\xa9"),
    # Linux, drivers/md/bcache/bcache_ondisk.h: the magic lies 24 bytes into the superblock at 4 KiB.
    ("a bcache", 4096 + 24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    # Ceph, src/os/bluestore/BlueStore.cc.
    ("a Ceph bluestore", 0, b"bluestore block device"),
    *(("a ZFS pool", at, magic) for at in range(_HEAD // 2, _HEAD, 1024) for magic in _ZFS),
)


def member_of(path: str) -> Optional[str]:
    """Return what a disk or partition is a member of; None if nothing known is on it.

    At most 448 KiB of it are read.

    :raises OSError: if it cannot be read.
    """
    with Path(path).open("rb", buffering=0) as disk:
        size = disk.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL)
        head, tail = (os.pread(disk.fileno(), *at) for at in ((_HEAD, 0), (_TAIL, start)))
    return _found(_AT_BEGINNING, head) or _found(_at_end(size), tail, start)


def _found(table: Iterable[Signature], content: bytes, start: int = 0) -> Optional[str]:
    """Return the name of the first signature that is in what was read from ``start`` on."""
    for name, offset, magic in table:
        if offset >= start and content.startswith(magic, offset - start):
            return name
    return None


def _at_end(size: int) -> Tuple[Signature, ...]:
    sectors = size // _SECTOR
    return (
        # md_p.h: version 0.90 in the last whole 64 KiB, in the byte order of its machine; version 1.0
        # 8 KiB before the end, at a multiple of 4 KiB.
        ("an md array", (size & ~0xFFFF) - 0x10000, b"\xfc\x4e\x2b\xa9"),
        ("an md array", (size & ~0xFFFF) - 0x10000, b"\xa9\x2b\x4e\xfc"),
        ("an md array", (sectors - 16 & ~7) * _SECTOR, b"\xfc\x4e\x2b\xa9"),
        # mdadm, super-intel.c: the last sector but one; super-ddf.c: the last.
        ("an Intel RST/VROC array", (sectors - 2) * _SECTOR, b"Intel Raid ISM Cfg Sig."),
        ("a DDF array", (sectors - 1) * _SECTOR, b"\xde\x11\xde\x11"),
    )
