"""Completion in shells: slivers, hosts, actions, files. What cannot be found out is left out."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from fabric_direct.cli.options import Settings

if TYPE_CHECKING:
    from fabric_direct.site.config import Site

_LIMIT = 2.0
"""Seconds that a call of the site may take: somebody waits at the keyboard."""


def files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def files_or_ids(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the slivers of the site, and the documents of the directory that one is in."""
    from fabric_direct.cli.sources import ENDINGS  # noqa: PLC0415 - see the package

    documents: list[str] = []
    with _quiet():
        documents += sorted(path.name for path in Path().iterdir() if path.suffix in ENDINGS)
    found = [*ids(context, parameter, incomplete), *_matching(documents, incomplete)]
    return found or files(context, parameter, incomplete)


def ids(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the slivers of the site, with their names: VMs that are there, and those remembered."""
    known: dict[str, str] = {}
    with _quiet():
        site = _settings(context).site()
        known |= dict.fromkeys(_remembered(site), "")
        known |= _there(site)
    found = sorted((i, name) for i, name in known.items() if i.startswith(incomplete))
    return [CompletionItem(i, help=name) for i, name in found]


def hosts(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the hosts of site.yaml."""
    known: list[str] = []
    with _quiet():
        known.extend(_settings(context).site().hosts)
    return _matching(known, incomplete)


def actions(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the operational actions."""
    from fabric_direct.handlers.vm.actions import NAMES  # noqa: PLC0415 - see the package

    return _matching(NAMES, incomplete)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep errors and the log to itself: they would be in the midst of the command line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with suppress(Exception):
            yield
    finally:
        logging.disable(before)


def _there(site: "Site") -> dict[str, str]:
    """Return the names of the site's VMs by id.

    :raises FabricDirectError: if not all hosts answer.
    """
    from fabric_direct.cli.running import kept_login  # noqa: PLC0415 - see the package
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - likewise

    limits = site.limits.model_copy(update={"call": _LIMIT})
    limited = site.model_copy(update={"limits": limits})
    with kept_login(site), HandlerProcessor(limited) as processor:
        return {server.sliver: server.stamp.sliver.name for server in processor.slivers()}


def _remembered(site: "Site") -> Iterable[str]:
    """Return the slivers that this machine knows of: placed ones, services, unfinished ones."""
    from fabric_direct.placement.claims import Claims  # noqa: PLC0415
    from fabric_direct.state.journal import Journal  # noqa: PLC0415 - see the package
    from fabric_direct.state.service_claims import ServiceClaims  # noqa: PLC0415
    from fabric_direct.state.site_store import store_of  # noqa: PLC0415

    store = store_of(site)
    yield from Claims(store, lifetime=0, timeout=_LIMIT).homes()
    yield from ServiceClaims(site).slivers()
    yield from (str(entry.sliver["id"]) for entry in Journal(store).unfinished())


def _settings(context: click.Context) -> Settings:
    return context.ensure_object(Settings)


def _matching(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]
