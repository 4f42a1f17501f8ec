"""The operations whose requests to a cloud go wrong."""

from typing import Any

from fabric_direct.model import NodeSliver
from fabric_direct.model.networks import NetworkSliver, VNicPortsSliver
from fabric_direct.site.config import Site
from tests.trust.http_cloud import StatefulCloud
from tests.trust.scenes import Request, Scene


def site(cloud: StatefulCloud, state_dir: Any, unanswered: float) -> Site:
    """Return a site on the cloud, with two VLANs; one has a router.

    :param unanswered: seconds for which a request without an answer may still take effect.
    """
    networks = {
        "red": _vlan(101, "10.20.1.0/24", router=True),
        "blue": _vlan(102, "10.20.2.0/24"),
    }
    return cloud.site(
        state_dir=state_dir,
        drivers={"VM": "openstack", "L2Bridge": "openstack"},
        guest="none",
        limits={"unanswered": unanswered},
        networks=networks,
        openstack={"external_network": "public", "make_flavors": True},
    )


def _vlan(vlan: int, subnet: str, **more: Any) -> dict[str, Any]:
    where = {"strategy": "vlan", "physical_network": "physnet1", "vlan": vlan}
    return {**where, "subnet": subnet, **more}


def _nic(name: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": name, "network": network, "interface": interface}


def _disk(name: str) -> dict[str, Any]:
    return {"type": "Storage", "id": name, "size": 1}


def _node(*components: dict[str, Any], **values: Any) -> NodeSliver:
    size = {"core": 2, "ram": 2, "disk": 1}
    usual = {"id": "sliver-1", "name": "node", "image": "tiny", "capacities": size}
    return NodeSliver.model_validate({**usual, "components": components, **values})


def _bridge(**network: Any) -> NetworkSliver:
    settings = _vlan(110, "10.40.0.0/24", subnet6="2001:db8:40::/64", **network)
    return NetworkSliver.model_validate({"id": "net-1", "name": "green", "network": settings})


def _ports(*names: str, **interface: Any) -> VNicPortsSliver:
    ports = [{"id": name, "server": "vm-1", "interface": interface} for name in names]
    return VNicPortsSliver.model_validate({"id": "ports-1", "network": "blue", "ports": ports})


_VM = _node(
    _nic("nic1", "lab", floating_ip=True, port_security=True, bandwidth=10),
    _nic("nic2", "red", bandwidth=10),
    _disk("data"),
)
_CHANGED = _node(
    _nic("nic1", "lab", port_security=False, bandwidth=20),
    _nic("nic2", "blue"),
    _nic("nic3", "lab", floating_ip=True),
    _disk("more"),
)
_CREATED = Request("create", _VM)
_STOPPED = Request("poa", _VM, "stop")
_WITH_SERVER = (Request("create", _node(id="vm-1")),)
_PLUGGED = (*_WITH_SERVER, Request("create", _ports("p1", "p2")))
_BRIDGED = (Request("create", _bridge(router=True)),)
_LARGER = {"capacities": {"core": 4, "ram": 4, "disk": 1}}
FIRST = "the first requests of a process"

SCENES = {
    scene.name: scene
    for scene in (
        Scene(FIRST, _CREATED),
        Scene("VM: create", _CREATED),
        Scene("VM: create, again", _CREATED, (_CREATED, _STOPPED)),
        Scene("VM: modify", Request("modify", _CHANGED), (_CREATED,)),
        Scene("VM: delete", Request("delete", _VM.ref()), (_CREATED,)),
        Scene("L2Bridge: create", *_BRIDGED),
        Scene("L2Bridge: modify", Request("modify", _bridge(dns=["9.9.9.9"])), _BRIDGED),
        Scene("L2Bridge: delete", Request("delete", _bridge().ref()), _BRIDGED),
        Scene("vNICPorts: create", Request("create", _ports("p1", "p2")), _WITH_SERVER),
        Scene(
            "vNICPorts: modify", Request("modify", _ports("p2", "p3", floating_ip=True)), _PLUGGED
        ),
        Scene("vNICPorts: delete", Request("delete", _ports().ref()), _PLUGGED),
        Scene("action console", Request("poa", _VM, "console"), (_CREATED,)),
        Scene("action reboot", Request("poa", _VM, "reboot"), (_CREATED,)),
        Scene("action resize", Request("poa", _VM, "resize", _LARGER), (_CREATED,)),
        Scene("action start", Request("poa", _VM, "start"), (_CREATED, _STOPPED)),
        Scene("action stop", _STOPPED, (_CREATED,)),
    )
}
