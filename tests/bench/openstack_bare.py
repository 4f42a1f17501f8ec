"""The bare calls: a server with a port and a floating IP, as one writes it with openstacksdk."""

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import paramiko
from openstack.config import OpenStackConfig
from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from fabric_direct.drivers.cloudinit import user_data
from tests.bench.openstack_lab import Lab
from tests.bench.ssh import answers

# Seconds between two looks.
EACH = 0.3


@dataclass(frozen=True, slots=True)
class Made:
    """What was made, by id, and the address that it is reached by."""

    server: str
    port: str
    floating_ip: str
    address: str


class Bare:
    """One connection, with the ids of all that has a name looked up before."""

    def __init__(self, lab: Lab) -> None:
        config = OpenStackConfig(config_files=[lab.clouds], load_envvars=False)
        self.connection = Connection(config=config.get_one(lab.cloud))
        self._lab, self._key = lab, paramiko.PKey.from_path(lab.key)
        network, image = self.connection.network, self.connection.image
        self._network = network.find_network(lab.network, ignore_missing=False).id
        self._external = network.find_network(lab.external, ignore_missing=False).id
        self._image = image.find_image(lab.image, ignore_missing=False).id
        self._flavor = self.connection.compute.find_flavor(lab.flavor, ignore_missing=False).id

    @contextmanager
    def server(self, name: str) -> Iterator[Made]:
        """Make a server, and delete it with all that belongs to it."""
        made = self._make(name)
        try:
            yield made
        finally:
            self._delete(made)

    def _make(self, name: str) -> Made:
        network = self.connection.network
        port = network.create_port(name=name, network_id=self._network)
        address = network.create_ip(floating_network_id=self._external, port_id=port.id)
        server = self.connection.compute.create_server(**self._request(name, port.id))
        return Made(server.id, port.id, address.id, address.floating_ip_address)

    def _request(self, name: str, port: str) -> dict[str, Any]:
        return {
            "name": name,
            "image_id": self._image,
            "flavor_id": self._flavor,
            "networks": [{"port": port}],
            "availability_zone": f"nova:{self._lab.host}",
            "user_data": base64.b64encode(user_data(self._lab.sliver(name)).encode()).decode(),
        }

    def wait_active(self, made: Made) -> None:
        """Return when the server is ACTIVE."""
        while (status := self.connection.compute.get_server(made.server).status) != "ACTIVE":
            assert status != "ERROR", made
            time.sleep(EACH)

    def wait_command(self, made: Made) -> None:
        """Return when a command answers in the guest."""
        while not answers(made.address, self._lab.user, self._key):
            time.sleep(EACH)

    def _delete(self, made: Made) -> None:
        self.connection.compute.delete_server(made.server)
        while self._is_there(made):
            time.sleep(EACH)
        self.connection.network.delete_ip(made.floating_ip)
        self.connection.network.delete_port(made.port)

    def _is_there(self, made: Made) -> bool:
        try:
            self.connection.compute.get_server(made.server)
        except NotFoundException:
            return False
        return True
