"""The manual page and the shell completion, generated from the command line and installed with it.

The wheel's build calls :func:`shared_files`; nothing is written by hand twice.
"""

import re
from collections.abc import Iterator

import click
from click.shell_completion import ShellComplete, get_completion_class

from fabric_direct.cli import main

_PROGRAM = "fabric-direct"
_VARIABLE = "_FABRIC_DIRECT_COMPLETE"
_COMPLETION = {
    "bash": f"bash-completion/completions/{_PROGRAM}",
    "zsh": f"zsh/site-functions/_{_PROGRAM}",
    "fish": f"fish/vendor_completions.d/{_PROGRAM}.fish",
}
"""Where each shell looks below ``share/`` of a prefix."""
_ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "~": "\\(ti", "^": "\\(ha"})
_EVERYWHERE = r"They are valid before and after the name of a command; \-\-version needs none."


def shared_files(version: str) -> dict[str, str]:
    """Return the texts that belong below ``share/``, by their paths there.

    :param version: of this package; it stands at the foot of the manual page.
    """
    scripts = {path: _script(shell) for shell, path in _COMPLETION.items()}
    return {f"man/man1/{_PROGRAM}.1": manual(version), **scripts}


def _script(shell: str) -> str:
    """Return the script of a shell, without asking which version of it is here."""
    complete = get_completion_class(shell)
    assert complete is not None, shell  # noqa: S101 - click has these three
    return ShellComplete.source(complete(main, {}, _PROGRAM, _VARIABLE)) + "\n"


# --- the manual page


def manual(version: str) -> str:
    """Return the manual page of all commands, for ``man``, from their help."""
    return "\n".join(_page(version)) + "\n"


def _page(version: str) -> Iterator[str]:
    root = click.Context(main, info_name=_PROGRAM, **main.context_settings)
    first, *rest = _paragraphs(main.help)
    yield f'.TH {_PROGRAM.upper()} 1 "" "{_PROGRAM} {version}" "User Commands"'
    yield from (".SH NAME", f"{_escaped(_PROGRAM)} \\- {_prose(first).rstrip('.')}")
    yield from (".SH SYNOPSIS", f"\\fB{_escaped(_PROGRAM)}\\fP {_usage(root)}")
    yield ".SH DESCRIPTION"
    yield from _text(rest)
    yield from (".SH OPTIONS", _EVERYWHERE)
    yield from _options(root)
    yield ".SH COMMANDS"
    yield from _commands(root)
    yield ".SH NOTES"
    yield from _text(_paragraphs(main.epilog))


def _commands(group: click.Context) -> Iterator[str]:
    """Yield the commands of a group, those of groups in their place."""
    for name, command in _children(group):
        context = click.Context(command, group, info_name=name)
        path = context.command_path.removeprefix(_PROGRAM).strip()
        yield f".SS {_escaped(path)} {_usage(context)}"
        yield from _text(_paragraphs(command.help))
        yield from _options(context)
        yield from _commands(context)


def _children(group: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(group.command, click.Group):
        for name in group.command.list_commands(group):
            command = group.command.get_command(group, name)
            if command and not command.hidden:
                yield name, command


def _options(context: click.Context) -> Iterator[str]:
    """Yield a command's options, without those that all commands have."""
    of_all = _records(context.find_root()) if context.parent else []
    for names, text in _records(context):
        if (names, text) not in of_all:
            yield from (".TP", f"\\fB{_escaped(names)}\\fP", _prose(text))


def _records(context: click.Context) -> list[tuple[str, str]]:
    records = (param.get_help_record(context) for param in context.command.get_params(context))
    return [record for record in records if record and record[1]]


def _usage(context: click.Context) -> str:
    return _escaped(" ".join(context.command.collect_usage_pieces(context)))


def _paragraphs(text: str | None) -> list[str]:
    return re.split(r"\n\s*\n", (text or "").strip())


def _text(paragraphs: list[str]) -> Iterator[str]:
    r"""Yield paragraphs; one that begins with ``\b`` keeps its lines, as in the help."""
    for paragraph in filter(None, paragraphs):
        kept = paragraph.removeprefix("\b\n")
        if kept == paragraph:
            yield from (".PP", _prose(paragraph))
        else:
            yield from (".PP", ".nf", *map(_escaped, kept.splitlines()), ".fi")


def _prose(text: str) -> str:
    """Return text as one line, with what stands between backquotes in bold."""
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fP", _escaped(" ".join(text.split())))


def _escaped(text: str) -> str:
    """Return text in which roff finds no request and no escape, and whose hyphens can be copied."""
    plain = text.translate(_ESCAPES)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
