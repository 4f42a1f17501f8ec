"""Ports held on networks, and NICs plugged into them."""

from dataclasses import replace
from functools import partial

from fabric_direct.drivers.contract import PluggedPort, Port, PortHolder, PortPlugging
from fabric_direct.errors import NotFound
from fabric_direct.model import Finding, VNic, VNicInterface
from fabric_direct.steps.base import Step
from fabric_direct.steps.removal import Removal
from fabric_direct.steps.server import the_server


class HoldPort(Step):
    """A vNIC has its port on its network: MAC and addresses."""

    def __init__(self, network: PortHolder, sliver_id: str, vnic: VNic) -> None:
        super().__init__(f"port {vnic.id}")
        self._network, self._sliver, self._vnic = network, sliver_id, vnic
        self._before: Port | None = None

    def check(self) -> Finding:
        """Look for the port and compare what the sliver fixes of it."""
        port = self._network.find_port(self._sliver, self._vnic.id)
        if port is None:
            return Finding.WILL_CREATE
        return Finding.ALREADY_SO if port_fits(port, self._vnic) else Finding.WILL_CHANGE

    def look(self) -> None:
        """Remember the port that is held."""
        ports = self._network.ports(self._sliver)
        self._before = next((p for p in ports if p.component == self._vnic.id), None)

    def make(self) -> None:
        """Hold the port; a different one held for this vNIC is released first."""
        if self._before and not same_place(self._before, self._vnic):
            self._network.delete_port(self._sliver, self._vnic.id)
        self._hold(self._vnic.network, self._vnic.interface)

    def undo(self) -> None:
        """Release the port and hold the former one again, or restore its settings."""
        was = self._before
        if was is None or not same_place(was, self._vnic):
            self._network.delete_port(self._sliver, self._vnic.id)
        if was:
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
    return on_it and all(w is None or w == p for w, p in pairs)


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
        mac=port.mac or None,
        ipv4=port.ipv4,
        ipv6=port.ipv6,
        floating_ip=port.floating_ip is not None,
        port_security=port.port_security,
    )


class ReleasePort(Removal):
    """A vNIC that is no longer wanted has no port on any network."""

    def __init__(self, network: PortHolder, sliver_id: str, component: str) -> None:
        def held() -> bool:
            return any(p.component == component for p in network.ports(sliver_id))

        delete = partial(network.delete_port, sliver_id, component)
        super().__init__(f"release port {component}", held, delete)


class _Plugging(Step):
    form = "{}"

    def __init__(
        self,
        compute: PortPlugging,
        network: PortHolder,
        sliver_id: str,
        vnic: VNic,
        unplug: float,
    ) -> None:
        """Make the step; the guest gets ``unplug`` seconds to release the NIC."""
        super().__init__(self.form.format(vnic.id))
        self._compute, self._network = compute, network
        self._sliver, self._vnic, self._unplug = sliver_id, vnic, unplug

    def _plugged(self) -> PluggedPort | None:
        """Return the server's NIC, or None.

        :raises NotFound: if the server is not there: a look that misses it says nothing of its NICs.
        """
        nics = the_server(self._compute, self._sliver).ports
        return next((nic for nic in nics if nic.component == self._vnic.id), None)

    def _plug(self) -> None:
        port = the_port(self._network, self._sliver, self._vnic.id)
        self._compute.attach_port(self._sliver, port, self._vnic.interface)

    def _pull(self) -> None:
        self._compute.detach_port(self._sliver, self._vnic.id, timeout=self._unplug)


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

    def look(self) -> None:
        """Remember the NIC that is plugged in."""
        self._before = self._plugged()

    def make(self) -> None:
        """Plug it in, or change the bandwidth of one that is plugged in."""
        if self._before:
            bandwidth = self._vnic.interface.bandwidth
            self._compute.set_bandwidth(self._sliver, self._vnic.id, bandwidth)
        else:
            self._plug()

    def undo(self) -> None:
        """Unplug it, or restore its former bandwidth."""
        if self._before:
            self._compute.set_bandwidth(self._sliver, self._vnic.id, self._before.bandwidth)
        else:
            self._pull()


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

    def __init__(
        self,
        compute: PortPlugging,
        network: PortHolder,
        sliver_id: str,
        *,
        was: VNic,
        wanted: VNic,
        unplug: float,
    ) -> None:
        """Make the step; ``was`` is the vNIC before the change, ``wanted`` the one after it."""
        super().__init__(compute, network, sliver_id, was, unplug)
        self._wanted = wanted

    def check(self) -> Finding:
        """Look whether a NIC is plugged that is not a port's which will stay."""
        port, plugged = self._network.find_port(self._sliver, self._wanted.id), self._plugged()
        stays = port is not None and same_place(port, self._wanted)
        fits = plugged is None or (stays and plugged.enabled and is_plugged_into(plugged, port))
        return Finding.ALREADY_SO if fits else Finding.WILL_DELETE


def the_port(network: PortHolder, sliver_id: str, component: str) -> Port:
    """Return the port held for a component.

    :raises NotFound: if none is held, or not all of it is there.
    """
    port = network.find_port(sliver_id, component)
    if port is None:
        raise NotFound(f"port {component} of sliver {sliver_id} is not there")
    return port
