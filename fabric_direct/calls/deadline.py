"""Time limits: of an operation, of each call that it makes, and of waiting.

A driver's call is limited from outside, by :func:`bounded`, because a call into libvirt cannot be
interrupted. A request to a cloud is limited in its transport, which also decides whether it is
retried: one call of those drivers is many requests, and may wait as long as the operation lasts.

A call that was given up may still take effect, and so may a request that got no answer
(:func:`unanswered`). The deadline keeps both until they cannot any more.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar, Generic, Self, TypeVar, cast
from weakref import WeakSet

from fabric_direct.calls import forks, metrics
from fabric_direct.calls.fence import refuse_lost
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.calls.reading import Reading
from fabric_direct.calls.tracing import span
from fabric_direct.calls.waiting import waiting_for
from fabric_direct.errors import FabricDirectError, Interrupted, TimedOut

T = TypeVar("T")
UNANSWERED = 90.0
"""Seconds for which a request may still take effect after its answer should have come. Proxies keep
one for 60 s (``haproxy_queue_timeout`` of kolla-ansible), OpenStack's services wait for each other as
long (``rpc_response_timeout``); 40 s are over when a request is given up (two thirds of
``limits.call``)."""


class Deadline:
    """The time by which an operation must end, and the calls that it gave up."""

    def __init__(
        self, at: float, whole: "Deadline | None" = None, unanswered: float = UNANSWERED
    ) -> None:
        self._at, self._whole = at, whole
        self.unanswered = unanswered
        """Seconds for which a request may still take effect that got no answer."""
        self.changing: list[Call[Any]] = []
        """The calls of drivers that may change something."""
        self.given_up: list[Call[Any]] = []
        """All of them, also those that have returned since."""

    @classmethod
    def within(cls, seconds: float, unanswered: float = UNANSWERED) -> Self:
        """Return a deadline ``seconds`` from now.

        :param unanswered: seconds for which a request may still take effect that got no answer.
        """
        return cls(time.monotonic() + seconds, unanswered=unanswered)

    def renew(self, seconds: float) -> None:
        """Move the deadline to ``seconds`` from now: undoing has time of its own."""
        self._at = time.monotonic() + seconds

    def remaining(self, at_most: float = float("inf")) -> float:
        """Return the seconds left, never negative, never more than ``at_most``."""
        return max(0.0, min(self._at - time.monotonic(), at_most))

    def of_its_own(self) -> "Deadline":
        """Return a deadline at the same time for a part of the operation.

        It is renewed apart, and waits for its own calls alone; this one keeps them, too.
        """
        return Deadline(self._at, self, self.unanswered)

    def give_up(self, calls: "Iterable[Call[Any]]") -> None:
        """Note calls that were given up and may still take effect."""
        calls = tuple(calls)
        self.given_up.extend(calls)
        if self._whole:
            self._whole.give_up(calls)

    def late(self) -> "tuple[Call[Any], ...]":
        """Return the calls that were given up and have not returned: each may still take effect."""
        return tuple(call for call in tuple(self.given_up) if not call.over.done())

    def settle(self, seconds: float) -> None:
        """Wait for the calls that were given up, at most ``seconds`` and within the deadline."""
        wait([call.over for call in self.late()], self.remaining(seconds))


class Interruption:
    """A request to operations to begin nothing more."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        """Set when they were."""
        self._waiting: set[Call[Any]] = set()
        self._parts = WeakSet[Interruption]()

    def part(self) -> "Interruption":
        """Return a request to some of them alone, which this one implies."""
        part = Interruption()
        self._parts.add(part)
        if self.begun.is_set():
            part.begin()
        return part

    def begin(self) -> None:
        """Ask them to; may be called by the handler of a signal."""
        self.begun.set()
        for part in tuple(self._parts):
            part.begin()
        for call in tuple(self._waiting):
            call.interrupt()

    def applies(self) -> AbstractContextManager[None]:
        """Have it apply to the work in the block: it begins no further call, and ends waiting."""
        return _set(_interruption, self)

    @contextmanager
    def ends(self, call: "Call[Any]") -> Iterator[None]:
        """Have it end a call that only waits and changes nothing."""
        self._waiting.add(call)
        try:
            if self.begun.is_set():
                call.interrupt()
            yield
        finally:
            self._waiting.discard(call)


class Call(Generic[T]):
    """A call in a daemon thread, in the context of its caller.

    A call cannot be interrupted: one that is given up continues, blocks neither the operation nor the
    exit of the process, and its result is dropped.
    """

    def __init__(self, what: str, function: Callable[[], T]) -> None:
        """Begin it."""
        self.what = what
        self.over: Future[T] = Future()
        """Done when the call has returned."""
        self.given_up = threading.Event()
        self.changed = False
        """Whether it is known to have changed something, whatever it raises."""
        self.taken_back = False
        """Whether it is known to have left nothing changed, though it raises an error."""
        self._outer = _current.get()
        context = copy_context()
        _Caller.take().calls.put(lambda: context.run(self._run, function))

    def result(self, seconds: float) -> T:
        """Return the result.

        :raises TimedOut: if the call has not returned in time; it is given up.
        """
        try:
            return self.over.result(seconds)
        except TimeoutError as error:
            if self.over.done():  # by now, or the error is its own
                return self.over.result()
            self.given_up.set()
            raise TimedOut(f"{self.what} did not answer", why=f"waited {seconds:.1f} s") from error

    def change(self) -> None:
        """Note that it has changed something, and so has the call that it is a part of."""
        self.changed = True
        if self._outer:
            self._outer.change()

    def interrupt(self) -> None:
        """Give it up with the error Interrupted, unless it has returned."""
        self.given_up.set()
        with suppress(InvalidStateError):
            self.over.set_exception(Interrupted(f"{self.what} was interrupted"))

    def _run(self, function: Callable[[], T]) -> None:
        _current.set(self)
        with suppress(InvalidStateError):  # it was interrupted
            try:
                self.over.set_result(function())
            except BaseException as error:  # noqa: BLE001 - carried to the waiting thread
                self.over.set_exception(error)


class UnansweredRequest(Call[None]):
    """A request that got no answer: a call that was given up, until it cannot take effect any more."""

    def __init__(self, what: str, seconds: float, then: Callable[[], object]) -> None:
        """Begin to wait until then; call ``then``."""
        self.until = time.time() + seconds
        """When that is, by the clock on the wall."""
        self._known = threading.Event()
        over = time.monotonic() + seconds

        def pass_by() -> None:
            _rest(self._known, over)
            then()

        super().__init__(what, pass_by)
        self.given_up.set()

    @classmethod
    def of_another(cls, until: float) -> "UnansweredRequest | None":
        """Return a request of another process, by the clock on the wall; None if that is over."""
        left = until - time.time()
        what = "a request of another process"
        return cls(what, left, lambda: None) if left > 0 else None

    def known(self) -> None:
        """End it: what came of the request was found."""
        self._known.set()
        self.over.result()


def _rest(known: threading.Event, until: float) -> None:
    known.wait(max(0.0, until - time.monotonic()))


@dataclass(frozen=True, slots=True)
class DriverCall:
    """A call of a driver's method."""

    name: str
    """``compute.create``"""
    ending: Deadline
    """When it is given up."""
    changing: Deadline | None
    """That of the operation, if it may change something."""


