"""Two classes of one-stage jobs on k executors as a Markov chain with decisions, in tables.

A state is (configuration, longs waiting, shorts waiting). The *configuration* says what runs: the sorted remaining
times on a lattice of slots, or how many of each class where durations are exponential. Starting a job moves to a
configuration with one more running; that is a decision and takes no time. Then one period passes: a slot, or the time
to the next event of the uniformised chain. Both kinds end up as the same tables, so one solver serves both.

Arrivals inside a slot are there from its end, and their JCT counts from there. For FIFO on one executor that changes
no mean; where the order matters it flatters, in proportion to the slot, so two slots extrapolate to none (see
`optimal`). Arrivals beyond the queue caps are lost; `default_caps` makes that rare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
from numpy.typing import NDArray

from fermata.policy.state import FloatArray

IntArray = NDArray[np.int64]

NEVER = -1  # no executor is free for this start


@dataclass(frozen=True)
class TwoClasses:
    """Poisson arrivals of short and long jobs on k executors.

    Attributes:
        executors: k, at least 1.
        short_share: probability that an arrival is short, in (0, 1).
        short_s: duration of a short job (the mean, where durations are exponential), seconds.
        long_s: duration of a long job, seconds.
        load: arrival rate times mean duration over k, in (0, 1).
    """

    executors: int
    short_share: float
    short_s: float
    long_s: float
    load: float

    def __post_init__(self) -> None:
        if self.executors < 1:
            raise ValueError(f"executors must be at least 1, not {self.executors}")
        if not (0.0 < self.short_share < 1.0 and 0.0 < self.load < 1.0):
            raise ValueError(f"short_share {self.short_share:g} and load {self.load:g} must lie between 0 and 1")
        if not 0.0 < self.short_s < self.long_s:
            raise ValueError(f"expected 0 < short_s < long_s, not {self.short_s:g} and {self.long_s:g}")

    @property
    def mean_s(self) -> float:
        """Mean duration, seconds."""
        return self.short_share * self.short_s + (1.0 - self.short_share) * self.long_s

    @property
    def rate_per_s(self) -> float:
        """Arrivals of both classes, 1/s."""
        return self.load * self.executors / self.mean_s


@dataclass(frozen=True)
class Chain:
    """The tables that the solver reads.

    Attributes:
        classes: what is modelled.
        period_s: length of one period, seconds.
        long_slots: periods that a long job takes; 0 where durations are exponential.
        configurations: [configurations, executors or 2] slots left of each running job ascending (0: free), or
            running shorts and longs; those with more running come first, so that a start leads to a smaller index.
        busy: [configurations] jobs running.
        start_short: [configurations] where starting a short job leads, or NEVER.
        start_long: [configurations] where starting a long job leads, or NEVER.
        edge_ptr: [configurations + 1] where each configuration's transitions over a period begin.
        edge_to: [edges] configuration after the period.
        edge_shorts: [edges] shorts that arrive in it.
        edge_longs: [edges] longs that arrive in it.
        edge_probability: [edges] sums to 1 within a configuration.
        idle: the configuration in which nothing runs.
        longs_cap: longs waiting are counted up to here.
        shorts_cap: shorts waiting are counted up to here.
    """

    classes: TwoClasses
    period_s: float
    long_slots: int
    configurations: IntArray
    busy: IntArray
    start_short: IntArray
    start_long: IntArray
    edge_ptr: IntArray
    edge_to: IntArray
    edge_shorts: IntArray
    edge_longs: IntArray
    edge_probability: FloatArray
    idle: int
    longs_cap: int
    shorts_cap: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Configurations, longs waiting, shorts waiting."""
        return len(self.busy), self.longs_cap + 1, self.shorts_cap + 1


def default_caps(classes: TwoClasses) -> tuple[int, int]:
    """Return caps on the longs and shorts waiting that queues hardly ever reach.

    Longs: the work in the system has an exponential tail, here cut at exp(-9), as if all of it were longs. Shorts: the
    Poisson arrivals while longs hold every executor, plus five standard deviations.

    Source: the heavy-traffic decay rate 2 (1 - load) k / (rate E[S^2]).
    """
    share, rate = classes.short_share, classes.rate_per_s
    square_s2 = share * classes.short_s**2 + (1.0 - share) * classes.long_s**2
    decay_per_s = 2.0 * (1.0 - classes.load) * classes.executors / (rate * square_s2)
    blocked = rate * share * classes.long_s
    return 4 + math.ceil(9.0 / decay_per_s / classes.long_s), 8 + math.ceil(blocked + 5.0 * math.sqrt(blocked))


def lattice_states(classes: TwoClasses, slots_long: int, caps: tuple[int, int]) -> int:
    """Return how many states `lattice_chain` would have with a long job of `slots_long` slots."""
    configurations = math.comb(slots_long + classes.executors, classes.executors)
    return configurations * (caps[0] + 1) * (caps[1] + 1)


