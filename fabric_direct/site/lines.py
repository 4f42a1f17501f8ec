"""Say where in site.yaml a field is that turned out to be wrong when it was used."""

from pathlib import Path

from fabric_direct.documents import read_text
from fabric_direct.documents.tree import Malformed, read
from fabric_direct.errors import FabricDirectError, InvalidSite
from fabric_direct.site.config import Site


def with_line(error: FabricDirectError, path: Path | None) -> FabricDirectError:
    """Return an error of a field of site.yaml with file and line; any other error as it is.

    :param path: the file of the site; None if there is none.
    """
    if not isinstance(error, InvalidSite):
        return error
    said = located(error.field_and_what, error.field, path)
    if said == error.field_and_what:
        return error
    told = InvalidSite(
        said, where=error.where, why=error.why, remedy=error.remedy, field=error.field
    )
    told.__cause__ = error.__cause__
    return told


def located(said: str, field: str, path: Path | None) -> str:
    """Return what is said of a field of site.yaml with file and line; of any other field as it is.

    :param said: of several fields there is a line each, which begins with the field.
    :param path: the file of the site; None if there is none.
    """
    if path is None or said.startswith(str(path)):
        return said
    if field.partition(".")[0] not in Site.model_fields:  # a command's option, for example
        return said
    try:
        tree = read(read_text(path, InvalidSite), str(path))
    except (InvalidSite, Malformed):  # the file has changed since
        return said
    lines = said.splitlines()
    fields = [field] if len(lines) == 1 else [line.partition(": ")[0] for line in lines]
    return "\n".join(
        f"{path}:{tree.line_of(of)}: {line}" for of, line in zip(fields, lines, strict=True)
    )
