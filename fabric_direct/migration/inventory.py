"""An Ansible inventory: hosts, groups, and the variables of each host.

A host name may have ranges: ``w[1:3]``, ``w[01:10:3]``, ``w[a:c]``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fabric_direct.migration.values import FileLine, Value

Variables = dict[str, Value]
MOST = 4096
"""Hosts that one name may stand for."""

_RANGE = re.compile(r"\[(\w*):(\w+)(?::(\d+))?\]")
ROLES = {"worker": "workers?", "head": "heads?", "nso": "nso", "p4_switch": "p4[_-]switch(es)?"}
"""How the names of the groups end whose hosts have a role."""


@dataclass
class Group:
    """A group: its own hosts, the groups in it, its variables."""

    place: FileLine
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    variables: Variables = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InventoryHost:
    """A host, with its variables merged as Ansible does."""

    name: str
    place: FileLine
    """Where it is first named."""
    variables: Variables

    def place_of(self, variable: str) -> FileLine:
        """Return where a variable is set; the host's own place if it is not set."""
        value = self.variables.get(variable)
        return value.place if value else self.place


@dataclass
class AnsibleInventory:
    """The content of all files of an inventory."""

    place: FileLine | None = None
    """The inventory itself."""
    groups: dict[str, Group] = field(default_factory=dict)
    hosts: dict[str, InventoryHost] = field(default_factory=dict)
    """With the variables that are set beside their names alone."""
    group_vars: dict[str, Variables] = field(default_factory=dict)
    """From files beside the inventory; they override the group's variables in the inventory itself."""
    host_vars: dict[str, Variables] = field(default_factory=dict)

    def group(self, name: str, place: FileLine) -> Group:
        """Return a group, made at its first mention."""
        return self.groups.setdefault(name, Group(place))

    def add(self, group: Group, pattern: str, place: FileLine, variables: Variables) -> None:
        """Add the hosts that a pattern stands for to a group.

        :raises ValueError: as :func:`expand` does.
        """
        for name in expand(pattern):
            self.hosts.setdefault(name, InventoryHost(name, place, {})).variables.update(variables)
            group.hosts += [] if name in group.hosts else [name]

    def members(self, *groups: str) -> list[str]:
        """Return the hosts of groups and of all groups in them, each once, in the files' order."""
        within = set(self._within(groups))
        there = {host for name in within for host in self.groups[name].hosts}
        return [host for host in self.hosts if host in there]

    def of_role(self, role: str) -> list[str]:
        """Return the hosts of the groups whose names end with a role.

        :param role: ``worker``, ``head``, ``nso`` or ``p4_switch``.
        """
        ending = re.compile(rf"(^|[_-]){ROLES[role]}$")
        return self.members(*filter(ending.search, self.groups))

    def resolved(self, name: str) -> InventoryHost:
        """Return a host with its variables."""
        return replace(self.hosts[name], variables=self.variables(name))

    def variables(self, host: str) -> Variables:
        """Return the variables of a host, merged as Ansible does.

        A group overrides those that enclose it; of groups of equal depth the last by name wins. Files
        of group_vars override all groups in the inventory; variables of the host override both.
        """
        groups = self._groups_of(host)
        merged: Variables = {}
        for name in groups:
            merged |= self.groups[name].variables if name in self.groups else {}
        for name in groups:
            merged |= self.group_vars.get(name, {})
        return merged | self.hosts[host].variables | self.host_vars.get(host, {})

    def _groups_of(self, host: str) -> list[str]:
        names = (name for name in self.groups if name != "all" and host in self.members(name))
        return ["all", *sorted(names, key=lambda name: (self._depth(name), name))]

    def _depth(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """Return the number of groups that enclose a group, by the longest chain."""
        parents = [p for p, g in self.groups.items() if name in g.children and p not in seen]
        return 1 + max((self._depth(p, seen | {name}) for p in parents), default=0)

    def _within(self, names: tuple[str, ...]) -> Iterator[str]:
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.groups and name not in seen:
                seen.add(name)
                waiting += self.groups[name].children
                yield name


def expand(pattern: str) -> list[str]:
    """Return the names that a pattern stands for; the pattern itself if it has no range.

    :raises ValueError: if a range runs backwards, mixes letters and numbers, or is too long.
    """
    if len(pattern) > 255:
        raise ValueError("the host's name is longer than any host's name")
    found = _RANGE.search(pattern)
    if not found:
        return [pattern]
    rest = expand(pattern[found.end() :])
    steps = _steps(found[1] or "0", found[2], int(found[3] or 1))
    if not 0 < len(steps) * len(rest) <= MOST:
        raise ValueError(f"the host's name stands for no host, or for more than {MOST}")
    return [f"{pattern[: found.start()]}{step}{end}" for step in steps for end in rest]


def _steps(first: str, last: str, stride: int) -> list[str]:
    if stride < 1:
        raise ValueError("the host's name has a range with a step of 0")
    if first.isdecimal() and last.isdecimal():
        return list(_numbers(first, last, stride))
    if len(first) == len(last) == 1 and first.isalpha() and last.isalpha():
        return [chr(code) for code in range(ord(first), ord(last) + 1, stride)]
    raise ValueError("the host's name has a range that is neither of numbers nor of single letters")


def _numbers(first: str, last: str, stride: int) -> Iterator[str]:
    width = len(first) if first.startswith("0") and len(first) > 1 else 0
    numbers = range(int(first), int(last) + 1, stride)
    return (str(number).zfill(width) for number in numbers[: MOST + 1])
