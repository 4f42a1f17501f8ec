"""Changes that a test lets the fake drivers tell of."""

import threading
from typing import Self

from fabric_direct.drivers.contract.changes import Change, Hearing, Tell
from fabric_direct.errors import FabricDirectError


class Listeners:
    """Listeners to the drivers of one host."""

    def __init__(self) -> None:
        self._there: dict[int, tuple[Tell, Hearing]] = {}
        self._changed = threading.Condition()
        self.deaf: FabricDirectError | None = None
        """Why nobody can hear anything; None if all can."""
        self.first: Change | None = None
        """What is heard before a listener tells that it hears; None if nothing is."""
        self.tries = 0
        """How often somebody began to listen."""

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Begin anew in another process: nobody listens there."""
        return type(self), ()

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of what is fired, until the hearing ends."""
        with self._changed:
            self.tries += 1
            if self.deaf:
                raise self.deaf
            self._there[id(hearing)] = (tell, hearing)
            self._changed.notify_all()
        if self.first:
            tell(self.first)
        tell(Change("unknown"))
        hearing.wait()
        with self._changed:
            del self._there[id(hearing)]
        hearing.raise_error()

    def fire(self, change: Change) -> None:
        """Tell all who listen of a change."""
        with self._changed:
            there = list(self._there.values())
        for tell, _ in there:
            tell(change)

    def lose(self, error: FabricDirectError) -> None:
        """Let all who listen hear nothing any more."""
        with self._changed:
            there = list(self._there.values())
        for _, hearing in there:
            hearing.end(error)
