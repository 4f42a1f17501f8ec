"""Ports that one sliver holds, plugged into the servers of others, unplugged, removed.

Where a port is plugged in is asked of the substrate each time: its server may have been deleted, with
the NIC in it, by who owns the server.
"""

from fabric_direct.drivers.contract import Plug, Port
from fabric_direct.engine.step import Step
from fabric_direct.errors import NotOurs
from fabric_direct.handlers.vm.steps.ports import (
    SliverPorts,
    bandwidth_change,
    is_plugged_into,
    same_place,
)
from fabric_direct.model import FieldChange, Finding, VNic, VNicInterface


class _ServerPort(Step):
    form = "{}"

    def __init__(self, ports: SliverPorts, component: str) -> None:
        super().__init__(self.form.format(component))
        self._ports, self._component = ports, component

    def _plugs(self) -> list[Plug]:
        found = self._ports.compute.plugs(self._ports.sliver)
        return [plug for plug in found if plug.nic.component == self._component]

    def _plug(self, server: str, interface: VNicInterface) -> None:
        self._ports.plug(server, self._component, interface)

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
        limit, holder = self._ports.unplug, self._ports.sliver
        detach = self._ports.compute.detach_port
        detach(plug.server, self._component, timeout=limit, holder=holder)


class _InServer(_ServerPort):
    """A step of a port that shall be in a server."""

    def __init__(self, ports: SliverPorts, vnic: VNic, *, server: str) -> None:
        """Make the step; ``server`` is the sliver of the server that shall have the NIC."""
        super().__init__(ports, vnic.id)
        self._vnic, self._server = vnic, server


class PlugServerPort(_InServer):
    """A port is plugged into the server of another sliver, with its bandwidth."""

    form = "nic {}"
    _before: Plug | None = None

    def check(self) -> Finding:
        """Look for the NIC in the server, and compare its bandwidth."""
        plug = self._there()
        if plug is None or not plug.whole:
            return Finding.WILL_CREATE
        fits = plug.nic.bandwidth == self._vnic.interface.bandwidth
        return Finding.ALREADY_SO if fits else Finding.WILL_CHANGE

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the bandwidth."""
        there = self._there()
        return bandwidth_change(there.nic if there else None, self._vnic)

    def look(self) -> None:
        """Remember the NIC that is plugged in."""
        there = self._there()
        self._before = there if there and there.whole else None

    def make(self) -> None:
        """Plug it in, or change the bandwidth of one that is plugged in."""
        if self._before:
            self._limit(self._vnic.interface.bandwidth)
        else:
            self._plug(self._server, self._vnic.interface)

    def undo(self) -> None:
        """Unplug it, or give it its former bandwidth."""
        if self._before:
            self._limit(self._before.nic.interface().bandwidth)
        elif plug := self._there():
            self._pull(plug)

    def _there(self) -> Plug | None:
        return next((plug for plug in self._plugs() if plug.server == self._server), None)

    def _limit(self, bandwidth: int | None) -> None:
        set_bandwidth = self._ports.compute.set_bandwidth
        set_bandwidth(self._server, self._component, bandwidth, self._ports.sliver)


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
            self._plug(plug.server, plug.nic.interface())


class MoveServerPort(_InServer, UnplugServerPort):
    """A port that shall be another one, or in another server, is unplugged; one that fits stays."""

    def check(self) -> Finding:
        """Look whether a NIC is not its port's, or its port or its place will not stay."""
        port = self._ports.network.find_port(self._ports.sliver, self._component)
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
        held = self._ports.network.ports(self._ports.sliver)
        there = any(p.component == self._component for p in held) or self._plugs()
        return Finding.WILL_DELETE if there else Finding.ALREADY_SO

    def make(self) -> None:
        """Unplug it, wait until the guest has let go, and give the place up."""
        for plug in self._plugs():
            self._pull(plug)
        self._ports.network.delete_port(self._ports.sliver, self._component)
