"""Check the drivers that the site names."""

from fabric_direct import registry
from fabric_direct.config import Site
from fabric_direct.doctor.diagnosis import Diagnosis, fail, ok
from fabric_direct.errors import FabricDirectError

_SUBJECT = "drivers"


def check_drivers(site: Site) -> Diagnosis:
    """Load the drivers of each host, and check that each is for a type that exists."""
    known = registry.driven_types()
    strange = [key for key in site.drivers if key.partition("_")[0] not in known]
    if strange:
        found = f"no resource type {', '.join(map(repr, strange))}; known: {', '.join(known)}"
        return fail(_SUBJECT, found, "fix site.yaml: drivers")
    try:
        for host in site.hosts or ("",):
            registry.host_drivers(site, host)
    except FabricDirectError as error:
        return fail(_SUBJECT, f"{error.what}: {error.why}".removesuffix(": "), error.remedy)
    return ok(_SUBJECT, ", ".join(f"{key}: {name}" for key, name in _named(site).items()))


def _named(site: Site) -> dict[str, str]:
    return {"VM": registry.server_driver(site), **site.drivers, "guest": site.guest}
