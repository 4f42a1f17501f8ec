"""What a site without VMs has in place of their drivers."""

from typing import ClassVar


class NoServers:
    """Servers, ports and volumes of a site that serves no VMs: there are none.

    Only what lists them or looks for one is asked of it: handlers refuse slivers that need more.
    """

    cloud: ClassVar[bool] = False
    unserved: ClassVar[tuple[str, ...]] = ()

    def find(self, *_: str) -> None:
        """Return None: no sliver has a server or a volume."""

    def servers(self) -> tuple[()]:
        """Return nothing, as do all the others."""
        return ()

    all_ports = all_volumes = stamped = unused = servers
