"""``--metrics``: what a command that runs for long offers to Prometheus, at an address of its own."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fabric_direct.calls import forks, metrics
from fabric_direct.cli.options import Settings
from fabric_direct.errors import Refused
from fabric_direct.site.extras import require

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

F = TypeVar("F", bound=Callable[..., Any])
Address = tuple[str, int]
_OPTION = "--metrics"
_ADDRESS = re.compile(r"(?:(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):)?(\d{1,5})")
_NEAR = "127.0.0.1"


def _address(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    found = _ADDRESS.fullmatch(value)
    if not found or int(found[2]) > 65535:
        raise click.BadParameter(f"{value!r} is not ADDRESS:PORT; {_NEAR}:9464 is one")
    return (found[1] or _NEAR).strip("[]"), int(found[2])


def metrics_option(command: F) -> F:
    """Add the option, as ``metrics_at``."""
    said = f"Offer metrics to Prometheus at that port, of {_NEAR} unless an address is given."
    return click.option(
        _OPTION, "metrics_at", callback=_address, metavar="[ADDRESS:]PORT", help=said
    )(command)


@contextmanager
def served(at: Address | None, settings: Settings) -> Iterator[None]:
    """Offer the metrics of this process over HTTP during the block; do nothing without an address.

    A forked child has no part in it.

    :param at: where to listen; port 0 lets the system choose one.
    :raises Refused: if a package is missing, the address cannot be bound, or the process has a provider
        of metrics already.
    """
    if at is None:
        yield
        return
    require("metrics")
    _refuse_second()
    server = _listening(at)
    forks.in_child(server.socket.close)
    try:
        _provide(settings.site().site)
        click.echo(f"Metrics are at {_url(server)}.", err=True)
        yield
    finally:
        server.shutdown()
        server.server_close()


def _refuse_second() -> None:
    from opentelemetry.metrics import get_meter_provider  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415

    if isinstance(get_meter_provider(), MeterProvider):
        raise Refused(
            "this process has a provider of metrics already",
            remedy="leave it out; OTEL_METRICS_EXPORTER=prometheus lets opentelemetry-instrument serve",
            field=_OPTION,
        )


def _listening(at: Address) -> "WSGIServer":
    from prometheus_client import start_http_server  # noqa: PLC0415 - an extra

    host, port = at
    try:
        server, _ = start_http_server(port, host)
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        why = error.strerror or str(error)
        remedy = "give an address of this machine, and a port that is free"
        raise Refused(
            f"cannot offer metrics at {where}", why=why, remedy=remedy, field=_OPTION
        ) from error
    return server


def _url(server: "WSGIServer") -> str:
    host, port = server.server_address[:2]
    return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"


def _provide(site: str) -> None:
    """Set up the provider of this process, which what is collected at the address comes from."""
    from opentelemetry import metrics as api  # noqa: PLC0415 - an extra
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    about = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME", "fabric-direct"),
        "service.version": version("fabric-direct"),
        "fabric_direct.site": site,
    }
    reader = PrometheusMetricReader(scope_info_enabled=False)
    api.set_meter_provider(MeterProvider([reader], Resource.create(about)))
    metrics.wanted()
