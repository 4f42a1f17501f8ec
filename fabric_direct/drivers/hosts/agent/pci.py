"""The PCI functions of this machine, by sysfs: survey, reset, removal, rescan, and binding to a driver.

Addresses are text, ``0000:25:00.0``. Errors are those of the kernel, with its number.
"""

import errno
import os
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from fabric_direct.drivers.hosts.agent import programs, sysfs
from fabric_direct.drivers.hosts.agent.usage import uses

__all__ = ["bind", "remove", "rescan", "reset", "survey"]

LABELS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_HEADER = 64
# PCI Local Bus Specification 3.0, 6.1: vendor, product, revision and class in the header.
_IDS, _CLASS = slice(0, 4), slice(9, 12)
# PCI-to-PCI Bridge Architecture Specification 1.2, 3.2.5.18: Bridge Control, Secondary Bus Reset.
_BRIDGE_CONTROL, _SECONDARY_BUS_RESET = 0x3E, 1 << 6
# PCI Express Base Specification 4.0, 6.6.1: held for 1 ms at least, then a second of rest.
_HELD, _REST = 0.002, 1.0
_STEP = 0.02
# Documentation/networking/switchdev.rst: names of ports (phys_port_name), of the NIC and of its VFs.
_PHYSICAL, _REPRESENTED = re.compile(r"p\d+(s\d+)?"), re.compile(r"(c\d+)?(p\d+)?pf\d+\w*")
_NEXT_VENDOR = re.compile(rb"\n(?![\t#])")

Function = Dict[str, Any]


def survey(named: Optional[List[str]] = None) -> List[Function]:
    """Return every PCI function, by address, with the fields of ``contract.PciFunction``.

    :param named: the functions whose uses are looked for, with their VFs and their IOMMU groups; others
        have none, and no disk of theirs is opened. All of them if absent.
    """
    links = _links()
    found = {address: _function(address, links) for address in _addresses()}
    for address, function in found.items():
        function["label"] = label(function["vendor"], function["product"])
        virtual = _virtual(sysfs.pci(address))
        function["virtual"] = list(virtual)
        for each, number in virtual.items():
            if each in found:
                found[each]["vf"] = number
    near = set(found) if named is None else _near(found, named)
    used, held = uses(near), programs.holders(near)
    for address, function in found.items():
        function["uses"] = used.get(address, [])
        function["held"] = held.get(address, [])
    return list(found.values())


def _near(found: Dict[str, Function], named: List[str]) -> Set[str]:
    """Return the functions that are passed through with these: of their IOMMU groups, and their VFs."""
    own = [found[address] for address in named if address in found]
    groups = {function["iommu_group"] for function in own} - {None}
    mates = {address for address, each in found.items() if each["iommu_group"] in groups}
    return mates.union(named, *(function["virtual"] for function in own))


def _addresses() -> List[str]:
    found = sysfs.names(f"{sysfs.SYS}/bus/pci/devices")
    return [address for address in found if sysfs.ADDRESS.fullmatch(address)]


def _function(address: str, links: Dict[str, List[str]]) -> Function:
    path, all_links = sysfs.pci(address), links.get(address, [])
    ports = {link: _port_name(link) for link in all_links}
    own = [link for link, port in ports.items() if not _REPRESENTED.fullmatch(port)]
    group = sysfs.target(f"{path}/iommu_group")
    node = int(sysfs.value(f"{path}/numa_node") or -1)
    return {
        "address": address,
        "vendor": sysfs.value(f"{path}/vendor")[2:],
        "product": sysfs.value(f"{path}/device")[2:],
        "kind": sysfs.value(f"{path}/class")[2:],
        "driver": sysfs.target(f"{path}/driver"),
        "iommu_group": int(group) if group else None,
        "numa_node": node if node >= 0 else None,
        "bridge": next(reversed(sysfs.functions(path)[:-1]), None),
        "physical": sysfs.target(f"{path}/physfn"),
        "vf": None,
        "virtual": [],
        "links": sorted(own, key=lambda link: not _PHYSICAL.fullmatch(ports[link])),
        "representors": [link for link in all_links if link not in own],
        "link_up": any(map(_has_carrier, own)) if own else None,
        "alive": _header(address).strip(b"\xff") != b"",
    }


def _virtual(path: str) -> Dict[str, int]:
    """Return the VFs of a function with their numbers; one may be missing."""
    count = int(sysfs.value(f"{path}/sriov_numvfs") or 0)
    found = {sysfs.target(f"{path}/virtfn{number}"): number for number in range(count)}
    return {address: number for address, number in found.items() if address}


