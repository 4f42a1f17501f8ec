"""Names of the cloud's things, looked up once.

The id of a name is cached until the API does not know it any more; then the name is looked up again.
"""

import difflib
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar
from uuid import UUID

from openstack import exceptions as sdk
from openstack.compute.v2.flavor import Flavor
from openstack.connection import Connection

from fabric_direct.calls import forks
from fabric_direct.drivers.openstack.client.errors import if_there, status_of, translated, words
from fabric_direct.drivers.openstack.client.transport import uncached
from fabric_direct.errors import FabricDirectError, InvalidSliver

T = TypeVar("T")
Kind = Literal["image", "network", "security_group", "flavor", "host", "extension"]

LIMITS_PORTS = frozenset({"qos", "qos-bw-limit-direction"})
"""The extensions of Neutron by which the bandwidth of a port is limited in each direction."""
# Number of names that an error lists if none is similar.
_SHOWN = 10
_FIELDS: dict[Kind, str] = {
    "image": "image",
    "network": "network",
    "security_group": "openstack.security_groups",
    "flavor": "flavor",
    "host": "host",
    "extension": "openstack",
}


class Names:
    """A cache of a cloud's resources by name. Use :func:`names` to get the one of a connection."""

    def __init__(self, cloud: Connection) -> None:
        # Weak, so that an unused connection is collected, and its names with it.
        self._cloud: Connection = weakref.proxy(cloud)
        self._lock = threading.Lock()
        self._known: dict[tuple[Kind, str], Any] = {}

    def image(self, name_or_id: str) -> Any:
        """Return the :class:`openstack.image.v2.image.Image` of a name or id; it is active.

        :raises InvalidSliver: with the field ``image`` if there is none, or more than one.
        """
        return self._one("image", name_or_id)

    def network(self, name_or_id: str) -> Any:
        """Return the :class:`openstack.network.v2.network.Network` of a name or id.

        :raises InvalidSliver: with the field ``network`` if there is none, or more than one.
        """
        return self._one("network", name_or_id)

    def security_group(self, name_or_id: str) -> Any:
        """Return the project's security group of a name or id.

        :raises InvalidSliver: if there is none, or more than one.
        """
        return self._one("security_group", name_or_id)

    def flavors(self) -> tuple[Flavor, ...]:
        """Return all flavors that the project may use."""
        return self._kept("flavor", "", lambda: tuple(self._cloud.compute.flavors(details=True)))

    def hosts(self) -> tuple[str, ...]:
        """Return the names of the hosts that have a compute service, up or not.

        :raises Denied: if the user is not an administrator.
        """
        return self._kept("host", "", self._hosts)

    def limits_ports(self) -> bool:
        """Return whether Neutron can limit the bandwidth of a port in each direction."""
        return self._kept("extension", "", self._extensions) >= LIMITS_PORTS

    def forget(self, kind: Kind, name: str = "") -> None:
        """Forget a name, so that it is looked up again; flavors, hosts and extensions all together."""
        with self._lock:
            self._known.pop((kind, name), None)

    def chosen(self, kind: Kind, choose: Callable[[], T]) -> T:
        """Call ``choose``, which reads one of these lists; once more with a new list if it refuses.

        :raises InvalidSliver: if it refuses again.
        """
        try:
            return choose()
        except InvalidSliver:
            self.forget(kind)
            return choose()

    def resolved(self, kind: Kind, name: str, use: Callable[[str], T]) -> T:
        """Call ``use`` with the id of a thing; once more with a new id if the known one is gone.

        :param kind: ``image``, ``network`` or ``security_group``.
        :param use: sends a request with the id. The API must have refused it as a whole if it does not
            know the id (404, or 400 that names the id).
        """
        known = (kind, name) in self._known
        found = self._one(kind, name).id
        try:
            return use(found)
        except (FabricDirectError, sdk.SDKException) as error:
            if not (known and _gone(error, found)):
                raise
        self.forget(kind, name)
        return use(self._one(kind, name).id)

    def _kept(self, kind: Kind, name: str, read: Callable[[], T]) -> T:
        with self._lock:
            if (kind, name) in self._known:
                return self._known[kind, name]  # type: ignore[no-any-return]
        with uncached(), translated(f"look for {_said(kind, name)}", self._cloud.name):
            found = read()
        with self._lock:
            self._known[kind, name] = found
        return found

    def _one(self, kind: Kind, name: str) -> Any:
        return self._kept(kind, name, lambda: self._search(kind, name))

    def _search(self, kind: Kind, name: str) -> Any:
        present = list(self._candidates(kind, name))
        if not present:
            raise self._unknown(kind, name)
        found = [thing for thing in present if _usable(thing)]
        if not found:
            why = f"it is {present[0].status}"
            raise _refusal(kind, f"{_said(kind, name)} cannot be used", why=why)
        found = [thing for thing in found if self._meant(thing)] or found
        if len(found) > 1:
            raise _ambiguous(kind, name, found)
        return found[0]

    def _meant(self, thing: Any) -> bool:
        """Return whether it is the project's own or everybody's: an administrator sees all projects'."""
        return (
            getattr(thing, "project_id", None) == self._cloud.current_project_id
            or getattr(thing, "owner_id", None) == self._cloud.current_project_id
            or getattr(thing, "visibility", "") == "public"
            or bool(getattr(thing, "is_shared", False))
        )

    def _candidates(self, kind: Kind, name: str) -> Iterable[Any]:
        get = getattr(self._api(kind), f"get_{kind}")
        by_id = if_there(get, name) if is_id(name) else None
        return [by_id] if by_id is not None else self._list(kind, name=name)

    def _api(self, kind: Kind) -> Any:
        return self._cloud.image if kind == "image" else self._cloud.network

    def _list(self, kind: Kind, **query: str | None) -> list[Any]:
        if kind == "security_group":
            query["project_id"] = self._cloud.current_project_id
        return list(getattr(self._api(kind), f"{kind}s")(**query))

    def _unknown(self, kind: Kind, name: str) -> InvalidSliver:
        present = {thing.name for thing in self._list(kind) if thing.name}
        instead = _instead(name, sorted(present))
        return _refusal(kind, f"there is no {_said(kind, name)}", remedy=instead)

    def _hosts(self) -> tuple[str, ...]:
        services = self._cloud.compute.services(binary="nova-compute")
        return tuple(sorted(service.host for service in services))

    def _extensions(self) -> frozenset[str]:
        return frozenset(extension.alias for extension in self._cloud.network.extensions())


