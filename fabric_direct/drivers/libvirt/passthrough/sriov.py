"""Virtual functions (VFs) of a shared NIC, passed through as ``<interface type='hostdev'>``.

libvirt sets the MAC and the VLAN on the PF and restores them when the domain lets go. All else that the
PF enforces is set by netlink before: VEPA on the uplink, trust, spoof check and rate of the VF. When
the VF is cleaned, everything is set back to what its record says it was.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from typing import Any, ClassVar

from fabric_direct.config import AllowedDevice
from fabric_direct.drivers.contract import (
    DeviceRecord,
    PluggedDevice,
    Tenant,
    VfSettings,
)
from fabric_direct.drivers.libvirt.networks.address_pools import derived_mac
from fabric_direct.drivers.libvirt.passthrough.attached import LIVE
from fabric_direct.drivers.libvirt.passthrough.domain_claims import Reading
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.topology import View
from fabric_direct.drivers.libvirt.servers.lookup import alias
from fabric_direct.drivers.read_cache import warn
from fabric_direct.errors import InvalidSliver, NotVerified, Unsupported
from fabric_direct.locks import exclusive
from fabric_direct.model import PciAddress, PciComponent, SharedNic

VEPA = "vepa"
_NO_MAC = "00:00:00:00:00:00"


class SriovDevice(HostdevDevice):
    """Passes VFs of the host's uplinks through to its domains."""

    template: ClassVar[str] = "interface-hostdev.xml.j2"

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Return if the sliver may have the VF, with the MAC and the bandwidth that it asks for.

        :raises InvalidSliver: also if it is no VF (``bdf[0]``), or another VF of its PF has the MAC
            (``interface.mac``).
        """
        super().check(component, tenant)
        nic = _shared(component)
        with self._translated(f"check {component.id}"):
            view = self._topology(nic.bdf)
            uplink, vf = self._place(view, nic.bdf[0])
            self._refuse_mac_twice(uplink, vf, _mac(tenant.sliver, nic))

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass the VF through; no other VF of its PF gets the same MAC meanwhile."""
        with self._mac_locked(_mac(tenant.sliver, _shared(component))):
            plugged = super().attach(tenant, component)
            return self._with_settings(plugged)

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the VFs that the sliver's domain has, each with what its PF enforces on it."""
        return self._with_settings(super().plugged(tenant))

    def _differing(self, own: Reading, component: PciComponent, tenant: Tenant) -> Iterator[str]:
        """Yield where the VF, and while the domain runs its PF and uplink, are not as wanted."""
        found = tuple(super()._differing(own, component, tenant))
        yield from found
        if LIVE in own.scopes and not found:
            yield from self._unlike_wanted(component, tenant)

    def _unlike_wanted(self, component: PciComponent, tenant: Tenant) -> Iterator[str]:
        """Yield what the PF and the uplink do otherwise than wanted, while the domain runs."""
        nic, view = _shared(component), self._topology(component.bdf)
        entry = view.allowed().get(nic.bdf[0])
        uplink, vf = self._place(view, nic.bdf[0])
        wanted = _wanted_settings(nic, entry, _mac(tenant.sliver, nic))
        for name, pair in _unlike(self._uplink.vfs(uplink)[vf], wanted).items():
            yield _sentence(nic, name, *pair)
        yield from self._bridge_difference(uplink, entry)

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:  # noqa: ARG002
        """Refuse: a VF that leaves the bus does not come back by a rescan.

        :raises Unsupported: always.
        """
        raise Unsupported(
            f"{component.id} cannot be found again by a rescan",
            where=self._host,
            why="a VF is made by its PF, not found on the bus",
            remedy="reboot the node, or delete the component and add it again",
        )

    def _bridge_difference(self, uplink: str, entry: AllowedDevice | None) -> tuple[str, ...]:
        mode = self._uplink.bridge_mode(uplink) if entry and entry.vepa else VEPA
        return () if mode == VEPA else (f"uplink {uplink} is in mode {mode}, not {VEPA}",)

    # --- what a VF needs beside its domain

    def _prepare(self, view: View, component: PciComponent, sliver_id: str) -> None:
        """Set the uplink to VEPA where that is wanted, and what the PF enforces on the VF."""
        nic, entry = _shared(component), view.allowed()[component.bdf[0]]
        uplink, vf = self._place(view, nic.bdf[0])
        self._refuse_mac_twice(uplink, vf, _mac(sliver_id, nic))
        super()._prepare(view, component, sliver_id)
        self._keep_vepa(view, uplink, entry)
        settings = _wanted_settings(nic, entry, None)
        if _unlike(self._uplink.vfs(uplink)[vf], settings):
            self._uplink.set_vf(uplink, vf, settings)

    def _read_back(self, *args: Any) -> tuple[PluggedDevice, ...]:
        """Read the domain back, and see that plugging has not changed the uplink."""
        found = super()._read_back(*args)
        view = self._topology(tuple(device.host_address for device in found))
        for device in found:
            entry = view.allowed().get(device.host_address)
            uplink = view.uplink_of(device.host_address)
            if entry and uplink:
                self._keep_vepa(view, uplink, entry)
        return found

    def _keep_vepa(self, view: View, uplink: str, entry: AllowedDevice) -> None:
        if not entry.vepa or self._uplink.bridge_mode(uplink) == VEPA:
            return
        self._uplink.set_bridge_mode(uplink, VEPA)
        if any(view.uplink_of(claim.address) == uplink for claim in view.claims):
            warn(f"uplink {uplink} of {self._host} had left {VEPA}, and was set to it again")

    def _record(
        self, view: View, component: PciComponent, address: PciAddress, sliver_id: str
    ) -> DeviceRecord:
        uplink, vf = self._place(view, address)
        record = super()._record(view, component, address, sliver_id)
        return replace(record, baseline=self._uplink.vfs(uplink)[vf])

    def _make_clean(self, view: View, record: DeviceRecord) -> None:
        """Reset the VF, and have its PF enforce what it did before."""
        super()._make_clean(view, record)
        if record.baseline:
            self._restore(*self._place(view, record.address), record.baseline)

    def _restore(self, uplink: str, vf: int, baseline: VfSettings) -> None:
        there, none_set = self._uplink.vfs(uplink)[vf], baseline.mac == _NO_MAC
        settings = replace(baseline, mac=None) if none_set else baseline
        if _unlike(there, settings):
            self._uplink.set_vf(uplink, vf, settings)
        if none_set and there.mac != _NO_MAC:
            # The VF's own driver makes one up when it hears of that, and the PF shows it.
            with suppress(NotVerified):
                self._uplink.set_vf(uplink, vf, VfSettings(mac=_NO_MAC))

    def _place(self, view: View, address: PciAddress) -> tuple[str, int]:
        """Return the uplink that a VF belongs to, and its number there.

        :raises InvalidSliver: if it is no VF of a NIC.
        """
        function, uplink = view.functions.get(address), view.uplink_of(address)
        if function is None or function.vf is None or uplink is None:
            raise InvalidSliver(
                f"{address} is no VF of a NIC that the host has", field="bdf[0]", where=self._host
            )
        return uplink, function.vf

    def _refuse_mac_twice(self, uplink: str, vf: int, mac: str) -> None:
        for number, settings in enumerate(self._uplink.vfs(uplink)):
            if number != vf and settings.mac == mac:
                raise InvalidSliver(
                    f"VF {number} of {uplink} has the MAC {mac}",
                    field="interface.mac",
                    where=self._host,
                    remedy="name another MAC, or none",
                )

    def _wanted(self, sliver_id: str, component: PciComponent) -> tuple[PluggedDevice, ...]:
        nic = _shared(component)
        label = alias(sliver_id, nic.id)
        mac, vlan = _mac(sliver_id, nic), nic.interface.vlan
        return (PluggedDevice(nic.id, label, nic.bdf[0], mac=mac, vlan=vlan),)

    def _with_settings(self, plugged: tuple[PluggedDevice, ...]) -> tuple[PluggedDevice, ...]:
        view = self._topology(tuple(device.host_address for device in plugged))
        return tuple(self._set_out(view, device) for device in plugged)

    def _set_out(self, view: View, device: PluggedDevice) -> PluggedDevice:
        function, uplink = (
            view.functions.get(device.host_address),
            view.uplink_of(device.host_address),
        )
        if function is None or function.vf is None or uplink is None:
            return device
        settings = self._uplink.vfs(uplink)[function.vf]
        return replace(device, settings=settings, bridge_mode=self._mode(uplink))

    def _mac_locked(self, mac: str) -> AbstractContextManager[None]:
        path = self._lock_directory / f"{self._host}-mac-{mac.replace(':', '')}.lock"
        return exclusive(path, f"MAC {mac} on {self._host}", timeout=self._site.limits.busy)


