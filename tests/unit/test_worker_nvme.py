"""Erasing a drive: which way is taken, and what counts as a proof. A real controller: tests/worker."""

import errno
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_direct.drivers.hosts.agent import nvme, samples
from fabric_direct.drivers.hosts.agent.nvme_commands import (
    NvmeDevice,
    NvmeError,
    NvmeNamespace,
    Secondary,
)

MIB = 1024**2
LATER = time.monotonic() + 3600
SANITIZE, FORMAT = 0x84, 0x80


class Scripted(NvmeDevice):
    """A controller that no lab has: what it can do is given, what it is asked is written down."""

    def __init__(self, *, oacs: int = 0, fna: int = 0, sanicap: int = 0) -> None:
        super().__init__(-1, LATER)
        self.identity = bytearray(4096)
        struct.pack_into("<H", self.identity, 256, oacs)
        struct.pack_into("<I", self.identity, 328, sanicap)
        self.identity[524] = fna
        self.asked: list[tuple[int, int, int]] = []
        self.refuses: set[int | tuple[int, int]] = set()
        """Commands, all of an opcode or those with an argument (CDW10)."""
        self.sanitize_states = [1]
        self.pages: dict[int, bytes] = {}

    def _command(self, opcode: int, namespace: int = 0, length: int = 0, cdw10: int = 0) -> bytes:
        if opcode == 0x06:
            return bytes(self.identity) if cdw10 == 1 else self.pages[cdw10]
        if opcode == 0x02:
            state = self.sanitize_states
            return struct.pack("<HH", 0, state.pop(0) if len(state) > 1 else state[0])
        self.asked.append((opcode, namespace, cdw10))
        if self.refuses & {opcode, (opcode, cdw10)}:
            raise NvmeError(errno.EIO, f"command {opcode:#04x} ended with status 0x0001")
        return b""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A disk of 2 MiB with a tenant's data, as a file."""
    path = tmp_path / "nvme9n1"
    path.write_bytes((b"SECRET" * MIB)[: 2 * MIB])
    found = os.open(path, os.O_RDWR)
    yield found
    os.close(found)


def a_disk(file: int, number: int = 1, *, ones: bool = False) -> nvme._Disk:
    places = samples.places(2 * MIB)
    before = samples.fingerprints(file, places, LATER)
    return nvme._Disk(NvmeNamespace(number, 2 * MIB, 0, ones), "nvme9n1", file, places, before)


# -- which way


CAN_FORMAT, CAN_CRYPTO_FORMAT, OF_ALL = 0b10, 0b100, 0b10


def test_crypto_erase_is_the_best(file: int) -> None:
    device = Scripted(oacs=CAN_FORMAT, sanicap=0b11)

    assert nvme._erase(device, [a_disk(file)], LATER, alone=True) == "sanitize, crypto erase"
    assert device.asked == [(SANITIZE, 0, 4)]


def test_block_erase_is_next(file: int) -> None:
    device = Scripted(oacs=CAN_FORMAT, sanicap=0b10)

    assert nvme._erase(device, [a_disk(file)], LATER, alone=True) == "sanitize, block erase"
    assert device.asked == [(SANITIZE, 0, 2)]


@pytest.mark.parametrize(
    ("fna", "method", "ses"),
    [(0, "format, user data erase", 1), (CAN_CRYPTO_FORMAT, "format, crypto erase", 2)],
)
def test_a_format_is_next_and_erases_each_namespace(
    file: int, fna: int, method: str, ses: int
) -> None:
    device = Scripted(oacs=CAN_FORMAT, fna=fna)

    assert nvme._erase(device, [a_disk(file), a_disk(file, 2)], LATER, alone=True) == method
    assert device.asked == [(FORMAT, 1, ses << 9), (FORMAT, 2, ses << 9)]


def test_user_data_erase_is_next_where_the_controller_refuses_the_crypto_erase(file: int) -> None:
    device = Scripted(oacs=CAN_FORMAT, fna=CAN_CRYPTO_FORMAT)
    device.refuses = {(FORMAT, 2 << 9)}

    method = nvme._erase(device, [a_disk(file), a_disk(file, 2)], LATER, alone=True)

    assert method == "format, user data erase"
    assert device.asked == [(FORMAT, 1, 2 << 9), (FORMAT, 1, 1 << 9), (FORMAT, 2, 1 << 9)]


