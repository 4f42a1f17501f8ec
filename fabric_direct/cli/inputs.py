"""Read the arguments of commands: files and ids as slivers, data of actions."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from fabric_direct.errors import InvalidSite, InvalidSliver, Refused

if TYPE_CHECKING:
    from fabric_direct.cli.sources import DocumentFile
    from fabric_direct.model import ErrorReport, Outcome, PciAddress, Sliver, SliverRef
    from fabric_direct.placement.batch_request import BatchRequest, SliverGroup

S = TypeVar("S", bound="SliverRef")
_Load = Callable[[], tuple[tuple[S, str], ...]]
"""Returns slivers, each with where it is from, as messages name it."""
# Key in click's context: the documents of the slivers that were read, by their ids.
_DOCUMENTS = f"{__name__}.documents"


def pci_address(text: str) -> "PciAddress":
    """Parse an argument that is a PCI address, for example ``0000:25:00.0``."""
    from fabric_direct.model import PciAddress  # noqa: PLC0415 - see the package

    try:
        return PciAddress.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from error


def known_type(
    _context: click.Context, _parameter: click.Parameter, kind: str | None
) -> str | None:
    """Return a resource type that an option names; refuse one for which there is no handler."""
    if kind:
        from fabric_direct.documents.reasons import meant  # noqa: PLC0415 - see the package
        from fabric_direct.handlers.registry import resource_types  # noqa: PLC0415

        if kind not in resource_types():
            said = meant(kind, list(resource_types()))
            raise click.BadParameter(f"unknown resource type {kind!r}{said}")
    return kind


def known_types(
    context: click.Context, parameter: click.Parameter, kinds: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the resource types that an option names; refuse those for which there is no handler."""
    for kind in kinds:
        known_type(context, parameter, kind)
    return kinds


def slivers(words: tuple[str, ...]) -> "list[Sliver]":
    """Return the slivers that files describe: each one or several, those of a directory, or stdin (-).

    :raises InvalidSliver: if any is invalid; the message has the errors of all files.
    """
    return _each(_described(word) for word in words)


def references(words: tuple[str, ...], resource_type: str) -> "list[SliverRef]":
    """Return the slivers that files describe, or ids name.

    A word with a ``/``, one that ends in ``.yaml``, ``.yml`` or ``.json``, and ``-`` is a file.

    :raises InvalidSliver: if any is neither.
    """
    from fabric_direct.cli.sources import is_source  # noqa: PLC0415 - see the package

    return _each(
        _described(word) if is_source(word) else [partial(_by_id, word, resource_type)]
        for word in words
    )


def _described(word: str) -> "Iterator[_Load[Sliver]]":
    """Yield for each file that a word names what returns its slivers."""
    from fabric_direct.cli.sources import sources  # noqa: PLC0415 - see the package

    yield from (partial(_slivers, source) for source in sources(word))


def _slivers(source: "DocumentFile") -> "tuple[tuple[Sliver, str], ...]":
    from fabric_direct.handlers.sliver_documents import parse_slivers  # noqa: PLC0415 - see the package

    documents = parse_slivers(source.read(), source.name)
    known = click.get_current_context().meta.setdefault(_DOCUMENTS, {})
    known.update({document.value.id: document for document in documents})
    return tuple((document.value, document.place("id")) for document in documents)


def with_line(outcome: "Outcome", site_file: Path | None) -> "Outcome":
    """Return an outcome whose refusal of a sliver, or of the site, names file and line.

    :param site_file: site.yaml; None if there is none.
    """
    document = click.get_current_context().meta.get(_DOCUMENTS, {}).get(outcome.sliver.id)
    error = outcome.error
    if error is None:
        return outcome
    message = error.message
    if outcome.failed_by(InvalidSite):
        from fabric_direct.site.lines import located  # noqa: PLC0415 - see the package

        message = located(message, error.field, site_file)
    elif document is not None and _is_of_file(outcome, error):
        message = f"{document.place(error.field)}: {message}"
    return outcome.model_copy(update={"error": error.model_copy(update={"message": message})})


def _is_of_file(outcome: "Outcome", error: "ErrorReport") -> bool:
    """Return whether an error is about a field of the sliver; an action has data of its own."""
    of_sliver = outcome.failed_by(InvalidSliver) and outcome.operation.value != "poa"
    return of_sliver and bool(error.field)