def _shared(component: PciComponent) -> SharedNic:
    if not isinstance(component, SharedNic):
        raise InvalidSliver("only a SharedNIC is a VF", field="type")
    return component


def _mac(sliver_id: str, nic: SharedNic) -> str:
    return nic.interface.mac or derived_mac(sliver_id, nic.id)


def _wanted_settings(nic: SharedNic, entry: AllowedDevice | None, mac: str | None) -> VfSettings:
    """Return what the PF shall enforce; its MAC and VLAN are libvirt's to set, and only compared."""
    return VfSettings(
        mac=mac,
        vlan=(nic.interface.vlan or 0) if mac else None,
        trust=entry.trust if entry else None,
        spoof_check=entry.spoof_check if entry else None,
        max_tx_rate=nic.interface.bandwidth or 0,
    )


def _unlike(there: VfSettings, wanted: VfSettings) -> dict[str, tuple[Any, Any]]:
    """Return the settings that are wanted and otherwise: name to what is, and what is wanted.

    What the NIC's driver does not report cannot be compared; setting it says whether it has it.
    """
    have = asdict(there)
    return {
        name: (have[name], value)
        for name, value in asdict(wanted).items()
        if value is not None and have[name] != value and not (have[name] is None and not value)
    }


def _sentence(nic: SharedNic, name: str, have: Any, wanted: Any) -> str:
    return f"VF of {nic.id} has {name.replace('_', ' ')} {have}, not {wanted}"
