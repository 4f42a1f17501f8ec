"""Run the actor's handlers in threads of its own process, and answer as soon as each is done.

fabric_cf's own ``AnsibleHandlerProcessor`` runs handlers in a pool of ten forked processes and polls for
results every five seconds. :class:`DirectHandlerProcessor` takes the same handlers,
registered by resource type as before: any that are made by ``Class(logger, properties, process_lock)``.

fabric_cf 1.9 has no setting that names the processor: it makes an AM's itself. It lets the configuration
name the policy, and makes that before the actor is initialized, so a policy puts the processor in::

    actor:
      policy:
        module: fabric_direct.actor.processor
        class: DirectCalendarPolicy     # AuthorityCalendarPolicy, with this processor
      resources:
        - resource:
            type: VM
            handler:
              module: fabric_direct.actor
              class: VMHandler
              properties:
                config.properties.file: /etc/fabric/actor/config/site.yaml
                handler.threads: 5      # how many of this type run at once; 10 if absent

The handlers of this package share one :class:`~fabric_direct.processor.HandlerProcessor` for each
``site.yaml``, which runs ten operations at once, whatever their types.

An actor that is restarted with its state has its policy and its handlers from its database: there this
takes effect at the next fresh start. Where the processor is made by hand, it is an argument:
``AuthoritySubstrate(actor=…, db=…, handler_processor=DirectHandlerProcessor())``.
"""

import copy
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fabric_direct.actor import results
from fabric_direct.actor.results import CLEAN_RESTART, CREATE, DELETE, MODIFY, POA, Result
from fabric_direct.calls.keyed_queue import KeyedQueue
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Conflict, FabricDirectError, NotFound, Refused

if TYPE_CHECKING:
    # What is used here of fabric_cf: it is the actor's, and no dependency of this package.

    class HandlerProcessor:
        """Knows the handlers by resource type, and the plugin that is told of their ends."""

        plugin: Any
        logger: logging.Logger
        lock: threading.Lock
        config_mappings: dict[str, Any]

        def __getstate__(self) -> dict[str, Any]: ...
        def __setstate__(self, state: dict[str, Any]) -> None: ...

    class AuthorityCalendarPolicy:
        """Assigns an AM's resources to reservations."""

        actor: Any

        def initialize(self, *, config: Any) -> None:
            """Initialize the policy."""
else:
    from fabric_cf.actor.core.plugins.handlers.handler_processor import HandlerProcessor
    from fabric_cf.actor.core.policy.authority_calendar_policy import AuthorityCalendarPolicy

THREADS = "handler.threads"


@dataclass
class _Invocation:
    operation: str
    unit: Any  # None: clean_restart, which is about all of them
    data: dict[str, Any] | None = None
    after: "Future[None]" = field(default_factory=Future)  # it does not begin before this
    over: "Future[None]" = field(default_factory=Future)

    @property
    def key(self) -> str:
        """Return the key of its queue: invocations with the same key run in order."""
        return CLEAN_RESTART if self.unit is None else str(self.unit.get_reservation_id())

    def __str__(self) -> str:
        """Return operation and reservation, for the log."""
        return f"{self.operation} of {self.key}"


