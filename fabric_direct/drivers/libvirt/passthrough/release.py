"""Makes a device free again: binds it to the host's driver, cleans it, removes its record."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import DeviceRecord
from fabric_direct.drivers.contract.devices import not_there
from fabric_direct.drivers.libvirt.passthrough import node_devices
from fabric_direct.drivers.libvirt.passthrough.attach import PlainFunctions
from fabric_direct.drivers.libvirt.passthrough.cleaning import clean
from fabric_direct.drivers.libvirt.passthrough.records import same_component, whose
from fabric_direct.drivers.libvirt.passthrough.topology import Topology, in_use
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceUnclean,
    FabricDirectError,
    TimedOut,
    Unreachable,
)
from fabric_direct.model import PciAddress

LET_GO = 10.0
"""Seconds for a program to close a function that its virtual machine has released."""


class Release:
    """Cleans the functions of one host."""

    def __init__(self, functions: PlainFunctions) -> None:
        self._functions, self._host = functions, functions.host

    def clean(self, record: DeviceRecord) -> None:
        """Clean a function, unless its record is now another component's, or gone.

        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceInUse: if a program still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then. Also if
            it was quarantined before.
        :raises Unreachable: if the host does not answer; the function stays unclean.
        """
        host = self._host
        with host.translated(f"clean {record.address}"), host.lock_to_clean(record):
            topology = host.topology()
            there = topology.records.get(record.address)
            if there is None or whose(there) != whose(record):
                return
            if there.quarantined:
                raise self._quarantined(there)
            self._clean(topology, there)

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a function again, also a quarantined one; with ``force`` only remove its record.

        :raises NotFound: if the host has neither the function nor a record of it.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceInUse: if a program still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """
        host = self._host
        with host.translated(f"release {address}"):
            record = host.records.read().get(address)
            if record is None:
                self._refuse_absent(address)
                return
            with host.lock_to_clean(record):
                self._release(host.topology(), address, force=force)

    def _refuse_absent(self, address: PciAddress) -> None:
        if address not in self._host.topology().functions:
            raise not_there(address, self._host.name)

    def _release(self, topology: Topology, address: PciAddress, *, force: bool) -> None:
        record = topology.records.get(address)
        if record and force:
            self._refuse_held(self.await_programs(topology, (address,)), address)
            self._host.records.remove(address)
        elif record:
            self._clean(topology, record)

    def await_programs(self, topology: Topology, functions: Collection[PciAddress]) -> Topology:
        """Return the topology as it is once no program has the functions, or one bound to them.

        QEMU closes the function that it has lost a moment after the guest has released it.

        :raises DeviceInUse: if a program still has one after some seconds. To take the driver from it
            would wait without a limit, and a reset would be beneath it.
        """

        def holders() -> dict[PciAddress, tuple[str, ...]]:
            return {a: found for a in functions if (found := topology.programs(a))}

        def is_let_go() -> bool:
            nonlocal topology
            topology = self._host.topology()
            return not holders()

        if holders():
            with suppress(TimedOut):
                what = f"programs to let go of {', '.join(map(str, functions))}"
                wait_until(what, is_let_go, timeout=LET_GO)
        for address, programs in holders().items():
            raise in_use(address, programs, "", self._host.name)
        return topology

    def give_back(self, topology: Topology, address: PciAddress) -> None:
        """Bind a function to the host's driver, unless one of its drivers has it already."""
        function = topology.functions.get(address)
        if function is not None and function.driver in {None, node_devices.VFIO}:
            node_devices.bind(self._host.connection, address)

    def _clean(self, topology: Topology, record: DeviceRecord) -> None:
        own = same_component(record, topology.records.values())
        topology = self.await_programs(topology, (record.address, *own))
        self._refuse_held(topology, record.address)
        try:
            with self._host.translated(f"clean {record.address}"):
                self._make_clean(topology, record)
        except Unreachable:
            raise
        except FabricDirectError as error:
            quarantined = replace(record, quarantined=str(error))
            self._host.records.write(quarantined)
            raise self._quarantined(quarantined) from error
        self._host.records.remove(record.address)

    def _make_clean(self, topology: Topology, record: DeviceRecord) -> None:
        group = (record.address, *topology.peers(record.address))
        held = {claim.address for claim in topology.claims}
        if not held.intersection(group):
            for address in group:
                self.give_back(topology, address)
        own = set(same_component(record, topology.records.values())) - held
        together = own.union(topology.spare_mates(record.address))
        clean(self._host.agent, record, sorted(together), timeout=self._host.site.limits.clean)
        self._functions.restore(topology, record)

    def _refuse_held(self, topology: Topology, address: PciAddress) -> None:
        for claim in topology.claims:
            if claim.address == address:
                raise DeviceClaimed(
                    f"domain {claim.domain} still has {address}",
                    where=self._host.uri,
                    remedy="detach it first",
                )

    def _quarantined(self, record: DeviceRecord) -> DeviceUnclean:
        name = self._host.name
        return DeviceUnclean(
            f"{record.address} is quarantined: it could not be cleaned",
            where=name,
            why=record.quarantined,
            remedy=f"look at it, then: fabric-direct devices release {name} {record.address} --force",
        )
