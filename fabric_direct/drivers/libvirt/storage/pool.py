"""The libvirt directory pool that holds our disks, and the volumes in it by name.

::

    <sliver>.root                 root disk, a qcow2 overlay on its image
    <sliver>.seed                 NoCloud seed
    <sliver>.volume.<component>   data volume, qcow2
    <sliver>.console/             a pool of its own: what the guest wrote to its serial console
        log, log.<n>              its latest part, and older ones
    probe.<hex>                   exists only while an image is examined
    anything else                 put there by the operator, qcow2: attached, never created or deleted

Ids have no dot, so a name says whose it is. The pool is the stamp: its UUID is derived from its
directory, and it is created on first use. All of it goes through libvirt, so remote hosts work as well.

libvirt reads the first bytes of every file of a pool, and some contents make it stop the whole pool. So
no file of the pool may begin with what a guest wrote: disks are qcow2, whose header is QEMU's, and each
console log, which is raw, has a pool of its own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls.deadline import Deadline, trying_again
from fabric_direct.calls.read_cache import current, read
from fabric_direct.drivers.libvirt.connection.connections import Ignoring, connect
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE, render
from fabric_direct.errors import InvalidSliver, NotOurs
from fabric_direct.site.config import Site

GIB = 1024**3
_DEFAULT_PATH = Path("/var/lib/fabric-direct/volumes")
# The file that a guest's console is written to; virtlogd adds ".0", ".1" … to older parts of it.
CONSOLE = "log"
_KINDS = {"root", "seed", "console", "volume"}

# A pool in which another thread or process creates a volume cannot be refreshed, and a volume that is
# being written cannot be deleted: libvirt answers with these codes at once. Both pass.
_BUSY = {libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_OPERATION_INVALID}
_PATIENCE, _PAUSE = 10.0, 0.05

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backing:
    """An image file on the host."""

    path: str
    format: str
    """``qcow2`` or ``raw``."""
    size: int
    """Bytes that an overlay on it has at least."""


def owner(name: str) -> str | None:
    """Return the id of the sliver that a volume's name names, or None if it names none."""
    sliver, _, rest = name.partition(".")
    return sliver if rest.split(".")[0] in _KINDS else None


