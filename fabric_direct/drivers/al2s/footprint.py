"""The ports on which AL2S lets us make connections: our own, and those of public clouds."""

from typing import Any

from fabric_direct.calls import forks
from fabric_direct.drivers.al2s.session import Session
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.services import ServiceInterface

Port = tuple[str, str]
"""A device, and the port's name."""
_OWN, _CLOUDS = "myinterfaces", "cloudconnect"


class Footprint:
    """Ports by their ids; each list is read again when something is not found in it."""

    def __init__(self, session: Session) -> None:
        """Read nothing yet."""
        self._session = session
        self._forget()
        forks.in_child(self._forget)

    def _forget(self) -> None:
        self._known: dict[str, dict[str, Port]] = {}

    def place(self, interface: ServiceInterface, field: str) -> str:
        """Return the id of an interface's port.

        :raises InvalidSliver: with the field, if there is no such port, or several.
        """
        which = _CLOUDS if interface.peer and interface.peer.cloud else _OWN
        wanted = interface.device, interface.port
        found = _ids(self._known.get(which, {}), wanted) or _ids(self._read(which), wanted)
        if len(found) != 1:
            why = f"AL2S lists {len(found) or 'none'} of that name in {which}"
            raise InvalidSliver(f"no port {interface.where}", field=f"{field}.port", why=why)
        return found[0]

    def count(self) -> int:
        """Return how many ports are listed now."""
        return sum(len(self._read(which)) for which in (_OWN, _CLOUDS))

    def port(self, place: str) -> Port:
        """Return a port by its id; the id itself if AL2S does not list it."""
        ports = self._all()
        if place not in ports:
            for which in (_OWN, _CLOUDS):
                self._read(which)
        return self._all().get(place, ("unknown", place))

    def _all(self) -> dict[str, Port]:
        return {place: port for ports in self._known.values() for place, port in ports.items()}

    def _read(self, which: str) -> dict[str, Port]:
        said: Any = self._session.listed(f"footprint/{which}")
        with self._session.reading(which):
            ports = {str(p["id"]): (str(p["device"]["name"]), str(p["name"])) for p in said}
        self._known = self._known | {which: ports}
        return ports


def _ids(ports: dict[str, Port], wanted: tuple[str | None, str | None]) -> list[str]:
    return [place for place, port in ports.items() if port == wanted]
