"""The namespaces of a service on its devices, by the site's settings."""

from fabric_direct.drivers.gateways.gateway import namespace, namespace_name, refuse_unrouted, stamp
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.gateways.routing import NamespaceRouting
from fabric_direct.drivers.hosts.choice import switch_host
from fabric_direct.model import ObservedGateway
from fabric_direct.model.services import NetworkService
from fabric_direct.site.config import Site


class Routers:
    """Makes, compares and removes what routes for a service.

    :param bgp: whether any service of the driver has BGP; if none has, nobody looks for its daemons.
    """

    def __init__(self, site: Site, *, bgp: bool) -> None:
        self._site, self._bgp = site, bgp

    def check(self, service: NetworkService) -> None:
        """Raise InvalidSliver with the field that the site's hosts cannot serve."""
        refuse_unrouted(self._site, service)
        for device in service.devices():
            if wanted := namespace(self._site, service, device):
                self._routing(device).refuse_without_bgp(wanted)

    def gateway(self, service: NetworkService) -> ObservedGateway | None:
        """Return the address of a service as the kernel has it; None if it has none."""
        for device in service.devices():
            wanted = namespace(self._site, service, device)
            if wanted and not wanted.bgp:
                return self._routing(device).observed(wanted)
        return None

    def differences(self, device: str, service: NetworkService) -> tuple[str, ...]:
        """Return what is not as wanted on a device, a sentence each."""
        wanted = namespace(self._site, service, device)
        return self._routing(device).differences(wanted) if wanted else ()

    def apply(self, device: str, service: NetworkService) -> None:
        """Make what routes for a service on a device; its ports are there."""
        if wanted := namespace(self._site, service, device):
            self._routing(device).apply(wanted)

    def settle(self, service: NetworkService) -> None:
        """Block until what routes on all devices speaks to each other, and to neighbors that answer.

        A gateway that began anew is established once the others have dropped the session that they had
        with its predecessor. Until then those are settled, too; so they are looked at again.
        """
        devices = service.devices()
        for device in (*devices, *devices[:-1]):
            if wanted := namespace(self._site, service, device):
                self._routing(device).settle(wanted)

    def lost(self, device: str, service: NetworkService) -> frozenset[str]:
        """Return the ports whose links are nowhere, as after a deletion of the namespace."""
        wanted = namespace(self._site, service, device)
        return self._routing(device).lost(wanted) if wanted else frozenset()

    def left(self, device: str, sliver_id: str) -> tuple[str, ...]:
        """Name what of a service is on a device."""
        if self._site.switches[device].routing is None:
            return ()
        name = namespace_name(self._site, sliver_id, device)
        return self._routing(device).left(name, stamp(self._site, sliver_id))

    def remove(self, device: str, sliver_id: str) -> None:
        """Remove what of a service is on a device."""
        if self.left(device, sliver_id):
            name = namespace_name(self._site, sliver_id, device)
            self._routing(device).remove(name, stamp(self._site, sliver_id))

    def _routing(self, device: str) -> NamespaceRouting:
        settings, limit = self._site.switches[device], self._site.limits.call / 2
        host = Namespaces(switch_host(self._site, device), device, limit)
        return NamespaceRouting(device, host, settings.netns, bgp=self._bgp)
