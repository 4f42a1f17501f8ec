"""Bandwidths of NICs on a real OpenStack, by Neutron's QoS policies; no guest is looked into."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS
from fabric_direct.model import NodeSliver, ObservedInterface, SliverRef, Status
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import Things, metered, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.openstack.test_interrupted import killed
from tests.outcomes import done

pytestmark = [pytest.mark.xdist_group("bandwidth"), pytest.mark.long]
VM = SliverRef(id=ours("limited"))
PORTS = SliverRef(id=ours("limited-net"), type="vNICPorts")


def vm(**interface: Any) -> NodeSliver:
    return sliver("limited", components=[nic("eth0", TARGET.network, **interface)])


def net(**interface: Any) -> VNicPortsSliver:
    port = {"id": "p1", "server": VM.id, "interface": interface}
    values = {"id": PORTS.id, "network": TARGET.network, "ports": [port]}
    return VNicPortsSliver.model_validate(values)


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site], cloud: Connection) -> Site:
    """A site that does not look into its guests."""
    if not {e.alias for e in cloud.network.extensions()} >= LIMITS_PORTS:
        pytest.skip("the cloud's Neutron limits no ports: it has not the service plugin qos")
    return make_site(guest="none")


@pytest.fixture(scope="module", autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    for ref in (PORTS, VM):
        done(processor.delete(ref).result())
    assert things() == set()


@pytest.fixture
def limited(processor: HandlerProcessor) -> NodeSliver:
    """A server whose NIC is limited to 20 Mbit/s: that of the test before, if it is there."""
    wanted = vm(bandwidth=20)
    if done(processor.probe(VM).result()).observed.state == "absent":  # type: ignore[union-attr]
        done(processor.create(wanted).result())
    done(processor.modify(wanted).result())
    return wanted


def port_of(cloud: Connection, holder: str) -> Any:
    return next(port for port in cloud.network.ports() if (port.name or "").startswith(holder))


def rules(cloud: Connection, holder: str) -> dict[str, int]:
    """What Neutron says of a sliver's port: kbit/s in each direction."""
    policy = cloud.network.get_qos_policy(port_of(cloud, holder).qos_policy_id)
    return {rule["direction"]: rule["max_kbps"] for rule in policy.rules}


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def in_effect(tap: str) -> tuple[str, str]:
    """The rates at which a guest may receive and send, as ``tc`` writes them."""
    qdiscs = run("tc", "qdisc", "show", "dev", tap)
    filters = run("tc", "filter", "show", "dev", tap, "parent", "ffff:")
    shaped = qdiscs.partition("tbf")[2].partition("rate ")[2].partition(" ")[0]
    return shaped, filters.partition("police")[2].partition("rate ")[2].partition(" ")[0]


def interface(processor: HandlerProcessor, wanted: SliverRef) -> ObservedInterface:
    observed = done(processor.probe(wanted).result()).observed
    assert observed
    assert observed.differences == ()
    (found,) = observed.interfaces
    return found


def test_a_nic_is_limited_from_its_first_packet_on(
    processor: HandlerProcessor, cloud: Connection, limited: NodeSliver
) -> None:
    assert rules(cloud, VM.id + "-") == {"egress": 20_000, "ingress": 20_000}
    assert interface(processor, limited).bandwidth == 20


def test_a_limit_is_changed_lifted_and_set_while_the_nic_stays_plugged_in(
    processor: HandlerProcessor, cloud: Connection, things: Things, limited: NodeSliver
) -> None:
    before = port_of(cloud, VM.id + "-")

    done(processor.modify(vm(bandwidth=50)).result())
    changed = rules(cloud, VM.id + "-")
    done(processor.modify(vm()).result())
    lifted = port_of(cloud, VM.id + "-")
    without = interface(processor, vm())
    policies = {name for name in things() if name.startswith("QoSPolicy")}
    done(processor.modify(limited).result())
    after = port_of(cloud, VM.id + "-")

    assert changed == {"egress": 50_000, "ingress": 50_000}
    assert (lifted.qos_policy_id, without.bandwidth, policies) == (None, None, set())
    assert (after.id, after.mac_address) == (before.id, before.mac_address)
    assert rules(cloud, VM.id + "-") == {"egress": 20_000, "ingress": 20_000}
    assert interface(processor, limited).bandwidth == 20


