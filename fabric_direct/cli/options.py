"""The options of all commands, and how documents, errors and logs are printed."""

import errno
import gc
import importlib.metadata
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from fabric_direct import errors
from fabric_direct.cli import lost_output
from fabric_direct.errors import FabricDirectError, NotFound, Refused

if TYPE_CHECKING:
    from fabric_direct.model import Outcome
    from fabric_direct.site.config import Site

F = TypeVar("F", bound=Callable[..., Any])

FAILED, BAD_INPUT, PARTLY_DONE, BUG, INTERRUPTED = 1, 2, 3, 70, 130
"""Exit codes; that of a bug is ``EX_SOFTWARE`` of ``sysexits.h``."""
FORMATS = ("table", "json", "yaml")
# Of objects, between two looks for garbage. Loading modules makes some hundred thousand, none of it
# garbage, and to look at them every 700 took a tenth of a short command.
_ALLOCATIONS = 50_000
PLACES = (Path("site.yaml"), Path("/etc/fabric-direct/site.yaml"))


@dataclass
class Settings:
    """The options that all commands share."""

    site_path: Path | None = None
    format: str = "table"
    """``table`` is for people; ``json``, ``yaml`` and ``csv`` are for programs."""
    columns: tuple[str, ...] = ()
    """Those of its table that a command shall show; all if empty."""
    verbose: bool = False
    watch: bool = True
    """Whether to show operations live, on a terminal."""
    detach: bool = False
    """Whether to leave operations to conductors."""
    trace: Path | None = None
    """The file that says what was called when; None for none."""
    log_format: str = "text"
    command: str = ""
    """The command, without the name of the program: ``devices list``."""

    @property
    def as_json(self) -> bool:
        """Return whether to print one document for programs, in JSON or YAML, and no more on stdout."""
        return self.format in {"json", "yaml"}

    def found_site(self) -> Path | None:
        """Return the file of the site; None stands for this machine with its libvirt."""
        named = self.site_path or os.environ.get("FABRIC_DIRECT_SITE")
        if named:
            return Path(named)
        return next((path for path in PLACES if path.exists()), None)

    def site(self) -> "Site":
        """Return the site.

        :raises InvalidSite: if its file cannot be read or is invalid.
        """
        from fabric_direct.site.config import Site, load_site  # noqa: PLC0415 - see the package

        path = self.found_site()
        return load_site(path) if path else Site(site="localhost")


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def shared_options(command: F, *, formats: Sequence[str] = FORMATS) -> F:
    """Add the options that are valid before and after the command's name."""
    option = partial(click.option, expose_value=False, callback=keep)
    path = click.Path(path_type=Path)
    verbose = option(
        "--verbose", "-v", is_flag=True, help="Show the log, and the causes of errors."
    )
    log_format = option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Form of the log; json: one object a line.",
    )
    # Eager, so that a wrong argument is told in the format, too, wherever the option stands.
    json_ = option(
        "--json", "format", flag_value="json", is_eager=True, help="The same as -f json."
    )
    format_ = option(
        "-f",
        "--format",
        "format",
        type=click.Choice(formats),
        is_eager=True,
        help="For people (table, the default) or for programs.",
    )
    site = option("--site", "site_path", type=path, help="The site's configuration, site.yaml.")
    return site(format_(json_(verbose(log_format(command)))))


def operation_options(command: F) -> F:
    """Add the options of commands whose operations may take long."""
    option = partial(click.option, expose_value=False)
    watch = option(
        "--watch/--no-watch",
        default=True,
        callback=_keep_watch,
        help="On a terminal, show a line for each sliver that is updated in place (the default), or a "
        "line for each step.",
    )
    trace = option(
        "--trace",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_keep_trace,
        metavar="FILE",
        help="Write what was called when to this JSON file, which ui.perfetto.dev shows.",
    )
    detach = option(
        "--detach",
        is_flag=True,
        callback=keep,
        help="Leave the operations to conductors, and do not wait for them.",
    )
    return watch(trace(detach(command)))


def _keep_watch(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).watch = value


def _keep_trace(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path and not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.parent}")
    context.ensure_object(Settings).trace = path


