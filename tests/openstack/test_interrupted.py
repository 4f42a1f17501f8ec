"""A process that is killed (SIGKILL) right after a request that makes or removes something."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import RED, Things, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done, made

ETH0 = nic("eth0", TARGET.network, floating_ip=True)
DATA = {"type": "Storage", "id": "data", "size": 1}


def wanted() -> NodeSliver:
    return sliver("cut", components=[ETH0, nic("eth1", RED), DATA])


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """A site that does not look into its guests."""
    return make_site(guest="none")


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    processor.delete(SliverRef(id=ours("cut"))).result()
    assert things() == set()


def killed(site: Site, operation: str, sliver: NodeSliver, method: str, path: str) -> bool:
    """Run an operation in another process that is killed when such a request has been answered.

    Tell whether it was: what is removed side by side may be gone already.
    """
    code = f"""
        import os, re, signal
        from keystoneauth1.session import Session
        from fabric_direct.site.config import Site
        from fabric_direct.model import NodeSliver
        from fabric_direct.processor import HandlerProcessor

        send = Session._send_request

        def send_and_die(self, url, method, *args, **kw):
            answer = send(self, url, method, *args, **kw)
            if method == {method!r} and re.search({path!r}, url.partition("?")[0]):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        Session._send_request = send_and_die
        site = Site.model_validate_json({site.model_dump_json()!r})
        sliver = NodeSliver.model_validate_json({sliver.model_dump_json()!r})
        HandlerProcessor(site).{operation}(sliver).result()
    """
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=300)
    assert child.returncode in {-signal.SIGKILL, 0}
    return child.returncode == -signal.SIGKILL


CREATES = [
    ("POST", "/networks$"),
    ("POST", "/subnets$"),
    ("POST", "/ports$"),
    ("POST", "/floatingips$"),
    ("POST", "/volumes$"),
    ("POST", "/servers$"),
]


@pytest.mark.parametrize(
    ("method", "path"), [*CREATES[:-1], pytest.param(*CREATES[-1], marks=pytest.mark.share)]
)
def test_a_killed_creation_is_finished_by_the_next(
    processor: HandlerProcessor, method: str, path: str
) -> None:
    assert killed(processor.site, "create", wanted(), method, path)

    observed = done(processor.create(wanted()).result()).observed

    assert observed
    assert observed.differences == ()
    assert processor.unfinished() == ()


@pytest.mark.parametrize(("method", "path"), CREATES)
def test_a_killed_creation_leaves_nothing_after_delete(
    processor: HandlerProcessor, things: Things, method: str, path: str
) -> None:
    assert killed(processor.site, "create", wanted(), method, path)
    assert things() != set()

    done(processor.delete(wanted().ref()).result())

    assert things() == set()
    assert processor.unfinished() == ()


DELETES = [
    ("DELETE", "/servers/"),
    ("DELETE", "/floatingips/"),
    ("DELETE", "/ports/"),
    ("DELETE", "/volumes/"),
]


def test_a_deletion_that_is_killed_again_and_again_is_finished_in_the_end(
    processor: HandlerProcessor, things: Things
) -> None:
    done(processor.create(wanted()).result())
    kills = [killed(processor.site, "delete", wanted(), *request) for request in DELETES]
    assert kills[0]

    for recovered in processor.recover():
        done(recovered.result())

    assert things() == set()


@pytest.fixture
def looking(make_site: Callable[..., Site], cloud: Connection) -> Iterator[HandlerProcessor]:
    """The processor of a site that waits for its guests, which must be up to let a volume go."""
    site = make_site()
    with HandlerProcessor(site) as processor:
        yield processor
        processor.delete(SliverRef(id=ours("cut"))).result()
    assert Things(cloud, site)() == set()


def test_a_killed_modification_is_finished_by_the_next(looking: HandlerProcessor) -> None:
    processor = looking
    before = sliver("cut", components=[ETH0, DATA])
    done(processor.create(before).result())
    changed = sliver("cut", components=[ETH0, nic("eth1", RED)])
    assert killed(processor.site, "modify", changed, "POST", "/os-interface$")

    observed = done(processor.modify(changed).result()).observed

    assert observed
    assert observed.differences == ()
    assert observed.volumes == ()
    assert made(done(processor.modify(changed).result())) == set()
