"""The document that programs get of every command: ``fabric-direct schema outcome``.

The module is imported for the schema; :func:`fabric_direct.cli.options.print_json` writes the documents.
"""

from typing import Any, Literal

from fabric_direct.model import ErrorReport, Frozen, Outcome

VERSION = 1
"""Fields may be added under the same version; it changes when one goes or means something else."""


class Envelope(Frozen):
    """The output of a command, in JSON or YAML."""

    version: Literal[1]
    command: str
    """The command: ``create``, ``devices list``."""
    outcomes: tuple[Outcome, ...]
    """The outcomes of operations on slivers, in the order in which they were asked for."""
    result: Any
    """What the command says beside outcomes, for example the rows of a list; null if nothing."""
    error: ErrorReport | None
    """Why the command as a whole failed; null if it did not. Outcomes have errors of their own."""
