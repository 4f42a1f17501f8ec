"""What the facts of tests/worker/test_facts.py depend on: the lab's sources, libvirt, QEMU and Linux."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.worker.conftest import LAB, Worker

CHECKED = Path(__file__).with_name("facts.json")
"""The version with which the facts were last checked."""
_SOURCES = (
    "kernel-options",
    *(
        f"worker/{name}"
        for name in ("build-worker", "machine", "packages", "root", "initramfs", "vepasim")
    ),
)


def lab_version(worker: Worker) -> dict[str, str]:
    qemu = worker.run("qemu-system-x86_64", "--version").splitlines()[0]
    return {
        "lab": _fingerprint(),
        "libvirt": str(worker.connection.getLibVersion()),
        "qemu": qemu.split("version ")[1].split()[0],
        "linux": worker.run("uname", "-r").strip(),
    }


def checked_version() -> Any:
    return json.loads(CHECKED.read_text()) if CHECKED.exists() else {}


def keep(version: dict[str, str]) -> None:
    CHECKED.write_text(json.dumps(version, indent=2) + "\n")


def _fingerprint() -> str:
    """Name what the worker is built from and booted with, as the labs do."""
    command = '. "$0/functions"; fingerprint "$0" "$@"'
    done = subprocess.run(
        ["bash", "-c", command, LAB.parent.parent, *_SOURCES],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
