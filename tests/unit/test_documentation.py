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

from fabric_direct import load_site, load_slivers
from fabric_direct.cli import main
from tests import shown_commands
from tests.trust.clock import Clock

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (".", "docs/**", "labs/**", "examples/**")
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
        assert shown_commands.is_as_shown(output, text), (command, text)


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/learning.md"])
def test_a_page_whose_commands_choose_hosts_names_the_extra_that_does(page):
    before = (ROOT / page).read_text().partition("```")[0]
    assert "pip install '.[placement]'" in before


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
def test_links_are_closed(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    assert re.findall(r"\]\([^)\s]*$", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", ["docs/internals.md", "SECURITY.md"])
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


def tree() -> list[dict[str, set[str]]]:
    """Return the tree of the architecture by its floors: rooms, each with what is named within it."""
    text = next(text for _, text in blocks("docs/architecture.md") if text.startswith("fabric_"))
    floors: list[dict[str, set[str]]] = []
    for paragraph in text.split("\n", 1)[1].split("\n\n"):
        floors.append({})
        for line in paragraph.splitlines():
            indent, names = re.match(r"( +)((?:[a-z0-9_]+(?:/|\.py) *)+)", line).groups()
            if len(indent) == 2:
                room = names.split()[0].rstrip("/")
                floors[-1][room] = set()
            else:
                floors[-1][room] |= set(names.split())
    return floors


def content(folder: Path) -> set[str]:
    """Return what is in a folder of the package, as the tree of the architecture names it."""
    return {
        f"{path.name}/" if path.is_dir() else path.name
        for path in folder.iterdir()
        if path.name not in {"__pycache__", "__init__.py", "py.typed"}
    }


def test_the_tree_of_the_architecture_is_the_tree():
    package = ROOT / "fabric_direct"
    rooms = {room: named for floor in tree() for room, named in floor.items()}
    there = {path.rstrip("/") for path in content(package)}
    assert {path.removesuffix(".py") for path in there} == {
        room.removesuffix(".py") for room in rooms
    }
    assert rooms["drivers"] == content(package / "drivers")
    assert rooms["handlers"] < content(package / "handlers")


def test_the_floors_of_the_architecture_are_those_that_are_checked():
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    floors = [{room.removesuffix(".py") for room in floor} for floor in tree()]
    assert floors == [set(re.findall(r"fabric_direct\.(\w+)", layer)) for layer in layers]


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/internals.md"])
def test_the_files_that_a_page_names_are_there(page):
    text = FENCE.sub("", (ROOT / page).read_text())
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+(?:/|\.(?:py|toml|svg)))`", text))
    files = [
        path
        for folder in ("fabric_direct", "tests")
        for path in (ROOT / folder).rglob("*")
        if "__pycache__" not in path.parts
    ]
    there = [f"/{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}" for path in files]
    missing = {
        name
        for name in named
        if not (ROOT / name).exists() and not any(path.endswith(f"/{name}") for path in there)
    }
    assert named
    assert not missing


def test_the_site_of_the_resource_types_serves_each_of_them() -> None:
    folder = ROOT / "examples/resources"
    documents = [path for path in folder.glob("*.yaml") if path.name != "site.yaml"]
    types = {sliver.type for path in documents for sliver in load_slivers(path)}

    served = load_site(folder / "site.yaml").drivers.keys()

    assert types - {"vNICPorts"} <= served  # these are of the VMs' driver
