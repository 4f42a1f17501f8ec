"""The PCI functions of a host at one point in time, and which of them a sliver may have.

The sources are the host's kernel, all domains of its libvirt, the records of devices that are not clean
yet, and the allow-list of the site.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fabric_direct.drivers.contract import DeviceRecord, Holder, HostDevice, PciFunction
from fabric_direct.drivers.contract.site_checks import refuse_absent, refuse_disallowed
from fabric_direct.drivers.libvirt.domains.claims import FunctionClaim
from fabric_direct.drivers.libvirt.domains.lookup import component_of
from fabric_direct.errors import DeviceClaimed, DeviceInUse, DeviceUnclean, InvalidSliver
from fabric_direct.model import DeviceState, PciAddress, PciComponent
from fabric_direct.site.config import AllowedDevice

# PCI class code of bridges: they share IOMMU groups with what is behind them and stay with the host.
_BRIDGE = "06"


@dataclass(frozen=True)
class Topology:
    """The functions of one host, with all that is known of them."""

    host: str
    functions: Mapping[PciAddress, PciFunction]
    claims: tuple[FunctionClaim, ...]
    records: Mapping[PciAddress, DeviceRecord]
    entries: tuple[AllowedDevice, ...]
    """The host's allow-list."""

    def allowed(self) -> dict[PciAddress, AllowedDevice]:
        """Return the functions that may be passed through, each with the entry that allows it.

        An entry with an uplink stands for the VFs that its NIC has now.
        """
        found: dict[PciAddress, AllowedDevice] = {}
        for entry in self.entries:
            named = (entry.bdf,) if entry.bdf else self._vfs_of(entry.uplink or "")
            found.update(dict.fromkeys(named, entry))
        return found

    def _vfs_of(self, uplink: str) -> tuple[PciAddress, ...]:
        having = (f for f in self.functions.values() if uplink in f.links)
        return next((f.virtual for f in having), ())

    def peers(self, address: PciAddress) -> tuple[PciAddress, ...]:
        """Return the other functions of its IOMMU group, without bridges and what leaves with it."""
        group = self._at(address).iommu_group
        return tuple(
            other.address
            for other in self.functions.values()
            if group is not None
            and other.iommu_group == group
            and other.address != address
            and not other.kind.startswith(_BRIDGE)
            and not other.address.behind_controller
        )

    def bound_to(self, address: PciAddress) -> tuple[PciAddress, ...]:
        """Return the functions that must be passed through together with it: its VFs and peers."""
        return (*self._at(address).virtual, *self.peers(address))

    def slot_mates(self, address: PciAddress) -> tuple[PciAddress, ...]:
        """Return the other functions of its device; a VF has none."""
        function = self.functions.get(address)
        if function is None or function.physical:
            return ()
        return tuple(
            other.address
            for other in self.functions.values()
            if other.address.slot_address == address.slot_address
            and other.address != address
            and other.physical is None
        )

    def spare_mates(self, address: PciAddress) -> tuple[PciAddress, ...]:
        """Return the :meth:`slot_mates` that may be passed through and are free."""
        allowed, taken = self.allowed(), {claim.address for claim in self.claims}
        return tuple(
            mate
            for mate in self.slot_mates(address)
            if mate in allowed.keys() - taken - self.records.keys()
            and not self.functions[mate].uses
        )

    def uplink_of(self, address: PciAddress) -> str | None:
        """Return the network interface of a VF's PF, if it has one.

        Of several it is that of the entry which allows the VF, or else one that the allow-list names.
        """
        physical = self._at(address).physical
        links = self._at(physical).links if physical else ()
        if len(links) > 1:
            own = self.allowed().get(address)
            named = (entry.uplink for entry in (own, *self.entries) if entry)
            links = (*(link for link in named if link in links), *links)
        return next(iter(links), None)

    def in_switchdev(self, address: PciAddress) -> bool:
        """Return whether a VF's NIC is in switchdev mode: the host has representors of its VFs."""
        physical = self._at(address).physical
        return bool(physical and self._at(physical).representors)

    def vf_of(self, address: PciAddress) -> tuple[str, int] | None:
        """Return the uplink of a VF and its number there; None if it is not a VF of a NIC."""
        vf, uplink = self._at(address).vf, self.uplink_of(address)
        return None if vf is None or uplink is None else (uplink, vf)

    def _around(self, address: PciAddress) -> tuple[PciAddress, ...]:
        """Return the function and all functions that no other domain may have at the same time."""
        physical = self._at(address).physical
        return (address, *((physical,) if physical else ()), *self.bound_to(address))

    def _at(self, address: PciAddress) -> PciFunction:
        """Return a function; one without properties if it is not on the host."""
        return self.functions.get(address, PciFunction(address, vendor="", product=""))

    def record_of(
        self, address: PciAddress, component: PciComponent, sliver_id: str
    ) -> DeviceRecord:
        """Return the record of a function that a sliver gets for a component."""
        function = self.functions[address]
        return DeviceRecord(
            address,
            component.type,
            component.model,
            sliver_id,
            component.id,
            function.vendor,
            function.product,
        )

    # --- refusal

    def refuse(self, component: PciComponent, sliver_id: str, own: str) -> None:
        """Raise InvalidSliver or Conflict unless the sliver may have the component's functions.

        Functions that it already has are available to it.

        :param own: UUID of the sliver's domain.
        :raises InvalidSliver: if one is not on the host, not allowed, or shares an IOMMU group with one
            that is not allowed.
        :raises DeviceClaimed: if another domain or component has one, or a function bound to it.
        :raises DeviceUnclean: if one was not cleaned after its last use, or is quarantined.
        :raises DeviceInUse: if the host itself, or a program on it, uses one.
        """
        taken = [c for c in self.claims if not _is_own(c, own, sliver_id, component.id)]
        allowed = self.allowed()
        for number, address in enumerate(component.bdf):
            field = f"bdf[{number}]"
            refuse_absent(address in self.functions, address, self.host, field)
            refuse_disallowed(component, address, allowed.get(address), self.host, field)
            self._refuse_partial_group(address, allowed, field)
            self._refuse_claimed(address, taken, field)
            self._refuse_unclean(address, sliver_id, component.id, field)
            self._refuse_programs(address, field)
            if not any(c.address == address for c in self.claims):
                self._refuse_used(address, field)

    def refuse_taken(self, component: PciComponent, own: str) -> None:
        """Raise InvalidSliver or Conflict unless the domain has the functions, or nobody else does.

        :param own: UUID of the domain.
        """
        others = [claim for claim in self.claims if claim.uuid != own]
        held, allowed = {claim.address for claim in self.claims}, self.allowed()
        for number, address in enumerate(component.bdf):
            field = f"bdf[{number}]"
            refuse_absent(address in self.functions, address, self.host, field)
            refuse_disallowed(component, address, allowed.get(address), self.host, field)
            self._refuse_claimed(address, others, field)
            self._refuse_programs(address, field)
            if address not in held:
                self._refuse_used(address, field)

    def _refuse_partial_group(
        self, address: PciAddress, allowed: Container[PciAddress], field: str
    ) -> None:
        for peer in self.peers(address):
            if peer not in allowed:
                raise InvalidSliver(
                    f"{address} can only be passed through with {peer}, which is not allowed",
                    field=field,
                    where=f"site.yaml: hosts.{self.host}.devices",
                    why=f"both are in IOMMU group {self.functions[address].iommu_group}",
                    remedy="allow all functions of the group, or name another device",
                )

    def _refuse_claimed(
        self, address: PciAddress, taken: Iterable[FunctionClaim], field: str
    ) -> None:
        # A PF takes its VFs along; libvirtd hangs if the guest that has one does not release it.
        around = self._around(address)
        for claim in taken:
            if claim.address in around:
                why = f"it belongs to {self._owner(claim.address)}"
                raise claimed(claim.domain, claim.address, field, self.host, why)

    def _refuse_unclean(
        self, address: PciAddress, sliver_id: str, component: str, field: str
    ) -> None:
        for each in (address, *self.bound_to(address)):
            record = self.records.get(each)
            own = record and (record.sliver, record.component) == (sliver_id, component)
            if record and (record.quarantined or not own):
                raise self._unclean(record, field)
        if not self.functions[address].alive:
            raise DeviceUnclean(
                f"{address} does not answer",
                field=field,
                where=self.host,
                why="its configuration space reads as all ones",
                remedy="power the device, or the worker, off and on",
            )

    def _unclean(self, record: DeviceRecord, field: str) -> DeviceUnclean:
        last, look = f"{_last(record)} had it last", f"fabric-direct devices {self.host}"
        release = f"look at it: fabric-direct devices release {self.host} {record.address}"
        return DeviceUnclean(
            f"{record.address} is {'quarantined' if record.quarantined else 'not clean yet'}",
            field=field,
            where=self.host,
            why=f"{last}: {record.quarantined}" if record.quarantined else last,
            remedy=release
            if record.quarantined
            else f"name another device; {look} says whose it is",
        )

    def _refuse_programs(self, address: PciAddress, field: str) -> None:
        """Raise DeviceInUse if a program has it that is no domain with a claim: whatever is claimed."""
        if programs := self.programs(address):
            raise in_use(address, programs, field, self.host)

    def programs(self, address: PciAddress) -> tuple[str, ...]:
        """Return the uses that programs make of a function, or of one that is bound to it."""
        around = (address, *self.bound_to(address))
        return tuple(holder.use for each in around for holder in self._at(each).held)

    def _refuse_used(self, address: PciAddress, field: str) -> None:
        used = next(self._used(address), None)
        if used:
            raise in_use(used.address, used.uses, field, self.host)

    def _used(self, address: PciAddress) -> Iterator[PciFunction]:
        """Yield the functions that the host uses, of this one and those bound to it."""
        for each in (address, *self.bound_to(address)):
            if self._at(each).uses:
                yield self._at(each)

    # --- the inventory

    def devices(self, bridge_modes: Mapping[str, str]) -> Iterator[HostDevice]:
        """Yield every function with its state, ordered by address.

        :param bridge_modes: bridge modes by uplink, of the uplinks that have one.
        """
        allowed = self.allowed()
        for address in sorted(self.functions):
            entry = allowed.get(address)
            state, why = self._state(address, allowed)
            uplink = self.uplink_of(address)
            links = ((uplink,) if uplink else ()) + self.functions[address].links
            yield HostDevice(
                self.functions[address],
                state,
                why,
                peers=self.peers(address),
                type=entry.type if entry else None,
                model=entry.model if entry else None,
                owner=self._owner(address),
                domains=self._holders(address),
                uplink=uplink,
                bridge_mode=next((bridge_modes[k] for k in links if k in bridge_modes), None),
            )

    def _owner(self, address: PciAddress) -> str | None:
        """Return the owner by the record, unless a domain has the function for another sliver."""
        claim = next((c for c in self.claims if c.address == address), None)
        record = self.records.get(address)
        if record and (claim is None or component_of(claim.alias, record.sliver)):
            return f"{record.sliver}/{record.component}"
        return claim.owner if claim else None

    def _holders(self, address: PciAddress) -> tuple[Holder, ...]:
        """Return the domains that have a function."""
        claims = [claim for claim in self.claims if claim.address == address]
        live = {claim.uuid for claim in claims if claim.live}
        holders = {c.uuid: Holder(c.domain, c.uuid, c.uuid in live or c.live) for c in claims}
        return tuple(holders.values())

    def _state(
        self, address: PciAddress, allowed: Container[PciAddress]
    ) -> tuple[DeviceState, str]:
        record, function = self.records.get(address), self.functions[address]
        if record and record.quarantined:
            return DeviceState.QUARANTINED, "; ".join((record.quarantined, *self.programs(address)))
        claims = {c.address: c for c in self.claims}
        if address in claims:
            return DeviceState.USED, ""
        if record:
            last = f"{_last(record)} had it last"
            return DeviceState.UNCLEAN, "; ".join((last, *self.programs(address)))
        if address not in allowed:
            whole = f"PCI domain {address.domain:x} is passed through with its controller only"
            reasons = (*((whole,) if address.behind_controller else ()), *function.uses)
            return DeviceState.NOT_ALLOWED, "; ".join(reasons)
        if not function.alive:
            return DeviceState.UNCLEAN, "it does not answer"
        return self._shared_state(address, allowed, claims)

    def _shared_state(
        self,
        address: PciAddress,
        allowed: Container[PciAddress],
        claims: Mapping[PciAddress, FunctionClaim],
    ) -> tuple[DeviceState, str]:
        """Return the state that follows from the functions bound to this one."""
        for peer in self.peers(address):
            if peer not in allowed:
                return DeviceState.NOT_ALLOWED, f"{peer} of its IOMMU group is not allowed"
        for other in self._around(address)[1:]:
            if other in claims:
                return DeviceState.USED, f"{claims[other].owner} has {other}"
        for other in self.bound_to(address):
            if other in self.records:
                return DeviceState.UNCLEAN, f"{_last(self.records[other])} had {other} last"
        used = next(self._used(address), None)
        return (DeviceState.HOST_USED, "; ".join(used.uses)) if used else (DeviceState.FREE, "")


