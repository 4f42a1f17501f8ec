"""Ports that others made and plugged into servers, as a sliver of their own.

::

    first port, as unfinished → the other ports → first port, as finished → verify

While a port says that others may lack their stamps, nothing else is done to the sliver.
"""

from collections.abc import Iterable

from fabric_direct.drivers.contract import AdoptionDriver, FoundPort, HostDrivers, Port
from fabric_direct.engine.step import Step
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.handler import field_below
from fabric_direct.handlers.vm.adoption import PortSteps, adoption_driver, refuse_owned
from fabric_direct.handlers.vm.observe import unfinished
from fabric_direct.handlers.vm.steps.adoption import FinishPorts
from fabric_direct.model.adoption import ServiceAdoption
from fabric_direct.model.networks import ServerPort, VNicPortsSliver
from fabric_direct.site.config import Site


def refuse_unfinished_ports(held: Iterable[Port]) -> None:
    """Raise Conflict if the adoption of a sliver's ports is unfinished."""
    for port in held:
        if port.unfinished:
            raise unfinished(port.sliver, "other ports of it may not bear its stamp yet")


class PortsAdoption:
    """The adoption of ports."""

    def __init__(self, site: Site, drivers: HostDrivers, wanted: ServiceAdoption) -> None:
        self._site, self._wanted = site, wanted
        self._sliver: VNicPortsSliver = wanted.sliver
        self._driver: AdoptionDriver = adoption_driver(drivers)
        self._owner = f"{site.site}/{self._sliver.id}"

    def stages(self) -> list[list[Step]]:
        """Return the steps; what does not fit is refused before.

        :raises InvalidSliver: with the field of what is not as the sliver says.
        :raises NotOurs: if somebody else stamped a port.
        """
        if not self._sliver.ports:
            raise InvalidSliver("are missing: there is nothing to adopt", field="ports")
        found = {port.id: self._port(n, port) for n, port in enumerate(self._sliver.ports)}
        (name, port), *others = found.items()
        steps = PortSteps(self._driver, self._site.site, self._sliver.id)
        floating = (step for pair in found.items() for step in steps.stamp_floating(*pair))
        rest = [*(steps.stamp(*pair) for pair in others), *floating]
        return [[steps.stamp(name, port, finished=False)], rest, [self._finish(found)]]

    def _finish(self, found: dict[str, FoundPort]) -> Step:
        ids = tuple(port.id for port in found.values())
        names = {port.id: name for name, port in found.items()}

        def now() -> list[FoundPort]:
            return list(self._driver.ports_named(ids))

        def finish() -> None:
            for port in (each for each in now() if each.unfinished):
                self._driver.stamp_port(port.id, self._sliver.id, names[port.id])

        return FinishPorts(now, finish)

    def _port(self, number: int, port: ServerPort) -> FoundPort:
        with field_below(f"ports[{number}]"):
            found = self._matching(port)
            refuse_owned(found, f"port {found.id}", self._owner, "")
            for ip in found.floating:
                refuse_owned(ip, f"floating IP {ip.name}", self._owner, "interface")
            self._refuse_other(port, found)
            return found

    def _matching(self, port: ServerPort) -> FoundPort:
        name = self._wanted.ports.get(port.id) or port.interface.mac
        if name is None:
            raise InvalidSliver("name its port below ports, or its MAC", field="interface.mac")
        found = self._driver.ports_named((name,))
        if len(found) != 1:
            several = f"several ports are named {name}: {', '.join(p.id for p in found)}"
            raise InvalidSliver(
                several if found else f"the project has no port {name}",
                remedy="name the port's id below ports",
            )
        return found[0]

    def _refuse_other(self, port: ServerPort, found: FoundPort) -> None:
        if self._sliver.network not in {found.network, found.network_id}:
            raise InvalidSliver(f"port {found.id} is on {found.network}", field="interface")
        if port.interface.mac not in {None, found.mac}:
            raise InvalidSliver(f"port {found.id} has {found.mac}", field="interface.mac")
        server = self._driver.server(found.server) if found.server else None
        own = server and f"{self._site.site}/{port.server}" == server.owner
        if server is None or not (own or server.name.startswith(f"{port.server}-")):
            has = f"server {server.name}" if server else "no server"
            raise InvalidSliver(f"port {found.id} is plugged into {has}", field="server")
