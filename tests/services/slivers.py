"""Network services between ports of two switches."""

from typing import Any

from fabric_direct.model.services import SERVICES, NetworkService


def interface(
    name: str, vlan: Any, port: str = "p1", switch: str = "sw1", **more: Any
) -> dict[str, Any]:
    return {"id": name, "device": switch, "port": port, "vlan": vlan, **more}


def service(
    *interfaces: dict[str, Any], sliver: str = "net-1", kind: str = "L2Bridge", **values: Any
) -> NetworkService:
    document = {"id": sliver, "name": "net", "interfaces": interfaces, **values}
    return SERVICES[kind].model_validate(document)


def limited(bandwidth: int | None, *more: dict[str, Any]) -> NetworkService:
    """Return a segment of VLAN 100 at one port, with a bandwidth, and 200 at another."""
    one = interface("i1", 100, bandwidth=bandwidth)
    return service(one, interface("i2", 200, "p2"), *more)
