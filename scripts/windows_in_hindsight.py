"""How short could the waits on Deep Back-Filling's ten windows be, if everything was known beforehand?

    python scripts/windows_in_hindsight.py LOG.swf.xz [STEPS]    # 250,000 steps a window by default: five minutes

Simulated annealing, a window at a time: at every event the jobs that fit are started in some order, each not before
some time, and it is orders and times that are searched for, with all arrivals and run times known and nothing to be
learned. What it finds is no bound, but what has to decide without knowing should hardly be expected to be below it.

Source: Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated annealing", 1983.
"""

from __future__ import annotations

import math
import sys

import numba
import numpy as np
from numpy.typing import NDArray

from fermata.cli.interrupts import ended_in_a_line
from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.swf import read_log
from fermata.sim.metrics import mean_ci95

WINDOWS, JOBS, STEPS = 10, 1000, 250_000
HOT, COLD = 2e-3, 2e-5  # first and last temperature, as shares of the mean wait under shortest first
_HOLDS = 0.35  # share of the steps that try a time before which a job may not start

Floats = NDArray[np.float64]


@numba.njit
def mean_wait_s(
    submit_s: Floats, runtime_s: Floats, cores: NDArray[np.int64], free: int, key: Floats, not_before_s: Floats,
    start_s: Floats,
) -> float:  # fmt: skip
    """Write each job's start [jobs], seconds, and return the mean wait: what fits starts in the order of the keys."""
    jobs = len(submit_s)
    queue, end_s, taken = np.empty(jobs, np.int64), np.empty(jobs), np.empty(jobs, np.int64)
    queued, running, arrived, started, total_s, last_s = 0, 0, 0, 0, 0.0, -math.inf
    while started < jobs:
        now_s = submit_s[arrived] if arrived < jobs else math.inf
        for i in range(running):
            now_s = min(now_s, end_s[i])
        for i in range(queued):
            if not_before_s[queue[i]] > last_s:
                now_s = min(now_s, not_before_s[queue[i]])
        last_s = now_s
        i = 0
        while i < running:
            if end_s[i] <= now_s:
                free += taken[i]
                running -= 1
                end_s[i], taken[i] = end_s[running], taken[running]
            else:
                i += 1
        while arrived < jobs and submit_s[arrived] <= now_s:
            at = queued
            while at > 0 and key[queue[at - 1]] > key[arrived]:
                queue[at] = queue[at - 1]
                at -= 1
            queue[at] = arrived
            queued += 1
            arrived += 1
        left = 0
        for i in range(queued):
            job = queue[i]
            if cores[job] <= free and not_before_s[job] <= now_s:
                free -= cores[job]
                end_s[running], taken[running] = now_s + runtime_s[job], cores[job]
                running += 1
                start_s[job] = now_s
                total_s += now_s - submit_s[job]
                started += 1
            else:
                queue[left] = job
                left += 1
        queued = left
    return total_s / jobs


@numba.njit
def anneal(
    submit_s: Floats, runtime_s: Floats, cores: NDArray[np.int64], machine: int, steps: int, seed: int
) -> tuple[float, float]:
    """Return the mean wait under shortest first, and the least that was found, seconds."""
    np.random.seed(seed)
    jobs, start_s = len(submit_s), submit_s.copy()
    key, not_before_s = np.maximum(runtime_s, 1e-3) + 1e-6 * np.arange(jobs), submit_s.copy()
    first_s = mean_wait_s(submit_s, runtime_s, cores, machine, key, not_before_s, start_s)
    wait_s, least_s = first_s, first_s
    for step in range(steps):
        heat_s = first_s * HOT * (COLD / HOT) ** (step / steps)
        job, kind = np.random.randint(jobs), np.random.random()
        old_key, old_s = key[job], not_before_s[job]
        if kind < _HOLDS:
            later_s = (np.random.random() - 0.2) * 10.0 ** (1.0 + 4.0 * np.random.random())
            held = np.random.random() < 0.35
            not_before_s[job] = max(submit_s[job], start_s[job] + later_s) if held else submit_s[job]
        elif kind < 0.7:
            key[job] *= math.exp((2.0 * np.random.random() - 1.0) * 10.0 ** (2.5 * np.random.random() - 2.0))
        else:  # next to a job that was submitted about the same time
            other = min(max(job + np.random.randint(-30, 31), 0), jobs - 1)
            key[job] = key[other] * (0.9999 if np.random.random() < 0.5 else 1.0001)
        tried_s = mean_wait_s(submit_s, runtime_s, cores, machine, key, not_before_s, start_s)
        if tried_s < wait_s or np.random.random() < math.exp((wait_s - tried_s) / heat_s):
            wait_s = tried_s
            least_s = min(least_s, wait_s)
        else:
            key[job], not_before_s[job] = old_key, old_s
    return first_s, least_s


def window_of(log: JobLog, number: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return submissions from 0 on, run times, both in seconds, and cores of one window, [JOBS] each."""
    cut = log.sequence(number * JOBS, JOBS)
    return cut.submit_s - cut.submit_s[0], cut.runtime_s.astype(float), cut.cores.astype(np.int64)


def main() -> None:
    """Search window by window and print what was found."""
    log, steps = read_log(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    found = []
    for number in range(WINDOWS):
        found.append(anneal(*window_of(log, number), log.machine_cores, steps, number))
        print(f"window {number}: shortest first {found[-1][0]:7.0f} s, found {found[-1][1]:7.0f} s", flush=True)
    for name, waits_s in zip(("shortest first", "found"), zip(*found, strict=True), strict=True):
        mean, ci95 = mean_ci95(waits_s)
        print(f"{name}: {mean:.0f} ± {ci95:.0f} s")


if __name__ == "__main__":
    with ended_in_a_line("windows_in_hindsight.py"):
        main()
