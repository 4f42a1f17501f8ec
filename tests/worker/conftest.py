"""What the tests on a real worker share: the lab's worker, a site on it, and what could be left.

Side by side (``-n``), each process has a worker of its own: the one that ``FABRIC_WORKER`` names, and
those after it.
"""

import fcntl
import json
import os
import secrets
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import libvirt
import paramiko
import pytest

from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.site.config import Site
from tests.absent import absent
from tests.limits import PATIENT

LAB = Path(__file__).parents[2] / "labs/worker/lab"
STATE = Path(__file__).with_name("state.py")
IMAGE = "/var/lib/fabric-direct/images/fabric-guest.qcow2"
UPLINKS = {"enp1s0": "0000:01:00.0", "enp2s0": "0000:02:00.0"}
EMULATED = {
    **dict.fromkeys(("call", "probe", "delete", "poa", "guest_devices"), 600.0),
    **dict.fromkeys(("create", "modify"), 1800.0),
}
"""Time limits in seconds, where they differ: the worker's processors are emulated."""
# What stands in for what is in machine's first lines: labs/worker/machine.
DEVICES: tuple[dict[str, Any], ...] = (
    {"type": "SharedNIC", "model": "ConnectX-6", "uplink": "enp1s0", "vepa": True},
    {"type": "SharedNIC", "uplink": "enp2s0"},
    {"type": "SmartNIC", "bdf": "0000:02:00.0"},
    {"type": "NVME", "model": "P4510", "bdf": "0000:04:00.0"},
    {"type": "NVME", "model": "P4510", "bdf": "0000:05:00.0"},
    {"type": "GPU", "model": "RTX6000", "bdf": "0000:06:00.0"},
    {"type": "GPU", "model": "RTX6000", "bdf": "0000:06:00.1"},
    {
        "type": "FPGA",
        "bdf": "0000:07:00.0",
        "usb": [{"vendor": "0403", "product": "6001"}],
    },
    {"type": "FPGA", "bdf": "0000:07:00.1"},
)


