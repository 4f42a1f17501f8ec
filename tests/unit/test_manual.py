"""The manual page and the scripts for shells are the command line's, all of it."""

import re
from collections.abc import Iterator

import click
import pytest

from fabric_direct.cli import main
from fabric_direct.cli.manual import manual, shared_files

PAGE = manual("1.2.3")


def plain(page: str) -> str:
    """Return the text of a page without roff's escapes."""
    return re.sub(r"\\&|\\f[BP]", "", page).replace("\\-", "-").replace("\\e", "\\")


def commands(group: click.Context) -> Iterator[click.Context]:
    assert isinstance(group.command, click.Group)
    for name in group.command.list_commands(group):
        command = group.command.get_command(group, name)
        assert command
        context = click.Context(command, group, info_name=name)
        yield context
        if isinstance(command, click.Group):
            yield from commands(context)


ALL = {
    context.command_path.removeprefix("fabric-direct "): context
    for context in commands(click.Context(main, info_name="fabric-direct"))
}


def section(name: str) -> str:
    """Return the text of a command's section."""
    return next(text for text in plain(PAGE).split("\n.SS ") if text.startswith(f"{name} ["))


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_its_usage_and_its_options(name: str) -> None:
    context = ALL[name]

    text = section(name)

    assert (
        text.splitlines()[0] == f"{name} {' '.join(context.command.collect_usage_pieces(context))}"
    )
    own = [param for param in context.command.params if isinstance(param, click.Option)]
    for option in own:
        everywhere = option.name in {"site_path", "format", "verbose", "log_format"}
        assert everywhere or max(option.opts, key=len) in text


def test_an_option_of_all_commands_is_told_once() -> None:
    assert plain(PAGE).count("\n--log-format ") == 1


def test_groups_have_the_commands_below_them() -> None:
    assert {"zone serve", "zone reservation delete", "devices release"} <= ALL.keys()


def test_what_the_help_ends_with_keeps_its_lines() -> None:
    assert "\n  2    invalid input, or it names what is not there: nothing was changed\n" in plain(
        PAGE
    )


def test_its_foot_has_the_version() -> None:
    assert '"fabric-direct 1.2.3"' in PAGE.splitlines()[0]


def test_no_text_is_a_request_or_an_escape_of_roff() -> None:
    requests = {line.split()[0] for line in PAGE.splitlines() if line.startswith((".", "'"))}
    escapes = set(re.findall(r"\\(.)", PAGE))

    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi"}
    assert escapes <= set("-&fe(")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("bash-completion/completions/fabric-direct", "complete -o nosort -F"),
        ("zsh/site-functions/_fabric-direct", "#compdef fabric-direct"),
        (
            "fish/vendor_completions.d/fabric-direct.fish",
            "complete --no-files --command fabric-direct",
        ),
    ],
)
def test_a_shell_finds_its_script_where_it_looks(path: str, said: str) -> None:
    script = shared_files("1.2.3")[path]

    assert said in script
    assert "_FABRIC_DIRECT_COMPLETE" in script


def test_the_page_is_where_man_looks() -> None:
    assert shared_files("1.2.3")["man/man1/fabric-direct.1"] == PAGE
