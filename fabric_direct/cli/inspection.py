"""The commands that look at the site: what there is, and whether all is in order."""

from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import show
from fabric_direct.cli.inputs import pci_address
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
    from fabric_direct.drivers.contract import HostDevice, Server
    from fabric_direct.model import PciAddress


@click.command("list")
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


class _Devices(click.Group):
    """A group whose first word may be a host: then the devices are listed."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Read ``devices [HOST]...`` as ``devices list [HOST]...``."""
        if not {"-h", "--help"}.intersection(args) and not self.commands.keys() & args[:1]:
            args = ["list", *args]
        return super().parse_args(context, args)


_DEVICES_HELP = """
List the PCI devices of hosts that may be passed through, in what state, and who has them.

\b
fabric-direct devices [HOST]... [--all] [--json]
fabric-direct devices release HOST ADDRESS [--force]

States: free; used by a sliver or another domain; host-used, by the host itself; unclean, if its last
tenant is gone and it was not cleaned; quarantined, if it could not be; not allowed by site.yaml.
"""


@click.group(
    cls=_Devices,
    help=_DEVICES_HELP,
    subcommand_metavar="[HOST]...",
)
def devices() -> None:
    """List the PCI devices of hosts, or set one free."""


@devices.command("list", short_help="List devices for passing through.")
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Also those that the site does not allow.")
@shared_options
@pass_settings
def list_devices(settings: Settings, hosts: tuple[str, ...], *, every: bool) -> None:
    """List the PCI devices of hosts that may be passed through, in what state, and who has them."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    site = settings.site()
    with HandlerProcessor(site) as processor:
        there = [(host, d) for host in hosts or site.hosts for d in processor.devices(host)]
    chosen = [(host, device) for host, device in there if every or device.type or device.owner]
    if settings.as_json:
        print_json([{"host": host, **_as_data(device)} for host, device in chosen])
    elif chosen:
        show.table(show.console(), _DEVICE, (_device_row(*pair) for pair in chosen))
    else:
        _say_none(len(there), show.console())


_DEVICE = (
    *("HOST", "PCI", "ID", "TYPE", "STATE", "OWNER", "DRIVER"),
    *("GROUP", "NUMA", "PART", "LINK", "UPLINK", "MODE", "LABEL", "WHY"),
)


def _device_row(host: str, device: "HostDevice") -> list[str]:
    function = device.function
    kind = f"{device.type or ''} {device.model or ''}".strip()
    numa = "" if function.numa_node is None else str(function.numa_node)
    return [
        *(host, str(device.address), f"{function.vendor}:{function.product}", kind),
        *(device.state.value, device.owner or "", function.driver or ""),
        *(_group(device), numa, _part(device), _link(device)),
        *(device.uplink or "", device.bridge_mode or "", function.label, device.why),
    ]


def _group(device: "HostDevice") -> str:
    """Return the IOMMU group, and who is in it, too: ``16 +06:00.1``."""
    if device.function.iommu_group is None:
        return ""
    peers = "".join(f" +{str(peer).removeprefix('0000:')}" for peer in device.peers)
    return f"{device.function.iommu_group}{peers}"


def _part(device: "HostDevice") -> str:
    function = device.function
    if function.physical:
        return f"VF {function.vf} of {str(function.physical).removeprefix('0000:')}"
    return f"PF, {len(function.virtual)} VFs" if function.virtual else ""


def _link(device: "HostDevice") -> str:
    links = ",".join(device.function.links)
    up = device.function.link_up
    return links if up is None or not links else f"{links} {'up' if up else 'down'}"


def _say_none(others: int, out: "Console") -> None:
    show.say(
        out, "No devices that the site allows to be passed through (hosts: devices: in site.yaml)."
    )
    if others:
        show.say(out, f"{others} others are there: --all lists them.")


@devices.command(short_help="Clean a device again; set it free.")
@click.argument("host")
@click.argument("address", type=pci_address)
@click.option("--force", is_flag=True, help="Do not clean it: you answer for it.")
@shared_options
@pass_settings
def release(settings: Settings, host: str, address: "PciAddress", *, force: bool) -> None:
    """Clean a device that was not, or could not be, cleaned after its last use, and set it free."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    with HandlerProcessor(settings.site()) as processor:
        processor.release(host, address, force=force)
    if settings.as_json:
        print_json({"host": host, "address": str(address), "cleaned": not force})
        return
    done = "free, without having been cleaned" if force else "clean and free"
    show.say(show.console(), f"{address} of {host} is {done}.")


@click.command()
@click.argument("host")
@click.argument("link")
@click.option("--vepa", type=click.Choice(["on", "off"]), help="Leave the switching to the switch.")
@shared_options
@pass_settings
def uplink(settings: Settings, host: str, link: str, vepa: str | None) -> None:
    """Show the bridge mode of an uplink: veb, its own switch, or vepa, the switch behind it.

    What --vepa sets holds until somebody sets it otherwise: an uplink with "vepa: true" in site.yaml is
    set to it at its next use.
    """
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    wanted = {"on": "vepa", "off": "veb", None: None}[vepa]
    with HandlerProcessor(settings.site()) as processor:
        mode = processor.bridge_mode(host, link, wanted)
    if settings.as_json:
        print_json({"host": host, "link": link, "mode": mode})
    else:
        show.say(show.console(), f"{link} of {host}: {mode}")


@click.command()
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


@click.command()
@click.argument("kind", type=click.Choice(["sliver", "site", "request"]))
@shared_options
def schema(kind: str) -> None:
    """Print the JSON Schema of a sliver's file, of site.yaml, or of a request for `place`, for editors.

    An editor with the YAML language server takes it from the file's first line:
    "# yaml-language-server: $schema=sliver.json".
    """
    from fabric_direct.config import Site  # noqa: PLC0415 - see the package
    from fabric_direct.documents import json_schema  # noqa: PLC0415
    from fabric_direct.model import NodeSliver  # noqa: PLC0415
    from fabric_direct.placement.batch_request import BatchRequest  # noqa: PLC0415

    models: dict[str, Any] = {"sliver": NodeSliver, "site": Site, "request": BatchRequest}
    print_json(json_schema(models[kind]))


def _as_data(value: Any) -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415 - see the package

    return TypeAdapter(type(value)).dump_python(value, mode="json")


COMMANDS: tuple[click.Command, ...] = (list_, devices, uplink, doctor, schema)