@dataclass(frozen=True)
class Worker:
    """The lab's worker."""

    ssh: str
    """``ssh://root@127.0.0.1:<port>``."""
    key: Path
    host_key: str
    uri_ssh: str
    uri_tcp: str
    uri_tls: str
    _clients: list[paramiko.SSHClient] = field(default_factory=list)
    _keepers: list[paramiko.Channel] = field(default_factory=list)

    @classmethod
    def of(cls, exports: str) -> Self:
        """The worker that a lab's command ``env`` tells of."""
        env = dict(word.split("=", 1) for word in shlex.split(exports) if "=" in word)
        return cls(
            ssh=env["WORKER_SSH"],
            key=Path(env["WORKER_SSH_KEY"]),
            host_key=env["WORKER_HOST_KEY"],
            uri_ssh=env["WORKER_URI_SSH"],
            uri_tcp=env["WORKER_URI_TCP"],
            uri_tls=env["WORKER_URI_TLS"],
        )

    def as_host(self, devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Its entry below ``hosts`` of a site, with these devices."""
        return {
            "libvirt": self.uri_tcp,
            "ssh": self.ssh,
            "ssh_key": str(self.key),
            "host_key": self.host_key,
            "virt_type": "kvm",
            "devices": devices,
        }

    @property
    def ssh_port(self) -> int:
        return urlsplit(self.ssh).port or 22

    @property
    def libvirt_port(self) -> int:
        return urlsplit(self.uri_tcp).port or 0

    @property
    def tls_port(self) -> int:
        return urlsplit(self.uri_tls).port or 0

    @property
    def connection(self) -> libvirt.virConnect:
        """libvirt there, by TCP."""
        return connect(self.uri_tcp)

    def run(self, *argv: str, stdin: str | None = None) -> str:
        """What a command there writes.

        :raises subprocess.CalledProcessError: with what it wrote to stderr, if it fails.
        """
        ended = self.ask(*argv, stdin=stdin)
        if ended.returncode:
            error = subprocess.CalledProcessError(ended.returncode, argv, None, ended.stderr)
            error.add_note(ended.stderr)
            raise error
        return ended.stdout

    def ask(self, *argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """What a command there came to."""
        transport = self._client().get_transport()
        assert transport
        with transport.open_session() as channel:
            channel.exec_command(shlex.join(argv))
            channel.sendall((stdin or "").encode())
            channel.shutdown_write()
            stdout = channel.makefile("rb").read().decode()
            stderr = channel.makefile_stderr("rb").read().decode()
            return subprocess.CompletedProcess(argv, channel.recv_exit_status(), stdout, stderr)

    def read(self, path: str) -> str:
        """What is in a file there, without the newline at its end."""
        return self.run("cat", path).rstrip("\n")

    def write(self, path: str, content: str) -> None:
        """Write into a file that is there: one of sysfs."""
        self.run("tee", path, stdin=content)

    def driver(self, address: str) -> str:
        """The driver of a PCI function there; empty if it has none."""
        link = self.ask("readlink", f"/sys/bus/pci/devices/{address}/driver").stdout
        return link.strip().rpartition("/")[2]

    def node(self, address: str) -> libvirt.virNodeDevice:
        """A PCI function there, as libvirt has it."""
        name = "pci_" + address.translate(str.maketrans(":.", "__"))
        return self.connection.nodeDeviceLookupByName(name)

    def namespace(self, address: str) -> str:
        """The block device of an NVMe controller there."""
        found = self.run("sh", "-c", f"ls -d /sys/bus/pci/devices/{address}/nvme/nvme*/nvme*n1")
        return found.strip().rpartition("/")[2]

    def vf(self, link: str, number: int) -> dict[str, Any]:
        """The settings of a VF of an uplink there, in iproute2's words."""
        (shown,) = json.loads(self.run("ip", "-j", "-d", "link", "show", "dev", link))
        found: dict[str, Any] = shown["vfinfo_list"][number]
        return found

    @property
    def state(self) -> dict[str, str]:
        """What tests may have changed."""
        return self._kept("show") | self._domains_and_networks()

    def restore(self, wanted: dict[str, str]) -> dict[str, list[str]]:
        """Make it what it was, and return what was not so, as ``[was, is]``."""
        left = {k: ["", v] for k, v in self._domains_and_networks().items() if k not in wanted}
        self._remove(left)
        own = {k: v for k, v in wanted.items() if not k.startswith(("domain ", "network "))}
        return left | self._kept("restore", own)

    def make_baseline(self) -> None:
        """Make it what ``lab up`` leaves; ``l2`` may run, without devices."""
        l2 = L2(self)
        if l2.is_defined and l2.domain.isActive() and "<hostdev" in l2.domain.XMLDesc():
            l2.domain.destroy()
        self._remove(self._domains_and_networks())
        self._kept("baseline")

    def _domains_and_networks(self) -> dict[str, str]:
        """Those of tests; ``l2`` is the lab's."""
        domains = {domain.name() for domain in self.connection.listAllDomains()} - {"l2"}
        networks = {network.name() for network in self.connection.listAllNetworks()}
        found = [f"domain {name}" for name in domains] + [f"network {name}" for name in networks]
        return dict.fromkeys(sorted(found), "there")

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            kind, _, which = name.partition(" ")
            if kind == "domain":
                self.ask("virsh", "destroy", which)
                self.ask("virsh", "undefine", which, "--managed-save", "--nvram")
            else:
                self.ask("virsh", "net-destroy", which)
                self.ask("virsh", "net-undefine", which)

    def _kept(self, *question: Any) -> Any:
        """Ask ``state.py``, which runs there."""
        if not (self._keepers and not self._keepers[-1].closed):
            self._keepers.append(self._started(STATE.read_text()))
        self._keepers[-1].sendall(json.dumps(question).encode() + b"\n")
        said = json.loads(self._keepers[-1].makefile("rb").readline())
        assert "answer" in said, said["error"]
        return said["answer"]

    def _started(self, program: str) -> paramiko.Channel:
        transport = self._client().get_transport()
        assert transport
        channel = transport.open_session()
        channel.exec_command(shlex.join(("exec", "python3", "-ISB", "-c", program)))
        return channel

    def _client(self) -> paramiko.SSHClient:
        transport = self._clients[-1].get_transport() if self._clients else None
        if not (transport and transport.is_active()):
            self._clients.append(self._connected())
        return self._clients[-1]

    def _connected(self) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        algorithm, base64 = self.host_key.split()[:2]
        name = f"[127.0.0.1]:{self.ssh_port}"
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"{name} {algorithm} {base64}")
        assert entry
        assert entry.key
        client.get_host_keys().add(name, algorithm, entry.key)
        client.connect(
            "127.0.0.1",
            self.ssh_port,
            "root",
            key_filename=str(self.key),
            allow_agent=False,
            look_for_keys=False,
            timeout=300,
            banner_timeout=300,
        )
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


def _number(process: str) -> str:
    """The worker of a process of pytest-xdist (``gw0``, …), or of pytest alone."""
    first = int(os.environ.get("FABRIC_WORKER", "0"))
    return str(first + int(process.removeprefix("gw") if process.startswith("gw") else 0))


