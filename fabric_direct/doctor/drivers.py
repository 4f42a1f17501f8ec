"""Check the drivers that the site names."""

from fabric_direct.doctor.diagnosis import Diagnosis, failed, ok
from fabric_direct.errors import FabricDirectError
from fabric_direct.handlers import registry
from fabric_direct.handlers.driver_settings import check_driver_settings
from fabric_direct.site.config import Site


def check_drivers(site: Site) -> Diagnosis:
    """Check the drivers' settings and the types that they are for, and load those of each host."""
    try:
        check_driver_settings(site)
        for host in site.hosts or ("",):
            registry.host_drivers(site, host)
    except FabricDirectError as error:
        return failed("drivers", error)
    named = site.drivers
    if site.serves_vms:
        named = {"VM": registry.server_driver(site), **named, "guest": site.guest}
    return ok("drivers", ", ".join(f"{key}: {name}" for key, name in named.items()))
