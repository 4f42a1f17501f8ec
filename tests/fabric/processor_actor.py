"""Around the processors under test: fabric_cf's configuration, units with FIM slivers, its actor.

The actor is fabric_cf's own, made by its own configuration processor from its own sample configuration
of a site's AM: ``Authority``, ``AuthoritySubstrate``, the calendar policy, ``NetworkNodeControl``, the
event processor, the databases. What is different here: the databases' SQLAlchemy engine is SQLite's
instead of PostgreSQL's, and neither Kafka's threads nor the clock are started: nothing comes from
brokers, nothing is sent to them, and time passes when a test says so.
"""

import copy
import pickle
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from logging import Logger, getLogger
from pathlib import Path
from typing import Any

import fabric_cf.authority
import fabric_mb.message_bus
import yaml
from fabric_cf.actor.boot.configuration_processor import ConfigurationProcessor
from fabric_cf.actor.core.container.container import Container
from fabric_cf.actor.core.container.globals import Globals, GlobalsSingleton
from fabric_cf.actor.core.core.unit import Unit, UnitState
from fabric_cf.actor.core.plugins.handlers.configuration_mapping import ConfigurationMapping
from fabric_cf.actor.core.util.id import ID
from fabric_cf.actor.core.util.resource_type import ResourceType
from fabric_cf.actor.db import psql_database
from fim.slivers.attached_components import AttachedComponentsInfo, ComponentSliver, ComponentType
from fim.slivers.capacities_labels import Capacities, CapacityHints, Labels
from fim.slivers.network_node import NodeSliver, NodeType
from sqlalchemy import create_engine

from fabric_direct.calls.deadline import wait_until

HANDLERS = "tests.fabric.processor_handlers"
VM = "VM"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"


def unit(name: str = "vm-1", rtype: str = VM) -> Unit:
    """Make the actor's record of a VM with a GPU and a volume, as it hands it to a processor."""
    sliver = NodeSliver()
    sliver.set_properties(
        name=name,
        type=NodeType.VM,
        site="TEST",
        image_type="qcow2",
        image_ref="fabric-guest",
        capacity_allocations=Capacities(core=1, ram=1, disk=1),
        capacity_hints=CapacityHints(instance_type="fabric.c1.m1.d1"),
        label_allocations=Labels(instance_parent="worker1.example.net"),
    )
    sliver.attached_components_info = AttachedComponentsInfo()
    sliver.attached_components_info.add_device(
        component("gpu", ComponentType.GPU, bdf="0000:25:00.0")
    )
    sliver.attached_components_info.add_device(
        component("data", ComponentType.Storage, local_name="data")
    )
    made = Unit(rid=ID(uid=name), sliver=sliver, rtype=ResourceType(resource_type=rtype))
    made.set_modified(modified=copy.deepcopy(sliver))
    return made


def bare_unit(name: str) -> Unit:
    """Make a unit for our handlers on a site without devices."""
    made = unit(name)
    made.get_sliver().attached_components_info = None
    made.get_sliver().set_label_allocations(Labels(instance_parent="localhost"))
    made.set_property(name="user.ssh.key", value=KEY)
    made.set_property(name="project_id", value="project")
    return made


def component(name: str, kind: ComponentType, **labels: str) -> ComponentSliver:
    made = ComponentSliver()
    made.set_properties(name=name, type=kind, model="any", label_allocations=Labels(**labels))
    return made


def mapping(
    handler: str, module: str = HANDLERS, rtype: str = VM, **properties: Any
) -> ConfigurationMapping:
    made = ConfigurationMapping()
    made.set_key(key=rtype)
    made.set_class_name(class_name=handler)
    made.set_module_name(module_name=module)
    made.set_properties(properties=properties)
    return made


