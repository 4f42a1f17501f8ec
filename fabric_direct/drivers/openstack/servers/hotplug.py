"""Plugging ports and volumes into an existing server, and unplugging them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from openstack.block_storage.v3.volume import Volume as CinderVolume
from openstack.compute.v2.server import Server as NovaServer
from openstack.exceptions import BadRequestException, ConflictException

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import Port, Server, Volume
from fabric_direct.drivers.openstack.client.errors import make_once, words
from fabric_direct.drivers.openstack.client.poller import wait_for
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import component_of, description, read_stamp
from fabric_direct.drivers.openstack.networks.port_limits import bandwidths
from fabric_direct.drivers.openstack.networks.port_records import ports_of
from fabric_direct.drivers.openstack.servers import actions
from fabric_direct.drivers.openstack.servers.lifecycle import ServerLifecycle
from fabric_direct.drivers.openstack.servers.request import (
    attached_ids,
    is_settled,
    read_server,
    read_volumes,
    state_of,
)
from fabric_direct.drivers.openstack.volumes.driver import volumes_of
from fabric_direct.errors import Conflict, DriverError, NotFound, TimedOut
from fabric_direct.model import State

# The status of a volume while Nova plugs it in.
_COMING = {"reserved", "attaching"}


class SliverServer(ServerLifecycle):
    """The server of one sliver, with its ports and volumes."""

    def read(self, found: NovaServer) -> Server | None:
        """Return the server as found, or None if its stamp cannot be read."""
        own = self._own_volumes(found)
        ports = self._ports(found)
        limits = bandwidths(self.cloud, ports, description=description(self.site, self.sliver))
        return read_server(found, ports, limits, read_volumes(self.cloud, found, own))

    def _ports(self, found: NovaServer) -> list[Any]:
        """Return the sliver's ports; if the list lacks a NIC of the stamp, all of the server, too."""
        held, stamp = ports_of(self.cloud, self.site, self.sliver), read_stamp(found)
        plugged = {component_of(p, self.sliver) for p in held if p.device_id == found.id}
        if stamp is None or {vnic.id for vnic in stamp.sliver.vnics()} <= plugged:
            return held
        every = {port.id: port for port in self.cloud.network.ports(device_id=found.id)}
        return list((every | {port.id: port for port in held}).values())

    def _own_volumes(self, found: NovaServer) -> list[CinderVolume]:
        return volumes_of(self.cloud, self.site, self.sliver) if attached_ids(found) else []

    # --- ports

    def plug_port(self, port: Port) -> None:
        """Plug a port in unless it is; if the server runs, block until the port is active."""
        server = self.now()
        find = partial(self._port, server, port.sliver, lambda found: found.id == port.source)
        with uncached():
            there = find()
        if there is None:
            create = self.cloud.compute.create_server_interface
            plug = partial(create, server.id, port_id=port.source)
            make_once(plug, find, timeout=self.limits.call)
        what = f"port {port.source} to be up at server {server.id}"
        up, limit = partial(_is_up, server), self.limits.modify
        if wait_for(self.cloud, "port", port.source, up, timeout=limit, what=what) is None:
            raise NotFound(f"port {port.source} is gone")

    def unplug_port(self, component: str, timeout: float, holder: str) -> None:
        """Unplug a port if it is plugged in; block until the guest has released it.

        :param holder: the sliver that holds the port for this component.
        """

        def wanted(port: Any) -> bool:
            return component_of(port, holder) == component

        with uncached():
            server = self.server()
            port = self._port(server, holder, wanted) if server else None
        if server is None or port is None:
            return
        deadline, gone = Deadline.within(timeout), partial(_is_unbound, server)
        self._release(server, port.id, deadline)
        what = f"port {port.id} to be unplugged"
        try:
            limit = deadline.remaining()
            wait_for(self.cloud, "port", port.id, gone, timeout=limit, what=what)
        except TimedOut as error:
            raise self._kept(server, f"NIC {component}", "detach_interface") from error

    def _release(self, server: NovaServer, port_id: str, deadline: Deadline) -> None:
        """Request that Nova unplugs a port; wait for another task on the server first."""
        delete = self.cloud.compute.delete_server_interface
        release = partial(delete, port_id, server.id, ignore_missing=True)
        try:
            release()
        except ConflictException:
            what = f"server {server.id} to be left alone"
            if self.wait(is_settled, [server.id], deadline, what) is not None:
                release()

    def _port(self, server: NovaServer, holder: str, wanted: Callable[[Any], bool]) -> Any:
        held = ports_of(self.cloud, self.site, holder)
        return next((p for p in held if p.device_id == server.id and wanted(p)), None)

    # --- volumes

    def plug_volume(self, component: str, volume: Volume) -> None:
        """Plug a volume in unless it is."""
        server = self.now()
        if volume.source not in attached_ids(server):
            attach = partial(self._attach, server, component, volume.source)
            make_once(attach, partial(self._attached, volume.source), timeout=self.limits.call)
        ended = partial(_has_come, server)
        what = f"volume {volume.source} to be plugged into server {server.id}"
        limit = self.limits.modify
        found = wait_for(self.cloud, "volume", volume.source, ended, timeout=limit, what=what)
        if not _has(server, found):
            raise DriverError(
                f"volume {volume.source} was not plugged in: it is {found.status if found else 'gone'}",
                why=actions.why(self.cloud, server.id, "attach_volume"),
            )

    def unplug_volume(self, component: str, timeout: float) -> None:
        """Unplug a component's volume if it is plugged in; block until the guest has released it."""
        with uncached():
            server = self.server()
            source = self._source(server, component) if server else None
        if server is None or source is None:
            return
        self._detach(server, source)
        try:
            self._until_unplugged(server, source, timeout)
        except TimedOut as error:
            raise self._kept(server, f"volume {component}", "detach_volume") from error

    def _until_unplugged(self, server: NovaServer, source: str, timeout: float) -> None:
        deadline, what = Deadline.within(timeout), f"volume {source} to be unplugged"
        found = wait_for(self.cloud, "volume", source, _has_gone, timeout=timeout, what=what)
        if _has(server, found):
            raise TimedOut(f"{what}: the guest keeps it")
        # Nova tells Cinder first, and removes its own record afterwards.
        self.wait(lambda now: source not in attached_ids(now), [server.id], deadline, what)

    def _source(self, server: NovaServer, component: str) -> str | None:
        disks = read_volumes(self.cloud, server, self._own_volumes(server))
        return next((disk.source for disk in disks if disk.component == component), None)

    def _attach(self, server: NovaServer, component: str, volume_id: str) -> str:
        with volumes_in_use():
            self.cloud.compute.create_volume_attachment(server.id, volume_id, tag=component)
        return volume_id

    def _detach(self, server: NovaServer, volume_id: str) -> None:
        try:
            self.cloud.compute.delete_volume_attachment(server, volume_id, ignore_missing=True)
        except BadRequestException as error:
            # An earlier call is detaching it.
            if "Unable to detach volume" not in words(error):
                raise

    def _attached(self, volume_id: str) -> str | None:
        return volume_id if volume_id in attached_ids(self.server()) else None

    def _kept(self, server: NovaServer, what: str, action: str) -> TimedOut:
        return TimedOut(
            f"{what} is still plugged into server {server.id}",
            why=actions.why(self.cloud, server.id, action) or "the guest did not release it",
            remedy="shut the guest down, or release it there, and try again",
        )


