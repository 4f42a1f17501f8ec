"""The queue of a site: operations that conductors carry out, in order for each sliver.

An operation waits until those before it on its sliver have ended, and those of other slivers that it
needs; then it is ready, and the first conductor that is free takes it. It is held as a lock is
(:mod:`~fabric_direct.state.postgresql.locks`): if its holder is not heard for two leases, another takes
it. Its outcome is written only by its holder.

Who changes a sliver's part of the queue holds an advisory lock of the sliver until the transaction ends:
an operation that is posted while the one before it ends is made ready by one of the two. Slivers share
256 of them, as a server has a few thousand for all.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import Connection

from fabric_direct.errors import Conflict, DriverError, Unreachable
from fabric_direct.site.config import StateDatabase
from fabric_direct.state.postgresql.connections import Connections, StateConnection, connections
from fabric_direct.state.postgresql.locks import Beats, beats_of

log = logging.getLogger(__name__)
CHANNEL = "fabric_direct"
"""Of the notices, of all sites of a database."""
_TOGETHER = 500
"""Operations that are posted in a transaction."""
_KEPT = "1 day"
"""How long an operation that has ended is kept for whoever asks what came of it."""
_LOCK = """
SELECT pg_advisory_xact_lock(key) FROM (
    SELECT DISTINCT hashtextextended(%s || '/' || (hashtextextended(sliver, 0) & 255), 0) AS key
        FROM unnest(%s::text[]) AS sliver ORDER BY key
) AS ordered
"""
_POST = """
INSERT INTO operation (
    id, sliver, type, operation, action, request, asker, signature, host, needs, told
) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING
"""
_MAKE_READY = """
UPDATE operation SET ready = true WHERE needs = 0 AND NOT ready AND number IN (
    SELECT (
        SELECT number FROM operation WHERE operation.sliver = each.sliver AND ended IS NULL
            ORDER BY number LIMIT 1
    ) FROM unnest(%s::text[]) AS each (sliver)
) RETURNING 1
"""
_TAKE = """
UPDATE operation SET holder = %s, tries = tries + 1, begun = coalesce(begun, clock_timestamp())
    WHERE id = (
        SELECT id FROM operation
            WHERE ready AND holder IS NULL AND ended IS NULL AND id <> ALL (%s::text[])
            AND (host = '' OR host = ANY (%s::text[]) OR host NOT IN (
                SELECT unnest(hosts) FROM conductor JOIN holder ON id = conductor.holder
                    WHERE beat > clock_timestamp() - make_interval(secs => %s)
            ))
            ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    RETURNING id, sliver, type, operation, request, asker, signature, tries, told, interrupted,
    begun < statement_timestamp(), ARRAY(
        SELECT other.sliver FROM operation_before JOIN operation AS other ON other.id = other
            WHERE operation_before.operation = operation.id AND NOT other.done
    )
"""
_FREE = """
UPDATE operation SET holder = NULL, tries = tries - 1
    WHERE holder = %s AND ended IS NULL AND id <> ALL (%s::text[])
"""
_END = """
UPDATE operation SET ended = clock_timestamp(), outcome = %s, done = %s, request = '', ready = false
    WHERE id = ANY(%s) AND ended IS NULL AND {} RETURNING id
"""
_NEED_LESS = """
UPDATE operation SET needs = needs - (
    SELECT count(*) FROM operation_before
        WHERE operation_before.operation = operation.id AND other = ANY(%s)
) WHERE id IN (SELECT operation FROM operation_before WHERE other = ANY(%s))
"""
_COLUMNS = """
operation.id, sliver, type, operation, action, asker, coalesce(who, ''), posted, begun, ended, tries,
interrupted, done, outcome
"""


@dataclass(frozen=True, slots=True)
class Post:
    """An operation to be posted."""

    id: str
    """Of nothing else, ever: posting it twice posts it once."""
    sliver: str
    type: str
    operation: str
    action: str
    request: str
    asker: str
    signature: str = ""
    host: str = ""
    """Which conductors on that host carry it out, if there are any; empty for all."""
    before: tuple[str, ...] = ()
    """The ids of operations, posted with it, that it begins after."""
    told: bool = False
    """Whether somebody wants to hear of its progress."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An operation that this process carries out."""

    holder: str
    id: str
    sliver: str
    type: str
    operation: str
    request: str
    asker: str
    signature: str
    tries: int
    """How often it was taken, with this time."""
    told: bool
    interrupted: bool
    """Whether it is to begin nothing more."""
    again: bool
    """Whether it was taken before: what was done then is not known."""
    undone: Sequence[str]
    """Slivers of which the operation was not done that must be first."""


@dataclass(frozen=True, slots=True)
class QueuedOperation:
    """An operation of the queue, as others see it."""

    id: str
    sliver: str
    type: str
    operation: str
    action: str
    asker: str
    conductor: str
    """Machine and process that carry it out; empty if nobody does."""
    posted: datetime
    begun: datetime | None
    ended: datetime | None
    tries: int
    interrupted: bool
    done: bool
    outcome: str | None
    """None: it has not ended, or was cancelled."""

    @property
    def state(self) -> str:
        """How far it is.

        ``waiting``, ``under way``, ``interrupted`` if it begins nothing more, ``cancelled``, ``done`` or
        ``not done``.
        """
        if self.ended:
            over = "done" if self.done else "not done"
            return over if self.outcome else "cancelled"
        if not self.conductor:
            return "waiting"
        return "interrupted" if self.interrupted else "under way"


@dataclass(frozen=True, slots=True)
class News:
    """What is known of operations that somebody waits for."""

    begun: tuple[str, ...] = ()
    outcomes: dict[str, str] = field(default_factory=dict)
    cancelled: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Those that the queue does not have: never posted, or ended too long ago."""


class OperationQueue:
    """The operations of a site that conductors carry out."""

    def __init__(self, given: Connections, lease: float) -> None:
        """Connect to nothing yet.

        :param lease: seconds.
        """
        self._connections, self.lease, self.where = given, lease, given.where

    # --- who asks

    def post(self, posts: Sequence[Post], *, at_most: int, patience: float) -> bool:
        """Add operations to the queue, in order: all of them or none. One that it has stays as it is.

        :param at_most: how many may wait, with these.
        :param patience: seconds to wait for a database that does not answer.
        :returns: whether they were. False: the connection was lost, and they may have been; posting them
            again tells.
        :raises Conflict: if too many wait.
        :raises Unreachable: if the database did not answer at all.
        """
        begun = False
        try:
            with self.begin(patience) as db:
                begun = True
                self._lock(db, (post.sliver for post in posts))
                self._refuse_too_many(db, posts, at_most)
                for first in range(0, len(posts), _TOGETHER):
                    self._insert(db, posts[first : first + _TOGETHER])
                self._make_ready(db, {post.sliver for post in posts})
        except Unreachable:
            if not begun:
                raise
            return False
        return True

    def _refuse_too_many(self, db: Connection, posts: Sequence[Post], at_most: int) -> None:
        query = """
            SELECT (SELECT count(*) FROM (
                SELECT FROM operation WHERE ended IS NULL AND id <> ALL (%s::text[]) LIMIT %s
            ) AS going), (SELECT count(*) FROM operation WHERE id = ANY (%s::text[]))
        """
        ids = [post.id for post in posts]
        ((waiting, there),) = db.exec_driver_sql(query, (ids, at_most, ids)).fetchall()
        if there < len(posts) and waiting + len(posts) > at_most:
            raise Conflict(
                "too many operations wait for a conductor",
                why=f"conductors.waiting allows {at_most}",
                remedy="ask again later, or start more conductors",
            )

    @staticmethod
    def _insert(db: Connection, posts: Sequence[Post]) -> None:
        rows = [
            (
                *(p.id, p.sliver, p.type, p.operation, p.action, p.request, p.asker, p.signature),
                *(p.host, len(p.before), p.told),
            )
            for p in posts
        ]
        db.exec_driver_sql(_POST, rows)
        before = [(post.id, other) for post in posts for other in post.before]
        if before:
            statement = "INSERT INTO operation_before VALUES (%s, %s) ON CONFLICT DO NOTHING"
            db.exec_driver_sql(statement, before)

    def news(self, ids: Collection[str]) -> News:
        """Return what is known of operations."""
        query = "SELECT id, begun, ended, outcome FROM operation WHERE id = ANY(%s)"
        with self.begin(0) as db:
            rows = db.exec_driver_sql(query, ([*ids],)).fetchall()
        there = {id_ for id_, *_ in rows}
        return News(
            begun=tuple(id_ for id_, begun, _, _ in rows if begun),
            outcomes={id_: outcome for id_, _, _, outcome in rows if outcome is not None},
            cancelled=tuple(id_ for id_, _, ended, outcome in rows if ended and outcome is None),
            missing=tuple(id_ for id_ in ids if id_ not in there),
        )

    def progress(self, ids: Collection[str]) -> list[tuple[str, str]]:
        """Return operation and text of the progress of operations, in order, and forget it."""
        statement = """
            DELETE FROM operation_progress WHERE operation = ANY(%s)
            RETURNING number, operation, progress
        """
        with self.begin(0) as db:
            rows = db.exec_driver_sql(statement, ([*ids],)).fetchall()
        return [(id_, text) for _, id_, text in sorted(tuple(row) for row in rows)]

    def cancel(self, ids: Collection[str], *, interrupt: bool = False) -> tuple[str, ...]:
        """Cancel the operations that no conductor has begun, and return them.

        :param interrupt: interrupt the others: whoever carries one out begins nothing more of it.
        """
        with self.begin(self.lease) as db:
            cancelled = self._end(db, ids, None, "begun IS NULL")
            statement = """
                UPDATE operation SET interrupted = true
                WHERE id = ANY(%s) AND ended IS NULL AND NOT interrupted RETURNING id
            """
            if interrupt and db.exec_driver_sql(statement, ([*ids],)).fetchall():
                self.notify(db, "interrupt")
        return cancelled

    def listed(self, ids: Collection[str] = (), *, ended: bool = False) -> list[QueuedOperation]:
        """Return operations in the order of the requests.

        :param ids: those of these ids; all if there are none.
        :param ended: whether also those that have ended.
        """
        conditions = ["ended IS NULL"] if not (ended or ids) else ["true"]
        values: list[object] = []
        if ids:
            conditions.append("operation.id = ANY(%s)")
            values.append([*ids])
        query = f"""
            SELECT {_COLUMNS} FROM operation LEFT JOIN holder
            ON holder.id = operation.holder WHERE {" AND ".join(conditions)} ORDER BY number
        """  # noqa: S608 - of this file alone
        with self.begin(self.lease) as db:
            return [
                QueuedOperation(*row) for row in db.exec_driver_sql(query, tuple(values)).fetchall()
            ]

    # --- conductors

    @contextmanager
    def conducting(
        self, machine: str, pid: int, slots: int, hosts: Collection[str] = ()
    ) -> "Iterator[Conducting]":
        """Be a conductor while the block runs.

        :param slots: how many operations it carries out at once.
        :param hosts: the hosts that it runs on: their operations go there.
        """
        beats = beats_of(self._connections, self.lease)
        with beats.holding():
            conducting = Conducting(self, beats, AConductor(machine, pid, slots, tuple(hosts)))
            conducting.announce()
            try:
                yield conducting
            finally:
                conducting.leave()

    def conductors(self) -> "list[AConductor]":
        """Return the conductors that were heard of lately, the oldest first."""
        query = """
            SELECT machine, pid, slots, hosts FROM conductor JOIN holder ON id = conductor.holder
            WHERE beat > clock_timestamp() - make_interval(secs => %s) ORDER BY since
        """
        with self.begin(self.lease) as db:
            rows = db.exec_driver_sql(query, (2 * self.lease,)).fetchall()
        return [
            AConductor(machine, pid, slots, tuple(hosts)) for machine, pid, slots, hosts in rows
        ]

    # --- both

    def notices(self, timeout: float) -> "Notices":
        """Return what hears of changes; each wait lasts ``timeout`` seconds at most."""
        return Notices(self._connections, timeout)

    def begin(self, patience: float) -> AbstractContextManager[Connection]:
        """Give a transaction; see :meth:`Connections.begin`."""
        return self._connections.begin("the queue of operations", patience)

    def _lock(self, db: Connection, slivers: Iterable[str]) -> None:
        db.exec_driver_sql(_LOCK, (self._connections.schema, sorted(set(slivers))))

    def _make_ready(self, db: Connection, slivers: Iterable[str]) -> None:
        if db.exec_driver_sql(_MAKE_READY, (sorted(set(slivers)),)).fetchall():
            self.notify(db, "ready")

    def notify(self, db: Connection, kind: str, ids: Iterable[str] = ("",)) -> None:
        """Tell all that listen what has changed, once the transaction is committed."""
        notices = [f"{self._connections.schema} {kind} {id_}" for id_ in ids]
        statement = "SELECT pg_notify(%s, notice) FROM unnest(%s::text[]) AS notice"
        db.exec_driver_sql(statement, (CHANNEL, notices))

    def end(self, taken: Taken, outcome: str, *, done: bool) -> bool:
        """Write the outcome of an operation, if it is still the holder's."""
        with self.begin(self.lease) as db:
            own = (taken.holder, taken.tries)
            condition = "holder = %s AND tries = %s"
            return bool(self._end(db, [taken.id], outcome, condition, own, done=done))

    def _end(
        self,
        db: Connection,
        ids: Collection[str],
        outcome: str | None,
        condition: str,
        values: tuple[object, ...] = (),
        *,
        done: bool = False,
    ) -> tuple[str, ...]:
        """End operations, and make ready what waited for them; return those that were to be ended."""
        affected = """
            SELECT sliver FROM operation WHERE id = ANY(%s) OR id IN
                (SELECT operation FROM operation_before WHERE other = ANY(%s))
        """
        asked = [*ids]
        slivers = {s for (s,) in db.exec_driver_sql(affected, (asked, asked)).fetchall()}
        self._lock(db, slivers)
        given = (outcome, done, asked, *values)
        rows = db.exec_driver_sql(_END.format(condition), given).fetchall()
        ended = [id_ for (id_,) in rows]
        if ended:
            db.exec_driver_sql(_NEED_LESS, (ended, ended))
            self._make_ready(db, slivers)
            self.notify(db, "ended", ended)
        return tuple(ended)


@dataclass(frozen=True, slots=True)
class AConductor:
    """A process that is a conductor."""

    machine: str
    pid: int
    slots: int
    """How many operations it carries out at once."""
    hosts: tuple[str, ...] = ()
    """The hosts that it runs on."""


class Conducting:
    """A conductor's side of the queue."""

    def __init__(self, queue: OperationQueue, beats: Beats, who: AConductor) -> None:
        self._queue, self._beats, self._who = queue, beats, who
        self._unanswered = False
        """Whether it may have taken an operation that it does not know of."""
        self._answers_since = self._answered = time.monotonic()
        """Since when the database answers without a gap of a lease, and when it did so last."""

    def announce(self) -> None:
        """Have others see this conductor; again, if it was taken for dead."""
        statement = """
            INSERT INTO conductor (holder, machine, pid, slots, hosts)
                VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """
        who = self._who
        with self._queue.begin(self._queue.lease) as db:
            self._beats.join(db)
            given = (self._beats.id, who.machine, who.pid, who.slots, [*who.hosts])
            db.exec_driver_sql(statement, given)

    def leave(self) -> None:
        """Be no conductor any more."""
        with self._queue.begin(0) as db:
            db.exec_driver_sql("DELETE FROM conductor WHERE holder = %s", (self._beats.id,))

    def take(self, running: Collection[str]) -> Taken | None:
        """Take the next operation that is ready; None if there is none.

        :param running: the ids of those that run in this process, which are not taken again.
        """
        given = (self._beats.id, [*running], [*self._who.hosts], 2 * self._queue.lease)
        try:
            with self._queue.begin(0) as db:
                self._beats.join(db)
                if self._unanswered:
                    db.exec_driver_sql(_FREE, (self._beats.id, [*running]))
                rows = db.exec_driver_sql(_TAKE, given).fetchall()
        except DriverError:
            self._unanswered = True  # it may be committed all the same
            raise
        self._unanswered = False
        return Taken(self._beats.id, *rows[0]) if rows else None

    def end(self, taken: Taken, outcome: str, *, done: bool) -> bool:
        """Write the outcome of an operation, unless another conductor has taken it.

        :param done: whether what waits for it may begin.
        :returns: whether it was written.
        """
        return self._queue.end(taken, outcome, done=done)

    def hand_back(self, taken: Taken) -> None:
        """Have another conductor carry an operation out from the beginning."""
        statement = """
            UPDATE operation SET holder = NULL, tries = tries - 1
            WHERE id = %s AND holder = %s AND tries = %s AND ended IS NULL
        """
        with self._queue.begin(self._queue.lease) as db:
            db.exec_driver_sql(statement, (taken.id, taken.holder, taken.tries))
            self._queue.notify(db, "ready")

    def tell(self, progress: Sequence[tuple[str, str]]) -> None:
        """Write the progress of operations: their ids and texts, in order."""
        with self._queue.begin(0) as db:
            db.exec_driver_sql("SET LOCAL synchronous_commit = off")
            statement = "INSERT INTO operation_progress (operation, progress) VALUES (%s, %s)"
            db.exec_driver_sql(statement, [*progress])
            self._queue.notify(db, "progress")

    def interrupted(self) -> tuple[str, ...]:
        """Return the ids of this conductor's operations that are to begin nothing more."""
        query = "SELECT id FROM operation WHERE holder = %s AND interrupted AND ended IS NULL"
        with self._queue.begin(0) as db:
            return tuple(id_ for (id_,) in db.exec_driver_sql(query, (self._beats.id,)))

    def take_over(self) -> int:
        """Free the operations of conductors that were not heard for two leases.

        What they hold, locks too, is not theirs any more: one that was frozen does nothing after waking.
        Nobody is taken for dead until the database has answered for two leases: while it is away, the
        living are not heard either.

        :returns: how many such conductors there were.
        """
        statement = """
            DELETE FROM holder WHERE id <> %s AND id IN
                (SELECT holder FROM operation WHERE holder IS NOT NULL AND ended IS NULL)
            AND beat < clock_timestamp() - make_interval(secs => %s) RETURNING who
        """
        with self._queue.begin(0) as db:
            given = (self._beats.id, 2 * self._queue.lease)
            dead = [who for (who,) in db.exec_driver_sql(statement, given).fetchall()]
            if not self._answers():
                db.rollback()
                return 0
            if dead:
                self._queue.notify(db, "ready")
        for who in dead:
            log.warning("conductor %s is not heard any more: others take over", who)
        return len(dead)

    def _answers(self) -> bool:
        """Return whether the database, which has just answered, does so for two leases."""
        now = time.monotonic()
        if now - self._answered > self._queue.lease:
            self._answers_since = now
        self._answered = now
        return now - self._answers_since >= 2 * self._queue.lease

    def prune(self) -> None:
        """Forget operations that ended long ago, unless one waits for them."""
        statement = f"""
            DELETE FROM operation WHERE ended < clock_timestamp() - interval '{_KEPT}'
            AND NOT EXISTS (
                SELECT FROM operation_before JOIN operation AS waiting
                    ON waiting.id = operation_before.operation
                WHERE operation_before.other = operation.id AND waiting.ended IS NULL
            )
        """  # noqa: S608 - of this file alone
        with self._queue.begin(0) as db:
            db.exec_driver_sql(statement)


class Notices:
    """Notices of the queue, on a connection of their own; some may be lost."""

    def __init__(self, given: Connections, timeout: float) -> None:
        self._connections, self._timeout = given, timeout
        self._connection: StateConnection | None = None

    def wait(self) -> set[tuple[str, str]]:
        """Return kind and id of what has changed; nothing after the timeout.

        :raises psycopg.Error: if the database does not answer; the next call connects again.
        """
        try:
            if self._connection is None:
                self._connection = self._connections.connect()
                self._connection.autocommit = True
                self._connection.execute(SQL("LISTEN {}").format(Identifier(CHANNEL)))
                return {("connected", "")}
            heard = [*self._connection.notifies(timeout=self._timeout, stop_after=1)]
        except psycopg.Error:
            self.close()
            raise
        ours = (notice.payload.partition(" ") for notice in heard)
        changes = (
            rest.partition(" ") for site, _, rest in ours if site == self._connections.schema
        )
        return {(kind, id_) for kind, _, id_ in changes}

    def close(self) -> None:
        """Connect no more until the next wait."""
        if self._connection:
            self._connection.close()
            self._connection = None


def queue_of(site: str, settings: StateDatabase) -> OperationQueue:
    """Return the queue of a site.

    :param site: its name.
    """
    return OperationQueue(connections(settings.url, site, settings.lease), settings.lease)
