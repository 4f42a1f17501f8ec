"""Ports held on networks, and NICs plugged into them."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fabric_direct.drivers.contract import ComputeDriver, NetworkDriver, PluggedPort, Port
from fabric_direct.engine.field_changes import changed
from fabric_direct.engine.removal import Removal
from fabric_direct.engine.step import Step
from fabric_direct.errors import NotFound
from fabric_direct.handlers.vm.steps.server import the_server
from fabric_direct.model import FieldChange, Finding, VNic, VNicInterface


class HoldPort(Step):
    """A vNIC has its port on its network: MAC and addresses."""

    def __init__(self, network: NetworkDriver, sliver_id: str, vnic: VNic) -> None:
        super().__init__(f"port {vnic.id}")
        self._network, self._sliver, self._vnic = network, sliver_id, vnic
        self._before: Port | None = None

    def check(self) -> Finding:
        """Look for the port and compare what the sliver fixes of it."""
        port = self._network.find_port(self._sliver, self._vnic.id)
        if port is None:
            return Finding.WILL_CREATE
        return Finding.ALREADY_SO if port_fits(port, self._vnic) else Finding.WILL_CHANGE

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the fields that the sliver fixes."""
        port = self._network.find_port(self._sliver, self._vnic.id)
        return changed(*_port_fields(port, self._vnic)) if port else ()

    def look(self) -> None:
        """Remember the port that is held."""
        whole = self._network.find_port(self._sliver, self._vnic.id)
        ports = () if whole else self._network.ports(self._sliver)
        self._before = whole or next((p for p in ports if p.component == self._vnic.id), None)

    def make(self) -> None:
        """Hold the port; a different one held for this vNIC is released first."""
        if self._before and not same_place(self._before, self._vnic):
            self._network.delete_port(self._sliver, self._vnic.id)
        self._hold(self._vnic.network, self._vnic.interface)

    def undo(self) -> None:
        """Release the port and hold the former one again, or restore its settings.

        What had lost its port, and was no whole one, is not held again.
        """
        was = self._before
        if was is None or not same_place(was, self._vnic):
            self._network.delete_port(self._sliver, self._vnic.id)
        if was and was.mac:
            self._hold(was.network, held_by(was))

    def is_undone(self) -> bool:
        """Return whether it is as it was; one that was switched off may stay on."""
        was = self._before
        only_off = was is not None and port_fits(replace(was, enabled=True), self._vnic)
        return only_off or super().is_undone()

    def _hold(self, network: str, interface: VNicInterface) -> None:
        self._network.create_port(self._sliver, self._vnic.id, network, interface)


def same_place(port: Port, vnic: VNic) -> bool:
    """Return whether the port has the network, MAC and addresses that the sliver fixes.

    A port that differs in one of these is released and another one held; its settings can be changed.
    """
    wanted = vnic.interface
    pairs = ((wanted.mac, port.mac), (wanted.ipv4, port.ipv4), (wanted.ipv6, port.ipv6))
    on_it = vnic.network in {port.network, port.network_id}
    on_it = on_it and wanted.port in {None, port.source}
    return on_it and all(w is None or w == p for w, p in pairs)