@contextmanager
def volumes_in_use() -> Iterator[None]:
    """Raise Conflict, with Nova's reason, if Nova refuses a volume; Nova calls it a bad request."""
    try:
        yield
    except BadRequestException as error:
        said = words(error)
        if not said.startswith("Invalid volume"):
            raise
        raise Conflict("a volume cannot be plugged in", why=said) from error


def _is_up(server: NovaServer, port: Any) -> bool:
    """Return whether the port is active; that of a server that is off cannot be."""
    runs = state_of(server) is State.RUNNING
    bound = port is not None and port.device_id == server.id
    return port is None or (bound and (port.status == "ACTIVE" or not runs))


def _is_unbound(server: NovaServer, port: Any) -> bool:
    return port is None or port.device_id != server.id


def _has(server: NovaServer, volume: Any) -> bool:
    attachments = volume.attachments or () if volume else ()
    return any(attachment["server_id"] == server.id for attachment in attachments)


def _has_come(server: NovaServer, volume: Any) -> bool:
    """Return whether plugging in has ended; the status of a multiattach volume may not show it."""
    if volume is None or _has(server, volume):
        return volume is None or volume.status == "in-use"
    return not (volume.is_multiattach or volume.status in _COMING)


def _has_gone(volume: Any) -> bool:
    return volume is None or volume.status != "detaching"
