"""The events of this machine's libvirt, as a watcher hears them."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Self

import libvirt
import pytest

from fabric_direct.drivers.contract.changes import Change, Hearing
from fabric_direct.drivers.libvirt.connection import connections, domain_events
from fabric_direct.errors import Unreachable
from tests.functional.test_connection import URI, Relay, relay
from tests.functional.test_connection import domain as defined

__all__ = ["defined", "relay"]

SOON = 20.0


class Listener:
    """Hears what libvirt tells, in a thread."""

    def __init__(self, uri: str = URI) -> None:
        self._uri = uri
        self._others = set(connections._apart)
        self.told: SimpleQueue[Change] = SimpleQueue()
        self.hearing, self.error = Hearing(), SimpleQueue[BaseException | None]()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while self.told.get(timeout=SOON) != Change("unknown"):
            pass  # another test's domain was started meanwhile
        self._own = connections._apart.keys() - self._others
        assert self._own
        return self

    def __exit__(self, *_: object) -> None:
        self.hearing.end()
        self._thread.join(SOON)
        assert not self._thread.is_alive()

    def _listen(self) -> None:
        try:
            domain_events.listen(self._uri, self.told.put, self.hearing)
        except Unreachable as error:
            self.error.put(error)
        else:
            self.error.put(None)

    def is_connected(self) -> bool:
        """Return whether its connection is left; those that other tests had are not its own."""
        return bool(self._own & connections._apart.keys())

    def of(self, domain: libvirt.virDomain) -> str:
        """Return what is told next of a domain; other tests have domains, too."""
        while (change := self.told.get(timeout=SOON)).names[0] != domain.UUIDString():
            pass
        assert change.names[1] == domain.name()
        return change.what


@pytest.fixture
def listener(connection: libvirt.virConnect) -> Iterator[Listener]:
    with Listener() as made:
        yield made


@pytest.fixture
def domain(defined: libvirt.virDomain) -> Iterator[libvirt.virDomain]:
    """A domain that a test may start."""
    yield defined
    if defined.isActive():
        defined.destroy()


def test_a_domain_that_is_defined_anew_and_started_is_told_of(
    listener: Listener, connection: libvirt.virConnect, domain: libvirt.virDomain
) -> None:
    connection.defineXML(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    assert listener.of(domain) == "the domain was defined anew"

    domain.create()
    said = iter(lambda: listener.of(domain), "the domain was started")
    assert set(said) <= {"the domain was defined anew", "the domain was resumed"}


def test_a_connection_that_is_lost_ends_the_hearing_with_an_error(relay: tuple[Relay, str]) -> None:
    between, uri = relay

    with Listener(uri) as listener:
        between.cut()
        error = listener.error.get(timeout=SOON)

    assert isinstance(error, Unreachable)
    assert "the connection to libvirt was lost" in str(error)
    assert not listener.is_connected()


def test_a_hearing_that_is_ended_on_purpose_leaves_no_connection(listener: Listener) -> None:
    listener.hearing.end()

    assert listener.error.get(timeout=SOON) is None
    assert not listener.is_connected()


def test_where_no_libvirt_answers_nothing_is_heard() -> None:
    with pytest.raises(Unreachable):
        domain_events.listen("qemu+unix:///system?socket=/nowhere", print, Hearing())