_current: ContextVar[Call[Any] | None] = ContextVar("call", default=None)
_driver_call: ContextVar[DriverCall | None] = ContextVar("driver call", default=None)
_noted: ContextVar[list[UnansweredRequest] | None] = ContextVar("noted", default=None)
_interruption: ContextVar[Interruption | None] = ContextVar("interruption", default=None)
"""What may end the waiting of this context."""


def unanswered(what: str, then: Callable[[], object] = lambda: None) -> None:
    """Note that a request got no answer: it may still take effect, for ``limits.unanswered`` seconds.

    The operation treats it as a call that was given up and has not returned. Nothing is noted outside
    of a driver's call that may change something.

    :param what: the request, as in ``POST /v2.0/ports (nic1)`` *may still take effect*.
    :param then: called when it cannot any more.
    """
    deadline, noted = _changing(), _noted.get()
    if deadline is None:
        return
    request = UnansweredRequest(what, deadline.unanswered, then)
    deadline.give_up([request])
    if noted is not None:
        noted.append(request)


def _changing() -> Deadline | None:
    """Return the deadline of the operation for which the current call may change something."""
    call = _driver_call.get()
    return call.changing if call else None


def took_effect() -> None:
    """Note that the current call has changed something: no error after that says that it did nothing."""
    call = _current.get()
    if call is not None:
        call.change()


def took_back() -> None:
    """Note that what the current call has changed was taken back, and read back as it was before."""
    call = _current.get()
    if call is not None:
        call.taken_back = True