def test_a_format_that_erases_all_is_made_once(file: int) -> None:
    device = Scripted(oacs=CAN_FORMAT, fna=OF_ALL)
    nvme._erase(device, [a_disk(file), a_disk(file, 2)], LATER, alone=True)

    assert device.asked == [(FORMAT, 1, 1 << 9)]


def test_what_is_of_the_whole_subsystem_is_not_done_to_another_controller(file: int) -> None:
    device = Scripted(oacs=CAN_FORMAT, fna=OF_ALL, sanicap=0b11)

    method = nvme._erase(device, [a_disk(file)], LATER, alone=False)

    assert method == "zeros written over all of it"
    assert device.asked == []


def test_zeros_are_written_if_nothing_else_is_offered(file: int) -> None:
    disk = a_disk(file)

    assert nvme._erase(Scripted(), [disk], LATER, alone=True) == "zeros written over all of it"
    assert os.pread(file, 3 * MIB, 0) == bytes(2 * MIB)
    assert nvme._prove(disk, "zeros", LATER) == "2 MiB read, all empty"


def test_a_way_that_is_refused_is_followed_by_the_next(file: int) -> None:
    device = Scripted(oacs=CAN_FORMAT, sanicap=0b11)
    device.refuses = {SANITIZE}

    assert nvme._erase(device, [a_disk(file)], LATER, alone=True) == "format, user data erase"


class Blurring(Scripted):
    """A controller whose user data erase leaves anything but zeros, or leaves all as it was."""

    def __init__(self, file: int, *, content: bytes) -> None:
        super().__init__(oacs=CAN_FORMAT)
        self.file, self.content = file, content

    def _command(self, opcode: int, namespace: int = 0, length: int = 0, cdw10: int = 0) -> bytes:
        if opcode == FORMAT:
            os.pwrite(self.file, (self.content * 2 * MIB)[: 2 * MIB], 0)
        return super()._command(opcode, namespace, length, cdw10)


