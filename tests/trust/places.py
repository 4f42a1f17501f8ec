"""The real substrates of the matrix: this machine's libvirt, and an OpenStack. No guest need boot."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openstack

from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.model import DeviceState, NodeSliver
from fabric_direct.model.networks import NetworkSliver, VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.functional import conftest as functional
from tests.openstack import conftest as cloud
from tests.openstack.target import TARGET
from tests.site import conftest as joined
from tests.trust.real import Act, Place
from tests.trust.scenes import Request

_SITE = "fdtrust"
_DATA = {"type": "Storage", "id": "data", "size": 1}
_MORE = {"type": "Storage", "id": "more", "size": 1}


def _nic(name: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": name, "network": network, "interface": interface}


def _node(*components: dict[str, Any], **values: Any) -> NodeSliver:
    size = {"core": 1, "ram": 1, "disk": 1}
    own = {"id": f"{_SITE}-vm", "name": "node", "capacities": size, "components": components}
    return NodeSliver.model_validate(own | values)


def _ports(network: str, *names: str) -> VNicPortsSliver:
    ports = [{"id": name, "server": f"{_SITE}-vm", "interface": {}} for name in names]
    values = {"id": f"{_SITE}-ports", "network": network, "ports": ports}
    return VNicPortsSliver.model_validate(values)


def _acts(
    plain: NodeSliver, changed: NodeSliver, ports: str, bridge: NetworkSliver | None
) -> Iterator[Act]:
    """Yield the operations on a VM, on ports in it, and on a network."""
    vm, one, two = Request("create", plain), _ports(ports, "p1", "p2"), _ports(ports, "p2", "p3")
    held = (vm, Request("create", one))
    yield Act("VM: create", vm)
    yield Act("VM: modify", Request("modify", changed), (vm,))
    yield Act("VM: delete", Request("delete", plain.ref()), (vm,))
    yield Act("vNICPorts: create", held[1], held[:1])
    yield Act("vNICPorts: modify", Request("modify", two), held)
    yield Act("vNICPorts: delete", Request("delete", one.ref()), held)
    if bridge:
        made = Request("create", bridge)
        yield Act("L2Bridge: create", made)
        yield Act("L2Bridge: delete", Request("delete", bridge.ref()), (made,))


@contextmanager
def libvirt_place() -> Iterator[Place]:
    """This machine's libvirt and QEMU."""
    with tempfile.TemporaryDirectory(prefix="fdtrust-", dir="/var/tmp") as folder:
        room = Path(folder)
        room.chmod(0o711)
        site = _libvirt_site(room)
        with ExitStack() as stack:
            stack.callback(_remove_pool, site)
            yield Place(site, tuple(_libvirt_acts()), lambda: _on_libvirt(site))


def _libvirt_site(room: Path) -> Site:
    return Site.model_validate(
        {
            "site": _SITE,
            "state_dir": str(room / "state"),
            "volume_pool": str(room / "volumes"),
            "images": {"tiny": {"path": str(functional.IMAGE)}},
            "guest": "none",
            "networks": {
                "red": {"strategy": "flat_dhcp", "subnet": "10.213.1.0/24"},
                "blue": {"strategy": "flat_dhcp", "subnet": "10.213.2.0/24"},
            },
        }
    )


def _libvirt_acts() -> Iterator[Act]:
    plain = _node(_nic("nic1", "red"), _DATA, image="tiny")
    changed = _node(_nic("nic1", "red"), _nic("nic2", "blue"), _MORE, image="tiny")
    yield from _acts(plain, changed, "blue", None)


def _on_libvirt(site: Site) -> set[str]:
    connection = connect(functional.URI)
    made = (*connection.listAllDomains(), *connection.listAllNetworks())
    names = {each.name() for each in made if _SITE in each.name()}
    disks = {path.name for path in Path(str(site.volume_pool)).glob("*")}
    return names | disks | _in_journal(site)


def _in_journal(site: Site) -> set[str]:
    return {f"journal {path.name}" for path in (site.state_dir / "journal").glob("*")}


def _remove_pool(site: Site) -> None:
    pool = OwnPool.of(site, "localhost").pool()
    pool.destroy()
    pool.undefine()


@contextmanager
def openstack_place() -> Iterator[Place]:
    """The lab's OpenStack, or the one that ``FABRIC_CLOUD`` names."""
    if TARGET.clouds_file:
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(TARGET.clouds_file)
    with tempfile.TemporaryDirectory(prefix="fdtrust-") as folder:
        site = _cloud_site(Path(folder))
        things = cloud.Things(openstack.connect(cloud=TARGET.cloud), site)
        yield Place(site, tuple(_cloud_acts()), things)


def _cloud_site(folder: Path) -> Site:
    return cloud.cloud_site(
        folder / "state",
        site=_SITE,
        hosts={TARGET.worker: {}},
        images={TARGET.image: {"user": TARGET.image_user}},
        guest="none",
        networks=cloud.site_networks(),
    )


def _cloud_acts() -> Iterator[Act]:
    flavor = None if TARGET.is_lab else TARGET.flavor
    own = {"image": TARGET.image, "host": TARGET.worker, "flavor": flavor}
    first = _nic("nic1", TARGET.network, floating_ip=True)
    plain = _node(first, _DATA, **own)
    changed = _node(first, _nic("nic2", cloud.RED), _MORE, **own)
    _, vlan = TARGET.own_vlans
    settings = TARGET.vlan_network(vlan, "10.223.1.0/24")
    bridge = NetworkSliver(id=f"{_SITE}-net", name=cloud.ours("net"), network=settings)
    yield from _acts(plain, changed, cloud.RED, bridge)


@contextmanager
def site_place() -> Iterator[Place]:
    """The lab's OpenStack with the worker whose devices its servers get (labs/onesite)."""
    os.environ["OS_CLIENT_CONFIG_FILE"] = str(TARGET.clouds_file)
    with tempfile.TemporaryDirectory(prefix="fdtrust-") as folder:
        settings = joined.settings(joined.lab_worker())
        site = cloud.cloud_site(Path(folder) / "state", site=_SITE, **settings)
        things = cloud.Things(openstack.connect(cloud=TARGET.cloud), site)
        yield Place(site, tuple(_device_acts()), lambda: things() | _devices_in_use(site))


def _device_acts() -> Iterator[Act]:
    """Yield what is done with devices. What Nova does alone is tried on the other place."""
    plain = joined.sliver(id=f"{_SITE}-vm")
    full = joined.sliver(joined.nic(bandwidth=100), joined.drive(), id=f"{_SITE}-vm")
    made, given = Request("create", plain), Request("create", full)
    yield Act("VM: devices added", Request("modify", full), (made,))
    yield Act("VM: devices removed", Request("modify", plain), (given,))
    yield Act("VM: delete", Request("delete", full.ref()), (given,))


def _devices_in_use(site: Site) -> set[str]:
    with HandlerProcessor(site) as processor:
        found = processor.devices(joined.HOST)
    idle = {DeviceState.FREE, DeviceState.NOT_ALLOWED}
    return {f"{d.address} is {d.state}" for d in found if d.state not in idle}
