"""Arguments that name documents: a file, a directory of files, standard input."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabric_direct.documents import read_stdin, read_text
from fabric_direct.errors import InvalidSliver

ENDINGS = (".yaml", ".yml", ".json")
"""Of the files of a directory that are read, and of words that are files rather than ids."""


class DocumentFile(NamedTuple):
    """A file of documents."""

    name: str
    read: Callable[[], str]
    """Returns its text; raises InvalidSliver if it cannot be read."""


def is_source(word: str) -> bool:
    """Return whether a word names documents; any other is the id of a sliver."""
    return word == "-" or "/" in word or word.endswith(ENDINGS)


def sources(word: str) -> list[DocumentFile]:
    """Return the files that a word names: one, those of a directory in their order, or stdin.

    :raises InvalidSliver: if a directory cannot be read, or has none.
    """
    if word == "-":
        return [DocumentFile("stdin", lambda: read_stdin(InvalidSliver))]
    if not word:
        raise InvalidSliver(
            "a FILE has no name", why="it is empty, as an unset variable in quotes is"
        )
    path = Path(word)
    if not is_source(word) and not path.exists():
        raise InvalidSliver(
            f"there is no file {word}",
            why="an id does not say what the sliver should be",
            remedy="name the sliver's file",
        )
    files = _files(path) if path.is_dir() else [path]
    return [DocumentFile(str(file), partial(read_text, file, InvalidSliver)) for file in files]


def _files(directory: Path) -> list[Path]:
    try:
        found = sorted(each for each in directory.iterdir() if each.suffix in ENDINGS)
    except OSError as error:
        raise InvalidSliver(f"cannot read {directory}", why=error.strerror or str(error)) from error
    if not found:
        why = f"none of its files ends in {', '.join(ENDINGS)}"
        raise InvalidSliver(f"the directory {directory} has no slivers", why=why)
    return found
