"""Documents in YAML and JSON: safe parsing, validation, errors with line and field, JSON Schema."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from fabric_direct.documents.reasons import as_text, problems
from fabric_direct.documents.tree import (
    LIMIT,
    DocumentProblem,
    Malformed,
    Tree,
    read,
    read_all,
    read_json,
)
from fabric_direct.errors import FabricDirectError

__all__ = [
    "Document",
    "json_schema",
    "load",
    "parse",
    "parse_all",
    "parse_json",
    "read_stdin",
    "read_stream",
    "read_text",
    "validate",
]

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


Choice = Callable[[Any], type[M]]
"""Chooses the model of a document by its content, or raises a ValueError that says what else it is."""


def load(
    path: Path,
    model: type[M] | Choice[M],
    error: type[FabricDirectError],
    context: Mapping[str, Any] | None = None,
) -> M:
    """Read, parse and validate the one document of a YAML or JSON file of at most 1 MiB.

    :param context: what validators of the model are told.
    :raises FabricDirectError: of the class ``error``; see :func:`parse`.
    """
    tree = _read(read, read_text(path, error), str(path), error)
    return _validated(tree, str(path), model, error, context)


def parse(text: str, source: str, model: type[M] | Choice[M], error: type[FabricDirectError]) -> M:
    """Parse and validate the text of a document.

    Values are not converted: a number in quotes is not a number. A file that ends in ``.json`` is JSON,
    and any other YAML, of which JSON is a part. Everything other than a decimal number,
    ``true``, ``false`` or ``null`` is text, so MAC and PCI addresses need no quotes.

    :param source: name of the file, for error messages.
    :raises FabricDirectError: of the class ``error``. The message has one line for each error,
        ``file:line: field: what``; the attribute ``field`` is the path of the first one.
    """
    return _validated(_read(read, text, source, error), source, model, error)


def parse_json(
    text: str, source: str, model: type[M] | Choice[M], error: type[FabricDirectError]
) -> M:
    """Parse and validate the text of a JSON document, as :func:`parse` does of a file ``*.json``."""
    return _validated(_read(read_json, text, source, error), source, model, error)


@dataclass(frozen=True)
class Document(Generic[M]):
    """One of the documents of a file."""

    value: M
    source: str
    """Name of the file."""
    _tree: Tree

    def place(self, field: str) -> str:
        """Return where a field is, or the nearest one that encloses it, as messages name it.

        That is ``file:line``, followed by the number of the document if the file has several.

        :param field: as errors name it: ``components[1].interface.mac``.
        """
        number = f": document {self._tree.number}" if self._tree.number else ""
        return f"{self.source}:{self._tree.line_of(field)}{number}"


def parse_all(
    text: str, source: str, model: type[M] | Choice[M], error: type[FabricDirectError]
) -> tuple[Document[M], ...]:
    """Parse and validate the documents of a text, as :func:`parse` does; empty ones are left out.

    :raises FabricDirectError: of the class ``error``. The message has the errors of all documents and,
        if there are several, the number of each: ``file:line: document 2: field: what``.
    """
    found: list[Document[M]] = []
    errors: list[FabricDirectError] = []
    for tree in _read(read_all, text, source, error):
        try:
            found.append(Document(_validated(tree, source, model, error), source, tree))
        except error as invalid:
            errors.append(invalid)
    if errors:
        raise error("\n".join(map(str, errors)), field=errors[0].field) from errors[0]
    return tuple(found)


def _validated(
    tree: Tree,
    source: str,
    model: type[M] | Choice[M],
    error: type[FabricDirectError],
    context: Mapping[str, Any] | None = None,
) -> M:
    try:
        chosen: type[M] = model if isinstance(model, type) else model(tree.value)
    except ValueError as unlike:
        found = [DocumentProblem(tree.line(()), "", str(unlike), tree.number)]
        raise _refusal(error, source, found) from unlike
    try:
        return chosen.model_validate_json(to_json(tree.value), strict=True, context=context)
    except ValidationError as invalid:
        raise _refusal(error, source, problems(invalid, chosen, tree)) from invalid


def read_text(path: Path, error: type[FabricDirectError]) -> str:
    """Return the text of a file, of which at most one byte more is read than a document may have.

    :raises error: if it cannot be read or is not UTF-8. The cause of the latter is dropped, because it
        contains the file's content.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path), error)
    except OSError as failure:
        raise error(f"cannot read {path}", why=failure.strerror or str(failure)) from failure


def read_stream(file: BinaryIO, source: str, error: type[FabricDirectError]) -> str:
    """Return the text of an open file, as :func:`read_text` does.

    :param source: its name, for error messages.
    """
    try:
        # One byte more than is allowed is enough to be refused.
        return file.read(LIMIT + 1).decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = failure.object.count(b"\n", 0, failure.start) + 1
        raise error(f"{source}:{line}: is not UTF-8 text") from None


def read_stdin(error: type[FabricDirectError]) -> str:
    """Return the text of standard input, as :func:`read_text` does.

    :raises error: also if it is closed.
    """
    if sys.stdin is None:
        raise error("cannot read standard input", why="it is closed")
    return read_stream(sys.stdin.buffer, "stdin", error)


def _read(
    parser: Callable[[str, str], T], text: str, source: str, error: type[FabricDirectError]
) -> T:
    try:
        return parser(text, source)
    except Malformed as malformed:
        raise _refusal(error, source, [malformed.problem]) from malformed


def _refusal(
    error: type[FabricDirectError], source: str, found: list[DocumentProblem]
) -> FabricDirectError:
    return error(as_text(found, source), field=found[0].field)


def validate(
    value: Any,
    model: type[M],
    field: str,
    error: type[FabricDirectError],
    context: Mapping[str, Any] | None = None,
) -> M:
    """Validate a part of a document that was read before, as strictly as :func:`parse`.

    :param field: path of the part in its document.
    :param context: what validators of the model are told.
    :raises FabricDirectError: of the class ``error``, without a line: ``field: what`` for each error.
    """
    try:
        return model.model_validate_json(to_json(value), strict=True, context=context)
    except ValidationError as invalid:
        found = problems(invalid, model, Tree(value, {}))
    # The cause is dropped: a model of others may repeat a secret in it.
    named = [(".".join(filter(None, (field, each.field))), each.text) for each in found]
    raise error("\n".join(f"{name}: {text}" for name, text in named), field=named[0][0])


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the documents that :func:`parse` takes for ``model``."""
    schema = model.model_json_schema()
    for definition in schema.get("$defs", {}).values():
        _require_the_tag(definition)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _require_the_tag(definition: dict[str, Any]) -> None:
    """Require the field that selects the kind of a component or network, as parsing does."""
    tags = [name for name, field in definition.get("properties", {}).items() if "const" in field]
    if tags:
        definition["required"] = sorted({*definition.get("required", []), *tags})
