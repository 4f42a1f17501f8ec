"""Packages of others, as an installer leaves them in a folder, and commands that find them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = "from fabric_direct.cli import main; main()"
Done = subprocess.CompletedProcess[str]


class Packages:
    """A folder into which packages are installed, and a directory in which commands are run."""

    def __init__(self, root: Path) -> None:
        self.directory = root
        self.folders: list[Path] = []
        self.add_folder("installed")

    @property
    def folder(self) -> Path:
        """The folder into which packages are installed."""
        return self.folders[0]

    def add_folder(self, name: str) -> None:
        """Add a folder that Python looks into before the others; what follows is installed there."""
        self.folders.insert(0, self.directory / name)
        self.folder.mkdir()

    def install(self, package: str, **groups: dict[str, str]) -> None:
        """Install the metadata of a package with entry points: ``volume={"acme": "acme:Volumes"}``."""
        info = self.folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines: list[str] = []
        for group, points in groups.items():
            lines += [f"[fabric_direct.{group}]", *(f"{n} = {v}" for n, v in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))

    def module(self, name: str, source: str) -> None:
        """Install a module."""
        (self.folder / f"{name}.py").write_text(source)

    def write(self, name: str, text: str) -> None:
        """Write a file of the directory in which commands are run."""
        (self.directory / name).write_text(text)

    def run(self, *argv: str) -> Done:
        """Run ``fabric-direct`` in a process that finds the packages."""
        path = os.pathsep.join(map(str, [*self.folders, ROOT]))
        return subprocess.run(
            [sys.executable, "-c", COMMAND, *argv],
            cwd=self.directory,
            env=os.environ | {"PYTHONPATH": path, "COLUMNS": "1000"},
            capture_output=True,
            text=True,
            timeout=60,  # a command that hangs fails the test
            check=False,
        )


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    """An empty folder of packages, and a site in memory without its own drivers."""
    return Packages(tmp_path)
