"""The command that draws hosts, slivers and sites."""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from fabric_direct.cli import completion, show
from fabric_direct.cli.options import (
    Settings,
    named_by_arguments,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.cli.running import site_processor
from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.topology import Topology

_STDOUT = Path("-")


def _svg_file(
    _context: click.Context, _parameter: click.Parameter, path: Path | None
) -> Path | None:
    if path is not None and path != _STDOUT and path.suffix != ".svg":
        raise click.BadParameter(f"{path} must end in .svg, or be - for stdout")
    return path


def _names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    complete = (completion.hosts, completion.ids)
    return [*chain.from_iterable(each(context, parameter, incomplete) for each in complete)]


_HELP = """
Draw a host, slivers, or the whole site, as SVG.

\b
HOST       its PCI functions by NUMA node and bus, PFs with their VFs, IOMMU groups, owners
SLIVER...  VMs with NICs, devices and volumes; network services with their ends
nothing    all hosts with their VMs, and the networks between them

Browsers show and print it. With --json or -f yaml, what would be drawn is printed as values.
A host that does not answer is shown as such. A name that is a host's and a sliver's is the host's.
"""


@click.command(help=_HELP)
@click.argument("names", metavar="[HOST|SLIVER]...", nargs=-1, shell_complete=_names)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    callback=_svg_file,
    help="Write the picture to this .svg file; - is stdout, the default unless it is a terminal.",
)
@shared_options
@pass_settings
def topology(settings: Settings, names: tuple[str, ...], out: Path | None) -> None:
    """Draw a host, slivers, or the whole site, as SVG."""
    _refuse_terminal(settings, out)
    with site_processor(settings) as processor, named_by_arguments():
        found = _found(processor, names)
    for silent, error in _silent(found):
        warning = f"warning: {silent} does not answer: {error}"
        show.say(show.console(stderr=True), warning, "yellow")
    if settings.as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _draw(found, out)


def _refuse_terminal(settings: Settings, out: Path | None) -> None:
    """Raise UsageError unless it is known where to write."""
    if settings.as_json and out is not None:
        raise click.UsageError("-o writes a picture: leave it out, or the format")
    if not settings.as_json and out in {None, _STDOUT} and sys.stdout.isatty():
        raise click.UsageError("a picture cannot be shown on a terminal: name a file, -o out.svg")


def _found(processor: "HandlerProcessor", names: tuple[str, ...]) -> "Topology":
    from fabric_direct.topology import (  # noqa: PLC0415 - see the package
        host_topology,
        site_topology,
        sliver_topology,
    )

    hosts = [name for name in names if name in processor.site.hosts]
    if hosts and len(names) > 1:
        raise click.UsageError(f"{hosts[0]} is a host: each host has its own picture")
    if hosts:
        return host_topology(processor, hosts[0])
    return sliver_topology(processor, names) if names else site_topology(processor)


def _silent(found: "Topology") -> Iterator[tuple[str, str]]:
    """Yield what did not answer, and why."""
    if found.kind == "host":
        yield from [(found.host, found.silent)] if found.silent else []
        return
    yield from found.silent.items()
    if found.kind == "site":
        yield from ((host.name, host.silent) for host in found.hosts if host.silent)


def _draw(found: "Topology", out: Path | None) -> None:
    from fabric_direct.topology import svg  # noqa: PLC0415 - see the package

    picture = svg(found)
    if out is None or out == _STDOUT:
        click.echo(picture, nl=False)
        return
    try:
        out.write_text(picture, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise Refused(f"{out} cannot be written", why=why, field="out") from error
    show.say(show.console(), f"Drawn: {out}")


COMMANDS: tuple[click.Command, ...] = (topology,)
