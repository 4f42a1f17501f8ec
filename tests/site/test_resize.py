"""A resize of Nova's server that has devices of its worker. No guest is waited for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from openstack.compute.v2.flavor import Flavor
from openstack.connection import Connection

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import NodeSliver, Observed, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done
from tests.site.conftest import (
    HOST,
    domain_of,
    hostdevs,
    is_disabled,
)
from tests.worker.conftest import Worker

OTHER_HOST = "worker1"


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture(scope="module")
def flavors(cloud: Connection) -> Iterator[tuple[Flavor, ...]]:
    """Two flavors, each a little larger than the last: a worker has both sizes until a resize ends."""
    made = tuple(
        cloud.compute.create_flavor(name=f"fdtest-{ram}", vcpus=1, ram=ram, disk=2)
        for ram in (1088, 1152)
    )
    yield made
    for flavor in made:
        cloud.compute.delete_flavor(flavor)


@pytest.fixture
def larger(flavors: tuple[Flavor, ...]) -> Flavor:
    """The smaller one, for a resize that succeeds."""
    return flavors[0]


@pytest.fixture
def largest(flavors: tuple[Flavor, ...]) -> Flavor:
    """The other one, which no test leaves the server with."""
    return flavors[1]


@contextmanager
def unused(cloud: Connection, host: str) -> Iterator[None]:
    """Nova's scheduler takes the host for nothing meanwhile."""
    (service,) = cloud.compute.services(binary="nova-compute", host=host)
    disabled = partial(is_disabled, cloud, host)
    cloud.compute.disable_service(service)
    try:
        wait_until(f"Placement to know of {host}", disabled, timeout=60)
        yield
    finally:
        cloud.compute.enable_service(service)
        wait_until(f"Placement to know of {host}", lambda: not disabled(), timeout=60)


def probed(processor: HandlerProcessor, wanted: NodeSliver) -> Observed:
    observed = done(processor.probe(wanted.ref()).result()).observed
    assert observed
    return observed


def test_a_resize_that_leaves_the_worker_is_taken_back_with_the_devices(
    processor: HandlerProcessor,
    worker: Worker,
    cloud: Connection,
    with_devices: NodeSliver,
    largest: Flavor,
) -> None:
    was = probed(processor, with_devices).ram
    with unused(cloud, HOST):
        outcome = processor.poa(with_devices.ref(), "resize", {"flavor": largest.name}).result()
    assert not outcome.ok
    assert outcome.status is not Status.REFUSED
    found = probed(processor, with_devices)
    assert (found.host, found.ram, found.differences) == (HOST, was, ())
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2


def test_a_resize_on_the_worker_gives_the_devices_back(
    processor: HandlerProcessor,
    worker: Worker,
    cloud: Connection,
    with_devices: NodeSliver,
    larger: Flavor,
) -> None:
    with unused(cloud, OTHER_HOST):
        done(processor.poa(with_devices.ref(), "resize", {"flavor": larger.name}).result())
    found = probed(processor, with_devices)
    assert (found.host, found.ram, found.differences) == (HOST, larger.ram, ())
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2