def with_uses_by_programs(
    functions: Mapping[PciAddress, PciFunction], claims: Iterable[FunctionClaim]
) -> dict[PciAddress, PciFunction]:
    """Return the functions, held only by programs that are no domain with a claim, which is a use.

    vfio gives a program all functions of an IOMMU group: a claim on one of them explains the others.
    """
    groups = {(c.uuid, functions[c.address].iommu_group) for c in claims if c.address in functions}
    own = {(claim.uuid, claim.address) for claim in claims}

    def of(function: PciFunction) -> PciFunction:
        group = function.iommu_group
        held = tuple(
            holder
            for holder in function.held
            if (holder.domain, function.address) not in own
            and (group is None or (holder.domain, group) not in groups)
        )
        return replace(function, held=held, uses=(*function.uses, *(each.use for each in held)))

    return {address: of(function) for address, function in functions.items()}


def claimed(domain: str, device: object, field: str, host: str, why: str = "") -> DeviceClaimed:
    """Return the error that another domain of the host has a device."""
    return DeviceClaimed(
        f"domain {domain} has {device}",
        field=field,
        where=host,
        why=why,
        remedy="detach it there first, or name another device",
    )


def in_use(device: object, uses: Iterable[str], field: str, host: str) -> DeviceInUse:
    """Return the error that the host itself uses a device."""
    return DeviceInUse(
        f"the host uses {device}",
        field=field,
        where=host,
        why="; ".join(uses),
        remedy="end that use, or name another device",
    )


def _last(record: DeviceRecord) -> str:
    """Return the former owner of a function, as far as its record can be read."""
    return f"{record.sliver}/{record.component}" if record.sliver else "an unknown sliver"


def _is_own(claim: FunctionClaim, own: str, sliver_id: str, component: str) -> bool:
    return claim.uuid == own and component_of(claim.alias, sliver_id) == component
