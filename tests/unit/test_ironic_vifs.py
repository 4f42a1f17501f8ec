"""NICs of bare-metal slivers on networks of Neutron: ports, and the nodes that they are attached to."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from openstack.connection import Connection

from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.drivers.ironic.vifs import Vifs
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.networks.neutron import own
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Outcome, SliverRef, Status
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import OpenStackSettings, Site
from tests.outcomes import done
from tests.trust.clock import skipping_pauses
from tests.unit.ironic import LOCKED, Ironic, node, refusal
from tests.unit.openstack_api import OpenStackApi

MAC, SECOND = "52:54:00:00:00:01", "52:54:00:00:00:02"
REF = SliverRef(id="metal", type="BareMetal")
NIC: dict[str, Any] = {"id": "nic1", "network": "lab"}
STAMP = "fabric-direct TEST/metal"
IMAGES = {"debian-12": {"disk": "https://images.example.org/disk.raw", "checksum": "1" * 64}}
Make = Callable[..., BareMetalSliver]


@pytest.fixture(autouse=True)
def pauses() -> Iterator[None]:
    with skipping_pauses():
        yield


@pytest.fixture
def ironic(api: OpenStackApi) -> Ironic:
    made = Ironic(api, node("n1"), node("n2"), slivers=("metal",))
    made.ports = [
        {"uuid": f"p-{name}-{mac[-1]}", "address": mac, "node_uuid": f"id-{name}"}
        for name, mac in (("n1", MAC), ("n1", SECOND), ("n2", "52:54:00:00:00:03"))
    ]
    made.neutron.network("lab", "192.0.2.0/24")
    made.neutron.things["subnets"]["sub-lab-1"]["dns_nameservers"] = ["192.0.2.53"]
    return made


@pytest.fixture
def site(api: OpenStackApi, ironic: Ironic) -> Site:
    limits = {"unanswered": 0.0}
    return api.site(drivers={"BareMetal": "ironic"}, ironic={"images": IMAGES}, limits=limits)


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def metal() -> Make:
    def make(**values: Any) -> BareMetalSliver:
        usual = {"id": "metal", "name": "box", "image": "debian-12", "nics": [NIC], "node": "n1"}
        return BareMetalSliver.model_validate(usual | values)

    return make


def ports(ironic: Ironic) -> list[dict[str, Any]]:
    return [*ironic.neutron.things["ports"].values()]


def leave(ironic: Ironic, **values: Any) -> dict[str, Any]:
    """Put a port of the sliver there, as somebody who was killed leaves it."""
    fixed = [{"subnet_id": "sub-lab-1", "ip_address": "192.0.2.9"}]
    usual = {"name": "metal-nic1", "description": STAMP, "network_id": "net-lab"}
    usual |= {"mac_address": MAC, "binding:vnic_type": "baremetal", "fixed_ips": fixed}
    return ironic.neutron.add("ports", **usual | values)


def is_untouched(ironic: Ironic) -> bool:
    free = all(
        (each["provision_state"], each["instance_uuid"], each["extra"]) == ("available", None, {})
        for each in ironic.nodes.values()
    )
    return free and not ironic.allocations and not any(ironic.vifs.values()) and not ports(ironic)


def kind(outcome: Outcome) -> tuple[Status, str, str]:
    error = outcome.error
    return outcome.status, error.kind if error else "", error.field if error else ""


class Lost(requests.exceptions.ReadTimeout):
    """An answer that is lost after the request took effect."""

    takes_effect = True


class TestCreate:
    def test_makes_a_port_like_that_of_a_vm_and_attaches_it_before_the_deployment(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        outcome = done(processor.create(metal()).result())

        (port,) = ports(ironic)
        assert (port["name"], port["description"]) == ("metal-nic1", STAMP)
        assert (port["mac_address"], port["binding:vnic_type"]) == (MAC, "baremetal")
        assert ironic.vifs == {"id-n1": {port["id"]: "p-n1-1"}, "id-n2": {}}
        changes = [last for _, last in ironic.changes()]
        assert changes == ["allocations", "ports", "vifs", "id-n1", "provision"]
        assert outcome.observed
        (nic,) = outcome.observed.interfaces
        assert (nic.mac, nic.network, nic.addresses) == (MAC, "lab", ("192.0.2.9/24",))

    def test_gives_the_system_what_neutron_chose(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        (drive,) = ironic.drives
        assert drive["network_data"] == {
            "links": [{"id": "nic1", "type": "phy", "ethernet_mac_address": MAC}],
            "networks": [
                {
                    "id": "nic1-ipv4",
                    "link": "nic1",
                    "type": "ipv4",
                    "ip_address": "192.0.2.9",
                    "netmask": "255.255.255.0",
                    "routes": [
                        {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}  # noqa: S104
                    ],
                }
            ],
            "services": [{"type": "dns", "address": "192.0.2.53"}],
        }

    def test_asks_for_the_address_and_the_interface_that_the_sliver_names(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        nic = NIC | {"mac": SECOND, "ipv4": "192.0.2.20/24"}

        done(processor.create(metal(nics=[nic])).result())

        (port,) = ports(ironic)
        assert port["mac_address"] == SECOND
        assert [each["ip_address"] for each in port["fixed_ips"]] == ["192.0.2.20"]
        assert ironic.vifs["id-n1"] == {port["id"]: "p-n1-2"}

    def test_plugs_nothing_in_for_nics_without_a_network(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.create(metal(nics=[{"id": "plain"}, NIC])).result())

        (port,) = ports(ironic)
        assert (port["name"], port["mac_address"]) == ("metal-nic1", SECOND)

    def test_again_and_renamed_leaves_port_and_address_as_they_are(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        before = ports(ironic)

        done(processor.create(metal()).result())
        done(processor.modify(metal(name="other")).result())

        assert ports(ironic) == before
        seen = done(processor.probe(metal(name="other")).result()).observed
        assert seen
        assert (seen.differences, seen.interfaces[0].addresses) == ((), ("192.0.2.9/24",))

    @pytest.mark.parametrize("attached", [False, True])
    def test_goes_on_with_the_port_of_who_was_killed(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make, attached: bool
    ) -> None:
        left = leave(ironic)
        if attached:
            ironic.vifs["id-n1"][left["id"]] = "p-n1-1"
            ironic.foresee_detach("id-n1", left["id"])

        done(processor.create(metal()).result())

        assert [port["id"] for port in ports(ironic)] == [left["id"]]
        assert [*ironic.vifs["id-n1"]] == [left["id"]]

    def test_replaces_a_port_with_another_mac_and_one_of_a_nic_that_is_not_asked_for(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        leave(ironic, mac_address="fa:16:3e:00:00:09")
        leave(ironic, name="metal-nic2", mac_address=SECOND)

        done(processor.create(metal()).result())

        assert [(p["name"], p["mac_address"]) for p in ports(ironic)] == [("metal-nic1", MAC)]

    def test_finds_what_an_answer_that_was_lost_attached(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.faults["POST", "vifs"] = [Lost()]

        done(processor.create(metal()).result())

        assert len(ironic.vifs["id-n1"]) == 1

    def test_waits_while_the_node_is_locked(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.faults["POST", "vifs"] = [(409, refusal(LOCKED))] * 2

        done(processor.create(metal()).result())

        assert len(ironic.vifs["id-n1"]) == 1

    @pytest.mark.parametrize(
        "answer", [(400, refusal("no")), (409, refusal("has one")), (503, None)]
    )
    def test_that_cannot_attach_fails_and_leaves_nothing(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make, answer: tuple[int, Any]
    ) -> None:
        ironic.faults["POST", "vifs"] = [answer] * 9

        outcome = processor.create(metal()).result()

        assert (outcome.ok, outcome.left) == (False, ())
        assert is_untouched(ironic)

    def test_sees_that_yes_was_said_and_nothing_was_done(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.nodes["id-n1"]["network_interface"] = "noop"

        outcome = processor.create(metal()).result()

        assert kind(outcome)[:2] == (Status.FAILED, "DriverError")
        assert outcome.error
        assert "the node's network interface is noop" in outcome.error.message
        assert is_untouched(ironic)

    @pytest.mark.parametrize(
        ("nic", "field"),
        [
            ({"network": "absent"}, "nics[1].network"),
            ({"ipv4": "198.51.100.7/24"}, "nics[1].ipv4"),
            ({"ipv6": "2001:db8::7/64"}, "nics[1].ipv6"),
        ],
    )
    def test_refuses_what_neutron_cannot_serve_before_anything_is_touched(
        self,
        processor: HandlerProcessor,
        ironic: Ironic,
        metal: Make,
        nic: dict[str, str],
        field: str,
    ) -> None:
        outcome = processor.create(metal(nics=[{"id": "plain"}, NIC | nic])).result()

        assert kind(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert ironic.changes() == []


class TestDelete:
    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, ironic: Ironic, metal: Make) -> None:
        done(processor.create(metal()).result())
        ironic.api.calls.clear()

    def test_deletes_the_port_after_the_node_was_taken_away_and_before_the_stamp_goes(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        (port,) = ports(ironic)

        done(processor.delete(REF).result())

        changes = [last for _, last in ironic.changes()]
        assert changes == ["provision", port["id"], "id-n1"]
        assert is_untouched(ironic)

    def test_detaches_what_ironic_left_attached(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.keeps_vifs = True

        done(processor.delete(REF).result())

        assert is_untouched(ironic)

    def test_leaves_the_stamp_as_long_as_the_port_is_there(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        (port,) = ports(ironic)
        ironic.neutron.fault("DELETE", f"/ports/{port['id']}", 409, "in use")

        outcome = processor.delete(REF).result()

        assert not outcome.ok
        assert ironic.nodes["id-n1"]["extra"]["fabric-direct"]["sliver"] == "metal"
        done(processor.delete(REF).result())
        assert is_untouched(ironic)

    def test_leaves_ports_and_vifs_of_others(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        theirs = leave(ironic, description="fabric-direct OTHER/metal", mac_address=SECOND)
        ironic.keeps_vifs = True
        ironic.vifs["id-n1"][theirs["id"]] = "p-n1-2"

        done(processor.delete(REF).result())

        assert ports(ironic) == [theirs]
        assert [*ironic.vifs["id-n1"]] == [theirs["id"]]


class TestLeft:
    def test_a_port_alone_is_named_listed_and_deleted(
        self, processor: HandlerProcessor, site: Site, ironic: Ironic
    ) -> None:
        left = leave(ironic)
        driver = IronicBareMetal(site)

        assert driver.leftovers("metal") == (f"port metal-nic1 ({left['id']})",)
        (thing,) = driver.stamped()
        assert (thing.sliver, thing.kind, thing.addresses) == (
            "metal",
            "BareMetal",
            ("192.0.2.9",),
        )
        done(processor.delete(REF).result())
        assert is_untouched(ironic)

    def test_one_that_is_attached_is_detached_from_whichever_node_has_it(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        left = leave(ironic)
        ironic.vifs["id-n2"][left["id"]] = "p-n2-3"
        ironic.ports[2]["internal_info"] = {"tenant_vif_port_id": left["id"]}
        ironic.foresee_detach("id-n2", left["id"])

        done(processor.delete(REF).result())

        assert is_untouched(ironic)

    def test_ports_of_vms_are_not_those_of_nodes(self, site: Site, ironic: Ironic) -> None:
        of_node = leave(ironic)
        of_vm = leave(
            ironic, description="fabric-direct TEST/vm", **{"binding:vnic_type": "normal"}
        )

        of_nodes = [thing.name for thing in IronicBareMetal(site).stamped()]
        of_vms = [thing.name for thing in OpenStackNetwork(site, "").stamped()]

        assert of_nodes == [f"metal-nic1 ({of_node['id']})"]
        assert of_vms == [f"metal-nic1 ({of_vm['id']})"]
        assert [port.source for port in OpenStackNetwork(site, "").all_ports()] == [of_vm["id"]]


class TestDifferences:
    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, metal: Make) -> None:
        done(processor.create(metal()).result())

    def found(self, processor: HandlerProcessor, metal: Make) -> tuple[str, ...]:
        seen = done(processor.probe(metal()).result()).observed
        assert seen
        return seen.differences

    def test_a_port_that_is_gone(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.neutron.things["ports"].clear()

        assert self.found(processor, metal) == ("NIC nic1 has no port on network lab",)

    def test_a_vif_that_is_detached(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        (port,) = ports(ironic)
        ironic.vifs["id-n1"].clear()

        named = f"port metal-nic1 ({port['id']})"
        assert self.found(processor, metal) == (f"{named} is not attached to node n1",)

    def test_an_address_that_was_changed(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        (port,) = ports(ironic)
        port["fixed_ips"][0]["ip_address"] = "192.0.2.99"

        assert self.found(processor, metal) == (
            f"port metal-nic1 ({port['id']}) has 192.0.2.99/24",
        )


def test_a_network_is_refused_by_its_field_where_the_cloud_has_no_neutron(
    site: Site, metal: Make, tmp_path: Path
) -> None:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds: {alone: {auth_type: none, endpoint: http://192.0.2.1:6385}}")
    vifs = Vifs(site, OpenStackSettings(cloud="alone", clouds_file=clouds))

    with pytest.raises(InvalidSliver, match="the cloud has no Neutron") as refused:
        vifs.check(metal())

    assert refused.value.field == "nics[0].network"
    assert (vifs.stamped(), vifs.leftovers("metal")) == ((), ())


def test_in_a_cloud_without_logins_all_that_is_stamped_is_ours() -> None:
    port = SimpleNamespace(project_id="any", created_at="", id="1")

    assert own(cast(Connection, SimpleNamespace(current_project_id=None)), [port]) == [port]
    assert own(cast(Connection, SimpleNamespace(current_project_id="other")), [port]) == []
