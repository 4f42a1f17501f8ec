"""A site with the switches of labs/network, or the reason why there are none."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.config import Site
from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.network_services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from tests.network.wire import Wire

LAB = Path(__file__).parents[2] / "labs/network/lab"
STATE = Path("/var/lib/fabric-direct/network")


def lab(*arguments: str) -> str:
    done = subprocess.run([str(LAB), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def vsctl(switch: str, *arguments: str) -> str:
    command = ["ovs-vsctl", f"--db=unix:{STATE}/{switch}/db.sock", "--timeout=10", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def ofctl(switch: str, verb: str, bridge: str) -> str:
    command = ["ovs-ofctl", "-O", "OpenFlow15", verb, bridge]
    there = os.environ | {"OVS_RUNDIR": f"{STATE}/{switch}"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=there).stdout


@pytest.fixture(scope="session", autouse=True)
def switches() -> None:
    if not shutil.which("ovs-vswitchd"):
        pytest.skip("Open vSwitch is not installed: labs/network/lab install")
    if subprocess.run([str(LAB), "status"], check=False, capture_output=True).returncode:
        pytest.skip("the lab's switches do not answer: labs/network/lab up")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    ports: dict[str, Any] = {f"p{number}": {} for number in range(1, 5)}
    values = {
        f"sw{number}": {
            "ovsdb": f"unix:{STATE}/sw{number}/db.sock",
            "datapath": "netdev",
            "tunnel": f"192.0.2.{number}",
            "ports": ports,
        }
        for number in (1, 2)
    }
    drivers = dict.fromkeys(SERVICES, "ovs")
    values = {"site": "OVSTEST", "state_dir": tmp_path, "drivers": drivers, "switches": values}
    return Site.model_validate(values)


@pytest.fixture(autouse=True)
def nothing_left(switches: None) -> Iterator[None]:
    """See that a test leaves the switches as it found them."""
    yield
    for switch in ("sw1", "sw2"):
        assert vsctl(switch, "list-br").split() == ["underlay"]


@pytest.fixture
def driver(site: Site, switches: None) -> Iterator[OvsService]:
    driver = OvsService(site, "localhost")
    yield driver
    for thing in driver.stamped():
        driver.remove(thing.sliver)
    assert driver.stamped() == ()


@pytest.fixture
def processor(site: Site, driver: OvsService) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def at(switches: None) -> Iterator[Callable[..., Wire]]:
    wires: dict[tuple[str, str], Wire] = {}

    def at(port: str, switch: str = "sw1") -> Wire:
        if (switch, port) not in wires:
            wires[switch, port] = Wire(switch, port)
        return wires[switch, port]

    yield at
    for wire in wires.values():
        wire.close()


def interface(
    name: str, vlan: Any, port: str = "p1", switch: str = "sw1", **more: Any
) -> dict[str, Any]:
    return {"id": name, "device": switch, "port": port, "vlan": vlan, **more}


def service(
    *interfaces: dict[str, Any], sliver: str = "net-1", kind: str = "L2Bridge", **values: Any
) -> NetworkService:
    document = {"id": sliver, "name": "net", "interfaces": interfaces, **values}
    return SERVICES[kind].model_validate(document)
