"""The whole life of a sliver on a real OpenStack: as asked, twice, at once, interrupted, failing."""

from collections.abc import Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.model import Finding, NodeSliver, SliverRef, State
from fabric_direct.processor import HandlerProcessor
from tests.openstack.conftest import (
    BLUE,
    RED,
    SCRIPT,
    WORKER,
    Things,
    mac,
    nic,
    ours,
    run_in,
    sliver,
)
from tests.openstack.target import TARGET
from tests.outcomes import done, made

DATA = {"type": "Storage", "id": "data", "size": 1}
NICS = [
    nic("eth0", TARGET.network, floating_ip=True, mac=mac(1)),
    nic("eth1", RED, ipv4="10.221.1.77/24"),
    nic("eth2", BLUE, port_security=False),
]


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    names = ("life", *(f"many{n}" for n in range(10)))
    for future in [processor.delete(SliverRef(id=ours(name))) for name in names]:
        future.result()
    assert things() == set()


def life(**values: Any) -> NodeSliver:
    defaults: dict[str, Any] = {"components": [*NICS, DATA], "boot_script": SCRIPT}
    return sliver("life", **(defaults | values))


@pytest.mark.share
@pytest.mark.long
def test_three_nics_a_floating_ip_and_a_volume(
    processor: HandlerProcessor, cloud: Connection, things: Things, flat_network: str
) -> None:
    wanted = life()

    plan = done(processor.plan(wanted).result())
    assert {s.finding for s in plan.steps} <= {Finding.WILL_CREATE, Finding.WILL_CHANGE}
    assert things() == set()

    found = done(processor.create(wanted).result()).observed
    assert found
    assert (found.state, found.host, found.flavor) == (State.RUNNING, WORKER, TARGET.flavor)
    assert found.domain
    assert found.guest
    assert found.guest.boot_finished
    eth0, eth1, eth2 = found.interfaces
    assert eth0.mac == mac(1)
    assert eth0.floating_ip
    assert eth1.addresses == ("10.221.1.77/24",)
    assert (eth0.port_security, eth1.port_security, eth2.port_security) == (True, True, False)
    for each in found.interfaces:
        assert each.addresses[0] in each.guest_addresses
    (data,) = found.volumes
    assert data.guest_name == data.target == "vdb"
    assert run_in(processor, wanted, "cat", "/hello.txt") == "hello from node\n"

    assert made(done(processor.create(wanted).result())) == set()
    unchanged = done(processor.plan(wanted).result())
    assert {s.finding for s in unchanged.steps} == {Finding.ALREADY_SO}

    changed = life(components=[*NICS[:2], nic("eth3", RED, mac=mac(3))])
    modified = done(processor.modify(changed).result()).observed
    assert modified
    assert [i.component for i in modified.interfaces] == ["eth0", "eth1", "eth3"]
    assert modified.volumes == ()
    assert made(done(processor.modify(changed).result())) == set()
    server = cloud.compute.get_server(modified.instance)
    assert len(list(cloud.compute.server_interfaces(server))) == 3

    done(processor.delete(wanted.ref()).result())
    assert things() == set()
    done(processor.delete(wanted.ref()).result())


@pytest.mark.long
class TestActions:
    @pytest.fixture
    def running(self, processor: HandlerProcessor) -> NodeSliver:
        wanted = life(components=NICS[:1], flavor=None)
        done(processor.create(wanted).result())
        return wanted

    def test_stop_start_reboot_console_keys_cpus_and_resize(
        self, processor: HandlerProcessor, running: NodeSliver
    ) -> None:
        def act(action: str, **data: Any) -> dict[str, Any]:
            return done(processor.poa(running, action, data).result()).data

        def boot() -> str:
            return run_in(processor, running, "cat", "/proc/sys/kernel/random/boot_id")

        assert act("stop") == {"state": "stopped"}
        assert act("start") == {"state": "running"}
        boots = [boot()]
        for hard in (False, True):
            assert act("reboot", hard=hard) == {"state": "running"}
            boots.append(boot())
        assert len(set(boots)) == 3
        assert "SSH HOST KEY" in act("console", lines=500)["console"]
        assert len(act("cpuinfo")["vcpus"]) == 1
        larger = {"core": 2, "ram": 2, "disk": 2}
        assert act("resize", capacities=larger) == {"state": "running"}
        assert len(act("cpuinfo")["vcpus"]) == 2
        again = life(components=NICS[:1], flavor=None, capacities=larger)
        assert made(done(processor.create(again).result())) == set()


@pytest.mark.long
def test_ten_at_once(processor: HandlerProcessor) -> None:
    many = [sliver(f"many{n}", wait_for="address") for n in range(10)]

    outcomes = [done(f.result()) for f in [processor.create(one) for one in many]]

    floating = {o.observed.interfaces[0].floating_ip for o in outcomes if o.observed}
    assert len(floating) == 10
    for future in [processor.delete(one.ref()) for one in many]:
        done(future.result())
