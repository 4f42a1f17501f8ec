"""What is imported for what: nothing before it is needed, for that is most of what a command takes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import fabric_direct
from tests.conftest import FAKE_DRIVERS

HEAVY = frozenset(
    {
        "asyncio",
        "fabric_direct.migration.draft",
        "fastapi",
        "jinja2",
        "keystoneauth1",
        "libvirt",
        "numpy",
        "opentelemetry",
        "openstack",
        "os_traits",
        "paramiko",
        "pycdlib",
        "pyroute2",
        "requests",
        "sqlalchemy",
        "tenacity",
    }
)
"""What no process needs that neither calls a substrate nor places anything."""
MAIN = "from fabric_direct.cli import main; assert not main(standalone_mode=False)"


def imported(code: str, *words: str) -> set[str]:
    """Return the modules that a process has imported when it has run the code."""
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    argv = [sys.executable, "-c", script, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.fixture
def site_path(tmp_path: Path) -> Path:
    """A site on the fake drivers."""
    site = {"site": "TEST", "state_dir": str(tmp_path), "drivers": FAKE_DRIVERS, "guest": "fake"}
    site["images"] = {"fabric-guest": {}}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))
    return tmp_path / "site.yaml"


@pytest.fixture
def sliver_path(tmp_path: Path) -> Path:
    """A sliver."""
    sliver = {"id": "vm1", "name": "one", "image": "fabric-guest"}
    sliver["capacities"] = {"core": 1, "ram": 1, "disk": 10}
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(sliver))
    return tmp_path / "vm.yaml"


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_imports_no_command_and_nothing_heavy(word: str) -> None:
    found = imported(MAIN, word)
    assert not found & (HEAVY | {"pydantic", "yaml", "rich"})
    ours = {name for name in found if name.startswith("fabric_direct.")}
    assert ours == {
        "fabric_direct.cli",
        "fabric_direct.cli.lost_output",
        "fabric_direct.cli.options",
        "fabric_direct.errors",
    }


def test_completion_of_commands_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MAIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "main p")
    monkeypatch.setenv("COMP_CWORD", "1")
    script = (
        "import sys\nfrom fabric_direct.cli import main\n"
        "try:\n    main(prog_name='main')\nexcept SystemExit:\n    pass\n"
        "print('fabric_direct.cli.operations' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "plain,plan",
        "plain,probe",
        "plain,poa",
        "plain,place",
        "plain,page",
        "False",
    ]


def test_a_command_looks_for_garbage_seldom() -> None:
    assert imported(f"{MAIN}\nimport gc; assert gc.get_threshold()[0] == 50_000", "--version")


@pytest.mark.parametrize("command", ["list", "plan"])
def test_a_command_on_the_fakes_imports_nothing_heavy(
    command: str, site_path: Path, sliver_path: Path
) -> None:
    files = [str(sliver_path)] if command == "plan" else []
    assert not imported(MAIN, "--site", str(site_path), command, *files) & HEAVY


def test_a_creation_and_the_help_of_what_serves_metrics_import_no_opentelemetry(
    site_path: Path, sliver_path: Path
) -> None:
    create = imported(MAIN, "--site", str(site_path), "create", str(sliver_path))
    assert "fabric_direct.operations.site_metrics" in create
    for found in (create, imported(MAIN, "watch", "--help")):
        assert not {name for name in found if name.startswith(("opentelemetry", "prometheus"))}


@pytest.mark.parametrize(
    "code",
    [
        "import fabric_direct.processor",
        "from fabric_direct import HandlerProcessor, Site\nHandlerProcessor(Site(site='x'))",
        "from fabric_direct.actor import VMHandler",
    ],
)
def test_the_library_imports_nothing_heavy(code: str) -> None:
    assert not imported(code) & (HEAVY | {"rich", "click"})


@pytest.mark.parametrize(
    "values",
    [
        {"drivers": {"VM": "openstack"}, "openstack": {"cloud": "c"}, "guest": "ssh"},
        {"drivers": {"VM": "libvirt"}, "guest": "ssh"},
        {"drivers": {"VM": "libvirt"}, "guest": "agent"},
    ],
    ids=["OpenStack", "libvirt", "libvirt, guests by their agents"],
)
def test_who_logs_in_nowhere_imports_no_ssh(values: dict[str, Any], tmp_path: Path) -> None:
    site = {"site": "X", "state_dir": str(tmp_path), "guest_access": {"ssh_key": "/key"}} | values
    code = (
        "from fabric_direct import Site\nfrom fabric_direct.handlers.registry import host_drivers\n"
        f"site = Site.model_validate({site!r})\n"
        "assert host_drivers(site, 'localhost').guest"
    )
    assert not imported(code) & {"paramiko", "cryptography"}


def test_a_run_of_pytest_that_does_not_use_the_plugin_imports_nothing_for_it() -> None:
    before, after = (
        imported("import pytest"),
        imported("import pytest, fabric_direct.pytest_plugin"),
    )
    assert after - before == {"fabric_direct", "fabric_direct.pytest_plugin"}


def test_only_the_contract_suites_and_the_plugin_need_pytest() -> None:
    needing = re.compile(r"^\s*(import|from) (pytest|fabric_direct\.testing)\b", re.MULTILINE)
    root = Path(fabric_direct.__file__).parent
    found = (
        path.relative_to(root) for path in root.rglob("*.py") if needing.search(path.read_text())
    )

    assert {path.parts[0] for path in found} == {"testing", "pytest_plugin.py"}


@pytest.mark.parametrize("name", fabric_direct.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(fabric_direct, name).__name__ == name
