"""The handlers in forked workers, as the actor's own processor runs them."""

import gc
import logging
import multiprocessing
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.actor import VMHandler
from fabric_direct.drivers.fake import Substrate
from tests.fabric import slivers
from tests.fabric.slivers import PROJECT, RESERVATION, component, vm

MODULE = "fabric_direct.actor"
FORK = multiprocessing.get_context("fork")


def work(operation: str, properties: dict[str, str], unit: Any, *data: Any) -> Any:
    """Do in a worker what the actor's pool does: make a handler, call it once."""
    made = import_module(MODULE).VMHandler(logging.getLogger("worker"), properties, None)
    return getattr(made, operation)(*([unit] if unit else []), *data)


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_a_worker_does_not_collect_what_was_its_parents() -> None:
    gc.disable()
    try:
        circle = weakref.ref(Circle())
        child = FORK.Process(target=lambda: sys.exit(gc.collect() < 0 or circle() is None))
        child.start()
        child.join()
    finally:
        gc.enable()

    assert child.exitcode == 0


@pytest.fixture
def pool(fakes: Substrate) -> Iterator[ProcessPoolExecutor]:
    """One worker: what the fakes hold is in its memory."""
    with ProcessPoolExecutor(1, mp_context=FORK) as pool:
        yield pool


def test_a_life(pool: ProcessPoolExecutor, properties: dict[str, str]) -> None:
    def ask(operation: str, unit: Any, *data: Any) -> Any:
        return pool.submit(work, operation, properties, unit, *data).result()

    result, unit = ask("create", slivers.unit(vm(component("GPU", "gpu1", "0000:25:00.0"))))
    assert result["target.code"] == 0
    assert unit.get_sliver().management_ip == "10.20.1.2"

    reading = {"operation": "cpuinfo", "poa_id": "1"}
    result, _ = ask("poa", unit, reading)
    assert result["poa_info"]["code"] == 0

    unit.set_modified(modified=vm())
    assert ask("modify", unit)[0]["target.code"] == 0
    assert ask("delete", unit)[0]["target.code"] == 0
    assert ask("clean_restart", None)["target.code"] == 0


def test_what_fails_in_a_worker_is_told_outside(
    pool: ProcessPoolExecutor, properties: dict[str, str]
) -> None:
    result, unit = pool.submit(
        work, "create", properties, slivers.unit(vm(image_ref=None))
    ).result()

    assert result["exception.message"] == "image_ref: is missing"
    assert unit.get_sliver().label_allocations.instance is None


def test_workers_are_forked_after_work_was_done_here(
    handler: VMHandler, fakes: Substrate, properties: dict[str, str]
) -> None:
    """Threads of the processor do not survive a fork; a child begins with its own."""
    handler.create(slivers.unit(vm(), rid="other"))
    with ProcessPoolExecutor(2, mp_context=FORK) as pool:
        asked = [
            pool.submit(work, "create", properties, slivers.unit(vm(), rid=rid))
            for rid in (RESERVATION, PROJECT)
        ]
        codes = [future.result()[0]["target.code"] for future in asked]
    assert codes == [0, 0]


def test_the_actors_own_worker(fakes: Substrate, properties: dict[str, str]) -> None:
    name = "fabric_cf.actor.core.plugins.handlers.ansible_handler_processor"
    processor = pytest.importorskip(name, reason="the actor's fabric_cf is not installed")
    main: Callable[..., Any] = processor.AnsibleHandlerProcessor.process_pool_main
    lock = multiprocessing.Manager().Lock()

    with ProcessPoolExecutor(1, mp_context=FORK) as pool:
        for operation in ("create", "delete"):
            unit = slivers.unit(vm())
            asked = (operation, "VMHandler", MODULE, properties, unit, None, lock)
            result, _ = pool.submit(main, *asked).result()
            assert result["target.code"] == 0, result


def test_loading_the_handlers_loads_nothing_of_the_actors(tmp_path: Path) -> None:
    program = (
        "import sys, fabric_direct.actor as a; a.VMHandler, a.VnicNetHandler;"
        "print([m for m in sys.modules if m.split('.')[0] in {'fim', 'fabric_cf', 'ansible'}])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert found.stdout.strip() == "[]"
