"""libvirt's event loop for this process: keepalive and domain events are served by a daemon thread.

libvirt's own loop cannot be restarted in a forked child: its tables hold the parent's sockets, and its
lock may be held for ever by a thread that the child does not have (``virConnectOpen`` then hangs). This
one starts anew in a child. It does what libvirt requires of a loop, see
https://libvirt.org/html/libvirt-libvirt-event.html#virEventRegisterImpl

Each call of libvirt stops listening to its socket, reads the answer itself, and postpones timers. epoll
takes the first without waking the loop's thread, which so sleeps through other threads' calls.
"""

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import libvirt

from fabric_direct.calls import forks
from fabric_direct.drivers.ssh import tcp

log = logging.getLogger(__name__)

# libvirt's bits and those of epoll, in pairs.
_BITS = (
    (libvirt.VIR_EVENT_HANDLE_READABLE, select.EPOLLIN),
    (libvirt.VIR_EVENT_HANDLE_WRITABLE, select.EPOLLOUT),
    (libvirt.VIR_EVENT_HANDLE_ERROR, select.EPOLLERR),
    (libvirt.VIR_EVENT_HANDLE_HANGUP, select.EPOLLHUP),
)

# Seconds that a callback may take to end when the process does.
STOP = 2.0


@dataclass
class _Handle:
    descriptor: int
    events: int
    callback: Callable[..., None]
    opaque: Any


@dataclass
class _Timer:
    interval: int
    """Milliseconds; -1 is never."""
    due: float
    callback: Callable[..., None]
    opaque: Any


