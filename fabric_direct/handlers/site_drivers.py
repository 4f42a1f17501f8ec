"""The drivers of a site's hosts, each made once; and whether the hosts belong to a cloud."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeVar

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.engine.run import attempt_each
from fabric_direct.handlers import registry
from fabric_direct.handlers.handler import Handler
from fabric_direct.model import SliverRef
from fabric_direct.site.config import Site

T = TypeVar("T")


class SiteDrivers:
    """The drivers of a site's hosts, or of its cloud, which has an empty name."""

    def __init__(self, site: Site) -> None:
        """Make none yet."""
        self.site = site
        self._lock = Lock()
        self._made: dict[str, HostDrivers] = {}

    def of(self, host: str) -> HostDrivers:
        """Return the drivers of a host, or of the cloud, without a limit."""
        with self._lock:
            if host not in self._made:
                self._made[host] = registry.host_drivers(self.site, host)
            return self._made[host]

    def within(self, host: str, deadline: Deadline, reads: ReadCache | None = None) -> HostDrivers:
        """Return the drivers of a host, or of the cloud, whose calls end by the site's limits."""
        limits = self.site.limits
        return self.of(host).within(deadline, limits.call, reads, guest_limit=limits.guest_boot)

    def handler(
        self, host: str, sliver: SliverRef, deadline: Deadline, reads: ReadCache | None = None
    ) -> Handler:
        """Return the handler of a sliver, with the drivers of a host."""
        make: type[Handler] = registry.handler_for(sliver.type)
        return make(self.site, self.within(host, deadline, reads))

    @property
    def some_host(self) -> str:
        """A host, for what is on none or in a cloud."""
        return next(iter(self.site.hosts), "")

    @property
    def cloud(self) -> bool:
        """Whether the site's servers belong to a cloud, whatever host they are on."""
        return self.of(self.some_host).compute.cloud

    @property
    def one_place(self) -> bool:
        """Whether all servers are in one place: on an only host, or in a cloud."""
        return len(self.site.hosts) <= 1 or self.cloud

    def has_one_place_for(self, sliver: SliverRef) -> bool:
        """Return whether a sliver is in one place, if it is there: also if it is on no host."""
        return self.one_place or not registry.handler_for(sliver.type).hosted

    def list_all(self, list_on: Callable[[str], Iterable[T]], in_cloud: str = "") -> tuple[T, ...]:
        """List something in the cloud, or on all hosts in parallel; raise the first error.

        :param in_cloud: the host by which a cloud is asked.
        """
        answers = attempt_each(list_on, [in_cloud] if self.cloud else self.site.hosts).values()
        for error in (each for each in answers if isinstance(each, Exception)):
            raise error
        return tuple(t for each in answers if not isinstance(each, Exception) for t in each)
