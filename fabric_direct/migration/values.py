"""Values of an AM's files, each with its file and line; a vault or Jinja2 may hide them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric_direct.documents import read_text
from fabric_direct.documents.tree import Malformed, Tree, dotted, read
from fabric_direct.documents.tree import Path as Steps
from fabric_direct.errors import Refused

VAULT = "$ANSIBLE_VAULT"
# Ansible's two tags. A vaulted value is recognized by its first word, with or without the tag.
_TAG = re.compile(r"^([^#\n'\"]*?[:-] +)!(?:vault|unsafe)(?=\s)", re.MULTILINE)
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


@dataclass(frozen=True, slots=True, order=True)
class FileLine:
    """A line of a file."""

    file: str
    line: int = 1

    def __str__(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its place; ``repr`` omits the content, which may be a secret."""

    content: Any = field(repr=False)
    place: FileLine

    @property
    def empty(self) -> bool:
        """Return whether the name has no value."""
        return self.content is None or self.content == ""

    def hidden(self) -> str:
        """Return why the value cannot be known; empty if it can."""
        texts = tuple(_texts(self.content))
        if any(text.startswith(VAULT) for text in texts):
            return "is encrypted with ansible-vault"
        if any(re.search(r"\blookup\s*\(|\bquery\s*\(", t) for t in texts if "{{" in t):
            return "is looked up by Ansible when a playbook runs"
        if any("{{" in text or "{%" in text for text in texts):
            return "is a Jinja2 expression, which is not evaluated"
        return ""


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _texts(item)
    elif isinstance(content, str):
        yield content


def as_text(content: Any) -> str:
    """Return a single value as text.

    :raises ValueError: if it is a list or mapping.
    """
    if isinstance(content, dict | list):
        raise ValueError("must be a single value")  # noqa: TRY004 - all of these say what is wrong
    return str(content).lower() if isinstance(content, bool) else str(content)


def as_bool(content: Any) -> bool:
    """Return a truth value as Ansible reads it.

    :raises ValueError: if it is none.
    """
    word = as_text(content).lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return word in _TRUE


def as_list(content: Any) -> list[str]:
    """Return the items of a list, or of a text with commas."""
    items = content if isinstance(content, list) else as_text(content).split(",")
    return [as_text(item).strip() for item in items if as_text(item).strip()]


def as_path(content: Any) -> str:
    """Return a path that does not depend on the user.

    :raises ValueError: if it begins with ``~``.
    """
    path = as_text(content)
    if path.startswith("~"):
        raise ValueError("begins with ~; site.yaml needs the absolute path")
    return path


@dataclass(frozen=True, slots=True)
class Fields:
    """A document, or a mapping in it."""

    tree: Tree
    file: str
    path: Steps = ()

    def values(self) -> dict[str, Value]:
        """Return the fields of the mapping, each with its line.

        :raises Refused: if there is no mapping.
        """
        content = self._content()
        if content is None:
            return {}
        if not isinstance(content, dict):
            raise self.refusal("must be a mapping of fields")
        return {str(k): Value(v, self.place(str(k))) for k, v in content.items()}

    def text(self, name: str) -> str:
        """Return a field as text, empty if it is not there.

        :raises Refused: if it is a list or mapping.
        """
        value = self.values().get(name)
        try:
            return as_text(value.content) if value and not value.empty else ""
        except ValueError as error:
            raise self.get(name).refusal(str(error)) from None

    def get(self, *names: str) -> "Fields":
        """Return the mapping below, which is empty if it is not there."""
        return Fields(self.tree, self.file, (*self.path, *names))

    def items(self) -> "list[Fields]":
        """Return the items of the list, which is empty if it is not there.

        :raises Refused: if there is something else.
        """
        content = self._content()
        if content is not None and not isinstance(content, list):
            raise self.refusal("must be a list")
        return [Fields(self.tree, self.file, (*self.path, n)) for n in range(len(content or ()))]

    def place(self, *names: str) -> FileLine:
        """Return where a field stands."""
        return FileLine(self.file, self.tree.line((*self.path, *names)))

    def refusal(self, what: str) -> Refused:
        """Return the error that says what is wrong here."""
        here = f"{dotted(self.path)}: " if self.path else ""
        return Refused(f"{self.place()}: {here}{what}")

    def _content(self) -> Any:
        content = self.tree.value
        for step in self.path:
            if content is None:
                return None
            if isinstance(content, dict):
                content = content.get(step)
            elif isinstance(content, list) and isinstance(step, int):
                content = content[step]
            else:
                raise self.refusal("is below something that is not a mapping of fields")
        return content


def read_document(path: Path) -> Fields:
    """Return a YAML document.

    :raises Refused: if it cannot be read or is broken.
    """
    return parse_document(read_text(path, Refused), str(path))


def parse_document(text: str, file: str) -> Fields:
    """Return a YAML document; Ansible's tags are ignored.

    :raises Refused: if it is not YAML, or uses what is refused in all documents. The cause is dropped,
        because it contains the file's content.
    """
    if text.startswith(VAULT):
        raise Refused(
            f"{file}:1: is encrypted with ansible-vault",
            remedy="decrypt it with `ansible-vault view` into a file that only you can read",
        )
    lines = map(str.strip, text.splitlines())
    if all(line in ("", "---", "...") or line.startswith("#") for line in lines):
        return Fields(Tree(None, {}), file)
    try:
        return Fields(read(_TAG.sub(r"\1", text), file), file)
    except Malformed as malformed:
        problem = malformed.problem
        named = f"{problem.field}: " if problem.field else ""
        raise Refused(f"{file}:{problem.line}: {named}{problem.text}") from None
