"""Names of links that drivers of switches make, which follow from what they are for."""

from functools import lru_cache
from hashlib import sha256

from fabric_direct.site.config import Site


@lru_cache(4096)
def short(kind: str, *parts: str) -> str:
    """Return a name of at most 15 characters, which Linux allows, for what the parts name."""
    return f"fd{kind}-{sha256('/'.join(parts).encode()).hexdigest()[:11]}"


def port_bridge(site: Site, port: str) -> str:
    """Return the name of a physical port's bridge."""
    return short("p", site.site, port)


def service_bridge(site: Site, sliver_id: str) -> str:
    """Return the name of a service's bridge."""
    return short("s", site.site, sliver_id)