@pytest.fixture
def no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands for the disk, and has no cache to be dropped."""
    monkeypatch.setattr(nvme, "_drop_caches", lambda disks: None)


@pytest.mark.usefixtures("no_caches")
def test_what_a_user_data_erase_leaves_is_overwritten_with_zeros(file: int) -> None:
    disk = a_disk(file)

    done = nvme._erased(Blurring(file, content=b"noise!!"), [disk], LATER, alone=True)

    method = "format, user data erase, zeros written over all of it"
    assert done == (method, ["2 MiB read, all empty"])


@pytest.mark.usefixtures("no_caches")
def test_a_user_data_erase_that_leaves_what_was_there_is_no_success(file: int) -> None:
    with pytest.raises(samples.NotErasedError, match="still holds data"):
        nvme._erased(Blurring(file, content=b"SECRET"), [a_disk(file)], LATER, alone=True)

    assert os.pread(file, 6, 0) == b"SECRET"


def test_a_sanitize_operation_is_waited_for(file: int) -> None:
    device = Scripted(sanicap=0b01)
    device.sanitize_states = [0, 2, 2, 1]
    nvme._erase(device, [a_disk(file)], LATER, alone=True)

    assert device.sanitize_states == [1]


def test_one_that_an_interrupted_call_began_is_waited_for_first(file: int) -> None:
    device = Scripted(sanicap=0b01)
    device.sanitize_states = [2, 2, 1, 1]
    device.sanitize(crypto=True)

    assert device.asked == [(SANITIZE, 0, 4)]


def test_a_sanitize_operation_that_failed_is_no_success() -> None:
    device = Scripted(sanicap=0b01)
    device.sanitize_states = [0, 2, 3]

    with pytest.raises(NvmeError, match="sanitize operation failed"):
        device.sanitize(crypto=True)


def test_a_sanitize_operation_that_takes_too_long_is_given_up() -> None:
    device = Scripted(sanicap=0b01)
    device.sanitize_states = [2]
    device._deadline = time.monotonic() + 0.05

    with pytest.raises(TimeoutError, match="did not end in time"):
        device.sanitize(crypto=True)


# -- what a controller says


def test_a_namespace_is_formatted_as_it_is() -> None:
    """FLBAS 0x33: format 3 and, by bits 6:5, 16 more; metadata at the end; protection type 1, first."""
    device, page = Scripted(), bytearray(4096)
    struct.pack_into("<Q", page, 0, 1000)
    page[26], page[29], page[33] = 0x33, 0b1001, 0b010
    page[128 + 4 * 19 + 2] = 12
    device.pages = {0x02: struct.pack("<3I", 5, 0, 0), 0x00: bytes(page)}

    (namespace,) = device.namespaces()

    assert namespace == NvmeNamespace(5, 1000 << 12, 0x13 | 0b1001 << 5 | 1 << 12, True)


def test_secondary_controllers_are_told_with_their_vfs() -> None:
    device = Scripted()
    entries = struct.pack("<HHB3xH22x", 1, 0, 0, 1) + struct.pack("<HHB3xH22x", 2, 0, 1, 2)
    device.pages = {0x15: b"\x02" + bytes(31) + entries + bytes(4096 - 96)}

    assert device.secondaries() == [Secondary(1, False, 1), Secondary(2, True, 2)]


def test_a_command_is_not_begun_without_time(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="is spent"):
        NvmeDevice(-1, time.monotonic() - 1).controller()


# -- what counts as a proof


def test_data_that_is_still_there_is_no_erased_drive(file: int) -> None:
    with pytest.raises(samples.NotErasedError, match="nvme9n1 still holds data at byte 0"):
        nvme._prove(a_disk(file), "format, user data erase", LATER)


def test_one_page_that_is_left_is_enough(file: int) -> None:
    disk = a_disk(file)
    samples.overwrite(file, 2 * MIB, LATER)
    os.pwrite(file, b"x", MIB + 4097)

    with pytest.raises(samples.NotErasedError, match=f"at byte {MIB + 4096}"):
        nvme._prove(disk, "zeros", LATER)


def test_after_a_crypto_erase_noise_is_as_good_as_zeros(file: int) -> None:
    disk = a_disk(file)
    os.pwrite(file, os.urandom(2 * MIB), 0)

    assert nvme._prove(disk, "sanitize, crypto erase", LATER) == "2 MiB read, all changed"


def test_after_a_crypto_erase_what_was_there_is_not(file: int) -> None:
    disk = a_disk(file)
    os.pwrite(file, os.urandom(MIB), 0)

    with pytest.raises(samples.NotErasedError, match=f"at byte {MIB}"):
        nvme._prove(disk, "sanitize, crypto erase", LATER)


def test_after_anything_else_noise_is_not_empty(file: int) -> None:
    disk = a_disk(file)
    os.pwrite(file, os.urandom(2 * MIB), 0)

    with pytest.raises(samples.NotErasedError):
        nvme._prove(disk, "sanitize, block erase", LATER)


@pytest.mark.parametrize("says_so", [True, False])
def test_ones_are_empty_if_the_drive_says_that_empty_blocks_are_ones(
    file: int, says_so: bool
) -> None:
    disk = a_disk(file, ones=says_so)
    os.pwrite(file, b"\xff" * 2 * MIB, 0)

    if says_so:
        assert nvme._prove(disk, "format", LATER) == "2 MiB read, all empty"
    else:
        with pytest.raises(samples.NotErasedError):
            nvme._prove(disk, "format", LATER)


def test_a_small_drive_is_read_whole() -> None:
    places = samples.places(5 * MIB + 512)

    assert places == [(n * MIB, MIB) for n in range(5)] + [(5 * MIB, 512)]


def test_of_a_large_drive_its_ends_and_blocks_nobody_can_foresee_are_read() -> None:
    size = 4000 * 10**9 // 512 * 512
    one, other = samples.places(size), samples.places(size)

    assert one[0] == (0, MIB)
    assert one[-1] == (size - MIB, MIB)
    assert len(one) == 2 + samples.RANDOM_BLOCKS
    assert all(at >= 0 and at + length <= size for at, length in one)
    assert one != other


def test_a_disk_that_ends_early_is_not_verified(file: int) -> None:
    os.ftruncate(file, MIB)

    with pytest.raises(samples.NotErasedError, match="cannot be read"):
        samples.fingerprints(file, samples.places(2 * MIB), LATER)


def test_reading_ends_when_its_time_is_over(file: int) -> None:
    with pytest.raises(TimeoutError, match="is spent"):
        samples.fingerprints(file, samples.places(2 * MIB), time.monotonic() - 1)


def test_writing_ends_when_its_time_is_over(file: int) -> None:
    with pytest.raises(TimeoutError, match="is spent"):
        samples.overwrite(file, 2 * MIB, time.monotonic() - 1)
