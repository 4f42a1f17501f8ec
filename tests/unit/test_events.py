"""The event loop that libvirt is given, without libvirt: pipes, timers, forks."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.libvirt.connection.event_loop import EventLoop

READABLE, WRITABLE, HANGUP = (
    libvirt.VIR_EVENT_HANDLE_READABLE,
    libvirt.VIR_EVENT_HANDLE_WRITABLE,
    libvirt.VIR_EVENT_HANDLE_HANGUP,
)
SOON, NEVER, LIMIT = 1, -1, 20


class Libvirt:
    """What libvirt does with a loop: it registers functions, and frees what it is told to."""

    def __init__(self, mocker: MockerFixture) -> None:
        self.freed: SimpleQueue[tuple[Any, threading.Thread]] = SimpleQueue()
        register = mocker.patch.object(libvirt, "virEventRegisterImpl")
        mocker.patch.object(
            libvirt,
            "virEventInvokeFreeCallback",
            lambda opaque: self.freed.put((opaque, threading.current_thread())),
        )
        self.loop = EventLoop()
        self.loop.start()
        (
            self.add_handle,
            self.update_handle,
            self.remove_handle,
            self.add_timer,
            self.update_timer,
            self.remove_timer,
        ) = register.call_args.args


@pytest.fixture
def lv(mocker: MockerFixture) -> Iterator[Libvirt]:
    made = Libvirt(mocker)
    yield made
    made.loop.stop()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def heard() -> SimpleQueue[tuple[Any, ...]]:
    return SimpleQueue()


def settle(lv: Libvirt) -> None:
    """Return when the loop has gone round: what was ready before has been told by then."""
    gone_round: SimpleQueue[int] = SimpleQueue()
    for _ in range(2):
        timer = lv.add_timer(0, lambda number, _: gone_round.put(number), "settle")
        gone_round.get(timeout=LIMIT)
        lv.remove_timer(timer)
        while lv.freed.get(timeout=LIMIT)[0] != "settle":
            pass


def taking(heard: SimpleQueue[Any]) -> Callable[..., None]:
    """Return a callback that reads what its descriptor has."""

    def callback(watch: int, descriptor: int, events: int, opaque: Any) -> None:
        os.read(descriptor, 100)
        heard.put((watch, descriptor, events, opaque))

    return callback


def test_what_can_be_read_is_told_in_the_loops_thread(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any]
) -> None:
    reader, writer = pipe
    tell = taking(heard)

    def callback(*args: Any) -> None:
        tell(*args)
        heard.put(threading.current_thread().name)

    watch = lv.add_handle(reader, READABLE, callback, "mine")
    os.write(writer, b"x")

    assert heard.get(timeout=LIMIT) == (watch, reader, READABLE, "mine")
    assert heard.get(timeout=LIMIT) == "libvirt-events"


def test_a_silenced_handle_is_not_told_until_it_is_wanted_again(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any]
) -> None:
    reader, writer = pipe
    watch = lv.add_handle(reader, READABLE, taking(heard), None)
    lv.update_handle(watch, 0)
    os.write(writer, b"x")
    settle(lv)
    assert heard.empty()

    lv.update_handle(watch, READABLE)

    assert heard.get(timeout=LIMIT)[0] == watch


def test_what_comes_while_the_loop_sleeps_is_told_after_a_handle_was_silenced_and_wanted_again(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any]
) -> None:
    reader, writer = pipe
    watch = lv.add_handle(reader, READABLE, taking(heard), None)
    for _ in range(100):
        lv.update_handle(watch, 0)
        lv.update_handle(watch, READABLE)
        os.write(writer, b"x")
        assert heard.get(timeout=LIMIT)[0] == watch


def test_handles_that_share_a_descriptor_are_told_what_each_wants(
    lv: Libvirt, heard: SimpleQueue[Any]
) -> None:
    near, far = socket.socketpair()
    with near, far:
        reading = lv.add_handle(near.fileno(), READABLE, taking(heard), "reads")
        writing: SimpleQueue[int] = SimpleQueue()

        def once(watch: int, _: int, events: int, __: Any) -> None:
            lv.update_handle(watch, 0)
            writing.put(events)

        lv.add_handle(near.fileno(), WRITABLE, once, "writes")

        assert writing.get(timeout=LIMIT) == WRITABLE
        assert heard.empty()
        far.send(b"x")
        assert heard.get(timeout=LIMIT)[0] == reading
        for watch in (reading, reading + 1):
            lv.remove_handle(watch)


def test_a_hang_up_is_told_though_only_reading_is_wanted(
    lv: Libvirt, heard: SimpleQueue[Any]
) -> None:
    reader, writer = os.pipe()

    def callback(watch: int, _: int, events: int, __: Any) -> None:
        lv.remove_handle(watch)
        heard.put(events)

    lv.add_handle(reader, READABLE, callback, None)
    os.close(writer)

    assert heard.get(timeout=LIMIT) & HANGUP
    os.close(reader)


def test_a_removed_handle_is_told_no_more_and_is_freed_by_the_loops_thread(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any]
) -> None:
    reader, writer = pipe
    watch = lv.add_handle(reader, READABLE, taking(heard), "mine")

    assert lv.remove_handle(watch) == 0

    opaque, thread = lv.freed.get(timeout=LIMIT)
    assert (opaque, thread.name) == ("mine", "libvirt-events")
    os.write(writer, b"x")
    settle(lv)
    assert heard.empty()


def test_what_is_unknown_cannot_be_removed(lv: Libvirt) -> None:
    assert lv.remove_handle(4711) == lv.remove_timer(4711) == -1


def test_a_descriptor_that_was_removed_and_closed_may_come_again(
    lv: Libvirt, heard: SimpleQueue[Any]
) -> None:
    for _ in range(3):
        reader, writer = os.pipe()
        watch = lv.add_handle(reader, READABLE, taking(heard), None)
        os.write(writer, b"x")
        assert heard.get(timeout=LIMIT)[0] == watch
        lv.remove_handle(watch)
        os.close(reader)
        os.close(writer)


def test_a_timer_goes_off_again_and_again(lv: Libvirt, heard: SimpleQueue[Any]) -> None:
    timer = lv.add_timer(SOON, lambda *args: heard.put(args), "mine")

    assert [heard.get(timeout=LIMIT) for _ in range(3)] == [(timer, "mine")] * 3


def test_a_timer_that_is_never_due_can_be_set_and_stopped(
    lv: Libvirt, heard: SimpleQueue[Any]
) -> None:
    timer = lv.add_timer(NEVER, lambda *args: heard.put(args), None)
    settle(lv)
    assert heard.empty()

    lv.update_timer(timer, SOON)
    heard.get(timeout=LIMIT)
    lv.update_timer(timer, NEVER)
    settle(lv)
    while not heard.empty():
        heard.get()
    settle(lv)

    assert heard.empty()


def test_a_timer_that_is_brought_forward_ends_the_loops_sleep(
    lv: Libvirt, heard: SimpleQueue[Any]
) -> None:
    timer = lv.add_timer(3_600_000, lambda *args: heard.put(args), None)
    settle(lv)

    lv.update_timer(timer, SOON)

    assert heard.get(timeout=LIMIT) == (timer, None)


def test_a_removed_timer_goes_off_no_more_and_is_freed(
    lv: Libvirt, heard: SimpleQueue[Any]
) -> None:
    timer = lv.add_timer(3_600_000, lambda *args: heard.put(args), "mine")

    assert lv.remove_timer(timer) == 0

    assert lv.freed.get(timeout=LIMIT)[0] == "mine"


def test_a_callback_may_add_and_remove(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any]
) -> None:
    reader, writer = pipe

    def callback(watch: int, _: int, __: int, opaque: Any) -> None:
        lv.remove_handle(watch)
        lv.add_timer(SOON, lambda timer, _: (lv.remove_timer(timer), heard.put("late")), None)

    lv.add_handle(reader, READABLE, callback, None)
    os.write(writer, b"x")

    assert heard.get(timeout=LIMIT) == "late"


def test_a_callback_that_raises_is_told_and_keeps_no_other_from_being_called(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = pipe

    def broken(timer: int, _: Any) -> None:
        lv.remove_timer(timer)
        raise ValueError("broken callback")

    lv.add_timer(SOON, broken, None)
    lv.freed.get(timeout=LIMIT)
    lv.add_handle(reader, READABLE, taking(heard), "mine")
    os.write(writer, b"x")

    assert heard.get(timeout=LIMIT)[-1] == "mine"
    assert "a callback of libvirt's event loop failed" in caplog.text
    assert "broken callback" in caplog.text


def test_a_forked_child_begins_anew_and_leaves_the_parents_loop_alone(
    lv: Libvirt, pipe: tuple[int, int], heard: SimpleQueue[Any]
) -> None:
    reader, writer = pipe
    watch = lv.add_handle(reader, READABLE, taking(heard), None)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        fresh = lv.remove_handle(watch) == -1
        lv.loop.start()
        mine: SimpleQueue[int] = SimpleQueue()
        lv.add_timer(SOON, lambda timer, _: mine.put(timer), None)
        mine.get(timeout=LIMIT)
        os._exit(0 if fresh else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.write(writer, b"x")
    assert heard.get(timeout=LIMIT)[0] == watch
