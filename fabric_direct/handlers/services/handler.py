"""Network services: networks of a cloud, and connections on switches and by controllers.

::

    create   claims → service → verify → claims that it does not need any more
    modify   new claims → service, in place → verify → claims that it does not need any more
    delete   service → claims → nothing is left

Claims are VLANs of ports, subnets and addresses. They are made before anything else, and released after
the service's absence was seen. A network of a cloud claims nothing: Neutron keeps its segments.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import HostDrivers, Service, ServiceDriver
from fabric_direct.drivers.contract.switch_search import CLAIMS
from fabric_direct.engine.step import Flow, Step
from fabric_direct.engine.verify import ReadBack, Verified, Verify
from fabric_direct.errors import Conflict, InvalidSite, InvalidSliver, NotFound, Unsupported
from fabric_direct.handlers.handler import OneModel, Repair, already_there, unknown_wish
from fabric_direct.handlers.services.comparison import as_there
from fabric_direct.handlers.services.steps import (
    ChangeBackService,
    ChangeService,
    ClaimService,
    MakeService,
    ReleaseClaims,
    RemoveService,
    Resolution,
)
from fabric_direct.model import Observed, Sliver, SliverRef, State
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.p4_switches import Switch
from fabric_direct.model.services import SERVICES, L2Bridge, NetworkService
from fabric_direct.site.config import Site
from fabric_direct.state.service_claims import ServiceClaims


class NetworkServiceSliverHandler(OneModel):
    """Makes, changes, removes and looks at network services of one type."""

    sliver_model: ClassVar[type[Sliver]] = NetworkService
    actions: ClassVar[tuple[str, ...]] = ()
    hosted: ClassVar[bool] = False
    what: ClassVar[str] = "service"
    """What steps and messages call it."""

    def __init__(self, site: Site, drivers: HostDrivers) -> None:
        """Make a handler whose drivers keep the operation's deadline.

        :raises InvalidSite: if the site serves no services of this type.
        """
        self._drivers = drivers
        self._driver = _driver(drivers, self._type())
        self._claims = ServiceClaims(site, partial(drivers.reads.invalidate, CLAIMS))

    @classmethod
    def _type(cls) -> str:
        return str(cls.sliver_model.model_fields["type"].default)

    def create(self, sliver: Any) -> Flow:
        """Return what makes the service with everything that belongs to it."""
        found, resolved = self._found(sliver), self._resolved(sliver)
        if found is None:
            self._driver.check(resolved())
        elif differs := self._driver.differences(resolved()):
            raise already_there(sliver, where=found.source, why="; ".join(differs))
        return Flow.of(
            self._claim(resolved),
            [MakeService(self._driver, sliver.id, resolved, self.what)],
            [Verify(lambda: self._read_back(resolved()))],
            self._release(sliver) if self._claims.of(sliver.id) else [],
            owns_everything=found is None,
        )

    def _found(self, sliver: SliverRef) -> Service | None:
        """Return the service if it is there, also if one answer lacks it."""
        found = self._driver.find(sliver.id)
        if found is None and self._may_be_there(sliver):
            self._drivers.reads.invalidate()
            found = self._driver.find(sliver.id)
        return found

    def _may_be_there(self, sliver: SliverRef) -> bool:
        """Return whether something of the service is claimed, or there where nothing is claimed."""
        if isinstance(sliver, NetworkService):
            return bool(self._claims.of(sliver.id))
        return bool(self._driver.leftovers(sliver.id))

    def modify(self, sliver: Any) -> Flow:
        """Return what turns the service that is there into the one asked for, also an incomplete one."""
        if not self._driver.leftovers(sliver.id):
            raise NotFound(f"sliver {sliver.id} is not there")
        resolved = self._resolved(sliver)
        self._driver.check(resolved())
        former = self._former(sliver)
        verify = Verify if former else Verified
        return Flow.of(
            self._claim(resolved),
            [self._change(sliver.id, resolved, former)],
            [verify(lambda: self._read_back(resolved()))],
            self._release(sliver),
            before=former,
        )

    def _former(self, sliver: SliverRef) -> Sliver | None:
        """Return the service as its stamp says; None if none says all of it."""
        found = self._driver.find(sliver.id)
        stamp = found.stamp if found else None
        return None if stamp is None or stamp.has_secrets else stamp

    def _change(self, sliver_id: str, resolved: Callable[[], Any], former: Sliver | None) -> Step:
        if former is None:
            return ChangeService(self._driver, sliver_id, resolved, self.what)
        return ChangeBackService(self._driver, sliver_id, resolved, self.what, former=former)

    def delete(self, ref: SliverRef) -> Flow:
        """Return what removes the service, and then its claims."""
        held = partial(self._claims.of, ref.id)
        return Flow.of(
            [RemoveService(self._driver, ref.id, self.what)],
            [ReleaseClaims(self._claims, held)] if held() else [],
            owns_everything=True,
        )

    def reconcile(self, ref: SliverRef) -> Repair:
        """Return what makes the service again what its stamp says, and claims what that needs.

        :raises NotFound: if it is not there.
        :raises Conflict: if another service has claimed some of that.
        :raises Unsupported: if nothing says what it should be.
        """
        found = self._driver.find(ref.id)
        if found is None:
            left = ", ".join(self._driver.leftovers(ref.id))
            raise NotFound(f"sliver {ref.id} is not there", why=left and f"only {left}")
        stamp = found.stamp
        if stamp is None or stamp.has_secrets:
            raise unknown_wish(ref, self.what)
        differs = self._driver.differences(stamp) or self._read_back(stamp).differences
        unclaimed = self._unclaimed(stamp)
        differs += unclaimed
        step = ChangeService(self._driver, ref.id, lambda: stamp, self.what)
        verify = Verified(lambda: self._read_back(stamp))
        claim = self._claim(self._resolved(stamp)) if unclaimed else []
        flow = Flow.of(claim, [step], [verify]) if differs else Flow.of()
        return Repair(stamp, _observed(found, differs), flow)

    def _unclaimed(self, stamp: Any) -> tuple[str, ...]:
        """Name what a service has and does not claim, as after the loss of ``pools.sqlite``.

        For which of its interfaces it was claimed is not compared: a controller may not keep their ids.
        """
        if not isinstance(stamp, NetworkService):
            return ()
        held, missing = set(map(str, self._claims.of(stamp.id))), self._claims.missing(stamp)
        return tuple(f"{claim} is not claimed" for claim in missing if str(claim) not in held)

    def adopt(self, wanted: Any) -> Flow:
        """Refuse: nothing has to be stamped.

        :raises Unsupported: always.
        """
        raise Unsupported(
            f"{wanted.sliver.id} is a network service: these are not adopted",
            why="a service of the AM has its reservation in its name, and is found by it",
        )

    def exists(self, ref: SliverRef) -> bool:
        """Return whether the service is there, complete."""
        return self._driver.find(ref.id) is not None

    def observe(self, ref: SliverRef) -> Observed:
        """Read the service, and compare it with what it should be.

        By its id alone it is compared with its stamp, if it has one that says so. What it cannot have,
        as a VLAN of another service, is a warning: what is there is compared nevertheless.
        """
        found = self._driver.find(ref.id)
        if found is None:
            return self._incomplete(ref)
        if type(ref) is SliverRef:
            return self._compared(found, found.stamp)
        resolved = self._resolved(ref)
        try:
            wanted = resolved()
        except (Conflict, InvalidSliver) as error:
            return self._compared_as_there(found, ref, str(error))
        return self._compared(found, wanted)

    def _compared_as_there(self, found: Service, asked: Any, why: str) -> Observed:
        with self._drivers.reads.active():
            warn(why)
        wanted, missing = as_there(asked, found)
        differs = self._driver.differences(wanted) if wanted else ()
        return _observed(found, (*differs, *missing))

    def _compared(self, found: Service, wanted: Any) -> Observed:
        return _observed(found, self._driver.differences(wanted) if wanted else ())

    def _incomplete(self, ref: SliverRef) -> Observed:
        left = self._driver.leftovers(ref.id)
        if left:
            said = f"not all of it is there, only {', '.join(left)}"
            return Observed(state=State.ERROR, differences=(said,))
        return Observed(state=State.ABSENT, differences=(f"there is no such {self.what}",))

    def _read_back(self, wanted: Any) -> ReadBack:
        self._drivers.reads.invalidate()
        found = self._driver.find(wanted.id)
        observed = self._compared(found, wanted) if found else self._incomplete(wanted)
        return ReadBack(observed, observed.differences)

    def leftovers(self, ref: SliverRef) -> tuple[str, ...]:
        """Name everything of the sliver that is there, and what it has claimed."""
        self._drivers.reads.invalidate()
        return (*self._driver.leftovers(ref.id), *map(str, self._claims.of(ref.id)))

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Refuse: a network service has no operational actions."""
        raise InvalidSliver(f"there is no action {action!r} on a {self._type()}", field="action")

    # --- claims

    def _resolved(self, sliver: Any) -> Callable[[], Any]:
        """Return what returns the sliver with what it leaves open, as claimed or as free now."""
        if not isinstance(sliver, NetworkService):
            return lambda: sliver
        return Resolution(self._claims, sliver)

    def _claim(self, wanted: Any) -> list[Step]:
        return [ClaimService(self._claims, wanted)] if isinstance(wanted, Resolution) else []

    def _release(self, sliver: Any) -> list[Step]:
        if not isinstance(sliver, NetworkService):
            return []
        return [ReleaseClaims(self._claims, lambda: self._claims.surplus(sliver))]


