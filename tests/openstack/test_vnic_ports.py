"""Ports of one sliver in the server of another, on a real OpenStack."""

from collections.abc import Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import NodeSliver, SliverRef, State, Status
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import RED, Things, mac, nic, ours, run_in, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done, made

pytestmark = [pytest.mark.xdist_group("vnic_ports"), pytest.mark.long]
REF = SliverRef(id=ours("carrier-net"), type="vNICPorts")
MAC, MAC2 = mac(11), mac(12)
# Its own NIC keeps the network there, which would else be made and deleted with each port.
VM = sliver("carrier", components=[nic("eth0", TARGET.network, floating_ip=True), nic("eth1", RED)])


def port(name: str = "p1", mac: str = MAC, **interface: Any) -> dict[str, Any]:
    interface = {"mac": mac, "port_security": False, **interface}
    return {"id": name, "server": VM.id, "interface": interface}


def net(*ports: dict[str, Any], network: str = RED) -> VNicPortsSliver:
    values = {"id": REF.id, "network": network, "ports": ports or (port(),)}
    return VNicPortsSliver.model_validate(values)


@pytest.fixture(scope="module")
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    for ref in (REF, VM.ref()):
        processor.delete(ref).result()
    assert things() == set()


@pytest.fixture
def vm(processor: HandlerProcessor, nothing_left: None) -> NodeSliver:
    """A running server: that of the test before, unless it was deleted."""
    done(processor.create(VM).result())
    return VM


@pytest.fixture
def unplugged(processor: HandlerProcessor, vm: NodeSliver) -> None:
    """No port is left of the test before."""
    done(processor.delete(REF).result())


@pytest.fixture
def plugged(processor: HandlerProcessor, vm: NodeSliver) -> None:
    """A port is plugged into the server; it stays for the next test, which saves half of the time."""
    done(processor.create(net()).result())


def in_guest(processor: HandlerProcessor, mac: str) -> bool:
    return mac in run_in(processor, VM, "ip", "link")


def seen_in_guest(processor: HandlerProcessor, mac: str) -> None:
    """See that the guest comes to see a NIC: after a plug it takes a moment."""
    wait_until("the NIC in the guest", lambda: in_guest(processor, mac), timeout=300)


def test_ports_come_and_go_while_the_guest_runs(
    processor: HandlerProcessor, unplugged: None, cloud: Connection
) -> None:
    outcome = done(processor.create(net(port(ipv4="10.221.1.88/24"))).result())

    assert outcome.observed
    (found,) = outcome.observed.interfaces
    assert (found.mac, found.network, found.port_security) == (MAC, RED, False)
    assert found.addresses == ("10.221.1.88/24",)
    seen_in_guest(processor, MAC)
    assert made(done(processor.create(net(port(ipv4="10.221.1.88/24"))).result())) == set()

    done(processor.modify(net(port("p2", MAC2))).result())
    seen_in_guest(processor, MAC2)
    assert not in_guest(processor, MAC)

    done(processor.delete(REF).result())
    assert not in_guest(processor, MAC2)
    assert not list(cloud.network.ports(mac_address=MAC2))


def test_a_port_that_somebody_took_away_is_deleted_already(
    processor: HandlerProcessor, vm: NodeSliver, cloud: Connection
) -> None:
    done(processor.create(net()).result())
    for found in cloud.network.ports(mac_address=MAC):
        cloud.network.delete_port(found)

    done(processor.delete(REF).result())


def test_a_server_that_is_not_there_is_refused(
    processor: HandlerProcessor, things: Things, vm: NodeSliver
) -> None:
    before = things()

    outcome = processor.create(net(port() | {"server": ours("nobody")})).result()

    assert outcome.status is Status.REFUSED
    assert outcome.error
    assert outcome.error.field == "ports[0].server"
    assert things() == before


def test_the_servers_own_sliver_lets_them_be(
    processor: HandlerProcessor, vm: NodeSliver, unplugged: None, cloud: Connection
) -> None:
    more = vm.model_dump(mode="json", exclude_none=True)
    more["components"].append(nic("eth2", RED))

    plugging = processor.create(net())
    done(processor.modify(NodeSliver.model_validate(more)).result())
    done(plugging.result())
    observed = done(processor.probe(vm.ref()).result()).observed
    assert observed
    assert observed.differences == ()
    assert [i.component for i in observed.interfaces] == ["eth0", "eth1", "eth2"]
    assert [len(s.ports) for s in processor.slivers() if s.sliver == vm.id] == [3]
    done(processor.poa(vm, "reboot", {"hard": True}).result())

    seen_in_guest(processor, MAC)
    assert done(processor.probe(net()).result()).observed.differences == ()  # type: ignore[union-attr]
    done(processor.modify(VM).result())


def test_a_server_that_is_not_ours_is_not_touched(
    processor: HandlerProcessor, plugged: None, cloud: Connection, site: Site
) -> None:
    """To this site the server of another one is somebody else's."""
    elsewhere = site.model_copy(update={"site": f"{site.site}-2"})
    (held,) = cloud.network.ports(mac_address=MAC)
    ours, theirs = (f"fabric-direct {s.site}/{REF.id}" for s in (site, elsewhere))
    cloud.network.update_port(held.id, description=theirs)

    with HandlerProcessor(elsewhere) as other:
        outcome = other.delete(REF).result()
        assert outcome.error
        assert outcome.error.kind == "NotOurs"

    seen_in_guest(processor, MAC)
    cloud.network.update_port(held.id, description=ours)


def test_the_server_goes_first_and_the_port_stays_until_its_own_sliver_goes(
    processor: HandlerProcessor, plugged: None, cloud: Connection, things: Things
) -> None:
    deleted = done(processor.delete(VM.ref()).result())

    assert deleted.left == ()
    (held,) = cloud.network.ports(mac_address=MAC)
    assert held.device_id == ""
    observed = done(processor.probe(net()).result()).observed
    assert observed
    assert observed.state is State.ERROR
    assert observed.differences == ("port p1 is plugged into no server",)
    done(processor.delete(REF).result())
    assert things() == set()
