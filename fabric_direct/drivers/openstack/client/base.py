"""Base of all drivers of a cloud: the site, its cloud, and the requests to it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from openstack.connection import Connection

from fabric_direct.drivers.openstack.client.errors import make_once, translated
from fabric_direct.drivers.openstack.client.name_cache import Names, names
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import Site

T = TypeVar("T")
# Share of a call's limit for looking whether an unclear request was carried out: the request itself may
# have taken two thirds.
_LOOK = 0.25


class CloudDriver:
    """Access to the cloud of a site; no request is sent before the first call.

    :param site: the site.
    :param host: name of the worker, or empty; a cloud serves all.
    :raises InvalidSite: if the site names no cloud.
    """

    def __init__(self, site: Site, host: str = "") -> None:  # noqa: ARG002 - as for all drivers
        if site.openstack is None:
            raise InvalidSite("is missing, and the driver 'openstack' needs it", field="openstack")
        self.site, self.settings = site, site.openstack
        self.where = f"cloud {site.openstack.cloud}"

    def connection(self) -> Connection:
        """Return this process's connection to the cloud."""
        return cloud(self.settings, call_limit=self.site.limits.call)

    @property
    def names(self) -> Names:
        """Return the cache of the cloud's resources by name."""
        return names(self.connection())

    def translated(self, what: str) -> AbstractContextManager[None]:
        """Turn the errors of the block's requests into ours, and name the cloud in all of them.

        :param what: what is being done, as an infinitive.
        """
        return translated(what, self.where)

    def once(self, make: Callable[[], T], find: Callable[[], T | None]) -> T:
        """Send a request once that creates a resource; find it if the response was lost."""
        return make_once(make, find, timeout=self.site.limits.call * _LOOK)