def _port_fields(port: Port, vnic: VNic) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a port has, and what it shall have, of the fields that :func:`port_fits` compares."""
    wanted = vnic.interface
    same = vnic.network in {port.network, port.network_id}
    was = {
        "network": vnic.network if same else port.network,
        "port": port.source,
        "mac": port.mac,
        "ipv4": _text(port.ipv4),
        "ipv6": _text(port.ipv6),
        "port_security": port.port_security,
        "floating_ip": port.floating_ip is not None,
        "enabled": port.enabled,
    }
    will_be = {
        "network": vnic.network,
        "port": wanted.port,
        "mac": wanted.mac,
        "ipv4": _text(wanted.ipv4),
        "ipv6": _text(wanted.ipv6),
        "port_security": wanted.port_security,
        "floating_ip": wanted.floating_ip,
        "enabled": True,
    }
    fixed = {name: value for name, value in will_be.items() if value is not None}
    return {name: was[name] for name in fixed}, fixed


def _text(address: object) -> str | None:
    return None if address is None else str(address)


def is_plugged_into(nic: PluggedPort, port: Port | None) -> bool:
    """Return whether a NIC is the port's: it has the port's MAC."""
    return port is not None and nic.mac == port.mac


def port_fits(port: Port, vnic: VNic) -> bool:
    """Return whether the port has all that the sliver fixes, also its settings."""
    wanted = vnic.interface
    secure = wanted.port_security in {None, port.port_security}
    floats = wanted.floating_ip == (port.floating_ip is not None)
    return same_place(port, vnic) and floats and secure and port.enabled


def held_by(port: Port) -> VNicInterface:
    """Return the interface that asks for just this port."""
    return VNicInterface(
        port=port.source if port.tap else None,
        mac=port.mac or None,
        ipv4=port.ipv4,
        ipv6=port.ipv6,
        floating_ip=port.floating_ip is not None,
        port_security=port.port_security,
    )


class ReleasePort(Removal):
    """A vNIC that is no longer wanted has no port on any network."""

    def __init__(self, network: NetworkDriver, sliver_id: str, component: str) -> None:
        def held() -> bool:
            return any(p.component == component for p in network.ports(sliver_id))

        delete = partial(network.delete_port, sliver_id, component)
        super().__init__(f"release port {component}", held, delete)


class HoldFloatingIp(Step):
    """The port of a vNIC has a floating IP."""

    def __init__(self, network: NetworkDriver, sliver_id: str, component: str) -> None:
        super().__init__(f"floating IP {component}")
        self._network, self._of = network, (sliver_id, component)

    def check(self) -> Finding:
        """Look whether the port has one."""
        port = self._network.find_port(*self._of)
        return Finding.ALREADY_SO if port and port.floating_ip else Finding.WILL_CREATE

    def make(self) -> None:
        """Give it one."""
        self._network.create_floating_ip(*self._of)

    def undo(self) -> None:
        """Delete it."""
        self._network.delete_floating_ip(*self._of)


class ReleaseFloatingIp(Removal):
    """The port of a vNIC has no floating IP."""

    def __init__(self, network: NetworkDriver, sliver_id: str, component: str) -> None:
        def floats() -> bool:
            ports = network.ports(sliver_id)
            return any(p.component == component and p.floating_ip for p in ports)

        delete = partial(network.delete_floating_ip, sliver_id, component)
        super().__init__(f"release floating IP {component}", floats, delete)


@dataclass(frozen=True)
class SliverPorts:
    """The ports that a sliver holds, and what plugs them into servers."""

    compute: ComputeDriver
    network: NetworkDriver
    sliver: str
    unplug: float
    """Seconds that a guest gets to release a NIC."""

    def plug(self, server: str, component: str, interface: VNicInterface) -> None:
        """Plug the port held for a component into the server of a sliver.

        :raises NotFound: if none is held, or not all of it is there.
        """
        port = self.network.find_port(self.sliver, component)
        if port is None:
            raise NotFound(f"port {component} of sliver {self.sliver} is not there")
        self.compute.attach_port(server, port, interface)


class _Plugging(Step):
    """A step of a NIC of a sliver's own server."""

    form = "{}"

    def __init__(self, ports: SliverPorts, vnic: VNic) -> None:
        super().__init__(self.form.format(vnic.id))
        self._ports, self._vnic = ports, vnic

    def _plugged(self) -> PluggedPort | None:
        """Return the server's NIC, or None.

        :raises NotFound: if the server is not there: a look that misses it says nothing of its NICs.
        """
        nics = the_server(self._ports.compute, self._ports.sliver).ports
        return next((nic for nic in nics if nic.component == self._vnic.id), None)

    def _plug(self) -> None:
        self._ports.plug(self._ports.sliver, self._vnic.id, self._vnic.interface)

    def _pull(self) -> None:
        ports = self._ports
        ports.compute.detach_port(ports.sliver, self._vnic.id, timeout=ports.unplug)


class PlugPort(_Plugging):
    """A NIC is plugged into its port, with its bandwidth."""

    form = "nic {}"
    _before: PluggedPort | None = None

    def check(self) -> Finding:
        """Compare the NIC with its port and its bandwidth."""
        plugged = self._plugged()
        if plugged is None:
            return Finding.WILL_CREATE
        fits = plugged.bandwidth == self._vnic.interface.bandwidth
        return Finding.ALREADY_SO if fits else Finding.WILL_CHANGE

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the bandwidth."""
        return bandwidth_change(self._plugged(), self._vnic)

    def look(self) -> None:
        """Remember the NIC that is plugged in."""
        self._before = self._plugged()

    def make(self) -> None:
        """Plug it in, or change the bandwidth of one that is plugged in."""
        if self._before:
            self._limit(self._vnic.interface.bandwidth)
        else:
            self._plug()

    def undo(self) -> None:
        """Unplug it, or restore its former bandwidth."""
        if self._before:
            self._limit(self._before.interface().bandwidth)
        else:
            self._pull()

    def _limit(self, bandwidth: int | None) -> None:
        self._ports.compute.set_bandwidth(self._ports.sliver, self._vnic.id, bandwidth)


def bandwidth_change(nic: PluggedPort | None, vnic: VNic) -> tuple[FieldChange, ...]:
    """Return the change of a NIC's bandwidth."""
    will_be = {"bandwidth": vnic.interface.bandwidth}
    return changed({"bandwidth": nic.bandwidth}, will_be) if nic else ()


class UnplugPort(_Plugging):
    """A NIC is not plugged in, because it is no longer wanted or its port changes."""

    form = "unplug nic {}"

    def check(self) -> Finding:
        """Look for the NIC."""
        plugged = self._plugged()
        return Finding.WILL_DELETE if plugged else Finding.ALREADY_SO

    def make(self) -> None:
        """Unplug it and wait until the guest has released it."""
        self._pull()

    def undo(self) -> None:
        """Plug it in again."""
        self._plug()


class ReplugPort(UnplugPort):
    """A NIC is unplugged if its port changes, or it is not its port's, or its link is switched off."""

    def __init__(self, ports: SliverPorts, *, was: VNic, wanted: VNic) -> None:
        """Make the step; ``was`` is the vNIC before the change, ``wanted`` the one after it."""
        super().__init__(ports, was)
        self._wanted = wanted

    def check(self) -> Finding:
        """Look whether a NIC is plugged that is not a port's which will stay."""
        port = self._ports.network.find_port(self._ports.sliver, self._wanted.id)
        plugged = self._plugged()
        stays = port is not None and same_place(port, self._wanted)
        fits = plugged is None or (stays and plugged.enabled and is_plugged_into(plugged, port))
        return Finding.ALREADY_SO if fits else Finding.WILL_DELETE
