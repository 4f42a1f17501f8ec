"""Fixtures for tests of code that uses this library: a site in memory, its faults, slivers for it.

pytest finds them by entry point once the package is installed. This module is imported by every run of
pytest, so it imports nothing but pytest; a fixture imports what it needs when a test asks for it.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from fabric_direct.drivers.fake import Substrate
    from fabric_direct.model import NodeSliver
    from fabric_direct.model.bare_metal import BareMetalSliver
    from fabric_direct.model.services import FABNetv4
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.site.config import Site

_NETWORKS = {
    "red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24", "subnet6": "fd20:1::/64"},
    "blue": {"strategy": "flat_dhcp", "subnet": "10.20.2.0/24"},
}
_PORTS = {"p1": {"vlans": ["100-199"]}, "p2": {"vlans": ["100-199"]}}
_NODES = {
    "rack1-1": {"resource_class": "large", "cores": 64, "ram": 256},
    "rack1-2": {"resource_class": "small", "cores": 16, "ram": 64},
}
_DEPLOYED = {"tiny": {"kernel": "http://192.0.2.1/kernel", "ramdisk": "http://192.0.2.1/ramdisk"}}
_COMPONENTS = (
    {"type": "vNIC", "id": "eth0", "network": "red"},
    {"type": "Storage", "id": "data", "size": 1},
)
_INTERFACES = ({"id": "i1", "device": "sw1", "port": "p1", "vlan": 110},)
_LIMITS = {
    **dict.fromkeys(("call", "guest_boot", "guest_devices", "detach", "clean", "busy"), 2.0),
    **dict.fromkeys(("create", "modify", "delete", "probe", "poa"), 20.0),
    "undo": 4.0,
}
"""Seconds: who tests a hang does not wait for a guest that boots slowly."""


@pytest.fixture
def fabric_site(tmp_path_factory: pytest.TempPathFactory) -> "Site":
    """Make a site in memory: one host with two GPUs and eight VFs, two networks, a switch, two nodes.

    VMs and bare-metal nodes have the image ``tiny``. A call is given up after two seconds, a
    guest that does not answer after two more, an operation after twenty. Override it to have another
    site.
    """
    from fabric_direct.site.config import Site  # noqa: PLC0415 - see above
    from fabric_direct.site.drivers import driven_types  # noqa: PLC0415

    return Site.model_validate(
        {
            "site": "test",
            "state_dir": tmp_path_factory.mktemp("fabric-direct"),
            "drivers": dict.fromkeys(driven_types(), "fake"),
            "guest": "fake",
            "images": {"tiny": {}},
            "networks": _NETWORKS,
            "switches": {"sw1": {"ports": _PORTS}},
            "services": {"subnets": {"FABNetv4": {"block": "10.128.0.0/16", "prefix": 24}}},
            "limits": _LIMITS,
            "ironic": {"images": _DEPLOYED},
            "fake": {"hosts": {"localhost": {"gpus": 2, "vfs": 8}}, "nodes": _NODES},
        }
    )


@pytest.fixture
def fabric_site_file(fabric_site: "Site") -> "Path":
    """Write the site as site.yaml, for code that reads one; in this process it has the same memory."""
    path = fabric_site.state_dir / "site.yaml"
    path.write_text(fabric_site.model_dump_json(exclude_unset=True))
    return path


@pytest.fixture
def fabric_fakes(fabric_site: "Site") -> "Iterator[Substrate]":
    """Return what is on the site's first host, and takes faults; all hosts are mended afterwards.

    A test that asks any host for a fault which no call meets fails: it has not tested what it says.
    """
    from fabric_direct.drivers.fake import substrate  # noqa: PLC0415 - see above

    hosts = [substrate(fabric_site, host) for host in fabric_site.hosts]
    yield hosts[0]
    unmet = [fault for fakes in hosts for fault in fakes.faults if fault not in fakes.fired]
    for fakes in hosts:
        fakes.mend()
    if unmet:
        asked = ", ".join(f"{fault.method} ({fault.kind})" for fault in unmet)
        pytest.fail(f"no call met the fault that the test asks for: {asked}", pytrace=False)


@pytest.fixture
def fabric_processor(
    fabric_site: "Site",
    fabric_fakes: "Substrate",  # noqa: ARG001 - calls that hang end after the processor
) -> "Iterator[HandlerProcessor]":
    """Make a processor of the site, which ends with the test."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see above

    with HandlerProcessor(fabric_site) as processor:
        yield processor


@pytest.fixture
def fabric_vm() -> "Callable[..., NodeSliver]":
    """Make a VM with a NIC on ``red`` and a volume, or with the fields that are given.

    The ids are ``vm-1``, ``vm-2`` and so on.
    """
    from fabric_direct.model import NodeSliver  # noqa: PLC0415 - see above

    numbers = count(1)

    def make(**fields: Any) -> NodeSliver:
        number = next(numbers)
        usual = {
            "id": f"vm-{number}",
            "name": f"node{number}",
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "components": _COMPONENTS,
        }
        return NodeSliver.model_validate(usual | fields)

    return make


@pytest.fixture
def fabric_net() -> "Callable[..., FABNetv4]":
    """Make a FABNetv4 on the port ``p1`` of ``sw1``, or with the fields that are given.

    The ids are ``net-1``, ``net-2`` and so on.
    """
    from fabric_direct.model.services import FABNetv4  # noqa: PLC0415 - see above

    numbers = count(1)

    def make(**fields: Any) -> FABNetv4:
        name = f"net-{next(numbers)}"
        usual = {"id": name, "name": name, "interfaces": _INTERFACES}
        return FABNetv4.model_validate(usual | fields)

    return make


@pytest.fixture
def fabric_metal() -> "Callable[..., BareMetalSliver]":
    """Make a bare-metal sliver that any node fits, or with the fields that are given.

    The ids are ``metal-1``, ``metal-2`` and so on.
    """
    from fabric_direct.model.bare_metal import BareMetalSliver  # noqa: PLC0415 - see above

    numbers = count(1)

    def make(**fields: Any) -> BareMetalSliver:
        name = f"metal-{next(numbers)}"
        return BareMetalSliver.model_validate({"id": name, "name": name, "image": "tiny"} | fields)

    return make
