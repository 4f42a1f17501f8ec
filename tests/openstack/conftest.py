"""What the tests on a real OpenStack share: the lab's clouds, a site on them, and what could be left."""

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openstack
import pytest
from openstack.connection import Connection

from fabric_direct.config import Site
from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor
from tests.conftest import KEY
from tests.outcomes import done

CLOUDS = Path(
    os.environ.get("OS_CLIENT_CONFIG_FILE", "/var/lib/fabric-direct/openstack/clouds.yaml")
)
LAB = Path(__file__).parents[2] / "labs/openstack/lab"
WORKER = "worker1"
SCRIPT = "#!/bin/sh\necho hello from $(hostname) > /root/hello.txt\n"


@pytest.fixture(scope="session")
def cloud() -> Connection:
    """The lab as its administrator sees it, or the reason why there is none."""
    if not CLOUDS.exists():
        pytest.skip(f"no OpenStack lab here: {LAB} up")
    os.environ["OS_CLIENT_CONFIG_FILE"] = str(CLOUDS)
    connection = openstack.connect(cloud="lab", api_timeout=60)
    connection.authorize()
    return connection


@pytest.fixture(scope="session")
def ssh_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's own key for its guests."""
    path = tmp_path_factory.mktemp("key") / "site"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="session")
def make_site(cloud: Connection, ssh_key: Path, tmp_path_factory: Any) -> Callable[..., Site]:
    """Make a site on the lab, with other settings where given."""

    def make(**values: Any) -> Site:
        defaults = {
            "site": f"fdtest-{secrets.token_hex(3)}",
            "state_dir": str(tmp_path_factory.mktemp("state")),
            "drivers": {"VM": "openstack", "L2Bridge": "openstack"},
            "openstack": {
                "cloud": "lab",
                "clouds_file": str(CLOUDS),
                "external_network": "public",
            },
            "hosts": {WORKER: {}},
            "guest_access": {"ssh_key": str(ssh_key)},
            "networks": {
                "red": {
                    "strategy": "vlan",
                    "vlan": 100 + secrets.randbelow(90),
                    "physical_network": "physnet1",
                    "subnet": "10.221.1.0/24",
                },
                "blue": {
                    "strategy": "flat",
                    "physical_network": "physnet2",
                    "subnet": "10.222.1.0/24",
                },
            },
            "limits": {"guest_boot": 240},
        }
        return Site.model_validate(defaults | values)

    return make


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
    """A sliver with one NIC on the cloud's network ``private`` and a floating IP."""
    defaults = {
        "id": f"fdtest-{name}",
        "name": "node",
        "host": WORKER,
        "image": "fabric-guest",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "ssh_keys": [KEY],
        "components": [nic("eth0", "private", floating_ip=True)],
    }
    return NodeSliver.model_validate(defaults | values)


def nic(component: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": component, "network": network, "interface": interface}


def run_in(processor: HandlerProcessor, ref: SliverRef, *argv: str, user: str = "root") -> str:
    """What a command in the guest of a sliver writes."""
    found = done(processor.probe(ref).result()).observed
    assert found
    floating = tuple(i.floating_ip for i in found.interfaces if i.floating_ip)
    guest = GuestAddress(ref.id, found.instance or "", user, floating)
    result = SshGuest(processor.site, WORKER).run(guest, argv, timeout=30)
    assert result.code == 0, result.stderr
    return result.stdout.decode()
