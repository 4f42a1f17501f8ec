"""vNICs that are ports of a switch: which port, whose, and the tap of its name; without a kernel."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.read_cache import reading_once
from fabric_direct.drivers.hosts.agent import taps as agent
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.errors import Conflict, DriverError, InvalidSliver, PoolExhausted
from fabric_direct.model import VNicInterface
from fabric_direct.site.config import Site
from tests.unit.sysfs_tree import Tree, tree

__all__ = ["tree"]

ANY = VNicInterface()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    ports: dict[str, Any] = {"t1": {"tap": True}, "t2": {"tap": True}, "p1": {}}
    switches = {"sw1": {"ports": ports}, "far": {"host": "w2", "ports": ports}}
    hosts: dict[str, Any] = {"localhost": {}, "w2": {}}
    values = {"site": "T", "state_dir": tmp_path, "hosts": hosts, "switches": switches}
    return Site.model_validate(values)


@pytest.fixture
def kernel(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The taps of this machine, as files of sysfs by name."""
    made: dict[str, Path] = {}

    def persist(name: str, stay: int) -> None:
        path = tree.sys / "class/net" / name
        if stay:
            made[name] = path
            facts = {"tun_flags": "", "ifalias": "", "mtu": "", "flags": "0x2", "carrier": "0"}
            for fact, text in facts.items():
                tree.file(f"sys/class/net/{name}/{fact}", text)
        else:
            made.pop(name).rename(tree.root / f"gone-{name}")

    monkeypatch.setattr(agent, "_persist", persist)
    return made


@pytest.fixture
def driver(site: Site, kernel: dict[str, Path]) -> LibvirtNetwork:
    return LibvirtNetwork(site, "localhost")


def port(name: str, **more: Any) -> VNicInterface:
    return VNicInterface.model_validate({"port": name, **more})


def test_a_nic_is_the_first_free_port_with_a_tap_that_is_stamped(
    driver: LibvirtNetwork, kernel: dict[str, Path]
) -> None:
    made = driver.create_port("vm-1", "nic", "sw1", port("t2", mtu=9000, ipv4="10.0.0.2/24"))
    other = driver.create_port("vm-2", "nic", "sw1", ANY)

    assert (made.source, other.source, made.tap, made.dhcp) == ("t2", "t1", True, False)
    facts = {fact: (kernel["t2"] / fact).read_text() for fact in ("ifalias", "mtu", "flags")}
    assert facts == {"ifalias": "fabric-direct T/vm-1/nic", "mtu": "9000", "flags": "0x3"}
    assert driver.find_port("vm-1", "nic") == replace(made, down=True)
    assert driver.create_port("vm-1", "nic", "sw1", ANY) == made
    assert [thing.sliver for thing in driver.stamped()] == ["vm-1", "vm-2"]


def test_a_tap_that_is_gone_is_named_and_made_anew(
    driver: LibvirtNetwork, kernel: dict[str, Path]
) -> None:
    driver.create_port("vm-1", "nic", "sw1", ANY)
    agent._persist("t1", 0)

    assert driver.find_port("vm-1", "nic") is None
    assert [held.enabled for held in driver.ports("vm-1")] == [False]
    driver.create_port("vm-1", "nic", "sw1", ANY)
    assert [held.enabled for held in driver.all_ports()] == [True]


def test_a_tap_that_is_set_down_is_off_and_set_up_again(
    driver: LibvirtNetwork, kernel: dict[str, Path]
) -> None:
    driver.create_port("vm-1", "nic", "sw1", ANY)
    (kernel["t1"] / "flags").write_text("0x102")

    assert driver.find_port("vm-1", "nic") is None
    assert [held.enabled for held in driver.ports("vm-1")] == [False]
    driver.create_port("vm-1", "nic", "sw1", ANY)
    assert (kernel["t1"] / "flags").read_text() == "0x103"


