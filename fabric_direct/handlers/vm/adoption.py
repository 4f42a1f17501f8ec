"""A server that others made, with what belongs to it: what does not fit is refused, the rest is stamped.

::

    server, as unfinished → ports, floating IPs, volumes, records of devices
                          → server, as finished → verify → host key

The server comes first and last. Who asks for it in between finds that its adoption is unfinished:
nothing else is done to the sliver then, so no deletion says that all is gone while a part of it has no
stamp.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import (
    Adopted,
    AdoptionDriver,
    DeviceDomain,
    DeviceDriver,
    FoundPort,
    FoundServer,
    FoundThing,
    FoundVolume,
    HostDrivers,
)
from fabric_direct.engine.step import Flow, Step
from fabric_direct.engine.verify import Await, ReadBack, Verify
from fabric_direct.errors import Conflict, InvalidSliver, NotFound, NotOurs, Unsupported
from fabric_direct.handlers.handler import field_below
from fabric_direct.handlers.vm.comparison import ServerComparison
from fabric_direct.handlers.vm.guest.access import GuestAccess
from fabric_direct.handlers.vm.observe import tenant_of
from fabric_direct.handlers.vm.steps.adoption import (
    BeginAdoption,
    FinishAdoption,
    Marking,
    StampThing,
    TakeOverDevice,
)
from fabric_direct.model import NodeSliver, PciAddress, PciComponent, Storage, VNic
from fabric_direct.model.adoption import Adoption
from fabric_direct.site.config import Site

C = TypeVar("C", VNic, Storage)
HOW_TO_PIN = "add it to the site's known_hosts before the sliver is modified"


def adopt(site: Site, drivers: HostDrivers, wanted: Adoption) -> Flow:
    """Return what stamps a server that others made, with all that belongs to it."""
    return Flow.of(
        *ServerAdoption(site, drivers, wanted).stages(),
        [Verify(partial(_read_back, site, drivers, wanted.sliver))],
        _meet(site, drivers, wanted.sliver),
    )


def _read_back(site: Site, drivers: HostDrivers, sliver: NodeSliver) -> ReadBack:
    """Read back, with what does not bear the sliver's stamp."""
    drivers.reads.invalidate()
    server = drivers.compute.find(sliver.id)
    if server is None or server.unfinished or server.stamp != sliver.stamp():
        return ReadBack(None, ("the server does not bear its stamp",))
    found, tenant = ServerComparison(site, drivers).observe(sliver), tenant_of(drivers, server)
    held = {p.component for p in drivers.network.ports(sliver.id)}
    held |= {v.component for v in drivers.volume.volumes(sliver.id)}
    own = {vnic.id for vnic in sliver.vnics()}
    own |= {storage.id for storage in sliver.volumes() if storage.size is not None}
    unstamped = (f"{name} does not bear its stamp" for name in sorted(own - held))
    unrecorded = (
        f"{device.type} {device.id} is not recorded"
        for device in sliver.devices()
        if not drivers.device(device).is_adopted(device, tenant)
    )
    return ReadBack(found, (*unstamped, *unrecorded))


def _meet(site: Site, drivers: HostDrivers, sliver: NodeSliver) -> list[Step]:
    """Return the step that pins the guest's host key, if its console still shows it."""
    driver, access = drivers.guest, GuestAccess(site, drivers)
    if driver is None or not driver.keys:
        return []

    def meet() -> None:
        guest = access.where(sliver.id)
        if not driver.pins(guest) and not driver.learn(guest, access.console(sliver.id)):
            access.tell(f"its console does not show the guest's host key: {HOW_TO_PIN}")

    return [Await("host key", meet)]


def adoption_driver(drivers: HostDrivers) -> AdoptionDriver:
    """Return what finds and stamps the servers of others.

    :raises Unsupported: if the site's servers cannot be adopted.
    """
    if drivers.adoption is None:
        raise Unsupported(
            "servers of others can be adopted in a cloud only",
            why="a domain of ours is known by its UUID, which no domain gets later",
            remedy="create the slivers anew",
        )
    return drivers.adoption


