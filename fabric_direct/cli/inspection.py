"""The commands that inspect the site: devices, bare-metal nodes, uplinks, doctor, schemas."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import completion, lost_output, show
from fabric_direct.cli.inputs import pci_address
from fabric_direct.cli.options import (
    BAD_INPUT,
    FAILED,
    Settings,
    log_to_stderr,
    named_by_arguments,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.cli.running import site_processor
from fabric_direct.cli.tables import Row, as_data, print_table, table_options
from fabric_direct.errors import InvalidSite

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.doctor import Diagnosis
    from fabric_direct.drivers.contract import BareMetalNode, HostDevice, NodePort
    from fabric_direct.model import PciAddress
    from fabric_direct.site.config import Site


class _Devices(click.Group):
    """A group whose first argument may be a host instead of a command."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Treat ``devices [HOST]...`` as ``devices list [HOST]...``."""
        if not {"-h", "--help"}.intersection(args) and not self.commands.keys() & args[:1]:
            args = ["list", *args]
        return super().parse_args(context, args)


_DEVICES_HELP = """
List the PCI devices of hosts that are allowed for passthrough, with state and owner.

\b
fabric-direct devices [HOST]... [--all] [--json]
fabric-direct devices release HOST ADDRESS [--force]

`fabric-direct devices list -h` names the filters, columns and formats.

States: free; used, by a sliver or another domain; host-used, by the host itself; unclean, if its last
tenant is gone and it has not been cleaned; lost, if its sliver's server is there and does not have it;
quarantined, if cleaning failed; not allowed by site.yaml.
"""


@click.group(
    cls=_Devices,
    help=_DEVICES_HELP,
    subcommand_metavar="[HOST]...",
)
def devices() -> None:
    """List the PCI devices of hosts, or release one."""


_DEVICE = (
    *("HOST", "PCI", "ID", "TYPE", "STATE", "OWNER", "DRIVER"),
    *("GROUP", "NUMA", "PART", "LINK", "UPLINK", "MODE", "LABEL", "WHY"),
)
TYPES = ("GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME")
DEVICE_STATES = (
    *("free", "used", "host-used", "unclean", "lost"),
    *("quarantined", "not allowed"),
)


@devices.command("list", short_help="List passthrough devices.")
@click.argument("hosts", metavar="[HOST]...", nargs=-1, shell_complete=completion.hosts)
@click.option("--all", "every", is_flag=True, help="Include devices that site.yaml does not allow.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(TYPES, case_sensitive=False),
    help="Only those of this type.",
)
@click.option("--state", type=click.Choice(DEVICE_STATES), help="Only those in this state.")
@table_options(_DEVICE)
@pass_settings
def list_devices(
    settings: Settings, hosts: tuple[str, ...], *, every: bool, kind: str | None, state: str | None
) -> None:
    """List the PCI devices of hosts that are allowed for passthrough, with state and owner."""
    with site_processor(settings) as processor, named_by_arguments():
        names = hosts or processor.site.hosts
        there = [(host, device) for host in names for device in processor.devices(host)]
    known = [(host, device) for host, device in there if every or device.type or device.owner]
    chosen = [
        (host, device)
        for host, device in known
        if kind in {None, device.type} and state in {None, device.state.value}
    ]
    print_table(
        settings,
        _DEVICE,
        (_device_row(*pair) for pair in chosen),
        data=[{"host": host, **as_data(device)} for host, device in chosen],
        nothing="No such devices." if known else _none(len(there)),
    )


def _device_row(host: str, device: "HostDevice") -> Row:
    function = device.function
    kind = f"{device.type or ''} {device.model or ''}".strip()
    return [
        *(host, str(device.address), f"{function.vendor}:{function.product}", kind),
        *(device.state.value, device.owner or "", function.driver or ""),
        *(_group(device), function.numa_node, _part(device), _link(device)),
        *(device.uplink or "", device.bridge_mode or "", function.label, device.why),
    ]


def _group(device: "HostDevice") -> str:
    """Return the IOMMU group and its other members: ``16 +06:00.1``."""
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


def _none(others: int) -> str:
    said = "site.yaml allows no devices for passthrough (hosts: devices)."
    return f"{said}\n{others} others exist: --all lists them." if others else said


@devices.command(short_help="Clean a device and release it.")
@click.argument("host", shell_complete=completion.hosts)
@click.argument("address", type=pci_address)
@click.option("--force", is_flag=True, help="Release it without cleaning, at your own risk.")
@shared_options
@pass_settings
def release(settings: Settings, host: str, address: "PciAddress", *, force: bool) -> None:
    """Clean a device that is unclean or quarantined, and release it.

    One that is lost is refused, also with --force: it is its sliver's. So is any device while the cloud,
    or a host, does not answer.
    """
    with site_processor(settings) as processor, named_by_arguments():
        processor.release(host, address, force=force)
    done = "free, without having been cleaned" if force else "clean and free"
    told = f"{address} of {host} is {done}."
    lost_output.note([told])
    if settings.as_json:
        print_json({"host": host, "address": str(address), "cleaned": not force})
        return
    show.say(show.console(), told)


_NODE = (
    *("NODE", "CONDITION", "STATE", "POWER", "TENANT", "CLASS", "CORES", "RAM", "DISK"),
    *("TRAITS", "PORTS", "ID", "WHY"),
)
NODE_CONDITIONS = (
    *("free", "reserved", "changing", "active", "failed", "cleaning"),
    *("quarantined", "withheld"),
)


