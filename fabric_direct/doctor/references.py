"""Check what site.yaml names that is elsewhere: rules of placement, NICs at ports of switches."""

from collections.abc import Iterator
from pathlib import Path

from fabric_direct.doctor.diagnosis import Diagnosis, fail, failed, ok, warn
from fabric_direct.drivers.fake.hardware import uplinks
from fabric_direct.errors import InvalidSite
from fabric_direct.model import PciAddress
from fabric_direct.model.networks import VlanNetwork
from fabric_direct.site.config import FakeHostSettings, Site
from fabric_direct.site.lines import with_line
from fabric_direct.site.services import SwitchPort

_RULES = "placement rules"


def check_placement(site: Site, path: Path | None = None) -> Iterator[Diagnosis]:
    """Check that the filters and costs that the site names are installed, and can be loaded.

    :param path: the file of the site, to say where in it a field is wrong.
    """
    settings = site.placement
    if not (settings.weights or settings.without):
        return
    try:
        from fabric_direct.placement.plugins import rules  # noqa: PLC0415 - NumPy may be missing

        found = rules(settings)
    except ImportError as error:
        yield failed(_RULES, error)
        return
    except InvalidSite as error:
        told = with_line(error, path)
        why = f": {told.why}" if told.why else ""
        yield fail(_RULES, told.field_and_what + why, told.remedy or "correct it in site.yaml")
        return
    yield from (warn(_RULES, said, "see its package") for said in found.warnings)
    if not found.warnings:
        yield ok(_RULES, "the filters and costs that site.yaml names are installed")


def check_ports(site: Site) -> Iterator[Diagnosis]:
    """Check that the NICs at the ports of switches are of hosts that may use them."""
    for name, switch in site.switches.items():
        ports = [(port_name, port) for port_name, port in switch.ports.items() if port.host]
        wrong = [f"{port_name}: {why}" for port_name, port in ports if (why := _wrong(site, port))]
        if wrong:
            remedy = (
                "correct host, uplink or bdf of the port, or list the NIC in devices of the host"
            )
            yield warn(f"ports of switch {name}", "; ".join(wrong), remedy)


def _wrong(site: Site, port: SwitchPort) -> str:
    """Return why nothing of a host can be at a port; empty if something can."""
    host, nic = str(port.host), port.uplink or port.bdf
    if host not in site.hosts:
        return f"no host {host!r}"
    return (
        "" if nic in _nics(site, host) else f"neither a device nor a network of {host} is on {nic}"
    )


def _nics(site: Site, host: str) -> set[str | PciAddress]:
    """Return the NICs of a host by which a VM of it may be at a switch."""
    allowed = site.hosts[host].devices
    nics = {each.uplink or each.bdf for each in allowed if each.type in {"SharedNIC", "SmartNIC"}}
    vlans = {n.uplink for n in site.networks.values() if isinstance(n, VlanNetwork)}
    in_memory = uplinks(site.fake.hosts.get(host, FakeHostSettings()), allowed)
    return {nic for nic in (*nics, *vlans, *in_memory) if nic is not None}
