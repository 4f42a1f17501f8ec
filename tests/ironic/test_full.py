"""Slivers on a disk: deployed and cleaned by a deployment ramdisk, and what fails there.

They share one machine, one after the other; each leaves it available. FULL=1 asks for them.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.baremetal.v1._proxy import Proxy
from openstack.baremetal.v1.node import Node

from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.contract.bare_metal import BareMetalNode
from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.model import SliverRef, Status
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.absent import absent
from tests.ironic.conftest import DEPLOYED_ADDRESS, IMAGES, LAB, STATE, Make, lab, new_key, ssh
from tests.outcomes import done

pytestmark = [pytest.mark.xdist_group("machine3"), pytest.mark.timeout(3600)]
NAME, REF = "machine3", SliverRef(id="metal", type="BareMetal")
SLOW = 1800.0
"""Seconds that a deployment or a cleaning may take: many times what a quiet machine needs."""


@pytest.fixture
def machine(ironic: Proxy) -> Iterator[str]:
    """The machine with a disk, which is available; it is so, and starts the agent, afterwards."""
    if not os.environ.get("FULL"):
        pytest.skip(f"takes 15 minutes: FULL=1, and {LAB} build --full, up --full")
    if ironic.find_node(NAME) is None:
        absent(f"no machine with a deployment ramdisk here: {LAB} up --full")
    ramdisk = ironic.get_node(NAME).driver_info["deploy_ramdisk"]
    yield NAME
    boot_from(ironic, ramdisk)
    make_available(ironic)


@pytest.fixture
def site(site: Site, machine: str) -> Site:
    checksum = (STATE / "images/fabric-guest.raw.sha256").read_text().strip()
    image = {"disk": f"{IMAGES}.raw", "checksum": checksum}
    values = site.model_dump(mode="json", exclude_unset=True)
    values["ironic"]["images"] = {
        "disk": image | {"format": "raw"},
        "formatless": image,
        "wrong": image | {"checksum": checksum[::-1]},
    }
    values["limits"] |= {"create": SLOW, "delete": SLOW, "undo": SLOW}
    return Site.model_validate(values)


@pytest.fixture
def little_memory(ironic: Proxy, machine: str) -> Iterator[None]:
    """Tell Ironic that the machine has less memory than the image needs."""
    properties = ironic.get_node(machine).properties
    ironic.update_node(machine, properties=properties | {"memory_mb": 64})
    yield
    ironic.update_node(machine, properties=properties)


@pytest.fixture
def wanted(metal: Make, key: Path) -> BareMetalSliver:
    return metal(
        resource_class="disk",
        ssh_keys=[key.with_suffix(".pub").read_text().strip()],
        boot_script="#!/bin/sh\necho was here >/root/boot-script\n",
    )


def boot_from(ironic: Proxy, ramdisk: str) -> None:
    """Have a node boot another deployment ramdisk from now on."""
    change = {"op": "add", "path": "/driver_info/deploy_ramdisk", "value": ramdisk}
    ironic.patch_node(NAME, [change])


def make_available(ironic: Proxy) -> Node:
    """Take the node to available as its operator does, cleaned if it needs it."""
    node = ironic.get_node(NAME)
    if node.is_maintenance:
        ironic.unset_node_maintenance(node)
    ways = {"clean failed": "manage", "manageable": "provide"}
    ways |= dict.fromkeys(("active", "deploy failed", "error", "wait call-back"), "deleted")
    while verb := ways.get(ironic.get_node(NAME).provision_state):
        ironic.set_node_provision_state(node, verb, wait=True, timeout=int(SLOW))
    return ironic.get_node(NAME)


def seen(site: Site) -> BareMetalNode:
    return next(node for node in IronicBareMetal(site).nodes() if node.name == NAME)


def is_free(ironic: Proxy, site: Site) -> bool:
    extra = ironic.get_node(NAME).extra
    return (seen(site).condition, seen(site).sliver, extra) == (NodeCondition.FREE, None, {})


class Watch(threading.Thread):
    """The conditions that the node is seen in, until the end."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.conditions: set[NodeCondition] = set()
        self._site, self._ended = site, threading.Event()

    def run(self) -> None:
        while not self._ended.wait(1.0):
            self.conditions.add(seen(self._site).condition)

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


@pytest.mark.usefixtures("little_memory")
def test_a_disk_is_deployed_reached_changed_and_cleaned(
    processor: HandlerProcessor,
    machine: str,
    ironic: Proxy,
    site: Site,
    wanted: BareMetalSliver,
    key: Path,
) -> None:
    lab("used", machine)
    assert "left-behind" in lab("disk", machine)

    made = done(processor.create(wanted).result())

    assert made.observed
    assert made.observed.host == machine
    assert "left-behind" not in lab("disk", machine)
    assert "config-2" in lab("disk", machine)
    said = ssh(key, DEPLOYED_ADDRESS, "hostname; cat /run/seed/source /root/boot-script")
    assert said.split("\n")[:3] == ["box", "ConfigDrive", "was here"]

    done(processor.modify(wanted.model_copy(update={"name": "other"})).result())
    assert ironic.get_node(machine).instance_info["display_name"] == "other"
    assert processor.probe(REF).result().ok

    with Watch(site) as watch:
        done(processor.delete(REF).result())

    assert NodeCondition.CLEANING in watch.conditions
    assert lab("disk", machine).strip() == ""
    assert is_free(ironic, site)


