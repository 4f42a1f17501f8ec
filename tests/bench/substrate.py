"""What our drivers cost on this machine's libvirt, as ratios to the bare calls in the same run.

*The plan of an unchanged node* with two NICs and a volume, through the processor, against the bare reads
of the same things once each: the domain and its state, the places that its NICs hold, what the networks
of these hand out, the volume, and its pool.
"""

import secrets
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import libvirt

from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.drivers.libvirt.networks.strategies import network_name
from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.errors import Unreachable
from fabric_direct.model import NodeSliver, Operation, Outcome, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.bench.measure import line, ratio

URI = "qemu:///system"
IMAGE = Path("/var/lib/fabric-direct/images/fabric-guest.qcow2")


def main() -> None:
    """Print the figures."""
    try:
        connection = connect(URI)
    except Unreachable as error:
        print(f"substrate: skipped: {error}")  # noqa: T201
        return
    with tempfile.TemporaryDirectory(prefix="fdtest-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o711)  # QEMU's user has to come in
        if IMAGE.exists():
            _plan(connection, Path(folder))
        else:
            print(f"substrate: plan skipped: no {IMAGE}")  # noqa: T201


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
    pool = OwnPool.of(site, "localhost").pool()
    pool.destroy()
    pool.undefine()


class _Reads:
    """The reads without which the question *is it so already?* has no answer, once each."""

    def __init__(self, connection: libvirt.virConnect, site: Site, node: NodeSliver) -> None:
        self._connection, self._uuid = connection, domain_uuid(node.id)
        self._networks = [network_name(site.site, vnic.network) for vnic in node.vnics()]
        self._pool = OwnPool.of(site, "localhost").name
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
