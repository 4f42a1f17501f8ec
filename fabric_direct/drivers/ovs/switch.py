"""State that a switch enforces, as its daemon reports it: ports of the datapath, flows and meters.

The daemon keeps flows and meters in memory only: a restart loses them, while the rows of the database
stay the same.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fabric_direct.calls.deadline import unanswered
from fabric_direct.calls.read_cache import current
from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.hosts.functions import ANSWER
from fabric_direct.drivers.ovs import openflow
from fabric_direct.drivers.ovs.layout import PHYSICAL, InterfaceLimit, PortRow
from fabric_direct.drivers.ovs.openflow import FlowEntry, Message, Meter
from fabric_direct.errors import DriverError, NotFound, NotVerified, TimedOut, Unreachable

_PORT = re.compile(r"^ {4}(\S+) (\d+)/(\S+): \((\w+)")
_ACTIONS = re.compile(r"^Datapath actions: (.*)$", re.MULTILINE)
_NUMBERS = re.compile(r"(?<![^,])\d+(?![^,])")
_NOBODY = "02:fd:ff:ff:ff:ff"
_PRIORITY = 1000
T = TypeVar("T")
PORTS = "ports of switches"
"""What answers in an operation's cache are about."""


def asked_once(what: Hashable, ask: Callable[[], T], about: str) -> T:
    """Return what a switch says; it is asked once in an operation until that is changed."""
    reads = current()
    return ask() if reads is None else reads.get(what, ask, about)


def forget(*about: str) -> None:
    """Ask again, in this operation: this was changed, or anything."""
    reads = current()
    if reads is not None:
        reads.invalidate(*about)


@dataclass(frozen=True, slots=True)
class MetersAndFlows:
    """The meters of a port's bridge, by number, and its flows."""

    meters: Mapping[int, Meter]
    flows: frozenset[FlowEntry]

    def enforces(self, limit: InterfaceLimit, numbers: Mapping[str, int]) -> bool:
        """Return whether a limit is in force in both directions."""
        return limit.patch in numbers and not [*self.missing(limit, numbers)]

    def missing(self, limit: InterfaceLimit, numbers: Mapping[str, int]) -> Iterator[Message]:
        """Yield the messages that put in force what is not of a limit."""
        wanted = Meter(limit.rate * 1000, limit.burst)
        for number in _meters(limit.tag):
            if self.meters.get(number) != wanted:
                yield openflow.set_meter(number, wanted, there=number in self.meters)
        for flow in _flows(limit, numbers):
            if flow not in self.flows:
                yield openflow.add_flow(flow)


def _meters(tag: int) -> tuple[int, int]:
    """Return the ids of the meters of a VLAN of a port: of what it sends to us, and of what it gets."""
    return 2 * tag + 1, 2 * tag + 2


def _flows(limit: InterfaceLimit, numbers: Mapping[str, int]) -> tuple[FlowEntry, FlowEntry]:
    into, out = _meters(limit.tag)
    port = numbers.get(limit.port, PHYSICAL)
    return (
        openflow.through_meter(_PRIORITY, into, port, limit.tag),
        openflow.through_meter(_PRIORITY, out, numbers[limit.patch]),
    )