class EventLoop:
    """File descriptors and timers that libvirt registers, from any thread."""

    def __init__(self) -> None:
        """Create the loop; :meth:`start` runs it."""
        self._registered = False
        self._thread: threading.Thread | None = None
        self._begin()

    def start(self) -> None:
        """Run the loop in this process; call it before a connection is opened."""
        with self._lock:
            if not self._registered:
                self._register()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="libvirt-events", daemon=True)
                self._thread = thread
                thread.start()

    def stop(self) -> None:
        """End the thread, so that the end of the process does not stop it in a callback."""
        self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(STOP)

    def _register(self) -> None:
        self._registered = True
        forks.in_child(self._reset)
        libvirt.virEventRegisterImpl(
            self._add_handle,
            self._update_handle,
            lambda watch: self._remove(self._handles, watch),
            self._add_timer,
            self._update_timer,
            lambda timer: self._remove(self._timers, timer),
        )

    def _reset(self) -> None:
        """Start anew in a forked child, without the parent's descriptors and timers."""
        self._epoll.close()
        os.close(self._woken)
        os.close(self._waker)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._stopping = False
        self._ids = count(1)
        self._handles: dict[int, _Handle] = {}
        self._timers: dict[int, _Timer] = {}
        # To be freed by the thread: freed from libvirt's own stack, they deadlock.
        self._freed: deque[Any] = deque()
        self._epoll, self._polled = select.epoll(), set[int]()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._woken, select.EPOLLIN)
        self._asleep_until = 0.0
        self._thread = None

    # --- what libvirt calls

    def _add_handle(
        self, descriptor: int, events: int, callback: Callable[..., None], opaque: Any
    ) -> int:
        _notice_loss(descriptor)
        with self._lock:
            number = next(self._ids)
            self._handles[number] = _Handle(descriptor, events, callback, opaque)
            self._listen(descriptor)
        return number

    def _update_handle(self, watch: int, events: int) -> None:
        with self._lock:
            handle = self._handles.get(watch)
            if handle is not None:
                handle.events = events
                self._listen(handle.descriptor)

    def _add_timer(self, interval: int, callback: Callable[..., None], opaque: Any) -> int:
        due = _due(interval)
        with self._lock:
            number = next(self._ids)
            self._timers[number] = _Timer(interval, due, callback, opaque)
        self._wake_by(due)
        return number

    def _update_timer(self, timer: int, interval: int) -> None:
        due = _due(interval)
        with self._lock:
            entry = self._timers.get(timer)
            if entry is not None:
                entry.interval, entry.due = interval, due
        self._wake_by(due)

    def _remove(self, table: dict[int, Any], number: int) -> int:
        with self._lock:
            entry = table.pop(number, None)
            if entry is None:
                return -1
            if isinstance(entry, _Handle):
                self._listen(entry.descriptor)
            self._freed.append(entry.opaque)
        self._wake()
        return 0

    def _listen(self, descriptor: int) -> None:
        """Have epoll report what is wanted of the descriptor, also while the thread sleeps."""
        wanted = 0
        for handle in self._handles.values():
            if handle.descriptor == descriptor:
                wanted |= _to_epoll(handle.events)
        if descriptor in self._polled:
            self._change(descriptor, wanted)
        elif wanted:
            self._epoll.register(descriptor, wanted)
            self._polled.add(descriptor)

    def _change(self, descriptor: int, wanted: int) -> None:
        if wanted:
            self._epoll.modify(descriptor, wanted)
            return
        self._polled.discard(descriptor)
        with suppress(OSError):  # it may be closed already, and has left epoll with that
            self._epoll.unregister(descriptor)

    def _wake_by(self, due: float) -> None:
        """Wake the thread if it would sleep for longer."""
        if due < self._asleep_until:
            self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._waker, b"x")
        except BlockingIOError:
            return  # the pipe is full, so it wakes anyway

    # --- the thread

    def _run(self) -> None:
        while not self._stopping:
            ready = self._poll()
            for watch, descriptor, events in self._ready_handles(ready):
                self._dispatch(self._handles, watch, descriptor, events)
            for timer in self._due_timers():
                self._dispatch(self._timers, timer)
            while self._freed:
                _call(libvirt.virEventInvokeFreeCallback, self._freed.popleft())

    def _poll(self) -> dict[int, int]:
        ready = dict(self._epoll.poll(self._seconds_to_sleep()))
        if ready.pop(self._woken, None):
            os.read(self._woken, 4096)
        return ready

    def _seconds_to_sleep(self) -> float | None:
        """Return the seconds until a timer is due; None if there is none."""
        with self._lock:
            due = min((t.due for t in self._timers.values()), default=float("inf"))
            self._asleep_until = due
        return None if due == float("inf") else max(0.0, due - time.monotonic())

    def _ready_handles(self, ready: dict[int, int]) -> list[tuple[int, int, int]]:
        with self._lock:
            return [
                (watch, handle.descriptor, events)
                for watch, handle in self._handles.items()
                if (events := _from_epoll(ready.get(handle.descriptor, 0), handle.events))
            ]

    def _due_timers(self) -> list[int]:
        now = time.monotonic()
        with self._lock:
            due = [number for number, timer in self._timers.items() if timer.due <= now]
            for number in due:
                self._timers[number].due = _due(self._timers[number].interval)
        return due

    def _dispatch(self, table: dict[int, Any], number: int, *arguments: int) -> None:
        """Call back, without the lock, unless an earlier callback removed the entry."""
        with self._lock:
            entry = table.get(number)
        if entry is not None:
            _call(entry.callback, number, *arguments, entry.opaque)


def _call(callback: Callable[..., None], *arguments: Any) -> None:
    """Call back; an error is logged, so that it does not end the thread."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of libvirt's event loop failed")


def _notice_loss(descriptor: int) -> None:
    """Have the kernel end a TCP connection whose other end is gone; leave anything else as it is."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family in {socket.AF_INET, socket.AF_INET6}:
            tcp.notice_loss(connection)


def _due(interval: int) -> float:
    return float("inf") if interval < 0 else time.monotonic() + interval / 1000


def _to_epoll(events: int) -> int:
    return sum(theirs for ours, theirs in _BITS if events & ours)


def _from_epoll(mask: int, wanted: int) -> int:
    """Return libvirt's bits; errors and hang-ups are always reported."""
    told = wanted | libvirt.VIR_EVENT_HANDLE_ERROR | libvirt.VIR_EVENT_HANDLE_HANGUP
    return sum(ours for ours, theirs in _BITS if mask & theirs and ours & told)
