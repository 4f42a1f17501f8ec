"""What a site has in place of a driver that it does not name, or says that it has not."""

from typing import Any, ClassVar, NoReturn

from fabric_direct.errors import InvalidSliver, Unsupported


def unsupported(what: str, key: str, where: str = "") -> Unsupported:
    """Return the error that nothing serves a resource type, or a kind of driver, at a site.

    :param what: what cannot be done.
    :param key: the key of ``drivers`` in site.yaml that would name the driver.
    """
    return Unsupported(
        what,
        where=where,
        why=f"site.yaml names no driver for {key}, and that of VM has no default",
        remedy=f"name one below drivers in site.yaml: {key}",
    )


class NoDriver:
    """Servers, ports or volumes that a site has no driver for: there are none.

    What lists or removes them finds nothing. What would make or plug in one raises Unsupported, or
    InvalidSliver where the site says so: ``drivers: {Storage: none}``.
    """

    cloud: ClassVar[bool] = False
    unserved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, key: str, *, chosen: bool = False) -> None:
        """:param chosen: whether the site says so."""
        self._key, self._chosen = key, chosen

    def find(self, *_: str) -> None:
        """Return None: no sliver has one."""

    def servers(self, *_: str) -> tuple[()]:
        """Return nothing, as do all that list."""
        return ()

    def delete(self, *_: str) -> None:
        """Do nothing, as do all that remove."""

    def check(self, *_: Any) -> NoReturn:
        """Raise an error, as do all that make something."""
        if self._chosen:
            why = f"in its site.yaml, drivers.{self._key} is none"
            raise InvalidSliver(f"this site has no {self._key}", why=why)
        raise unsupported(f"no {self._key} can be made", self._key)

    find_port = find
    all_ports = all_volumes = ports = volumes = leftovers = stamped = unused = servers
    delete_port = delete_floating_ip = remove_unused = delete
    create = create_port = create_floating_ip = existing = check
