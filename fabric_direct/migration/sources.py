"""Read an inventory: a file or a directory, and the group_vars and host_vars beside it."""

import os
from collections.abc import Iterator
from pathlib import Path

from fabric_direct.documents import read_text
from fabric_direct.errors import Refused
from fabric_direct.migration import ini, tree
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import AnsibleInventory, Variables
from fabric_direct.migration.values import VAULT, FileLine, parse_document

_YAML = (".yml", ".yaml", ".json")
# Ansible ignores these in an inventory's directory.
_PASSED = (".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg")
_PASSED_TOO = (".retry", ".ini~", ".sample")
_VARIABLES = ("group_vars", "host_vars")


def read_inventory(path: Path, draft: SiteDraft) -> AnsibleInventory:
    """Return the content of all files of an inventory.

    Vaults and programs cannot be read; they are reported to the draft.

    :raises Refused: if a file cannot be read or is broken.
    """
    if not path.exists():
        raise Refused(f"cannot read {path}", why="No such file or directory")
    found = AnsibleInventory(FileLine(str(path)))
    for file in _files(path):
        _read(file, draft, found)
    base = path if path.is_dir() else path.parent
    found.group_vars.update(_beside(base / "group_vars", draft))
    found.host_vars.update(_beside(base / "host_vars", draft))
    return found


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.name not in _VARIABLES and not _passed(entry):
            yield from _files(entry)


def _passed(path: Path) -> bool:
    return path.name.startswith(".") or path.name.endswith((*_PASSED, *_PASSED_TOO))


def _read(path: Path, draft: SiteDraft, into: AnsibleInventory) -> None:
    text = _text(path, draft)
    if not path.name.endswith(_YAML):
        ini.read(text, str(path), into)
        return
    document = parse_document(text, str(path))
    plugin = document.values().get("plugin")
    if plugin:
        why = "asks an inventory plugin of Ansible, which is not run"
        draft.skip(plugin.place, "plugin", why, _INSTEAD)
    else:
        tree.read(document, into)


_INSTEAD = "write what `ansible-inventory --list --yaml` prints into a file, and give that instead"


def _text(path: Path, draft: SiteDraft) -> str:
    """Return the text of a file; empty, and reported, if it is a vault or a program."""
    text = read_text(path, Refused)
    if text.startswith(VAULT):
        why = "is encrypted with ansible-vault: nothing of it was read"
        draft.skip(
            FileLine(str(path)), "the file", why, f"read it with `ansible-vault view {path}`"
        )
        return ""
    if text.startswith("#!") and os.access(path, os.X_OK):
        draft.skip(FileLine(str(path)), "the file", "is a program, which is not run", _INSTEAD)
        return ""
    return text


def _beside(folder: Path, draft: SiteDraft) -> dict[str, Variables]:
    """Return the variables by group or host: of ``NAME``, ``NAME.yml``, or all files in ``NAME/``."""
    found: dict[str, Variables] = {}
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not _passed(entry):
            name = entry.stem if entry.suffix in _YAML else entry.name
            for file in _files(entry):
                document = parse_document(_text(file, draft), str(file))
                found.setdefault(name, {}).update(document.values())
    return found
