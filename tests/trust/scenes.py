"""The operations that the matrix tries: each on slivers that have every kind of thing."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.drivers.fake.substrate import _substrates
from fabric_direct.model import NodeSliver, Outcome, SliverRef
from fabric_direct.model.networks import NetworkSliver, VNicPortsSliver
from fabric_direct.model.services import L3VPN, FABNetv4, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN"
_OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmM b"
_TYPES = (
    "VM",
    "vNIC",
    "Storage",
    "GPU",
    "SmartNIC",
    "SharedNIC",
    "NVME",
    "L2Bridge",
    "L3VPN",
    "FABNetv4",
)
DRIVERS = dict.fromkeys(_TYPES, "fake") | {"FPGA": "fake-cold"}
ALLOWED = (
    {"type": "GPU", "bdf": "25:00.0"},
    {"type": "GPU", "bdf": "25:00.1"},
    {"type": "NVME", "bdf": "26:00.0"},
    {"type": "SmartNIC", "bdf": "27:00.0"},
    {"type": "SharedNIC", "uplink": "ens1"},
    {"type": "FPGA", "bdf": "29:00.0"},
    {"type": "GPU", "model": "A30", "bdf": "40:00.0"},
)


def _device(kind: str, name: str, *bdf: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": name, "bdf": bdf, **more}


def _nic(name: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": name, "network": network, "interface": interface}


_MANAGED = _nic("nic1", "red", mac="52:54:00:00:01:01", floating_ip=True, bandwidth=100)
_PLAIN = _nic("nic2", "blue", mac="52:54:00:00:01:02", port_security=False)
_SET = _nic("nic3", "blue", mac="52:54:00:00:01:03", ipv4="10.20.2.77/24", auto_config=True)
_DATA = {"type": "Storage", "id": "data", "size": 1, "mount": "/data"}
_MORE = {"type": "Storage", "id": "more", "size": 2}
_OTHERS = {"type": "Storage", "id": "other", "volume": "shared"}
_GPU = _device("GPU", "gpu", "25:00.0", "25:00.1")
_ANY_GPU = {"type": "GPU", "id": "gpu", "model": "A30"}
_NVME = _device("NVME", "nvme", "26:00.0")
_SMART = _device("SmartNIC", "smart", "27:00.0", interfaces=[{"mac": "52:54:00:00:02:01"}])
_VF = _device("SharedNIC", "vf", "a1:00.0", interface={"mac": "52:54:00:00:02:02", "bandwidth": 10})
_FPGA = _device("FPGA", "fpga", "29:00.0")

_WHOLE = (_MANAGED, _PLAIN, _DATA, _OTHERS, _GPU, _SMART, _VF, _FPGA)
_CHANGED = (
    _MANAGED | {"interface": {**_MANAGED["interface"], "bandwidth": 200}},
    _PLAIN | {"network": "red"},
    _SET,
    _DATA,
    _MORE,
    _SMART,
    _VF | {"interface": {**_VF["interface"], "bandwidth": 20, "vlan": 304}},
    _NVME,
)


def node(*components: dict[str, Any], **values: Any) -> NodeSliver:
    """Return a virtual machine with keys and a boot script."""
    defaults = {
        "id": "sliver-1",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 2, "ram": 2, "disk": 1},
        "ssh_keys": (_KEY,),
        "boot_script": "#!/bin/sh\ntrue\n",
        "components": components,
    }
    return NodeSliver.model_validate(defaults | values)


def bridge(**network: Any) -> NetworkSliver:
    """Return a network that is a sliver."""
    settings = {"strategy": "vlan", "vlan": 101, "subnet": "10.30.0.0/24"}
    on = {"physical_network": "physnet1"}
    values = {"id": "net-1", "name": "lab", "network": settings | on | network}
    return NetworkSliver.model_validate(values)


_PEER = {"local": "10.0.0.1/30", "address": "10.0.0.2", "asn": 65001, "key": "sesame"}


def fabnet(*interfaces: dict[str, Any]) -> NetworkService:
    """Return a network service that leaves its subnet and its VLANs open."""
    values = {"id": "net-2", "name": "fabnet", "interfaces": interfaces}
    return FABNetv4.model_validate(values)


def vpn(**peer: Any) -> NetworkService:
    """Return a network service with a secret."""
    interface = _end("i1", vlan=100, peer=_PEER | peer)
    values = {"id": "net-3", "name": "vpn", "asn": 65000, "interfaces": [interface]}
    return L3VPN.model_validate(values)


def _end(name: str, **values: Any) -> dict[str, Any]:
    return {"id": name, "device": "sw1", "port": "p1", "vlan": "auto", **values}


def ports(*names: str, **interface: Any) -> VNicPortsSliver:
    """Return ports in the server of another sliver."""
    found = [{"id": name, "server": "vm-1", "interface": interface} for name in names]
    return VNicPortsSliver.model_validate({"id": "ports-1", "network": "red", "ports": found})


@dataclass(frozen=True, slots=True)
class Request:
    """An operation on a sliver."""

    operation: str
    sliver: SliverRef
    action: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def ask(self, processor: HandlerProcessor) -> "Future[Outcome]":
        """Ask a processor for it."""
        if self.action:
            return processor.poa(self.sliver, self.action, self.data)
        return getattr(processor, self.operation)(self.sliver)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Scene:
    """An operation, and what is done before it."""

    name: str
    request: Request
    before: tuple[Request, ...] = ()
    hosts: tuple[str, ...] = ("w1",)
    devices: tuple[dict[str, str], ...] = ALLOWED
    """The devices of each host that the site allows."""
    spoil: Callable[[Substrate], None] = lambda _: None
    """What others do right before the operation."""

    def site(self, state_dir: Path) -> Site:
        """Return the site; its state is kept in a directory."""
        routed = {"physical_network": "physnet1", "router": True}
        networks = {
            "red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"} | routed,
            "blue": {"strategy": "flat_dhcp", "subnet": "10.20.2.0/24"},
        }
        return Site.model_validate(
            {
                "site": "TEST",
                "state_dir": state_dir,
                "drivers": DRIVERS,
                "guest": "fake",
                "images": {"tiny": {}},
                "openstack": {"cloud": "none", "external_network": "public"},
                "networks": networks,
                "switches": {"sw1": {"ports": {"p1": {"vlans": ["100-103"]}}}},
                "services": {"subnets": {"FABNetv4": {"block": "10.128.0.0/22", "prefix": 24}}},
                "fake": {"hosts": {host: {"gpus": 1, "vfs": 1} for host in self.hosts}},
                "hosts": {host: {"devices": self.devices} for host in self.hosts},
            }
        )

    def substrates(self, site: Site) -> dict[str, Substrate]:
        """Return the hosts, with a volume of others."""
        return {host: _equip(substrate(site, host)) for host in self.hosts}


def hard_reboot(things: Substrate) -> None:
    """Take from the server what Nova does not plug in when it makes a domain anew, and more."""
    things.plugged["sliver-1"] = ()
    server = things.servers["sliver-1"]
    things.servers["sliver-1"] = replace(server, ports=server.ports[1:], volumes=())


def _other_vlan(things: Substrate) -> None:
    """Connect the service otherwise than its stamp says."""
    there = things.services["net-3"]
    other = there.interfaces[0].model_copy(update={"vlan": 101})
    things.services["net-3"] = there.model_copy(update={"interfaces": (other,)})


def forget(site: Site) -> None:
    """Free the memory of a site's hosts."""
    for host in site.hosts:
        _substrates.pop((str(site.state_dir), host), None)


