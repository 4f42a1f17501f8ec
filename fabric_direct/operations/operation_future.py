"""The future of an operation's outcome, for threads and for event loops."""

from collections.abc import Collection, Generator
from concurrent.futures import Future
from threading import get_ident
from typing import Any, Protocol

from fabric_direct.calls.deadline import Interruption
from fabric_direct.errors import Conflict
from fabric_direct.model import Outcome


class Posted(Protocol):
    """What has another process carry operations out."""

    def cancel(self, ids: Collection[str], *, interrupt: bool = False) -> tuple[str, ...]:
        """Cancel those that have not begun, and return them; interrupt the others, if asked to."""


class OperationFuture(Future[Outcome]):
    """The outcome of an operation, once it has ended.

    A thread waits by :meth:`result`, a coroutine by ``await``. If a task that awaits it is cancelled, so
    is the operation, unless it has begun: then it goes on, and :meth:`result` has its outcome.
    """

    def __init__(self) -> None:
        """Make one that is pending."""
        super().__init__()
        self.sliver = ""
        """The id of the sliver."""
        self._busy = dict[int, str]()
        self._interruption = Interruption()
        self._posted: Posted | None = None
        self.id = ""
        """Of the operation in the queue of conductors; empty without conductors."""

    def in_line(self, sliver: str, busy: dict[int, str], interruption: Interruption) -> None:
        """Note that the operation waits for others on its sliver.

        :param busy: the slivers on which threads carry out operations, by the thread.
        :param interruption: what interrupts it.
        """
        self.sliver, self._busy, self._interruption = sliver, busy, interruption

    def interrupt(self) -> bool:
        """Cancel the operation; if it has begun, begin no further step of it.

        One that has begun ends as :meth:`HandlerProcessor.interrupt
        <fabric_direct.HandlerProcessor.interrupt>` says. Others, also later ones on its sliver, go on.

        :returns: whether it was cancelled. False: :meth:`result` has its outcome.
        """
        if self._posted and not self.done():
            return self._withdrawn(self._posted, interrupt=True)
        if self.cancel():
            return True
        self._interruption.begin()
        return False

    # --- with conductors

    def goes_to(self, posted: Posted, id_: str) -> None:
        """Note that another process carries the operation out."""
        self._posted, self.id = posted, id_

    def cancel(self) -> bool:
        """Cancel the operation, unless it has begun; return whether it was."""
        if self._posted and not self.done():
            return self._withdrawn(self._posted, interrupt=False)
        return super().cancel()

    def _withdrawn(self, posted: Posted, *, interrupt: bool) -> bool:
        withdrawn = self.id in posted.cancel([self.id], interrupt=interrupt)
        if withdrawn and not self.done():  # nobody waits for it any more
            self.is_cancelled()
        return withdrawn

    def is_cancelled(self) -> None:
        """Note that the operation was cancelled; called once."""
        if super().cancel():
            self.set_running_or_notify_cancel()

    def has_begun(self) -> None:
        """Note that the operation has begun; called by the thread that hears of it."""
        if not self.running():
            self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Outcome:
        """Return the outcome; wait for it at most ``timeout`` seconds.

        :raises Conflict: if a callback waits for an operation that begins only after its own.
        :raises TimeoutError: if the time is over.
        :raises CancelledError: if it was cancelled.
        """
        if not self.done() and self._busy.get(get_ident()) == self.sliver:
            raise Conflict(
                f"the callback of an operation on {self.sliver} cannot wait for the next one",
                remedy="begin it there, and wait for it elsewhere",
            )
        return super().result(timeout)

    def __await__(self) -> Generator[Any, None, Outcome]:
        """Wait for the outcome in the running event loop, which goes on meanwhile."""
        from asyncio import wrap_future  # noqa: PLC0415 - a program without an event loop has no need

        return wrap_future(self).__await__()
