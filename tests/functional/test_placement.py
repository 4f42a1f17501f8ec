"""Placement on a real libvirt: the host as it is, and a sliver that leaves its host open lands on it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import libvirt
import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.libvirt.servers.cpu_traits import cpu_traits
from fabric_direct.handlers.registry import host_drivers
from fabric_direct.model import AUTO, NodeSliver, SliverRef, State
from fabric_direct.placement.inventory import Inventory, host_states
from fabric_direct.placement.state import HostState
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Host, Site
from tests.conftest import KEY
from tests.functional.apart import TAG
from tests.functional.conftest import URI
from tests.outcomes import done

GIB = 1024**3
PLACED = f"{TAG}-placed"
Things = Callable[[], set[str]]
FOREIGN = f"""
<domain type='qemu'>
  <name>{TAG}-foreign</name>
  <memory unit='GiB'>3</memory><currentMemory unit='GiB'>1</currentMemory>
  <vcpu current='1'>2</vcpu>
  <os><type machine='q35'>hvm</type></os>
</domain>
"""


def read(site: Site) -> Inventory:
    return host_states(site, lambda host: host_drivers(site, host).within(Deadline.within(60), 30))


def the_host(site: Site) -> HostState:
    (host,) = read(site).hosts
    return host


def sliver(**values: Any) -> NodeSliver:
    defaults = {
        "id": PLACED,
        "name": "node",
        "host": AUTO,
        "owner": "physics",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 2},
        "ssh_keys": [KEY],
        "components": [{"type": "Storage", "id": "data", "size": 3}],
    }
    return NodeSliver.model_validate(defaults | values)


@pytest.fixture(scope="module")
def roomy(unattended: Site) -> Site:
    """The site on a host that is not full, however many guests other tests run on it meanwhile."""
    placement = {"allocation": {"cpu": 64, "ram": 64}}
    return Site.model_validate(unattended.model_dump() | {"placement": placement})


@pytest.fixture(scope="module")
def processor(roomy: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(roomy) as processor:
        yield processor


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    assert processor.delete(SliverRef(id=PLACED)).result().ok
    assert things() == set()


@pytest.fixture
def foreign(connection: libvirt.virConnect) -> Iterator[libvirt.virDomain]:
    """A domain that somebody else has defined, and does not run."""
    domain = connection.defineXML(FOREIGN)
    yield domain
    domain.undefine()


# --- the host as it is


def test_the_host_has_the_processors_and_memory_of_this_machine(site: Site) -> None:
    host = the_host(site)

    nodes = [node / "meminfo" for node in Path("/sys/devices/system/node").glob("node[0-9]*")]
    assert host.cores == os.sysconf("SC_NPROCESSORS_ONLN")
    assert host.ram == sum(map(total, nodes)) // 1024 / 1024
    assert host.ram <= total(Path("/proc/meminfo")) / 1024**2
    assert sum(node.cores for node in host.numa_nodes) == host.cores
    assert sum(node.ram for node in host.numa_nodes) == pytest.approx(host.ram, abs=0.01)


def total(meminfo: Path) -> int:
    """Return the KiB of memory that the kernel says are there."""
    lines = (line.partition("MemTotal:") for line in meminfo.read_text().splitlines())
    return next(int(value.split()[0]) for _, name, value in lines if name)


def test_the_host_has_the_disk_that_is_free_where_volumes_are(site: Site) -> None:
    def free() -> float:
        # The pool's directory is made with the first volume; its file system is there before.
        of = os.statvfs(Path(str(site.volume_pool)).parent)
        return of.f_bfree * of.f_frsize / GIB  # libvirt counts what is kept for root

    before, host, after = free(), the_host(site), free()
    assert host.disk_used == 0
    assert min(before, after) - 1 <= host.disk <= max(before, after) + 1  # others write meanwhile


def test_the_host_has_the_numa_distances_that_the_kernel_tells(site: Site) -> None:
    for node in the_host(site).numa_nodes:
        told = Path(f"/sys/devices/system/node/node{node.id}/distance").read_text().split()
        assert list(node.distances.values()) == [int(distance) for distance in told]


def test_the_host_runs_guests_of_its_own_architecture(site: Site) -> None:
    guests = ElementTree.fromstring(virsh("capabilities")).iterfind("guest/arch")
    machines = {arch.attrib["name"]: {m.text for m in arch.iter("machine")} for arch in guests}

    found = the_host(site).architectures

    assert os.uname().machine in found
    assert found == {name for name, known in machines.items() if "q35" in known}


def test_the_hosts_traits_are_features_that_guests_get(site: Site) -> None:
    kind = {"hosts": {"localhost": Host(virt_type="qemu")}}

    traits = the_host(site.model_copy(update=kind)).traits

    text = virsh("domcapabilities", "--virttype", "qemu", "--machine", "q35")
    features = ElementTree.fromstring(text).iterfind("cpu/mode[@name='host-model']/feature")
    named: dict[str | None, list[str]] = {"require": [], "disable": []}
    for each in features:
        named[each.get("policy")].append(each.attrib["name"])
    assert "HW_CPU_X86_SSE2" in traits  # of the model that the features are added to
    assert cpu_traits(os.uname().machine, named["require"]) <= traits
    assert traits.isdisjoint(cpu_traits(os.uname().machine, named["disable"]))


def test_images_that_are_at_hand_are_told(site: Site) -> None:
    more = {**site.images, "gone": site.images["tiny"].model_copy(update={"path": "/no/such"})}

    assert the_host(site.model_copy(update={"images": more})).images == {"tiny"}


def test_every_domain_counts_as_virsh_shows_it(
    site: Site, foreign: libvirt.virDomain, processor: HandlerProcessor
) -> None:
    done(processor.create(sliver(host="localhost")).result())

    host, domains = while_none_comes_or_goes(site)

    assert domains[f"{PLACED}-node"] == (1, 1)
    assert used(host) == total_of(domains)
    assert host.disk_used == 2 + 3 + 1  # what its disks may grow to, and the seed
    assert host.slivers == {PLACED: "physics"}


Domains = dict[str, tuple[int, float]]


def while_none_comes_or_goes(site: Site) -> tuple[HostState, Domains]:
    """Return the host and all domains of one moment: other tests make theirs meanwhile.

    A domain can come and go while the host is read, so a host that differs is read again.
    """
    for _ in range(200):
        before, host, after = all_domains(), the_host(site), all_domains()
        if before == after and used(host) == total_of(after):
            break
    return host, after


def all_domains() -> Domains:
    """Return the cores and the RAM (GiB) of each domain, all shown at once."""
    shown: Domains = {}
    for block in virsh("domstats", "--raw", "--vcpu", "--balloon").split("Domain: ")[1:]:
        name, *lines = block.strip().splitlines()
        told = dict(line.strip().split("=") for line in lines)
        shown[name.strip("'")] = int(told["vcpu.maximum"]), int(told["balloon.maximum"]) / 1024**2
    return shown


def total_of(domains: Domains) -> tuple[int, float]:
    return sum(cores for cores, _ in domains.values()), sum(ram for _, ram in domains.values())


def used(host: HostState) -> tuple[float, float]:
    return host.cores_used, host.ram_used


def virsh(*command: str) -> str:
    return subprocess.check_output(["virsh", "-c", URI, *command], text=True)


# --- host: auto


def test_a_sliver_lands_where_the_plan_says(
    processor: HandlerProcessor, site: Site, things: Things
) -> None:
    plan = processor.place([sliver()])
    (assignment,) = plan.assignments
    assert things() == set()

    observed = done(processor.create(sliver()).result()).observed

    assert observed
    assert (observed.state, observed.host) == (State.RUNNING, assignment.chosen.host)
    assert PLACED in the_host(site).slivers


def test_a_host_whose_libvirt_does_not_answer_is_left_out_and_named(roomy: Site) -> None:
    silent = Host(libvirt="qemu+tcp://127.0.0.1:1/system")
    both = roomy.model_copy(update={"hosts": {"silent": silent, "localhost": Host()}})

    found = read(both)

    assert [host.name for host in found.hosts] == ["localhost"]
    assert "connect to libvirt" in found.silent["silent"]
    with HandlerProcessor(both) as processor:
        plan = processor.place([sliver()])
    assert [assignment.chosen.host for assignment in plan.assignments] == ["localhost"]
    assert any("silent" in warning for warning in plan.warnings)


def test_a_host_in_maintenance_takes_nothing_and_keeps_what_it_has(
    processor: HandlerProcessor, site: Site
) -> None:
    done(processor.create(sliver()).result())
    closed = site.model_copy(update={"hosts": {"localhost": Host(maintenance="new fans")}})

    assert the_host(closed).slivers == {PLACED: "physics"}
    with HandlerProcessor(closed) as other:
        plan = other.place([sliver(id=f"{TAG}-other")])
    assert [unplaced.refused for unplaced in plan.unplaced] == [{"in_service": 1}]


def test_what_the_host_has_no_memory_for_is_not_placed(processor: HandlerProcessor) -> None:
    huge = sliver(capacities={"core": 1, "ram": 60_000, "disk": 1})

    plan = processor.place([huge])

    assert plan.assignments == ()
    assert [unplaced.request for unplaced in plan.unplaced] == [PLACED]