def trying_again(_: object = None) -> None:
    """Note that a request of the current call failed, changed nothing, and is sent once more."""
    call = _driver_call.get()
    metrics.record(metrics.CALL_RETRIES, call=call.name if call else "")


@contextmanager
def noting() -> Iterator[list[UnansweredRequest]]:
    """Give access to the requests of the block that got no answer."""
    noted: list[UnansweredRequest] = []
    before = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(before)


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def time_left(at_most: float) -> float:
    """Return the seconds until the current call of a driver is given up, but at most ``at_most``."""
    call = _driver_call.get()
    return call.ending.remaining(at_most) if call else at_most


def current_call() -> Call[Any] | None:
    """Return the call that this runs in, if any: it tells whether it was given up."""
    return _current.get()


def call_within(seconds: float, what: str, function: Callable[..., T], *args: Any, **kw: Any) -> T:
    """Call ``function`` in the caller's context and wait at most ``seconds`` for its result.

    Within a driver's call that may change something, one that is given up is kept like that one.

    :raises TimedOut: if the call has not returned in time, or no time is left to begin it.
    """
    call, deadline = _begin(seconds, what, partial(function, *args, **kw)), _changing()
    try:
        return call.result(seconds)
    finally:
        if deadline and call.given_up.is_set():
            deadline.give_up([call])


def read_within(seconds: float, what: str, function: Callable[[], T]) -> T:
    """Call a function that changes nothing, and wait at most ``seconds`` for its result.

    :raises TimedOut: if it has not returned in time, or no time is left to begin it.
    :raises Interrupted: if the operation is interrupted.
    """
    return _waited(_begin(seconds, what, function), seconds)