@click.command()
@click.option(
    "--condition", type=click.Choice(NODE_CONDITIONS), help="Only those in this condition."
)
@table_options(_NODE)
@pass_settings
def nodes(settings: Settings, condition: str | None) -> None:
    """List the bare-metal nodes of the site: what they are, what they have, and who has them.

    Conditions: free; reserved by a sliver or by somebody else; changing, while it is deployed or taken
    away; active; failed, if what was last done to it failed; cleaning; quarantined, if it could not be
    cleaned, or is in maintenance before it is clean; withheld by its operator. STATE is Ironic's word,
    RAM and DISK are in GiB.
    """
    with site_processor(settings) as processor:
        known = processor.nodes()
        served = processor.site.driver_for("BareMetal")
    chosen = [node for node in known if condition in {None, node.condition.value}]
    none = "No such nodes." if known else "There are no nodes."
    print_table(
        settings,
        _NODE,
        map(_node_row, chosen),
        data=as_data(chosen),
        nothing=none if served else "site.yaml names no driver for them (drivers: BareMetal).",
    )


def _node_row(node: "BareMetalNode") -> Row:
    return [
        *(node.name, node.condition.value, node.state, node.power, node.tenant),
        *(node.resource_class, node.cores, node.ram and f"{node.ram / 1024:g}", node.disk),
        *(" ".join(node.traits), " ".join(map(_node_port, node.ports)), node.id, node.why),
    ]


def _node_port(port: "NodePort") -> str:
    return f"{port.mac} ({port.physical_network})" if port.physical_network else port.mac


@click.command()
@click.argument("host", shell_complete=completion.hosts)
@click.argument("link")
@click.option("--vepa", type=click.Choice(["on", "off"]), help="Set VEPA (on) or VEB (off).")
@shared_options
@pass_settings
def uplink(settings: Settings, host: str, link: str, vepa: str | None) -> None:
    """Show the bridge mode of an uplink: veb (switching in the NIC) or vepa (in the external switch).

    The mode set with --vepa lasts until it is changed; an uplink with "vepa: true" in site.yaml is set
    to vepa again at its next use.
    """
    requested = {"on": "vepa", "off": "veb", None: None}[vepa]
    with site_processor(settings) as processor, named_by_arguments():
        mode = processor.bridge_mode(host, link, requested)
    told = f"{link} of {host}: {mode}"
    if requested:
        lost_output.note([told])
    if settings.as_json:
        print_json({"host": host, "link": link, "mode": mode})
    else:
        show.say(show.console(), told)


@click.command()
@click.option(
    "--arm",
    type=click.Path(path_type=Path),
    help="Compare the allow-lists with FABRIC's resource model of the site (ARM): GraphML.",
)
@shared_options
@pass_settings
def doctor(settings: Settings, arm: Path | None) -> None:
    """Check the requirements of the site, and say how to fix what is wrong. Changes nothing.

    "fail" must be fixed before slivers can be created; "warn" may be slow or fail later. The exit code
    is 1 if a check fails, and 2 if site.yaml cannot be read or is invalid.
    """
    from fabric_direct.doctor import Verdict, examine  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    found, invalid = [], []

    def load() -> "Site":
        try:
            return settings.site()
        except InvalidSite as error:
            invalid.append(error)
            raise

    for diagnosis in examine(settings.found_site(), load, arm):
        found.append(diagnosis)
        if not settings.as_json:
            _tell(diagnosis, show.console())
    if settings.as_json:
        print_json([as_data(diagnosis) for diagnosis in found])
    if any(diagnosis.verdict is Verdict.FAIL for diagnosis in found):
        click.get_current_context().exit(BAD_INPUT if invalid else FAILED)


def _tell(diagnosis: "Diagnosis", out: "Console") -> None:
    from rich.text import Text  # noqa: PLC0415 - see the package

    verdict = diagnosis.verdict.value
    line = Text(f"{verdict:<4}", show.style_of(verdict))
    out.print(line.append(f"  {diagnosis.subject}: {diagnosis.found}", "default"), soft_wrap=True)
    if diagnosis.remedy:
        show.say(out, f"      -> {diagnosis.remedy}")


_DOCUMENTS = ("sliver", "service", "site", "request", "expected", "adoption", "outcome", "topology")


@click.command()
@click.argument("kind", type=click.Choice(_DOCUMENTS))
@shared_options
def schema(kind: str) -> None:
    """Print the JSON Schema of a VM (`sliver`), a network service, site.yaml, or another document.

    `outcome` is what commands print with --json, `topology` the result of the command of this name.

    Editors with the YAML language server use it if the first line of a file is
    "# yaml-language-server: $schema=sliver.json".
    """
    from fabric_direct.cli.envelope import Envelope  # noqa: PLC0415
    from fabric_direct.documents import json_schema  # noqa: PLC0415
    from fabric_direct.handlers.sliver_documents import any_node  # noqa: PLC0415
    from fabric_direct.model.adoption import Adoptions  # noqa: PLC0415 - see the package
    from fabric_direct.model.services import AnyService  # noqa: PLC0415
    from fabric_direct.placement.batch_request import BatchRequest  # noqa: PLC0415
    from fabric_direct.site.config import Site  # noqa: PLC0415
    from fabric_direct.topology import AnyTopology  # noqa: PLC0415
    from fabric_direct.upkeep.sweep.expected import ExpectedSlivers  # noqa: PLC0415

    models: dict[str, Any] = {
        "sliver": any_node(),
        "service": AnyService,
        "site": Site,
        "request": BatchRequest,
        "expected": ExpectedSlivers,
        "adoption": Adoptions,
        "outcome": Envelope,
        "topology": AnyTopology,
    }
    click.echo(json.dumps(json_schema(models[kind]), indent=2, ensure_ascii=False))


COMMANDS: tuple[click.Command, ...] = (devices, nodes, uplink, doctor, schema)
