"""Programs that run on this machine for a caller, and end with the connection to it."""

import os
import signal
import subprocess
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any, Dict, List, Set

__all__ = ["run"]

_running: "Set[subprocess.Popen[bytes]]" = set()


def run(argv: List[str], stdin: str, limit: float) -> Dict[str, Any]:
    """Run a program; no shell reads its arguments.

    :param stdin: its standard input, in Base64; so is its output in the answer.
    :param limit: seconds, after which it is killed with all processes of its session.
    :raises TimeoutError: if it was killed.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - our caller's own command
        argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    ) as it:
        _running.add(it)
        try:
            stdout, stderr = it.communicate(b64decode(stdin), limit)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{argv[0]} did not end in {limit:g} s") from None
        finally:
            _end(it)
    return {
        "code": it.returncode,
        "stdout": b64encode(stdout).decode(),
        "stderr": b64encode(stderr).decode(),
    }


def end_all() -> None:
    """Kill all programs that still run."""
    for process in list(_running):
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    # The number of a process that was waited for may be another process's by now.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    _running.discard(process)
