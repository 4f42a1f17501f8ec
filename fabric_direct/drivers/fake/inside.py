"""The inside of a guest in memory: files, disks, and the commands that configure a guest.

The guest has systemd-networkd and mkfs.ext4. An unknown command succeeds and does nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fabric_direct.drivers.contract import CommandResult, PluggedVolume
from fabric_direct.drivers.guests import scripts

_NETWORKD = "/etc/systemd/network/"
_FSTAB = "/etc/fstab"
_ADDRESS = "Address="


@dataclass
class GuestState:
    """The state of one guest."""

    files: dict[str, bytes] = field(default_factory=dict)
    file_systems: dict[str, str] = field(default_factory=dict)
    """UUIDs by the source of the volume."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Sources of volumes by directory."""
    booting: bool = False
    """Whether its boot has not finished."""

    def addresses(self, mac: str) -> tuple[str, ...]:
        """Return the addresses that the files of systemd-networkd give to a NIC."""
        texts = [t.decode() for path, t in self.files.items() if path.startswith(_NETWORKD)]
        lines = [line for t in texts if f"MACAddress={mac}\n" in t for line in t.split("\n")]
        return tuple(line.removeprefix(_ADDRESS) for line in lines if line.startswith(_ADDRESS))

    def run(
        self, argv: Sequence[str], stdin: bytes, volumes: Sequence[PluggedVolume]
    ) -> CommandResult:
        """Run a command."""
        if argv[0] == "sh":
            return CommandResult(0, self._script(argv[2], argv[4:], stdin, volumes))
        disks = {f"/dev/{volume.target}": volume.source for volume in volumes}
        commands: dict[str, Callable[[str], CommandResult]] = {
            "cat": self._read,
            "rm": self._remove,
            "blkid": lambda path: self._blkid(disks[path]),
            "mkfs.ext4": lambda path: self._make(disks[path]),
            "mount": self._mount,
            "umount": self._unmount,
        }
        if tuple(argv) == ("cat",):
            return CommandResult(0, stdin)
        known = commands.get(argv[0])
        return known(argv[-1]) if known else CommandResult(0)

    def _script(
        self, script: str, arguments: Sequence[str], stdin: bytes, volumes: Sequence[PluggedVolume]
    ) -> bytes:
        """Return the output of one of our scripts."""
        if script == scripts.WRITE:
            self.files[arguments[0]] = stdin
        answers: dict[str, Callable[[], bytes]] = {
            scripts.MANAGERS: lambda: b"networkd",
            scripts.HAS: lambda: b"yes",
            scripts.READ: lambda: self.files.get(arguments[0], b""),
            scripts.DISKS: lambda: self._disks(volumes),
        }
        answer = answers.get(script)
        return answer() if answer else b""

    def _read(self, path: str) -> CommandResult:
        content = self.files.get(path)
        return CommandResult(1) if content is None else CommandResult(0, content)

    def _remove(self, path: str) -> CommandResult:
        self.files.pop(path, None)
        return CommandResult(0)

    def _disks(self, volumes: Sequence[PluggedVolume]) -> bytes:
        """Return the disks with numbers as Linux gives them, and their mounts as in mountinfo(5)."""
        lines = [f"disk {v.target} 254:{16 * n} {v.serial}" for n, v in enumerate(volumes)]
        numbers = {volume.source: f"254:{16 * n}" for n, volume in enumerate(volumes)}
        for directory, source in self.mounts.items():
            if source in numbers:
                lines.append(f"mount 1 1 {numbers[source]} / {directory} rw - ext4 /dev/x rw")
        return "\n".join(lines).encode()

    def _blkid(self, source: str) -> CommandResult:
        uuid = self.file_systems.get(source)
        answer = f'/dev/x: UUID="{uuid}" TYPE="ext4"\n'.encode() if uuid else b""
        return CommandResult(0 if uuid else 2, answer)

    def _make(self, source: str) -> CommandResult:
        self.file_systems[source] = f"00000000-0000-4000-8000-{len(self.file_systems):012}"
        return CommandResult(0)

    def _mount(self, directory: str) -> CommandResult:
        lines = [line.split() for line in self.files[_FSTAB].decode().splitlines()]
        uuid = next((line[0].removeprefix("UUID=") for line in lines if line[1] == directory), "")
        source = next((s for s, found in self.file_systems.items() if found == uuid), None)
        if source is None:
            return CommandResult(1, b"", f"mount: {directory}: can't find UUID={uuid}.".encode())
        self.mounts[directory] = source
        return CommandResult(0)

    def _unmount(self, directory: str) -> CommandResult:
        if self.mounts.pop(directory, None) is None:
            return CommandResult(32, b"", f"umount: {directory}: not mounted.".encode())
        return CommandResult(0)
