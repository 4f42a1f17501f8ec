"""Network namespaces of a host by iproute2: its JSON is read, its batches are written.

Netlink itself cannot do it from elsewhere: a link is moved by a file descriptor of the namespace, in the
process that asks.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.gateways.gateway import Subnet
from fabric_direct.errors import DriverError
from fabric_direct.model.services import Address, WithPrefix

_FORWARDING = {4: "net.ipv4.ip_forward", 6: "net.ipv6.conf.all.forwarding"}
_ALL = {4: "0.0.0.0/0", 6: "::/0"}


@dataclass(frozen=True, slots=True)
class NamespaceLink:
    """A link as the kernel has it."""

    mac: str
    alias: str
    carries: bool
    """Whether it is up, and so is who is behind it."""
    addresses: frozenset[WithPrefix]
    """Without link-local ones."""
    local: frozenset[str]
    """Link-local addresses."""


@dataclass(frozen=True, slots=True)
class NamespaceRoute:
    """A route of the main table."""

    subnet: Subnet
    link: str
    via: Address | None = None


class Namespaces:
    """The network namespaces of a host.

    :param limit: seconds for each command.
    """

    def __init__(self, host: HostDriver, where: str, limit: float) -> None:
        self._host, self._where, self._limit = host, where, limit

    def names(self) -> frozenset[str]:
        """Return the names of all that are there."""
        return frozenset(found["name"] for found in self._ip(None, "netns", "list"))

    def links(self, netns: str | None) -> Mapping[str, NamespaceLink]:
        """Return all links of a namespace by name; None is the host's own."""
        found = self._ip(netns, "-d", "address", "show")
        return {link["ifname"]: _link(link) for link in found}

    def routes(self, netns: str, version: int) -> frozenset[NamespaceRoute]:
        """Return the routes of a version of IP that were not made by the kernel for an address."""
        found = self._ip(netns, f"-{version}", "route", "show")
        named = (route for route in found if route.get("protocol") != "kernel" and "dev" in route)
        return frozenset(_route(route, version) for route in named)

    def forwards(self, netns: str, versions: Iterable[int]) -> bool:
        """Return whether a namespace forwards packets of all these versions of IP."""
        keys = [_FORWARDING[version] for version in versions]
        return set(self.run(netns, "sysctl", "-n", *keys).split()) == {"1"}

    def forward(self, netns: str, versions: Iterable[int]) -> None:
        """Let a namespace forward packets of these versions of IP."""
        self.run(netns, "sysctl", "-qw", *(f"{_FORWARDING[version]}=1" for version in versions))

    def change(self, netns: str | None, *lines: str) -> None:
        """Run commands of ``ip`` in a namespace, one after the other; None is the host's own."""
        if lines:
            text = "".join(f"{line}\n" for line in lines)
            self._run((*_in(netns), "-batch", "-"), text)

    def run(self, netns: str, *argv: str, stdin: str = "", secrets: Iterable[str] = ()) -> str:
        """Run a command in a namespace, and return what it says.

        :param secrets: what no error repeats of what the command says.
        """
        return self._run(("ip", "netns", "exec", netns, *argv), stdin, secrets)

    def neighbors(self, netns: str) -> Mapping[Address, bool]:
        """Return whether addresses in a namespace's subnets that were asked for answer with a MAC."""
        found = self._ip(netns, "neighbor", "show")
        asked = (each for each in found if "INCOMPLETE" not in each.get("state", ()))
        return {ip_address(each["dst"]): "lladdr" in each for each in asked}

    def processes(self, netns: str) -> frozenset[str]:
        """Return the numbers of the processes in a namespace."""
        return frozenset(self._run(("ip", "netns", "pids", netns)).split())

    def absent(self, *programs: str) -> tuple[str, ...]:
        """Return the programs that the host does not have, of these names or paths."""
        tests = 'for each; do command -v "$each" >/dev/null || echo "$each"; done'
        return tuple(self._run(("sh", "-c", tests, "sh", *programs)).split())

    def matching(self, pattern: str) -> frozenset[str]:
        """Return the numbers of the processes on the host whose command lines match."""
        return frozenset(self._matching("pgrep", pattern).split())

    def signal(self, signal: str, pattern: str) -> None:
        """Send a signal to the processes on the host whose command lines match."""
        self._matching(f"pkill -{signal}", pattern)

    def _matching(self, command: str, pattern: str) -> str:
        return self._run(("sh", "-c", f'{command} -f "$0" || [ $? = 1 ]', pattern))

    def command(self, *argv: str) -> None:
        """Run a command on the host."""
        self._run(argv)

    def _ip(self, netns: str | None, *arguments: str) -> list[dict[str, Any]]:
        said = self._run((*_in(netns), "-json", *arguments))
        try:
            return [found for found in json.loads(said or "[]") if found]
        except ValueError as error:
            raise DriverError("ip gave an invalid answer", where=self._where) from error

    def _run(self, argv: tuple[str, ...], stdin: str = "", secrets: Iterable[str] = ()) -> str:
        result = self._host.run(argv, stdin.encode(), timeout=self._limit)
        if result.code == 0:
            return result.stdout.decode(errors="replace")
        why = result.stderr.decode(errors="replace").strip()
        for secret in secrets:
            why = why.replace(secret, "***")
        raise DriverError(f"{argv[0]} failed on {self._where}", where=" ".join(argv), why=why)


def _in(netns: str | None) -> tuple[str, ...]:
    return ("ip",) if netns is None else ("ip", "-netns", netns)


def _link(found: Mapping[str, Any]) -> NamespaceLink:
    infos = [(info["scope"], f"{info['local']}/{info['prefixlen']}") for info in found["addr_info"]]
    return NamespaceLink(
        found.get("address", ""),
        found.get("ifalias", ""),
        {"UP", "LOWER_UP"} <= set(found["flags"]),
        frozenset(ip_interface(text) for scope, text in infos if scope != "link"),
        frozenset(text for scope, text in infos if scope == "link"),
    )


def _route(found: Mapping[str, Any], version: int) -> NamespaceRoute:
    subnet = _ALL[version] if found["dst"] == "default" else found["dst"]
    via = found.get("gateway") or found.get("via", {}).get("host")
    return NamespaceRoute(ip_network(subnet), found["dev"], ip_address(via) if via else None)
