"""A site in memory that is kept in a file: commands find what earlier ones made."""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.drivers.fake import FakeHost, FakeNetwork, FakeVolume, Substrate, substrate
from fabric_direct.drivers.fake.kept import FILE
from fabric_direct.drivers.fake.substrate import _substrates
from fabric_direct.errors import DriverError
from fabric_direct.model import DeviceState, PciAddress, VNicInterface
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import FakeSettings, Site
from tests.outcomes import done
from tests.trust.scenes import Request, Scene, fabnet, node, vpn
from tests.trust.things import Thing, Things, things_of
from tests.unit.processes import APART

GPU = {"type": "GPU", "id": "gpu", "bdf": ["25:00.0"]}
DISK = {"type": "Storage", "id": "data", "size": 1}
NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
DEVICES = [
    {"type": "GPU", "model": "A30", "bdf": "25:00.0"},
    {"type": "NVME", "bdf": "26:00.0"},
    {"type": "SmartNIC", "bdf": "27:00.0"},
    {"type": "FPGA", "bdf": "28:00.0"},
    {"type": "SharedNIC", "model": "ConnectX-6", "uplink": "ens6"},
]


def leave() -> None:
    """Let the process forget all sites, as its end would."""
    _substrates.clear()


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {"hosts": {"localhost": {"devices": DEVICES}}}
    return Site.model_validate(values | {"fake": FakeSettings(keep=True)})


@pytest.fixture
def run(site: Site, tmp_path: Path) -> Callable[..., Result]:
    """Run a command on the site, in a process that knows nothing of the one before."""
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(json.loads(site.model_dump_json())))

    def invoke(*words: str) -> Result:
        leave()
        place = ["--site", str(tmp_path / "site.yaml")]
        return CliRunner().invoke(main, [*place, *words], catch_exceptions=False)

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def dump(*components: dict[str, Any]) -> str:
        values = node(*components, id="vm1").model_dump(mode="json", exclude_unset=True)
        (tmp_path / "vm.yaml").write_text(yaml.safe_dump({**values, "type": "VM"}))
        return str(tmp_path / "vm.yaml")

    return dump


def test_each_command_finds_what_the_earlier_ones_made(
    run: Callable[..., Result], write: Callable[..., str]
) -> None:
    assert run("create", write(NIC, GPU)).exit_code == 0
    assert run("list").stdout.splitlines()[1].split()[:3] == ["vm1", "VM", "node"]
    assert "used   vm1/gpu" in run("devices").stdout
    assert run("modify", write(NIC, DISK)).exit_code == 0
    assert run("poa", "vm1", "stop").exit_code == 0

    probed = run("probe", "vm1")

    assert "vm1: stopped" in probed.stdout
    assert "/fake/vm1.data" in probed.stdout
    assert "vm1/gpu" not in run("devices").stdout
    assert run("delete", "vm1").exit_code == 0
    assert run("list").stdout == "No slivers.\n"


def test_a_bare_metal_node_is_found_by_the_next_command(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    values = yaml.safe_load((tmp_path / "site.yaml").read_text())
    image = {"disk": "https://images.example.org/debian-12.raw", "checksum": "0" * 64}
    values |= {"drivers": {"BareMetal": "fake"}, "images": {}, "networks": {}, "hosts": {"w1": {}}}
    values |= {"guest": "fake", "ironic": {"images": {"debian-12": image}}}
    values["fake"] |= {"nodes": {"rack1": {}}}
    values["limits"] |= {"call": 5}  # a call that waits for itself fails
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(values))
    metal = {"id": "m1", "type": "BareMetal", "name": "m1", "image": "debian-12"}
    (tmp_path / "metal.yaml").write_text(yaml.safe_dump(metal))

    created = run("create", str(tmp_path / "metal.yaml"))
    probed = run("probe", "m1")
    deleted = run("delete", "m1")

    assert [each.exit_code for each in (created, probed, deleted)] == [0, 0, 0], created.output
    assert "m1: running, fake-rack1 on rack1" in probed.stdout


def test_a_site_that_is_not_kept_ends_with_its_process(fake_site: Site) -> None:
    with HandlerProcessor(fake_site) as processor:
        done(processor.create(node(DISK)).result())
    leave()

    assert substrate(fake_site, "localhost").servers == {}
    assert not (fake_site.state_dir / FILE).exists()


def test_all_that_there_is_of_a_site_is_kept(tmp_path: Path) -> None:
    site = _whole_site(tmp_path)
    things = {"w1": substrate(site, "w1")}
    with HandlerProcessor(site) as processor:
        for sliver in _of_every_kind():
            done(processor.create(sliver).result())
        done(processor.poa(node(), "cpupin", {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}]}).result())
        done(processor.poa(node(), "numatune", {"node_set": [1]}).result())
    there = things_of(things)
    leave()

    read = {"w1": substrate(site, "w1")}
    _look(read["w1"])

    assert {driver for driver, *_ in there} >= {"compute", "network", "volume", "device", "service"}
    assert _without_secrets(things_of(read)) == _without_secrets(there)


