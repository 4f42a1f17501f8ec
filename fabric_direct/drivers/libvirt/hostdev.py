"""PCI functions passed through to domains, by libvirt alone.

attach: lock the functions and their VFs → read every domain's claims → attach what is missing
→ read back.
detach: read the component's functions → one after the other, confirmed by the guest → read back.

A detach needs no lock: until its end every attach finds the claim and is refused.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from xml.etree import ElementTree

import libvirt

from fabric_direct.config import AllowedDevice, Site
from fabric_direct.deadline import Deadline
from fabric_direct.drivers.base import HostDevice, PluggedDevice
from fabric_direct.drivers.libvirt.claims import (
    Claim,
    Reading,
    Taker,
    claims,
    locked,
    pci_address,
    read_domains,
    read_sliver,
)
from fabric_direct.drivers.libvirt.connection import connect, translated
from fabric_direct.drivers.libvirt.detach import detach
from fabric_direct.drivers.libvirt.domain import (
    alias,
    component_of,
    domain_uuid,
)
from fabric_direct.drivers.libvirt.inventory import (
    allow_list,
    find_function,
    host_devices,
    relatives,
)
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.drivers.pools import derived_mac
from fabric_direct.errors import (
    DeviceClaimed,
    DriverError,
    FabricDirectError,
    InvalidSliver,
    NotFound,
    NotVerified,
)
from fabric_direct.model import Interface, PciAddress, PciComponent, SharedNic

# Seconds for each function that a failed attach gives back: the guest is asked once.
TAKE_BACK = 20.0


class HostdevDevice:
    """Passes PCI functions of one host through to its domains.

    A SharedNIC's VF is an ``<interface type='hostdev'>``, so that libvirt sets its MAC and VLAN and
    restores them; everything else is a ``<hostdev>``. Devices are ``managed``: libvirt binds them to
    vfio-pci and back.

    :param site: the site; its allow-list for the host, and the directory of its locks.
    :param host: name of the worker.
    :raises NotFound: if the site has no such worker.
    """

    def __init__(self, site: Site, host: str) -> None:
        self._host = host
        self._uri = site.host(host).libvirt
        self._allowed = site.host(host).devices
        self._shares = any(entry.type == "SharedNIC" for entry in self._allowed)
        self._lock_directory = site.state_dir / "locks"
        self._busy = site.limits.busy

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, by address, with their owners."""
        with self._translated("list the PCI functions"):
            return host_devices(connect(self._uri), self._allowed)

    def check(self, component: PciComponent, sliver_id: str) -> None:
        """Return if the sliver may have the device.

        :raises InvalidSliver: if an address is not on the host or not in the allow-list; the field is
            ``bdf[0]`` and so on.
        :raises DeviceClaimed: if another domain of the host, live or defined, has it.
        """
        with self._translated(f"check {component.id}"):
            connection = connect(self._uri)
            self._check_allowed(component, allow_list(connection, self._allowed))
            self._check_present(connection, component)
            own = str(domain_uuid(sliver_id))
            others = [claim for claim in claims(read_domains(connection)) if claim.uuid != own]
            self._refuse_claimed(connection, component, others)

    def plugged(self, sliver_id: str) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's domain has by our stamp.

        Of a running domain those of its live XML, with the address that libvirt gave them there.
        """
        with self._translated(f"read the devices of {sliver_id}"):
            own = read_sliver(connect(self._uri), sliver_id)
            return _current(_plugged(own, sliver_id)) if own else ()

    def attach(self, sliver_id: str, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through, now (if it runs) and for later starts.

        If one fails, those that this call attached are taken back.

        :raises DeviceClaimed: if another domain or component has one of them, or a VF or the PF of one.
        :raises NotFound: if the sliver has no domain.
        :raises NotVerified: if the component, read back, has other functions or settings.
        :raises SliverBusy: if others were at work on one of them for too long.
        """
        with self._translated(f"attach {component.id}"), ExitStack() as stack:
            connection = connect(self._uri)
            stack.enter_context(self._locked(connection, component))
            readings = read_domains(connection)
            own = self._own(readings, sliver_id)
            wanted, held = _wanted(sliver_id, component), claims(readings)
            present = _present(own.domain, wanted, held)
            others = [claim for claim in held if claim not in present]
            self._refuse_claimed(connection, component, others)
            with self._taking_back(connection, own.domain, wanted, present):
                _attach_missing(own, component, wanted, present)
                return self._read_back(own.domain, sliver_id, wanted)

    def detach(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Take the component's functions back; the guest has let go of them on return.

        :param timeout: seconds that the guest may take for all of them.
        :raises TimedOut: if the guest still holds one; that one is still the sliver's then.
        """
        deadline = Deadline.within(timeout)
        with self._translated(f"detach {component}"):
            connection = connect(self._uri)
            own = read_sliver(connection, sliver_id)
            if own is None:
                return
            for label in _aliases(own, sliver_id, component):
                remaining = deadline.remaining()
                detach(connection, own.domain, label, timeout=remaining, where=self._uri)

    def _translated(self, what: str) -> AbstractContextManager[None]:
        return translated(what, self._uri)

    def _own(self, readings: tuple[Reading, ...], sliver_id: str) -> Reading:
        uuid = domain_uuid(sliver_id).bytes
        for reading in readings:
            if reading.domain.UUID() == uuid:
                reading.check_stamp(sliver_id)
                return reading
        raise NotFound(f"sliver {sliver_id} has no domain", where=self._uri)

    def _locked(
        self, connection: libvirt.virConnect, component: PciComponent
    ) -> AbstractContextManager[None]:
        """Keep others off the functions, and off the VFs that go with them."""
        functions = set(component.bdf)
        # A VF has none, and where none is passed through alone nobody else asks for one.
        if not isinstance(component, SharedNic) and self._shares:
            families = [relatives(connection, address) for address in component.bdf]
            functions |= {vf for family in families for vf in family.virtual}
        return locked(self._lock_directory, self._host, functions, timeout=self._busy)

    def _check_allowed(
        self, component: PciComponent, entries: dict[PciAddress, AllowedDevice]
    ) -> None:
        for number, address in enumerate(component.bdf):
            entry = entries.get(address)
            if entry is None or not _fits(component, entry):
                allows = f"it allows it as {entry.type} {entry.model or ''}" if entry else ""
                raise InvalidSliver(
                    f"{address} is not allowed as {component.type} {component.model or ''}".strip(),
                    field=f"bdf[{number}]",
                    where=f"site.yaml: hosts.{self._host}.devices",
                    why=allows.strip(),
                    remedy="name a device that the site's inventory lists as allowed",
                )

    def _check_present(self, connection: libvirt.virConnect, component: PciComponent) -> None:
        for number, address in enumerate(component.bdf):
            if find_function(connection, address) is None:
                raise InvalidSliver(
                    f"there is no PCI function {address}", field=f"bdf[{number}]", where=self._uri
                )

    def _refuse_claimed(
        self, connection: libvirt.virConnect, component: PciComponent, others: list[Claim]
    ) -> None:
        claimed = {claim.address: claim for claim in others}
        for number, address in enumerate(component.bdf) if claimed else ():
            family = relatives(connection, address)
            # A PF takes its VFs along; libvirtd hangs if the guest that has one does not let go.
            for each in (address, *family.physical, *family.virtual):
                if each in claimed:
                    raise self._claimed(claimed[each], number)

    def _claimed(self, claim: Claim, number: int) -> DeviceClaimed:
        return DeviceClaimed(
            f"domain {claim.domain} has {claim.address}",
            field=f"bdf[{number}]",
            where=self._uri,
            why=f"it belongs to {claim.owner}",
            remedy="detach it there first, or name another device",
        )

    @contextmanager
    def _taking_back(
        self,
        connection: libvirt.virConnect,
        domain: libvirt.virDomain,
        wanted: tuple[PluggedDevice, ...],
        present: frozenset[Claim],
    ) -> Iterator[None]:
        """On an error, detach those of the wanted devices that were not there before."""
        before = {claim.alias for claim in present}
        try:
            yield
        except (libvirt.libvirtError, FabricDirectError) as error:
            made = [device.alias for device in wanted if device.alias not in before]
            left = [label for label in made if not self._take_back(connection, domain, label)]
            if left:
                raise DriverError(
                    "a device was attached only in part",
                    where=self._uri,
                    why=str(error),
                    remedy=f"still attached, and to be detached: {', '.join(left)}",
                ) from error
            raise

    def _take_back(
        self, connection: libvirt.virConnect, domain: libvirt.virDomain, label: str
    ) -> bool:
        try:
            detach(connection, domain, label, timeout=TAKE_BACK, where=self._uri)
        except FabricDirectError:
            return False
        return True

    def _read_back(
        self, domain: libvirt.virDomain, sliver_id: str, wanted: tuple[PluggedDevice, ...]
    ) -> tuple[PluggedDevice, ...]:
        """Return the wanted devices as found: live if the domain runs, else as defined."""
        plugged = _plugged(Reading(domain), sliver_id)
        for there in plugged.values():
            if not all(any(_is(found, device) for found in there) for device in wanted):
                raise self._not_verified(domain, wanted, there)
        labels = {device.alias for device in wanted}
        return tuple(found for found in _current(plugged) if found.alias in labels)

    def _not_verified(
        self,
        domain: libvirt.virDomain,
        wanted: tuple[PluggedDevice, ...],
        plugged: tuple[PluggedDevice, ...],
    ) -> NotVerified:
        labels = {device.alias for device in wanted}
        found = ", ".join(_described(d) for d in plugged if d.alias in labels) or "nothing"
        return NotVerified(
            f"domain {domain.name()} has not what was attached",
            where=self._uri,
            why=f"wanted {', '.join(map(_described, wanted))}; found {found}",
            remedy="detach the component and attach it again",
        )


def _fits(component: PciComponent, entry: AllowedDevice) -> bool:
    models = {component.model, entry.model} - {None}
    return entry.type == component.type and len(models) < 2


def _wanted(sliver_id: str, component: PciComponent) -> tuple[PluggedDevice, ...]:
    interface = (
        _interface(sliver_id, component) if isinstance(component, SharedNic) else Interface()
    )
    return tuple(
        PluggedDevice(
            component.id,
            alias(sliver_id, component.id, number),
            address,
            mac=interface.mac,
            vlan=interface.vlan,
        )
        for number, address in enumerate(component.bdf)
    )


def _interface(sliver_id: str, nic: SharedNic) -> Interface:
    mac = nic.interface.mac or derived_mac(sliver_id, nic.id)
    return nic.interface.model_copy(update={"mac": mac})


def _present(
    domain: libvirt.virDomain, wanted: tuple[PluggedDevice, ...], held: tuple[Claim, ...]
) -> frozenset[Claim]:
    """Return the claims by which the domain has some of the wanted devices already."""
    own, labels = domain.UUIDString(), {device.alias for device in wanted}
    return frozenset(claim for claim in held if claim.uuid == own and claim.alias in labels)


def _attach_missing(
    own: Reading,
    component: PciComponent,
    wanted: tuple[PluggedDevice, ...],
    present: frozenset[Claim],
) -> None:
    template = "interface-hostdev" if isinstance(component, SharedNic) else "hostdev"
    for device in wanted:
        there = sum(claim.scope for claim in present if claim.alias == device.alias)
        missing = sum(own.scopes) & ~there
        if missing:
            own.domain.attachDeviceFlags(_xml(template, device), missing)


def _xml(template: str, device: PluggedDevice) -> str:
    return render(
        f"{template}.xml.j2",
        address=device.host_address,
        alias=device.alias,
        mac=device.mac,
        vlan=device.vlan,
    )


def _aliases(own: Reading, sliver_id: str, component: str) -> list[str]:
    """Return the aliases of the component's functions, live and as defined."""
    labels = {taker.alias for taker in own.takers()}
    return sorted(label for label in labels if component_of(label, sliver_id) == component)


def _current(plugged: dict[int, tuple[PluggedDevice, ...]]) -> tuple[PluggedDevice, ...]:
    """Return the sliver's devices: live if the domain runs, else as defined."""
    return plugged.get(libvirt.VIR_DOMAIN_AFFECT_LIVE, plugged[libvirt.VIR_DOMAIN_AFFECT_CONFIG])


def _plugged(own: Reading, sliver_id: str) -> dict[int, tuple[PluggedDevice, ...]]:
    """Return the sliver's devices by scope."""
    takers = [(taker, component_of(taker.alias, sliver_id)) for taker in own.takers()]
    return {
        scope: tuple(
            _device(t, component) for t, component in takers if component and t.scope == scope
        )
        for scope in own.scopes
    }


def _device(taker: Taker, component: str) -> PluggedDevice:
    guest = taker.element.find("address[@type='pci']")
    live = taker.scope == libvirt.VIR_DOMAIN_AFFECT_LIVE
    return PluggedDevice(
        component,
        taker.alias,
        taker.address,
        guest_address=pci_address(guest) if live and guest is not None else None,
        mac=_attribute(taker.element, "mac", "address"),
        vlan=_number(_attribute(taker.element, "vlan/tag", "id")),
    )


def _attribute(device: ElementTree.Element, path: str, name: str) -> str | None:
    element = device.find(path)
    return element.get(name) if element is not None else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _is(found: PluggedDevice, wanted: PluggedDevice) -> bool:
    return replace(found, guest_address=None) == wanted


def _described(device: PluggedDevice) -> str:
    return f"{device.host_address} (mac {device.mac}, vlan {device.vlan})"
