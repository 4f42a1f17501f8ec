"""Findings of a sweep: what would be removed, what is left alone, and the token of exactly that."""

import hashlib
from collections.abc import Iterator

from fabric_direct.errors import Refused
from fabric_direct.model import Frozen, Name, SliverRef

_LENGTH = 16
"""Characters of a token."""


class FoundResource(Frozen):
    """Something that would go."""

    sliver: str = ""
    """Whose it is; empty if it belongs to no sliver."""
    kind: str
    name: str
    host: str = ""
    """Where it is; empty for a cloud, and for what is in ``state_dir``."""

    def __str__(self) -> str:
        """Return it in words, for messages."""
        owner = f" of {self.sliver}" if self.sliver else ""
        return f"{self.kind} {self.name}{owner}" + (f" on {self.host}" if self.host else "")


class LeftAlone(Frozen):
    """Something that was found and is not removed."""

    what: str
    why: str
    """The reason, and what to do."""


class Findings(Frozen):
    """The findings of a sweep."""

    types: dict[str, Name] = {}
    """The slivers that would go, with their resource types."""
    things: tuple[FoundResource, ...] = ()
    """Everything that would go."""
    left_alone: tuple[LeftAlone, ...] = ()
    exist: int = 0
    """Number of slivers of which anything was found."""
    missing: tuple[str, ...] = ()
    """Expected slivers of which nothing was found."""

    @property
    def token(self) -> str:
        """A digest of what would go; empty if that is nothing."""
        if not self.things:
            return ""
        lines = sorted(map(repr, self.types.items())) + sorted(
            thing.model_dump_json() for thing in self.things
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_LENGTH]

    def slivers(self) -> tuple[SliverRef, ...]:
        """Return the slivers that would go."""
        return tuple(SliverRef(id=sliver, type=kind) for sliver, kind in self.types.items())

    def of_nobody(self) -> tuple[FoundResource, ...]:
        """Return what would go and belongs to no sliver."""
        return tuple(thing for thing in self.things if not thing.sliver)

    def without(self, busy: dict[str, str]) -> "Findings":
        """Return the same, but for slivers that are left alone.

        :param busy: these slivers, each with the reason.
        """
        left = (
            LeftAlone(what=f"sliver {sliver}", why=why)
            for sliver, why in busy.items()
            if sliver in self.types
        )
        return self.model_copy(
            update={
                "types": {s: kind for s, kind in self.types.items() if s not in busy},
                "things": tuple(thing for thing in self.things if thing.sliver not in busy),
                "left_alone": (*self.left_alone, *left),
            }
        )

    def refuse_share(self, at_most: float) -> None:
        """Raise Refused if more than a share of the slivers that exist would go.

        :param at_most: percent.
        """
        going = len(self.types)
        if going * 100 > at_most * self.exist:
            raise Refused(
                f"{going} of the {self.exist} slivers that exist would go,"
                f" more than {at_most:g} %: nothing was deleted",
                why="the list of expected slivers may not be whole, or be another site's",
                remedy="complete it or, if they all shall go, set --at-most",
            )

    def refuse_changed(self, before: "Findings") -> None:
        """Raise Refused, with what has changed, if this is not what was found before."""
        if self.token == before.token:
            return
        raise Refused(
            "what would go is not what the dry run found: nothing was deleted",
            why="; ".join(self._changes(before)),
            remedy="sweep without --token, look at what it finds, and give its token",
        )

    def _changes(self, before: "Findings") -> Iterator[str]:
        yield from (f"new: {thing}" for thing in self.things if thing not in before.things)
        yield from (f"gone: {thing}" for thing in before.things if thing not in self.things)
        for sliver, kind in self.types.items():
            if before.types.get(sliver, kind) != kind:
                yield f"{sliver} is a {kind}, not a {before.types[sliver]}"
        for each in self.left_alone:
            if each not in before.left_alone:
                yield f"{each.what}: {each.why}"
