"""What each class of errors means: a page for each, printed by the command line, which leads to it."""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from pytest_mock import MockerFixture

from fabric_direct import errors
from fabric_direct.cli import main
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Limits
from tests.conftest import FAKE_DRIVERS
from tests.outcomes import result_of

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_text() for path in (ROOT / "docs/errors").glob("*.md")}
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, FabricDirectError)
}
SECTIONS = ["The sliver then", "Usual causes", "What to do"]

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, fakes: Substrate) -> Run:
    """Run the command line on a fake site."""
    site = {"site": "TEST", "state_dir": str(tmp_path / "state"), "drivers": FAKE_DRIVERS}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site | {"guest": "fake"}))

    def invoke(*words: str) -> Result:
        argv = ["--site", str(tmp_path / "site.yaml"), *words]
        return CliRunner().invoke(main, argv, catch_exceptions=False)

    return invoke


def commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours on a page."""
    for block in re.findall(r"```\n(.*?)```", page, re.DOTALL):
        yield from (line.split() for line in block.splitlines() if line.startswith("fabric-"))


class TestThePages:
    def test_each_class_has_one_and_each_is_about_a_class(self) -> None:
        assert PAGES.keys() == CLASSES.keys()

    @pytest.mark.parametrize("name", CLASSES)
    def test_each_has_the_same_parts(self, name: str) -> None:
        title, summary, *_ = PAGES[name].split("\n\n")
        assert title == f"# {name}"
        assert summary.endswith(".")
        assert re.findall(r"^## (.*)$", PAGES[name], re.MULTILINE) == SECTIONS

    @pytest.mark.parametrize("name", CLASSES.keys() - {"FabricDirectError"})
    def test_each_names_the_class_above_it(self, name: str) -> None:
        above = CLASSES[name].__base__
        assert above is not None
        assert f"A kind of [{above.__name__}]({above.__name__}.md)." in PAGES[name]

    @pytest.mark.parametrize("name", CLASSES)
    def test_the_commands_that_it_names_exist(self, name: str) -> None:
        for words in commands(PAGES[name]):
            named = [word for word in words[1:] if word != "--verbose"]
            found = main.get_command(click.Context(main), named[0])
            assert found
            if isinstance(found, click.Group):
                found = found.commands.get(named[1], found.commands["list"])
            options = {option for param in found.params for option in param.opts}
            assert {word for word in named if word.startswith("--")} <= options

    @pytest.mark.parametrize("name", CLASSES)
    def test_the_limits_that_it_names_exist(self, name: str) -> None:
        assert set(re.findall(r"`limits\.(\w+)`", PAGES[name])) <= Limits.model_fields.keys()

    def test_are_in_the_wheel(self) -> None:
        builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
        inside = {each.distribution_path for each in builder.recurse_included_files()}
        assert {f"fabric_direct/error_pages/{name}.md" for name in CLASSES} <= inside


class TestTheCommand:
    def test_lists_all_classes_below_the_class_that_they_are_a_kind_of(self, run: Run) -> None:
        lines = run("explain").stdout.splitlines()
        named = [line.split()[0] for line in lines[1:]]
        assert sorted(named) == sorted(CLASSES)
        assert lines[1 + named.index("DeviceUnclean")].startswith("    DeviceUnclean  The device")

    def test_lists_no_links_that_a_terminal_cannot_follow(self, run: Run) -> None:
        for words in ([], ["-f", "csv"]):
            assert "](" not in run("explain", *words).stdout

    def test_prints_the_page_of_a_class(self, run: Run) -> None:
        page = run("explain", "DeviceUnclean").stdout
        assert page.startswith("# DeviceUnclean\n")
        assert "fabric-direct devices release HOST ADDRESS\n" in page

    def test_names_what_a_page_leads_to(self, run: Run) -> None:
        page = run("explain", "DeviceUnclean").stdout
        assert "A kind of Conflict.\n" in page
        assert "See *Devices* in docs/operating.md.\n" in page

    def test_takes_names_in_lower_case_and_several(self, run: Run) -> None:
        page = run("explain", "nohost", "Denied", "NoHost").stdout
        assert re.findall(r"^# (.*)$", page, re.MULTILINE) == ["NoHost", "Denied"]

    def test_prints_json(self, run: Run) -> None:
        (found,) = result_of(run("explain", "DeviceUnclean", "--json").stdout)
        assert (found["kind"], found["parent"]) == ("DeviceUnclean", "Conflict")
        assert found["page"] == PAGES["DeviceUnclean"]
        listed = result_of(run("explain", "--json").stdout)
        assert {each["kind"] for each in listed} == CLASSES.keys()

    def test_prints_csv_of_all_classes_or_of_some(self, run: Run) -> None:
        rows = list(csv.reader(run("explain", "-f", "csv").stdout.splitlines()))
        assert rows[0] == ["CLASS", "MEANING"]
        assert sorted(name for name, _ in rows[1:]) == sorted(CLASSES)
        some = run("explain", "NoHost", "-f", "csv").stdout
        assert some.startswith("CLASS,MEANING\nNoHost,")
        assert len(some.splitlines()) == 2

    def test_prints_the_columns_that_are_asked_for(self, run: Run) -> None:
        assert run("explain", "NoHost", "-c", "class").stdout.split() == ["CLASS", "NoHost"]
        shown = run("explain", "NoHost", "-c", "class", "--json").stdout
        assert result_of(shown) == [{"class": "NoHost"}]

    def test_an_unknown_class_is_bad_input_and_the_nearest_is_named(self, run: Run) -> None:
        result = run("explain", "DeviceUnclear")
        assert result.exit_code == 2
        assert "did you mean DeviceUnclean" in result.stderr

    def test_names_of_classes_are_completed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        typed = {"_MAIN_COMPLETE": "bash_complete", "COMP_WORDS": "main explain dev"}
        result = CliRunner().invoke(main, [], prog_name="main", env=typed | {"COMP_CWORD": "2"})
        named = [line.removeprefix("plain,") for line in result.stdout.split()]
        assert named == [name for name in CLASSES if name.startswith("Dev")]


class TestWhereErrorsLead:
    def test_an_error_names_its_page(self, run: Run) -> None:
        result = run("devices", "nowhere")
        assert result.stderr.splitlines()[-1] == "explain: fabric-direct explain NotFound"

    def test_failed_operations_name_their_pages_once(self, run: Run, tmp_path: Path) -> None:
        sliver = {"name": "n", "image": "none", "capacities": {"core": 1, "ram": 1, "disk": 1}}
        files = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
        for path in files:
            path.write_text(yaml.safe_dump(sliver | {"id": path.stem}))
        result = run("create", *map(str, files))
        hints = re.findall("^explain: .*$", result.stderr, re.MULTILINE)
        assert hints == ["explain: fabric-direct explain InvalidSliver"]

    def test_success_names_none(self, run: Run) -> None:
        assert "explain" not in run("delete", "not-there").stderr

    def test_a_mistake_of_ours_has_no_page(self, run: Run, mocker: MockerFixture) -> None:
        mocker.patch("fabric_direct.operations.probe.Probe.__call__", side_effect=KeyError("x"))
        result = run("probe", "some")
        assert "KeyError" in result.stderr
        assert "explain:" not in result.stderr
