"""Pictures as SVG: what is in them, that nothing overlaps, and that hostile names stay names."""

from functools import cache
from itertools import product
from typing import Any

import pytest

from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.model import DeviceState, PciAddress
from fabric_direct.topology import HostTopology, SiteTopology, SliverTopology, Topology, svg
from fabric_direct.topology.drawing.text import clipped, clipped_owner, width, wrapped
from fabric_direct.topology.values import (
    AttachedVolume,
    Belonging,
    Bus,
    Device,
    DeviceCount,
    Function,
    HostSliver,
    Join,
    Network,
    Nic,
    NumaBuses,
    ServiceConnection,
    SiteHost,
    Slot,
    Vm,
)
from tests.unit.pictures import Picture

LONG = "a-name-that-is-as-long-as-a-name-of-a-sliver-may-be-which-is-63"
UUID = "b2f0a3e1-7c55-4c0e-9a43-5d1a0f4f9f2a"
HOSTILE = '</text><script>alert("1")</script>&amp;\'\x00\x1b[31m]]>'
WHY = "erasing failed: the drive reports media errors after it was formatted, and again " * 4


def function(text: str, state: DeviceState = DeviceState.FREE, **values: Any) -> HostDevice:
    about = {k: values.pop(k) for k in tuple(values) if k in PciFunction.__dataclass_fields__}
    return HostDevice(PciFunction(PciAddress.parse(text), "15b3", "101d", **about), state, **values)


def slot(*functions: Function) -> Slot:
    return Slot(functions=functions)


def nic(bus: int, vfs: int) -> Bus:
    """Return a NIC of whose VFs each third one is a sliver's."""
    pf = function(f"{bus:02x}:00.0", DeviceState.NOT_ALLOWED, links=(f"ens{bus}f0np0",))
    there = tuple(_vf(pf.address, number) for number in range(vfs))
    return Bus(name=f"0000:{bus:02x}", slots=(slot(Function(device=pf, vfs=there)),))


def _vf(pf: PciAddress, number: int) -> HostDevice:
    owner = f"{LONG}/{LONG[:31]}" if number % 3 == 0 else None
    return function(
        f"{pf.bus + 1:02x}:{number // 8:02x}.{number % 8}",
        DeviceState.USED if owner else DeviceState.FREE,
        physical=pf,
        vf=number,
        iommu_group=100 * pf.bus + number,
        owner=owner,
    )


def others(state: DeviceState) -> Bus:
    """Return a device of two functions, which has been in trouble."""
    at = 0x20 + [*DeviceState].index(state)
    about = {"why": WHY, "owner": f"{UUID}/disk", "peers": (PciAddress.parse("99:00.0"),)}
    each = (
        function(f"{at:02x}:00.{n}", state, label=LONG * 2, iommu_group=7, **about) for n in (0, 1)
    )
    functions = (Function(device=device) for device in each)
    return Bus(name=f"0000:{at:02x}", bridge=PciAddress.parse("00:01.0"), slots=(slot(*functions),))


def large_host(nodes: tuple[int | None, ...] = (0, 1), vfs: int = 16) -> HostTopology:
    """Return a host of four NICs, and of a device in each state, on each of its NUMA nodes."""
    owned = (
        Belonging(owner=UUID, component=LONG[:31], addresses=(PciAddress.parse("21:00.0"),) * 9),
    )
    return HostTopology(
        site="TEST",
        host=LONG,
        maintenance=WHY,
        nodes=tuple(
            NumaBuses(
                number=number,
                buses=(*map(others, DeviceState), *(nic(0xA0 + 2 * n, vfs) for n in range(4))),
            )
            for number in nodes
        ),
        belongings=(
            *owned,
            *(Belonging(owner=f"vm{n}", component="", addresses=()) for n in range(5)),
        ),
        states=dict.fromkeys(map(str, DeviceState), 1234),
        others=321,
    )


def network(number: int, *ends: str, **values: Any) -> Network:
    interfaces = tuple(
        ServiceConnection(id=end, device="sw1", port=LONG, vlan=100 + number) for end in ends
    )
    key = f"net{number}"
    return Network(key=key, id=key, type="L2STS", name=LONG, interfaces=interfaces, **values)


