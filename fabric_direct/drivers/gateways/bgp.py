"""BGP of a service in its namespace: FRR's bgpd, with zebra for the kernel's routes.

Its configuration is sent by standard input and kept in the daemon's memory alone, so that keys are in no
file, and in no list of processes. After the daemons have ended, it is made again.
"""

import json
import re
from collections.abc import Iterator, Mapping

from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.gateways.gateway import Bgp, Neighbor, Subnet
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.errors import DriverError, NotVerified, TimedOut
from fabric_direct.model.services import Address

_DAEMONS = ("zebra", "bgpd")
_PROGRAMS = "/usr/lib/frr"
NEEDED = (*(f"{_PROGRAMS}/{name}" for name in _DAEMONS), "vtysh")
"""The programs of FRR that a host needs."""
# Seconds for a gateway of ours to begin, which may have only just been started on a busy host; for
# another neighbor to answer; and for processes to end.
_OURS, _SESSION, _END = 30.0, 8.0, 5.0
_HIDDEN = "***"
Lines = frozenset[tuple[str, str]]
"""Lines of a configuration, each with the block that it is in."""


class Speaker:
    """The BGP daemons in a namespace."""

    def __init__(self, host: Namespaces, netns: str) -> None:
        self._host, self._netns = host, netns
        self._directory = f"/run/{netns}"
        self._pattern = f"^{_PROGRAMS}/[a-z]+ -d -i {self._directory}/"

    # --- reading

    def installed(self) -> bool:
        """Return whether the host has the daemons."""
        return not self._host.absent(*NEEDED)

    def differences(self, wanted: Bgp) -> Iterator[str]:
        """Yield what is not as wanted; warn of neighbors that give no answer."""
        if not self._runs():
            yield f"BGP does not run in {self._netns}"
            return
        if not _same(self._configured(), wanted):
            yield f"BGP in {self._netns} is configured otherwise"
        due, silent = self._pending(wanted)
        yield from self._unsettled(wanted, due)
        for neighbor, state in silent.items():
            warn(f"BGP with {neighbor.address} is {state}: it does not answer")

    def _unsettled(self, wanted: Bgp, due: Mapping[Neighbor, str]) -> Iterator[str]:
        for neighbor, state in due.items():
            why = "it answers, so compare keys and ASNs"
            yield f"BGP with {neighbor.address} is {state}, not Established: {why}"
        for subnet in sorted(map(str, self._unlearned(wanted))):
            yield f"namespace {self._netns} has no route to {subnet}"

    def _unlearned(self, wanted: Bgp) -> frozenset[Subnet]:
        versions = {subnet.version for subnet in wanted.learned}
        routes = (self._host.routes(self._netns, version) for version in versions)
        return wanted.learned - {route.subnet for found in routes for route in found}

    def _pending(
        self, wanted: Bgp, *, unasked: bool = False
    ) -> tuple[dict[Neighbor, str], dict[Neighbor, str]]:
        """Return the neighbors that are not established, with their states: who is to be, and others.

        Each is to be that is one of ours, or that answers; so is who was not asked, if ``unasked``.
        """
        states = self._states()
        known = {n: states.get(str(n.address), "unknown") for n in wanted.neighbors}
        pending = {neighbor: state for neighbor, state in known.items() if state != "Established"}
        answers = self._host.neighbors(self._netns) if pending else {}
        due, others = dict[Neighbor, str](), dict[Neighbor, str]()
        for neighbor, state in pending.items():
            must = neighbor.asn == wanted.asn or answers.get(neighbor.address, unasked)
            (due if must else others)[neighbor] = state
        return due, others

    def _runs(self) -> bool:
        """Return whether the daemons answer, here: a deleted namespace lives on with its processes."""
        pids = self.pids()
        if len(pids) < len(_DAEMONS) or not pids <= self._host.processes(self._netns):
            return False
        try:
            return set(_DAEMONS) <= set(self._ask("show daemons").split())
        except DriverError:
            return False

    def pids(self) -> frozenset[str]:
        """Return the numbers of the daemons' processes, in whichever namespace they are."""
        return self._host.matching(self._pattern)

    def _configured(self) -> Lines:
        text = self._ask("show running-config no-header")
        return _lines(text[text.find("router bgp") :] if "router bgp" in text else "")

    def _states(self) -> Mapping[str, str]:
        try:
            found = json.loads(self._ask("show bgp neighbors json"))
            return {name: said["bgpState"] for name, said in found.items()}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DriverError("bgpd gave an invalid answer", where=self._netns) from error

    def _ask(self, command: str) -> str:
        return self._host.run(self._netns, *self._vtysh(), "-c", command)

    def _vtysh(self) -> tuple[str, ...]:
        history = "VTYSH_HISTFILE=/dev/null"
        return ("env", history, "vtysh", "--vty_socket", self._directory)

    # --- changing

    def apply(self, wanted: Bgp) -> None:
        """Run BGP as wanted."""
        if not self._runs():
            self.stop()
            self._start()
        if not _same(there := self._configured(), wanted):
            self._configure("".join([*_dropped(there, wanted), *_text(wanted)]))

    def settle(self, wanted: Bgp) -> None:
        """Block until all routes to other devices are there, and all neighbors that answer established.

        :raises NotVerified: if that is not so in the end.
        """
        try:
            wait_until("our own BGP", lambda: self._joined(wanted), timeout=_OURS)
            wait_until("BGP", lambda: not self._due(wanted), timeout=_SESSION)
        except TimedOut as error:
            due, _ = self._pending(wanted)
            said = "; ".join(self._unsettled(wanted, due))
            raise NotVerified(said or "BGP is not established", where=self._netns) from error

    def _joined(self, wanted: Bgp) -> bool:
        """Return whether the service's gateways on all devices exchange their routes."""
        ours = (neighbor.asn == wanted.asn for neighbor in self._due(wanted))
        return not any(ours) and not self._unlearned(wanted)

    def _due(self, wanted: Bgp) -> Mapping[Neighbor, str]:
        due, _ = self._pending(wanted, unasked=True)
        return due

    def _start(self) -> None:
        self._host.command("install", "-d", "-o", "frr", "-g", "frr", "-m", "750", self._directory)
        for name in _DAEMONS:
            own = ("-i", f"{self._directory}/{name}.pid", "-z", f"{self._directory}/zserv.api")
            rest = ("--vty_socket", self._directory, "-P", "0", "-f", "/dev/null")
            self._host.run(self._netns, f"{_PROGRAMS}/{name}", "-d", *own, *rest)

    def _configure(self, text: str) -> None:
        """Send a configuration; vtysh repeats the lines that are refused, with their keys."""
        keys = re.findall(r" password (\S+)", text)
        self._host.run(self._netns, *self._vtysh(), "-f", "/dev/stdin", stdin=text, secrets=keys)

    def stop(self) -> None:
        """End the daemons, and remove what they leave.

        :raises TimedOut: if one does not end.
        """
        for signal in ("TERM", "KILL"):
            if self._ended(signal):
                break
        self._host.command("rm", "-rf", self._directory)

    def _ended(self, signal: str) -> bool:
        self._host.signal(signal, self._pattern)
        try:
            wait_until("an end", lambda: not self.pids(), timeout=_END)
        except TimedOut:
            if signal == "KILL":
                raise
            return False
        return True


