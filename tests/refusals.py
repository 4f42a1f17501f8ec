"""What docs/resources says is refused: tables below ``<!-- refused: gpu.yaml components.0 -->``.

Each row changes that document of examples/resources at that place, and has what a plan of it says.
``python -m tests.refusals docs/resources/*.md`` writes the tables anew.
"""

import os
import re
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import yaml
from click.testing import CliRunner

from fabric_direct.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples/resources"
TABLE = re.compile(r"<!-- refused: (\S+) ?(\S*) -->\n\n((?:\|.*\n)*)")
ROW = re.compile(r"^\| `(\{.*?\})` \|", re.MULTILINE)
HEAD = "| with | it says |\n|---|---|\n"
SAID = re.compile(r"^(?:Error| +\w+): (?:stdin(?::\d+)?: )?(.*)$", re.MULTILINE)


def rewritten(text: str) -> str:
    """Return a page with what is said now."""
    with TemporaryDirectory() as room:
        shutil.copy(EXAMPLES / "site.yaml", room)
        with chdir(room), patch.dict(os.environ, {"FABRIC_DIRECT_SITE": "site.yaml"}):
            return TABLE.sub(_told, text)


def _told(table: re.Match[str]) -> str:
    document, place, rows = table.groups()
    told = (f"| `{change}` | {_said(document, place, change)} |\n" for change in ROW.findall(rows))
    return table[0].removesuffix(rows) + HEAD + "".join(told)


def _said(document: str, place: str, change: str) -> str:
    """Return what a plan says of a document that is changed at a place."""
    sliver = yaml.safe_load((EXAMPLES / document).read_text())
    target: Any = sliver
    for key in filter(None, place.split(".")):
        target = target[int(key) if key.isdigit() else key]
    target.update(yaml.safe_load(change))
    output = CliRunner().invoke(main, ["plan", "-"], input=yaml.safe_dump(sliver)).output
    said = SAID.search(output)
    # A table, and a regular expression that is no link
    return said[1].replace("|", "\\|").replace("][", "]\\[") if said else f"not refused: {output}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        Path(each).write_text(rewritten(Path(each).read_text()))
