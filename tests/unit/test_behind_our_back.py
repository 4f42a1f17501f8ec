"""What others do to a sliver while it lives: a probe names each difference; on fake drivers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.model import NodeSliver, PciAddress, SliverRef, State
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, FakeHostSettings, Host, Site
from tests.outcomes import done

MakeVm = Callable[..., NodeSliver]
Change = Callable[[Substrate], None]
REF = SliverRef(id="sliver-1", type="VM")
UPLINK, FOREIGN = "ens1", PciAddress.parse("99:00.0")


@pytest.fixture
def fake_site(fake_site: Site) -> Site:
    """A site with two hosts, each with a GPU and two VFs of an uplink that must be in VEPA mode."""
    entries = (
        AllowedDevice(type="SharedNIC", uplink=UPLINK, vepa=True),
        AllowedDevice(type="GPU", model="A30", bdf=PciAddress.parse("0000:21:00.0")),
    )
    has = FakeHostSettings(gpus=1, vfs=2)
    return fake_site.model_copy(
        update={
            "hosts": {"localhost": Host(devices=entries), "other": Host(devices=entries)},
            "fake": fake_site.fake.model_copy(update={"hosts": {"localhost": has, "other": has}}),
        }
    )


@pytest.fixture
def fakes(fakes: Substrate) -> Substrate:
    fakes.existing["shared"] = Volume("", "", "/fake/shared", 1)
    return fakes


@pytest.fixture
def node(fakes: Substrate, vm: MakeVm) -> NodeSliver:
    """A sliver with one of everything that others may take away or change."""
    vf, gpu = _first(fakes, UPLINK), _first(fakes, None)
    return vm(
        host="localhost",
        components=(
            {"type": "vNIC", "id": "nic1", "network": "red"},
            {"type": "Storage", "id": "data", "size": 1},
            {"type": "Storage", "id": "old", "volume": "shared"},
            {"type": "GPU", "id": "gpu", "bdf": [str(gpu)]},
            {
                "type": "SharedNIC",
                "id": "vf",
                "bdf": [str(vf)],
                "interface": {"mac": "52:54:00:00:00:77", "vlan": 304, "bandwidth": 100},
            },
        ),
    )


@pytest.fixture
def living(processor: HandlerProcessor, node: NodeSliver) -> NodeSliver:
    done(processor.create(node).result())
    return node


def _first(fakes: Substrate, uplink: str | None) -> PciAddress:
    there = (d for d in fakes.devices.values() if d.uplink == uplink and not d.function.virtual)
    return min(device.address for device in there)


def server(**values: Any) -> Change:
    def change(fakes: Substrate) -> None:
        fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], **values)

    return change


def nic(**values: Any) -> Change:
    def change(fakes: Substrate) -> None:
        (only,) = fakes.servers["sliver-1"].ports
        server(ports=(replace(only, **values),))(fakes)

    return change


def port(**values: Any) -> Change:
    def change(fakes: Substrate) -> None:
        fakes.ports["sliver-1", "nic1"] = replace(fakes.ports["sliver-1", "nic1"], **values)

    return change


def disk(component: str, **values: Any) -> Change:
    def change(fakes: Substrate) -> None:
        disks = fakes.servers["sliver-1"].volumes
        changed = (replace(d, **values) if d.component == component else d for d in disks)
        server(volumes=tuple(changed))(fakes)

    return change


def without_disk(component: str) -> Change:
    def change(fakes: Substrate) -> None:
        disks = fakes.servers["sliver-1"].volumes
        server(volumes=tuple(d for d in disks if d.component != component))(fakes)

    return change


def device(component: str, **values: Any) -> Change:
    def change(fakes: Substrate) -> None:
        there = fakes.plugged["sliver-1"]
        fakes.plugged["sliver-1"] = tuple(
            replace(d, **values) if d.component == component else d for d in there
        )

    return change


def without_device(component: str) -> Change:
    def change(fakes: Substrate) -> None:
        there = fakes.plugged["sliver-1"]
        fakes.plugged["sliver-1"] = tuple(d for d in there if d.component != component)

    return change


def move(fakes: Substrate, fake_site: Site) -> Substrate:
    """Have the server be on the other host, which is returned."""
    other = substrate(fake_site, "other")
    other.servers["sliver-1"] = replace(fakes.servers.pop("sliver-1"), host="other")
    return other


def rate(fakes: Substrate) -> None:
    for one in fakes.plugged["sliver-1"]:
        if one.component == "vf" and one.settings:
            device("vf", settings=replace(one.settings, max_tx_rate=7))(fakes)


def veb(fakes: Substrate) -> None:
    fakes.uplinks[UPLINK] = "veb"


CHANGES: dict[str, tuple[Change, str]] = {
    "the domain was renamed": (
        lambda fakes: fakes.renamed.update({"sliver-1": "mine"}),
        "its domain is named mine, not sliver-1-node",
    ),
    "the domain is gone": (
        lambda fakes: fakes.renamed.update({"sliver-1": None}),
        "there is no domain sliver-1-node on localhost",
    ),
    "it was stopped": (server(state=State.STOPPED), "the server is stopped, not running"),
    "it was paused": (server(state=State.PAUSED), "the server is paused, not running"),
    "it lost a core": (server(cores=0), "it has 0 cores, not 1"),
    "it lost memory": (server(ram=512), "it has 512 MiB of memory, not 1024"),
    "a NIC was unplugged": (server(ports=()), "vNIC nic1 is missing"),
    "a NIC got another MAC": (
        nic(mac="52:54:00:99:99:99"),
        "vNIC nic1 is on no network, not on red",
    ),
    "a NIC got a limit": (
        nic(bandwidth=9),
        "vNIC nic1 is limited to 9 Mbit/s, and no limit was asked for",
    ),
    "a NIC got a limit in one direction": (
        nic(bandwidth=0),
        "vNIC nic1 is limited otherwise in each direction, and no limit was asked for",
    ),
    "a NIC was switched off": (nic(enabled=False), "vNIC nic1 is switched off"),
    "a port was switched off": (port(enabled=False), "vNIC nic1 is switched off"),
    "a port is down": (port(down=True), "the port of vNIC nic1 is down"),
    "a port was moved": (port(network="blue"), "vNIC nic1 is on blue, not on red"),
    "a volume was detached": (without_disk("data"), "Storage data is missing"),
    "a present volume was detached": (without_disk("old"), "Storage old is missing"),
    "a disk is another volume": (
        disk("data", source="/fake/snapshot"),
        "volume data is /fake/snapshot, not /fake/sliver-1.data",
    ),
    "a hostdev was lost": (without_device("gpu"), "GPU gpu is missing"),
    "a VF was lost": (without_device("vf"), "SharedNIC vf is missing"),
    "a VF got another MAC": (device("vf", mac="52:54:00:00:00:78"), "ua-sliver-1-vf-0 is not so"),
    "a VF lost its VLAN": (device("vf", vlan=None), "ua-sliver-1-vf-0 has VLAN 0, not 304"),
    "a VF got another rate": (rate, "ua-sliver-1-vf-0 is not so"),
    "the uplink left VEPA mode": (veb, f"uplink {UPLINK} is in mode veb, not vepa"),
    "somebody passed a function through": (
        lambda fakes: fakes.intruders.update({"sliver-1": (FOREIGN,)}),
        f"its domain has {FOREIGN}, which others passed through",
    ),
}


def differences(processor: HandlerProcessor, sliver: SliverRef = REF) -> tuple[str, ...]:
    observed = done(processor.probe(sliver).result()).observed
    assert observed
    return observed.differences


class TestAProbe:
    def test_finds_no_difference_in_what_nobody_touched(
        self, processor: HandlerProcessor, living: NodeSliver
    ) -> None:
        assert differences(processor) == differences(processor, living) == ()

    @pytest.mark.parametrize("what", CHANGES)
    @pytest.mark.parametrize("whole", [True, False], ids=["by its file", "by its id"])
    def test_names_the_difference(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        living: NodeSliver,
        what: str,
        whole: bool,
    ) -> None:
        change, sentence = CHANGES[what]
        change(fakes)

        assert differences(processor, living if whole else REF) == (sentence,)

    def test_says_nothing_of_a_port_that_is_down_while_its_server_is_off(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        server(state=State.STOPPED)(fakes)
        port(down=True)(fakes)

        assert differences(processor, living) == ("the server is stopped, not running",)

    def test_says_on_which_host_a_server_is_that_was_moved(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        fake_site: Site,
        living: NodeSliver,
    ) -> None:
        move(fakes, fake_site)

        found = differences(processor, living.ref())

        assert "it is on host other, not on localhost" in found
        assert "GPU gpu is missing" in found

    @pytest.mark.parametrize("whole", [True, False], ids=["by its file", "by its id"])
    def test_says_on_which_worker_a_server_is_that_its_cloud_moved(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        fake_site: Site,
        living: NodeSliver,
        whole: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(FakeCompute, "cloud", True)
        moved = replace(fakes.servers["sliver-1"], host="other")
        for each in (fakes, substrate(fake_site, "other"), substrate(fake_site, "")):
            each.servers["sliver-1"] = moved

        found = differences(processor, living if whole else REF)

        assert "it is on host other, not on localhost" in found
        assert "GPU gpu is missing" in found

    def test_names_a_domain_that_has_the_stamp_and_another_uuid(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        fakes.servers["another uuid"] = fakes.servers.pop("sliver-1")

        assert differences(processor, living) == (
            "there is no such server",
            "domain sliver-1-node carries its stamp, but has another UUID",
        )


class TestWhatOthersDid:
    @pytest.mark.parametrize("what", ["somebody passed a function through", "a port is down"])
    def test_keeps_no_modification_from_being_verified(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver, what: str
    ) -> None:
        change, _ = CHANGES[what]
        change(fakes)

        done(processor.modify(living).result())
