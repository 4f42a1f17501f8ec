"""What the pages say is so: their Python runs, their links lead somewhere, the tests they name exist."""

import importlib
import re
import shutil
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import click
import pytest

from fabric_direct.cli import main
from tests import shown_commands
from tests.trust.clock import Clock

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (".", "docs/**", "labs/*", "examples/**")
    for page in ROOT.glob(f"{folder}/*.md")
)
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
TEST = re.compile(r"`(\w+/test_\w+\.py)?(?:::(\w+))(?:::(\w+))?`")


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page, each with its language."""
    return FENCE.findall((ROOT / page).read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_the_first_example_prints_what_the_page_shows(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    substrate = importlib.import_module("fabric_direct.drivers.fake.substrate")
    monkeypatch.setattr(substrate, "time", Clock())  # the drivers of the example are slow
    found = blocks(page)
    first = next(n for n, (language, _) in enumerate(found) if language == "python")
    printed = StringIO()
    with redirect_stdout(printed):
        exec(found[first][1], {})  # noqa: S102
    assert sorted(printed.getvalue().splitlines()) == sorted(found[first + 1][1].splitlines())


@pytest.mark.parametrize("page", sorted(shown_commands.DIRECTORIES))
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    printed = shown_commands.printed(page, tmp_path)
    for (command, output), text in zip(shown_commands.shown(page), printed, strict=True):
        assert shown_commands.timeless(text) == shown_commands.timeless(output), command


def test_the_pictures_are_what_their_commands_draw(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples/pictures", tmp_path / "pictures")
    monkeypatch.chdir(tmp_path / "pictures")
    monkeypatch.setenv("FABRIC_DIRECT_SITE", "site.yaml")
    commands = re.findall(
        r"^(?:\$ )?(fabric-direct (?:create|topology) .*)$",
        (ROOT / "docs/pictures.md").read_text(),
        re.MULTILINE,
    )
    for command in commands:
        shown_commands.output(command)
    shown = {path.name: path.read_text() for path in (ROOT / "docs/pictures").iterdir()}
    assert {path.name: path.read_text() for path in Path().glob("*.svg")} == shown


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", ["docs/architecture.md", "SECURITY.md"])
def test_the_tests_that_a_page_names_are_there(page):
    named, file = [], ""
    for path, *names in TEST.findall((ROOT / page).read_text()):
        file = path or file
        named += [(file, name) for name in names if name]
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"(def|class) {name}\b", (ROOT / "tests" / file).read_text())
    ]
    assert named
    assert not missing


def test_the_page_of_the_command_line_has_all_commands():
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/command-line.md").read_text(), re.MULTILINE)
    named = {words.split()[0] for row in rows for words in re.findall(r"`([^`]+)`", row)}
    assert named == set(main.list_commands(click.Context(main)))


def test_the_tree_of_the_architecture_is_the_tree():
    package = ROOT / "fabric_direct"
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for folder in (package, package / "drivers")
        for path in folder.iterdir()
        if path.name not in {"__pycache__", "__init__.py", "py.typed"}
    }
    named = set(re.findall(r"^  ([a-z0-9_]+(?:\.py|/)) ", ARCHITECTURE, re.MULTILINE))
    named |= set(re.findall(r"^  ([a-z0-9_]+/)$", ARCHITECTURE, re.MULTILINE))
    assert named - {"__init__.py"} == there


def test_the_layers_of_the_architecture_are_those_that_are_checked():
    with (ROOT / "pyproject.toml").open("rb") as file:
        (contract,) = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = "\n".join(contract["layers"]).replace("fabric_direct.", "")
    assert f"```\n{layers}\n```" in ARCHITECTURE
