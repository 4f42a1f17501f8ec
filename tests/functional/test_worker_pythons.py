"""Our process on a worker, under each Python that a worker may have: real ones, by a real SSH server."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pyroute2 import netns as namespaces

from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.hosts import agent
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.hosts.relay import Relay
from fabric_direct.drivers.hosts.ssh import SshHost
from fabric_direct.errors import DriverError, NotFound, TimedOut, Unsupported
from tests.functional.ssh_server import Server, ssh_server
from tests.pythons import interpreter

LIMIT = 60.0
# The Python that runs the tests, without its environment.
OURS = os.path.realpath(sys.executable)
Has = Callable[..., None]
Connect = Callable[..., Relay]
# Those of one version share its process.
VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"python {version}"))
    for version in ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
]
PACKAGE = Path(agent.__file__).parent
MODULES = sorted(p.stem for p in PACKAGE.glob("*.py") if p.stem not in {"__init__", "bootstrap"})
FUNCTIONS = [
    f"{module}.{function}"
    for module in MODULES
    for function in getattr(import_module(f"{agent.__name__}.{module}"), "__all__", ())
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    return interpreter(request.param)


@pytest.fixture(scope="module")
def host(
    python: str, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SshHost]:
    host = SshHost(server.site(tmp_path_factory.mktemp("site"), python=python), "w1")
    yield host
    host.close()


class TestEachVersion:
    def test_is_the_one_that_runs(self, host: SshHost, python: str) -> None:
        assert host.relay(timeout=LIMIT).executable == python

    def test_has_every_function(self, host: SshHost) -> None:
        for function in FUNCTIONS:
            with pytest.raises(DriverError, match=r"TypeError.*unexpected keyword argument 'no_'"):
                host.call(function, timeout=LIMIT, no_=1)

    def test_passes_arguments_and_input_as_they_are(self, host: SshHost) -> None:
        arguments = ("two words", "$HOME", "'", "ü\n")
        found = host.run(("printf", "%s|", *arguments), timeout=LIMIT)
        assert found == CommandResult(0, "two words|$HOME|'|ü\n|".encode())
        assert host.run(("cat",), b"\0\xff", timeout=LIMIT).stdout == b"\0\xff"

    def test_ends_a_command_after_its_time(self, host: SshHost) -> None:
        with pytest.raises(TimedOut, match=r"sleep did not end in 0\.2 s"):
            host.run(("sleep", "60"), timeout=0.2)

    def test_ends_its_wait_for_a_daemon_that_says_nothing(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        (tmp_path / "ovs-vswitchd.pid").write_text("7\n")
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.bind(str(tmp_path / "ovs-vswitchd.7.ctl"))
            daemon.listen()
            with pytest.raises(TimedOut):
                host.call(
                    "switches.appctl",
                    timeout=LIMIT,
                    rundir=str(tmp_path),
                    command="list",
                    arguments=[],
                    limit=0.2,
                )

    def test_reads_a_file_whatever_its_name(self, host: SshHost, tmp_path: Path) -> None:
        path = tmp_path / "größe"
        path.write_text("7")
        assert host.read_file(str(path), timeout=LIMIT) == b"7"
        assert host.call("files.resolve", timeout=LIMIT, path=str(path)) == str(path)
        with pytest.raises(NotFound, match="ENOENT"):
            host.read_file(f"{path}r", timeout=LIMIT)

    def test_keeps_records(self, host: SshHost, tmp_path: Path) -> None:
        directory = str(tmp_path / "records")
        host.call("record_files.write", timeout=LIMIT, directory=directory, name="a", text="ü")
        assert host.call("record_files.read", timeout=LIMIT, directory=directory) == {"a": "ü"}
        for _ in range(2):
            host.call("record_files.remove", timeout=LIMIT, directory=directory, name="a")
        assert host.call("record_files.read", timeout=LIMIT, directory=directory) == {}

    @pytest.mark.parametrize("function", ["pci.survey", "usb.survey"])
    def test_finds_the_devices_that_we_find_here(self, host: SshHost, function: str) -> None:
        assert host.call(function, timeout=LIMIT) == LocalHost().call(function, timeout=LIMIT)

    def test_asks_the_kernel_also_in_a_namespace(self, host: SshHost) -> None:
        name = f"fdtest-{os.getpid()}"
        namespaces.create(name)
        try:
            for netns in (None, name):
                with host.netlink(netns) as ip:
                    assert ip.link_lookup(ifname="lo") == [1]
            found = host.call(
                "link_changes.wait", timeout=LIMIT, links=["lo"], known=None, limit=1, netns=name
            )
            assert found == {"modes": {}, "changed": []}
        finally:
            namespaces.remove(name)

    @pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="needs /dev/net/tun")
    def test_makes_and_removes_a_tap(self, host: SshHost) -> None:
        name, alias = f"fdt{os.getpid() % 10**8}", "größe"
        host.call("taps.make", timeout=LIMIT, name=name, alias=alias, mtu=1400)
        try:
            assert host.call("taps.taps", timeout=LIMIT)[name] == [alias, False, True]
        finally:
            host.call("taps.remove", timeout=LIMIT, name=name, alias=alias)
        assert name not in host.call("taps.taps", timeout=LIMIT)

    def test_overwrites_and_proves_a_drive(self, python: str, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.write_bytes(b"SECRET" * 1024**2)
        said = subprocess.run(
            [python, "-W", "error", "-ISB", "-c", ERASE, _copied(tmp_path), disk],
            check=True,
            capture_output=True,
            text=True,
        )
        assert said.stdout.splitlines() == [
            "crypto refused",
            "refused",
            "zeros written over all of it",
            "6 MiB read, all empty",
        ]
        assert disk.read_bytes() == bytes(6 * 1024**2)


class TestTheSearch:
    """Of what the worker has in its PATH, the first that is new enough."""

    @pytest.fixture
    def has(self, server: Server) -> Iterator[Has]:
        """Let the worker have these programs, by name; and no others but a shell."""
        programs = server.home / "programs"
        programs.mkdir()
        (programs / "sh").symlink_to("/bin/sh")

        def has(**found: str) -> None:
            for name, path in found.items():
                (programs / name.replace("_", "-")).symlink_to(path)

        (server.home / "only").write_text(
            "mount --bind programs /usr/libexec\n"
            'PATH=~/programs exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        server.let_in('command="unshare --mount sh only"')
        yield has
        server.let_in()
        shutil.rmtree(programs)

    @pytest.fixture
    def connect(self, server: Server, tmp_path: Path) -> Iterator[Connect]:
        """Start our process there, with changes to the host's settings."""
        made: list[SshHost] = []

        def connect(**changes: object) -> Relay:
            made.append(SshHost(server.site(tmp_path, **changes), "w1"))
            return made[-1].relay(timeout=LIMIT)

        yield connect
        for host in made:
            host.close()

    def test_python3_is_taken(self, has: Has, connect: Connect) -> None:
        has(python3=OURS, **{"python3.6": "/bin/false"})
        assert connect().python == sys.version_info[:3]

    @pytest.mark.skipif(not Path("/usr/libexec").is_dir(), reason="needs a /usr/libexec")
    def test_the_platforms_own_is_taken_where_there_is_no_other(
        self, has: Has, connect: Connect
    ) -> None:
        has(platform_python=OURS)
        assert connect().executable == "/usr/libexec/platform-python"

    def test_what_does_not_run_is_passed_over(self, has: Has, connect: Connect) -> None:
        has(python3="/bin/false", **{"python3.9": OURS})
        assert connect().python == sys.version_info[:3]

    def test_what_is_too_old_is_passed_over(self, has: Has, connect: Connect) -> None:
        has(python3=interpreter("2.7"), **{"python3.6": interpreter("3.6")})
        assert connect().python[:2] == (3, 6)

    def test_a_worker_without_any_is_told_with_what_to_install(
        self, has: Has, connect: Connect
    ) -> None:
        with pytest.raises(Unsupported) as refused:
            connect()
        assert refused.value.where.startswith("w1, ssh://")
        assert refused.value.why.startswith("not found: python3 python3.14")
        assert refused.value.why.endswith("python3.6 /usr/libexec/platform-python")
        assert "apt install python3" in refused.value.remedy
        assert "dnf install python39" in refused.value.remedy
        assert "site.yaml" not in refused.value.remedy

    def test_the_one_that_is_named_is_taken_whatever_else_is_there(
        self, server: Server, has: Has, connect: Connect
    ) -> None:
        path = str(server.home / "programs" / "it's $HOME's \"own\"")
        has(python3="/bin/false", **{Path(path).name: OURS})
        assert connect(python=path).executable == path

    def test_the_one_that_is_named_may_be_searched_for_in_path(
        self, has: Has, connect: Connect
    ) -> None:
        has(python3="/bin/false", **{"python3.9": OURS})
        assert connect(python="python3.9").executable.endswith("/programs/python3.9")

    @pytest.mark.parametrize("python", ["python3.6", "/usr/bin/python3.6"])
    def test_no_other_is_taken_for_one_that_is_named_and_missing(
        self, has: Has, connect: Connect, python: str
    ) -> None:
        has(python3=OURS)
        with pytest.raises(Unsupported) as refused:
            connect(python=python)
        assert refused.value.why == f"not found: {python}"
        assert refused.value.remedy.startswith("correct its python in site.yaml, or omit it")
        assert "dnf install python39" in refused.value.remedy

    def test_one_that_is_named_and_too_old_says_which_it_is(
        self, has: Has, connect: Connect
    ) -> None:
        old = interpreter("2.7")
        has(python3=OURS)
        with pytest.raises(Unsupported, match=rf"{re.escape(old)} is Python 2\.7"):
            connect(python=old)


