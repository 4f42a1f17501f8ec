"""A router of another autonomous system: FRR in the namespace of a port of the lab's switches."""

import subprocess
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from tests.network.conftest import ip
from tests.services.node import bare

SPACE, ASN = "fd-sw2-p4", 65002


class Plan(NamedTuple):
    """Its addresses in a version of IP."""

    version: int
    address: str
    """Its own, with prefix length."""
    neighbor: str
    """That of its neighbor, with prefix length."""
    subnet: str
    inside: str
    """Its own one in its subnet, with prefix length."""


class Foreign:
    """BGP of somebody else."""

    def __init__(self, plan: Plan, asn: int, key: str, directory: Path) -> None:
        self._directory, self._plan = f"/run/{directory.name}-foreign", plan
        for address, link in ((plan.address, "eth0"), (plan.inside, "lo")):
            nodad = ["nodad"] if plan.version == 6 else []
            ip("-n", SPACE, "address", "add", address, "dev", link, *nodad)
        self._run("install", "-d", "-o", "frr", "-g", "frr", self._directory)
        for name in ("zebra", "bgpd"):
            own = ("-i", f"{self._directory}/{name}.pid", "-z", f"{self._directory}/api")
            rest = ("--vty_socket", self._directory, "-P", "0", "-f", "/dev/null")
            self._inside(f"/usr/lib/frr/{name}", "-d", *own, *rest)
        self._configure(bare(plan.neighbor), asn, key)

    def _configure(self, neighbor: str, asn: int, key: str) -> None:
        text = f"""router bgp {ASN}
 bgp router-id 10.66.0.1
 no bgp ebgp-requires-policy
 neighbor {neighbor} remote-as {asn}
 neighbor {neighbor} password {key}
 neighbor {neighbor} timers connect 1
 address-family ipv{self._plan.version} unicast
  neighbor {neighbor} activate
  network {self._plan.subnet}
"""
        self._vtysh("-f", "/dev/stdin", stdin=text)

    def learns(self, subnet: str, within: float = 60) -> bool:
        """Return whether it has a route to a subnet by BGP."""
        until = monotonic() + within
        while monotonic() < until:
            if subnet in ip("-n", SPACE, f"-{self._plan.version}", "route", "show", "proto", "bgp"):
                return True
            sleep(0.1)
        return False

    def end(self) -> None:
        for pid in ip("netns", "pids", SPACE).split():
            self._run("kill", pid)
        while ip("netns", "pids", SPACE):
            sleep(0.05)
        self._run("rm", "-r", self._directory)
        ip("-n", SPACE, "address", "flush", "dev", "eth0", "scope", "global")
        ip("-n", SPACE, "address", "flush", "dev", "lo", "scope", "global")

    def _vtysh(self, *arguments: str, stdin: str = "") -> None:
        history = "VTYSH_HISTFILE=/dev/null"
        self._inside(
            "env", history, "vtysh", "--vty_socket", self._directory, *arguments, stdin=stdin
        )

    def _inside(self, *argv: str, stdin: str = "") -> None:
        self._run("ip", "netns", "exec", SPACE, *argv, stdin=stdin)

    def _run(self, *argv: str, stdin: str = "") -> None:
        subprocess.run(argv, input=stdin, text=True, check=True, capture_output=True)
