"""The front: has conductors carry operations out, and hears what comes of them.

One thread posts what is asked for, in order; what was asked for together is posted together, or not at
all. Another one hears of outcomes: by notices, and by looking, as a notice may be lost.
"""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import uuid4
from weakref import WeakSet

from pydantic import TypeAdapter

from fabric_direct.calls import forks
from fabric_direct.calls.waiting import Waiting
from fabric_direct.engine.run import attempt
from fabric_direct.errors import DriverError, NotFound, TimedOut, Unreachable
from fabric_direct.model import NodeSliver, Outcome
from fabric_direct.operations.operation_future import OperationFuture
from fabric_direct.operations.outcomes import failed
from fabric_direct.operations.progress import Progress
from fabric_direct.operations.requests import OperationRequest, dumps
from fabric_direct.operations.signatures import RequestKeys
from fabric_direct.state.audit_trail import Asker, asker
from fabric_direct.state.postgresql.queue import OperationQueue, Post

log = logging.getLogger(__name__)
T = TypeVar("T")
Before = Collection[Future[Outcome]]
PROGRESS = TypeAdapter(Progress)
_LOOK = 2.0
"""Seconds after which what is waited for is looked at, if no notice comes."""
_TURN = 0.25
"""Seconds after which a thread that waits for notices sees whether it shall end."""
_IDLE = 30.0
"""Seconds without anything to do after which a thread ends."""
_GIVE_UP = 5.0
"""Seconds that giving up an operation waits for what is being posted."""


@dataclass(frozen=True, eq=False)
class Asked:
    """An operation that somebody asked for."""

    id: str
    request: OperationRequest
    future: OperationFuture
    before: Before
    """The futures of operations, asked for with it, that it begins after."""
    asker: Asker


