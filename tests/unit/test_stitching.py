"""Nodes and network services that are stitched together, both ways, on the fake drivers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef, Status, StepStatus
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.model.references import needs
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.stitches import Stitches
from tests.outcomes import done, outcomes_of

TAPS = {"t1": {"tap": True}, "t2": {"tap": True}}
VFS = {"vlans": ["100-199"], "host": "localhost", "uplink": "ens1"}
NIC = {"host": "localhost", "bdf": "41:00.0"}
SWITCHES = {"sw1": {"ports": {**TAPS, "vfs": VFS, "nic": NIC, "far": {}}}}
VF, OTHER_VF = "0000:a1:00.0", "0000:a1:00.1"
SMART_NIC = {"type": "SmartNIC", "bdf": "41:00.0"}


@pytest.fixture
def site(fake_site: Site) -> Site:
    kinds = ("SharedNIC", "SmartNIC", *SERVICES)
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | dict.fromkeys(kinds, "fake"),
        "hosts": {"localhost": {"devices": [SMART_NIC, {"type": "SharedNIC", "uplink": "ens1"}]}},
        "switches": SWITCHES,
        "services": {"subnets": {"FABNetv4": {"block": "10.128.0.0/22", "prefix": 24}}},
        "fake": {"hosts": {"localhost": {"vfs": 4}}},
    }
    return Site.model_validate(values)


def vm(*components: dict[str, Any], sliver: str = "vm-1") -> NodeSliver:
    size = {"core": 1, "ram": 1, "disk": 1}
    values = {"id": sliver, "name": sliver, "image": "tiny", "capacities": size}
    return NodeSliver.model_validate({**values, "components": components})


def vnic(**interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": "nic", "network": "sw1", "interface": interface}


def shared(*bdf: str, **interface: Any) -> dict[str, Any]:
    return {"type": "SharedNIC", "id": "nic", "bdf": bdf, "interface": interface}


def smart(**interface: Any) -> dict[str, Any]:
    return {"type": "SmartNIC", "id": "nic", "bdf": ["41:00.0"], "interfaces": [interface]}


def to(interface: str = "i1", service: str = "net-1") -> dict[str, Any]:
    return {"service": {"id": service, "interface": interface}}


def at(port: str, name: str = "i1", **more: Any) -> dict[str, Any]:
    return {"id": name, "device": "sw1", "port": port, **more}


def attached(name: str = "i1", sliver: str = "vm-1", **more: Any) -> dict[str, Any]:
    return {"id": name, "attach": {"sliver": sliver, "component": "nic"}, **more}


def net(
    *interfaces: dict[str, Any], kind: str = "L2Bridge", sliver: str = "net-1", **more: Any
) -> Any:
    values = {"id": sliver, "name": sliver, "interfaces": interfaces, **more}
    return SERVICES[kind].model_validate(values)


def stamp(fakes: Substrate, sliver: str = "vm-1") -> Any:
    """Return the first component of a server, as its stamp says."""
    return fakes.servers[sliver].stamp.sliver.components[0]


def refused(outcome: Outcome) -> tuple[str, str]:
    assert outcome.status is Status.REFUSED, outcome
    assert outcome.error
    return outcome.error.field, outcome.error.message


class TestANodesInterfaceTakesWhatAServicesHas:
    def test_the_tap_and_the_address(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(net(at("t2"), kind="FABNetv4")).result())

        done(processor.create(vm(vnic(**to()))).result())

        taken = stamp(fakes).interface
        assert (taken.port, str(taken.ipv4)) == ("t2", "10.128.0.2/24")
        assert fakes.ports["vm-1", "nic"].routes == (("10.128.0.0/22", "10.128.0.1"),)
        assert fakes.ports["vm-1", "nic"].source == "t2"

    def test_the_routes_to_an_l3vpns_other_subnets(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        subnets = {"t1": "10.50.1.1/24", "t2": "10.50.2.1/24", "far": "2001:db8::1/64"}
        ends = [at(port, port, gateway={"address": own}) for port, own in subnets.items()]
        done(processor.create(net(*ends, kind="L3VPN", asn=65001)).result())

        done(processor.create(vm(vnic(ipv4="10.50.2.9/24", **to("t2")))).result())

        assert fakes.ports["vm-1", "nic"].routes == (("10.50.1.0/24", "10.50.2.1"),)

    def test_a_vf_of_the_uplink_and_its_vlan(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("vfs", vlan="auto"))).result())

        done(processor.create(vm(shared(**to()))).result())

        assert (stamp(fakes).uplink, stamp(fakes).interface.vlan) == ("ens1", 100)
        assert fakes.plugged["vm-1"][0].vlan == 100

    def test_the_vlan_of_a_whole_nic(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(net(at("nic", vlan=7))).result())

        done(processor.create(vm(smart(**to()))).result())

        assert stamp(fakes).interfaces[0].vlan == 7

    @pytest.mark.parametrize(
        ("nic", "field", "words"),
        [
            (shared(VF, **to("i9")), "interface.service.interface", "it has i1, i2, i3, i4"),
            (shared(VF, **to(service="net-9")), "interface.service.id", "no network service net-9"),
            (shared(VF, vlan=101, **to()), "interface.vlan", "is 101; the other end has 100"),
            (shared(VF, **to("i2")), "interface.service", "no SharedNIC can be at t1 of sw1"),
            (shared(VF, **to("i3")), "interface.service", "no SharedNIC can be at far of sw1"),
            (vnic(**to()), "interface.service", "no vNIC can be at vfs of sw1"),
            (vnic(port="t2", **to("i2")), "interface.port", "is t2; the other end has t1"),
            (vnic(**to("i4")), "interface.service", "interface i4 has VLAN 5; a vNIC has none"),
            ({**vnic(**to("i2")), "network": "red"}, "network", "is red; the other end has sw1"),
            ({**shared(**to()), "uplink": "ens2"}, "uplink", "is ens2; the other end has ens1"),
            (shared("41:00.0", **to()), "bdf[0]", "is not of ens1 of localhost"),
        ],
    )
    def test_what_does_not_fit_is_refused_by_its_field(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        nic: dict[str, Any],
        field: str,
        words: str,
    ) -> None:
        ends = (at("vfs", vlan=100), at("t1", "i2"), at("far", "i3"), at("t2", "i4", vlan=5))
        done(processor.create(net(*ends)).result())

        where, message = refused(processor.create(vm(nic)).result())

        assert where == f"components[0].{field}"
        assert words in message
        assert not fakes.servers

    def test_another_host_than_the_ports_is_refused(self, processor: HandlerProcessor) -> None:
        done(processor.create(net(at("vfs"))).result())
        elsewhere = vm(shared(**to())).model_copy(update={"host": "w9"})

        assert refused(processor.create(elsewhere).result())[0] == "host"

    def test_an_address_is_given_once(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(net(at("vfs", vlan=100), kind="FABNetv4")).result())
        done(processor.create(vm(shared(VF, **to()))).result())

        outcome = processor.create(vm(shared(OTHER_VF, **to()), sliver="vm-2")).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "vm-1/nic has it" in outcome.error.message
        assert list(fakes.servers) == ["vm-1"]

    def test_an_interface_without_an_address_has_several(self, processor: HandlerProcessor) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())

        done(processor.create(vm(shared(VF, **to()))).result())
        done(processor.create(vm(shared(OTHER_VF, **to()), sliver="vm-2")).result())

    def test_a_service_whose_creation_is_unfinished_is_not_there(
        self, site: Site, processor: HandlerProcessor
    ) -> None:
        done(processor.create(net(at("vfs"))).result())
        values = {"id": "net-1", "type": "L2Bridge"}
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, values, owns_everything=True)

        _, message = refused(processor.create(vm(shared(VF, **to()))).result())

        assert "there is no network service net-1" in message

    def test_one_that_goes_while_the_node_is_made_fails_it(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        done(processor.create(net(at("vfs"))).result())
        fakes.fault("service.find", at=3, kind="lie")

        outcome = processor.create(vm(shared(VF, **to()))).result()

        assert outcome.status is Status.FAILED
        assert not outcome.left
        assert not fakes.servers
        assert not Stitches(site).of("vm-1")


class TestAServicesInterfaceTakesWhatAComponentHas:
    def test_the_tap_and_its_mac(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(vm(vnic())).result())

        done(processor.create(net(attached())).result())

        made = fakes.services["net-1"].interfaces[0]
        assert (made.device, made.port, made.tag) == ("sw1", "t1", 0)
        assert made.mac == fakes.ports["vm-1", "nic"].mac

    def test_the_port_of_a_vfs_uplink_and_the_vlan(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        mac = "52:54:00:00:00:07"
        done(processor.create(vm(shared(VF, vlan=107, mac=mac))).result())

        done(processor.create(net(attached(vlan="auto"))).result())

        made = fakes.services["net-1"].interfaces[0]
        assert (made.port, made.vlan, made.mac) == ("vfs", 107, mac)

    def test_a_guest_that_tags_leaves_the_vlan_to_the_service(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(vm(smart())).result())

        done(processor.create(net(attached(vlan=9))).result())

        made = fakes.services["net-1"].interfaces[0]
        assert (made.port, made.vlan) == ("nic", 9)

    @pytest.mark.parametrize(
        ("interface", "field", "words"),
        [
            (attached(sliver="vm-9"), "attach.sliver", "there is no server of sliver vm-9"),
            ({"id": "i1", "attach": {"sliver": "vm-1", "component": "x"}}, "attach.component",
             "its NICs are nic"),
            (attached(vlan=108), "vlan", "is 108; the other end has 107"),
            (attached(vlan="untagged"), "vlan", "is untagged; the other end has 107"),
            (attached(mac="52:54:00:00:00:08"), "mac", "the other end has 52:54:00:00:00:07"),
            (attached(device="sw1", port="t1"), "port", "is t1; the other end has vfs"),
        ],
    )  # fmt: skip
    def test_what_does_not_fit_is_refused_by_its_field(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        interface: dict[str, Any],
        field: str,
        words: str,
    ) -> None:
        mac = "52:54:00:00:00:07"
        done(processor.create(vm(shared(VF, vlan=107, mac=mac))).result())

        where, message = refused(processor.create(net(interface)).result())

        assert where == f"interfaces[0].{field}"
        assert words in message
        assert not fakes.services

    def test_a_nic_on_a_network_of_the_host_is_at_no_port(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(vm({**vnic(), "network": "red"})).result())

        where, message = refused(processor.create(net(attached())).result())

        assert where == "interfaces[0].attach.component"
        assert "network red is neither a switch" in message

    def test_two_interfaces_cannot_take_the_same(self, processor: HandlerProcessor) -> None:
        done(processor.create(vm(vnic())).result())

        _, message = refused(processor.create(net(attached(), attached("i2"))).result())

        assert "untagged on t1 of sw1 is given twice" in message


class TestTaps:
    def test_are_given_once(self, processor: HandlerProcessor) -> None:
        done(processor.create(vm(vnic())).result())

        taken = processor.create(vm(vnic(port="t1"), sliver="vm-2")).result()

        assert taken.error
        assert taken.error.field == "components[0].interface.port"

    def test_that_a_service_has_are_left_to_who_names_them(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("t1"))).result())

        done(processor.create(vm(vnic(), sliver="vm-2")).result())
        done(processor.create(vm(vnic(**to()))).result())

        assert {key[0]: port.source for key, port in fakes.ports.items()} == {
            "vm-2": "t2",
            "vm-1": "t1",
        }

    def test_are_only_what_the_site_says(self, processor: HandlerProcessor) -> None:
        where, message = refused(processor.create(vm(vnic(port="far"))).result())

        assert where == "components[0].interface.port"
        assert "taps of sw1: t1, t2" in message


class TestWhatHasChangedSince:
    @pytest.fixture
    def stitched(self, processor: HandlerProcessor) -> NodeSliver:
        node = vm(shared(VF, **to()))
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(node).result())
        return node

    def test_modifying_a_service_says_which_nodes_must_be(
        self, processor: HandlerProcessor, stitched: NodeSliver, fakes: Substrate
    ) -> None:
        outcome = done(processor.modify(net(at("vfs", vlan=101))).result())

        (warning,) = outcome.warnings
        assert warning == (
            "modify vm-1: nic was stitched to net-1/i1 with VLAN 100 on vfs of sw1, which now has "
            "VLAN 101 on vfs of sw1"
        )
        again = done(processor.modify(stitched).result())
        assert again.warnings == ()
        assert stamp(fakes).interface.vlan == 101

    def test_a_probe_of_the_node_names_it(
        self, processor: HandlerProcessor, stitched: NodeSliver
    ) -> None:
        done(processor.modify(net(at("vfs", vlan=101))).result())

        by_id = done(processor.probe(stitched.ref()).result()).observed
        by_file = done(processor.probe(stitched).result()).observed

        assert by_id
        assert by_id.differences == (
            "components[0].interface.vlan: is 100; the other end has 101: VLAN 101 on vfs of sw1",
        )
        assert by_file
        assert "has VLAN 100, not 101" in by_file.differences[0]

    def test_a_probe_of_the_service_names_a_node_that_is_gone(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(vm(vnic())).result())
        done(processor.create(net(attached())).result())

        outcome = done(processor.delete(SliverRef(id="vm-1")).result())

        assert outcome.warnings == (
            "sliver net-1 is still stitched to vm-1/nic: modify or delete it",
        )
        found = done(processor.probe(SliverRef(id="net-1", type="L2Bridge")).result()).observed
        assert found
        assert "there is no server of sliver vm-1" in found.differences[0]

    def test_a_repair_of_the_service_and_its_plan_warn_of_a_node_that_is_gone(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(vm(vnic())).result())
        done(processor.create(net(attached())).result())
        assert done(processor.reconcile(NET).result()).warnings == ()
        done(processor.delete(SliverRef(id="vm-1")).result())

        planned = done(processor.plan(NET, Operation.RECONCILE).result())
        repaired = done(processor.reconcile(NET).result())

        for outcome in (planned, repaired):
            assert "there is no server of sliver vm-1" in outcome.warnings[0]

    def test_a_modification_is_undone_though_the_service_has_changed(
        self, site: Site, processor: HandlerProcessor, stitched: NodeSliver, fakes: Substrate
    ) -> None:
        done(processor.modify(net(at("vfs", vlan=101))).result())
        unfinished = vm(shared(VF, vlan=101, **to())).model_dump(mode="json", exclude_none=True)
        Journal(FileStore(site.state_dir)).begin(
            Operation.MODIFY, unfinished, owns_everything=False
        )

        (outcome,) = processor.recover(undo=True)

        done(outcome.result())
        assert stamp(fakes).interface.vlan == 100


SILENT = "failed: it was told to"
"""What a fake says that does not answer."""
NET = SliverRef(id="net-1", type="L2Bridge")


def seen(outcome: Outcome) -> tuple[str, ...]:
    """Return the differences that a probe found."""
    found = done(outcome).observed
    assert found
    return found.differences


class TestAnEndThatDoesNotAnswer:
    """It is told as what is not known: neither as a difference, nor as an end that is not there."""

    @pytest.mark.parametrize("node", [vm(shared(VF, **to())), vm(shared(**to())).ref()])
    def test_is_a_warning_of_a_probe_of_the_node(
        self, processor: HandlerProcessor, fakes: Substrate, node: SliverRef
    ) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        fakes.fault("service.find", at=0, kind="fail")

        outcome = processor.probe(node).result()

        assert seen(outcome) == ()
        (warning,) = outcome.warnings
        assert warning.startswith(
            "it is not known what net-1 has: components[0].interface.service: service.find "
        )
        assert SILENT in warning

    @pytest.mark.parametrize("nic", [vnic(**to()), smart(**to()), shared(**to())])
    def test_leaves_what_a_file_takes_from_it_as_the_stamp_says(
        self, processor: HandlerProcessor, fakes: Substrate, nic: dict[str, Any]
    ) -> None:
        ports = {"vNIC": at("t2", mtu=1400), "SmartNIC": at("nic", vlan=7)}
        done(processor.create(net(ports.get(nic["type"], at("vfs", vlan=100)))).result())
        done(processor.create(vm(nic)).result())
        fakes.fault("service.find", at=0, kind="fail")

        outcome = processor.probe(vm(nic)).result()

        assert seen(outcome) == ()
        assert len(outcome.warnings) == 1

    def test_hides_no_difference_of_the_file(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        fakes.fault("service.find", at=0, kind="fail")

        outcome = processor.probe(vm(shared(VF, vlan=101, **to()))).result()

        (difference,) = seen(outcome)
        assert "has VLAN 100, not 101" in difference

    @pytest.mark.parametrize("service", [net(attached()), net(attached(vlan="auto")), NET])
    def test_is_a_warning_of_a_probe_of_the_service(
        self, processor: HandlerProcessor, fakes: Substrate, service: SliverRef
    ) -> None:
        done(processor.create(vm(shared(VF, vlan=150))).result())
        done(processor.create(net(attached())).result())
        fakes.fault("compute.find", at=0, kind="fail")

        outcome = processor.probe(service).result()

        assert seen(outcome) == ()
        (warning,) = outcome.warnings
        assert warning.startswith("it is not known what vm-1 has: interfaces[0].attach: compute.")
        assert SILENT in warning

    def test_that_its_own_stamp_does_not_tell_is_not_compared(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(vm(shared(VF, vlan=150))).result())
        done(processor.create(net(attached())).result())
        fakes.service_stamps.clear()
        fakes.fault("compute.find", at=0, kind="fail")

        outcome = processor.probe(net(attached())).result()

        assert (seen(outcome), len(outcome.warnings)) == ((), 1)

    def test_is_not_told_as_none_after_a_modification(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        fakes.calls.clear()
        done(processor.modify(net(at("vfs", vlan=100, bandwidth=10))).result())
        fakes.fault("service.find", at=fakes.calls["service.find"], kind="fail")

        outcome = done(processor.modify(net(at("vfs", vlan=100, bandwidth=11))).result())

        (warning,) = outcome.warnings
        assert warning.startswith(
            "it is not known what net-1 has now, nor whether vm-1 must be modified: service.find "
        )
        assert SILENT in warning

    def test_that_is_gone_is_still_told_as_such(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        fakes.services.clear()

        outcome = processor.probe(vm(shared(VF, **to()))).result()

        assert "there is no network service net-1" in seen(outcome)[-1]
        assert outcome.warnings == ()


class TestAControllerThatIsDown:
    """The site has two: NSO is down, and nothing of the stitch is there."""

    @pytest.fixture
    def site(self, site: Site, tmp_path: Path) -> Site:
        password = tmp_path / "password"
        password.write_text("secret\n")
        password.chmod(0o600)
        nso = {"url": "http://127.0.0.1:9/restconf", "user": "am", "password_file": password}
        values = site.model_dump() | {
            "drivers": site.drivers | {"L2Bridge": "nso"},
            "services": site.services.model_dump() | {"nso": nso},
            "limits": site.limits.model_dump() | {"unanswered": 0.0},
        }
        return Site.model_validate(values)

    def test_holds_up_no_stitch_of_another(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("t1"), kind="FABNetv4")).result())

        done(processor.create(vm(vnic(**to()))).result())

        assert stamp(fakes).interface.port == "t1"
        outcome = processor.probe(vm(vnic(**to()))).result()
        assert (seen(outcome), outcome.warnings) == ((), ())

    def test_is_told_where_no_other_has_the_end(self, processor: HandlerProcessor) -> None:
        outcome = processor.create(vm(vnic(**to()))).result()

        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == (
            "Unreachable",
            "components[0].interface.service",
        )


class TestWhatCouldNotBeTakenBack:
    """It may still use what it was stitched to."""

    @pytest.fixture
    def left(self, processor: HandlerProcessor, fakes: Substrate) -> Outcome:
        """A VM whose creation failed after it took effect, and which could not be removed."""
        done(processor.create(net(at("t1"))).result())
        fakes.fault("compute.create", kind="after")
        fakes.fault("compute.delete", at=0, kind="fail")
        outcome = processor.create(vm(vnic(**to()))).result()
        assert list(fakes.servers) == ["vm-1"]
        fakes.mend()
        return outcome

    def test_holds_what_it_is_stitched_to(
        self, processor: HandlerProcessor, fakes: Substrate, left: Outcome
    ) -> None:
        assert left.status is Status.PARTIAL
        (stitches,) = (step for step in left.steps if step.step == "stitches")
        assert stitches.status is StepStatus.UNDO_FAILED
        assert stitches.error == "kept: something may use it still"

        outcome = processor.delete(NET).result()

        assert outcome.error
        assert "vm-1/nic is stitched to interface i1" in outcome.error.message
        assert list(fakes.services) == ["net-1"]

    @pytest.mark.parametrize("undo", [False, True])
    def test_is_recovered_and_deleted(
        self, processor: HandlerProcessor, site: Site, left: Outcome, undo: bool
    ) -> None:
        for future in processor.recover(undo=undo):
            done(future.result())

        done(processor.delete(SliverRef(id="vm-1", type="VM")).result())
        done(processor.delete(NET).result())
        assert not Stitches(site).of("vm-1")

    def test_holds_nothing_once_it_is_gone_with_the_same_operation(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        done(processor.create(net(at("t1"))).result())
        fakes.fault("compute.create", kind="after")
        fakes.fault("compute.delete", kind="fail")

        outcome = processor.create(vm(vnic(**to()))).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert not fakes.servers
        assert not Stitches(site).of("vm-1")
        done(processor.delete(NET).result())

    def test_of_a_modification_holds_what_that_was_stitched_to(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("t1"))).result())
        done(processor.create(vm()).result())
        fakes.fault("compute.attach_port", kind="after")
        fakes.fault("compute.detach_port", at=0, kind="fail")
        fakes.fault("network.delete_port", at=0, kind="fail")

        outcome = processor.modify(vm(vnic(**to()))).result()

        assert outcome.status is Status.PARTIAL
        assert fakes.ports["vm-1", "nic"].source == "t1"
        refusal = processor.delete(NET).result().error
        assert refusal
        assert "vm-1/nic is stitched to interface i1" in refusal.message
        fakes.mend()
        for future in processor.recover(undo=True):
            done(future.result())
        done(processor.delete(NET).result())


class TestAModificationThatIsUndone:
    """Its journal entry was left by a process that was killed when all was done."""

    def begin(self, site: Site, sliver: NodeSliver, before: NodeSliver) -> None:
        was, now = (s.model_dump(mode="json", exclude_none=True) for s in (before, sliver))
        Journal(FileStore(site.state_dir)).begin(
            Operation.MODIFY, now, owns_everything=False, before=was
        )

    def test_gives_up_what_it_was_stitched_to(
        self, site: Site, processor: HandlerProcessor
    ) -> None:
        done(processor.create(net(at("vfs"))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        self.begin(site, vm(shared(VF, **to())), before=vm())

        for future in processor.recover(undo=True):
            done(future.result())

        done(processor.delete(SliverRef(id="net-1", type="L2Bridge")).result())

    def test_holds_again_what_it_is_stitched_to(
        self, site: Site, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        was = fakes.servers["vm-1"].stamp.sliver
        done(processor.modify(vm()).result())
        self.begin(site, vm(), before=was)

        for future in processor.recover(undo=True):
            done(future.result())

        assert stamp(fakes).interface.vlan == 100
        assert processor.delete(SliverRef(id="net-1", type="L2Bridge")).result().error

    def test_gives_up_what_it_was_stitched_to_though_another_end_has_changed(
        self, site: Site, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("vfs", vlan=100))).result())
        done(processor.create(vm(shared(VF, **to()))).result())
        was = fakes.servers["vm-1"].stamp.sliver
        done(processor.create(net(at("t1"), sliver="net-2")).result())
        now = vm(shared(VF, **to()), vnic(**to(service="net-2")) | {"id": "tap"})
        done(processor.modify(now).result())
        done(processor.modify(net(at("vfs", vlan=101))).result())
        self.begin(site, now, before=was)

        for future in processor.recover(undo=True):
            done(future.result())

        assert stamp(fakes).interface.vlan == 100
        done(processor.delete(SliverRef(id="net-2", type="L2Bridge")).result())
        assert processor.delete(SliverRef(id="net-1", type="L2Bridge")).result().error


class TestTheIdOfAService:
    @pytest.mark.parametrize("ask", [HandlerProcessor.create, HandlerProcessor.plan])
    def test_is_not_a_nodes_too(
        self, processor: HandlerProcessor, fakes: Substrate, ask: Callable[..., Any]
    ) -> None:
        done(processor.create(net(at("vfs"))).result())

        outcome = ask(processor, vm(sliver="net-1")).result()

        assert outcome.error
        assert "net-1 is a L2Bridge, not a VM" in outcome.error.message
        assert (list(fakes.services), list(fakes.servers)) == (["net-1"], [])


class TestDeletion:
    def test_of_a_service_that_a_node_is_stitched_to_is_refused(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        done(processor.create(net(at("t1"))).result())
        done(processor.create(vm(vnic(**to()))).result())
        service = SliverRef(id="net-1", type="L2Bridge")

        outcome = processor.delete(service).result()

        assert outcome.error
        assert "vm-1/nic is stitched to interface i1" in outcome.error.message
        assert (outcome.left, processor.unfinished()) == ((), ())
        assert list(fakes.services) == ["net-1"]
        done(processor.delete(SliverRef(id="vm-1")).result())
        done(processor.delete(service).result())
        assert not Stitches(site).to("net-1")

    def test_by_another_type_is_refused_and_forgets_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, site: Site
    ) -> None:
        done(processor.create(vm(vnic())).result())
        done(processor.create(net(attached())).result())
        noted = Stitches(site).of("net-1")

        outcome = processor.delete(SliverRef(id="net-1", type="VM")).result()

        assert outcome.error
        assert "net-1 is a L2Bridge, not a VM" in outcome.error.message
        assert (list(fakes.services), Stitches(site).of("net-1")) == (["net-1"], noted)
        assert noted

    def test_a_node_that_was_modified_away_does_not_hold_it(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(net(at("vfs"))).result())
        done(processor.create(vm(shared(VF, **to()))).result())

        done(processor.modify(vm()).result())

        done(processor.delete(SliverRef(id="net-1", type="L2Bridge")).result())

    def test_goes_on_where_the_notes_cannot_be_read(
        self, processor: HandlerProcessor, site: Site, fakes: Substrate
    ) -> None:
        done(processor.create(vm(sliver="vm-2")).result())
        (site.state_dir / "pools.sqlite").write_bytes(b"no database")

        probed, deleted = (
            processor.probe(vm(sliver="vm-2")),
            processor.delete_all([vm(sliver="vm-2")]),
        )

        assert done(probed.result()).observed
        done(deleted[0].result())
        assert not fakes.servers


class TestSeveral:
    def test_are_created_each_after_those_that_it_names(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        service = net(attached(), at("t2", "i2"))
        stitched = vm(vnic(**to("i2")), sliver="vm-2")

        outcomes = [f.result() for f in processor.create_all([stitched, service, vm(vnic())])]

        assert [done(outcome).sliver.id for outcome in outcomes] == ["vm-2", "net-1", "vm-1"]
        assert fakes.ports["vm-2", "nic"].source == "t2"

    def test_are_deleted_in_reverse_also_by_their_ids(self, processor: HandlerProcessor) -> None:
        service = net(at("t1"))
        node = vm(vnic(**to()))
        for outcome in processor.create_all([service, node]):
            done(outcome.result())

        outcomes = processor.delete_all([service.ref(), node.ref()])

        assert [done(outcome.result()).sliver.id for outcome in outcomes] == ["net-1", "vm-1"]

    def test_what_names_one_that_failed_is_not_begun(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("service.apply", kind="fail")
        alone = vm(sliver="vm-3")

        futures = processor.create_all([vm(vnic(**to())), net(at("t1")), alone])
        dependent, failed, other = (future.result() for future in futures)

        assert (failed.status, other.status) == (Status.FAILED, Status.DONE)
        assert dependent.status is Status.FAILED
        assert dependent.error
        assert "create of net-1 was not done, which must be first" in dependent.error.message
        assert list(fakes.servers) == ["vm-3"]

    def test_a_service_stays_if_its_node_could_not_be_deleted(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        service, node = net(at("t1")), vm(vnic(**to()))
        for outcome in processor.create_all([service, node]):
            done(outcome.result())
        fakes.fault("compute.delete", at=0, kind="fail")

        first, second = (f.result() for f in processor.delete_all([service, node]))

        assert second.status is Status.FAILED
        assert first.error
        assert "delete of vm-1 was not done, which must be first" in first.error.message
        assert list(fakes.services) == ["net-1"]

    def test_in_a_circle_are_refused_with_their_names(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        with pytest.raises(InvalidSliver, match=r"in a circle: (vm-1 → net-1|net-1 → vm-1) → "):
            processor.create_all([vm(vnic(**to())), net(attached())])

        assert not fakes.servers

    def test_a_circle_that_is_closed_later_is_refused_too(
        self, processor: HandlerProcessor
    ) -> None:
        done(processor.create(net(at("t1"))).result())
        done(processor.create(vm(vnic(**to()), {**vnic(), "id": "nic2"})).result())
        other = {"id": "i2", "attach": {"sliver": "vm-1", "component": "nic2"}}

        where, message = refused(processor.modify(net(at("t1"), other)).result())

        assert where == "interfaces[1].attach"
        assert "sliver vm-1 names net-1: each would need the other first" in message

    def test_are_swept_in_order(
        self, site: Site, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        others = [vm(sliver=f"vm-{n}") for n in range(2, 7)]
        for future in processor.create_all([net(at("t1")), vm(vnic(**to())), *others]):
            done(future.result())
        expected = [other.id for other in others]

        found = processor.find_unexpected(expected)
        swept = processor.sweep(expected, found.token, at_most=100)

        assert {done(each.result()).sliver.id for each in swept.deletions} == {"vm-1", "net-1"}
        assert not fakes.services

    def test_a_cancelled_one_holds_up_nobody(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        service, node = processor.create_all([net(at("t1")), vm(vnic(**to()))])
        node.cancel()

        done(service.result())
        done(processor.create(vm(vnic(**to()))).result())

    def test_what_is_asked_for_later_comes_later(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        _, made = processor.create_all([net(at("t1")), vm(vnic(**to()))])

        done(processor.delete(SliverRef(id="vm-1")).result())

        done(made.result())
        assert not fakes.servers

    def test_ports_are_made_after_their_servers(self) -> None:
        ports = {"id": "p", "network": "red", "ports": [{"id": "a", "server": "vm-1"}]}

        found = needs([VNicPortsSliver.model_validate(ports), vm()])

        assert found == {"p": ("vm-1",), "vm-1": ()}


def test_the_command_line_orders_what_its_files_name(site: Site, tmp_path: Path) -> None:
    slivers: dict[str, NodeSliver | NetworkService] = {
        "vm": vm(vnic(**to())),
        "net": net(at("t1")),
    }
    for name, sliver in slivers.items():
        text = sliver.model_dump_json(exclude_none=True)
        (tmp_path / f"{name}.json").write_text(text)
    config = tmp_path / "site.json"
    config.write_text(site.model_dump_json(exclude_none=True))
    files = [str(tmp_path / f"{name}.json") for name in slivers]

    made = CliRunner().invoke(main, ["create", *files, "--site", str(config), "--json"])
    gone = CliRunner().invoke(main, ["delete", *files, "--site", str(config), "--json"])

    for result in (made, gone):
        assert [outcome["status"] for outcome in outcomes_of(result.stdout)] == ["done", "done"]
