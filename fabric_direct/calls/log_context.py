"""The sliver, operation and step that the work of this context is about, for log lines."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039 - never changed


def known() -> Mapping[str, str]:
    """Return what is known of it, by name; processors copy the context to their threads."""
    return _about.get()


@contextmanager
def about(**names: str) -> Iterator[None]:
    """Say what the work in the block is about, in addition to what is known."""
    before = _about.set({**_about.get(), **names})
    try:
        yield
    finally:
        _about.reset(before)