def vm(number: int, *nics: Nic, **values: Any) -> Vm:
    about = {"name": LONG, "state": "running", "host": LONG, "cores": 8, "ram": 1234567} | values
    return Vm(id=f"{UUID}{number}", nics=nics, image=LONG, instance=LONG, **about)


def on(*networks: int, **values: Any) -> Nic:
    joins = tuple(Join(network=f"net{n}", interface=f"end{n}") for n in networks)
    return Nic(component=LONG[:31], type="SharedNIC", joins=joins, **values)


FULL = on(
    0, addresses=("10.20.1.2/24", "fd20:1::5054:ff:fe72:aa56/64") * 3, mac="52:54:00:72:aa:56"
)
PARTS: dict[str, Any] = {
    "devices": (
        Device(component=LONG[:31], type="GPU", model=LONG, pci=(PciAddress(0, 1, 2, 3),) * 9),
    ),
    "volumes": (AttachedVolume(component=LONG[:31], size=5, source=f"/{LONG}" * 4, target="vdb"),),
    "notes": (WHY, WHY),
}


def a_slice(networks: int = 3) -> SliverTopology:
    """Return five VMs that are all on the same networks, and a stopped one that is on none."""
    nics = (
        FULL,
        *(on(n, uplink=LONG, bridge_mode="vepa") for n in range(networks)),
        on(uplink=LONG),
    )
    return SliverTopology(
        site="TEST",
        asked=(LONG, UUID, LONG),
        vms=(*(vm(n, *nics, **PARTS) for n in range(5)), vm(9, state="stopped", asked=False)),
        networks=tuple(network(n, f"end{n}", notes=(WHY,)) for n in range(networks)),
        silent={"w9": WHY},
    )


def a_site(networks: int = 3) -> SiteTopology:
    keys = tuple(f"net{n}" for n in range(networks))
    about = {"name": LONG, "cores": 999, "ram": 1234567, "nics": 99, "volumes": 99, "devices": 99}
    slivers = tuple(
        HostSliver(
            id=f"{UUID}{n}", state=state, differences=n, networks=(*keys[n::2], *keys[:1]), **about
        )
        for n, state in enumerate(("running", "stopped", "paused", "error"))
    )
    counts = tuple(DeviceCount(type=LONG, free=1, used=2, unfit=3) for _ in range(5))
    return SiteTopology(
        site="TEST",
        hosts=(
            SiteHost(name=LONG, maintenance=WHY, slivers=slivers, devices=counts),
            SiteHost(name="w2", silent=WHY),
            SiteHost(name="w3", slivers=slivers),
        ),
        networks=tuple(network(n, f"end{n}") for n in range(networks)),
        silent={"L2STS, FABNetv4": WHY},
    )


PICTURES: dict[str, Topology] = {
    "a large host": large_host(),
    "a host of one NUMA node": large_host((0,)),
    "a host of three": large_host((0, 1, None), vfs=7),
    "a host of many VFs": large_host((None,), vfs=64),
    "a host without devices": HostTopology(site="TEST", host="w1"),
    "a silent host": HostTopology(site="TEST", host="w1", silent=WHY),
    "a slice": a_slice(),
    "a slice of many networks": a_slice(9),
    "a slice of none": a_slice(0),
    "a site": a_site(),
    "a site of many networks": a_site(30),
    "a site of none": a_site(0),
}
each_picture = pytest.mark.parametrize("name", PICTURES)


@cache
def drawn(name: str) -> Picture:
    return Picture(svg(PICTURES[name]))


@each_picture
def test_nothing_overlaps_and_no_text_leaves_its_box(name: str) -> None:
    assert not [*drawn(name).faults()]


@each_picture
def test_a_picture_says_what_it_is(name: str) -> None:
    root = drawn(name).root

    assert root.get("role") == "img"
    title, description = root[0], root[1]
    assert title.tag.endswith("title")
    assert title.text == root.get("aria-label")
    assert description.tag.endswith("desc")
    assert description.text is not None


@each_picture
def test_many_on_a_page_do_not_meet(name: str) -> None:
    root = drawn(name).root

    assert not [element for element in root.iter() if "id" in element.attrib]
    classes = {name for element in root.iter() for name in element.get("class", "").split()}
    assert all(name.startswith("fd-") for name in classes)
    assert "style" not in {name for element in root.iter() for name in element.attrib}


