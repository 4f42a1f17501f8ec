"""The commands that look at the site: what there is, and whether all is in order."""

from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import (
    FAILED,
    Settings,
    log_to_stderr,
    pass_settings,
    print_json,
    shared_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.doctor import Diagnosis
    from fabric_direct.drivers.base import HostDevice, Server


@click.command("list", short_help="List the slivers that are there.")
@shared_options
@pass_settings
def list_(settings: Settings) -> None:
    """List the slivers that are there, on all hosts of the site, by their stamps."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    with HandlerProcessor(settings.site()) as processor:
        servers = processor.slivers()
    if settings.as_json:
        print_json([_as_data(server) for server in servers])
    elif servers:
        show.table(show.console(), _SERVER, map(_server_row, servers))
    else:
        show.say(show.console(), "No slivers.")


_SERVER = ("SLIVER", "NAME", "STATE", "HOST", "INSTANCE", "CORES", "MIB", "NICS", "VOLUMES")


def _server_row(server: "Server") -> list[str]:
    sizes = (server.cores, server.ram, len(server.ports), len(server.volumes))
    name, state = server.stamp.sliver.name, server.state.value
    return [server.sliver, name, state, server.host, server.instance, *map(str, sizes)]


@click.command(short_help="List devices for passing through.")
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Also those that the site does not allow.")
@shared_options
@pass_settings
def devices(settings: Settings, hosts: tuple[str, ...], *, every: bool) -> None:
    """List the PCI devices of hosts that may be passed through, and who has them."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    site = settings.site()
    with HandlerProcessor(site) as processor:
        there = [(host, d) for host in hosts or site.hosts for d in processor.devices(host)]
    chosen = [(host, device) for host, device in there if every or device.allowed]
    if settings.as_json:
        print_json([{"host": host, **_as_data(device)} for host, device in chosen])
    elif chosen:
        show.table(show.console(), _DEVICE, (_device_row(*pair) for pair in chosen))
    else:
        _say_none(len(there), show.console())


_DEVICE = ("HOST", "PCI", "ID", "TYPE", "OWNER", "DRIVER", "IOMMU", "NUMA", "LABEL")


def _device_row(host: str, device: "HostDevice") -> list[str]:
    numbers = ["" if n is None else str(n) for n in (device.iommu_group, device.numa_node)]
    kind = device.type or ("" if device.allowed else "not allowed")
    ids = [str(device.address), f"{device.vendor}:{device.product}"]
    return [host, *ids, kind, device.owner or "", device.driver or "", *numbers, device.label]


def _say_none(others: int, out: "Console") -> None:
    show.say(
        out, "No devices that the site allows to be passed through (hosts: devices: in site.yaml)."
    )
    if others:
        show.say(out, f"{others} others are there: --all lists them.")


@click.command(short_help="Check what is needed; how to mend it.")
@shared_options
@pass_settings
def doctor(settings: Settings) -> None:
    """Check what is needed, and say how to mend what is not right. Changes nothing.

    "fail" must be mended before slivers can be made; "warn" is slower, or fails later. Exit code 1 if
    anything fails.
    """
    from fabric_direct.doctor import Verdict, examine  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    found = []
    for diagnosis in examine(settings.found_site(), settings.site):
        found.append(diagnosis)
        if not settings.as_json:
            _tell(diagnosis, show.console())
    if settings.as_json:
        print_json([_as_data(diagnosis) for diagnosis in found])
    if any(diagnosis.verdict is Verdict.FAIL for diagnosis in found):
        click.get_current_context().exit(FAILED)


def _tell(diagnosis: "Diagnosis", out: "Console") -> None:
    from rich.text import Text  # noqa: PLC0415 - see the package

    verdict = diagnosis.verdict.value
    line = Text(f"{verdict:<4}", show.style_of(verdict))
    out.print(line.append(f"  {diagnosis.subject}: {diagnosis.found}", "default"), soft_wrap=True)
    if diagnosis.remedy:
        show.say(out, f"      -> {diagnosis.remedy}")


@click.command(short_help="Print the JSON Schema of a file.")
@click.argument("kind", type=click.Choice(["sliver", "site"]))
@shared_options
def schema(kind: str) -> None:
    """Print the JSON Schema of a sliver's file or of site.yaml, for editors.

    An editor with the YAML language server takes it from the file's first line:
    "# yaml-language-server: $schema=sliver.json".
    """
    from fabric_direct.config import Site  # noqa: PLC0415 - see the package
    from fabric_direct.documents import json_schema  # noqa: PLC0415
    from fabric_direct.model import NodeSliver  # noqa: PLC0415

    print_json(json_schema(NodeSliver if kind == "sliver" else Site))


def _as_data(value: Any) -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415 - see the package

    return TypeAdapter(type(value)).dump_python(value, mode="json")


COMMANDS: tuple[click.Command, ...] = (list_, devices, doctor, schema)
