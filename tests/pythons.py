"""The Pythons of this machine: those that it has under their names, and pyenv's."""

import os
import subprocess
from pathlib import Path

import pytest

PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
_ASKED = "import sys; print(sys.executable); print('%d.%d' % sys.version_info[:2])"


def interpreter(version: str) -> str:
    """Return the path of an interpreter, or skip the test if this machine has none of the version.

    :param version: ``3.6``, for example.
    """
    for python in (f"python{version}", *map(str, PYENV.glob(f"versions/{version}.*/bin/python"))):
        if found := _found(python, version):
            return found
    pytest.skip(f"Python {version} is not on this machine: install python{version}, or by pyenv")


def _found(python: str, version: str) -> str | None:
    """Return the path of an interpreter that runs; pyenv has names that lead to none."""
    try:
        asked = subprocess.run([python, "-c", _ASKED], check=False, capture_output=True, text=True)
    except OSError:
        return None
    executable, *said = asked.stdout.split() or [""]
    return executable if said == [version] else None
