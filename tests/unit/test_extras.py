"""What a package without an extra does: all that needs none, and else it says what to install."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fabric_direct.site.extras import EXTRAS, how_to_install

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, *where):
        return None if name.partition(".")[0] in {modules!r} else super().find_spec(name, *where)

sys.meta_path[:] = [Others if finder is PathFinder else finder for finder in sys.meta_path]
from fabric_direct.cli import main
main({argv!r})
"""


def without(*argv: str, missing: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process that has no library of an extra, or of one."""
    extras = [missing] if missing else [*EXTRAS]
    modules = {module for each in extras for module in EXTRAS[each]} - {"cryptography", "anyio"}
    program = WITHOUT.format(modules=modules, argv=[*argv])
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = {"test", "lint", "docs", "build", "otel"}
    assert EXTRAS.keys() == project["optional-dependencies"].keys() - tools


def test_the_fakes_need_none(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text((ROOT / "examples/fake-site.yaml").read_text())

    done = without("--site", str(site), "create", "examples/vm.yaml")

    assert done.returncode == 0, done.stderr
    assert "demo-vm: running" in done.stdout


@pytest.mark.parametrize(
    ("argv", "extra"),
    [
        (["plan", "examples/vm.yaml"], "libvirt"),
        (["--site", "examples/openstack/site.yaml", "list"], "openstack"),
        (["--site", "examples/fake-site.yaml", "place", "examples/vm.yaml"], "placement"),
        (["--site", "examples/fake-site.yaml", "zone", "serve"], "zones"),
        (["--site", "examples/fake-site.yaml", "watch", "--metrics", "9464"], "metrics"),
        (["--site", "examples/fake-site.yaml", "page"], "page"),
    ],
)
def test_what_is_missing_is_told_with_how_to_install_it(argv: list[str], extra: str) -> None:
    done = without(*argv)

    assert done.returncode in {1, 2}
    assert f"pip install 'fabric-direct[{extra}]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_servers_of_a_cloud_need_no_libvirt(tmp_path: Path) -> None:
    """Also where the site names no worker: their devices alone are those of a libvirt."""
    site = tmp_path / "site.yaml"
    site.write_text(
        "{site: s, drivers: {VM: openstack}, openstack: {cloud: nowhere},"
        " guest: ssh, guest_access: {ssh_key: id_ed25519}}"
    )

    done = without("--site", str(site), "list", missing="libvirt")

    assert "cloud nowhere" in (done.stdout + done.stderr).lower(), done.stdout + done.stderr


def test_a_module_of_several_extras_is_that_of_its_driver() -> None:
    error = ModuleNotFoundError("No module named 'httpx'", name="httpx")
    assert how_to_install(error, "nso") == "pip install 'fabric-direct[nso]'"


def test_a_module_of_none_belongs_to_the_package() -> None:
    assert "fabric-direct" in how_to_install(ModuleNotFoundError("", name="click.core"))