def server_name(wanted: Adoption) -> str:
    """Return the name or id of the server to adopt; fabric_am's name if none is given."""
    return wanted.server or f"{wanted.sliver.id}-{wanted.sliver.name}"


@dataclass(frozen=True)
class PortSteps:
    """The steps that stamp the ports of a sliver, and their floating IPs."""

    driver: AdoptionDriver
    site: str
    sliver: str

    def stamp(self, component: str, port: FoundPort, *, finished: bool = True) -> Step:
        """Return the step for a port.

        :param finished: whether all ports of the sliver have their stamps afterwards.
        """
        marking = Marking(
            find=lambda: next(iter(self.driver.ports_named((port.id,))), None),
            write=partial(self.driver.stamp_port, port.id, self.sliver, finished=finished),
            remove=partial(self.driver.unstamp_port, port.id),
        )
        return self._step(f"port {component}", component, marking)

    def stamp_floating(self, component: str, port: FoundPort) -> Iterator[Step]:
        """Yield the steps for the floating IPs of a port, by which they are found."""
        for ip in port.floating:
            marking = Marking(
                find=partial(self._floating, port, ip.id),
                write=partial(self.driver.stamp_floating_ip, ip.id, self.sliver),
                remove=partial(self.driver.unstamp_floating_ip, ip.id),
            )
            yield self._step(f"floating IP {ip.name}", component, marking)

    def _floating(self, port: FoundPort, address: str) -> FoundThing | None:
        ports = self.driver.ports_named((port.id,))
        return next((ip for p in ports for ip in p.floating if ip.id == address), None)

    def _step(self, name: str, component: str, marking: Marking) -> Step:
        return StampThing(name, f"{self.site}/{self.sliver}", component, marking)


def refuse_owned(thing: FoundThing, what: str, owner: str, field: str) -> None:
    """Raise NotOurs if a thing carries another stamp than the sliver's, or another description."""
    if thing.owner not in {"", owner}:
        raise NotOurs(
            f"{what} is not the sliver's",
            field=field,
            why=f"it says: {thing.owner}",
            remedy="leave it to its owner; or empty its description, if that is only a note",
        )


