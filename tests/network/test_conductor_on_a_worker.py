"""A conductor that runs on a worker: libvirt by its socket, taps and switch without SSH."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_direct.model import SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Conductors, Site, StateDatabase
from tests.absent import absent
from tests.network.conftest import STATE, ip
from tests.network.test_stitching import CABLE, NET, VM, answers, lab_site, site
from tests.outcomes import done

__all__ = ["lab_site", "site"]

POSTGRESQL = Path(__file__).parents[2] / "labs/postgresql/lab"
NUMBER = "9"
URL = f"postgresql://fabric@/fabric?host=/var/lib/fabric-direct/postgresql{NUMBER}&port=25441"
"""By its socket: what is in a namespace reaches no other network."""


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("FABRIC_POSTGRESQL", NUMBER)
    if subprocess.run([POSTGRESQL, "up"], check=False, capture_output=True).returncode:
        absent("PostgreSQL is not installed: labs/postgresql/lab install")
    yield URL
    subprocess.run([POSTGRESQL, "down"], check=True, capture_output=True)


@pytest.fixture
def conducted(site: Site, database: str) -> Site:
    """The site of who asks, who cannot log in to the worker."""
    out_of_reach = site.hosts["worker1"].model_copy(update={"ssh": "ssh://root@198.51.100.3"})
    return site.model_copy(
        update={
            "hosts": site.hosts | {"worker1": out_of_reach},
            "state_database": StateDatabase(url=database),
            "conductors": Conductors(),
        }
    )


@pytest.fixture
def conductor(conducted: Site, tmp_path: Path) -> Iterator[None]:
    """A conductor of worker1, in its namespaces."""
    from fabric_direct.state.postgresql.schema import migrate  # noqa: PLC0415 - an extra

    migrate(conducted)
    path = tmp_path / "site.json"
    path.write_text(conducted.model_dump_json(exclude_defaults=True))
    worker = (STATE / "sw1/libvirtd.pid").read_text().strip()
    program = "from fabric_direct.cli import main; main()"
    command = [
        *("nsenter", "--target", worker, "--mount", "--net", "--wd=."),
        *(sys.executable, "-c", program, "conductor", "--hosts", "worker1", "--site", str(path)),
    ]
    with (tmp_path / "conductor.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=os.environ)
        assert process.stdout
        assert process.stdout.readline(), Path(log.name).read_text()
        yield
        process.terminate()
        assert process.wait() == 0
        process.stdout.close()


@pytest.mark.usefixtures("conductor")
def test_a_stitched_vm_of_the_worker_it_runs_on_answers(conducted: Site) -> None:
    vm, net = VM.model_copy(update={"host": "worker1"}), SliverRef(id=NET.id, type=NET.type)
    ip("-n", CABLE, "address", "replace", "10.78.0.9/24", "dev", "eth0")
    with HandlerProcessor(conducted) as processor:
        for future in processor.create_all([vm, NET]):
            done(future.result())
        assert answers()
        for ref in (vm.ref(), net):
            seen = done(processor.probe(ref).result()).observed
            assert seen
            assert seen.differences == ()
        for future in processor.delete_all([NET, vm]):
            done(future.result())
        assert processor.unfinished() == ()
    assert "tap1" not in ip("-n", "fd-sw1", "-br", "link")