def _links() -> Dict[str, List[str]]:
    """Return the network interfaces by the function that they are of."""
    found: Dict[str, List[str]] = {}
    for link in sysfs.names(f"{sysfs.SYS}/class/net"):
        for address in sysfs.functions(f"{sysfs.SYS}/class/net/{link}")[-1:]:
            found.setdefault(address, []).append(link)
    return found


def _port_name(link: str) -> str:
    return sysfs.value(f"{sysfs.SYS}/class/net/{link}/phys_port_name")


def _has_carrier(link: str) -> bool:
    return sysfs.value(f"{sysfs.SYS}/class/net/{link}/carrier") == "1"


def _header(address: str) -> bytes:
    return sysfs.content(f"{sysfs.pci(address)}/config", _HEADER)


@lru_cache(maxsize=None)
def label(vendor: str, product: str) -> str:
    """Return ``Intel Corporation 82576 Virtual Function``; what is not known is left out."""
    text = _list_of_ids()
    start = text.find(f"\n{vendor}  ".encode()) + 1
    next_vendor = _NEXT_VENDOR.search(text, start) if start else None
    end = next_vendor.start() if next_vendor else len(text)
    found = text.find(f"\n\t{product}  ".encode(), start, end) + 1 if start else 0
    return " ".join(_words(text, at) for at in (start, found) if at)


@lru_cache(maxsize=None)
def _list_of_ids() -> bytes:
    texts = (sysfs.content(path, 1 << 24) for path in LABELS)
    return b"\n" + next((text for text in texts if text), b"")


def _words(text: bytes, at: int) -> str:
    line = text[at : text.find(b"\n", at)]
    return line.decode(errors="replace").partition("  ")[2]


def reset(addresses: List[str], limit: float) -> Dict[str, str]:
    """Reset functions, and verify that they answer with the same ids.

    Each is reset by itself, as the kernel knows how. If one cannot be, their bus is reset, provided that
    nothing else is on it; they are removed and found again for that.

    :param limit: seconds until they must answer.
    :return: how each was reset: ``flr``, ``pm``, ``bus`` and the like.
    :raises OSError: ENOENT if one is not there; ENOTTY if one cannot be reset; ETIMEDOUT if one does
        not answer in time, or answers as something else.
    """
    deadline = time.monotonic() + limit
    expected = {address: _ids(address) for address in addresses}
    methods = {address: _method(address) for address in addresses}
    if all(methods.values()):
        for address in addresses:
            _reset(address)
    else:
        _reset_bus(addresses, deadline)
        methods = dict.fromkeys(addresses, "bus")
    _await(expected, deadline)
    return methods


def _reset(address: str) -> None:
    """Reset a function while no driver of the host has it.

    igbvf waits for ever in its preparation for a reset if its interface is down (Linux 6.12).
    """
    path = sysfs.pci(address)
    driver = sysfs.target(f"{path}/driver")
    bound = driver not in {None, "vfio-pci"}
    if bound:
        sysfs.write(f"{path}/driver/unbind", address)
    try:
        sysfs.write(f"{path}/reset", "1")
    finally:
        if bound:
            sysfs.write(f"{sysfs.SYS}/bus/pci/drivers_probe", address)


def _method(address: str) -> str:
    """Return the first way in which the kernel resets a function by itself; empty if it cannot."""
    if not os.path.exists(f"{sysfs.pci(address)}/reset"):  # noqa: PTH110 - a str is faster
        return ""
    ways = f"{sysfs.pci(address)}/reset_method"
    # Before Linux 5.15 there is no list of ways.
    known = os.path.exists(ways)  # noqa: PTH110 - as above
    return (sysfs.value(ways).split() or [""])[0] if known else "function"


def _ids(address: str) -> str:
    """Return ``8086:10ca``, as the kernel found it when it first saw the function."""
    path = sysfs.pci(address)
    ids = [sysfs.value(f"{path}/{name}")[2:] for name in ("vendor", "device")]
    if not all(ids):
        raise OSError(errno.ENOENT, f"there is no PCI function {address}")
    return ":".join(ids)


def _answers(address: str, expected: str) -> bool:
    """Return whether a function's own registers say that it is what was expected.

    A VF has no ids of its own, they read as ffff (PCI Express, 9.3.4.1.1): its class must be right.
    """
    header, path = _header(address), sysfs.pci(address)
    if len(header) < _HEADER:
        return False
    if sysfs.target(f"{path}/physfn"):
        return header[_CLASS][::-1].hex() == sysfs.value(f"{path}/class")[2:]
    vendor, product = header[_IDS][:2][::-1], header[_IDS][2:][::-1]
    return f"{vendor.hex()}:{product.hex()}" == expected


