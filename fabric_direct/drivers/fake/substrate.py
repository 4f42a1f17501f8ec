"""The state that fake drivers share, and the faults that tests inject."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial, wraps
from types import FunctionType
from typing import Literal, TypeVar, cast, get_args

from fabric_direct.calls.deadline import current_call
from fabric_direct.drivers.contract import (
    VfSettings,
)
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.fake import hardware
from fabric_direct.drivers.fake.kept import Kept
from fabric_direct.drivers.fake.state import Key, SubstrateState
from fabric_direct.errors import DriverError, NotFound, NotOurs, Unsupported
from fabric_direct.model import PciAddress
from fabric_direct.site.config import FakeHostSettings, Site

T = TypeVar("T")
_METHODS: set[str] = set()
"""The methods of the fake drivers that take faults: ``compute.create``."""
Kind = Literal["fail", "unsupported", "after", "late", "hang", "lie", "incomplete"]
"""A call fails before it took effect, raises Unsupported, fails after it took effect, takes effect after
its caller gave it up, never ends and has no effect, returns without having done anything, or leaves out
what there is: it returns an empty tuple, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """A fault at a call of a method."""

    method: str
    """``<driver>.<method>``, for example ``compute.create``; ``compute.*`` are all of a driver."""
    at: int
    """The number of the call, from 1; 0 is every call."""
    kind: Kind
    until: threading.Event | None = None
    """What a late call waits for once its caller has given up; None if it waits no longer."""


@dataclass
class Substrate(SubstrateState):
    """The state that the fake drivers of one host share, and how it answers them."""

    delay: float = 0.0
    """Seconds that each call takes."""
    calls: Counter[str] = field(default_factory=Counter)
    """Number of calls of each method."""
    faults: list[Fault] = field(default_factory=list)
    fired: set[Fault] = field(default_factory=set)
    """The faults that some call met."""
    kept: Kept | None = None
    """Where it is kept from one process to the next; None if it ends with this one."""
    _hangs: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _released: threading.Event = field(default_factory=threading.Event)

    def fault(
        self, method: str, *, at: int = 1, kind: Kind, until: threading.Event | None = None
    ) -> None:
        """Inject a fault into the ``at``-th call of a method from now on; 0 is every call.

        :param method: ``<driver>.<method>``; ``*`` stands for any: ``compute.*``.
        :param until: what a late call waits for, once its caller has given up.
        :raises ValueError: if no fake driver has such a method, or there is no such kind or call.
        """
        if at < 0:
            raise ValueError(f"there is no call {at}: 1 is the first, 0 is every call")
        if not any(fnmatchcase(known, method) for known in _METHODS):
            raise ValueError(_no_method(method))
        if kind not in get_args(Kind):
            raise ValueError(f"there is no fault {_or_near(kind, get_args(Kind))}")
        with self._lock:
            self.calls[method] = 0
            self.faults.append(Fault(method, at, kind, until))

    def hang(self) -> None:
        """Let every call hang from now on, of whatever driver: the whole host gives no answer."""
        self._hangs = True

    def mend(self) -> None:
        """Remove all faults, and end the calls that hang."""
        with self._lock:
            self.faults.clear()
            self._hangs = False
            self._released.set()
            self._released = threading.Event()

    def lose_devices(self, sliver: str) -> None:
        """Take all devices from a sliver's server, as Nova's hard reboot does: it rebuilds the domain.

        The records of the devices and the server's stamp stay. The devices are *lost*: the sliver's own
        modify gives them back, nobody else may clean or release them.

        :raises ValueError: if neither a server nor a domain of the sliver is there.
        """
        with self._lock:
            if sliver not in self.servers and sliver not in self.plugged:
                raise ValueError(f"no server of {sliver!r}")
            self.plugged.pop(sliver, None)
            self.pending.discard(sliver)

    def refuse_foreign(self, name: str) -> None:
        """Raise NotOurs if something without this site's stamp has the name."""
        if name in self.foreign:
            raise NotOurs(f"{name} is there without this site's stamp")

    def own(self, address: PciAddress, owner: str | None) -> None:
        """Set the owner of a device."""
        self.devices[address] = replace(self.devices[address], owner=owner)

    def call(self, method: str, effect: Callable[[], T]) -> T:
        """Run one call of a driver: its delay, its fault, or its effect."""
        if self.delay:
            time.sleep(self.delay)
        with self._lock:
            self.calls[method] += 1
            count = self.calls[method]
            due = (fault for fault in self.faults if fault.at in {0, count})
            met = [fault for fault in due if fnmatchcase(method, fault.method)]
            self.fired.update(met)
            kinds = {fault.kind: fault for fault in met}
            hangs, released = self._hangs or "hang" in kinds, self._released
        if "fail" in kinds:
            raise DriverError(f"{method} failed", why=f"it was told to, at call {count}")
        if "unsupported" in kinds:
            raise Unsupported(f"{method} is not available here")
        if hangs:
            self._await_mending(released)
            raise DriverError(f"{method} hung")
        if "lie" in kinds:
            return cast(T, None)
        if "late" in kinds:
            self._await_given_up(kinds["late"].until)
        with self.current():
            result = effect()
        if "after" in kinds:
            raise DriverError(f"{method} failed", why="it was told to, after it took effect")
        return left_out(result) if "incomplete" in kinds else result

    @contextmanager
    def current(self) -> Iterator[None]:
        """Have the host as it is now, alone; where it is kept, all processes see what is changed."""
        with self._lock, self.kept.current(self) if self.kept else nullcontext():
            yield

    @staticmethod
    def _await_mending(released: threading.Event) -> None:
        """Block until the substrate is mended."""
        released.wait()

    @staticmethod
    def _await_given_up(until: threading.Event | None) -> None:
        """Block until the caller has given up, if it would, and until the event."""
        call = current_call()
        if call is not None:
            call.given_up.wait()
        if until is not None:
            until.wait()


