"""Parsers of documents and values: slivers, sites, FIM's slivers, the journal, zones' documents."""

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from cryptography.fernet import Fernet

from fabric_direct.actor import fim, poa
from fabric_direct.documents import parse
from fabric_direct.drivers.libvirt.passthrough import records
from fabric_direct.drivers.ssh import known_hosts
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.handlers.sliver_documents import model_of
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.zones.sealing import Seal
from tests.trust.hostile_inputs import (
    TEXTS,
    Parser,
    any_value,
    as_json,
    changed_text,
    documents,
    streams,
    texts,
    values,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"
VM: dict[str, Any] = {
    "id": "sliver-1",
    "type": "VM",
    "name": "node",
    "host": "auto",
    "image": "tiny",
    "capacities": {"core": 2, "ram": 4, "disk": 10},
    "ssh_keys": [KEY],
    "boot_script": "#!/bin/sh\necho hello\n",
    "placement": {"required_traits": ["CUSTOM_X"], "affinity": ["sliver-2"]},
    "components": [
        {"type": "vNIC", "id": "nic1", "network": "red", "interface": {"ipv4": "10.20.1.5/24"}},
        {"type": "Storage", "id": "data", "size": 1, "mount": "/mnt/data"},
        {"type": "Storage", "id": "old", "volume": "project-volume", "mount": "/old"},
        {"type": "GPU", "id": "gpu", "bdf": ["0000:25:00.0", "0000:25:00.1"], "model": "A30"},
        {"type": "SharedNIC", "id": "vf", "interface": {"mac": "52:54:00:12:34:56", "vlan": 5}},
        {"type": "SmartNIC", "id": "nic", "interfaces": [{"mac": "52:54:00:12:34:57"}]},
    ],
}
PORTS: dict[str, Any] = {
    "id": "ports-1",
    "type": "vNICPorts",
    "network": "red",
    "ports": [{"id": "p1", "server": "sliver-1", "interface": {"mac": "52:54:00:12:34:58"}}],
}
BRIDGE: dict[str, Any] = {
    "id": "net-1",
    "type": "L2Bridge",
    "name": "green",
    "network": {"strategy": "vlan", "vlan": 7, "uplink": "ens1", "subnet": "10.30.0.0/24"},
}
SITE: dict[str, Any] = {
    "site": "TEST",
    "drivers": {"VM": "openstack", "GPU_A30": "hostdev"},
    "openstack": {"cloud": "test", "external_network": "public"},
    "hosts": {
        "w1": {
            "libvirt": "qemu+ssh://root@w1/system",
            "ssh": "ssh://root@[::1]:22",
            "host_key": KEY,
            "devices": [
                {"type": "FPGA", "bdf": "0000:25:00.0", "usb": [{"bus": 1, "port": "1.4"}]}
            ],
        }
    },
    "images": {"ubuntu": {"path": "/images/u.qcow2", "user": "ubuntu"}},
    "networks": {
        "red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24", "subnet6": "fd20:1::/64"},
        "blue": {"strategy": "flat", "bridge": "br0", "subnet": "10.20.2.0/24"},
    },
    "actor": {"management_network": "red", "max_flavor": "fabric.c4.m8.d10"},
    "placement": {"weights": {"pack": 10}, "without": ["traits"]},
    "zone": {
        "listen": "127.0.0.1:8750",
        "children": {"a": {"url": "https://zone.example:8750", "token_file": "/token"}},
    },
    "limits": {"create": 1200},
}
_RESERVATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
_LABELS = {
    "bdf": "0000:25:00.0",
    "mac": "52:54:00:12:34:56",
    "vlan": "5",
    "ipv4": "10.0.0.5",
    "ipv4_subnet": "10.0.0.0/24",
    "ipv6": "fd00::5",
    "ipv6_subnet": "fd00::/64",
    "instance_parent": f"{_RESERVATION}-node",
    "local_name": "volume",
    "device_name": "x",
}
_INTERFACE = {"labels": _LABELS, "flags": {"auto_config": True}}
_OTHER = {**_INTERFACE, "labels": {**_LABELS, "mac": "52:54:00:12:34:57"}}
_NIC, _VF = {**_LABELS, "bdf": ["0000:26:00.0"]}, {**_LABELS, "bdf": "0000:27:00.0"}
NODE: dict[str, Any] = {
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae8",
    "keys": KEY,
    "project": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "name": "node1",
    "image": "rocky",
    "script": "echo hello",
    "flavor": "fabric.c2.m4.d10",
    "size": {"core": 2, "ram": 4, "disk": 10},
    "labels": _LABELS,
    "components": {
        "gpu": {"type": "GPU", "model": "Tesla T4", "labels": _LABELS},
        "nic": {"type": "SmartNIC", "labels": _NIC, "interfaces": {"p1": _INTERFACE}},
        "vf": {"type": "SharedNIC", "labels": _VF, "interfaces": {"p2": _OTHER}},
        "data": {"type": "Storage", "labels": _LABELS, "flags": {"auto_mount": True}},
    },
}
_ACTION = {"operation": "addkey", "keys": [{"key": KEY}], "bdf": ["0000:25:00.0"]}
_ENTRY = {"operation": "create", "sliver": VM, "since": "2026-01-01", "owns_everything": True}
_RECORD = {
    "address": "0000:25:00.0",
    "type": "GPU",
    "model": None,
    "sliver": "sliver-1",
    "component": "gpu",
    "vendor": "10de",
    "product": "1234",
    "quarantined": "",
}
_SITE = Site(site="TEST", actor={"management_network": "red"}, openstack={"cloud": "test"})