class L2BridgeHandler(NetworkServiceSliverHandler):
    """A segment on a switch, or a network of a cloud."""

    sliver_model: ClassVar[type[Sliver]] = L2Bridge

    @classmethod
    def model_of(cls, document: Mapping[str, Any]) -> type[Sliver]:
        """Return the model of a whole sliver: a network of a cloud has the field ``network``."""
        return NetworkSliver if "network" in document else L2Bridge


def _handler(model: type[Sliver]) -> type[NetworkServiceSliverHandler]:
    """Return the handler of the slivers of one model."""

    class Handler(NetworkServiceSliverHandler):
        sliver_model: ClassVar[type[Sliver]] = model

    return Handler


L2PTPHandler = _handler(SERVICES["L2PTP"])
L2STSHandler = _handler(SERVICES["L2STS"])
FABNetv4Handler = _handler(SERVICES["FABNetv4"])
FABNetv6Handler = _handler(SERVICES["FABNetv6"])
FABNetv4ExtHandler = _handler(SERVICES["FABNetv4Ext"])
FABNetv6ExtHandler = _handler(SERVICES["FABNetv6Ext"])
L3VPNHandler = _handler(SERVICES["L3VPN"])
PortMirrorHandler = _handler(SERVICES["PortMirror"])
SwitchHandler = _handler(Switch)


def _observed(found: Service, differs: tuple[str, ...]) -> Observed:
    return Observed(
        state=found.state,
        host=found.host,
        instance=found.source,
        interfaces=found.interfaces,
        gateway=found.gateway,
        differences=differs,
    )


_DRIVERS = {
    "BareMetal": "`BareMetal: ironic`",
    "L2Bridge": "`L2Bridge: ovs`, or for networks of the cloud `L2Bridge: openstack`,",
    "Switch": "`Switch: p4switch`",
}


def _driver(drivers: HostDrivers, resource_type: str) -> ServiceDriver:
    if resource_type not in drivers.services:
        named = _DRIVERS.get(resource_type, f"`{resource_type}: ovs`")
        raise InvalidSite(
            f"names no driver for {resource_type}",
            field="drivers",
            remedy=f"add {named} below drivers in site.yaml",
        )
    return drivers.services[resource_type]
