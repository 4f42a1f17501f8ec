"""Erases an NVMe drive, and verifies that it is erased.

The first way that the controller supports is taken: sanitize (crypto erase, block erase), format with
secure erase (cryptographic, user data), zeros written over everything. Then blocks are read, past all
caches, and compared with what was there before.
"""

import errno
import fcntl
import os
import re
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from fabric_direct.drivers.hosts.agent import samples, sysfs, usage
from fabric_direct.drivers.hosts.agent.nvme_commands import (
    NvmeDevice,
    NvmeError,
    NvmeNamespace,
    opened,
)

__all__ = ["erase"]

# include/uapi/linux/fs.h.
_BLKRRPART, _BLKFLSBUF = 0x125F, 0x1261
# Seconds for a controller to start, its disks to come, and what looks at new disks (udev) to let go.
_PATIENCE = 10.0
_STEP = 0.1
_ONES = samples.digest(b"\xff" * samples.PAGE)
_USER_DATA = "format, user data erase"
_DISK = re.compile(r"(nvme\d+)(?:c\d+)?(n\d+)")

Report = Dict[str, Any]
Way = Tuple[str, Callable[[], None]]
"""What it is called, and how it is done."""


class _Disk(NamedTuple):
    """A namespace and its disk on the host, which is open exclusively (O_EXCL)."""

    namespace: NvmeNamespace
    name: str
    file: int
    places: List[samples.Place]
    before: Dict[int, bytes]


def erase(address: str, limit: float) -> Report:
    """Erase all namespaces of an NVMe controller, and verify it.

    :param limit: seconds for all of it.
    :return: ``method``: how; ``proof``: what was read; ``namespaces``: the names of their disks;
        ``bytes``: their size in all. A VF without namespaces has nothing to be erased.
    :raises OSError: EBUSY if the host, or another controller, uses any of it; ENODEV if the host has no
        running controller there; EIO if something is still on it, or may be; ETIMEDOUT.
    """
    deadline = time.monotonic() + limit
    _await_controller(address, deadline)
    used = usage.active({address}).get(address)
    if used:
        raise OSError(errno.EBUSY, f"the host uses {address}: {', '.join(used)}")
    if _is_vf(address) and not _controllers(address):
        return _of_idle_vf(address, deadline)
    with opened(_controller(address), deadline) as device:
        namespaces = device.namespaces()
        others = _others(address, device)
        _refuse_shared(address, device, namespaces, others)
        if not namespaces:
            return _nothing(address)
        with _held(address, namespaces, deadline) as disks:
            method, proofs = _erased(device, disks, deadline, alone=not others)
            _forget_partitions(disks, deadline)
    return _report(method, proofs, disks)


def _report(method: str, proofs: List[str], disks: List[_Disk]) -> Report:
    names, size = [disk.name for disk in disks], sum(disk.namespace.size for disk in disks)
    proof = "; ".join(dict.fromkeys(proofs))
    return {"method": method, "proof": proof, "namespaces": names, "bytes": size}


# -- the controller, and who else has its namespaces


def _is_vf(address: str) -> bool:
    return sysfs.target(f"{sysfs.pci(address)}/physfn") is not None


def _controllers(address: str) -> List[str]:
    return sysfs.names(f"{sysfs.pci(address)}/nvme")


def _controller(address: str) -> str:
    """Return the name of a function's controller: ``nvme0``."""
    found = _controllers(address)
    if _state(address) != "live":
        why = f"its driver is {_driver(address)}, its state is {_state(address)!r}"
        raise OSError(errno.ENODEV, f"no NVMe controller runs at {address}: {why}")
    return found[0]


def _state(address: str) -> str:
    found = _controllers(address)
    return sysfs.value(f"{sysfs.pci(address)}/nvme/{found[0]}/state") if found else ""


def _driver(address: str) -> Optional[str]:
    return sysfs.target(f"{sysfs.pci(address)}/driver")


def _await_controller(address: str, deadline: float) -> None:
    """Wait for a controller that was just bound to its driver, at most 10 s."""
    stop = min(deadline, time.monotonic() + _PATIENCE)
    while _driver(address) == "nvme" and _state(address) != "live" and time.monotonic() < stop:
        time.sleep(_STEP)


