"""What our drivers cost on this machine's libvirt, as ratios to the bare calls in the same run.

*A hostdev into a definition and out again*: our attach and detach against the libvirt calls that they
make, made bare, which shows what our own code costs; and against ``attachDeviceFlags`` and
``detachDeviceAlias`` alone, which shows what it costs to scan all domains first and to read back after.
The domain is never started, so that the function which is named stays with its host.

*The plan of an unchanged node* with two NICs and a volume, through the processor, against the bare reads
of the same things once each: the domain and its state, the places that its NICs hold, what the networks
of these hand out, the volume, and its pool.
"""

import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import libvirt

from fabric_direct.config import Site
from fabric_direct.drivers.libvirt.connection import connect
from fabric_direct.drivers.libvirt.domain import alias, domain_uuid
from fabric_direct.drivers.libvirt.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.server import stamp_xml
from fabric_direct.drivers.libvirt.storage import Store
from fabric_direct.drivers.libvirt.strategies import network_name
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE, render
from fabric_direct.errors import Unreachable
from fabric_direct.model import Capacities, Gpu, NodeSliver, Operation, Outcome, PciAddress, Status
from fabric_direct.processor import HandlerProcessor
from tests.bench.measure import line, ratio

URI = "qemu:///system"
IMAGE = Path("/var/lib/fabric-direct/images/fabric-guest.qcow2")
DOMAIN = (
    "<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>64</memory>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
)


def main() -> None:
    """Print the figures."""
    try:
        connection = connect(URI)
    except Unreachable as error:
        print(f"substrate: skipped: {error}")  # noqa: T201
        return
    with tempfile.TemporaryDirectory(prefix="fdtest-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o711)  # QEMU's user has to come in
        _hostdev(connection, Path(folder))
        if IMAGE.exists():
            _plan(connection, Path(folder))
        else:
            print(f"substrate: plan skipped: no {IMAGE}")  # noqa: T201


def _hostdev(connection: libvirt.virConnect, folder: Path) -> None:
    gpu = Gpu(id="gpu", bdf=(_a_function(connection),))
    devices = HostdevDevice(Site(site="BENCH", state_dir=folder), "localhost")
    label = alias("fdtest-bench", gpu.id)
    xml = render("hostdev.xml.j2", address=gpu.bdf[0], alias=label)
    config = libvirt.VIR_DOMAIN_AFFECT_CONFIG

    with _domain(connection, "fdtest-bench") as domain:

        def ours() -> None:
            devices.attach("fdtest-bench", gpu)
            devices.detach("fdtest-bench", gpu.id, timeout=1)

        def bare() -> None:
            domain.attachDeviceFlags(xml, config)
            domain.detachDeviceAlias(label, config)

        def checked() -> None:
            for each in connection.listAllDomains():
                _read_both(each)
            domain.attachDeviceFlags(xml, config)
            domain.XMLDesc(0)
            _read_both(connection.lookupByUUID(domain.UUID()))
            domain.isActive()
            domain.detachDeviceAlias(label, config)
            domain.XMLDesc(0)

        for what, other in (("the same calls, bare", checked), ("unchecked calls", bare)):
            value = ratio(ours, other, rounds=100)
            line(f"hostdev in and out, to {what}", value, "times", "<= 1.5", value <= 1.5)


def _read_both(domain: libvirt.virDomain) -> None:
    domain.XMLDesc(0)
    if domain.ID() != -1:
        domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


def _a_function(connection: libvirt.virConnect) -> PciAddress:
    kind = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
    name = connection.listAllDevices(kind)[-1].name()
    return PciAddress(*(int(part, 16) for part in name.split("_")[1:]))


@contextmanager
def _domain(connection: libvirt.virConnect, sliver_id: str) -> Iterator[libvirt.virDomain]:
    """Give a domain with the sliver's stamp that is defined and never started."""
    size = Capacities(core=1, ram=1, disk=1)
    node = NodeSliver(id=sliver_id, name="node", image="none", capacities=size)
    xml = DOMAIN.format(name=sliver_id, uuid=domain_uuid(sliver_id))
    domain = connection.defineXML(xml)
    try:
        kind, scope = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
        domain.setMetadata(kind, stamp_xml(node.stamp()), "fabric", STAMP_NAMESPACE, scope)
        yield domain
    finally:
        domain.undefine()


def _plan(connection: libvirt.virConnect, folder: Path) -> None:
    site, node = _site(folder), _node()
    with ExitStack() as stack:
        stack.callback(_remove_pool, site)
        processor = stack.enter_context(HandlerProcessor(site))
        stack.callback(lambda: _done(processor.delete(node.ref()).result()))
        _done(processor.create(node).result())
        read = _Reads(connection, site, node)
        value = ratio(
            lambda: _done(processor.plan(node, Operation.MODIFY).result()), read, rounds=100
        )
    line("plan of an unchanged node, to bare libvirt", value, "times", "<= 2", value <= 2)


def _site(folder: Path) -> Site:
    block = 1 + secrets.randbelow(250)
    subnets = {"red": f"10.213.{block}.0/24", "blue": f"10.214.{block}.0/24"}
    networks = {n: {"strategy": "flat_dhcp", "subnet": s} for n, s in subnets.items()}
    values = {
        "site": f"fdtest-{secrets.token_hex(3)}",
        "state_dir": folder / "state",
        "volume_pool": folder / "volumes",
        "images": {"tiny": {"path": IMAGE}},
        "guest": "none",
        "networks": networks,
    }
    return Site.model_validate(values)


def _node() -> NodeSliver:
    values = {
        "id": f"fdtest-{secrets.token_hex(3)}",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 2},
        "components": [
            {"type": "vNIC", "id": "nic1", "network": "red"},
            {"type": "vNIC", "id": "nic2", "network": "blue"},
            {"type": "Storage", "id": "data", "size": 1},
        ],
    }
    return NodeSliver.model_validate(values)


def _done(outcome: Outcome) -> None:
    assert outcome.status is Status.DONE, outcome


def _remove_pool(site: Site) -> None:
    pool = Store.of(site, "localhost").pool()
    pool.destroy()
    pool.undefine()


class _Reads:
    """The reads without which the question *is it so already?* has no answer, once each."""

    def __init__(self, connection: libvirt.virConnect, site: Site, node: NodeSliver) -> None:
        self._connection, self._uuid = connection, domain_uuid(node.id)
        self._networks = [network_name(site.site, vnic.network) for vnic in node.vnics()]
        self._pool = Store.of(site, "localhost").name
        self._volume = f"{node.id}.volume.data"
        self._sliver, self._places = node.id, site.state_dir / "pools.sqlite"

    def __call__(self) -> None:
        domain = self._connection.lookupByUUID(self._uuid.bytes)
        domain.info(), domain.XMLDesc(0)
        with closing(sqlite3.connect(self._places)) as places:
            places.execute("SELECT * FROM port WHERE sliver = ?", (self._sliver,)).fetchall()
        for name in self._networks:
            network = self._connection.networkLookupByName(name)
            network.isActive(), network.XMLDesc(0)
            network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE)
        pool = self._connection.storagePoolLookupByName(self._pool)
        pool.isActive(), pool.XMLDesc(0), pool.refresh(0), pool.listVolumes()
        volume = pool.storageVolLookupByName(self._volume)
        volume.path(), volume.info()


if __name__ == "__main__":
    main()
