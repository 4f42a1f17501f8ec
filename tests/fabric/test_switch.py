"""FIM's own slivers of P4 switches, and of circuits of AL2S, as ours."""

from pathlib import Path

import pytest
from fim.slivers.capacities_labels import Labels
from fim.slivers.interface_info import InterfaceInfo
from fim.slivers.network_node import NodeSliver, NodeType
from fim.slivers.network_service import NetworkServiceSliver, ServiceType

from fabric_direct.actor import fim_services, fim_switch
from fabric_direct.errors import InvalidSliver
from fabric_direct.site.config import P4Switch, Site
from tests.fabric.slivers import KEY, RESERVATION, StandIn

SWITCH = P4Switch(ssh="ssh://root@192.0.2.4", user="tenant")


def test_a_switch_is_the_one_that_its_labels_name() -> None:
    node = NodeSliver()
    node.set_type(NodeType.Switch)
    node.set_name("p4")
    node.set_labels(Labels(local_name="p5"))
    site = Site(site="T", state_dir=Path("/nowhere"), p4_switches={"p4": SWITCH, "p5": SWITCH})

    made = fim_switch.switch(site, StandIn(RESERVATION, node, {"user.ssh.key": KEY}))

    assert (made.id, made.name, made.switch, made.ssh_keys) == (RESERVATION, "p4", "p5", (KEY,))


def test_a_circuit_of_al2s_is_refused() -> None:
    service = NetworkServiceSliver()
    service.set_type(ServiceType.L2PTP)
    service.technology = "AL2S"
    service.interface_info = InterfaceInfo()

    with pytest.raises(InvalidSliver) as caught:
        fim_services.service_of(service)

    assert caught.value.field == "technology"