def _others(address: str, device: NvmeDevice) -> Set[int]:
    """Return the other controllers of the subsystem that run: on this host, or as VFs of ours."""
    known = f"{sysfs.SYS}/class/nvme"
    subsystem = sysfs.value(f"{known}/{_controller(address)}/subsysnqn")
    here = {
        int(sysfs.value(f"{known}/{name}/cntlid"))
        for name in sysfs.names(known)
        if sysfs.value(f"{known}/{name}/subsysnqn") == subsystem
    }
    return (here | _running_vfs(device)) - {device.controller().id}


def _running_vfs(device: NvmeDevice) -> Set[int]:
    if not device.controller().has_secondaries:
        return set()
    return {secondary.id for secondary in device.secondaries() if secondary.online}


def _refuse_shared(
    address: str, device: NvmeDevice, namespaces: List[NvmeNamespace], others: Set[int]
) -> None:
    """Refuse namespaces that another running controller has too, and those that none has.

    :raises OSError: EBUSY for the former, EIO for the latter.
    """
    if not device.controller().manages_namespaces:
        return
    own = {namespace.id for namespace in namespaces}
    for number in device.allocated():
        having = others & set(device.attached_to(number))
        if number in own and having:
            why = f"namespace {number} of {address} is also controller {min(having)}'s"
            raise OSError(errno.EBUSY, why)
        if number not in own and not having and not _is_vf(address):
            why = f"namespace {number} of {address} is attached to no controller: it cannot be read"
            raise samples.NotErasedError(errno.EIO, why)


def _nothing(address: str) -> Report:
    """Report that there is nothing to erase; raise NotErasedError unless it is a VF."""
    if not _is_vf(address):
        raise samples.NotErasedError(errno.EIO, f"{address} has no namespace that could be read")
    return {"method": "none", "proof": "it has no namespaces", "namespaces": [], "bytes": 0}


def _of_idle_vf(address: str, deadline: float) -> Report:
    """Report a VF whose controller does not run; its PF must say that it has no namespaces.

    :raises OSError: ENODEV if it has, or runs for somebody else.
    """
    physical = sysfs.target(f"{sysfs.pci(address)}/physfn") or ""
    vfs = f"{sysfs.pci(physical)}/virtfn"
    with opened(_controller(physical), deadline) as device:
        found = [s for s in device.secondaries() if sysfs.target(f"{vfs}{s.vf - 1}") == address]
        attached = [n for s in found for n in device.allocated() if s.id in device.attached_to(n)]
    if attached or not found or found[0].online:
        why = f"and its PF does not say that it is offline and has no namespaces ({attached})"
        raise OSError(errno.ENODEV, f"the controller of VF {address} does not run here, {why}")
    return _nothing(address)


# -- the disks


@contextmanager
def _held(address: str, namespaces: List[NvmeNamespace], deadline: float) -> Iterator[List[_Disk]]:
    """Open the disks of all namespaces exclusively for the block, so that none can be mounted."""
    with ExitStack() as stack:
        disks = []
        for namespace in namespaces:
            name = _disk_name(address, namespace.id, deadline)
            file = _patiently(partial(_claim, name), deadline)
            stack.callback(os.close, file)
            wanted = samples.places(_size(file, namespace))
            before = samples.fingerprints(file, wanted, deadline)
            disks.append(_Disk(namespace, name, file, wanted, before))
        yield disks


def _disk_name(address: str, namespace: int, deadline: float) -> str:
    """Return the name of a namespace's disk, which may come a moment after its controller."""
    stop = min(deadline, time.monotonic() + _PATIENCE)
    while True:
        directory = f"{sysfs.pci(address)}/nvme/{_controller(address)}"
        for name in sysfs.names(directory):
            match = _DISK.fullmatch(name)
            if match and sysfs.value(f"{directory}/{name}/nsid") == str(namespace):
                return match[1] + match[2]
        if time.monotonic() > stop:
            why = f"namespace {namespace} of {address} has no disk"
            raise samples.NotErasedError(errno.EIO, why)
        time.sleep(_STEP)


def _claim(name: str) -> int:
    flags = os.O_RDWR | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC
    return os.open(f"{usage.DEV}/{name}", flags)


def _size(file: int, namespace: NvmeNamespace) -> int:
    size = os.lseek(file, 0, os.SEEK_END)
    if size != namespace.size or not size:
        why = f"namespace {namespace.id} has {namespace.size} bytes, and its disk {size}"
        raise samples.NotErasedError(errno.EIO, why)
    return size


