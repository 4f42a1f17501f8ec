"""Guests that take seconds for what others do at once: waited for, and not made slower by it."""

import multiprocessing
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import paramiko
import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.deadline import Deadline, bounded, wait_until
from fabric_direct.drivers.contract import GuestAddress, GuestDriver
from fabric_direct.drivers.guests import connection_attempts, connection_pool
from fabric_direct.drivers.guests import guest as guest_module
from fabric_direct.drivers.guests import ssh as guest_ssh
from fabric_direct.drivers.guests.connection_attempts import Attempts, Reached
from fabric_direct.drivers.guests.connection_pool import SshClients
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.drivers.ssh.login import log_in, reach
from fabric_direct.errors import Denied, DriverError, TimedOut, Unreachable
from fabric_direct.site.config import GuestSettings, Limits, Site
from tests.functional.ssh_server import USER, Server, ssh_server

GUEST = GuestAddress("sliver", "sliver-node", USER, ("127.0.0.1",))
KEYS = "-----BEGIN SSH HOST KEY KEYS-----\n{key}\n-----END SSH HOST KEY KEYS-----"


class Slow:
    """A server that says nothing before it is told to, and then what the one behind it says."""

    def __init__(self, behind: int | None = None) -> None:
        self.connections, self.speaks = 0, threading.Event()
        self._behind, self._listener = behind, socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open, self._threads = list[socket.socket](), list[threading.Thread]()
        self._begin(self._serve)

    def close(self) -> None:
        """End all connections."""
        self.speaks.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        while self._threads:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._threads.pop().join()
        for each in (self._listener, *self._open):
            each.close()

    def _begin(self, function: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=function, args=args)
        thread.start()
        self._threads.append(thread)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self.connections += 1
                self._open.append(connection)
                self._begin(self._speak, connection)

    def _speak(self, connection: socket.socket) -> None:
        self.speaks.wait()
        with suppress(OSError):
            if self._behind is None:
                connection.sendall(b"SSH-2.0-slow\r\n")
                return
            other = socket.create_connection(("127.0.0.1", self._behind))
            self._open.append(other)
            self._begin(_pass_on, connection, other)
            _pass_on(other, connection)


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


@contextmanager
def slow_server(behind: int | None = None) -> Iterator[Slow]:
    server = Slow(behind)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def dropbear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def slow() -> Iterator[Slow]:
    with slow_server() as server:
        yield server


@pytest.fixture
def connect(slow: Slow) -> Callable[[], Reached]:
    return lambda: Reached("127.0.0.1", reach("127.0.0.1", slow.port))


def eventually(so: Callable[[], bool]) -> None:
    wait_until("it", so, timeout=60)


class Silent:
    """A driver whose guest's SSH server does not answer yet."""

    def __init__(self) -> None:
        self.answers, self.pinned, self.said = False, False, list[str]()

    def listens(self, _: GuestAddress) -> bool:
        return self.answers

    def learn(self, _: GuestAddress, console: str) -> bool:
        self.said.append(console)
        return "key" in console


class TestTheConsole:
    @pytest.fixture
    def silent(self) -> Silent:
        return Silent()

    @pytest.fixture
    def guest(self, silent: Silent) -> Guest:
        return Guest(cast(GuestDriver, silent), GUEST)

    @pytest.fixture
    def at_once(self, mocker: MockerFixture) -> None:
        mocker.patch.object(guest_module, "CONSOLE", 0.0)

    @pytest.mark.usefixtures("at_once")
    def test_is_read_while_the_ssh_server_says_nothing(self, guest: Guest, silent: Silent) -> None:
        guest.meet(lambda: "the key", timeout=60)

        assert silent.said == ["the key"]

    def test_is_left_alone_for_a_while_so_long(self, guest: Guest, silent: Silent) -> None:
        with pytest.raises(TimedOut, match="to show its SSH host key"):
            guest.meet(lambda: "the key", timeout=0)

        assert silent.said == []

    def test_is_read_at_once_when_the_ssh_server_answers(
        self, guest: Guest, silent: Silent
    ) -> None:
        silent.answers = True

        guest.meet(lambda: "the key", timeout=60)

        assert silent.said == ["the key"]

    @pytest.mark.usefixtures("at_once")
    @pytest.mark.parametrize("error", [Unreachable("503"), TimedOut("slow"), DriverError("500")])
    def test_is_read_again_when_the_api_has_trouble(self, guest: Guest, error: Exception) -> None:
        console = MagicMock(side_effect=[error, "the key"])

        guest.meet(console, timeout=60)

        assert console.call_count == 2

    @pytest.mark.usefixtures("at_once")
    def test_that_could_not_be_read_to_the_end_says_why(self, guest: Guest) -> None:
        with pytest.raises(TimedOut, match=r"host key.*: 503"):
            guest.meet(MagicMock(side_effect=Unreachable("503")), timeout=0)

    @pytest.mark.usefixtures("at_once")
    def test_that_may_not_be_read_is_not_asked_for_again(self, guest: Guest) -> None:
        with pytest.raises(Denied):
            guest.meet(MagicMock(side_effect=Denied("no")), timeout=5)


