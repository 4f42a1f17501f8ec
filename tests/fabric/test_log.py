"""The actor's log has our records, each with operation and reservation."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fabric_direct.actor import VMHandler
from fabric_direct.actor.log import told_to
from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import Substrate
from tests.fabric import slivers
from tests.fabric.slivers import PROJECT, RESERVATION, vm

OTHER = "16fd2706-8baf-433b-82eb-8c7fada847da"
HIDDEN = "what a boot script may hold"


class Kept(logging.Handler):
    """Keeps the lines that a logger was given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept(logger: logging.Logger) -> Iterator[Kept]:
    kept = Kept()
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    yield kept
    logger.removeHandler(kept)


def test_an_operation_is_told_from_begin_to_end(
    handler: VMHandler, fakes: Substrate, kept: Kept
) -> None:
    handler.create(slivers.unit(vm()))

    assert kept.lines[0] == f"create {RESERVATION}: begins"
    assert kept.lines[-1] == f"create {RESERVATION}: is done"


def test_the_records_of_all_its_threads_have_operation_and_reservation(
    handler: VMHandler, fakes: Substrate, kept: Kept
) -> None:
    handler.create(slivers.unit(vm()))

    assert any("port management" in line for line in kept.lines)
    assert all(line.startswith(f"create {RESERVATION}: ") for line in kept.lines)


def test_those_of_operations_at_the_same_time_are_told_apart(
    handler: VMHandler, fakes: Substrate, kept: Kept
) -> None:
    fakes.delay = 0.01
    units = [slivers.unit(vm(), rid=rid) for rid in (RESERVATION, OTHER)]
    threads = [threading.Thread(target=handler.create, args=(unit,)) for unit in units]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for line in kept.lines:
        named = [rid for rid in (RESERVATION, OTHER) if rid in line]
        assert len(named) == 1, line
        assert line.startswith(f"create {named[0]}: ")


def test_what_failed_is_told_with_the_reason(
    handler: VMHandler, fakes: Substrate, kept: Kept
) -> None:
    handler.create(slivers.unit(vm(image_ref=None)))
    assert f"create {RESERVATION}: image_ref: is missing" in kept.lines


def test_a_warning_is_told_once(handler: VMHandler, fakes: Substrate, kept: Kept) -> None:
    fakes.existing[f"{PROJECT}-data"] = Volume("", "", "/fake/data", 1)

    handler.create(slivers.unit(vm(slivers.storage("vol1", "data", mount=True))))

    assert len([line for line in kept.lines if "no file system" in line]) == 1


def test_nothing_is_told_before_and_after(handler: VMHandler, fakes: Substrate, kept: Kept) -> None:
    logging.getLogger("fabric_direct.elsewhere").warning("nobody's")
    assert kept.lines == []


def test_nothing_secret_is_told(handler: VMHandler, fakes: Substrate, kept: Kept) -> None:
    script = f"#!/bin/sh\necho {HIDDEN}\n"
    for fault in ("compute.create", None):
        if fault:
            fakes.fault(fault, kind="fail")
        handler.create(slivers.unit(vm(boot_script=script)))
    handler.create(slivers.unit(vm(boot_script=script), keys=f"{HIDDEN}"))

    assert kept.lines
    assert not [line for line in kept.lines if HIDDEN in line]


def test_only_what_the_actor_wants_is_told(
    handler: VMHandler, fakes: Substrate, kept: Kept, logger: logging.Logger
) -> None:
    logger.setLevel(logging.ERROR)
    handler.create(slivers.unit(vm()))
    assert kept.lines == []


def test_an_actor_that_wants_errors_alone_takes_no_warning_from_others(
    handler: VMHandler, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("fabric_direct").setLevel(logging.NOTSET)
    logger.setLevel(logging.ERROR)
    handler.create(slivers.unit(vm()))
    logging.getLogger("fabric_direct.elsewhere").warning("somebody else's")
    assert "somebody else's" in caplog.text


def test_a_logger_of_our_own_is_told_once(kept: Kept) -> None:
    ours = logging.getLogger("fabric_direct.actor")
    ours.addHandler(kept)
    with told_to(ours, "create", "r1"):
        ours.warning("one")
    ours.removeHandler(kept)
    assert kept.lines == ["one"]


def test_each_of_two_actors_has_its_own(kept: Kept, logger: logging.Logger) -> None:
    other, others = logging.getLogger("another actor"), Kept()
    other.addHandler(others)
    ours: Any = logging.getLogger("fabric_direct.test")
    with told_to(logger, "create", "r1"):
        ours.warning("one")
        with told_to(other, "delete", "r2"):
            ours.warning("two")
    assert (kept.lines, others.lines) == (["create r1: one"], ["delete r2: two"])