def _text(bgp: Bgp) -> Iterator[str]:
    yield f"router bgp {bgp.asn}\n"
    yield f" bgp router-id {bgp.router_id}\n"
    yield " no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n"
    for neighbor in bgp.neighbors:
        yield from (f" {line}\n" for line in _neighbor(neighbor))
        if neighbor.asn == bgp.asn:  # it learns soon that we began anew
            yield f" neighbor {neighbor.address} timers 2 20\n"
    for version in (4, 6):
        yield from _family(bgp, version)
    yield "exit\n"


def _neighbor(neighbor: Neighbor) -> Iterator[str]:
    yield f"neighbor {neighbor.address} remote-as {neighbor.asn}"
    if neighbor.key:
        yield f"neighbor {neighbor.address} password {neighbor.key}"
    yield f"neighbor {neighbor.address} timers connect 2"


def _family(bgp: Bgp, version: int) -> Iterator[str]:
    lines = [f"network {s}" for s in sorted(bgp.subnets, key=str) if s.version == version]
    for neighbor in (n for n in bgp.neighbors if n.address.version == version):
        lines.append(f"neighbor {neighbor.address} activate")
        if neighbor.asn == bgp.asn:
            lines.append(f"neighbor {neighbor.address} next-hop-self")
    if lines:
        yield f" address-family ipv{version} unicast\n"
        yield from (f"  {line}\n" for line in lines)
        yield " exit-address-family\n"


def _lines(text: str) -> Lines:
    """Return the lines of the BGP of a configuration, each with its address family."""
    found, family = set(), ""
    for line in (each.strip() for each in text.splitlines()):
        if line == "exit":
            break
        if line.startswith("address-family"):
            family = line
        elif line == "exit-address-family":
            family = ""
        elif line.strip("!"):
            found.add((family, line))
    return frozenset(found)


def _same(there: Lines, wanted: Bgp) -> bool:
    """Return whether a configuration is as wanted; of a key that is not told, that there is one."""
    secret = {n.address for n in wanted.neighbors if n.secret and not n.key}
    lines = _lines("".join(_text(wanted)))
    hidden = {("", f"neighbor {address} password {_HIDDEN}") for address in secret}
    return frozenset(_without_key(line, secret) for line in there) == lines | hidden


def _without_key(line: tuple[str, str], secret: set[Address]) -> tuple[str, str]:
    words = line[1].split()
    if words[0] == "neighbor" and words[2] == "password" and words[1] in set(map(str, secret)):
        return line[0], f"neighbor {words[1]} password {_HIDDEN}"
    return line


def _dropped(there: Lines, wanted: Bgp) -> Iterator[str]:
    """Yield what takes neighbors that are gone or changed, and subnets, out of a configuration."""
    lines, (own, asn) = _lines("".join(_text(wanted))), ("", f"router bgp {wanted.asn}")
    if (own, asn) not in there:
        yield from (f"no {line}\n" for _, line in there if line.startswith("router bgp"))
        return
    yield f"{asn}\n"
    changed = {line.split()[1] for _, line in there ^ lines if line.startswith("neighbor")}
    known = {line.split()[1] for _, line in there if line.startswith("neighbor")}
    yield from (f" no neighbor {address}\n" for address in sorted(changed & known))
    for family, line in sorted(there - lines):
        if line.startswith("network"):
            yield f" {family}\n  no {line}\n exit-address-family\n"
    yield "exit\n"
