"""A worker by SSH: a real SSH server on a loopback port, and this machine's Python behind it."""

import multiprocessing
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import paramiko
import pytest
from pyroute2 import netns as namespaces
from pytest_mock import MockerFixture

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.hosts import host_keys
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.hosts.ssh import SshHost
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.drivers.ssh.known_hosts import known_hosts
from fabric_direct.errors import (
    Denied,
    DriverError,
    InvalidSite,
    NotFound,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.site.config import Site
from tests.functional.ssh_server import Server, new_host_key, ssh_server

LIMIT = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def connect(server: Server, tmp_path: Path) -> Iterator[Callable[..., SshHost]]:
    """Make a driver of the server, with changes to the host's settings."""
    made: list[SshHost] = []

    def connect(**changes: object) -> SshHost:
        made.append(SshHost(server.site(tmp_path, **changes), "w1"))
        return made[-1]

    yield connect
    for host in made:
        host.close()


@pytest.fixture
def host(connect: Callable[..., SshHost]) -> SshHost:
    return connect()


@pytest.fixture
def no_known_hosts(mocker: MockerFixture, tmp_path: Path) -> Path:
    """The user's known_hosts, empty; the system has none."""
    mocker.patch.object(host_keys, "USER", tmp_path / "users")
    mocker.patch.object(host_keys, "SYSTEM", tmp_path / "systems")
    return tmp_path


def relay_of(host: SshHost) -> int:
    """Return the number of the process that we have on the worker: the parent of what it runs."""
    return int(sh(host, "echo $PPID").stdout)


def sh(host: SshHost, script: str, *arguments: str, timeout: float = LIMIT) -> CommandResult:
    return host.run(("sh", "-c", script, "sh", *arguments), timeout=timeout)


def runs(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        return state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class TestCalls:
    def test_a_command_gets_its_arguments_and_input_as_they_are(self, host: SshHost) -> None:
        arguments = ("two words", "$HOME", "'", "ü\n")
        found = host.run(("printf", "%s|", *arguments), timeout=LIMIT)
        assert found == CommandResult(0, "two words|$HOME|'|ü\n|".encode())
        assert host.run(("cat",), b"\0\xff", timeout=LIMIT).stdout == b"\0\xff"

    def test_a_commands_code_and_errors_are_told(self, host: SshHost) -> None:
        assert sh(host, "echo no >&2; exit 3") == CommandResult(3, b"", b"no\n")

    def test_a_command_that_is_missing_is_named(self, host: SshHost) -> None:
        with pytest.raises(NotFound, match=r"w1.*ENOENT.*fdtest-nothing"):
            host.run(("fdtest-nothing",), timeout=LIMIT)

    def test_a_file_that_is_missing_is_named(self, host: SshHost) -> None:
        with pytest.raises(NotFound, match="/fdtest/nothing") as missing:
            host.read_file("/fdtest/nothing", timeout=LIMIT)
        assert isinstance(missing.value.__cause__, OSError)

    @pytest.mark.parametrize("size", [0, 1, 8 * 1024**2])
    def test_an_answer_may_be_large(self, host: SshHost, tmp_path: Path, size: int) -> None:
        path, content = tmp_path / "file", os.urandom(size)
        path.write_bytes(content)
        assert host.read_file(str(path), timeout=LIMIT) == content

    def test_a_file_that_is_too_large_is_refused_and_the_relay_lives(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        before = relay_of(host)
        os.truncate(_touched(tmp_path / "large"), 33 * 1024**2)
        with pytest.raises(DriverError, match="EFBIG"):
            host.read_file(str(tmp_path / "large"), timeout=LIMIT)
        assert relay_of(host) == before

    @pytest.mark.parametrize(
        "function",
        ["os.system", "serve.perform", "files.replace", "nothing.here", "files.__init__"],
    )
    def test_only_what_the_package_offers_can_be_called(self, host: SshHost, function: str) -> None:
        with pytest.raises(DriverError, match="there is no function"):
            host.call(function, timeout=LIMIT)

    def test_arguments_that_do_not_fit_are_told(self, host: SshHost) -> None:
        with pytest.raises(DriverError, match=r"TypeError.*unexpected keyword argument"):
            host.call("files.read", timeout=LIMIT, way="/etc/hostname")

    def test_a_thousand_calls_use_one_process(self, host: SshHost) -> None:
        before = relay_of(host)
        for _ in range(1000):
            assert host.call("files.resolve", timeout=LIMIT, path="/") == "/"
        assert relay_of(host) == before

    def test_fifty_threads_at_once_share_one_process_and_each_gets_its_own_answer(
        self, host: SshHost
    ) -> None:
        def ask(number: int) -> tuple[int, bytes]:
            found = sh(host, "sleep 0.$(($1 % 7)); echo $PPID $1", str(number)).stdout.split()
            assert int(found[1]) == number
            return int(found[0]), found[1]

        with ThreadPoolExecutor(50) as pool:
            found = list(pool.map(ask, range(200)))
        assert len({process for process, _ in found}) == 1
        assert len({number for _, number in found}) == 200

    def test_a_site_has_one_connection_to_a_host_in_a_process(
        self, server: Server, tmp_path: Path
    ) -> None:
        one, two = (host_driver(server.site(tmp_path), "w1") for _ in range(2))
        assert one is two
        one.close()  # type: ignore[attr-defined]


def _touched(path: Path) -> Path:
    path.touch()
    return path


class TestTime:
    def test_a_command_is_ended_after_its_time_with_what_it_started(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        script = 'sleep 60 & echo $! >"$1"; wait'
        with pytest.raises(TimedOut, match="did not end in 1 s"):
            sh(host, script, str(tmp_path / "pid"), timeout=1)
        started = int((tmp_path / "pid").read_text())
        wait_until("what it started to end", lambda: not runs(started), timeout=60)

    def test_a_call_that_gets_no_answer_ends_and_holds_up_no_other(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        before, fifo = relay_of(host), tmp_path / "fifo"
        os.mkfifo(fifo)
        for _ in range(20):
            with pytest.raises(TimedOut, match=r"files\.read"):
                host.read_file(str(fifo), timeout=0.1)
        assert relay_of(host) == before
        for _ in range(20):  # those that have come so far are let go; the rest end with the relay
            with suppress(OSError):
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    def test_a_process_that_stands_still_is_waited_for_no_longer_than_allowed(
        self, host: SshHost
    ) -> None:
        relay = relay_of(host)
        os.kill(relay, signal.SIGSTOP)
        try:
            with pytest.raises(TimedOut):
                host.read_file("/etc/hostname", timeout=0.5)
        finally:
            os.kill(relay, signal.SIGCONT)
        assert relay_of(host) == relay

    def test_a_server_that_says_nothing_is_waited_for_no_longer_than_allowed(
        self, connect: Callable[..., SshHost]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            host = connect(ssh=f"ssh://root@127.0.0.1:{silent.getsockname()[1]}")
            with pytest.raises(TimedOut, match="not reached in time"):
                host.read_file("/etc/hostname", timeout=0.5)


class TestBreaks:
    def test_a_process_that_was_killed_between_two_calls_is_started_again(
        self, host: SshHost
    ) -> None:
        first = relay_of(host)
        relay = host.relay(timeout=LIMIT)
        os.kill(first, signal.SIGKILL)
        wait_until("the end to be seen", lambda: not relay.alive, timeout=LIMIT)
        assert relay_of(host) != first

    def test_a_call_under_way_when_it_is_killed_fails_and_is_not_repeated(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        script = 'echo done >>"$1"; kill -9 $PPID; sleep 60'
        with pytest.raises(Unreachable, match="check whether the change was made"):
            sh(host, script, str(tmp_path / "log"))
        assert sh(host, "true").code == 0
        assert (tmp_path / "log").read_text() == "done\n"

    def test_all_calls_under_way_fail(self, host: SshHost) -> None:
        relay = relay_of(host)
        with ThreadPoolExecutor(10) as pool:
            calls = [pool.submit(sh, host, "sleep 60") for _ in range(10)]
            wait_until("all to run", lambda: len(children(relay)) == 10, timeout=LIMIT)
            left = children(relay)
            os.kill(relay, signal.SIGKILL)
            assert {type(call.exception(LIMIT)) for call in calls} == {Unreachable}
        for process in left:
            os.kill(process, signal.SIGKILL)

    def test_the_process_ends_with_the_connection_and_ends_what_it_runs(
        self, host: SshHost
    ) -> None:
        relay = relay_of(host)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(sh, host, "sleep 60")
            wait_until("it to run", lambda: bool(children(relay)), timeout=LIMIT)
            ours = [relay, *children(relay)]
            host.close()
            assert type(call.exception(LIMIT)) is Unreachable
        wait_until("all of it to end", lambda: not any(map(runs, ours)), timeout=LIMIT)

    def test_a_server_that_was_stopped_is_unreachable(self, tmp_path: Path) -> None:
        (tmp_path / "sshd").mkdir()
        with ssh_server(tmp_path / "sshd") as server:
            host = SshHost(server.site(tmp_path), "w1")
            relay, first = relay_of(host), host.relay(timeout=LIMIT)
        for session in sessions(relay):
            os.kill(session, signal.SIGKILL)
        wait_until("the end to be seen", lambda: not first.alive, timeout=LIMIT)
        with pytest.raises(Unreachable, match=r"w1 cannot be reached.*refused"):
            host.read_file("/etc/hostname", timeout=LIMIT)


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def sessions(process: int) -> list[int]:
    """Return the dropbear process that serves this one's connection."""
    status = Path(f"/proc/{process}/status").read_text()
    return [int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")]


class TestLogin:
    def test_a_host_that_nobody_listens_at_is_unreachable(
        self, connect: Callable[..., SshHost]
    ) -> None:
        host = connect(ssh="ssh://root@127.0.0.1:9")
        with pytest.raises(Unreachable, match=r"w1 cannot be reached.*ssh://root@127.0.0.1:9"):
            host.read_file("/etc/hostname", timeout=LIMIT)

    def test_a_key_that_is_refused_is_denied(
        self, connect: Callable[..., SshHost], tmp_path: Path
    ) -> None:
        paramiko.RSAKey.generate(2048).write_private_key_file(str(tmp_path / "other"))
        host = connect(ssh_key=tmp_path / "other")
        with pytest.raises(
            Denied, match=rf"w1 rejected the login.*{tmp_path}/other.*authorized_keys"
        ):
            host.read_file("/etc/hostname", timeout=LIMIT)

    def test_without_any_key_it_is_denied_and_no_password_is_asked_for(
        self, connect: Callable[..., SshHost], mocker: MockerFixture, tmp_path: Path
    ) -> None:
        mocker.patch.dict(os.environ, {"HOME": str(tmp_path)})
        os.environ.pop("SSH_AUTH_SOCK", None)
        with pytest.raises(Denied, match=r"an agent, ~/\.ssh"):
            connect(ssh_key=None).read_file("/etc/hostname", timeout=LIMIT)

    def test_the_users_own_key_is_tried_if_none_is_named(
        self, connect: Callable[..., SshHost], mocker: MockerFixture, server: Server, tmp_path: Path
    ) -> None:
        mocker.patch.dict(os.environ, {"HOME": str(tmp_path)})
        (tmp_path / ".ssh").mkdir()
        (tmp_path / ".ssh" / "id_ecdsa").write_text(server.identity.read_text())
        assert connect(ssh_key=None).read_file("/proc/version", timeout=LIMIT)

    def test_a_key_of_an_agent_is_tried_if_none_is_named(
        self, connect: Callable[..., SshHost], mocker: MockerFixture, server: Server, tmp_path: Path
    ) -> None:
        agent = subprocess.Popen(
            ["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL
        )
        try:
            wait_until("the agent", (tmp_path / "agent").exists, timeout=LIMIT)
            environment = {"HOME": str(tmp_path), "SSH_AUTH_SOCK": str(tmp_path / "agent")}
            mocker.patch.dict(os.environ, environment)
            subprocess.run(["ssh-add", "-q", server.identity], check=True)
            assert connect(ssh_key=None).read_file("/proc/version", timeout=LIMIT)
        finally:
            agent.terminate()
            agent.wait()

    @pytest.mark.parametrize("content", [None, "no key"])
    def test_a_key_that_cannot_be_read_is_refused_by_its_field(
        self, connect: Callable[..., SshHost], tmp_path: Path, content: str | None
    ) -> None:
        if content:
            (tmp_path / "key").write_text(content)
        with pytest.raises(InvalidSite) as refused:
            connect(ssh_key=tmp_path / "key").read_file("/etc/hostname", timeout=LIMIT)
        assert refused.value.field == "hosts.w1.ssh_key"

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            ("exec fdtest-no-python", "not found"),
            ("echo /usr/bin/python3 is Python 2.7 >&2; exit 127", r"is Python 2\.7"),
            ("exit 7", "code 7"),
        ],
    )
    def test_a_worker_whose_python_cannot_do_it_is_told_with_its_words(
        self, connect: Callable[..., SshHost], server: Server, command: str, words: str
    ) -> None:
        server.let_in(f'command="{command}"')
        try:
            with pytest.raises(Unsupported, match=f"{words}.*install python3"):
                connect().read_file("/etc/hostname", timeout=LIMIT)
        finally:
            server.let_in()

    def test_those_who_wait_for_a_connection_that_fails_all_get_to_know(
        self, connect: Callable[..., SshHost]
    ) -> None:
        host = connect(host_key=new_host_key())
        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(host.read_file, "/etc/hostname", timeout=LIMIT) for _ in range(20)]
            assert all(type(call.exception(LIMIT)) is DriverError for call in calls)


class TestHostKeys:
    def test_a_key_that_has_changed_is_refused_with_both_fingerprints(
        self, connect: Callable[..., SshHost], server: Server
    ) -> None:
        other = new_host_key()
        with pytest.raises(DriverError) as refused:
            connect(host_key=other).read_file("/etc/hostname", timeout=LIMIT)
        assert type(refused.value) is DriverError
        assert fingerprint(other) in refused.value.why
        assert fingerprint(server.host_key) in refused.value.why

    def test_a_key_that_nobody_knows_is_refused_and_not_learned(
        self, connect: Callable[..., SshHost], server: Server, no_known_hosts: Path
    ) -> None:
        with pytest.raises(Unreachable, match="no host key of w1 is known") as refused:
            connect(host_key=None).read_file("/etc/hostname", timeout=LIMIT)
        assert fingerprint(server.host_key) in refused.value.why
        assert f"ssh-keyscan -p {server.port} 127.0.0.1" in refused.value.remedy
        assert not any(
            path.exists() for path in host_keys.places(Site(site="T", state_dir=no_known_hosts))
        )

    @pytest.mark.parametrize("place", ["known_hosts", "users", "systems"])
    def test_known_hosts_of_site_user_and_system_are_asked(
        self, connect: Callable[..., SshHost], server: Server, no_known_hosts: Path, place: str
    ) -> None:
        line = f"[127.0.0.1]:{server.port} {server.host_key}\n"
        (no_known_hosts / place).write_text(line)
        assert connect(host_key=None).read_file("/proc/version", timeout=LIMIT)

    def test_a_hashed_name_is_understood(
        self, connect: Callable[..., SshHost], server: Server, no_known_hosts: Path
    ) -> None:
        name = paramiko.HostKeys.hash_host(f"[127.0.0.1]:{server.port}")
        (no_known_hosts / "users").write_text(f"{name} {server.host_key}\n")
        assert connect(host_key=None).read_file("/proc/version", timeout=LIMIT)

    def test_a_pinned_key_is_the_only_one_that_is_trusted(
        self, connect: Callable[..., SshHost], server: Server, no_known_hosts: Path
    ) -> None:
        line = f"[127.0.0.1]:{server.port} {server.host_key}\n"
        (no_known_hosts / "known_hosts").write_text(line)
        with pytest.raises(DriverError, match="not the one that is trusted"):
            connect(host_key=new_host_key()).read_file("/etc/hostname", timeout=LIMIT)

    def test_a_key_of_another_port_is_not_trusted(
        self, connect: Callable[..., SshHost], server: Server, no_known_hosts: Path
    ) -> None:
        (no_known_hosts / "known_hosts").write_text(f"127.0.0.1 {server.host_key}\n")
        with pytest.raises(Unreachable, match="no host key of w1 is known"):
            connect(host_key=None).read_file("/etc/hostname", timeout=LIMIT)


def fingerprint(key: str) -> str:
    given = subprocess.run(
        ["ssh-keygen", "-lf", "-"], input=key, check=True, capture_output=True, text=True
    )
    return given.stdout.split()[1]


def in_child(function: Callable[[], int]) -> int:
    """Return what a function returns in a forked child that then ends as programs do."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(function()))
    child.start()
    child.join(LIMIT)
    assert child.exitcode == 0
    return int(answers.get())


class TestForks:
    def test_a_child_has_a_process_of_its_own_and_the_parent_goes_on(self, host: SshHost) -> None:
        before = relay_of(host)
        assert in_child(lambda: relay_of(host)) != before
        assert relay_of(host) == before

    def test_a_child_that_ends_takes_nothing_of_the_parents_with_it(self, host: SshHost) -> None:
        before = relay_of(host)
        for _ in range(3):
            assert in_child(lambda: 0) == 0
        assert relay_of(host) == before

    def test_a_fork_in_the_midst_of_other_threads_calls_harms_nobody(self, host: SshHost) -> None:
        before, stop = relay_of(host), threading.Event()

        def call() -> int:
            count = 0
            while not stop.is_set():
                assert sh(host, "echo x").stdout == b"x\n"
                count += 1
            return count

        with ThreadPoolExecutor(4) as callers:
            calls = [callers.submit(call) for _ in range(4)]
            for _ in range(5):
                assert in_child(lambda: relay_of(host)) != before
            stop.set()
            assert all(call.result(LIMIT) for call in calls)
        assert relay_of(host) == before


class TestNetlink:
    @pytest.fixture
    def netns(self, host: SshHost) -> Iterator[str]:
        name = f"fdtest-{os.getpid()}"
        # there, for what is mounted here later need not be seen by the server
        assert host.run(("ip", "netns", "add", name), timeout=LIMIT).code == 0
        try:
            with host.netlink(name) as ip:
                for number in range(20):
                    ip.link("add", ifname=f"fdt{number}", kind="bridge")
                ip.link("add", ifname="fdtv0", kind="veth", peer="fdtv1")
            yield name
        finally:
            host.run(("ip", "netns", "del", name), timeout=LIMIT)

    def test_links_are_listed_and_found(self, host: SshHost, netns: str) -> None:
        with host.netlink(netns) as ip:
            names = [link.get("ifname") for link in ip.get_links()]
            (index,) = ip.link_lookup(ifname="fdt7")
            (link,) = ip.get_links(index)
        assert sorted(names) == sorted(
            ["lo", "fdtv0", "fdtv1", *(f"fdt{number}" for number in range(20))]
        )
        assert link.get("ifname") == "fdt7"

    def test_a_link_is_changed(self, host: SshHost, netns: str) -> None:
        with host.netlink(netns) as ip:
            (index,) = ip.link_lookup(ifname="fdt7")
            ip.link("set", index=index, mtu=1400, state="up")
            assert ip.get_links(index)[0].get("mtu") == 1400

    def test_a_refusal_is_the_kernels_own(self, server: Server, tmp_path: Path, netns: str) -> None:
        uplink = NetlinkUplink(server.site(tmp_path), "w1", netns)
        with pytest.raises(Unsupported, match=r"fdtv0 on w1.*EOPNOTSUPP.*its driver is veth"):
            uplink.set_bridge_mode("fdtv0", "vepa")
        with pytest.raises(NotFound, match="fdt99"):
            uplink.bridge_mode("fdt99")

    def test_a_namespace_that_is_missing_is_named_and_not_made(self, host: SshHost) -> None:
        with host.netlink("fdtest-nowhere") as ip, pytest.raises(NotFound, match="fdtest-nowhere"):
            ip.link_lookup(ifname="lo")
        assert "fdtest-nowhere" not in namespaces.listnetns()

    def test_what_is_asked_in_a_namespace_leaves_no_trace_in_others(
        self, host: SshHost, netns: str
    ) -> None:
        for _ in range(3):
            with host.netlink(netns) as inside, host.netlink() as outside:
                assert inside.link_lookup(ifname="fdt7")
                assert not outside.link_lookup(ifname="fdt7")

    def test_blocks_of_many_threads_do_not_mix(self, host: SshHost, netns: str) -> None:
        def find(number: int) -> str:
            with host.netlink(netns) as ip:
                (index,) = ip.link_lookup(ifname=f"fdt{number % 20}")
                name: str = ip.get_links(index)[0].get("ifname")
                return name

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(find, range(60))) == [f"fdt{number % 20}" for number in range(60)]

    def test_blocks_leave_no_file_open(self, host: SshHost, netns: str) -> None:
        def files(process: int) -> int:
            return len(list(Path(f"/proc/{process}/fd").iterdir()))

        def look() -> None:
            with host.netlink(netns) as ip:
                ip.link_lookup(ifname="fdt7")

        look()
        both = os.getpid(), relay_of(host)
        before = [files(process) for process in both]
        for _ in range(10):
            look()
        assert [files(process) for process in both] == before

    def test_a_process_that_is_killed_within_a_block_is_started_again(self, host: SshHost) -> None:
        relay = relay_of(host)
        with host.netlink() as ip:
            ip.link_lookup(ifname="lo")
            seen = host.relay(timeout=LIMIT)
            os.kill(relay, signal.SIGKILL)
            wait_until("the end to be seen", lambda: not seen.alive, timeout=LIMIT)
            assert ip.link_lookup(ifname="lo")


def test_the_sites_known_hosts_are_the_guests_too(server: Server, tmp_path: Path) -> None:
    assert host_keys.places(server.site(tmp_path))[0] == known_hosts(server.site(tmp_path))
