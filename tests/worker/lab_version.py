"""What the facts of tests/worker/test_facts.py depend on: the lab's sources, libvirt, QEMU and Linux."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.worker.conftest import LAB, Worker

CHECKED = Path(__file__).with_name("facts.json")
"""The version with which the facts were last checked."""
_SOURCES = ("machine", "root", "initramfs", "vepasim", "packages")


def lab_version(worker: Worker) -> dict[str, str]:
    qemu = worker.run("qemu-system-x86_64", "--version").splitlines()[0]
    return {
        "lab": _fingerprint(LAB.parent),
        "libvirt": str(worker.connection.getLibVersion()),
        "qemu": qemu.split("version ")[1].split()[0],
        "linux": worker.run("uname", "-r").strip(),
    }


def checked_version() -> Any:
    return json.loads(CHECKED.read_text()) if CHECKED.exists() else {}


def keep(version: dict[str, str]) -> None:
    CHECKED.write_text(json.dumps(version, indent=2) + "\n")


def _fingerprint(folder: Path) -> str:
    """Name what the worker is built from and booted with, whatever the files' times."""
    digest = hashlib.sha256()
    for top in _SOURCES:
        for path in sorted(p for p in ((folder / top), *(folder / top).rglob("*")) if p.is_file()):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
