"""The actor's handlers where fabric_am made the VM: adopted at first use, or refused by name."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabric_direct.actor import VMHandler, VnicNetHandler
from fabric_direct.actor.site import processor_of
from fabric_direct.site.config import Site
from tests.unit.adopted_site import DRIVES, Cloud, am, cloud, site, worker
from tests.unit.fabric_am import PROJECT, FabricAm, Made
from tests.unit.pci_host import Worker

__all__ = ["am", "cloud", "site", "worker"]
NAMES = ("labels", "label_allocations", "flags", "network_service_info")


def part(kind: str, name: str, **values: Any) -> Any:
    """A component, or an interface, of a sliver of FIM."""
    has = dict.fromkeys(NAMES) | values
    getters = {"get_type": kind, "get_name": name, "get_model": has.pop("model", None)}
    return SimpleNamespace(**has, **{g: (lambda v=v: v) for g, v in getters.items()})


def labels(**values: Any) -> Any:
    names = ("bdf", "mac", "vlan", "ipv4", "ipv4_subnet", "ipv6", "ipv6_subnet", "instance")
    more = ("instance_parent", "local_name", "device_name")
    return SimpleNamespace(**(dict.fromkeys(names + more) | values))


def node(*components: Any) -> Any:
    made = part("VM", "node1", label_allocations=labels(instance_parent="w1", instance="i-1"))
    made.attached_components_info = SimpleNamespace(
        devices={each.get_name(): each for each in components}
    )
    made.capacity_hints = SimpleNamespace(instance_type="small")
    made.capacity_allocations = SimpleNamespace(core=1, ram=1, disk=1)
    made.get_image_ref = lambda: "tiny"
    made.get_boot_script = lambda: None
    return made


def drive(name: str, number: int) -> Any:
    return part("NVME", name, labels=labels(bdf=str(DRIVES[number])))


def volume(made: Made) -> Any:
    assert made.volume
    name = made.volume["name"].removeprefix(f"{PROJECT}-")
    return part("Storage", "disk1", label_allocations=labels(local_name=name))


def unit(reservation: str, sliver: Any, modified: Any = None) -> Any:
    return SimpleNamespace(
        get_sliver=lambda: sliver,
        get_modified=lambda: modified,
        get_reservation_id=lambda: reservation,
        get_properties=lambda: {"project_id": PROJECT},
        get_resource_type=lambda: "VM",
    )


Handlers = Callable[..., dict[str, str]]


@pytest.fixture
def properties(site: Site, tmp_path: Path) -> Handlers:
    """Write site.yaml; say whether the actor adopts."""

    def write(*, adopt: bool) -> dict[str, str]:
        path = tmp_path / f"site-{adopt}.yaml"
        values = json.loads(site.model_dump_json(exclude_none=True, exclude_defaults=True))
        values["actor"] |= {"adopt": adopt}
        path.write_text(json.dumps(values))
        return {"config.properties.file": str(path)}

    return write


@pytest.fixture
def adopting(properties: Handlers) -> VMHandler:
    return VMHandler(logging.getLogger("actor"), properties(adopt=True), None)


@pytest.fixture
def refusing(properties: Handlers) -> VMHandler:
    return VMHandler(logging.getLogger("actor"), properties(adopt=False), None)


def code(answer: Any) -> tuple[int, str]:
    result, _ = answer
    return result["target.code"], result.get("exception.message", "")


class TestWithoutAdopt:
    def test_a_deletion_fails_and_names_the_server_that_bears_no_stamp(
        self, am: FabricAm, refusing: VMHandler, cloud: Cloud
    ) -> None:
        made = am.create("node1", DRIVES[0])

        failed, why = code(refusing.delete(unit(made.reservation, node(drive("nvme1", 0)))))

        assert failed == -1
        assert made.server["name"] in why
        assert made.server["id"] in why
        assert cloud.changes == []

    def test_so_does_one_of_a_unit_without_a_sliver(
        self, am: FabricAm, refusing: VMHandler
    ) -> None:
        made = am.create()

        failed, why = code(refusing.delete(unit(made.reservation, None)))

        assert (failed, made.server["name"] in why) == (-1, True)

    def test_a_deletion_of_what_is_not_there_is_done(self, refusing: VMHandler) -> None:
        sliver = node()

        assert code(refusing.delete(unit("16fd2706-8baf-433b-82eb-8c7fada847da", sliver))) == (
            0,
            "",
        )

    def test_ports_of_a_service_are_named_as_well(self, am: FabricAm, properties: Handlers) -> None:
        made = am.create(vnics=1)
        nets = VnicNetHandler(logging.getLogger("actor"), properties(adopt=False), None)

        failed, why = code(nets.delete(unit("9b1deb4d", service(made))))

        assert (failed, made.vnics[0]["name"] in why) == (-1, True)


class TestWithAdopt:
    def test_a_deletion_adopts_and_leaves_nothing(
        self, am: FabricAm, adopting: VMHandler, cloud: Cloud, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0], volume=True)
        sliver = node(drive("nvme1", 0), volume(made))

        assert code(adopting.delete(unit(made.reservation, sliver))) == (0, "")

        cloud.settle()
        kinds = ("servers", "ports", "floatingips")
        assert {kind: cloud.things[kind] for kind in kinds} == {kind: {} for kind in kinds}
        assert [v["status"] for v in cloud.things["volumes"].values()] == ["available"]
        assert worker.records.known == {}
        assert worker.cleaned.call_count == 1

    def test_a_deletion_of_a_unit_without_a_sliver_adopts_what_is_there(
        self, am: FabricAm, adopting: VMHandler, cloud: Cloud, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0], volume=True)

        failed, why = code(adopting.delete(unit(made.reservation, None)))

        assert (failed, "the reservation was deleted" in why) == (-1, True)
        cloud.settle()
        assert cloud.things["servers"] == {}
        assert worker.cleaned.call_count == 1

    def test_a_modification_adopts_and_keeps_what_stays(
        self, am: FabricAm, adopting: VMHandler, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0], DRIVES[1], volume=True)
        was = node(drive("nvme1", 0), drive("nvme2", 1), volume(made))
        wanted = node(drive("nvme1", 0), volume(made))

        assert code(adopting.modify(unit(made.reservation, was, wanted))) == (0, "")

        assert {r.component for r in worker.records.known.values()} == {"nvme1"}
        assert worker.cleaned.call_count == 1

    def test_a_modification_after_an_adoption_by_names_erases_nothing(
        self, am: FabricAm, adopting: VMHandler, properties: Handlers, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0], volume=True)
        processor = processor_of(properties(adopt=True))
        (draft,) = processor.drafts()
        assert draft.adoption
        assert processor.adopt(draft.adoption).result().ok
        sliver = node(drive("nvme1", 0), volume(made))

        assert code(adopting.modify(unit(made.reservation, sliver, sliver))) == (0, "")

        assert worker.cleaned.call_count == 0
        assert not worker.calls.ask.called
        assert {r.component for r in worker.records.known.values()} == {"nvme1"}

    def test_an_action_adopts(
        self, am: FabricAm, adopting: VMHandler, properties: Handlers
    ) -> None:
        made = am.create()
        asked = {"operation": "reboot", "poa_id": "1"}

        result, _ = adopting.poa(unit(made.reservation, node()), asked)

        assert result["target.code"] == 0, result
        processor = processor_of(properties(adopt=True))
        assert [server.sliver for server in processor.slivers()] == [made.reservation]

    def test_a_server_whose_devices_another_sliver_has_is_left_alone(
        self, am: FabricAm, adopting: VMHandler, cloud: Cloud
    ) -> None:
        made, other = am.create("node1"), am.create("node1", DRIVES[0])

        sliver = node(drive("nvme1", 0))
        failed, why = code(adopting.delete(unit(made.reservation, sliver)))

        assert failed == -1
        assert other.domain
        assert other.domain.name() in why
        assert made.server["id"] in cloud.things["servers"]

    def test_ports_of_a_service_are_adopted_and_removed(
        self, am: FabricAm, adopting: VMHandler, properties: Handlers, cloud: Cloud
    ) -> None:
        made = am.create(vnics=2)
        nets = VnicNetHandler(logging.getLogger("actor"), properties(adopt=True), None)

        assert code(nets.delete(unit("9b1deb4d", service(made)))) == (0, "")

        cloud.settle()
        assert [p["id"] for p in cloud.things["ports"].values()] == [made.management["id"]]
        assert made.server["id"] in cloud.things["servers"]


def service(made: Made) -> Any:
    """A network service of FIM with the ports that were made for a server."""
    interfaces = {
        vnic["name"]: part(
            "DedicatedPort",
            f"if{number}",
            labels=labels(mac=vnic["mac_address"], instance_parent=made.server["name"]),
        )
        for number, vnic in enumerate(made.vnics)
    }
    found = part("L2Bridge", "net1", label_allocations=labels(vlan="100"))
    found.interface_info = SimpleNamespace(interfaces=interfaces)
    return found
