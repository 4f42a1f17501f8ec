"""Find what an Open vSwitch lacks for services, as it and its host report; nothing is changed."""

from collections.abc import Iterator

from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.hosts.choice import switch_host
from fabric_direct.drivers.ovs.switches import Switches
from fabric_direct.errors import DriverError
from fabric_direct.site.config import Site

_MODULE = "test -d /sys/module/openvswitch || modprobe --dry-run --quiet openvswitch"


def version_of(site: Site, device: str) -> str:
    """Return the version of a switch's daemon; its database has what is read for services.

    :raises Unreachable: if the daemon or the database does not answer.
    :raises DriverError: if the database lacks a table or a column.
    """
    switches = Switches(site)
    switches.rows(device)
    return switches.daemon(device).version()


def missing(site: Site, device: str) -> str:
    """Return what a switch lacks for services, or an empty text.

    Meters are asked for at a bridge, so what is not known where there is none is left out.
    """
    return ", ".join(_missing(site, device))


def _missing(site: Site, device: str) -> Iterator[str]:
    switches, datapath = Switches(site), site.switches[device].datapath
    known = switches.database(device).datapaths()
    if datapath not in known.types:
        yield f"the datapath {datapath}"
    if datapath == "system" and not _has_module(switch_host(site, device), site.limits.call):
        yield "the datapath system in its kernel (CONFIG_OPENVSWITCH)"
    bridges = [name for name, kind in known.bridges.items() if kind == datapath]
    if bridges and not switches.daemon(device).most_meters(bridges[0]):
        yield "meters"


def _has_module(host: HostDriver, limit: float) -> bool:
    result = host.run(("sh", "-c", _MODULE), timeout=limit)
    if result.code > 1:
        why = result.stderr.decode(errors="replace").strip()
        raise DriverError("cannot look for the module openvswitch", why=why)
    return result.code == 0
