"""Whether a workflow can run in its pool, and if not, why."""

from __future__ import annotations

from collections.abc import Collection

from fermata.operator import reasons
from fermata.operator.facts import PoolFact, WorkflowFact
from fermata.operator.resources import ExecutorPoolSpec, WorkflowSpec
from fermata.operator.store import Store
from fermata.operator.validate import Problem, pool_problems, selector_problems, too_many_slots, workflow_problems


def pool_problem(fact: PoolFact) -> Problem | None:
    """Return why a pool cannot be used, or None."""
    if fact.spec is None:
        return Problem(reasons.INVALID_SPEC, fact.problem)
    return next(iter(pool_problems(fact.spec)), None)


class Acceptance:
    """Judges the workflows of one pool; what follows from the two specs alone is looked at once."""

    def __init__(self, pool: str, store: Store) -> None:
        self._pool, self._store = pool, store
        self._checked: dict[str, tuple[int, ExecutorPoolSpec | None, list[Problem]]] = {}

    def forget(self, uid: str) -> None:
        """Drop what is known of a workflow."""
        self._checked.pop(uid, None)

    def problem(self, fact: WorkflowFact) -> Problem | None:
        """Return why a workflow cannot run, or None."""
        if fact.spec is None:
            return Problem(reasons.INVALID_SPEC, fact.problem)
        pool = self._store.pools.get(self._pool)
        spec = pool.spec if pool else None
        checked = self._checked.get(fact.meta.uid)
        if checked is None or checked[:2] != (fact.meta.generation, spec):
            problems = workflow_problems(fact.spec, spec)
            checked = self._checked[fact.meta.uid] = (fact.meta.generation, spec, problems)
        if checked[2]:
            begun = self._begun(fact)
            problem = next((each for each in checked[2] if not _is_past(each, fact.spec, begun)), None)
            if problem is not None:
                return problem
        if pool is None:
            return Problem(reasons.POOL_NOT_FOUND, f"no ExecutorPool is named {self._pool!r}")
        wrong = pool_problem(pool)
        if wrong is not None:
            return Problem(reasons.POOL_INVALID, f"pool {self._pool!r} takes no workflows: {wrong.message}")
        if not self.takes(fact.meta.namespace):
            message = f"pool {self._pool!r} does not take workflows of namespace {fact.meta.namespace!r}"
            return Problem(reasons.NAMESPACE_NOT_ALLOWED, message)
        return self._outgrown(fact, pool.spec) if pool.spec else None

    def takes(self, namespace: str) -> bool:
        """Tell whether the pool takes workflows of a namespace."""
        pool, fact = self._store.pools.get(self._pool), self._store.namespaces.get(namespace)
        selector = pool.spec.namespace_selector if pool and pool.spec else None
        # A namespace that is newer than what is known of it may have the label for which it is left out.
        return selector is None or (fact is not None and selector.selects(dict(fact.meta.labels)))

    def serves(self, namespace: str | None) -> bool:
        """Tell whether the pool is one of an operator that looks at this namespace; None: at all of them.

        An operator of one namespace leaves alone what takes none of its workflows: it would write 0 into a status that
        the operator of another namespace keeps, and may not read that one's model. A selector that is malformed is no
        other operator's: whoever reads it says so.
        """
        if namespace is None or self.takes(namespace):
            return True
        pool = self._store.pools.get(self._pool)
        selector = pool.spec.namespace_selector if pool and pool.spec else None
        return selector is not None and bool(selector_problems(selector))

    def _outgrown(self, fact: WorkflowFact, pool: ExecutorPoolSpec) -> Problem | None:
        """Return that a pool has become too small for a stage that has begun: the rest of its tasks never has a turn.

        One whose Job starts its tasks by itself goes on.
        """
        jobs = self._store.workflow_jobs.get(fact.meta.uid, {})
        for index, stage in enumerate(fact.spec.stages if fact.spec else ()):
            job = jobs.get(stage.name)
            if job is None or not job.gated or not job.begins_more or (job.slots or 1) <= pool.executors:
                continue
            if job.completions - job.succeeded > job.occupied + job.unsettled:
                return too_many_slots(index, stage.name, job.slots or 1, pool)
        return None

    def _begun(self, fact: WorkflowFact) -> set[str]:
        """Return the stages that have been started."""
        told = {row.name for row in fact.status.stages if row.state in ("Running", "Succeeded", "Failed")}
        return told | self._store.workflow_jobs.get(fact.meta.uid, {}).keys()


def _is_past(problem: Problem, spec: WorkflowSpec, begun: Collection[str]) -> bool:
    """Tell whether a problem is one of starting a stage that has been started: the pool was large enough then."""
    if problem.reason != reasons.TOO_MANY_SLOTS:
        return False
    index = problem.path[2]
    return isinstance(index, int) and spec.stages[index].name in begun
