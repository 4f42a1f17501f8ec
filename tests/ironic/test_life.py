"""Bare-metal slivers on a real Ironic: on nodes of fake hardware, and on an emulated machine."""

import signal
import subprocess
import sys
import textwrap
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from openstack.baremetal.v1._proxy import Proxy

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import BareMetalDriver, NodeCondition
from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.errors import Conflict
from fabric_direct.model import SliverRef, State, Status
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import GuestSettings, Site
from fabric_direct.testing import BareMetalContract
from tests.ironic.conftest import ADDRESS, Enroll, Make, lab, new_key, reached, ssh
from tests.limits import PATIENT
from tests.outcomes import done

REF = SliverRef(id="metal", type="BareMetal")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"


def is_free(ironic: Proxy, name: str) -> bool:
    found = ironic.get_node(name)
    return (found.provision_state, found.instance_id, found.extra) == ("available", None, {})


class TestContract(BareMetalContract):
    @pytest.fixture
    def driver(self, site: Site) -> BareMetalDriver:
        return IronicBareMetal(site)

    @pytest.fixture
    def free(self, enroll: Enroll) -> str:
        return enroll()

    @pytest.fixture
    def image(self) -> str:
        return "disk"


@pytest.mark.share
def test_a_whole_life(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()

    made = done(processor.create(metal(boot_script="#!/bin/sh\n")).result())
    node = ironic.get_node(name)
    assert (node.provision_state, node.power_state) == ("active", "power on")
    assert node.instance_info["display_name"] == "box"
    assert node.extra["fabric-direct"]["sliver"] == "metal"
    assert made.observed
    assert (made.observed.host, made.observed.state) == (name, State.RUNNING)

    again = done(processor.create(metal(boot_script="#!/bin/sh\n")).result())
    assert {step.status.value for step in again.steps} == {"already so"}

    done(processor.modify(metal(name="other")).result())
    assert ironic.get_node(name).instance_info["display_name"] == "other"

    for action, state in (("stop", "stopped"), ("start", "running"), ("reboot", "running")):
        assert done(processor.poa(REF, action).result()).data == {"state": state}
    done(processor.reconcile(REF).result())

    done(processor.delete(REF).result())
    assert is_free(ironic, name)
    assert processor.services().found == ()


@pytest.mark.share
def test_two_at_once_for_the_last_node(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()

    futures = [processor.create(metal(id=each)) for each in ("a", "b")]
    outcomes = [future.result() for future in futures]

    assert sorted(outcome.ok for outcome in outcomes) == [False, True]
    winner = next(outcome.sliver for outcome in outcomes if outcome.ok)
    loser = next(outcome for outcome in outcomes if not outcome.ok)
    assert (loser.error and loser.error.kind, loser.left) == ("NoHost", ())
    done(processor.delete(winner).result())
    assert is_free(ironic, name)


def test_many_at_once_each_get_a_node(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    names = {enroll() for _ in range(4)}

    slivers = [metal(id=f"m{n}") for n in range(4)]
    made = [done(future.result()) for future in [processor.create(s) for s in slivers]]

    assert {outcome.observed.host for outcome in made if outcome.observed} == names
    for future in [processor.delete(s.ref()) for s in slivers]:
        done(future.result())
    assert all(is_free(ironic, name) for name in names)


def test_a_plan_is_carried_out_on_its_nodes_and_refused_where_others_took_one(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make, kind: str
) -> None:
    small = enroll()
    big = enroll(properties={"cpus": 16, "memory_mb": 32768, "local_gb": 100})
    slivers = [metal(id="m1"), metal(id="m2", capacities={"core": 9})]

    plan = processor.place(slivers)
    assert [each.chosen.node for each in plan.assignments] == [small, big]
    made = [done(future.result()) for future in processor.build(plan, slivers)]
    assert [outcome.observed and outcome.observed.host for outcome in made] == [small, big]
    told = {each.node: each.why for each in processor.explain(metal(id="m3")).nodes}
    assert (told[small], told[big]) == (f"{small} is active by m1", f"{big} is active by m2")
    assert done(processor.create(slivers[0]).result())
    for sliver in slivers:
        done(processor.delete(sliver.ref()).result())

    plan = processor.place([metal(id="m4")])
    taken = ironic.create_allocation(resource_class=kind, candidate_nodes=[small])
    ironic.wait_for_allocation(taken)
    with pytest.raises(Conflict, match=f"{small} is reserved by"):
        processor.build(plan, [metal(id="m4")])
    assert is_free(ironic, big)


@pytest.mark.share
def test_a_node_in_maintenance_is_given_to_nobody(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()
    ironic.set_node_maintenance(name, "new disks")

    outcome = processor.create(metal()).result()

    assert outcome.error
    assert (outcome.status, outcome.error.kind) == (Status.FAILED, "NoHost")
    assert "withheld (new disks)" in outcome.error.message


def test_the_instance_of_somebody_else_is_not_touched(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()
    ironic.set_node_provision_state(name, "active")
    before = reached(ironic, name, "active")

    refused = processor.create(metal()).result()
    done(processor.delete(REF).result())

    assert not refused.ok
    after = ironic.get_node(name)
    assert (after.provision_state, after.extra) == (before.provision_state, before.extra)


def test_a_taken_name_of_an_allocation_is_not_ours(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make, site: Site, kind: str
) -> None:
    enroll()
    other = ironic.create_allocation(name=f"{site.site}.metal", resource_class=kind)

    outcome = processor.create(metal()).result()

    assert outcome.error
    assert outcome.error.kind == "NotOurs"
    ironic.delete_allocation(other.id)


@pytest.mark.parametrize(
    "operation", ["create", pytest.param("modify", marks=pytest.mark.share), "rebuild", "delete"]
)
def test_killed_at_each_request_it_is_continued_or_deleted(
    site: Site, ironic: Proxy, enroll: Enroll, metal: Make, operation: str
) -> None:
    """Killed before and after each request that changes something: never two nodes, none lost."""
    names = {enroll(), enroll()}
    changed = {"modify": {"name": "other"}, "rebuild": {"ssh_keys": [KEY], "rebuild": True}}
    before, wanted = metal(), metal(**changed.get(operation, {}))
    method = "modify" if operation == "rebuild" else operation
    killed = 0
    for at in count(1):
        codes = []
        for when in ("before", "after"):
            with HandlerProcessor(site) as processor:
                if operation != "create":
                    done(processor.create(before).result())
            sliver = REF if operation == "delete" else wanted
            codes.append(ended(site, method, sliver, at, when))
            with HandlerProcessor(site) as processor:
                recovered = [future.result() for future in processor.recover()]
                assert all(outcome.ok for outcome in recovered), recovered
                assert bool(recovered) == (codes[-1] == -signal.SIGKILL)
                there = Counter(ironic.get_node(name).provision_state for name in names)
                if operation == "delete":
                    assert there == {"available": 2}
                else:
                    assert there == {"active": 1, "available": 1}
                    observed = done(processor.probe(wanted).result()).observed
                    assert observed
                    assert observed.differences == ()
                    done(processor.create(wanted).result())
                done(processor.delete(REF).result())
            assert all(is_free(ironic, name) for name in names)
        killed += codes.count(-signal.SIGKILL)
        if codes == [0, 0]:
            break
    assert killed >= 2 * {"create": 3, "modify": 1, "rebuild": 3, "delete": 2}[operation]


_KILLED = """
    import os, signal, sys
    from keystoneauth1.session import Session
    from fabric_direct.model import SliverRef
    from fabric_direct.model.bare_metal import BareMetalSliver
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.site.config import Site
    at, when, site, operation, sliver = int(sys.argv[1]), *sys.argv[2:]
    request, made = Session.request, [0]

    def counted(self, url, method, **how):
        changes = method != "GET"
        made[0] += changes
        if changes and made[0] == at and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = request(self, url, method, **how)
        if changes and made[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Session.request = counted
    model = SliverRef if operation == "delete" else BareMetalSliver
    with HandlerProcessor(Site.model_validate_json(site)) as processor:
        begin = getattr(processor, operation)
        outcome = begin(model.model_validate_json(sliver)).result()
    sys.exit(0 if outcome.ok else 1)
"""


def ended(site: Site, operation: str, sliver: SliverRef, at: int, when: str) -> int:
    """Run an operation in a process of its own, killed at a request; return how that ended."""
    told = site.model_dump_json(exclude_unset=True), operation, sliver.model_dump_json()
    argv = [sys.executable, "-c", textwrap.dedent(_KILLED), str(at), when, *told]
    return subprocess.run(argv, check=False).returncode


@pytest.mark.usefixtures("never_deployed")
def test_a_deployment_that_ironic_does_not_survive_is_told_and_nothing_is_left(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()
    future = processor.create(metal())
    reached(ironic, name, "deploying")

    lab("fake")
    outcome = future.result()

    assert not outcome.ok
    done(processor.delete(REF).result())
    assert is_free(ironic, name)


def test_a_rebuild_that_ironic_does_not_survive_is_told_and_gone_on_with(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    """What is on the node until then is not called rebuilt, and no other node is taken."""
    name, other = enroll(), enroll()
    wanted = metal(node=name, ssh_keys=[KEY], rebuild=True)
    done(processor.create(metal(node=name)).result())
    lab("fake", "deploy_delay=36000")
    try:
        future = processor.modify(wanted)
        reached(ironic, name, "deploying")
        assert ironic.get_node(name).extra["fabric-direct"]["asked"]["rebuild_due"] is True
    finally:
        lab("fake")

    outcome = future.result()
    assert outcome.status is Status.FAILED
    assert "rebuild node" in outcome.left[0]
    assert ironic.get_node(name).provision_state == "deploy failed"
    assert not processor.recover(undo=True)[0].result().ok
    done(processor.recover()[0].result())

    found = ironic.get_node(name)
    assert found.provision_state == "active"
    assert "rebuild_due" not in found.extra["fabric-direct"]["asked"]
    done(processor.delete(REF).result())
    assert is_free(ironic, name)
    assert is_free(ironic, other)


def test_a_node_in_maintenance_is_not_rebuilt(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()
    done(processor.create(metal()).result())
    ironic.set_node_maintenance(name, "new disks")
    before = ironic.get_node(name).extra

    outcome = processor.poa(REF, "rebuild").result()

    assert outcome.error
    assert (outcome.error.kind, ironic.get_node(name).extra) == ("Conflict", before)
    assert "new disks" in outcome.error.message
    ironic.unset_node_maintenance(name)
    done(processor.poa(REF, "rebuild").result())
    done(processor.delete(REF).result())
    assert is_free(ironic, name)


def test_another_image_leaves_nothing_of_the_former_one(
    processor: HandlerProcessor, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    name = enroll()
    done(processor.create(metal(root_device={"serial": "S1"})).result())

    done(
        processor.modify(metal(root_device={"serial": "S1"}, image="guest", rebuild=True)).result()
    )

    info = ironic.get_node(name).instance_info
    assert "kernel" in info
    assert not [key for key in info if key.startswith("image_")]
    done(processor.delete(REF).result())
    assert is_free(ironic, name)


def test_a_machine_is_rebuilt_with_other_keys_and_another_boot_script(
    site: Site, metal: Make, key: Path, ours: Path, tmp_path: Path
) -> None:
    """It is logged in to by a new host key, and nothing of what it had is there."""
    known = site.state_dir / "known_hosts"
    site = site.model_copy(update={"guest_access": GuestSettings(ssh_key=ours)})
    second = new_key(tmp_path / "second-key")

    def wanted(key: Path, word: str, **values: Any) -> BareMetalSliver:
        return metal(
            image="guest",
            resource_class="baremetal",
            nics=[{"id": "nic1", "ipv4": f"{ADDRESS}/24"}],
            ssh_keys=[key.with_suffix(".pub").read_text().strip()],
            boot_script=f"#!/bin/sh\necho {word} >/run/word\n",
            wait_for="script",
            **values,
        )

    with HandlerProcessor(site) as processor:
        first = done(processor.create(wanted(key, "first")).result())
        assert ssh(key, ADDRESS, "cat /run/word && touch /root/left") == "first\n"
        before = known.read_text()

        made = done(processor.modify(wanted(second, "second", rebuild=True)).result())

        assert made.warnings == ()
        assert made.observed
        assert first.observed
        assert made.observed.host == first.observed.host
        assert made.observed.guest
        assert known.read_text() == f"{ADDRESS} {made.observed.guest.ssh_host_key}\n" != before
        assert ssh(second, ADDRESS, "cat /run/word; ls /root/left || true") == "second\n"
        assert public_part(key) not in ssh(second, ADDRESS, "cat .ssh/authorized_keys")

        done(processor.poa(REF, "rebuild", {"boot_script": None}).result())
        assert ssh(second, ADDRESS, "cat /run/word || echo none").strip() == "none"
        done(processor.delete(REF).result())
    assert known.read_text() == ""


def public_part(key: Path) -> str:
    return key.with_suffix(".pub").read_text().split()[1]


@pytest.mark.share
def test_a_machine_is_deployed_logged_in_to_and_given_back(
    site: Site, ironic: Proxy, metal: Make, key: Path, ours: Path
) -> None:
    """By its BMC, from a kernel and a ramdisk; it has our host key, and runs the boot script."""
    public = key.with_suffix(".pub").read_text().strip()
    wanted = metal(
        image="guest",
        resource_class="baremetal",
        traits=["CUSTOM_VIRTUAL_MEDIA"],
        nics=[{"id": "nic1", "ipv4": f"{ADDRESS}/24"}],
        ssh_keys=[public],
        boot_script="#!/bin/sh\necho was here >/run/boot-script\n",
        wait_for="script",
    )
    known = site.state_dir / "known_hosts"
    site = site.model_copy(update={"guest_access": GuestSettings(ssh_key=ours)})

    with HandlerProcessor(site) as processor:
        made = done(processor.create(wanted).result())

        assert made.warnings == ()
        assert made.observed
        name, guest, nic = str(made.observed.host), made.observed.guest, made.observed.interfaces[0]
        assert ironic.get_node(name).power_state == "power on"
        assert guest
        assert (guest.reachable, guest.via, guest.boot_finished) == (True, "ssh", True)
        assert guest.ssh_host_key
        assert known.read_text() == f"{ADDRESS} {guest.ssh_host_key}\n"
        assert f"{ADDRESS}/24" in nic.guest_addresses
        assert ssh(key, ADDRESS, "hostname").strip() == "box"
        assert "was here" in ssh(key, ADDRESS, "cat /run/boot-script")

        other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN"
        done(processor.poa(REF, "addkey", {"keys": [{"key": other, "comment": "o"}]}).result())
        assert other in ssh(key, ADDRESS, "cat .ssh/authorized_keys")
        done(processor.poa(REF, "removekey", {"keys": [{"key": other}]}).result())
        assert other not in ssh(key, ADDRESS, "cat .ssh/authorized_keys")

        # its system comes from the ramdisk once more, and is known by the same key
        assert done(processor.poa(REF, "reboot", {"hard": True}).result()).warnings == ()

        done(processor.delete(REF).result())
    given_back = ironic.get_node(name)
    assert is_free(ironic, name)
    assert (given_back.power_state, given_back.instance_info) == ("power off", {})
    assert known.read_text() == ""


def test_a_bmc_that_does_not_answer_is_told_and_the_node_is_free_when_it_does(
    processor: HandlerProcessor, ironic: Proxy, metal: Make
) -> None:
    """Ironic gives up after a while; nothing of the sliver is left once the BMC answers again."""
    wanted = metal(image="guest", resource_class="baremetal", node="machine1")
    lab("stop", "emulator")
    try:
        outcome = processor.create(wanted).result()
    finally:
        lab("start", "emulator")

    assert not outcome.ok
    assert outcome.error
    assert outcome.error.message
    done(processor.delete(REF).result())
    reached(ironic, "machine1", "available")
    assert is_free(ironic, "machine1")


def test_a_machine_that_others_switch_off_is_on_again(
    processor: HandlerProcessor, ironic: Proxy, metal: Make
) -> None:
    """Ironic sees to that by itself, and the sliver's node does not differ meanwhile."""
    wanted = metal(image="guest", resource_class="baremetal", node="machine1")
    done(processor.create(wanted).result())

    lab("enter", "virsh", "-q", "destroy", "machine1")
    seen = done(processor.probe(wanted).result())

    assert seen.observed
    assert seen.observed.differences == ()
    running("machine1")
    done(processor.delete(REF).result())
    assert lab("enter", "virsh", "-q", "domstate", "machine1").strip() == "shut off"


def running(domain: str) -> None:
    """Wait until a machine of the lab runs."""

    def runs() -> bool:
        return lab("enter", "virsh", "-q", "domstate", domain).strip() == "running"

    wait_until(f"{domain} to run", runs, timeout=PATIENT["call"])


def test_an_api_that_hangs_ends_the_operation_by_its_limit(
    site: Site, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    """And what it did meanwhile is continued or taken away afterwards."""
    name = enroll()
    limits = site.limits.model_copy(update={"call": 3.0, "create": 5.0, "undo": 3.0})
    lab("hang", "ironic")
    try:
        with HandlerProcessor(site.model_copy(update={"limits": limits})) as hurried:
            outcome = hurried.create(metal()).result()
    finally:
        lab("resume", "ironic")

    assert not outcome.ok
    with HandlerProcessor(site) as processor:
        done(processor.create(metal()).result())
        done(processor.delete(REF).result())
    assert is_free(ironic, name)


def test_nodes_are_told_as_they_are(
    site: Site, ironic: Proxy, enroll: Enroll, processor: HandlerProcessor, metal: Make
) -> None:
    name = enroll()
    conditions = [of(site, name)]
    done(processor.create(metal()).result())
    conditions.append(of(site, name))
    done(processor.delete(REF).result())
    ironic.set_node_provision_state(name, "manage")
    reached(ironic, name, "manageable")
    conditions.append(of(site, name))

    assert conditions == [NodeCondition.FREE, NodeCondition.ACTIVE, NodeCondition.WITHHELD]


def of(site: Site, name: str) -> NodeCondition:
    return next(node.condition for node in IronicBareMetal(site).nodes() if node.name == name)


def test_its_stamp_is_read_back_as_it_was_asked_for(
    processor: HandlerProcessor, site: Site, enroll: Enroll, metal: Make
) -> None:
    nics = [{"id": "nic1", "ipv4": "192.0.2.5/24"}]
    wanted: BareMetalSliver = metal(
        node=enroll(), capacities={"core": 8}, nics=nics, root_device={"serial": "S1"}
    )

    done(processor.create(wanted).result())

    found = IronicBareMetal(site).find("metal")
    assert found
    assert found.stamp == wanted
    done(processor.delete(REF).result())
