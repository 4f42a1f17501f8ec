"""Print the unit tests of what changed since a branch: ``make check`` runs them.

A test is of a module if it imports it. Where none does, those of the modules that import it are
taken; where none does either, as with what is loaded by its name, those that are named like it.
"""

import subprocess
from pathlib import Path

import click
import grimp

ROOT = Path(__file__).parents[1]


@click.command(help=__doc__)
@click.argument("base", default="main")
def main(base: str) -> None:
    """Print the files, one a line."""
    graph = grimp.build_graph("fabric_direct", "tests", cache_dir=None)
    found: set[str] = set()
    for file in map(Path, changed(base)):
        if file.suffix == ".md":
            found.add("tests.unit.test_documentation")
        else:
            found |= unit_tests_of(graph, module(file)) or named_like(graph, file)
    click.echo("\n".join(sorted(f"{name.replace('.', '/')}.py" for name in found)))


def changed(base: str) -> set[str]:
    """Name what differs from where this branch left the base, committed or not."""
    since = _git("merge-base", base, "HEAD")
    return {
        *_git("diff", "--name-only", since[0]),
        *_git("ls-files", "--others", "--exclude-standard"),
    }


def module(file: Path) -> str:
    """Return the name under which a file is imported."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_tests_of(graph: grimp.ImportGraph, changed: str) -> set[str]:
    """Return the unit tests that a module is, or that import it or are nearest to do."""
    seen = level = {changed} & graph.modules
    while level:
        if found := {name for name in level if _is_test(name)}:
            return found
        level = set().union(*map(graph.find_modules_that_directly_import, level)) - seen
        seen |= level
    return set()


def named_like(graph: grimp.ImportGraph, file: Path) -> set[str]:
    """Return the unit tests whose names have that of a file of the library, or of its directory."""
    if file.parts[0] != "fabric_direct":
        return set()
    for word in (file.name.partition(".")[0], file.parent.name):
        if found := {name for name in graph.modules if _is_test(name) and word in name}:
            return found
    return set()


def _is_test(name: str) -> bool:
    return name.startswith("tests.unit.test_")


def _git(*arguments: str) -> list[str]:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).splitlines()


if __name__ == "__main__":
    main()