# A drive that refuses to format, as a file: what it is asked for, and what it is overwritten with.
ERASE = """
import errno, os, struct, sys, time
sys.path.insert(0, sys.argv[1])
from fabric_direct.drivers.hosts.agent import nvme, nvme_commands, samples

class Refusing(nvme_commands.NvmeDevice):
    def _command(self, opcode, namespace=0, length=0, cdw10=0):
        if opcode != 0x06:
            print("crypto refused" if cdw10 >> 9 == 2 else "refused")
            raise nvme_commands.NvmeError(errno.EIO, "refused")
        data = bytearray(4096)
        struct.pack_into("<H", data, 256, 0b10)
        data[524] = 0b100
        return bytes(data)

later = time.monotonic() + 60
file, size = os.open(sys.argv[2], os.O_RDWR), os.path.getsize(sys.argv[2])
places = samples.places(size)
before = samples.fingerprints(file, places, later)
namespace = nvme_commands.NvmeNamespace(1, size, 0, False)
disk = nvme._Disk(namespace, "nvme9n1", file, places, before)
method = nvme._erase(Refusing(-1, later), [disk], later, alone=True)
print(method)
print(nvme._prove(disk, method, later))
"""


def _copied(directory: Path) -> Path:
    """Copy the modules, as a worker has them: with nothing else of our package."""
    copy = directory / "sent" / Path(*agent.__name__.split("."))
    shutil.copytree(PACKAGE, copy)
    return directory / "sent"
