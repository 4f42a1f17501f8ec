"""A volume's file system in its guest: mounted now and at each boot, never lost."""

import re
from contextlib import suppress

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.guests import scripts
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import VIRTIO_SERIAL, Guest, GuestDisk
from fabric_direct.errors import Conflict, DriverError, NotFound, Unsupported
from fabric_direct.handlers.vm.guest.access import Inside
from fabric_direct.handlers.vm.steps.volumes import plugged_volume
from fabric_direct.model import Storage

FSTAB = "/etc/fstab"
# Bytes at the beginning of a volume that are zero if nobody has written to it.
_BEGINNING = 1024**2
# Seconds until the guest should have noticed a disk.
_HOTPLUG = 30.0
_VALUE = re.compile(r'\b(UUID|TYPE|PTTYPE)="([^"]*)"')


class MountSetting:
    """The file system of a volume is mounted in the guest, and will be at its next boot."""

    def __init__(self, inside: Inside, storage: Storage, bare: set[str]) -> None:
        """Make the setting.

        :param bare: receives the ids of volumes that have no file system and get none.
        """
        self._inside, self._storage, self._bare = inside, storage, bare
        self._directory = storage.mount or ""

    def is_so(self) -> bool:
        """Return whether it is mounted and in /etc/fstab, or has no file system to mount."""
        if self._storage.id in self._bare:
            return True
        root = self._inside.root()
        entry = _entry(root.read(FSTAB), self._storage.id)
        if entry is None or self._directory not in self._mounted(root.guest):
            return False
        return entry == self._line(root, self._disk(root.guest))

    def make(self) -> None:
        """Mount it; format it first if it is ours and empty; leave it alone if it has no file system."""
        root = self._inside.root()
        _refuse_without_blkid(root)
        seen = "the guest to see its disk"
        wait_until(seen, lambda: self._serial() in root.guest.disks(), timeout=_HOTPLUG)
        disk = self._disk(root.guest)
        line = self._line(root, disk) or self._formatted(root, disk)
        if line is None:
            self._bare.add(self._storage.id)
            return
        self._enter(root, line)
        if self._directory not in disk.mounted:
            root.do("mkdir", "-p", self._directory)
            root.do("mount", self._directory)

    def take_back(self) -> None:
        """Unmount it, if it is still there, and remove its entry in /etc/fstab.

        :raises DriverError: with the guest's message, if the guest still uses it.
        """
        root = self._inside.root()
        if self._directory in self._mounted(root.guest):
            root.do("umount", self._directory)
        self._enter(root, None)

    def is_taken_back(self) -> bool:
        """Return whether it is neither mounted nor in /etc/fstab."""
        root = self._inside.root()
        if self._directory in self._mounted(root.guest):
            return False
        return _entry(root.read(FSTAB), self._storage.id) is None

    def _mounted(self, guest: Guest) -> tuple[str, ...]:
        """Return the directories where it is mounted; none if it is unplugged."""
        with suppress(NotFound):
            return self._disk(guest).mounted
        return ()

    def _serial(self) -> str:
        compute, sliver = self._inside.drivers.compute, self._inside.sliver
        plugged = plugged_volume(compute, sliver, self._storage.id)
        if plugged is None:
            raise NotFound(f"volume {self._storage.id} is not plugged in")
        return plugged.serial[:VIRTIO_SERIAL]

    def _disk(self, guest: Guest) -> GuestDisk:
        disk = guest.disks().get(self._serial())
        if disk is None:
            raise NotFound(
                f"the guest does not see volume {self._storage.id}", where=guest.address.instance
            )
        return disk

    def _line(self, root: GuestRoot, disk: GuestDisk) -> str | None:
        """Return the disk's entry in the table; None if it has no file system that has a UUID."""
        values = _values(root, disk)
        if not {"UUID", "TYPE"} <= values.keys():
            return None
        return f"UUID={values['UUID']} {self._directory} {values['TYPE']} defaults,nofail 0 2"

    def _formatted(self, root: GuestRoot, disk: GuestDisk) -> str | None:
        """Make a file system on a volume of ours that nobody has written to; return its entry."""
        why = self._why_not(root, disk)
        if why:
            volume, directory = self._storage.id, self._directory
            self._inside.tell(f"volume {volume} is not mounted at {directory}: {why}")
            return None
        root.do("mkfs.ext4", "-q", disk.path)
        return self._line(root, disk)

    def _why_not(self, root: GuestRoot, disk: GuestDisk) -> str:
        if self._storage.volume is not None:
            return f"{self._storage.volume} has no file system, and is not ours to format"
        if _values(root, disk) or not _is_blank(root, disk):
            return "it holds something other than a file system with a UUID"
        if not root.has("mkfs.ext4"):
            return "it is empty, and the guest has no mkfs.ext4"
        return ""

    def _enter(self, root: GuestRoot, line: str | None) -> None:
        """Replace our entry in /etc/fstab, or remove it."""
        text = root.read(FSTAB)
        wanted = _without(text, self._storage.id)
        if line:
            _refuse_other(wanted, self._directory)
            wanted = f"{wanted}{_mark(self._storage.id)}\n{line}\n"
        if wanted != text:
            root.write(FSTAB, wanted)
            root.script(scripts.REREAD_FSTAB)


def _refuse_without_blkid(root: GuestRoot) -> None:
    if not root.has("blkid"):
        raise Unsupported(
            "no volume can be mounted in the guest",
            where=root.guest.address.instance,
            why="it has no blkid, so it cannot tell a file system by its UUID",
            remedy="use an image with util-linux, or mount it in the boot script",
        )


def _values(root: GuestRoot, disk: GuestDisk) -> dict[str, str]:
    """Return what blkid finds on a disk: nothing on an empty one, which is an exit status of 2."""
    answer = root.run("blkid", disk.path)
    if answer.code not in {0, 2}:
        raise DriverError(
            f"blkid cannot tell what is on {disk.path} of guest {root.guest.address.instance}",
            why=answer.stderr.decode(errors="replace").strip() or f"exit status {answer.code}",
        )
    return dict(_VALUE.findall(answer.stdout.decode(errors="replace")))


def _is_blank(root: GuestRoot, disk: GuestDisk) -> bool:
    answer = root.run("sh", "-c", scripts.IS_BLANK, "sh", disk.path, str(_BEGINNING))
    return answer.code == 0


def _mark(component: str) -> str:
    return f"# fabric-direct {component}: the next line is replaced, and removed with the volume"


def _entry(text: str, component: str) -> str | None:
    lines = text.splitlines()
    if _mark(component) not in lines:
        return None
    return next(iter(lines[lines.index(_mark(component)) + 1 :]), None)


def _without(text: str, component: str) -> str:
    """Return the table without our entry; its last line ends with a newline."""
    lines = text.splitlines()
    if _mark(component) in lines:
        number = lines.index(_mark(component))
        del lines[number : number + 2]
    return "".join(f"{line}\n" for line in lines)


def _refuse_other(text: str, directory: str) -> None:
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 1 and not fields[0].startswith("#") and fields[1] == directory:
            raise Conflict(
                f"the guest mounts something else at {directory}",
                where=FSTAB,
                why=line,
                remedy="remove the line in the guest, or choose another directory",
            )
