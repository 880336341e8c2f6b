"""Executors of a pool that are taken, by all who take them: not only by stages that a policy sees.

Reads what is known and what is under way; changes nothing.
"""

from __future__ import annotations

from fermata.operator.apply import Applier
from fermata.operator.facts import JobFact
from fermata.operator.observe import Observer
from fermata.operator.store import Store
from fermata.operator.why import Elsewhere


class Census:
    """Counts the executors of one pool that are taken."""

    def __init__(self, pool: str, store: Store, observer: Observer, applier: Applier) -> None:
        self._pool, self._store, self._observer, self._applier = pool, store, observer, applier

    def busy(self) -> int:
        """Return the executors that stages hold, also under Jobs that are not seen and pods that outlive their Jobs."""
        jobs = self._store.busy_jobs[self._pool].values()
        return sum(job.occupied * self._slots(job) for job in jobs) + self._looked_for() + self._leaving()

    def elsewhere(self) -> Elsewhere:
        """Return the executors that a policy does not see."""
        return Elsewhere(self._unshown(), self._starting(), self._looked_for(), self._leaving())

    def _unshown(self) -> int:
        """Return the executors under Jobs that are no running stage of an unfinished workflow.

        Their workflow cannot be read, lacks the stage since an edit, has ended, or was deleted without them.
        Or the stage was stopped, and its pods still end.
        """
        shown: dict[str, set[str]] = {}
        unshown = 0
        for job in self._store.busy_jobs[self._pool].values():
            uid = job.meta.owner_uid
            if uid not in shown:
                known = self._observer.views.get(uid)
                shown[uid] = {stage.spec.name for stage in known.stages if stage.occupied} if known else set()
            if job.stage not in shown[uid]:
                unshown += job.occupied * self._slots(job)
        return unshown

    def _starting(self) -> int:
        """Return the executors of tasks that may begin at any moment: their Jobs are being created or widened.

        A stage may end before that is answered.
        """
        executors = 0
        for (uid, name), start in self._applier.starting.items():
            if self._observer.has_ended(uid, name):
                continue
            known = self._observer.views.get(uid)
            stage = known.stage(name) if known else None
            executors += max(start.cap - (stage.occupied if stage else 0), 0) * start.slots
        return executors

    def _looked_for(self) -> int:
        """Return the executors of stages whose Jobs are not seen, while nobody says that they were deleted.

        Of one that is being widened, too, all that it may have is counted there.
        """
        return sum(
            most.tasks * most.slots
            for uid, known in self._observer.views.items()
            for name, most in known.missing.items()
            if (uid, name) not in self._applier.starting
        )

    def _leaving(self) -> int:
        """Return the executors under pods that have not ended though their Jobs are deleted, and not looked for."""
        executors = 0
        for job, pods in self._store.pool_leaving(self._pool):
            if not job.genuine and not self._observer.acceptance.takes(job.meta.namespace):
                continue  # all that is known of it is what its pods say, and labels are copied easily
            known = self._observer.views.get(job.meta.owner_uid)
            if known is None or job.stage not in known.missing:
                executors += pods * self._slots(job)
        return executors

    def _slots(self, job: JobFact) -> int:
        """Return the executors that a task of a Job takes; one that does not say is looked up in its workflow."""
        if job.slots is not None:
            return job.slots
        fact = self._store.workflows.get(job.meta.owner_uid)
        stages = fact.spec.stages if fact and fact.spec else []
        return next((stage.slots for stage in stages if stage.name == job.stage), 1)