def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep the value of an option in the settings, and which command it is."""
    settings = context.ensure_object(Settings)
    settings.command = " ".join(_names(context))
    if value:
        setattr(settings, str(parameter.name), value)


def _names(context: click.Context) -> list[str]:
    return [*_names(context.parent), str(context.info_name)] if context.parent else []


_ELSEWHERE = {
    "apply": "create FILE, modify FILE",
    "completion": "--help says how",
    "destroy": "delete FILE_OR_ID",
    "get": "probe ID, list",
    "logs": "history",
    "remove": "delete FILE_OR_ID",
    "show": "probe ID",
    "status": "probe ID, list",
    "update": "modify FILE",
    **{action: f"poa ID {action}" for action in ("console", "reboot", "rebuild", "start", "stop")},
}
"""What does here what a command of this name does elsewhere."""


class RootCommand(click.Group):
    """The top-level command: it imports commands when they run, and prints errors.

    :param lazy: module, below this package, and short help of each command, by its name.
    """

    def __init__(self, *, lazy: dict[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._lazy = lazy
        self._words: list[str] = []
        """Those of the command line."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line; tell of a stdout that cannot be written, of --help, too."""
        lost_output.stand_in()
        gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
        try:
            return super().main(*args, **settings)
        except OSError as error:
            if not lost_output.is_lost():
                raise
            lost_output.tell(error)
            sys.exit(FAILED)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the options that stand before the command; what is wrong is told to programs, too."""
        self._words = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            with suppress(OSError):  # click tells it on stderr
                _print_usage_error(error, Settings(), self._words)
            raise

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of the commands in the order of use."""
        return list(self._lazy)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return a command, importing its module, or None if there is no such command."""
        if name not in self._lazy:
            return None
        commands: tuple[click.Command, ...]
        commands = import_module(f"{__package__}.{self._lazy[name][0]}").COMMANDS
        return next(command for command in commands if command.name == name)

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; name the one that was meant if it is mistyped, or another tool's."""
        if words[0] in _ELSEWHERE and not context.resilient_parsing:
            context.fail(f"No such command {words[0]!r}. Here it is: {_ELSEWHERE[words[0]]}")
        close = [] if words[0] in self._lazy else get_close_matches(words[0], self._lazy, 1)
        if close and not context.resilient_parsing:
            context.fail(f"No such command {words[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(context, words)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in self._lazy.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, or an option, without importing the commands' modules."""
        named = [(name, short) for name, (_, short) in self._lazy.items()]
        commands = [CompletionItem(n, help=s) for n, s in named if n.startswith(incomplete)]
        return [*commands, *super(click.Group, self).shell_complete(context, incomplete)]

    def invoke(self, context: click.Context) -> Any:
        """Run the command; an exception that nothing foresees ends it with a sentence, and code 70."""
        try:
            return self._invoke(context)
        except Exception as error:
            if isinstance(error, OSError) and lost_output.is_lost():
                lost_output.end(context, error, done=PARTLY_DONE, not_done=FAILED)
            if _is_clicks(error):
                raise
            _tell_bug(error, context.ensure_object(Settings))
            context.exit(BUG)

    def _invoke(self, context: click.Context) -> Any:
        """Run the command; SIGTERM interrupts it as Ctrl-C does."""
        settings = context.ensure_object(Settings)
        try:
            with _sigterm_interrupts():
                return super().invoke(context)
        except FabricDirectError as error:
            code = BAD_INPUT if isinstance(error, Refused) else FAILED
            lost_output.expect(context, code)
            from fabric_direct.site.lines import with_line  # noqa: PLC0415 - see the package

            tell_error(with_line(error, settings.found_site()), settings)
            context.exit(code)
        except click.UsageError as error:
            lost_output.expect(context, BAD_INPUT)
            _print_usage_error(error, settings, self._words)
            raise
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            context.exit(INTERRUPTED)


def _is_clicks(error: Exception) -> bool:
    """Return whether click ends the command so; it also does if the reader of stdout has left."""
    left = isinstance(error, OSError) and error.errno == errno.EPIPE
    return left or isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort)


def _tell_bug(error: Exception, settings: Settings) -> None:
    """Print the class of an exception that nothing foresees; what it says may have a secret."""
    version = importlib.metadata.version("fabric-direct")
    shown = "below" if settings.verbose else "that --verbose shows"
    message = (
        f"unexpected {type(error).__name__}: this is a bug of fabric-direct {version}. "
        f"Please report it, with the traceback {shown}."
    )
    click.echo(f"Error: {message}", err=True)
    if settings.verbose:
        click.echo(printable("".join(traceback.format_exception(error))), err=True)
    if settings.as_json:
        print_json(error=_report(error, message))


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def named_by_arguments() -> Iterator[None]:
    """End the command as one with bad input if what an argument names is not there.

    Only for what changes nothing before it looks for that.
    """
    try:
        yield
    except NotFound as error:
        context = click.get_current_context()
        lost_output.expect(context, BAD_INPUT)
        tell_error(error, context.ensure_object(Settings))
        context.exit(BAD_INPUT)


