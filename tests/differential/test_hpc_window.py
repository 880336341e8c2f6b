"""The compiled window agent against one in plain Python: lists for queue and machine, features one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.windows import random_theta

from fermata.sim.hpc import JobLog, Rules, Start, simulate
from fermata.sim.hpc.lublin import generate
from fermata.sim.hpc.orders import order
from fermata.sim.hpc.window import FEATURES, HIDDEN, SingleArray
from fermata.sim.hpc.window_models import WindowModel


def network(theta: SingleArray, rows: np.ndarray) -> np.ndarray:
    layers, place, before = [], 0, FEATURES
    for width in (*HIDDEN, 1):
        weights = theta[place : place + before * width].reshape(before, width)
        place += before * width
        layers.append((weights, theta[place : place + width]))
        place += width
        before = width
    value = rows.astype(np.float32)
    for number, (weights, biases) in enumerate(layers):
        value = value @ weights + biases
        if number < len(HIDDEN):
            value = np.maximum(value, 0.0)
    return value[:, 0]


class Reference:
    """A machine whose jobs are started by an agent with a window."""

    def __init__(self, log: JobLog, head: int, tail: int, theta: SingleArray) -> None:
        self.log, self.head, self.tail, self.theta = log, head, tail, theta
        self.queue: list[int] = []
        self.running: list[int] = []
        self.coming = list(range(len(log)))
        self.start = [math.nan] * len(log)
        self.now = 0.0

    def end(self, job: int) -> float:
        return self.start[job] + float(self.log.runtime_s[job])

    def free(self) -> int:
        return self.log.machine_cores - sum(int(self.log.cores[job]) for job in self.running)

    def window(self) -> list[int]:
        head = self.queue[: self.head]
        rest = self.queue[len(head) :]
        return head + rest[max(len(rest) - self.tail, 0) :]

    def run(self) -> list[float]:
        while self.coming or self.queue:
            times = [float(self.log.submit_s[job]) for job in self.coming[:1]] + [self.end(job) for job in self.running]
            self.now = max(self.now, min(times))
            while self.coming and self.log.submit_s[self.coming[0]] <= self.now:
                self.queue.append(self.coming.pop(0))
            self.running = [job for job in self.running if self.end(job) > self.now]
            while (job := self.choose()) is not None:
                self.queue.remove(job)
                self.start[job] = self.now
                self.running.append(job)
        return self.start

    def choose(self) -> int | None:
        window, free = self.window(), self.free()
        fitting = [job for job in window if self.log.cores[job] <= free]
        if not fitting:
            return None
        common = self.common(window, len(fitting))
        rows = [[*self.job(job), 0.0, *common] for job in fitting]
        if self.running or self.coming:
            rows.append([0.0] * 7 + [1.0] + common)
        best = int(np.argmax(network(self.theta, np.array(rows))))
        return fitting[best] if best < len(fitting) else None

    def left(self, job: int) -> float:
        return max(self.end(job) - self.now, 1.0)  # estimates are the run times; one that is overdue ends in a second

    def common(self, window: list[int], fitting: int) -> list[float]:
        log, machine, free = self.log, self.log.machine_cores, self.free()
        cores_left = [(self.left(job), int(log.cores[job])) for job in self.running]
        ahead = [free + sum(cores for left, cores in cores_left if left <= span) for span in (600, 3600, 14_400)]
        return [
            1 - free / machine,
            math.log1p(sum(left * cores for left, cores in cores_left) / machine) / 12,
            math.log1p(min((left for left, _ in cores_left), default=0.0)) / 12,
            math.log1p(len(self.queue)) / 6,
            math.log1p(len(self.queue) - len(window)) / 6,
            math.log1p(sum(float(log.estimate_s[job] * log.cores[job]) for job in window) / machine) / 12,
            fitting / len(window),
            math.log1p(min(float(log.estimate_s[job]) for job in window)) / 12,
            max(int(log.cores[job]) for job in window) / machine,
            *(each / machine for each in ahead),
        ]

    def job(self, job: int) -> list[float]:
        log, machine = self.log, self.log.machine_cores
        cores, estimate = int(log.cores[job]), float(log.estimate_s[job])
        after = self.free() - cores
        ended = sum(int(log.cores[other]) for other in self.running if self.left(other) <= estimate)
        return [
            math.log1p(estimate) / 12,
            math.log2(cores) / math.log2(machine),
            cores / machine,
            math.log1p(self.now - float(log.submit_s[job])) / 12,
            after / machine,
            math.log1p(self.queue.index(job)) / 6,
            (after + ended) / machine,
        ]


@pytest.mark.parametrize(("head", "tail"), [(32, 32), (20, 0), (3, 3), (1, 0), (1, 6)])
def test_the_kernel_starts_what_plain_python_starts(head: int, tail: int) -> None:
    for seed in range(4):
        log, theta = generate(300, seed, machine_cores=64, load=1.2), random_theta(seed)
        compiled = simulate(log, order("fcfs"), Rules(start=Start.SKIP), None, WindowModel(head, tail, theta))
        assert compiled.start_s.tolist() == Reference(log, head, tail, theta).run()
