"""Which methods of drivers may raise Unsupported, and what then happens, as its page says it."""

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from inspect import getdoc
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers import contract
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import Unsupported
from fabric_direct.handlers.registry import driver
from fabric_direct.model import NodeSliver, Outcome, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import FakeHostSettings, FakeSettings, Site
from tests.outcomes import done

PAGE = (Path(__file__).parents[2] / "docs/writing-a-driver.md").read_text()
KINDS = {
    "compute": contract.ComputeDriver,
    "network": contract.NetworkDriver,
    "volume": contract.VolumeDriver,
    "service": contract.ServiceDriver,
    "device": contract.DeviceDriver,
    "guest": contract.GuestDriver,
    "tuning": contract.TuningDriver,
    "uplink": contract.UplinkDriver,
}
"""What entry points provide."""
MakeVm = Callable[..., NodeSliver]
GPU = {"type": "GPU", "id": "gpu", "bdf": ["0000:40:00.0"]}
LINK = "ens1"


@pytest.fixture
def fake_site(fake_site: Site) -> Site:
    hosts = FakeSettings(hosts={"localhost": FakeHostSettings(gpus=1, vfs=1)})
    return fake_site.model_copy(update={"fake": hosts})


@pytest.fixture(autouse=True)
def seen(mocker: MockerFixture) -> Mock:
    """The guest's sight of its devices; a fake guest has no sysfs."""
    return mocker.patch.object(Guest, "wait_devices")


def test_the_page_names_the_methods_that_say_so_themselves() -> None:
    methods = rf"^\| `((?:{'|'.join(KINDS)})\.\w+)`"
    named = re.findall(methods, PAGE, re.MULTILINE)

    assert named == [name for kind, protocol in KINDS.items() for name in saying(kind, protocol)]


def saying(kind: str, provider: type) -> list[str]:
    """Return the methods whose docstring says that they may raise Unsupported."""
    methods = {name: getdoc(getattr(provider, name)) or "" for name in dir(provider)}
    return [f"{kind}.{name}" for name, text in methods.items() if ":raises Unsupported:" in text]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, p.name) for k in KINDS for p in entry_points(group=f"fabric_direct.{k}")],
)
def test_no_driver_says_so_of_another_method(kind: str, name: str) -> None:
    assert set(saying(kind, driver(kind, name))) <= set(saying(kind, KINDS[kind]))


def added(vm: NodeSliver) -> NodeSliver:
    new = vm.components[0].model_copy(update={"id": "nic3"})
    return vm.model_copy(update={"components": (*vm.components, new)})


def limited(vm: NodeSliver) -> NodeSliver:
    first = vm.vnics()[0]
    interface = first.interface.model_copy(update={"bandwidth": 10})
    changed = first.model_copy(update={"interface": interface})
    return vm.model_copy(update={"components": (changed, *vm.components[1:])})


class TestAnOperation:
    """Fails, says so, and takes back what it had made."""

    @pytest.mark.parametrize("method", ["network.create_port", "device.attach", "guest.wait"])
    def test_create(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str
    ) -> None:
        fakes.fault(method, kind="unsupported")

        nic = {"type": "vNIC", "id": "nic", "network": "red"}

        outcome = processor.create(vm(components=[nic, GPU])).result()

        failed(outcome)
        assert not fakes.servers
        assert not fakes.ports
        assert not fakes.records

    @pytest.mark.parametrize(
        ("method", "change"), [("compute.attach_port", added), ("compute.set_bandwidth", limited)]
    )
    def test_modify(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        method: str,
        change: Callable[[NodeSliver], NodeSliver],
    ) -> None:
        done(processor.create(vm()).result())
        before = fakes.servers["sliver-1"]
        fakes.fault(method, kind="unsupported")

        outcome = processor.modify(change(vm())).result()

        failed(outcome)
        assert fakes.servers["sliver-1"] == before

    @pytest.mark.parametrize(
        ("method", "action", "data"),
        [
            ("compute.resize", "resize", {"capacities": {"core": 2, "ram": 2, "disk": 1}}),
            ("device.rescan", "rescan", {"bdf": GPU["bdf"]}),
        ],
    )
    def test_action(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        method: str,
        action: str,
        data: dict[str, Any],
    ) -> None:
        done(processor.create(vm(components=[GPU])).result())
        before = fakes.servers["sliver-1"]
        fakes.fault(method, kind="unsupported")

        outcome = processor.poa(vm().ref(), action, data).result()

        failed(outcome)
        assert fakes.servers["sliver-1"] == before


def failed(outcome: Outcome) -> None:
    assert outcome.status is Status.FAILED
    assert outcome.error
    assert outcome.error.kind == "Unsupported"
    assert outcome.left == ()


@pytest.mark.parametrize(
    ("method", "mode"), [("uplink.bridge_mode", None), ("uplink.set_bridge_mode", "veb")]
)
def test_of_an_uplink_reaches_the_caller(
    processor: HandlerProcessor, fakes: Substrate, method: str, mode: str | None
) -> None:
    fakes.fault(method, kind="unsupported")

    with pytest.raises(Unsupported):
        processor.bridge_mode("localhost", LINK, mode)

    assert fakes.uplinks[LINK] == "vepa"


def test_of_a_vf_reaches_the_device_driver(fake_site: Site, fakes: Substrate) -> None:
    before = list(fakes.vfs[LINK])
    fakes.fault("uplink.set_vf", kind="unsupported")
    uplink = driver("uplink", "fake")(fake_site, "localhost")

    with pytest.raises(Unsupported):
        uplink.set_vf(LINK, 0, contract.VfSettings(vlan=100))

    assert fakes.vfs[LINK] == before
