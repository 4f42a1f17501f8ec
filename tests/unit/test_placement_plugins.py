"""Filters and costs of other packages, and what goes wrong in them."""

import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabric_direct.errors import InvalidSite
from fabric_direct.placement import plugins
from fabric_direct.placement.place import check, explain, place
from fabric_direct.placement.plan import BuildPlan
from fabric_direct.site.config import PlacementSettings
from tests.unit.placement_hosts import gpu, host, need, request

RACKS = Path(__file__).parents[2] / "examples/placement/racks"
GROUP = "fabric_direct.placement"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a module with its entry points, as an installer would leave it."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(module: Path, **points: dict[str, str]) -> None:
        shutil.copy(module, tmp_path)
        info = tmp_path / f"{module.stem}-1.0.dist-info"
        info.mkdir()
        sys.modules.pop(module.stem, None)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1.0\n"
        )
        sections = (
            "\n".join(
                [f"[{GROUP}.{kind}]", *(f"{name} = {value}" for name, value in named.items())]
            )
            for kind, named in points.items()
        )
        (info / "entry_points.txt").write_text("\n".join(sections))
        plugins._installed.cache_clear()

    yield installed
    monkeypatch.undo()
    plugins._installed.cache_clear()


@pytest.fixture
def plugin(tmp_path: Path, install: Install) -> Callable[[str, str], None]:
    """Return what installs one filter or cost named ``odd``, given by what it does with a host."""

    def made(kind: str, body: str) -> None:
        source = tmp_path / "source" / "odd_one.py"
        source.parent.mkdir()
        source.write_text(f"import numpy as np\ndef odd(hosts, needs):\n    {body}\n")
        install(source, **{f"{kind}s": {"odd": "odd_one:odd"}})

    return made


class TestExample:
    @pytest.fixture(autouse=True)
    def racks(self, install: Install) -> None:
        points = tomllib.loads((RACKS / "pyproject.toml").read_text())["project"]["entry-points"]
        kinds = {group.removeprefix(f"{GROUP}."): named for group, named in points.items()}
        install(RACKS / "site_racks.py", **kinds)

    HOSTS = (
        host("w1", traits=frozenset({"CUSTOM_RACK_4"}), devices=(gpu("25:00.0"),)),
        host(
            "w2",
            traits=frozenset({"CUSTOM_RACK_2", "CUSTOM_POWER_SHORT"}),
            devices=(gpu("25:00.0"),),
        ),
        host("w3"),
    )

    def test_its_cost_counts(self) -> None:
        plan = place([request("a")], self.HOSTS, PlacementSettings(weights={"scarcity": 0}))
        chosen = plan.assignments[0].chosen
        assert (chosen.host, chosen.costs["rack_distance"], plan.warnings) == ("w2", 50, ())
        told = explain(request("a"), self.HOSTS)
        assert {one.host: one.costs["rack_distance"] for one in told.hosts} == {
            "w1": 150,
            "w2": 50,
            "w3": 1000,
        }

    def test_its_weight_can_be_set(self) -> None:
        assert explain(request("a"), self.HOSTS).weights["rack_distance"] == 1
        settings = PlacementSettings(weights={"rack_distance": 7})
        assert explain(request("a"), self.HOSTS, settings).weights["rack_distance"] == 7

    def test_its_filter_is_asked(self) -> None:
        wanted = request("a", devices=(need(),))
        assert place([wanted], self.HOSTS).assignments[0].chosen.host == "w1"
        refused = place([wanted], self.HOSTS[1:]).unplaced[0].refused
        assert refused == {"rack_power": 1, "devices": 1}

    def test_its_filter_can_be_left_out(self) -> None:
        settings = PlacementSettings(without=("rack_power",))
        plan = place([request("a", devices=(need(),))], self.HOSTS[1:], settings)
        assert plan.assignments[0].chosen.host == "w2"


SOUND = place([request("a"), request("b")], [host("w1"), host("w2", cores_used=9)])


