"""Admin commands to NVMe controllers, by the kernel's pass-through.

Numbers and offsets are those of the NVM Express Base Specification 2.0 (the section is named) and of
Linux, include/uapi/linux/nvme_ioctl.h.
"""

import ctypes
import errno
import fcntl
import struct
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NamedTuple

# _IOWR('N', 0x41, struct nvme_admin_cmd), whose 72 bytes are laid out below.
_ADMIN_COMMAND = 0xC0484E41
# opcode, flags, -, nsid, cdw2, cdw3, metadata, addr, metadata_len, data_len, cdw10 to cdw15,
# timeout_ms, result.
_COMMAND = struct.Struct("=BBHIIIQQII6III")
# 5: admin commands.
_GET_LOG_PAGE, _IDENTIFY, _FORMAT, _SANITIZE = 0x02, 0x06, 0x80, 0x84
# 5.17.1, figure 273: what Identify returns (CNS).
_NAMESPACE, _CONTROLLER, _ACTIVE = 0x00, 0x01, 0x02
_ALLOCATED, _ATTACHED, _SECONDARY = 0x10, 0x12, 0x15
_SANITIZE_STATUS = 0x81  # 5.16.1.25
_PAGE = 4096


class NvmeError(OSError):
    """A controller refused a command; ``errno`` is EIO."""


class Controller(NamedTuple):
    """The capabilities of a controller (5.17.2.1, figure 275)."""

    id: int
    """CNTLID."""
    can_format: bool
    manages_namespaces: bool
    has_secondaries: bool
    """Whether it may have VFs with controllers (OACS, Virtualization Management)."""
    secure_erase_of_all: bool
    """Whether a format, or its secure erase, is of all namespaces of the subsystem (FNA)."""
    format_crypto: bool
    sanitize_crypto: bool
    sanitize_block: bool


class NvmeNamespace(NamedTuple):
    """A namespace (NVM Command Set Specification 1.0, 4.1.5.1, figure 97)."""

    id: int
    size: int
    """Bytes."""
    format: int
    """Its present format, as Format NVM takes it."""
    deallocated_ones: bool
    """Whether deallocated blocks read as FFh (DLFEAT)."""


class Secondary(NamedTuple):
    """A secondary controller (5.17.2.15)."""

    id: int
    online: bool
    vf: int
    """Number of its VF, from 1; 0 is none."""


