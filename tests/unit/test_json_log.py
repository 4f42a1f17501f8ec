"""The command line's log as JSON: one object a line, with what it is about."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_mock import MockerFixture

from fabric_direct.calls.log_context import about, known
from fabric_direct.cli.json_log import JsonFormatter
from fabric_direct.drivers.fake import FakeVolume
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from tests.conftest import FAKE_DRIVERS

LOG = logging.getLogger("fabric_direct")
MAIN = "from fabric_direct.cli import main; main()"


class Lines(logging.Handler):
    """Keeps each record as the formatter writes it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.texts]


@pytest.fixture
def lines() -> Iterator[Lines]:
    kept = Lines()
    LOG.addHandler(kept)
    LOG.setLevel(logging.DEBUG)
    yield kept
    LOG.removeHandler(kept)


class TestALine:
    def test_has_time_level_logger_and_message(self, lines: Lines) -> None:
        logging.getLogger("fabric_direct.some").warning("no %s", "route")
        (line,) = lines.read()
        assert line.pop("time").endswith("+00:00")
        assert line == {"level": "WARNING", "logger": "fabric_direct.some", "message": "no route"}

    def test_is_one_whatever_is_in_the_message(self, lines: Lines) -> None:
        LOG.error("a\nb\x1b[31m\u2028\x9bä")
        (text,) = lines.texts
        assert text.isprintable()
        assert text.isascii()
        assert json.loads(text)["message"] == "a\nb\x1b[31m\u2028\x9bä"

    def test_has_the_traceback_of_an_exception(self, lines: Lines) -> None:
        LOG.error("failed", exc_info=KeyError("x"))
        (line,) = lines.read()
        assert line["exception"] == "KeyError: 'x'"

    def test_has_what_the_work_is_about_and_not_longer(self, lines: Lines) -> None:
        with about(sliver="s1", operation="create"):
            with about(step="port eth0"):
                LOG.info("one")
            LOG.info("two")
        LOG.info("three")
        names = [line.keys() & {"sliver", "operation", "step"} for line in lines.read()]
        assert names == [{"sliver", "operation", "step"}, {"sliver", "operation"}, set()]


class TestAnOperation:
    def test_is_named_in_each_line_of_it(
        self, processor: HandlerProcessor, vm: Callable[..., NodeSliver], lines: Lines
    ) -> None:
        futures = [processor.create(vm(id=name, components=())) for name in ("a", "b")]
        assert all(future.result().ok for future in futures)
        told = lines.read()
        assert {(line["sliver"], line["operation"]) for line in told} == {
            ("a", "create"),
            ("b", "create"),
        }
        assert all(line["message"].startswith(f"create {line['sliver']}") for line in told)
        steps = {
            line["step"]
            for line in told
            if line["logger"] == "fabric_direct.operations.flow_runner"
        }
        assert "verify" in steps

    def test_is_known_with_its_step_where_drivers_are_called(
        self, processor: HandlerProcessor, vm: Callable[..., NodeSliver], mocker: MockerFixture
    ) -> None:
        seen: list[dict[str, str]] = []
        create = FakeVolume.create

        def noted(driver: FakeVolume, *args: Any, **kw: Any) -> Any:
            seen.append(dict(known()))
            return create(driver, *args, **kw)

        mocker.patch.object(FakeVolume, "create", noted)
        processor.create(vm()).result()
        assert seen == [{"operation": "create", "sliver": "sliver-1", "step": "volume data"}]


@pytest.fixture
def site_path(tmp_path: Path) -> str:
    site = {"site": "TEST", "state_dir": str(tmp_path / "state"), "drivers": FAKE_DRIVERS}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site | {"guest": "fake"}))
    return str(tmp_path / "site.yaml")


def stderr_of(*words: str) -> list[str]:
    argv = [sys.executable, "-c", MAIN, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_the_option_makes_each_line_of_the_log_an_object(site_path: str) -> None:
    words = ("--site", site_path, "delete", "vm1", "--verbose", "--log-format", "json", "--json")
    lines = [json.loads(line) for line in stderr_of(*words)]
    assert lines[-1]["message"].startswith("delete vm1: done in ")
    assert (lines[-1]["sliver"], lines[-1]["operation"]) == ("vm1", "delete")


def test_without_it_the_log_is_text(site_path: str) -> None:
    last = stderr_of("--site", site_path, "delete", "vm1", "-v", "--json")[-1]
    assert last.startswith("INFO fabric_direct.processor: delete vm1: done in ")
