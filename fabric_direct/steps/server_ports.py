"""Ports that one sliver holds, plugged into the servers of others, unplugged, removed.

Where a port is plugged in is asked of the substrate each time: its server may have been deleted, with
the NIC in it, by who owns the server.
"""

from fabric_direct.drivers.contract import Plug, Port, PortHolder, PortPlugging
from fabric_direct.errors import NotOurs
from fabric_direct.model import Finding, VNic, VNicInterface
from fabric_direct.steps.base import Step
from fabric_direct.steps.ports import is_plugged_into, same_place, the_port


class _ServerPort(Step):
    form = "{}"

    def __init__(
        self,
        compute: PortPlugging,
        network: PortHolder,
        holder: str,
        component: str,
        unplug: float,
    ) -> None:
        """Make the step; the guest gets ``unplug`` seconds to let go of the NIC."""
        super().__init__(self.form.format(component))
        self._compute, self._network = compute, network
        self._holder, self._component, self._unplug = holder, component, unplug

    def _plugs(self) -> list[Plug]:
        found = self._compute.plugs(self._holder)
        return [plug for plug in found if plug.nic.component == self._component]

    def _plug(self, server: str, interface: VNicInterface) -> None:
        port = the_port(self._network, self._holder, self._component)
        self._compute.attach_port(server, port, interface)

    def _pull(self, plug: Plug) -> None:
        """Unplug it.

        :raises NotOurs: if the server is not ours.
        """
        if not plug.server:
            raise NotOurs(
                f"port {self._component} is plugged into server {plug.instance}",
                why="that server is not ours",
                remedy="unplug it there",
            )
        self._compute.detach_port(
            plug.server, self._component, timeout=self._unplug, holder=self._holder
        )


class PlugServerPort(_ServerPort):
    """A port is plugged into the server of another sliver, with its bandwidth."""

    form = "nic {}"

    def __init__(
        self,
        compute: PortPlugging,
        network: PortHolder,
        holder: str,
        vnic: VNic,
        unplug: float,
        *,
        server: str,
    ) -> None:
        """Make the step; ``server`` is the sliver of the server that shall have the NIC."""
        super().__init__(compute, network, holder, vnic.id, unplug)
        self._interface, self._server = vnic.interface, server
        self._before: Plug | None = None

    def check(self) -> Finding:
        """Look for the NIC in the server, and compare its bandwidth."""
        plug = self._there()
        if plug is None or not plug.whole:
            return Finding.WILL_CREATE
        fits = plug.nic.bandwidth == self._interface.bandwidth
        return Finding.ALREADY_SO if fits else Finding.WILL_CHANGE

    def look(self) -> None:
        """Remember the NIC that is plugged in."""
        there = self._there()
        self._before = there if there and there.whole else None

    def make(self) -> None:
        """Plug it in, or change the bandwidth of one that is plugged in."""
        if self._before:
            self._limit(self._interface.bandwidth)
        else:
            self._plug(self._server, self._interface)

    def undo(self) -> None:
        """Unplug it, or give it its former bandwidth."""
        if self._before:
            self._limit(self._before.nic.bandwidth)
        elif plug := self._there():
            self._pull(plug)

    def _there(self) -> Plug | None:
        return next((plug for plug in self._plugs() if plug.server == self._server), None)

    def _limit(self, bandwidth: int | None) -> None:
        self._compute.set_bandwidth(self._server, self._component, bandwidth, self._holder)


class UnplugServerPort(_ServerPort):
    """A port is plugged into no server: it is not wanted any more, or shall be in another one."""

    form = "unplug nic {}"
    _before: tuple[Plug, ...] = ()

    def check(self) -> Finding:
        """Look for a NIC of it, in whatever server."""
        return Finding.WILL_DELETE if self._plugs() else Finding.ALREADY_SO

    def look(self) -> None:
        """Remember where it is plugged in."""
        self._before = tuple(self._plugs())

    def make(self) -> None:
        """Unplug it and wait until the guest has let go."""
        for plug in self._before:
            self._pull(plug)

    def undo(self) -> None:
        """Plug it in again where it was."""
        for plug in self._before:
            self._plug(plug.server, VNicInterface(bandwidth=plug.nic.bandwidth))


class MoveServerPort(UnplugServerPort):
    """A port that shall be another one, or in another server, is unplugged; one that fits stays."""

    def __init__(
        self,
        compute: PortPlugging,
        network: PortHolder,
        holder: str,
        vnic: VNic,
        unplug: float,
        *,
        server: str,
    ) -> None:
        """Make the step; ``server`` is the sliver of the server that shall have the NIC."""
        super().__init__(compute, network, holder, vnic.id, unplug)
        self._vnic, self._server = vnic, server

    def check(self) -> Finding:
        """Look whether a NIC is not its port's, or its port or its place will not stay."""
        port = self._network.find_port(self._holder, self._component)
        stays = port is not None and same_place(port, self._vnic)
        if stays and all(self._fits(plug, port) for plug in self._plugs()):
            return Finding.ALREADY_SO
        return super().check()

    def _fits(self, plug: Plug, port: Port | None) -> bool:
        return plug.server == self._server and is_plugged_into(plug.nic, port)


class RemoveServerPort(_ServerPort):
    """A port is gone: plugged into no server, and without a place on any network."""

    form = "remove port {}"
    undoable = False

    def check(self) -> Finding:
        """Look for the port, and for a NIC of it."""
        ports = self._network.ports(self._holder)
        there = any(p.component == self._component for p in ports) or self._plugs()
        return Finding.WILL_DELETE if there else Finding.ALREADY_SO

    def make(self) -> None:
        """Unplug it, wait until the guest has let go, and give the place up."""
        for plug in self._plugs():
            self._pull(plug)
        self._network.delete_port(self._holder, self._component)
