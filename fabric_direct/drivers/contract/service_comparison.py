"""Differences between a network service and its sliver, as sentences."""

from collections.abc import Iterator

from fabric_direct.drivers.contract.network_services import Service
from fabric_direct.model import ObservedInterface
from fabric_direct.model.services import NetworkService, ServiceInterface


def interface_differences(wanted: NetworkService, found: Service) -> Iterator[str]:
    """Yield a sentence for each interface that is missing, not wanted, or connected otherwise."""
    there = {interface.component: interface for interface in found.interfaces}
    for interface in wanted.interfaces:
        if interface.id in there:
            yield from _differing(interface, there[interface.id])
        else:
            yield f"interface {interface.id} is missing"
    for name in sorted(there.keys() - {interface.id for interface in wanted.interfaces}):
        yield f"interface {name} is there and not asked for"


def _differing(wanted: ServiceInterface, found: ObservedInterface) -> Iterator[str]:
    values = {
        "device": (wanted.device, found.device),
        "port": (wanted.port, found.port),
        "VLAN": (wanted.tag or None, found.vlan),
        "inner VLAN": (wanted.inner_vlan, found.inner_vlan),
        "bandwidth": (wanted.bandwidth, found.bandwidth),
    }
    for what, (asked, has) in values.items():
        if asked != has:
            yield f"interface {wanted.id}: its {what} is {_text(has)}, not {_text(asked)}"


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def gateway_differences(wanted: NetworkService, found: Service) -> Iterator[str]:
    """Yield a sentence if the service's own address, or the MAC that answers for it, differs."""
    asked, has = getattr(wanted, "gateway", None), found.gateway
    address = str(asked.address) if asked else None
    if address != (has.address if has else None):
        yield f"its gateway is {_text(has.address if has else None)}, not {_text(address)}"
    elif asked and has and asked.mac not in {None, has.mac}:
        yield f"its gateway's MAC is {_text(has.mac)}, not {asked.mac}"
