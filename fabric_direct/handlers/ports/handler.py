"""Ports of a network service, plugged into the servers of other slivers (``vNICPorts``).

::

    create   hold ports → plug them in → verify
    modify   hold new ports → unplug what changes → hold its ports anew → plug in, bandwidth → verify
             → unplug what is unwanted → remove its ports → networks that nobody uses
    adopt    see :mod:`.adoption`
    delete   unplug and remove ports → networks that nobody uses → nothing is left

Each port carries this sliver's stamp, and so does the NIC. The server's own sliver ignores such a NIC;
when it deletes the server, the port stays, plugged into nothing. While ports are plugged in or moved,
nobody else changes the servers' slivers: the flow names them as touched.

Where the ports are plugged in is read from the substrate; nothing else records what the sliver was, but
for the journal while it is modified. So a sliver without ports does not exist.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, ClassVar

from fabric_direct.drivers.contract import (
    HostDrivers,
    Plug,
    PluggedPort,
    Port,
    Server,
)
from fabric_direct.engine.step import Flow, Step
from fabric_direct.engine.verify import ReadBack, Verified, Verify
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.handler import (
    OneModel,
    Repair,
    already_there,
    field_below,
    unknown_wish,
)
from fabric_direct.handlers.ports.adoption import PortsAdoption, refuse_unfinished_ports
from fabric_direct.handlers.ports.steps import (
    MoveServerPort,
    PlugServerPort,
    RemoveServerPort,
    UnplugServerPort,
)
from fabric_direct.handlers.vm.differences import vnic_differences
from fabric_direct.handlers.vm.observe import observed_interface
from fabric_direct.handlers.vm.steps.networks import RemoveUnused
from fabric_direct.handlers.vm.steps.ports import (
    HoldPort,
    ReleasePort,
    SliverPorts,
    held_by,
    same_place,
)
from fabric_direct.model import Observed, ObservedInterface, Sliver, SliverRef, State, VNicInterface
from fabric_direct.model.adoption import ServiceAdoption
from fabric_direct.model.networks import ServerPort, VNicPortsSliver
from fabric_direct.site.config import Site


class VNicPortsHandler(OneModel):
    """Makes, changes, removes and looks at ports in the servers of other slivers."""

    sliver_model: ClassVar[type[Sliver]] = VNicPortsSliver
    actions: ClassVar[tuple[str, ...]] = ()
    hosted: ClassVar[bool] = True

    def __init__(self, site: Site, drivers: HostDrivers) -> None:
        """Make a handler whose drivers keep the operation's deadline.

        :raises InvalidSite: if the site serves no VMs.
        """
        site.refuse_without_vms()
        self._site, self._drivers = site, drivers
        self._compute, self._network = drivers.compute, drivers.network
        self._detach = site.limits.detach

    def create(self, sliver: VNicPortsSliver) -> Flow:
        """Return what makes the ports and plugs them in."""
        self._refuse(sliver)
        held, plugs = self._network.ports(sliver.id), self._compute.plugs(sliver.id)
        refuse_unfinished_ports(held)
        if differs := tuple(_contradictions(sliver, held, plugs)):
            raise already_there(sliver, why="; ".join(differs))
        return Flow.of(
            self._holds(sliver, sliver.ports),
            self._plug_in(sliver),
            [Verify(partial(self._read_back, sliver))],
            owns_everything=not (held or plugs),
            touches=sliver.servers(),
        )

    def modify(self, sliver: VNicPortsSliver) -> Flow:
        """Return what turns the ports that are there into those asked for.

        New ports are held before changed ones are given up: what is given up must still be free when
        it is taken back.
        """
        self._refuse(sliver)
        held, plugs = self._network.ports(sliver.id), self._compute.plugs(sliver.id)
        refuse_unfinished_ports(held)
        there = _components(held, plugs)
        gone = sorted(there - {port.id for port in sliver.ports})
        kept = [port for port in sliver.ports if port.id in there]
        added = [port for port in sliver.ports if port.id not in there]
        unused = self._network.unused()
        return Flow.of(
            self._holds(sliver, added),
            self._unplug_changed(sliver, kept),
            self._holds(sliver, kept),
            self._plug_in(sliver),
            [Verify(partial(self._read_back, sliver, gone))],
            [UnplugServerPort(self._nics(sliver), name) for name in gone],
            [ReleasePort(self._network, sliver.id, name) for name in gone],
            [RemoveUnused(self._network, unused)] if unused else [],
            [Verified(partial(self._read_back, sliver))],
            touches={*sliver.servers(), *_servers(plugs)},
            before=_former(sliver, held, plugs),
        )

    def delete(self, ref: SliverRef) -> Flow:
        """Return what unplugs the ports and removes them.

        Servers are not locked for it: one whose guest does not release the NIC may be deleted meanwhile,
        and the NIC goes with it.
        """
        plugs, unused = self._compute.plugs(ref.id), self._network.unused()
        held = self._network.ports(ref.id)
        refuse_unfinished_ports(held)
        names = sorted(_components(held, plugs))
        return Flow.of(
            [RemoveServerPort(self._nics(ref), name) for name in names],
            [RemoveUnused(self._network, unused)] if unused else [],
            owns_everything=True,
        )

    def adopt(self, wanted: ServiceAdoption) -> Flow:
        """Return what stamps ports that others made and plugged into the servers of slivers."""
        sliver, adopting = wanted.sliver, PortsAdoption(self._site, self._drivers, wanted)
        return Flow.of(*adopting.stages(), [Verify(partial(self._read_adopted, sliver))])

    def _read_adopted(self, sliver: VNicPortsSliver) -> ReadBack:
        """Read back, with what does not bear the sliver's stamp."""
        self._drivers.reads.invalidate()
        held = {port.component: port for port in self._network.ports(sliver.id)}
        finished = {name for name, port in held.items() if not port.unfinished}
        unstamped = (port.id for port in sliver.ports if port.id not in finished)
        differs = tuple(f"port {name} does not bear its stamp" for name in unstamped)
        return ReadBack(self.observe(sliver), differs)

    def _nics(self, ref: SliverRef) -> SliverPorts:
        return SliverPorts(self._compute, self._network, ref.id, self._detach)

    def _holds(self, sliver: VNicPortsSliver, ports: Iterable[ServerPort]) -> list[Step]:
        return [HoldPort(self._network, sliver.id, sliver.vnic(port)) for port in ports]

    def _unplug_changed(self, sliver: VNicPortsSliver, ports: Iterable[ServerPort]) -> list[Step]:
        nics = self._nics(sliver)
        return [MoveServerPort(nics, sliver.vnic(port), server=port.server) for port in ports]

    def _plug_in(self, sliver: VNicPortsSliver) -> list[Step]:
        nics = self._nics(sliver)
        return [
            PlugServerPort(nics, sliver.vnic(port), server=port.server) for port in sliver.ports
        ]

    # --- refused

    def _refuse(self, sliver: VNicPortsSliver) -> None:
        """Raise InvalidSliver unless the network can serve the ports and the servers exist.

        :raises InvalidSliver: with the field: ``network``, ``ports[n].server``, ``ports[n].interface…``.
        """
        self._network.check(sliver.network, VNicInterface())
        find = cache(self._compute.find)
        for number, port in enumerate(sliver.ports):
            with field_below(f"ports[{number}]"):
                _refuse_in_guest(port)
                self._refuse_server(port, find)
                self._network.check(sliver.network, port.interface, sliver.id)

    def _refuse_server(self, port: ServerPort, find: Callable[[str], Server | None]) -> None:
        with field_below("server"):
            if find(port.server) is None:
                raise InvalidSliver(
                    f"there is no server of sliver {port.server}",
                    where=self._drivers.host,
                    remedy="create it first; where the site has several hosts, name the sliver's host",
                )

    # --- looking

    def reconcile(self, ref: SliverRef) -> Repair:
        """Refuse: nothing at the site says what it should be."""
        raise unknown_wish(ref, "set of ports")

    def exists(self, ref: SliverRef) -> bool:
        """Return whether any port of it is held; one of the NICs of a server of its id is not its."""
        held = {port.component for port in self._network.ports(ref.id)}
        if not held or self._compute.plugs(ref.id):
            return bool(held)
        server = self._compute.find(ref.id)
        return not server or not held <= _own(server)

    def observe(self, ref: SliverRef) -> Observed:
        """Read the ports and where they are plugged in, and compare them with what they should be.

        What they should be is not written on them: by the sliver's id alone it is seen only whether each
        is plugged in.
        """
        held, plugs = self._network.ports(ref.id), self._compute.plugs(ref.id)
        loose = [port for port in held if port.component not in _components((), plugs)]
        found = Observed(
            state=_state(held, plugs, loose),
            host=self._drivers.host or None,
            instance=next((port.network for port in held), None),
            interfaces=tuple(_interfaces(held, plugs)),
        )
        sentences = (
            _unlike(ref, found, plugs)
            if isinstance(ref, VNicPortsSliver)
            else (_not_plugged(port.component) for port in loose)
        )
        return found.model_copy(update={"differences": tuple(sentences)})

    def _read_back(self, sliver: VNicPortsSliver, gone: Collection[str] = ()) -> ReadBack:
        """Read back and compare, but for ports that are removed in the end."""
        self._drivers.reads.invalidate()
        found, ignored = self.observe(sliver), {_not_wanted(name) for name in gone}
        return ReadBack(found, tuple(d for d in found.differences if d not in ignored))

    def leftovers(self, ref: SliverRef) -> tuple[str, ...]:
        """Name everything of the sliver that is there."""
        self._drivers.reads.invalidate()
        plugs = self._compute.plugs(ref.id)
        nics = (f"NIC {plug.nic.component} of {plug.instance}" for plug in plugs)
        return (*nics, *self._network.leftovers(ref.id))

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Refuse: ports have no operational actions."""
        raise InvalidSliver(f"there is no action {action!r} on ports", field="action")


def _refuse_in_guest(port: ServerPort) -> None:
    if port.interface.auto_config:
        raise InvalidSliver(
            "the guest of another sliver cannot be configured",
            field="interface.auto_config",
            remedy="omit it; if the network has DHCP, the guest gets the port's address",
        )


def _components(held: Iterable[Port], plugs: Iterable[Plug]) -> set[str]:
    return {port.component for port in held} | {plug.nic.component for plug in plugs}


def _own(server: Server) -> set[str]:
    """Return the components of a server's sliver, by its NICs and by its stamp."""
    stamped = {component.id for component in server.stamp.sliver.components}
    return stamped | {nic.component for nic in server.ports}


