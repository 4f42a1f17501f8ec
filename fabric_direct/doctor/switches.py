"""Check the switches that services are made on without a controller: what they can do."""

from collections.abc import Callable, Iterator

from fabric_direct.doctor.diagnosis import Diagnosis, fail, failed, ok
from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Site

_KERNEL = "boot a kernel that has it, or load its module"
_SITE = "see its switches in site.yaml, and that what it names runs and answers"
_DAEMON = "start ovs-vswitchd, of a version and on a kernel that have it"


def check_switches(site: Site) -> Iterator[Diagnosis]:
    """Check the Linux bridges and Open vSwitches that services of the site are made on."""
    used = _EXAMINING.keys() & site.drivers.values()
    yield from (check_switch(site, n) for n, s in site.switches.items() if s.driver in used)


def check_switch(site: Site, name: str) -> Diagnosis:
    """Try or ask what services need of a switch, and look for the programs that routed ones need."""
    subject = f"switch {name}"
    try:
        has, lacking, remedy = _EXAMINING[site.switches[name].driver](site, name)
        absent = _absent_programs(site, name)
    except (ImportError, FabricDirectError) as error:
        return failed(subject, error, _SITE)
    if lacking:
        return fail(subject, lacking, remedy)
    if absent:
        return fail(subject, f"its host lacks {absent}", "install nftables, iproute2 and frr there")
    return ok(subject, has)


def _bridges(site: Site, name: str) -> tuple[str, str, str]:
    from fabric_direct.drivers.hosts.choice import switch_host  # noqa: PLC0415 - paramiko may be missing
    from fabric_direct.drivers.linuxbridge import DRIVER  # noqa: PLC0415 - likewise
    from fabric_direct.drivers.linuxbridge.support import Need, missing  # noqa: PLC0415 - likewise

    switch = site.switches[name]
    needs = {
        Need.TUNNELS: switch.tunnel,
        Need.MIRRORS: site.driver_for("PortMirror") == DRIVER,
        Need.GATEWAYS: switch.routing,
        Need.FILTERS: switch.routing and switch.routing.outside,
    }
    lacking = missing(switch_host(site, name), needs, site.limits.call)
    return "its kernel has what services need", lacking and f"its kernel lacks {lacking}", _KERNEL


def _open_vswitch(site: Site, name: str) -> tuple[str, str, str]:
    from fabric_direct.drivers.ovs.support import missing, version_of  # noqa: PLC0415 - likewise

    version, lacking = version_of(site, name), missing(site, name)
    return f"{version} has what services need", lacking and f"{version} lacks {lacking}", _DAEMON


def _absent_programs(site: Site, name: str) -> str:
    from fabric_direct.drivers.gateways.support import absent_programs  # noqa: PLC0415 - likewise

    return ", ".join(absent_programs(site, name))


_EXAMINING: dict[str, Callable[[Site, str], tuple[str, str, str]]] = {
    "linuxbridge": _bridges,
    "ovs": _open_vswitch,
}
"""What returns, of a driver's switch, what it has, what it lacks, and what to do about that."""
