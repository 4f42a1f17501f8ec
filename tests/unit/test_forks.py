"""What a forked child makes anew."""

import ctypes
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric_direct.calls import forks


def in_child(true: Callable[[], bool]) -> bool:
    """Return what a forked child says."""
    child = os.fork()
    if child == 0:
        os._exit(0 if true() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Connection:
    def __init__(self) -> None:
        self.open = True
        forks.in_child(self.forget)

    def forget(self) -> None:
        self.open = False


def test_a_function_is_called_in_the_child_alone_each_time() -> None:
    calls: list[str] = []

    @forks.in_child
    def reset() -> None:
        calls.append("reset")

    assert in_child(lambda: calls == ["reset"])
    assert in_child(lambda: calls == ["reset"])
    assert calls == []


def test_functions_are_called_in_the_order_of_their_registration() -> None:
    calls: list[int] = []
    forks.in_child(lambda: calls.append(1))
    forks.in_child(lambda: calls.append(2))

    assert in_child(lambda: calls == [1, 2])


def test_an_object_forgets_as_long_as_it_lives() -> None:
    connection = Connection()

    assert in_child(lambda: not connection.open)
    assert connection.open


def test_an_object_is_not_kept_alive_by_it() -> None:
    connection = Connection()
    (number,) = (n for n, reset in tuple(forks._resets.items()) if reset() == connection.forget)

    del connection
    gc.collect()

    assert number not in forks._resets  # those of other objects come and go meanwhile


def test_an_object_may_outlive_the_module_when_the_interpreter_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    connection = Connection()
    with monkeypatch.context() as ending:
        ending.setattr(forks, "_resets", None)
        del connection
        gc.collect()
    assert raised == []


def test_a_lock_that_the_parent_holds_is_free_in_the_child() -> None:
    lock = forks.Lock()

    def take() -> bool:
        with lock:
            return True

    with lock:
        assert in_child(take)
    assert in_child(take)


def test_a_lock_excludes_others_in_one_process() -> None:
    lock = forks.Lock()

    with lock:
        assert not lock._lock.acquire(blocking=False)
    assert lock._lock.acquire(blocking=False)


LIBC = ctypes.CDLL(None)


def is_there(thread: int) -> bool:
    return Path(f"/proc/self/task/{thread}").exists()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose threads of C have been waited for once; it waits long for one that ends."""
    assert in_child(lambda: True)
    monkeypatch.setattr(forks, "ENDING", 60)


@pytest.mark.usefixtures("patient")
class TestAThreadThatEnds:
    """It may hold a lock of a C library when Python is done with it; OpenSSL's, for one."""

    def ending(self) -> int:
        """Return the id of a thread that Python is done with, and that lives on for 0.3 s."""
        key = ctypes.c_uint()
        assert LIBC.pthread_key_create(ctypes.byref(key), LIBC.usleep) == 0
        thread = threading.Thread(
            target=LIBC.pthread_setspecific, args=(key, ctypes.c_void_p(300_000))
        )
        thread.start()
        thread.join()
        assert thread.native_id is not None
        return thread.native_id

    def test_is_waited_for(self) -> None:
        thread = self.ending()

        assert in_child(lambda: True)

        assert not is_there(thread)

    def test_is_waited_for_in_a_child_too(self) -> None:
        def forks_without_it() -> bool:
            thread = self.ending()
            return in_child(lambda: True) and not is_there(thread)

        assert in_child(forks_without_it)


def test_a_thread_that_is_not_pythons_is_waited_for_once_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    semaphore, thread = ctypes.create_string_buffer(64), ctypes.c_ulong()
    LIBC.sem_init(semaphore, 0, 0)
    assert LIBC.pthread_create(ctypes.byref(thread), None, LIBC.sem_wait, semaphore) == 0

    assert in_child(lambda: True)
    monkeypatch.setattr(forks, "ENDING", 3600)
    assert in_child(lambda: in_child(lambda: True))

    LIBC.sem_post(semaphore)
    LIBC.pthread_join(thread, None)


def test_an_object_that_goes_when_its_reference_is_half_gone_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the interpreter ends: of what refers to each other, either may go first."""
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    connection = Connection()
    of = weakref.getweakrefs(connection)
    forks._resets.popitem()
    del connection
    gc.collect()

    assert of
    assert raised == []


class Slow:
    """A property that takes as long as nobody lets it go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.times = 0

    @forks.cached_property
    def value(self) -> int:
        self.begun.set()
        assert self.go_on.wait(60)
        self.times += 1
        return 7


class TestACachedProperty:
    def test_is_computed_once_for_each_object(self) -> None:
        slow, other = Slow(), Slow()
        slow.go_on.set()
        other.go_on.set()

        assert [slow.value, slow.value, other.value] == [7, 7, 7]
        assert (slow.times, other.times) == (1, 1)

    def test_can_be_computed_in_a_child_forked_while_a_thread_computes_it(self) -> None:
        slow, other = Slow(), Slow()
        thread = threading.Thread(target=lambda: slow.value)
        thread.start()
        assert slow.begun.wait(60)
        other.go_on.set()

        def computes() -> bool:
            found: list[int] = []
            inner = threading.Thread(target=lambda: found.append(other.value), daemon=True)
            inner.start()
            inner.join(60)
            return found == [7]

        computed = in_child(computes)
        slow.go_on.set()
        thread.join()

        assert computed
