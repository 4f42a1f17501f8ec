"""Networks as they are described: what each strategy needs."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from fabric_direct.model.networks import NetworkSliver, SiteNetwork

SUBNET = "10.20.1.0/24"


def network(**values: Any) -> Any:
    return TypeAdapter(SiteNetwork).validate_python({"subnet": SUBNET} | values)


@pytest.mark.parametrize(
    "values",
    [
        {"strategy": "flat", "bridge": "br0"},
        {"strategy": "flat", "physical_network": "physnet1"},
        {"strategy": "flat_dhcp"},
        {"strategy": "vlan", "vlan": 100, "uplink": "eth0"},
        {"strategy": "vlan", "vlan": 100, "physical_network": "physnet1", "router": True},
    ],
)
def test_it_is_on_a_bridge_an_uplink_or_a_physical_network(values: dict[str, Any]) -> None:
    assert network(**values).strategy == values["strategy"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"strategy": "flat"}, "needs 'bridge'"),
        ({"strategy": "vlan", "vlan": 100}, "needs 'uplink'"),
        ({"strategy": "vlan", "uplink": "eth0"}, "Field required"),
    ],
)
def test_one_that_is_on_nothing_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        network(**values)


def test_a_network_may_be_a_sliver_of_its_own() -> None:
    sliver = NetworkSliver.model_validate(
        {"id": "net-1", "name": "lan", "network": {"strategy": "flat_dhcp", "subnet": SUBNET}}
    )

    assert (sliver.type, sliver.name) == ("L2Bridge", "lan")
    assert NetworkSliver.model_validate_json(sliver.model_dump_json()) == sliver