class NvmeDevice:
    """A controller's character device, open.

    :param deadline: monotonic time by which each command has ended.
    """

    def __init__(self, file: int, deadline: float) -> None:
        self._file, self._deadline = file, deadline

    def controller(self) -> Controller:
        """Identify the controller."""
        data = self._identify(_CONTROLLER)
        (sanitize,) = struct.unpack_from("<I", data, 328)
        (oacs,) = struct.unpack_from("<H", data, 256)
        fna = data[524]
        return Controller(
            id=struct.unpack_from("<H", data, 78)[0],
            can_format=bool(oacs & 1 << 1),
            manages_namespaces=bool(oacs & 1 << 3),
            has_secondaries=bool(oacs & 1 << 7),
            secure_erase_of_all=bool(fna & 0b11),
            format_crypto=bool(fna & 1 << 2),
            sanitize_crypto=bool(sanitize & 1 << 0),
            sanitize_block=bool(sanitize & 1 << 1),
        )

    def namespaces(self) -> List[NvmeNamespace]:
        """Identify the namespaces that are attached to the controller."""
        return [self._namespace(number) for number in self._numbers(_ACTIVE)]

    def allocated(self) -> List[int]:
        """Return the ids of all namespaces of the subsystem, attached or not."""
        return self._numbers(_ALLOCATED)

    def attached_to(self, namespace: int) -> List[int]:
        """Return the ids of the controllers that a namespace is attached to."""
        data = self._identify(_ATTACHED, namespace)
        (count,) = struct.unpack_from("<H", data)
        return list(struct.unpack_from(f"<{count}H", data, 2))

    def secondaries(self) -> List[Secondary]:
        """Return the controllers that this one is the primary of."""
        data = self._identify(_SECONDARY)
        entries = struct.iter_unpack("<HHB3xH22x", data[32 : 32 + 32 * data[0]])
        return [Secondary(number, bool(state & 1), vf) for number, _, state, vf in entries]

    def format(self, namespace: NvmeNamespace, *, crypto: bool) -> None:
        """Format a namespace as it is, with secure erase (5.14: SES, 2 is cryptographic)."""
        erase = 2 if crypto else 1
        self._command(_FORMAT, namespace.id, cdw10=namespace.format | erase << 9)

    def sanitize(self, *, crypto: bool) -> None:
        """Erase all that the subsystem holds, and block until that is done (5.24: SANACT).

        :raises NvmeError: if it failed.
        """
        self._await_sanitize()
        self._command(_SANITIZE, cdw10=4 if crypto else 2)
        if self._await_sanitize() == 3:
            raise NvmeError(errno.EIO, "the controller says that its sanitize operation failed")

    def _await_sanitize(self) -> int:
        """Return the state of the last sanitize operation when none is under way (SSTAT)."""
        state = self._sanitize_state()
        while state == 2:
            if time.monotonic() > self._deadline:
                raise TimeoutError(errno.ETIMEDOUT, "the sanitize operation did not end in time")
            time.sleep(0.1)
            state = self._sanitize_state()
        return state

    def _sanitize_state(self) -> int:
        length = 512
        data = self._command(
            _GET_LOG_PAGE,
            0xFFFFFFFF,
            length=length,
            cdw10=_SANITIZE_STATUS | (length // 4 - 1) << 16,
        )
        state: int = struct.unpack_from("<H", data, 2)[0]
        return state & 0b111

    def _namespace(self, number: int) -> NvmeNamespace:
        data = self._identify(_NAMESPACE, number)
        blocks, flbas, protection = struct.unpack_from("<Q", data)[0], data[26], data[29]
        kind = flbas & 0xF | (flbas >> 5 & 0b11) << 4
        shift = data[128 + 4 * kind + 2]
        # Format NVM, CDW10: LBAF in 3:0 and 13:12, MSET 4, PI 7:5, PIL 8.
        request = flbas & 0x1F | (protection & 0xF) << 5 | (flbas >> 5 & 0b11) << 12
        return NvmeNamespace(number, blocks << shift, request, data[33] & 0b111 == 2)

    def _numbers(self, what: int) -> List[int]:
        return [n for (n,) in struct.iter_unpack("<I", self._identify(what)) if n]

    def _identify(self, what: int, namespace: int = 0) -> bytes:
        return self._command(_IDENTIFY, namespace, length=_PAGE, cdw10=what)

    def _command(self, opcode: int, namespace: int = 0, length: int = 0, cdw10: int = 0) -> bytes:
        left = int((self._deadline - time.monotonic()) * 1000)
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "the time for the drive is spent")
        data = ctypes.create_string_buffer(length or 1)
        where = ctypes.addressof(data) if length else 0
        words = (cdw10, 0, 0, 0, 0, 0)
        command = bytearray(
            _COMMAND.pack(opcode, 0, 0, namespace, 0, 0, 0, where, 0, length, *words, left, 0)
        )
        status = fcntl.ioctl(self._file, _ADMIN_COMMAND, command)
        if status:
            raise NvmeError(errno.EIO, f"command {opcode:#04x} ended with status {status:#06x}")
        return data.raw[:length]


@contextmanager
def opened(name: str, deadline: float) -> Iterator[NvmeDevice]:
    """Open a controller by its name, ``nvme0``."""
    with Path(f"/dev/{name}").open("r+b", buffering=0) as file:
        yield NvmeDevice(file.fileno(), deadline)