def _lab(command: str, number: str) -> str:
    env = os.environ | {"FABRIC_WORKER": number}
    ended = subprocess.run([LAB, command], capture_output=True, text=True, check=False, env=env)
    if ended.returncode:
        absent(f"no worker here: FABRIC_WORKER={number} {LAB} up")
    return ended.stdout


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            return peer.recv(4) == b"SSH-"
    except OSError:
        return False


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, which looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what waits for a guest within the emulated worker the time that such an operation has.

    All that needs ``l2`` is one process's, as its first boot takes minutes.
    """
    for item in items:
        if item.path.parent == STATE.parent:
            item.add_marker(pytest.mark.timeout(1200))
            if "booted_l2" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("l2"))


@pytest.fixture(scope="session")
def worker(worker_id: str) -> Iterator[Worker]:
    """The lab's worker as `up` leaves it, alone, or the reason why there is none."""
    number = _number(worker_id)
    worker = Worker.of(_lab("env", number))
    if not _answers(worker.ssh_port):
        absent(f"the worker does not answer: FABRIC_WORKER={number} {LAB} up")
    with alone(worker):
        yield worker


@contextmanager
def alone(worker: Worker) -> Iterator[None]:
    """In the block a worker, first as `up` leaves it, is this session's.

    Two sessions of tests on one worker would take each other's domains away.
    """
    with Path(f"/run/fabric-direct-worker-{worker.ssh_port}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.exit("other tests are on this worker: boot another, FABRIC_WORKER=1", 2)
        worker.make_baseline()
        yield
        worker.close()


@pytest.fixture(scope="session")
def make_site(worker: Worker, tmp_path_factory: Any) -> Callable[..., Site]:
    """Make a site on the worker, with other settings where given; those of ``host`` are the worker's."""

    def make(*, host: dict[str, Any] | None = None, **values: Any) -> Site:
        defaults = {
            "site": f"fdtest-{secrets.token_hex(3)}",
            "state_dir": str(tmp_path_factory.mktemp("state")),
            "volume_pool": "/var/lib/fabric-direct/volumes",
            "hosts": {"worker1": worker.as_host(DEVICES) | (host or {})},
            "images": {"tiny": {"path": IMAGE}},
            "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.231.1.0/24"}},
            "limits": PATIENT | EMULATED,
        }
        return Site.model_validate(defaults | values)

    return make


@pytest.fixture
def unchanged(worker: Worker) -> Iterator[None]:
    """Nothing that the test did is left on the worker; else it is taken away, and the test fails."""
    before = worker.state
    yield
    left = worker.restore(before)
    assert left == {}, f"left on the worker: {left}"


@dataclass
class L2:
    """A domain whose guest says on its console which PCI functions it has."""

    worker: Worker

    @property
    def domain(self) -> libvirt.virDomain:
        return self.worker.connection.lookupByName("l2")

    @property
    def is_defined(self) -> bool:
        return "l2" in {domain.name() for domain in self.worker.connection.listAllDomains()}

    @property
    def is_as_it_was(self) -> bool:
        """Whether it runs or sleeps, and has no device of a test."""
        if not self.is_defined:
            return False
        domain = self.domain
        ready = domain.state()[0] in {libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED}
        inactive = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        return ready and "managed='yes'" not in domain.XMLDesc(0) + inactive

    def make_ready(self) -> None:
        if not self.is_as_it_was:
            self.worker.run("lab-l2")

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let it run meanwhile: its idle guest costs a tenth of the worker's processors."""
        if self.domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            self.domain.resume()
        yield
        self.make_ready()
        self.domain.suspend()

    def says(self) -> str:
        """The last line of its guest, if it said one since it was restored.

        ``address=vendor:product=driver=MAC`` for each function.
        """
        log = "/var/log/libvirt/qemu/l2-console.log"
        lines = self.worker.ask("grep", "-a", "PCI:", log).stdout.splitlines()
        return lines[-1] if lines else ""


@pytest.fixture(scope="session")
def booted_l2(worker: Worker) -> L2:
    """The domain ``l2``, once it has booted. (One that was restored is slow at first.)"""
    l2 = L2(worker)
    l2.make_ready()
    return l2


@pytest.fixture
def l2(booted_l2: L2, unchanged: None) -> Iterator[L2]:
    """A domain with eight root ports whose guest, a tiny Linux, is ready; it is as it was afterwards."""
    with booted_l2.awake():
        yield booted_l2
