"""``fabric-direct topology``: where pictures go, what is refused, what programs get."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from pytest_mock import MockerFixture

from fabric_direct.cli import main
from fabric_direct.drivers.fake import Substrate
from tests.outcomes import result_of
from tests.unit.pictures import Picture
from tests.unit.test_cli import Run, Write, run, site, site_path, write

__all__ = ["run", "site", "site_path", "write"]


@pytest.fixture
def living(run: Run, write: Write) -> None:
    assert run("create", write()).exit_code == 0


@pytest.mark.usefixtures("living")
class TestAPicture:
    @pytest.mark.parametrize(
        ("names", "title"),
        [((), "Site TEST"), (("localhost",), "Host localhost"), (("vm1",), "VM vm1")],
        ids=["of the site", "of a host", "of a sliver"],
    )
    def test_is_written_to_a_file(
        self, run: Run, tmp_path: Path, names: tuple[str, ...], title: str
    ) -> None:
        said = run("topology", *names, "-o", str(tmp_path / "out.svg"))

        assert said.stdout == f"Drawn: {tmp_path}/out.svg\n"
        assert Picture((tmp_path / "out.svg").read_text()).root.get("aria-label") == title

    @pytest.mark.parametrize("out", [(), ("-o", "-")], ids=["by default", "by -"])
    def test_is_written_to_a_pipe(self, run: Run, out: tuple[str, ...]) -> None:
        assert Picture(run("topology", "vm1", *out).stdout).texts

    @pytest.mark.parametrize("out", [(), ("-o", "-")], ids=["by default", "by -"])
    def test_is_not_written_to_a_terminal(
        self, run: Run, mocker: MockerFixture, out: tuple[str, ...]
    ) -> None:
        mocker.patch("fabric_direct.cli.topology.sys").stdout.isatty.return_value = True

        said = run("topology", "vm1", *out)

        assert said.exit_code == 2
        assert "name a file, -o out.svg" in said.stderr

    def test_with_a_host_that_does_not_answer_warns_of_it(self, run: Run, fakes: Substrate) -> None:
        fakes.fault("device.inventory", at=0, kind="fail")

        said = run("topology", "localhost")

        assert "warning: localhost does not answer: device.inventory failed" in said.stderr
        assert "does not answer" in Picture(said.stdout).texts


@pytest.mark.usefixtures("fakes")
class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["-o", "out.png"], 2, "out.png must end in .svg, or be - for stdout"),
            (["-o", "/nowhere/out.svg"], 2, "/nowhere/out.svg cannot be written: No such file"),
            (["--json", "-o", "out.svg"], 2, "-o writes a picture: leave it out, or the format"),
            (["localhost", "vm1"], 2, "localhost is a host: each host has its own picture"),
            (
                ["nobody"],
                2,
                "no host or sliver 'nobody' (site TEST): hosts: localhost; slivers: none",
            ),
        ],
        ids=["another format", "no such folder", "both", "a host and a sliver", "an unknown name"],
    )
    def test_is_told_with_what_to_do(
        self, run: Run, words: list[str], code: int, message: str
    ) -> None:
        said = run("topology", *words)

        assert said.exit_code == code
        assert message in said.stderr
        assert "<svg" not in said.stdout


@cache
def schema() -> Any:
    return json.loads(CliRunner().invoke(main, ["schema", "topology"]).stdout)


@pytest.mark.usefixtures("living")
class TestForPrograms:
    @pytest.mark.parametrize(
        "names", [(), ("localhost",), ("vm1",)], ids=["site", "host", "sliver"]
    )
    def test_the_values_are_as_the_schema_says(self, run: Run, names: tuple[str, ...]) -> None:
        document = json.loads(run("topology", *names, "--json").stdout)
        jsonschema.Draft202012Validator(schema()).validate(document["result"])
        assert document["command"] == "topology"

    def test_a_sliver_has_its_parts(self, run: Run) -> None:
        found: dict[str, Any] = result_of(run("topology", "vm1", "--json").stdout)

        (vm,) = found["vms"]
        assert found["kind"] == "slivers"
        assert [nic["component"] for nic in vm["nics"]] == ["nic1"]
        assert [volume["component"] for volume in vm["volumes"]] == ["data"]