class ServerAdoption:
    """The adoption of one server."""

    def __init__(self, site: Site, drivers: HostDrivers, wanted: Adoption) -> None:
        """Look for the server.

        :raises NotFound: if there is none.
        :raises Conflict: if several have its name.
        """
        self._site, self._drivers, self._wanted = site, drivers, wanted
        self._sliver: NodeSliver = wanted.sliver
        self._owner = f"{site.site}/{self._sliver.id}"
        self._driver = adoption_driver(drivers)
        found = self._driver.server(server_name(wanted))
        if found is None:
            raise NotFound(f"there is no server {server_name(wanted)}", where=f"site {site.site}")
        self._found: FoundServer = found
        self._tenant = DeviceDomain(self._sliver.id, found.id)

    def stages(self) -> list[list[Step]]:
        """Return the steps; what does not fit is refused before, and warned of if it may stay so.

        :raises InvalidSliver: with the field of what the server does not have, or has beside.
        :raises Conflict: if somebody else stamped the server, or what belongs to it.
        """
        self._refuse_server()
        ports = {vnic.id: self._port(n, vnic) for n, vnic in self._of_kind(VNic)}
        volumes = {s.id: self._volume(n, s) for n, s in self._of_kind(Storage)}
        self._refuse_devices()
        self._warn_of_others(ports.values(), volumes.values())
        stamp, site = self._sliver.stamp(), self._site.site
        of = (self._driver, self._found.id, stamp, site)
        return [
            [BeginAdoption("server", *of)],
            [*self._port_steps(ports), *self._volume_steps(volumes), *self._device_steps()],
            [FinishAdoption("finish", *of)],
        ]

    def _of_kind(self, kind: type[C]) -> Iterator[tuple[int, C]]:
        components = enumerate(self._sliver.components)
        return ((number, each) for number, each in components if isinstance(each, kind))

    # --- the server

    def _refuse_server(self) -> None:
        found, stamped = self._found, self._found.stamp
        if found.owner not in {"", self._owner}:
            raise NotOurs(
                f"{found} is adopted or made already",
                why=f"it carries the stamp of {found.owner}",
                remedy="leave it to who stamped it",
            )
        self._refuse_second()
        self._refuse_host()
        settled = found.tagged and found.adopted is not Adopted.UNFINISHED
        if settled and stamped and _things(stamped.sliver) != _things(self._sliver):
            raise Conflict(
                f"sliver {self._sliver.id} is there and differs from what is to be adopted",
                where=str(found),
                remedy="use modify",
            )
        self._warn_of_size()

    def _refuse_second(self) -> None:
        """Raise Conflict if the sliver has another server already."""
        own = self._drivers.compute.find(self._sliver.id)
        if own is not None and own.instance != self._found.id:
            raise Conflict(
                f"sliver {self._sliver.id} has a server already",
                why=f"it is {own.instance}, not {self._found}",
                remedy="adopt this one as another sliver",
            )

    def _refuse_host(self) -> None:
        has, named = self._found.host, self._sliver.host
        if has and named not in {None, has}:
            raise InvalidSliver(f"{self._found} is on {has}, not on {named}", field="host")
        if self._site.hosts and has not in self._site.hosts:
            raise InvalidSliver(
                f"{self._found} is on {has or 'no host'}, which the site does not know",
                field="host",
                why="whether devices are passed through to it cannot be seen",
                remedy="name the host below hosts in site.yaml",
            )

    def _warn_of_size(self) -> None:
        found, wants = self._found, self._sliver.capacities
        if found.cores < wants.core or found.ram < wants.ram * 1024:
            has = f"{found.cores} cores and {found.ram} MiB"
            warn(f"{found} has {has}, less than its sliver")

    # --- ports

    def _port(self, number: int, vnic: VNic) -> FoundPort:
        with field_below(f"components[{number}]"):
            port = self._matching(vnic)
            refuse_owned(port, f"port {port.id}", self._owner, "")
            self._refuse_other_port(vnic, port)
            return port

    def _matching(self, vnic: VNic) -> FoundPort:
        """Return the port of a vNIC: as named, of its MAC, or the only one on its network."""
        named, mac = self._wanted.ports.get(vnic.id), vnic.interface.mac
        name = named or mac or vnic.network
        found = [p for p in self._found.ports if name in _names(p, by_network=name is vnic.network)]
        if len(found) != 1:
            several = f"{len(found)} ports: {', '.join(p.id for p in found)}"
            raise InvalidSliver(
                f"{self._found} has {several if found else 'no port'} of {name}",
                remedy="name the port's id below ports",
            )
        return found[0]

    def _refuse_other_port(self, vnic: VNic, port: FoundPort) -> None:
        wanted = vnic.interface
        fixed = [str(a.ip) for a in (wanted.ipv4, wanted.ipv6) if a]
        if vnic.network not in {port.network, port.network_id}:
            raise InvalidSliver(f"port {port.id} is on {port.network}", field="network")
        if wanted.mac not in {None, port.mac}:
            raise InvalidSliver(f"port {port.id} has {port.mac}", field="interface.mac")
        if not set(fixed) <= set(port.addresses):
            has = ", ".join(port.addresses) or "no address"
            raise InvalidSliver(f"port {port.id} has {has}", field="interface")
        self._refuse_floating(vnic, port)

    def _refuse_floating(self, vnic: VNic, port: FoundPort) -> None:
        wants = vnic.interface.floating_ip
        if port.floating and not wants:
            raise InvalidSliver(
                f"port {port.id} has {port.floating[0].name}, which would be left behind",
                field="interface.floating_ip",
            )
        if wants and not port.floating:
            warn(f"port {port.id} of {vnic.id} has no floating IP")
        for address in port.floating:
            refuse_owned(address, f"floating IP {address.name}", self._owner, "interface")

    def _port_steps(self, ports: dict[str, FoundPort]) -> Iterator[Step]:
        steps = PortSteps(self._driver, self._site.site, self._sliver.id)
        for name, port in ports.items():
            yield steps.stamp(name, port)
            yield from steps.stamp_floating(name, port)

    # --- volumes

    def _volume(self, number: int, storage: Storage) -> FoundVolume:
        with field_below(f"components[{number}]"):
            name = storage.volume or self._wanted.volumes[storage.id]
            if not self._drivers.has_volumes:
                self._drivers.volume.check(name)
            found = [v for v in self._found.volumes if name in {v.id, v.name}]
            if len(found) != 1:
                how = f"{len(found)} volumes {name}" if found else f"no volume {name}"
                raise InvalidSliver(f"{self._found} has {how}", field="volume")
            refuse_owned(found[0], f"volume {name}", self._owner if storage.size else "", "volume")
            if storage.size not in {None, found[0].size}:
                raise InvalidSliver(f"volume {name} has {found[0].size} GiB", field="size")
            return found[0]

    def _volume_steps(self, volumes: dict[str, FoundVolume]) -> Iterator[Step]:
        """Yield the steps for volumes that the sliver owns from now on."""
        for storage in (s for s in self._sliver.volumes() if s.size is not None):
            volume = volumes[storage.id]
            marking = Marking(
                find=partial(self._driver.volume, volume.id),
                write=partial(self._driver.stamp_volume, volume.id, self._sliver.id),
                remove=partial(self._driver.unstamp_volume, volume.id),
            )
            yield StampThing(f"volume {storage.id}", self._owner, storage.id, marking)

    # --- devices

    def _refuse_devices(self) -> None:
        for number, component in enumerate(self._sliver.components):
            if not isinstance(component, VNic | Storage):
                with field_below(f"components[{number}]"):
                    self._refuse_device(component)
        self._refuse_strange()

    def _refuse_device(self, component: PciComponent) -> None:
        if not component.bdf:
            raise InvalidSliver("names no function", field="bdf")
        if not self._drivers.device(component).refuse_adoption(component, self._tenant):
            warn(f"{self._found} does not have all of {component.id}: modify attaches it again")

    def _refuse_strange(self) -> None:
        """Raise InvalidSliver if the domain has a function that the sliver does not name.

        It would go back to its host unclean when the sliver is deleted.
        """
        named = {address for device in self._sliver.devices() for address in device.bdf}
        driver = next(iter(self._drivers.devices.values()), None)
        others = set(driver.strange(self._tenant) if driver else ()) - named
        if others:
            raise InvalidSliver(
                f"{self._found} has {', '.join(map(str, sorted(others)))} beside",
                field="components",
                where=self._found.host,
                why=self._why_beside(others),
                remedy="name its device in the sliver, or detach it",
            )

    def _why_beside(self, others: Collection[PciAddress]) -> str:
        allowed = {d.address for d in self._drivers.functions() if d.type}
        missing = sorted(set(others) - allowed)
        if not missing:
            return "no component of the sliver names it"
        listed = ", ".join(map(str, missing))
        return f"site.yaml: hosts.{self._found.host}.devices does not have {listed}"

    def _device_steps(self) -> Iterator[Step]:
        for component in self._sliver.devices():
            driver: DeviceDriver = self._drivers.device(component)
            yield TakeOverDevice(driver, self._tenant, component)

    # --- what is beside

    def _warn_of_others(self, ports: Iterable[FoundPort], volumes: Iterable[FoundVolume]) -> None:
        """Warn of what is plugged in and stays as it is: others may own it."""
        named = {thing.id for thing in (*ports, *volumes)}
        for port in (p for p in self._found.ports if p.id not in named):
            if not port.owner.startswith(f"{self._site.site}/"):
                warn(f"port {port.name or port.id} of {self._found} is left as it is")
        for volume in (v for v in self._found.volumes if v.id not in named):
            warn(f"volume {volume.name or volume.id} of {self._found} is left as it is")


def _names(port: FoundPort, *, by_network: bool) -> set[str]:
    """Return what names a port: its networks, or its own names."""
    return {port.network, port.network_id} if by_network else {port.id, port.name, port.mac}


def _things(sliver: NodeSliver) -> tuple[object, ...]:
    """Return the parts of a sliver, whatever their ids and names."""
    devices = {(d.type, address) for d in sliver.devices() for address in d.bdf}
    volumes = sorted((s.volume or "", s.size or 0) for s in sliver.volumes())
    return devices, volumes, sorted(vnic.network for vnic in sliver.vnics())
