"""Recent workflows replayed under a policy, with the durations that they really had: what would have happened?

A small event loop around `decide`, for a few hundred jobs, so that the operator can weigh its policy against one that
never holds without the simulator in its image. It agrees with the simulator, which a test shows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np

from fermata.operator.lanes import given_back_s
from fermata.operator.past import PastJob, PastStage
from fermata.policy.action import HOLD, START, Action
from fermata.policy.correction import corrected_s, learn, learn_order, new_correction, pays
from fermata.policy.dag import Dag, knowing
from fermata.policy.decide import Policy, corrects_estimates, decide
from fermata.policy.errors import FermataError
from fermata.policy.estimate_error import after_tasks
from fermata.policy.graph import compressed, job_shape, path_lengths, shape_of_job
from fermata.policy.guardrails import Guardrails
from fermata.policy.state import IDLE, RECENT_ARRIVALS, ClusterState, FloatArray


class ReplayError(FermataError):
    """A replay that leads nowhere: it takes too long, or the policy waits for nothing."""


def replay(
    jobs: Sequence[PastJob],
    executors: int,
    policy: Policy,
    limits: Guardrails,
    fallback: Policy,
    *,
    history: Sequence[PastJob] = (),
    sticky: bool = True,
    give_up: Callable[[], bool] = lambda: False,
) -> FloatArray:
    """Return when each job would have been complete if the pool had been empty before the first arrived.

    Args:
        jobs: in the order of their arrival; every task fits into the pool.
        executors: size of the pool.
        policy: that decides.
        limits: on its holding.
        fallback: work-conserving, for where the limits forbid to wait.
        history: jobs that came before, oldest first: seen of them is when they arrived, their work, and what their
            stages took of what was expected of them.
        sticky: a started stage keeps its executors, up to its cap, until its tasks run out; else each task gives them
            back.
        give_up: asked now and then; the replay ends when it answers True.

    Returns:
        [jobs] seconds, on the clock of the arrivals.

    Raises:
        ReplayError: it was given up, or the policy waits although nothing will happen any more.
        FermataError: the policy fails.
    """
    return _Replay(jobs, executors, history, sticky).run(policy, limits, fallback, give_up)


def _given_s(stage: PastStage) -> float:
    """Return what a user said that a task of a stage would take, 0 if nothing."""
    return stage.estimate_s if stage.given else 0.0


class _Replay:
    """A pool on virtual time. Arrays are those of `ClusterState`, for all jobs; a state shows those that arrived."""

    def __init__(self, jobs: Sequence[PastJob], executors: int, history: Sequence[PastJob], sticky: bool) -> None:
        self.jobs, self.sticky = jobs, sticky
        self.first = np.cumsum([0, *(len(job.stages) for job in jobs)], dtype=np.int64)  # of each job's stages
        rows = [stage for job in jobs for stage in job.stages]
        self.job_of = np.repeat(np.arange(len(jobs), dtype=np.int32), np.diff(self.first))
        self.parents = [
            [int(self.first[j]) + parent for parent in stage.parents]
            for j, job in enumerate(jobs)
            for stage in job.stages
        ]
        self.children: list[list[int]] = [[] for _ in rows]
        for child, above in enumerate(self.parents):
            for parent in above:
                self.children[parent].append(child)
        self.parents_left = [len(above) for above in self.parents]
        self.stages_left = np.diff(self.first).tolist()
        self.duration_s = [stage.duration_s for stage in rows]
        self.estimate_s: FloatArray = np.array([stage.estimate_s for stage in rows])
        self.slots = np.array([stage.slots for stage in rows], dtype=np.int32)
        self.max_cap = np.array([stage.max_cap for stage in rows], dtype=np.int32)
        self.tasks = np.array([stage.tasks for stage in rows], dtype=np.int32)
        self.pending = self.tasks.copy()
        self.running, self.cap = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int32)
        self.ready_s, self.hold_until_s = np.full(len(rows), math.inf), np.full(len(rows), -math.inf)
        self.held_s, self.serial = np.zeros(len(rows)), np.full(len(rows), math.nan)
        self._shapes()
        self.arrival_s = np.array([job.arrival_s for job in jobs])
        self.weight = np.array([job.weight for job in jobs])
        self.job_running, self.job_held_s = np.zeros(len(jobs), np.int32), np.zeros(len(jobs))
        self.completion_s = np.full(len(jobs), math.nan)
        self.free_at_s = np.full(executors, -math.inf)
        self.executor_stage = np.full(executors, IDLE, np.int32)
        self.executor_job = np.full(executors, IDLE, np.int32)
        self.free = list(range(executors - 1, -1, -1))
        self.ready: list[int] = []
        self.active: list[int] = []
        self.runs: list[tuple[float, int, int, list[int]]] = []  # heap: end, order of start, stage, executors
        self.started = self.arrived = 0
        self.trust, self.measured = (0.0, 0.0), 0
        self.given_s: FloatArray = np.array([_given_s(stage) for stage in rows])
        self.mute = [stage.mute for stage in rows]
        self.correction, self.corrects = new_correction(), False
        self.works_s = np.zeros((len(jobs), 3))  # of each job's finished stages: given, expected, took
        self.now_s = -math.inf
        self.past = history[-RECENT_ARRIVALS:]
        self.before = len(self.past)
        self.recent_arrival_s = np.concatenate([[job.arrival_s for job in self.past], self.arrival_s])
        self.recent_work_s = np.concatenate([[job.work_s for job in self.past], self.work_s])
        self.recent_weight = np.concatenate([[job.weight for job in self.past], self.weight])

    def _shapes(self) -> None:
        pointer, flat = compressed(self.parents)
        self.dag = Dag.of_parents(pointer, flat)
        self.path_s, _ = path_lengths(pointer, flat, self.estimate_s)
        task_work_s: FloatArray = self.estimate_s * self.pending * self.slots
        self.work_s, self.critical_path_s, self.width = job_shape(self.first, task_work_s, self.path_s)
        self.remaining_s = self.work_s.copy()

    def run(self, policy: Policy, limits: Guardrails, fallback: Policy, give_up: Callable[[], bool]) -> FloatArray:
        wake_s = math.inf
        self.corrects = corrects_estimates(policy)
        self._learn_from_past()
        policy = knowing(policy, lambda: self.dag)
        while self.arrived < len(self.jobs) or self.active:
            if give_up():
                raise ReplayError("the replay takes too long")
            next_s = self._next_event_s(wake_s)
            if math.isinf(next_s):
                raise ReplayError(f"policy {policy.name!r} waits although nothing will happen any more")
            self._count_held(next_s)
            self.now_s, wake_s = next_s, math.inf
            while self.runs and self.runs[0][0] <= next_s:
                self._complete()
            while self.arrived < len(self.jobs) and self.jobs[self.arrived].arrival_s <= next_s:
                self._arrive()
            if self.free and self.ready:
                for step in decide(self._state(), policy, limits, fallback):
                    wake_s = min(wake_s, self._take(step.action))
        return self.completion_s

    def _learn_from_past(self) -> None:
        """Know what a pool has learned that did not begin with these jobs: they alone are too few to learn from."""
        for job in self.past:
            works_s = np.zeros(3)
            for stage in (each for each in job.stages if not each.mute):
                given_s, expected_s = _given_s(stage), stage.estimate_s
                if self.corrects:
                    if given_s > 0.0 and pays(self.correction):
                        expected_s = corrected_s(self.correction, given_s)  # had this policy acted then, too
                    works_s += self._learn(given_s, stage.duration_s, stage.tasks * stage.slots)
                self._measure(stage.duration_s, expected_s, stage.tasks)
            if job.succeeded:
                self._learn_order(works_s)

    def _measure(self, duration_s: float, expected_s: float, tasks: int) -> None:
        """Note how far off the estimate of some tasks was that took the same."""
        self.trust = after_tasks(*self.trust, self.measured, tasks, duration_s, expected_s)
        self.measured += tasks

    def _learn(self, given_s: float, took_s: float, tasks: float) -> FloatArray:
        """Take a finished stage; return its executor-seconds as given, as expected, and as it took them."""
        works_s = np.zeros(3)
        if given_s > 0.0:
            works_s[:] = given_s, corrected_s(self.correction, given_s), took_s
        learn(self.correction, given_s, took_s)
        return works_s * tasks

    def _learn_order(self, works_s: FloatArray) -> None:
        """Take a finished job, if anything of it was given."""
        if works_s[0] > 0.0:
            learn_order(self.correction, *works_s.tolist())

    def _next_event_s(self, wake_s: float) -> float:
        arrival_s = self.jobs[self.arrived].arrival_s if self.arrived < len(self.jobs) else math.inf
        holds_s = (until_s for until_s in self.hold_until_s[self.ready].tolist() if until_s > self.now_s)
        return min(wake_s, arrival_s, self.runs[0][0] if self.runs else math.inf, min(holds_s, default=math.inf))

    def _count_held(self, until_s: float) -> None:
        """Whatever could have started and did not was held."""
        for stage in self.ready:
            if self.running[stage] == 0 and self.slots[stage] <= len(self.free):
                self.held_s[stage] += until_s - self.now_s

    def _arrive(self) -> None:
        job = self.arrived
        self.arrived += 1
        self.active.append(job)
        if self.corrects and pays(self.correction):
            self._correct(job)
        for stage in range(self.first[job], self.first[job + 1]):
            if self.parents_left[stage] == 0:
                self._make_ready(stage)

    def _correct(self, job: int) -> None:
        """Give a job that arrives corrected estimates, and what follows from them."""
        first, end = int(self.first[job]), int(self.first[job + 1])
        rows = slice(first, end)
        for stage in range(first, end):
            if self.given_s[stage] > 0.0:
                self.estimate_s[stage] = corrected_s(self.correction, float(self.given_s[stage]))
        parents = [[parent - first for parent in above] for above in self.parents[rows]]
        self.path_s[rows], work_s, critical_path_s, width = shape_of_job(
            parents, self.estimate_s[rows], self.pending[rows] * self.slots[rows]
        )
        self.work_s[job], self.critical_path_s[job], self.width[job] = work_s, critical_path_s, width
        self.remaining_s[job] = self.recent_work_s[self.before + job] = work_s

    def _make_ready(self, stage: int) -> None:
        self.ready_s[stage] = self.now_s
        self.ready.append(stage)

    def _complete(self) -> None:
        """End the task that ends first; its stage goes on with the next one, or gives its executors back."""
        _, _, stage, executors = heapq.heappop(self.runs)
        job = int(self.job_of[stage])
        self.running[stage] -= 1
        if not self.mute[stage]:
            self._measure(self.duration_s[stage], float(self.estimate_s[stage]), 1)
        self.remaining_s[job] = max(self.remaining_s[job] - self.slots[stage] * self.estimate_s[stage], 0.0)
        if self.sticky and self.pending[stage] > 0 and self.running[stage] < self.cap[stage]:
            self._run(stage, executors)
            return
        self.executor_stage[executors], self.free_at_s[executors] = IDLE, -math.inf
        self.free += executors
        self.job_running[job] -= len(executors)
        if self.pending[stage] == 0 and self.running[stage] == 0:
            self._finish(stage, job)

    def _finish(self, stage: int, job: int) -> None:
        if self.corrects and not self.mute[stage]:
            tasks = self.tasks[stage] * self.slots[stage]
            self.works_s[job] += self._learn(float(self.given_s[stage]), self.duration_s[stage], float(tasks))
        for child in self.children[stage]:
            self.parents_left[child] -= 1
            if self.parents_left[child] == 0:
                self._make_ready(child)
        self.stages_left[job] -= 1
        if self.stages_left[job] == 0:
            if self.jobs[job].succeeded:
                self._learn_order(self.works_s[job])
            self.completion_s[job] = self.now_s
            self.active.remove(job)

    def _run(self, stage: int, executors: list[int]) -> None:
        self.pending[stage] -= 1
        self.running[stage] += 1
        self.free_at_s[executors] = self.now_s + self.estimate_s[stage]
        self.executor_stage[executors], self.executor_job[executors] = stage, self.job_of[stage]
        heapq.heappush(self.runs, (self.now_s + self.duration_s[stage], self.started, stage, executors))
        self.started += 1
        if self.pending[stage] == 0:
            self.ready.remove(stage)

    def _take(self, action: Action) -> float:
        """Carry an action out and return when the policy wants to be asked again."""
        if action.kind == HOLD:
            self.hold_until_s[action.stage] = action.until_s
            return math.inf
        if action.kind != START:
            return action.until_s
        stage, slots = action.stage, int(self.slots[action.stage])
        tasks = min(action.cap - self.running[stage], self.pending[stage], len(self.free) // slots)
        self.cap[stage] = max(self.cap[stage], action.cap)
        for _ in range(int(tasks)):
            taken, self.free = self.free[-slots:], self.free[:-slots]
            self.job_running[self.job_of[stage]] += slots
            self._run(stage, taken)
        return math.inf

    def _given_back_s(self) -> FloatArray:
        """Return when each executor is expected to be free, as the pool itself tells its policy."""
        lanes: dict[int, list[list[int]]] = {stage: [] for stage in self.ready if self.sticky and self.running[stage]}
        if not lanes:
            return self.free_at_s
        for _, _, stage, executors in sorted(self.runs, key=itemgetter(1)):
            if stage in lanes:
                lanes[stage].append(executors)
        free_at_s = self.free_at_s.copy()
        for stage, rows in lanes.items():
            ends_s = [float(free_at_s[executors[0]]) for executors in rows]
            later_s = given_back_s(ends_s, int(self.pending[stage]), float(self.estimate_s[stage]), self.now_s)
            for executors, end_s in zip(rows, later_s, strict=True):
                free_at_s[executors] = end_s
        return free_at_s

    def _state(self) -> ClusterState:
        jobs, stages = self.arrived, int(self.first[self.arrived])
        recent = slice(max(self.before + jobs - RECENT_ARRIVALS, 0), self.before + jobs)
        return ClusterState(
            now_s=self.now_s,
            free=len(self.free),
            executor_free_at_s=self._given_back_s(),
            executor_stage=self.executor_stage,
            executor_job=self.executor_job,
            job_arrival_s=self.arrival_s[:jobs],
            job_weight=self.weight[:jobs],
            job_work_s=self.work_s[:jobs],
            job_remaining_work_s=self.remaining_s[:jobs],
            job_critical_path_s=self.critical_path_s[:jobs],
            job_width=self.width[:jobs],
            job_running=self.job_running[:jobs],
            job_held_s=self.job_held_s[:jobs],
            stage_job=self.job_of[:stages],
            stage_pending=self.pending[:stages],
            stage_running=self.running[:stages],
            stage_estimate_s=self.estimate_s[:stages],
            stage_slots=self.slots[:stages],
            stage_serial_fraction=self.serial[:stages],
            stage_cap=self.cap[:stages],
            stage_max_cap=self.max_cap[:stages],
            stage_ready_s=self.ready_s[:stages],
            stage_held_s=self.held_s[:stages],
            stage_hold_until_s=self.hold_until_s[:stages],
            stage_path_s=self.path_s[:stages],
            free_executors=np.array(self.free, dtype=np.int32),
            active_jobs=np.array(self.active, dtype=np.int32),
            ready_stages=np.array(self.ready, dtype=np.int32),
            recent_arrival_s=self.recent_arrival_s[recent],
            recent_work_s=self.recent_work_s[recent],
            recent_weight=self.recent_weight[recent],
            estimate_error=self.trust[0],
            estimate_misses=self.trust[1],
        )