class OwnPool:
    """A storage pool of ours on one host.

    Native errors pass through: the caller translates them.

    :param uri: libvirt's URI of the host.
    :param path: absolute path of the pool's directory.
    :param name: name of the pool.
    """

    def __init__(self, uri: str, path: Path, name: str) -> None:
        self.uri, self.path, self.name = uri, path, name
        self.uuid = _uuid(path)

    @classmethod
    def of(cls, site: Site, host: str) -> Self:
        """Return the site's pool for disks: ``volume_pool``, or ``volumes`` below ``state_dir``."""
        path = (site.volume_pool or site.state_dir / "volumes").absolute()
        name = "fabric-direct" if path == _DEFAULT_PATH else f"fabric-direct-{_uuid(path).hex[:8]}"
        return cls(site.host(host).libvirt, path, name)

    def console(self, sliver_id: str) -> "OwnPool":
        """Return the pool below this one that holds the console log of a sliver."""
        name = f"{sliver_id}.console"
        return OwnPool(self.uri, self.path / name, f"{self.name}.{name}")

    def consoles(self) -> tuple[str, ...]:
        """Return the slivers that have a pool for their console log."""
        prefix, end = f"{self.name}.", ".console"
        names = (pool.name() for pool in connect(self.uri).listAllStoragePools())
        ours = (name for name in names if name.startswith(prefix) and name.endswith(end))
        return tuple(sorted(name.removeprefix(prefix).removesuffix(end) for name in ours))

    def pool(self) -> libvirt.virStoragePool:
        """Return the pool, active; it is created if it does not exist.

        :raises NotOurs: if a pool of its name or directory is not ours.
        """
        found = self._find_pool()
        if found is None:
            found = _started(self._define_pool())
            if reads := current():  # also a plan makes the pool, to look at an image
                reads.invalidate()
        return found

    def find(self, name: str) -> libvirt.virStorageVol | None:
        """Return the volume of that name, or None."""
        pool = self._find_pool()
        with Ignoring(libvirt.VIR_ERR_NO_STORAGE_VOL):
            return pool.storageVolLookupByName(name) if pool else None
        return None

    def refreshed(self, name: str) -> libvirt.virStorageVol | None:
        """Return the volume of that name, or None, after a refresh if libvirt does not know it."""
        return self.find(name) or (self.find(name) if self.names() else None)

    @read
    def names(self) -> tuple[str, ...]:
        """Return the names of all volumes, after a refresh of the pool."""
        pool = self._find_pool()
        if pool is None:
            return ()
        _patiently(pool.refresh, 0)
        return tuple(sorted(pool.listVolumes()))

    def available(self) -> int:
        """Return the bytes that are free for volumes."""
        pool = self.pool()
        _patiently(pool.refresh, 0)
        return int(pool.info()[3])

    def room(self) -> tuple[int, int]:
        """Return the bytes available for volumes in total, and those that the volumes may grow to.

        Other files on the pool's file system are not counted.
        """
        available, volumes = self.available(), self.pool().listAllVolumes()
        sizes = [size for size in map(_sizes, volumes) if size]
        return available + sum(now for now, _ in sizes), sum(max(size) for size in sizes)

    def file(self, name: str) -> str:
        """Return the absolute path that a volume of that name has or would have."""
        return str(self.path / name)

    def create(
        self, name: str, capacity: int | None, backing: Backing | None = None, kind: str = "qcow2"
    ) -> libvirt.virStorageVol:
        """Return the volume of that name, created if it does not exist.

        :param capacity: bytes; None takes the size of its backing image.
        :param kind: ``qcow2`` or ``raw``.
        """
        pool = self.pool()
        values = {"name": name, "capacity": capacity, "backing": backing, "format": kind}
        with Ignoring(libvirt.VIR_ERR_STORAGE_VOL_EXIST):
            return pool.createXML(render("volume.xml.j2", **values))
        return pool.storageVolLookupByName(name)

    def upload(self, name: str, content: bytes) -> libvirt.virStorageVol:
        """Replace the volume of that name with a raw one of this content."""
        self.delete(name)
        volume = self.create(name, len(content), kind="raw")
        stream = volume.connect().newStream()
        volume.upload(stream, 0, len(content))
        with _finished(stream):
            while content:
                content = content[stream.send(content) :]
        return volume

    def tail(self, name: str, at_most: int) -> bytes:
        """Return the last bytes of a file in the pool; empty if it does not exist."""
        volume = self.refreshed(name)
        if volume is None:
            return b""
        # The file's own length: a capacity would be read from a header, which the guest may have forged.
        length = volume.infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)[2]
        stream = volume.connect().newStream()
        volume.download(stream, max(0, length - at_most), min(length, at_most))
        with _finished(stream):
            return b"".join(iter(lambda: stream.recv(65_536), b""))

    def delete(self, name: str) -> None:
        """Delete the volume of that name; it is gone on return."""
        volume = self.find(name)
        if volume is not None:
            _patiently(_delete, volume)

    def is_there(self) -> bool:
        """Return whether the pool is defined, active or not."""
        return any(pool.name() == self.name for pool in connect(self.uri).listAllStoragePools())

    def remove(self) -> None:
        """Delete the pool with its files and its directory; they are gone on return."""
        for name in self.names():
            self.delete(name)
        pool = self._find_pool()
        if pool is not None:
            pool.destroy()
            pool.delete(0)
            pool.undefine()

    def backing(self, path: str) -> Backing:
        """Return the image at that path of the host.

        A temporary overlay is created on it: the only way for libvirt to examine a path outside of its
        pools, also on remote hosts.

        :raises InvalidSliver: with the field ``image`` if there is none that QEMU can read.
        """
        for kind in ("qcow2", "raw"):
            try:
                return self._overlay(path, kind)
            except libvirt.libvirtError as error:
                if not _refused_image(error):
                    raise
                refused = error
        raise _bad_image(path, self.uri, refused) from refused

    def _overlay(self, path: str, kind: str) -> Backing:
        volume = self.create(f"probe.{uuid4().hex}", None, Backing(path, kind, 0))
        try:
            return Backing(path, kind, int(volume.info()[1]))
        finally:
            _patiently(_delete, volume)

    @read
    def _find_pool(self) -> libvirt.virStoragePool | None:
        with Ignoring(libvirt.VIR_ERR_NO_STORAGE_POOL):
            pool = connect(self.uri).storagePoolLookupByName(self.name)
            path = ElementTree.fromstring(pool.XMLDesc(0)).findtext("target/path")
            if (pool.UUIDString(), path) != (str(self.uuid), str(self.path)):
                raise self._not_ours(f"its directory is {path}")
            return _started(pool)
        return None

    def _define_pool(self) -> libvirt.virStoragePool:
        xml = render("pool.xml.j2", name=self.name, uuid=self.uuid, path=self.path)
        try:
            return connect(self.uri).storagePoolDefineXML(xml, 0)
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_OPERATION_FAILED:
                raise self._not_ours(error.get_error_message()) from error
            raise

    def _not_ours(self, why: str) -> NotOurs:
        return NotOurs(
            f"the storage pool {self.name} or its directory {self.path} is not ours",
            where=self.uri,
            why=why,
            remedy="give another directory in site.yaml: volume_pool",
        )


