"""Formulas against values worked by hand, against each other, and against a queue that is played out."""

import math

import numpy as np
import pytest

from fermata.policy.theory import queueing as q


def test_erlang_c() -> None:
    assert q.erlang_c(1, 0.7) == pytest.approx(0.7)  # one executor: the probability that it is busy
    assert q.erlang_c(2, 1.0) == pytest.approx(1.0 / 3.0)
    offered, k = 8.0, 10  # by its definition as a sum
    last = offered**k / math.factorial(k) / (1.0 - offered / k)
    assert q.erlang_c(k, offered) == pytest.approx(
        last / (sum(offered**n / math.factorial(n) for n in range(k)) + last)
    )


def test_one_executor_exponential_is_pollaczek_khinchine() -> None:
    assert q.mmk_wait_s(0.05, 10.0, 1) == pytest.approx(10.0)
    assert q.mg1_wait_s(0.05, 10.0, 200.0) == pytest.approx(10.0)
    assert q.mg1_wait_s(0.05, 10.0, 100.0) == pytest.approx(5.0)  # fixed durations wait half as long


def test_priorities_keep_the_total_wait_of_the_work() -> None:
    rates, means, squares = [0.03, 0.005], [10.0, 50.0], [100.0, 2500.0]
    load = [rate * mean for rate, mean in zip(rates, means, strict=True)]
    total = sum(rates)
    mean = sum(load) / total
    square = sum(rate * square for rate, square in zip(rates, squares, strict=True)) / total
    waits = q.priority_waits_s(rates, means, squares)
    # Kleinrock's conservation law
    conserved = sum(part * wait for part, wait in zip(load, waits, strict=True))
    assert conserved == pytest.approx(sum(load) * q.mg1_wait_s(total, mean, square))


def test_priorities_among_equals_keep_the_mean_wait() -> None:
    waits = q.mmk_priority_waits_s([0.1, 0.2], 10.0, 5)
    assert (0.1 * waits[0] + 0.2 * waits[1]) / 0.3 == pytest.approx(q.mmk_wait_s(0.3, 10.0, 5))
    assert waits[0] < waits[1]


def test_sjf_waits_are_those_of_a_queue_played_out() -> None:
    rate, sizes, share = 0.03, np.array([10.0, 50.0]), [0.8, 0.2]
    rng = np.random.default_rng(3)
    jobs = 200_000
    arrival = np.cumsum(rng.exponential(1.0 / rate, jobs))
    kind = (rng.random(jobs) >= share[0]).astype(int)
    queue: list[list[int]] = [[], []]
    head, wait, now, arrived = [0, 0], np.zeros(jobs), 0.0, 0
    for _ in range(jobs):
        if head[0] == len(queue[0]) and head[1] == len(queue[1]):
            now = max(now, arrival[arrived])
        while arrived < jobs and arrival[arrived] <= now:
            queue[kind[arrived]].append(arrived)
            arrived += 1
        shortest = 0 if head[0] < len(queue[0]) else 1
        job = queue[shortest][head[shortest]]
        head[shortest] += 1
        wait[job] = now - arrival[job]
        now += sizes[shortest]
    for which, expected in enumerate(q.sjf_waits_s(rate, sizes.tolist(), share)):
        batches = wait[kind == which]
        batches = batches[: len(batches) // 50 * 50].reshape(50, -1).mean(1)
        assert abs(batches.mean() - expected) < 4.0 * batches.std(ddof=1) / math.sqrt(50)


def test_what_has_no_steady_state_is_refused() -> None:
    with pytest.raises(ValueError, match="load 1 has no steady state"):
        q.mmk_wait_s(0.2, 10.0, 2)
    with pytest.raises(ValueError, match=r"load 1\.5"):
        q.mg1_wait_s(0.15, 10.0, 100.0)
    with pytest.raises(ValueError, match="ascend"):
        q.sjf_waits_s(0.01, [50.0, 10.0], [0.5, 0.5])