class TestAnAttempt:
    """A slow server has one connection, and keeps it."""

    @pytest.fixture
    def attempts(self) -> Iterator[Attempts]:
        attempts = Attempts()
        yield attempts
        attempts.close(("a",))

    def test_is_made_once_however_often_somebody_looks(
        self, attempts: Attempts, slow: Slow, connect: Callable[[], Reached]
    ) -> None:
        assert not any(attempts.answered(("a",), connect) for _ in range(100))
        slow.speaks.set()
        eventually(lambda: attempts.answered(("a",), connect))

        assert slow.connections == 1

    def test_goes_on_when_somebody_stops_waiting_and_is_the_next_ones(
        self, attempts: Attempts, slow: Slow, connect: Callable[[], Reached]
    ) -> None:
        with pytest.raises(TimeoutError, match="said nothing"):
            attempts.take(("a",), connect, 0.01)
        slow.speaks.set()

        with attempts.take(("a",), connect, 10).connection as connection:
            assert connection.recv(3) == b"SSH"
        assert slow.connections == 1

    def test_is_given_to_one_of_those_who_wait(
        self, attempts: Attempts, slow: Slow, connect: Callable[[], Reached]
    ) -> None:
        slow.speaks.set()

        first, second = (attempts.take(("a",), connect, 10).connection for _ in range(2))

        with first, second:
            assert first is not second

    def test_that_fails_is_followed_by_another(self, attempts: Attempts) -> None:
        connect = MagicMock(side_effect=[ConnectionRefusedError(), Reached("a", socket.socket())])

        with pytest.raises(ConnectionRefusedError):
            attempts.take(("a",), connect, 10)
        with attempts.take(("a",), connect, 10).connection:
            assert connect.call_count == 2

    def test_that_nobody_asks_for_is_closed_after_a_while(
        self,
        attempts: Attempts,
        slow: Slow,
        connect: Callable[[], Reached],
        mocker: MockerFixture,
    ) -> None:
        made = mocker.Mock(side_effect=connect)
        slow.speaks.set()
        eventually(lambda: attempts.answered(("a",), made))
        mocker.patch.object(connection_attempts, "KEPT", 0.0)
        old = attempts._attempts["a",].over.result()

        attempts.answered(("a",), made)

        assert old.connection.fileno() == -1
        assert made.call_count == 2

    def test_to_a_guest_that_is_forgotten_is_closed(
        self, attempts: Attempts, slow: Slow, connect: Callable[[], Reached]
    ) -> None:
        assert not attempts.answered(("a", "b"), connect)
        attempt = attempts._attempts["a", "b"]
        attempts.close(("b",))

        slow.speaks.set()

        eventually(lambda: attempt.over.done() and attempt.over.result().connection.fileno() == -1)

    def test_of_a_parent_is_not_a_forked_childs(
        self, attempts: Attempts, slow: Slow, connect: Callable[[], Reached]
    ) -> None:
        attempts.answered(("a",), connect)

        def child() -> None:
            raise SystemExit(bool(attempts._attempts))

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()

        assert process.exitcode == 0


