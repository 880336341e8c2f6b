"""Agents in Fermata's Gymnasium environment: at random, shortest job first, and one that leaves an executor idle.

    pip install '.[gym,sim]'  # in a checkout
    python examples/02-gymnasium.py

A learner takes the place of the functions below: it is shown the observation, may take what the mask allows, and its
return is minus the average job completion time. docs/gymnasium.md says what the arrays hold.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import gymnasium
import numpy as np

import fermata.sim.gym  # registers the environment

# The columns of an observation's "stages" that the agents below look at.
ESTIMATE, WORK_LEFT = 1, 10

TAU_S = 60.0

Agent = Callable[[dict, np.ndarray, np.random.Generator], int]


def at_random(observation: dict, mask: np.ndarray, rng: np.random.Generator) -> int:
    """Take any action that is allowed, the wait included."""
    return int(rng.choice(np.flatnonzero(mask)))


def shortest_job_first(observation: dict, mask: np.ndarray, rng: np.random.Generator) -> int:
    """Start as much as fits of the job with the least work left; never wait."""
    shares = (len(mask) - 1) // len(observation["stages"])
    allowed = mask[:-1:shares].astype(bool)  # a row's first action: all of what fits
    work_left = np.where(allowed, observation["stages"][:, WORK_LEFT], np.inf)
    return int(np.argmin(work_left)) * shares


def hold_the_last_executor(observation: dict, mask: np.ndarray, rng: np.random.Generator) -> int:
    """Start no long job on the last free executor while the others are busy for long: a short one may come.

    The more long jobs wait, the less it pays to hold them all.
    """
    chosen = shortest_job_first(observation, mask, rng)
    stages, free_in_s = observation["stages"], np.expm1(observation["executors"])
    is_long = np.expm1(stages[:, ESTIMATE]) > 100.0
    row = chosen * len(stages) // (len(mask) - 1)
    if not (mask[-1] and is_long[row] and np.count_nonzero(free_in_s == 0.0) == 1):
        return chosen
    next_free_s = free_in_s[free_in_s > 0.0].min(initial=np.inf)
    return len(mask) - 1 if next_free_s > TAU_S * np.count_nonzero(is_long) else chosen


def mean_jct_s(agent: Agent, jobs: int, episodes: int) -> float:
    """Run an agent on the first seeds and return its mean return, without the sign."""
    env = gymnasium.make(fermata.sim.gym.ID, scenario="express_k2", parameters={"jobs": jobs, "warm": 0})
    rng, total = np.random.default_rng(0), 0.0
    for seed in range(episodes):
        observation, info = env.reset(seed=seed)
        done = False
        while not done:
            action = agent(observation, info["action_mask"], rng)
            observation, reward, done, _, info = env.step(action)
            total -= float(reward)
    return total / episodes


def main() -> None:
    """Compare the agents on the same episodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs an episode")
    parser.add_argument("--episodes", type=int, default=5)
    chosen = parser.parse_args()
    for agent in (at_random, shortest_job_first, hold_the_last_executor):
        name = agent.__name__.replace("_", " ")
        print(f"{name:24} {mean_jct_s(agent, chosen.jobs, chosen.episodes):.2f} s")


if __name__ == "__main__":
    main()
