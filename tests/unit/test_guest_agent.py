"""The guest agent's driver: the exact requests, and what becomes of answers and errors."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock, call

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.waiting import Waiting, heard_by
from fabric_direct.drivers.contract import CommandResult, GuestAddress, GuestInterface
from fabric_direct.drivers.guests import authorized_keys as keys_module
from fabric_direct.drivers.guests import qemu_agent as module
from fabric_direct.drivers.guests.qemu_agent import AgentGuest
from fabric_direct.errors import (
    DriverError,
    NotFound,
    NotVerified,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.site.config import Host, Site

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8eHRwbGhkYFxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA"
GUEST = GuestAddress("sliver", "sliver-node", "ubuntu")
EVENT = libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE
APPEND = libvirt.VIR_DOMAIN_AUTHORIZED_SSH_KEYS_SET_APPEND
REMOVE = libvirt.VIR_DOMAIN_AUTHORIZED_SSH_KEYS_SET_REMOVE


def error(code: int, message: str) -> libvirt.libvirtError:
    made = libvirt.libvirtError(message)
    made.err = (code, libvirt.VIR_FROM_QEMU, message, 2, None, None, None, -1, -1)
    return made


SILENT = error(libvirt.VIR_ERR_AGENT_UNRESPONSIVE, "QEMU guest agent is not connected")
NO_FILE = error(libvirt.VIR_ERR_INTERNAL_ERROR, "failed to open: No such file or directory")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def connection(mocker: MockerFixture) -> Mock:
    return mocker.patch.object(module, "connect").return_value


@pytest.fixture
def domain(connection: Mock, mocker: MockerFixture) -> Mock:
    return mocker.patch.object(module, "the_domain").return_value


@pytest.fixture
def answers(domain: Mock, mocker: MockerFixture) -> Mock:
    """What the agent answers to one command after the other: a value or an error."""
    command = mocker.patch.object(module.libvirt_qemu, "qemuAgentCommand")

    def answer(*values: Any) -> Mock:
        command.side_effect = [
            value if isinstance(value, Exception) else json.dumps({"return": value})
            for value in values
        ]
        return command

    return Mock(side_effect=answer)


@pytest.fixture
def agent(connection: Mock, tmp_path: Path) -> AgentGuest:
    hosts = {"w1": Host(libvirt="qemu+ssh://root@w1/system")}
    return AgentGuest(Site(site="TEST", state_dir=tmp_path, hosts=hosts), "w1")


def requests(command: Mock) -> list[dict[str, Any]]:
    return [json.loads(c.args[1]) for c in command.call_args_list]


def test_a_ping_is_limited_in_time(agent: AgentGuest, domain: Mock, answers: Mock) -> None:
    command = answers({})

    assert agent.ping(GUEST)

    domain.agentSetResponseTimeout.assert_called_once_with(module.ANSWER)
    assert command.mock_calls == [call(domain, ANY, module.ANSWER, 0)]
    assert requests(command) == [{"execute": "guest-ping", "arguments": {}}]


@pytest.mark.parametrize(
    "failure",
    [
        SILENT,
        error(libvirt.VIR_ERR_AGENT_UNSYNCED, "not in sync"),
        error(libvirt.VIR_ERR_OPERATION_INVALID, "domain is not running"),
        error(libvirt.VIR_ERR_NO_DOMAIN, "no domain"),
        error(libvirt.VIR_ERR_RPC, "broken pipe"),
        NotFound("sliver sliver has no domain"),
    ],
    ids=str,
)
def test_a_guest_that_cannot_answer_does_not(
    agent: AgentGuest, answers: Mock, failure: Exception
) -> None:
    answers(failure)

    assert not agent.ping(GUEST)


def test_a_guest_is_waited_for_until_it_answers(
    agent: AgentGuest, connection: Mock, domain: Mock, answers: Mock, mocker: MockerFixture
) -> None:
    mocker.patch.object(module, "FIRST_PAUSE", 0.001)
    command = answers(SILENT, SILENT, {})
    told: list[Waiting] = []

    with heard_by(told.append):
        agent.wait(GUEST, timeout=60)

    assert command.call_count == 3
    assert told == [Waiting("the guest to answer"), Waiting("")]
    connection.domainEventRegisterAny.assert_called_once_with(domain, EVENT, ANY, None)
    number = connection.domainEventRegisterAny.return_value
    connection.domainEventDeregisterAny.assert_called_once_with(number)


def test_an_agent_that_connects_cuts_the_pause_short(
    agent: AgentGuest, connection: Mock, answers: Mock, mocker: MockerFixture
) -> None:
    mocker.patch.object(module, "FIRST_PAUSE", 3600.0)
    mocker.patch.object(module, "LAST_PAUSE", 3600.0)
    answers(SILENT, {})

    def register(_domain: Mock, _event: int, callback: Callable[..., None], _: None) -> int:
        callback(connection, None, 1, 2, None)
        return 7

    connection.domainEventRegisterAny.side_effect = register

    agent.wait(GUEST, timeout=3600)

    connection.domainEventDeregisterAny.assert_called_once_with(7)


def test_a_guest_that_does_not_answer_in_time_is_unreachable(
    agent: AgentGuest, connection: Mock, answers: Mock
) -> None:
    answers(SILENT)

    with pytest.raises(Unreachable, match="agent of guest sliver-node does not answer"):
        agent.wait(GUEST, timeout=0)

    connection.domainEventDeregisterAny.assert_called_once()


def test_a_domain_without_a_channel_is_not_waited_for(agent: AgentGuest, answers: Mock) -> None:
    answers(error(libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED, "guest agent is not configured"))

    with pytest.raises(Unsupported, match="not configured"):
        agent.wait(GUEST, timeout=60)


def test_a_command_is_started_with_its_arguments_and_input_and_asked_after(
    agent: AgentGuest, answers: Mock
) -> None:
    done = {"exited": True, "exitcode": 3, "out-data": b64(b"\x00out"), "err-data": b64(b"err")}
    command = answers({"pid": 42}, {"exited": False}, done)

    result = agent.run(GUEST, ("cat", "-n", "$(id)"), b"\xffin", timeout=60)

    assert result == CommandResult(3, b"\x00out", b"err")
    status = {"execute": "guest-exec-status", "arguments": {"pid": 42}}
    assert requests(command) == [
        {
            "execute": "guest-exec",
            "arguments": {
                "path": "cat",
                "arg": ["-n", "$(id)"],
                "capture-output": True,
                "input-data": b64(b"\xffin"),
            },
        },
        status,
        status,
    ]


def test_a_command_that_a_signal_ended_has_the_code_of_a_shell(
    agent: AgentGuest, answers: Mock
) -> None:
    answers({"pid": 42}, {"exited": True, "signal": 9})

    assert agent.run(GUEST, ("sleep", "9"), timeout=60) == CommandResult(137)


def test_a_command_that_does_not_end_in_time_is_named_with_its_process(
    agent: AgentGuest, answers: Mock
) -> None:
    answers({"pid": 42}, {"exited": False})

    with pytest.raises(TimedOut, match="sleep, process 42 of the guest"):
        agent.run(GUEST, ("sleep", "9"), timeout=0)


def test_an_agent_that_forbids_a_command_is_quoted(agent: AgentGuest, answers: Mock) -> None:
    words = "Command guest-exec has been disabled"
    answers(error(libvirt.VIR_ERR_INTERNAL_ERROR, words))

    with pytest.raises(DriverError, match=f"cannot run id in guest sliver-node.*{words}"):
        agent.run(GUEST, ("id",), timeout=60)


def test_the_input_of_a_command_is_in_no_error(agent: AgentGuest, answers: Mock) -> None:
    answers(error(libvirt.VIR_ERR_INTERNAL_ERROR, "no"))

    with pytest.raises(DriverError) as failure:
        agent.run(GUEST, ("chpasswd", "--secret"), b"root:secret", timeout=60)

    assert "secret" not in str(failure.value)


def test_the_mark_of_a_finished_boot_is_opened_read_only_and_closed(
    agent: AgentGuest, answers: Mock
) -> None:
    command = answers(1000, {"count": 0, "buf-b64": "", "eof": True}, {})

    assert agent.boot_finished(GUEST)

    assert requests(command)[0] == {
        "execute": "guest-file-open",
        "arguments": {"path": "/var/lib/cloud/instance/boot-finished", "mode": "r"},
    }
    assert requests(command)[-1] == {"execute": "guest-file-close", "arguments": {"handle": 1000}}


def test_a_boot_without_its_mark_is_not_finished(agent: AgentGuest, answers: Mock) -> None:
    answers(NO_FILE)

    assert not agent.boot_finished(GUEST)


def test_a_file_is_closed_when_it_cannot_be_read(agent: AgentGuest, answers: Mock) -> None:
    command = answers(1000, error(libvirt.VIR_ERR_INTERNAL_ERROR, "is a directory"), {})

    with pytest.raises(DriverError, match="is a directory"):
        agent.boot_finished(GUEST)

    assert requests(command)[-1]["execute"] == "guest-file-close"


def test_the_strongest_host_key_that_the_guest_has_is_returned(
    agent: AgentGuest, answers: Mock
) -> None:
    key = {"count": 9, "buf-b64": b64(b"ecdsa-sha2-nistp256 AAAA root@x\n"), "eof": True}
    command = answers(NO_FILE, 1000, key, {})

    assert agent.ssh_host_key(GUEST) == "ecdsa-sha2-nistp256 AAAA"

    paths = [r["arguments"].get("path") for r in requests(command)]
    assert paths[:2] == [
        "/etc/ssh/ssh_host_ed25519_key.pub",
        "/etc/ssh/ssh_host_ecdsa_key.pub",
    ]


def test_a_guest_without_host_keys_has_none(agent: AgentGuest, answers: Mock) -> None:
    answers(NO_FILE, NO_FILE, NO_FILE)

    assert agent.ssh_host_key(GUEST) is None


def test_interfaces_come_without_loopback_and_may_be_without_addresses(
    agent: AgentGuest, domain: Mock
) -> None:
    domain.interfaceAddresses.return_value = {
        "lo": {"addrs": [{"addr": "127.0.0.1", "prefix": 8, "type": 0}], "hwaddr": None},
        "eth0": {
            "addrs": [{"addr": "192.0.2.7", "prefix": 28, "type": 0}],
            "hwaddr": "52:54:00:00:00:01",
        },
        "eth1": {"addrs": None, "hwaddr": "52:54:00:00:00:02"},
    }

    assert agent.interfaces(GUEST) == (
        GuestInterface("eth0", "52:54:00:00:00:01", ("192.0.2.7/28",)),
        GuestInterface("eth1", "52:54:00:00:00:02"),
    )
    source = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
    domain.interfaceAddresses.assert_called_once_with(source)


def test_only_the_keys_that_are_missing_are_added(agent: AgentGuest, domain: Mock) -> None:
    domain.authorizedSSHKeysGet.side_effect = [[f"{KEY} first"], [f"{KEY} first", OTHER]]

    agent.add_keys(GUEST, (f"{KEY} again", OTHER))

    domain.authorizedSSHKeysSet.assert_called_once_with("ubuntu", [OTHER], APPEND)


def test_what_is_no_key_is_neither_added_nor_taken_for_a_comment(
    agent: AgentGuest, domain: Mock
) -> None:
    domain.authorizedSSHKeysGet.return_value = ["# ours", KEY]

    with pytest.raises(NotVerified):
        agent.add_keys(GUEST, ("ssh-ed25519 nonsense",))

    domain.authorizedSSHKeysSet.assert_not_called()


def test_a_key_is_removed_in_the_words_of_the_file(agent: AgentGuest, domain: Mock) -> None:
    domain.authorizedSSHKeysGet.side_effect = [[f"no-pty {KEY} first", OTHER], [OTHER]]

    agent.remove_keys(GUEST, (KEY,))

    domain.authorizedSSHKeysSet.assert_called_once_with("ubuntu", [f"no-pty {KEY} first"], REMOVE)


def test_nothing_is_changed_when_it_is_so_already(agent: AgentGuest, domain: Mock) -> None:
    domain.authorizedSSHKeysGet.return_value = [KEY]

    agent.add_keys(GUEST, (KEY,))
    agent.remove_keys(GUEST, (OTHER,))

    domain.authorizedSSHKeysSet.assert_not_called()


def test_keys_that_did_not_change_are_no_success(agent: AgentGuest, domain: Mock) -> None:
    domain.authorizedSSHKeysGet.return_value = [KEY]

    with pytest.raises(NotVerified):
        agent.remove_keys(GUEST, (KEY,))
    with pytest.raises(NotVerified):
        agent.add_keys(GUEST, (OTHER,))


@pytest.mark.parametrize(
    ("line", "lets_in"),
    [
        (KEY, True),
        (f"{KEY} a comment with ssh-rsa AAAAB3 in it", True),
        (f'command="echo a b",no-pty {KEY} x', True),
        (f"# {KEY}", False),
        ("", False),
        ("ssh-ed25519", False),
        (f"x{KEY}", False),
    ],
)
def test_a_key_is_told_by_its_algorithm_and_base64(line: str, lets_in: bool) -> None:
    assert (keys_module.key_of(line) == tuple(KEY.split())) is lets_in


@pytest.mark.parametrize(
    "nonsense",
    [5, [], {}, "words", None, {"buf-b64": 5}, {"buf-b64": "A"}],
    ids=str,
)
def test_a_guest_that_answers_nonsense_is_an_error_of_its_own(
    agent: AgentGuest, answers: Mock, nonsense: Any
) -> None:
    answers(1, nonsense, {})

    with pytest.raises(DriverError, match="sliver-node sent an invalid response"):
        agent.boot_finished(GUEST)


@pytest.mark.parametrize("nonsense", [5, {}, {"exited": True}, {"exited": True, "exitcode": "x"}])
def test_nonsense_about_a_command_is_an_error_of_its_own(
    agent: AgentGuest, answers: Mock, nonsense: Any
) -> None:
    answers({"pid": 1}, nonsense)

    with pytest.raises(DriverError, match="sent an invalid response"):
        agent.run(GUEST, ("true",), timeout=1)


def test_nonsense_about_a_network_interface_is_an_error_of_its_own(
    agent: AgentGuest, domain: Mock
) -> None:
    domain.interfaceAddresses.side_effect = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")

    with pytest.raises(DriverError, match="sent an invalid response"):
        agent.interfaces(GUEST)


def test_of_a_file_no_more_is_kept_than_was_asked_for(agent: AgentGuest, answers: Mock) -> None:
    endless = b"ssh-ed25519 " + b"A" * (2 * module.FILE_SIZE)
    answers(1, {"buf-b64": b64(endless)}, {})

    assert len(agent.ssh_host_key(GUEST) or "") <= module.FILE_SIZE
