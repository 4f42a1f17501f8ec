"""A site of the actor's, in memory."""

import gc
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fim", reason="fabric-fim is not installed: labs/fabric/env, make test-fabric")

from fabric_direct.actor import VMHandler, VnicNetHandler
from fabric_direct.actor.site import processor_of
from fabric_direct.config import Site
from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.model import DeviceState, PciAddress
from tests.conftest import FAKE_DRIVERS

# A client of Kafka that a forked process collects crashes it: its threads are the parent's.
os.register_at_fork(before=gc.freeze, after_in_parent=gc.unfreeze)

SITE: dict[str, Any] = {
    "site": "TEST",
    "drivers": FAKE_DRIVERS,
    "guest": "fake",
    "images": {"default_rocky_9": {}, "default_centos_8": {}},
    "networks": {
        "mgmt": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"},
        "dataplane-201": {"strategy": "flat_dhcp", "subnet": "10.20.2.0/24"},
    },
    "actor": {"management_network": "mgmt"},
}


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Write site.yaml with what is given beside the usual, or instead."""

    def write(**values: Any) -> Path:
        path = tmp_path / "site.yaml"
        path.write_text(json.dumps(SITE | {"state_dir": str(tmp_path / "state")} | values))
        return path

    return write


@pytest.fixture
def properties(config: Callable[..., Path]) -> dict[str, str]:
    return {"config.properties.file": str(config())}


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("actor")


@pytest.fixture
def handler(logger: logging.Logger, properties: dict[str, str]) -> VMHandler:
    return VMHandler(logger, properties, None)


@pytest.fixture
def nets(logger: logging.Logger, properties: dict[str, str]) -> VnicNetHandler:
    return VnicNetHandler(logger, properties, None)


@pytest.fixture
def site(properties: dict[str, str]) -> Site:
    return processor_of(properties).site


@pytest.fixture
def fakes(site: Site) -> Iterator[Substrate]:
    """What the fake drivers work on, with some devices."""
    things = substrate(site, "localhost")
    for bus in ("25", "41", "a1"):
        for number in (0, 1):
            address = PciAddress.parse(f"0000:{bus}:00.{number}")
            function = PciFunction(address, "15b3", "101d")
            things.devices[address] = HostDevice(function, DeviceState.FREE)
    yield things
    things.mend()