def lattice_chain(classes: TwoClasses, slot_s: float, caps: tuple[int, int] | None = None) -> Chain:
    """Return the chain for fixed durations, with time in slots.

    Args:
        classes: what is modelled; both durations must be whole slots.
        slot_s: length of a slot, seconds.
        caps: largest counts of longs and shorts waiting; by default `default_caps`.

    Raises:
        ValueError: durations that are not whole slots.
    """
    short, long = round(classes.short_s / slot_s), round(classes.long_s / slot_s)
    if short < 1 or not (math.isclose(short * slot_s, classes.short_s) and math.isclose(long * slot_s, classes.long_s)):
        raise ValueError(f"{classes.short_s:g} s and {classes.long_s:g} s must be whole slots of {slot_s:g} s")
    k = classes.executors
    running = sorted(combinations_with_replacement(range(long + 1), k), key=lambda left: left.count(0))
    index = {left: place for place, left in enumerate(running)}

    def started(left: tuple[int, ...], slots: int) -> int:
        return NEVER if left[0] > 0 else index[tuple(sorted((*left[1:], slots)))]

    after = [index[tuple(max(slots - 1, 0) for slots in left)] for left in running]
    batches = _batches(classes, slot_s)
    number = len(batches)
    return Chain(
        classes=classes,
        period_s=slot_s,
        long_slots=long,
        configurations=np.array(running, np.int64).reshape(-1, k),
        busy=np.array([k - left.count(0) for left in running], np.int64),
        start_short=np.array([started(left, short) for left in running], np.int64),
        start_long=np.array([started(left, long) for left in running], np.int64),
        edge_ptr=np.arange(len(running) + 1, dtype=np.int64) * number,
        edge_to=np.repeat(np.array(after, np.int64), number),
        edge_shorts=np.tile(np.array([shorts for shorts, _, _ in batches], np.int64), len(running)),
        edge_longs=np.tile(np.array([longs for _, longs, _ in batches], np.int64), len(running)),
        edge_probability=np.tile(np.array([probability for _, _, probability in batches]), len(running)),
        idle=index[(0,) * k],
        longs_cap=(caps or default_caps(classes))[0],
        shorts_cap=(caps or default_caps(classes))[1],
    )


def _batches(classes: TwoClasses, slot_s: float) -> list[tuple[int, int, float]]:
    """Return (shorts, longs, probability) of what arrives in a slot, leaving out what is less likely than 1e-6."""

    def poisson(mean: float) -> list[float]:
        probability = [math.exp(-mean)]
        while 1.0 - math.fsum(probability) > 1e-7:
            probability.append(probability[-1] * mean / len(probability))
        return probability

    mean = classes.rate_per_s * slot_s
    shorts, longs = poisson(mean * classes.short_share), poisson(mean * (1.0 - classes.short_share))
    pairs = product(enumerate(shorts), enumerate(longs))
    kept = [(short, long, p * q) for (short, p), (long, q) in pairs if p * q > 1e-6]
    total = math.fsum(probability for _, _, probability in kept)
    return [(short, long, probability / total) for short, long, probability in kept]


def exponential_chain(classes: TwoClasses, caps: tuple[int, int] | None = None) -> Chain:
    """Return the chain for exponential durations, uniformised: one period is one event of the fastest clock.

    Args:
        classes: what is modelled; `short_s` and `long_s` are means.
        caps: largest counts of longs and shorts waiting; by default `default_caps`.

    Source: uniformisation (Lippman 1975).
    """
    k = classes.executors
    running = sorted(((s, n) for s in range(k + 1) for n in range(k + 1 - s)), key=lambda pair: -sum(pair))
    index = {pair: place for place, pair in enumerate(running)}
    clock_per_s = classes.rate_per_s + k / classes.short_s
    arrive = classes.rate_per_s / clock_per_s
    edges: list[tuple[int, int, int, float]] = []
    edge_ptr = [0]
    for shorts, longs in running:
        here = index[shorts, longs]
        moves = [(here, 1, 0, arrive * classes.short_share), (here, 0, 1, arrive * (1.0 - classes.short_share))]
        if shorts:
            moves.append((index[shorts - 1, longs], 0, 0, shorts / classes.short_s / clock_per_s))
        if longs:
            moves.append((index[shorts, longs - 1], 0, 0, longs / classes.long_s / clock_per_s))
        moves.append((here, 0, 0, 1.0 - math.fsum(move[3] for move in moves)))
        edges += moves
        edge_ptr.append(len(edges))
    longs_cap, shorts_cap = caps or default_caps(classes)
    return Chain(
        classes=classes,
        period_s=1.0 / clock_per_s,
        long_slots=0,
        configurations=np.array(running, np.int64),
        busy=np.array([sum(pair) for pair in running], np.int64),
        start_short=np.array([index.get((s + 1, n), NEVER) for s, n in running], np.int64),
        start_long=np.array([index.get((s, n + 1), NEVER) for s, n in running], np.int64),
        edge_ptr=np.array(edge_ptr, np.int64),
        edge_to=np.array([edge[0] for edge in edges], np.int64),
        edge_shorts=np.array([edge[1] for edge in edges], np.int64),
        edge_longs=np.array([edge[2] for edge in edges], np.int64),
        edge_probability=np.array([edge[3] for edge in edges]),
        idle=index[0, 0],
        longs_cap=longs_cap,
        shorts_cap=shorts_cap,
    )
