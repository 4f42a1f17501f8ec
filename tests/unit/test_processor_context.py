"""An operation's threads have the context of who asked for it, so that a log can tell whose it is."""

import logging
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor

asker: ContextVar[str] = ContextVar("asker", default="nobody")


class Askers(logging.Handler):
    """Notes who asked for what a record tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.add((asker.get(), record.getMessage()))


@pytest.fixture
def askers() -> Askers:
    return Askers()


def test_each_record_is_its_askers(
    processor: HandlerProcessor,
    fakes: Substrate,
    vm: Callable[..., NodeSliver],
    askers: Askers,
) -> None:
    log = logging.getLogger("fabric_direct")
    log.addHandler(askers)
    log.setLevel(logging.DEBUG)
    fakes.delay = 0.005
    futures = []
    for name in ("alpha", "omega"):
        asker.set(name)
        # the second operation on a sliver is begun by the thread of the first
        futures += [processor.create(vm(id=name)), processor.delete(vm(id=name))]
    asker.set("nobody")
    for future in futures:
        assert future.result().ok
    log.removeHandler(askers)

    told = {(who, name) for who, text in askers.seen for name in ("alpha", "omega") if name in text}
    assert told == {("alpha", "alpha"), ("omega", "omega")}