@each_picture
def test_every_class_has_a_rule(name: str) -> None:
    root = drawn(name).root
    rules = root[2].text or ""

    classes = {name for element in root.iter() for name in element.get("class", "").split()}
    told_by_others = {
        f"fd-m-{name}" for name in ("used", "host-used", "unclean", "running", "warning")
    }
    assert not [name for name in classes - told_by_others if f".{name}" not in rules]


def test_a_large_host_and_a_slice_fit_on_pages_of_a4() -> None:
    """A page is as wide as the picture, so text of 10.5 is 2 mm high."""
    for name in ("a large host", "a slice"):
        assert float((drawn(name).root.get("viewBox") or "").split()[2]) <= 1000


class TestHostileNames:
    def test_of_devices_are_shown_as_they_are(self) -> None:
        bad = function("25:00.0", type=HOSTILE, label=HOSTILE, owner=HOSTILE, why=HOSTILE)
        bus = Bus(name="0000:25", slots=(slot(Function(device=bad, vfs=(bad,))),))
        of = HostTopology(site=HOSTILE, host="w1", nodes=(NumaBuses(number=0, buses=(bus,)),))

        self.harmless(of)

    def test_of_slivers_are_shown_as_they_are(self) -> None:
        bad = Nic(component=HOSTILE, type=HOSTILE, mac=HOSTILE, joins=(Join(network="x"),))
        of = SliverTopology(
            site="TEST",
            asked=(HOSTILE,),
            vms=(Vm(id=HOSTILE, state="running", nics=(bad,), notes=(HOSTILE,)),),
            networks=(Network(key="x", id="x", type=HOSTILE, name=HOSTILE),),
        )

        self.harmless(of)

    def test_of_a_site_are_shown_as_they_are(self) -> None:
        self.harmless(SiteTopology(site=HOSTILE, hosts=(SiteHost(name=HOSTILE, silent=HOSTILE),)))

    def harmless(self, of: Topology) -> None:
        document = svg(of)
        picture = Picture(document)
        assert "<script" not in document
        assert {element.tag.rpartition("}")[2] for element in picture.root.iter()} <= {
            *("svg", "title", "desc", "style", "rect", "text", "path", "circle", "g")
        }
        assert any("<script>alert" in text for text in picture.texts)


class TestAHost:
    def test_has_a_mark_and_a_word_for_each_state(self) -> None:
        picture = drawn("a large host")

        said = ("free", "used", "used by the host", "unclean", "lost by its server", "quarantined")
        assert [text for text in picture.texts if text.startswith("1234 ")] == [
            f"1234 {each}" for each in (*said, "not allowed")
        ]
        legend = [str(state).replace(" ", "-") for state in DeviceState]
        assert picture.marks()[: len(legend)] == legend

    def test_has_few_vfs_one_by_one(self) -> None:
        bus = nic(0xA0, 4)
        of = HostTopology(site="TEST", host="w1", nodes=(NumaBuses(number=0, buses=(bus,)),))

        texts = Picture(svg(of)).texts

        assert {"a1:00.0", "a1:00.1", "a1:00.2", "a1:00.3"} <= {*texts}

    def test_has_equal_neighbours_of_many_vfs_together(self) -> None:
        bus = nic(0xA0, 16)
        of = HostTopology(site="TEST", host="w1", nodes=(NumaBuses(number=0, buses=(bus,)),))

        texts = Picture(svg(of)).texts

        assert {"0", "1–2", "3", "4–5"} <= {*texts}
        assert texts.count("2 VFs") == 5

    def test_tells_what_is_clipped_to_who_points_at_it(self) -> None:
        picture = drawn("a large host")

        assert any(f"used by {LONG}/{LONG[:31]}" in title for title in picture.titles)


