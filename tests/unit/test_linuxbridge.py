"""What a network service is on Linux bridges: links, and the stamps in their aliases."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.contract.link_names import port_bridge, service_bridge
from fabric_direct.drivers.contract.vnis import VNIS, choose_vni
from fabric_direct.drivers.gateways.gateway import gateway_port
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.linuxbridge import layout as names
from fabric_direct.drivers.linuxbridge.layout import BridgeLayout, BridgeLink, HtbClass
from fabric_direct.drivers.linuxbridge.links import differences
from fabric_direct.drivers.linuxbridge.service import LinuxBridgeService
from fabric_direct.drivers.linuxbridge.support import Need, missing
from fabric_direct.errors import DriverError, InvalidSliver
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.site.config import Site

LONG = "n" * 63


@pytest.fixture
def site(tmp_path: Path) -> Site:
    ports: dict[str, Any] = {"p1": {}, "p2": {}, "HundredGigE0/0/0/5": {}}
    switches = {
        f"sw{n}": {"driver": "linuxbridge", "tunnel": f"192.0.2.{n}", "ports": ports}
        for n in (1, 2)
    }
    switches["alone"] = {"driver": "linuxbridge", "ports": ports}
    switches["sw1"]["routing"] = {"router": "r", "outside": "o", "external": "203.0.113.1/24"}
    values: dict[str, Any] = {"site": "TEST", "state_dir": tmp_path, "switches": switches}
    return Site.model_validate(values)


def service(
    kind: str, *where: tuple[str, str, Any], name: str = "net", **more: Any
) -> NetworkService:
    ends = [
        {"id": f"i{number}", "device": device, "port": port, "vlan": vlan, **more}
        for number, (device, port, vlan) in enumerate(where)
    ]
    return SERVICES[kind].model_validate({"id": "net-1", "name": name, "interfaces": ends})


def two_hosts(vlan: int = 100) -> NetworkService:
    return service("L2STS", ("sw1", "p1", vlan), ("sw2", "p2", 200), bandwidth=10)


def stamps(*parts: BridgeLayout) -> set[str]:
    """The aliases of a service's bridges when all is done."""
    return {alias for part in parts for alias in part.stamps.values()}


def link(made: BridgeLayout, name: str) -> BridgeLink:
    return next(each for each in made.links if each.name == name)


def test_a_vlan_is_that_of_its_port_alone(site: Site) -> None:
    wanted = service("L2Bridge", ("sw1", "p1", 100), ("sw1", "p2", "untagged"))

    made = names.layout(site, wanted, "sw1", 0)

    for interface, port, vlan in (("i0", "p1", 100), ("i1", "p2", names.UNTAGGED)):
        outer, inner = (link(made, end) for end in names.ends(site, "net-1", interface))
        assert (outer.bridge, set(outer.vlans)) == (port_bridge(site, port), {vlan})
        assert inner.bridge == service_bridge(site, "net-1")
        assert link(made, port).bridge == outer.bridge
        assert set(link(made, port).vlans) == {vlan}


def test_two_vlans_of_a_port_share_its_bridge(site: Site) -> None:
    made = names.layout(site, service("L2Bridge", ("sw1", "p1", 100), ("sw1", "p1", 101)), "sw1", 0)

    assert [each.name for each in made.links].count("p1") == 1
    assert set(link(made, "p1").vlans) == {100, 101}


def test_all_names_and_stamps_fit_into_what_linux_allows(site: Site) -> None:
    made = names.layout(site, two_hosts(), "sw1", VNIS - 1)

    assert all(len(each.name) <= 15 and len(each.alias) < 255 for each in made.links)


def test_the_stamps_of_all_hosts_say_the_whole_service(site: Site) -> None:
    wanted = two_hosts()
    parts = [names.layout(site, wanted, device, 7) for device in ("sw1", "sw2")]
    ends = [e.alias for part in parts for e in part.links if e.alias.endswith("}")]

    assert names.stamped(stamps(*parts), ends) == wanted