def _servers(plugs: Iterable[Plug]) -> set[str]:
    return {plug.server for plug in plugs if plug.server}


def _former(
    sliver: VNicPortsSliver, held: Sequence[Port], plugs: Iterable[Plug]
) -> VNicPortsSliver | None:
    """Return the sliver as it is there; None if it is not whole, so that it cannot be made so again."""
    whole = {plug.nic.component: plug for plug in plugs if plug.server and plug.whole}
    networks = {_network_of(port, sliver) for port in held} or {sliver.network}
    if {port.component for port in held} != whole.keys() or len(networks) != 1:
        return None
    ports = tuple(_server_port(port, whole[port.component]) for port in held)
    return sliver.model_copy(update={"network": networks.pop(), "ports": ports})


def _network_of(port: Port, sliver: VNicPortsSliver) -> str:
    same = sliver.network in {port.network, port.network_id}
    return sliver.network if same else port.network


def _server_port(port: Port, plug: Plug) -> ServerPort:
    interface = held_by(port).model_copy(update={"bandwidth": plug.nic.interface().bandwidth})
    return ServerPort(id=port.component, server=plug.server, interface=interface)


def _state(held: Sequence[Port], plugs: Sequence[Plug], loose: Sequence[Port]) -> State:
    if not (held or plugs):
        return State.ABSENT
    return State.ERROR if loose else State.RUNNING


