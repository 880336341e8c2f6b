"""The Lublin-Feitelson model of rigid jobs, as a generator.

Source: U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid
jobs", Journal of Parallel and Distributed Computing 63(11), 2003; parameters and limits of the authors' program
lublin99.c. The random stream is numpy's, so seeds give other jobs than there, of the same distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fermata.policy.errors import InputError
from fermata.sim.hpc.jobs import FloatArray, IntArray, JobLog

DAY_BUCKETS = 48
BUCKET_S = 1800.0
_FIRST_BUCKET = 11  # the fitted daily cycle runs from here to 48 buckets later
_LOG_LONGEST_S, _LOG_LONGEST_GAP_S = 12.0, 13.0  # longer draws are drawn again
_LEAST_SPAN_S = 100.0  # between the first and the last submission, for a load to be met within a percent


@dataclass(frozen=True)
class JobKind:
    """Parameters of one population of jobs; names as in the paper, cores on a logarithmic scale to base 2."""

    serial: float  # probability of one core
    power_of_two: float  # probability of a power of two cores
    low: float  # log2 of the smallest parallel job; below 1 it makes small ones likelier
    middle_below_high: float  # log2 of the largest job minus where the two uniform stages meet
    stage_one: float  # probability of the smaller stage
    first: tuple[float, float]  # shape and scale of the first gamma of ln(run time)
    second: tuple[float, float]
    mix: tuple[float, float]  # probability of the first gamma: slope per core, intercept
    gap: tuple[float, float]  # shape and scale of the gamma of ln(gap) in rush hours
    cycle: tuple[float, float]  # shape and scale of the gamma of the arrivals over the day, in half hours
    all_day: float  # rush hour gaps to gaps of all hours
    high: float | None = None  # log2 of the largest job; None: the machine


WHOLE = JobKind(
    0.244,
    0.576,
    0.8,
    2.5,
    0.86,
    (4.2, 0.94),
    (312.0, 0.03),
    (-0.0054, 0.78),
    (10.2303, 0.4871),
    (8.1737, 3.9631),
    1.0225,
)
BATCH = JobKind(
    0.2927,
    0.6686,
    1.2,
    2.0,
    0.875,
    (6.57, 0.823),
    (639.1, 0.0156),
    (-0.003, 0.6986),
    (6.0415, 0.8531),
    (6.1271, 5.2740),
    1.0519,
)
INTERACTIVE = JobKind(
    0.1541,
    0.625,
    1.0,
    2.5,
    0.705,
    (3.8351, 0.6605),
    (7.073, 0.6856),
    (-0.0118, 0.9156),
    (6.5510, 0.6621),
    (8.9186, 3.6680),
    0.9797,
    5.5,
)
# `whole`: one population; `types`: batch and interactive jobs drawn apart and merged by arrival.
POPULATIONS: dict[str, tuple[JobKind, ...]] = {"whole": (WHOLE,), "types": (INTERACTIVE, BATCH)}


def generate(
    jobs: int, seed: int, *, machine_cores: int = 256, population: str = "whole", load: float | None = None
) -> JobLog:
    """Draw jobs from the model; estimates are the run times, and `partition` is the number of the population.

    Args:
        jobs: how many, at least 1.
        seed: same seed, same jobs.
        machine_cores: size of the machine, at least 2; the largest job takes all of it.
        population: see `POPULATIONS`.
        load: all work over what the machine can do from the first submission to the last; gaps are scaled to meet it.
            Over one gap for each job, as in a trace's figures, it is (jobs - 1) / jobs of that. Default: as the model
            gives it.

    Raises:
        InputError: a number out of range, or no such population.
    """
    if jobs < 1 or machine_cores < 2 or (load is not None and not 0.0 < load < math.inf):
        told = f"got {jobs}, {machine_cores}, {load}"
        raise InputError(f"expected 1 job or more, 2 cores or more and a finite load above 0, {told}")
    if population not in POPULATIONS:
        raise InputError(f"no population {population!r}; expected one of {', '.join(POPULATIONS)}")
    random = np.random.default_rng(seed)
    kinds = POPULATIONS[population]
    submits = [_submissions(kind, jobs, random) for kind in kinds]
    widths = [_sizes(kind, jobs, machine_cores, random) for kind in kinds]
    runtimes = [_runtimes(kind, width, random) for kind, width in zip(kinds, widths, strict=True)]
    first = np.argsort(np.concatenate(submits), kind="stable")[:jobs]
    submit, cores, runtime = (np.concatenate(each)[first] for each in (submits, widths, runtimes))
    number = np.repeat(np.arange(len(kinds)), jobs)[first]
    if load is not None:
        submit = _at_load(submit.astype(np.float64), float((runtime * cores).sum()) / machine_cores, load)
    name, work = f"lublin_{machine_cores}_seed{seed}", np.asarray(runtime, dtype=np.float64)
    zeros = np.zeros(jobs, dtype=np.int64)
    return JobLog(
        name,
        machine_cores,
        np.arange(1, jobs + 1),
        np.asarray(submit, dtype=np.float64),
        work,
        work,
        cores.astype(np.int64),
        zeros,
        number,
    )


def _at_load(submit_s: FloatArray, busy_s: float, load: float) -> FloatArray:
    """Return other submissions, in whole seconds, of which the last comes `busy_s / load` after the first.

    Raises:
        InputError: that is so soon that half a second matters.
    """
    span_s = float(submit_s[-1] - submit_s[0])
    if span_s > 0.0 and busy_s / load < _LEAST_SPAN_S:
        told = f"{len(submit_s)} of them are work for {busy_s:,.0f} s, and are submitted in whole seconds"
        raise InputError(f"no load of {load:g} for such jobs: {told}")
    offered = busy_s / max(span_s, 1.0)
    with np.errstate(over="ignore"):  # the log refuses what is beyond all times
        moved_s: FloatArray = np.floor(submit_s[0] + (submit_s - submit_s[0]) * offered / load)
    return moved_s


def _sizes(kind: JobKind, jobs: int, machine_cores: int, random: np.random.Generator) -> IntArray:
    """Return the cores of every job: one, or two to the power of a number that is uniform in two stages."""
    high = math.log2(machine_cores) if kind.high is None else min(kind.high, math.log2(machine_cores))
    middle = max(high - kind.middle_below_high, kind.low)
    what = random.random(jobs)
    small = random.random(jobs) <= kind.stage_one
    place = random.random(jobs)
    exponent = np.where(small, kind.low + place * (middle - kind.low), middle + place * (high - middle))
    exponent = np.where(what <= kind.serial + kind.power_of_two, np.floor(exponent + 0.5), exponent)
    cores = np.where(what <= kind.serial, 1.0, np.floor(2.0**exponent + 0.5))
    return np.minimum(cores, machine_cores).astype(np.int64)


def _runtimes(kind: JobKind, cores: IntArray, random: np.random.Generator) -> FloatArray:
    """Return run times in whole seconds: their logarithm is a mixture of two gammas that depends on the cores."""
    first_share = np.clip(kind.mix[0] * cores + kind.mix[1], 0.0, 1.0)
    logarithm = np.full(len(cores), np.inf)
    while (again := np.flatnonzero(logarithm > _LOG_LONGEST_S)).size:
        first = random.random(again.size) <= first_share[again]
        shape = np.where(first, kind.first[0], kind.second[0])
        scale = np.where(first, kind.first[1], kind.second[1])
        logarithm[again] = random.gamma(shape, scale)
    return np.asarray(np.floor(np.exp(logarithm)))


def _submissions(kind: JobKind, jobs: int, random: np.random.Generator) -> FloatArray:
    """Return submission times in whole seconds from midnight: gaps of rush hours, stretched by the daily cycle.

    A gap drawn for the rush hours buys points; a half hour of the day costs as many as its share of a day's arrivals.
    """
    logarithm = np.full(jobs, np.inf)
    while (again := np.flatnonzero(logarithm > _LOG_LONGEST_GAP_S)).size:
        logarithm[again] = random.gamma(kind.gap[0] * kind.all_day, kind.gap[1], again.size)
    points = np.cumsum(np.exp(logarithm) / BUCKET_S)
    price = _daily_cycle(kind)
    paid = np.concatenate([[0.0], np.cumsum(price)])
    days, left = np.divmod(points, paid[-1])
    bucket = np.minimum(np.searchsorted(paid, left, side="right") - 1, DAY_BUCKETS - 1)
    within = (left - paid[bucket]) / price[bucket]
    return np.asarray(np.floor((days * DAY_BUCKETS + bucket + within) * BUCKET_S))


def _daily_cycle(kind: JobKind) -> FloatArray:
    """Return the arrivals of each half hour of the day, `[48]`, their mean being 1."""
    weights = np.empty(DAY_BUCKETS)
    for bucket in range(_FIRST_BUCKET, DAY_BUCKETS + _FIRST_BUCKET):
        share = _gamma_cdf(bucket + 0.5, *kind.cycle) - _gamma_cdf(bucket - 0.5, *kind.cycle)
        weights[(bucket - 1) % DAY_BUCKETS] = share
    return np.asarray(weights / weights.mean())


def _gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Return the distribution function of a gamma, by its power series (shape and x / scale below a few dozen)."""
    x /= scale
    term = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1.0))
    total, step = term, shape
    while term > total * 1e-15:
        step += 1.0
        term *= x / step
        total += term
    return min(total, 1.0)
