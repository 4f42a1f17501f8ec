"""Read single values of FIM's slivers, and make our models of them; errors name FIM's field."""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from fabric_direct.actor.sliver import FimLabels, FimSliver
from fabric_direct.documents.reasons import problems
from fabric_direct.documents.tree import Tree
from fabric_direct.errors import InvalidSliver

M = TypeVar("M", bound=BaseModel)
# Python refuses to read numbers of thousands of digits.
_NUMBER = re.compile(r"\d{1,10}")
PREFIX = {"ipv4": 24, "ipv6": 64}
"""The prefix length of an address without a subnet."""


def refuse_other_type(sliver: object, kinds: Collection[str], attribute: str) -> None:
    """Raise InvalidSliver unless the sliver is of one of these types and has this attribute."""
    if sliver is None:
        raise InvalidSliver("the unit has none", field="sliver")
    found = cast(FimSliver, sliver).get_type()
    if str(found) not in kinds or not hasattr(sliver, attribute):
        known = " or ".join(kinds)
        raise InvalidSliver(f"must be of type {known}, is {found}", field="resource_type")


def label(labels: FimLabels | None, name: str) -> object:
    """Return a label's value; FIM also takes a list of one for it."""
    value = getattr(labels, name, None)
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def text(value: object, field: str) -> str:
    """Return a text that must be there.

    :raises InvalidSliver: with the field otherwise.
    """
    if not isinstance(value, str) or not value:
        raise InvalidSliver("is missing" if not value else "must be text", field=field)
    return value


def below(prefix: str, *names: str) -> dict[str, str]:
    """Return the path of each name below a field."""
    return {name: f"{prefix}.{name}" for name in names}


def made(model: type[M], fields: Mapping[str, str], /, **values: Any) -> M:
    """Return a model; raise InvalidSliver with FIM's field for its first invalid value."""
    try:
        return model(**values)
    except ValidationError as error:
        first, *_ = problems(error, model, Tree(values, {}))
        own = re.split(r"[.\[]", first.field, maxsplit=1)[0]
        raise InvalidSliver(first.text, field=fields.get(own, first.field)) from error


def vlan_of(labels: FimLabels | None) -> object:
    """Return the VLAN id, which FIM has as text; None for 0, which is untagged."""
    return number(label(labels, "vlan")) or None


def number(value: object) -> object:
    """Return the number that a text of digits is; anything else as it is."""
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def prefix_of(subnet: object, family: str, field: str) -> str:
    """Return the prefix length of a subnet, or the usual one if there is none.

    :param field: below which the subnet is.
    :raises InvalidSliver: if it has none.
    """
    if not subnet:
        return str(PREFIX[family])
    _, slash, prefix = str(subnet).partition("/")
    if not slash:
        raise InvalidSliver("has no prefix length", field=f"{field}.{family}_subnet")
    return prefix
