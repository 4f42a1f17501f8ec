"""The site of the documentation. That no link of it is broken, `make docs` tells."""

import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import fabric_direct
from fabric_direct.cli.explain import tree

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "mkdocs.yml").read_text()


def read(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


# Each process of the tests collects this file; MkDocs is imported by the one that runs it.
def hook() -> Any:
    return import_module("website.repository")


@pytest.fixture(scope="module")
def files() -> "Files":
    plugins = SimpleNamespace(_current_plugin="hook")
    config = SimpleNamespace(site_dir="build/site", use_directory_urls=False, plugins=plugins)
    found: Files = hook().on_files(hook().Files([]), config=config)
    return found


def led(link: str, files: "Files", page: str = "docs/install.md") -> str:
    """Return where a link of a page leads to."""
    return read_as(f"[it]({link})", files, page).removeprefix("[it](").removesuffix(")")


def read_as(text: str, files: "Files", page: str = "README.md") -> str:
    """Return the text of a page as the site reads it."""
    where: Any = SimpleNamespace(file=files.get_file_from_path(page))
    read: str = hook().on_page_markdown(text, page=where, files=files)
    return read


class TestThePagesOfTheRepository:
    def test_have_the_names_that_links_have(self, files: "Files") -> None:
        for name in ("README.md", "CHANGELOG.md", "docs/errors/NoHost.md", "labs/local/README.md"):
            assert files.get_file_from_path(name)

    def test_are_at_the_root_of_the_site_if_they_are_in_docs(self, files: "Files") -> None:
        urls = {file.src_uri: file.url for file in files}

        assert urls["docs/index.md"] == "index.html"
        assert urls["README.md"] == "readme.html"
        assert urls["docs/resources/gpu.md"] == "resources/gpu.html"

    def test_an_example_that_a_page_leads_to_is_shown(self, files: "Files") -> None:
        page = files.get_file_from_path("examples/tutorial/rival.yaml.md")

        assert page
        assert (ROOT / "examples/tutorial/rival.yaml").read_text() in page.content_string

    def test_a_directory_is_shown_with_its_files(self, files: "Files") -> None:
        page = files.get_file_from_path("examples/tutorial.md")

        assert page
        assert "\n## slice.yaml\n" in page.content_string
        assert ".fabric-direct-tutorial" not in re.findall("^## .*", page.content_string)

    @pytest.mark.parametrize(
        ("link", "leads_to"),
        [
            ("../examples/vm.yaml", "../examples/vm.yaml.md"),
            ("../examples/tutorial", "../examples/tutorial.md"),
            ("decisions/", "decisions/README.md"),
            ("../labs/openstack", "../labs/openstack/README.md"),
            ("../README.md#requirements", "../README.md#requirements"),
            ("operating.md#devices", "operating.md#devices"),
            ("nowhere.md", "nowhere.md"),
        ],
    )
    def test_a_link_leads_to_a_page(self, link: str, leads_to: str, files: "Files") -> None:
        assert led(link, files) == leads_to

    def test_a_list_needs_no_empty_line_above_it(self, files: "Files") -> None:
        text = "Why.\n- one\n- two\n\n```\nWhy.\n- one\n```\n"

        assert read_as(text, files) == text.replace("Why.\n- one", "Why.\n\n- one", 1)

    def test_a_pipe_in_the_code_of_a_table_is_one(self, files: "Files") -> None:
        assert read_as("| `show\\|delete` | a \\| b |", files) == "| `show|delete` | a \\| b |"


class TestDocstrings:
    @staticmethod
    def markdown(text: str) -> str:
        read: str = import_module("website.docstrings").markdown(text)
        return read

    def test_a_role_becomes_code(self) -> None:
        text = "An :class:`~fabric_direct.model.Outcome` of :meth:`check`, by :mod:`.base`."

        assert self.markdown(text) == "An `Outcome` of `check`, by `base`."

    def test_a_block_becomes_python(self) -> None:
        text = "A tree::\n\n    a = 1\n    if a:\n        b\n\nAfter it."

        fenced = "A tree:\n\n```python\na = 1\nif a:\n    b\n```\n\nAfter it."
        assert self.markdown(text) == fenced


class TestPages:
    def test_the_reference_has_the_public_names(self) -> None:
        page = read("reference/library.md")

        named = re.findall(r"^::: fabric_direct\.(\w+)$", page, re.MULTILINE)

        assert sorted(named) == sorted(fabric_direct.__all__)

    def test_the_classes_of_errors_are_listed_as_they_are(self) -> None:
        rows = re.findall(r"^\| ((?:– )*)\[(\w+)\]", read("troubleshooting.md"), re.MULTILINE)

        assert [(name, len(dashes) // 2) for dashes, name in rows] == [
            (kind.__name__, depth) for kind, depth in tree()
        ]

    def test_the_glossary_is_in_order(self) -> None:
        words = re.findall(r"^\| ([^|]+) \|", read("glossary.md"), re.MULTILINE)[1:]

        assert words == sorted(words, key=str.casefold)

    def test_nothing_is_loaded_from_elsewhere(self) -> None:
        assert "font: false" in SETTINGS
        assert "://" not in SETTINGS

    def test_whatever_is_broken_is_an_error(self) -> None:
        assert "strict: true" in SETTINGS
        assert not re.search("(ignore|info)[,}]", SETTINGS)