def parsers(folder: Path) -> tuple[Parser, ...]:
    """Return the parsers.

    :param folder: for files that some of them read.
    """
    return (
        Parser("sliver document", documents(VM, PORTS, BRIDGE), _sliver, 3),
        Parser("site.yaml", documents(SITE), _site, 3),
        Parser("FIM virtual machine", _fim, _virtual_machine, 5),
        Parser("FIM network service", _fim, _network_service, 5),
        Parser("operational action", values(_ACTION), _action),
        Parser("journal", streams(as_json(_ENTRY).encode()), _Journal(folder)),
        Parser("known_hosts", texts(f"192.0.2.7 {KEY}\n"), _KnownHosts(folder)),
        Parser("device record", documents(_RECORD), _record),
        Parser("sealed blob", _blob, lambda blob: _SEAL.open(blob, "offer")),
    )


def _sliver(text: str) -> None:
    parse(text, "sliver.json" if len(text) % 2 else "sliver.yaml", model_of, InvalidSliver)


def _site(text: str) -> None:
    site = parse(text, "site.yaml", Site, InvalidSite)
    for name in site.images:
        site.image(name)


def _action(asked: object) -> None:
    """Read the data of an action as the handlers do: what is no mapping is none."""
    poa.data_of(asked if isinstance(asked, dict) else {})


# --- FIM


class Labels(SimpleNamespace):
    """FIM's labels: each that is not set is None."""

    def __getattr__(self, name: str) -> None:
        return None


class Sliver(SimpleNamespace):
    """One of FIM's slivers, with the attributes and methods of all of them."""

    def get_name(self) -> Any:
        return self.name

    def get_type(self) -> Any:
        return self.type

    def get_model(self) -> Any:
        return self.model

    def get_image_ref(self) -> Any:
        return self.image

    def get_boot_script(self) -> Any:
        return self.script


def _fim(random: Random) -> dict[str, Any]:
    """Return a node of which values have changed that FIM does not check; its form stays."""
    return {name: _leaf(value, random) for name, value in NODE.items()}


def _leaf(value: Any, random: Random) -> Any:
    if isinstance(value, dict):
        return {key: _leaf(below, random) for key, below in value.items()}
    if random.randrange(40):
        return value
    text = changed_text(value, random) if isinstance(value, str) else str(value)
    return random.choice((text, text, random.choice(TEXTS), any_value(random)))


def _labels(values: dict[str, Any]) -> Labels:
    return Labels(**values)


def _interface_of(name: str, given: dict[str, Any]) -> Sliver:
    labels, flags = _labels(given["labels"]), Labels(**given["flags"])
    return Sliver(name=name, labels=labels, label_allocations=labels, flags=flags)


def _component_of(name: str, given: dict[str, Any]) -> Sliver:
    labels = _labels(given["labels"])
    interfaces = {n: _interface_of(n, i) for n, i in given.get("interfaces", {}).items()}
    service = SimpleNamespace(interface_info=SimpleNamespace(interfaces=interfaces))
    return Sliver(
        name=name,
        type=given["type"],
        model=_text_or_none(given.get("model")),
        labels=labels,
        label_allocations=labels,
        flags=Labels(**given.get("flags", {})),
        network_service_info=SimpleNamespace(network_services={"l2": service}),
    )


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _unit(given: dict[str, Any]) -> Any:
    properties = {fim.SSH_KEYS: given["keys"], fim.PROJECT: given["project"]}
    return SimpleNamespace(
        get_reservation_id=lambda: given["id"], get_properties=lambda: properties
    )


def _virtual_machine(given: dict[str, Any]) -> None:
    devices = {name: _component_of(name, c) for name, c in given["components"].items()}
    node: Any = Sliver(
        name=given["name"],
        type="VM",
        image=given["image"],
        script=given["script"],
        capacity_hints=Labels(instance_type=given["flavor"]),
        capacity_allocations=Labels(**given["size"]),
        label_allocations=_labels(given["labels"]),
        flags=None,
        attached_components_info=SimpleNamespace(devices=devices),
    )
    fim.vm(_SITE, _unit(given), fim.node_of(node))


def _network_service(given: dict[str, Any]) -> None:
    ports = given["components"]["vf"]["interfaces"] | given["components"]["nic"]["interfaces"]
    interfaces = {name: _interface_of(name, port) for name, port in ports.items()}
    service: Any = Sliver(
        type="L2Bridge",
        label_allocations=_labels(given["labels"]),
        interface_info=SimpleNamespace(interfaces=interfaces),
    )
    fim.ports(_SITE, _unit(given), fim.service_of(service), service)


# --- files


class _Journal:
    """Reads a file of a journal."""

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(FileStore(folder))
        self._file = folder / "journal" / "sliver-1.json"
        self._file.parent.mkdir()

    def __call__(self, content: bytes) -> None:
        self._file.write_bytes(content)
        self._journal.unfinished()
        self._journal.foreign()
        self._journal.of("sliver-1")


class _KnownHosts:
    """Reads a file of pinned keys, and pins what it is given."""

    def __init__(self, folder: Path) -> None:
        self._site = Site(site="TEST", state_dir=folder)

    def __call__(self, text: str) -> None:
        path = known_hosts.known_hosts(self._site)
        path.write_bytes(text.encode(errors="surrogatepass"))
        if len(text) % 2:
            known_hosts.pinned(self._site)
        else:
            known_hosts.pin(self._site, "192.0.2.8", text)


def _record(text: str) -> None:
    records._parsed({"0000:25:00.0": text, text: text}, "here")


# --- sealed blobs

_SEAL = Seal([Fernet.generate_key()])
_BLOB = _SEAL.seal({"host": "w1"}, "offer", 1e9)


def _blob(random: Random) -> str:
    return changed_text(_BLOB, random)
