"""The package is found by its tree, and a class by its name."""

import ast
from collections import defaultdict
from pathlib import Path

import fabric_direct

PACKAGE = Path(fabric_direct.__file__).parent


def test_few_files_are_loose_at_the_top() -> None:
    loose = {path.name for path in PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "errors.py", "processor.py", "pytest_plugin.py"}


def test_a_folder_says_what_it_is_for() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    silent = {
        folder.relative_to(PACKAGE)
        for folder in folders
        if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    }
    assert not silent


def test_a_public_class_has_a_name_of_its_own() -> None:
    homes = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(str(path.relative_to(PACKAGE)))
    assert not {name: where for name, where in homes.items() if len(where) > 1}
