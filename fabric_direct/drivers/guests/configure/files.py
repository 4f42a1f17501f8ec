"""What all ways have in common that are a file of ours, and a command that applies it."""

from abc import ABC, abstractmethod
from typing import ClassVar

from fabric_direct.drivers.guests.configure.network import Link
from fabric_direct.drivers.guests.configure.root import Root


class FileManager(ABC):
    """A file for each interface."""

    path: ClassVar[str]
    """Of the file, with ``{}`` for the interface's label."""
    mode: ClassVar[str] = "0644"

    def has(self, root: Root, label: str) -> bool:
        """Look for the file."""
        return root.read(self.path.format(label)) != ""

    def keeps(self, root: Root, link: Link) -> bool:
        """Compare the file."""
        return self.says(root.read(self.path.format(link.label)), link)

    def keep(self, root: Root, link: Link) -> None:
        """Write the file and have it applied."""
        root.write(self.path.format(link.label), self.content(root, link), self.mode)
        self.apply(root, link)

    @abstractmethod
    def says(self, text: str, link: Link) -> bool:
        """Return whether a file gives the interface these addresses."""

    @abstractmethod
    def content(self, root: Root, link: Link) -> str:
        """Return what the file has to say."""

    @abstractmethod
    def apply(self, root: Root, link: Link) -> None:
        """Have the guest read the file of this interface."""

    @abstractmethod
    def forget(self, root: Root, label: str) -> None:
        """Remove the file."""
