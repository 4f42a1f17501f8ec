"""What a switch enforces, as told by its daemon: ports of the datapath, flows and meters.

The daemon keeps flows and meters in memory alone: they are gone after its restart, while the rows of
the database are as before.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.ovs.layout import Limit, PortRow
from fabric_direct.errors import DriverError, Unreachable

_PORT = re.compile(r"^ {4}(\S+) (\d+)/\S+: \((\w+)")
_METER = re.compile(r"meter=(\d+) .*?bands=\s*type=drop rate=(\d+) burst_size=(\d+)", re.DOTALL)
_FLOW = re.compile(r"priority=(\d+),(\S+) actions=(\S+)")
_PRIORITY = 1000


@dataclass(frozen=True, slots=True)
class Meters:
    """The limits of a port's bridge: meters by id as (kbit/s, kbit), and the flows that use them."""

    meters: dict[int, tuple[int, int]]
    flows: frozenset[tuple[str, str]]
    """Match and actions."""

    def enforces(self, limit: Limit, numbers: Mapping[str, int]) -> bool:
        """Return whether a limit is in force in both directions."""
        return _flows(limit, numbers) <= self.flows and all(
            self.meters.get(meter) == (limit.rate * 1000, limit.burst)
            for meter in _meters(limit.tag)
        )


def _meters(tag: int) -> tuple[int, int]:
    """Return the ids of the meters of a VLAN of a port: of what it sends to us, and of what it gets."""
    return 2 * tag + 1, 2 * tag + 2


def _flows(limit: Limit, numbers: Mapping[str, int]) -> frozenset[tuple[str, str]]:
    port, patch = numbers.get(limit.port), numbers.get(limit.patch)
    into, out = _meters(limit.tag)
    vlan = f"dl_vlan={limit.tag}" if limit.tag else "vlan_tci=0x0000/0x1fff"
    return frozenset(
        {
            (f"in_port={port},{vlan}", f"meter:{into},NORMAL"),
            (f"in_port={patch}", f"meter:{out},NORMAL"),
        }
    )


class Switch:
    """The daemon of a switch.

    :param rundir: the directory of its sockets.
    :param limit: seconds for each command.
    """

    def __init__(self, device: str, host: HostDriver, rundir: str, limit: float) -> None:
        self._device, self._host, self._rundir, self._limit = device, host, rundir, limit

    def ports(self) -> dict[str, dict[str, int]]:
        """Return the OpenFlow numbers of all ports of the datapath, by bridge and name."""
        found: dict[str, dict[str, int]] = {}
        bridge = ""
        for line in self._run("ovs-appctl", "dpif/show").splitlines():
            if match := _PORT.match(line):
                found[bridge][match[1]] = int(match[2])
            elif line.startswith("  "):
                bridge = line.strip().rstrip(":")
                found[bridge] = {}
        return found

    def limits(self, bridge: str) -> Meters:
        """Return the meters of a bridge of the datapath, with the flows that use any."""
        meters = _METER.findall(self._flow("dump-meters", bridge))
        flows = _FLOW.findall(self._flow("dump-flows", bridge, "--no-stats"))
        return Meters(
            {int(number): (int(rate), int(burst)) for number, rate, burst in meters},
            frozenset((match, actions) for _, match, actions in flows if "meter:" in actions),
        )

    def rate(self, patch: PortRow, port: str, numbers: Mapping[str, int]) -> int | None:
        """Return the Mbit/s that are enforced for a VLAN of a port; None if there is no limit."""
        there, tag = self.limits(patch.bridge), patch.tag or 0
        rate, burst = there.meters.get(_meters(tag)[0], (0, 0))
        limit = Limit(patch.bridge, port, patch.name, tag, rate // 1000, burst)
        return limit.rate if there.enforces(limit, numbers) else None

    def enforce(self, limit: Limit) -> None:
        """Put the limit of an interface in force, in place: nothing is lost meanwhile."""
        there, numbers = self.limits(limit.bridge), self.ports().get(limit.bridge, {})
        if there.enforces(limit, numbers):
            return
        for meter in _meters(limit.tag):
            band = f"type=drop,rate={limit.rate * 1000},burst_size={limit.burst}"
            verb = "mod-meter" if meter in there.meters else "add-meter"
            self._flow(verb, limit.bridge, f"meter={meter},kbps,burst,bands={band}")
        wanted = sorted(_flows(limit, numbers))
        lines = [f"priority={_PRIORITY},{match},actions={does}\n" for match, does in wanted]
        self._flow("add-flows", limit.bridge, "-", "--bundle", stdin="".join(lines))

    def unlimit(self, bridge: str, tag: int) -> None:
        """Take the limit of a VLAN of a port out of force; its flows go with the meters."""
        there = self.limits(bridge).meters
        for meter in _meters(tag):
            if meter in there:
                self._flow("del-meter", bridge, f"meter={meter}")

    def _flow(self, verb: str, *arguments: str, stdin: str = "") -> str:
        return self._run("ovs-ofctl", "-O", "OpenFlow15", verb, *arguments, stdin=stdin)

    def _run(self, *argv: str, stdin: str = "") -> str:
        command = ("env", f"OVS_RUNDIR={self._rundir}", *argv)
        result = self._host.run(command, stdin.encode(), timeout=self._limit)
        if result.code == 0:
            return result.stdout.decode(errors="replace")
        why = result.stderr.decode(errors="replace").strip()
        kind = Unreachable if "connect" in why else DriverError
        raise kind(f"{argv[0]} failed on {self._device}", where=self._rundir, why=why)
