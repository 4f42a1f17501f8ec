"""The handler protocol, as the processor uses it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.engine.step import Flow
from fabric_direct.errors import Conflict, FabricDirectError, Interrupted, Unsupported
from fabric_direct.model import Observed, Sliver, SliverRef
from fabric_direct.site.config import Site


@dataclass(frozen=True, slots=True)
class Repair:
    """The steps that make a sliver match its stamp again, and the differences beyond repair."""

    sliver: SliverRef
    """As its stamp says."""
    found: Observed
    """With the differences between both."""
    flow: Flow
    """Empty if nothing differs, or nothing of it can be repaired."""
    beyond: tuple[str, ...] = ()
    """The differences that cannot be repaired, and why not."""


class OneModel:
    """A handler whose slivers all have one model."""

    sliver_model: ClassVar[type[Sliver]]

    @classmethod
    def model_of(cls, document: Mapping[str, Any]) -> type[Sliver]:  # noqa: ARG003
        """Return the model of a whole sliver."""
        return cls.sliver_model


class Handler(Protocol):
    """One resource type, for one operation on one host; made anew for each."""

    sliver_model: ClassVar[type[Sliver]]
    """What a whole sliver of this type looks like."""
    actions: ClassVar[tuple[str, ...]]
    """Names of its operational actions."""
    hosted: ClassVar[bool]
    """Whether its slivers are on one of the site's hosts, which has to be found."""

    def __init__(self, site: Site, drivers: HostDrivers) -> None:
        """Make a handler whose drivers keep the operation's deadline."""

    @classmethod
    def model_of(cls, document: Mapping[str, Any]) -> type[Sliver]:
        """Return what a whole sliver looks like that a document describes."""

    def create(self, sliver: Any) -> Flow:
        """Return what makes the sliver, or makes sure that it is there; nothing is changed yet.

        :raises Refused: if the site cannot serve it, with the path of the offending field.
        :raises Conflict: if it is there and differs from what is asked for.
        """

    def modify(self, sliver: Any) -> Flow:
        """Return what turns the sliver that is there into the one asked for; nothing is changed yet.

        :raises Refused: if the site cannot serve it, with the path of the offending field.
        :raises NotFound: if it is not there.
        :raises InvalidSliver: if a field differs that cannot be changed.
        """

    def delete(self, ref: SliverRef) -> Flow:
        """Return what removes everything that carries the sliver's stamp."""

    def reconcile(self, ref: SliverRef) -> Repair:
        """Return what makes the sliver again what its stamp says; nothing is changed yet.

        :raises NotFound: if it is not there.
        :raises Unsupported: if nothing says what it should be.
        """

    def adopt(self, wanted: Any) -> Flow:
        """Return what stamps a sliver that others made; nothing is changed yet.

        :raises Refused: if something of it is not as the sliver says, with the path of the field.
        :raises Conflict: if somebody else stamped it, or a part of it.
        :raises NotFound: if it is not there.
        :raises Unsupported: if slivers of this type, or of this site, cannot be adopted.
        """

    def exists(self, ref: SliverRef) -> bool:
        """Return whether the sliver is there, so that it can be modified."""

    def observe(self, ref: SliverRef) -> Observed:
        """Read the sliver from the substrate and compare it with what it should be."""

    def leftovers(self, ref: SliverRef) -> tuple[str, ...]:
        """Name everything of the sliver that is there."""

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:
        """Carry an operational action out and return its answer.

        :raises InvalidSliver: if there is no such action, or its data are wrong.
        :raises NotFound: if the sliver is not there.
        """


def unknown_wish(ref: SliverRef, what: str) -> Unsupported:
    """Return the error of a sliver whose stamp does not say what it should be."""
    return Unsupported(
        f"sliver {ref.id} cannot be reconciled",
        why=f"a {what} has no record of what was asked for",
        remedy="modify it with its file",
    )


def already_there(
    ref: SliverRef,
    *,
    where: str = "",
    why: str = "",
    remedy: str = "use modify, or delete it first",
) -> Conflict:
    """Return the error of a sliver that is to be created, and is there as another one."""
    return Conflict(
        f"sliver {ref.id} is there and differs from what is asked for",
        where=where,
        why=why,
        remedy=remedy,
    )


@contextmanager
def field_below(prefix: str) -> Iterator[None]:
    """Complete the field's path of what is refused within the block."""
    try:
        yield
    except Interrupted:
        raise  # no field is wrong
    except FabricDirectError as error:
        error.field = f"{prefix}.{error.field}" if error.field else prefix
        raise
