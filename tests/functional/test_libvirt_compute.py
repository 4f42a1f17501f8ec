"""The life of a server on a real libvirtd and QEMU."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import libvirt
import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract import Image, Port, ServerSpec
from fabric_direct.drivers.libvirt.domains.lookup import definitions, find_domain
from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
from fabric_direct.drivers.libvirt.servers.tuning import LibvirtTuning
from fabric_direct.drivers.libvirt.storage.driver import LibvirtVolume
from fabric_direct.drivers.libvirt.storage.pool import GIB, OwnPool
from fabric_direct.errors import DriverError, InvalidSliver, NotFound, NotOurs
from fabric_direct.model import Interface, NodeSliver, State
from fabric_direct.site.config import Site
from tests.functional.apart import BRIDGE, TAG
from tests.functional.conftest import IMAGE as GUEST
from tests.limits import PATIENT

SITE, SLIVER, BOOTED = "TEST", f"{TAG}-s1", f"{TAG}-booted"
WITH_GUEST = pytest.mark.xdist_group("booted")
NETWORK, BRIDGE_NAME = f"{TAG}-compute", f"{BRIDGE}compute"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN ana <&>"
# Seconds that a guest without KVM may take to boot on a busy machine.
BOOT = 180


@pytest.fixture(scope="module")
def network(connection: libvirt.virConnect) -> Iterator[str]:
    made = connection.networkCreateXML(
        f"<network><name>{NETWORK}</name><bridge name='{BRIDGE_NAME}'/></network>"
    )
    yield NETWORK
    made.destroy()


@pytest.fixture(scope="module")
def site(connection: libvirt.virConnect) -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="fdtest-", dir="/var/tmp"))
    directory.chmod(0o711)
    site = Site(site=SITE, volume_pool=directory / "volumes", limits=PATIENT)
    yield site
    pool = OwnPool.of(site, "localhost").pool()
    pool.destroy()
    pool.undefine()
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def compute(site: Site) -> LibvirtCompute:
    return LibvirtCompute(site, "localhost")


@pytest.fixture(scope="module")
def volumes(site: Site) -> LibvirtVolume:
    return LibvirtVolume(site, "localhost")


@pytest.fixture
def store(site: Site) -> OwnPool:
    return OwnPool.of(site, "localhost")


@pytest.fixture(scope="module")
def empty_image(site: Site) -> Image:
    """An image that boots nothing: enough where the guest has no part."""
    OwnPool.of(site, "localhost").create("empty.qcow2", GIB // 2)
    return Image("empty", "root", OwnPool.of(site, "localhost").file("empty.qcow2"))


def port(component: str = "nic1", last: int = 1, sliver: str = SLIVER) -> Port:
    return Port(
        sliver=sliver,
        component=component,
        network="red",
        source=NETWORK,
        mac=f"52:54:00:fd:00:{last:02x}",
        ipv4=IPv4Interface(f"10.254.0.{last}/24"),
        dhcp=False,
    )


def spec(image: Image, *ports: Port, **values: Any) -> ServerSpec:
    given = {
        "id": SLIVER,
        "name": "node",
        "image": image.name,
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "ssh_keys": [KEY],
    }
    sliver = NodeSliver.model_validate(given | values)
    return ServerSpec(sliver, image, ports, (), user_data(sliver))


@pytest.fixture
def clean(compute: LibvirtCompute, volumes: LibvirtVolume, network: str) -> Iterator[None]:
    """Nothing of the sliver is left when the test is over."""
    yield
    compute.delete(SLIVER)
    for volume in volumes.volumes(SLIVER):
        volumes.delete(SLIVER, volume.component)


@pytest.fixture
def blank(compute: LibvirtCompute, empty_image: Image, clean: None) -> ServerSpec:
    """A running server that boots nothing, and what it was made from."""
    wanted = spec(empty_image, port())
    compute.create(wanted)
    return wanted


@pytest.fixture(scope="module")
def booted(
    compute: LibvirtCompute, volumes: LibvirtVolume, network: str
) -> Iterator[LibvirtCompute]:
    """A server whose guest has booted and run its boot script; each test leaves it running."""
    if not GUEST.exists():
        pytest.skip(f"needs the guest image {GUEST}")
    script = "#!/bin/sh\necho \"the script ran: grüße '<&>'\" >/dev/ttyS0\n"
    data = volumes.create(BOOTED, "data", 1)
    nic = port(sliver=BOOTED)
    wanted = spec(Image("guest", "root", str(GUEST)), nic, id=BOOTED, boot_script=script)
    try:
        compute.create(replace(wanted, volumes=(data,)))
        wait_until("the guest to boot", lambda: "guest: READY" in compute.console(BOOTED, 999))
        yield compute
    finally:
        compute.delete(BOOTED)
        for volume in volumes.volumes(BOOTED):
            volumes.delete(BOOTED, volume.component)


def wait_until(what: str, happened: Callable[[], bool], timeout: float = BOOT) -> None:
    deadline = Deadline.within(timeout)
    while not happened():
        assert deadline.remaining() > 0, f"waited {timeout} s for {what}"
        time.sleep(0.2)


def domain_id(connection: libvirt.virConnect, sliver: str = SLIVER) -> int:
    return int(find_domain(connection, sliver, SITE).ID())


# --- with a guest


@WITH_GUEST
def test_the_guest_gets_its_seed_and_runs_its_script(booted: LibvirtCompute) -> None:
    console = booted.console(BOOTED, 999)

    assert f"instance {BOOTED}, host name node" in console
    assert "the script ran: grüße '<&>'" in console
    assert "10.254.0.1/24 (seed)" in console


@WITH_GUEST
def test_the_console_gives_the_last_lines(booted: LibvirtCompute) -> None:
    console = booted.console(BOOTED, 3)

    assert console.count("\n") == 2  # between three lines, of which the last may be empty
    assert console in booted.console(BOOTED, 999)  # the guest may have said more since


@WITH_GUEST
def test_a_running_server_is_found_as_it_was_asked_for(booted: LibvirtCompute) -> None:
    server = booted.find(BOOTED)

    assert server is not None
    assert (server.state, server.cores, server.ram) == (State.RUNNING, 1, 1024)
    assert server.stamp.sliver.ssh_keys == (KEY,)
    assert [(p.component, p.mac, p.source) for p in server.ports] == [
        ("nic1", "52:54:00:fd:00:01", NETWORK)
    ]
    assert [(v.component, v.target) for v in server.volumes] == [("data", "vdb")]
    assert server in booted.servers()


@WITH_GUEST
def test_a_nic_comes_and_goes_while_the_guest_runs(
    booted: LibvirtCompute, connection: libvirt.virConnect
) -> None:
    for _ in range(2):
        booted.attach_port(BOOTED, port("nic2", 2, BOOTED), Interface())
    plugged = [p.component for p in booted.find(BOOTED).ports]

    for _ in range(2):
        booted.detach_port(BOOTED, "nic2", timeout=60)

    assert plugged == ["nic1", "nic2"]
    texts = definitions(find_domain(connection, BOOTED, SITE)).values()
    assert len(texts) == 2
    assert all("nic2" not in text for text in texts)


@WITH_GUEST
def test_two_nics_go_at_once(booted: LibvirtCompute) -> None:
    for number in (2, 3):
        booted.attach_port(BOOTED, port(f"nic{number}", number, BOOTED), Interface())

    with ThreadPoolExecutor(2) as pool:
        names = ["nic2", "nic3"]
        list(pool.map(lambda name: booted.detach_port(BOOTED, name, timeout=60), names))

    assert [p.component for p in booted.find(BOOTED).ports] == ["nic1"]


@WITH_GUEST
def test_a_volume_comes_and_goes_while_the_guest_runs(
    booted: LibvirtCompute, volumes: LibvirtVolume
) -> None:
    more = volumes.create(BOOTED, "more", 1)

    for _ in range(2):
        booted.attach_volume(BOOTED, "more", more)
    plugged = [v.source for v in booted.find(BOOTED).volumes if v.component == "more"]
    for _ in range(2):
        booted.detach_volume(BOOTED, "more", timeout=60)
    volumes.delete(BOOTED, "more")

    assert plugged == [more.source]
    assert [v.component for v in booted.find(BOOTED).volumes] == ["data"]


# --- without a guest


def test_creation_twice_is_the_same_as_once(
    compute: LibvirtCompute, blank: ServerSpec, connection: libvirt.virConnect
) -> None:
    before = domain_id(connection)

    again = compute.create(blank)

    assert again.state is State.RUNNING
    assert domain_id(connection) == before


def test_deletion_leaves_nothing_and_may_be_repeated(
    compute: LibvirtCompute, blank: ServerSpec, store: OwnPool
) -> None:
    left = compute.leftovers(SLIVER)

    for _ in range(2):
        compute.delete(SLIVER)

    assert left == (
        f"domain {SLIVER}-node",
        f"file {store.path}/{SLIVER}.console",
        f"file {store.path}/{SLIVER}.root",
        f"file {store.path}/{SLIVER}.seed",
        f"pool {store.name}.{SLIVER}.console",
    )
    assert compute.find(SLIVER) is None
    assert compute.leftovers(SLIVER) == ()
    assert not list(store.path.glob(f"{SLIVER}*"))


@pytest.mark.usefixtures("clean")
def test_disks_without_a_domain_are_made_again(
    compute: LibvirtCompute, empty_image: Image, store: OwnPool
) -> None:
    store.create(f"{SLIVER}.root", 7 * GIB)
    store.upload(f"{SLIVER}.seed", b"half a se")

    compute.create(spec(empty_image))

    assert store.find(f"{SLIVER}.root").info()[1] == GIB
    assert b"cidata" in Path(store.file(f"{SLIVER}.seed")).read_bytes()


@pytest.mark.usefixtures("clean")
def test_a_domain_that_was_only_defined_is_started_with_its_disk(
    compute: LibvirtCompute, empty_image: Image, store: OwnPool
) -> None:
    wanted = spec(empty_image, port())
    compute._define(wanted)
    disk = Path(store.file(f"{SLIVER}.root"))
    before = disk.stat().st_ino

    server = compute.create(wanted)

    assert server.state is State.RUNNING
    assert disk.stat().st_ino == before


@pytest.mark.usefixtures("clean")
def test_a_deletion_that_was_interrupted_is_finished(
    compute: LibvirtCompute, empty_image: Image, connection: libvirt.virConnect
) -> None:
    compute._define(spec(empty_image))
    find_domain(connection, SLIVER, SITE).undefine()

    compute.delete(SLIVER)

    assert compute.leftovers(SLIVER) == ()


@pytest.mark.usefixtures("clean")
def test_a_foreign_domain_of_that_name_stays_untouched(
    compute: LibvirtCompute, empty_image: Image, connection: libvirt.virConnect
) -> None:
    foreign = connection.defineXML(
        f"<domain type='qemu'><name>{SLIVER}-node</name><memory>65536</memory>"
        "<os><type machine='q35'>hvm</type></os></domain>"
    )
    before = foreign.XMLDesc()
    try:
        with pytest.raises(NotOurs):
            compute.create(spec(empty_image))
        compute.delete(SLIVER)
        assert foreign.XMLDesc() == before
        assert not foreign.isActive()
        assert compute.leftovers(SLIVER) == ()
    finally:
        foreign.undefine()


@pytest.mark.usefixtures("clean")
def test_a_disk_smaller_than_the_image_is_refused_and_nothing_is_made(
    compute: LibvirtCompute, store: OwnPool
) -> None:
    store.create("big.qcow2", 2 * GIB)

    with pytest.raises(InvalidSliver) as refused:
        compute.create(spec(Image("big", "root", store.file("big.qcow2"))))

    assert refused.value.field == "capacities.disk"
    assert compute.leftovers(SLIVER) == ()


@pytest.mark.usefixtures("clean")
def test_a_start_that_fails_is_named_and_can_be_taken_back(
    compute: LibvirtCompute, empty_image: Image
) -> None:
    lost = replace(port(), source="fdtest-no-such-network")

    with pytest.raises(NotFound, match="fdtest-no-such-network"):
        compute.create(spec(empty_image, lost))
    compute.delete(SLIVER)

    assert compute.leftovers(SLIVER) == ()


def test_a_hard_reboot_keeps_the_devices(
    compute: LibvirtCompute,
    blank: ServerSpec,
    volumes: LibvirtVolume,
    connection: libvirt.virConnect,
) -> None:
    compute.attach_volume(SLIVER, "data", volumes.create(SLIVER, "data", 1))
    compute.attach_port(SLIVER, port("nic2", 2), Interface())
    before = domain_id(connection)

    compute.reboot(SLIVER, hard=True, timeout=60)

    server = compute.find(SLIVER)
    assert domain_id(connection) != before
    assert [v.component for v in server.volumes] == ["data"]
    assert [p.component for p in server.ports] == ["nic1", "nic2"]


def test_a_guest_that_does_not_shut_down_is_stopped_by_force(
    compute: LibvirtCompute, blank: ServerSpec
) -> None:
    compute.stop(SLIVER, timeout=0.5)

    assert compute.find(SLIVER).state is State.STOPPED


def test_a_stopped_server_takes_devices_for_its_next_start(
    compute: LibvirtCompute, blank: ServerSpec, volumes: LibvirtVolume
) -> None:
    compute.stop(SLIVER, timeout=0)
    compute.attach_volume(SLIVER, "data", volumes.create(SLIVER, "data", 1))
    compute.detach_port(SLIVER, "nic1", timeout=60)

    compute.start(SLIVER)

    server = compute.find(SLIVER)
    assert [v.component for v in server.volumes] == ["data"]
    assert server.ports == ()


def test_ten_devices_can_be_plugged_into_a_running_server(
    compute: LibvirtCompute, blank: ServerSpec, volumes: LibvirtVolume
) -> None:
    names = [f"v{number}" for number in range(9)]

    for name in names:
        compute.attach_volume(SLIVER, name, volumes.create(SLIVER, name, 1))
    compute.attach_port(SLIVER, port("nic2", 2), Interface())

    assert [v.component for v in compute.find(SLIVER).volumes] == names
    assert len(compute.find(SLIVER).ports) == 2


def test_a_limit_of_a_stopped_server_is_read_back(
    compute: LibvirtCompute, blank: ServerSpec
) -> None:
    compute.stop(SLIVER, timeout=0)

    found = []
    for limit in (100, 250, None):
        compute.set_bandwidth(SLIVER, "nic1", limit)
        found.append(compute.find(SLIVER).ports[0].bandwidth)

    assert found == [100, 250, None]


def test_a_limit_of_a_running_server_is_read_back(
    compute: LibvirtCompute, blank: ServerSpec
) -> None:
    try:
        compute.set_bandwidth(SLIVER, "nic1", 100)
    except DriverError as error:
        if "qdisc kind is unknown" not in str(error):
            raise
        pytest.skip(f"needs the kernel's traffic shaping: {error}")

    assert compute.find(SLIVER).ports[0].bandwidth == 100
    compute.set_bandwidth(SLIVER, "nic1", None)
    assert compute.find(SLIVER).ports[0].bandwidth is None


def test_a_stamp_is_replaced_now_and_for_later_starts(
    compute: LibvirtCompute, blank: ServerSpec
) -> None:
    changed = blank.sliver.model_copy(update={"ssh_keys": ()}).stamp()

    compute.write_stamp(SLIVER, changed)
    live = compute.find(SLIVER).stamp
    compute.reboot(SLIVER, hard=True, timeout=60)

    assert live == compute.find(SLIVER).stamp == changed


def test_cpus_and_memory_can_be_placed_while_the_server_runs(
    compute: LibvirtCompute, blank: ServerSpec, site: Site
) -> None:
    tuning, instance = LibvirtTuning(site, "localhost"), compute.find(SLIVER).instance
    node = tuning.numa_info(instance)["nodes"][0]

    tuning.pin_cpus(instance, {0: node["cpus"][-1]})
    tuning.set_numa_nodes(instance, frozenset({node["node"]}))

    assert tuning.cpu_info(instance)["vcpus"][0]["affinity"] == [node["cpus"][-1]]
    assert tuning.numa_info(instance)["node_set"] == str(node["node"])
    assert tuning.numa_info(instance)["mode"] == "restrictive"


def test_the_host_has_cores_memory_and_disk(compute: LibvirtCompute) -> None:
    found = compute.capacity()

    assert found.cores >= 1
    assert found.ram >= 256
    assert found.disk >= 1


def test_images_are_checked(compute: LibvirtCompute, empty_image: Image) -> None:
    sliver = spec(empty_image).sliver
    compute.check(sliver, empty_image)

    with pytest.raises(InvalidSliver) as refused:
        compute.check(sliver, replace(empty_image, path="/nowhere/no-such-image.qcow2"))

    assert refused.value.field == "image"