class TestALogin:
    @pytest.fixture
    def proxy(self, dropbear: Server) -> Iterator[Slow]:
        with slow_server(dropbear.port) as server:
            yield server

    @pytest.fixture
    def ssh(self, proxy: Slow, dropbear: Server, tmp_path: Path, mocker: MockerFixture) -> SshGuest:
        mocker.patch.object(guest_ssh, "PORT", proxy.port)
        access = GuestSettings(ssh_key=dropbear.identity)
        return SshGuest(Site(site="TEST", state_dir=tmp_path, guest_access=access), "localhost")

    def test_takes_one_connection_from_the_host_key_to_the_last_command(
        self, ssh: SshGuest, proxy: Slow, dropbear: Server, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(guest_module, "CONSOLE", 0.0)
        guest = Guest(ssh, GUEST)

        def speaks_late() -> str:
            eventually(lambda: proxy.connections == 1)
            threading.Timer(0.2, proxy.speaks.set).start()
            return KEYS.format(key=dropbear.host_key)

        guest.meet(speaks_late, timeout=60)
        ssh.wait(GUEST, timeout=30)

        assert ssh.run(GUEST, ("true",), timeout=30).code == 0
        assert proxy.connections == 1

    def test_that_a_probe_does_not_wait_for_goes_on_for_the_next(
        self, ssh: SshGuest, proxy: Slow, dropbear: Server
    ) -> None:
        ssh.learn(GUEST, KEYS.format(key=dropbear.host_key))
        hurried = bounded(ssh, "guest", Deadline.within(0.4), 60.0)

        assert not hurried.ping(GUEST)
        proxy.speaks.set()
        assert ssh.ping(GUEST)

        assert proxy.connections == 1

    def test_may_take_half_of_what_its_caller_has_and_a_command_the_rest(
        self, ssh: SshGuest, mocker: MockerFixture
    ) -> None:
        given = mocker.patch.object(SshGuest, "_client", side_effect=Unreachable("no"))
        hurried = bounded(ssh, "guest", Deadline.within(60), 300.0)

        assert not hurried.ping(GUEST)
        with pytest.raises(Unreachable):
            hurried.boot_finished(GUEST)

        assert [round(call.args[1]) for call in given.call_args_list] == [30, 30]

    def test_of_a_guest_that_may_take_longer_to_boot_may_take_longer(
        self, dropbear: Server, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        access, limits = GuestSettings(ssh_key=dropbear.identity), Limits(guest_boot=900)
        site = Site(site="TEST", state_dir=tmp_path, guest_access=access, limits=limits)
        given = mocker.patch.object(SshGuest, "_client", side_effect=Unreachable("no"))

        SshGuest(site, "localhost").ping(GUEST)

        assert round(given.call_args.args[1]) == 450

    def test_allows_the_key_exchange_its_whole_limit(
        self, ssh: SshGuest, proxy: Slow, mocker: MockerFixture
    ) -> None:
        """paramiko's own limit is 15 s, whatever else it is told."""
        made = mocker.spy(paramiko, "Transport")
        proxy.speaks.set()
        client, connection = paramiko.SSHClient(), reach("127.0.0.1", proxy.port)

        with pytest.raises(paramiko.SSHException):
            log_in(client, connection, "127.0.0.1", proxy.port, USER, key=ssh._load_key(), limit=77)

        assert made.spy_return.handshake_timeout == 77


class TestAKeptConnection:
    """One that was used before, when the server does not open a channel on it at once."""

    @pytest.fixture
    def wire(self, slow: Slow) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", slow.port)) as connection:
            yield connection

    @pytest.fixture
    def kept(self, wire: socket.socket) -> MagicMock:
        client = MagicMock(spec=paramiko.SSHClient)
        client.get_transport.return_value.is_active.return_value = True
        client.get_transport.return_value.sock = wire
        return client

    @staticmethod
    def again(clients: SshClients, kept: MagicMock, patience: float) -> Any:
        with clients.use("guest", lambda: kept, patience):
            pass
        with clients.use("guest", MagicMock, patience) as client:
            return client

    def test_of_a_guest_that_has_heard_is_waited_for(self, kept: MagicMock) -> None:
        late = [paramiko.SSHException("Timeout opening channel."), MagicMock()]
        kept.get_transport.return_value.open_session.side_effect = late

        assert self.again(SshClients(), kept, 60) is kept

    def test_of_a_guest_that_has_not_heard_is_replaced(
        self, kept: MagicMock, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(connection_pool, "_is_acknowledged", return_value=False)
        never = kept.get_transport.return_value.open_session
        never.side_effect = paramiko.SSHException("Timeout opening channel.")

        assert self.again(SshClients(), kept, 60) is not kept
        never.assert_called_once()

    def test_of_a_guest_that_says_nothing_in_all_its_time_is_replaced(
        self, kept: MagicMock
    ) -> None:
        never = paramiko.SSHException("Timeout opening channel.")
        kept.get_transport.return_value.open_session.side_effect = never

        assert self.again(SshClients(), kept, 0) is not kept

    def test_what_a_kernel_has_is_acknowledged_and_what_it_cannot_take_is_not(
        self, wire: socket.socket
    ) -> None:
        transport = MagicMock(sock=wire)
        wire.sendall(b"x")
        eventually(lambda: connection_pool._is_acknowledged(transport))

        wire.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                wire.send(bytes(1 << 20))

        assert not connection_pool._is_acknowledged(transport)
