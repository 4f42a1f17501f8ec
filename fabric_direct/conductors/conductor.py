"""A conductor: takes operations from the queue of a site, and carries them out as a processor does."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from socket import gethostname
from typing import cast

from fabric_direct.conductors import settings_of
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Denied, DriverError, Interrupted
from fabric_direct.model import Operation, Outcome, SliverRef, Status
from fabric_direct.operations.front import PROGRESS
from fabric_direct.operations.operation_future import OperationFuture
from fabric_direct.operations.outcomes import before_any_change, failed, report, with_left
from fabric_direct.operations.progress import Progress
from fabric_direct.operations.requests import loads
from fabric_direct.operations.signatures import RequestKeys
from fabric_direct.processor import HandlerProcessor, carry_out_request
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import Asker
from fabric_direct.state.postgresql.queue import Conducting, Taken, queue_of

log = logging.getLogger(__name__)
_LOOK = 1.0
"""Seconds after which it is looked for work, if no notice comes."""
_PRUNE = 60.0
"""Seconds between two times at which what ended long ago is forgotten."""
_DEATHS = 3
"""Conductors that may die with an operation, before it is given up."""
_TOGETHER = 0.05
"""Seconds for which progress is gathered before it is written."""


class Conductor:
    """Carries out the operations that are posted at a site."""

    def __init__(self, site: Site, *, slots: int = 10, hosts: Collection[str] = ()) -> None:
        """Connect to nothing yet.

        :param slots: how many operations run at once.
        :param hosts: the hosts of the site that are this machine: it uses their libvirt and runs their
            programs without SSH, and gets the operations of slivers that name them.
        :raises InvalidSite: if the site has no conductors.
        :raises NotFound: if it has no such host.
        """
        settings, database = settings_of(site)
        self._slots, self._hosts, self._lease = slots, tuple(hosts), database.lease
        self._keys = RequestKeys(settings.key_file)
        self._queue = queue_of(site.site, database)
        self._limit = site.limits.call
        here = {name: site.host(name).as_this_machine() for name in hosts}
        local = site.model_copy(update={"conductors": None, "hosts": site.hosts | here})
        self._processor = HandlerProcessor(local, workers=slots, on_progress=self._note)
        self._changed = threading.Condition()
        self._running: dict[str, tuple[Taken, OperationFuture | None]] = {}
        self._told: dict[str, str] = {}
        """The operations, by their slivers, of whose progress somebody wants to hear."""
        self._progress = deque[tuple[str, Progress]]()
        self._writing = threading.Lock()
        self._news = True
        """Whether there may be something to take."""
        self._stopped = self._at_once = self._hands_back = self._over = False

    def stop(self) -> None:
        """Take nothing more; the second time, do not wait for what is under way.

        It may be called by the handler of a signal.
        """
        self._stopped, self._at_once = True, self._stopped

    def run(self, *, drain: float, on_begin: Callable[[], object] = lambda: None) -> None:
        """Carry out what is posted, until :meth:`stop` is called.

        Then what is under way goes on for a while. What has not ended by then begins nothing more, and
        is handed back: another conductor carries it out from the beginning, which finds what is there.

        :param drain: seconds for which it goes on.
        :param on_begin: called once others see this conductor.
        :raises FabricDirectError: if the database does not answer at the begin, or has no tables.
        """
        who = gethostname(), os.getpid(), self._slots, self._hosts
        with self._queue.conducting(*who) as conducting:
            on_begin()
            others = [
                threading.Thread(target=work, args=(conducting,), name=f"fabric-direct-{name}")
                for work, name in ((self._hear, "hear"), (self._care, "care"), (self._tell, "tell"))
            ]
            for thread in others:
                thread.start()
            try:
                self._take_all(conducting)
                self._drain(drain)
            finally:
                self._over = True
                for thread in others:
                    thread.join()

    # --- taking

    def _take_all(self, conducting: Conducting) -> None:
        """Take what is ready, whenever there is a slot for it."""
        silent = False
        while not self._stopped:
            with self._changed:
                if not self._news or len(self._running) >= self._slots:
                    self._changed.wait(_LOOK / 4)  # a signal's handler notifies nobody
                    continue
                self._news = False
                running = [*self._running]
            taken = attempt(conducting.take, running)
            if isinstance(taken, Exception):
                if not silent:
                    log.warning("no operation is taken: %s", taken)
                silent = True
            elif taken:
                silent, self._news = False, True
                self._begin(conducting, taken)

    def _begin(self, conducting: Conducting, taken: Taken) -> None:
        """Begin an operation; what cannot be begun has failed."""
        with self._changed:
            self._running[taken.id] = taken, None
        begun = attempt(self._begun, taken)
        if isinstance(begun, Exception):
            threading.Thread(
                target=self._end,
                args=(conducting, taken, _not_begun(taken, begun)),
                name="fabric-direct-refuse",
            ).start()
            return
        with self._changed:
            self._running[taken.id] = taken, begun
        begun.add_done_callback(lambda _: self._ended(conducting, taken, begun))
        if taken.interrupted:
            begun.interrupt()

    def _begun(self, taken: Taken) -> OperationFuture:
        """Begin an operation.

        :raises Interrupted: if too many conductors have died with it.
        :raises Denied: if its request does not come from who knows the site's key.
        :raises ValueError: if it cannot be read.
        """
        if not self._keys.accept(taken.signature, taken.id, taken.request, taken.asker):
            raise Denied(
                f"{taken.operation} of {taken.sliver} is not carried out",
                why="its request is not signed by a key of conductors.key_file",
                remedy="see that who asks has the same file",
            )
        if taken.tries > _DEATHS:
            raise Interrupted(
                f"{taken.operation} of {taken.sliver} was given up",
                why=f"{_DEATHS} conductors have died while they carried it out",
                remedy="look at their logs; the same operation again, or recover, finishes it",
            )
        request, asker = loads(taken.request), Asker.model_validate_json(taken.asker)
        if taken.told:
            self._told[taken.sliver] = taken.id
        return carry_out_request(self._processor, request, asker, taken.undone)

    # --- ending

    def _ended(self, conducting: Conducting, taken: Taken, future: OperationFuture) -> None:
        """Write what came of an operation, or hand it back; called in its thread."""
        if future.cancelled():
            operation, ref = Operation(taken.operation), _ref(taken)
            outcome = failed(operation, ref, before_any_change(operation, ref))
        elif error := future.exception():
            outcome = _not_begun(taken, RuntimeError(str(error)))
        else:
            outcome = future.result()
        if self._hands_back and (future.cancelled() or outcome.failed_by(Interrupted)):
            self._until_answered(conducting.hand_back, taken)
            self._forget(taken)
        else:
            left = _unknown(taken) if outcome.failed_by(Interrupted) else ()
            self._end(conducting, taken, with_left(outcome, left))

    def _end(self, conducting: Conducting, taken: Taken, outcome: Outcome) -> None:
        self._write_progress(conducting)
        text = attempt(outcome.model_dump_json)
        if isinstance(text, Exception):
            text = _not_sent(outcome, text).model_dump_json()
        if self._until_answered(partial(conducting.end, done=outcome.ok), taken, text) is False:
            log.warning("%s of %s was taken over", taken.operation, taken.sliver)
        self._forget(taken)

    def _until_answered(self, write: Callable[..., bool | None], *about: object) -> bool | None:
        """Write until the database answers, or this conductor is over; then another takes over."""
        while not self._over:
            try:
                return write(*about)
            except DriverError as error:
                log.warning("the queue of operations does not answer: %s", error)
                time.sleep(self._lease / 5)
        return None

    def _forget(self, taken: Taken) -> None:
        with self._changed:
            self._running.pop(taken.id)
            if self._told.get(taken.sliver) == taken.id:
                self._told.pop(taken.sliver)
            self._news = True
            self._changed.notify_all()

    def _drain(self, seconds: float) -> None:
        """Let what is under way end; then have it begin nothing more, and hand it back."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._running and time.monotonic() < end and not self._at_once:
                self._changed.wait(_LOOK / 4)
        self._hands_back = True
        self._processor.interrupt()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, self._limit + 2 * self._lease)

    # --- beside

    def _hear(self, conducting: Conducting) -> None:
        """Hear what there is to do; a thread's work."""
        notices = self._queue.notices(_LOOK)
        while not self._over:
            changes = attempt(notices.wait)
            if isinstance(changes, Exception):
                time.sleep(_LOOK / 4)
                continue
            kinds = {kind for kind, _ in changes}
            if not kinds or kinds & {"ready", "connected"}:
                with self._changed:
                    self._news = True
                    self._changed.notify_all()
            if kinds & {"interrupt", "connected"}:
                attempt(self._interrupt, conducting)
        notices.close()

    def _care(self, conducting: Conducting) -> None:
        """Take over from the dead, and look for what a notice should have told; a thread's work."""
        pruned = 0.0
        while not self._over:
            attempt(conducting.announce)
            attempt(conducting.take_over)
            attempt(self._interrupt, conducting)
            if time.monotonic() - pruned > _PRUNE:
                pruned = time.monotonic()
                attempt(conducting.prune)
            time.sleep(self._lease / 5)

    def _interrupt(self, conducting: Conducting) -> None:
        """Interrupt the operations whose askers want them to begin nothing more."""
        for id_ in conducting.interrupted() if self._running else ():
            _, future = self._running.get(id_, (None, None))
            if future:
                future.interrupt()

    def _note(self, progress: Progress) -> None:
        """Note a step, for who wants to hear of it."""
        if id_ := self._told.get(progress.sliver):
            self._progress.append((id_, progress))

    def _tell(self, conducting: Conducting) -> None:
        """Write the progress; a thread's work."""
        while not self._over:
            time.sleep(_TOGETHER)
            if self._progress:
                self._write_progress(conducting)

    def _write_progress(self, conducting: Conducting) -> None:
        """Write what was noted; what cannot be written is left out."""
        with self._writing:
            texts = []
            while self._progress:
                id_, progress = self._progress.popleft()
                texts.append((id_, attempt(PROGRESS.dump_json, progress)))
            told = [(id_, text.decode()) for id_, text in texts if isinstance(text, bytes)]
            if isinstance(error := attempt(conducting.tell, told) if told else None, Exception):
                log.debug("the progress is not told: %s", error)


def _ref(taken: Taken) -> SliverRef:
    return SliverRef.model_construct(id=taken.sliver, type=taken.type)  # whatever the queue has


def _unknown(taken: Taken) -> tuple[str, ...]:
    return (f"unknown: what {taken.operation} had done before",) if taken.again else ()


def _not_begun(taken: Taken, error: Exception) -> Outcome:
    """Return the outcome of an operation that this conductor did not begin."""
    if taken.operation in {*Operation}:
        return failed(Operation(taken.operation), _ref(taken), error, _unknown(taken))
    return Outcome.model_construct(  # of a later version, which can read it
        operation=cast(Operation, taken.operation),
        sliver=_ref(taken),
        status=Status.FAILED,
        error=report(error),
        left=_unknown(taken),
    )


def _not_sent(outcome: Outcome, error: Exception) -> Outcome:
    """Return what is told instead of an outcome that is no text."""
    why = DriverError("the outcome cannot be sent", why=ascii(str(error)))
    return failed(outcome.operation, outcome.sliver, why, ("unknown: what came of it",))
