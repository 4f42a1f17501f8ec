"""What the tests on a real OpenStack share: a cloud, a site on it, and what could be left."""

import os
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openstack
import pytest
from openstack.connection import Connection

from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.absent import absent
from tests.conftest import KEY
from tests.limits import PATIENT
from tests.openstack.target import TARGET, XDIST_NUMBER
from tests.openstack.turns import turn
from tests.outcomes import done

LAB = Path(__file__).parents[2] / "labs/openstack/lab"
WORKER = TARGET.worker
SCRIPT = "#!/bin/sh\necho hello from $(hostname) > /hello.txt\n"


def ours(name: str) -> str:
    """A name in the cloud that no other xdist worker uses."""
    return f"fdtest-{XDIST_NUMBER}-{name}"


RED, BLUE = ours("red"), ours("blue")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: changes or measures what all tests share")
    config.addinivalue_line("markers", "long: takes a minute and more, beside others some")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("alone"):
        item.add_marker(pytest.mark.xdist_group("alone"))
    if item.get_closest_marker("long"):
        item.add_marker(pytest.mark.timeout(2400))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and leave to the end what no other test may run beside."""
    items.sort(key=_when)


def _when(item: pytest.Item) -> int:
    if item.get_closest_marker("alone"):
        return 2
    return 0 if item.get_closest_marker("xdist_group") or item.get_closest_marker("long") else 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Wait for the test's turn before its time limit begins to count."""
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(scope="session")
def cloud() -> Connection:
    """The cloud as its administrator sees it, or the reason why there is none."""
    if TARGET.clouds_file:
        if not TARGET.clouds_file.exists():
            absent(f"no OpenStack lab here: {LAB} up")
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(TARGET.clouds_file)
    connection = openstack.connect(cloud=TARGET.cloud, api_timeout=300)
    connection.authorize()
    return connection


@pytest.fixture
def lab(cloud: Connection) -> Callable[..., None]:
    """Run a command of the lab, where the cloud is the lab."""
    if not TARGET.is_lab:
        pytest.skip("stops or hangs a service: only the lab's may be")

    def lab(*words: str) -> None:
        subprocess.run([LAB, *words], check=True, capture_output=True)

    return lab


@pytest.fixture
def member(cloud: Connection) -> dict[str, Any]:
    """A site's settings of the cloud, with somebody's account who is no administrator."""
    if not TARGET.member:
        pytest.skip("FABRIC_CLOUD_MEMBER names no entry of clouds.yaml")
    return cloud_settings(TARGET.member)


def cloud_settings(cloud: str) -> dict[str, Any]:
    return {
        "cloud": cloud,
        "clouds_file": str(TARGET.clouds_file) if TARGET.clouds_file else None,
        "external_network": TARGET.external_network,
    }


@pytest.fixture(scope="session")
def ssh_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's own key for its guests."""
    path = tmp_path_factory.mktemp("key") / "site"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="session")
def make_site(cloud: Connection, ssh_key: Path, tmp_path_factory: Any) -> Callable[..., Site]:
    """Make a site on the cloud, with other settings where given."""

    def make(**values: Any) -> Site:
        defaults = {
            "hosts": {WORKER: {}},
            "images": {TARGET.image: {"user": TARGET.image_user}},
            "guest_access": {"ssh_key": str(ssh_key)},
            "networks": site_networks(),
            "limits": PATIENT,
        }
        return cloud_site(tmp_path_factory.mktemp("state"), **(defaults | values))

    return make


def cloud_site(state: Path, **values: Any) -> Site:
    """A site of its own on the cloud, with these settings."""
    defaults = {
        "site": f"fdtest-{secrets.token_hex(3)}",
        "state_dir": str(state),
        "drivers": {"VM": "openstack", "L2Bridge": "openstack"},
        "openstack": cloud_settings(TARGET.cloud),
    }
    return Site.model_validate(defaults | values)


def site_networks() -> dict[str, dict[str, Any]]:
    """A VLAN, and a flat network where the cloud has room for one."""
    red = TARGET.vlan_network(TARGET.own_vlans[0], "10.221.1.0/24")
    if not TARGET.own_flat_network:
        return {RED: red}
    blue = {
        "strategy": "flat",
        "physical_network": TARGET.own_flat_network,
        "subnet": "10.222.1.0/24",
    }
    return {RED: red, BLUE: blue}


@pytest.fixture(scope="session")
def flat_network() -> str:
    """A physical network for flat networks, of this xdist worker alone."""
    name = TARGET.own_flat_network
    if not name:
        pytest.skip("FABRIC_FLAT_NETWORKS names no physical network")
    return name


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture(scope="module")
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@dataclass(frozen=True)
class Things:
    """Everything of a kind that a site could leave in the cloud, by name."""

    cloud: Connection
    site: Site

    def __call__(self) -> set[str]:
        ours = f"fabric-direct {self.site.site}"
        network, compute = self.cloud.network, self.cloud.compute
        described = [
            *network.ports(),
            *network.ips(),
            *network.networks(),
            *network.subnets(),
            *network.routers(),
            *network.qos_policies(),
        ]
        marked = [*compute.servers(all_projects=True), *self.cloud.block_storage.volumes()]
        site = "fabric-direct:site"
        names = {f"{type(x).__name__} {x.name or x.id}" for x in described if _is(x, ours)}
        names |= {
            f"{type(x).__name__} {x.name}"
            for x in marked
            if (x.metadata or {}).get(site) == self.site.site
        }
        journal = self.site.state_dir / "journal"
        return names | {f"journal {path.name}" for path in journal.glob("*")}


def _is(thing: Any, ours: str) -> bool:
    return (thing.description or "").startswith((f"{ours}/", f"{ours} "))


@pytest.fixture(scope="module")
def things(cloud: Connection, site: Site) -> Things:
    return Things(cloud, site)


def sliver(name: str, /, **values: Any) -> NodeSliver:
    """A sliver with one NIC on a network of the cloud's and a floating IP.

    The lab's flavors are for the capacities to choose.
    """
    defaults = {
        "id": ours(name),
        "name": "node",
        "host": WORKER,
        "image": TARGET.image,
        "flavor": None if TARGET.is_lab else TARGET.flavor,
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "ssh_keys": [KEY],
        "components": [nic("eth0", TARGET.network, floating_ip=True)],
    }
    return NodeSliver.model_validate(defaults | values)


def nic(component: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": component, "network": network, "interface": interface}


def mac(number: int) -> str:
    """An address that no other xdist worker uses."""
    return f"fa:16:3e:{XDIST_NUMBER:02x}:aa:{number:02x}"


def run_in(
    processor: HandlerProcessor, ref: SliverRef, *argv: str, user: str = TARGET.image_user
) -> str:
    """What a command in the guest of a sliver writes."""
    found = done(processor.probe(ref).result()).observed
    assert found
    floating = tuple(i.floating_ip for i in found.interfaces if i.floating_ip)
    guest = GuestAddress(ref.id, found.instance or "", user, floating)
    result = SshGuest(processor.site, WORKER).run(guest, argv, timeout=300)
    assert result.code == 0, result.stderr
    return result.stdout.decode()


def metered(run: Callable[..., str]) -> list[int]:
    """The rates of the meters that the flows of OVN's switch pass, in kbit/s."""
    show = "ovs-ofctl", "-O", "OpenFlow13"
    meters = re.findall(r"meter=(\d+) .*\n.*rate=(\d+)", run(*show, "dump-meters", "br-int"))
    flows = run(*show, "dump-flows", "br-int")
    return [int(rate) for meter, rate in meters for _ in re.findall(rf"\bmeter:{meter}\b", flows)]
