"""Futures that are followed to their very end: what the teacher's, which may stop earlier, must agree with."""

from fermata.policy._jit import kernel
from fermata.sim.engine import DECIDE, advance
from fermata.training.fork import Fork
from fermata.training.teacher import Base, FloatArray, Future, IntArray, Plan, act, add_costs, begin, stayed_s, unfold


@kernel
def try_to_the_end(
    forks: tuple[Fork, ...], future: Future, legal: int, base: Base, totals_s: FloatArray, left: IntArray
) -> bool:
    """Do what `fermata.training.teacher.try_actions` does, and follow each action until the last job has left."""
    for picked in range(len(forks)):
        if (legal >> picked) & 1:
            world = forks[picked].world
            if not unfold(forks[picked], future):
                return False
            begin(world, picked, base)
            while advance(world) == DECIDE:
                act(world, base)
            left[picked] = world.clock[0].jobs
            totals_s[picked] = stayed_s(world, left[picked], future.world.board.pool[0].now_s)
    return True


@kernel
def try_futures_to_the_end(
    forks: tuple[Fork, ...],
    future: Future,
    firsts: IntArray,
    legal: int,
    base: Base,
    plan: Plan,
    costs: FloatArray,
    totals_s: FloatArray,
    left: IntArray,
) -> bool:
    """Do what `fermata.training.teacher.try_futures` does, and follow each action until the last job has left."""
    for i in range(len(firsts)):
        one = Future(future.world, future.library, firsts[i], future.since_s, future.arrivals)
        if not try_to_the_end(forks, one, legal, base, totals_s, left):
            return False
        add_costs(costs, totals_s, legal, plan)
    return True
