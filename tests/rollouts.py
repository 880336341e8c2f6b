"""Futures that are followed to their very end: what the teacher's, which may stop earlier, must agree with."""

from fermata.policy._jit import kernel
from fermata.policy.action import WAIT
from fermata.policy.features import candidates
from fermata.policy.guardrails import NO_LIMITS
from fermata.policy.learned import action_of
from fermata.sim.engine import DECIDE, advance, apply
from fermata.sim.world import World
from fermata.training.fork import Fork, splice
from fermata.training.teacher import Base, FloatArray, IntArray, Plan, act


@kernel
def _stayed_s(world: World, picked: int, base: Base) -> float:
    """Take an action, follow the base, and return the sum of all completion times, seconds from now."""
    board, now_s = world.board, world.board.pool[0].now_s
    kind, stage, cap, until_s = action_of(board, candidates(board, base.order), picked)
    apply(world, kind, stage, cap, until_s)
    if kind != WAIT:
        act(world, base, NO_LIMITS)
    while advance(world) == DECIDE:
        act(world, base, NO_LIMITS)
    total_s = 0.0
    for job in range(world.clock[0].jobs):
        total_s += world.job_progress[job].completion_s - now_s
    return total_s


@kernel
def try_to_the_end(
    forks: tuple[Fork, ...],
    world: World,
    library: World,
    first: int,
    since_s: float,
    plan: Plan,
    legal: int,
    base: Base,
    totals_s: FloatArray,
    left: IntArray,
) -> bool:
    """Do what `fermata.training.teacher.try_actions` does, and follow each action until the last job has left."""
    for picked in range(len(forks)):
        if (legal >> picked) & 1:
            if not splice(forks[picked], world, library, first, plan.horizon, since_s):
                return False
            totals_s[picked] = _stayed_s(forks[picked].world, picked, base)
            left[picked] = forks[picked].world.clock[0].jobs
    return True
