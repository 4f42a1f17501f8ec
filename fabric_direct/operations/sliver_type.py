"""The resource type of a sliver that is named by its id alone.

Ids are unique at a site, whatever the type. So the site is asked::

    an operation on it is unfinished    as the journal says
    it was made here, and is there      as was noted then (state/sliver_types.py)
    anything of it is there             the type whose deletion removes all of it
    nothing of it is anywhere           a VM, or the first type of a site without VMs
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fabric_direct.engine.run import attempt_each
from fabric_direct.errors import Conflict, Refused, Unreachable
from fabric_direct.model import SliverRef


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """What the site has of a sliver, if it is one of a type."""

    exists: bool
    """Whether the sliver itself is there."""
    things: frozenset[str]
    """Everything of it that is there."""


def type_of(
    sliver_id: str, kinds: Iterable[str], look: Callable[[SliverRef], TypeMatch], usual: str
) -> str:
    """Return the type of the sliver of an id.

    :param kinds: the types that are asked for, in parallel.
    :param look: returns what the site has of a sliver; raises Refused if it serves none of the type.
    :param usual: the type of what is nowhere. Where nothing answers for it, its operation says so.
    :raises Conflict: if slivers of several types have the id.
    :raises Unreachable: if no sliver of it is there, and one may be where nothing answers.
    """
    answers = attempt_each(lambda kind: look(SliverRef(id=sliver_id, type=kind)), kinds)
    found = {
        k: a for k, a in answers.items() if isinstance(a, TypeMatch) and (a.exists or a.things)
    }
    fitting = _most(found)
    there = [kind for kind in fitting if found[kind].exists]
    if there:
        return there[0]
    for kind, error in answers.items():
        met_again = kind == usual and not fitting
        if isinstance(error, Exception) and not (isinstance(error, Refused) or met_again):
            raise Unreachable(
                f"whether {sliver_id} is a {kind} is not known",
                why=str(error),
                remedy="name the sliver's type: what has another one is not asked then",
            ) from error
    return next(iter(fitting), usual)


def _most(found: Mapping[str, TypeMatch]) -> list[str]:
    """Return the types that account for everything that was found.

    :raises Conflict: if there is none: two slivers have one id.
    """
    everything = frozenset().union(*(each.things for each in found.values()))
    most = [kind for kind, each in found.items() if each.things == everything]
    if found and not most:
        there = [kind for kind, each in found.items() if each.exists]
        kinds = ", a ".join(there if len(there) > 1 else found)
        raise Conflict(f"several slivers have this id: a {kinds}", remedy="name the sliver's type")
    return most
