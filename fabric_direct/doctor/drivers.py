"""Check the drivers that the site names."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fabric_direct.doctor.diagnosis import Diagnosis, fail, ok
from fabric_direct.errors import FabricDirectError
from fabric_direct.handlers import registry
from fabric_direct.handlers.driver_settings import check_driver_settings
from fabric_direct.site.config import Site
from fabric_direct.site.lines import with_line


def check_drivers(site: Site, path: Path | None = None) -> Diagnosis:
    """Check the drivers' settings and the types that they are for, and make those of each host.

    :param path: the file of the site, to say where in it a field is wrong.
    """
    wrong = {str(error): with_line(error, path) for error in _wrong(site)}.values()
    if wrong:
        found = "; ".join(": ".join(filter(None, (e.field_and_what, e.why))) for e in wrong)
        remedies = dict.fromkeys(e.remedy or "correct it in site.yaml" for e in wrong)
        return fail("drivers", found, "; ".join(remedies))
    named = site.drivers
    if site.serves_vms:
        named = {"VM": registry.server_driver(site), **named, "guest": guests_by(site)}
    return ok("drivers", ", ".join(f"{key}: {name}" for key, name in named.items()))


def guests_by(site: Site) -> str:
    """Return the name of the driver for guests; empty if there is none, as ``check_drivers`` says."""
    try:
        return registry.guest_driver(site)
    except FabricDirectError:
        return ""


def _wrong(site: Site) -> Iterator[FabricDirectError]:
    """Yield what is wrong with the drivers, of each by itself."""
    yield from _of(lambda: check_driver_settings(site))
    for host in [*site.hosts] or [""]:
        for use in _used(site, host):
            yield from _of(partial(registry.make, use, site, host))
        yield from _of(partial(registry.host_drivers, site, host))


def _used(site: Site, host: str) -> list[registry.Use]:
    """Return the drivers of a host; none if that of VMs, which says the others, cannot be loaded."""
    try:
        return [*registry.drivers_of(site, host)]
    except FabricDirectError:
        return []


def _of(check: Callable[[], object]) -> Iterator[FabricDirectError]:
    try:
        check()
    except FabricDirectError as error:
        yield error
