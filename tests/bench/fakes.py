"""Sites and slivers on the fakes, for what is measured on them."""

from pathlib import Path
from typing import Any

from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Site

FAKE = dict.fromkeys(
    ("VM", "vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"), "fake"
)


def fake_site(folder: Path, **values: Any) -> Site:
    """Return a site with one network, all drivers of which are fakes.

    :param values: more fields of site.yaml, or others.
    """
    usual = {
        "site": "BENCH",
        "state_dir": folder,
        "drivers": FAKE,
        "guest": "none",
        "images": {"tiny": {}},
        "networks": {"net": {"strategy": "flat_dhcp", "subnet": "10.20.0.0/16"}},
    }
    return Site.model_validate(usual | values)


def node(number: int, *more: dict[str, Any], host: str | None = None) -> NodeSliver:
    """Return the VM ``s<number>`` with a NIC on that network.

    :param more: other components of it.
    """
    nic = {"type": "vNIC", "id": "nic", "network": "net"}
    return NodeSliver.model_validate(
        {
            "id": f"s{number}",
            "name": "node",
            "host": host,
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "components": [nic, *more],
        }
    )
