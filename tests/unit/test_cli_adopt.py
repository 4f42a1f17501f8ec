"""`fabric-direct adopt`: what it shows, writes and stamps, and with which exit code."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.site.config import Site
from tests.outcomes import outcomes_of, result_of
from tests.unit.adopted_site import DRIVES, STRANGE, Cloud, am, cloud, site, worker
from tests.unit.fabric_am import FabricAm, Made

__all__ = ["am", "cloud", "site", "worker"]
Run = Callable[..., Result]


@pytest.fixture
def run(site: Site, tmp_path: Path) -> Run:
    path = tmp_path / "site.json"
    path.write_text(site.model_dump_json(exclude_none=True, exclude_defaults=True))

    def run(*words: object, **kw: Any) -> Result:
        return CliRunner().invoke(main, ["--site", str(path), "adopt", *map(str, words)], **kw)

    return run


def test_without_yes_it_shows_what_it_would_stamp(am: FabricAm, run: Run, cloud: Cloud) -> None:
    made = am.create("node1", DRIVES[0])

    result = run("--am", "fabric_am")

    assert result.exit_code == 0, result.output
    for word in ("port management", "floating IP 192.0.2.", "record nvme-0000-30-00-0"):
        assert f"will c{'reate' if word.startswith('record') else 'hange'}" in result.stdout
        assert word in result.stdout
    assert "--yes" in result.stdout
    assert made.reservation in result.stdout
    assert cloud.changes == []


def test_with_yes_it_stamps(am: FabricAm, run: Run) -> None:
    made = am.create("node1", DRIVES[0])

    result = run("--am", "fabric_am", "--yes")

    assert result.exit_code == 0, result.output
    assert f"{made.reservation}: adopted in" in result.stdout
    assert made.server["metadata"]["fabric-direct:adoption"] == "done"


def test_what_does_not_fit_is_named_and_the_rest_is_stamped(am: FabricAm, run: Run) -> None:
    good, bad = am.create("node1"), am.create("node2", STRANGE)
    am.cloud.things["servers"][am.create("node3").server["id"]]["name"] = "a person's own"

    result = run("--am", "fabric_am", "--yes", "--json")

    said = result_of(result.stdout)
    assert result.exit_code == 3
    assert [each["sliver"]["id"] for each in outcomes_of(result.stdout)] == [good.reservation]
    assert [each["id"] for each in said["misfits"]] == [bad.server["id"]]
    assert str(STRANGE) in said["misfits"][0]["error"]
    assert "fabric-direct:site" not in bad.server["metadata"]


def test_where_nothing_is_to_be_adopted_it_says_so(run: Run) -> None:
    result = run("--am", "fabric_am")

    assert (result.exit_code, result.stdout) == (0, "Nothing to adopt.\n")


class TestADocument:
    def test_is_written_and_adopted(
        self, am: FabricAm, run: Run, tmp_path: Path, cloud: Cloud
    ) -> None:
        made = am.create("node1", DRIVES[0], volume=True)
        file = tmp_path / "adopt.yaml"

        written = run("--am", "fabric_am", "--output", file)
        assert (written.exit_code, cloud.changes) == (0, [])
        assert "1 slivers" in written.stdout
        result = run(file, "--yes")

        assert result.exit_code == 0, result.output
        assert f"{made.reservation}: adopted" in result.stdout

    def test_may_come_by_stdin(self, am: FabricAm, run: Run, tmp_path: Path) -> None:
        made = am.create("node1", DRIVES[0], volume=True)
        file = tmp_path / "adopt.yaml"
        run("--am", "fabric_am", "--output", file)

        result = run("-", "--yes", input=file.read_text())

        assert result.exit_code == 0, result.output
        assert f"{made.reservation}: adopted" in result.stdout

    def test_that_comes_by_stdin_is_refused_by_line(self, run: Run) -> None:
        result = run("-", input="slivers:\n- sliver: 5\n")

        assert result.exit_code == 2
        assert "stdin:2: slivers[0]" in result.stderr

    def test_is_never_overwritten(self, am: FabricAm, run: Run, tmp_path: Path) -> None:
        am.create()
        file = tmp_path / "adopt.yaml"
        file.write_text("mine")

        assert run("--am", "fabric_am", "--output", file).exit_code == 2
        assert file.read_text() == "mine"

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            (lambda d: d["slivers"][0]["sliver"].update(cpu=1), "slivers[0]"),
            (lambda d: d["slivers"][0]["sliver"].pop("image"), "image"),
            (lambda d: d["slivers"][0].update(ports={"nic9": "p"}), "nic9"),
            (lambda d: d["slivers"].append(deepcopy(d["slivers"][0])), "given twice"),
            (lambda d: d.update(slivers=[]), "slivers"),
            (lambda d: d["slivers"][0]["sliver"]["components"].append(OWN), "data is missing"),
        ],
    )
    def test_is_refused_by_field(
        self,
        am: FabricAm,
        run: Run,
        tmp_path: Path,
        cloud: Cloud,
        change: Callable[[Any], None],
        field: str,
    ) -> None:
        file = _document(tmp_path, am.create(), change)

        result = run(file, "--yes")

        assert result.exit_code == 2
        assert field in result.stderr
        assert f"{file}:" in result.stderr
        assert cloud.changes == []


OWN = {"type": "Storage", "id": "data", "size": 1}


def _document(folder: Path, made: Made, change: Callable[[Any], None]) -> Path:
    sliver = {
        "id": made.reservation,
        "name": "node1",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "components": [{"type": "vNIC", "id": "eth0", "network": "lab"}],
    }
    document = {"slivers": [{"sliver": sliver}]}
    change(document)
    path = folder / "adopt.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    "words",
    [(), ("f.yaml", "--am", "fabric_am"), ("--am", "fabric_am", "--output", "f", "--yes")],
)
def test_unclear_words_are_refused(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_where_nothing_can_be_stamped_nobody_is_told_how(tmp_path: Path, fake_site: Site) -> None:
    (tmp_path / "site.yaml").write_text(fake_site.model_dump_json(exclude_unset=True))
    sliver = {
        "id": "s1",
        "name": "n",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
    }
    (tmp_path / "a.yaml").write_text(
        yaml.safe_dump({"slivers": [{"server": "x", "sliver": sliver}]})
    )

    result = CliRunner().invoke(
        main, ["--site", str(tmp_path / "site.yaml"), "adopt", str(tmp_path / "a.yaml")]
    )

    assert result.exit_code == 1
    assert "Unsupported" in result.stderr
    assert "--yes" not in result.stdout
