"""A sweep on this machine's libvirt: by stamp, of one site among others; nothing boots."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import libvirt
import pytest

from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.errors import Refused
from fabric_direct.model import NodeSliver, SliverRef, Status
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.upkeep.sweep.findings import Findings
from tests.functional.apart import TAG, subnet
from tests.functional.conftest import with_empty_image
from tests.limits import PATIENT
from tests.outcomes import done

HOST = "localhost"
KEPT, GHOST = f"{TAG}-sweep-kept", f"{TAG}-sweep-ghost"
ALL = 100.0


def make_site(room: Path, name: str, third: int) -> Site:
    """A site of its own, whose image boots nothing."""
    site = Site.model_validate(
        {
            "site": f"{TAG}-{name}",
            "state_dir": room / name / "state",
            "volume_pool": room / "sweep-volumes",
            "guest": "none",
            "limits": PATIENT,
            "networks": {
                "red": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{subnet(third)}.0/24",
                    "forward": "open",
                }
            },
        }
    )
    return with_empty_image(site)


@pytest.fixture(scope="module")
def site(room: Path) -> Site:
    return make_site(room, "sweep", 231)


@pytest.fixture(scope="module")
def others(room: Path) -> Site:
    """Another site on the same libvirt, and in the same directory for disks, against all advice."""
    return make_site(room, "others", 232)


@pytest.fixture(scope="module")
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture(scope="module")
def kept(processor: HandlerProcessor) -> Iterator[SliverRef]:
    """A sliver that is expected, and after each test as it was."""
    done(processor.create(node(KEPT)).result())
    yield SliverRef(id=KEPT)
    done(processor.delete(SliverRef(id=KEPT)).result())


@pytest.fixture(autouse=True)
def nobody_harmed(processor: HandlerProcessor, kept: SliverRef) -> Iterator[None]:
    yield
    done(processor.delete(SliverRef(id=GHOST)).result())
    found = done(processor.probe(kept).result()).observed
    assert found
    assert found.differences == ()


def node(sliver: str, **values: Any) -> NodeSliver:
    parts = [
        {"type": "vNIC", "id": "nic", "network": "red"},
        {"type": "Storage", "id": "data", "size": 1},
    ]
    defaults = {
        "id": sliver,
        "name": "node",
        "image": "empty",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "components": parts,
    }
    return NodeSliver.model_validate(defaults | values)


@contextmanager
def made(processor: HandlerProcessor, sliver: NodeSliver | VNicPortsSliver) -> Iterator[None]:
    done(processor.create(sliver).result())
    yield
    done(processor.delete(sliver.ref()).result())


def sweep(processor: HandlerProcessor, *expected: str) -> tuple[Findings, dict[str, Status]]:
    found = processor.find_unexpected(expected)
    begun = processor.sweep(expected, found.token, at_most=ALL)
    assert begun.kept == ()
    outcomes = [future.result() for future in begun.deletions]
    return found, {outcome.sliver.id: outcome.status for outcome in outcomes}


def of(found: Findings, sliver: str) -> list[str]:
    return [f"{thing.kind} {thing.name}" for thing in found.things if thing.sliver == sliver]


def test_what_nobody_expects_is_found_whole_and_deleted(
    site: Site, processor: HandlerProcessor
) -> None:
    done(processor.create(node(GHOST)).result())

    found, statuses = sweep(processor, KEPT)

    volumes = site.volume_pool
    console = f"{OwnPool.of(site, HOST).name}.{GHOST}.console"
    assert set(of(found, GHOST)) == {
        f"domain {GHOST}-node",
        f"disk {volumes}/{GHOST}.root",
        f"disk {volumes}/{GHOST}.seed",
        f"disk {volumes}/{GHOST}.console",
        f"console {console}",
        "port nic on red",
        f"volume {volumes}/{GHOST}.volume.data",
    }
    assert (found.types, found.exist, statuses) == ({GHOST: "VM"}, 2, {GHOST: Status.DONE})
    assert processor.find_unexpected([KEPT]).things == ()
    assert not list(Path(str(volumes)).glob(f"{GHOST}*"))


def test_disks_without_a_domain_are_found(
    processor: HandlerProcessor, connection: libvirt.virConnect
) -> None:
    done(processor.create(node(GHOST, components=[])).result())
    domain = connection.lookupByUUID(domain_uuid(GHOST).bytes)
    domain.destroy()
    domain.undefine()

    found, statuses = sweep(processor, KEPT)

    assert found.types == {GHOST: "VM"}
    assert not any(name.startswith("domain") for name in of(found, GHOST))
    assert statuses == {GHOST: Status.DONE}
    assert processor.find_unexpected([KEPT]).things == ()


def test_ports_in_the_server_of_another_are_found_and_the_server_stays(
    processor: HandlerProcessor, connection: libvirt.virConnect
) -> None:
    """It does not run: a guest that boots nothing lets go of no NIC."""
    connection.lookupByUUID(domain_uuid(KEPT).bytes).destroy()
    net = VNicPortsSliver.model_validate(
        {"id": f"{GHOST}-net", "network": "red", "ports": [{"id": "p1", "server": KEPT}]}
    )
    done(processor.create(net).result())

    found, statuses = sweep(processor, KEPT)

    assert of(found, net.id) == [f"NIC p1 of {KEPT}-node", "port p1 on red"]
    assert (found.types, statuses) == ({net.id: "vNICPorts"}, {net.id: Status.DONE})
    xml = connection.lookupByUUID(domain_uuid(KEPT).bytes).XMLDesc(0)
    assert f"ua-{net.id}-" not in xml
    done(processor.poa(SliverRef(id=KEPT), "start").result())


def test_what_another_site_stamped_is_not_found(
    processor: HandlerProcessor, others: Site, connection: libvirt.virConnect
) -> None:
    with HandlerProcessor(others) as theirs, made(theirs, node(f"{TAG}-sweep-theirs")):
        found = processor.find_unexpected([KEPT])

        assert (found.things, found.left_alone, found.exist) == ((), (), 1)
        with pytest.raises(Refused):
            processor.sweep([KEPT], "0123456789abcdef", at_most=ALL)
        assert connection.lookupByUUID(domain_uuid(f"{TAG}-sweep-theirs").bytes).isActive()


def test_a_copy_of_our_stamp_is_named_and_not_touched(
    processor: HandlerProcessor, connection: libvirt.virConnect
) -> None:
    """As virt-clone makes one: another domain with the metadata of the first."""
    xml = ElementTree.fromstring(connection.lookupByUUID(domain_uuid(KEPT).bytes).XMLDesc(0))
    stamp = ElementTree.tostring(xml.find("metadata"), encoding="unicode")
    clone = connection.defineXML(
        f"<domain type='qemu'><name>{TAG}-sweep-clone</name><memory unit='MiB'>64</memory>"
        f"<os><type>hvm</type></os>{stamp}</domain>"
    )
    try:
        found = processor.find_unexpected([KEPT])
    finally:
        clone.undefine()

    assert found.things == ()
    (left,) = found.left_alone
    assert left.what == f"domain {TAG}-sweep-clone on {HOST}"


class TestNetworks:
    @pytest.fixture
    def lost(self, site: Site, processor: HandlerProcessor) -> Callable[[], None]:
        """Lose the address pools."""
        return (site.state_dir / "pools.sqlite").unlink

    @pytest.fixture
    def pools_kept(self, site: Site) -> Iterator[None]:
        pools = site.state_dir / "pools.sqlite"
        content = pools.read_bytes()
        yield
        pools.write_bytes(content)

    @pytest.mark.usefixtures("pools_kept")
    def test_one_that_is_plugged_in_is_not_unused_though_its_pools_were_lost(
        self, processor: HandlerProcessor, lost: Callable[[], None]
    ) -> None:
        lost()

        assert processor.find_unexpected([KEPT]).of_nobody() == ()

    def test_one_that_nobody_uses_is_removed(
        self, others: Site, connection: libvirt.virConnect
    ) -> None:
        sliver = node(f"{TAG}-sweep-last")
        name = f"fd-{others.site}-red"
        with HandlerProcessor(others) as processor:
            done(processor.create(sliver).result())
            xml = connection.networkLookupByName(name).XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE)
            done(processor.delete(sliver.ref()).result())
            root = ElementTree.fromstring(xml)
            for entry in root.findall("ip/dhcp/host"):
                root.find("ip/dhcp").remove(entry)
            connection.networkDefineXML(ElementTree.tostring(root, encoding="unicode")).create()

            found, _ = sweep(processor, "someone")

        assert [str(t) for t in found.of_nobody()] == [f"unused network red on {HOST}"]
        assert name not in {network.name() for network in connection.listAllNetworks()}


def killed_sweep(site: Site, token: str) -> None:
    """Sweep in another process, which kills itself when the domain is gone."""
    code = f"""
        import os, signal
        from fabric_direct import HandlerProcessor, Site
        from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute

        inner = LibvirtCompute.delete
        die = lambda: os.kill(os.getpid(), signal.SIGKILL)
        LibvirtCompute.delete = lambda *a, **k: (inner(*a, **k), die())
        site = Site.model_validate_json({site.model_dump_json()!r})
        with HandlerProcessor(site) as processor:
            for future in processor.sweep([{KEPT!r}], {token!r}, at_most=100.0).deletions:
                future.result()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_one_that_was_killed_in_the_middle_is_ended_by_the_next(
    site: Site, processor: HandlerProcessor
) -> None:
    done(processor.create(node(GHOST)).result())
    token = processor.find_unexpected([KEPT]).token

    killed_sweep(site, token)

    with pytest.raises(Refused, match="gone: domain"):
        processor.sweep([KEPT], token, at_most=ALL)
    found, statuses = sweep(processor, KEPT)
    assert "journal entry" in " ".join(of(found, GHOST))
    assert statuses == {GHOST: Status.DONE}
    assert processor.find_unexpected([KEPT]).things == ()
    assert processor.unfinished() == ()
