"""A server by fabric_am's naming, with a drive that somebody passed through, is adopted and deleted."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import libvirt
import pytest
from openstack.connection import Connection

from fabric_direct.model import DeviceState, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import Things
from tests.openstack.target import TARGET
from tests.outcomes import done
from tests.site.conftest import DRIVE, HOST, IMAGE, drive, sliver, states
from tests.worker.conftest import Worker

HOSTDEV = """<hostdev mode='subsystem' type='pci' managed='yes'><source>
<address domain='0x{0}' bus='0x{1}' slot='0x{2}' function='0x{3}'/></source></hostdev>"""
WRITTEN = "what a tenant wrote"


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(actor={"management_network": TARGET.network})


@pytest.fixture
def old(cloud: Connection, worker: Worker, nothing_left: None) -> Iterator[Any]:
    """A server whose domain has a drive with something on it, live and as defined."""
    worker.run("sh", "-c", f"echo {WRITTEN} > /dev/{worker.namespace(DRIVE)}; sync")
    made = cloud.compute.create_server(
        name=f"{uuid4()}-node1",
        image_id=cloud.image.find_image(IMAGE, ignore_missing=False).id,
        flavor_id=cloud.compute.find_flavor(TARGET.flavor, ignore_missing=False).id,
        networks=[{"uuid": cloud.network.find_network(TARGET.network, ignore_missing=False).id}],
        availability_zone=f"nova:{HOST}",
    )
    server = cloud.compute.wait_for_server(made, wait=300)
    domain = worker.connection.lookupByName(server.instance_name)
    everywhere = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.attachDeviceFlags(HOSTDEV.format(*DRIVE.replace(".", ":").split(":")), everywhere)
    yield server
    cloud.compute.delete_server(server, ignore_missing=True)
    cloud.compute.wait_for_delete(server, wait=120)


def test_nothing_but_stamps_is_written_and_its_end_erases_the_drive(
    processor: HandlerProcessor, worker: Worker, things: Things, old: Any
) -> None:
    domain = worker.connection.lookupByName(old.instance_name)
    was = domain.XMLDesc(), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    (draft,) = processor.drafts(old.name)
    assert draft.adoption, draft.error
    done(processor.adopt(draft.adoption).result())
    assert (domain.XMLDesc(), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) == was
    assert states(processor)[DRIVE] is DeviceState.USED
    ref = SliverRef(id=old.name[:36])
    assert done(processor.reconcile(ref).result()).data["repaired"] == []

    second = processor.create(sliver(drive(), id="fdtest-second")).result()
    assert second.error
    assert f"it belongs to {ref.id}/" in second.error.message

    done(processor.delete(ref).result())
    assert states(processor)[DRIVE] is DeviceState.FREE
    assert WRITTEN not in worker.run("head", "-c", "4096", f"/dev/{worker.namespace(DRIVE)}")
    assert things() == set()
