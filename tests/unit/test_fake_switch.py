"""P4 switches in memory: whole, of one sliver at a time, with the keys of its user."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.fake.substrate import _substrates
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.model import SliverRef, State
from fabric_direct.model.p4_switches import Switch
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done

KEYS = tuple(f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 42}{end} user" for end in "AQ")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    switch = {"ssh": "ssh://admin@192.0.2.1", "user": "alice"}
    values = {"drivers": {"Switch": "fake"}, "p4_switches": {"p4a": switch, "p4b": switch}}
    fakes = {"fake": {"keep": True}}
    return Site.model_validate({"site": "TEST", "state_dir": tmp_path, **values, **fakes})


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


def switch(sliver: str = "s1", name: str = "p4a", *keys: str) -> Switch:
    values: dict[str, Any] = {"id": sliver, "name": "edge", "switch": name}
    return Switch.model_validate(values | {"ssh_keys": keys or KEYS[:1]})


def test_lives_as_a_real_one(processor: HandlerProcessor) -> None:
    done(processor.create(switch()).result())
    done(processor.create(switch()).result())
    assert not done(processor.probe(switch()).result()).observed.differences
    done(processor.modify(switch("s1", "p4a", *KEYS)).result())
    assert not done(processor.probe(switch("s1", "p4a", *KEYS)).result()).observed.differences

    done(processor.delete(SliverRef(id="s1", type="Switch")).result())

    observed = processor.probe(SliverRef(id="s1", type="Switch")).result().observed
    assert observed.state is State.ABSENT


def test_that_another_sliver_has_is_refused_and_named(processor: HandlerProcessor) -> None:
    done(processor.create(switch()).result())

    error = processor.create(switch("s2")).result().error

    assert (error.kind, error.message) == (
        Conflict.__name__,
        "switch p4a is taken: sliver s1 has it",
    )


@pytest.mark.parametrize(("name", "said"), [("p4x", "known: p4a, p4b"), ("p4b", "it is p4a")])
def test_another_is_refused_by_its_field(processor: HandlerProcessor, name: str, said: str) -> None:
    done(processor.create(switch()).result())

    error = processor.modify(switch("s1", name)).result().error

    assert (error.kind, error.field) == (InvalidSliver.__name__, "switch")
    assert said in error.message


def test_is_kept_for_the_next_process(site: Site, processor: HandlerProcessor) -> None:
    done(processor.create(switch()).result())
    _substrates.clear()

    with HandlerProcessor(site) as another:
        assert not done(another.probe(switch()).result()).observed.differences
