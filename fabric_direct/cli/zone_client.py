"""Reach a running zone: options for its address and token, and a client for one request."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fabric_direct.errors import Refused
from fabric_direct.site.extras import require

if TYPE_CHECKING:
    from fabric_direct.site.config import ChildZone
    from fabric_direct.zones.client import ZoneClient

T = TypeVar("T")

_FILE = click.Path(path_type=Path, dir_okay=False)


def zone_options(*, required: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that adds ``--zone``, ``--token-file`` and ``--ca-file``.

    The command gets them as one argument, ``at``: a :class:`ChildZone`, or None without ``--zone``.
    """

    def add(command: Callable[..., T]) -> Callable[..., T]:
        @wraps(command)
        def run(
            *args: Any,
            zone: str | None,
            token_file: Path | None,
            ca_file: Path | None,
            **kwargs: Any,
        ) -> T:
            at = _access(zone, token_file, ca_file) if zone else None
            return command(*args, at=at, **kwargs)

        ca = click.option("--ca-file", type=_FILE, help="CA certificates to trust, PEM.")
        token = click.option("--token-file", type=_FILE, help="File with the bearer token.")
        url = click.option("--zone", metavar="URL", required=required, help="The running zone.")
        return url(token(ca(run)))

    return add


def _access(url: str, token_file: Path | None, ca_file: Path | None) -> "ChildZone":
    """Return how to reach a zone.

    :raises Refused: if the address is not valid, or a package is missing.
    """
    require("zones")
    from pydantic import ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.site.config import ChildZone  # noqa: PLC0415

    try:
        return ChildZone(url=url, token_file=token_file, ca_file=ca_file)
    except ValidationError as error:
        raise Refused(
            f"{url!r} is not the address of a zone",
            remedy="give it as https://host:port",
            field="zone",
        ) from error


def with_zone(at: "ChildZone", ask: "Callable[[ZoneClient], Coroutine[Any, Any, T]]") -> T:
    """Return what ``ask`` returns, called with a client that is closed afterwards."""
    from fabric_direct.zones.client import ZoneClient  # noqa: PLC0415 - see the package

    async def run() -> T:
        client = ZoneClient(at.url, at)
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())
