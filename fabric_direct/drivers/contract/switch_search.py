"""Which of the site's switches are asked for a service, and what they answer.

A service is on the switches that its sliver, its claims and its stamp name: these must answer. One that
has claims is nowhere else, for they are made before anything of it. Without any, all are asked at once,
the others for ``limits.search``, or 3 s; those that do not answer are named, never taken for empty.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from fabric_direct.calls.deadline import Call, Deadline
from fabric_direct.calls.read_cache import current, warn
from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Site
from fabric_direct.state.service_claims import ServiceClaims

T = TypeVar("T")
CLAIMS = "claims"
"""What the answers of claims in an operation's cache are about."""
# Seconds for switches that nothing names, unless the site sets ``limits.search``.
_OTHERS = 3.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwitchAnswers(Generic[T]):
    """The answers of switches about a service."""

    sliver_id: str
    there: Mapping[str, T]
    """What those have that answered."""
    named: frozenset[str]
    """Where the service is, as far as anything says so."""
    silent: Mapping[str, FabricDirectError]
    """Those that did not answer."""

    def sure(self) -> Mapping[str, T]:
        """Return what the switches have that answered; name those that did not.

        :raises Unreachable: if the service is on one of these.
        """
        for device in self.named & self.silent.keys():
            raise self.silent[device]
        for device, error in self.silent.items():
            warn(f"it is not known whether {device} has anything of {self.sliver_id}: {error}")
        return self.there

    def left(self, names: Callable[[str, T], Iterable[str]]) -> tuple[str, ...]:
        """Name what is left of the service, with its switch.

        :param names: returns what a switch has of it.
        :raises Unreachable: if it may be on a switch that did not answer.
        """
        found = ((device, names(device, there)) for device, there in self.sure().items())
        left = tuple(f"{name} on {device}" for device, its in found for name in its)
        self._refuse_unknown()
        return left

    def remove(self, remove: Callable[[str, T], None]) -> None:
        """Remove the service from every switch that answers, whatever fails on another one.

        :param remove: removes what a switch has of it.
        :raises Unreachable: if it may be on a switch that did not answer.
        """
        failed = [self._failure(remove, device, there) for device, there in self.there.items()]
        for error in filter(None, failed):
            raise error
        self.sure()
        self._refuse_unknown()

    def _failure(
        self, remove: Callable[[str, T], None], device: str, there: T
    ) -> FabricDirectError | None:
        try:
            remove(device, there)
        except FabricDirectError as error:
            _log.warning("sliver %s is left on %s: %s", self.sliver_id, device, error)
            return error
        return None

    def _refuse_unknown(self) -> None:
        """Raise the error of a silent switch if nothing says where the service is."""
        if not self.named:
            for error in self.silent.values():
                raise error


@dataclass(frozen=True, slots=True)
class SwitchSearch(Generic[T]):
    """The switches of a site that a driver serves."""

    site: Site
    driver: str
    read: Callable[[str], T]
    """Returns what a switch has."""
    places: Callable[[str, T, str], Iterable[str]]
    """Returns the switches of a service, by what a switch has of it."""

    def ask(self, sliver_id: str, named: Collection[str] = ()) -> SwitchAnswers[T]:
        """Return what the switches have that may have anything of a service.

        :param named: those that its sliver names.
        """
        known, devices = self._known(sliver_id), frozenset(self.site.switches_of(self.driver))
        asked = (known | {*named}) & devices if known else devices
        there, silent = self._asked(asked, known | {*named})
        for device, found in there.items():
            known.update(self.places(device, found, sliver_id))
        return SwitchAnswers(sliver_id, there, frozenset(known | {*named}), silent)

    def all(self, devices: Collection[str] = ()) -> Mapping[str, T]:
        """Return what switches have, or all of the site.

        :raises Unreachable: if one does not answer.
        """
        devices = frozenset(devices or self.site.switches_of(self.driver))
        there, silent = self._asked(devices, devices)
        return SwitchAnswers("", there, devices, silent).sure()

    def _known(self, sliver_id: str) -> set[str]:
        """Return where a service is by its claims, now or earlier in this operation."""
        reads = current()
        if reads is None:
            return self._claimed(sliver_id)
        known: set[str] = reads.facts.setdefault((SwitchSearch, sliver_id), set())
        known.update(reads.get((SwitchSearch, sliver_id), lambda: self._claimed(sliver_id), CLAIMS))
        return known

    def _claimed(self, sliver_id: str) -> set[str]:
        return {claim.device for claim in ServiceClaims(self.site).of(sliver_id)} - {""}

    def _asked(
        self, devices: Iterable[str], needed: Collection[str]
    ) -> tuple[dict[str, T], dict[str, FabricDirectError]]:
        """Return what switches answer, all asked at once; those not needed are waited for briefly."""
        there: dict[str, T] = {}
        silent: dict[str, FabricDirectError] = {}
        limits = self.site.limits
        limit, others = limits.call / 2, Deadline.within(limits.search or _OTHERS)
        calls = {d: Call(f"switch {d}", partial(self.read, d)) for d in sorted(devices)}
        for device, call in calls.items():
            try:
                there[device] = call.result(limit if device in needed else others.remaining(limit))
            except FabricDirectError as error:
                silent[device] = error
        return there, silent