class TestWires:
    def test_lead_from_each_nic_and_each_port_to_its_network(self) -> None:
        assert drawn("a slice").lines("gap") == 5 * 4 + 3

    def test_say_interface_port_vlan_and_limit(self) -> None:
        end = ServiceConnection(
            id="left", device="sw1", port="p1", vlan=7, inner_vlan=8, bandwidth=16
        )
        met = Network(key="x", id="x", type="L2STS", name="seg", interfaces=(end,))
        bare = Nic(component="nic", type="vNIC", joins=(Join(network="x", interface="left"),))
        vms = (Vm(id="vm", state="running", nics=(bare,)),)

        texts = Picture(
            svg(SliverTopology(site="TEST", asked=("vm",), vms=vms, networks=(met,)))
        ).texts

        assert {"seg / left", "sw1 p1 · VLAN 7.8 · 16 Mbit/s"} <= {*texts}

    def test_of_a_vf_without_a_service_lead_to_its_uplink(self) -> None:
        vf = Nic(component="vf", type="SharedNIC", vlan=304, uplink="ens1", bridge_mode="vepa")
        vms = (Vm(id="vm", state="running", host="w1", nics=(vf,)),)

        texts = Picture(svg(SliverTopology(site="TEST", asked=("vm",), vms=vms))).texts

        assert {"uplink ens1 of w1 · VEPA", "VLAN 304"} <= {*texts}

    def test_lead_to_ports_without_a_vm_too(self) -> None:
        alone = Network(
            key="x",
            id="x",
            type="L2STS",
            name="seg",
            interfaces=(ServiceConnection(id="cable", device="sw1", port="p4"),),
        )

        texts = Picture(svg(SliverTopology(site="TEST", asked=("x",), networks=(alone,)))).texts

        assert {"Switch sw1", "port p4", "seg / cable", "sw1 p4 · untagged"} <= {*texts}

    def test_have_the_letter_of_their_network_at_its_end(self) -> None:
        texts = Picture(svg(a_site(2))).texts

        # Four slivers of each host meet the first, one the second; a switch and the key have each.
        assert (texts.count("A"), texts.count("B")) == (2 * 4 + 2, 2 * 1 + 2)


class TestText:
    @pytest.mark.parametrize(
        ("text", "room"), [*product((LONG, UUID, "a", "漢字" * 20), (20, 80, 300))]
    )
    def test_that_is_clipped_has_room(self, text: str, room: float) -> None:
        found = clipped(text, "text", room)

        assert width(found, "text") <= room
        assert found == text or found.endswith("…")

    def test_of_an_owner_tells_both_beginnings(self) -> None:
        assert clipped_owner(f"{UUID}/nic-data", "small", 90) == "b2f0a…/nic-data"
        assert clipped_owner("vm1/nic", "small", 90) == "vm1/nic"

    def test_is_wrapped_between_parts_at_spaces_and_within_long_words(self) -> None:
        assert wrapped("one · two three", "text", 60) == ["one", "two three"]
        assert wrapped("one two three", "text", 60) == ["one two", "three"]
        assert "".join(wrapped(LONG, "text", 60)) == LONG

    def test_of_too_many_lines_is_clipped(self) -> None:
        lines = wrapped(WHY, "text", 100, 2)

        assert len(lines) == 2
        assert lines[1].endswith("…")


class TestMachines:
    NODE = Network(key="m1", id="m1", type="BareMetal", name="rack1-1")
    SWITCH = Network(key="s1", id="s1", type="Switch", name="p4-1")
    BRIDGE = Network(key="b1", id="b1", type="L2Bridge", name="seg")

    def texts(self, *networks: Network, whole_site: bool = False) -> set[str]:
        asked = tuple(each.key for each in networks)
        if whole_site:
            return {*Picture(svg(SiteTopology(site="x", hosts=(), networks=networks))).texts}
        return {*Picture(svg(SliverTopology(site="x", asked=asked, networks=networks))).texts}

    def test_are_no_networks(self) -> None:
        texts = self.texts(self.NODE)

        assert {"site x · 1 bare-metal node", "Machines"} <= texts
        assert not any(text.startswith(("Networks", "A letter is")) for text in texts)

    def test_are_counted_beside_networks(self) -> None:
        texts = self.texts(self.NODE, self.SWITCH, self.BRIDGE)

        assert "site x · 1 network service · 1 bare-metal node · 1 P4 switch" in texts
        assert "Networks and machines" in texts

    def test_of_a_site_are_counted(self) -> None:
        said = "0 hosts · 0 VMs (0 running) · 0 network services · 0 networks · 1 bare-metal node"
        assert said in self.texts(self.NODE, whole_site=True)
