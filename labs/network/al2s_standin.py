"""A stand-in for the API of Internet2's Virtual Networks (AL2S), for tests; it is not AL2S.

Nobody here had AL2S to compare it with. What it has is what fabric_am's Al2sHandler asks and expects:
sessions, spaces, routers, L3 connections, the lists of ports. It refuses what that never sends. How AL2S
words an error, what it shows of a key, and how long a state lasts, is made up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from labs.network import http_standin
from labs.network.http_standin import Json, Refused, StandIn

ACCESS_KEY = "al2s-access-key"
OWNER = "i2/netres/fabric"
_SPACE = {"title": str, "notes": str, "ownerPath": str}
_ROUTER = {"virtualSpaceId": str, "notes": str}
_ADDRESS = (str, type(None))
_CONNECTION: dict[str, Any] = {
    "virtualRouterId": str,
    "interfaceId": str,
    "remoteName": str,
    "notes": str,
    "displayPosition": int,
    "encapsulationType": str,
    "vlanOuterId": int,
    "vlanInnerId": int,
    "ipv6PrefixLength": int,
    "localIPv6": _ADDRESS,
    "remoteIPv6": _ADDRESS,
    "ipv4PrefixLength": int,
    "localIPv4": _ADDRESS,
    "remoteIPv4": _ADDRESS,
    "remoteASN": int,
    "authnType": _ADDRESS,
    "authnConfig": (dict, type(None)),
    "mtu": int,
    "bfdEnable": bool,
    "gtsmEnable": bool,
    "cloudConnectionType": str,
    "cloudConnectionConfig": dict,
    "maxBandwidth": int,
    "authoringState": str,
}
_KINDS = {
    "spaces": ("virtualSpaceId", _SPACE),
    "routers": ("virtualRouterId", _ROUTER),
    "l3connections": ("virtualL3ConnectionId", _CONNECTION),
}
_INSIDE = {"spaces": ("routers", "virtualSpaceId"), "routers": ("l3connections", "virtualRouterId")}


@dataclass
class Al2s(StandIn):
    """What the stand-in has, and what it does wrong."""

    things: dict[str, dict[str, Json]] = field(default_factory=lambda: {k: {} for k in _KINDS})
    """Spaces, routers and connections, by their ids."""
    states: tuple[str, ...] = ("PENDING", "PROVISIONED")
    """What a connection is when it is looked at, one after the other; the last one stays."""
    masks: bool = False
    """Keys are not shown."""
    busy: int = 0
    """How many deletions of routers and spaces are refused, as something in them is being deleted."""
    keeps: bool = False
    """Deletions are said to be done, and are not."""
    bearer: str = ""
    refresh: str = ""
    tokens: list[str] = field(default_factory=list)
    """All that were given out."""
    numbers: Any = field(default_factory=lambda: count(1))

    def expire(self, *, session: bool = False) -> None:
        """Reject the bearer token from now on, with ``session`` the refresh token, too."""
        self.bearer = ""
        self.refresh = "" if session else self.refresh

    def names(self) -> list[str]:
        """Return what there is: titles of spaces, and the notes of the rest."""
        return [
            f"{kind} {thing.get('title') or thing['notes']}"
            for kind, things in self.things.items()
            for thing in things.values()
        ]

    def add(self, kind: str, **values: Any) -> str:
        """Add a thing as others made it; return its id."""
        number = str(UUID(int=next(self.numbers)))
        left = list(self.states) if kind == "l3connections" else []
        self.things[kind][number] = values | {_KINDS[kind][0]: number, "_states": left}
        return number

    # --- requests

    def answer(self, method: str, target: str, headers: Any, body: Json) -> tuple[int, Any, Json]:
        """Return the status, the document and the headers of an answer."""
        path = urlsplit(target).path.removeprefix("/v1/")
        if path.startswith("sessions/"):
            return self._session(f"{method} {path}", headers)
        if not self.bearer or headers.get("Authorization") != self.bearer:
            raise Refused(401, "the token is not valid")
        if path.startswith("footprint/"):
            return 200, FOOTPRINT[path.removeprefix("footprint/")], {}
        _, kind, *rest = path.split("/")
        do: Callable[..., tuple[int, Any, Json]] = getattr(self, f"_{method.lower()}")
        return do(kind, rest[0] if rest else "", body)

    def _session(self, asked: str, headers: Any) -> tuple[int, Any, Json]:
        cookie = f"arroyoRefreshToken={self.refresh}"
        if asked == "POST sessions/access" and headers.get("x-api-key") == ACCESS_KEY:
            return 200, {}, self._new_cookie()
        if asked == "GET sessions/refresh" and self.refresh and headers.get("Cookie") == cookie:
            self.bearer = f"Bearer {self._token('bearer')}"
            return 200, {}, self._new_cookie() | {"authorization": self.bearer}
        raise Refused(401, f"the key {headers.get('x-api-key')} is not known")

    def _new_cookie(self) -> Json:
        self.refresh = self._token("refresh")
        return {"Set-Cookie": f"arroyoRefreshToken={self.refresh}; Path=/; HttpOnly; Secure"}

    def _token(self, kind: str) -> str:
        self.tokens.append(f"{kind}-token-{next(self.numbers)}")
        return self.tokens[-1]

    def _get(self, kind: str, number: str, _: Json) -> tuple[int, Any, Json]:
        if number:
            return 200, self._shown(kind, number), {}
        shown = [self._shown(kind, each) for each in self.things[kind]]
        return 200, {kind: shown} if kind == "spaces" else shown, {}

    def _shown(self, kind: str, number: str) -> Json:
        thing = self._thing(kind, number)
        values = {key: value for key, value in thing.items() if not key.startswith("_")}
        if kind in _INSIDE:
            inner, key = _INSIDE[kind]
            ids = [n for n, each in self.things[inner].items() if each[key] == number]
            return values | {f"{_KINDS[inner][0]}s": ids}
        if self.masks and values["authnConfig"]:
            values["authnConfig"] = {"md5": "******"}
        return values | {"provisioningState": _next(thing["_states"])}

    def _thing(self, kind: str, number: str) -> Json:
        if number not in self.things[kind]:
            raise Refused(404, "not found")
        return self.things[kind][number]

    def _post(self, kind: str, _: str, body: Json) -> tuple[int, Any, Json]:
        self._refuse(kind, "", body)
        number = self.add(kind, **body)
        return 303, None, {"Location": f"/v1/virtualnetworks/{kind}/{number}"}

    def _put(self, kind: str, number: str, body: Json) -> tuple[int, Any, Json]:
        if kind != "l3connections":
            raise Refused(405, "fabric_am never changes those")
        thing = self._thing(kind, number)
        self._refuse(kind, number, body)
        thing |= body | {"_states": list(self.states)}
        return 200, self._shown(kind, number), {}

    def _refuse(self, kind: str, number: str, body: Json) -> None:
        fields = _KINDS[kind][1]
        wrong = [key for key in fields if not isinstance(body.get(key), fields[key])]
        wrong += [key for key in body if key not in fields]
        if wrong:
            raise Refused(400, f"invalid: {', '.join(wrong)}")
        for above, (inner, key) in _INSIDE.items():
            if inner == kind:
                self._thing(above, body[key])
        if kind == "l3connections":
            self._refuse_taken(number, body)

    def _refuse_taken(self, number: str, body: Json) -> None:
        where = body["interfaceId"], str(body["vlanOuterId"])
        for other, thing in self.things["l3connections"].items():
            if other != number and (thing["interfaceId"], str(thing["vlanOuterId"])) == where:
                raise Refused(400, f"VLAN {where[1]} is in use there, {body['authnConfig']}")

    def _delete(self, kind: str, number: str, _: Json) -> tuple[int, Any, Json]:
        self._thing(kind, number)
        inner, key = _INSIDE.get(kind, ("l3connections", "none"))
        inside = any(each.get(key) == number for each in self.things[inner].values())
        busy = bool(self.busy) and kind != "l3connections"
        self.busy -= busy
        if inside or busy:
            raise Refused(409, "something in it is being deleted")
        if not self.keeps:
            del self.things[kind][number]
        return 200, {}, {}

    def errors(self, words: str, tag: str = "") -> Json:  # noqa: ARG002 - of all stand-ins
        """Return the document that tells of an error."""
        return {"message": words}


def _next(states: list[str]) -> str:
    return states.pop(0) if len(states) > 1 else states[0]


def _port(number: int, name: str, device: str) -> Json:
    return {"id": str(UUID(int=number)), "name": name, "device": {"name": device}}


FOOTPRINT = {
    "myinterfaces": [
        _port(101, "HundredGigE0/0/0/5", "core1.star"),
        _port(102, "HundredGigE0/0/0/5", "core2.wash"),
        _port(103, "HundredGigE0/0/0/6", "core2.wash"),
    ],
    "cloudconnect": [
        _port(201, "HundredGigE0/0/0/9", "core2.ashb"),
        _port(202, "HundredGigE0/0/0/10", "core2.ashb"),
    ],
}


def serve(al2s: Al2s) -> tuple[str, Callable[[], None]]:
    """Serve it on a free port of this machine; return the root's address, and what ends it."""
    return http_standin.serve(al2s)