def _refusal(kind: Kind, what: str, *, why: str = "", remedy: str = "") -> InvalidSliver:
    return InvalidSliver(what, why=why, remedy=remedy, field=_FIELDS[kind])


def _ambiguous(kind: Kind, name: str, found: list[Any]) -> InvalidSliver:
    what = f"there are {len(found)} {kind.replace('_', ' ')}s of the name {name!r}"
    ids = ", ".join(sorted(thing.id for thing in found))
    return _refusal(kind, what, why=ids, remedy="use the id")


def _said(kind: Kind, name: str) -> str:
    return f"{kind.replace('_', ' ')} {name!r}" if name else f"the {kind}s"


def _instead(name: str, present: list[str]) -> str:
    close = difflib.get_close_matches(name, present, n=3)
    if close:
        return f"similar names: {', '.join(close)}"
    more = f" and {len(present) - _SHOWN} more" if len(present) > _SHOWN else ""
    return f"there are {', '.join(present[:_SHOWN]) or 'none'}{more}"


def _usable(thing: Any) -> bool:
    # Glance lists images that are being uploaded, or are put out of use, under their names, too.
    return getattr(thing, "status", None) not in {"queued", "saving", "deactivated", "killed"}


def is_id(name: str) -> bool:
    """Return whether a name has the form of an id: a UUID with its hyphens."""
    try:
        return str(UUID(name)) == name.lower()
    except ValueError:
        return False


def _gone(error: BaseException, found: str) -> bool:
    """Return whether the API refused because it does not know the id. Nova says that with 400."""
    said = words(error)
    return status_of(error) == 404 or (
        status_of(error) == 400 and (found in said or "not find" in said)
    )


_lock = forks.Lock()
_names: weakref.WeakKeyDictionary[Connection, Names] = weakref.WeakKeyDictionary()


def names(cloud: Connection) -> Names:
    """Return what the names of a connection's cloud stand for; shared by all threads."""
    with _lock:
        if cloud not in _names:
            _names[cloud] = Names(cloud)
        return _names[cloud]


forks.in_child(_names.clear)
