"""A sweep on a real OpenStack: by stamp, of one site among others."""

from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from fabric_direct.drivers.openstack.client.stamp import description
from fabric_direct.errors import Refused
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import RED, Things, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done

pytestmark = pytest.mark.long
GHOST, KEPT, LAN = ours("sweep-ghost"), ours("sweep-kept"), ours("sweep-lan")
ALL = 100.0


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(guest="none")


@pytest.fixture(scope="module", autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    for ref in (SliverRef(id=GHOST), SliverRef(id=KEPT), SliverRef(id=LAN, type="L2Bridge")):
        processor.delete(ref).result()
    assert things() == set()


def ghost() -> NodeSliver:
    parts = [
        nic("eth0", TARGET.network, floating_ip=True),
        {"type": "Storage", "id": "data", "size": 1},
    ]
    return sliver("sweep-ghost", components=parts)


def lan() -> NetworkSliver:
    network = TARGET.vlan_network(TARGET.own_vlans[1], "10.224.1.0/24")
    return NetworkSliver.model_validate({"id": LAN, "name": LAN, "network": network})


def test_what_nobody_expects_is_found_and_deleted_and_what_others_have_stays(
    processor: HandlerProcessor,
    make_site: Callable[..., Site],
    cloud: Connection,
    things: Things,
) -> None:
    done(processor.create(ghost()).result())
    done(processor.create(lan()).result())
    with HandlerProcessor(make_site(guest="none")) as theirs:
        keeper = sliver("sweep-theirs", components=[nic("eth0", TARGET.network)])
        # A port alone is enough to be theirs.
        network = cloud.network.find_network(TARGET.network)
        about = description(theirs.site.site, keeper.id)
        port = cloud.network.create_port(network_id=network.id, name=keeper.id, description=about)
        try:
            found = processor.find_unexpected([KEPT])
            kinds = {(thing.sliver, thing.kind) for thing in found.things if thing.sliver}
            begun = processor.sweep([KEPT], found.token, at_most=ALL)
            for future in begun.deletions:
                done(future.result())
            assert cloud.network.get_port(port.id)
        finally:
            cloud.network.delete_port(port.id)

    assert kinds == {
        *((GHOST, kind) for kind in ("server", "port", "floating IP", "volume")),
        (LAN, "network"),
    }
    assert found.types == {GHOST: "VM", LAN: "L2Bridge"}
    assert begun.kept == ()
    assert processor.find_unexpected([KEPT]).things == ()
    assert things() == set()


def test_a_port_and_a_floating_ip_without_a_server_are_found(
    processor: HandlerProcessor, cloud: Connection, things: Things, site: Site
) -> None:
    """As a killed creation leaves them."""
    network = cloud.network.find_network(TARGET.network)
    about = description(site.site, GHOST)
    cloud.network.create_port(network_id=network.id, name=f"{GHOST}-eth0", description=about)
    external = cloud.network.find_network(TARGET.external_network)
    cloud.network.create_ip(floating_network_id=external.id, description=about)

    found = processor.find_unexpected([KEPT])
    begun = processor.sweep([KEPT], found.token, at_most=ALL)

    assert {thing.kind for thing in found.things} == {"port", "floating IP"}
    assert [done(future.result()).sliver.id for future in begun.deletions] == [GHOST]
    assert things() == set()


def test_a_network_of_the_site_that_nobody_uses_is_removed(
    processor: HandlerProcessor, cloud: Connection, things: Things, site: Site
) -> None:
    """As a process leaves it that was killed before it made the first port."""
    vlan, _ = TARGET.own_vlans
    cloud.network.create_network(
        name=RED,
        description=f"fabric-direct {site.site} network {RED}",
        provider_network_type="vlan",
        provider_physical_network=TARGET.physical_network,
        provider_segmentation_id=vlan,
    )

    found = processor.find_unexpected([KEPT])
    begun = processor.sweep([KEPT], found.token)

    assert [thing.kind for thing in found.of_nobody()] == ["unused network"]
    assert (begun.kept, things()) == ((), set())


def test_it_stops_if_the_cloud_does_not_answer(make_site: Callable[..., Site]) -> None:
    site = make_site(guest="none", limits={"call": 0.001})

    with HandlerProcessor(site) as processor, pytest.raises(Refused, match="is not known"):
        processor.find_unexpected([KEPT])
