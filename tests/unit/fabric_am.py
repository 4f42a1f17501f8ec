"""Slivers as fabric_am leaves them in a cloud and on a worker: its names, and no stamp."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from fabric_direct.model import PciAddress
from tests.trust.http_cloud import StatefulCloud, Thing
from tests.unit.pci_host import CONFIG, LIVE, FakeDomain, Worker, plugged

PROJECT = "7b51a3c1"


@dataclass
class Made:
    """What was made for one sliver."""

    reservation: str
    server: Thing
    management: Thing
    floating: Thing
    vnics: tuple[Thing, ...]
    volume: Thing | None
    domain: FakeDomain | None


class FabricAm:
    """Makes slivers in a fake cloud and a fake worker."""

    def __init__(self, cloud: StatefulCloud, worker: Worker | None = None) -> None:
        self.cloud, self.worker = cloud, worker
        self.always = True
        """Whether a server without a device has a domain as well."""
        self._neutron("networks", name="dataplane-100")

    def create(
        self,
        name: str = "node1",
        *bdf: PciAddress,
        volume: bool = False,
        vnics: int = 0,
        reservation: str = "",
    ) -> Made:
        """Make a server, its floating IP, a volume of its user, ports of services, and hostdevs."""
        reservation = reservation or str(uuid4())
        server = self._server(f"{reservation}-{name}", name)
        management = self.port("", server, made_by_nova=True)
        public = self._network("public")
        floating = self._neutron(
            "floatingips", floating_network_id=public, port_id=management["id"]
        )
        floating["floating_ip_address"] = f"192.0.2.{len(self.cloud.things['floatingips']) + 10}"
        plugs = tuple(
            self.port(f"{reservation}-{name}-{name}-if{n}", server, network="dataplane-100")
            for n in range(vnics)
        )
        disk = self._volume(server, f"{PROJECT}-data-{reservation[:8]}") if volume else None
        domain = self._domain(server, bdf)
        return Made(reservation, server, management, floating, plugs, disk, domain)

    def _server(self, name: str, hostname: str) -> Thing:
        flavor = next(iter(self.cloud.things["flavors"].values()))
        number = len(self.cloud.things["servers"]) + 1
        return self.cloud.add(
            "servers",
            {
                "name": name,
                "image": {"id": str(UUID(int=7 << 64))},
                "metadata": {"hostname": hostname},
                "tags": [],
                "flavor": {"original_name": flavor["name"], "vcpus": 1, "ram": 1024, "disk": 1},
                "status": "ACTIVE",
                "OS-EXT-STS:task_state": None,
                "OS-EXT-STS:power_state": 1,
                "OS-SRV-USG:launched_at": "2026",
                "OS-EXT-SRV-ATTR:host": "w1",
                "OS-EXT-SRV-ATTR:instance_name": f"instance-{number:08x}",
                "os-extended-volumes:volumes_attached": [],
            },
        )

    def port(
        self,
        name: str,
        server: Thing,
        *,
        network: str = "lab",
        made_by_nova: bool = False,
        **more: Any,
    ) -> Thing:
        """Make a port that is plugged into a server."""
        number = len(self.cloud.things["ports"]) + 10
        subnet = next(iter(self.cloud.things["subnets"]))
        return self._neutron(
            "ports",
            name=name,
            network_id=self._network(network),
            mac_address=f"fa:16:3e:ff:{number >> 8:02x}:{number & 255:02x}",
            fixed_ips=[{"subnet_id": subnet, "ip_address": f"10.30.0.{number % 250}"}],
            device_id=server["id"],
            device_owner="compute:nova",
            port_security_enabled=made_by_nova,
            security_groups=[],
            status="ACTIVE",
            made_by_nova=made_by_nova,
            **more,
        )

    def _network(self, name: str) -> str:
        networks = self.cloud.things["networks"].values()
        return next(str(n["id"]) for n in networks if n["name"] == name)

    def _neutron(self, kind: str, **values: Any) -> Thing:
        usual = {"description": "", "name": "", "tags": [], "project_id": PROJECT_ID}
        return self.cloud.add(kind, {**usual, **values})

    def _volume(self, server: Thing, name: str) -> Thing:
        made = self.cloud.add(
            "volumes",
            {
                "name": name,
                "size": 1,
                "status": "in-use",
                "multiattach": False,
                "metadata": {"fabric_project_id": PROJECT},
                "attachments": [{"server_id": server["id"], "device": "/dev/vdb"}],
            },
        )
        attached = {"id": made["id"], "tag": None}
        server["os-extended-volumes:volumes_attached"].append(attached)
        return made

    def _domain(self, server: Thing, bdf: tuple[PciAddress, ...]) -> FakeDomain | None:
        if self.worker is None or not (bdf or self.always):
            return None
        made = self.worker.add_domain(server["OS-EXT-SRV-ATTR:instance_name"], server["id"])
        made.live = True
        for number, address in enumerate(bdf):
            self.worker.change(address, driver="vfio-pci")
            made.devices[LIVE].append(plugged(address, f"hostdev{number}", number + 1))
            made.devices[CONFIG].append(plugged(address, "", number + 1))
        return made


PROJECT_ID = "f388bba2d5d9467c8697fdbfc3993d5e"
