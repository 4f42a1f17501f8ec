"""The guide for authors of drivers: its blocks are the example's, its commands were run.

The example is installed by pip as a package of its own, into a folder, without a network.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/driver"
FENCE = re.compile(r"```(\w*)\n(.*?)\n?```", re.DOTALL)
BLOCKS = FENCE.findall((ROOT / "docs/writing-a-driver.md").read_text())
ELSEWHERE = ("PYTEST_", "PIP_", "FABRIC_DIRECT_", "PYTHON")


def console(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with what it prints."""
    commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, said) for command, _, said in (each.partition("\n") for each in commands)]


def pattern(said: str) -> str:
    """Return what matches the same output: ``…`` is any number of lines, and a time any time."""
    lines = (re.escape(line) for line in said.splitlines())
    whole = "".join(r"(?:.*\n)*?" if line == "…" else rf"{line} *\n" for line in lines)
    return re.sub(r"\d+\\\.\d+\\ s|\d+\\\.\d+s", r"[\\d.]+ ?s", whole)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell: pip installs into a folder that Python looks into, and asks nobody."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ELSEWHERE)}
    folder = str(tmp_path / "installed")
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}:{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_TARGET": folder,
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip takes the 0 of an option with NO_ for "without"
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "100",
    }


@pytest.mark.parametrize("language", ["toml", "python", "yaml"])
def test_its_blocks_are_in_the_example(language: str) -> None:
    files = [path.read_text() for path in EXAMPLE.rglob("*.*") if path.is_file()]
    blocks = [text for kind, text in BLOCKS if kind == language]

    assert blocks
    assert not [block for block in blocks if not any(block in text for text in files)]


def test_its_commands_print_what_it_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "driver", ignore=shutil.ignore_patterns("__pycache__"))
    commands = [each for kind, text in BLOCKS if kind == "console" for each in console(text)]
    assert commands
    for command, said in commands:
        done = subprocess.run(  # noqa: S602 - as a reader does
            command,
            shell=True,
            cwd=tmp_path / "driver",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert re.fullmatch(pattern(said), done.stdout), f"{command}:\n{done.stdout}"


def test_the_driver_is_as_short_as_the_page_says() -> None:
    """In statements, of which a with or a def counts one, without imports and docstrings."""
    tree = ast.parse((EXAMPLE / "volume_files.py").read_text())
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    lines |= {
        each.lineno for node in ast.walk(tree) for each in getattr(node, "decorator_list", ())
    }
    imports = {n.lineno for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)}
    docs = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }

    said = re.search(r"the driver has (\d+) lines", (ROOT / "docs/writing-a-driver.md").read_text())

    assert said
    assert len(lines - imports - docs) == int(said[1])
