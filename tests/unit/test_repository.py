"""What a contributor finds beside the code agrees with the Makefile, the checks and the version."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def document(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_a_commit_is_checked_by_what_make_lint_runs() -> None:
    recipe = re.search(
        r"^lint:.*\n\t((?:.+\n?\t?)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    (repository,) = document(".pre-commit-config.yaml")["repos"]

    assert recipe
    assert [hook["entry"] for hook in repository["hooks"]] == [
        line.strip() for line in recipe[1].splitlines()
    ]


def test_the_workflow_runs_what_must_pass() -> None:
    jobs = document(".github/workflows/ci.yml")["jobs"]

    commands = [step.get("run") for job in jobs.values() for step in job["steps"]]

    assert ".ci/run" in commands
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_each_python_that_is_said_to_do_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (of_make,) = re.findall(r"^VERSIONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    job = document(".github/workflows/ci.yml")["jobs"]["python"]

    assert said == of_make.split() == job["strategy"]["matrix"]["python"]
    assert project["requires-python"] == f">={said[0]}"
    assert job["steps"][-1]["run"] == "labs/debian/test-python ${{ matrix.python }}"


def test_the_changelog_begins_with_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert versions[0] == version


def pinned(name: str) -> set[str]:
    """Return the names and versions of a list of packages."""
    return set(re.findall(r"^\S+==[^\s;\\]+", (ROOT / name).read_text(), re.MULTILINE))


def test_what_runs_is_pinned_as_it_is_tested() -> None:
    running, pins = pinned("requirements/running.txt"), pinned("requirements/pins.txt")

    assert running == pins < pinned("constraints.txt")
    names = {re.split(r"[=\[]", line)[0] for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = {"test", "lint", "docs", "build"}
    extras = {k: v for k, v in project["optional-dependencies"].items() if k not in tools}
    for requirement in (*project["dependencies"], *(r for each in extras.values() for r in each)):
        assert re.split(r"[<>=\[]", requirement)[0].lower() in names


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_something_that_is_required(path: Path) -> None:
    form = yaml.safe_load(path.read_text())

    assert form.keys() >= {"name", "description", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_all_pages_of_the_repository_are_in_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]

    included = settings["targets"]["sdist"]["include"]

    assert {f"/{page.name}" for page in ROOT.glob("*.md")} <= set(included)