def wanted(word: str) -> "BatchRequest":
    """Return the request of a file, or of several documents: of slivers, or of groups of slivers.

    :raises InvalidSliver: if they cannot be read or are invalid.
    """
    from fabric_direct.cli.sources import sources  # noqa: PLC0415 - see the package
    from fabric_direct.documents import parse_all  # noqa: PLC0415
    from fabric_direct.handlers import sliver_documents  # noqa: PLC0415
    from fabric_direct.handlers.registry import resource_types  # noqa: PLC0415
    from fabric_direct.model import NodeSliver  # noqa: PLC0415
    from fabric_direct.model.bare_metal import BareMetalSliver  # noqa: PLC0415
    from fabric_direct.placement.batch_request import BatchRequest, SliverGroup  # noqa: PLC0415

    def model_of(document: Any) -> "type[BatchRequest | NodeSliver | BareMetalSliver]":
        if isinstance(document, dict) and "slivers" in document and "version" not in document:
            return BatchRequest
        model = sliver_documents.model_of(document)
        placed = issubclass(model, NodeSliver | BareMetalSliver)
        if not placed and (kind := document.get("type")) in resource_types():
            raise ValueError(f"is of type {kind}: only VMs and bare-metal slivers are placed")
        return cast("type[NodeSliver | BareMetalSliver]", model)  # or it refuses an unknown type

    groups: list[SliverGroup] = []
    for source in sources(word):
        documents = parse_all(source.read(), source.name, model_of, InvalidSliver)
        for asked in (document.value for document in documents):
            of = asked.slivers if isinstance(asked, BatchRequest) else (SliverGroup(sliver=asked),)
            groups.extend(of)
    return _batch(tuple(groups))


def _batch(groups: "tuple[SliverGroup, ...]") -> "BatchRequest":
    from pydantic import ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.placement.batch_request import BatchRequest  # noqa: PLC0415

    try:
        return BatchRequest(slivers=groups)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidSliver(first["msg"].removeprefix("Value error, ")) from error


def _by_id(word: str, resource_type: str) -> "tuple[tuple[SliverRef, str], ...]":
    """Return a reference to a sliver.

    :raises InvalidSliver: if the word cannot be an id.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.model import SliverRef  # noqa: PLC0415

    try:
        return ((SliverRef(id=word, type=resource_type), f"the id {word}"),)
    except ValidationError as error:
        raise InvalidSliver(
            f"{word!r} is neither a sliver's file nor an id",
            why="files end in .yaml, .yml or .json; ids are letters, digits, '-' and '_'",
            field="id",
        ) from error


def _each(words: "Iterable[Iterable[_Load[S]]]") -> "list[S]":
    loaded: list[tuple[S, str]] = []
    errors: list[InvalidSliver] = []
    for loads in words:
        try:
            for load in loads:
                _add(load, loaded, errors)
        except InvalidSliver as error:
            errors.append(error)
    if errors:
        raise InvalidSliver("\n".join(map(str, errors)), field=errors[0].field) from errors[0]
    _refuse_twice(loaded)
    return [sliver for sliver, _ in loaded]


def _refuse_twice(loaded: "Sequence[tuple[SliverRef, str]]") -> None:
    counted = Counter(sliver.id for sliver, _ in loaded)
    for twice in (one for one, number in counted.items() if number > 1):
        places = ", ".join(place for sliver, place in loaded if sliver.id == twice)
        raise InvalidSliver(f"the sliver {twice} is given twice", why=places, field="id")


def _add(load: "_Load[S]", loaded: "list[tuple[S, str]]", errors: list[InvalidSliver]) -> None:
    try:
        loaded.extend(load())
    except InvalidSliver as error:
        errors.append(error)


def data(word: str | None) -> dict[str, Any]:
    """Return the data of an action: JSON text, ``@file``, or ``-`` for stdin.

    :raises Refused: if it is not a mapping of fields, in JSON; the message has line and column.
    """
    from pydantic import RootModel  # noqa: PLC0415 - see the package

    from fabric_direct.documents import parse_json  # noqa: PLC0415

    if word is None:
        return {}
    text, source = _data(word)
    return parse_json(text, source, RootModel[dict[str, Any]], Refused).root


def _data(word: str) -> tuple[str, str]:
    """Return the text of an action's data, and what messages call it."""
    from fabric_direct.documents import read_stdin, read_text  # noqa: PLC0415 - see the package

    if word.startswith("@"):
        return read_text(Path(word[1:]), Refused), word[1:]
    if word == "-":
        return read_stdin(Refused), "stdin"
    return word, "DATA"
