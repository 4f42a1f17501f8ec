"""A cloud that is down, answers 503, hangs, or forgets its tokens: operations end, and say why."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from openstack.connection import Connection

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.openstack.client import session
from fabric_direct.model import Outcome, SliverRef, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import Things, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done

NOVA = 8774
Lab = Callable[..., None]
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """A site that does not look into its guests."""
    return make_site(guest="none")


@pytest.fixture
def hasty(site: Site) -> Iterator[HandlerProcessor]:
    """A processor whose calls and operations have little time, for what cannot succeed."""
    little = {"call": 5.0, "create": 40.0, "delete": 60.0, "undo": 30.0}
    limits = site.limits.model_copy(update=little)
    with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
        yield processor


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    done(processor.delete(SliverRef(id=ours("fault"))).result())
    assert things() == set()


def answers(cloud: Connection) -> bool:
    try:
        list(cloud.compute.servers(limit=1))
    except Exception:  # noqa: BLE001 - whatever it raises while it is down
        return False
    return True


@contextmanager
def broken(
    lab: Lab, cloud: Connection, how: str, mend: str, service: str = "nova-api"
) -> Iterator[None]:
    """The service is stopped or hangs meanwhile."""
    lab(how, service)
    try:
        yield
    finally:
        lab(mend, service)
        wait_until("nova-api to answer", lambda: answers(cloud), timeout=600)


class Overloaded(BaseHTTPRequestHandler):
    """Answers each request with 503."""

    asked: list[str] = []

    def _answer(self) -> None:
        self.asked.append(f"{self.command} {self.path.partition('?')[0]}")
        self.send_response(503)
        self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def overloaded(port: int) -> Iterator[list[str]]:
    Overloaded.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", port), Overloaded)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Overloaded.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def told(outcome: Outcome) -> str:
    """Why it failed; it left nothing, or says what it could not find out."""
    assert outcome.status in {Status.FAILED, Status.PARTIAL}, outcome.error
    assert outcome.error
    return outcome.error.kind


def test_an_api_that_is_down_is_told(hasty: HandlerProcessor, lab: Lab, cloud: Connection) -> None:
    with broken(lab, cloud, "stop", "start"):
        assert told(hasty.create(sliver("fault")).result()) == "Unreachable"


def test_an_api_that_hangs_ends_with_the_budget(
    hasty: HandlerProcessor, lab: Lab, cloud: Connection
) -> None:
    with broken(lab, cloud, "hang", "resume"):
        assert told(hasty.create(sliver("fault")).result()) in {"TimedOut", "Unreachable"}


def test_an_api_that_is_overloaded_is_asked_again_but_never_to_make_anything(
    hasty: HandlerProcessor, lab: Lab, cloud: Connection
) -> None:
    with broken(lab, cloud, "stop", "start"), overloaded(NOVA) as asked:
        outcome = hasty.create(sliver("fault")).result()

    assert told(outcome) == "Unreachable"
    assert len(asked) > 1
    assert not [request for request in asked if request.startswith("POST")]


def test_an_api_that_comes_back_in_time_is_waited_for(
    processor: HandlerProcessor, lab: Lab, cloud: Connection
) -> None:
    wanted = sliver("fault")
    done(processor.create(wanted).result())
    with broken(lab, cloud, "hang", "resume"):
        future = processor.delete(wanted.ref())
        with pytest.raises(TimeoutError):  # it waits
            future.result(timeout=2)
        lab("resume", "nova-api")
        done(future.result())


def test_a_token_that_is_not_valid_any_more_is_replaced(
    processor: HandlerProcessor, cloud: Connection
) -> None:
    wanted = sliver("fault", components=[nic("eth0", TARGET.network, floating_ip=True)])
    settings = processor.site.openstack
    assert settings
    ours = session.cloud(settings, call_limit=processor.site.limits.call)
    done(processor.probe(wanted.ref()).result())
    # A new one, for the services remember for some minutes those that they have seen.
    ours.session.invalidate()
    token = ours.session.get_token()
    cloud.session.delete(
        f"{cloud.config.auth['auth_url']}/auth/tokens", headers={"X-Subject-Token": token}
    )

    done(processor.create(wanted).result())

    assert ours.session.get_token() != token


class TestAMessageQueueThatIsGone:
    """Nova takes what it is asked, and nobody hears of it until the queue is back."""

    def test_for_longer_than_the_operation_may_take_is_told_and_the_same_again_is_done(
        self,
        processor: HandlerProcessor,
        hasty: HandlerProcessor,
        lab: Lab,
        cloud: Connection,
    ) -> None:
        wanted = sliver("fault")
        with broken(lab, cloud, "hang", "resume", "rabbitmq"):
            outcome = hasty.create(wanted).result()
        assert not outcome.ok
        assert outcome.error

        # until the services are heard again, it is refused: a request may still take effect
        wait_until("it is made", lambda: processor.create(wanted).result().ok, timeout=600)

    def test_for_a_time_is_waited_for(
        self, processor: HandlerProcessor, lab: Lab, cloud: Connection
    ) -> None:
        wanted = sliver("fault")
        done(processor.create(wanted).result())
        with broken(lab, cloud, "hang", "resume", "rabbitmq"):
            future = processor.delete(wanted.ref())
            with pytest.raises(TimeoutError):  # it waits
                future.result(timeout=30)
        done(future.result())
