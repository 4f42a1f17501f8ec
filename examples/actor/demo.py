"""Two VMs at once for the FABRIC AM actor: by fabric_cf's own processor, then by ours; timed.

Run by ``make demo-actor``, which installs fabric_cf and builds what this needs. Real are fabric_cf's
processor with its process pool, its loader of configurations, its units with FIM's slivers, the handler,
libvirt and the guests. The actor is stood in for by what is told of ends.
"""

import json
import queue
import time
from collections.abc import Callable
from functools import partial
from logging import Logger
from pathlib import Path
from typing import Any

import click
from fabric_cf.actor.core.container.globals import Globals, GlobalsSingleton
from fabric_cf.actor.core.core.unit import Unit
from fabric_cf.actor.core.plugins.handlers.ansible_handler_processor import AnsibleHandlerProcessor
from fabric_cf.actor.core.plugins.handlers.handler_processor import HandlerProcessor
from fabric_cf.actor.core.util.id import ID
from fabric_cf.actor.core.util.resource_type import ResourceType
from fim.slivers.capacities_labels import Capacities, CapacityHints, Labels
from fim.slivers.network_node import NodeSliver, NodeType

from fabric_direct import HandlerProcessor as SliverProcessor
from fabric_direct import load_site
from fabric_direct.actor import DirectHandlerProcessor

CONFIG = Path(__file__).with_name("config.yaml")
SITE = Path(__file__).with_name("site.yaml")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIVx5rgcm7wGOyXTRpevUXzR1Bfd+zzFPciwGqeYA4XL someone"
RESERVATIONS = {
    "node1": "5f0c2a52-7a5e-4c5b-9a44-0d4a3c1f7a01",
    "node2": "5f0c2a52-7a5e-4c5b-9a44-0d4a3c1f7a02",
}
LIMIT = 300.0  # seconds until a unit's end is given up
Seconds = dict[str, float]


class Actor:
    """Stands in for the actor's plugin: is told of ends, and has no database."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger
        self.ends: queue.Queue[tuple[Unit, dict[str, Any]]] = queue.Queue()

    def configuration_complete(self, *, token: Unit, properties: dict[str, Any]) -> None:
        """Note an end."""
        self.ends.put((token, properties))

    def get_logger(self) -> Logger:
        """Return the log of the configuration."""
        return self.logger

    def get_database(self) -> "Actor":
        """Return what knows no handlers but those of the configuration."""
        return self

    def get_config_mappings(self) -> list[Any]:
        """Return the handlers of an earlier run."""
        return []

    def add_config_mapping(self, *, key: str, config_mapping: Any) -> None:
        """Forget a handler's name."""


def unit(name: str) -> Unit:
    """Make the actor's record of a VM, with the sliver as the control framework describes it."""
    sliver = NodeSliver()
    sliver.set_properties(
        name=name,
        type=NodeType.VM,
        site="EXAMPLE",
        image_type="qcow2",
        image_ref="fabric-guest",
        capacity_allocations=Capacities(core=1, ram=1, disk=1),
        capacity_hints=CapacityHints(instance_type="fabric.c1.m1.d1"),
        label_allocations=Labels(instance_parent="localhost"),
    )
    properties = {"user.ssh.key": KEY, "project_id": "demo"}
    vm = ResourceType(resource_type=NodeType.VM.name)
    return Unit(rid=ID(uid=RESERVATIONS[name]), sliver=sliver, properties=properties, rtype=vm)


def load() -> Globals:
    """Load the actor's configuration and log as its main program does."""
    everything = GlobalsSingleton.get()
    everything.config_file = str(CONFIG)
    everything.load_config()
    everything.log = everything.make_logger()
    everything.initialized = True
    return everything


def run(
    what: str, operation: Callable[..., None], units: list[Unit], actor: Actor
) -> tuple[float, list[dict[str, Any]]]:
    """Ask for an operation on all units at once; return the seconds until the last end, and results."""
    began = time.monotonic()
    for each in units:
        operation(unit=each)
    results = []
    for _ in units:
        told, result = actor.ends.get(timeout=LIMIT)
        took = time.monotonic() - began
        click.echo(f"{took:6.1f} s  {what} {told.get_sliver().get_name()}: {result['target.code']}")
        if result["target.code"]:
            raise SystemExit(result["exception.message"])
        results.append(result)
    return took, results


def show(units: list[Unit]) -> None:
    """Show what came back into FIM's slivers."""
    for sliver in (each.get_sliver() for each in units):
        labels = sliver.label_allocations
        click.echo(f"          {sliver.get_name()}: management_ip {sliver.management_ip}")
        click.echo(f"                 label_allocations.instance {labels.instance}")
        click.echo(f"                 label_allocations.instance_parent {labels.instance_parent}")


def life(processor: HandlerProcessor, everything: Globals) -> Seconds:
    """Take two VMs through create, an action, and delete."""
    actor = Actor(everything.get_logger())
    processor.set_plugin(plugin=actor)
    processor.initialize(config=everything.get_config().get_actor_config())
    processor.start()
    units = [unit(name) for name in RESERVATIONS]
    seconds = {}
    seconds["create"], _ = run("create", processor.create, units, actor)
    show(units)
    asked = partial(processor.poa, data={"operation": "cpuinfo", "poa_id": "poa-1"})
    seconds["cpuinfo"], results = run("cpuinfo", asked, units, actor)
    click.echo(f"          {json.dumps(results[0]['poa_info']['info'])}")
    seconds["delete"], _ = run("delete", processor.delete, units, actor)
    processor.shutdown()
    return seconds


def left() -> list[str]:
    """Return which of the demo's VMs are still there."""
    with SliverProcessor(load_site(SITE)) as processor:
        return [each.sliver for each in processor.slivers() if each.sliver in RESERVATIONS.values()]


def say(text: str) -> None:
    """Print a heading."""
    click.secho(f"\n# {text}", bold=True)


def main() -> None:
    """Run both processors and compare."""
    everything = load()
    say("The handler, as the actor's configuration names it")
    resources = CONFIG.read_text().partition("  resources:")[2].partition("  controls:")[0]
    click.echo(f"  resources:{resources.rstrip()}")
    say(
        "By fabric_cf's AnsibleHandlerProcessor: ten forked processes, asked every 5 s what has ended"
    )
    pool = life(AnsibleHandlerProcessor(), everything)
    say("By DirectHandlerProcessor: threads, the actor is told the moment that it has ended")
    direct = life(DirectHandlerProcessor(), everything)
    say("Seconds until the actor knew of both")
    click.echo(f"{'':10}{'processes':>10}{'threads':>10}")
    for name, seconds in pool.items():
        click.echo(f"{name:10}{seconds:10.1f}{direct[name]:10.1f}")
    say("Nothing is left")
    click.echo(", ".join(left()) or "no VM of this demo is there")


if __name__ == "__main__":
    main()