@pytest.mark.parametrize("lost", ["bridge", "interface", "document", "another"])
def test_stamps_that_do_not_say_all_say_nothing(site: Site, lost: str) -> None:
    wanted = names.layout(site, service("L2Bridge", ("sw1", "p1", 1), ("sw1", "p2", 2)), "sw1", 0)
    bridges, ends = stamps(wanted), [e.alias for e in wanted.links if e.alias.endswith("}")]

    match lost:
        case "bridge":
            bridges = {wanted.links[0].alias}
        case "interface":
            ends.pop()
        case "document":
            ends[0] = ends[0].replace("{", "")
        case "another":
            bridges |= {f"{stamp} " for stamp in bridges}

    assert names.stamped(bridges, ends) is None


def mirror(**values: Any) -> NetworkService:
    receiver = {"id": "tap", "device": "sw1", "port": "p2"} | values.pop("receiver", {})
    document = {"id": "net-1", "name": "net", "interfaces": [receiver]}
    return SERVICES["PortMirror"].model_validate(document | {"mirror": {"port": "p1"} | values})


def test_the_stamp_of_a_mirror_is_all_in_one(site: Site) -> None:
    made = names.layout(site, mirror(direction="rx"), "sw1", 0)

    assert names.stamped(stamps(made), []) == mirror(direction="rx")
    assert link(made, "p1").mirrors == {("rx", "p2")}
    assert link(made, "p2").bridge == service_bridge(site, "net-1")


def vpn() -> NetworkService:
    end = {"id": "i0", "device": "sw1", "port": "p1", "gateway": {"address": "10.1.0.1/24"}}
    document = {"id": "net-1", "name": "net", "asn": 65001, "interfaces": [end]}
    return SERVICES["L3VPN"].model_validate(document)


def fabnet(*public: str) -> NetworkService:
    end = {"id": "i0", "device": "sw1", "port": "p1", "vlan": 100}
    document = {"id": "net-1", "name": "net", "interfaces": [end], "public": public}
    return SERVICES["FABNetv4Ext"].model_validate(document)


def test_a_gateway_is_an_end_of_a_pair_that_goes_elsewhere(site: Site) -> None:
    made = names.layout(site, fabnet(), "sw1", 0)

    pair = link(made, names.gateway_end(site, "net-1"))
    assert pair.bridge == service_bridge(site, "net-1")
    assert pair.peer == gateway_port(site, "net-1", "sw1")
    assert [*made.stamps] == [pair.name, pair.bridge]


@pytest.mark.parametrize("lost", [True, False])
def test_the_stamp_of_a_fabnet_is_whole_with_that_of_its_gateway(site: Site, lost: bool) -> None:
    wanted = fabnet("203.0.113.7")
    made = names.layout(site, wanted, "sw1", 0)
    ends = [e.alias for e in made.links if e.alias.endswith("}")]
    routed, bridge = made.stamps.values()

    found = names.stamped({bridge}, ends if lost else [*ends, routed])

    assert found == (None if lost else wanted)


def test_a_limit_is_sent_as_it_is_read() -> None:
    for bandwidth, burst in ((1, 16), (8, 400), (100_000, 5_000_000), (333, 777)):
        limit = HtbClass.of(bandwidth, burst)

        again = HtbClass.of(bandwidth, 0)
        assert limit.bandwidth == again.bandwidth == bandwidth
        assert HtbClass(limit.rate, limit.buffer).burst == pytest.approx(
            burst * 125, abs=limit.rate / 1e6
        )


def test_what_a_link_differs_in_is_said(site: Site) -> None:
    wanted = link(names.layout(site, two_hosts(), "sw1", 7), names.ends(site, "net-1", "i0")[0])

    found = BridgeLink(wanted.name, "veth", "of another", up=False)

    assert len([*differences(wanted, found)]) == 5
    assert [*differences(wanted, None)] == [f"link {wanted.name} is missing"]
    assert [*differences(wanted, wanted)] == []


