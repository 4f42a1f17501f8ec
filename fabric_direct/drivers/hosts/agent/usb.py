"""The USB devices of this machine, by sysfs: where they are plugged in, and what uses them."""

from typing import Any, Dict, List

from fabric_direct.drivers.hosts.agent import sysfs
from fabric_direct.drivers.hosts.agent.usage import Uses, blocks_in_use

__all__ = ["survey"]

# bDeviceClass of a hub (Universal Serial Bus Specification 2.0, 11.23.1).
_HUB = "09"

Device = Dict[str, Any]


def survey() -> List[Device]:
    """Return every USB device that is no hub: where it is (``bus``, ``port``), what it is, its ``uses``.

    ``port`` has the ports of the hubs before it: ``1.4``. ``device`` is the number that the kernel gave
    it when it was plugged in; it gets another one the next time.
    """
    uses, found = blocks_in_use(), sysfs.names(f"{sysfs.SYS}/bus/usb/devices")
    return [_device(name, uses) for name in found if ":" not in name and not _is_hub(name)]


def _is_hub(name: str) -> bool:
    return _value(name, "bDeviceClass") in {_HUB, ""}


def _value(name: str, attribute: str) -> str:
    return sysfs.value(f"{sysfs.SYS}/bus/usb/devices/{name}/{attribute}")


def _device(name: str, uses: Uses) -> Device:
    return {
        "bus": int(_value(name, "busnum") or 0),
        "port": _value(name, "devpath"),
        "device": int(_value(name, "devnum") or 0),
        "vendor": _value(name, "idVendor"),
        "product": _value(name, "idProduct"),
        "uses": [use for block in _blocks(name) for use in uses.get(block, [])],
    }


def _blocks(name: str) -> List[str]:
    """Return the disks and partitions that a device brings."""
    directory = f"{sysfs.SYS}/class/block"
    return [b for b in sysfs.names(directory) if name in sysfs.parts(f"{directory}/{b}")]