def _whole_site(state_dir: Path) -> Site:
    site = Scene("", Request("create", node())).site(state_dir)
    return site.model_copy(update={"fake": site.fake.model_copy(update={"keep": True})})


def _of_every_kind() -> Iterator[Any]:
    nic = NIC | {"interface": {"auto_config": True, "ipv4": "10.20.1.7/24", "bandwidth": 10}}
    smart = {"type": "SmartNIC", "id": "smart", "bdf": ["27:00.0"]}
    vf = {"type": "SharedNIC", "id": "vf", "bdf": ["a1:00.0"], "interface": {"vlan": 300}}
    fpga = {"type": "FPGA", "id": "fpga", "bdf": ["29:00.0"]}
    yield node(nic, DISK | {"mount": "/data"}, GPU, smart, vf, fpga)
    yield fabnet({"id": "i1", "device": "sw1", "port": "p1", "vlan": 101})
    yield vpn()


def _without_secrets(things: Things) -> dict[Thing, object]:
    return {
        thing: so.without_secrets() if isinstance(so, NetworkService) else so
        for thing, so in things.items()
    }


def _look(things: Substrate) -> None:
    with things.current():
        pass


class TestItsFile:
    def test_is_the_users_alone(self, site: Site) -> None:
        FakeVolume(site, "localhost").create("s1", "data", 1)

        assert stat.S_IMODE((site.state_dir / FILE).stat().st_mode) == 0o600

    def test_has_no_secret(self, tmp_path: Path) -> None:
        site = _whole_site(tmp_path)
        with HandlerProcessor(site) as processor:
            done(processor.create(vpn(key="open-sesame")).result())
            done(processor.create(node(boot_script="#!/bin/sh\necho hush-hush\n")).result())
        kept = (site.state_dir / FILE).read_bytes()

        assert b"net-3" in kept
        assert b"open-sesame" not in kept
        assert b"hush-hush" not in kept

    def test_that_is_damaged_is_said_to_be_with_what_to_do(self, site: Site) -> None:
        volumes = FakeVolume(site, "localhost")
        volumes.create("s1", "data", 1)
        path = site.state_dir / FILE
        path.write_bytes(path.read_bytes().replace(b'"size":1', b'"size":x'))
        leave()

        with pytest.raises(DriverError, match="remove the file, and begin with an empty site"):
            FakeVolume(site, "localhost").all_volumes()

    def test_that_is_removed_leaves_an_empty_site(self, site: Site) -> None:
        volumes = FakeVolume(site, "localhost")
        volumes.create("s1", "data", 1)
        (site.state_dir / FILE).unlink()

        assert volumes.all_volumes() == ()

    def test_that_is_not_there_yet_leaves_what_a_test_has_put_into_memory(self, site: Site) -> None:
        substrate(site, "localhost").domains["s1"] = "put there"
        FakeVolume(site, "localhost").create("s1", "data", 1)
        leave()
        _look(things := substrate(site, "localhost"))

        assert things.domains == {"s1": "put there"}

    def test_has_nothing_of_a_call_that_failed(self, site: Site) -> None:
        host = FakeHost(site, "localhost")

        def fails() -> None:
            host.substrate.domains["s1"] = "half"
            raise DriverError("no")

        with pytest.raises(DriverError, match="no"):
            host.substrate.call("host.fails", fails)

        _look(host.substrate)
        assert host.substrate.domains == {}

    def test_has_nothing_of_a_call_whose_process_was_killed(self, site: Site) -> None:
        FakeVolume(site, "localhost").create("s1", "data", 1)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException), substrate(site, "localhost").current():
                substrate(site, "localhost").volumes.clear()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        leave()

        assert len(FakeVolume(site, "localhost").all_volumes()) == 1


class TestTwoCommandsAtOnce:
    def test_never_get_the_same(self, site: Site) -> None:
        document = site.model_dump_json()
        with ProcessPoolExecutor(2, mp_context=APART) as pool:
            tasks = [pool.submit(_hold, document, f"s{n}") for n in range(4)]
            held = [address for task in tasks for address in task.result()]

        assert len(set(held)) == len(held) == 20
        assert len(FakeNetwork(site, "localhost").all_ports()) == 20

    def test_see_what_the_other_has_done(self, site: Site) -> None:
        volumes = FakeVolume(site, "localhost")
        assert volumes.all_volumes() == ()
        with ProcessPoolExecutor(1, mp_context=APART) as pool:
            pool.submit(_make_volume, site.model_dump_json()).result()

        assert [volume.sliver for volume in volumes.all_volumes()] == ["s1"]