def at_once(*questions: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the answers to questions that only read, each asked in a thread of its own.

    They are asked in the caller's context, and the call that they are a part of limits their time. When
    all have answered, an error of one is raised; of several, that of the first one given.
    """
    *others, last = questions
    calls = [Call(f"question {number}", question) for number, question in enumerate(others, 1)]
    own = _answer(last)
    answers = [*(_answer(call.over.result) for call in calls), own]
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return tuple(answers)


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception as error:  # noqa: BLE001 - raised when all have answered
        return error


def _begin(seconds: float, what: str, function: Callable[[], T]) -> Call[T]:
    if seconds <= 0:
        raise TimedOut(f"{what} was not begun", why="the time for the operation is spent")
    return Call(what, function)


class _Caller:
    """A daemon thread that makes one call after the other, and is idle in between.

    The pools of the standard library wait at exit, also for a call that never returns.
    """

    idle: ClassVar[list["_Caller"]] = []

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name="fabric-direct-call", daemon=True).start()

    @classmethod
    def take(cls) -> "_Caller":
        try:
            return cls.idle.pop()
        except IndexError:
            return cls()

    def _run(self) -> None:
        while True:
            self.calls.get()()
            self.idle.append(self)


forks.in_child(_Caller.idle.clear)


def interruption() -> Interruption | None:
    """Return what may interrupt the work of this context, if anything."""
    return _interruption.get()


def uninterrupted() -> AbstractContextManager[None]:
    """Let nothing interrupt the work in the block: undoing goes on to its end."""
    return _set(_interruption, None)


class _Unit:
    """Calls of which none is left out once one of them may have changed something."""

    def __init__(self) -> None:
        self.changing = False


_unit: ContextVar[_Unit | None] = ContextVar("unit", default=None)


@contextmanager
def in_one_piece() -> Iterator[None]:
    """Let an interruption refuse no call of the block once one that may change something has begun.

    What is half changed is changed, and read back; a call that only waits is ended all the same.
    """
    with _set(_unit, _Unit()):
        yield


def _is_interrupted() -> bool:
    """Return whether the work of this context is; what a driver's call does is not."""
    interruption = _interruption.get()
    return bool(interruption and interruption.begun.is_set() and _driver_call.get() is None)


def _refuse_interrupted(what: str) -> None:
    if _is_interrupted():
        raise Interrupted(f"interrupted while waiting for {what}")


def _refuse_another(limit: float, *, changing: bool) -> None:
    """Refuse a driver's call after an interruption, unless it is a part of what has begun to change.

    Refuse one that may change something once a lock is lost that is held for it.

    :param limit: seconds to wait, at most, until that is known.
    """
    unit = _unit.get()
    if not (unit and unit.changing) and _is_interrupted():
        raise Interrupted("the operation was interrupted")
    if changing:
        refuse_lost(limit)
    if unit and changing:
        unit.changing = True


def wait_until(what: str, so: Callable[[], bool], *, timeout: float, where: str = "") -> None:
    """Block until a condition holds; poll it.

    The pause between two polls is a twentieth of the time waited so far or as long as the last poll
    took, whichever is longer, but from 0.1 s to 2 s.

    :param what: the condition, as in *waiting for* ``the guest to shut down``.
    :raises TimedOut: if it is not so after ``timeout`` seconds.
    :raises Interrupted: if the operation is interrupted, unless a driver's call waits.
    """
    began = time.monotonic()
    with waiting_for(what) as still:
        while True:
            asked = time.monotonic()
            if so():
                return
            now = time.monotonic()
            if now - began >= timeout:
                break
            still("")
            _refuse_interrupted(what)
            time.sleep(min(2.0, max(0.1, (now - began) / 20, now - asked)))
    raise TimedOut(f"timed out after {timeout:.0f} s waiting for {what}", where=where)


class _Bounded:
    """A driver whose methods have a time limit."""

    def __init__(
        self,
        driver: Any,
        kind: str,
        deadline: Deadline,
        limit: float,
        reading: Reading,
        reads: ReadCache,
        host: str,
    ) -> None:
        self._driver, self._kind, self._host = driver, kind, host
        self._deadline, self._limit = deadline, limit
        self._reading, self._reads = reading, reads

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._driver, method)
        if not callable(value):
            return value
        if method in self._reading.once:
            return partial(self._once, method, value)
        return partial(self._call, method, value)

    def _once(self, method: str, function: Callable[..., T], *args: Any, **kw: Any) -> T:
        """Ask once; but each time after a call was given up: it may change what is there at any time."""
        ask = partial(self._call, method, function, *args, **kw)
        if self._deadline.given_up:
            return ask()
        key = (id(self._driver), self._kind, method, args, frozenset(kw.items()))
        return self._reads.once(key, ask)

    def _call(self, method: str, function: Callable[..., T], *args: Any, **kw: Any) -> T:
        name, limit, waits = f"{self._kind}.{method}", self._limit, "timeout" in kw
        changing = None if method in self._reading.all else self._deadline
        _refuse_another(self._deadline.remaining(), changing=bool(changing))
        if waits:
            kw["timeout"] = self._deadline.remaining(kw["timeout"])
            limit += kw["timeout"]
        limit = self._deadline.remaining(limit)
        driver_call = DriverCall(name, Deadline.within(limit), changing)

        def run() -> T:  # in a context of its own, which ends with it
            _driver_call.set(driver_call)
            self._reads.use()
            return function(*args, **kw)

        with span(name, host=self._host):
            call = _begin(limit, name, run)
            if changing:
                changing.changing.append(call)
            try:
                return call.result(limit) if changing or not waits else _waited(call, limit)
            except Exception as error:
                _name_driver(error, name, type(self._driver))
                raise
            finally:
                if call.given_up.is_set():
                    metrics.record(metrics.CALL_GIVEN_UP, call=name)
                    if changing:
                        changing.give_up([call])
                if changing or waits:
                    self._reads.changed()


def _name_driver(error: Exception, call: str, driver: type) -> None:
    """Note in an error that is none of this library's by which call of which driver it was raised."""
    note = f"raised by {call} ({driver.__module__}.{driver.__qualname__})"
    if not isinstance(error, FabricDirectError) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _waited(call: Call[T], limit: float) -> T:
    """Return the result of a call that only waits.

    :raises Interrupted: if the operation is interrupted.
    """
    interruption = _interruption.get()
    with interruption.ends(call) if interruption else nullcontext():
        return call.result(limit)


def bounded(
    driver: T,
    kind: str,
    deadline: Deadline,
    limit: float,
    *,
    reading: Reading = Reading(),  # noqa: B008 - it is immutable
    reads: ReadCache | None = None,
    host: str = "",
) -> T:
    """Return ``driver`` with a time limit on each call.

    A call may take ``limit`` seconds, plus its own ``timeout`` if it is given one by keyword, but never
    longer than the deadline allows. The deadline keeps the calls that were given up.

    :param reading: what its contract says of its methods.
    :param reads: keeps the answers that hold until something is changed; current in each call.
    :param host: for traces: the worker that it serves; empty for all of a cloud.
    """
    cache = reads or ReadCache()
    return cast(T, _Bounded(driver, kind, deadline, limit, reading, cache, host))