def _no_method(method: str) -> str:
    """Return what is wrong with the name of a method, and the names that there are."""
    kind, _, name = method.partition(".")
    drivers: dict[str, list[str]] = {}
    for driver, has in sorted(known.split(".") for known in _METHODS):
        drivers.setdefault(driver, []).append(has)
    said = f"no fake driver has the method {method!r}"
    if kind not in drivers:
        return f"{said}: drivers are {', '.join(drivers)}"
    close = get_close_matches(name, drivers[kind], 1, cutoff=0.75)
    if close:
        return f"{said}, did you mean {f'{kind}.{close[0]}'!r}?"
    return f"{said}: {kind} has {', '.join(drivers[kind])}"


def _or_near(word: str, known: Collection[str]) -> str:
    near = get_close_matches(word, sorted(known), 1)
    return f"{word!r}, did you mean {near[0]!r}?" if near else f"{word!r}"


def left_out(result: T) -> T:
    """Return what an incomplete answer has instead of this."""
    return cast(T, () if isinstance(result, tuple) else None)


_substrates: dict[tuple[str, str], Substrate] = {}
_substrates_lock = threading.Lock()


def substrate(site: Site, host: str) -> Substrate:
    """Return the substrate of a site's host: one for the whole process."""
    with _substrates_lock:
        key = (str(site.state_dir), host)
        if key not in _substrates:
            _substrates[key] = _equipped(site, host)
        return _substrates[key]


def _equipped(site: Site, host: str) -> Substrate:
    has = site.fake.hosts.get(host, FakeHostSettings())
    allowed = site.hosts[host].devices if host in site.hosts else ()
    uplinks = hardware.uplinks(has, allowed)
    return Substrate(
        kept=Kept(site, host) if site.fake.keep else None,
        delay=site.fake.delay,
        bare_metal={n: hardware.bare_metal_node(n, has) for n, has in site.fake.nodes.items()},
        capacity=hardware.capacity(has),
        traits=frozenset(has.traits),
        devices=hardware.devices(has, allowed),
        uplinks={name: uplink.mode for name, uplink in uplinks.items()},
        vfs={name: [VfSettings()] * uplink.vfs for name, uplink in uplinks.items()},
    )


class Fake:
    """The base of all fake drivers: a substrate, and a kind that names their methods.

    Each public method of a driver is a call of its substrate, ``<kind>.<method>``: it is counted, may be
    slow, and has the faults that a test injects.
    """

    kind = ""

    def __init_subclass__(cls) -> None:
        for name, method in tuple(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _as_call(method))
                _METHODS.add(f"{cls.kind}.{name}")

    def __init__(self, site: Site, host: str) -> None:
        """Make a driver on the host's substrate."""
        self.site, self.host, self.substrate = site, host, substrate(site, host)


class Hears:
    """A fake driver that tells of changes; not a call of its substrate, for it blocks."""

    kind: str
    substrate: Substrate

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of what a test fires."""
        there = self.substrate
        listeners = there.uplink_listeners if self.kind == "uplink" else there.listeners
        listeners.listen(tell, hearing)


def _as_call(method: Callable[..., T]) -> Callable[..., T]:
    @wraps(method)
    def call(self: Fake, *args: object, **kw: object) -> T:
        name = f"{self.kind}.{method.__name__}"
        return self.substrate.call(name, partial(method, self, *args, **kw))

    return call


def the(things: Mapping[str, T], name: str) -> T:
    """Return one of the things.

    :raises NotFound: if it is not there.
    """
    if name not in things:
        raise NotFound(f"{name} is not there")
    return things[name]


def public_key(line: str) -> str:
    """Return an authorized key without its comment."""
    return " ".join(line.split()[:2])


def held(things: Mapping[Key, T], sliver_id: str) -> tuple[T, ...]:
    """Return the things of one sliver."""
    return tuple(thing for (sliver, _), thing in things.items() if sliver == sliver_id)
