"""The slivers that files describe, of all resource types that have a handler."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, create_model

from fabric_direct.documents import Document, parse_all, read_text
from fabric_direct.documents.reasons import close_to
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.handlers.registry import handler_for, resource_types, sliver_model
from fabric_direct.model import NodeSliver, Sliver


class _AnySliver(Sliver):
    """A sliver of which id and type are looked at, and nothing else."""

    model_config = ConfigDict(extra="ignore")


def load_sliver(path: Path | str) -> Sliver:
    """Read the sliver that a YAML or JSON file describes, of whatever resource type.

    :raises InvalidSliver: if the file cannot be read, is invalid, or does not have exactly one sliver;
        the message names file, line and field.
    """
    found = load_slivers(path)
    if len(found) != 1:
        raise InvalidSliver(f"{path} has {len(found)} slivers, not one")
    return found[0]


def load_slivers(path: Path | str) -> tuple[Sliver, ...]:
    """Read the slivers that the documents of a file describe, separated by ``---`` if there are several.

    :raises InvalidSliver: as :func:`load_sliver` does; the message has the errors of all documents.
    """
    documents = parse_slivers(read_text(Path(path), InvalidSliver), str(path))
    return tuple(document.value for document in documents)


def parse_slivers(text: str, source: str) -> tuple[Document[Sliver], ...]:
    """Return the slivers of a text, each with where it is there.

    :param source: name of the file, for error messages.
    :raises InvalidSliver: as :func:`load_slivers` does.
    """
    return parse_all(text, source, model_of, InvalidSliver)


def model_of(document: Any) -> type[Sliver]:
    """Return the model for a document by its type; a node if the type is missing.

    That for an unknown type which is not like a node's refuses the type alone: what other fields there
    are depends on it.

    :raises ValueError: if it is no sliver, but another document.
    """
    if isinstance(document, dict) and "id" not in document:
        _refuse_others(document)
    named = document.get("type") if isinstance(document, dict) else None
    if named is None:
        return NodeSliver
    if named in resource_types():
        return sliver_model(document)
    like_a_vm = close_to(str(named), list(resource_types())) == "VM"
    return _of_type(resource_types(), NodeSliver if like_a_vm else _AnySliver)


def _refuse_others(document: dict[str, Any]) -> None:
    if {"version", "slivers"} <= document.keys():
        raise ValueError("is a saved plan; give it to create --plan, or modify --plan")
    if "slivers" in document:
        raise ValueError("is a request of several slivers; give it to place")
    if "site" in document:
        raise ValueError("is a site's configuration; name it by --site")


def any_node() -> type[Sliver]:
    """Return a model of the slivers of all types of nodes whose handler can be loaded, and no others."""
    nodes = []
    for kind in resource_types():
        with suppress(InvalidSite):
            nodes += [kind] if issubclass(handler_for(kind).sliver_model, NodeSliver) else []
    return _of_type(tuple(nodes))


def _of_type(known: tuple[str, ...], base: type[Sliver] = NodeSliver) -> type[Sliver]:
    """Return a model that refuses all types but these, beside the other errors of its base."""
    one_of: Any = Literal.__getitem__(known)
    fields: Any = {"type": (one_of, known[0])}
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, **fields)
