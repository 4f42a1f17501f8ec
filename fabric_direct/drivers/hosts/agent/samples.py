"""Samples of a disk's content, which show whether it is erased."""

import errno
import mmap
import os
import secrets
import time
from hashlib import blake2b
from typing import Dict, Iterator, List, Tuple

MIB = 1024**2
# A disk of this size or less is read whole.
WHOLE = 64 * MIB
RANDOM_BLOCKS, BLOCK = 64, 64 * 1024
PAGE = 4096
_ZEROS = bytes(PAGE)

Place = Tuple[int, int]
"""Offset and length, in bytes: both are multiples of :data:`PAGE`, but for a disk's odd end."""


class NotErasedError(OSError):
    """Something is still on the disk, or may be; ``errno`` is EIO."""


def places(size: int) -> List[Place]:
    """Return the places to read: the first and last MiB, and 64 random blocks of 64 KiB in between.

    A disk of at most 64 MiB is read whole.
    """
    if size <= WHOLE:
        return [(at, min(MIB, size - at)) for at in range(0, size, MIB)]
    blocks = (size - MIB) // BLOCK
    between = [(secrets.randbelow(blocks) * BLOCK, BLOCK) for _ in range(RANDOM_BLOCKS)]
    return [(0, MIB), *sorted(between), (size - MIB, MIB)]


def fingerprints(file: int, wanted: List[Place], deadline: float) -> Dict[int, bytes]:
    """Return a digest of each page that is not all zeros, by its offset."""
    found = pages(file, wanted, deadline)
    return {at: digest(page) for at, page in found if page != _ZEROS[: len(page)]}


def digest(page: bytes) -> bytes:
    """Return the digest of a page's content."""
    return blake2b(page, digest_size=16).digest()


def pages(file: int, wanted: List[Place], deadline: float) -> Iterator[Tuple[int, bytes]]:
    """Read these places, past all caches (O_DIRECT), and yield each page with its offset.

    :raises NotErasedError: if the disk returns less than was asked for.
    """
    with mmap.mmap(-1, MIB) as buffer:
        for at, length in wanted:
            in_time(deadline)
            os.lseek(file, at, os.SEEK_SET)
            if os.readv(file, [memoryview(buffer)[:length]]) != length:
                raise NotErasedError(errno.EIO, f"{length} bytes at {at} cannot be read")
            for offset in range(0, length, PAGE):
                yield at + offset, buffer[offset : min(offset + PAGE, length)]


def in_time(deadline: float) -> None:
    """Raise TimeoutError if the deadline has passed."""
    if time.monotonic() > deadline:
        raise TimeoutError(errno.ETIMEDOUT, "the time for the drive is spent")


def overwrite(file: int, size: int, deadline: float) -> None:
    """Write zeros from the first byte to the last, past all caches, and sync the disk."""
    with mmap.mmap(-1, 4 * MIB) as buffer:
        at = os.lseek(file, 0, os.SEEK_SET)
        while at < size:
            in_time(deadline)
            at += os.writev(file, [memoryview(buffer)[: min(len(buffer), size - at)]])
    os.fsync(file)
