"""The commands that pages show, and what they print: compared by tests, or written into the page.

``python -m tests.shown_commands docs/tutorial.md`` runs the commands of a page one after the other, on a
copy of the page's directory of examples, and puts what they print below them.
"""

import importlib
import os
import re
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from click.testing import CliRunner

from fabric_direct.cli import main

ROOT = Path(__file__).parents[1]
DIRECTORIES = {
    "README.md": "examples/learning",
    "docs/learning.md": "examples/learning",
    "docs/tutorial.md": "examples/tutorial",
} | {
    str(page.relative_to(ROOT)): "examples/resources"
    for page in sorted(ROOT.glob("docs/resources/*.md"))
    if "$ fabric-direct" in page.read_text()
}
"""Where the commands of a page are run: a directory of examples with a site.yaml."""
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (fabric-direct .*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def shown(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page, each with the output that it shows."""
    text = (ROOT / page).read_text()
    return [found for _, block in FENCE.findall(text) for found in COMMAND.findall(block)]


def printed(page: str, room: Path) -> list[str]:
    """Run the commands of a page in a directory that is empty, and return what each prints."""
    shutil.copytree(ROOT / DIRECTORIES[page], room, dirs_exist_ok=True)
    with chdir(room), patch.dict(os.environ, {"FABRIC_DIRECT_SITE": "site.yaml"}):
        return [output(command) for command, _ in shown(page)]


def output(command: str) -> str:
    """Run a command as a new process would: without what others have in memory."""
    importlib.import_module("fabric_direct.drivers.fake.substrate")._substrates.clear()
    return CliRunner().invoke(main, command.split()[1:], catch_exceptions=False).output


def timeless(text: str) -> list[str]:
    """Return the lines without what differs from run to run: seconds, and the order of steps."""
    return sorted(re.sub(r"[ (]+[0-9.]+ s", " … s", line.rstrip()) for line in text.splitlines())


def is_as_shown(shown: str, printed: str) -> bool:
    """Return whether a page shows what is printed: all of it, or some lines and ``…`` for others."""
    lines, there = timeless(shown), timeless(printed)
    return lines == there or ("…" in lines and {*lines} - {"…"} <= {*there})


def rewrite(page: str) -> None:
    """Put what the commands of a page print into it; what it shows of the same meaning stays."""
    with TemporaryDirectory() as room:
        outputs = iter(printed(page, Path(room)))

    def told(match: re.Match[str]) -> str:
        output = next(outputs)
        if is_as_shown(match[2], output):
            return match[0]
        lines = (line.rstrip() for line in output.splitlines())
        return f"$ {match[1]}\n" + "".join(f"{line}\n" for line in lines)

    path = ROOT / page
    fenced = FENCE.sub(lambda block: COMMAND.sub(told, block[0]), path.read_text())
    path.write_text(fenced)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        rewrite(each)
