"""Queues by key: the work of one sliver or unit runs in order, that of different ones in parallel."""

import threading
from collections import deque
from collections.abc import Callable

Begin = Callable[[], bool]


class KeyedQueue:
    """Queues by key, without threads of its own.

    When its turn comes, work is begun: a function hands it to a thread and returns at once. The work
    stays at the head of its queue until it calls :meth:`leave`.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition()
        """Held while a queue changes and while work is begun. It may guard state of the owner, too."""
        self._queues: dict[str, deque[Begin]] = {}

    def put(self, key: str, begin: Begin) -> None:
        """Append work to the queue of a key; begin it if the queue was empty.

        :param begin: hands the work to a thread; returns False if there is nothing to do any more. It is
            called with :attr:`lock` held.
        """
        with self.lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(begin)
            if len(queue) == 1:
                self._advance(key)

    def leave(self, key: str) -> None:
        """Remove the work that was begun from the head of its queue, and begin the next."""
        with self.lock:
            self._queues[key].popleft()
            self._advance(key)

    def wait(self) -> None:
        """Block until all queues are empty."""
        with self.lock:
            self.lock.wait_for(lambda: not self._queues)

    def _advance(self, key: str) -> None:
        queue = self._queues[key]
        while queue and not queue[0]():
            queue.popleft()
        if not queue:
            del self._queues[key]
            self.lock.notify_all()
