"""The options of all commands, ``--site``, ``--json`` and ``--verbose``, and how errors are printed."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from fabric_direct.errors import FabricDirectError, Refused

if TYPE_CHECKING:
    from fabric_direct.config import Site

F = TypeVar("F", bound=Callable[..., Any])

FAILED, BAD_INPUT, PARTLY_DONE, INTERRUPTED = 1, 2, 3, 130
PLACES = (Path("site.yaml"), Path("/etc/fabric-direct/site.yaml"))


@dataclass
class Settings:
    """The options that all commands share."""

    site_path: Path | None = None
    as_json: bool = False
    verbose: bool = False

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
        from fabric_direct.config import Site, load_site  # noqa: PLC0415 - see the package

        path = self.found_site()
        return load_site(path) if path else Site(site="localhost")


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def shared_options(command: F) -> F:
    """Add the options that are valid before and after the command's name."""
    option = partial(click.option, expose_value=False, callback=_keep)
    path = click.Path(path_type=Path)
    verbose = option(
        "--verbose", "-v", is_flag=True, help="Show the log, and the causes of errors."
    )
    json_ = option("--json", "as_json", is_flag=True, help="Print one JSON document, nothing else.")
    site = option("--site", "site_path", type=path, help="The site's configuration, site.yaml.")
    return site(json_(verbose(command)))


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        setattr(context.ensure_object(Settings), str(parameter.name), value)


class Root(click.Group):
    """The top-level command: it imports commands when they run, and prints errors.

    :param lazy: module, below this package, and short help of each command, by its name.
    """

    def __init__(self, *, lazy: dict[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._lazy = lazy

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
        """Run the command; SIGTERM interrupts it as Ctrl-C does."""
        settings = context.ensure_object(Settings)
        try:
            with _sigterm_interrupts():
                return super().invoke(context)
        except FabricDirectError as error:
            tell_error(error, settings)
            context.exit(BAD_INPUT if isinstance(error, Refused) else FAILED)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            context.exit(INTERRUPTED)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell_error(error: FabricDirectError, settings: Settings) -> None:
    """Print an error to stderr, and with ``--json`` also as the JSON document on stdout."""
    click.echo(f"Error: {printable(str(error))}", err=True)
    if settings.verbose and error.__cause__:
        cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
        click.echo(f"  came from {printable(cause)}", err=True)
    if settings.as_json:
        report = {"kind": type(error).__name__, "message": str(error), "field": error.field}
        print_json({"error": report})


def print_json(value: Any) -> None:
    """Print a JSON document to stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """Escape control characters: guests and users can put them into what is printed."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def log_to_stderr(settings: Settings) -> None:
    """Log errors to stderr, or everything with ``--verbose``."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("fabric_direct").setLevel(
        logging.DEBUG if settings.verbose else logging.ERROR
    )
