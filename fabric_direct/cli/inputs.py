"""Read the arguments of commands: files and ids as slivers, data of actions."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fabric_direct.errors import InvalidSliver, Refused

if TYPE_CHECKING:
    from fabric_direct.model import PciAddress, SliverRef
    from fabric_direct.placement.batch_request import BatchRequest

T = TypeVar("T", bound="SliverRef")


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

    return load(path, _model_of, InvalidSliver)


def _model_of(document: Any) -> "type[SliverRef]":
    """Return the model for a document by its type; a node if the type is missing or unknown."""
    from fabric_direct.model import NodeSliver  # noqa: PLC0415
    from fabric_direct.registry import handler_for  # noqa: PLC0415

    named = document.get("type") if isinstance(document, dict) else None
    try:
        model: type[SliverRef] = handler_for(str(named)).sliver_model
    except InvalidSliver:
        return NodeSliver
    return model


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
