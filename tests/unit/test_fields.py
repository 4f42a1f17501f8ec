"""No field of a NIC is ignored: its driver serves it, or refuses it by name."""

from pathlib import Path

import pytest

from fabric_direct.drivers.contract import DeviceDomain, Image
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.registry import driver
from fabric_direct.model import NodeSliver, SmartNic, VNicInterface
from fabric_direct.site.config import Site
from fabric_direct.testing.networks import VALUES
from tests import fields_table

DOCUMENT = Path(__file__).parents[2] / "docs/operating.md"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.model_validate(
        {
            "site": "test",
            "state_dir": str(tmp_path),
            "hosts": {"localhost": {}},
            "openstack": {"cloud": "lab"},
            "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}},
        }
    )


REFUSED = [
    (name, field)
    for name in ("libvirt", "openstack", "fake")
    for field in driver("network", name).unserved
]


@pytest.mark.parametrize(("name", "field"), REFUSED)
def test_a_network_driver_refuses_what_it_does_not_serve(site: Site, name: str, field: str) -> None:
    interface = VNicInterface.model_validate({field: VALUES[field]})

    with pytest.raises(InvalidSliver, match="is not available") as caught:
        driver("network", name)(site, "localhost").check("red", interface)

    assert caught.value.field == f"interface.{field}"


def test_a_flavor_is_refused_where_there_are_none(site: Site) -> None:
    sliver = NodeSliver.model_validate(
        {
            "id": "s1",
            "name": "node",
            "image": "tiny",
            "flavor": "m1.nosuch",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
        }
    )

    with pytest.raises(InvalidSliver, match="is not available on libvirt") as caught:
        driver("compute", "libvirt")(site, "localhost").check(sliver, Image.of(site, "tiny"))

    assert caught.value.field == "flavor"


@pytest.mark.parametrize("name", ["hostdev", "fake"])
def test_the_bandwidth_of_a_whole_nic_is_refused(site: Site, name: str) -> None:
    nic = SmartNic.model_validate(
        {"id": "nic", "bdf": ["0000:25:00.0"], "interfaces": [{}, {"bandwidth": 10}]}
    )

    with pytest.raises(InvalidSliver, match="is not available on a whole NIC") as caught:
        driver("device", name)(site, "localhost").check(nic, DeviceDomain("s1"))

    assert caught.value.field == "interfaces[1].bandwidth"


def test_the_table_of_the_manual_is_that_of_the_drivers() -> None:
    table = "\n".join(fields_table.rows())

    assert table in DOCUMENT.read_text(), f"python -m tests.fields_table prints:\n{table}"
