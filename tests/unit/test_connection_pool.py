"""SSH connections that are kept: when one is used again, and when not."""

import multiprocessing
import socket
import threading
from collections.abc import Iterator
from unittest.mock import MagicMock

import paramiko
import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.guests import connection_pool
from fabric_direct.drivers.guests.connection_pool import SshClients
from fabric_direct.drivers.ssh.login import reach


def client(*, lives: bool = True) -> MagicMock:
    made = MagicMock(spec=paramiko.SSHClient)
    made.get_transport.return_value.is_active.return_value = lives
    return made


@pytest.fixture
def clients() -> SshClients:
    return SshClients()


def used(clients: SshClients, to: str, made: MagicMock) -> MagicMock:
    with clients.use(to, lambda: made, 1) as got:
        return got  # type: ignore[return-value]


def test_a_connection_is_used_again(clients: SshClients) -> None:
    first = used(clients, "guest", client())

    assert used(clients, "guest", client()) is first
    first.close.assert_not_called()


def test_another_guest_has_its_own(clients: SshClients) -> None:
    first = used(clients, "guest", client())

    assert used(clients, "other", client()) is not first


def test_one_that_is_in_use_is_not_shared(clients: SshClients) -> None:
    with clients.use("guest", client, 1) as first, clients.use("guest", client, 1) as second:
        assert first is not second


def test_one_that_failed_is_closed_and_not_used_again(clients: SshClients) -> None:
    first = client()
    with pytest.raises(EOFError), clients.use("guest", lambda: first, 1):
        raise EOFError

    assert used(clients, "guest", client()) is not first
    first.close.assert_called_once()


@pytest.mark.parametrize("error", [paramiko.SSHException("gone"), OSError(), EOFError()])
def test_one_that_died_unused_is_replaced(
    clients: SshClients, error: Exception, mocker: MockerFixture
) -> None:
    mocker.patch.object(connection_pool, "_is_acknowledged", return_value=False)
    first = used(clients, "guest", client())
    first.get_transport.return_value.open_session.side_effect = error

    assert used(clients, "guest", client()) is not first
    first.close.assert_called_once()


def test_one_that_is_known_to_be_closed_is_not_even_asked(clients: SshClients) -> None:
    first = used(clients, "guest", client(lives=False))

    assert used(clients, "guest", client()) is not first
    first.get_transport.return_value.open_session.assert_not_called()


def test_what_is_not_used_for_a_while_is_closed(clients: SshClients, mocker: MockerFixture) -> None:
    first = used(clients, "guest", client())
    mocker.patch.object(connection_pool, "IDLE", -1.0)

    used(clients, "other", client())

    first.close.assert_called_once()


def test_closed_ones_are_not_given_again(clients: SshClients) -> None:
    first = used(clients, "guest", client())

    clients.close("guest")

    first.close.assert_called_once()
    assert used(clients, "guest", client()) is not first


def test_a_forked_child_begins_with_none_and_leaves_the_parents_alone(clients: SshClients) -> None:
    first = used(clients, "guest", client())

    def child() -> None:
        fresh = used(clients, "guest", client())
        raise SystemExit(fresh is first or first.close.called)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()

    assert process.exitcode == 0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_server_that_speaks_is_reached_and_nothing_of_it_is_taken(
    listener: socket.socket,
) -> None:
    def speak() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"SSH-2.0-x\r\n")

    speaker = threading.Thread(target=speak)
    speaker.start()
    with reach(*listener.getsockname()) as connection:
        assert connection.recv(9) == b"SSH-2.0-x"
    speaker.join()


def test_one_that_says_nothing_is_not(listener: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        reach(*listener.getsockname(), first_line=0.05)


def test_one_that_hangs_up_is_not(listener: socket.socket) -> None:
    def hang_up() -> None:
        connection, _ = listener.accept()
        connection.close()

    hanger_up = threading.Thread(target=hang_up)
    hanger_up.start()
    with pytest.raises(OSError, match="closed the connection"):
        reach(*listener.getsockname())
    hanger_up.join()