def test_what_others_change_of_a_limit_is_named_and_repaired(
    processor: HandlerProcessor, cloud: Connection, limited: NodeSliver
) -> None:
    port = port_of(cloud, VM.id + "-")
    network, policy = cloud.network, cloud.network.get_qos_policy(port.qos_policy_id)
    egress = next(rule["id"] for rule in policy.rules if rule["direction"] == "egress")
    theirs = network.create_qos_policy(name=ours("theirs"))
    changes: dict[str, Callable[[], object]] = {
        "is limited to 5 Mbit/s, not to 20 Mbit/s": lambda: [
            network.update_qos_bandwidth_limit_rule(rule["id"], policy.id, max_kbps=5_000)
            for rule in policy.rules
        ],
        "is limited otherwise in each direction, not to 20 Mbit/s": lambda: (
            network.delete_qos_bandwidth_limit_rule(egress, policy.id)
        ),
        "is not limited to 20 Mbit/s": lambda: network.update_port(
            port.id, qos_policy_id=theirs.id
        ),
    }
    try:
        for said, change in changes.items():
            change()
            found = done(processor.probe(limited).result()).observed
            assert found
            assert f"vNIC eth0 {said}" in found.differences

            done(processor.reconcile(VM).result())
            assert rules(cloud, VM.id + "-") == {"egress": 20_000, "ingress": 20_000}
            assert interface(processor, limited).bandwidth == 20
        assert network.get_qos_policy(theirs.id).rules == []
    finally:
        network.update_port(port.id, qos_policy_id=policy.id)
        network.delete_qos_policy(theirs.id)


def test_a_port_of_another_sliver_is_limited_too(
    processor: HandlerProcessor, cloud: Connection, things: Things, limited: NodeSliver
) -> None:
    done(processor.create(net(bandwidth=30)).result())
    made = rules(cloud, PORTS.id)
    done(processor.modify(net(bandwidth=40)).result())
    seen = interface(processor, net(bandwidth=40)).bandwidth
    changed = rules(cloud, PORTS.id)
    done(processor.delete(PORTS).result())

    assert made == {"egress": 30_000, "ingress": 30_000}
    assert changed == {"egress": 40_000, "ingress": 40_000}
    assert seen == 40
    assert {name for name in things() if "limited-net" in name} == set()


def has_ovn() -> bool:
    """Whether OVN is what limits: by meters of its switch, without the kernel."""
    return "ovn" in Path("/run/fabric-direct-lab/openstack").read_text()


@pytest.fixture
def limiting_worker() -> None:
    """See that this machine, which is the lab's worker, can limit what a guest sends."""
    if not TARGET.is_lab:
        pytest.skip("the worker is another machine")
    if has_ovn():
        return
    police = "tc filter add dev d0 parent ffff: protocol all basic police rate 1mbit burst 10k drop"
    script = f"ip link add d0 type dummy && tc qdisc add dev d0 ingress && {police}"
    tried = subprocess.run(["unshare", "-n", "sh", "-c", script], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("this kernel has no cls_basic or act_police; Neutron's agent then does neither")


@pytest.mark.usefixtures("limiting_worker")
def test_the_worker_limits_each_direction(cloud: Connection, limited: NodeSliver) -> None:
    tap = f"tap{port_of(cloud, VM.id + '-').id[:11]}"

    def both() -> bool:
        if has_ovn():
            return metered(run) == [20_000, 20_000]
        return in_effect(tap) == ("20Mbit", "20Mbit")

    wait_until("the worker to limit it", both, timeout=300)


@pytest.mark.parametrize("path", ["/qos/policies$", "/bandwidth_limit_rules$"])
def test_one_that_is_killed_while_it_limits_a_nic_is_finished_and_leaves_nothing(
    processor: HandlerProcessor, cloud: Connection, things: Things, path: str
) -> None:
    wanted = sliver("cut-limit", components=[nic("eth0", TARGET.network, bandwidth=20)])

    assert killed(processor.site, "create", wanted, "POST", path)
    done(processor.create(wanted).result())
    made = rules(cloud, wanted.id)
    assert killed(processor.site, "delete", wanted, "DELETE", "/ports/")
    left = {name for name in things() if wanted.id in name}
    done(processor.delete(wanted.ref()).result())

    assert made == {"egress": 20_000, "ingress": 20_000}
    assert f"QoSPolicy {wanted.id}-eth0" in left
    assert {name for name in things() if wanted.id in name} == set()


def test_a_member_is_told_that_no_limit_can_be_made(
    make_site: Callable[..., Site], member: dict[str, Any]
) -> None:
    wanted = sliver("bad", host=None, components=[nic("eth0", TARGET.network, bandwidth=10)])
    with HandlerProcessor(make_site(guest="none", openstack=member)) as processor:
        outcome = processor.create(wanted).result()
        done(processor.delete(wanted.ref()).result())

    assert outcome.status is Status.FAILED
    assert outcome.error
    assert outcome.error.kind == "Denied"
    assert "administrator" in outcome.error.message
    assert outcome.left == ()
