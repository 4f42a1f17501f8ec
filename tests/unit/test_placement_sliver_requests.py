"""Slivers as requests for placement, choices as slivers again, and documents that ask for many."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fabric_direct.cli import inputs
from fabric_direct.drivers.contract import ImageNeeds
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import NodeSliver, PciAddress
from fabric_direct.placement.batch_request import BatchRequest, SliverGroup
from fabric_direct.placement.plan import Choice
from fabric_direct.placement.request import Needs
from fabric_direct.placement.sliver_requests import as_known, placed, request_of, request_there
from fabric_direct.placement.state import FreeDevice

MakeVm = Callable[..., NodeSliver]
GPU, AUDIO, VF = map(PciAddress.parse, ("25:00.0", "25:00.1", "27:10.0"))
OPEN_GPU = {"type": "GPU", "id": "gpu"}


def needs(sliver: NodeSliver, image: ImageNeeds | None = None, **options: Any) -> Needs:
    return request_of(sliver, image, **options).needs


class TestRequest:
    def test_has_size_image_and_owner_of_the_sliver(self, vm: MakeVm) -> None:
        sliver = vm(host="auto", owner="p1", capacities={"core": 2, "ram": 4, "disk": 9})

        found = needs(sliver)

        assert (found.image, found.owner) == ("tiny", "p1")
        assert found.capacities == sliver.capacities

    def test_leaves_the_host_open_for_auto_and_keeps_one_that_is_named(self, vm: MakeVm) -> None:
        assert needs(vm(host="auto")).host is None
        assert needs(vm()).host is None
        assert needs(vm(host="w1")).host == "w1"

    def test_refuses_a_host_that_the_sliver_excludes(self, vm: MakeVm) -> None:
        with pytest.raises(InvalidSliver) as refusal:
            needs(vm(host="w1", placement={"exclude_hosts": ["w1"]}))
        assert refusal.value.field == "placement.exclude_hosts"

    def test_has_the_devices_named_or_open(self, vm: MakeVm) -> None:
        components = (
            {"type": "GPU", "id": "gpu", "model": "A30", "bdf": [str(GPU), str(AUDIO)]},
            {"type": "NVME", "id": "disk"},
            {"type": "SharedNIC", "id": "vf", "uplink": "ens1", "vepa": True},
            {"type": "vNIC", "id": "nic1", "network": "red"},
        )

        gpu, disk, vf = needs(vm(host="auto", components=components)).devices

        assert (gpu.type, gpu.model, gpu.bdf) == ("GPU", "A30", (GPU, AUDIO))
        assert (disk.type, disk.model, disk.bdf) == ("NVME", None, ())
        assert (vf.component, vf.uplink, vf.vepa) == ("vf", "ens1", True)

    def test_counts_volumes_where_they_take_disk_of_the_host(self, vm: MakeVm) -> None:
        volumes = (
            {"type": "Storage", "id": "new", "size": 30},
            {"type": "Storage", "id": "there", "volume": "shared"},
        )
        sliver = vm(capacities={"core": 1, "ram": 1, "disk": 10}, components=volumes)

        assert needs(sliver, volumes=True).capacities.disk == 40
        assert needs(sliver, volumes=False).capacities.disk == 10

    def test_of_absurd_volumes_is_one_that_no_host_meets(self, vm: MakeVm) -> None:
        volumes = [{"type": "Storage", "id": f"v{n}", "size": 1_048_576} for n in range(128)]
        assert needs(vm(components=volumes), volumes=True).capacities.disk == 1_048_576

    def test_has_what_the_image_needs_beside_the_sliver(self, vm: MakeVm) -> None:
        image = ImageNeeds(
            architecture="aarch64",
            required_traits=frozenset({"HW_A"}),
            forbidden_traits=frozenset({"HW_B"}),
            ram=2500,
            disk=20,
        )
        rules = {"required_traits": ["CUSTOM_C"], "anti_affinity": ["other"]}

        found = needs(vm(placement=rules), image)

        assert found.architecture == "aarch64"
        assert found.rules.required_traits == ("CUSTOM_C", "HW_A")
        assert found.rules.forbidden_traits == ("HW_B",)
        assert found.rules.anti_affinity == ("other",)
        assert (found.capacities.ram, found.capacities.disk) == (3, 20)

    def test_of_a_sliver_that_has_its_host_is_for_its_open_devices_alone(self, vm: MakeVm) -> None:
        components = (OPEN_GPU, {"type": "NVME", "id": "disk", "bdf": [str(VF)]})
        rules = {"required_traits": ["HW_A"], "exclude_hosts": ["w1"], "same_numa_node": True}

        found = request_there(vm(components=components, placement=rules), "w1").needs

        assert [device.component for device in found.devices] == ["gpu"]
        assert (found.host, found.rules.same_numa_node) == ("w1", True)
        assert found.rules.required_traits == ()


class TestPlaced:
    def test_has_host_and_functions(self, vm: MakeVm) -> None:
        choice = Choice(host="w2", cost=3, devices={"gpu": (GPU, AUDIO)})

        sliver = placed(vm(host="auto", components=(OPEN_GPU,)), choice)

        assert (sliver.host, sliver.open) == ("w2", False)
        assert sliver.devices()[0].bdf == (GPU, AUDIO)

    def test_an_open_device_gets_the_model_by_which_its_driver_is_found(self, vm: MakeVm) -> None:
        choice = Choice(host="w2", cost=3, devices={"gpu": (GPU, AUDIO)})
        there = [FreeDevice("GPU", (VF,), "other"), FreeDevice("GPU", (GPU, AUDIO), "A30")]

        sliver = placed(vm(host="auto", components=(OPEN_GPU,)), choice, there)

        assert sliver.devices()[0].model == "A30"

    def test_keeps_what_is_no_device_and_devices_that_were_named(self, vm: MakeVm) -> None:
        nic = {"type": "vNIC", "id": "nic1", "network": "red"}
        named = {"type": "GPU", "id": "gpu", "bdf": [str(GPU)]}
        sliver = vm(host="auto", components=(nic, named))

        for devices in ({}, {"gpu": (GPU,)}):
            found = placed(sliver, Choice(host="w2", cost=0, devices=devices))
            assert found.components == sliver.components

    @pytest.mark.parametrize(
        ("component", "devices"),
        [
            (OPEN_GPU, {}),
            ({"type": "GPU", "id": "gpu", "bdf": [str(VF)]}, {"gpu": (GPU,)}),
        ],
    )
    def test_refuses_a_choice_that_does_not_fit(
        self, vm: MakeVm, component: dict[str, Any], devices: Any
    ) -> None:
        with pytest.raises(InvalidSliver, match="for gpu"):
            placed(
                vm(host="auto", components=(component,)), Choice(host="w", cost=0, devices=devices)
            )

    def test_is_validated_again(self, vm: MakeVm) -> None:
        components = (OPEN_GPU, {"type": "NVME", "id": "disk"})
        choice = Choice(host="w", cost=0, devices={"gpu": (GPU,), "disk": (GPU,)})

        with pytest.raises(ValidationError, match="given twice"):
            placed(vm(host="auto", components=components), choice)


class TestKnown:
    def former(self, vm: MakeVm) -> NodeSliver:
        gpu = {"type": "GPU", "id": "gpu", "model": "A30", "bdf": [str(GPU)]}
        return vm(host="w2", components=(gpu,))

    def test_what_was_open_is_as_it_was_decided(self, vm: MakeVm) -> None:
        sliver = as_known(vm(host="auto", components=(OPEN_GPU,)), self.former(vm))
        assert sliver == self.former(vm)

    def test_what_is_named_stays(self, vm: MakeVm) -> None:
        named = vm(host="w2", components=({"type": "GPU", "id": "gpu", "bdf": [str(VF)]},))
        assert as_known(named, self.former(vm)) == named

    def test_nothing_is_taken_from_another_host(self, vm: MakeVm) -> None:
        elsewhere = vm(host="w1", components=(OPEN_GPU,))
        assert as_known(elsewhere, self.former(vm)) == elsewhere

    @pytest.mark.parametrize(
        "component",
        [
            {"type": "GPU", "id": "gpu2"},
            {"type": "NVME", "id": "gpu"},
            {"type": "GPU", "id": "gpu", "model": "A100"},
        ],
    )
    def test_another_component_stays_open(self, vm: MakeVm, component: dict[str, Any]) -> None:
        sliver = as_known(vm(host="auto", components=(component,)), self.former(vm))
        assert sliver.host == "w2"
        assert sliver.devices()[0].bdf == ()


class TestBatchRequest:
    def test_several_have_ids_and_names_of_their_own(self, vm: MakeVm) -> None:
        wanted = BatchRequest(
            slivers=(SliverGroup(count=2, sliver=vm(id="web", name="www", host="auto")),)
        )
        assert [(s.id, s.name) for s in wanted.instances()] == [
            ("web-1", "www-1"),
            ("web-2", "www-2"),
        ]

    def test_one_without_a_count_is_as_it_is(self, vm: MakeVm) -> None:
        assert BatchRequest(slivers=(SliverGroup(sliver=vm()),)).instances() == (vm(),)

    def test_those_apart_and_together_name_each_other(self, vm: MakeVm) -> None:
        several = [
            SliverGroup(count=2, apart=True, sliver=vm(id="a")),
            SliverGroup(count=2, together=True, sliver=vm(id="t")),
        ]
        a1, _, t1, _ = BatchRequest(slivers=tuple(several)).instances()
        assert a1.placement.anti_affinity == ("a-2",)
        assert t1.placement.affinity == ("t-2",)

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"count": 0}, "count"),
            ({"count": 1001}, "count"),
            ({"count": "2"}, "count"),
            ({"count": 2, "together": True, "apart": True}, "apart"),
            ({"count": 1000, "id": "x" * 60}, "sliver"),
            ({"count": 1000, "name": "x" * 60}, "sliver"),
        ],
    )
    def test_nonsense_is_refused_by_field(
        self, vm: MakeVm, tmp_path: Path, values: dict[str, Any], field: str
    ) -> None:
        own = {key: values.pop(key) for key in ("id", "name") if key in values}
        sliver = vm(**own).model_dump(mode="json", exclude_none=True)
        path = tmp_path / "request.json"
        path.write_text(json.dumps({"slivers": [{"sliver": sliver, **values}]}))

        with pytest.raises(InvalidSliver, match=r"request.json:\d+: ") as refusal:
            inputs.wanted(str(path))
        assert refusal.value.field.startswith(f"slivers[0].{field}")

    def test_an_id_that_comes_twice_is_refused(self, vm: MakeVm) -> None:
        many, one = SliverGroup(count=2, sliver=vm(id="web")), SliverGroup(sliver=vm(id="web-2"))
        with pytest.raises(ValidationError, match="web-2 is given twice"):
            BatchRequest(slivers=(many, one))

    def test_no_more_than_a_thousand_are_asked_for(self, vm: MakeVm) -> None:
        halves = (SliverGroup(count=501, sliver=vm(id=own)) for own in ("a", "b"))
        with pytest.raises(ValidationError, match="1002 are more than 1000"):
            BatchRequest(slivers=tuple(halves))

    def test_a_slivers_file_asks_for_one(self, vm: MakeVm, tmp_path: Path) -> None:
        path = tmp_path / "vm.json"
        path.write_text(vm().model_dump_json(exclude_none=True))
        assert inputs.wanted(str(path)).instances() == (vm(),)
