"""Which network services of a site differ from their stamps; on fake drivers."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.drivers.contract import Service
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.fake.service import FakeService
from fabric_direct.errors import Unreachable
from fabric_direct.model import SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.upkeep.drift import Drift
from tests.limits import PATIENT
from tests.outcomes import done
from tests.unit.test_service_handler import bridge, fabnet, port, site, vpn

__all__ = ["site"]

NET = SliverRef(id="net-1", type="L2Bridge")
MOVED = "interface a: its VLAN is 102, not 100"
Run = Callable[..., Result]


@pytest.fixture
def living(processor: HandlerProcessor) -> None:
    """Two services as they should be."""
    done(processor.create(bridge(port("a", 100))).result())
    done(processor.create(fabnet(port("b", 199, "p2"), sliver="net-2")).result())


def move(fakes: Substrate) -> None:
    """Put a service on another VLAN than its stamp says."""
    fakes.services["net-1"] = bridge(port("a", 102))


@pytest.mark.usefixtures("living")
class TestTheDriftOfASite:
    def test_is_nothing_where_nobody_touched_anything(self, processor: HandlerProcessor) -> None:
        drift = processor.drift()

        assert (drift.drifts, drift.silent, drift.unknown) == ((), {}, ())
        assert [ref.id for ref in drift.services] == ["net-1", "net-2"]

    def test_has_the_service_that_others_changed(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        move(fakes)

        assert processor.drift().drifts == (Drift(NET, "", (MOVED,)),)

    def test_has_one_of_which_not_all_is_there(
        self, processor: HandlerProcessor, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        find = FakeService.find

        def incomplete(driver: FakeService, sliver: str) -> Service | None:
            return None if sliver == "net-1" else find(driver, sliver)

        monkeypatch.setattr(FakeService, "find", incomplete)

        assert processor.drift().drifts == (Drift(NET, "", ("not all of it is there, only net",)),)

    def test_names_the_services_that_nothing_says_of_what_they_should_be(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        move(fakes)
        del fakes.service_stamps["net-1"]

        drift = processor.drift()

        assert (drift.drifts, drift.unknown) == ((), (NET,))
        assert [ref.id for ref in drift.services] == ["net-2"]

    def test_names_the_types_whose_driver_does_not_answer(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("service.stamped", at=0, kind="fail")

        (silent,) = processor.drift().silent.items()

        assert "L2Bridge" in silent[0].split(", ")
        assert "service.stamped failed" in str(silent[1])

    def test_names_a_service_that_could_not_be_compared_and_has_the_others(
        self, processor: HandlerProcessor, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        move(fakes)
        compare = FakeService.differences

        def down(driver: FakeService, sliver: Any) -> tuple[str, ...]:
            if sliver.id == "net-2":
                raise Unreachable("its router does not answer")
            return compare(driver, sliver)

        monkeypatch.setattr(FakeService, "differences", down)

        drift = processor.drift()

        assert [each.sliver for each in drift.drifts] == [NET]
        assert {n: str(e) for n, e in drift.silent.items()} == {
            "FABNetv4 net-2": "its router does not answer"
        }

    def test_compares_several_at_the_same_time(
        self, processor: HandlerProcessor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        meeting, compare = threading.Barrier(2, timeout=PATIENT["call"]), FakeService.differences

        def met(driver: FakeService, sliver: Any) -> tuple[str, ...]:
            meeting.wait()
            return compare(driver, sliver)

        monkeypatch.setattr(FakeService, "differences", met)

        assert processor.drift().silent == {}

    @pytest.mark.parametrize("asked", [{"hosts": ["localhost"]}, {"services": False}])
    def test_of_hosts_or_of_servers_alone_asks_for_no_service(
        self, processor: HandlerProcessor, fakes: Substrate, asked: dict[str, Any]
    ) -> None:
        move(fakes)
        fakes.calls.clear()

        drift = processor.drift(**asked)

        assert (drift.drifts, drift.services) == ((), ())
        assert not [method for method in fakes.calls if method.startswith("service.")]

    def test_changes_nothing(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        move(fakes)
        fakes.calls.clear()

        processor.drift()

        reads = {f"service.{name}" for name in ("stamped", "find", "differences", "leftovers")}
        assert {m for m in fakes.calls if m.startswith("service.")} <= reads


class TestReconcileOfAll:
    @pytest.fixture
    def run(self, site: Site, tmp_path: Path, living: None) -> Run:
        path = tmp_path / "site.yaml"
        path.write_text(json.dumps(site.model_dump(mode="json", exclude_none=True)))
        return lambda *words: CliRunner().invoke(main, ["--site", str(path), *words])

    def test_repairs_the_services_that_differ_alone(self, run: Run, fakes: Substrate) -> None:
        move(fakes)
        fakes.calls.clear()

        said = run("reconcile", "--all")

        assert said.exit_code == 0, said.output
        assert "Slivers that differ: 1, of 2 looked at.\n" in said.stdout
        assert f"net-1: repaired: {MOVED}\n" in said.stdout
        assert fakes.services["net-1"].interfaces[0].vlan == 100
        assert fakes.calls["service.apply"] == 1

    def test_dry_shows_it_alone(self, run: Run, fakes: Substrate) -> None:
        move(fakes)

        said = run("reconcile", "--all", "--dry-run")

        assert said.exit_code == 1
        assert f"net-1: differs: {MOVED}\n" in said.stdout
        assert fakes.services["net-1"].interfaces[0].vlan == 102

    def test_repairs_no_service_with_secrets(
        self, run: Run, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(vpn(101).model_copy(update={"id": "net-3"})).result())
        other = vpn(102).model_copy(update={"id": "net-3"})
        fakes.services["net-3"] = other

        said = run("reconcile", "--all")

        assert said.exit_code == 1
        assert "modify it with its file" in said.stderr
        assert fakes.services["net-3"] == other

    @pytest.mark.parametrize("form", [(), ("--json",)])
    def test_says_which_were_not_compared(
        self, run: Run, fakes: Substrate, form: tuple[str, ...]
    ) -> None:
        fakes.service_stamps.clear()

        said = run("reconcile", "--all", *form)

        assert said.exit_code == 0
        assert (
            "Not compared, for nothing says what they should be: L2Bridge net-1, FABNetv4 net-2.\n"
            in said.stderr
        )

    def test_says_whose_driver_does_not_answer(self, run: Run, fakes: Substrate) -> None:
        fakes.fault("service.stamped", kind="fail")

        said = run("reconcile", "--all")

        assert said.exit_code == 3
        assert "could not be looked at: service.stamped failed" in said.stderr
