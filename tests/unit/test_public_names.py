"""Whoever annotates code that uses this library finds the names at its top."""

import inspect
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import fabric_direct
from fabric_direct import HandlerProcessor, NodeSliver, Outcome, SavedPlan
from fabric_direct.model.services import SERVICES

PUBLIC = set(fabric_direct.__all__)
METHODS = [
    method
    for name, method in inspect.getmembers(HandlerProcessor, inspect.isfunction)
    if not name.startswith("_")
]


def classes(hint: Any) -> Iterator[type]:
    """Yield the classes of this package in an annotation."""
    for part in get_args(hint):
        yield from classes(part)
    if isinstance(hint, type) and hint.__module__.startswith("fabric_direct."):
        yield hint


def fields(model: type, seen: set[type]) -> set[type]:
    """Return the classes of all values in a document."""
    for hint in get_type_hints(model).values():
        for found in set(classes(hint)) - seen:
            seen |= {found} | (
                fields(found, seen | {found}) if issubclass(found, BaseModel) else set()
            )
    return seen


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_what_a_method_of_the_processor_takes_and_returns_is_public(method: Any) -> None:
    named = {found.__name__ for hint in get_type_hints(method).values() for found in classes(hint)}

    assert named <= PUBLIC


@pytest.mark.parametrize(
    "document", [NodeSliver, Outcome, *SERVICES.values()], ids=lambda document: document.__name__
)
def test_what_is_in_a_document_is_public(document: type) -> None:
    assert {found.__name__ for found in fields(document, set())} <= PUBLIC


def test_a_name_is_found_without_the_others() -> None:
    assert SavedPlan.__module__ == "fabric_direct.operations.saved_plan"
    assert set(fabric_direct._HOME_OF) == PUBLIC


def test_completion_and_help_show_them() -> None:
    assert set(dir(fabric_direct)) >= PUBLIC
    shown = pydoc.render_doc(fabric_direct, renderer=pydoc.plaintext)
    assert "class HandlerProcessor(builtins.object)" in shown


def test_a_program_without_logging_finds_nothing_on_its_standard_error(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from fabric_direct import HandlerProcessor, Site, SliverRef
site = Site(site="test", state_dir=Path({str(tmp_path)!r}), drivers={{"VM": "fake"}}, guest="fake")
with HandlerProcessor(site) as processor:
    assert not processor.poa(SliverRef(id="x"), "start").result().ok
"""

    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_another_name_is_refused_as_any_module_does() -> None:
    with pytest.raises(AttributeError, match="module 'fabric_direct' has no attribute 'Nothing'"):
        fabric_direct.Nothing  # noqa: B018
