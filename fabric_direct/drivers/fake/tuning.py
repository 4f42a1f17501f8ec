"""CPU pinning and NUMA in memory."""

from typing import Any

from fabric_direct.drivers.contract import Server
from fabric_direct.drivers.contract.tuning import refuse_unknown
from fabric_direct.drivers.fake.substrate import Fake, the


class FakeTuning(Fake):
    """A :class:`~fabric_direct.drivers.contract.TuningDriver` in memory: two NUMA nodes."""

    kind = "tuning"

    def cpu_info(self, instance: str) -> dict[str, Any]:
        """Return the virtual CPUs and the host CPUs that they are pinned to."""
        pins = self.substrate.pins.get(instance, {})
        cores = range(self._server(instance).cores)
        vcpus = [_vcpu(number, pins.get(number, 0)) for number in cores]
        others = [p for name, p in self.substrate.pins.items() if name != instance]
        pinned = sorted({cpu for pins in others for cpu in pins.values()})
        cpus = self.substrate.capacity.cores
        return {"vcpus": vcpus, "host_cpus": cpus, "pinned": pinned}

    def numa_info(self, instance: str) -> dict[str, Any]:
        """Return the host's NUMA nodes and those that the server's memory is on."""
        server, has = self._server(instance), self.substrate.capacity
        half, cpus = has.ram // 2, range(has.cores)
        nodes = [
            {"node": n, "memory": half, "free": half, "cpus": [c for c in cpus if c % 2 == n]}
            for n in (0, 1)
        ]
        chosen = sorted(self.substrate.nodes.get(instance, frozenset()))
        usage = {node: {"Private": server.ram} for node in chosen[:1] or (0,)}
        text = ",".join(map(str, chosen))
        return {"nodes": nodes, "node_set": text, "mode": "strict", "usage": usage}

    def pin_cpus(self, instance: str, pins: dict[int, int]) -> None:
        """Pin virtual CPUs."""
        cores, cpus = self._server(instance).cores, self.substrate.capacity.cores
        refuse_unknown("virtual CPU", pins, range(cores), "data.vcpu_cpu_map")
        refuse_unknown("host CPU", pins.values(), range(cpus), "data.vcpu_cpu_map")
        self.substrate.pins.setdefault(instance, {}).update(pins)

    def set_numa_nodes(self, instance: str, nodes: frozenset[int]) -> None:
        """Set the nodes that the server's memory is on."""
        self._server(instance)
        refuse_unknown("NUMA node", nodes, (0, 1), "data.node_set")
        self.substrate.nodes[instance] = nodes

    def _server(self, instance: str) -> Server:
        return the({s.instance: s for s in self.substrate.servers.values()}, instance)


def _vcpu(number: int, cpu: int) -> dict[str, Any]:
    return {"vcpu": number, "cpu": cpu, "state": "running", "cpu_time": 0, "affinity": [cpu]}