def _patiently(action: Callable[[], int], deadline: float) -> int:
    """Retry while the disk is busy, at most 10 s: programs look at a new disk for a moment."""
    stop = min(deadline, time.monotonic() + _PATIENCE)
    while True:
        try:
            return action()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > stop:
                raise
        time.sleep(_STEP)


def _drop_caches(disks: List[_Disk]) -> None:
    for disk in disks:
        fcntl.ioctl(disk.file, _BLKFLSBUF)


def _forget_partitions(disks: List[_Disk], deadline: float) -> None:
    """Reread the partition tables, so that the host drops the partitions that were there."""
    for disk in disks:
        _patiently(partial(fcntl.ioctl, disk.file, _BLKRRPART), deadline)


# -- erasing


def _erase(device: NvmeDevice, disks: List[_Disk], deadline: float, *, alone: bool) -> str:
    """Erase in the first way that the controller does not refuse, and return its name."""
    for method, action in _ways(device, disks, alone=alone):
        with suppress(NvmeError):
            action()
            return method
    return _overwritten(disks, deadline)


def _erased(
    device: NvmeDevice, disks: List[_Disk], deadline: float, *, alone: bool
) -> Tuple[str, List[str]]:
    """Erase, and return how, and what was read of each disk.

    After a user data erase the blocks may hold anything (5.14, SES). Where they do not hold what was
    there, zeros are written, which can be proved.

    :raises NotErasedError: if what was there is still there, or it cannot be proved that it is not.
    """
    method = _erase(device, disks, deadline, alone=alone)
    try:
        return method, _proofs(disks, method, deadline)
    except samples.NotErasedError:
        if method != _USER_DATA:
            raise
    for disk in disks:
        _prove(disk, method, deadline, changed=True)
    method = f"{method}, {_overwritten(disks, deadline)}"
    return method, _proofs(disks, method, deadline)


def _overwritten(disks: List[_Disk], deadline: float) -> str:
    for disk in disks:
        samples.overwrite(disk.file, disk.namespace.size, deadline)
    return "zeros written over all of it"


def _ways(device: NvmeDevice, disks: List[_Disk], *, alone: bool) -> Iterator[Way]:
    """Yield the controller's ways to erase, the best first.

    Those that erase the whole subsystem are left out if other controllers of it run.
    """
    can = device.controller()
    if alone and can.sanitize_crypto:
        yield "sanitize, crypto erase", lambda: device.sanitize(crypto=True)
    if alone and can.sanitize_block:
        yield "sanitize, block erase", lambda: device.sanitize(crypto=False)
    if can.can_format and (alone or not can.secure_erase_of_all):
        if can.format_crypto:
            yield "format, crypto erase", lambda: _format(device, disks, crypto=True)
        yield _USER_DATA, lambda: _format(device, disks, crypto=False)


def _format(device: NvmeDevice, disks: List[_Disk], *, crypto: bool) -> None:
    """Format all namespaces; the first one where that erases all of them."""
    wanted = disks[:1] if device.controller().secure_erase_of_all else disks
    for disk in wanted:
        device.format(disk.namespace, crypto=crypto)


def _proofs(disks: List[_Disk], method: str, deadline: float) -> List[str]:
    _drop_caches(disks)
    return [_prove(disk, method, deadline) for disk in disks]


def _prove(disk: _Disk, method: str, deadline: float, *, changed: bool = False) -> str:
    """Read the same places again, and return what that proves.

    :param changed: whether what is not what it was need not be empty; so it is after a crypto erase.
    :raises NotErasedError: if a page is not empty; after a crypto erase, if it is what it was.
    """
    after = samples.fingerprints(disk.file, disk.places, deadline)
    if disk.namespace.deallocated_ones:
        after = {at: page for at, page in after.items() if page != _ONES}
    changed = changed or "crypto" in method
    left = [at for at, page in after.items() if not changed or page == disk.before.get(at)]
    if left:
        why = f"after {method}, {disk.name} still holds data at byte {left[0]}"
        raise samples.NotErasedError(errno.EIO, why)
    read = sum(length for _, length in disk.places) // samples.MIB
    return f"{read} MiB read, all {'changed' if after else 'empty'}"
