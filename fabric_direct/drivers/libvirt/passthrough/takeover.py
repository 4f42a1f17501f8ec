"""Takes over functions that others plugged into a domain, by their records.

An alias of a running domain cannot be changed, and the definition is left as it is. So an adopted
function is known by its address: its record says which alias it would have, and in which domain. Where
that domain has the function without an alias of ours, it counts as if it had this one. A domain that
gets it anew, from us, has the alias.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fabric_direct.drivers.contract import AdoptedFunction, DeviceDomain, DeviceRecord
from fabric_direct.drivers.libvirt.domains.claims import FunctionClaim, uuid_of
from fabric_direct.drivers.libvirt.domains.lookup import OURS, component_of
from fabric_direct.drivers.libvirt.passthrough.attach import PlainFunctions
from fabric_direct.drivers.libvirt.passthrough.topology import Topology
from fabric_direct.errors import DeviceUnclean, NotOurs
from fabric_direct.model import PciAddress, PciComponent


@dataclass(frozen=True)
class Takeover:
    """The functions of one component that a sliver takes over."""

    functions: PlainFunctions
    tenant: DeviceDomain
    component: PciComponent

    def refuse(self, topology: Topology) -> bool:
        """Raise unless the sliver may have the functions; return whether its domain has all of them.

        A function that no domain has was the sliver's before its domain was started anew: it may have
        it, and nobody else gets it before it is clean.

        :raises InvalidSliver: if one is not on the host, or not in the allow-list.
        :raises NotOurs: if one carries the stamp, or has the record, of another sliver.
        :raises DeviceClaimed: if another domain has one, or a function bound to it.
        :raises DeviceInUse: if no domain has it, and the host uses it.
        :raises DeviceUnclean: if one is quarantined.
        """
        for number, address in enumerate(self.component.bdf):
            field = f"bdf[{number}]"
            self._refuse_stamped(topology.claims, address, field)
            self._refuse_recorded(topology.records.get(address), field)
        topology.refuse_taken(self.component, uuid_of(self.tenant))
        return set(self.component.bdf) <= {c.address for c in self._own(topology.claims)}

    def _own(self, claims: Iterable[FunctionClaim]) -> list[FunctionClaim]:
        return [claim for claim in claims if claim.uuid == uuid_of(self.tenant)]

    def _refuse_stamped(
        self, claims: Iterable[FunctionClaim], address: PciAddress, field: str
    ) -> None:
        for claim in (c for c in self._own(claims) if c.address == address):
            ours = component_of(claim.alias, self.tenant.sliver)
            if claim.alias.startswith(OURS) and not ours:
                raise self._not_ours(address, field, f"its alias is {claim.alias}")

    def _refuse_recorded(self, record: DeviceRecord | None, field: str) -> None:
        if record is None:
            return
        if record.quarantined:
            raise DeviceUnclean(
                f"{record.address} is quarantined",
                field=field,
                where=self.functions.host.name,
                why=record.quarantined,
                remedy="release it first: fabric-direct devices release",
            )
        plugged = not record.adopted and record.component != self.component.id
        if record.sliver != self.tenant.sliver or plugged:
            had = f"{record.sliver}/{record.component}"
            raise self._not_ours(record.address, field, f"it is recorded as that of {had}")

    def _not_ours(self, address: PciAddress, field: str, why: str) -> NotOurs:
        return NotOurs(
            f"{address} is another sliver's",
            field=field,
            where=self.functions.host.name,
            why=why,
            remedy="detach it there, or leave this server to who stamped it",
        )

    def is_recorded(self) -> bool:
        """Return whether all functions have the records that :meth:`record` writes."""
        there = self.functions.host.records.read()
        return all(self._is_mine(there.get(address)) for address in self.component.bdf)

    def _is_mine(self, record: DeviceRecord | None) -> bool:
        mine = (self.tenant.sliver, self.component.id)
        return record is not None and (record.sliver, record.component) == mine

    def record(self) -> None:
        """Write the records of the functions; one of another component of the sliver is replaced.

        :raises NotOurs: if another sliver has got one meanwhile.
        """
        topology = self.functions.host.topology()
        self.refuse(topology)
        for device in self.functions.wanted(self.component, self.tenant.sliver):
            if not self._is_mine(topology.records.get(device.host_address)):
                record = self._record(topology, device.host_address, device.alias)
                self.functions.host.records.write(record)

    def _record(self, topology: Topology, address: PciAddress, alias: str) -> DeviceRecord:
        record = topology.record_of(address, self.component, self.tenant.sliver)
        adopted = AdoptedFunction(alias, uuid_of(self.tenant))
        return replace(record, baseline=self.functions.safe_baseline, adopted=adopted)

    def strike(self) -> None:
        """Remove the records of adopted functions; a function that we plugged in keeps its own."""
        for address, record in self.functions.host.records.read().items():
            if address in self.component.bdf and self._is_mine(record) and record.adopted:
                self.functions.host.records.remove(address)
