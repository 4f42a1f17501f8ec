"""Servers that Nova's lists leave out: in a cell that does not answer, or only marked as deleted."""

from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import NodeSliver, Outcome
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.limits import PATIENT
from tests.openstack.conftest import Things, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done

Lab = Callable[..., None]
pytestmark = [pytest.mark.alone, pytest.mark.long]
_DISK = {"type": "Storage", "id": "data", "size": 1}


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(guest="none")


@pytest.fixture
def made(processor: HandlerProcessor, lab: Lab, things: Things) -> Iterator[NodeSliver]:
    """A server with a NIC and a volume; it is gone in the end, with all that it had."""
    wanted = sliver("hidden", components=[nic("nic1", TARGET.network), _DISK])
    done(processor.create(wanted).result())
    yield wanted
    done(processor.delete(wanted.ref()).result())
    assert things() == set()


def _await_nova(cloud: Connection) -> None:
    def answers() -> bool:
        try:
            list(cloud.compute.servers(limit=1))
        except Exception:  # noqa: BLE001 - whatever it raises while it is down
            return False
        return True

    wait_until("nova-api to answer", answers, timeout=600)


@pytest.fixture
def silent_cell(made: NodeSliver, lab: Lab, cloud: Connection) -> Iterator[None]:
    lab("cell", "down")
    try:
        _await_nova(cloud)
        yield
    finally:
        lab("cell", "up")
        _await_nova(cloud)


@pytest.fixture
def kept(made: NodeSliver, lab: Lab, cloud: Connection) -> Iterator[None]:
    lab("keep", "3600")
    try:
        _await_nova(cloud)
        yield
    finally:
        lab("keep", "0")
        _await_nova(cloud)


def _why(outcome: Outcome) -> str:
    assert not outcome.ok
    assert outcome.error
    return outcome.error.message


@pytest.mark.usefixtures("silent_cell")
@pytest.mark.parametrize("books", ["recorded", "records lost"])
def test_a_cell_that_does_not_answer_makes_nothing_absent(
    processor: HandlerProcessor, site: Site, made: NodeSliver, things: Things, books: str
) -> None:
    if books == "records lost":
        (site.state_dir / "servers.sqlite").unlink()

    for asked in (processor.probe, processor.create, processor.delete):
        assert "a cell does not answer" in _why(asked(made).result())

    named = " ".join(map(str, things()))
    assert f"{ours('hidden')}-nic1" in named
    assert f"{ours('hidden')}-data" in named


@pytest.mark.usefixtures("kept")
def test_what_nova_would_keep_is_deleted_by_force(
    processor: HandlerProcessor, made: NodeSliver, cloud: Connection
) -> None:
    (server,) = cloud.compute.servers(name=made.id)

    done(processor.delete(made.ref()).result())

    assert cloud.compute.find_server(server.id) is None


@pytest.mark.usefixtures("kept")
def test_what_others_have_marked_as_deleted_is_not_replaced(
    processor: HandlerProcessor, made: NodeSliver, cloud: Connection
) -> None:
    (server,) = cloud.compute.servers(name=made.id)
    cloud.compute.delete_server(server.id)
    marked = lambda: cloud.compute.get_server(server.id).status == "SOFT_DELETED"  # noqa: E731
    wait_until("Nova to mark the server", marked, timeout=PATIENT["call"])

    assert f"openstack server restore {server.id}" in _why(processor.create(made).result())
