"""Stamp a sliver that others made."""

from dataclasses import dataclass, replace

from fabric_direct.calls.deadline import Deadline, read_within
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import preview
from fabric_direct.engine.step import Flow
from fabric_direct.handlers.vm.adoption import adoption_driver, server_name
from fabric_direct.handlers.vm.steps.adoption import TakeBack
from fabric_direct.model import Operation, Outcome
from fabric_direct.model.adoption import Adoption, ServiceAdoption
from fabric_direct.operations.flow_runner import FlowRunner, Job
from fabric_direct.operations.outcomes import done
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.whole_cards import with_whole_cards


@dataclass(frozen=True, slots=True)
class Adopt:
    """Adopts slivers for a site."""

    hosts: SiteHosts
    ids: SliverIds
    runner: FlowRunner

    def __call__(
        self, wanted: Adoption | ServiceAdoption, deadline: Deadline, *, plan: bool = False
    ) -> Outcome:
        """Stamp a sliver that others made; if that fails, remove the stamps, or name what is left.

        :param plan: only return what each step would do.
        """
        reads = ReadCache(read_only=plan)
        job = self._job(wanted, deadline, reads)
        if not plan:
            return self.ids.taken(job.sliver, lambda: self.runner.apply(job, deadline))
        steps = read_within(deadline.remaining(), "the plan to adopt it", lambda: preview(job.flow))
        return done(Operation.PLAN, wanted.sliver, steps=steps, warnings=tuple(reads.warnings))

    def disown(self, wanted: Adoption | ServiceAdoption, deadline: Deadline) -> Outcome:
        """Remove the stamps of an unfinished adoption."""
        job = self._job(wanted, deadline, ReadCache())
        planned = ([s for s in stage if s.planned] for stage in reversed(job.flow.stages))
        flow = Flow.of(*(map(TakeBack, stage) for stage in planned))
        return self.runner.apply(replace(job, flow=flow), deadline)

    def _job(self, wanted: Adoption | ServiceAdoption, deadline: Deadline, reads: ReadCache) -> Job:
        host = ""
        if isinstance(wanted, Adoption):
            whole = with_whole_cards(self.hosts.site, wanted.sliver)
            wanted = wanted.model_copy(update={"sliver": whole})
            driver = adoption_driver(self.hosts.drivers.within("", deadline))
            found = driver.server(server_name(wanted), whole=False)
            host = found.host if found else ""
        handler = self.hosts.drivers.handler(host, wanted.sliver, deadline, reads)
        with reads.active():
            flow = handler.adopt(wanted)
        data = wanted.journal_data()
        return Job(Operation.ADOPT, wanted.sliver, handler, flow, reads, data=data)
