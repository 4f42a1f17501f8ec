"""A resize of a server that names its worker, on a real cloud; no guest is looked into."""

from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from fabric_direct.model import NodeSliver, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import Things, ours, sliver
from tests.outcomes import done

pytestmark = pytest.mark.long
LARGER = {"capacities": {"core": 2, "ram": 2, "disk": 2}}


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(guest="none")


@pytest.fixture
def running(processor: HandlerProcessor, things: Things) -> Iterator[NodeSliver]:
    wanted = sliver("resized", components=[], flavor=None)
    done(processor.create(wanted).result())
    yield wanted
    done(processor.delete(wanted.ref()).result())
    assert things() == set()


@pytest.fixture
def too_large(cloud: Connection) -> Iterator[str]:
    """A flavor that no worker has room for."""
    flavor = cloud.compute.create_flavor(name=ours("large"), vcpus=9000, ram=2048, disk=10)
    yield flavor.name
    cloud.compute.delete_flavor(flavor)


def test_leaves_a_server_off_that_is_off_and_on_its_worker(
    processor: HandlerProcessor, running: NodeSliver
) -> None:
    assert done(processor.poa(running, "stop").result()).data == {"state": "stopped"}

    resized = done(processor.poa(running, "resize", LARGER).result())

    assert resized.data == {"state": "stopped"}
    observed = done(processor.probe(running).result()).observed
    assert observed
    assert (observed.host, observed.cores) == (running.host, 2)


def test_that_its_worker_has_no_room_for_is_refused_while_it_runs(
    processor: HandlerProcessor, running: NodeSliver, cloud: Connection, too_large: str
) -> None:
    outcome = processor.poa(running, "resize", {"flavor": too_large}).result()

    assert (outcome.status, outcome.left) == (Status.REFUSED, ())
    assert outcome.error
    assert "VCPU: 9000 asked for" in outcome.error.message
    observed = done(processor.probe(running).result()).observed
    assert observed
    actions = cloud.compute.server_actions(observed.instance)
    assert "resize" not in {action.action for action in actions}
