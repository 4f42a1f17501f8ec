"""Who is at the ports of the worker's switches: it runs there, after ``tests/network/wire.py``.

A line of JSON, ``[what, arguments…]``, is answered by another.
"""

import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.network.wire import PATIENCE, Wire, apart, cross

QUIET = 2.0
"""In the place of that of ``wire.py``: the machine is emulated."""
wires: dict[str, "Wire"] = {}


def at(place: str) -> "Wire":
    """Return who is at ``switch/port``."""
    if place not in wires:
        wires[place] = Wire(*place.split("/"))
    return wires[place]


class Stream:
    """A hundred small frames a second from one place to another."""

    def __init__(self, one: str, other: str, vlans: tuple[int, int]) -> None:
        self.one, self.other, self.vlans = at(one), at(other), vlans
        self.sent: list[bytes] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.send)
        self.other.received()
        self.thread.start()

    def send(self) -> None:
        while not self.over.wait(0.01):
            self.sent.append(f"ping {len(self.sent)}".encode())
            self.one.send(self.sent[-1], self.vlans[0])

    def end(self) -> tuple[int, int]:
        """Return how many frames were sent, and how many of them were lost."""
        self.over.set()
        self.thread.join()
        missing = set(self.sent)
        for vlan, content in self.other.frames(PATIENCE):
            if vlan == self.vlans[1]:
                missing.discard(content)
            if not missing:
                break
        return len(self.sent), len(missing)


def rate(one: str, other: str, vlans: tuple[int, int]) -> float:
    """Return the Mbit/s at which frames arrive that were sent as fast as possible.

    They are large, as an emulated machine sends few in a second.
    """
    at(other).received()
    size, arrived = 8900, []

    def send() -> None:
        for _ in range(60):
            at(one).send(b"x" * size, vlans[0])

    thread = threading.Thread(target=send)
    thread.start()
    while _arrives(at(other), at(one), QUIET):
        arrived.append(time.monotonic())
    thread.join()
    return (len(arrived) - 1) * size * 8 / (arrived[-1] - arrived[0]) / 1e6


def _arrives(there: "Wire", sender: "Wire", within: float) -> bool:
    """Return whether a frame of a sender comes within some seconds."""
    there._socket.settimeout(within)
    try:
        while there._socket.recv(9200)[6:12] != sender.mac:
            pass
    except TimeoutError:
        return False
    return True


streams: list[Stream] = []


def copied(one: str, other: str, vlans: tuple[int, int]) -> bool:
    """Return whether a mirror hears what is sent elsewhere."""
    return at(other).hears(_say(one, vlans[0]), vlans[1])


def missed(one: str, other: str, vlans: tuple[int, int]) -> bool:
    """Return whether a mirror does not hear what is sent elsewhere."""
    return (vlans[1], _say(one, vlans[0])) not in at(other).received()


def _say(one: str, vlan: int) -> bytes:
    word = f"{time.monotonic_ns()}".encode()
    at(one).send(word, vlan)
    return word


def do(what: str, one: str = "", other: str = "", vlans: Any = (0, 0)) -> Any:
    if what in {"cross", "apart"}:
        return (cross if what == "cross" else apart)(at(one), at(other), tuple(vlans))
    if what == "begin":
        return streams.append(Stream(one, other, vlans))
    if what == "end":
        return streams.pop().end()
    return {"copied": copied, "missed": missed, "rate": rate}[what](one, other, vlans)


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(do(*json.loads(line))) + "\n")
        sys.stdout.flush()
