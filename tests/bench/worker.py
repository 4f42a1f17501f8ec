"""What devices on a worker cost, as ratios to the bare calls of the same run: `make bench-worker`.

The worker is the lab's, the domain its `l2`. *The playbook* is that of `fabric-am-handlers` 1.9.1, run
by the Ansible that it names, in an environment of its own, on the same worker and domain; it is left out
if the packages cannot be had.
"""

import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import libvirt

from fabric_direct.drivers.contract import DeviceDomain, PluggedDevice
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.sriov import SriovDevice
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.model import Interface, Nvme, PciAddress, PciComponent, SharedNic
from fabric_direct.site.config import Site
from tests.bench.measure import keep, line, median_seconds, ratio

LAB = Path(__file__).parents[2] / "labs/worker/lab"
NVME = PciAddress.parse("0000:05:00.0")
VFS = tuple(PciAddress.parse(f"0000:01:10.{number}") for number in (0, 2, 4, 6))
UPLINK, DOMAIN, BOTH = "enp1s0", "l2", 3
PLAYBOOK = "worker_pci_provisioning.yml"
PACKAGES = ("fabric-am-handlers==1.9.1", "ansible-core==2.14.*")


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="fdbench-") as folder:
        site, uri = _site(Path(folder))
        subprocess.run([LAB, "ssh", "lab-l2"], check=True)
        tenant = DeviceDomain("fdbench", connect(uri).lookupByName(DOMAIN).UUIDString())
        _vepa(site)
        _listing(site, uri)
        alone = _one(site, uri, tenant)
        _four(site, uri, tenant)
        _playbook(Path(folder), alone)
    keep("worker")


def _site(folder: Path) -> tuple[Site, str]:
    words = subprocess.run([LAB, "env"], check=True, capture_output=True, text=True).stdout
    env = dict(word.split("=", 1) for word in shlex.split(words.removeprefix("export ")))
    os.environ.update(env)
    host = {
        "libvirt": env["WORKER_URI_TCP"],
        "ssh": env["WORKER_SSH"],
        "ssh_key": env["WORKER_SSH_KEY"],
        "host_key": env["WORKER_HOST_KEY"],
        "devices": [
            {"type": "SharedNIC", "uplink": UPLINK, "vepa": True},
            {"type": "NVME", "bdf": str(NVME)},
        ],
    }
    values = {"site": "BENCH", "state_dir": str(folder / "state"), "hosts": {"worker1": host}}
    return Site.model_validate(values), env["WORKER_URI_TCP"]


def _vepa(site: Site) -> None:
    uplink = NetlinkUplink(site, "worker1")

    def both() -> None:
        uplink.set_bridge_mode(UPLINK, "veb")
        uplink.set_bridge_mode(UPLINK, "vepa")

    value = median_seconds(both, rounds=25) / 2 * 1000
    line("VEPA set and read back, relay open", value, "ms", "<= 10", value <= 10)
    call = median_seconds(lambda: host_driver(site, "worker1").run(("true",), timeout=10), 25)
    line("a command on the worker, relay open", call * 1000, "ms", "-", True)


def _listing(site: Site, uri: str) -> None:
    connection, devices = connect(uri), SriovDevice(site, "worker1")

    def bare() -> None:
        kind = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        for device in connection.listAllDevices(kind):
            device.XMLDesc(0)

    value = ratio(devices.inventory, bare, rounds=15)
    line("inventory, to the bare listing of PCI devices", value, "times", "<= 2", value <= 2)


def _one(site: Site, uri: str, tenant: DeviceDomain) -> float:
    """Return what an attach of ours takes, in seconds; print it against the bare call's."""
    devices, drive = HostdevDevice(site, "worker1"), Nvme(id="drive", bdf=(NVME,))
    domain = connect(uri).lookupByName(DOMAIN)
    device = PluggedDevice("bare", "ua-fdbench-bare-0", NVME)
    xml = render("hostdev.xml.j2", device=device, slot=None)
    ours, bare = [], []
    for _ in range(5):
        ours.append(_seconds(lambda: devices.attach(tenant, drive)))
        _give_back(devices, tenant, drive)
        bare.append(_seconds(lambda: domain.attachDeviceFlags(xml, BOTH)))
        _bare_detach(domain, device.alias)
    value = statistics.median(ours) / statistics.median(bare)
    line("one hostdev attached, to the bare libvirt call", value, "times", "<= 1.1", value <= 1.1)
    line("the same, ours", statistics.median(ours), "s", "-", True)
    return statistics.median(ours)


