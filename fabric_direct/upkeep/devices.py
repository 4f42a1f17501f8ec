"""The PCI devices of a site's hosts, told by what the hosts have and by the stamps of all servers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import ComputeDriver, DeviceDriver, HostDevice, Server
from fabric_direct.engine.run import attempt, attempt_each
from fabric_direct.errors import DeviceUnclean, FabricDirectError, NotFound
from fabric_direct.handlers.site_drivers import SiteDrivers
from fabric_direct.model import PciAddress, SliverRef
from fabric_direct.upkeep import device_owners
from fabric_direct.upkeep.device_owners import Lacks, Owners


class SiteDevices:
    """The devices of a site. Each method ends by the deadline that it is given."""

    def __init__(self, drivers: SiteDrivers) -> None:
        """Read nothing yet."""
        self._site, self._drivers = drivers.site, drivers

    # --- servers

    def servers(self, deadline: Deadline) -> tuple[Server, ...]:
        """Return the servers with this site's stamp on all hosts.

        :raises FabricDirectError: if the cloud, or any host, does not answer.
        """
        return self._drivers.list_all(
            lambda host: self._drivers.within(host, deadline).compute.servers()
        )

    def _remains(self, sliver: str, deadline: Deadline) -> tuple[str, ...]:
        """Name the servers of a sliver, whether their stamps can be read or not.

        :raises NotOurs: if a domain of its UUID has no stamp that can be read.
        """
        return self._drivers.list_all(
            lambda host: _servers_of(self._drivers.within(host, deadline).compute, sliver)
        )

    # --- devices

    def of(self, host: str, deadline: Deadline) -> tuple[HostDevice, ...]:
        """Return the devices of a host; those that the stamp of a server names are lost, not unclean.

        The servers are listed only if a device was left behind. If they cannot be, the device is
        unclean, and says why no more is known.

        :raises NotFound: if the site has no such host.
        """
        found = self._functions(host, deadline)
        lost = attempt(self._losers, host, found, deadline)
        if isinstance(lost, Exception):
            return device_owners.with_doubt(found, lost)
        return device_owners.with_lost(found, lost)

    def _functions(self, host: str, deadline: Deadline) -> tuple[HostDevice, ...]:
        self._site.host(host)
        return self._drivers.within(host, deadline).functions()

    def _losers(self, host: str, devices: Sequence[HostDevice], deadline: Deadline) -> Owners:
        """Return whose the lost devices of a host are, by the stamps of all servers."""
        if not device_owners.left_behind(devices):
            return {}
        return device_owners.losers(host, devices, self.servers(deadline))

    @contextmanager
    def lost_named(self, host: str, sliver: SliverRef, deadline: Deadline) -> Iterator[None]:
        """In the block, raise DeviceLost, not DeviceUnclean, for what another sliver has lost."""
        try:
            yield
        except DeviceUnclean as error:
            lost = attempt(self._all_lost, host, deadline)
            for address, owner in {} if isinstance(lost, Exception) else lost.items():
                if owner.server.sliver != sliver.id and error.what.startswith(str(address)):
                    raise device_owners.refusal(owner, host, address, error.field) from error
            raise

    def _all_lost(self, host: str, deadline: Deadline) -> Owners:
        return self._losers(host, self._functions(host, deadline), deadline)

    def lacking(self, servers: Sequence[Server], deadline: Deadline) -> Lacks:
        """Return what servers lack of the devices that their stamps name.

        Each host that has such a server is asked once. One that does not answer is named.
        """
        on: dict[str, list[Server]] = {}
        for server in servers:
            if server.stamp.sliver.devices():
                on.setdefault(device_owners.host_of(server), []).append(server)

        found = attempt_each(lambda host: self._functions(host, deadline), on)
        return device_owners.lacks(on, found)

    def recorded_on(self, sliver: str, deadline: Deadline) -> str:
        """Return the host that has records of a sliver's devices; empty if none has.

        :raises FabricDirectError: if none has, and one does not answer.
        """
        answers = attempt_each(
            lambda host: bool(self._any_driver(host, deadline).records(sliver)),
            filter(self._site.passes_devices, self._site.hosts),
        )
        having = [host for host, answer in answers.items() if answer is True]
        for error in (a for a in answers.values() if isinstance(a, Exception) and not having):
            raise error
        return next(iter(having), "")

    # --- release

    def release(self, host: str, address: PciAddress, deadline: Deadline, *, force: bool) -> None:
        """Clean a device of a host and remove its record, or only remove it.

        :raises NotFound: if the site has no such host, or the host no such device; by force, if it has
            no record of one either.
        :raises DeviceClaimed: if a domain has it.
        :raises DeviceLost: if the stamp of a server names it, on whatever host the server is.
        :raises Conflict: if its last sliver is not gone, though no stamp of it can be read.
        :raises Unreachable: if the stamps cannot be read.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """
        there = {d.address: d for d in self._any_driver(host, deadline).inventory()}
        device = there.get(address)
        if device is None and not force:
            raise NotFound(f"there is no PCI function {address}", where=host)
        device_owners.refuse_used(host, device)
        self._refuse_owned(host, address, device, deadline)
        self._driver(host, device, deadline).release(address, force=force)

    def _refuse_owned(
        self, host: str, address: PciAddress, device: HostDevice | None, deadline: Deadline
    ) -> None:
        """Raise an error unless it is known that a device is no living sliver's."""
        last = device_owners.sliver_of(device)
        try:
            servers = self.servers(deadline)
            known = not last or any(server.sliver == last for server in servers)
            left = () if known else self._remains(last, deadline)
        except FabricDirectError as error:
            raise device_owners.unknown_owner(host, address, error) from error
        device_owners.refuse_owned(host, address, device, servers)
        device_owners.refuse_remains(host, last, left)

    def _driver(self, host: str, device: HostDevice | None, deadline: Deadline) -> DeviceDriver:
        """Return the driver that serves a device by the allow-list; any for one that is not in it."""
        drivers = self._drivers.within(host, deadline).devices
        names = (f"{device.type}_{device.model}", device.type or "") if device else ()
        named = (drivers[name] for name in names if name in drivers)
        return next(named, self._any_driver(host, deadline))

    def _any_driver(self, host: str, deadline: Deadline) -> DeviceDriver:
        self._site.host(host)
        drivers = self._drivers.within(host, deadline)
        for driver in drivers.devices.values():
            return driver
        raise drivers.unsupported("no device can be passed through", "GPU")


def _servers_of(compute: ComputeDriver, sliver: str) -> tuple[str, ...]:
    """Name a sliver's servers; what else a deletion may leave does not keep a device."""
    if compute.cloud:
        return compute.leftovers(sliver)
    found = compute.find(sliver)
    return (found.instance,) if found else ()
