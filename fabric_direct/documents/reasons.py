"""Translate pydantic's validation errors into plain messages with field and line."""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fabric_direct.documents.tree import DocumentProblem, Path, Tree, dotted

_MOST = 20
# Errors that are put into words: a document of 1 MiB may have a hundred thousand.
_EXPLAINED = 1000
Schema = dict[str, Any]
_LONG_NUMBER = re.compile(r"-?[1-9][0-9]{18,}")


def as_text(found: list[DocumentProblem], source: str) -> str:
    """Return a line for each problem, at most 20: ``file:line: field: what``.

    Where a file has several documents, its number comes before the field: ``document 2: field: what``.
    """
    lines = [f"{source}:{p.line}: {_where(p)}{p.text}" for p in found]
    more = len(lines) - _MOST
    least = "at least " if len(found) >= _EXPLAINED else ""
    return "\n".join(lines[:_MOST] + ([f"{source}: and {least}{more} more"] if more > 0 else []))


def _where(problem: DocumentProblem) -> str:
    document = f"document {problem.document}: " if problem.document else ""
    return f"{document}{problem.field}: " if problem.field else document


def problems(
    invalid: ValidationError, model: type[BaseModel], tree: Tree, *, secret: bool = False
) -> list[DocumentProblem]:
    """Return the errors in the order of the document, at most the first 1000 that pydantic found.

    :param secret: whether the texts in it may be secrets; none of them is repeated then.
    """
    root = _schema(model)
    details = [d for d in invalid.errors(include_url=False) if not _follows_from_another(d)]
    details = [*_without_mistyped(details[:_EXPLAINED], root)]
    if secret:
        details = [_without_text(detail) for detail in details]
    return sorted((_problem(d, root, tree) for d in details), key=lambda problem: problem.line)


