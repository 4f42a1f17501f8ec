"""The wheel and the source distribution, as `make build` makes them."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from tests.package.conftest import ROOT

BUILD = "from hatchling.build import *; import sys; print({}(sys.argv[1]))"


def build(kind: str, tree: Path, to: Path) -> Path:
    """Build a distribution of a tree by its own backend; return its file."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(f"build_{kind}"), to],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    return to / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of the repository, its source distribution, and the wheel of that."""
    here, there, tree = (tmp_path_factory.mktemp(name) for name in ("here", "there", "tree"))
    source = build("sdist", ROOT, here)
    # Python 3.11.2, Debian 12's, has no filters for extractall, without which later ones warn.
    subprocess.run(["tar", "-xf", source, "-C", tree], check=True)
    (unpacked,) = tree.iterdir()
    return {
        "sdist": source,
        "wheel": build("wheel", ROOT, here),
        "again": build("wheel", unpacked, there),
    }


def test_the_wheel_of_the_source_distribution_is_the_same_byte_for_byte(
    built: dict[str, Path],
) -> None:
    assert built["again"].name == built["wheel"].name
    assert built["again"].read_bytes() == built["wheel"].read_bytes()


def test_the_wheel_has_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()

    tops = {name.split("/")[0] for name in names}
    named = built["wheel"].name.removesuffix("-py3-none-any.whl")
    assert tops == {"fabric_direct", f"{named}.dist-info", f"{named}.data"}
    assert "fabric_direct/py.typed" in names
    assert not [name for name in names if name.endswith((".pyc", ".orig", ".rej"))]


def test_its_metadata_is_valid_and_has_the_readme(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        text = wheel.read(name)

    metadata = Metadata.from_email(text, validate=True)  # what an index refuses is an error
    assert metadata.description == (ROOT / "README.md").read_text()
    assert metadata.description_content_type == "text/markdown"
    assert metadata.license_expression == "MIT"


def test_the_source_distribution_has_what_the_tests_need(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    needed = ("tests/conftest.py", "labs/local/lab", "packaging/build_hook.py", "constraints.txt")
    assert names >= {*needed, "requirements/running.txt", "docs/install.md", "examples/vm.yaml"}
    assert not [name for name in names if name.startswith((".venv", "build/", "dist/"))]
