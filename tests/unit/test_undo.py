"""A step whose look at what is there fails has made nothing: undoing it changes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import DeviceDomain, HostDevice, PciFunction
from fabric_direct.drivers.fake import FakeCompute, FakeDevice, FakeNetwork, Substrate
from fabric_direct.engine.run import run
from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import DriverError
from fabric_direct.handlers.ports.steps import PlugServerPort
from fabric_direct.handlers.vm.steps.devices import AttachDevice
from fabric_direct.handlers.vm.steps.ports import HoldPort, PlugPort, SliverPorts
from fabric_direct.model import (
    DeviceState,
    Finding,
    Gpu,
    NodeSliver,
    PciAddress,
    VNic,
    VNicInterface,
)
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done

MakeVm = Callable[..., NodeSliver]
GPU = PciAddress.parse("25:00.0")
LIMITED = VNic(id="nic1", network="red", interface=VNicInterface(bandwidth=5))


@pytest.fixture
def server(processor: HandlerProcessor, vm: MakeVm) -> NodeSliver:
    done(processor.create(vm()).result())
    return vm()


def fails_to_look(fakes: Substrate, step: Step, method: str) -> None:
    """Run the step, find that it is not so, and let its look fail: the flow is undone."""
    step.check = lambda: Finding.WILL_CHANGE  # type: ignore[method-assign]
    fakes.fault(method, kind="fail")
    with ThreadPoolExecutor() as pool:
        deadline = Deadline.within(60)
        result = run(Flow.of([step]), pool, deadline=deadline, undo_limit=60)
    assert isinstance(result.error, DriverError)
    assert result.undone


@pytest.mark.usefixtures("server")
def test_a_nic_stays_plugged_in(fake_site: Site, fakes: Substrate) -> None:
    compute, network = FakeCompute(fake_site, "localhost"), FakeNetwork(fake_site, "localhost")
    before = fakes.servers["sliver-1"].ports

    fails_to_look(
        fakes, PlugPort(SliverPorts(compute, network, "sliver-1", 1), LIMITED), "compute.find"
    )

    assert fakes.servers["sliver-1"].ports == before


@pytest.mark.usefixtures("server")
def test_a_port_stays_held(fake_site: Site, fakes: Substrate) -> None:
    before = dict(fakes.ports)

    step = HoldPort(FakeNetwork(fake_site, "localhost"), "sliver-1", LIMITED)
    fails_to_look(fakes, step, "network.find_port")

    assert fakes.ports == before


def test_a_device_stays_plugged_in(fake_site: Site, fakes: Substrate, server: NodeSliver) -> None:
    function = PciFunction(GPU, "10de", "1db6")
    fakes.devices[GPU] = HostDevice(function, DeviceState.FREE)
    device, tenant, gpu = (
        FakeDevice(fake_site, "localhost"),
        DeviceDomain(server.id),
        Gpu(id="g", bdf=(GPU,)),
    )
    device.attach(tenant, gpu)

    fails_to_look(fakes, AttachDevice(device, lambda: tenant, gpu, 1, gpu), "device.plugged")

    assert [each.component for each in fakes.plugged["sliver-1"]] == ["g"]


@pytest.mark.usefixtures("server")
def test_a_nic_in_the_server_of_another_sliver_stays_plugged_in(
    processor: HandlerProcessor, fake_site: Site, fakes: Substrate
) -> None:
    ports = [{"id": "p1", "server": "sliver-1"}]
    sliver = VNicPortsSliver.model_validate({"id": "net-1", "network": "red", "ports": ports})
    done(processor.create(sliver).result())
    compute, network = FakeCompute(fake_site, "localhost"), FakeNetwork(fake_site, "localhost")
    vnic = LIMITED.model_copy(update={"id": "p1"})

    step = PlugServerPort(SliverPorts(compute, network, "net-1", 1), vnic, server="sliver-1")
    fails_to_look(fakes, step, "compute.plugs")

    assert [*fakes.plugs] == [("net-1", "p1")]
