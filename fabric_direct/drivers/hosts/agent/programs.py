"""What programs have of PCI functions: by vfio, as vDPA devices, as mediated devices.

A program that has such a device, QEMU or one with DPDK, is found by the device file that it has open.
"""

from itertools import chain
from typing import Dict, Iterable, List, NamedTuple

from fabric_direct.drivers.hosts.agent import sysfs

VFIO = "/dev/vfio"


class Given(NamedTuple):
    """What is given to programs, by the address of the PCI function."""

    uses: Dict[str, List[str]]
    """A sentence for each device that the function is the parent of, and whose driver must stay."""
    held: Dict[str, List[Dict[str, str]]]
    """The programs that have the function itself: ``use``, a sentence; ``domain``, the UUID of the
    virtual machine, or nothing."""


class _Program(NamedTuple):
    name: str
    domain: str


def given() -> Given:
    """Return the uses that programs make, or may make at any time, of each PCI function."""
    children = {**_children("vdpa", "vDPA device"), **_children("mdev", "mediated device")}
    passed = {address: _vfio_files(sysfs.pci(address)) for address in _at_vfio()}
    files = {path: _files(path) for path in children}
    programs = _programs_with(chain(*files.values(), *passed.values()))
    uses: Dict[str, List[str]] = {}
    for path, sentence in children.items():
        by = [f", held by {each.name}" for f in files[path] for each in programs.get(f, [])]
        for address in sysfs.functions(path):
            uses.setdefault(address, []).append(sentence + "".join(dict.fromkeys(by)))
    held = {
        address: [
            {"use": f"{file} is held by {program.name}", "domain": program.domain}
            for file in own
            for program in programs.get(file, [])
        ]
        for address, own in passed.items()
    }
    return Given(uses, held)


def _children(bus: str, kind: str) -> Dict[str, str]:
    """Return a sentence for each device of a bus whose devices are made on top of PCI functions."""
    devices = f"{sysfs.SYS}/bus/{bus}/devices"
    return {f"{devices}/{name}": f"the {kind} {name} is on it" for name in sysfs.names(devices)}


def _files(path: str) -> List[str]:
    """Return the device files by which a program has a vDPA or mediated device."""
    hosts = [f"/dev/{name}" for name in sysfs.names(path) if name.startswith("vhost-vdpa-")]
    return hosts + _vfio_files(path)


def _at_vfio() -> List[str]:
    """Return the functions whose driver gives them to programs: vfio-pci, or a variant of it."""
    devices = f"{sysfs.SYS}/bus/pci/devices"
    return [
        a for a in sysfs.names(devices) if "vfio" in (sysfs.target(f"{devices}/{a}/driver") or "")
    ]


def _vfio_files(path: str) -> List[str]:
    """Return vfio's files of a device: that of its IOMMU group, and its own since Linux 6.6."""
    group = sysfs.target(f"{path}/iommu_group")
    groups = [f"{VFIO}/{group}", f"{VFIO}/noiommu-{group}"] if group else []
    return groups + [f"{VFIO}/devices/{name}" for name in sysfs.names(f"{path}/vfio-dev")]


def _programs_with(files: Iterable[str]) -> Dict[str, List[_Program]]:
    """Return the programs that have each of these files open."""
    wanted = frozenset(files)
    found: Dict[str, List[_Program]] = {}
    for pid in sysfs.names(sysfs.PROC) if wanted else ():
        if pid.isdecimal():
            opened = sysfs.names(f"{sysfs.PROC}/{pid}/fd")
            targets = {"/".join(sysfs.parts(f"{sysfs.PROC}/{pid}/fd/{each}")) for each in opened}
            for file in targets & wanted:
                found.setdefault(file, []).append(_program(pid))
    return found


def _program(pid: str) -> _Program:
    """Return what a process is called, and the virtual machine that it runs, as libvirt starts it."""
    words = sysfs.content(f"{sysfs.PROC}/{pid}/cmdline").decode(errors="replace").split("\0")
    guest = _after("-name", words).partition(",")[0]
    guest = guest.removeprefix("guest=")
    name = f"domain {guest}" if guest else sysfs.value(f"{sysfs.PROC}/{pid}/comm") or "a program"
    return _Program(f"{name} (pid {pid})", _after("-uuid", words))


def _after(option: str, words: List[str]) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""