def _await(expected: Dict[str, str], deadline: float) -> None:
    """Block until all of these functions answer with the expected ids.

    :raises TimeoutError: if one does not by the deadline.
    """

    def silent() -> List[str]:
        return [address for address, ids in expected.items() if not _answers(address, ids)]

    missing = silent()
    while missing and time.monotonic() < deadline:
        time.sleep(_STEP)
        missing = silent()
    if missing:
        what = ", ".join(f"{address} ({expected[address]})" for address in missing)
        raise TimeoutError(errno.ETIMEDOUT, f"{what} does not answer, or as something else")


def _reset_bus(addresses: List[str], deadline: float) -> None:
    bridge = _bridge(addresses)
    expected = remove(addresses)
    before = int.from_bytes(_header(bridge)[_BRIDGE_CONTROL:][:2], "little")
    _set_bridge_control(bridge, before | _SECONDARY_BUS_RESET)
    time.sleep(_HELD)
    _set_bridge_control(bridge, before & ~_SECONDARY_BUS_RESET)
    time.sleep(_REST)
    rescan(expected, max(0.0, deadline - time.monotonic()))


def _set_bridge_control(bridge: str, control: int) -> None:
    with Path(f"{sysfs.pci(bridge)}/config").open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), control.to_bytes(2, "little"), _BRIDGE_CONTROL)


def _bridge(addresses: List[str]) -> str:
    """Return the bridge below which these functions are, and nothing else.

    :raises OSError: ENOTTY if there is none.
    """
    chains = {tuple(sysfs.functions(sysfs.pci(address))[:-1]) for address in addresses}
    above = chains.pop() if len(chains) == 1 else ()
    if not above:
        raise OSError(errno.ENOTTY, f"no reset is known for {', '.join(addresses)}")
    others = [o for o in _addresses() if _is_below(o, above[-1]) and o not in addresses]
    if others:
        why = f"no reset is known for {', '.join(addresses)}, and {', '.join(others)} on its bus"
        raise OSError(errno.ENOTTY, f"{why} would be reset too")
    return above[-1]


def _is_below(address: str, bridge: str) -> bool:
    return bridge in sysfs.functions(sysfs.pci(address))[:-1]


def remove(addresses: List[str]) -> Dict[str, str]:
    """Remove functions from the bus; those that are not there are left out.

    :return: vendor and product of each that was there, as :func:`rescan` takes them.
    :raises OSError: EOPNOTSUPP for a VF, which no scan of the bus finds again.
    """
    there = [address for address in addresses if address in _addresses()]
    expected = {address: _ids(address) for address in there}
    for address in there:
        if sysfs.target(f"{sysfs.pci(address)}/physfn"):
            raise OSError(errno.EOPNOTSUPP, f"{address} is a VF: no scan of the bus finds it again")
    for address in there:
        sysfs.write(f"{sysfs.pci(address)}/remove", "1")
    return expected


def rescan(expected: Dict[str, str], limit: float) -> None:
    """Rescan all buses, and block until these functions are there and answer.

    :param expected: vendor and product by address: ``{"0000:06:00.0": "8086:10d3"}``.
    :param limit: seconds to wait for them.
    :raises OSError: ETIMEDOUT if one is not there in time, or is something else.
    """
    sysfs.write(f"{sysfs.SYS}/bus/pci/rescan", "1")
    _await(expected, time.monotonic() + limit)


def bind(address: str, driver: Optional[str] = None) -> Optional[str]:
    """Bind a function to a driver, or to the one that matches its ids.

    :return: the driver that has it now; None if there is none.
    :raises OSError: ENOENT if there is no such function; EBUSY if the named driver did not take it.
    """
    _ids(address)
    path = sysfs.pci(address)
    override = sysfs.value(f"{path}/driver_override")
    if (driver or "(null)") != (override or "(null)"):
        sysfs.write(f"{path}/driver_override", f"{driver or ''}\n")
        if sysfs.target(f"{path}/driver"):
            sysfs.write(f"{path}/driver/unbind", address)
    if sysfs.target(f"{path}/driver") is None:
        sysfs.write(f"{sysfs.SYS}/bus/pci/drivers_probe", address)
    found = sysfs.target(f"{path}/driver")
    if driver and found != driver:
        raise OSError(errno.EBUSY, f"{driver} did not take {address}: its driver is {found}")
    return found
