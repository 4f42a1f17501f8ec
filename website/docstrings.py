"""Read the package's docstrings as Markdown: an extension of griffe.

They are written for Sphinx: roles (``:class:`Outcome```), and blocks of code after ``::``.
"""

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|meth|func|mod|data|attr|exc):`(~?)([\w.]+)`")
BLOCK = re.compile(r"::\n\n((?: {4}.*\n?|\n)+)")


class SphinxText(Extension):
    """Turn what Sphinx writes its own way into Markdown, in each docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Return a docstring's text with its roles as code, and its blocks fenced."""
    return BLOCK.sub(_fenced, ROLE.sub(_code, text))


def _code(role: re.Match[str]) -> str:
    return f"`{role[2].rpartition('.')[2] if role[1] else role[2].lstrip('.')}`"


def _fenced(block: re.Match[str]) -> str:
    return f":\n\n```python\n{dedent(block[1]).strip()}\n```\n\n"
