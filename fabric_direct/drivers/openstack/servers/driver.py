"""Servers in Nova."""

from functools import partial
from typing import ClassVar

from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server as NovaServer
from openstack.connection import Connection
from openstack.exceptions import (
    BadRequestException,
    ForbiddenException,
    HttpException,
    NotFoundException,
)
from openstack.image.v2.image import Image as GlanceImage

from fabric_direct.config import Site
from fabric_direct.deadline import Deadline, wait_until
from fabric_direct.drivers.contract import (
    HostInventory,
    Image,
    ImageNeeds,
    Plug,
    Port,
    Server,
    ServerSpec,
    Volume,
)
from fabric_direct.drivers.guests.cloudinit import user_data
from fabric_direct.drivers.openstack.client.errors import make_once, translated, words
from fabric_direct.drivers.openstack.client.name_cache import names
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.drivers.openstack.client.stamp import server_metadata
from fabric_direct.drivers.openstack.networks.port_records import ports_of
from fabric_direct.drivers.openstack.servers.flavors import MIB, ensure_flavor, flavor_of
from fabric_direct.drivers.openstack.servers.hotplug import Hotplug, volumes_in_use
from fabric_direct.drivers.openstack.servers.inventory import (
    image_needs,
    least_disk,
    read_inventory,
)
from fabric_direct.drivers.openstack.servers.lifecycle import ServerLifecycle
from fabric_direct.drivers.openstack.servers.request import (
    attached_ids,
    encoded,
    ports_of_project,
    read_plug,
    read_server,
    read_volumes,
    server_name,
    server_request,
    servers_of_site,
)
from fabric_direct.drivers.openstack.volumes.driver import volumes_of
from fabric_direct.drivers.read_cache import ReadCache
from fabric_direct.errors import (
    Denied,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotOurs,
    NotVerified,
    TimedOut,
    Unsupported,
)
from fabric_direct.model import (
    NodeSliver,
    Stamp,
    State,
    VNicInterface,
)

# Seconds that libvirt may take to remove the domain of a server that Nova has deleted.
_DOMAIN_GONE = 30.0


