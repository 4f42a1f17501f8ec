"""Read the arguments of commands: files and ids as slivers, data of actions."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from fabric_direct.errors import InvalidSliver, Refused

if TYPE_CHECKING:
    from fabric_direct.model import ErrorReport, Outcome, PciAddress, SliverRef
    from fabric_direct.placement.batch_request import BatchRequest

T = TypeVar("T", bound="SliverRef")
# Key in click's context: the files of the slivers that were read, by their ids.
_FILES = f"{__name__}.files"


def pci_address(text: str) -> "PciAddress":
    """Parse an argument that is a PCI address, for example ``0000:25:00.0``."""
    from fabric_direct.model import PciAddress  # noqa: PLC0415 - see the package

    try:
        return PciAddress.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from error


def sliver(path: Path) -> "SliverRef":
    """Return the sliver that a file describes.

    :raises InvalidSliver: if it cannot be read or is invalid.
    """
    from fabric_direct.documents import load  # noqa: PLC0415 - see the package

    found: SliverRef = load(path, _model_of, InvalidSliver)
    click.get_current_context().meta.setdefault(_FILES, {})[found.id] = path
    return found


def with_line(outcome: "Outcome") -> "Outcome":
    """Return an outcome whose refusal of a sliver names the line of the file that the sliver is from."""
    from fabric_direct.documents import line_of  # noqa: PLC0415 - see the package

    path = click.get_current_context().meta.get(_FILES, {}).get(outcome.sliver.id)
    error = outcome.error
    if path is None or error is None or not _is_of_file(outcome, error):
        return outcome
    try:
        line = line_of(path, error.field, InvalidSliver)
    except InvalidSliver:  # the file has changed since
        return outcome
    said = error.model_copy(update={"message": f"{path}:{line}: {error.message}"})
    return outcome.model_copy(update={"error": said})


def _is_of_file(outcome: "Outcome", error: "ErrorReport") -> bool:
    """Return whether an error is about a field of the sliver; an action has data of its own."""
    of_sliver = error.kind == InvalidSliver.__name__ and outcome.operation.value != "poa"
    return of_sliver and bool(error.field)


def _model_of(document: Any) -> "type[SliverRef]":
    """Return the model for a document by its type; a node if the type is missing or unknown."""
    from fabric_direct.model import NodeSliver  # noqa: PLC0415
    from fabric_direct.registry import resource_types, sliver_model  # noqa: PLC0415

    named = document.get("type") if isinstance(document, dict) else None
    if named is None:
        return NodeSliver
    if named in resource_types():
        return sliver_model(document)
    return _of_type(resource_types())


def _of_type(known: tuple[str, ...]) -> "type[SliverRef]":
    """Return the model of a node that refuses all types but these, beside its other errors."""
    from pydantic import create_model  # noqa: PLC0415 - see the package

    from fabric_direct.model import NodeSliver  # noqa: PLC0415

    one_of: Any = Literal.__getitem__(known)
    return create_model(NodeSliver.__name__, __base__=NodeSliver, type=(one_of, known[0]))


def wanted(path: Path) -> "BatchRequest":
    """Return the request of a document: several slivers, or the single one that it describes.

    :raises InvalidSliver: if it cannot be read or is invalid.
    """
    from fabric_direct.documents import load  # noqa: PLC0415 - see the package
    from fabric_direct.model import NodeSliver  # noqa: PLC0415
    from fabric_direct.placement.batch_request import BatchRequest, SliverGroup  # noqa: PLC0415

    def model_of(document: Any) -> "type[BatchRequest | NodeSliver]":
        return BatchRequest if isinstance(document, dict) and "slivers" in document else NodeSliver

    asked = load(path, model_of, InvalidSliver)
    return (
        asked
        if isinstance(asked, BatchRequest)
        else BatchRequest(slivers=(SliverGroup(sliver=asked),))
    )


def slivers(paths: tuple[Path, ...]) -> "list[SliverRef]":
    """Return the slivers of several files.

    :raises InvalidSliver: if any is invalid; the message has the errors of all files.
    """
    return _each(partial(sliver, path) for path in paths)


def references(words: tuple[str, ...], resource_type: str) -> "list[SliverRef]":
    """Return the slivers that files or ids name; see :func:`reference`."""
    return _each(partial(reference, word, resource_type) for word in words)


def reference(word: str, resource_type: str) -> "SliverRef":
    """Return the sliver that a file describes, or a reference by id.

    A word with a ``/``, or that ends in ``.yaml``, ``.yml`` or ``.json``, is a file.

    :raises InvalidSliver: if it is neither.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.model import SliverRef  # noqa: PLC0415

    if "/" in word or word.endswith((".yaml", ".yml", ".json")):
        return sliver(Path(word))
    try:
        return SliverRef(id=word, type=resource_type)
    except ValidationError as error:
        raise InvalidSliver(
            f"{word!r} is neither a sliver's file nor an id",
            why="files end in .yaml, .yml or .json; ids are letters, digits, '-' and '_'",
            field="id",
        ) from error


def _each(loads: "Iterable[Callable[[], T]]") -> "list[T]":
    loaded: list[T] = []
    errors: list[InvalidSliver] = []
    for load in loads:
        try:
            loaded.append(load())
        except InvalidSliver as error:
            errors.append(error)
    if errors:
        raise InvalidSliver("\n".join(map(str, errors)), field=errors[0].field) from errors[0]
    twice = [one for one, number in Counter(one.id for one in loaded).items() if number > 1]
    if twice:
        raise InvalidSliver(f"the sliver {twice[0]} is given twice", field="id")
    return loaded


def data(word: str | None) -> dict[str, Any]:
    """Return the data of an action: JSON text, ``@file``, or ``-`` for stdin.

    :raises Refused: if it is not a mapping of fields.
    """
    from pydantic import RootModel  # noqa: PLC0415 - see the package

    from fabric_direct.documents import load, parse  # noqa: PLC0415

    model = RootModel[dict[str, Any]]
    if word is None:
        return {}
    if word.startswith("@"):
        return load(Path(word[1:]), model, Refused).root
    text, source = (sys.stdin.read(), "stdin.json") if word == "-" else (word, "DATA.json")
    return parse(text, source, model, Refused).root