def test_a_disk_is_deployed_anew(
    processor: HandlerProcessor,
    machine: str,
    ironic: Proxy,
    site: Site,
    wanted: BareMetalSliver,
    key: Path,
    tmp_path: Path,
) -> None:
    """The same node, without a cleaning, with another key and boot script, and what it had is gone."""
    second = new_key(tmp_path / "second-key")
    changes = {
        "ssh_keys": (second.with_suffix(".pub").read_text().strip(),),
        "boot_script": "#!/bin/sh\necho is here >/root/boot-script\n",
        "rebuild": True,
    }
    done(processor.create(wanted).result())
    assert "was here" in ssh(key, DEPLOYED_ADDRESS, "cat /root/boot-script; touch /root/left; sync")

    with Watch(site) as watch:
        done(processor.modify(wanted.model_copy(update=changes)).result())

    assert NodeCondition.CHANGING in watch.conditions
    assert NodeCondition.CLEANING not in watch.conditions
    said = ssh(
        second, DEPLOYED_ADDRESS, "cat /root/boot-script; ls /root; cat .ssh/authorized_keys"
    )
    assert said.startswith("is here\n")
    assert "left" not in said
    assert key.with_suffix(".pub").read_text().split()[1] not in said
    done(processor.delete(REF).result())
    assert is_free(ironic, site)


def test_an_image_of_another_checksum_is_told_and_nothing_is_left(
    processor: HandlerProcessor, machine: str, ironic: Proxy, site: Site, wanted: BareMetalSliver
) -> None:
    outcome = processor.create(wanted.model_copy(update={"image": "wrong"})).result()

    assert outcome.error
    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    assert "checksum" in outcome.error.message
    assert lab("disk", machine).strip() == ""
    assert is_free(ironic, site)


@pytest.mark.usefixtures("little_memory")
def test_an_image_of_no_format_must_fit_into_memory(
    processor: HandlerProcessor, machine: str, ironic: Proxy, site: Site, wanted: BareMetalSliver
) -> None:
    """Ironic says so before the machine is booted; one that is told to be raw need not, as above."""
    outcome = processor.create(wanted.model_copy(update={"image": "formatless"})).result()

    assert outcome.error
    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    assert "too small for requested image" in outcome.error.message
    assert is_free(ironic, site)
    assert "image_source" not in ironic.get_node(machine).instance_info


@pytest.fixture
def impatient(machine: str) -> Iterator[None]:
    """Have Ironic wait for the agent only as long as no machine here takes to start it."""
    lab("agent", "deploy_callback_timeout=20", "clean_callback_timeout=20")
    yield
    lab("agent")


@pytest.mark.usefixtures("impatient")
def test_an_agent_that_never_answers_is_told_and_the_node_is_quarantined_until_it_was_cleaned(
    processor: HandlerProcessor, machine: str, ironic: Proxy, site: Site, wanted: BareMetalSliver
) -> None:
    """It answers neither to the deployment nor to the cleaning after it."""
    outcome = processor.create(wanted).result()

    assert outcome.error
    assert "imeout" in outcome.error.message
    assert NAME in " ".join(outcome.left)
    assert seen(site).condition is NodeCondition.QUARANTINED

    lab("agent")
    make_available(ironic)
    done(processor.delete(REF).result())
    assert is_free(ironic, site)


def test_a_cleaning_that_fails_quarantines_the_node_until_it_was_cleaned(
    processor: HandlerProcessor, machine: str, ironic: Proxy, site: Site, wanted: BareMetalSliver
) -> None:
    done(processor.create(wanted).result())
    ramdisk = ironic.get_node(machine).driver_info["deploy_ramdisk"]
    boot_from(ironic, f"{ramdisk}.absent")

    outcome = processor.delete(REF).result()

    assert outcome.error
    assert outcome.error.kind == "DeviceUnclean"
    node = seen(site)
    assert (node.condition, node.sliver) == (NodeCondition.QUARANTINED, "metal")
    assert node.why
    assert "config-2" in lab("disk", machine)
    again = processor.delete(REF).result()
    assert again.error
    assert again.error.kind == "DeviceUnclean"

    boot_from(ironic, ramdisk)
    make_available(ironic)
    done(processor.delete(REF).result())
    assert lab("disk", machine).strip() == ""
    assert is_free(ironic, site)
