"""The interface through which pictures read a site."""

from collections.abc import Collection
from concurrent.futures import Future
from typing import Protocol

from fabric_direct.drivers.contract import HostDevice
from fabric_direct.model import Outcome, SliverRef
from fabric_direct.site.config import Site
from fabric_direct.upkeep.drift import SiteDrift
from fabric_direct.upkeep.services import SiteServices


class SiteReader(Protocol):
    """Reads a site; :class:`fabric_direct.HandlerProcessor` does."""

    @property
    def site(self) -> Site:
        """The site that it reads."""

    def devices(self, host: str) -> tuple[HostDevice, ...]:
        """Return the PCI devices of a host."""

    def drift(self, hosts: Collection[str] | None = None, *, services: bool = True) -> SiteDrift:
        """Return the servers of the site, and which hosts do not answer.

        :param services: compare network services, too.
        """

    def services(self) -> SiteServices:
        """Return the network services of the site."""

    def probe(self, sliver: SliverRef) -> "Future[Outcome]":
        """Read a sliver from the substrate."""
