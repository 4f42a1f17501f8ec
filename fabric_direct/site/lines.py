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
    if path is None or not isinstance(error, InvalidSite) or error.what.startswith(str(path)):
        return error
    if error.field.partition(".")[0] not in Site.model_fields:  # a command's option, for example
        return error
    try:
        tree = read(read_text(path, InvalidSite), str(path))
    except (InvalidSite, Malformed):  # the file has changed since
        return error
    said = error.field_and_what.splitlines()
    # Several errors have a line each, which begins with the field.
    fields = [error.field] if len(said) == 1 else [line.partition(": ")[0] for line in said]
    located = (
        f"{path}:{tree.line_of(field)}: {line}" for field, line in zip(fields, said, strict=True)
    )
    told = InvalidSite(
        "\n".join(located),
        where=error.where,
        why=error.why,
        remedy=error.remedy,
        field=error.field,
    )
    told.__cause__ = error.__cause__
    return told
