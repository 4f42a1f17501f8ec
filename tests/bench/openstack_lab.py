"""What the figures of OpenStack are taken of: the lab, and one server in it."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Site


@dataclass(frozen=True, slots=True)
class Lab:
    """The cloud, and what is made in it."""

    DEFAULTS: ClassVar[dict[str, str]] = {
        "clouds": "/var/lib/fabric-direct/openstack/clouds.yaml",
        "cloud": "lab",
        "host": "worker1",
        "image": "fabric-guest",
        "user": "root",
        "flavor": "m1.small",
        "network": "private",
        "external": "public",
        "prefix": "fdbench",
    }

    rounds: int
    many: int
    clouds: str
    """Which clouds.yaml."""
    cloud: str
    """An entry of it."""
    host: str
    image: str
    user: str
    """Who logs in to the image's guests."""
    flavor: str
    network: str
    external: str
    prefix: str
    """What the names of all that is made begin with."""
    folder: Path
    """Where the site keeps its state."""
    key: Path
    """The private key that guests let in."""

    def new_id(self) -> str:
        """Return a name that nothing has yet."""
        return f"{self.prefix}-{secrets.token_hex(4)}"

    def site(self) -> Site:
        """Return the site as our processor sees it."""
        values = {
            "site": self.prefix,
            "state_dir": self.folder / "state",
            "drivers": {"VM": "openstack"},
            "openstack": {
                "cloud": self.cloud,
                "clouds_file": Path(self.clouds),
                "external_network": self.external,
            },
            "images": {self.image: {"user": self.user}},
            "guest_access": {"ssh_key": self.key},
        }
        return Site.model_validate(values)

    def sliver(self, name: str) -> NodeSliver:
        """Return the server that is made."""
        nic = {"type": "vNIC", "id": "nic1", "network": self.network}
        values = {
            "id": name,
            "name": "node",
            "host": self.host,
            "image": self.image,
            "flavor": self.flavor,
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "ssh_keys": (public_key(self.key),),
            "components": ({**nic, "interface": {"floating_ip": True}},),
        }
        return NodeSliver.model_validate(values)


def new_key(folder: Path) -> Path:
    """Write a new private key."""
    path, form = folder / "key", serialization.PrivateFormat.OpenSSH
    key = Ed25519PrivateKey.generate()
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(encoding, form, plain))
    path.chmod(0o600)
    return path


def public_key(path: Path) -> str:
    """Return the public part of a key, in OpenSSH's one-line form."""
    key = paramiko.PKey.from_path(path)
    return f"{key.get_name()} {key.get_base64()}"
