"""Which handler and which drivers serve a type."""

import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.fake import FakeColdDevice, FakeCompute, FakeDevice, FakeGuest
from fabric_direct.drivers.libvirt.passthrough.cold_plug import FpgaDevice, Sn1022Device
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.sriov import SriovDevice
from fabric_direct.errors import InvalidSite, InvalidSliver, Unsupported
from fabric_direct.handlers import registry
from fabric_direct.handlers.vm.handler import VMSliverHandler
from fabric_direct.model import Fpga, NodeSliver, PciAddress
from fabric_direct.site.config import Site


def test_a_type_has_its_handler() -> None:
    assert registry.handler_for("VM") is VMSliverHandler


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidSliver, match=r"known: .*L2Bridge, .*VM") as caught:
        registry.handler_for("Toaster")
    assert caught.value.field == "type"


def test_the_site_names_the_drivers(fake_site: Site) -> None:
    drivers = registry.host_drivers(fake_site, "localhost")

    assert isinstance(drivers.compute, FakeCompute)
    assert isinstance(drivers.guest, FakeGuest)
    assert isinstance(drivers.devices["GPU"], FakeDevice)


def test_an_unknown_driver_is_refused_with_the_installed_ones(fake_site: Site) -> None:
    site = fake_site.model_copy(update={"drivers": fake_site.drivers | {"VM": "magic"}})

    with pytest.raises(InvalidSite, match=r"'magic'.*installed: fake, libvirt"):
        registry.host_drivers(site, "localhost")


def test_a_site_may_look_into_no_guest(fake_site: Site) -> None:
    site = fake_site.model_copy(update={"guest": "none"})

    assert registry.host_drivers(site, "localhost").guest is None


def test_type_and_model_go_before_the_type(fake_site: Site) -> None:
    site = fake_site.model_copy(update={"drivers": fake_site.drivers | {"FPGA_X1": "hostdev"}})
    component = {"type": "FPGA", "id": "f", "bdf": ["25:00.0"]}
    fpgas = NodeSliver.model_validate(
        {
            "id": "s",
            "name": "n",
            "image": "i",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "components": [
                component | {"model": "X1"},
                component | {"id": "g", "bdf": ["26:00.0"]},
            ],
        }
    ).devices()

    drivers = registry.host_drivers(site, "localhost")

    assert not isinstance(drivers.device(fpgas[0]), FakeDevice)
    assert isinstance(drivers.device(fpgas[1]), FakeDevice)


def test_each_type_of_device_has_a_driver_unless_the_site_names_another(fake_site: Site) -> None:
    site = fake_site.model_copy(update={"drivers": {"VM": "libvirt", "GPU": "fake"}})

    drivers = registry.host_drivers(site, "localhost").devices

    assert {key: type(driver) for key, driver in drivers.items()} == {
        "GPU": FakeDevice,
        "SmartNIC": HostdevDevice,
        "SharedNIC": SriovDevice,
        "FPGA": FpgaDevice,
        "FPGA_Xilinx-SN1022": Sn1022Device,
        "NVME": HostdevDevice,
    }


def test_devices_of_servers_in_memory_are_in_memory_too_unless_the_site_names_another(
    fake_site: Site,
) -> None:
    site = fake_site.model_copy(update={"drivers": {"VM": "fake", "FPGA": "fake-cold"}})

    drivers = registry.host_drivers(site, "localhost").devices

    assert {key: type(driver) for key, driver in drivers.items()} == {
        **dict.fromkeys(("GPU", "SmartNIC", "SharedNIC", "NVME"), FakeDevice),
        "FPGA": FakeColdDevice,
    }


def test_a_driver_of_several_types_is_one(fake_site: Site) -> None:
    site = fake_site.model_copy(update={"drivers": {"VM": "libvirt"}})
    every = registry.host_drivers(site, "localhost")

    for drivers in (every, every.within(Deadline.within(1), 1)):
        has = drivers.devices
        assert has["GPU"] is has["SmartNIC"] is has["NVME"]
        assert has["GPU"] is not has["SharedNIC"]


def test_a_driver_of_several_types_is_made_once(
    fake_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = FakeDevice.__init__

    def counted(device: FakeDevice, site: Site, host: str) -> None:
        made.append(host)
        make(device, site, host)

    monkeypatch.setattr(FakeDevice, "__init__", counted)

    registry.host_drivers(fake_site, "localhost")

    assert made == ["localhost"]


def test_a_type_that_the_site_names_counts_for_all_of_its_models(fake_site: Site) -> None:
    sn1022 = Fpga(id="f", model="Xilinx-SN1022", bdf=(PciAddress(0, 0x25, 0, 0),))

    drivers = registry.host_drivers(fake_site, "localhost")

    assert isinstance(drivers.device(sn1022), FakeDevice)


def test_a_worker_that_the_site_does_not_know_passes_no_device_through(fake_site: Site) -> None:
    fpga = Fpga(id="f", bdf=(PciAddress(0, 0x25, 0, 0),))

    drivers = registry.host_drivers(fake_site, "elsewhere")

    with pytest.raises(Unsupported, match="no FPGA can be passed through") as caught:
        drivers.device(fpga)
    assert caught.value.where == "elsewhere"


def test_a_driver_that_a_function_makes_is_taken_to_have_flavors(
    fake_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def servers(site: Site, host: str) -> FakeCompute:
        return FakeCompute(site, host)

    monkeypatch.setattr(registry, "driver", lambda *_: servers)

    assert registry.has_flavors(fake_site)
