"""The pages of docs/resources: made from the models, and what they say is refused is refused so."""

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import get_args

import pytest

from fabric_direct.handlers import registry
from fabric_direct.model import Component
from tests import model_tables, refusals

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/resources").glob("*.md"))
TEXT = "\n".join(page.read_text() for page in PAGES)
EXAMPLE = re.compile(r"```yaml\n# (examples/\S+)\n(.*?)```", re.DOTALL)
DRIVERS = re.compile(r"<!-- drivers: (\w+) -->\n\n((?:\|.*\n)*)")


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def page(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text()


def test_the_fields_of_a_page_are_those_of_the_models(page: str) -> None:
    assert model_tables.rewritten(page) == page  # python -m tests.model_tables docs/resources/*.md


def test_what_a_page_says_is_refused_is_refused_in_these_words(page: str) -> None:
    assert refusals.rewritten(page) == page  # python -m tests.refusals docs/resources/*.md


def test_an_example_is_that_of_its_file(page: str) -> None:
    for name, text in EXAMPLE.findall(page):
        assert (ROOT / name).read_text() == text


def test_the_drivers_of_a_page_are_installed(page: str) -> None:
    for kind, rows in DRIVERS.findall(page):
        named = set(re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE))
        assert named
        assert named <= entry_points(group=f"fabric_direct.{kind}").names


def test_each_type_has_an_example() -> None:
    components = {each.model_fields["type"].default for each in get_args(get_args(Component)[0])}
    shown = set(re.findall(r"type: (\w+)", "".join(text for _, text in EXAMPLE.findall(TEXT))))

    assert shown >= components | set(registry.resource_types()) - {"VM"}