def test_a_switch_that_takes_a_new_tap_and_undoes_its_flags_is_outlasted(
    driver: LibvirtNetwork, kernel: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten = iter(["0x102"])

    def meanwhile(_seconds: float) -> None:
        for flags in overwritten:
            (kernel["t1"] / "flags").write_text(flags)

    monkeypatch.setattr(agent.time, "sleep", meanwhile)

    driver.create_port("vm-1", "nic", "sw1", ANY)

    assert (kernel["t1"] / "flags").read_text() == "0x103"


def test_a_tap_is_down_while_no_domain_has_it(
    driver: LibvirtNetwork, kernel: dict[str, Path]
) -> None:
    driver.create_port("vm-1", "nic", "sw1", ANY)
    assert [held.down for held in driver.ports("vm-1")] == [True]

    (kernel["t1"] / "carrier").write_text("1")

    assert [held.down for held in driver.ports("vm-1")] == [False]


def test_nothing_is_left_of_a_port_that_was_deleted(
    driver: LibvirtNetwork, kernel: dict[str, Path]
) -> None:
    driver.create_port("vm-1", "nic", "sw1", ANY)
    assert driver.leftovers("vm-1") == ("port vm-1/nic at t1 of sw1",)

    driver.delete_port("vm-1", "nic")

    assert (driver.leftovers("vm-1"), driver.ports("vm-1"), kernel) == ((), (), {})


def test_a_link_of_others_is_left_alone(driver: LibvirtNetwork, kernel: dict[str, Path]) -> None:
    agent.make("t1", "somebody's", None)

    with pytest.raises(DriverError, match="link t1 is not ours"):
        driver.create_port("vm-1", "nic", "sw1", port("t1"))
    driver.delete_port("vm-1", "nic")

    assert "t1" in kernel


@pytest.mark.parametrize("answer", [errno.ENOENT, errno.ENODEV, errno.EINVAL])
@pytest.mark.parametrize("fact", ["ifalias", "carrier", "flags"])
def test_a_tap_that_is_removed_while_it_is_read_is_none(
    kernel: dict[str, Path], monkeypatch: pytest.MonkeyPatch, fact: str, answer: int
) -> None:
    agent.make("t1", "ours", None)
    agent.make("vnet7", "", None)
    read = agent._read

    def removed_at(link: str, name: str) -> str:
        if link == "vnet7" and (name == fact or link not in kernel):
            kernel.pop(link, None)
            raise OSError(answer, os.strerror(answer))
        return read(link, name)

    monkeypatch.setattr(agent, "_read", removed_at)

    assert agent.taps() == {"t1": ("ours", False, True)}


def test_a_tap_that_cannot_be_read_is_not_passed_over(
    kernel: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.make("t1", "ours", None)

    def refuse(link: str, name: str) -> str:
        raise PermissionError(errno.EACCES, f"{link} {name}")

    monkeypatch.setattr(agent, "_read", refuse)

    with pytest.raises(PermissionError):
        agent.taps()


@pytest.mark.parametrize(
    ("switch", "interface", "field"),
    [
        ("sw1", port("p1"), "interface.port"),
        ("far", ANY, "network"),
        ("nowhere", ANY, "network"),
    ],
)
def test_what_is_no_tap_of_the_host_is_refused(
    driver: LibvirtNetwork, switch: str, interface: VNicInterface, field: str
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        driver.check(switch, interface, "vm-1")

    assert refused.value.field == field


def test_what_another_nic_has_is_refused(driver: LibvirtNetwork) -> None:
    mac = "52:54:00:00:00:01"
    driver.create_port("vm-1", "nic", "sw1", port("t1", mac=mac))

    with pytest.raises(Conflict, match="t1 of sw1 is taken"):
        driver.create_port("vm-2", "nic", "sw1", port("t1"))
    with pytest.raises(Conflict, match=f"{mac} is held for vm-1/nic"):
        driver.create_port("vm-2", "nic", "sw1", VNicInterface(mac=mac))
    with pytest.raises(Conflict, match="whose port is not t2"):
        driver.create_port("vm-1", "nic", "sw1", port("t2"))
    driver.create_port("vm-2", "nic", "sw1", ANY)
    with pytest.raises(PoolExhausted):
        driver.create_port("vm-3", "nic", "sw1", ANY)


@pytest.mark.parametrize("name", ["a-name-of-16-chars", "vnet0", "Gi0/0/1"])
def test_a_name_that_no_tap_can_have_is_refused_in_site_yaml(name: str) -> None:
    values = {"site": "T", "switches": {"sw1": {"ports": {name: {"tap": True}}}}}

    with pytest.raises(ValueError, match="is not a name for a tap"):
        Site.model_validate(values)


def test_a_plan_reads_the_taps_once(driver: LibvirtNetwork, mocker: MockerFixture) -> None:
    driver.create_port("vm-1", "nic", "sw1", ANY)
    calls = mocker.spy(driver._taps, "_call")

    with reading_once():
        for _ in range(2):
            assert driver.find_port("vm-1", "nic")
            assert len(driver.ports("vm-1")) == 1

    assert [call.args[0] for call in calls.call_args_list] == ["taps.taps"]
