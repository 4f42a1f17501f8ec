"""Slivers and what belongs to them: what is taken, what is refused, and JSON there and back."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fabric_direct.errors import Conflict, InvalidSliver, NotFound
from fabric_direct.model import (
    ErrorReport,
    NodeSliver,
    Outcome,
    PciAddress,
    SliverRef,
    State,
    Status,
    refuse_twice,
)
from tests.conftest import KEY

MakeVm = Callable[..., NodeSliver]


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))
def test_a_pci_address_is_written_as_it_is_read(
    domain: int, bus: int, slot: int, function: int
) -> None:
    address = PciAddress(domain, bus, slot, function)

    assert PciAddress.parse(str(address)) == address


@pytest.mark.parametrize("text", ["25:00.1", "0:25:00.1", "000:25:00.1"])
def test_a_pci_address_without_a_whole_domain_is_completed(text: str) -> None:
    assert str(PciAddress.parse(text)) == "0000:25:00.1"


@pytest.mark.parametrize(
    "text",
    ["", "25:00", "0000:25:00.8", "0000:25:20.0", "0000:25:00.0 ", "0000:25:00.0\n", "00000:25:00.0",
     "0000:2g:00.0", "../0000:25:00.0", "0000:25:00.0;reboot", "٠٠٠٠:25:00.0"],
)  # fmt: skip
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PCI address"):
        PciAddress.parse(text)


def test_a_sliver_goes_to_json_and_back(vm: MakeVm) -> None:
    gpu = {"type": "GPU", "id": "gpu", "bdf": ["25:00.0", "25:00.1"]}
    nic = {
        "type": "vNIC",
        "id": "nic9",
        "network": "red",
        "interface": {"mac": "52:54:00:AA:BB:CC", "ipv4": "10.20.1.5/24", "ipv6": "fd00::5/64",
                      "vlan": 5, "bandwidth": 100},
    }  # fmt: skip
    sliver = vm(components=[gpu, nic], boot_script="#!/bin/sh\necho <&>\n")

    assert NodeSliver.model_validate_json(sliver.model_dump_json()) == sliver
    assert sliver.interfaces()[0].mac == "52:54:00:aa:bb:cc"


def test_a_sliver_cannot_be_changed(vm: MakeVm) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        vm().name = "other"  # type: ignore[misc]


def nic(**interface: Any) -> dict[str, Any]:
    component = {"type": "vNIC", "id": "n", "network": "red", "interface": interface}
    return {"components": [component]}


HOSTILE = [
    "a b",
    "a;b",
    "a$(b)",
    "a`b`",
    "<a>",
    "a&b",
    'a"b',
    "a'b",
    "../a",
    "a/b",
    "a\nb",
    "-a",
    "",
    "ä",
    "a" * 256,
]


def test_an_image_and_a_volume_may_have_the_names_of_glance_and_cinder(vm: MakeVm) -> None:
    disk = {"type": "Storage", "id": "disk", "volume": "a project's volume " + "ü" * 200}
    sliver = vm(image="a" * 255, components=[disk])

    assert NodeSliver.model_validate_json(sliver.model_dump_json()) == sliver


class TestRefused:
    @pytest.mark.parametrize("field", ["id", "name", "host", "flavor"])
    def test_names_longer_than_a_label_of_dns(self, vm: MakeVm, field: str) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(**{field: "a" * 64})
        assert caught.value.errors()[0]["loc"] == (field,)

    @pytest.mark.parametrize("name", ["", "../a", "a/b", "a\nb", "a\x00", "-a", " a", "a" * 256])
    def test_names_that_no_volume_has(self, vm: MakeVm, name: str) -> None:
        with pytest.raises(ValidationError, match="must have 1 to 255 characters"):
            vm(components=[{"type": "Storage", "id": "disk", "volume": name}])

    @pytest.mark.parametrize("text", HOSTILE)
    @pytest.mark.parametrize("field", ["id", "name", "host", "image", "flavor"])
    def test_names_with_shell_xml_or_path_characters(
        self, vm: MakeVm, field: str, text: str
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(**{field: text})
        assert caught.value.errors()[0]["loc"] == (field,)

    @pytest.mark.parametrize(
        "interface",
        [
            {"mac": "52:54:00:00:00"},
            {"mac": "52-54-00-00-00-01"},
            {"mac": "01:00:5e:00:00:01"},
            {"mac": "ff:ff:ff:ff:ff:ff"},
            {"mac": "00:00:00:00:00:00"},
            {"mac": 525400000001},
            {"vlan": 0},
            {"vlan": 4095},
            {"vlan": -1},
            {"vlan": "5"},
            {"vlan": True},
            {"bandwidth": 0},
            {"bandwidth": 1.5},
            {"ipv4": "10.0.0.5"},
            {"ipv4": "10.0.0.5/33"},
            {"ipv4": "fd00::5/64"},
            {"ipv6": "fd00::5"},
            {"ipv6": "10.0.0.5/24"},
            {"speed": 5},
        ],
    )
    def test_interfaces(self, vm: MakeVm, interface: dict[str, Any]) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(**nic(**interface))
        place = caught.value.errors()[0]["loc"]
        assert place[:2] == ("components", 0)
        assert place[-1] == next(iter(interface))

    @pytest.mark.parametrize("field", ["core", "ram", "disk"])
    @pytest.mark.parametrize("value", [0, -1, 10**9, 1.5, "1", True, None])
    def test_capacities(self, vm: MakeVm, field: str, value: object) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(capacities={"core": 1, "ram": 1, "disk": 1} | {field: value})
        assert caught.value.errors()[0]["loc"] == ("capacities", field)

    @pytest.mark.parametrize(
        "key",
        ["", "ssh-ed25519", "ssh-ed25519 !!!",
         "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA", "-----BEGIN OPENSSH KEY-----",
         'command="reboot" ssh-ed25519 AAAA', "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA=="],
    )  # fmt: skip
    def test_what_is_no_public_key(self, vm: MakeVm, key: str) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(ssh_keys=[key])
        assert caught.value.errors()[0]["loc"] == ("ssh_keys", 0)

    def test_two_keys_in_one(self, vm: MakeVm) -> None:
        with pytest.raises(ValidationError, match="one line"):
            vm(ssh_keys=["\n".join(vm().ssh_keys * 2)])

    @pytest.mark.parametrize(
        "component",
        [
            {"type": "Toaster", "id": "t"},
            {"id": "t"},
            {"type": "Storage", "id": "s"},
            {"type": "Storage", "id": "s", "size": 1, "volume": "v"},
            {"type": "Storage", "id": "s", "size": 0},
            {"type": "GPU", "id": "g", "bdf": ["25:00.0", "0000:25:00.0"]},
            {"type": "SharedNIC", "id": "v", "bdf": ["25:00.1", "25:00.2"]},
            {"type": "vNIC", "id": "a.b", "network": "red"},
            {"type": "vNIC", "id": "n"},
        ],
    )
    def test_components(self, vm: MakeVm, component: dict[str, Any]) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(components=[component])
        assert caught.value.errors()[0]["loc"][:2] == ("components", 0)

    @pytest.mark.parametrize(
        ("components", "what"),
        [
            ([{"type": "Storage", "id": "a", "size": 1}] * 2, "id a"),
            (
                [nic(mac="52:54:00:00:00:01")["components"][0] | {"id": i} for i in "ab"],
                "mac 52:54:00:00:00:01",
            ),
            ([{"type": "GPU", "id": i, "bdf": ["25:00.0"]} for i in "ab"], "bdf 0000:25:00.0"),
        ],
    )  # fmt: skip
    def test_the_same_thing_twice(
        self, vm: MakeVm, components: list[dict[str, Any]], what: str
    ) -> None:
        with pytest.raises(ValidationError, match=f"{what} is given twice"):
            vm(components=components)

    def test_unknown_fields(self, vm: MakeVm) -> None:
        with pytest.raises(ValidationError) as caught:
            vm(colour="red")
        assert caught.value.errors()[0]["loc"] == ("colour",)


@pytest.mark.parametrize("sign", list("\n\r\x00\x0b\x0c\x1b\x7f\x85"))
def test_a_key_with_a_control_character_is_refused(vm: MakeVm, sign: str) -> None:
    with pytest.raises(ValidationError, match="must be one line"):
        vm(ssh_keys=(f"{KEY}{sign}command=x",))


class Counted(str):
    """A text that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)


