"""Read an inventory's file in INI form.

::

    [group]                  a line for each host, or a range of hosts: w[1:3] name=value …
    [group:vars]             name=value
    [group:children]         a line for each group

As Ansible reads it: a host's line is split like a shell's, a variable's line is not.
"""

import re
import shlex
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from warnings import catch_warnings

from fabric_direct.errors import Refused
from fabric_direct.migration.inventory import AnsibleInventory
from fabric_direct.migration.values import FileLine, Value

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
_PORT = re.compile(r"([^:]*[^:\]]|.*\])?:(\d+)")


@dataclass(frozen=True)
class _Line:
    text: str
    place: FileLine

    def refusal(self, what: str) -> Refused:
        """Return the error; it omits the line's text, which may contain a password."""
        return Refused(f"{self.place}: {what}")


def read(text: str, file: str, into: AnsibleInventory) -> None:
    """Add the content of a file to an inventory.

    :raises Refused: if a line is not valid in an inventory; the message names it.
    """
    group, part = "ungrouped", "hosts"
    for line in _lines(text, file):
        if line.text.startswith("["):
            group, part = _section(line)
            into.group(group, line.place)
        else:
            _PARTS[part](line, group, into)


def _lines(text: str, file: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and line.strip()[0] not in "#;":
            yield _Line(line.strip(), FileLine(file, number))


def _section(line: _Line) -> tuple[str, str]:
    found = _SECTION.fullmatch(line.text)
    if not found:
        raise line.refusal("must be [group], [group:vars] or [group:children]")
    part = found[2] or "hosts"
    if part not in _PARTS:
        raise line.refusal(f"[…:{part}] is not a part of a group; known: vars, children")
    return found[1], part


def _hosts(line: _Line, group: str, into: AnsibleInventory) -> None:
    pattern, *words = _words(line)
    name, port = _split_port(pattern)
    values = dict(_assignment(word, line) for word in words)
    if port:
        values.setdefault("ansible_port", Value(port, line.place))
    try:
        into.add(into.group(group, line.place), name, line.place, values)
    except ValueError as error:
        raise line.refusal(str(error)) from None


def _words(line: _Line) -> list[str]:
    try:
        return shlex.split(line.text, comments=True)
    except ValueError:
        raise line.refusal("has a quotation mark that is not closed") from None


def _split_port(pattern: str) -> tuple[str, str]:
    found = _PORT.fullmatch(pattern)
    return (found[1], found[2]) if found and found[1] else (pattern, "")


def _assignment(text: str, line: _Line) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise line.refusal("must be name=value")
    return name.strip(), Value(_unquoted(value.strip()), line.place)


def _unquoted(text: str) -> str:
    if text[:1] not in ("'", '"'):
        return text
    try:
        with catch_warnings(
            action="ignore"
        ):  # warnings would print the value, which may be a password
            value = literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _variable(line: _Line, group: str, into: AnsibleInventory) -> None:
    name, value = _assignment(line.text, line)
    into.group(group, line.place).variables[name] = value


def _child(line: _Line, group: str, into: AnsibleInventory) -> None:
    words = _words(line)
    if len(words) != 1:
        raise line.refusal("must be the name of one group")
    into.group(words[0], line.place)
    into.group(group, line.place).children.append(words[0])


_PARTS = {"hosts": _hosts, "vars": _variable, "children": _child}
