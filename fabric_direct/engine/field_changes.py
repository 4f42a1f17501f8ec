"""The changes that a step will make, field by field, for plans."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from fabric_direct.model import FieldChange


def changed(was: Mapping[str, Any], will_be: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Return the fields of two mappings of JSON's types that differ, those of mappings in them by path.

    Items of lists that have ids are matched by these: ``interfaces.i1.bandwidth``.
    """
    return tuple(_changed(was, will_be, ""))


def changed_fields(was: BaseModel, will_be: BaseModel) -> tuple[FieldChange, ...]:
    """Return the fields of two models that differ, as :func:`changed` does."""
    return changed(was.model_dump(mode="json"), will_be.model_dump(mode="json"))


def _changed(was: Any, will_be: Any, path: str) -> Iterator[FieldChange]:
    before, after = _by_name(was), _by_name(will_be)
    if before is None or after is None:
        if was != will_be:
            yield FieldChange(field=path, was=was, will_be=will_be)
        return
    for name in dict.fromkeys([*before, *after]):
        inner = f"{path}.{name}" if path else name
        yield from _changed(before.get(name), after.get(name), inner)


def _by_name(value: Any) -> Mapping[str, Any] | None:
    """Return the parts of a value by name, if they have names: those of a mapping, or items with ids."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list) and all(isinstance(each, dict) and "id" in each for each in value):
        return {each["id"]: each for each in value}
    return None
