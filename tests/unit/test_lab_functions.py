"""How the labs start and end daemons: what ``labs/functions`` takes for one that lives."""

import subprocess
import sys
from pathlib import Path

FUNCTIONS = Path(__file__).parents[2] / "labs/functions"
# Its first thread ends when it is told to; another lives until its standard input ends.
THREADS = """
import ctypes, os, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def shell(commands: str, directory: Path) -> str:
    """Return what commands print that use the functions, whose files are in a directory."""
    script = f". {FUNCTIONS}; RUN={directory} LOG={directory}; {commands}"
    return subprocess.run(
        ["bash", "-euc", script], check=True, capture_output=True, text=True
    ).stdout


def written_down(pid: int, directory: Path) -> None:
    shell(f'began=$(state_of {pid}); echo {pid} "${{began##* }}" >{directory}/it.pid', directory)


def test_a_daemon_that_was_started_lives_until_it_is_stopped(tmp_path: Path) -> None:
    commands = "start it sleep 600; wait_until 60 pid_of it; stop it 60; gone it && echo gone"

    pid, stopped, gone = shell(commands, tmp_path).splitlines()

    assert pid.isdigit()
    assert (stopped, gone) == ("down: it ended", "gone")


def test_a_process_lives_as_long_as_one_of_its_threads(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        written_down(process.pid, tmp_path)
        zombie = f"zombie() {{ [[ $(state_of {process.pid}) = Z* ]]; }}; wait_until 60 zombie"

        assert shell(f"{zombie}; pid_of it", tmp_path).split() == [str(process.pid)]

        process.stdin.close()
        # nobody has waited for it yet: a zombie without threads
        assert shell(f"{zombie}; wait_until 60 gone it && echo gone", tmp_path).split() == ["gone"]


def test_a_number_that_another_process_has_now_is_not_the_daemons(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        (tmp_path / "it.pid").write_text(f"{process.pid} 1\n")

        said = shell("gone it && echo gone", tmp_path)
        process.kill()

    assert said == "gone\n"