def _uuid(path: Path) -> UUID:
    return uuid5(uuid5(NAMESPACE_URL, STAMP_NAMESPACE), str(path))


def _started(pool: libvirt.virStoragePool) -> libvirt.virStoragePool:
    if not pool.isActive():
        pool.setAutostart(1)
        _start(pool)
    return pool


def _start(pool: libvirt.virStoragePool) -> None:
    """Start the pool, or wait until another thread or process has."""
    try:
        pool.create(libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD)
    except libvirt.libvirtError:
        deadline = Deadline.within(_PATIENCE)
        while not pool.isActive():
            if deadline.remaining() <= 0:
                raise
            time.sleep(_PAUSE)


def _delete(volume: libvirt.virStorageVol) -> None:
    with Ignoring(libvirt.VIR_ERR_NO_STORAGE_VOL):
        volume.delete(0)


def _sizes(volume: libvirt.virStorageVol) -> tuple[int, int] | None:
    """Return a volume's allocation and capacity in bytes; None if it is gone."""
    with Ignoring(libvirt.VIR_ERR_NO_STORAGE_VOL):
        _, capacity, allocation = volume.info()
        return allocation, capacity
    return None


def _patiently(call: Callable[..., T], *args: Any) -> T:
    """Retry a call while libvirt is busy, for at most 10 s."""
    deadline = Deadline.within(_PATIENCE)
    while True:
        try:
            return call(*args)
        except libvirt.libvirtError as error:
            if error.get_error_code() not in _BUSY or deadline.remaining() <= 0:
                raise
        trying_again()
        time.sleep(_PAUSE)


@contextmanager
def _finished(stream: libvirt.virStream) -> Iterator[None]:
    """Finish the stream at the end of the block; abort it if libvirt refuses."""
    try:
        yield
        stream.finish()
    except libvirt.libvirtError:
        stream.abort()
        raise


def _refused_image(error: libvirt.libvirtError) -> bool:
    """Return whether the image caused the error: not found, not readable, or of another format."""
    codes = {libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_SYSTEM_ERROR}
    return error.get_error_code() in codes and error.get_error_domain() != libvirt.VIR_FROM_RPC


def _bad_image(path: str, uri: str, error: libvirt.libvirtError) -> InvalidSliver:
    text = " ".join(str(error.get_error_message()).split())
    qemu_img = text.partition("qemu-img: ")[2]
    return InvalidSliver(
        f"{path} cannot be used as an image",
        where=uri,
        why=qemu_img.partition(": ")[2] or text,
        remedy="put an image there, or correct its path in site.yaml: images",
        field="image",
    )