def tell_error(error: FabricDirectError, settings: Settings) -> None:
    """Print an error to stderr, and for programs also as the document on stdout."""
    click.echo(f"Error: {printable(str(error))}", err=True)
    if settings.verbose and error.__cause__:
        cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
        click.echo(f"  came from {printable(cause)}", err=True)
    if hint := explained_by([type(error).__name__]):
        click.echo(hint, err=True)
    if settings.as_json:
        print_json(error=_report(error, str(error), error.field))


def explained_by(kinds: Iterable[str]) -> str:
    """Return the line that tells where classes of errors are explained, dim on a terminal.

    :param kinds: their names; those that are not ours have no page.
    """
    ours = [kind for kind in dict.fromkeys(kinds) if hasattr(errors, kind)]
    return click.style(f"explain: fabric-direct explain {' '.join(ours)}", dim=True) if ours else ""


def _report(error: Exception, message: str, field: str = "") -> dict[str, str]:
    return {"kind": type(error).__name__, "message": message, "field": field}


def print_json(
    result: Any = None,
    *,
    outcomes: "Sequence[Outcome]" = (),
    error: dict[str, str] | None = None,
    stream: bool = False,
) -> None:
    """Print the document of a command to stdout, in JSON or, if asked for, YAML.

    It is the same for all commands: :class:`fabric_direct.cli.envelope.Envelope`.

    :param result: of JSON's types.
    :param stream: whether it is one of many: a line of JSON, or a document of YAML.
    """
    settings = click.get_current_context().ensure_object(Settings)
    _print_document(settings.format, settings.command, result, outcomes, error, stream=stream)


def _print_document(
    format_: str,
    command: str,
    result: Any,
    outcomes: "Sequence[Outcome]",
    error: dict[str, str] | None,
    *,
    stream: bool = False,
) -> None:
    document = {
        "version": 1,
        "command": command,
        "outcomes": [outcome.model_dump(mode="json") for outcome in outcomes],
        "result": result,
        "error": error,
    }
    as_text = _yaml if format_ == "yaml" else _json
    click.echo(as_text(document, stream=stream))


def _print_usage_error(error: click.UsageError, settings: Settings, words: Sequence[str]) -> None:
    """Print what is wrong with a command line as the document, if that is asked for anywhere in it.

    What is wrong may stand before the option that asks.
    """
    format_ = settings.format if settings.as_json else _format_in(words)
    if format_:
        command = " ".join(_names(error.ctx)) if error.ctx else ""
        _print_document(format_, command, None, (), _report(error, error.format_message()))


def _format_in(words: Sequence[str]) -> str:
    """Return ``json`` or ``yaml`` if a command line that cannot be parsed asks for it."""
    for number, word in enumerate(words):
        if word == "--json":
            return "json"
        option, _, value = word.partition("=")
        if option in {"-f", "--format"}:
            value = value or next(iter(words[number + 1 :]), "")
        elif option.startswith("-f"):
            value = option[2:]
        if value in {"json", "yaml"} and option.startswith(("-f", "--format")):
            return value
    return ""


def _json(document: dict[str, Any], *, stream: bool) -> str:
    return json.dumps(document, indent=None if stream else 2, ensure_ascii=False)


def _yaml(document: dict[str, Any], *, stream: bool) -> str:
    import yaml  # noqa: PLC0415 - see the package

    plain = json.loads(_json(document, stream=stream))
    return yaml.safe_dump(
        plain, sort_keys=False, allow_unicode=True, explicit_start=stream
    ).rstrip()


def printable(text: str) -> str:
    """Escape control characters: guests and users can put them into what is printed."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def log_to_stderr(settings: Settings) -> None:
    """Log errors to stderr, or everything with ``--verbose``; as JSON if ``--log-format`` says so."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(settings.log_format))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("fabric_direct").setLevel(
        logging.DEBUG if settings.verbose else logging.ERROR
    )


def _formatter(log_format: str) -> logging.Formatter:
    if log_format != "json":
        return logging.Formatter("%(levelname)s %(name)s: %(message)s")
    from fabric_direct.cli.json_log import JsonFormatter  # noqa: PLC0415 - see the package

    return JsonFormatter()
