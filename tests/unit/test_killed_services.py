"""A process that is killed at any request that changes something at a controller of network services.

It ends before the request takes effect, or after that and before it has the answer. Whoever comes next
finishes, undoes or removes, and finds all of it.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from fabric_direct.model import Outcome
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.state.service_claims import ServiceClaims
from labs.network.al2s_standin import Al2s
from labs.network.http_standin import Fault
from tests.outcomes import done
from tests.trust.service_requests import Scene, al2s, al2s_site, nso, nso_site, scene
from tests.unit.al2s_services import STAR, WASH, peer, vpn

__all__ = ["al2s", "al2s_site", "nso", "nso_site", "scene"]

Ask = Callable[[HandlerProcessor], Any]
_CHANGING_NOTHING = ("sessions/", "dry-run", "check-sync")
_KINDS = {"l2sts": ["l2sts", "idipa"], "spaces": ["spaces", "routers", *["l3connections"] * 2]}
"""What there is of a service, by the first of it."""


class Killer:
    """Kills a process at one of its changing requests, by its number from 1."""

    def __init__(self, scene: Scene, number: int, when: str) -> None:
        self._scene, self._number, self._when = scene, number, when
        self._answer, self._made = scene.api.answer, 0
        self._child, self._forked = 0, threading.Event()

    def kills(self, ask: Ask) -> bool:
        """Return whether an operation, in a process of its own, was killed; else it was done."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._scene.api, "next_fault", self._next_fault)
            patch.setattr(self._scene.api, "answer", self._answered)
            if (child := os.fork()) == 0:
                code = 1
                try:
                    with HandlerProcessor(self._scene.site) as processor:
                        code = int(not ask(processor).result().ok)
                finally:
                    os._exit(code)
            self._child = child
            self._forked.set()
            status = os.waitpid(child, 0)[1]
        assert status in {0, signal.SIGKILL}
        return bool(status)

    def _next_fault(self, method: str, path: str) -> Fault | None:
        changes = method != "GET" and not any(each in path for each in _CHANGING_NOTHING)
        self._made += changes
        if not changes or self._made != self._number:
            return None
        if self._when == "before":
            self._kill()
            return Fault(method, path, "close")
        return Fault(method, path, "lose")

    def _answered(self, *request: Any) -> Any:
        """Answer what was looked at last: the process has one request under way at a time."""
        answer = self._answer(*request)
        if self._made == self._number:
            self._kill()
        return answer

    def _kill(self) -> None:
        self._forked.wait()
        os.kill(self._child, signal.SIGKILL)


@pytest.fixture
def plain(scene: Scene) -> Scene:
    """The same with a service that has no secret: what it was can be read."""
    if isinstance(scene.api, Al2s):
        return replace(scene, made=vpn(STAR | {"peer": peer(1)}, WASH))
    return scene


def asked(operation: str, scene: Scene) -> Ask:
    wanted = {"create": scene.made, "modify": scene.changed, "delete": scene.made.ref()}[operation]
    return lambda processor: getattr(processor, operation)(wanted)


def killed(scene: Scene, operation: str, when: str) -> Iterator[HandlerProcessor]:
    """Kill an operation at each of its changes; yield after each, then remove what there is."""
    for number in count(1):
        scene.empty()
        with HandlerProcessor(scene.site) as processor:
            if operation != "create":
                done(processor.create(scene.made).result())
        if not Killer(scene, number, when).kills(asked(operation, scene)):
            assert number > 1
            return
        with HandlerProcessor(scene.site) as processor:
            yield processor
            assert is_gone(processor, scene)


def is_gone(processor: HandlerProcessor, scene: Scene) -> bool:
    done(processor.delete(scene.made.ref()).result())
    assert processor.unfinished() == ()
    return scene.names() == [] and ServiceClaims(scene.site).of(scene.made.id) == ()


def is_there(processor: HandlerProcessor, scene: Scene, wanted: NetworkService) -> bool:
    """Return whether a service is as wanted, once, and nothing is unfinished."""
    seen = done(processor.probe(wanted).result()).observed
    assert seen
    assert (seen.state, seen.differences) == ("running", ())
    assert processor.unfinished() == ()
    kinds = [name.split()[0] for name in scene.names()]
    return kinds == _KINDS[kinds[0]]


def recovered(processor: HandlerProcessor, *, undo: bool) -> Outcome:
    (future,) = processor.recover(undo=undo)
    return done(future.result())


@pytest.mark.parametrize("when", ["before", "after"])
class TestWhatWasKilled:
    @pytest.mark.parametrize("operation", ["create", "modify", "delete"])
    def test_is_finished_by_the_same_again(self, plain: Scene, operation: str, when: str) -> None:
        for processor in killed(plain, operation, when):
            done(asked(operation, plain)(processor).result())
            if operation == "delete":
                assert plain.names() == []
            else:
                wanted = plain.changed if operation == "modify" else plain.made
                assert is_there(processor, plain, wanted)

    @pytest.mark.parametrize("operation", ["create", "modify"])
    def test_is_finished_by_recover(self, plain: Scene, operation: str, when: str) -> None:
        for processor in killed(plain, operation, when):
            recovered(processor, undo=False)
            wanted = plain.changed if operation == "modify" else plain.made
            assert is_there(processor, plain, wanted)

    @pytest.mark.parametrize("operation", ["create", "modify", "delete"])
    def test_is_undone_by_recover_but_for_a_deletion(
        self, plain: Scene, operation: str, when: str
    ) -> None:
        for processor in killed(plain, operation, when):
            assert recovered(processor, undo=True).warnings == ()
            if operation == "modify":
                assert is_there(processor, plain, plain.made)
            else:
                assert plain.names() == []
                assert processor.unfinished() == ()

    @pytest.mark.parametrize("operation", ["create", "modify"])
    def test_is_removed_by_a_deletion(self, plain: Scene, operation: str, when: str) -> None:
        """Which :func:`killed` asks for."""
        assert all(processor.unfinished() for processor in killed(plain, operation, when))

    @pytest.mark.parametrize("scene", ["al2s"], indirect=True)
    def test_that_has_a_secret_is_not_undone_and_can_be_finished(
        self, scene: Scene, when: str
    ) -> None:
        """No stamp has the secret, so nothing says what the service was."""
        for processor in killed(scene, "modify", when):
            (refused,) = processor.recover(undo=True)
            error = refused.result().error
            assert error
            assert error.kind == "Unsupported"
            recovered(processor, undo=False)
            assert is_there(processor, scene, scene.changed)
