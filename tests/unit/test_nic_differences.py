"""How the NIC of a server differs from the one that was asked for, in words."""

from typing import Any

import pytest

from fabric_direct.handlers.vm.differences import vnic_differences
from fabric_direct.model import Observed, ObservedInterface, State, VNic


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ({}, {"bandwidth": 9}, "is limited to 9 Mbit/s, and no limit was asked for"),
        ({"bandwidth": 50}, {"bandwidth": 9}, "is limited to 9 Mbit/s, not to 50 Mbit/s"),
        ({"bandwidth": 50}, {}, "is not limited to 50 Mbit/s"),
        (
            {"bandwidth": 50},
            {"bandwidth": 0},
            "is limited otherwise in each direction, not to 50 Mbit/s",
        ),
        ({"port_security": True}, {"port_security": False}, "has no port security"),
        ({"port_security": False}, {"port_security": True}, "has port security"),
        ({"port_security": True}, {}, "does not tell whether it has port security"),
    ],
)
def test_is_a_sentence(wanted: dict[str, Any], found: dict[str, Any], said: str) -> None:
    vnic = VNic.model_validate({"id": "eth0", "network": "red", "interface": wanted})
    nic = ObservedInterface(component="eth0", mac="52:54:00:00:00:01", network="red", **found)
    seen = Observed(state=State.RUNNING, interfaces=(nic,))

    assert list(vnic_differences(vnic, seen)) == [f"vNIC eth0 {said}"]
