"""Small handlers for the tests of processors: they provision nothing, and do what their name says.

They are named to a processor by module and class, as the actor's configuration does, and live in one
module, so that forked pool workers find them, too.
"""

import threading
from pathlib import Path
from typing import Any

INSTANCE, ADDRESS, FUNCTION, DISK = "instance-0001", "10.20.1.9", "0000:07:00.0", "vdb"


def result(operation: str, code: Any = 0, **more: Any) -> dict[str, Any]:
    return {"target.name": operation, "target.code": code, "action.sequence": 0, **more}


class Handler:
    """Writes into the sliver what a handler writes back of a VM."""

    def __init__(self, logger: Any, properties: dict[str, Any], process_lock: Any) -> None:
        self.logger, self.properties, self.process_lock = logger, properties, process_lock

    def create(self, unit: Any) -> Any:
        write(unit.get_sliver())
        return result("create"), unit

    def modify(self, unit: Any) -> Any:
        unit.get_sliver().management_ip = "10.20.1.10"
        unit.get_modified().management_ip = "10.20.1.11"
        return result("modify"), unit

    def delete(self, unit: Any) -> Any:
        unit.get_sliver().label_allocations.instance = None
        return result("delete"), unit

    def poa(self, unit: Any, data: dict[str, Any]) -> Any:
        unit.get_sliver().management_ip = "192.0.2.1"
        info = {"operation": data["operation"], "poa_id": data["poa_id"], "code": 0, "info": {}}
        return result("poa", poa_info=info), unit

    def clean_restart(self) -> Any:
        Path(self.properties["mark"]).write_text("cleaned")
        return result("clean_restart")


def write(sliver: Any) -> None:
    sliver.label_allocations.instance = INSTANCE
    sliver.management_ip = ADDRESS
    for component in sliver.attached_components_info.devices.values():
        component.label_allocations.bdf = FUNCTION
        component.label_allocations.device_name = DISK


def without_sliver(unit: Any) -> Any:
    unit.set_sliver(sliver=None)
    return unit


class Refusing(Handler):
    """Says no, and tells why."""

    def create(self, unit: Any) -> Any:
        return result("create", -1, **{"exception.message": "no room"}), unit


class Unmakeable(Handler):
    """Cannot be made."""

    def __init__(self, *_: Any) -> None:
        raise OSError("no such file: site.yaml")


class Failing(Handler):
    """Raises, halfway through what it writes, in whatever it is asked for."""

    def create(self, unit: Any) -> Any:
        unit.get_sliver().management_ip = ADDRESS
        raise RuntimeError("the substrate is on fire")

    modify = delete = create

    def poa(self, unit: Any, data: dict[str, Any]) -> Any:
        return self.create(unit)

    def clean_restart(self) -> Any:
        raise RuntimeError("the substrate is on fire")


class Exiting(Handler):
    """Ends the thread that it runs in."""

    def create(self, unit: Any) -> Any:
        raise SystemExit(1)


class Talking(Handler):
    """Answers with what is no answer: the one that its properties name."""

    answers = {
        "nothing": lambda unit: None,
        "no unit": lambda unit: result("create"),
        "a unit that is none": lambda unit: (result("create"), None),
        "no dictionary": lambda unit: ("created", unit),
        "an empty result": lambda unit: ({}, unit),
        "no code": lambda unit: ({"target.name": "create", "action.sequence": 0}, unit),
        "a code in words": lambda unit: (result("create", "fine"), unit),
        "no code, in words": lambda unit: (result("create", None), unit),
        "another operation's result": lambda unit: (result("destroy"), unit),
        "one thing more": lambda unit: (result("create"), unit, unit),
    }

    def create(self, unit: Any) -> Any:
        return self.answers[self.properties["answer"]](unit)


class Nowhere(Handler):
    """Gives a unit without a sliver."""

    def create(self, unit: Any) -> Any:
        return result("create"), without_sliver(unit)


class Unwritable(Handler):
    """Gives a sliver with a component that the actor's own does not have."""

    def create(self, unit: Any) -> Any:
        devices = unit.get_sliver().attached_components_info.devices
        devices["gpu"].set_properties(name="another")
        return super().create(unit)


class Digits(Handler):
    """Gives its code as text, as one that reads it from a program may."""

    def create(self, unit: Any) -> Any:
        return result("create", "0"), unit


class Gate:
    """Where handlers of this process wait: who came, in order, and how many were inside at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.close()

    def close(self) -> None:
        """Begin anew."""
        self.came: list[str] = []
        self.inside = self.most = 0
        self.open = False

    def pass_through(self, name: str) -> None:
        with self._changed:
            self.came.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.open, 30)
            self.inside -= 1

    def await_came(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.came) >= count, 30)
            return list(self.came)

    def set_open(self) -> None:
        with self._changed:
            self.open = True
            self._changed.notify_all()


gate = Gate()


class Waiting(Handler):
    """Writes, then waits at the gate, in whatever it is asked for."""

    def create(self, unit: Any) -> Any:
        write(unit.get_sliver())
        gate.pass_through(f"create {unit.get_sliver().get_name()}")
        return super().create(unit)

    def delete(self, unit: Any) -> Any:
        gate.pass_through(f"delete {unit.get_sliver().label_allocations.instance}")
        return super().delete(unit)

    def clean_restart(self) -> Any:
        gate.pass_through("clean_restart")
        return result("clean_restart")


class Unlucky(Handler):
    """Does what the data of its actions says: ``fine``, ``raise``, ``exit`` or ``talk``."""

    def poa(self, unit: Any, data: dict[str, Any]) -> Any:
        if data["operation"] == "raise":
            raise RuntimeError("no luck")
        if data["operation"] == "exit":
            raise SystemExit(1)
        return None if data["operation"] == "talk" else super().poa(unit, data)
