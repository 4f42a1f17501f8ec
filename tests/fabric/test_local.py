"""A VM's life by the actor's handlers in forked workers, on a real libvirtd and QEMU."""

import json
import logging
import multiprocessing
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import libvirt
import pytest
from fim.slivers.capacities_labels import Capacities, CapacityHints

from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.errors import Unreachable
from fabric_direct.site.config import load_site
from tests.fabric import slivers
from tests.fabric.slivers import PROJECT, bridge, port, vm
from tests.functional.apart import TAG, subnet
from tests.functional.conftest import IMAGE, URI
from tests.limits import PATIENT

RESERVATION, SERVICE = (
    "3d813cbb-47fb-42ba-91df-831e1593ac29",
    "21ec2020-3aea-4069-a2dd-08002b30309d",
)
MACS = ("52:54:00:fd:5a:01", "52:54:00:fd:5a:02")
Ask = Callable[..., Any]

pytestmark = pytest.mark.xdist_group("local")  # they share a site


@pytest.fixture(scope="module")
def connection() -> libvirt.virConnect:
    if not IMAGE.exists():
        pytest.skip(f"no {IMAGE}: labs/local/lab image")
    try:
        return connect(URI)
    except Unreachable as error:
        pytest.skip(f"no libvirt here: {error}")


@pytest.fixture(scope="module")
def room(connection: libvirt.virConnect) -> Iterator[Path]:
    """A directory that QEMU's user can reach, with a site of its own networks and a project's volume."""
    room = Path(tempfile.mkdtemp(prefix="fdtest-", dir="/var/tmp"))
    room.chmod(0o711)
    site = {
        "site": f"{TAG}-actor",
        "state_dir": str(room / "state"),
        "volume_pool": str(room / "volumes"),
        "images": {"tiny": {"path": str(IMAGE)}},
        "networks": {
            "mgmt": {"strategy": "flat_dhcp", "subnet": f"{subnet(215)}.0/24", "forward": "open"},
            "dataplane-201": {
                "strategy": "flat_dhcp",
                "subnet": f"{subnet(216)}.0/24",
                "forward": "open",
            },
        },
        "limits": PATIENT,
        "actor": {"management_network": "mgmt"},
    }
    (room / "site.yaml").write_text(json.dumps(site))
    (room / "volumes").mkdir(mode=0o711)
    volume = room / "volumes" / f"{PROJECT}-data"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", volume, "64M"], check=True)
    yield room
    pool = OwnPool.of(load_site(room / "site.yaml"), "localhost").pool()
    pool.destroy()
    pool.undefine()
    shutil.rmtree(room)


def work(name: str, operation: str, path: str, *args: Any) -> Any:
    module = import_module("fabric_direct.actor")
    handler = getattr(module, name)(
        logging.getLogger("actor"), {"config.properties.file": path}, None
    )
    return getattr(handler, operation)(*args)


@pytest.fixture(scope="module")
def ask(room: Path) -> Iterator[Ask]:
    """Ask a handler in one of two forked workers; the answer is the result, or its message."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:

        def ask(name: str, operation: str, *args: Any) -> Any:
            answer = pool.submit(work, name, operation, str(room / "site.yaml"), *args).result()
            result = answer if operation == "clean_restart" else answer[0]
            assert result["target.code"] == 0, result["exception.message"]
            return answer

        yield ask
        pool.submit(work, "VMHandler", "clean_restart", str(room / "site.yaml")).result()


def node(*components: Any, **values: Any) -> Any:
    small = {
        "image_ref": "tiny",
        "capacity_hints": CapacityHints(instance_type="fabric.c1.m1.d1"),
        "capacity_allocations": Capacities(core=1, ram=1, disk=1),
    }
    return vm(*components, **small, **values)


def things(connection: libvirt.virConnect, room: Path) -> set[str]:
    """Name all of the site's domains, networks, journal and disks."""
    site = load_site(room / "site.yaml").site
    domains = {d.name() for d in connection.listAllDomains() if RESERVATION in d.name()}
    networks = {n.name() for n in connection.listAllNetworks() if site in n.name()}
    journal = {f.name for f in (room / "state" / "journal").glob("*")}
    disks = {f.name for f in (room / "volumes").glob("*")} - {f"{PROJECT}-data"}
    return domains | networks | journal | disks


@pytest.mark.timeout(600)
def test_a_life(connection: libvirt.virConnect, room: Path, ask: Ask) -> None:
    _, unit = ask("VMHandler", "create", slivers.unit(node(), rid=RESERVATION))
    made = unit.get_sliver()
    domain = connection.lookupByName(made.label_allocations.instance)
    assert domain.isActive()
    assert made.management_ip.startswith(subnet(215))

    parent = f"{RESERVATION}-node1"
    service = slivers.unit(bridge(*(port(f"p{n}", parent, m) for n, m in enumerate(MACS))), SERVICE)
    ask("VnicNetHandler", "create", service)
    assert all(mac in domain.XMLDesc() for mac in MACS)

    def act(operation: str, **data: Any) -> dict[str, Any]:
        asked = {"operation": operation, "poa_id": "poa-1", **data}
        answer: dict[str, Any] = ask("VMHandler", "poa", unit, asked)[0]["poa_info"]
        return answer.get("info", {})

    act("cpupin", vcpu_cpu_map=[{"vcpu": "0", "cpu": "0"}])
    (row,) = act("cpuinfo")["cpuinfo"][domain.name()]
    assert row["CPU Affinity"] == "0"
    memory = act("numainfo")["numainfo"]
    assert int(memory[domain.name()]["Total"]["Total"]) > 0
    assert memory["localhost"]["node 0"]["free"].endswith(" MB")
    act("addkey", keys=[{"key": slivers.KEY, "comment": "more"}])
    act("removekey", keys=[{"key": slivers.KEY, "comment": "more"}])
    act("reboot")
    assert all(mac in domain.XMLDesc() for mac in MACS)

    unit.set_modified(modified=node(slivers.storage("vol1", "data"), label_allocations=None))
    _, unit = ask("VMHandler", "modify", unit)
    volume = unit.get_modified().attached_components_info.devices["vol1"]
    assert volume.label_allocations.device_name.startswith("/dev/vd")
    assert f"{PROJECT}-data" in domain.XMLDesc()

    ask("VMHandler", "delete", unit)
    ask("VnicNetHandler", "delete", service)
    assert things(connection, room) == set()


@pytest.mark.timeout(600)
def test_a_clean_restart(connection: libvirt.virConnect, room: Path, ask: Ask) -> None:
    ask("VMHandler", "create", slivers.unit(node(), rid=RESERVATION))
    ask("VMHandler", "clean_restart")
    assert things(connection, room) == set()
