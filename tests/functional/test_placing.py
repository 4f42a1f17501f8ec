"""Slivers that leave their host open, on a real libvirt: made by many at once, or by one killed."""

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import libvirt
import pytest

from fabric_direct.model import AUTO, NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.functional.apart import TAG
from tests.outcomes import done

Things = Callable[[], set[str]]
MORE = 3
"""GiB of disk that may be promised: of the site's own pool, in which nobody else has anything."""
NAMES = [f"{TAG}-many{n}" for n in range(8)]
OWN = f"{TAG}-own"


@pytest.fixture(scope="module")
def scarce(unattended: Site) -> Site:
    """The site with room for three slivers, and nobody who looks into guests."""
    with HandlerProcessor(unattended) as processor:
        (host,) = processor.hosts()
    allocation = {"cpu": 64, "ram": 64, "disk": (MORE + 0.5) / host.disk}
    return Site.model_validate(unattended.model_dump() | {"placement": {"allocation": allocation}})


@pytest.fixture
def processor(scarce: Site, things: Things) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(scarce) as processor:
        yield processor
        for future in [processor.delete(SliverRef(id=name)) for name in (*NAMES, OWN)]:
            assert future.result().ok
    assert things() == set()


def sliver(name: str) -> NodeSliver:
    values: dict[str, Any] = {
        "id": name,
        "name": "node",
        "host": AUTO,
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
    }
    return NodeSliver.model_validate(values)


def python(site: Site, slivers: list[NodeSliver], code: str) -> "subprocess.Popen[str]":
    """Begin a process with the site and slivers."""
    before = f"""
        import json, os, signal
        from fabric_direct.site.config import Site
        from fabric_direct.model import NodeSliver
        from fabric_direct.processor import HandlerProcessor
        from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute

        site = Site.model_validate_json({site.model_dump_json()!r})
        slivers = [NodeSliver.model_validate_json(s) for s in {[s.model_dump_json() for s in slivers]!r}]
    """
    text = textwrap.dedent(before) + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def test_two_processes_with_four_threads_each_take_no_more_than_there_is(
    processor: HandlerProcessor, connection: libvirt.virConnect
) -> None:
    code = """
        with HandlerProcessor(site, workers=4) as processor:
            outcomes = [f.result() for f in [processor.create(s) for s in slivers]]
        print(json.dumps([outcome.model_dump(mode="json") for outcome in outcomes]))
    """
    halves = (NAMES[:4], NAMES[4:])
    children = [python(processor.site, [*map(sliver, half)], code) for half in halves]
    outcomes = [o for child in children for o in json.loads(child.communicate(timeout=300)[0])]

    made = [o["sliver"]["id"] for o in outcomes if o["status"] == "done"]
    there = {d.name() for d in connection.listAllDomains() if d.name().startswith(f"{TAG}-many")}
    assert 0 < len(made) == len(there) <= MORE
    assert {o["error"]["kind"] for o in outcomes if o["error"]} == {"NoHost"}
    assert [w for o in outcomes for w in o["warnings"] if "refused" in w] == []

    rest = [name for name in NAMES if name not in made]
    later = [processor.create(sliver(name)).result() for name in rest]
    assert sum(outcome.ok for outcome in later) == MORE - len(made)


def test_one_that_was_killed_goes_on_where_it_was_begun(processor: HandlerProcessor) -> None:
    code = """
        inner = LibvirtCompute.create
        def create_and_die(*given):
            inner(*given)
            os.kill(os.getpid(), signal.SIGKILL)
        LibvirtCompute.create = create_and_die
        HandlerProcessor(site).create(slivers[0]).result()
    """
    child = python(processor.site, [sliver(OWN)], code)
    child.communicate(timeout=300)
    assert child.returncode == -signal.SIGKILL
    (entry,) = processor.unfinished()
    assert entry.sliver["host"] == "localhost"

    (recovered,) = processor.recover()

    assert done(recovered.result()).observed
    assert {server.stamp.sliver.host for server in processor.slivers()} == {"localhost"}
    (host,) = processor.hosts()
    assert host.slivers.keys() == {OWN}
