"""An Ansible inventory: hosts, groups, and which variables count for a host."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fabric_direct.migration.findings import Place
from fabric_direct.migration.values import Value

Variables = dict[str, Value]


@dataclass
class Group:
    """A group: its own hosts, the groups in it, its variables."""

    place: Place
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    variables: Variables = field(default_factory=dict)


@dataclass
class Inventory:
    """What all of an inventory's files say together."""

    groups: dict[str, Group] = field(default_factory=dict)
    hosts: dict[str, Variables] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    """Where each host is first named."""
    group_vars: dict[str, Variables] = field(default_factory=dict)
    """From files beside the inventory; they count more than what it says of the group itself."""
    host_vars: dict[str, Variables] = field(default_factory=dict)

    def group(self, name: str, place: Place) -> Group:
        """Return a group, made at its first mention."""
        return self.groups.setdefault(name, Group(place))

    def host(self, name: str, place: Place) -> Variables:
        """Return the variables of a host, made at its first mention."""
        self.places.setdefault(name, place)
        return self.hosts.setdefault(name, {})

    def members(self, *groups: str) -> list[str]:
        """Return the hosts of groups and of all groups in them, each once, in the files' order."""
        within = set(self._within(groups))
        there = {host for name in within for host in self.groups[name].hosts}
        return [host for host in self.hosts if host in there]

    def matching(self, accept: Callable[[str], object]) -> list[str]:
        """Return the hosts of the groups whose names are accepted."""
        return self.members(*(name for name in self.groups if accept(name)))

    def variables(self, host: str) -> Variables:
        """Return what counts for a host, as Ansible merges it.

        The nearer to the host a group is, the more it counts; of equals the last by name. What a file of
        group_vars says counts more than any group in the inventory, and what is said of the host most.
        """
        groups = self._groups_of(host)
        merged: Variables = {}
        for name in groups:
            merged |= self.groups[name].variables if name in self.groups else {}
        for name in groups:
            merged |= self.group_vars.get(name, {})
        return merged | self.hosts.get(host, {}) | self.host_vars.get(host, {})

    def _groups_of(self, host: str) -> list[str]:
        names = (name for name in self.groups if name != "all" and host in self.members(name))
        return ["all", *sorted(names, key=lambda name: (self._depth(name), name))]

    def _depth(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """Return how many groups enclose a group, by the longest way."""
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


def start_of(path: Path) -> Place:
    """Return the first line of a file."""
    return Place(str(path))
