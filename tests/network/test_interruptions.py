"""What is left when our process is killed, or a switch's daemons are, between any two changes."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.model import SliverRef
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.network.between import at_changes
from tests.network.conftest import lab
from tests.outcomes import done
from tests.services.slivers import interface, service

REF = SliverRef(id="net-1", type="L2STS")


def joined(bandwidth: int) -> NetworkService:
    ends = (
        interface("i1", 100, bandwidth=bandwidth),
        interface("i2", 200, switch="sw2", bandwidth=bandwidth),
    )
    return service(*ends, kind="L2STS")


def killed(site: Site, tmp_path: Path, wanted: NetworkService, operation: str) -> Iterator[int]:
    """Yield after each point at which a process with the operation was killed; end if it lives."""
    paths = tmp_path / "site.json", tmp_path / "sliver.json"
    for path, model in zip(paths, (site, wanted), strict=True):
        path.write_text(model.model_dump_json())
    for number in count():
        argv = [*map(str, paths), operation, str(number)]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.network.between", *argv],
            check=False,
            capture_output=True,
            text=True,
        )
        if ran.returncode == 0:
            assert ran.stdout.strip() == "done"
            assert number > 1
            return
        assert ran.returncode == -9, ran.stderr
        yield number


def is_gone(processor: HandlerProcessor, driver: OvsService) -> bool:
    done(processor.delete(REF).result())
    return driver.stamped() == () and driver.leftovers("net-1") == ()


def test_a_killed_creation_is_continued_and_leaves_nothing(
    processor: HandlerProcessor, driver: OvsService, site: Site, tmp_path: Path
) -> None:
    for number in killed(site, tmp_path, joined(20), "create"):
        if number % 2:
            done(processor.create(joined(20)).result())
            assert driver.differences(joined(20)) == ()
        assert is_gone(processor, driver)
    assert is_gone(processor, driver)


def test_a_killed_modification_is_continued(
    processor: HandlerProcessor, driver: OvsService, site: Site, tmp_path: Path
) -> None:
    done(processor.create(joined(20)).result())
    for number in killed(site, tmp_path, joined(10), "modify"):
        done(processor.modify(joined(10)).result())
        assert driver.differences(joined(10)) == ()
        done(processor.modify(joined(20)).result())
        assert number >= 0
    assert is_gone(processor, driver)


def test_a_killed_deletion_is_continued(
    processor: HandlerProcessor, driver: OvsService, site: Site, tmp_path: Path
) -> None:
    done(processor.create(joined(20)).result())
    for _ in killed(site, tmp_path, joined(20), "delete"):
        assert is_gone(processor, driver)
        done(processor.create(joined(20)).result())
    assert driver.leftovers("net-1") == ()


@pytest.mark.parametrize("which", ["daemon", "database"])
@pytest.mark.parametrize("operation", ["create", "modify", "delete"])
def test_a_switch_that_restarts_between_two_changes_has_all_or_nothing_in_the_end(
    processor: HandlerProcessor, driver: OvsService, which: str, operation: str
) -> None:
    wanted = joined(10) if operation == "modify" else joined(20)
    for number in count():
        made: list[int] = []
        if which == "database":  # it is looked for after 1 s, then 2, 4, 8: not so by a new daemon
            lab("restart", "sw1", "daemon")

        def restart(so_far: int, number: int = number, made: list[int] = made) -> None:
            made.append(so_far)
            if so_far == number:
                lab("restart", "sw1", which)

        if operation != "create":
            done(processor.create(joined(20)).result())
        with at_changes(restart):
            first = getattr(processor, operation)(wanted).result()
        again = getattr(processor, operation)(wanted).result()
        assert done(again), (number, first)
        if operation != "delete":
            assert driver.differences(wanted) == ()
        assert is_gone(processor, driver)
        if number not in made:
            return