class Front:
    """Posts operations of a site to its conductors."""

    def __init__(
        self,
        queue: OperationQueue,
        *,
        at_most: int,
        patience: float,
        keys: RequestKeys,
        ended: Callable[[OperationFuture, Outcome], object],
        tell: Callable[[Progress], None] | None,
    ) -> None:
        """Connect to nothing yet.

        :param at_most: how many operations may wait.
        :param patience: seconds to wait for a database that does not answer, before what is asked for is
            refused.
        :param keys: what signs the requests.
        :param ended: called with each outcome; it must not block.
        :param tell: hears of each step, if anybody wants to.
        """
        self._queue, self._at_most, self._patience, self._keys = queue, at_most, patience, keys
        self._ended, self._tell = ended, tell
        self._changed = threading.Condition()
        self._unposted: list[list[Asked]] = []
        self._posting: list[list[Asked]] = []
        self._waiting: dict[str, Asked] = {}
        self._posts = self._listens = False
        """Whether there is a thread that does."""
        self._threads: list[threading.Thread] = []
        self._silent = self._lonely = self._closed = False
        """Whether the database does not answer, no conductor runs, and nothing more will be asked."""
        self._impatient = False
        """Whether what could not be posted yet is given up."""
        _all.add(self)

    # --- asking

    def ask(self, group: "Sequence[tuple[OperationRequest, OperationFuture, Before]]") -> None:
        """Have operations posted, in order and together.

        :param group: each with its future, and those of others of the group that it begins after.
        """
        asked = [Asked(uuid4().hex, *each, asker()) for each in group]
        for each in asked:
            each.future.goes_to(self, each.id)
        with self._changed:
            self._unposted.append(asked)
            self._changed.notify_all()
            if not self._posts:
                self._posts = True
                self._start(self._post_all, "post")

    def _post_all(self) -> None:
        """Post what is asked for, until nothing was for a while; a thread's work."""
        while self._next_groups():
            posts = [attempt(self._as_posts, group) for group in self._posting]
            valid = [each for each in posts if not isinstance(each, Exception)]
            together = attempt(self._post, [post for each in valid for post in each])
            for group, each in zip(self._posting, posts, strict=True):
                if isinstance(each, Exception):
                    self._tell_unposted(group, each)
                elif _may_be_of_another(together) and len(valid) > 1:
                    self._tell_unposted(group, attempt(self._post, each))
                else:
                    self._tell_unposted(group, together)

    def _next_groups(self) -> bool:
        """Wait for what is asked for, and have it posted now; return whether anything was."""
        with self._changed:
            self._posting = []
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._unposted or self._closed, _IDLE)
            self._posting, self._unposted = self._unposted, []
            self._posts = bool(self._posting)
            self._waiting |= {each.id: each for group in self._posting for each in group}
            if self._posts and not self._listens:
                self._listens = True
                self._start(self._listen, "listen")
        return self._posts

    def _as_posts(self, group: Sequence[Asked]) -> list[Post]:
        """Return what is posted of operations that were asked for together.

        :raises InvalidSliver: if the data of an action cannot be sent.
        """
        ids: dict[Future[Outcome], str] = {each.future: each.id for each in group}
        return [self._as_post(each, tuple(ids[future] for future in each.before)) for each in group]

    def _as_post(self, asked: Asked, before: tuple[str, ...]) -> Post:
        sliver, request = asked.request.sliver, dumps(asked.request)
        asker = asked.asker.model_dump_json()
        named = isinstance(sliver, NodeSliver) and sliver.host not in {None, "auto"}
        return Post(
            id=asked.id,
            sliver=sliver.id,
            type=sliver.type,
            operation=asked.request.operation.value,
            action=asked.request.action,
            request=request,
            asker=asker,
            signature=self._keys.sign(asked.id, request, asker),
            host=str(sliver.host) if isinstance(sliver, NodeSliver) and named else "",
            before=before,
            told=self._tell is not None,
        )

    def _post(self, posts: Sequence[Post]) -> bool:
        """Post; return whether that is known to have worked.

        :raises Conflict: if too many wait.
        :raises DriverError: if the database did not answer at all, or refused it.
        """
        end, known = time.monotonic() + self._patience, True
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                at_once = min(left, _TURN)
                if self._queue.post(posts, at_most=self._at_most, patience=at_once):
                    return True
                known = False
            except DriverError as error:
                again = isinstance(error, Unreachable) and left and not self._impatient
                if known and not again:
                    raise
            if not left or self._impatient:
                return False
            time.sleep(0.1)

    def _tell_unposted(self, group: Iterable[Asked], answer: bool | Exception) -> None:
        """Tell that operations were not posted, or that it is not known whether they were."""
        if answer is True:
            return
        why, left = answer, tuple[str, ...]()
        if not isinstance(why, Exception):
            why = Unreachable("the database did not answer the request", where=self._queue.where)
            left = ("unknown: it may have been posted; fabric-direct operations list shows it",)
        for each in group:
            self._end(each, failed(each.request.operation, each.request.sliver, why, left))

    # --- giving up

    def cancel(self, ids: Collection[str], *, interrupt: bool = False) -> tuple[str, ...]:
        """Cancel operations that have not begun, and return them.

        One of which that cannot be found out is as one that has begun.

        :param interrupt: interrupt those that have.
        """
        with self._changed:
            dropped = self._drop(ids)
            futures = {id_: self._waiting[id_].future for id_ in ids if id_ in self._waiting}
            self._changed.wait_for(lambda: not self._posts_now(ids), _GIVE_UP)
        rest = [*set(ids).difference(each.id for each in dropped)]
        give_up = partial(self._queue.cancel, rest, interrupt=interrupt)
        answer = attempt(give_up) if rest else ()
        if isinstance(answer, Exception):
            log.warning("operations are not given up: %s", answer)
            answer = ()
        self._cancelled(answer)
        for each in dropped:
            each.future.is_cancelled()
        wait([futures[id_] for id_ in answer if id_ in futures])  # the other thread may know first
        return (*answer, *(each.id for each in dropped))

    def _drop(self, ids: Collection[str]) -> list[Asked]:
        """Drop what was not posted yet, unless others of its group begin after it."""
        dropped = []
        for group in self._unposted:
            needed = {future for each in group for future in each.before}
            for each in [e for e in group if e.id in ids and e.future not in needed]:
                group.remove(each)
                dropped.append(each)
        return dropped

    def _posts_now(self, ids: Collection[str]) -> bool:
        """Return whether any of them is just being posted; the caller holds the lock."""
        return any(each.id in ids for group in self._posting for each in group)

    def _cancelled(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            if each := self._forget(id_):
                each.future.is_cancelled()

    def give_up(self, ids: Collection[str]) -> tuple[str, ...]:
        """Cancel or interrupt operations as :meth:`cancel` does; post nothing later."""
        self._impatient = True
        return self.cancel(ids, interrupt=True)

    def leave(self) -> None:
        """Wait until what was asked for is posted, or could not be; hear no more of what is."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._unposted or self._posting))
            self._waiting.clear()

    def close(self, *, and_wait: bool) -> None:
        """Have the threads end: nothing more is asked for, or waited for.

        :param and_wait: whether to wait until they have.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads if and_wait else ():
            if thread is not threading.current_thread():
                thread.join()

    def _start(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=f"fabric-direct-{name}", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    # --- hearing

    def _listen(self) -> None:
        """Hear of what is waited for, until there was nothing for a while; a thread's work."""
        notices, looked = self._queue.notices(_TURN), 0.0
        until = time.monotonic() + _IDLE
        while self._listens_until(until):
            changes = self._answer(notices.wait) or set()
            now = time.monotonic()
            with self._changed:
                waiting = dict(self._waiting)
            if not waiting:
                continue
            until = now + _IDLE
            ended = {id_ for kind, id_ in changes if kind == "ended"} & waiting.keys()
            if now - looked >= _LOOK:
                looked = now
                self._answer(self._look, waiting, waiting)
                self._answer(self._look_for_conductors, waiting)
            elif ended or (self._tell and ("progress", "") in changes):
                self._answer(self._look, waiting, ended)
        notices.close()

    def _listens_until(self, until: float) -> bool:
        with self._changed:
            idle = not self._closed and time.monotonic() < until
            self._listens = bool(self._waiting) or idle
            return self._listens

    def _answer(self, ask: Callable[..., T], *about: object) -> T | None:
        """Return the answer of the queue; None if there is none."""
        answer = attempt(ask, *about)
        if not isinstance(answer, Exception):
            self._silent = False
            return answer
        if not self._silent:
            log.warning("cannot hear what becomes of operations: %s", answer)
        self._silent = True
        time.sleep(0.2)
        return None

    def _look(self, waiting: Mapping[str, Asked], ids: Collection[str]) -> None:
        """Look at what has become of some of the operations that are waited for."""
        with self._changed:
            posted = {*ids}.difference(each.id for group in self._posting for each in group)
        news = self._queue.news(ids)
        for id_ in news.begun:
            waiting[id_].future.has_begun()
        if self._tell:
            for id_, text in self._queue.progress(waiting):
                waiting[id_].future.has_begun()
                attempt(self._told, text)
        self._cancelled(news.cancelled)
        for id_, text in news.outcomes.items():
            self._end(waiting[id_], _outcome(waiting[id_].request, text))
        for id_ in posted.intersection(news.missing):  # it was restored to an earlier time
            request = waiting[id_].request
            why = NotFound("the queue of operations does not have it", where=self._queue.where)
            left = ("unknown: what came of it",)
            self._end(waiting[id_], failed(request.operation, request.sliver, why, left))

    def _told(self, text: str) -> None:
        if self._tell:
            self._tell(PROGRESS.validate_json(text))

    def _look_for_conductors(self, waiting: Mapping[str, Asked]) -> None:
        """Tell who waits if there is no conductor that could carry anything out."""
        futures = ((each, each.future) for each in waiting.values())
        late = [each for each, future in futures if not (future.running() or future.done())]
        lonely = bool(late) and not self._queue.conductors()
        if lonely == self._lonely:
            return
        self._lonely = lonely
        if lonely:
            log.warning("no conductor runs: operations wait for one")
        waits = Waiting("a conductor", "none runs") if lonely else Waiting("")
        if self._tell:
            for request in (each.request for each in late):
                about = request.sliver.id, request.operation, ""
                attempt(self._tell, Progress(*about, None, 0.0, 0, 0, "", waits))

    def _end(self, asked: Asked, outcome: Outcome) -> None:
        if self._forget(asked.id):
            # At the exit of the program there is no thread that would tell it.
            attempt(self._ended, asked.future, outcome)

    def _forget(self, id_: str) -> Asked | None:
        with self._changed:
            return self._waiting.pop(id_, None)


_all = WeakSet[Front]()
forks.in_child(_all.clear)


@atexit.register
def _post_the_rest() -> None:
    """Wait for what was asked for as the program ends: its threads end with it."""
    for front in tuple(_all):
        front.leave()


def _may_be_of_another(answer: bool | Exception) -> bool:
    """Return whether it may be that what was posted together was refused for one of it alone."""
    return isinstance(answer, Exception) and not isinstance(answer, (Unreachable, TimedOut))


def _outcome(request: OperationRequest, text: str) -> Outcome:
    """Return an outcome that a conductor has written; of another version, it may not be readable."""
    try:
        return Outcome.model_validate_json(text)
    except ValueError as error:
        why = DriverError("the outcome cannot be read", why=str(error))
        return failed(request.operation, request.sliver, why, ("unknown: what came of it",))
