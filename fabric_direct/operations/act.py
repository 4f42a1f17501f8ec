"""Carry out an operational action on a sliver."""

from dataclasses import dataclass
from typing import Any

from fabric_direct.calls.deadline import Deadline, in_one_piece
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import attempt
from fabric_direct.model import Operation, Outcome, SliverRef
from fabric_direct.operations.late_calls import in_effect, named
from fabric_direct.operations.outcomes import done, failed
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds


@dataclass(frozen=True, slots=True)
class Act:
    """Carries out operational actions on slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds

    def __call__(
        self, sliver: SliverRef, action: str, data: dict[str, Any], deadline: Deadline
    ) -> Outcome:
        """Carry out an operational action; one that fails is not undone, but what it called is named."""
        sliver, reads = self.ids.typed(sliver), ReadCache()
        handler = self.hosts.handler(sliver, deadline, reads)
        with reads.active(), in_one_piece():
            answer = attempt(handler.act, sliver, action, data)
        if isinstance(answer, Exception):
            left = named(deadline.given_up) + in_effect(deadline.changing)
            return failed(Operation.POA, sliver, answer, left)
        return done(Operation.POA, sliver, data=answer, warnings=tuple(reads.warnings))
