"""Bare-metal slivers on a real Ironic: on nodes of fake hardware, and on an emulated machine."""

import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from openstack.baremetal.v1._proxy import Proxy

from fabric_direct.drivers.contract import BareMetalDriver, NodeCondition
from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.errors import Conflict
from fabric_direct.model import SliverRef, State, Status
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.testing import BareMetalContract
from tests.ironic.conftest import ADDRESSES, Enroll, Make, lab, reached, ssh
from tests.outcomes import done

REF = SliverRef(id="metal", type="BareMetal")


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


def test_what_is_left_of_a_killed_creation_is_continued_or_deleted(
    site: Site, ironic: Proxy, enroll: Enroll, metal: Make
) -> None:
    """Killed before and after each request that changes something: never two nodes, none lost."""
    names = {enroll(), enroll()}
    code = """
        import os, signal, sys
        from keystoneauth1.session import Session
        from fabric_direct.model.bare_metal import BareMetalSliver
        from fabric_direct.processor import HandlerProcessor
        from fabric_direct.site.config import Site
        at, when, site, sliver = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
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
        with HandlerProcessor(Site.model_validate_json(site)) as processor:
            outcome = processor.create(BareMetalSliver.model_validate_json(sliver)).result()
        sys.exit(0 if outcome.ok else 1)
    """
    killed = 0
    for at in range(1, 6):
        for when in ("before", "after"):
            words = [
                str(at),
                when,
                site.model_dump_json(exclude_unset=True),
                metal().model_dump_json(),
            ]
            child = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(code), *words], check=False
            )
            killed += child.returncode == -signal.SIGKILL
            with HandlerProcessor(site) as processor:
                done(processor.create(metal()).result())
                held = Counter(ironic.get_node(name).provision_state for name in names)
                assert held == {"active": 1, "available": 1}
                done(processor.delete(REF).result())
            assert all(is_free(ironic, name) for name in names)
    assert killed >= 6


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


def test_a_machine_is_deployed_reached_by_its_key_and_given_back(
    processor: HandlerProcessor, ironic: Proxy, metal: Make, key: Path
) -> None:
    """By its BMC, from a kernel and a ramdisk; it reads its config drive, and runs the boot script."""
    public = key.with_suffix(".pub").read_text().strip()
    script = "#!/bin/sh\necho was here >/run/boot-script\n"
    wanted = metal(
        image="guest",
        resource_class="baremetal",
        traits=["CUSTOM_VIRTUAL_MEDIA"],
        ssh_keys=[public],
        boot_script=script,
    )

    made = done(processor.create(wanted).result())
    assert made.observed
    name = str(made.observed.host)
    assert ironic.get_node(name).power_state == "power on"
    assert ssh(key, ADDRESSES[name], "hostname").strip() == "box"
    assert "was here" in ssh(key, ADDRESSES[name], "cat /run/boot-script")

    done(processor.delete(REF).result())
    given_back = ironic.get_node(name)
    assert is_free(ironic, name)
    assert (given_back.power_state, given_back.instance_info) == ("power off", {})


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
