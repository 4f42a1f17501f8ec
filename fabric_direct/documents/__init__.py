"""Documents in YAML and JSON: safe parsing, validation, errors with line and field, JSON Schema."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from fabric_direct.documents.reasons import as_text, problems
from fabric_direct.documents.tree import LIMIT, Malformed, Problem, Tree, read
from fabric_direct.errors import FabricDirectError

__all__ = ["json_schema", "line_of", "load", "parse", "read_stream", "read_text"]

M = TypeVar("M", bound=BaseModel)


Choice = Callable[[Any], type[M]]
"""Chooses the model of a document by its content."""


def load(path: Path, model: type[M] | Choice[M], error: type[FabricDirectError]) -> M:
    """Read, parse and validate the one document of a YAML or JSON file of at most 1 MiB.

    :raises FabricDirectError: of the class ``error``; see :func:`parse`.
    """
    return parse(read_text(path, error), str(path), model, error)


def parse(text: str, source: str, model: type[M] | Choice[M], error: type[FabricDirectError]) -> M:
    """Parse and validate the text of a document.

    Values are not converted: a number in quotes is not a number. Everything other than a decimal number,
    ``true``, ``false`` or ``null`` is text, so MAC and PCI addresses need no quotes.

    :param source: name of the file, for error messages.
    :raises FabricDirectError: of the class ``error``. The message has one line for each error,
        ``file:line: field: what``; the attribute ``field`` is the path of the first one.
    """
    tree = _tree(text, source, error)
    chosen: type[M] = model if isinstance(model, type) else model(tree.value)
    try:
        return chosen.model_validate_json(to_json(tree.value), strict=True)
    except ValidationError as invalid:
        raise _refusal(error, source, problems(invalid, chosen, tree)) from invalid


def line_of(path: Path, field: str, error: type[FabricDirectError]) -> int:
    """Return the line of a field of a YAML or JSON file, or of the nearest one that encloses it.

    :param field: as errors name it: ``components[1].interface.mac``.
    :raises FabricDirectError: of the class ``error``, if the file cannot be read or parsed.
    """
    return _tree(read_text(path, error), str(path), error).line_of(field)


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


def _tree(text: str, source: str, error: type[FabricDirectError]) -> Tree:
    try:
        return read(text, source)
    except Malformed as malformed:
        raise _refusal(error, source, [malformed.problem]) from malformed


def _refusal(
    error: type[FabricDirectError], source: str, found: list[Problem]
) -> FabricDirectError:
    return error(as_text(found, source), field=found[0].field)


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
