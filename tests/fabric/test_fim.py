"""What is read of FIM's slivers, field by field."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, CapacityHints, Flags, Labels
from fim.slivers.instance_catalog import InstanceCatalog

from fabric_direct.actor import fim
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.model import (
    Capacities as Size,
)
from fabric_direct.model import (
    Fpga,
    Gpu,
    Interface,
    NodeSliver,
    Nvme,
    SharedNic,
    SmartNic,
    Storage,
    VNic,
    VNicInterface,
)
from fabric_direct.site.config import Site, load_site
from tests.fabric import slivers
from tests.fabric.slivers import KEY, PROJECT, RESERVATION, bridge, component, interface, port, vm

GPU = "0000:25:00.0"
AUTO = Flags(auto_config=True)
Configured = Callable[..., Site]


@pytest.fixture
def configured(config: Callable[..., Path]) -> Configured:
    return lambda **values: load_site(config(**values))


@pytest.fixture
def site(configured: Configured) -> Site:
    return configured()


def read(site: Site, sliver: Any, **values: Any) -> NodeSliver:
    unit = slivers.unit(sliver, **values)
    return fim.vm(site, unit, fim.node_of(unit.get_sliver()))


def only(site: Site, part: Any) -> Any:
    """Return the one component beside the management NIC."""
    _, found = read(site, vm(part)).components
    return found


def refused(site: Site, sliver: Any, **values: Any) -> str:
    with pytest.raises(InvalidSliver) as error:
        read(site, sliver, **values)
    return error.value.field


# --- the node


def test_a_plain_vm(site: Site) -> None:
    assert read(site, vm()) == NodeSliver(
        id=RESERVATION,
        name="node1",
        host="localhost",
        image="default_rocky_9",
        flavor="fabric.c2.m4.d10",
        capacities=Size(core=2, ram=4, disk=10),
        ssh_keys=(KEY,),
        components=(VNic(id="management", network="mgmt"),),
    )


def test_a_vm_has_no_flavor_where_there_are_none(configured: Configured) -> None:
    wanted = read(configured(drivers={"VM": "libvirt"}), vm())

    assert (wanted.flavor, wanted.capacities) == (None, Size(core=2, ram=4, disk=10))


def test_a_worker_is_known_by_the_part_before_the_first_dot(configured: Configured) -> None:
    site = configured(hosts={"renc-w1": {}, "renc-w2": {}})
    sliver = vm(label_allocations=Labels(instance_parent="renc-w1.fabric-testbed.net"))

    assert read(site, sliver).host == "renc-w1"


def test_a_worker_is_known_by_its_short_name_where_the_site_has_the_long_one(
    configured: Configured,
) -> None:
    site = configured(hosts={"renc-w1.fabric-testbed.net": {}})

    sliver = vm(label_allocations=Labels(instance_parent="renc-w1"))
    assert read(site, sliver).host == "renc-w1.fabric-testbed.net"


def test_two_workers_of_the_same_short_name_are_not_confused(configured: Configured) -> None:
    site = configured(hosts={"w1.one.net": {}, "w1.other.net": {}})

    assert read(site, vm(label_allocations=Labels(instance_parent="w1.net"))).host == "w1.net"


def test_a_vm_that_is_too_large_gets_the_sites_largest_size(configured: Configured) -> None:
    site = configured(actor={"management_network": "mgmt", "max_flavor": "fabric.c2.m4.d10"})
    sliver = vm(
        capacity_hints=CapacityHints(instance_type="fabric.c4.m8.d10"),
        capacity_allocations=Capacities(core=4, ram=8, disk=10),
    )

    wanted = read(site, sliver)

    assert (wanted.flavor, wanted.capacities) == ("fabric.c2.m4.d10", Size(core=2, ram=4, disk=10))


@pytest.mark.parametrize("more", [{"core": 4}, {"ram": 8}, {"disk": 100}])
def test_more_of_one_thing_is_too_large(configured: Configured, more: dict[str, int]) -> None:
    site = configured(actor={"management_network": "mgmt", "max_flavor": "fabric.c2.m4.d10"})
    sliver = vm(capacity_allocations=Capacities(**({"core": 1, "ram": 2, "disk": 10} | more)))

    assert read(site, sliver).capacities == Size(core=2, ram=4, disk=10)


def test_the_name_of_every_flavor_of_fim_has_its_numbers(site: Site) -> None:
    for name, numbers in InstanceCatalog().list_instances().items():
        sliver = vm(capacity_allocations=None, capacity_hints=CapacityHints(instance_type=name))
        found = read(site, sliver).capacities
        assert (found.core, found.ram, found.disk) == (numbers.core, numbers.ram, numbers.disk)


def test_a_boot_script_keeps_its_first_line(site: Site) -> None:
    script = "#!/usr/bin/env python3\nprint()\n"
    assert read(site, vm(boot_script=script)).boot_script == script


def test_a_boot_script_without_interpreter_stays_as_it_is(site: Site) -> None:
    assert read(site, vm(boot_script="touch /x")).boot_script == "touch /x"


def test_an_empty_boot_script_is_none(site: Site) -> None:
    assert read(site, vm(boot_script=" \n")).boot_script is None


def test_keys_are_parted_by_commas(site: Site) -> None:
    other = KEY.replace("someone", "other")
    assert read(site, vm(), keys=f"{KEY}, {other},,{KEY}").ssh_keys == (KEY, other)


def test_a_vm_may_have_no_keys(site: Site) -> None:
    assert read(site, vm(), keys="").ssh_keys == ()


@pytest.mark.parametrize(
    "keys",
    [
        f"{KEY}, the second",
        f"{KEY}\n",
        f"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n,{KEY}",
        f"no-pty {KEY},{KEY}",
        f"ssh-rsa c2VjcmV0,{KEY},",
    ],
    ids=["comma in a comment", "line break", "private key", "options", "another algorithm"],
)
def test_the_good_ones_of_the_keys_are_kept(site: Site, keys: str) -> None:
    assert read(site, vm(), keys=keys).ssh_keys == (KEY,)


def test_keys_may_be_parted_by_line_breaks(site: Site) -> None:
    other = KEY.replace("someone", "other")
    assert read(site, vm(), keys=f"{KEY}\r\n{other}\n").ssh_keys == (KEY, other)


def test_a_bad_key_is_told_by_its_number_and_not_shown(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    read(site, vm(), keys=f"{KEY},-----BEGIN PRIVATE KEY-----")
    assert "properties[user.ssh.key][1] is not a public SSH key" in caplog.text
    assert "PRIVATE" not in caplog.text


def test_a_vm_all_of_whose_keys_are_bad_is_refused(site: Site) -> None:
    with pytest.raises(InvalidSliver) as error:
        read(site, vm(), keys="-----BEGIN PRIVATE KEY-----")
    assert error.value.field == "properties[user.ssh.key]"
    assert "PRIVATE" not in str(error.value)


def test_a_name_that_no_host_can_have_is_replaced(site: Site) -> None:
    assert read(site, vm(name="_node")).name.startswith("node--")


@pytest.mark.parametrize(
    ("missing", "field"),
    [
        ("name", "resource_name"),
        ("image_ref", "image_ref"),
        ("capacity_hints", "capacity_hints.instance_type"),
        ("label_allocations", "label_allocations.instance_parent"),
    ],
)
def test_what_is_missing_is_refused_by_fims_name(site: Site, missing: str, field: str) -> None:
    assert refused(site, vm(**{missing: None})) == field


def test_a_size_that_nobody_names_is_refused(site: Site) -> None:
    hints = CapacityHints(instance_type="m1.tiny")
    assert refused(site, vm(capacity_allocations=None, capacity_hints=hints)) == (
        "capacity_allocations"
    )


def test_empty_capacities_are_those_of_the_flavor(site: Site) -> None:
    assert read(site, vm(capacity_allocations=Capacities())).capacities == Size(
        core=2, ram=4, disk=10
    )


def test_a_size_that_is_no_number_is_refused(site: Site) -> None:
    asked = Capacities(core=2, ram=4, disk=10)
    asked.core = "many"
    assert refused(site, vm(capacity_allocations=asked)) == "capacity_allocations.core"


def test_a_size_of_nothing_is_refused(site: Site) -> None:
    sliver = vm(capacity_allocations=Capacities(core=0, ram=4, disk=10))
    assert refused(site, sliver) == "capacity_allocations.core"


def test_an_image_may_have_a_long_name(site: Site) -> None:
    name = "default_" + "ubuntu_22_" * 20
    assert read(site, vm(image_ref=name)).image == name


def test_a_boot_script_that_is_no_text_is_refused_and_not_shown(site: Site) -> None:
    sliver = vm()
    sliver.boot_script = b"secret"
    with pytest.raises(InvalidSliver) as error:
        read(site, sliver)
    assert str(error.value) == "boot_script: must be text"


def test_an_image_that_no_image_is_called_is_refused(site: Site) -> None:
    assert refused(site, vm(image_ref="../etc/passwd")) == "image_ref"


@pytest.mark.parametrize("sliver", [None, slivers.NOTHING, bridge()])
def test_what_is_no_vm_is_refused(sliver: Any) -> None:
    with pytest.raises(InvalidSliver) as error:
        fim.node_of(sliver)
    assert error.value.field in {"sliver", "resource_type"}


# --- the management NIC

CLOUD = {"openstack": {"cloud": "c"}, "hosts": {"localhost": {}}}


def management(site: Site, **values: Any) -> VNicInterface:
    nic = read(site, vm(**values)).components[0]
    assert isinstance(nic, VNic)
    return nic.interface


def test_a_site_without_management_network_says_so(configured: Configured) -> None:
    with pytest.raises(InvalidSite) as error:
        read(configured(actor={}), vm())
    assert error.value.field == "actor.management_network"


def test_a_cloud_gives_floating_ips(configured: Configured) -> None:
    assert management(configured(**CLOUD)).floating_ip


def test_a_machine_of_its_own_gives_none(site: Site) -> None:
    assert not management(site).floating_ip


@pytest.mark.parametrize("wanted", [True, False])
def test_the_site_may_say_whether_it_gives_floating_ips(
    configured: Configured, wanted: bool
) -> None:
    actor = {"management_network": "mgmt", "floating_ip": wanted}
    assert management(configured(**CLOUD, actor=actor)).floating_ip is wanted


@pytest.mark.parametrize("wanted", [True, False])
def test_flags_say_whether_ipv4_is_wanted(configured: Configured, wanted: bool) -> None:
    flags = Flags(ipv4_management=wanted)
    assert management(configured(**CLOUD), flags=flags).floating_ip is wanted


# --- components


@pytest.mark.parametrize(("kind", "model"), [("GPU", Gpu), ("FPGA", Fpga), ("NVME", Nvme)])
def test_a_device_by_a_single_address(site: Site, kind: str, model: Any) -> None:
    assert only(site, component(kind, "d1", GPU)) == model(id="d1", bdf=[GPU])


def test_an_fpga_by_one_address_of_its_card_is_the_card(configured: Configured) -> None:
    card = [GPU, "0000:25:00.1"]
    allowed = [{"type": "FPGA", "bdf": address} for address in card]
    site = configured(hosts={"localhost": {"devices": allowed}})

    for label in (card[0], [card[1]], card):
        assert only(site, component("FPGA", "d1", label)) == Fpga(id="d1", bdf=card)


def test_a_device_by_a_list_of_addresses(site: Site) -> None:
    bdf = [GPU, "0000:25:00.1"]
    assert only(site, component("GPU", "gpu1", bdf, "Tesla T4")) == Gpu(
        id="gpu1", bdf=bdf, model="Tesla-T4"
    )


def test_a_web_frameworks_list_is_copied(site: Site) -> None:
    assert only(site, component("NVME", "d1", slivers.listed([GPU]))) == Nvme(id="d1", bdf=[GPU])


def test_a_device_without_labels_is_known_by_its_allocations(site: Site) -> None:
    part = component("NVME", "d1", [GPU])
    part.labels = None
    assert only(site, part) == Nvme(id="d1", bdf=[GPU])


def test_a_pci_domain_may_have_fewer_digits(site: Site) -> None:
    assert only(site, component("NVME", "d1", ["0:25:00.0"])) == Nvme(id="d1", bdf=[GPU])


@pytest.mark.parametrize("bdf", [7, [7], {"first": GPU}, object()])
def test_an_address_that_is_no_text_is_refused(site: Site, bdf: Any) -> None:
    part = component("NVME", "d1")
    part.labels.bdf = bdf
    with pytest.raises(InvalidSliver) as error:
        read(site, vm(part))
    assert str(error.value) == (
        "attached_components_info.devices[d1].labels.bdf: must be a PCI address or a list of them"
    )


def test_a_device_without_address_is_refused(site: Site) -> None:
    field = refused(site, vm(component("GPU", "gpu1")))
    assert field == "attached_components_info.devices[gpu1].labels.bdf"


def test_a_wrong_address_is_refused(site: Site) -> None:
    field = refused(site, vm(component("GPU", "gpu1", "25:00")))
    assert field == "attached_components_info.devices[gpu1].labels.bdf"


def test_one_device_for_two_components_is_refused(site: Site) -> None:
    sliver = vm(component("GPU", "gpu1", GPU), component("GPU", "gpu2", GPU))
    assert refused(site, sliver) == "attached_components_info.devices"


def test_a_long_name_becomes_an_id(site: Site) -> None:
    name = "n" * 40
    assert only(site, component("GPU", name, GPU)).id.startswith("n" * 17 + "--")


def test_a_shared_nic_has_its_vlan_on_the_vf_and_no_limit_by_what_its_port_can_do(
    site: Site,
) -> None:
    nic = interface("p1", bw=100, mac="0C:42:A1:EA:C7:51", vlan="2100")

    assert only(site, component("SharedNIC", "nic1", GPU, "ConnectX-6", nic)) == SharedNic(
        id="nic1",
        bdf=[GPU],
        model="ConnectX-6",
        interface=Interface(mac="0c:42:a1:ea:c7:51", vlan=2100),
    )


def test_vlan_0_is_none(site: Site) -> None:
    part = component("SharedNIC", "nic1", GPU, None, interface("p1", vlan="0"))
    assert only(site, part).interface.vlan is None


def test_a_label_may_be_a_list_of_one(site: Site) -> None:
    nic = interface("p1", flags=AUTO)
    labels = {"mac": "02:00:00:00:00:01", "vlan": "200", "ipv4": "10.9.9.3"}
    nic.label_allocations.__dict__.update({name: [value] for name, value in labels.items()})
    nic.label_allocations.ipv4_subnet = ["10.9.9.0/25"]

    found = only(site, component("SharedNIC", "nic1", GPU, None, nic)).interface

    assert found == Interface(
        mac="02:00:00:00:00:01", vlan=200, ipv4="10.9.9.3/25", auto_config=True
    )


def test_a_list_of_several_vlans_is_refused(site: Site) -> None:
    part = component("SharedNIC", "nic1", GPU, None, interface("p1", vlan=["200", "201"]))
    field = "attached_components_info.devices[nic1].interfaces[p1].label_allocations.vlan"
    assert refused(site, vm(part)) == field


def test_a_vlan_that_there_is_not_is_refused(site: Site) -> None:
    part = component("SharedNIC", "nic1", GPU, None, interface("p1", vlan="4095"))
    field = "attached_components_info.devices[nic1].interfaces[p1].label_allocations.vlan"
    assert refused(site, vm(part)) == field


def test_a_bad_mac_is_refused(site: Site) -> None:
    part = component("SharedNIC", "nic1", GPU, None, interface("p1", mac="01:00:00:00:00:00"))
    field = "attached_components_info.devices[nic1].interfaces[p1].label_allocations.mac"
    assert refused(site, vm(part)) == field


def test_an_openstack_vnic_comes_with_its_network_service(site: Site) -> None:
    part = component("SharedNIC", "nic1", GPU, "OpenStack-vNIC", interface("p1"))
    assert [c.id for c in read(site, vm(part)).components] == ["management"]


def test_a_smart_nics_interfaces_are_in_the_order_of_its_functions(site: Site) -> None:
    functions = [GPU, "0000:25:00.1"]
    first, second = (
        interface("p1", mac="02:00:00:00:00:01"),
        interface("p2", mac="02:00:00:00:00:02"),
    )

    found = only(site, component("SmartNIC", "nic1", functions, None, first, second))

    assert found == SmartNic(
        id="nic1",
        bdf=functions,
        interfaces=[{"mac": "02:00:00:00:00:01"}, {"mac": "02:00:00:00:00:02"}],
    )


def test_a_smart_nic_may_have_no_network_service(site: Site) -> None:
    assert only(site, component("SmartNIC", "nic1", GPU)).interfaces == ()


def test_auto_config_sets_the_addresses_with_their_subnets(site: Site) -> None:
    nic = interface(
        "p1",
        flags=AUTO,
        vlan="200",
        ipv4="192.168.11.3",
        ipv4_subnet="192.168.11.0/26",
        ipv6="fd00::3",
        ipv6_subnet="fd00::/80",
    )

    (found,) = only(site, component("SmartNIC", "nic1", GPU, None, nic)).interfaces

    assert found == Interface(vlan=200, ipv4="192.168.11.3/26", ipv6="fd00::3/80", auto_config=True)


def test_addresses_without_subnet_have_the_usual_length(site: Site) -> None:
    nic = interface("p1", flags=AUTO, ipv4="192.168.11.3", ipv6="fd00::3")

    found = only(site, component("SharedNIC", "nic1", GPU, None, nic)).interface

    assert (str(found.ipv4), str(found.ipv6)) == ("192.168.11.3/24", "fd00::3/64")


@pytest.mark.parametrize("flags", [None, Flags(auto_config=False)])
def test_without_auto_config_nothing_is_set(site: Site, flags: Flags | None) -> None:
    nic = interface("p1", flags=flags, vlan="200", ipv4="192.168.11.3")
    (found,) = only(site, component("SmartNIC", "nic1", GPU, None, nic)).interfaces
    assert found == Interface()


def test_auto_config_without_addresses_sets_nothing(site: Site) -> None:
    part = component("SmartNIC", "nic1", GPU, None, interface("p1", flags=AUTO, vlan="200"))
    assert only(site, part).interfaces == (Interface(),)


def test_a_subnet_without_length_is_refused(site: Site) -> None:
    nic = interface("p1", flags=AUTO, ipv4="192.168.11.3")
    nic.label_allocations.ipv4_subnet = "192.168.11.0"
    part = component("SmartNIC", "nic1", GPU, None, nic)
    assert refused(site, vm(part)).endswith("interfaces[p1].label_allocations.ipv4_subnet")


def test_a_volume_is_the_projects(site: Site) -> None:
    assert only(site, slivers.storage("vol1", "data")) == Storage(
        id="vol1", volume=f"{PROJECT}-data"
    )


def test_a_volume_with_auto_mount_is_mounted_by_its_name(site: Site) -> None:
    assert only(site, slivers.storage("vol1", "data", mount=True)).mount == "/data"


@pytest.mark.parametrize("name", ["n" * 200, "my data", "_data", "größe.1"])
def test_a_volume_may_have_any_name_of_fim(site: Site, name: str) -> None:
    assert only(site, slivers.storage("vol1", name)).volume == f"{PROJECT}-{name}"


@pytest.mark.parametrize("name", ["a/../b", "a\nb", "n" * 300])
def test_a_name_that_no_volume_can_have_is_refused(site: Site, name: str) -> None:
    field = refused(site, vm(slivers.storage("vol1", name)))
    assert field == "attached_components_info.devices[vol1].label_allocations.local_name"


def test_a_volume_is_mounted_by_a_name_that_every_shell_reads(site: Site) -> None:
    assert only(site, slivers.storage("vol1", "_data", mount=True)).mount == "/_data"
    mount = only(site, slivers.storage("vol1", "my data", mount=True)).mount
    assert re.fullmatch(r"/my-data--[0-9a-f]{12}", mount)


def test_a_volume_without_name_is_refused(site: Site) -> None:
    field = refused(site, vm(slivers.storage("vol1", None)))
    assert field == "attached_components_info.devices[vol1].label_allocations.local_name"


def test_a_volume_without_project_is_refused(site: Site) -> None:
    unit = slivers.unit(vm(slivers.storage("vol1", "data")))
    del unit.get_properties()["project_id"]
    with pytest.raises(InvalidSliver) as error:
        fim.vm(site, unit, unit.get_sliver())
    assert error.value.field == "properties[project_id]"


# --- network services

PARENT = f"{RESERVATION}-node1"


def ports(site: Site, service: Any) -> Any:
    unit = slivers.unit(service, rid="net-1")
    return fim.ports(site, unit, fim.service_of(service), service)


def test_a_service_with_a_port(site: Site) -> None:
    found = ports(site, bridge(port("p1", PARENT)))

    assert found.model_dump(exclude_none=True, exclude_defaults=True) == {
        "id": "net-1",
        "network": "dataplane-201",
        "ports": (
            {
                "id": "p1",
                "server": RESERVATION,
                "interface": {"mac": "52:54:00:00:00:aa", "port_security": False},
            },
        ),
    }


def test_the_networks_prefix_is_the_sites(configured: Configured) -> None:
    site = configured(actor={"management_network": "mgmt", "network_prefix": "vlan"})
    assert ports(site, bridge()).network == "vlan-201"


def test_a_port_with_auto_config_has_its_address(site: Site) -> None:
    nic = port("p1", PARENT, flags=AUTO, ipv4="10.20.2.9", ipv4_subnet="10.20.2.0/25", ipv6="fd::1")
    (found,) = ports(site, bridge(nic)).ports
    assert (str(found.interface.ipv4), found.interface.ipv6) == ("10.20.2.9/25", None)


def test_a_port_with_ipv6_alone_has_that(site: Site) -> None:
    (found,) = ports(site, bridge(port("p1", PARENT, flags=AUTO, ipv6="fd::1"))).ports
    assert str(found.interface.ipv6) == "fd::1/64"


def test_a_port_without_auto_config_takes_the_networks_address(site: Site) -> None:
    (found,) = ports(site, bridge(port("p1", PARENT, ipv4="10.20.2.9"))).ports
    assert found.interface.ipv4 is None


@pytest.mark.parametrize(
    ("service", "field"),
    [
        (bridge(vlan=None), "label_allocations.vlan"),
        (bridge(port("p1", None)), "interface_info.interfaces[p1].labels.instance_parent"),
        (bridge(port("p1", "node1")), "interface_info.interfaces[p1].labels.instance_parent"),
        (bridge(port("p1", PARENT, None)), "interface_info.interfaces[p1].labels.mac"),
    ],
)
def test_what_a_service_lacks_is_refused_by_fims_name(site: Site, service: Any, field: str) -> None:
    with pytest.raises(InvalidSliver) as error:
        ports(site, service)
    assert error.value.field == field


@pytest.mark.parametrize("sliver", [None, slivers.NOTHING, vm()])
def test_what_is_no_l2bridge_is_refused(sliver: Any) -> None:
    with pytest.raises(InvalidSliver) as error:
        fim.service_of(sliver)
    assert error.value.field in {"sliver", "resource_type"}


# --- fields that hold anything

ODD = [
    None,
    7,
    -1,
    0.5,
    True,
    b"x",
    "",
    " ",
    "x" * 400,
    "\udc80",
    [],
    ["x"],
    ["x", "y"],
    [7],
    {},
    {1: 2},
]
ODD += [object()]


def whole() -> Any:
    """Return a VM that has each field that is read."""
    nic = interface("p1", flags=AUTO, mac="02:00:00:00:00:01", vlan="200", ipv4="10.9.9.3")
    nic.label_allocations.ipv4_subnet, nic.label_allocations.ipv6 = "10.9.9.0/25", "fd00::3"
    shared = component("SharedNIC", "nic1", GPU, "ConnectX-6", nic)
    return vm(shared, slivers.storage("vol1", "data", mount=True), boot_script="true")


def part(name: str) -> Callable[[Any], Any]:
    return lambda node: node.attached_components_info.devices[name]


def port_of(node: Any) -> Any:
    return fim.interfaces_of(part("nic1")(node))["p1"]


PLACES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "name": (lambda node: node, "resource_name"),
    "image": (lambda node: node, "image_ref"),
    "script": (lambda node: node, "boot_script"),
    "flavor": (lambda node: node.capacity_hints, "instance_type"),
    "core": (lambda node: node.capacity_allocations, "core"),
    "ram": (lambda node: node.capacity_allocations, "ram"),
    "host": (lambda node: node.label_allocations, "instance_parent"),
    "bdf": (lambda node: part("nic1")(node).labels, "bdf"),
    "model": (part("nic1"), "resource_model"),
    "volume": (lambda node: part("vol1")(node).label_allocations, "local_name"),
    "mac": (lambda node: port_of(node).label_allocations, "mac"),
    "vlan": (lambda node: port_of(node).label_allocations, "vlan"),
    "ipv4": (lambda node: port_of(node).label_allocations, "ipv4"),
    "subnet": (lambda node: port_of(node).label_allocations, "ipv4_subnet"),
    "ipv6": (lambda node: port_of(node).label_allocations, "ipv6"),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_a_field_holds_it_is_read_or_refused(site: Site, place: str) -> None:
    holder, name = PLACES[place]
    for value in ODD:
        node = whole()
        assert hasattr(holder(node), name)
        setattr(holder(node), name, value)
        with suppress(InvalidSliver):
            read(site, node)


@pytest.mark.parametrize(
    "value",
    [value for value in ODD if value is not None],
    ids=lambda odd: repr(odd).split(" at ")[0],
)
def test_whatever_the_properties_hold_it_is_read_or_refused(site: Site, value: Any) -> None:
    for name in ("user.ssh.key", "project_id"):
        unit = slivers.unit(whole())
        unit.get_properties()[name] = value
        with suppress(InvalidSliver):
            fim.vm(site, unit, unit.get_sliver())
