"""The wheel in a folder of its own: its plugin of pytest, its types, what it has beside its modules."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fabric_direct
from tests.package.conftest import ROOT, Run

PAGE = (ROOT / "docs/library.md").read_text()
INSTALL = (ROOT / "docs/install.md").read_text()
EXAMPLE = next(t for t in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def test_" in t)
OTHERS = ("schemathesis", "hypothesispytest", "xdist", "randomly")
SUITE = """
from fabric_direct import FABNetv4, HandlerProcessor, Site, Status, load_site


def test_a_site_of_the_file(fabric_site_file, fabric_site: Site) -> None:
    assert load_site(fabric_site_file).site == fabric_site.site


def test_a_service(fabric_processor: HandlerProcessor, fabric_net) -> None:
    service: FABNetv4 = fabric_net()
    assert fabric_processor.create(service).result().status is Status.DONE
    assert fabric_processor.delete(service).result().status is Status.DONE


class TestFaults:
    def test_a_failure(self, fabric_fakes, fabric_processor, fabric_vm) -> None:
        fabric_fakes.fault("compute.create", kind="fail")
        outcome = fabric_processor.create(fabric_vm()).result()
        assert outcome.status is Status.FAILED
        assert outcome.error.kind == "DriverError"
"""


def test_a_suite_with_its_pytest_plugin_passes_without_a_warning(
    python: Run, tmp_path: Path
) -> None:
    """Its entry point is found, and its modules' assertions are rewritten before they are imported."""
    (tmp_path / "test_one.py").write_text(EXAMPLE)
    (tmp_path / "test_others.py").write_text(SUITE)

    said = python("-m", "pytest", "-W", "error", *(f"-pno:{name}" for name in OTHERS))

    assert re.search(r"^=+ 4 passed in ", said, re.MULTILINE), said


def test_mypy_knows_the_types_of_all_public_names(python: Run, tmp_path: Path) -> None:
    """As the wheel has them, strictly: a wrong use is an error, so py.typed is there."""
    functions = [name for name in fabric_direct.__all__ if name.islower()]
    types = [name for name in fabric_direct.__all__ if name not in functions]
    lines = [f"from fabric_direct import {', '.join(fabric_direct.__all__)}"]
    lines += [f"def of_{name}(it: {name}) -> {name}:\n    return reveal_type(it)" for name in types]
    (tmp_path / "uses.py").write_text("\n".join([*lines, f"print({', '.join(functions)})"]))
    (tmp_path / "wrong.py").write_text("from fabric_direct import Status\nStatus.DONE.nothing()\n")

    said = python(
        "-m", "mypy", "--strict", "--config-file=", "--cache-dir=c", "uses.py", "wrong.py"
    )

    revealed = re.findall(r'Revealed type is "(?:fabric_direct\.[\w.]+\.)?(\w+)', said)
    assert revealed == types, said
    errors = re.findall(r"^(\S+: error: .*?)  \[", said, re.MULTILINE)
    assert errors == ['wrong.py:2: error: "Status" has no attribute "nothing"']


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_its_manual_page_is_read_without_a_warning(installed: Path) -> None:
    page = installed / "share/man/man1/fabric-direct.1"

    done = run("groff", "-man", "-ww", "-k", "-Tutf8", page)

    assert (done.returncode, done.stderr) == (0, "")
    assert "invalid input, or it names what is not there: nothing was changed" in done.stdout


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", "bash-completion/completions/fabric-direct"),
        ("zsh", "zsh/site-functions/_fabric-direct"),
        ("fish", "fish/vendor_completions.d/fabric-direct.fish"),
    ],
)
def test_a_shell_can_read_its_script(installed: Path, shell: str, path: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")

    done = run(shell, "-n", installed / "share" / path)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_about_installing_names_the_files_that_are_there(installed: Path) -> None:
    named = re.findall(r"(?:\$share|/opt/fabric-direct/share)/(\S+)", INSTALL)

    assert len(named) == 5
    assert not [path for path in named if not list((installed / "share").glob(path))]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("name", ["conductor", "page", "watch", "zone"])
def test_systemd_finds_nothing_wrong_with_a_unit_and_the_drop_ins_of_the_page(
    installed: Path, tmp_path: Path, name: str
) -> None:
    unit = f"fabric-direct-{name}.service"
    text = (installed / "share/fabric-direct/systemd" / unit).read_text()
    assert text.count("\nExecStart=fabric-direct ") == 1
    program = Path(sys.executable).with_name("fabric-direct")
    (tmp_path / unit).write_text(text.replace("ExecStart=fabric-direct", f"ExecStart={program}"))
    (tmp_path / f"{unit}.d").mkdir()
    for number, block in enumerate(re.findall(r"```ini\n(.*?)```", INSTALL, re.DOTALL)):
        (tmp_path / f"{unit}.d/{number}.conf").write_text(block)

    done = run("systemd-analyze", "verify", "--man=no", tmp_path / unit)

    about = [line for line in done.stderr.splitlines() if line.startswith((unit, str(tmp_path)))]
    assert (done.returncode, about) == (0, [])


def run(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