def _interfaces(held: Iterable[Port], plugs: Iterable[Plug]) -> Iterator[ObservedInterface]:
    """Yield each port as found: one that is plugged into nothing, too, and a NIC without its port."""
    ports = {port.component: port for port in held}
    nics = {port.component: PluggedPort(port.component, port.mac, port.source) for port in held}
    nics |= {plug.nic.component: plug.nic for plug in plugs}
    for name in sorted(nics):
        yield observed_interface(nics[name], ports.get(name))


def _contradictions(
    sliver: VNicPortsSliver, held: Iterable[Port], plugs: Iterable[Plug]
) -> Iterator[str]:
    """Yield where what is there cannot be completed to be what is asked for."""
    wanted = {port.id: port for port in sliver.ports}
    for name in sorted(_components(held, plugs) - wanted.keys()):
        yield _not_wanted(name)
    for port in (port for port in held if port.component in wanted):
        if not same_place(port, sliver.vnic(wanted[port.component])):
            yield f"port {port.component} is {port.mac} on {port.network}"
    yield from _misplaced(sliver, plugs)


def _unlike(sliver: VNicPortsSliver, found: Observed, plugs: Sequence[Plug]) -> Iterator[str]:
    there = {interface.component for interface in found.interfaces}
    wanted = {port.id for port in sliver.ports}
    yield from (f"port {name} is missing" for name in sorted(wanted - there))
    yield from map(_not_wanted, sorted(there - wanted))
    loose = (wanted & there) - _components((), plugs)
    yield from map(_not_plugged, sorted(loose))
    yield from _misplaced(sliver, plugs)
    yield from (_half_plugged(plug.nic.component) for plug in plugs if not plug.whole)
    for port in sliver.ports:
        yield from vnic_differences(sliver.vnic(port), found)


def _misplaced(sliver: VNicPortsSliver, plugs: Iterable[Plug]) -> Iterator[str]:
    servers = {port.id: port.server for port in sliver.ports}
    for plug in plugs:
        wanted = servers.get(plug.nic.component, plug.server)
        if plug.server != wanted:
            where = plug.server or f"{plug.instance}, which is not ours"
            yield f"port {plug.nic.component} is plugged into {where}, not into {wanted}"


def _not_wanted(component: str) -> str:
    return f"port {component} is there and not wanted"


def _half_plugged(component: str) -> str:
    return f"port {component} is plugged in now or for later starts, but not both"


def _not_plugged(component: str) -> str:
    return f"port {component} is plugged into no server"
