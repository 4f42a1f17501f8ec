"""What is said of an operational action that cannot be carried out as asked."""

import pytest

from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.vm import actions

NO_DATA = ("cpuinfo", "numainfo", "stamp", "start", "stop")


@pytest.mark.parametrize(
    ("action", "data", "field", "why"),
    [
        ("reboot", {"hrad": True}, "data.hrad", "unknown field, did you mean 'hard'?"),
        ("console", {"lines": 0}, "data.lines", "must be from 1 to 100000, is 0"),
        ("cpupin", {}, "data.vcpu_cpu_map", "is missing"),
        (
            "cpupin",
            {"vcpu_cpu_map": [{"vcpu": 0, "cpu": -1}]},
            "data.vcpu_cpu_map[0].cpu",
            "must be at least 0, is -1",
        ),
        ("resize", {}, "data", "needs 'capacities' or 'flavor'"),
        ("reboot", {"hard": "yes"}, "data.hard", "must be true or false, is text"),
        ("reboot", {"hard": 1}, "data.hard", "must be true or false, is 1"),
        ("console", {"lines": "5"}, "data.lines", "must be a whole number, is text"),
        ("console", {"lines": True}, "data.lines", "must be a whole number, is true"),
        ("numatune", {"node_set": ["0"]}, "data.node_set[0]", "must be a whole number, is text"),
        ("console", {"lines": object()}, "data", "must be values of JSON"),
        *((action, {"x": 1}, "data.x", "unknown field; there is none") for action in NO_DATA),
        ("numatune", {"node_set": []}, "data.node_set", "must have at least 1 item, has 0"),
        ("addkey", {"keys": "none"}, "data.keys", "must be a list, is text"),
        (
            "addkey",
            {"keys": [{"key": "ssh-rsa"}]},
            "data.keys[0].key",
            "must be one line: algorithm, base64 key, optional comment",
        ),
    ],
)
def test_wrong_data_are_refused_in_plain_words_with_their_field(
    action: str, data: dict[str, object], field: str, why: str
) -> None:
    with pytest.raises(InvalidSliver) as refusal:
        actions.parse(action, data)

    assert (refusal.value.field, refusal.value.why) == (field, why)


PASTED = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("action", "data"),
    [
        ("addkey", {"keys": PASTED}),
        ("addkey", {"keys": {"key": PASTED}}),
        ("addkey", {"keys": [PASTED]}),
        ("addkey", {"keys": [{"key": PASTED}]}),
        ("addkey", {"keys": [{"key": f"{PASTED} QUJD"}]}),
        ("addkey", {"keys": [{"key": "k", "comment": f"{PASTED}\n"}]}),
        ("addkey", {"keys": [{"key": "k", "comment": [PASTED]}]}),
        ("rescan", {"bdf": PASTED}),
        ("rescan", {"bdf": [PASTED]}),
        ("cpupin", {"vcpu_cpu_map": PASTED}),
        ("numatune", {"node_set": [PASTED]}),
        ("console", {"lines": PASTED}),
        ("resize", {"flavor": PASTED}),
    ],
)
def test_what_was_given_is_not_repeated(action: str, data: dict[str, object]) -> None:
    with pytest.raises(InvalidSliver) as refusal:
        actions.parse(action, data)

    assert "PRIVATE" not in str(refusal.value)


def test_an_unknown_action_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidSliver, match=r"no action 'dance'.*cpupin") as refusal:
        actions.parse("dance", {})

    assert refusal.value.field == "action"


def test_a_mistyped_action_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidSliver, match=r"no action 'strat', did you mean 'start'\?$"):
        actions.parse("strat", {})
