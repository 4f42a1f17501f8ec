"""Check that servers have the devices that their stamps name."""

from collections.abc import Iterator
from itertools import groupby

from fabric_direct.doctor.diagnosis import Diagnosis, ok, warn
from fabric_direct.errors import FabricDirectError
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.upkeep.device_owners import Lack

_UNKNOWN = "see to it that the cloud and all hosts answer, then ask again"


def check_devices(site: Site) -> Iterator[Diagnosis]:
    """Check all servers of a site that passes devices through; each host is asked once."""
    if not any(site.passes_devices(host) for host in site.hosts):
        return
    try:
        with HandlerProcessor(site) as processor:
            servers = processor.slivers()
            lacks = processor.lacking(servers)
    except FabricDirectError as error:
        yield warn("devices of servers", f"not known: {error}", _UNKNOWN)
        return
    for host, why in lacks.unknown.items():
        yield warn(f"devices of servers on {host}", f"not known: {why}", _UNKNOWN)
    states = {server.sliver: server.state.value for server in servers}
    for sliver, missing in groupby(lacks.found, key=lambda lack: lack.sliver):
        yield _lacking(sliver, states[sliver], tuple(missing))
    if not lacks.found and not lacks.unknown:
        yield ok("devices of servers", "all are there that stamps name")


def _lacking(sliver: str, state: str, missing: tuple[Lack, ...]) -> Diagnosis:
    names = "; ".join(f"{lack.component} {lack.address} ({lack.why})" for lack in missing)
    found = f"its server is {state} and lacks {names}"
    return warn(f"devices of {sliver}", found, f"fabric-direct reconcile {sliver}")