def _without_mistyped(details: list[ErrorDetails], root: Schema) -> Iterator[ErrorDetails]:
    """Leave out each field that is missing because it is mistyped: the unknown one names it."""
    meant = {
        (detail["loc"][:-1], close_to(str(detail["loc"][-1]), _fields_beside(detail, root)))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    for detail in details:
        if detail["type"] != "missing" or (detail["loc"][:-1], detail["loc"][-1]) not in meant:
            yield detail


def _fields_beside(detail: ErrorDetails, root: Schema) -> list[str]:
    _, schema = _locate(detail["loc"][:-1], root)
    return list(schema.get("properties", {}))


@lru_cache(maxsize=16)
def _schema(model: type[BaseModel]) -> Schema:
    """Return a model's JSON Schema, which takes longer than all else of a refusal."""
    return model.model_json_schema()


class _Text(str):
    """A text that is not shown."""

    def __repr__(self) -> str:
        return "text"


def _without_text(detail: ErrorDetails) -> ErrorDetails:
    given = detail["input"]
    return {**detail, "input": _Text(given)} if isinstance(given, str) else detail


def _follows_from_another(detail: ErrorDetails) -> bool:
    """Return whether an error is only the consequence of another one.

    pydantic reports a list as too short if its items are invalid, and a default that depends on other
    fields as missing if one of these is invalid.
    """
    if detail["type"] == "default_factory_not_called":
        return True
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _problem(detail: ErrorDetails, root: Schema, tree: Tree) -> DocumentProblem:
    path, schema = _locate(detail["loc"], root)
    if detail["type"] == "extra_forbidden":
        _, schema = _locate(detail["loc"][:-1], root)
        if within := _within(str(path[-1]), schema, root):
            text = f"unknown field, did you mean {within!r}?"
            return DocumentProblem(tree.line(path), dotted(path), text, tree.number)
    if detail["type"].startswith("union_tag"):
        path = (*path, schema["discriminator"]["propertyName"])
    path, text = _lift(path, _words(detail, schema, path), schema, detail["input"])
    return DocumentProblem(tree.line(path), dotted(path), text, tree.number)


def _within(name: str, schema: Schema, root: Schema) -> str:
    """Return the path of a field of this name in one of the fields, if it has one: ``a.vlan``."""
    for field, below in schema.get("properties", {}).items():
        inner = _resolve(below, root)
        array = (
            inner.get("type") == "array"
        )  # of values that differ by their place, it has no items
        items = _resolve(inner.get("items", {}), root) if array else inner
        if name in items.get("properties", {}):
            return f"{field}{'' if items is inner else '[…]'}.{name}"
    return ""


def _lift(path: Path, text: str, schema: Schema, given: Any) -> tuple[Path, str]:
    """Move a field, or a key, that a validator's own message begins with into the path."""
    name, colon, rest = text.partition(": ")
    if colon and (
        name in schema.get("properties", {}) or (isinstance(given, dict) and name in given)
    ):
        return (*path, name), rest
    return path, text


def _locate(loc: Path, root: Schema) -> tuple[Path, Schema]:
    """Follow pydantic's location through the JSON Schema.

    The tags of unions are part of the location, but of no path that a reader would recognise.
    """
    path: Path = ()
    here = _resolve(root, root)
    for step, following in zip_longest(loc, loc[1:]):
        if following == "[key]":  # it is of the mapping, not of its value
            return (*path, step), _resolve(here.get("propertyNames") or {}, root)
        tag = here.get("discriminator", {}).get("mapping", {}).get(step) or _member(here, step)
        if tag is None:
            path = (*path, step)
        here = _resolve({"$ref": tag} if tag else _child(here, step), root)
    return path, here


def _member(schema: Schema, name: str | int) -> str | None:
    """Return the reference to a model of a union whose tags are the names of its models."""
    references = (one.get("$ref", "") for one in schema.get("oneOf", ()))
    return next((each for each in references if each == f"#/$defs/{name}"), None)


def _child(schema: Schema, step: str | int) -> Schema:
    if isinstance(step, int):
        return schema.get("items") or {}
    others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    return schema.get("properties", {}).get(step) or others[0] or {}


def _resolve(schema: Schema, root: Schema) -> Schema:
    """Follow references, and take what a value that may be absent is otherwise."""
    while "$ref" in schema or "anyOf" in schema:
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
        else:
            schema = next(one for one in schema["anyOf"] if one.get("type") != "null")
    return schema


def _words(detail: ErrorDetails, schema: Schema, path: Path) -> str:
    if schema.get("writeOnly"):  # a secret: what was given is not repeated
        return "is not valid"
    say = _SENTENCES.get(detail["type"])
    return say(detail, schema, path) if say else _pydantics_own(detail)


def _pydantics_own(detail: ErrorDetails) -> str:
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, ValueError):
        return str(error)
    return re.sub(r"^(Input|Value|String) should", "must", detail["msg"]).replace(
        "Input is not", "is not"
    )


def _must(what: str) -> Callable[[ErrorDetails, Schema, Path], str]:
    return lambda detail, _schema, _path: f"must be {what}, is {shown(detail['input'])}"


def shown(value: Any) -> str:
    """Return how a message shows a value that is wrong."""
    if value is None:
        return "empty"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _unknown_field(_detail: ErrorDetails, schema: Schema, path: Path) -> str:
    known = list(schema.get("properties", {}))
    return f"unknown field{meant(str(path[-1]), known) if known else '; there is none'}"


def _unknown_type(detail: ErrorDetails, schema: Schema, path: Path) -> str:
    known = list(schema["discriminator"]["mapping"])
    tag = detail["input"].get(path[-1])
    if tag is None:
        return f"is missing; known: {', '.join(known)}"
    return f"unknown {path[-1]} {shown(tag)}{meant(str(tag), known)}"


def meant(word: str, known: list[str]) -> str:
    """Return what follows the name of something unknown: the known name that is like it, or all."""
    close = close_to(word, known)
    return f", did you mean {close!r}?" if close else f"; known: {', '.join(known)}"


