"""The server itself: made, started, stamped, removed."""

from collections.abc import Callable
from functools import partial

from fabric_direct.drivers.contract import (
    ComputeDriver,
    Server,
    ServerSpec,
)
from fabric_direct.engine.field_changes import changed
from fabric_direct.engine.removal import Removal
from fabric_direct.engine.step import Step
from fabric_direct.errors import NotFound
from fabric_direct.model import FieldChange, Finding, Stamp, State


def the_server(compute: ComputeDriver, sliver_id: str) -> Server:
    """Return the server.

    :raises NotFound: if it is not there.
    """
    found = compute.find(sliver_id)
    if found is None:
        raise NotFound(f"the server of sliver {sliver_id} is not there")
    return found


class MakeServer(Step):
    """The server is there."""

    def __init__(
        self, compute: ComputeDriver, sliver_id: str, spec: Callable[[], ServerSpec]
    ) -> None:
        """Make the step; ``spec`` is asked when the ports and volumes are there."""
        super().__init__("server")
        self._compute, self._sliver, self._spec = compute, sliver_id, spec

    def check(self) -> Finding:
        """Look for the server by its stamp."""
        found = self._compute.find(self._sliver)
        return Finding.ALREADY_SO if found else Finding.WILL_CREATE

    def make(self) -> None:
        """Make and start it."""
        self._compute.create(self._spec())

    def undo(self) -> None:
        """Remove it."""
        self._compute.delete(self._sliver)


class StartServer(Step):
    """The server runs."""

    def __init__(self, compute: ComputeDriver, sliver_id: str, stop: float) -> None:
        """Make the step; the guest gets ``stop`` seconds to shut down when it is undone."""
        super().__init__("power")
        self._compute, self._sliver, self._stop = compute, sliver_id, stop
        self._was: State | None = None

    def check(self) -> Finding:
        """Look at the server's state."""
        runs = self._state() is State.RUNNING
        return Finding.ALREADY_SO if runs else Finding.WILL_CHANGE

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the state, if the server is there."""
        state = self._state()
        return changed({"state": state.value}, {"state": State.RUNNING.value}) if state else ()

    def is_implied(self) -> bool:
        """Return whether the server is not there: it runs when it is made."""
        return self._state() is None

    def look(self) -> None:
        """Remember the state."""
        self._was = self._state()

    def make(self) -> None:
        """Start it."""
        self._compute.start(self._sliver)

    def undo(self) -> None:
        """Stop it, if it was stopped; one that is paused stays as it is."""
        if self._was is State.STOPPED:
            self._compute.stop(self._sliver, timeout=self._stop)

    def _state(self) -> State | None:
        found = self._compute.find(self._sliver)
        return found.state if found else None


class WriteStamp(Step):
    """The server says what sliver it is; written last, so that until then it says what it was."""

    undoable = False

    def __init__(self, compute: ComputeDriver, stamp: Stamp) -> None:
        super().__init__("stamp")
        self._compute, self._stamp = compute, stamp

    def check(self) -> Finding:
        """Compare the server's stamp."""
        found = self._compute.find(self._stamp.sliver.id)
        fits = found is not None and found.stamp == self._stamp
        return Finding.ALREADY_SO if fits else Finding.WILL_CHANGE

    def make(self) -> None:
        """Write it."""
        self._compute.write_stamp(self._stamp.sliver.id, self._stamp)


class RemoveServer(Removal):
    """The server is gone, with its root disk and seed; its devices are back with the host."""

    def __init__(self, compute: ComputeDriver, sliver_id: str) -> None:
        left, delete = partial(compute.leftovers, sliver_id), partial(compute.delete, sliver_id)
        super().__init__("remove server", left, delete)
