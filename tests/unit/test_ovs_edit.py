"""The transaction that makes of what a switch has that which is wanted."""

from pathlib import Path

import pytest

from fabric_direct.drivers.contract.link_names import port_bridge
from fabric_direct.drivers.ovs.edit import Edit, Found
from fabric_direct.drivers.ovs.layout import SITE, SLIVER, OvsLayout
from fabric_direct.drivers.ovs.ovsdb import Ref, unchanged
from fabric_direct.site.config import Site


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Return a port's bridge with the patch of one service, beside a bridge of somebody else."""
    site = Site.model_validate({"site": "TEST", "state_dir": tmp_path})
    bridge = port_bridge(site, "p1")
    shared, own = {SITE: "TEST"}, {SITE: "TEST", SLIVER: "net-1"}
    ports = {"p1": shared, "patch": own, "theirs": {}}
    rows = {
        Ref(name): {"_uuid": Ref(name), "name": name, "external_ids": ids, "vlan_mode": []}
        for name, ids in ports.items()
    }
    bridges = {
        Ref("b1"): {"name": bridge, "external_ids": shared, "ports": [Ref("p1"), Ref("patch")]},
        Ref("b2"): {"name": "theirs", "external_ids": {}, "ports": Ref("theirs")},
    }
    for ref, row in bridges.items():
        row |= {"_uuid": ref, "mirrors": [], "flood_vlans": []}
    root = {"_uuid": Ref("root"), "bridges": [Ref("b1"), Ref("b2")]}
    return Found(root, bridges, rows, {}, {})


def test_a_bridge_goes_only_with_the_ports_that_it_was_seen_to_have(found: Found) -> None:
    made = Edit("sw1", "system", found, "TEST", "net-1").operations(OvsLayout())

    assert unchanged("Bridge", Ref("b1"), {"ports": [Ref("p1"), Ref("patch")]}) in made
    (change,) = [operation for operation in made if operation["op"] != "wait"]
    assert change["row"] == {"bridges": ["set", [["uuid", "b2"]]]}


def test_what_is_of_others_is_neither_changed_nor_watched(found: Found) -> None:
    made = Edit("sw1", "system", found, "OTHER", "net-1").operations(OvsLayout())

    assert made == []