def close_to(word: str, known: list[str]) -> str:
    """Return the one that somebody meant, most likely; empty if none is close."""
    folded = {one.casefold(): one for one in known}
    close = get_close_matches(word.casefold(), folded, 1)
    return folded[close[0]] if close else ""


def _one_of(detail: ErrorDetails, schema: Schema, _path: Path) -> str:
    known = [str(one) for one in schema.get("enum", [schema.get("const")])]
    return f"{shown(detail['input'])} is unknown{meant(str(detail['input']), known)}"


def _form(detail: ErrorDetails, schema: Schema, _path: Path) -> str:
    pattern = detail["ctx"]["pattern"]
    if example := next(iter(schema.get("examples", ())), None):
        return f"must have the form {example}, is {shown(detail['input'])}"
    if name := _NAME.fullmatch(pattern):
        return f"must be {_name_words(*name.groups())}, is {shown(detail['input'])}"
    return f"must match {pattern}, is {shown(detail['input'])}"


# Names in the models: a letter or digit, and then up to so many of these.
_NAME = re.compile(r"\^\[A-Za-z0-9\]\[A-Za-z0-9([._-]+)\]\{0,(\d+)\}\$")


def _name_words(others: str, more: str) -> str:
    signs = ", ".join(f"'{sign}'" for sign in others)
    return f"1 to {int(more) + 1} letters, digits and {signs}, with a letter or digit first"


def _range(detail: ErrorDetails, schema: Schema, _path: Path) -> str:
    return f"must {_bounds(schema)}, is {shown(detail['input'])}"


def _bounds(schema: Schema) -> str:
    """Return which numbers a field takes: ``be from 1 to 1024``; empty if any."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"be from {low} to {high}"
    if "exclusiveMinimum" in schema:
        return f"be more than {schema['exclusiveMinimum']:g}"
    if low is not None:
        return f"be at least {low:g}"
    return f"be at most {high:g}" if high is not None else ""


def _whole_number(detail: ErrorDetails, schema: Schema, path: Path) -> str:
    """Explain what is no whole number; one that is too long to be read as one is a text."""
    given = detail["input"]
    if not (isinstance(given, str) and _LONG_NUMBER.fullmatch(given)):
        return _must("a whole number")(detail, schema, path)
    number = given if len(given) <= 60 else f"{given[:60]}…"
    return f"must {_bounds(schema) or 'have at most 18 digits'}, is {number}"


def _path(what: str) -> Callable[[ErrorDetails, Schema, Path], str]:
    return lambda detail, _schema, _path: f"{what} {str(detail['input'])!r}"


def _count(detail: ErrorDetails, _schema: Schema, _path: Path) -> str:
    context = detail["ctx"]
    limit = context.get("min_length", context.get("max_length"))
    least = "min_length" in context
    unit = "character" if detail["type"].startswith("string") else "item"
    unit += "s" if limit != 1 else ""
    return f"must have at {'least' if least else 'most'} {limit} {unit}, has {len(detail['input'])}"


_SENTENCES: dict[str, Callable[[ErrorDetails, Schema, Path], str]] = {
    "missing": lambda *_: "is missing",
    "extra_forbidden": _unknown_field,
    "union_tag_invalid": _unknown_type,
    "union_tag_not_found": _unknown_type,
    "literal_error": _one_of,
    "string_pattern_mismatch": _form,
    "string_type": _must("text (put it in quotes)"),
    "path_type": _must("a path"),
    "path_not_directory": _path("there is no directory"),
    "path_not_file": _path("there is no file"),
    "path_exists": _path("there is already something at"),
    "int_type": _whole_number,
    "float_type": _must("a number"),
    "bool_type": _must("true or false"),
    **dict.fromkeys(("model_type", "dict_type"), _must("a mapping of fields")),
    **dict.fromkeys(("tuple_type", "list_type"), _must("a list")),
    **dict.fromkeys(("greater_than", "greater_than_equal", "less_than", "less_than_equal"), _range),
    **dict.fromkeys(("too_short", "too_long", "string_too_short", "string_too_long"), _count),
}
