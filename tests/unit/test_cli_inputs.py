"""What commands read slivers from: files of several documents, directories, standard input."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fabric_direct.drivers.fake import Substrate
from tests.outcomes import outcomes_of
from tests.unit.test_cli import VM, Run, run, site, site_path, write

__all__ = ["run", "site", "site_path", "write"]

TWO = [VM, VM | {"id": "vm2", "name": "other"}]


def documents(*values: dict[str, Any]) -> str:
    return yaml.safe_dump_all(values)


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A file of two slivers."""
    (tmp_path / "two.yaml").write_text(documents(*TWO))
    return str(tmp_path / "two.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory of two slivers, and of what is none."""
    path = tmp_path / "slivers"
    (path / "below").mkdir(parents=True)
    (path / "b.json").write_text(json.dumps(TWO[0]))
    (path / "a.yml").write_text(documents(TWO[1]))
    (path / "README.md").write_text("no sliver")
    (path / "below/c.yaml").write_text("no: sliver")
    return path


class TestAFileOfSeveralDocuments:
    def test_goes_through_all_commands(self, run: Run, two: str, fakes: Substrate) -> None:
        assert "vm2: would be created: 3 steps. Nothing was changed." in run("plan", two).stdout
        assert run("create", two).exit_code == 0
        assert run("modify", two).exit_code == 0
        assert run("probe", two).exit_code == 0
        assert run("poa", two, "stop").stdout == "stopped\nstopped\n"
        assert run("delete", two).exit_code == 0
        assert fakes.servers == {}

    def test_is_told_with_an_outcome_for_each(self, run: Run, two: str) -> None:
        outcomes = outcomes_of(run("create", two, "--json").stdout)
        assert [each["sliver"]["id"] for each in outcomes] == ["vm1", "vm2"]

    def test_that_is_wrong_is_told_with_the_number_of_the_document(
        self, run: Run, tmp_path: Path, fakes: Substrate
    ) -> None:
        path = tmp_path / "two.yaml"
        path.write_text(text := documents(VM, TWO[1] | {"name": 7}))
        result = run("create", str(path))
        assert result.exit_code == 2
        line = text.splitlines().index("name: 7") + 1
        assert f"{path}:{line}: document 2: name: must be text" in result.stderr
        assert not fakes.calls

    def test_that_the_site_cannot_serve_is_told_with_the_number_of_the_document(
        self, run: Run, tmp_path: Path
    ) -> None:
        green = {"components": [{"id": "n", "type": "vNIC", "network": "green"}]}
        path = tmp_path / "two.yaml"
        path.write_text(text := documents(VM, TWO[1] | green))
        result = run("create", str(path))
        assert result.exit_code == 2
        line = text.splitlines().index("  network: green") + 1
        assert f"{path}:{line}: document 2: components[0].network: " in result.stderr

    def test_may_not_have_a_sliver_twice(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "two.yaml").write_text(documents(VM, VM))
        result = run("create", str(tmp_path / "two.yaml"))
        assert result.exit_code == 2
        assert "vm1 is given twice" in result.stderr

    def test_is_placed_at_once(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "two.yaml").write_text(documents(*TWO))
        result = run("place", str(tmp_path / "two.yaml"))
        assert result.exit_code == 0
        assert "2 of 2 are placed" in result.stdout

    def test_is_not_placed_if_it_has_a_sliver_twice(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "two.yaml").write_text(documents(VM, VM))
        result = run("place", str(tmp_path / "two.yaml"))
        assert result.exit_code == 2
        assert "vm1 is given twice" in result.stderr


class TestADirectory:
    def test_is_all_of_its_slivers_by_the_names_of_their_files(
        self, run: Run, folder: Path
    ) -> None:
        outcomes = outcomes_of(run("create", str(folder), "--json").stdout)
        assert [each["sliver"]["id"] for each in outcomes] == ["vm2", "vm1"]

    def test_is_told_from_an_id_by_its_slash(
        self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder.parent)
        run("create", "slivers")
        assert "slivers: absent" in run("probe", "slivers").stdout
        assert run("probe", "slivers/").exit_code == 0

    def test_with_a_wrong_file_is_told_with_the_name_of_the_file(
        self, run: Run, folder: Path, fakes: Substrate
    ) -> None:
        (folder / "c.yaml").write_text("id: 7\n")
        result = run("create", str(folder))
        assert result.exit_code == 2
        assert f"{folder}/c.yaml:1: id: " in result.stderr
        assert not fakes.calls

    def test_without_slivers_is_bad_input(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        result = run("create", str(tmp_path / "empty"))
        assert result.exit_code == 2
        assert "empty has no slivers: none of its files ends in .yaml, .yml, .json" in result.stderr


class TestStandardInput:
    @pytest.mark.parametrize("text", [documents(*TWO), "\n---\n".join(map(json.dumps, TWO))])
    def test_is_read_as_a_file(self, run: Run, fakes: Substrate, text: str) -> None:
        assert run("create", "-", input=text).exit_code == 0
        assert set(fakes.servers) == {"vm1", "vm2"}

    def test_of_ids_is_a_file_too(self, run: Run, two: str, fakes: Substrate) -> None:
        run("create", two)
        assert run("delete", "-", input=documents(VM)).exit_code == 0
        assert set(fakes.servers) == {"vm2"}

    def test_that_is_wrong_is_called_stdin(self, run: Run) -> None:
        result = run("create", "-", input="id: 7\n")
        assert result.exit_code == 2
        assert "stdin:1: id: must be text" in result.stderr

    @pytest.mark.parametrize(
        "words", [("create", "-", "-"), ("poa", "-", "addkey", "-")], ids=["twice", "as data, too"]
    )
    def test_is_read_once(self, run: Run, words: tuple[str, ...]) -> None:
        result = run(*words, input=documents(VM))
        assert result.exit_code == 2
        assert "standard input (-)" in result.stderr


def test_the_errors_of_all_arguments_are_told_together(run: Run, folder: Path) -> None:
    (folder / "a.yml").write_text("id: 7\n")
    result = run("create", str(folder), str(folder / "none.yaml"))
    assert result.exit_code == 2
    assert "a.yml:1: id: " in result.stderr
    assert f"cannot read {folder}/none.yaml" in result.stderr


@pytest.mark.parametrize("command", ["create", "modify", "plan"])
def test_an_id_where_a_file_is_needed_is_told_what_to_name(run: Run, command: str) -> None:
    result = run(command, "vm-1")
    assert result.exit_code == 2
    assert "there is no file vm-1: an id does not say what the sliver should be" in result.stderr


def test_a_sliver_in_two_files_is_told_with_both(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(documents(VM))
    (tmp_path / "b.yaml").write_text(documents(TWO[1], VM))
    result = run("create", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"))
    line = (tmp_path / "b.yaml").read_text().splitlines().index("id: vm1") + 1
    first = documents(VM).splitlines().index("id: vm1") + 1
    assert result.exit_code == 2
    assert (
        f"vm1 is given twice: {tmp_path}/a.yaml:{first}, {tmp_path}/b.yaml:{line}: document 2"
        in (result.stderr)
    )


def test_a_sliver_by_its_file_and_its_id_is_told_with_both(run: Run, two: str) -> None:
    result = run("delete", two, "vm2")
    assert result.exit_code == 2
    line = Path(two).read_text().splitlines().index("id: vm2") + 1
    assert f"vm2 is given twice: {two}:{line}: document 2, the id vm2\n" in result.stderr


@pytest.mark.parametrize("command", ["plan", "create", "modify", "probe", "delete"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slivers:\n- sliver: {id: x}\n", "is a request of several slivers; give it to place"),
        ("# a site\nsite: TEST\n", "is a site's configuration; name it by --site"),
        (
            '{"version": 1, "site": "x", "settings": {}, "slivers": []}',
            "is a saved plan; give it to create --plan, or modify --plan",
        ),
    ],
    ids=["a request", "a site", "a saved plan"],
)
def test_another_document_than_a_sliver_is_told_as_what_it_is(
    run: Run, tmp_path: Path, command: str, text: str, said: str
) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(text)
    result = run(command, str(path))
    line = 2 if text.startswith("#") else 1
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"Error: {path}:{line}: {said}"


@pytest.mark.parametrize("command", ["create", "plan", "modify"])
def test_a_file_without_a_name_is_not_the_current_directory(
    run: Run, command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, fakes: Substrate
) -> None:
    monkeypatch.chdir(folder)

    ended = run(command, "")

    assert ended.exit_code == 2
    assert "a FILE has no name" in ended.stderr
    assert not fakes.servers


@pytest.mark.parametrize(
    "words",
    [
        ["create", "-"],
        ["place", "-"],
        ["poa", "vm1", "reboot", "-"],
        ["adopt", "-"],
        ["sweep", "--expected", "-"],
    ],
)
def test_a_closed_stdin_is_bad_input(
    run: Run, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has none then: as after ``<&-`` in a shell."""
    monkeypatch.setattr("fabric_direct.documents.sys", SimpleNamespace(stdin=None))

    ended = run(*words)

    assert ended.exit_code == 2, ended.output
    assert "cannot read standard input: it is closed" in ended.stderr


def test_a_list_of_a_host_that_is_not_there_is_bad_input(run: Run) -> None:
    ended = run("list", "--host", "w9")

    assert ended.exit_code == 2
    assert "no host 'w9'" in ended.stderr
