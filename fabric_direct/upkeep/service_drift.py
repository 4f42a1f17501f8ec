"""Which network services of a site differ from their stamps.

The drivers that serve them list them; each is compared by itself then, as a probe by its id does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.engine.run import attempt_each
from fabric_direct.model import SliverRef
from fabric_direct.upkeep.services import SiteService, site_services


@dataclass(frozen=True, slots=True)
class ServiceDrift:
    """The network services of a site, compared with their stamps."""

    compared: Mapping[SliverRef, tuple[str, ...]]
    """Each that was compared, by id, with its differences."""
    unknown: tuple[SliverRef, ...]
    """Those that nothing says of what they should be, by id."""
    silent: Mapping[str, Exception]
    """The types, or single services, of which nothing was read, and why."""


def service_drift(drivers: HostDrivers, booked: Callable[[str], str]) -> ServiceDrift:
    """Compare all network services with their stamps; one without any is not compared.

    :param drivers: of any host: services are on none.
    :param booked: returns the type of a sliver by the books, or nothing.
    """
    there = site_services(drivers, booked)
    known = {each.ref: each for each in there.found if _says(drivers, each)}
    answers = attempt_each(lambda ref: _differences(drivers, known[ref]), known)
    silent = {f"{r.type} {r.id}": a for r, a in answers.items() if isinstance(a, Exception)}
    return ServiceDrift(
        {ref: answer for ref, answer in answers.items() if not isinstance(answer, Exception)},
        tuple(each.ref for each in there.found if each.ref not in known),
        {**there.silent, **silent},
    )


def _says(drivers: HostDrivers, service: SiteService) -> bool:
    """Return whether it can be said how a service differs: from its stamp, or that a part is missing."""
    found = service.service
    return service.ref.type in drivers.services and (found is None or found.stamp is not None)


def _differences(drivers: HostDrivers, service: SiteService) -> tuple[str, ...]:
    driver, found = drivers.services[service.ref.type], service.service
    if found is not None:
        return driver.differences(found.stamp)
    left = driver.leftovers(service.ref.id)
    return (f"not all of it is there, only {', '.join(left)}",) if left else ()