def _hold(document: str, sliver: str) -> list[str]:
    network = FakeNetwork(Site.model_validate_json(document), "localhost")
    made = (network.create_port(sliver, f"nic{n}", "red", VNicInterface()) for n in range(5))
    return [str(port.ipv4) for port in made]


def _make_volume(document: str) -> None:
    FakeVolume(Site.model_validate_json(document), "localhost").create("s1", "data", 1)


class TestWhatSiteYamlSaysNow:
    def test_is_there_beside_what_was_kept(self, site: Site) -> None:
        with HandlerProcessor(site) as processor:
            done(processor.create(node(GPU)).result())
        leave()
        more = {"devices": [*DEVICES[:1], {"type": "GPU", "bdf": "30:00.0"}]}
        changed = Site.model_validate(site.model_dump() | {"hosts": {"localhost": more}})

        with HandlerProcessor(changed) as processor:
            states = {str(d.address): d.state for d in processor.devices("localhost")}

        used, free = DeviceState.USED, DeviceState.FREE
        assert states == {"0000:25:00.0": used, "0000:30:00.0": free}

    def test_of_the_number_of_vfs_holds(self, site: Site) -> None:
        FakeVolume(site, "localhost").create("s1", "data", 1)
        leave()
        more = FakeSettings.model_validate({"keep": True, "hosts": {"localhost": {"vfs": 6}}})
        things = substrate(site.model_copy(update={"fake": more}), "localhost")
        _look(things)

        assert len(things.vfs["ens6"]) == 6


class TestDevicesOfTheAllowList:
    def test_are_there_and_free(self, site: Site) -> None:
        with HandlerProcessor(site) as processor:
            there = [device for device in processor.devices("localhost") if device.type]

        assert {device.state for device in there} == {DeviceState.FREE}
        types = [device.type for device in there]
        assert sorted(set(types)) == ["FPGA", "GPU", "NVME", "SharedNIC", "SmartNIC"]
        assert types.count("SharedNIC") == 4

    def test_have_the_ids_of_their_kind(self, site: Site) -> None:
        with HandlerProcessor(site) as processor:
            kinds = {d.type: d.function.kind for d in processor.devices("localhost")}

        assert (kinds["NVME"], kinds["GPU"]) == ("010802", "030200")

    def test_of_an_uplink_are_below_its_pf_which_stays_with_the_host(self, site: Site) -> None:
        with HandlerProcessor(site) as processor:
            (pf,) = [d for d in processor.devices("localhost") if d.function.virtual]

        assert (pf.state, pf.function.links) == (DeviceState.NOT_ALLOWED, ("ens6",))
        assert len(pf.function.virtual) == 4

    def test_share_an_iommu_group_with_their_slot_and_no_vf_with_another(self, site: Site) -> None:
        both = [{"type": "GPU", "bdf": "25:00.0"}, {"type": "GPU", "bdf": "25:00.1"}]
        hosts = {"localhost": {"devices": [*both, {"type": "SharedNIC", "uplink": "ens6"}]}}
        with HandlerProcessor(Site.model_validate(site.model_dump() | {"hosts": hosts})) as having:
            gpu, audio, *others = having.devices("localhost")

        assert gpu.function.iommu_group == audio.function.iommu_group
        assert (gpu.peers, audio.peers) == ((audio.address,), (gpu.address,))
        assert len({each.function.iommu_group for each in others}) == len(others) == 5

    def test_of_each_kind_are_passed_through(self, site: Site) -> None:
        wanted = [
            {"type": "GPU", "id": "gpu", "model": "A30"},
            {"type": "NVME", "id": "nvme", "bdf": ["26:00.0"]},
            {"type": "SmartNIC", "id": "smart", "bdf": ["27:00.0"]},
            {"type": "FPGA", "id": "fpga", "bdf": ["28:00.0"]},
            {"type": "SharedNIC", "id": "vf", "model": "ConnectX-6"},
        ]
        with HandlerProcessor(site) as processor:
            outcome = done(processor.create(node(*wanted)).result())

        assert outcome.observed is not None
        assert {device.component for device in outcome.observed.devices} == {
            *("gpu", "nvme", "smart", "fpga", "vf")
        }

    def test_of_two_uplinks_have_addresses_and_modes_of_their_own(self, site: Site) -> None:
        uplinks = [
            {"type": "SharedNIC", "uplink": "ens6", "vepa": True},
            {"type": "SharedNIC", "uplink": "ens7"},
        ]
        hosts = {"localhost": {"devices": uplinks}}
        with HandlerProcessor(Site.model_validate(site.model_dump() | {"hosts": hosts})) as having:
            there = [device for device in having.devices("localhost") if device.type]

        assert len({device.address for device in there}) == 8
        assert {d.uplink: d.bridge_mode for d in there} == {"ens6": "vepa", "ens7": "veb"}
        assert PciAddress.parse("a1:00.0") in {device.address for device in there}
