"""Who is at a port of a switch, with an address and a way to others, here or on another machine."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import CompletedProcess
from time import monotonic


def bare(address: str) -> str:
    return address.partition("/")[0]


@dataclass(frozen=True)
class Machine:
    """Where the switches are."""

    ask: Callable[..., CompletedProcess[str]]
    """Runs a command there."""
    loses: int = 0
    """How many frames may be lost when a link appears."""

    def run(self, *argv: str) -> str:
        ended = self.ask(*argv)
        assert ended.returncode == 0, (argv, ended.stderr)
        return ended.stdout

    def ip(self, *arguments: str) -> str:
        return self.run("ip", *arguments)


@dataclass(frozen=True)
class Node:
    """A namespace with ``eth0``."""

    machine: Machine
    space: str

    def configure(self, address: str, gateway: str | None = None) -> None:
        """Give it an address with prefix length, and where it sends what goes elsewhere."""
        self.forget()
        nodad = ["nodad"] if ":" in address else []
        self._ip("address", "add", address, "dev", "eth0", *nodad)
        if gateway:
            self._ip("route", "add", "default", "via", gateway)

    def forget(self) -> None:
        self._ip("address", "flush", "dev", "eth0", "scope", "global")
        self._ip("-6", "route", "flush", "default")

    def reaches(self, address: str, within: int = 60) -> bool:
        """Return whether a ping is answered within some seconds; a router's refusal ends one."""
        until, command = monotonic() + within, self._ping("-c", "1", "-w", "1", address)
        while monotonic() < until:
            if self.machine.ask(*command).returncode == 0:
                return True
        return False

    @contextmanager
    def loses_nothing(self, address: str) -> Iterator[None]:
        """See that each of fifty pings a second is answered while the block runs.

        As many as the machine loses may be missing.
        """
        with ThreadPoolExecutor(1) as thread:
            ended = thread.submit(self.machine.ask, *self._ping("-i", "0.02", address))
            try:
                while not self._processes():
                    assert not ended.done(), ended.result().stderr
                yield
            finally:
                self.machine.ask("kill", "-INT", *self._processes())
        answered = [
            int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", ended.result().stdout)
        ]
        assert answered, ended.result()  # the last ones may be under way
        missing = set(range(1, max(answered))) - {*answered}
        assert len(missing) <= self.machine.loses, f"lost {sorted(missing)} of {max(answered)}"

    def _ping(self, *arguments: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.space, "ping", *arguments)

    def _processes(self) -> list[str]:
        return self.machine.ip("netns", "pids", self.space).split()

    def neighbor(self, address: str) -> str:
        """Return the MAC that answers for an address."""
        said = self._ip("neighbor", "show", address).split()
        return said[said.index("lladdr") + 1]

    def _ip(self, *arguments: str) -> str:
        return self.machine.ip("-n", self.space, *arguments)


class Nodes:
    """Those of one test, which forget their addresses with it."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._made = machine, list[Node]()

    def __call__(
        self, port: str, address: str, gateway: str | None = None, switch: str = "sw1"
    ) -> Node:
        node = Node(self._machine, f"fd-{switch}-{port}")
        self._made.append(node)
        node.configure(address, gateway and bare(gateway))
        return node

    def forget(self) -> None:
        for each in self._made:
            each.forget()
