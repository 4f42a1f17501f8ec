"""Linux bridges on this machine's kernel: the links that any has; the refusal of one that lacks more."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from pyroute2 import netns

from fabric_direct.doctor.diagnosis import Verdict
from fabric_direct.doctor.switches import check_switches
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.linuxbridge.layout import BridgeLink, HtbClass, Tunnel
from fabric_direct.drivers.linuxbridge.links import KernelBridges, differences
from fabric_direct.drivers.linuxbridge.service import LinuxBridgeService
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.services import SERVICES
from fabric_direct.site.config import Site
from tests.functional.apart import TAG

NAMESPACE = f"fdlb{TAG}"
NEWBORN = ("fdn-1", "fdm-1")
PAIR = tuple(
    BridgeLink(name, "veth", f"stamp {name}", shaped=True, limit=HtbClass.of(8, 400))
    for name in ("fda-1", "fdb-1")
)
FAR = Tunnel(77, ip_address("192.0.2.1"), ip_address("192.0.2.2"))
TUNNEL = BridgeLink("fdx-1", "vxlan", "stamp vxlan", tunnel=FAR)


@pytest.fixture
def switch() -> Iterator[KernelBridges]:
    netns.create(NAMESPACE)
    yield KernelBridges("sw1", LocalHost(), NAMESPACE)
    netns.remove(NAMESPACE)


def test_links_are_made_changed_in_place_and_deleted(switch: KernelBridges) -> None:
    wanted = (*PAIR, TUNNEL)
    with switch.changing() as editor:
        for link in wanted:
            editor.ensure(link, None, NEWBORN)
    made = switch.links()
    assert [words for link in wanted for words in differences(link, made.get(link.name))] == []

    for limit in (HtbClass.of(100_000, 100_000), None):
        changed = replace(PAIR[0], limit=limit, alias=f"{PAIR[0].alias} changed")
        with switch.changing() as editor:
            editor.ensure(changed, switch.links()[changed.name], NEWBORN)
        found = switch.links()[changed.name]
        assert [*differences(changed, found)] == []
        assert found.index == made[changed.name].index

    with switch.changing() as editor:
        editor.delete(link.name for link in wanted)
    assert not switch.links().keys() & {link.name for link in wanted}


def test_a_tunnel_to_an_ipv6_address_is_read_as_it_was_made(switch: KernelBridges) -> None:
    far = Tunnel(78, ip_address("2001:db8::1"), ip_address("2001:db8::2"))
    with switch.changing() as editor:
        editor.ensure(replace(TUNNEL, tunnel=far), None, NEWBORN)

    assert switch.links()[TUNNEL.name].tunnel == far


def test_a_kernel_whose_bridges_do_not_filter_vlans_is_refused_and_diagnosed(
    tmp_path: Path,
) -> None:
    switches = {"sw1": {"driver": "linuxbridge", "ports": {"lo": {"vlans": ["100"]}}}}
    values = {"switches": switches, "drivers": {"L2Bridge": "linuxbridge"}}
    site = Site.model_validate({"site": "TEST", "state_dir": tmp_path, **values})
    (diagnosis,) = check_switches(site)
    if diagnosis.verdict is Verdict.OK:
        pytest.skip("this kernel has all that services need: tests/worker/test_linuxbridge.py")
    interface = {"id": "i1", "device": "sw1", "port": "lo", "vlan": 100}
    wanted = {"id": "net-1", "name": "net", "interfaces": [interface]}

    with pytest.raises(InvalidSliver, match="CONFIG_BRIDGE_VLAN_FILTERING") as refused:
        LinuxBridgeService(site, "").check(SERVICES["L2Bridge"].model_validate(wanted))

    assert refused.value.field == "interfaces[0].device"
    assert "CONFIG_BRIDGE_VLAN_FILTERING" in diagnosis.found
