"""What all tests share: a site on the fake drivers, and slivers to put on it."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.drivers.fake.substrate import Fault
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"
FAKE_DRIVERS = dict.fromkeys(
    ("VM", "vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"), "fake"
)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Leave the library's log at its level, which a command sets for the whole process."""
    log = logging.getLogger("fabric_direct")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that asks the fakes for a fault which no call meets."""
    asked: list[tuple[Substrate, Fault]] = []
    ask = Substrate.fault

    def noted(things: Substrate, method: str, **how: Any) -> None:
        ask(things, method, **how)
        asked.append((things, things.faults[-1]))

    monkeypatch.setattr(Substrate, "fault", noted)
    yield
    silent = [fault for things, fault in asked if fault not in things.fired]
    assert not silent, f"faults that no call met: {silent}"


@pytest.fixture
def fake_site(tmp_path: Path) -> Site:
    return Site(
        site="TEST",
        state_dir=tmp_path / "state",
        drivers=FAKE_DRIVERS,
        guest="fake",
        images={"tiny": {}},
        networks={
            "red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"},
            "blue": {"strategy": "flat_dhcp", "subnet": "10.20.2.0/24"},
        },
        limits={"busy": 0.1},
    )


@pytest.fixture
def site(fake_site: Site) -> Site:
    """The site of the test; a file whose tests need another one has a fixture of this name."""
    return fake_site


@pytest.fixture
def fakes(site: Site) -> Iterator[Substrate]:
    """What the fake drivers of the site work on."""
    things = substrate(site, "localhost")
    yield things
    things.mend()


@pytest.fixture
def processor(
    request: pytest.FixtureRequest, site: Site, fakes: Substrate
) -> Iterator[HandlerProcessor]:
    serial = request.node.get_closest_marker("serial_steps")
    with HandlerProcessor(site, step_workers=1 if serial else 32) as processor:
        yield processor
        fakes.mend()


@pytest.fixture
def vm() -> Callable[..., NodeSliver]:
    """Make a sliver with two vNICs and a volume, or with what else is given."""

    def make(**values: Any) -> NodeSliver:
        components = (
            {"type": "vNIC", "id": "nic1", "network": "red"},
            {"type": "vNIC", "id": "nic2", "network": "blue"},
            {"type": "Storage", "id": "data", "size": 1},
        )
        defaults = {
            "id": "sliver-1",
            "name": "node",
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "ssh_keys": (KEY,),
            "components": components,
        }
        return NodeSliver.model_validate(defaults | values)

    return make
