"""Servers in Nova."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import ClassVar

from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server as NovaServer
from openstack.connection import Connection
from openstack.exceptions import BadRequestException, ForbiddenException, HttpException
from openstack.image.v2.image import Image as GlanceImage

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract import (
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
from fabric_direct.drivers.contract.capacity import refuse_small_disk
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.libvirt.defaults import WORKER_DRIVERS
from fabric_direct.drivers.openstack.adoption import OpenStackAdoption
from fabric_direct.drivers.openstack.client.answers import ConsoleOutput, read
from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.errors import make_once, words
from fabric_direct.drivers.openstack.client.hidden_servers import every_server, server_by_id
from fabric_direct.drivers.openstack.client.name_cache import Names
from fabric_direct.drivers.openstack.client.stamp import (
    described_sliver,
    description,
    server_metadata,
)
from fabric_direct.drivers.openstack.networks.port_limits import PortLimits, bandwidths
from fabric_direct.drivers.openstack.networks.port_records import ports_of
from fabric_direct.drivers.openstack.servers.changes import tell_of_servers
from fabric_direct.drivers.openstack.servers.flavors import MIB, ensure_flavor, flavor_of
from fabric_direct.drivers.openstack.servers.hotplug import SliverServer, volumes_in_use
from fabric_direct.drivers.openstack.servers.inventory import (
    image_needs,
    least_disk,
    read_inventory,
)
from fabric_direct.drivers.openstack.servers.lookup import ServerLookup, tagged_sliver
from fabric_direct.drivers.openstack.servers.records import (
    ServerRecord,
    ServerRecords,
    record_of,
)
from fabric_direct.drivers.openstack.servers.request import (
    attached_ids,
    encoded,
    ports_of_project,
    read_plug,
    read_server,
    read_volumes,
    server_name,
    server_request,
)
from fabric_direct.drivers.openstack.volumes.driver import volumes_of
from fabric_direct.errors import (
    Denied,
    FabricDirectError,
    InvalidSliver,
    NotOurs,
    NotVerified,
    TimedOut,
)
from fabric_direct.model import NodeSliver, Stamp, State, VNicInterface
from fabric_direct.site.config import Site

# Seconds that libvirt may take to remove the domain of a server that Nova has deleted.
_DOMAIN_GONE = 30.0


class OpenStackCompute(CloudDriver):
    """The :class:`~fabric_direct.drivers.contract.ComputeDriver` of a cloud.

    A server is found by a tag that is derived from the site and the sliver; its metadata hold the stamp.
    If several have the tag, the oldest is the sliver's, and all are deleted with it. The root disk is on
    the worker. A data volume has the first 20 characters of its id as its serial number, and its
    component as the tag of the device, which the guest finds in Nova's metadata.

    A sliver's worker is requested by Nova's ``host``, not by an availability zone ``nova:<worker>``:
    that would bypass the scheduler, fill a worker that is full or out of service, and bind the server
    to it for good. ``host`` needs an administrator.
    """

    cloud: ClassVar[bool] = True
    adoption = OpenStackAdoption
    unserved: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def default_drivers(site: Site) -> Mapping[str, str]:  # noqa: ARG004 - each cloud has the same
        """Return the drivers of the cloud's workers, which are libvirt's; guests have SSH."""
        return {**WORKER_DRIVERS, "guest": "ssh"}

    def __init__(self, site: Site, host: str = "") -> None:
        super().__init__(site, host)
        self._limits, self._records = PortLimits(site), ServerRecords(site)

    @contextmanager
    def _on(self, doing: str, sliver_id: str) -> Iterator[SliverServer]:
        """Give access to the sliver's server within the block, and translate the block's errors."""
        with self.translated(f"{doing} {sliver_id}"):
            yield SliverServer(self, sliver_id)

    # --- check

    def check(self, sliver: NodeSliver, image: Image) -> None:
        """Raise an error unless the cloud has the image, a flavor and the worker, and the name is free.

        Quota and room on the worker are not known before the server is created; nor is an unknown
        worker, to users who may not list the compute services.

        :raises InvalidSliver: with the field: ``boot_script`` if it is too long, ``image``, ``flavor``,
            ``capacities.…``, ``host``.
        :raises NotOurs: if another server has the server's name.
        :raises NotVerified: if a server has the sliver's tag, but no readable stamp.
        """
        encoded(user_data(sliver))
        with self._on("check sliver", sliver.id) as server:
            ours = {found.id for found in server.readable()}
            flavor = flavor_of(server.cloud, sliver, make=self.settings.make_flavors)
            _refuse_image(self.names.image(image.name), flavor, sliver)
            self.names.chosen("host", partial(_refuse_host, self.names, sliver.host))
            _refuse_taken_name(server.cloud, server_name(sliver), ours)

    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the workers that the site names, or all of the cloud if it names none.

        Cached images are left out: Nova does not report them, and Glance serves all workers. So are NUMA
        nodes, which Placement does not have.

        :raises Denied: if the user is not an administrator.
        """
        with self.translated("read what the workers have"):
            return read_inventory(ServerLookup(self), self.site.hosts)

    def image_needs(self, image: Image) -> ImageNeeds:
        """Return what the image requires according to Glance: architecture, traits, memory and disk.

        :raises InvalidSliver: with the field ``image`` if there is none.
        """
        with self.translated(f"read what image {image.name} needs"):
            return image_needs(self.names.image(image.name))

    # --- read

    def find(self, sliver_id: str) -> Server | None:
        """Return the server with the sliver's stamp, or None.

        One with its tag, but no readable stamp, does not count, nor one that Nova has only marked as
        deleted; ``delete`` deletes them, too.

        :raises Unreachable: if a cell of Nova does not answer, which may have it.
        """
        with self._on("look for the server of", sliver_id) as server:
            found = server.server()
            return None if found is None else server.read(found)

    def servers(self) -> tuple[Server, ...]:
        """Return all servers of the site, one for each sliver.

        :raises Unreachable: if a cell of Nova does not answer: the list may lack its servers.
        """
        with self.translated("list the servers"):
            cloud, found = self.connection(), ServerLookup(self).all()
            ports = ports_of_project(cloud) if found else []
            own = volumes_of(cloud, self.site.site) if any(map(attached_ids, found)) else []
            held = (port for port in ports if described_sliver(self.site.site, port) is not None)
            limits = bandwidths(cloud, held, project_id=cloud.current_project_id)
            read = [
                read_server(s, ports, limits, read_volumes(cloud, s, own)) for s in reversed(found)
            ]
        return tuple({server.sliver: server for server in read if server is not None}.values())

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all servers with the site's tag, also those without a readable stamp.

        :raises Unreachable: as :meth:`servers`.
        """
        with self.translated("list the servers"):
            found = ServerLookup(self).all()
        return tuple(
            Stamped(tagged_sliver(self.site.site, s), "server", f"{s.name} ({s.id})") for s in found
        )

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of servers of the site that have changed and settled; Nova is asked every few seconds."""
        with self.translated("ask which servers have changed"):
            tell_of_servers(self.connection(), self.site.site, tell, hearing)
        hearing.raise_error()

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every server with the sliver's tag, also one without a readable stamp.

        And every domain that was its server's, on a worker whose libvirt the site configures.

        :raises Unreachable: if a cell of Nova does not answer, which may have one.
        """
        with self._on("look for what is left of", sliver_id) as server:
            found = server.servers()
        domains = map(_domain_name, self._domains(sliver_id, found))
        return (*(f"server {s.name} ({s.id}, {s.status})" for s in found), *domains)

    def console(self, sliver_id: str, lines: int) -> str:
        """Return the last ``lines`` lines that the guest wrote to its serial console.

        :raises NotFound: if there is no such server.
        :raises Conflict: if it is on no worker yet.
        """
        with self._on("read the console of", sliver_id) as server:
            found = server.the()
            # A POST that changes nothing: it invalidates a cache of its own, not the caller's.
            with ReadCache().active():
                said = server.cloud.compute.get_server_console_output(found.id, length=lines)
            written = read(ConsoleOutput, said, f"the console of server {found.id}").output or ""
        return "\n".join(written.splitlines()[-lines:] if lines > 0 else [])

    # --- create and delete

    def create(self, spec: ServerSpec) -> Server:
        """Return the sliver's server, running; create it with ports and volumes if it is not there.

        Its ports are limited first. One request creates it; if the response is lost, the server is
        looked for by its tag. A server that went to ERROR before it was ever active was left by an
        interrupted call; it is replaced.

        :raises DriverError: if it goes to ERROR, with Nova's reason and the state of the worker.
        :raises QuotaExceeded: if the project's quota is used up.
        :raises Denied: if the sliver names a worker or limits a NIC, and the user may not.
        :raises Conflict: if one of its volumes or ports is in use, with Nova's reason.
        :raises InvalidSliver: with the field ``host`` if there is no such worker, and as :meth:`check`.
        :raises NotVerified: if a server has the sliver's tag, but no readable stamp; if a domain is left
            of a server of the sliver that Nova has deleted.
        """
        limits = {vnic.id: vnic.interface.bandwidth for vnic in spec.sliver.vnics()}
        with self._on("make the server of", spec.sliver.id) as server:
            if spec.ports:
                self._limits.settle(spec.sliver.id, limits)
            found = server.usable()
            if found is None:
                self._refuse_former_domain(spec.sliver.id)
                found = self._make(server, spec)
            server.power_on(found, Deadline.within(server.limits.create))
            return _running(server)

    def _make(self, server: SliverServer, spec: ServerSpec) -> NovaServer:
        make = partial(self._post, server.cloud, spec)
        try:
            with volumes_in_use():
                return make_once(make, server.server, timeout=server.limits.call)
        except (BadRequestException, ForbiddenException) as error:
            raise _refusal(error, spec.sliver.host) or error from error

    def _post(self, cloud: Connection, spec: ServerSpec) -> NovaServer:
        """Send the request; again if a cached id of flavor or image has become unknown."""
        flavor = ensure_flavor(cloud, spec.sliver, make=self.settings.make_flavors)
        try:
            return self._post_with(cloud, spec, flavor)
        except BadRequestException as error:
            if flavor.id not in words(error):
                raise
        self.names.forget("flavor")
        flavor = ensure_flavor(cloud, spec.sliver, make=self.settings.make_flavors)
        return self._post_with(cloud, spec, flavor)

    def _post_with(self, cloud: Connection, spec: ServerSpec, flavor: Flavor) -> NovaServer:
        site = self.site.site

        def post(image: str) -> NovaServer:
            request = server_request(site, self.settings, spec, image=image, flavor=flavor.id)
            made = cloud.compute.create_server(**request)
            self._records.write(spec.sliver.id, [made] if made.id else [])
            return made

        return self.names.resolved("image", spec.image.name, post)

    def delete(self, sliver_id: str) -> None:
        """Delete every server with the sliver's tag; when the call returns, they are gone.

        So are their domains on workers whose libvirt the site configures, also those of servers that an
        earlier call has deleted. One that Nova only marks as deleted is deleted by force.

        :raises Conflict: if one is locked, with Nova's reason.
        :raises Denied: if Nova marks one as deleted, and the user may not force its deletion.
        :raises NotVerified: if Nova cannot delete one, or a domain remains.
        :raises TimedOut: if one remains.
        :raises Unreachable: if a cell of Nova does not answer, which may have one.
        """
        with self._on("delete the server of", sliver_id) as server:
            found = server.servers()
            server.remove(found)
        records = {record.id: record for record in self._records.of(sliver_id)}
        removed = [record_of(sliver_id, server) for server in found]
        records |= {r.id: r for r in removed if r.worker or r.id not in records}
        for record in records.values():
            self._verify_no_domain(record)
            self._records.strike(record.id)

    def _domains(self, sliver_id: str, servers: Sequence[NovaServer]) -> Iterator[ServerRecord]:
        """Yield the recorded servers that Nova does not have, but of which a domain is there."""
        there = {server.id for server in servers}
        for record in self._records.of(sliver_id):
            if record.id in there:
                continue
            if self._has_domain(record):
                yield record
            else:
                self._records.strike(record.id)

    def _refuse_former_domain(self, sliver_id: str) -> None:
        for record in self._domains(sliver_id, ()):
            raise _has_outlived(record)

    def _verify_no_domain(self, record: ServerRecord) -> None:
        what = _domain_name(record)
        try:
            wait_until(
                f"{what} to be gone",
                lambda: not self._has_domain(record),
                timeout=_DOMAIN_GONE,
                where=record.worker,
            )
        except TimedOut as error:
            raise _has_outlived(record) from error

    def _has_domain(self, record: ServerRecord) -> bool:
        """Return whether a server has a domain; False if the site does not know its worker's libvirt."""
        if record.worker not in self.site.hosts:
            return False
        return _has_domain(self.site.host(record.worker).libvirt, record.id)

    # --- power

    def start(self, sliver_id: str) -> None:
        """Start the server if it is stopped; wait for one that is being built.

        :raises NotFound: if there is none.
        :raises NotVerified: if it is not active then, for example because it is paused.
        """
        with self._on("start the server of", sliver_id) as server:
            server.power_on(server.now(), Deadline.within(server.limits.poa))

    def stop(self, sliver_id: str, *, timeout: float) -> None:
        """Shut the guest down; when the call returns, it is off.

        Nova asks the guest (ACPI), and cuts the power after the image's ``os_shutdown_timeout``, or
        ``shutdown_timeout`` of its configuration, 60 s by default.

        :raises NotFound: if there is no such server.
        :raises TimedOut: if it is not off after ``timeout`` seconds; Nova continues.
        """
        with self._on("stop the server of", sliver_id) as server:
            server.power_off(Deadline.within(timeout))

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:
        """Restart the guest; when the call returns, Nova has recorded the success.

        A soft reboot becomes a hard one if the guest does not shut down within
        ``libvirt.wait_soft_reboot_seconds``, 120 s by default. Nova does not report which it was.

        :raises NotFound: if there is no such server.
        :raises TimedOut: if it takes longer than ``timeout`` seconds.
        :raises DriverError: if it fails, with Nova's reason.
        """
        with self._on("reboot the server of", sliver_id) as server:
            server.reboot("HARD" if hard else "SOFT", Deadline.within(timeout))

    def resize(self, stamp: Stamp) -> None:
        """Resize the server to the flavor that its new stamp needs, and write the stamp.

        Nova stops the server meanwhile, and may move it to another worker unless the sliver names one or
        has devices. It runs afterwards if it ran before.

        :raises InvalidSliver: as :meth:`check`; with the field ``capacities.disk`` or ``flavor`` if the
            root disk would shrink, with ``capacities`` or ``flavor`` if the worker where it must stay
            has no room. Nothing was touched then.
        :raises Conflict: if Nova moved it from there; it is back then, and runs if it ran.
        :raises DriverError: if it fails, with Nova's reason.
        """
        sliver, deadline = stamp.sliver, Deadline.within(self.site.limits.poa)
        with self._on("resize the server of", sliver.id) as server:
            flavor = ensure_flavor(server.cloud, sliver, make=self.settings.make_flavors)
            found = server.settled(server.now(), deadline)
            _refuse_shrinking(found, flavor, sliver)
            server.resize(found, flavor, sliver, deadline)
        self.write_stamp(sliver.id, stamp)

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace the server's stamp, in one request.

        :raises NotFound: if there is no such server.
        """
        metadata = server_metadata(self.site.site, stamp)
        with self._on("write the stamp of", sliver_id) as server:
            server.cloud.compute.set_server_metadata(server.the().id, **metadata)

    # --- hot plug

    def attach_port(self, sliver_id: str, port: Port, interface: VNicInterface) -> None:
        """Plug a NIC in unless it is, also for later starts; if the server runs, its port is active.

        :raises NotFound: if there is no such server.
        :raises Denied: if the interface has a bandwidth, and the user may not make QoS policies.
        """
        self.set_bandwidth(sliver_id, port.component, interface.bandwidth, port.sliver)
        with self._on(f"plug {port.component} into the server of", sliver_id) as server:
            server.plug_port(port)

    def detach_port(
        self, sliver_id: str, component: str, *, timeout: float, holder: str | None = None
    ) -> None:
        """Unplug a NIC, also for later starts; on return the guest has released it.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises TimedOut: if the guest does not release it in time. It is still plugged in then.
        """
        with self._on(f"unplug {component} from the server of", sliver_id) as server:
            server.unplug_port(component, timeout, holder or sliver_id)

    def set_bandwidth(
        self,
        sliver_id: str,
        component: str,
        bandwidth: int | None,
        holder: str | None = None,
    ) -> None:
        """Limit the port of a NIC to ``bandwidth`` Mbit/s in each direction; None lifts the limit.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises NotFound: if there is no such port.
        :raises Denied: if the user may not make QoS policies.
        """
        with self.translated(f"limit NIC {component} of {sliver_id}"):
            self._limits.settle(holder or sliver_id, {component: bandwidth})

    def plugs(self, holder: str) -> tuple[Plug, ...]:
        """Return the NICs of servers whose ports another sliver holds.

        A server is ours if it has the site's tag and a readable stamp. A deleted one has no NIC, even
        while Neutron still reports it.

        :raises Unreachable: if a cell of Nova does not answer, which has one of the servers.
        """
        with self.translated(f"look where the ports of {holder} are plugged in"):
            cloud, site = self.connection(), self.site.site
            bound = [port for port in ports_of(cloud, site, holder) if port.device_id]
            servers = {i: server_by_id(cloud, i) for i in {port.device_id for port in bound}}
            pairs = [(server, port) for port in bound if (server := servers[port.device_id])]
            limits = bandwidths(cloud, bound, description=description(site, holder))
            plugs = (read_plug(site, server, port, limits, holder) for server, port in pairs)
            return tuple(plug for plug in plugs if plug.server != holder)

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a data volume in, now and for later starts, unless it is.

        :raises NotFound: if there is no such server.
        :raises Conflict: if the volume is in use, with Nova's reason.
        :raises DriverError: if it fails, with Nova's reason.
        """
        with self._on(f"plug {component} into the server of", sliver_id) as server:
            server.plug_volume(component, volume)

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Unplug a data volume, also for later starts; on return the guest has released it.

        :raises TimedOut: if the guest does not release it in time. It is still plugged in then.
        """
        with self._on(f"unplug {component} from the server of", sliver_id) as server:
            server.unplug_volume(component, timeout)


def _running(server: SliverServer) -> Server:
    found = server.server()
    read = server.read(found) if found else None
    if read is None or read.state is not State.RUNNING:
        state = State.ABSENT if read is None else read.state
        raise NotVerified(f"the server of {server.sliver} is {state}, not running")
    return read


def _refuse_host(names: Names, host: str | None) -> None:
    """Raise InvalidSliver if the cloud has no such worker, as far as the user may list them."""
    with suppress(Denied):
        known = names.hosts() if host else ()
        if known and host not in known:
            raise _no_host(host, f"known: {', '.join(known)}")


def _no_host(host: str | None, why: str) -> InvalidSliver:
    return InvalidSliver(f"no compute host {host!r}", why=why, field="host")


def _refuse_taken_name(cloud: Connection, name: str, ours: set[str]) -> None:
    for server in every_server(cloud):
        if server.name == name and server.id not in ours:
            raise NotOurs(
                f"server {name} is not this sliver's",
                why=f"server {server.id} has not its tag",
                remedy="rename or remove it, or give the node another name",
            )


def _refusal(error: HttpException, host: str | None) -> FabricDirectError | None:
    """Return the error if Nova refuses because of the worker."""
    said = words(error)
    if "requested_destination" in said:
        return Denied(
            f"this user may not choose the worker {host}",
            why=said,
            remedy="leave out the sliver's host, or use an administrator's credentials",
        )
    return _no_host(host, said) if f"Compute host {host} " in said else None


def _refuse_image(image: GlanceImage, flavor: Flavor | None, sliver: NodeSliver) -> None:
    """Raise InvalidSliver if the image needs more than the flavor has, or the capacities."""
    wanted = sliver.capacities
    disk, ram = (flavor.disk, flavor.ram) if flavor else (wanted.disk, wanted.ram * MIB)
    named = "flavor" if sliver.flavor else ""
    refuse_small_disk(disk, least_disk(image), image.name, named or "capacities.disk")
    if ram < (image.min_ram or 0):
        raise InvalidSliver(
            f"{ram} MiB of memory are too few for image {image.name}",
            remedy=f"ask for {image.min_ram} MiB or more",
            field=named or "capacities.ram",
        )


def _refuse_shrinking(server: NovaServer, flavor: Flavor, sliver: NodeSliver) -> None:
    if flavor.disk < server.flavor.disk:
        raise InvalidSliver(
            f"the root disk cannot shrink from {server.flavor.disk} GiB to {flavor.disk} GiB",
            field="flavor" if sliver.flavor else "capacities.disk",
        )


def _domain_name(record: ServerRecord) -> str:
    return f"domain {record.domain or record.id} of server {record.id}"


def _has_outlived(record: ServerRecord) -> NotVerified:
    return NotVerified(
        f"{_domain_name(record)} is still there, though Nova has removed the server",
        where=record.worker,
        remedy="look whether nova-compute runs there; it removes what it finds deleted",
    )


def _has_domain(uri: str, uuid: str) -> bool:
    import libvirt  # noqa: PLC0415 - only where the site knows the libvirt of a worker

    from fabric_direct.drivers.libvirt.connection import connections  # noqa: PLC0415

    what, absent = "look for the domain of a deleted server", libvirt.VIR_ERR_NO_DOMAIN
    with connections.translated(what, uri), connections.Ignoring(absent):
        connections.connect(uri).lookupByUUIDString(uuid)
        return True
    return False
