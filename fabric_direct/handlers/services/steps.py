"""Network services: claimed, made, changed and removed with a sliver of their own."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.engine.field_changes import changed_fields
from fabric_direct.engine.removal import Removal
from fabric_direct.engine.step import Step
from fabric_direct.model import FieldChange, Finding
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.model.services import NetworkService
from fabric_direct.state.service_choice import ServiceClaim
from fabric_direct.state.service_claims import ServiceClaims


class Resolution:
    """A service with what it leaves open: as it is free, then as it was claimed."""

    def __init__(self, claims: ServiceClaims, service: NetworkService) -> None:
        self._claims, self.service = claims, service
        self._found: NetworkService | None = None

    def __call__(self) -> NetworkService:
        """Return it."""
        self._found = self._found or self._claims.resolve(self.service)
        return self._found

    def claim(self) -> None:
        """Claim what it leaves open."""
        self._found = self._claims.claim(self.service)


class ClaimService(Step):
    """The service holds the VLANs, the subnet and the addresses that it needs."""

    used_later = True

    def __init__(self, claims: ServiceClaims, wanted: Resolution) -> None:
        super().__init__("claims")
        self._claims, self._wanted, self._service = claims, wanted, wanted.service
        self._before: tuple[ServiceClaim, ...] = ()

    def check(self) -> Finding:
        """Compare what it needs with what it holds."""
        missing = self._claims.missing(self._service)
        return Finding.WILL_CREATE if missing else Finding.ALREADY_SO

    def look(self) -> None:
        """Remember what it holds already."""
        self._before = self._claims.of(self._service.id)

    def make(self) -> None:
        """Claim what is missing."""
        self._wanted.claim()

    def undo(self) -> None:
        """Hold what was held before, and nothing else."""
        self._claims.restore(self._service.id, self._before)

    def is_undone(self) -> bool:
        """Return whether it holds what it held before."""
        return self._claims.of(self._service.id) == self._before


class MakeService(Step):
    """The sliver's network service is there, as wanted."""

    def __init__(
        self, driver: ServiceDriver, sliver_id: str, wanted: Callable[[], Any], what: str
    ) -> None:
        """Make the step.

        :param wanted: returns the whole sliver, without anything that is left open.
        :param what: it is: a ``service``, a ``node``.
        """
        super().__init__(what)
        self._driver, self._id, self._wanted = driver, sliver_id, wanted

    def check(self) -> Finding:
        """Look for the service and compare it."""
        if self._driver.find(self._id) is None:
            return Finding.WILL_CREATE
        differs = self._driver.differences(self._wanted())
        return Finding.WILL_CHANGE if differs else Finding.ALREADY_SO

    def differs(self) -> tuple[str, ...]:
        """Return what the driver says of it: nothing else knows what it compares."""
        return self._driver.differences(self._wanted())

    def make(self) -> None:
        """Make it, or what is missing of it."""
        self._driver.apply(self._wanted())

    def undo(self) -> None:
        """Remove it with all that was made with it."""
        self._driver.remove(self._id)

    def is_undone(self) -> bool:
        """Return whether nothing of it is there."""
        return not self._driver.leftovers(self._id)


class ChangeService(MakeService):
    """The sliver's network service that is there is as wanted; what it was before is not known."""

    undoable = False


class ChangeBackService(MakeService):
    """The sliver's network service that is there is as wanted; what it was before is known."""

    def __init__(
        self,
        driver: ServiceDriver,
        sliver_id: str,
        wanted: Callable[[], Any],
        what: str,
        *,
        former: Any,
    ) -> None:
        """Make the step.

        :param former: the whole sliver as it was.
        """
        super().__init__(driver, sliver_id, wanted, what)
        self._former = former

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the service with what it was, without secrets."""
        wanted = self._wanted()
        if isinstance(wanted, NetworkService | BareMetalSliver):
            wanted = wanted.without_secrets()
        return changed_fields(self._former, wanted)

    def undo(self) -> None:
        """Make it what it was."""
        self._driver.apply(self._former)

    def is_undone(self) -> bool:
        """Return whether it is what it was."""
        return not self._driver.differences(self._former)


class RemoveService(Removal):
    """The sliver's network service is gone, with all that was made with it."""

    def __init__(self, driver: ServiceDriver, sliver_id: str, what: str) -> None:
        left, remove = partial(driver.leftovers, sliver_id), partial(driver.remove, sliver_id)
        super().__init__(f"remove {what}", left, remove)


class ReleaseClaims(Removal):
    """Nothing is claimed that the service does not need."""

    def __init__(self, claims: ServiceClaims, surplus: Callable[[], tuple[Any, ...]]) -> None:
        """Make the step; ``surplus`` returns the claims that are not needed."""
        super().__init__("release claims", surplus, lambda: claims.release(surplus()))