class TestFaults:
    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("raise KeyError('rack')", "it raised KeyError: 'rack'"),
            ("return [True] * len(hosts)", "it returned list, which is not an array"),
            (
                "return np.ones(3, bool)",
                r"it returned an array of the shape \(3,\) for 2 hosts",
            ),
            (
                "return np.ones((len(hosts), 1), bool)",
                r"an array of the shape \(2, 1\) for 2 hosts",
            ),
            ("return np.ones(len(hosts))", "it returned float64, which is not bool"),
            ("return None", "it returned NoneType"),
            ("hosts.used[:] = 0", "it raised ValueError: assignment destination is read-only"),
        ],
    )
    def test_a_faulty_filter_is_named_and_left_out(
        self, plugin: Callable[[str, str], None], body: str, why: str
    ) -> None:
        plugin("filter", body)
        self.assert_left_out("the filter odd is left out: .*" + why)

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("1 / 0", "it raised ZeroDivisionError: division by zero"),
            ("return np.full(len(hosts), np.nan)", "it returned float64, which is not an integer"),
            (
                "return np.full(len(hosts), -1)",
                "it returned -1, which is not from 0 to 1000000",
            ),
            ("return np.full(len(hosts), 2**40)", "which is not from 0 to 1000000"),
            ("return np.ones(len(hosts), bool)", "it returned bool, which is not an integer"),
            ("return 5", "it returned int, which is not an array"),
        ],
    )
    def test_a_faulty_cost_is_named_and_left_out(
        self, plugin: Callable[[str, str], None], body: str, why: str
    ) -> None:
        plugin("cost", body)
        self.assert_left_out("the cost odd is left out: .*" + why)

    def assert_left_out(self, why: str) -> None:
        batch, hosts = [request("a"), request("b")], [host("w1"), host("w2", cores_used=9)]
        plan = place(batch, hosts)
        (warning,) = plan.warnings
        assert re.search(why, warning)
        assert plan.assignments == SOUND.assignments
        assert len(explain(batch[0], hosts).warnings) == 1
        check(plan, batch, hosts)

    def test_one_that_fails_in_the_midst_leaves_no_trace_in_the_plan(
        self, plugin: Callable[[str, str], None]
    ) -> None:
        """It prefers the other host, and fails once that is taken of."""
        other = "np.where(hosts.used[:, 0] == 11, -1, 100_000 * (hosts.used[:, 0] == 0))"
        plugin("cost", f"return {other}.astype(int)")
        batch, hosts = [request("a"), request("b")], [host("w1"), host("w2", cores_used=9)]
        plan = place(batch, hosts)
        assert re.search("the cost odd is left out: it returned -1", plan.warnings[0])
        assert plan.assignments == SOUND.assignments

    def test_a_cost_of_few_bits_is_not_cut_off_by_its_weight(
        self, plugin: Callable[[str, str], None]
    ) -> None:
        plugin("cost", "return np.full(len(hosts), 200, np.uint8)")
        plain = place([request("a")], [host()], PlacementSettings(weights={"odd": 0})).cost
        plan = place([request("a")], [host()], PlacementSettings(weights={"odd": 1000}))
        assert (plan.cost - plain, plan.warnings) == (200_000, ())

    def test_one_that_cannot_be_imported_is_named(self, tmp_path: Path, install: Install) -> None:
        (tmp_path / "source").mkdir()
        broken = tmp_path / "source" / "broken.py"
        broken.write_text("import nothing_of_that_name\n")
        install(broken, filters={"odd": "broken:odd"})
        self.assert_left_out("the filter odd is left out: broken:odd: ModuleNotFoundError")

    def test_two_of_one_name_are_left_out(self, tmp_path: Path, install: Install) -> None:
        (tmp_path / "source").mkdir()
        for name in ("one", "other"):
            module = tmp_path / "source" / f"{name}_odd.py"
            module.write_text("def odd(hosts, needs): return hosts.enabled\n")
            install(module, filters={"odd": f"{name}_odd:odd"})
        self.assert_left_out(
            "the filter odd is left out: several packages provide one of that name"
        )

    def test_one_named_like_ours_does_not_take_its_place(
        self, tmp_path: Path, install: Install
    ) -> None:
        (tmp_path / "source").mkdir()
        module = tmp_path / "source" / "sly.py"
        module.write_text("def capacity(hosts, needs): return hosts.enabled\n")
        install(module, filters={"capacity": "sly:capacity"})
        assert place([request("a", 65)], [host()]).unplaced[0].refused == {"capacity": 1}


class TestNames:
    def test_a_weight_for_a_cost_that_is_not_installed_is_refused(self) -> None:
        with pytest.raises(
            InvalidSite, match=r"placement.weights.*sprad.*known: .*spread"
        ) as refused:
            place([request("a")], [host()], PlacementSettings(weights={"sprad": 1}))
        assert refused.value.field == "placement.weights.sprad"

    def test_a_filter_that_is_not_installed_cannot_be_left_out(self) -> None:
        with pytest.raises(InvalidSite, match=r"placement.without.*racks"):
            place([request("a")], [host()], PlacementSettings(without=("racks",)))

    @pytest.mark.parametrize("name", ["host", "devices"])
    def test_a_filter_that_must_be_asked_cannot_be_left_out(self, name: str) -> None:
        with pytest.raises(InvalidSite, match=f"the filter {name} cannot be left out"):
            place([request("a")], [host()], PlacementSettings(without=(name,)))

    def test_a_filter_can_be_left_out(self) -> None:
        hosts = [host(enabled=False)]
        assert place([request("a")], hosts).unplaced
        plan: BuildPlan = place([request("a")], hosts, PlacementSettings(without=("in_service",)))
        assert plan.assignments