def _four(site: Site, uri: str, tenant: DeviceDomain) -> None:
    """Print what four VFs take at once, ours and by bare calls: libvirt plugs one after the other."""
    devices, domain = SriovDevice(site, "worker1"), connect(uri).lookupByName(DOMAIN)
    nics = [
        SharedNic(id=f"nic{n}", bdf=(vf,), interface=Interface(mac=f"52:54:00:be:00:0{n}"))
        for n, vf in enumerate(VFS)
    ]
    plain = [
        PluggedDevice(nic.id, f"ua-fdbench-bare-{n}", nic.bdf[0], mac=nic.interface.mac)
        for n, nic in enumerate(nics)
    ]
    ours, bare, one_bare = [], [], []
    for _ in range(5):
        ours.append(_seconds(lambda: _at_once(lambda n: devices.attach(tenant, n), nics)))
        for nic in nics:
            _give_back(devices, tenant, nic)
        bare.append(_seconds(lambda: _at_once(lambda d: _bare_attach(domain, d), plain)))
        for device in plain:
            _bare_detach(domain, device.alias)
        one_bare.append(_seconds(lambda: _bare_attach(domain, plain[0])))
        _bare_detach(domain, plain[0].alias)
    value = statistics.median(ours) / statistics.median(bare)
    line(
        "four VFs at once, to four bare libvirt calls at once",
        value,
        "times",
        "<= 1.3",
        value <= 1.3,
    )
    line("the same, ours", statistics.median(ours), "s", "-", True)
    value = statistics.median(bare) / statistics.median(one_bare)
    line("four bare calls at once, to one alone", value, "times", "-", True)


def _playbook(folder: Path, ours: float) -> None:
    venv = folder / "am"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin/pip", "install", "-q", "--no-input"]
    wanted = subprocess.run([*pip, "--no-deps", PACKAGES[0]], capture_output=True, check=False)
    ansible = subprocess.run([*pip, PACKAGES[1]], capture_output=True, check=False)
    if wanted.returncode or ansible.returncode:
        print(f"the playbook of {PACKAGES[0]}: left out, it cannot be installed")  # noqa: T201
        return
    with _inventory(folder) as inventory:
        attach = _seconds(lambda: _play(venv, inventory, "attach"))
        _play(venv, inventory, "detach")
    line("the playbook of the actor, to our attach", attach / ours, "times", "-", True)
    line("the same, the playbook", attach, "s", "-", True)


@contextlib.contextmanager
def _inventory(folder: Path) -> Iterator[Path]:
    host = os.environ["WORKER_SSH"].removeprefix("ssh://root@")
    address, _, port = host.partition(":")
    known = folder / "known_hosts"
    known.write_text(f"[{address}]:{port} {os.environ['WORKER_HOST_KEY']}\n")
    path = folder / "hosts"
    path.write_text(
        f"worker1 ansible_host={address} ansible_port={port} ansible_user=root "
        f"ansible_ssh_private_key_file={os.environ['WORKER_SSH_KEY']} "
        f"ansible_ssh_common_args='-o UserKnownHostsFile={known}' "
        "ansible_python_interpreter=/usr/bin/python3\n"
    )
    yield path


def _play(venv: Path, inventory: Path, operation: str) -> None:
    (playbooks,) = venv.glob("lib/python*/site-packages/fabric_am/playbooks")
    bdf = "0000:05:00.0"
    values = {
        "worker_node_name": "worker1",
        "operation": operation,
        "kvmguest_name": DOMAIN,
        "device": "drive",
        "domain": "0x0000",
        "bus": "0x05",
        "slot": "0x00",
        "function": "0x0",
        "bdf": bdf,
    }
    command = [venv / "bin/ansible-playbook", "-i", inventory, playbooks / PLAYBOOK]
    subprocess.run(
        [*command, "--extra-vars", json.dumps(values)],
        check=True,
        capture_output=True,
        cwd=playbooks,
    )


def _give_back(devices: HostdevDevice, tenant: DeviceDomain, component: PciComponent) -> None:
    devices.detach(tenant, component.id, timeout=60)
    for record in devices.records(tenant.sliver):
        if record.component == component.id:
            devices.clean(record)


def _bare_detach(domain: libvirt.virDomain, alias: str) -> None:
    domain.detachDeviceAlias(alias, BOTH)
    while alias in domain.XMLDesc(0):
        time.sleep(0.1)


def _bare_attach(domain: libvirt.virDomain, device: PluggedDevice) -> None:
    domain.attachDeviceFlags(render("interface-hostdev.xml.j2", device=device, slot=None), BOTH)


def _at_once(call: Callable[[Any], object], each: Sequence[Any]) -> None:
    with ThreadPoolExecutor(len(each)) as pool:
        list(pool.map(call, each))


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
