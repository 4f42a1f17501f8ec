"""Servers as libvirt domains."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import ClassVar
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls.read_cache import read
from fabric_direct.drivers.cloudinit import nocloud_seed
from fabric_direct.drivers.contract import (
    HostCapacity,
    HostInventory,
    Image,
    ImageNeeds,
    Plug,
    Port,
    Server,
    ServerSpec,
    Stamped,
    Volume,
)
from fabric_direct.drivers.contract.capacity import refuse_size, refuse_small_disk
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.contract.fields import refuse_fields
from fabric_direct.drivers.libvirt.connection import domain_events
from fabric_direct.drivers.libvirt.connection.connections import Ignoring, connect, translated
from fabric_direct.drivers.libvirt.defaults import WORKER_DRIVERS
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.domains.power import power_off, power_on, shut_down
from fabric_direct.drivers.libvirt.domains.unplug import detach
from fabric_direct.drivers.libvirt.servers import domain_xml
from fabric_direct.drivers.libvirt.storage.pool import CONSOLE, GIB, Backing, OwnPool, owner
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import (
    DriverError,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
    TimedOut,
    Unsupported,
)
from fabric_direct.model import Interface, NodeSliver, Stamp, State
from fabric_direct.site.config import Site

# Bytes of the console that are looked at; virtlogd begins a new file after 2 MiB.
_CONSOLE_BYTES = 2 * 1024**2

_WITH_EVERYTHING = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)


class LibvirtCompute:
    """The :class:`~fabric_direct.drivers.contract.ComputeDriver` of a libvirt host.

    A server is a domain whose UUID is derived from the sliver's id and whose metadata hold the sliver;
    its root disk (a qcow2 overlay on the image), seed and console log are in our storage pool, which is
    created when it is first needed. In the guest, a data volume is
    ``/dev/disk/by-id/virtio-<component>``.

    :param site: the site.
    :param host: name of the host in the site.
    """

    cloud = False
    unserved: ClassVar[tuple[str, ...]] = ("flavor",)

    @staticmethod
    def default_drivers(site: Site) -> Mapping[str, str]:
        """Return the drivers of libvirt's hosts; guests have the QEMU agent, and SSH with a cloud."""
        return {**WORKER_DRIVERS, "guest": "ssh" if site.openstack else "agent"}

    def __init__(self, site: Site, host: str) -> None:
        self._host, self._site, self._settings = host, site.site, site
        self._uri = site.host(host).libvirt
        self._virt_type = site.host(host).virt_type
        self._store = OwnPool.of(site, host)

    def capacity(self) -> HostCapacity:
        """Return the host's capacity: virNodeGetInfo, and what is free in our pool.

        :raises Unreachable: if libvirt does not answer.
        """
        with translated("read the host's capacity", self._uri):
            _, memory, cores, *_ = connect(self._uri).getInfo()
            return HostCapacity(cores, memory, self._store.available() // GIB)

    def check(self, sliver: NodeSliver, image: Image) -> None:
        """Raise InvalidSliver unless the host is large enough and the image can back a root disk.

        :raises InvalidSliver: with the field ``flavor`` if it has one; with the capacity that is too
            small; with ``image`` if it does not exist, or is neither qcow2 nor raw; with
            ``capacities.disk`` if the image is larger.
        """
        refuse_fields(sliver, self.unserved, "on libvirt")
        refuse_size(self.capacity(), sliver.capacities, self._host)
        with translated(f"look at image {image.name}", self._uri):
            self._backing(image, sliver.capacities.disk)

    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the host with all of its domains, running or not, whoever made them.

        Its disk is what is free in our pool plus what the volumes there have or may grow to. Its traits
        are the features of the CPU that a domain gets.

        :raises Unreachable: if libvirt, or the host that is asked for its images, does not answer.
        """
        from fabric_direct.drivers.libvirt.servers import inventory  # noqa: PLC0415 - os-traits is slow

        with translated("read what the host has", self._uri):
            connection = connect(self._uri)
            virt_type = self._effective_virt_type(connection)
            return (inventory.read_inventory(connection, self._settings, self._host, virt_type),)

    def image_needs(self, image: Image) -> ImageNeeds:
        """Return the image's architecture as site.yaml names it.

        :raises InvalidSliver: with the field ``image`` if site.yaml does not give its path.
        """
        _path(image)
        return ImageNeeds(architecture=self._settings.image(image.name).architecture)

    @read
    def find(self, sliver_id: str) -> Server | None:
        """Return the server that carries the sliver's stamp, or None.

        :raises NotOurs: if a domain has its UUID without this site's stamp.
        """
        # A domain may go between the two looks.
        with (
            suppress(NotFound),
            translated(f"look for the domain of {sliver_id}", self._uri),
        ):
            if domain := lookup.find_domain(connect(self._uri), sliver_id, self._site):
                return domain_xml.read_server(domain, self._host, self._site)
        return None

    def servers(self) -> tuple[Server, ...]:
        """Return all servers of the host that bear a stamp of the site."""
        with translated("list the domains", self._uri):
            found = (self._read(domain) for domain in connect(self._uri).listAllDomains())
            return tuple(server for server in found if server is not None)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the site's domains, disks, seeds and consoles, and the NICs that other slivers hold."""
        with translated("list what has the site's stamp", self._uri):
            connection = connect(self._uri)
            domains = [t for d in connection.listAllDomains() for t in self._stamped_in(d)]
            others = lookup.of_other_sites(connection, self._site)
            files = [thing for thing in self._stamped_files() if thing.sliver not in others]
        return (*domains, *files)

    def _stamped_in(self, domain: libvirt.virDomain) -> list[Stamped]:
        with lookup.absent_domain_is_fine():
            sliver, name = lookup.stamped_sliver(domain, self._site), domain.name()
            if sliver is not None:
                nics = sorted(lookup.held_nics(domain))
                held = (Stamped(holder, "NIC", f"{nic} of {name}") for holder, nic in nics)
                return [Stamped(sliver, "domain", name), *held]
        return []

    def _stamped_files(self) -> Iterator[Stamped]:
        for name in self._store.names():
            if (sliver := owner(name)) is not None and name.split(".")[1] != "volume":
                yield Stamped(sliver, "disk", self._store.file(name))
        for sliver in self._store.consoles():
            yield Stamped(sliver, "console", self._store.console(sliver).name)

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of libvirt's events of all domains, until the hearing ends."""
        domain_events.listen(self._uri, tell, hearing)

    def create(self, spec: ServerSpec) -> Server:
        """Return the sliver's server, running; it is defined and started unless it is already.

        Disks without a domain are what an interrupted call left: they are created again. The disks of a
        defined domain are never changed.

        :raises InvalidSliver: if the image is missing, or larger than the root disk.
        :raises NotOurs: if a domain of the server's name or UUID is not the sliver's.
        """
        with translated(f"create the domain of {spec.sliver.id}", self._uri):
            domain = lookup.find_domain(
                connect(self._uri), spec.sliver.id, self._site
            ) or self._define(spec)
            power_on(domain)
        return self._running(spec.sliver.id)

    def delete(self, sliver_id: str) -> None:
        """Power off and delete the domain, its root disk, seed and console log; they are gone on return.

        :raises NotOurs: if a domain has its UUID without this site's stamp; nothing is deleted then.
        """
        with translated(f"delete the domain of {sliver_id}", self._uri):
            domain = lookup.find_domain(connect(self._uri), sliver_id, self._site)
            if domain is not None:
                power_off(domain)
                with lookup.absent_domain_is_fine():
                    domain.undefineFlags(_WITH_EVERYTHING)
            for name in (f"{sliver_id}.root", f"{sliver_id}.seed"):
                self._store.delete(name)
        self._remove_console(sliver_id)
        self._verify_gone(sliver_id)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything of the server that is still there: domain, root disk, seed, console log."""
        with translated(f"look for what is left of {sliver_id}", self._uri):
            domain = lookup.find_domain(connect(self._uri), sliver_id, self._site)
            left = [] if domain is None else [f"domain {domain.name()}"]
            own = {f"{sliver_id}.{kind}" for kind in ("root", "seed", "console")}
            left += [f"file {self._store.file(n)}" for n in self._store.names() if n in own]
            console = self._store.console(sliver_id)
            return (*left, f"pool {console.name}") if console.is_there() else tuple(left)

    def start(self, sliver_id: str) -> None:
        """Start the server if it is stopped.

        :raises NotFound: if there is none.
        :raises NotVerified: if it does not run afterwards, for example because it is paused.
        """
        with self._domain(f"start the domain of {sliver_id}", sliver_id) as domain:
            power_on(domain)
        self._running(sliver_id)

    def stop(self, sliver_id: str, *, timeout: float) -> None:
        """Press the power button (ACPI), power off after ``timeout`` seconds; it is off on return.

        :raises NotFound: if there is no such server.
        """
        with self._domain(f"stop the domain of {sliver_id}", sliver_id) as domain:
            if not shut_down(domain, timeout):
                power_off(domain)

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:
        """Restart the guest with all of its devices.

        A soft reboot is the same as Nova's: shut the guest down (ACPI), wait until it is off, start it.
        So it needs no events and is certain. A hard one powers off instead.

        :raises NotFound: if there is no such server.
        :raises TimedOut: if the guest did not shut down within ``timeout`` seconds.
        """
        with self._domain(f"reboot the domain of {sliver_id}", sliver_id) as domain:
            if hard:
                power_off(domain)
            elif not shut_down(domain, timeout):
                raise self._not_rebooted(domain, timeout)
            power_on(domain)
        self._running(sliver_id)

    def resize(self, stamp: Stamp) -> None:
        """Raise Unsupported: a domain keeps the size that it was created with."""
        raise Unsupported(
            f"sliver {stamp.sliver.id} cannot be resized",
            where=self._uri,
            remedy="delete the sliver and create it again",
        )

    def attach_port(self, sliver_id: str, port: Port, interface: Interface) -> None:
        """Plug a NIC in, now and for later starts, unless it is plugged in already.

        :raises NotFound: if there is no such server.
        """
        with self._domain(
            f"attach {port.component} to the domain of {sliver_id}", sliver_id
        ) as domain:
            xml = domain_xml.port_xml(sliver_id, port, interface.bandwidth)
            self._attach(domain, lookup.nic_alias(sliver_id, port.component, port.sliver), xml)

    def detach_port(
        self, sliver_id: str, component: str, *, timeout: float, holder: str | None = None
    ) -> None:
        """Unplug a NIC, now and for later starts; on return the guest has released it.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises TimedOut: if the guest did not release it in time. It is still plugged in then.
        """
        self._detach(
            sliver_id, lookup.nic_alias(sliver_id, component, holder or sliver_id), timeout
        )

    def set_bandwidth(
        self, sliver_id: str, component: str, bandwidth: int | None, holder: str | None = None
    ) -> None:
        """Limit a NIC to ``bandwidth`` Mbit/s in each direction; None lifts the limit.

        The limit holds now and for later starts.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises NotFound: if there is no such server or NIC.
        :raises NotVerified: if libvirt, read back, reports another limit.
        """
        with self._domain(f"limit {component} of {sliver_id}", sliver_id) as domain:
            name = lookup.nic_alias(sliver_id, component, holder or sliver_id)
            mac, rate = self._mac(domain, name), (bandwidth or 0) * domain_xml.KILOBYTES
            wanted = {"inbound.average": rate, "outbound.average": rate}
            # libvirt takes one scope at a time here.
            for flag in lookup.scopes(domain):
                domain.setInterfaceParameters(mac, wanted, flag)
                found = domain.interfaceParameters(mac, flag)
                if any(found[key] != rate for key in wanted):
                    raise NotVerified(
                        f"NIC {mac} has another limit than the one set", where=self._uri
                    )

    def plugs(self, holder: str) -> tuple[Plug, ...]:
        """Return the NICs of our domains whose ports another sliver holds."""
        found: list[Plug] = []
        with translated(f"look for the NICs of {holder}", self._uri):
            for domain in connect(self._uri).listAllDomains():
                with lookup.absent_domain_is_fine():
                    found += domain_xml.read_plugs(domain, holder, self._site)
        return tuple(found)

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a data volume in, now and for later starts, unless it is plugged in already.

        :raises NotFound: if there is no such server.
        """
        with self._domain(f"attach {component} to the domain of {sliver_id}", sliver_id) as domain:
            taken = domain_xml.targets_of(domain)
            xml = domain_xml.volume_xml(sliver_id, component, volume, taken)
            try:
                self._attach(domain, lookup.alias(sliver_id, component), xml)
            except libvirt.libvirtError:
                # Another thread may have plugged a volume in at the same target meanwhile.
                if domain_xml.targets_of(domain) == taken:
                    raise
                self.attach_volume(sliver_id, component, volume)

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Unplug a data volume, now and for later starts; on return the guest has released it.

        :raises TimedOut: if the guest did not release it in time. It is still plugged in then.
        """
        self._detach(sliver_id, lookup.alias(sliver_id, component), timeout)

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace the domain's stamp, now and for later starts.

        :raises NotFound: if there is no such server.
        :raises NotVerified: if another stamp is read back.
        """
        with self._domain(f"write the stamp of {sliver_id}", sliver_id) as domain:
            kind, key = libvirt.VIR_DOMAIN_METADATA_ELEMENT, "fabric"
            xml = domain_xml.stamp_xml(stamp, self._site)
            domain.setMetadata(kind, xml, key, STAMP_NAMESPACE, lookup.scope(domain))
            if lookup.read_stamp(domain, self._site) != stamp:
                raise NotVerified(f"domain {domain.name()} has another stamp", where=self._uri)

    def console(self, sliver_id: str, lines: int) -> str:
        """Return the last ``lines`` lines of the guest's serial console.

        virtlogd writes the console to a file in a pool, which libvirt can read on remote hosts, too;
        ``virDomainOpenConsole`` would give only new output. The log survives restarts; only its last 2
        to 4 MiB are kept. Bytes that are not UTF-8 are replaced.

        :raises NotFound: if there is no such server.
        :raises DriverError: if the log begins with bytes at which libvirt refuses to read the pool.
        """
        with self._domain(f"read the console of {sliver_id}", sliver_id):
            store, text = self._store.console(sliver_id), b""
            for name in (CONSOLE, f"{CONSOLE}.0"):
                if text.count(b"\n") <= lines:
                    text = store.tail(name, _CONSOLE_BYTES) + text
        return "\n".join(text.decode(errors="replace").splitlines()[-lines:] if lines > 0 else [])

    @contextmanager
    def _domain(self, what: str, sliver_id: str) -> Iterator[libvirt.virDomain]:
        """Find the sliver's domain, and translate libvirt's errors within the block."""
        with translated(what, self._uri):
            yield lookup.the_domain(connect(self._uri), sliver_id, self._site)

    def _read(self, domain: libvirt.virDomain) -> Server | None:
        with lookup.absent_domain_is_fine():
            return domain_xml.read_server(domain, self._host, self._site)
        return None

    def _running(self, sliver_id: str) -> Server:
        server = self.find(sliver_id)
        if server is None or server.state is not State.RUNNING:
            state = State.ABSENT if server is None else server.state
            raise NotVerified(f"the domain of {sliver_id} is {state}, not running", where=self._uri)
        return server

    def _define(self, spec: ServerSpec) -> libvirt.virDomain:
        """Define the domain after its disks are created, so that a defined domain can be started."""
        connection, sliver = connect(self._uri), spec.sliver
        self._refuse_taken_name(connection, lookup.domain_name(sliver))
        backing = self._backing(spec.image, sliver.capacities.disk)
        self._store.delete(f"{sliver.id}.root")
        self._store.create(f"{sliver.id}.root", sliver.capacities.disk * GIB, backing)
        seed = nocloud_seed(sliver, spec.user_data, spec.ports)
        self._store.upload(f"{sliver.id}.seed", seed)
        self._store.console(sliver.id).pool()
        virt_type = self._effective_virt_type(connection)
        xml = domain_xml.definition(
            spec, self._site, self._store, virt_type, _memory_nodes(connection)
        )
        return connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)

    def _refuse_taken_name(self, connection: libvirt.virConnect, name: str) -> None:
        if any(domain.name() == name for domain in connection.listAllDomains()):
            raise NotOurs(
                f"domain {name} is not this sliver's",
                where=self._uri,
                why="it has another UUID",
                remedy="rename or remove it, or give the node another name",
            )

    def _backing(self, image: Image, disk: int) -> Backing:
        """Return the file of an image; raise InvalidSliver if a disk of so many GiB is too small."""
        backing = self._store.backing(_path(image))
        refuse_small_disk(disk, -(-backing.size // GIB), image.name)
        return backing

    def _effective_virt_type(self, connection: libvirt.virConnect) -> str:
        if self._virt_type != "auto":
            return self._virt_type
        return "kvm" if _offers_kvm(self._uri, connection.getInfo()[0]) else "qemu"

    def _remove_console(self, sliver_id: str) -> None:
        console = self._store.console(sliver_id)
        try:
            console.remove()
        except libvirt.libvirtError as error:
            raise DriverError(
                f"the console log of {sliver_id} cannot be removed",
                where=self._uri,
                why=error.get_error_message() or str(error),
                remedy=f"if the log's content is the cause, remove the files in {console.path}; "
                "delete the sliver again",
            ) from error

    def _verify_gone(self, sliver_id: str) -> None:
        left = self.leftovers(sliver_id)
        if left:
            raise NotVerified(f"not all of {sliver_id} is gone: {', '.join(left)}", where=self._uri)

    def _not_rebooted(self, domain: libvirt.virDomain, timeout: float) -> TimedOut:
        return TimedOut(
            f"the guest of domain {domain.name()} did not shut down to be rebooted",
            where=self._uri,
            why=f"it was still on after {timeout:g} s",
            remedy="reboot it hard; if it goes off later, start it",
        )

    def _attach(self, domain: libvirt.virDomain, name: str, xml: str) -> None:
        """Attach the device wherever no device of this alias is, live or as defined."""
        missing = _scopes_without(domain, name)
        if missing:
            domain.attachDeviceFlags(xml, missing)
        if _scopes_without(domain, name):
            raise NotVerified(f"{name} is not in domain {domain.name()}", where=self._uri)

    def _detach(self, sliver_id: str, name: str, timeout: float) -> None:
        with translated(f"detach {name} from the domain of {sliver_id}", self._uri):
            connection = connect(self._uri)
            domain = lookup.find_domain(connection, sliver_id, self._site)
        if domain is not None:
            detach(connection, domain, name, timeout=timeout, where=self._uri)

    def _mac(self, domain: libvirt.virDomain, name: str) -> str:
        xml = ElementTree.fromstring(domain.XMLDesc(0))
        for mac in xml.iterfind(f"devices/interface/alias[@name='{name}']/../mac"):
            return mac.attrib["address"]
        raise NotFound(f"domain {domain.name()} has no NIC {name}", where=self._uri)


def _path(image: Image) -> str:
    if image.path is None or not image.path.startswith("/"):
        raise InvalidSliver(
            f"image {image.name} has no absolute path on the host",
            where="site.yaml: images",
            field="image",
        )
    return image.path


@cache
def _offers_kvm(uri: str, arch: str) -> bool:
    """Return whether the host has a KVM that can run guests; cached, because libvirt answers slowly.

    Some virtual machines have a ``/dev/kvm`` that libvirt offers but whose guests never run. No 64-bit
    CPU model is usable there, not even the oldest.
    """
    with Ignoring(libvirt.VIR_ERR_INVALID_ARG):
        text = connect(uri).getDomainCapabilities(None, arch, "q35", "kvm")
        models = ElementTree.fromstring(text).iterfind("cpu/mode[@name='custom']/model")
        return all(model.get("usable") != "no" for model in models if model.text == "kvm64")
    return False


def _memory_nodes(connection: libvirt.virConnect) -> list[int]:
    cells = ElementTree.fromstring(connection.getCapabilities()).iterfind(lookup.CELLS)
    return [int(cell.attrib["id"]) for cell in cells if int(cell.findtext("memory", "0"))]


def _scopes_without(domain: libvirt.virDomain, name: str) -> int:
    """Return the flags of those scopes in which the domain has no device of this alias."""
    return sum(
        flag for flag, xml in lookup.definitions(domain).items() if not lookup.has_alias(xml, name)
    )
