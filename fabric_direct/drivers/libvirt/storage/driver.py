"""Data volumes as files of our storage pool."""

from xml.etree import ElementTree

import libvirt

from fabric_direct.calls.read_cache import read
from fabric_direct.drivers.contract import Stamped, Volume
from fabric_direct.drivers.contract.site_checks import verify_size
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.storage.pool import GIB, OwnPool, owner
from fabric_direct.drivers.libvirt.xml import attribute
from fabric_direct.errors import InvalidSliver, NotFound
from fabric_direct.site.config import Site


class LibvirtVolume:
    """The :class:`~fabric_direct.drivers.contract.VolumeDriver` of a libvirt host.

    All volumes are qcow2 and grow as they are written. Those that an operator puts into the pool's
    directory must be qcow2, too: into a raw one, a guest could write a header that names any file of
    the host.

    :param site: the site.
    :param host: name of the host in the site.
    """

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._uri = site.site, site.host(host).libvirt
        self._store = OwnPool.of(site, host)

    def check(self, name: str) -> None:
        """Raise InvalidSliver unless the operator has put a qcow2 volume of that name into the pool.

        :raises InvalidSliver: with the field ``volume``.
        """
        try:
            self.existing(name)
        except NotFound as error:
            raise InvalidSliver(
                f"there is no volume {name!r}",
                where=error.where,
                why=error.why,
                remedy=f"put a qcow2 file of that name into {self._store.path}",
                field="volume",
            ) from error

    def existing(self, name: str) -> Volume:
        """Return a volume that the operator has put into the pool.

        :raises NotFound: if there is none of that name, it is not qcow2, or the name is reserved for
            slivers.
        """
        with translated(f"look for volume {name}", self._uri):
            found = self._store.refreshed(name)
            why = _unusable(name, found)
            if found is None or why:
                where = f"{self._uri}, {self._store.path}"
                raise NotFound(f"no volume {name!r}", where=where, why=why)
            return Volume(sliver="", component="", source=found.path(), size=_gib(found))

    @read
    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume made for this component, or None."""
        with translated(f"look for the volume of {sliver_id}/{component}", self._uri):
            found = self._store.find(_name(sliver_id, component))
            return None if found is None else _volume(sliver_id, component, found)

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return all volumes made for the sliver."""
        with translated(f"list the volumes of {sliver_id}", self._uri):
            components = self._components(sliver_id)
        found = (self.find(sliver_id, component) for component in components)
        return tuple(volume for volume in found if volume is not None)

    def all_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes made for all slivers: one list, and one look at each."""
        with translated("list the volumes of slivers", self._uri):
            found = map(self._made, self._store.names())
            return tuple(volume for volume in found if volume is not None)

    def _made(self, name: str) -> Volume | None:
        """Return the volume of that name if it was made for a sliver and is still there."""
        sliver_id, between, component = name.partition(_name("", ""))
        found = self._store.find(name) if between and sliver_id else None
        return None if found is None else _volume(sliver_id, component, found)

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Return the component's volume, created empty with ``size`` GiB if it does not exist.

        :raises NotVerified: if it exists with another size.
        """
        with translated(f"make the volume of {sliver_id}/{component}", self._uri):
            made = self._store.create(_name(sliver_id, component), size * GIB)
            volume = _volume(sliver_id, component, made)
        verify_size(volume, size, self._uri)
        return volume

    def delete(self, sliver_id: str, component: str) -> None:
        """Delete the component's volume; it is gone on return."""
        with translated(f"delete the volume of {sliver_id}/{component}", self._uri):
            self._store.delete(_name(sliver_id, component))

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every volume of the sliver that is still there."""
        with translated(f"list the volumes of {sliver_id}", self._uri):
            names = (_name(sliver_id, c) for c in self._components(sliver_id))
            return tuple(f"volume {self._store.file(name)}" for name in names)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all volumes that were made for slivers of the site."""
        with translated("list the volumes", self._uri):
            others = lookup.of_other_sites(connect(self._uri), self._site)
            names = self._store.names()
        mine = ((sliver, n) for n in names if (sliver := _maker(n)) and sliver not in others)
        return tuple(Stamped(sliver, "volume", self._store.file(name)) for sliver, name in mine)

    def _components(self, sliver_id: str) -> list[str]:
        prefix = _name(sliver_id, "")
        return [n.removeprefix(prefix) for n in self._store.names() if n.startswith(prefix)]


def _name(sliver_id: str, component: str) -> str:
    return f"{sliver_id}.volume.{component}"


def _maker(name: str) -> str | None:
    """Return the sliver that a volume was made for, or None if it is none or another file."""
    return owner(name) if name.split(".")[1:2] == ["volume"] else None


def _unusable(name: str, found: libvirt.virStorageVol | None) -> str:
    """Return why the volume may not be attached as an existing one; empty if it may."""
    if owner(name) is not None or name.startswith("probe."):
        return "such names are reserved for slivers"
    return (
        "" if found is None or _format(found) == "qcow2" else f"it is {_format(found)}, not qcow2"
    )


def _format(found: libvirt.virStorageVol) -> str:
    return attribute(ElementTree.fromstring(found.XMLDesc(0)), "target/format", "type") or ""


def _volume(sliver_id: str, component: str, found: libvirt.virStorageVol) -> Volume:
    return Volume(sliver=sliver_id, component=component, source=found.path(), size=_gib(found))


def _gib(found: libvirt.virStorageVol) -> int:
    return -(-int(found.info()[1]) // GIB)
