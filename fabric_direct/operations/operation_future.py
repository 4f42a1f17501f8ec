"""The future of an operation's outcome, for threads and for event loops."""

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from fabric_direct.model import Outcome


class OperationFuture(Future[Outcome]):
    """The outcome of an operation, once it has ended.

    A thread waits by :meth:`result`, a coroutine by ``await``. If a task that awaits it is cancelled, so
    is the operation, unless it has begun: then it goes on, and :meth:`result` has its outcome.
    """

    def __await__(self) -> Generator[Any, None, Outcome]:
        """Wait for the outcome in the running event loop, which goes on meanwhile."""
        from asyncio import wrap_future  # noqa: PLC0415 - a program without an event loop has no need

        return wrap_future(self).__await__()
