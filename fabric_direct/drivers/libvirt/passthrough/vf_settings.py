"""The settings that a PF enforces on its virtual functions (VFs): also before and after a domain has it.

libvirt sets the MAC and the VLAN on the PF and restores them when the domain releases the VF. All other
settings are set by netlink before the attach: VEPA on the uplink; trust, spoof check and rate of the VF.
libvirt changes nothing of a VF that a running domain has, so what differs then is set by netlink, too.
When the VF is cleaned, its settings are restored from its record.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from typing import Any, ClassVar

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import DeviceRecord, PluggedDevice, VfSettings
from fabric_direct.drivers.libvirt.domains.lookup import alias
from fabric_direct.drivers.libvirt.networks.address_pools import derived_mac
from fabric_direct.drivers.libvirt.passthrough.attach import PlainFunctions
from fabric_direct.drivers.libvirt.passthrough.topology import Topology
from fabric_direct.drivers.netlink.uplink import settings_of_vf, settings_unknown
from fabric_direct.errors import InvalidSliver, NotVerified, Unsupported
from fabric_direct.model import PciAddress, PciComponent, SharedNic
from fabric_direct.site.config import AllowedDevice

VEPA = "vepa"
_NO_MAC = "00:00:00:00:00:00"


class VirtualFunctions(PlainFunctions):
    """VFs of the host's uplinks, with their settings."""

    template: ClassVar[str] = "interface-hostdev.xml.j2"
    safe_baseline: ClassVar[VfSettings | None] = VfSettings(
        mac=_NO_MAC,
        vlan=0,
        qos=0,
        trust=False,
        spoof_check=True,
        max_tx_rate=0,
        min_tx_rate=0,
        link_state=0,
    )
    """As the kernel's drivers begin: no MAC and VLAN of a former tenant, no rights, no limits."""

    def wanted(self, component: PciComponent, sliver_id: str) -> tuple[PluggedDevice, ...]:
        """Return the VF as a domain should have it, with MAC and VLAN."""
        nic = _shared(component)
        mac, vlan = _mac(sliver_id, nic), nic.interface.vlan
        return (PluggedDevice(nic.id, alias(sliver_id, nic.id), nic.bdf[0], mac=mac, vlan=vlan),)

    def guard(self, component: PciComponent, sliver_id: str) -> AbstractContextManager[None]:
        """Lock the VF's MAC, so that no other VF of the host gets it meanwhile."""
        mac, host = _mac(sliver_id, _shared(component)), self.host
        name, limit = f"mac-{mac.replace(':', '')}", host.site.limits.busy
        return host.lock(name, f"MAC {mac} on {host.name}", timeout=limit)

    def check(self, topology: Topology, component: PciComponent, sliver_id: str) -> None:
        """Raise an error if it is not a VF, or cannot be as wanted on its PF.

        :raises InvalidSliver: if it is not a VF, or another VF of its PF has its MAC; with the field.
        :raises Unsupported: if its NIC is in switchdev mode, and something is wanted that only the
            legacy mode has.
        :raises DriverError: if the host does not tell what the PF enforces on it.
        """
        nic = _shared(component)
        uplink, vf = self._uplink_of(topology, nic.bdf[0])
        mac = _mac(sliver_id, nic)
        told = self.host.uplinks.vfs(uplink)
        self._refuse_switchdev(topology, nic, told.get(vf) or self._settings(uplink, vf))
        for number, settings in told.items():
            if number != vf and settings.mac == mac:
                raise InvalidSliver(
                    f"VF {number} of {uplink} has the MAC {mac}",
                    field="interface.mac",
                    where=self.host.name,
                    remedy="name another MAC, or none",
                )

    def _refuse_switchdev(self, topology: Topology, nic: SharedNic, there: VfSettings) -> None:
        # As mlx5 refuses with EOPNOTSUPP outside of the legacy mode: esw/legacy.c.
        (address,), vlan = nic.bdf, nic.interface.vlan
        entry = topology.allowed().get(address)
        unlike = _unlike(there, _wanted_settings(nic, entry, None))
        wanted = (
            *((f"vlan {vlan}",) if vlan else ()),
            *(("vepa",) if entry and entry.vepa else ()),
            *(name for name in ("trust", "spoof_check") if name in unlike),
        )
        if wanted and topology.in_switchdev(address):
            uplink, physical = topology.uplink_of(address), topology.functions[address].physical
            raise Unsupported(
                f"{nic.id} cannot have {', '.join(wanted)}",
                field="interface.vlan" if vlan else "bdf[0]",
                where=self.host.name,
                why=f"{uplink} is in switchdev mode, where the host's switch decides on this",
                remedy=f"leave it out, or: devlink dev eswitch set pci/{physical} mode legacy",
            )

    def baseline(self, topology: Topology, address: PciAddress) -> VfSettings:
        """Return what the PF enforces on the VF now."""
        return self._settings(*self._uplink_of(topology, address))

    def apply(self, topology: Topology, component: PciComponent) -> None:
        """Set the uplink to VEPA if the allow-list says so, and what the PF enforces on the VF."""
        nic, entry = _shared(component), topology.allowed()[component.bdf[0]]
        uplink, vf = self._uplink_of(topology, nic.bdf[0])
        self._keep_vepa(topology, uplink, entry)
        self._set(uplink, vf, _wanted_settings(nic, entry, None))

    def _set(self, uplink: str, vf: int, settings: VfSettings) -> None:
        if _unlike(self._settings(uplink, vf), settings):
            self.host.uplinks.set_vf(uplink, vf, settings)

    def _settings(self, uplink: str, vf: int) -> VfSettings:
        """Return what the PF enforces on a VF.

        :raises DriverError: if the host does not tell.
        """
        found = self._settings_if_told(uplink, vf)
        if found is None:
            raise settings_unknown(uplink, vf, self.host.name)
        return found

    def _settings_if_told(self, uplink: str, vf: int) -> VfSettings | None:
        return settings_of_vf(lambda: self.host.uplinks.vfs(uplink), uplink, vf)

    def confirm(
        self, topology: Topology, component: PciComponent, plugged: tuple[PluggedDevice, ...]
    ) -> None:
        """Set the uplink to VEPA again if plugging has changed its mode; set MAC and VLAN of the VF."""
        nic, entry = _shared(component), topology.allowed()[component.bdf[0]]
        uplink, vf = self._uplink_of(topology, nic.bdf[0])
        self._keep_vepa(topology, uplink, entry)
        (device,) = plugged
        mac = None if device.adopted else device.mac
        self._set(uplink, vf, _wanted_settings(nic, entry, mac))

    def restore(self, topology: Topology, record: DeviceRecord) -> None:
        """Restore what the PF enforced before the VF was attached."""
        if record.baseline is None:
            return
        uplink, vf = self._uplink_of(topology, record.address)
        there, had_none = self._settings(uplink, vf), record.baseline.mac == _NO_MAC
        settings = replace(record.baseline, mac=None) if had_none else record.baseline
        self._set(uplink, vf, settings)
        if had_none and there.mac != _NO_MAC:
            # The VF's own driver generates one then, and the PF reports it.
            with suppress(NotVerified):
                self.host.uplinks.set_vf(uplink, vf, VfSettings(mac=_NO_MAC))

    def differences(
        self, component: PciComponent, sliver_id: str, *, adopted: bool
    ) -> Iterator[str]:
        """Yield the differences in the PF's settings and the uplink's mode, a sentence each."""
        nic, topology = _shared(component), self.host.known_topology(component.bdf)
        entry = topology.allowed().get(nic.bdf[0])
        uplink, vf = self._uplink_of(topology, nic.bdf[0])
        wanted = _wanted_settings(nic, entry, None if adopted else _mac(sliver_id, nic))
        there = self._settings_if_told(uplink, vf)
        if there is None:
            yield f"what VF {vf} of {uplink} has for {nic.id} is not known: the host does not tell"
        else:
            for name, (have, want) in _unlike(there, wanted).items():
                yield f"VF of {nic.id} has {name.replace('_', ' ')} {have}, not {want}"
        mode = self.host.uplinks.bridge_mode(uplink) if entry and entry.vepa else VEPA
        if mode != VEPA:
            yield f"uplink {uplink} is in mode {mode}, not {VEPA}"

    def with_settings(self, devices: tuple[PluggedDevice, ...]) -> tuple[PluggedDevice, ...]:
        """Return the VFs, each with what its PF enforces on it if the host tells, and the mode."""
        topology = self.host.known_topology(tuple(device.host_address for device in devices))
        return tuple(self._with_settings(topology, device) for device in devices)

    def _with_settings(self, topology: Topology, device: PluggedDevice) -> PluggedDevice:
        found = topology.vf_of(device.host_address)
        if found is None:
            return device
        uplink, vf = found
        settings, mode = self._settings_if_told(uplink, vf), self.host.bridge_mode(uplink)
        vlan = (settings.vlan or None) if settings and device.guest_address else device.vlan
        return replace(device, settings=settings, bridge_mode=mode, vlan=vlan)

    def _keep_vepa(self, topology: Topology, uplink: str, entry: AllowedDevice) -> None:
        if not entry.vepa or self.host.uplinks.bridge_mode(uplink) == VEPA:
            return
        self.host.uplinks.set_bridge_mode(uplink, VEPA)
        if any(topology.uplink_of(claim.address) == uplink for claim in topology.claims):
            warn(
                f"uplink {uplink} of {self.host.name} had left {VEPA} mode and was set to it again"
            )

    def _uplink_of(self, topology: Topology, address: PciAddress) -> tuple[str, int]:
        """Return the uplink that a VF belongs to, and its number there.

        :raises InvalidSliver: if it is not a VF of a NIC.
        """
        found = topology.vf_of(address)
        if found is None:
            raise InvalidSliver(
                f"{address} is not a VF of a NIC of the host", field="bdf[0]", where=self.host.name
            )
        return found


def _shared(component: PciComponent) -> SharedNic:
    if not isinstance(component, SharedNic):
        raise InvalidSliver("only a SharedNIC is a VF", field="type")
    return component


def _mac(sliver_id: str, nic: SharedNic) -> str:
    return nic.interface.mac or derived_mac(sliver_id, nic.id)


def _wanted_settings(nic: SharedNic, entry: AllowedDevice | None, mac: str | None) -> VfSettings:
    """Return what the PF should enforce: without a MAC, what is beside MAC and VLAN."""
    return VfSettings(
        mac=mac,
        vlan=(nic.interface.vlan or 0) if mac else None,
        trust=entry.trust if entry else None,
        spoof_check=entry.spoof_check if entry else None,
        max_tx_rate=nic.interface.bandwidth or 0,
    )


def _unlike(there: VfSettings, wanted: VfSettings) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ: name to what is there, and what is wanted.

    What the NIC's driver does not report cannot be compared; setting it tells whether it is supported.
    """
    have = asdict(there)
    return {
        name: (have[name], value)
        for name, value in asdict(wanted).items()
        if value is not None and have[name] != value and not (have[name] is None and not value)
    }
