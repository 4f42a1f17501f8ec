"""The command that shows the site to browsers."""

import os
import sys
from pathlib import Path

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import (
    Settings,
    log_to_stderr,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.site.extras import require

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--listen", default="127.0.0.1:8760", show_default=True, metavar="ADDRESS:PORT")
@click.option("--token-file", type=_FILE, help="File with the tokens, one on each line.")
@click.option("--certificate", type=_FILE, help="Certificate with the chain of its issuers, PEM.")
@click.option("--key", type=_FILE, help="Its private key, PEM.")
@click.option(
    "--every",
    type=click.FloatRange(min=1, max=3600),
    default=5.0,
    show_default=True,
    help="Read the site at most once in so many seconds.",
)
@shared_options
@pass_settings
def page(
    settings: Settings,
    listen: str,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    every: float,
) -> None:
    """Show the site to browsers, until SIGTERM or SIGINT: hosts, slivers, devices, what is under way.

    Nothing can be changed there. It listens on loopback; other addresses need --certificate and --key.
    Who gives the token is let in. It is read from --token-file, from $FABRIC_DIRECT_PAGE_TOKEN, or else
    from a file below state_dir that is made with a token of its own.
    """
    require("page")
    from fabric_direct.page.server import Listening, PageServer  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    site = settings.site()
    at = Listening(_checked(listen), token_file, certificate, key)
    own = token_file is None and not os.environ.get("FABRIC_DIRECT_PAGE_TOKEN")
    PageServer(site, at, every).run(lambda url: _tell_started(settings, url, own=own))
    # A thread that waits for a silent host holds nothing that has to be finished.
    sys.stdout.flush()
    os._exit(0)


def _checked(listen: str) -> str:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.site.config import ListenAddress  # noqa: PLC0415

    try:
        return TypeAdapter(ListenAddress).validate_python(listen)
    except ValidationError:
        raise click.BadParameter("must be ADDRESS:PORT", param_hint="--listen") from None


def _tell_started(settings: Settings, url: str, *, own: bool) -> None:
    from fabric_direct.page.sessions import token_path  # noqa: PLC0415 - see the package

    site = settings.site()
    where = str(token_path(site.state_dir)) if own else None
    if settings.as_json:
        print_json({"site": site.site, "url": url, "token_file": where})
        return
    token = f" Its token is in {where}." if where else ""
    show.say(show.console(), f"The page of {site.site} is at {url}.{token}")


COMMANDS: tuple[click.Command, ...] = (page,)
