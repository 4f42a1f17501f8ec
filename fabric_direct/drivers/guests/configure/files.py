"""Base of network managers that read a file of ours, and have a command that applies it."""

from abc import ABC, abstractmethod
from typing import ClassVar

from fabric_direct.drivers.guests.configure.network import ConfiguredLink
from fabric_direct.drivers.guests.configure.root import GuestRoot


class FileManager(ABC):
    """A network manager that reads a file for each interface."""

    path: ClassVar[str]
    """Of the file, with ``{}`` for the interface's label."""
    mode: ClassVar[str] = "0644"

    def has(self, root: GuestRoot, label: str) -> bool:
        """Return whether the file exists."""
        return root.read(self.path.format(label)) != ""

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether the file has the content that it should have."""
        return root.read(self.path.format(link.label)) == self.content(root, link)

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Write the file and apply it."""
        root.write(self.path.format(link.label), self.content(root, link), self.mode)
        self.apply(root, link)

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove the file."""
        root.remove(self.path.format(label))

    @abstractmethod
    def content(self, root: GuestRoot, link: ConfiguredLink) -> str:
        """Return the content of the file."""

    @abstractmethod
    def apply(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Apply the file of this interface in the guest."""
