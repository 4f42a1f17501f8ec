"""Make the site of the repository's own pages, where they are: a hook of MkDocs.

The site's pages have the paths of the repository (``docs/install.md``, ``labs/local/README.md``), so
that a link which works on a forge works here, and MkDocs checks it. What pages lead to and is no page
itself (an example, a module, a directory) becomes one that shows it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "labs/**/README.md", "examples/*/README.md")
PICTURES = ("docs/*.png", "docs/*.svg", "docs/pictures/*.svg")
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
LANGUAGES = {"": "text", ".md": "markdown", ".py": "python", ".toml": "toml", ".txt": "text"} | {
    ".yaml": "yaml",
    ".yml": "yaml",
}
LEFT = re.compile(r"(^|/)(\.|__pycache__/|[\w-]+\.egg-info/|examples/driver/(state|volumes)/)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# A line of text, and the first line of a list below it.
LIST = re.compile(r"(^(?![-\s]|\d+\.|\|).*\n)((?:-|\d+\.) )", re.MULTILINE)
ROW = re.compile(r"^\|.*", re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_config(config: MkDocsConfig) -> None:
    """Expand the patterns of the navigation: a page for each decision, and for each error."""
    config.nav = [_expanded(item) for item in config.nav or ()]


def _expanded(item: Any) -> Any:
    if isinstance(item, dict):
        return {title: _expanded(below) for title, below in item.items()}
    if isinstance(item, list):
        return [page for each in item for page in _listed(each)]
    return item


def _listed(item: Any) -> list[Any]:
    if isinstance(item, str) and "*" in item:
        return [{_title(path): _name(path)} for path in sorted(ROOT.glob(item))]
    return [_expanded(item)]


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the repository's pages and pictures, and a page for each other thing that they lead to."""
    pages = [_name(path) for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    for name in (*pages, *(_name(path) for each in PICTURES for path in ROOT.glob(each))):
        files.append(_placed(File.generated(config, name, abs_src_path=str(ROOT / name))))
    for target in sorted({target for name in pages for target in _shown(name)}):
        files.append(_showing(target, config))
    return files


def _placed(file: File) -> File:
    """Put a page of docs/ at the root of the site; the README is a page like others."""
    if file.src_uri == "README.md":
        file.dest_uri = "readme.html"
    file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def _shown(page: str) -> Iterator[str]:
    """Yield what a page leads to that is no page: files and directories."""
    for link, _ in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        target = _target(page, link)
        if _needs_page(target):
            yield target


def _target(page: str, link: str) -> str:
    return normpath(join(dirname(page), link))


def _needs_page(target: str) -> bool:
    path = ROOT / target
    page = path.suffix in {".md", ".png", ".svg"} or (path / "README.md").exists()
    return path.exists() and not page and not target.startswith(".")


def _showing(target: str, config: MkDocsConfig) -> File:
    """Return a page that shows a file, or the files of a directory."""
    shown = [f"{UNSEARCHED}# {target}\n"]
    for name in _files(target):
        shown.append(f"\n## {name.removeprefix(f'{target}/')}\n" if name != target else "")
        language = LANGUAGES.get(Path(name).suffix, "text")
        shown.append(f"\n``````{language}\n{(ROOT / name).read_text(encoding='utf-8')}\n``````\n")
    return File.generated(
        config, f"{target}.md", content="".join(shown), inclusion=InclusionLevel.NOT_IN_NAV
    )


def _files(target: str) -> list[str]:
    """Return a file, or all files of a directory, without what a run left there."""
    path = ROOT / target
    found = (each for each in path.rglob("*") if each.is_file() and each.suffix in LANGUAGES)
    shown = (_name(each) for each in found if not LEFT.search(_name(each)))
    return sorted(shown) if path.is_dir() else [target]


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Lead links to files and directories to the pages that show them; read all as a forge does."""
    if page.file.abs_src_path is None:
        return markdown

    def led(link: re.Match[str]) -> str:
        target, path = _target(page.file.src_uri, link[1]), link[1].rstrip("/")
        for name in (".md", "/README.md"):
            if files.get_file_from_path(f"{target}{name}"):
                return f"]({path}{name}{link[2] or ''})"
        return link[0]

    parts = FENCED.split(LINK.sub(led, markdown))
    return "".join(part if n % 2 else _as_on_a_forge(part) for n, part in enumerate(parts))


def _as_on_a_forge(text: str) -> str:
    """Part a list from the paragraph above it; let a pipe in a table's code be one."""
    return ROW.sub(_unescaped, LIST.sub(r"\1\n\2", text))


def _unescaped(row: re.Match[str]) -> str:
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])
