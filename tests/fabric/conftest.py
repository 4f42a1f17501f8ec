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
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.site.config import Site
from tests.conftest import FAKE_DRIVERS

# A client of Kafka that a forked process collects crashes it: its threads are the parent's.
os.register_at_fork(before=gc.freeze, after_in_parent=gc.unfreeze)

DEVICES = {
    "25:00.0": "GPU",
    "25:00.1": "GPU",
    "26:00.0": "NVME",
    "41:00.0": "SmartNIC",
    "41:00.1": "SmartNIC",
    "a1:00.0": "SharedNIC",
}
"""What the site's worker has, by address."""
ALLOWED = [{"type": kind, "bdf": address} for address, kind in DEVICES.items()]
SITE: dict[str, Any] = {
    "site": "TEST",
    "drivers": FAKE_DRIVERS,
    "guest": "fake",
    "hosts": {"localhost": {"devices": ALLOWED}},
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
def logger() -> Iterator[logging.Logger]:
    """The actor's logger; its level and ours are as before afterwards."""
    actor, ours = logging.getLogger("actor"), logging.getLogger("fabric_direct")
    levels = actor.level, ours.level
    yield actor
    actor.setLevel(levels[0])
    ours.setLevel(levels[1])


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
    """What the fake drivers work on."""
    things = substrate(site, "localhost")
    yield things
    things.mend()
