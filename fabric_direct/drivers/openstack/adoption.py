"""Servers, ports, floating IPs and volumes that others made in the project: found, and stamped.

Only descriptions, tags and metadata are written. What cannot be told from a stamp of ours afterwards is
not overwritten: a port or floating IP with a description of its own is not stamped.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from openstack.block_storage.v3._proxy import Proxy as Cinder
from openstack.compute.v2.server import Server as NovaServer
from openstack.exceptions import NotFoundException, raise_from_response

from fabric_direct.drivers.contract import (
    Adopted,
    FoundPort,
    FoundServer,
    FoundThing,
    FoundVolume,
)
from fabric_direct.drivers.openstack.client.answers import invalid
from fabric_direct.drivers.openstack.client.errors import if_there
from fabric_direct.drivers.openstack.client.hidden_servers import server_by_id
from fabric_direct.drivers.openstack.client.name_cache import is_id
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import (
    ADOPTION,
    COMPONENT,
    COMPONENT_TAG,
    SITE,
    SLIVER,
    UNFINISHED_TAG,
    component_of,
    description,
    read_stamp,
    server_metadata,
    site_tag,
    sliver_tag,
    tagged_component,
    volume_metadata,
)
from fabric_direct.drivers.openstack.networks.neutron import Neutron
from fabric_direct.errors import Conflict, NotOurs
from fabric_direct.model import Stamp

# Nova's first microversion in which a server's tags are changed one by one.
_TAGS = "2.26"
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_STAMP = re.compile(r"fabric-direct ([^/ ]+/[^/ ]+)")


class OpenStackAdoption(Neutron):
    """The :class:`~fabric_direct.drivers.contract.AdoptionDriver` of a cloud."""

    # --- found

    def strangers(self, prefix: str = "") -> tuple[FoundServer, ...]:
        """Return the project's servers whose names begin so and that no sliver of the site has."""
        with self.translated("list the servers of others"), uncached():
            found = self._named(f"^{_escaped(prefix)}" if prefix else None)
            begins = (server for server in found if server.name.startswith(prefix))
            return tuple(self._server(s) for s in begins if not self._is_a_slivers(s))

    def server(self, name: str, *, whole: bool = True) -> FoundServer | None:
        """Return the project's server of that id or exact name.

        :param whole: whether to read its image, ports and volumes as well.
        :raises Conflict: if several have the name.
        """
        with self.translated(f"look for server {name}"), uncached():
            found = self._candidates(name)
            if len(found) > 1:
                ids = ", ".join(server.id for server in found)
                raise Conflict(f"several servers are named {name}", why=ids, remedy="name the id")
            read = self._whole if whole else self._server
            return read(found[0]) if found else None

    def ports_named(self, names: tuple[str, ...]) -> tuple[FoundPort, ...]:
        """Return the project's ports that have one of these ids, names or MAC addresses."""
        with self.translated("list the ports of the project"), uncached():
            found = [port for name in names for port in self._ports_called(name)]
            return tuple(self._ports(self.mine(found)))

    def volume(self, volume: str) -> FoundVolume | None:
        """Return the project's volume of that id."""
        with self.translated(f"look for volume {volume}"), uncached():
            found = if_there(self._cinder().get_volume, volume)
            return _volume(found) if found else None

    def _ports_called(self, name: str) -> list[Any]:
        if is_id(name):
            found = if_there(self.api.get_port, name)
            return [found] if found else []
        key = "mac_address" if _MAC.fullmatch(name) else "name"
        return [port for port in self.api.ports(**{key: name}) if getattr(port, key) == name]

    def _candidates(self, name: str) -> list[NovaServer]:
        if is_id(name):
            found = server_by_id(self.connection(), name)
            return [found] if found and self._is_mine(found) else []
        exact = self._named(f"^{_escaped(name)}$")
        return [server for server in exact if server.name == name]

    def _named(self, pattern: str | None) -> list[NovaServer]:
        asked: dict[str, Any] = {"name": pattern} if pattern else {}
        return list(self.connection().compute.servers(details=True, **asked))

    def _is_mine(self, server: NovaServer) -> bool:
        """Return whether a server is the project's: by id an administrator gets those of all."""
        return server.project_id in {None, self.connection().current_project_id}

    def _is_a_slivers(self, server: NovaServer) -> bool:
        return self._is_tagged(server) and _adopted(server) is not Adopted.UNFINISHED

    def _is_tagged(self, server: NovaServer) -> bool:
        stamp = read_stamp(server)
        wanted = {site_tag(self.site.site)}
        wanted |= {sliver_tag(self.site.site, stamp.sliver.id)} if stamp else set()
        return stamp is not None and wanted <= set(server.tags or ())

    def _server(self, found: NovaServer, image: str | None = None, **parts: Any) -> FoundServer:
        flavor, metadata = found.flavor, found.metadata or {}
        if flavor is None:
            raise invalid(found, "flavor", "it is missing")
        return FoundServer(
            id=found.id,
            name=found.name or "",
            host=found.compute_host or "",
            cores=flavor.vcpus,
            ram=flavor.ram,
            disk=flavor.disk,
            flavor=flavor.original_name or flavor.name,
            image=image,
            hostname=metadata.get("hostname"),
            owner=_owner(metadata),
            stamp=read_stamp(found),
            tagged=self._is_tagged(found),
            adopted=_adopted(found),
            **parts,
        )

    def _image(self, found: NovaServer) -> str | None:
        """Return the name of a server's image; one that boots from a volume has none."""
        image = (found.image or {}).get("id")
        if not image:
            return None
        known = if_there(self.connection().image.get_image, image)
        return known.name if known else None

    def _whole(self, found: NovaServer) -> FoundServer:
        bound = self.mine(self.api.ports(device_id=found.id))
        volumes = tuple(self._volumes(found))
        ports, image = tuple(self._ports(bound)), self._image(found)
        return self._server(found, image, ports=ports, volumes=volumes)

    def _ports(self, ports: Iterable[Any]) -> Iterator[FoundPort]:
        api = self.api
        for port in ports:
            mine = self.mine(api.ips(port_id=port.id))
            floating = tuple(_floating(ip) for ip in mine if ip.port_id == port.id)
            owner = _described(port)
            yield FoundPort(
                id=port.id,
                name=port.name or "",
                owner=owner,
                component=component_of(port, owner.partition("/")[2]) if owner else "",
                mac=port.mac_address,
                network=self.known(port.network_id).network.name,
                network_id=port.network_id,
                addresses=tuple(ip["ip_address"] for ip in port.fixed_ips),
                server=port.device_id or "",
                floating=floating,
                unfinished=UNFINISHED_TAG in (port.tags or ()),
            )

    def _volumes(self, server: NovaServer) -> Iterator[FoundVolume]:
        for attached in server.attached_volumes or ():
            if volume := if_there(self._cinder().get_volume, attached.id):
                yield _volume(volume)

    def _cinder(self) -> Cinder:
        return cast(Cinder, self.connection().block_storage)

    # --- servers

    def stamp_server(self, server: str, stamp: Stamp, *, finished: bool) -> None:
        """Write metadata first, and the sliver's tag, by which it is found, last.

        What is finished has its tags.
        """
        site = self.site.site
        how = Adopted.DONE if finished else Adopted.UNFINISHED
        metadata = {**server_metadata(site, stamp), ADOPTION: how.value}
        with self.translated(f"stamp server {server}"):
            self.connection().compute.set_server_metadata(server, **metadata)
            for tag in () if finished else (site_tag(site), sliver_tag(site, stamp.sliver.id)):
                self._change_tag("put", f"/servers/{server}/tags/{tag}")

    def unstamp_server(self, server: str, sliver: str) -> None:
        """Remove the sliver's tag first, and the metadata last."""
        site = self.site.site
        with self.translated(f"remove the stamp of server {server}"):
            for tag in (sliver_tag(site, sliver), site_tag(site)):
                self._change_tag("delete", f"/servers/{server}/tags/{tag}")
            found = server_by_id(self.connection(), server)
            keys = [k for k in (found.metadata if found else {}) if k.startswith("fabric-direct:")]
            self.connection().compute.delete_server_metadata(server, sorted(keys))

    def _change_tag(self, method: str, path: str) -> None:
        """Add or remove a tag of a server; one that is not there is removed."""
        response = getattr(self.connection().compute, method)(path, microversion=_TAGS)
        if not (method == "delete" and response.status_code == 404):
            raise_from_response(response)

    # --- ports and floating IPs

    def stamp_port(self, port: str, sliver: str, component: str, *, finished: bool = True) -> None:
        """Write the tags of a port first, and its description, by which it is found, last."""
        with self.translated(f"stamp port {port}"):
            found = self.api.get_port(port)
            self._refuse_described(found, f"port {port}", sliver)
            self._describe("ports", found, sliver, component, () if finished else (UNFINISHED_TAG,))

    def unstamp_port(self, port: str) -> None:
        """Empty the description of a port first, and remove its tags last."""
        with self.translated(f"remove the stamp of port {port}"):
            found = if_there(self.api.get_port, port)
            if found is not None:
                self._undescribe("ports", found)

    def stamp_floating_ip(self, address: str, sliver: str, component: str) -> None:
        """Write the tag of a floating IP first, and its description, by which it is found, last."""
        with self.translated(f"stamp floating IP {address}"):
            found = self.api.get_ip(address)
            self._refuse_described(found, f"floating IP {found.floating_ip_address}", sliver)
            self._describe("floatingips", found, sliver, component)

    def unstamp_floating_ip(self, address: str) -> None:
        """Empty the description of a floating IP first, and remove its tag last."""
        with self.translated(f"remove the stamp of floating IP {address}"):
            found = if_there(self.api.get_ip, address)
            if found is not None:
                self._undescribe("floatingips", found)

    def _refuse_described(self, found: Any, what: str, sliver: str) -> None:
        """Raise NotOurs if a description would be lost, or somebody else has stamped it meanwhile."""
        if found.description not in {None, "", description(self.site.site, sliver)}:
            raise NotOurs(f"{what} is not to be stamped", why=f"it says: {found.description!r}")

    def _describe(
        self, kind: str, found: Any, sliver: str, component: str, marks: tuple[str, ...] = ()
    ) -> None:
        stamp = description(self.site.site, sliver)
        tags = [*_foreign_tags(found), f"{COMPONENT_TAG}{component}", *marks]
        if sorted(found.tags or ()) != sorted(tags):
            self._put(f"/{kind}/{found.id}/tags", {"tags": tags})
        if found.description != stamp:
            self._put(f"/{kind}/{found.id}", {kind[:-1]: {"description": stamp}})

    def _undescribe(self, kind: str, found: Any) -> None:
        if _STAMP.fullmatch(found.description or ""):
            self._put(f"/{kind}/{found.id}", {kind[:-1]: {"description": ""}})
        if (kept := _foreign_tags(found)) != list(found.tags or ()):
            self._put(f"/{kind}/{found.id}/tags", {"tags": kept})

    def _put(self, path: str, body: dict[str, Any]) -> None:
        raise_from_response(self.api.put(path, json=body))

    # --- volumes

    def stamp_volume(self, volume: str, sliver: str, component: str) -> None:
        """Write the metadata of a volume, in one request."""
        stamp = volume_metadata(self.site.site, sliver, component)
        with self.translated(f"stamp volume {volume}"):
            self._cinder().set_volume_metadata(volume, **stamp)

    def unstamp_volume(self, volume: str) -> None:
        """Remove the metadata of a volume; what says whose it is, first."""
        with self.translated(f"remove the stamp of volume {volume}"):
            found = if_there(self._cinder().get_volume, volume)
            for key in (k for k in (SLIVER, SITE, COMPONENT) if found and k in found.metadata):
                self._forget(volume, key)

    def _forget(self, volume: str, key: str) -> None:
        response = self._cinder().delete(f"/volumes/{volume}/metadata/{key}")
        try:
            raise_from_response(response)
        except NotFoundException:
            return


