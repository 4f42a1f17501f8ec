"""What another hand may do to a sliver on the fakes: things with its stamp are added, removed, altered.

What happens inside a guest is not among them, nor what the actor or an operator keeps elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fabric_direct.drivers.contract import (
    DeviceRecord,
    PluggedDevice,
    PluggedPort,
    PluggedVolume,
    Port,
    Volume,
)
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver, PciAddress, State
from tests.trust.scenes import node

SLIVER = "sliver-1"
Choices = tuple[tuple[str, int], ...]
"""Components, and which variant of each."""


def _nic(name: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": name, "network": network, "interface": interface}


def _disk(name: str, **values: Any) -> dict[str, Any]:
    return {"type": "Storage", "id": name, **values}


def _device(kind: str, name: str, *bdf: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": name, "bdf": bdf, **more}


VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "nic1": (
        _nic("nic1", "red", port_security=True),
        _nic("nic1", "red", port_security=True, bandwidth=100, floating_ip=True),
        _nic("nic1", "blue", port_security=True, mac="52:54:00:00:01:01"),
    ),
    "nic2": (
        _nic("nic2", "blue", port_security=False),
        _nic("nic2", "blue", port_security=True, ipv4="10.20.2.77/24"),
    ),
    "data": (_disk("data", size=1), _disk("data", size=2)),
    "more": (_disk("more", volume="shared"), _disk("more", volume="other"), _disk("more", size=2)),
    "any": (_nic("any", "red", port_security=True), _disk("any", size=1)),
    "gpu": (_device("GPU", "gpu", "25:00.0", "25:00.1"), _device("GPU", "gpu", "26:00.0")),
    "vf": tuple(
        _device(
            "SharedNIC", "vf", "a1:00.0", interface={"mac": "52:54:00:00:02:02", "bandwidth": n}
        )
        for n in (10, 20)
    ),
    "fpga": (_device("FPGA", "fpga", "29:00.0"),),
}
"""What a component may be like, if the sliver has it."""
CHOICES = [(name, number) for name, every in VARIANTS.items() for number in range(len(every))]
_TYPES = {0x25: "GPU", 0x26: "GPU", 0x27: "GPU", 0xA1: "SharedNIC", 0x29: "FPGA"}
ALLOWED = (
    *({"type": "GPU", "bdf": bdf} for bdf in ("25:00.0", "25:00.1", "26:00.0", "27:00.0")),
    {"type": "SharedNIC", "uplink": "ens1"},
    {"type": "FPGA", "bdf": "29:00.0"},
)
"""What the site allows."""
_ADDRESSES = {address: PciAddress.parse(address) for address in ("25:00.0", "26:00.0", "27:00.0")}


def sliver(chosen: Iterable[tuple[str, int]]) -> NodeSliver:
    """Return the sliver with these variants of its components."""
    return node(*(VARIANTS[name][number] for name, number in sorted(dict(chosen).items())))


@dataclass(frozen=True, slots=True)
class Change:
    """Something of the sliver is added, removed or altered by another hand."""

    what: str
    component: str = ""
    value: Any = None

    def __str__(self) -> str:
        return f"{self.what} {self.component} {'' if self.value is None else self.value}".strip()


def _server(has: Substrate, **values: Any) -> None:
    if SLIVER in has.servers:
        has.servers[SLIVER] = replace(has.servers[SLIVER], **values)


def _nics(has: Substrate) -> tuple[PluggedPort, ...]:
    return has.servers[SLIVER].ports if SLIVER in has.servers else ()


def _disks(has: Substrate) -> tuple[PluggedVolume, ...]:
    return has.servers[SLIVER].volumes if SLIVER in has.servers else ()


def _lose_port(has: Substrate, name: str, _: Any) -> None:
    has.ports.pop((SLIVER, name), None)


def _alter_port(has: Substrate, name: str, values: Any) -> None:
    if (SLIVER, name) in has.ports:
        has.ports[SLIVER, name] = replace(has.ports[SLIVER, name], **dict(values))


def _hold_port(has: Substrate, name: str, network: Any) -> None:
    mac = f"52:54:00:99:00:{len(has.ports):02x}"
    has.ports[SLIVER, name] = Port(SLIVER, name, network, f"fake-{network}", mac, None, None)


def _unplug_nic(has: Substrate, name: str, _: Any) -> None:
    _server(has, ports=tuple(nic for nic in _nics(has) if nic.component != name))


def _plug_nic(has: Substrate, name: str, bandwidth: Any) -> None:
    port = has.ports.get((SLIVER, name))
    nic = PluggedPort(name, port.mac if port else "52:54:00:99:99:99", "fake-red", bandwidth)
    _server(has, ports=(*(n for n in _nics(has) if n.component != name), nic))


def _lose_volume(has: Substrate, name: str, _: Any) -> None:
    has.volumes.pop((SLIVER, name), None)


def _make_volume(has: Substrate, name: str, size: Any) -> None:
    has.volumes[SLIVER, name] = Volume(SLIVER, name, f"/fake/{SLIVER}.{name}", size)


def _unplug_disk(has: Substrate, name: str, _: Any) -> None:
    _server(has, volumes=tuple(disk for disk in _disks(has) if disk.component != name))


def _plug_disk(has: Substrate, name: str, source: Any) -> None:
    where = source or f"/fake/{SLIVER}.{name}"
    disk = PluggedVolume(name, where, f"vd{'opqrstuv'[len(_disks(has)) % 8]}", name[:20])
    _server(has, volumes=(*(d for d in _disks(has) if d.component != name), disk))


def _unplug_device(has: Substrate, name: str, _: Any) -> None:
    has.plugged[SLIVER] = tuple(d for d in has.plugged.get(SLIVER, ()) if d.component != name)


def _plug_device(has: Substrate, name: str, address: Any) -> None:
    """Plug a function in of which nothing is written down."""
    if SLIVER in has.servers:
        where = _ADDRESSES[address]
        _unplug_device(has, name, None)
        kept = tuple(d for d in has.plugged[SLIVER] if d.host_address != where)
        has.plugged[SLIVER] = (*kept, PluggedDevice(name, f"ua-{SLIVER}-{name}-0", where))


def _alter_device(has: Substrate, name: str, mac: Any) -> None:
    there = has.plugged.get(SLIVER, ())
    has.plugged[SLIVER] = tuple(replace(d, mac=mac) if d.component == name else d for d in there)


def _lose_record(has: Substrate, name: str, _: Any) -> None:
    for address in [a for a, r in has.records.items() if r.component == name]:
        del has.records[address]


def _record(has: Substrate, name: str, address: Any) -> None:
    where = _ADDRESSES[address]
    has.records[where] = DeviceRecord(where, "GPU", None, SLIVER, name, "10de", "1db6")


def _wait_for_cycle(has: Substrate, _: str, __: Any) -> None:
    if any(device.component == "fpga" for device in has.plugged.get(SLIVER, ())):
        has.pending.add(SLIVER)


def _stamp(has: Substrate, change: Callable[[NodeSliver], NodeSliver]) -> None:
    if SLIVER in has.servers:
        stamp = has.servers[SLIVER].stamp
        _server(has, stamp=stamp.model_copy(update={"sliver": change(stamp.sliver)}))


def _unstamp(has: Substrate, name: str, _: Any) -> None:
    def without(was: NodeSliver) -> NodeSliver:
        kept = tuple(c for c in was.components if c.id != name)
        return was.model_copy(update={"components": kept})

    _stamp(has, without)


def _stamp_component(has: Substrate, name: str, number: Any) -> None:
    component = sliver([(name, number)]).components[0]
    _unstamp(has, name, None)
    _stamp(has, lambda w: w.model_copy(update={"components": (*w.components, component)}))


def _rename(has: Substrate, _: str, name: Any) -> None:
    _stamp(has, lambda was: was.model_copy(update={"name": name}))


def _resize(has: Substrate, _: str, cores: Any) -> None:
    _server(has, cores=cores)


def _power(has: Substrate, _: str, state: Any) -> None:
    _server(has, state=state)


def _lose_server(has: Substrate, _: str, __: Any) -> None:
    """Its devices, too, are with the host again; what is held for it stays."""
    for things in (has.plugged, has.servers, has.keys, has.inside):
        things.pop(SLIVER, None)
    has.pending.discard(SLIVER)


def _leave_unused(has: Substrate, name: str, _: Any) -> None:
    has.unused.add(name)


_NICS, _DISKS, DEVICES = (
    ("nic1", "nic2", "any", "stray"),
    ("data", "more", "any"),
    ("gpu", "vf", "fpga"),
)
_TABLE: tuple[tuple[str, Callable[[Substrate, str, Any], None], tuple[str, ...], Any], ...] = (
    ("lose port", _lose_port, _NICS, (None,)),
    (
        "alter port",
        _alter_port,
        _NICS,
        (
            (("mac", "52:54:00:99:99:01"),),
            (("floating_ip", None),),
            (("port_security", False),),
            (("network", "blue"),),
            (("ipv4", None),),
        ),
    ),
    ("hold port", _hold_port, (*_NICS, "data", "gpu"), ("red", "blue")),
    ("unplug NIC", _unplug_nic, _NICS, (None,)),
    ("plug NIC", _plug_nic, (*_NICS, "data", "gpu"), (None, 7)),
    ("lose volume", _lose_volume, _DISKS, (None,)),
    ("make volume", _make_volume, (*_DISKS, "nic1", "stray"), (1, 2)),
    ("unplug disk", _unplug_disk, _DISKS, (None,)),
    ("plug disk", _plug_disk, (*_DISKS, "nic2", "stray"), ("", "/fake/other")),
    ("unplug device", _unplug_device, DEVICES, (None,)),
    ("plug device", _plug_device, (*DEVICES, "stray", "nic1"), tuple(_ADDRESSES)),
    ("alter device", _alter_device, ("vf",), ("52:54:00:99:99:02",)),
    ("lose record", _lose_record, DEVICES, (None,)),
    ("record", _record, (*DEVICES, "stray", "data"), tuple(_ADDRESSES)),
    ("power cycle due", _wait_for_cycle, ("",), (None,)),
    ("unstamp", _unstamp, tuple(VARIANTS), (None,)),
    ("rename", _rename, ("",), ("other",)),
    ("resize", _resize, ("",), (4,)),
    ("power", _power, ("",), (State.STOPPED,)),
    ("lose server", _lose_server, ("",), (None,)),
    ("leave unused", _leave_unused, ("net",), (None,)),
)
_FUNCTIONS = {name: function for name, function, _, _ in _TABLE} | {"stamp": _stamp_component}


def change(has: Substrate, changes: Iterable[Change]) -> None:
    """Let another hand make changes."""
    for each in changes:
        _FUNCTIONS[each.what](has, each.component, each.value)
    _own(has)


def _own(has: Substrate) -> None:
    """Let each function belong to who has it, or else to whom it is recorded for."""
    for address in has.devices:
        plugged = (d.component for d in has.plugged.get(SLIVER, ()) if d.host_address == address)
        record = has.records.get(address)
        component = next(plugged, record.component if record else None)
        has.own(address, component and f"{SLIVER}/{component}")


def equip(has: Substrate) -> None:
    """Add a volume of others, and say of each function what it is allowed as."""
    has.existing["other"] = Volume("", "", "/fake/other", 4)
    for address, device in has.devices.items():
        has.devices[address] = replace(device, type=_TYPES.get(address.bus))


CHANGES = [
    *(
        Change(name, c, v)
        for name, _, components, values in _TABLE
        for c in components
        for v in values
    ),
    *(Change("stamp", name, number) for name, number in CHOICES),
]
"""All that another hand may do."""
UNCHANGEABLE = {"rename", "resize"}
"""After these only a deletion, or the same hand, helps: the guest was made from what they change."""
