"""What programs have of PCI functions: by vfio, by uio, as vDPA devices, as mediated devices.

A program that has such a device, QEMU or one with DPDK, is found by the device file that it has open,
which root may see of each process.
"""

import os
from itertools import chain
from typing import Dict, Iterable, List, NamedTuple, Set

from fabric_direct.drivers.hosts.agent import sysfs

VFIO = "/dev/vfio"

Holder = Dict[str, str]
"""``use``, a sentence; ``domain``, the UUID of the virtual machine that has it by vfio, or nothing."""


class _Program(NamedTuple):
    name: str
    domain: str


def holders(functions: Set[str]) -> Dict[str, List[Holder]]:
    """Return who has PCI functions, or may have one at any time: of a vDPA or mediated device.

    :param functions: those that are asked about.
    """
    devices = {**_children("vdpa", "vDPA device"), **_children("mdev", "mediated device")}
    children = {
        path: sentence
        for path, sentence in devices.items()
        if not functions.isdisjoint(sysfs.functions(path))
    }
    above = {path: _files(path) for path in children}
    own = {address: _vfio_files(address) + _uio_files(address) for address in functions}
    programs = _programs_with(chain(*above.values(), *own.values()))
    found = {
        address: [
            {"use": f"{file} is held by {program.name}", "domain": program.domain}
            for file in files
            for program in programs.get(file, [])
        ]
        for address, files in own.items()
    }
    for path, sentence in children.items():
        by = [f", held by {each.name}" for file in above[path] for each in programs.get(file, [])]
        use = {"use": sentence + "".join(dict.fromkeys(by)), "domain": ""}
        for address in sysfs.functions(path):
            found.setdefault(address, []).append(use)
    return found


def _children(bus: str, kind: str) -> Dict[str, str]:
    """Return a sentence for each device of a bus whose devices are made on top of PCI functions."""
    devices = f"{sysfs.SYS}/bus/{bus}/devices"
    return {f"{devices}/{name}": f"the {kind} {name} is on it" for name in sysfs.names(devices)}


def _files(path: str) -> List[str]:
    """Return the device files by which a program has a vDPA or mediated device."""
    hosts = [f"/dev/{name}" for name in sysfs.names(path) if name.startswith("vhost-vdpa-")]
    return hosts + _of_vfio(path)


def _vfio_files(address: str) -> List[str]:
    """Return vfio's files of a function that vfio-pci, or a variant of it, has."""
    path = sysfs.pci(address)
    given = "vfio" in (sysfs.target(f"{path}/driver") or "") or sysfs.names(f"{path}/vfio-dev")
    return _of_vfio(path) if given else []


def _of_vfio(path: str) -> List[str]:
    """Return vfio's files of a device: that of its IOMMU group, and its own since Linux 6.6."""
    group = sysfs.target(f"{path}/iommu_group")
    groups = [f"{VFIO}/{group}", f"{VFIO}/noiommu-{group}"] if group else []
    return groups + [f"{VFIO}/devices/{name}" for name in sysfs.names(f"{path}/vfio-dev")]


def _uio_files(address: str) -> List[str]:
    return [f"/dev/{name}" for name in sysfs.names(f"{sysfs.pci(address)}/uio")]


def _programs_with(files: Iterable[str]) -> Dict[str, List[_Program]]:
    """Return the programs that have each of these files open."""
    wanted = frozenset(files)
    found: Dict[str, List[_Program]] = {}
    for pid in sysfs.names(sysfs.PROC) if wanted else ():
        if pid.isdecimal():
            for file in wanted & set(_opened(pid)):
                found.setdefault(file, []).append(_program(pid))
    return found


def _opened(pid: str) -> Iterable[str]:
    """Yield the device files that a process has open, also those whose name is gone."""
    directory = f"{sysfs.PROC}/{pid}/fd"
    for name in sysfs.names(directory):
        try:
            path = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
        if path.startswith("/dev/"):
            yield path[: -len(" (deleted)")] if path.endswith(" (deleted)") else path


def _program(pid: str) -> _Program:
    """Return what a process is called, and the virtual machine that it runs, as libvirt starts it."""
    words = sysfs.content(f"{sysfs.PROC}/{pid}/cmdline").decode(errors="replace").split("\0")
    guest = _after("-name", words).partition(",")[0]
    guest = guest[len("guest=") :] if guest.startswith("guest=") else guest
    name = f"domain {guest}" if guest else sysfs.value(f"{sysfs.PROC}/{pid}/comm") or "a program"
    return _Program(f"{name} (pid {pid})", _after("-uuid", words))


def _after(option: str, words: List[str]) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""