def _ports(shown: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    bridge = ""
    for line in shown.splitlines():
        if match := _PORT.match(line):
            found[bridge][match[1]] = int(match[2])
        elif line.startswith("  "):
            bridge = line.strip().rstrip(":")
            found[bridge] = {}
    return found


class OvsSwitch:
    """The daemon of a switch.

    :param rundir: the directory of its sockets.
    :param limit: seconds for each request.
    """

    def __init__(self, device: str, host: HostDriver, rundir: str, limit: float) -> None:
        self._device, self._host, self._rundir, self._limit = device, host, rundir, limit

    def version(self) -> str:
        """Return the daemon's name and version."""
        return self._appctl(PORTS, "version").partition("\n")[0]

    def most_meters(self, bridge: str) -> int:
        """Return how many meters a bridge of the datapath can have; none if the datapath has none."""
        told = self._openflow(bridge, openflow.FEATURES)
        try:
            return openflow.most_meters(told)
        except ValueError as error:
            raise self._invalid(error) from error

    def ports(self) -> dict[str, dict[str, int]]:
        """Return the OpenFlow numbers of all ports of the datapath, by bridge and name."""
        return self._read("ports", lambda: _ports(self._appctl(PORTS, "dpif/show")), PORTS)

    def outputs(self, bridge: str, port: str, vlan: int | None) -> frozenset[str]:
        """Return the ports that a broadcast would leave by, as the daemon would have it.

        :param port: which it is received on.
        :param vlan: its tag, if it has one.
        """
        tag = f",dl_vlan={vlan}" if vlan else ""
        frame = f"in_port={port},dl_type=0x88b5,dl_src={_NOBODY},dl_dst=ff:ff:ff:ff:ff:ff{tag}"
        said = self._appctl(self._flows_of(bridge), "ofproto/trace", bridge, frame)
        actions = _ACTIONS.findall(said)[-1:]
        numbers = {*_NUMBERS.findall(actions[0])} if actions else set()
        shown = self._appctl(PORTS, "dpif/show").splitlines()
        there = (_PORT.match(line) for line in shown)
        return frozenset(match[1] for match in there if match and match[3] in numbers)

    def limits(self, bridge: str) -> MetersAndFlows:
        """Return the meters and flows of a bridge of the datapath."""
        return self._read(bridge, lambda: self._limits(bridge), self._flows_of(bridge))

    def _limits(self, bridge: str) -> MetersAndFlows:
        told = self._openflow(bridge, *openflow.READ)
        try:
            return MetersAndFlows(openflow.meters(told), openflow.flows(told))
        except ValueError as error:
            raise self._invalid(error) from error

    def rate(self, patch: PortRow, port: str, numbers: Mapping[str, int]) -> int | None:
        """Return the Mbit/s that are enforced for a VLAN of a port; None if there is no limit."""
        there, tag = self.limits(patch.bridge), patch.tag or 0
        meter = there.meters.get(_meters(tag)[0], Meter(0, 0))
        limit = InterfaceLimit(patch.bridge, port, patch.name, tag, meter.rate // 1000, meter.burst)
        return limit.rate if there.enforces(limit, numbers) else None

    def enforce(self, limit: InterfaceLimit) -> None:
        """Put the limit of an interface in force, in place: nothing is lost meanwhile."""
        numbers = self.ports().get(limit.bridge, {})
        if limit.patch not in numbers:
            raise NotVerified(f"port {limit.patch} is not in the datapath", where=self._device)
        missing = [*self.limits(limit.bridge).missing(limit, numbers)]
        if missing:
            self._flow(limit.bridge, *missing)

    def unlimit(self, bridge: str, tag: int) -> None:
        """Take the limit of a VLAN of a port out of force; its flows go with the meters."""
        there = self.limits(bridge).meters
        gone = [meter for meter in _meters(tag) if meter in there]
        if gone:
            self._flow(bridge, *map(openflow.delete_meter, gone))

    # --- its sockets

    def _flow(self, bridge: str, *messages: Message) -> None:
        """Change flows or meters; these are read again."""
        try:
            self._openflow(bridge, *messages)
        except TimedOut:
            unanswered(f"the limits of {bridge} on {self._device}")
            raise
        finally:
            forget(self._flows_of(bridge))

    def _flows_of(self, bridge: str) -> str:
        return f"flows of {bridge} on {self._device}"

    def _openflow(self, bridge: str, *messages: Message) -> bytes:
        path, sent = f"{self._rundir}/{bridge}.mgmt", openflow.request(*messages)
        answer = self._ask("openflow", path=path, messages=b64encode(sent).decode())
        try:
            told = b64decode(answer)
            openflow.check(told)
        except (ValueError, TypeError) as error:
            raise self._invalid(error) from error
        except openflow.OpenFlowError as error:
            what = f"bridge {bridge} of {self._device} refused a request"
            raise DriverError(what, where=self._rundir, why=str(error)) from error
        return told

    def _appctl(self, about: str, command: str, *arguments: str) -> str:
        """Return what a command says."""

        def ask() -> str:
            values = {"rundir": self._rundir, "command": command, "arguments": [*arguments]}
            return str(self._ask("appctl", **values))

        return self._read((command, *arguments), ask, about)

    def _read(self, what: Hashable, ask: Callable[[], T], about: str) -> T:
        return asked_once((self._device, self._rundir, what), ask, about)

    def _ask(self, function: str, **arguments: Any) -> Any:
        limits = {"limit": self._limit, "timeout": self._limit + ANSWER}
        try:
            return self._host.call(f"switches.{function}", **limits, **arguments)
        except (NotFound, DriverError) as error:
            if not isinstance(error.__cause__, FileNotFoundError | ConnectionError):
                raise
            what, why = f"the daemon of {self._device} did not answer", str(error.__cause__)
            raise Unreachable(what, where=self._rundir, why=why) from error

    def _invalid(self, error: Exception) -> DriverError:
        what = f"the daemon of {self._device} gave an invalid answer"
        return DriverError(what, where=self._rundir, why=str(error))
