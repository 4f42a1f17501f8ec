"""The lab's switches as devices of the NSO stand-in: a bridge each, with flows for each service.

Nothing of it is of the driver `ovs`, which gives bridges to services. Frames go to all interfaces of
their service. Between the switches they have the service's number in one tunnel.
"""

import subprocess
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from labs.network.nso_devices import Config, DeviceRefuses, Json
from tests.network.conftest import STATE, vsctl

BRIDGE, TUNNEL = "nso", "far"
PORTS = ("p1", "p2", "p3", "p4")
FAR = {"sw1": "192.0.2.2", "sw2": "192.0.2.1"}
End = tuple[str, int]
"""A port and its VLAN, 0 for none."""


def ofctl(switch: str, *arguments: str, stdin: str = "") -> str:
    """Run ovs-ofctl on a switch, or raise DeviceRefuses with its words."""
    command = ["env", f"OVS_RUNDIR={STATE}/{switch}", "ovs-ofctl", "--names", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeviceRefuses(switch, done.stderr.strip())
    return done.stdout


class Switches:
    """A :class:`~labs.network.nso_devices.Network`; within its block the switches have the bridges."""

    def __enter__(self) -> "Switches":
        for switch, far in FAR.items():
            ports = [word for port in PORTS for word in ("--", "add-port", BRIDGE, port)]
            tunnel = ("type=vxlan", f"options:remote_ip={far}", "options:key=flow")
            vsctl(
                switch,
                *("add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, "datapath_type=netdev"),
                *("fail_mode=secure", *ports),
                *("--", "add-port", BRIDGE, TUNNEL, "--", "set", "Interface", TUNNEL, *tunnel),
            )
        return self

    def __exit__(self, *_: object) -> None:
        for switch in FAR:
            vsctl(switch, "del-br", BRIDGE)

    def configuration(self, module: str, instance: Json) -> dict[str, Config]:
        """Return the flows of a service."""
        ends: dict[str, list[End]] = {}
        for device, interface in _interfaces(module, instance):
            ends.setdefault(device, []).append(_end(device, interface))
        number = int(sha256(instance["name"].encode()).hexdigest()[:6], 16)
        return {d: dict(_flows(here, number, alone=len(ends) < 2)) for d, here in ends.items()}

    def read(self, device: str) -> Config:
        """Return the flows of a switch, by what they match."""
        lines = ofctl(device, "--no-stats", "dump-flows", BRIDGE).splitlines()
        return {match: does for match, _, does in (line.strip().partition(" ") for line in lines)}

    def write(self, device: str, config: Config) -> None:
        """Replace the flows of a switch, in one bundle, and read them back."""
        lines = "".join(f"{match} {does}\n" for match, does in config.items())
        ofctl(device, "replace-flows", "--bundle", BRIDGE, "-", stdin=lines)
        if (there := self.read(device)) != config:
            raise DeviceRefuses(device, f"it shows {there}")


def _interfaces(module: str, instance: Json) -> Iterator[tuple[str, Json]]:
    sides = {"l2bridge": [""], "l2ptp": ["stp-a", "stp-z"], "l2sts": ["site-a", "site-z"]}
    if module not in {*sides, "idipa"}:
        raise DeviceRefuses("sw1", f"no {module} here")
    for side in sides.get(module, []):
        of: Any = instance[side] if side else instance
        several = of["interface"] if isinstance(of["interface"], list) else [of["interface"]]
        yield from ((of["device"], interface) for interface in several)


def _end(device: str, interface: Json) -> End:
    if "innervlan" in interface:
        raise DeviceRefuses(device, "no second VLAN here")
    return f"{interface['type']}{interface['id']}", interface.get("outervlan", 0)


def _flows(here: list[End], number: int, *, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield what each flow of a service on a switch matches, and does."""
    ends = here if alone else [*here, (TUNNEL, 0)]
    for port, vlan in ends:
        tag = f"dl_vlan={vlan}" if vlan else "vlan_tci=0x0000/0x1fff"
        match = f"tun_id={number:#x},in_port={port}" if port == TUNNEL else f"in_port={port},{tag}"
        others = [end for end in ends if end != (port, vlan)]
        yield match, f"actions={','.join(_outputs(port, vlan, others, number)) or 'drop'}"


def _outputs(port: str, tag: int, ends: list[End], number: int) -> Iterator[str]:
    """Yield what gives a frame to ends. A tag that it does not have cannot be taken away."""
    for other, vlan in ends:
        if vlan:
            yield f"mod_vlan_vid:{vlan}"
        elif tag:
            yield "strip_vlan"
        tag = vlan
        if other == TUNNEL:
            yield f"load:{number:#x}->NXM_NX_TUN_ID[]"
        yield "IN_PORT" if other == port else f"output:{other}"
