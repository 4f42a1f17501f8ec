"""Placement on a real cloud: its workers as Nova and Placement have them, and ``host: auto``."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openstack.compute.v2.service import Service
from openstack.connection import Connection

from fabric_direct.calls.deadline import Deadline
from fabric_direct.errors import Denied
from fabric_direct.handlers.registry import host_drivers
from fabric_direct.model import AUTO, NodeSliver, SliverRef, State, Status
from fabric_direct.placement.inventory import host_states
from fabric_direct.placement.state import HostState
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import WORKER, Things, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done

MakeSite = Callable[..., Site]


def hosts(site: Site) -> tuple[HostState, ...]:
    deadline = Deadline.within(60)
    return host_states(site, lambda host: host_drivers(site, host).within(deadline, 30)).hosts


def the_host(site: Site) -> HostState:
    (host,) = hosts(site)
    return host


def auto(**values: Any) -> NodeSliver:
    return sliver("placed", host=AUTO, owner="physics", **values)


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """A site that does not look into its guests."""
    return make_site(guest="none")


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    done(processor.delete(SliverRef(id=ours("placed"))).result())
    assert things() == set()


@pytest.fixture
def service(cloud: Connection) -> Iterator[Service]:
    """The compute service of the worker, which is in service again after the test."""
    (found,) = cloud.compute.services(binary="nova-compute", host=WORKER)
    yield found
    cloud.compute.enable_service(found)


def novas_own(cloud: Connection) -> dict[str, Any]:
    """What Nova's own tracker says of the worker, in the last version that has it."""
    answer = cloud.compute.get("/os-hypervisors/detail", microversion="2.87")
    (found,) = [h for h in answer.json()["hypervisors"] if h["service"]["host"] == WORKER]
    return dict(found)


# --- the workers as they are


@pytest.mark.alone
def test_a_worker_has_what_nova_says(cloud: Connection, site: Site) -> None:
    told = novas_own(cloud)

    host = the_host(site)

    assert (host.name, host.enabled) == (told["service"]["host"], True)
    assert (host.cores, host.cores_used) == (told["vcpus"], told["vcpus_used"])
    assert (host.ram * 1024, host.disk) == (told["memory_mb"], told["local_gb"])
    assert told["cpu_info"]["arch"] in host.architectures


def test_a_worker_has_placements_ratios_and_traits(cloud: Connection, site: Site) -> None:
    name = novas_own(cloud)["hypervisor_hostname"]
    (provider,) = cloud.placement.resource_providers(name=name)
    stocks = {s.id: s for s in cloud.placement.resource_provider_inventories(provider)}

    host = the_host(site)

    ratios = [stocks[name].allocation_ratio for name in ("VCPU", "MEMORY_MB", "DISK_GB")]
    assert [host.cpu_ratio, host.ram_ratio, host.disk_ratio] == ratios
    assert host.traits == set(cloud.placement.get_resource_provider_trait(provider).traits)


def test_all_workers_are_told_where_the_site_names_none(cloud: Connection, site: Site) -> None:
    workers = {service.host for service in cloud.compute.services(binary="nova-compute")}
    assert WORKER in workers

    told = hosts(site.model_copy(update={"hosts": {}}))

    assert {host.name for host in told} == workers


def test_a_member_is_told_to_let_the_cloud_choose(
    make_site: MakeSite, member: dict[str, Any]
) -> None:
    with HandlerProcessor(make_site(openstack=member, guest="none")) as processor:
        with pytest.raises(Denied, match="so that the cloud chooses"):
            processor.place([auto()])
        outcome = processor.create(auto()).result()

    assert outcome.status is Status.FAILED
    assert outcome.error
    assert outcome.error.kind == "Denied"
    assert "leave out the sliver's host" in outcome.error.message


# --- host: auto


@pytest.mark.alone
def test_a_sliver_lands_where_the_plan_says_and_counts_there(
    processor: HandlerProcessor, site: Site, cloud: Connection, things: Things
) -> None:
    flavor = cloud.compute.find_flavor(TARGET.flavor)
    before = the_host(site)
    (assignment,) = processor.place([auto()]).assignments
    assert things() == set()

    observed = done(processor.create(auto()).result()).observed

    assert observed
    assert (observed.state, observed.host) == (State.RUNNING, assignment.chosen.host)
    (server,) = cloud.compute.servers(all_projects=True, name=ours("placed-node"))
    assert server.compute_host == assignment.chosen.host
    after = the_host(site)
    assert after.slivers == {ours("placed"): "physics"}
    assert after.cores_used - before.cores_used == flavor.vcpus
    assert (after.ram_used - before.ram_used) * 1024 == flavor.ram
    assert after.disk_used - before.disk_used == flavor.disk


@pytest.mark.alone
def test_a_worker_whose_service_is_disabled_takes_nothing(
    processor: HandlerProcessor, site: Site, cloud: Connection, service: Service, things: Things
) -> None:
    cloud.compute.disable_service(service, disabled_reason="new fans")

    plan, outcome = processor.place([auto()]), processor.create(auto()).result()

    host = the_host(site)
    assert (host.enabled, host.why_disabled) == (False, "new fans")
    assert [unplaced.refused for unplaced in plan.unplaced] == [{"in_service": 1}]
    assert outcome.status is Status.FAILED
    assert outcome.error
    assert outcome.error.kind == "NoHost"
    assert things() == set()


@pytest.mark.alone
def test_a_worker_that_is_in_service_again_is_taken(
    processor: HandlerProcessor, cloud: Connection, service: Service
) -> None:
    cloud.compute.disable_service(service)
    cloud.compute.enable_service(service)

    assert processor.place([auto()]).assignments


@pytest.fixture
def picky(cloud: Connection) -> Iterator[str]:
    """An image whose servers need a trait that no worker has."""
    name = ours(secrets.token_hex(3))  # (another image than the one of the test before)
    image = cloud.image.create_image(
        name,
        data=bytes(1024),
        disk_format="raw",
        container_format="bare",
        **{"trait:CUSTOM_FDTEST": "required", "hw_architecture": "x86_64"},
    )
    yield name
    cloud.image.delete_image(image)


def test_an_image_that_needs_a_trait_goes_nowhere_else(
    processor: HandlerProcessor, picky: str
) -> None:
    plan = processor.place([auto(image=picky)])

    assert [unplaced.refused for unplaced in plan.unplaced] == [{"traits": 1}]


def test_an_image_of_another_architecture_is_not_placed(
    site: Site, processor: HandlerProcessor, cloud: Connection, picky: str
) -> None:
    (image,) = cloud.image.images(name=picky)
    emulated = the_host(site).architectures
    others = (each for each in ("s390x", "ppc64", "sparc") if each not in emulated)
    cloud.image.update_image(image.id, hw_architecture=next(others))

    plan = processor.place([auto(image=picky)])

    assert [unplaced.refused for unplaced in plan.unplaced] == [{"architecture": 1}]
