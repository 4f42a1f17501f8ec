"""Hardware models are named as FIM spells them, wherever one is named."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from fabric_direct.documents import parse
from fabric_direct.drivers.fake import FakeColdDevice, FakeDevice
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.handlers import registry
from fabric_direct.model import Fpga, Gpu, ModelName, NodeSliver, Outcome
from fabric_direct.placement.request import DeviceNeed
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Site
from fabric_direct.zones.wire import FreeDevices

SHOWN = {
    "Tesla T4": "Tesla-T4",
    "Tesla-T4": "Tesla-T4",
    "RTX6000": "RTX6000",
    "Quadro RTX 6000": "RTX6000",
    "Quadro RTX 6000/8000": "RTX6000",
    "Quadro-RTX-6000-8000": "RTX6000",
    "A30": "A30",
    "A30 PCIe": "A30",
    "A40": "A40",
    "ConnectX-6": "ConnectX-6",
    "BlueField-2-ConnectX-6": "BlueField-2-ConnectX-6",
    "ConnectX-7-100": "ConnectX-7-100",
    "P4510": "P4510",
    "Xilinx-U280": "Xilinx-U280",
    "Alveo U280": "Xilinx-U280",
    "Alveo SN1022": "Xilinx-SN1022",
    "Xilinx-SN1022": "Xilinx-SN1022",
}
"""How a model is shown and compared, by how it is spelled."""
_MODEL: TypeAdapter[str] = TypeAdapter(ModelName)


@pytest.mark.parametrize(("spelled", "shown"), SHOWN.items())
def test_a_model_is_one_however_it_is_spelled(spelled: str, shown: str) -> None:
    assert _MODEL.validate_python(spelled) == shown
    assert _MODEL.validate_python(shown) == shown


@pytest.mark.parametrize("bad", ["", " T4", "-T4", "T4\n", "T4;", "T\t4", "<T4>", "T4" * 40, "é"])
def test_what_is_no_model_is_refused(bad: str) -> None:
    with pytest.raises(ValidationError):
        _MODEL.validate_python(bad)


@pytest.mark.parametrize("spelled", SHOWN)
def test_each_thing_that_has_a_model_takes_it(spelled: str) -> None:
    bdf = ["25:00.0"]
    things = [
        AllowedDevice.model_validate({"type": "GPU", "model": spelled, "bdf": bdf[0]}),
        Gpu.model_validate({"id": "g", "model": spelled, "bdf": bdf}),
        DeviceNeed.model_validate({"component": "g", "type": "GPU", "model": spelled}),
        FreeDevices.model_validate({"type": "GPU", "model": spelled, "free": 1}),
    ]
    assert {thing.model for thing in things} == {SHOWN[spelled]}


SITE = """
site: TEST
state_dir: %s
guest: fake
drivers: {VM: fake, FPGA: fake, %s: fake-cold}
hosts:
  w1:
    devices:
      - {type: GPU, model: %s, bdf: "25:00.0"}
images: {i: {}}
"""


def site(tmp_path: Path, gpu: str = "A30 PCIe", fpga: str = "FPGA_Alveo SN1022") -> Site:
    return parse(SITE % (tmp_path, fpga, gpu), "site.yaml", Site, InvalidSite)


@pytest.mark.parametrize("key", ["FPGA_Alveo SN1022", "FPGA_Xilinx-SN1022", "FPGA_Alveo-SN1022"])
def test_a_driver_of_a_model_is_found_by_each_of_its_names(key: str, tmp_path: Path) -> None:
    drivers = registry.host_drivers(site(tmp_path, fpga=key), "w1")
    for spelled in ("Alveo SN1022", "Xilinx-SN1022"):
        card = Fpga.model_validate({"id": "f", "model": spelled, "bdf": ["26:00.0"]})
        assert isinstance(drivers.device(card), FakeColdDevice)
    other = Fpga.model_validate({"id": "f", "model": "Alveo U280", "bdf": ["26:00.0"]})
    assert type(drivers.device(other)) is FakeDevice


def test_two_spellings_of_one_model_in_drivers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSite, match="FPGA_Xilinx-SN1022 is FPGA_Alveo SN1022") as refused:
        site(tmp_path, fpga="FPGA_Alveo SN1022: fake, FPGA_Xilinx-SN1022")
    assert "drivers" in str(refused.value)


@pytest.mark.parametrize(("allowed", "wanted"), [("A30 PCIe", "A30"), ("A30", "A30 PCIe")])
@pytest.mark.parametrize("place", [{"host": "w1"}, {"host": "auto"}], ids=["named", "placed"])
def test_a_sliver_gets_the_device_that_the_site_allows_by_another_name(
    place: dict[str, str], allowed: str, wanted: str, tmp_path: Path
) -> None:
    gpu: dict[str, Any] = {"type": "GPU", "id": "gpu", "model": wanted}
    if place["host"] == "w1":
        gpu["bdf"] = ["25:00.0"]
    values = {"id": "vm", "name": "n", "image": "i", "components": [gpu], **place}
    sliver = NodeSliver.model_validate(values | {"capacities": {"core": 1, "ram": 1, "disk": 10}})
    with HandlerProcessor(site(tmp_path, gpu=allowed)) as processor:
        done: Outcome = processor.create(sliver).result()
        assert done.error is None
        (device,) = (d for d in processor.devices("w1") if d.owner)
        assert device.model == "A30"


def test_the_schema_for_editors_takes_what_is_taken() -> None:
    assert '"^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,62}$"' in str(
        AllowedDevice.model_json_schema()
    ).replace("'", '"')


def test_a_wrong_model_is_refused_in_words() -> None:
    text = "{id: vm, name: n, image: i, capacities: {core: 1, ram: 1, disk: 1}, components: [%s]}"
    gpu = '{type: GPU, id: g, model: "T4;", bdf: ["25:00.0"]}'
    with pytest.raises(InvalidSliver, match=r"components\[0\]\.model: "):
        parse(text % gpu, "vm.yaml", NodeSliver, InvalidSliver)
