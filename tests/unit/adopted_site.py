"""A site on a fake cloud and a fake worker that fabric_am has used, as fixtures."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import PciFunction
from fabric_direct.drivers.libvirt.connection import connections
from fabric_direct.drivers.libvirt.passthrough import release
from fabric_direct.model import PciAddress
from fabric_direct.site.config import Site
from tests.trust.http_cloud import StatefulCloud
from tests.unit.fabric_am import FabricAm
from tests.unit.openstack_api import answering
from tests.unit.pci_host import Worker

DRIVES = tuple(PciAddress(0, 0x30 + n, 0, 0) for n in range(50))
GPU, AUDIO = PciAddress.parse("25:00.0"), PciAddress.parse("25:00.1")
STRANGE = PciAddress.parse("99:00.0")


class Cloud(StatefulCloud):
    """The fake cloud, each of whose servers is a domain of a fake worker; it can fail, or be killed."""

    def __init__(self, directory: Path, worker: Worker) -> None:
        self.worker = worker
        self.changes: list[str] = []
        """Each request that changed something."""
        self.fault: Callable[[str], None] = lambda _: None
        """Is told of each request that would change something, and may raise."""
        super().__init__(directory)

    def _called(self, request: Any, path: str) -> tuple[int, dict[str, str], str]:
        what = f"{request.method} {re.sub('[0-9a-f]{8}-[0-9a-f-]{27}', 'ID', path)}"
        if request.method != "GET":
            self.fault(what)
            self.changes.append(what)
        answer = super()._called(request, path)
        there = self.things["servers"]
        self.worker.domains[:] = [d for d in self.worker.domains if d.uuid in there]
        return answer


@pytest.fixture
def worker() -> Worker:
    """A worker with fifty drives, a GPU with audio, and a device that the site does not allow."""
    return Worker(
        (
            *(PciFunction(a, "144d", "a80a", driver="nvme") for a in DRIVES),
            PciFunction(GPU, "10de", "1eb8", driver="nouveau"),
            PciFunction(AUDIO, "10de", "10f8", driver="snd_hda_intel"),
            PciFunction(STRANGE, "15b3", "1019", driver="mlx5_core"),
        )
    )


@pytest.fixture
def cloud(
    worker: Worker, kept_connection: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    made = Cloud(kept_connection, worker)
    with answering(made, monkeypatch):
        yield made


@pytest.fixture
def am(cloud: Cloud, worker: Worker) -> FabricAm:
    return FabricAm(cloud, worker)


@pytest.fixture
def site(cloud: Cloud, worker: Worker, tmp_path: Path, mocker: MockerFixture) -> Site:
    allowed = [
        *({"type": "NVME", "bdf": str(a)} for a in DRIVES),
        {"type": "GPU", "bdf": str(GPU)},
        {"type": "GPU", "bdf": str(AUDIO)},
    ]
    made = cloud.site(
        state_dir=tmp_path / "state",
        drivers={"VM": "openstack"},
        guest="none",
        hosts={"w1": {"devices": allowed}},
        limits={"unanswered": 0.1},
        openstack={"external_network": "public"},
        actor={"management_network": "lab"},
    )
    worker.put_in(made, mocker)
    mocker.patch.object(connections, "connect", return_value=worker)
    worker.cleaned = mocker.patch.object(release, "clean")
    return made