def test_many_values_are_not_each_compared_with_all_others() -> None:
    values: list[str] = [Counted(str(n)) for n in range(1000)]

    refuse_twice("mac", values)

    assert Counted.compared < 10 * len(values)


def test_the_stamp_has_the_boot_scripts_digest_only(vm: MakeVm) -> None:
    stamp = vm(boot_script="#!/bin/sh\necho secret\n").stamp()

    assert "secret" not in stamp.model_dump_json()
    assert stamp != vm(boot_script="#!/bin/sh\necho other\n").stamp()


def test_an_outcome_goes_to_json_and_back() -> None:
    outcome = Outcome(
        operation="probe",
        sliver=SliverRef(id="a"),
        status=Status.DONE,
        observed={"state": State.ABSENT, "devices": ()},
    )

    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome


def test_an_outcome_knows_which_error_ended_it() -> None:
    done = Outcome(operation="probe", sliver=SliverRef(id="a"), status=Status.DONE)
    error = ErrorReport(kind="NotFound", message="it is not there")
    failed = done.model_copy(update={"status": Status.FAILED, "error": error})

    assert failed.failed_by(Conflict, NotFound)
    assert not failed.failed_by(Conflict)
    assert not done.failed_by(NotFound)


def test_an_error_says_what_where_why_and_what_to_do() -> None:
    error = InvalidSliver(
        "must be positive",
        field="components[1].size",
        where="vm.yaml:12",
        why="it is 0",
        remedy="give 1",
    )

    assert str(error) == "components[1].size: must be positive (vm.yaml:12): it is 0. give 1."


def test_an_error_survives_its_way_from_a_pool_worker() -> None:
    error = InvalidSliver("bad", field="name", where="here", why="so", remedy="mend")

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert type(copy) is InvalidSliver
    assert vars(copy) == vars(error)
