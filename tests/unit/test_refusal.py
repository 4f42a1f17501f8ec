"""What a modification may not change."""

import pytest

from fabric_direct.drivers.base import Server
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.refusal import refuse_fixed
from fabric_direct.model import (
    Capacities,
    Interface,
    NodeSliver,
    PciAddress,
    SharedNic,
    State,
)

VF = PciAddress.parse("27:10.1")


def node(interface: Interface) -> NodeSliver:
    size = Capacities(core=1, ram=1, disk=1)
    nic = SharedNic(id="nic", bdf=(VF,), interface=interface)
    return NodeSliver(id="s", name="n", image="tiny", capacities=size, components=(nic,))


def server(was: NodeSliver) -> Server:
    return Server(
        sliver=was.id,
        instance="s-n",
        state=State.RUNNING,
        cores=1,
        ram=1024,
        stamp=was.stamp(),
        host="w1",
        ports=(),
        volumes=(),
    )


@pytest.mark.parametrize(
    "changed", [Interface(vlan=305), Interface(vlan=304, mac="52:54:00:00:00:07"), Interface()]
)
def test_the_interface_of_a_shared_nic_is_not_changed_in_place(changed: Interface) -> None:
    was = node(Interface(vlan=304))

    with pytest.raises(InvalidSliver, match=r"SharedNIC nic cannot become another one") as refusal:
        refuse_fixed(server(was), node(changed))

    assert refusal.value.field == "components[0]"


def test_a_shared_nic_that_stays_as_it_is_passes() -> None:
    was = node(Interface(vlan=304))

    refuse_fixed(server(was), was)
