"""A made-up sysfs and proc, for what is only facts of files."""

from pathlib import Path

import pytest

from fabric_direct.drivers.hosts.agent import sysfs, usage

ETHERNET, NVME, BRIDGE = "020000", "010802", "060400"


class Tree:
    """A machine's devices as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        for directory in ("bus/pci/devices", "class/net", "class/block", "dev/block", "drivers"):
            (self.sys / directory).mkdir(parents=True)
        self.dev.mkdir()
        self.file("proc/self/mountinfo", "")

    def file(self, path: str, text: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def link(self, path: Path, to: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)

    def function(
        self,
        address: str,
        ids: str = "8086:10c9",
        *,
        kind: str = ETHERNET,
        below: str = "",
        header: bytes | None = None,
    ) -> Path:
        """Make a PCI function, below a bridge if one is given."""
        base = self.sys / "bus/pci/devices" / below if below else self.sys / "devices/pci0000:00"
        path = base.resolve() / address
        path.mkdir(parents=True)
        vendor, product = ids.split(":")
        own = bytes.fromhex(vendor)[::-1] + bytes.fromhex(product)[::-1] + bytes(5)
        own += bytes.fromhex(kind)[::-1] + bytes(52)
        facts = {"vendor": f"0x{vendor}", "device": f"0x{product}", "class": f"0x{kind}"}
        for name, value in (facts | {"numa_node": "-1"}).items():
            (path / name).write_text(f"{value}\n")
        (path / "config").write_bytes(own if header is None else header)
        self.link(self.sys / "bus/pci/devices" / address, path)
        return path

    def virtual(self, physical: str, *addresses: str) -> None:
        """Make VFs of a function."""
        pf = (self.sys / "bus/pci/devices" / physical).resolve()
        (pf / "sriov_numvfs").write_text(f"{len(addresses)}\n")
        for number, address in enumerate(addresses):
            header = b"\xff" * 4 + bytes(5) + bytes.fromhex(ETHERNET)[::-1] + bytes(52)
            vf = self.function(address, "8086:10ca", header=header)
            self.link(vf / "physfn", pf)
            self.link(pf / f"virtfn{number}", vf)

    def net(self, name: str, address: str, **facts: str) -> Path:
        path = (self.sys / "bus/pci/devices" / address).resolve() / "net" / name
        self._facts(path, facts)
        self._class("net", name, path)
        return path

    def disk(self, name: str, address: str | None, number: str, **facts: str) -> Path:
        """Make a disk of a function, or one of no hardware."""
        virtual = self.sys / "devices/virtual/block"
        base = (self.sys / "bus/pci/devices" / address).resolve() if address else virtual
        return self._block(base / name, number, facts)

    def partition(self, disk: str, name: str, number: str) -> Path:
        return self._block(
            (self.sys / "class/block" / disk).resolve() / name, number, {"partition": "1"}
        )

    def _block(self, path: Path, number: str, facts: dict[str, str]) -> Path:
        self._facts(path, {"size": "2048"} | facts)
        self._class("block", path.name, path)
        self.link(self.sys / "dev/block" / number, path)
        return path

    def _class(self, kind: str, name: str, path: Path) -> None:
        directory = self.sys / "class" / kind
        (directory / name).symlink_to(f"../../{path.relative_to(self.sys.resolve())}")

    def _facts(self, path: Path, facts: dict[str, str]) -> None:
        path.mkdir(parents=True)
        for name, value in facts.items():
            (path / name).write_text(f"{value}\n")

    def stacked(self, upper: str, *lower: str) -> None:
        """Put a disk, such as a volume or an array, on top of others."""
        top = (self.sys / "class/block" / upper).resolve()
        for name in lower:
            bottom = (self.sys / "class/block" / name).resolve()
            self.link(top / "slaves" / name, bottom)
            self.link(bottom / "holders" / upper, top)

    def process(self, pid: int, name: str, *opened: str, command: tuple[str, ...] = ()) -> None:
        """Make a process that has these files open."""
        self.file(f"proc/{pid}/comm", f"{name}\n")
        self.file(f"proc/{pid}/cmdline", "\0".join((*(command or (name,)), "")))
        (self.proc / str(pid) / "fd").mkdir()
        for number, path in enumerate(opened, 3):
            (self.proc / str(pid) / "fd" / str(number)).symlink_to(path)

    def mounts(self, *lines: str) -> None:
        numbered = (f"{n} 1 {line}\n" for n, line in enumerate(lines, 20))
        self.file("proc/self/mountinfo", "".join(numbered))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path.resolve())
    monkeypatch.setattr(sysfs, "SYS", str(made.sys))
    monkeypatch.setattr(sysfs, "PROC", str(made.proc))
    monkeypatch.setattr(usage, "DEV", str(made.dev))
    return made
