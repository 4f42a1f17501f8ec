"""The command that lists the slivers of the site: VMs, network services, ports in servers."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fabric_direct.cli import completion, inputs, show
from fabric_direct.cli.options import FAILED, Settings, named_by_arguments, pass_settings
from fabric_direct.cli.running import site_processor
from fabric_direct.cli.tables import Cell, as_data, print_table, table_options

if TYPE_CHECKING:
    from fabric_direct.drivers.contract import Server
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.upkeep.device_owners import Lacks
    from fabric_direct.upkeep.services import SitePorts, SiteServices

_COLUMNS = (
    *("SLIVER", "TYPE", "NAME", "STATE", "HOST", "INSTANCE"),
    *("CORES", "MIB", "NICS", "VOLUMES", "LACKS"),
)
STATES = ("running", "stopped", "paused", "error")


class _Listed(NamedTuple):
    """A sliver of the list: its first columns, the others, and what programs get."""

    sliver: str
    type: str
    name: str
    state: str
    host: str
    instance: str
    sizes: tuple[Cell, ...]
    data: dict[str, Any]


@click.command("list")
@click.option(
    "--type",
    "kinds",
    metavar="TYPE",
    multiple=True,
    callback=inputs.known_types,
    help="Only those of this resource type; may be repeated.",
)
@click.option(
    "--host", shell_complete=completion.hosts, help="Only those on this host, or bare-metal node."
)
@click.option("--name", metavar="PATTERN", help="Only those with such a name: web-*.")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only those in this state; may be repeated.",
)
@table_options(_COLUMNS)
@pass_settings
def list_(
    settings: Settings,
    kinds: tuple[str, ...],
    host: str | None,
    name: str | None,
    states: tuple[str, ...],
) -> None:
    """List the slivers of the site, found by their stamps: VMs, network services, ports in servers.

    A network service of which a part is missing is in the state "error", and so is a VM that has ports
    and no server, as one whose creation or deletion has not ended. LACKS names the devices that a
    server should have, by its stamp, and does not have: a hard reboot by Nova takes them away. Only
    hosts with such servers are asked for their devices. The exit code is 1 if not all that is asked for
    can be listed.
    """
    with site_processor(settings) as processor:
        if host is not None and not (processor.in_cloud or _is_node(processor, host)):
            with named_by_arguments():
                processor.site.host(host)
        servers, services = processor.slivers(), processor.services(*kinds)
        lacks = processor.lacking([s for s in servers if host in {None, s.host}])
        ports = processor.port_slivers()
    found = sorted((*_servers(servers, lacks), *_services(services), *map(_ports, ports)))
    asked = [
        each
        for each in found
        if (not kinds or each.type in kinds)
        and host in {None, each.host}
        and (not states or each.state in states)
        and fnmatchcase(each.name, name or "*")
    ]
    for warning in _warnings(lacks, services):
        show.say(show.console(stderr=True), f"warning: {warning}", "yellow")
    rows = ((*each[:6], *each.sizes) for each in asked)
    data = [each.data for each in asked]
    nothing = "No such slivers." if found else "No slivers."
    print_table(settings, _COLUMNS, rows, data=data, nothing=nothing)
    if services.silent:
        click.get_current_context().exit(FAILED)


def _is_node(processor: "HandlerProcessor", host: str) -> bool:
    """Return whether it is a bare-metal node, which the column HOST shows, too."""
    return host not in processor.site.hosts and host in {n.name for n in processor.nodes()}


def _warnings(lacks: "Lacks", services: "SiteServices") -> Iterator[str]:
    for host, error in lacks.unknown.items():
        yield f"whether servers on {host} lack devices is not known: {error}"
    for types, error in services.silent.items():
        yield f"network services of {types} cannot be listed: {error}"


def _servers(servers: "Iterable[Server]", lacks: "Lacks") -> Iterator[_Listed]:
    for server in servers:
        stamped, found = server.stamp.sliver, lacks.of(server)
        lacking = "?" if found is None else ", ".join(f"{f.component} {f.address}" for f in found)
        parts = len(server.ports), len(server.volumes)
        yield _Listed(
            *(server.sliver, stamped.type, stamped.name, server.state.value),
            *(server.host, server.instance),
            (server.cores, server.ram, *parts, lacking),
            {
                **as_data(server),
                "type": stamped.type,
                "lacks": None if found is None else [*map(as_data, found)],
            },
        )


def _services(services: "SiteServices") -> Iterator[_Listed]:
    for ref, service in ((each.ref, each.service) for each in services.found):
        state, name = (service.state.value, service.name) if service else ("error", "")
        host, instance = (service.host or "", service.source) if service else ("", "")
        data = as_data(service) if service else {}
        yield _Listed(
            *(ref.id, ref.type, name, state, host, instance),
            (None, None, len(service.interfaces) if service else None, None, ""),
            {**data, "sliver": ref.id, "type": ref.type, "state": state},
        )


def _ports(ports: "SitePorts") -> _Listed:
    ref, seen = ports.ref, ports.observed
    state, host, network = seen.state.value, seen.host or "", seen.instance or ""
    return _Listed(
        *(ref.id, ref.type, "", state, host, network),
        (None, None, len(seen.interfaces), None, ""),
        {**seen.model_dump(mode="json"), "sliver": ref.id, "type": ref.type},
    )


COMMANDS: tuple[click.Command, ...] = (list_,)
