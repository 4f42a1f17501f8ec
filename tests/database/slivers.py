"""The sliver that is made."""

from fabric_direct.model import NodeSliver


def vm() -> NodeSliver:
    """Return a VM with a NIC and a volume."""
    return NodeSliver.model_validate(
        {
            "id": "vm-1",
            "name": "vm-1",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "image": "tiny",
            "components": [
                {"type": "vNIC", "id": "nic", "network": "red"},
                {"type": "Storage", "id": "data", "size": 1},
            ],
        }
    )
