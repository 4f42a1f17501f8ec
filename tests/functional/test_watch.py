"""A watcher puts back what others take from a domain, on a real libvirtd and QEMU."""

from collections.abc import Iterator
from queue import SimpleQueue
from xml.etree import ElementTree

import libvirt
import pytest

from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, WatchSettings
from fabric_direct.state.repair_history import Note, RepairResult
from tests.conftest import KEY
from tests.functional.apart import TAG
from tests.outcomes import done

SLIVER = NodeSliver.model_validate(
    {
        "id": f"{TAG}-watched",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "ssh_keys": [KEY],
        "components": [
            {"type": "vNIC", "id": "nic1", "network": "red"},
            {"type": "Storage", "id": "data", "size": 1},
        ],
    }
)
LOST = {"vNIC nic1 is missing", "Storage data is missing"}


@pytest.fixture
def processor(unattended: Site) -> Iterator[HandlerProcessor]:
    site = unattended.model_copy(update={"watch": WatchSettings(enabled=True)})
    with HandlerProcessor(site) as processor:
        yield processor
        done(processor.delete(SLIVER.ref()).result())


@pytest.fixture
def domain(processor: HandlerProcessor, connection: libvirt.virConnect) -> libvirt.virDomain:
    done(processor.create(SLIVER).result())
    return connection.lookupByUUID(domain_uuid(SLIVER.id).bytes)


@pytest.fixture
def notes(processor: HandlerProcessor, domain: libvirt.virDomain) -> "SimpleQueue[Note]":
    told: SimpleQueue[Note] = SimpleQueue()
    processor.watch(told.put)
    return told


def strip(domain: libvirt.virDomain) -> str:
    """Return the definition without what was plugged in for the sliver, as Nova writes it anew."""
    xml = ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    devices = xml.find("devices")
    assert devices is not None
    for device in [*devices.iterfind("interface"), *devices.iterfind("disk")]:
        alias = device.find("alias")
        if alias is not None and alias.get("name", "").startswith(f"ua-{SLIVER.id}-"):
            devices.remove(device)
    return ElementTree.tostring(xml, encoding="unicode")


def test_what_a_hard_reboot_takes_away_is_back_while_the_domain_runs(
    processor: HandlerProcessor,
    connection: libvirt.virConnect,
    domain: libvirt.virDomain,
    notes: "SimpleQueue[Note]",
) -> None:
    domain.destroy()
    connection.defineXML(strip(domain)).create()

    repaired: set[str] = set()
    while not repaired >= LOST:
        note = notes.get(timeout=60)
        if note.did is RepairResult.REPAIRED:
            assert note.subject == SLIVER.id
            repaired |= set(note.differences)

    # libvirt shows a domain as paused for a moment before its CPUs start.
    assert repaired - {"the server is paused, not running"} == LOST
    assert domain.isActive()
    observed = done(processor.probe(SLIVER.ref()).result()).observed
    assert observed is not None
    assert observed.differences == ()