class Recorder:
    """A stand-in for the actor's plugin: notes what it is told of, and keeps no database."""

    def __init__(self) -> None:
        self.told: queue.Queue[tuple[Unit, dict[str, Any]]] = queue.Queue()
        self.error: Exception | None = None

    def configuration_complete(self, *, token: Unit, properties: dict[str, Any]) -> None:
        self.told.put((token, properties))
        if self.error:
            raise self.error

    def next(self) -> tuple[Unit, dict[str, Any]]:
        return self.told.get(timeout=240)

    def get_logger(self) -> Logger:
        return getLogger("actor")

    def get_database(self) -> "Recorder":
        return self

    def add_config_mapping(self, *, key: str, config_mapping: ConfigurationMapping) -> None: ...

    def get_config_mappings(self) -> list[ConfigurationMapping]:
        return []


def kept(thing: Any) -> Any:
    """Return what the actor's database gives back of a thing."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - it is our own


def plug_in(processor: Any, *mappings: ConfigurationMapping) -> Recorder:
    """Do for a processor what the actor does when it is made."""
    plugin = Recorder()
    processor.set_plugin(plugin=plugin)
    processor.initialize(config=None)
    for each in mappings:
        processor.add_config_mapping(mapping=each)
    processor.start()
    return plugin


def configuration(directory: Path, **actor: Any) -> Path:
    """Write fabric_cf's sample configuration of a site's AM, all within a directory.

    :param actor: what is different in its section ``actor``.
    """
    sample = Path(fabric_cf.authority.__file__).parent / "config.site.am.yaml"
    values = yaml.safe_load(sample.read_text())
    schemas = Path(fabric_mb.message_bus.__file__).parent / "schema"
    runtime = {
        "kafka-server": "127.0.0.1:9",  # where nobody is
        "kafka-schema-registry-url": "http://127.0.0.1:9",
        "kafka-key-schema": str(schemas / "key.avsc"),
        "kafka-value-schema": str(schemas / "message.avsc"),
        "kafka-security-protocol": "PLAINTEXT",
        "kafka-group-id": "test",
    }
    files = {name: None for name in values["runtime"] if name.startswith("kafka-ssl")}
    values["runtime"] |= files | runtime
    values["pdp"]["enable"] = False  # it asks nobody for leave
    values["logging"]["log-directory"] = str(directory)
    values["actor"] |= actor
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def resource(handler: str, module: str = HANDLERS, **properties: Any) -> dict[str, Any]:
    """Return a resource of the actor's configuration."""
    named = {"module": module, "class": handler, "properties": properties}
    return {"resource": {"type": VM, "label": VM, "description": VM, "handler": named}}


def load(path: Path) -> Globals:
    """Load a configuration as the actor's main program does, without looking for Kafka."""
    everything = GlobalsSingleton.get()
    everything.config_file = str(path)
    everything.load_config()
    everything.log = everything.make_logger()
    everything.initialized = True
    return everything


@contextmanager
def actor(path: Path, monkeypatch: Any) -> Iterator[Any]:
    """Make fabric_cf's actor as its container does, and let its event thread run."""
    engine = create_engine(f"sqlite:///{path.parent}/actor.sqlite")
    monkeypatch.setattr(psql_database, "create_engine", lambda url: engine)
    everything = load(path)
    container = everything.container = Container()
    container.config = everything.config
    container.create_database()
    container.db.db.create_db()
    container.set_time()
    made = ConfigurationProcessor(config=everything.config)
    made.create_actor()
    made.initialize_actor()
    container.db.add_actor(actor=made.actor)
    made.actor.actor_added(config=everything.config.get_actor_config())
    with _running(made.actor):
        yield made.actor
    engine.dispose()


def await_state(unit: Unit, state: UnitState) -> None:
    """Wait for the actor's event thread to have taken what it was told."""
    wait_until(f"{unit.get_id()} to be {state}", lambda: unit.get_state() is state, timeout=30)


@contextmanager
def _running(made: Any) -> Iterator[None]:
    processor = made.get_plugin().get_handler_processor()
    for events in made.event_processors.values():
        events.start()
    processor.start()
    try:
        yield
    finally:
        processor.shutdown()
        for events in made.event_processors.values():
            _end(events)


def _end(events: Any) -> None:
    """End a thread of events; its own ``stop`` waits for one more event that does not come."""
    thread, events.shutdown = events.thread, True
    with events.condition:
        events.condition.notify_all()
    thread.join()
