"""The document that lists the slivers that are expected to exist.

::

    count: 3
    slivers:
      - vm-1
      - vm-2
      - {id: lan-1, type: L2Bridge, name: lan}   # a sliver's whole document will do; its id counts
"""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema, model_validator

from fabric_direct.documents import parse
from fabric_direct.errors import Refused
from fabric_direct.model import Frozen, SliverId, refuse_twice

MOST = 100_000
"""Slivers in one document."""
# A document ends with a line or, as JSON does, with a bracket: any other end is in the middle of a line.
_ENDS = ("\n", "}", "]")


def _id_of(listed: Any) -> Any:
    """Return an id, or the id in the document of a sliver, of which nothing else is read."""
    if isinstance(listed, dict) and "id" not in listed:
        raise ValueError("has no id")
    return listed["id"] if isinstance(listed, dict) else listed


_ID = TypeAdapter(SliverId).json_schema()
_DOCUMENT = {"type": "object", "properties": {"id": _ID}, "required": ["id"]}
_Listed = Annotated[SliverId, BeforeValidator(_id_of), WithJsonSchema({"anyOf": [_ID, _DOCUMENT]})]


class ExpectedSlivers(Frozen):
    """The slivers that are expected to exist; a sweep finds what belongs to others."""

    count: Annotated[int, Field(ge=1, le=MOST, strict=True)]
    """Number of slivers in the list: a list that was cut off does not have it."""
    slivers: Annotated[tuple[_Listed, ...], Field(min_length=1, max_length=MOST)]
    """Each sliver's id, or its document."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.count != len(self.slivers):
            raise ValueError(f"count: is {self.count}, but {len(self.slivers)} slivers are listed")
        refuse_twice("slivers: id", list(self.slivers))
        return self

    def ids(self) -> frozenset[str]:
        """Return the ids of the slivers."""
        return frozenset(self.slivers)


def parse_expected(text: str, source: str) -> ExpectedSlivers:
    """Return the expected slivers of a document.

    :param source: name of the file, for error messages.
    :raises Refused: if it is empty, invalid, or not whole.
    """
    if text.strip() and not text.endswith(_ENDS):
        raise Refused(
            f"{source} ends in the middle of a line",
            why="it may have been cut off",
            remedy="write the whole list, with a line break at the end",
        )
    return parse(text, source, ExpectedSlivers, Refused)