class OpenStackCompute:
    """The :class:`~fabric_direct.drivers.contract.ComputeDriver` of a cloud.

    A server is found by a tag that is derived from the site and the sliver; its metadata hold the stamp.
    If several have the tag, the oldest is the sliver's, and all are deleted with it. The root disk is on
    the worker. A data volume has the first 20 characters of its id as its serial number, and its
    component as the tag of the device, which the guest finds in Nova's metadata.

    A sliver's worker is requested by Nova's ``host``, not by an availability zone ``nova:<worker>``:
    that would bypass the scheduler, fill a worker that is full or out of service, and bind the server
    to it for good. ``host`` needs an administrator.

    :param site: the site.
    :param host: name of the worker, or empty; a cloud serves all.
    """

    cloud: ClassVar[bool] = True

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - as for all drivers
        if site.openstack is None:
            raise InvalidSite("is missing, and the driver 'openstack' needs it", field="openstack")
        self._site, self._settings, self._limits = site, site.openstack, site.limits
        self._where = f"cloud {site.openstack.cloud}"

    def _connection(self) -> Connection:
        return cloud(self._settings, call_limit=self._limits.call)

    def _lifecycle(self, sliver_id: str) -> ServerLifecycle:
        return ServerLifecycle(self._connection(), self._site, sliver_id, self._where)

    def _hotplug(self, sliver_id: str) -> Hotplug:
        return Hotplug(self._lifecycle(sliver_id), self._limits.call)

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
        with translated(f"look whether sliver {sliver.id} can be had", self._where):
            lifecycle = self._lifecycle(sliver.id)
            ours = lifecycle.readable()
            flavor = flavor_of(lifecycle.cloud, sliver, make=self._settings.make_flavors)
            _refuse_image(names(lifecycle.cloud).image(image.name), flavor, sliver)
            self._refuse_host(lifecycle.cloud, sliver.host)
            self._refuse_taken_name(
                lifecycle.cloud, server_name(sliver), {found.id for found in ours}
            )

    def _refuse_host(self, cloud: Connection, host: str | None) -> None:
        if host is None:
            return
        known = _hosts(cloud)
        if known and host not in known:
            names(cloud).forget("host")
            known = _hosts(cloud)
        if known and host not in known:
            raise self._no_host(host, f"known: {', '.join(known)}")

    def _no_host(self, host: str | None, why: str) -> InvalidSliver:
        return InvalidSliver(f"no compute host {host!r}", where=self._where, why=why, field="host")

    def _refuse_taken_name(self, cloud: Connection, name: str, ours: set[str]) -> None:
        for server in cloud.compute.servers(details=False, name=f"^{name}$"):
            if server.name == name and server.id not in ours:
                raise NotOurs(
                    f"server {name} is not this sliver's",
                    where=self._where,
                    why=f"server {server.id} has not its tag",
                    remedy="rename or remove it, or give the node another name",
                )

    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the workers that the site names, or all of the cloud if it names none.

        Cached images are left out: Nova does not report them, and Glance serves all workers. So are NUMA
        nodes, which Placement does not have.

        :raises Denied: if the user is not an administrator.
        """
        with translated("read what the workers have", self._where):
            return read_inventory(
                self._connection(), self._site.site, self._site.hosts, self._where
            )

    def image_needs(self, image: Image) -> ImageNeeds:
        """Return what the image requires according to Glance: architecture, traits, memory and disk.

        :raises InvalidSliver: with the field ``image`` if there is none.
        """
        with translated(f"read what image {image.name} needs", self._where):
            return image_needs(names(self._connection()).image(image.name))

    # --- read

    def find(self, sliver_id: str) -> Server | None:
        """Return the server with the sliver's stamp, or None.

        One with its tag, but no readable stamp, does not count; ``delete`` deletes it, too.
        """
        with translated(f"look for the server of {sliver_id}", self._where):
            lifecycle = self._lifecycle(sliver_id)
            found = lifecycle.server()
            return None if found is None else self._read(lifecycle, found)

    def _read(self, lifecycle: ServerLifecycle, found: NovaServer) -> Server | None:
        own = (
            volumes_of(lifecycle.cloud, lifecycle.site, lifecycle.sliver)
            if attached_ids(found)
            else []
        )
        ports = ports_of(lifecycle.cloud, lifecycle.site, lifecycle.sliver)
        return read_server(found, ports, read_volumes(lifecycle.cloud, found, own))

    def servers(self) -> tuple[Server, ...]:
        """Return all servers of the site, one for each sliver."""
        with translated("list the servers", self._where):
            cloud = self._connection()
            found = servers_of_site(cloud, self._site.site)
            ports = ports_of_project(cloud) if found else []
            has_volumes = any(attached_ids(server) for server in found)
            own = volumes_of(cloud, self._site.site) if has_volumes else []
            read = [read_server(s, ports, read_volumes(cloud, s, own)) for s in reversed(found)]
        return tuple({server.sliver: server for server in read if server is not None}.values())

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every server with the sliver's tag, also one without a readable stamp."""
        with translated(f"look for what is left of {sliver_id}", self._where):
            found = self._lifecycle(sliver_id).servers()
        return tuple(f"server {s.name} ({s.id}, {s.status})" for s in found)

    def console(self, sliver_id: str, lines: int) -> str:
        """Return the last ``lines`` lines that the guest wrote to its serial console.

        :raises NotFound: if there is no such server.
        :raises Conflict: if it is on no worker yet.
        """
        with translated(f"read the console of {sliver_id}", self._where):
            lifecycle = self._lifecycle(sliver_id)
            server = lifecycle.the()
            # A POST that changes nothing: it invalidates a cache of its own, not the caller's.
            with ReadCache().active():
                said = lifecycle.cloud.compute.get_server_console_output(server.id, length=lines)
        return "\n".join(str(said["output"] or "").splitlines()[-lines:] if lines > 0 else [])

    # --- create and delete

    def create(self, spec: ServerSpec) -> Server:
        """Return the sliver's server, running; create it with ports and volumes if it is not there.

        One request creates it. If the response is lost, the server is looked for by its tag. A server
        that went to ERROR before it was ever active was left by an interrupted call; it is replaced.

        :raises DriverError: if it goes to ERROR, with Nova's reason and the state of the worker.
        :raises QuotaExceeded: if the project's quota is used up.
        :raises Denied: if the sliver names a worker, and the user may not choose one.
        :raises Conflict: if one of its volumes or ports is in use, with Nova's reason.
        :raises InvalidSliver: with the field ``host`` if there is no such worker, and as :meth:`check`.
        :raises NotVerified: if a server has the sliver's tag, but no readable stamp.
        """
        sliver = spec.sliver
        with translated(f"make the server of {sliver.id}", self._where):
            lifecycle = self._lifecycle(sliver.id)
            server = lifecycle.usable() or self._make(lifecycle, spec)
            lifecycle.power_on(server, Deadline.within(self._limits.create))
        return self._running(sliver.id)

    def _make(self, lifecycle: ServerLifecycle, spec: ServerSpec) -> NovaServer:
        make = partial(self._post, lifecycle.cloud, spec)
        try:
            with volumes_in_use(self._where):
                return make_once(make, lifecycle.server, timeout=self._limits.call)
        except (BadRequestException, ForbiddenException) as error:
            raise self._refusal(error, spec.sliver.host) or error from error

    def _post(self, cloud: Connection, spec: ServerSpec) -> NovaServer:
        """Send the request; again if a cached id of flavor or image has become unknown."""
        flavor = ensure_flavor(cloud, spec.sliver, make=self._settings.make_flavors)
        try:
            return self._post_with(cloud, spec, flavor)
        except BadRequestException as error:
            if flavor.id not in words(error):
                raise
        names(cloud).forget("flavor")
        flavor = ensure_flavor(cloud, spec.sliver, make=self._settings.make_flavors)
        return self._post_with(cloud, spec, flavor)

    def _post_with(self, cloud: Connection, spec: ServerSpec, flavor: Flavor) -> NovaServer:
        def post(image: str) -> NovaServer:
            request = server_request(
                self._site.site, self._settings, spec, image=image, flavor=flavor.id
            )
            return cloud.compute.create_server(**request)

        return names(cloud).resolved("image", spec.image.name, post)

    def _refusal(self, error: HttpException, host: str | None) -> FabricDirectError | None:
        """Return the error if Nova refuses because of the worker."""
        said = words(error)
        if "requested_destination" in said:
            return Denied(
                f"this user may not choose the worker {host}",
                where=self._where,
                why=said,
                remedy="leave out the sliver's host, or use an administrator's credentials",
            )
        return self._no_host(host, said) if f"Compute host {host} " in said else None

    def delete(self, sliver_id: str) -> None:
        """Delete every server with the sliver's tag; when the call returns, they are gone.

        So are their domains on workers whose libvirt the site configures.

        :raises Conflict: if one is locked, with Nova's reason.
        :raises NotVerified: if Nova cannot delete one, or its domain remains.
        :raises TimedOut: if one remains.
        """
        with translated(f"delete the server of {sliver_id}", self._where):
            lifecycle = self._lifecycle(sliver_id)
            servers = lifecycle.servers()
            lifecycle.remove(servers)
        for server in servers:
            self._verify_no_domain(server)

    def _verify_no_domain(self, server: NovaServer) -> None:
        if server.compute_host not in self._site.hosts:
            return
        uri = self._site.host(server.compute_host).libvirt
        name = f"domain {server.instance_name} of server {server.id}"
        try:
            gone = partial(_has_no_domain, uri, server.id)
            wait_until(f"{name} to be gone", gone, timeout=_DOMAIN_GONE, where=uri)
        except TimedOut as error:
            raise NotVerified(
                f"{name} is still there, though Nova has removed the server",
                where=uri,
                remedy="look whether nova-compute runs there; it removes what it finds deleted",
            ) from error

    # --- power

    def start(self, sliver_id: str) -> None:
        """Start the server if it is stopped; wait for one that is being built.

        :raises NotFound: if there is none.
        :raises NotVerified: if it is not active then, for example because it is paused.
        """
        with translated(f"start the server of {sliver_id}", self._where):
            lifecycle = self._lifecycle(sliver_id)
            lifecycle.power_on(lifecycle.now(), Deadline.within(self._limits.poa))

    def stop(self, sliver_id: str, *, timeout: float) -> None:
        """Shut the guest down; when the call returns, it is off.

        Nova asks the guest (ACPI), and cuts the power after the image's ``os_shutdown_timeout``, or
        ``shutdown_timeout`` of its configuration, 60 s by default.

        :raises NotFound: if there is no such server.
        :raises TimedOut: if it is not off after ``timeout`` seconds; Nova continues.
        """
        with translated(f"stop the server of {sliver_id}", self._where):
            lifecycle = self._lifecycle(sliver_id)
            lifecycle.power_off(lifecycle.now(), Deadline.within(timeout))

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:
        """Restart the guest; when the call returns, Nova has recorded the success.

        A soft reboot becomes a hard one if the guest does not shut down within
        ``libvirt.wait_soft_reboot_seconds``, 120 s by default. Nova does not report which it was.

        :raises NotFound: if there is no such server.
        :raises TimedOut: if it takes longer than ``timeout`` seconds.
        :raises DriverError: if it fails, with Nova's reason.
        """
        with translated(f"reboot the server of {sliver_id}", self._where):
            lifecycle, deadline = self._lifecycle(sliver_id), Deadline.within(timeout)
            server = lifecycle.settled(lifecycle.now(), deadline)
            lifecycle.reboot(server, "HARD" if hard else "SOFT", deadline)

    def resize(self, stamp: Stamp) -> None:
        """Resize the server to the flavor that its new stamp needs, and write the stamp.

        Nova stops the server meanwhile, and may move it to another worker unless the sliver names its
        own. It runs afterwards if it ran before.

        :raises InvalidSliver: as :meth:`check`; with the field ``capacities.disk`` or ``flavor`` if the
            root disk would shrink.
        :raises Conflict: if the worker that the sliver names has no room; nothing has changed then.
        :raises DriverError: if it fails, with Nova's reason.
        """
        sliver = stamp.sliver
        with translated(f"resize the server of {sliver.id}", self._where):
            lifecycle, deadline = self._lifecycle(sliver.id), Deadline.within(self._limits.poa)
            flavor = ensure_flavor(lifecycle.cloud, sliver, make=self._settings.make_flavors)
            server = lifecycle.settled(lifecycle.now(), deadline)
            _refuse_shrinking(server, flavor, sliver)
            lifecycle.resize(server, flavor, sliver.host, deadline)
        self.write_stamp(sliver.id, stamp)

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace the server's stamp, in one request.

        :raises NotFound: if there is no such server.
        """
        with translated(f"write the stamp of {sliver_id}", self._where):
            lifecycle = self._lifecycle(sliver_id)
            metadata = server_metadata(self._site.site, stamp)
            lifecycle.cloud.compute.set_server_metadata(lifecycle.the().id, **metadata)

    # --- hot plug

    def attach_port(self, sliver_id: str, port: Port, interface: VNicInterface) -> None:
        """Plug a NIC in unless it is, also for later starts; if the server runs, its port is active.

        :raises NotFound: if there is no such server.
        :raises Unsupported: if the interface has a bandwidth.
        """
        self.set_bandwidth(sliver_id, port.component, interface.bandwidth)
        with translated(f"plug {port.component} into the server of {sliver_id}", self._where):
            self._hotplug(sliver_id).plug_port(port, self._limits.modify)

    def detach_port(
        self, sliver_id: str, component: str, *, timeout: float, holder: str | None = None
    ) -> None:
        """Unplug a NIC, also for later starts; on return the guest has released it.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises TimedOut: if the guest does not release it in time. It is still plugged in then.
        """
        with translated(f"unplug {component} from the server of {sliver_id}", self._where):
            self._hotplug(sliver_id).unplug_port(component, timeout, holder or sliver_id)

    def set_bandwidth(
        self,
        sliver_id: str,
        component: str,
        bandwidth: int | None,
        holder: str | None = None,  # noqa: ARG002 - none can be limited
    ) -> None:
        """Raise Unsupported if a limit is asked for: a NIC in a cloud has none."""
        if bandwidth is not None:
            raise Unsupported(
                f"NIC {component} of {sliver_id} cannot be limited to {bandwidth} Mbit/s",
                where=self._where,
                why="bandwidths are not set in a cloud yet",
            )

    def plugs(self, holder: str) -> tuple[Plug, ...]:
        """Return the NICs of servers whose ports another sliver holds.

        A server is ours if it has the site's tag and a readable stamp. A deleted one has no NIC, even
        while Neutron still reports it.
        """
        with translated(f"look where the ports of {holder} are plugged in", self._where):
            cloud, site = self._connection(), self._site.site
            bound = [port for port in ports_of(cloud, site, holder) if port.device_id]
            servers = {name: _server(cloud, name) for name in {port.device_id for port in bound}}
            pairs = [(server, port) for port in bound if (server := servers[port.device_id])]
            return tuple(read_plug(site, server, port, holder) for server, port in pairs)

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a data volume in, now and for later starts, unless it is.

        :raises NotFound: if there is no such server.
        :raises Conflict: if the volume is in use, with Nova's reason.
        :raises DriverError: if it fails, with Nova's reason.
        """
        with translated(f"plug {component} into the server of {sliver_id}", self._where):
            self._hotplug(sliver_id).plug_volume(component, volume, self._limits.modify)

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Unplug a data volume, also for later starts; on return the guest has released it.

        :raises TimedOut: if the guest does not release it in time. It is still plugged in then.
        """
        with translated(f"unplug {component} from the server of {sliver_id}", self._where):
            self._hotplug(sliver_id).unplug_volume(component, timeout)

    def _running(self, sliver_id: str) -> Server:
        server = self.find(sliver_id)
        if server is None or server.state is not State.RUNNING:
            state = State.ABSENT if server is None else server.state
            raise NotVerified(
                f"the server of {sliver_id} is {state}, not running", where=self._where
            )
        return server


def _server(cloud: Connection, server_id: str) -> NovaServer | None:
    try:
        return cloud.compute.get_server(server_id)
    except NotFoundException:
        return None


def _refuse_image(image: GlanceImage, flavor: Flavor | None, sliver: NodeSliver) -> None:
    """Raise InvalidSliver if the image needs more than the flavor has, or the capacities."""
    wanted = sliver.capacities
    disk, ram = (flavor.disk, flavor.ram) if flavor else (wanted.disk, wanted.ram * MIB)
    needs = least_disk(image)
    named = "flavor" if sliver.flavor else ""
    if disk < needs:
        raise InvalidSliver(
            f"a disk of {disk} GiB is too small for image {image.name}",
            remedy=f"ask for {needs} GiB or more",
            field=named or "capacities.disk",
        )
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


def _hosts(cloud: Connection) -> tuple[str, ...]:
    """Return the names of the workers; none if the user may not list them."""
    try:
        return names(cloud).hosts()
    except Denied:
        return ()


def _has_no_domain(uri: str, uuid: str) -> bool:
    import libvirt  # noqa: PLC0415 - only where the site knows the libvirt of a worker

    from fabric_direct.drivers.libvirt.connection.connections import connect, translated  # noqa: PLC0415

    with translated("look for the domain of a deleted server", uri):
        try:
            connect(uri).lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            return True
    return False
