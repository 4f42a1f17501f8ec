"""Parse the text of documents into plain values, each with its line number.

Documents are built from the YAML parser's events. Only mappings, lists and scalars are accepted; anchors
and aliases (a few lines of them can expand to gigabytes), tags, deep nesting and duplicate keys are
rejected before they cost anything.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import yaml

LIMIT = 1024 * 1024
"""Largest size of a document in bytes."""
DEPTH = 32
"""Deepest nesting of a document."""

Path = tuple[str | int, ...]
T = TypeVar("T")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# YAML 1.1 would read `no` as false, 0x10 as 16 and the MAC address 52:54:00:12:34:56 as one number.
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?")
# Half a character, as Python makes of bytes of a command line that are no UTF-8.
_LONE = re.compile(r"[\ud800-\udfff]")
_SURROGATES = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


@dataclass(frozen=True)
class DocumentProblem:
    """One error in a document."""

    line: int
    field: str
    """Path such as ``components[1].interface.mac``; empty for the whole document."""
    text: str
    document: int | None = None
    """The number of the document, from 1, if its file has several."""


class Malformed(Exception):
    """The text is not a valid document."""

    def __init__(self, line: int, path: Path, text: str) -> None:
        super().__init__(text)
        self.problem = DocumentProblem(line, dotted(path), text)


@dataclass(frozen=True)
class Tree:
    """A document: its value, and the first line of each part."""

    value: Any
    lines: dict[Path, int]
    number: int | None = None
    """Its number, from 1, if its file has several."""

    def line(self, path: Path) -> int:
        """Return the line of the value at ``path``, or of the nearest one that encloses it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def line_of(self, field: str) -> int:
        """Return the line of a field by its dotted path, or of the nearest one that encloses it."""
        lines = {dotted(path): line for path, line in self.lines.items()}
        while field not in lines:
            field = field[: max(field.rfind("."), field.rfind("["), 0)]
        return lines[field]


def dotted(path: Path) -> str:
    """Return a path in the form of error messages: ``components[1].interface.mac``."""
    return "".join(_step(step) for step in path).removeprefix(".")


def _step(step: str | int) -> str:
    plain = isinstance(step, str) and re.fullmatch(r"[\w.-]+", step)
    return f".{step}" if plain else f"[{step!r}]"


def read(text: str, source: str) -> Tree:
    """Return the one document that ``text`` holds.

    :raises Malformed: if it is not YAML, or uses rejected features of YAML.
    """
    return _read(text, source, _one)


def read_all(text: str, source: str) -> tuple[Tree, ...]:
    """Return the documents that ``text`` holds, at least one; empty ones count, but are left out.

    :raises Malformed: as :func:`read` does.
    """
    return _read(text, source, _all)


def read_json(text: str, source: str) -> Tree:
    """Return the one document that ``text`` holds, whatever its source is called.

    :raises Malformed: if it is not JSON, or as :func:`read` does.
    """
    return _read(text, source, _one, is_json=True)


def _read(
    text: str, source: str, build: Callable[[Iterator[yaml.Event]], T], *, is_json: bool = False
) -> T:
    if len(text) > LIMIT:
        raise Malformed(1, (), f"the document has more than {LIMIT // 1024} KiB")
    if lone := _LONE.search(text):
        line = text.count("\n", 0, lone.start()) + 1
        raise Malformed(line, (), "the document contains an invalid character")
    if is_json or source.endswith(".json"):
        _refuse_other_than_json(text)
        text = _SURROGATES.sub(_character, text)
    try:
        return build(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        raise Malformed(_line(error.problem_mark), (), _complaint(error, text)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Malformed(line, (), "the document contains an invalid character") from error


def _refuse_other_than_json(text: str) -> None:
    """Raise Malformed if a text that is not empty is YAML and not JSON: it has other rules for both."""
    if not text.strip():
        return
    try:
        # Numbers stay text: Python refuses to convert long ones.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        what = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise Malformed(error.lineno, (), f"column {error.colno}: is not JSON: {what}") from error
    except _Constant as error:
        at = json.JSONDecodeError("", text, max(text.find(str(error)), 0))
        what = f"column {at.colno}: is not JSON: {error} is not a value"
        raise Malformed(at.lineno, (), what) from error
    except RecursionError as error:
        raise Malformed(1, (), f"the document is nested more than {DEPTH} levels deep") from error


class _Constant(Exception):
    """A number that JSON does not have."""


def _no_constant(word: str) -> None:
    raise _Constant(word)


def _character(pair: re.Match[str]) -> str:
    """Return JSON's two escapes for one character as YAML's one escape."""
    high, low = (int(half, 16) for half in pair.groups())
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _complaint(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if mark and text[mark.index : mark.index + 1] == "\t":
        return "this line has a tab; indent with spaces"
    return (
        f"cannot be read as YAML or JSON: {', '.join(filter(None, (error.context, error.problem)))}"
    )


def _line(mark: Any) -> int:
    return mark.line + 1 if mark else 1


def _one(events: Iterator[yaml.Event]) -> Tree:
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        raise Malformed(1, (), "the document is empty")
    tree = _Builder(events).tree()
    after = next(events)
    if not isinstance(after, yaml.StreamEndEvent):
        raise Malformed(_line(after.start_mark), (), "the file has more than one document")
    return tree


def _all(events: Iterator[yaml.Event]) -> tuple[Tree, ...]:
    next(events)
    trees: list[Tree] = []
    while not isinstance(next(events), yaml.StreamEndEvent):
        trees.append(_Builder(events).tree())
    if len(trees) > 1:
        trees = [replace(tree, number=number) for number, tree in enumerate(trees, 1)]
    found = tuple(tree for tree in trees if tree.value is not None)
    if not found:
        raise Malformed(1, (), "the document is empty")
    return found


@dataclass
class _Builder:
    """Builds the values of a document from the parser's events, of which its start has been taken."""

    events: Iterator[yaml.Event]
    lines: dict[Path, int] = field(default_factory=dict)

    def tree(self) -> Tree:
        value = self._value(next(self.events), ())
        next(self.events)
        return Tree(value, self.lines)

    def _value(self, event: yaml.Event, path: Path) -> Any:
        self.lines.setdefault(path, _line(event.start_mark))
        _refuse_the_rest_of_yaml(event, path)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return _scalar(event)

    def _mapping(self, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key, line = _key(event, path), _line(event.start_mark)
            here = (*path, key)
            if key in mapping:
                raise Malformed(line, here, f"is given twice, first on line {self.lines[here]}")
            self.lines[here] = line
            mapping[key] = self._value(next(self.events), here)
        return mapping

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items


def _refuse_the_rest_of_yaml(event: yaml.Event, path: Path) -> None:
    line = _line(event.start_mark)
    if getattr(event, "anchor", None):
        raise Malformed(line, path, "uses an anchor or alias (& or *); write the value out")
    if getattr(event, "tag", None):
        raise Malformed(line, path, "uses a tag (!); write the plain value")
    if len(path) > DEPTH:
        raise Malformed(line, (), f"the document is nested more than {DEPTH} levels deep")


def _key(event: yaml.Event, path: Path) -> str:
    _refuse_the_rest_of_yaml(event, path)
    key = _scalar(event) if isinstance(event, yaml.ScalarEvent) else event
    if not isinstance(key, str):
        words = repr(event.value) if isinstance(event, yaml.ScalarEvent) else "a list or mapping"
        raise Malformed(_line(event.start_mark), path, f"{words} is not a valid key; quote it")
    return key


def _scalar(event: Any) -> str | int | float | bool | None:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
