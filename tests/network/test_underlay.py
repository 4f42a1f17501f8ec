"""The way between the switches, which tunnels take."""

import re

from tests.network.conftest import ip


def test_who_asks_for_the_address_of_a_switch_is_answered_by_its_bridge_alone() -> None:
    ask = ("busybox", "arping", "-c", "3", "-I", "underlay", "192.0.2.1")

    answers = re.findall(r"\[([0-9a-f:]{17})\]", ip("netns", "exec", "fd-sw2", *ask))

    (bridge,) = re.findall(r"ether (\S+)", ip("-n", "fd-sw1", "link", "show", "underlay"))
    assert answers
    assert set(answers) == {bridge}
