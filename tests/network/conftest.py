"""A site with the switches of labs/network, or the reason why there are none."""

import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.model.services import SERVICES
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.absent import absent
from tests.network.wire import Wire
from tests.services.node import Machine, Nodes

LAB = Path(__file__).parents[2] / "labs/network/lab"
STATE = Path("/var/lib/fabric-direct/network")
# A switch in user space may lose frames into a tunnel when a link appears, for as long as a busy
# machine keeps it waiting: see the lab's README. Half a second of them.
HERE = Machine(
    lambda *argv: subprocess.run(argv, check=False, capture_output=True, text=True), loses=25
)
ip = HERE.ip


def lab(*arguments: str) -> str:
    return subprocess.check_output([str(LAB), *arguments], text=True)


def vsctl(switch: str, *arguments: str) -> str:
    command = ["ovs-vsctl", f"--db=unix:{STATE}/{switch}/db.sock", "--timeout=60", *arguments]
    return subprocess.check_output(command, text=True)


def ofctl(switch: str, verb: str, bridge: str) -> str:
    return of_switch(switch, "ovs-ofctl", "-O", "OpenFlow15", verb, bridge)


def of_switch(switch: str, *command: str) -> str:
    """Return what a command says that finds the daemon of a switch in its directory."""
    there = os.environ | {"OVS_RUNDIR": f"{STATE}/{switch}"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=there).stdout


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a failure say what the datapaths did at that moment."""
    report = yield
    if report.failed:
        for switch in ("sw1", "sw2"):
            told = [f"{asked}:\n{asked_of(switch, asked)}" for asked in ASKED]
            report.sections.append((f"datapath of {switch}", "\n".join(told)))
    return report


ASKED = (
    "dpif/show",
    "dpctl/dump-flows -m",
    "tnl/ports/show -v",
    "tnl/neigh/show",
    "ovs/route/show",
    "fdb/show underlay",
)


def asked_of(switch: str, question: str) -> str:
    """Return what a daemon answers, or why it does not: the test may have failed by that."""
    try:
        return of_switch(switch, "ovs-appctl", "--timeout=60", *question.split())
    except OSError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return str(error.stderr)


@pytest.fixture(scope="session", autouse=True)
def switches() -> None:
    for program, what in ("ovs-vswitchd", "Open vSwitch"), ("yanglint", "yanglint"):
        if not shutil.which(program):
            absent(f"{what} is not installed: labs/network/lab install")
    if subprocess.run([str(LAB), "status"], check=False, capture_output=True).returncode:
        absent("the lab's switches do not answer: labs/network/lab up")


@pytest.fixture
def site(lab_site: Site) -> Site:
    return lab_site


@pytest.fixture
def lab_site(tmp_path: Path) -> Site:
    ports: dict[str, Any] = {f"p{number}": {} for number in range(1, 5)}
    values = {
        f"sw{number}": {
            "ovsdb": f"unix:{STATE}/sw{number}/db.sock",
            "datapath": "netdev",
            "tunnel": f"192.0.2.{number}",
            "netns": f"fd-sw{number}",
            "routing": {
                "router": "fd-router",
                "outside": "fd-border",
                "external": "203.0.113.1/24",
            },
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
    assert [name for name in ip("netns", "list").split() if name.startswith("fdn-")] == []
    for router in ("fd-router", "fd-border"):
        assert "fdu-" not in ip("-n", router, "link", "show")


@pytest.fixture
def driver(site: Site, lab_site: Site, switches: None) -> Iterator[OvsService]:
    yield OvsService(site, "localhost")
    driver = OvsService(lab_site, "localhost")
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


@pytest.fixture
def machine() -> Machine:
    return HERE


@pytest.fixture
def nodes(switches: None) -> Iterator[Nodes]:
    nodes = Nodes(HERE)
    yield nodes
    nodes.forget()