class DirectHandlerProcessor(HandlerProcessor):
    """Runs the handlers of the actor's resource types in threads.

    The plugin's ``configuration_complete`` is called exactly once for each create, modify, delete and
    poa, by one thread at a time: with the handler's result, or with one of code -1 that says in
    ``exception.message`` why there is none.

    What is asked for one unit runs strictly in that order, different units in parallel, and everything
    that is asked for after a clean restart runs after it. A handler works on a copy of the unit that is
    made when its turn comes; the actor's own gets the sliver's new values before the actor is told.
    """

    def __init__(self, threads: int = 10) -> None:
        """Make a processor; it starts no thread before the first call.

        :param threads: how many handlers run at once of each resource type whose properties do not say.
        """
        super().__init__()
        self.threads = threads
        self._begin()

    def _begin(self) -> None:
        self._queue = KeyedQueue()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._cleaned: Future[None] = Future()
        self._cleaned.set_result(None)
        self._process_lock = threading.Lock()
        self._closed = False

    def __getstate__(self) -> dict[str, Any]:
        """Return what the actor's database keeps: the handlers by resource type, and the default."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin()

    def start(self) -> None:
        """Take invocations, also after a shutdown; log which handlers cannot be made."""
        self._closed = False
        for mapping in self.config_mappings.values():
            error = attempt(self._handler, mapping)
            if isinstance(error, Exception):
                name = mapping.get_key()
                self.logger.error("the handler of %s cannot be made: %s", name, _told(error))

    def shutdown(self) -> None:
        """Wait for the handlers that run; what has not begun is answered with an error."""
        with self._queue.lock:
            self._closed = True
            self._queue.wait()
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.shutdown()

    # --- what the actor asks for

    def create(self, unit: Any) -> None:
        """Create the unit's sliver."""
        self._invoke(_Invocation(CREATE, unit))

    def modify(self, unit: Any) -> None:
        """Change the unit's sliver to its modified one."""
        self._invoke(_Invocation(MODIFY, unit))

    def delete(self, unit: Any) -> None:
        """Delete the unit's sliver."""
        self._invoke(_Invocation(DELETE, unit))

    def poa(self, unit: Any, data: dict[str, Any]) -> None:
        """Carry out an operational action; the unit's sliver is not changed."""
        self._invoke(_Invocation(POA, unit, data))

    def clean_restart(self) -> None:
        """Let the first handler delete everything it made; only the log has the result."""
        if self.config_mappings:
            self._invoke(_Invocation(CLEAN_RESTART, None))

    # --- order

    def _invoke(self, invocation: _Invocation) -> None:
        error = attempt(self._enqueue, invocation)
        if error:
            self._complete(invocation, self._failed(invocation, error))

    def _enqueue(self, invocation: _Invocation) -> None:
        mapping = self._mapping(invocation)
        with self._queue.lock:
            if self._closed:
                raise _shut_down()
            pool = self._pool(mapping)
            invocation.after = self._cleaned
            if invocation.unit is None:
                self._cleaned = invocation.over
            self._queue.put(invocation.key, lambda: self._begin_in(pool, invocation))

    def _begin_in(self, pool: ThreadPoolExecutor, invocation: _Invocation) -> bool:
        invocation.after.add_done_callback(lambda _: pool.submit(self._run_in_order, invocation))
        return True

    def _run_in_order(self, invocation: _Invocation) -> None:
        try:
            self._run(invocation)
        finally:
            with self._queue.lock:
                self._queue.leave(invocation.key)
                invocation.over.set_result(None)

    def _mapping(self, invocation: _Invocation) -> Any:
        if invocation.unit is None:
            return next(iter(self.config_mappings.values()))
        name = str(invocation.unit.get_resource_type())
        mapping = self.config_mappings.get(name)
        if mapping is None:
            raise NotFound(
                f"no handler for resource type {name}",
                remedy="name one in the actor's configuration",
            )
        return mapping

    def _pool(self, mapping: Any) -> ThreadPoolExecutor:
        name = mapping.get_key()
        if name not in self._pools:
            threads = (mapping.get_properties() or {}).get(THREADS, self.threads)
            if not str(threads).isdecimal() or not int(threads):
                raise Refused(
                    f"must be a number from 1 on, is {threads!r}", field=THREADS, where=name
                )
            self._pools[name] = ThreadPoolExecutor(int(threads), f"handler-{name}")
        return self._pools[name]

    # --- one invocation

    def _run(self, invocation: _Invocation) -> None:
        result = _failure(invocation, "the handler gave no result")
        try:
            result = self._result(invocation)
        finally:
            self._complete(invocation, result)

    def _result(self, invocation: _Invocation) -> Result:
        answer = attempt(self._handle, invocation)
        return self._failed(invocation, answer) if isinstance(answer, Exception) else answer

    def _handle(self, invocation: _Invocation) -> Result:
        if self._closed:
            raise _shut_down()
        handler = self._handler(self._mapping(invocation))
        if invocation.unit is None:
            return {"result": handler.clean_restart()}
        arguments = copy.deepcopy(
            (invocation.unit, invocation.data)
            if invocation.operation == POA
            else (invocation.unit,)
        )
        answer = getattr(handler, invocation.operation)(*arguments)
        result, unit = _checked(answer, invocation.operation)
        if invocation.operation != POA:
            self._update(invocation, unit)
        return result

    def _update(self, invocation: _Invocation, unit: Any) -> None:
        """Give the actor's sliver the new values; if it does not take them, what is done is done."""
        error = attempt(lambda: invocation.unit.update_sliver(sliver=unit.get_sliver()))
        if error:
            self.logger.error("the actor's sliver lacks what %s wrote", invocation, exc_info=error)

    def _handler(self, mapping: Any) -> Any:
        handler = getattr(import_module(mapping.get_module_name()), mapping.get_class_name())
        return handler(self.logger, mapping.get_properties(), self._process_lock)

    def _failed(self, invocation: _Invocation, error: Exception) -> Result:
        unexpected = not isinstance(error, FabricDirectError)
        self.logger.error("%s: %s", invocation, error, exc_info=error if unexpected else None)
        return _failure(invocation, _told(error))

    def _complete(self, invocation: _Invocation, result: Result) -> None:
        """Tell the actor, once; an error of the actor is logged."""
        unit = invocation.unit
        if unit is None:
            self.logger.info("%s: %s", invocation.operation, result)
            return
        with self.lock:
            error = attempt(
                lambda: self.plugin.configuration_complete(token=unit, properties=result)
            )
        if isinstance(error, Exception):
            self.logger.error("the actor did not hear of the end of %s", invocation, exc_info=error)


class DirectCalendarPolicy(AuthorityCalendarPolicy):
    """The AM's calendar policy, with whose actor handlers run in threads."""

    def initialize(self, *, config: Any) -> None:
        """Initialize the policy, and give the actor's plugin a :class:`DirectHandlerProcessor`."""
        plugin = self.actor.get_plugin()
        if not isinstance(plugin.handler_processor, DirectHandlerProcessor):
            plugin.handler_processor.shutdown()
            plugin.handler_processor = DirectHandlerProcessor()
        super().initialize(config=config)


def _told(error: Exception) -> str:
    known = isinstance(error, FabricDirectError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _shut_down() -> Conflict:
    return Conflict("the processor was shut down before the handler began")


def _failure(invocation: _Invocation, message: str) -> Result:
    if invocation.operation == POA:
        return results.poa_failure(invocation.data or {}, message)
    return results.failure(invocation.operation, message)


def _checked(answer: Any, operation: str) -> tuple[Result, Any]:
    """Return a handler's answer.

    :raises FabricDirectError: if the actor could not read it; the unit would never end then.
    """
    match answer:
        case (dict() as result, unit) if unit is not None and _is_result(result, operation):
            return result, unit
    raise FabricDirectError(f"the handler's answer is not a result of {operation} with its unit")


def _is_result(result: Result, operation: str) -> bool:
    numbers = (str(result.get("target.code")), str(result.get("action.sequence")))
    return result.get("target.name") == operation and all(
        n.removeprefix("-").isdecimal() for n in numbers
    )
