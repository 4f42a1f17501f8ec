"""Steps that stamp resources made by others, and change nothing else of them."""

from collections.abc import Callable
from dataclasses import dataclass

from fabric_direct.drivers.contract import (
    Adopted,
    AdoptionDriver,
    DeviceDomain,
    DeviceDriver,
    DeviceRecord,
    FoundPort,
    FoundServer,
    FoundThing,
)
from fabric_direct.engine.step import Step
from fabric_direct.errors import NotFound
from fabric_direct.model import Finding, PciComponent, Stamp

Thing = Callable[[], FoundThing | None]
"""Finds a thing as it is now; None if it is gone."""


class _StampServer(Step):
    """A server says whose it is, and how far its adoption is."""

    finished = False

    def __init__(
        self, name: str, driver: AdoptionDriver, server: str, stamp: Stamp, site: str
    ) -> None:
        """Make the step; ``server`` is the server's id."""
        super().__init__(name)
        self._driver, self._server, self._stamp, self._site = driver, server, stamp, site
        self._before: FoundServer | None = None

    def _found(self) -> FoundServer:
        found = self._driver.server(self._server, whole=False)
        if found is None:
            raise NotFound(f"server {self._server} is gone")
        return found

    def look(self) -> None:
        """Remember what it said before."""
        self._before = self._found()

    def make(self) -> None:
        """Write it."""
        self._driver.stamp_server(self._server, self._stamp, finished=self.finished)

    def undo(self) -> None:
        """Write what it said before, or remove the stamp."""
        was = self._before
        if was is None or was.stamp is None:
            self._driver.unstamp_server(self._server, self._stamp.sliver.id)
        else:
            done = was.adopted is not Adopted.UNFINISHED
            self._driver.stamp_server(self._server, was.stamp, finished=done)


class BeginAdoption(_StampServer):
    """A server carries the stamp of its sliver; until the end its adoption counts as unfinished."""

    def check(self) -> Finding:
        """Compare the server's stamp."""
        found = self._found()
        owner = f"{self._site}/{self._stamp.sliver.id}"
        same = found.tagged and (found.owner, found.stamp) == (owner, self._stamp)
        return Finding.ALREADY_SO if same else Finding.WILL_CHANGE

    def is_undone(self) -> bool:
        """Compare the server's stamp with the one before."""
        found, was = self._found(), self._before
        before = (was.stamp, was.tagged) if was else (None, False)
        return (found.stamp, found.tagged) == before


class FinishAdoption(_StampServer):
    """All that belongs to a server carries its stamp, and the server says so."""

    finished = True

    def check(self) -> Finding:
        """Look for the mark of an unfinished adoption."""
        done = self._found().adopted is Adopted.DONE
        return Finding.ALREADY_SO if done else Finding.WILL_CHANGE


@dataclass(frozen=True)
class Marking:
    """The functions that find a resource, write its stamp, and remove the stamp."""

    find: Thing
    write: Callable[[str], None]
    """Is given the component."""
    remove: Callable[[], None]


class StampThing(Step):
    """A port, floating IP or volume carries the stamp of its sliver and component."""

    def __init__(self, name: str, owner: str, component: str, marking: Marking) -> None:
        """Make the step; ``owner`` is ``<site>/<sliver>``."""
        super().__init__(name)
        self._owner, self._component, self._marking = owner, component, marking
        self._before: FoundThing | None = None

    def check(self) -> Finding:
        """Compare its stamp."""
        found = self._found()
        same = (found.owner, found.component) == (self._owner, self._component)
        return Finding.ALREADY_SO if same else Finding.WILL_CHANGE

    def look(self) -> None:
        """Remember its stamp."""
        self._before = self._found()

    def make(self) -> None:
        """Write it."""
        self._marking.write(self._component)

    def undo(self) -> None:
        """Remove it, or write what it was."""
        was = self._before
        if was and was.owner == self._owner:
            self._marking.write(was.component)
        else:
            self._marking.remove()

    def _found(self) -> FoundThing:
        found = self._marking.find()
        if found is None:
            raise NotFound(f"{self.name} is gone")
        return found


class TakeBack(Step):
    """Remove the stamp that a step of an adoption has written."""

    def __init__(self, step: Step) -> None:
        """Make the step that undoes another one, which another process made."""
        super().__init__(f"undo {step.name}")
        self._step, self._tried = step, False

    def check(self) -> Finding:
        """Look whether it is undone; what was begun and not ended does not show before that."""
        undone = self._tried and self._step.is_undone()
        return Finding.ALREADY_SO if undone else Finding.WILL_DELETE

    def make(self) -> None:
        """Undo it."""
        self._step.undo()
        self._tried = True

    def is_undone(self) -> bool:
        """Return True: it is not made again."""
        return True


class FinishPorts(Step):
    """All ports of a sliver bear its stamp, and none says any more that others may lack theirs."""

    def __init__(self, ports: Callable[[], list[FoundPort]], finish: Callable[[], None]) -> None:
        super().__init__("finish")
        self._ports, self._finish = ports, finish

    def check(self) -> Finding:
        """Look for a port that says so."""
        unfinished = any(port.unfinished for port in self._ports())
        return Finding.WILL_CHANGE if unfinished else Finding.ALREADY_SO

    def make(self) -> None:
        """Let them say that all is done."""
        self._finish()

    def is_undone(self) -> bool:
        """Return True: the steps before it take the stamps away."""
        return True


class TakeOverDevice(Step):
    """A device that others plugged into a server is recorded as the sliver's."""

    def __init__(
        self, devices: DeviceDriver, tenant: DeviceDomain, component: PciComponent
    ) -> None:
        super().__init__(f"record {component.id}")
        self._devices, self._tenant, self._component = devices, tenant, component
        self._before: tuple[DeviceRecord, ...] = ()

    def check(self) -> Finding:
        """Look for the records of its functions."""
        recorded = self._devices.is_adopted(self._component, self._tenant)
        return Finding.ALREADY_SO if recorded else Finding.WILL_CREATE

    def look(self) -> None:
        """Remember the records that another component of the sliver has of it."""
        records = self._devices.records(self._tenant.sliver)
        self._before = tuple(r for r in records if r.address in self._component.bdf)

    def make(self) -> None:
        """Write them."""
        self._devices.adopt(self._component, self._tenant)

    def undo(self) -> None:
        """Remove them, or write what they were."""
        self._devices.disown(self._component, self._tenant)
        for record in self._before:
            self._devices.write_record(record)