def _escaped(name: str) -> str:
    """Return a name as a pattern of Nova's database; what is the same in each is not escaped."""
    return re.sub(r"([^A-Za-z0-9_-])", r"\\\1", name)


def _adopted(server: NovaServer) -> Adopted:
    said = (server.metadata or {}).get(ADOPTION)
    return Adopted(said) if said in set(Adopted) else Adopted.NO


def _owner(metadata: dict[str, str]) -> str:
    """Return ``<site>/<sliver>`` of metadata, or an empty text."""
    site, sliver = metadata.get(SITE), metadata.get(SLIVER)
    return f"{site}/{sliver}" if site and sliver else ""


def _described(thing: Any) -> str:
    """Return ``<site>/<sliver>`` of a description; a description of others as it is."""
    said = thing.description or ""
    match = _STAMP.fullmatch(said)
    return match[1] if match else str(said)


def _volume(found: Any) -> FoundVolume:
    owner, component = _owner(found.metadata), found.metadata.get(COMPONENT, "")
    return FoundVolume(found.id, found.name or "", owner, component, found.size or 0)


def _floating(ip: Any) -> FoundThing:
    return FoundThing(ip.id, ip.floating_ip_address, _described(ip), tagged_component(ip))


def _foreign_tags(thing: Any) -> list[str]:
    """Return the tags that are not ours."""
    return [tag for tag in thing.tags or () if not tag.startswith("fabric-direct-")]