def test_a_port_may_have_vlans_of_other_services(site: Site) -> None:
    wanted = link(names.layout(site, two_hosts(), "sw1", 7), "p1")

    found = BridgeLink("p1", "veth", bridge=wanted.bridge, vlans={100: 0, 300: 0})

    assert [*differences(wanted, found)] == []


def test_a_vni_is_kept_and_else_one_that_is_free() -> None:
    chosen = choose_vni("TEST", "net-1", (), lambda vni: True)

    assert 0 < chosen < VNIS
    assert choose_vni("TEST", "net-1", (), lambda vni: vni != chosen) == chosen % (VNIS - 1) + 1
    assert choose_vni("TEST", "net-1", (77,), lambda vni: True) == 77
    assert choose_vni("TEST", "net-1", (77,), lambda vni: vni != 77) == chosen


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (vpn(), "type"),
        (service("FABNetv4", ("alone", "p1", 1)), "type"),
        (service("FABNetv4", ("sw1", "p1", 1)), "gateway"),
        (fabnet(*(f"203.0.113.{number}" for number in range(100, 120))), "public"),
        (fabnet("10.0.0.1"), "public[0]"),
        (service("L2Bridge", ("sw9", "p1", 1)), "interfaces[0].device"),
        (service("L2Bridge", ("sw1", "p9", 1)), "interfaces[0].port"),
        (service("L2Bridge", ("sw1", "HundredGigE0/0/0/5", 1)), "interfaces[0].port"),
        (service("L2Bridge", ("sw1", "p1", 1), inner_vlan=5), "interfaces[0].inner_vlan"),
        (service("L2Bridge", ("sw1", "p1", 1), mtu=9000), "interfaces[0].mtu"),
        (service("L2Bridge", ("sw1", "p1", names.UNTAGGED)), "interfaces[0].vlan"),
        (service("L2Bridge", ("sw1", "p1", 1), bandwidth=9, burst=15), "interfaces[0].burst"),
        (
            service("L2Bridge", ("sw1", "p1", 1), bandwidth=1, burst=250_001),
            "interfaces[0].burst",
        ),
        (service("L2STS", ("sw1", "p1", 1), ("alone", "p1", 1)), "interfaces"),
        (mirror(vlan=5), "mirror.vlan"),
        (mirror(port="p9"), "mirror.port"),
        (mirror(receiver={"vlan": 5}), "interfaces[0].vlan"),
        (mirror(receiver={"bandwidth": 5}), "interfaces[0].bandwidth"),
    ],
)
def test_what_no_kernel_can_serve_is_refused_by_its_field(
    site: Site, wanted: NetworkService, field: str
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        LinuxBridgeService(site, "").check(wanted)

    assert refused.value.field == field


def test_names_that_fit_into_no_stamp_are_refused(site: Site) -> None:
    long = site.model_copy(update={"site": LONG})
    attach = {"sliver": LONG, "component": "nic1"}
    wanted = service("L2Bridge", ("sw1", "p1", 1), name=LONG, attach=attach)
    wanted = wanted.model_copy(update={"id": LONG})

    with pytest.raises(InvalidSliver) as refused:
        LinuxBridgeService(long, "").check(wanted)

    assert refused.value.field == "name"


class Kernel(LocalHost):
    """A host whose trials end as given, one after the other."""

    def __init__(self, *said: str) -> None:
        super().__init__("w1")
        self._said, self._next = said, count()

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        said = self._said[next(self._next)]
        return CommandResult(1 if said else 0, stderr=said.encode())


def test_what_a_kernel_lacks_is_named() -> None:
    said = (
        "RTNETLINK answers: Operation not supported",
        "",
        "Error: Specified qdisc kind is unknown.",
    )

    lacking = missing(Kernel(*said, ""), {Need.TUNNELS: True}, limit=1)

    assert "VLAN_FILTERING" in lacking
    assert "HTB" in lacking
    assert "VETH" not in lacking
    assert "VXLAN" not in lacking


def test_a_trial_that_says_nothing_of_the_kernel_is_an_error() -> None:
    with pytest.raises(DriverError, match="not permitted"):
        missing(Kernel("unshare: unshare failed: Operation not permitted"), {}, limit=1)
