"""A guest with the real cloud-init: what it makes of what we hand to it."""

from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.conftest import KEY
from tests.openstack.conftest import BLUE, RED, Things, nic, run_in, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done

IMAGE, USER = TARGET.cloud_init_image, TARGET.cloud_init_user
pytestmark = [pytest.mark.xdist_group("cloud_init"), pytest.mark.long]
# Debian needs 100 s of a processor to boot without KVM, and may have to share one.
PATIENT = {"guest_boot": 900, "create": 1200, "poa": 900}
SCRIPT = """#!/bin/bash
# a second part of the MIME document, with lines that could be taken for its end
--==fabric-direct==--
mkfs.ext4 -q /dev/vdb && mkdir -p /data && mount /dev/vdb /data
echo "${BASH_VERSION%%.*}" > /data/bash
"""


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site], cloud: Connection) -> Site:
    if not IMAGE:
        pytest.skip("FABRIC_CLOUD_INIT_IMAGE names no image with cloud-init")
    if not cloud.image.find_image(IMAGE):
        pytest.skip(f"no image {IMAGE} in the cloud: labs/openstack/lab image --cloud-init")
    return make_site(images={IMAGE: {"user": USER}}, limits=PATIENT)


@pytest.fixture(scope="module")
def guest(processor: HandlerProcessor, things: Things, flat_network: str) -> Iterator[NodeSliver]:
    """One with a NIC on each kind of network and a volume, made once for all tests here."""
    wanted = sliver(
        "debian",
        name="real",
        image=IMAGE,
        capacities={"core": 1, "ram": 1, "disk": 2},
        boot_script=SCRIPT,
        components=[
            nic("eth0", TARGET.network, floating_ip=True),
            nic("eth1", RED),
            nic("eth2", BLUE, ipv4="10.222.1.50/24"),
            {"type": "Storage", "id": "data", "size": 1},
        ],
    )
    done(processor.create(wanted).result())
    yield wanted
    done(processor.delete(wanted.ref()).result())
    assert things() == set()


def test_its_host_name_is_the_slivers(processor: HandlerProcessor, guest: NodeSliver) -> None:
    assert run_in(processor, guest, "hostname", user=USER) == "real\n"


def test_the_slivers_keys_are_let_in(processor: HandlerProcessor, guest: NodeSliver) -> None:
    keys = run_in(processor, guest, "cat", ".ssh/authorized_keys", user=USER)

    assert KEY.split()[1] in keys


def test_the_boot_script_has_run_by_its_own_first_line_and_mounted_the_volume(
    processor: HandlerProcessor, guest: NodeSliver
) -> None:
    assert int(run_in(processor, guest, "cat", "/data/bash", user=USER)) >= 5
    assert "/dev/vdb /data ext4" in run_in(processor, guest, "cat", "/proc/mounts", user=USER)


def test_each_nic_has_its_address_also_where_no_dhcp_is(
    processor: HandlerProcessor, guest: NodeSliver
) -> None:
    observed = done(processor.probe(guest).result()).observed

    assert observed
    assert len(observed.interfaces) == 3
    for each in observed.interfaces:
        assert each.addresses[0] in each.guest_addresses
    assert observed.interfaces[2].addresses == ("10.222.1.50/24",)


def test_the_volume_is_what_the_guest_calls_it(
    processor: HandlerProcessor, guest: NodeSliver
) -> None:
    observed = done(processor.probe(guest).result()).observed

    assert observed
    assert [v.guest_name for v in observed.volumes] == ["vdb"]


def test_all_of_it_is_there_after_a_reboot(processor: HandlerProcessor, guest: NodeSliver) -> None:
    done(processor.poa(guest, "reboot").result())

    observed = done(processor.probe(guest).result()).observed

    assert observed
    assert observed.differences == ()
    for each in observed.interfaces:
        assert each.addresses[0] in each.guest_addresses
    # The boot script does it at the first boot alone; another test may look.
    run_in(processor, guest, "sudo", "mount", "/dev/vdb", "/data", user=USER)
