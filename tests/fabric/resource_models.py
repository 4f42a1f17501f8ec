"""FABRIC's resource models of a site, made by FIM as the tools of an AM make them.

``python -m tests.fabric.resource_models examples/migrate/arm.graphml`` writes that of the example.
"""

import sys
from pathlib import Path
from typing import Any

from fim.slivers.attached_components import ComponentType
from fim.slivers.capacities_labels import Capacities, Labels
from fim.slivers.network_node import NodeType
from fim.user.topology import SubstrateTopology

MACS = ("04:3F:72:B7:15:8C", "04:3F:72:B7:15:8D")
VFS = ("0000:e2:00.4", "0000:e2:00.2", "0000:e2:00.3")
VF_MACS = ("02:37:BE:04:DE:BF", "02:E7:E3:60:71:4E", "06:DE:66:06:92:71")


def component(
    worker: Any, kind: str, name: str, model: str, bdf: Any, *ports: Labels, **more: Any
) -> None:
    """Add a component with the ports that FIM's catalogue gives its model."""
    own = f"{worker.name}-{name}"
    if ports:
        more |= {
            "network_service_node_id": f"{own}-ns",
            "interface_node_ids": [f"{own}-port{n}" for n, _ in enumerate(ports)],
            "interface_labels": list(ports),
        }
    worker.add_component(
        name=own,
        node_id=own,
        ctype=ComponentType[kind],
        model=model,
        capacities=Capacities(unit=1),
        labels=bdf if isinstance(bdf, Labels) else Labels(bdf=bdf) if bdf else Labels(),
        **more,
    )


def server(model: SubstrateTopology, name: str) -> Any:
    return model.add_node(
        name=name, node_id=name, site="RENC", ntype=NodeType.Server, capacities=Capacities(core=32)
    )


def site(*names: str) -> SubstrateTopology:
    """Return a site whose workers have one device of each kind, as the models of FABRIC's sites do.

    NVMe drives have one address, as text; GPUs have a list of one; a SharedNIC lists its VFs, in no
    order, with their MACs; of an FPGA there is one address, and the MACs of its ports.
    """
    model = SubstrateTopology()
    for name in names:
        worker = server(model, name)
        component(worker, "NVME", "nvme-1", "P4510", "0000:21:00.0")
        component(worker, "GPU", "gpu-1", "Tesla T4", ["0000:25:00.0"])
        vfs = {"bdf": list(VFS), "mac": list(VF_MACS), "vlan": ["2001", "2002", "2003"]}
        component(worker, "SharedNIC", "slot7", "ConnectX-6", list(VFS), Labels(**vfs))
        ports = [Labels(mac=mac, vlan_range="1-4096") for mac in MACS]
        component(
            worker, "SmartNIC", "slot6", "ConnectX-6", ["0000:a1:00.0", "0000:a1:00.1"], *ports
        )
        fpga = [Labels(mac="0C:42:A1:BE:8F:E8"), Labels(mac="0C:42:A1:BE:8F:E9")]
        component(worker, "FPGA", "fpga-1", "Xilinx-U280", "0000:c1:00.0", *fpga)
    return model


def written(model: SubstrateTopology, path: Path) -> Path:
    model.serialize(file_name=str(path))
    return path


if __name__ == "__main__":
    written(site("worker1.localhost"), Path(sys.argv[1]))