def _equip(things: Substrate) -> Substrate:
    things.existing["shared"] = Volume("", "", "/fake/shared", 3)
    return things


_VM = node(*_WHOLE)
_SERVER = node(_nic("eth", "blue"), id="vm-1")
_CREATED = Request("create", _VM)
_STOPPED = Request("poa", _VM, "stop")
_WITH_SERVER = (Request("create", _SERVER),)
_PLUGGED = (*_WITH_SERVER, Request("create", ports("p1", "p2")))
_BRIDGED = (Request("create", bridge()),)
_FABNET = Request("create", fabnet(_end("i1"), _end("i2")))
_FABNET_CHANGED = fabnet(_end("i2", bandwidth=50), _end("i3", vlan=103))
_PLAIN_VPN = vpn(key=None)
_VPN = Request("create", _PLAIN_VPN)
_LINES = {"keys": [{"key": _OTHER_KEY}]}

_ACTIONS: dict[str, tuple[dict[str, Any], tuple[Request, ...]]] = {
    "addkey": (_LINES, ()),
    "console": ({}, ()),
    "cpuinfo": ({}, ()),
    "cpupin": ({"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}, {"vcpu": 1, "cpu": 4}]}, ()),
    "numainfo": ({}, ()),
    "numatune": ({"node_set": [1]}, ()),
    "reboot": ({}, ()),
    "removekey": (_LINES, (Request("poa", _VM, "addkey", _LINES),)),
    "rescan": ({"bdf": ["25:00.0"]}, ()),
    "resize": ({"capacities": {"core": 4, "ram": 4, "disk": 1}}, ()),
    "stamp": ({}, ()),
    "start": ({}, (_STOPPED,)),
    "stop": ({}, ()),
}
"""What each action is given, and what is done before it."""


def _action(name: str) -> Scene:
    data, before = _ACTIONS[name]
    return Scene(f"action {name}", Request("poa", _VM, name, data), (_CREATED, *before))


_OPERATIONS = (
    Scene("VM: create", _CREATED),
    Scene(
        "VM: create, placed",
        Request("create", node(_MANAGED, _DATA, _ANY_GPU, host="auto")),
        hosts=("w1", "w2"),
    ),
    Scene("VM: create, again", _CREATED, (_CREATED, _STOPPED)),
    Scene("VM: modify", Request("modify", node(*_CHANGED)), (_CREATED,)),
    Scene("VM: reconcile", Request("reconcile", _VM.ref()), (_CREATED,), spoil=hard_reboot),
    Scene("VM: delete", Request("delete", _VM.ref()), (_CREATED,)),
    Scene("L2Bridge: create", Request("create", bridge())),
    Scene(
        "L2Bridge: modify",
        Request("modify", bridge(dns=["9.9.9.9"])),
        (Request("create", bridge()),),
    ),
    Scene("L2Bridge: delete", Request("delete", bridge().ref()), (Request("create", bridge()),)),
    Scene("FABNetv4: create", Request("create", fabnet(_end("i1"), _end("i2")))),
    Scene("FABNetv4: modify", Request("modify", _FABNET_CHANGED), (_FABNET,)),
    Scene("FABNetv4: delete", Request("delete", fabnet(_end("i1")).ref()), (_FABNET,)),
    Scene("L3VPN: modify", Request("modify", vpn(asn=65002, key=None)), (_VPN,)),
    Scene("L3VPN: reconcile", Request("reconcile", vpn().ref()), (_VPN,), spoil=_other_vlan),
    Scene("vNICPorts: create", Request("create", ports("p1", "p2")), _WITH_SERVER),
    Scene("vNICPorts: modify", Request("modify", ports("p2", "p3", bandwidth=50)), _PLUGGED),
    Scene("vNICPorts: delete", Request("delete", ports().ref()), _PLUGGED),
)


def scenes(actions: Callable[[str], tuple[str, ...]]) -> tuple[Scene, ...]:
    """Return all operations, with each action that the handler of virtual machines names."""
    return (*_OPERATIONS, *map(_action, actions("VM")))
