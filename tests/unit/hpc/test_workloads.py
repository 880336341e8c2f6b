"""Logs read, generated, split and given other estimates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.shared_data import require_shared

from fermata.policy.errors import InputError
from fermata.sim.hpc import JobLog, Schedule, policy
from fermata.sim.hpc.estimates import with_estimates
from fermata.sim.hpc.experiment import draw_sequences, pooled, published_sequences, run_sequence, run_sequences, split
from fermata.sim.hpc.inspect import PICKS, REJECT_IF_BLOCKED, rule_inspector
from fermata.sim.hpc.lublin import BATCH, INTERACTIVE, WHOLE, JobKind, generate
from fermata.sim.hpc.metrics import figures
from fermata.sim.hpc.swf import Cleaning, read_log, swf_lines
from fermata.sim.hpc.tune import Tuned, best_reservation, try_reservations
from fermata.sim.importers.swf import read_swf
from fermata.sim.trace_builder import one_stage_trace
from fermata.sim.trace_stats import trace_stats

SWF = """; MaxNodes: 4
; MaxProcs: 8
1 10 -1 100 4 -1 -1 2 200 -1 1 7 -1 -1 -1 2 -1 -1
3 5 -1 20 -1 -1 -1 2 -1 -1 1 9 -1 -1 -1 -1 -1 -1
2 20 -1 -1 2 -1 -1 2 60 -1 1 7 -1 -1 -1 -1 -1 -1
4 30 -1 10 2 -1 -1 2 60 -1 3 7 -1 -1 -1 -1 -1 -1
5 40 -1 0 2 -1 -1 2 60 -1 5 7 -1 -1 -1 -1 -1 -1
6 50 -1 10 9 -1 -1 9 60 -1 1 7 -1 -1 -1 -1 -1 -1
"""


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    return path


def test_the_archives_rules_leave_out_what_did_not_run_and_count_it(log_file: Path) -> None:
    left_out: Counter[str] = Counter()
    log = read_log(log_file, left_out=left_out)
    assert (log.name, log.machine_cores) == ("small", 8)
    assert log.ids.tolist() == [3, 1]
    assert (log.cores.tolist(), log.estimate_s.tolist()) == ([2, 4], [20.0, 200.0])
    assert (log.user.tolist(), log.partition.tolist()) == ([1, 0], [0, 2])
    assert left_out == read_swf(log_file).skipped
    assert left_out == dict.fromkeys(
        ("unknown run time", "partial execution", "cancelled before it started", "wider than the machine"), 1
    )


def test_a_job_number_may_be_used_again_only_where_it_is_left_out(log_file: Path) -> None:
    # Number 2 did not run, as partial executions of a job did not.
    log_file.write_text(f"{SWF}2 60 -1 10 2 -1 -1 2 60 -1 1 7\n")
    assert read_log(log_file).ids.tolist() == [3, 1, 2]
    log_file.write_text(f"{SWF}3 60 -1 10 2 -1 -1 2 60 -1 1 7\n")
    for read in (read_log, read_swf):
        with pytest.raises(InputError, match=r"small[.]swf:9: job .*'?3'? is used twice"):
            read(log_file)


def test_times_may_have_fractions_and_job_numbers_may_not(log_file: Path) -> None:
    log_file.write_text(f"{SWF}7 60.5 -1 10.25 2.0 -1 -1 2 60.5 -1 1 7\n")
    assert read_log(log_file).submit_s[-1] == 60.5
    assert read_swf(log_file).trace.stage_estimate_s[-1] == 60.5
    log_file.write_text(f"{SWF}1.5 60 -1 10 2 -1 -1 2 60 -1 1 7\n")
    for read in (read_log, read_swf):
        with pytest.raises(InputError, match=r"small[.]swf:9: expected a whole number in field 1, found 1[.]5"):
            read(log_file)


@pytest.mark.parametrize(
    "header", ["; MaxProcs: 8", ";MaxProcs:8", "; MaxProcs: 8 (of 10)", "; MaxProcs: 8.", "; MaxNodes: 8, once 4"]
)
def test_the_size_of_the_machine_is_the_number_of_its_header(tmp_path: Path, header: str) -> None:
    (tmp_path / "sized.swf").write_text(f"{header}\n1 0 -1 1 1 -1 -1 1 1 -1 1\n")
    assert read_log(tmp_path / "sized.swf").machine_cores == 8


def test_a_comment_may_be_in_latin_1_and_a_number_may_not(tmp_path: Path) -> None:
    path = tmp_path / "latin.swf"
    path.write_bytes("; Installation: Université\n".encode("latin-1") + SWF.encode())
    assert read_log(path).machine_cores == read_swf(path).executors == 8
    path.write_bytes(SWF.encode() + "é 0 -1 1 1 -1 -1 1 -1 -1 1".encode("latin-1"))
    for read in (read_log, read_swf):
        with pytest.raises(InputError, match=r"latin[.]swf:9: expected 18 numbers"):
            read(path)


def test_the_published_loader_keeps_every_line_but_the_wide_one_is_refused(log_file: Path) -> None:
    with pytest.raises(InputError, match="job 6 needs 9 cores"):
        read_log(log_file, Cleaning.SCHEDINSPECTOR)
    log_file.write_text("".join(SWF.splitlines(keepends=True)[:3] + SWF.splitlines(keepends=True)[4:7]))
    log = read_log(log_file, Cleaning.SCHEDINSPECTOR)
    assert (log.ids.tolist(), log.runtime_s.tolist()) == ([1, 2, 4, 5], [100, 10, 10, 0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1 2 3\n", "bad.swf:1: expected a job line"),
        ("; MaxProcs: 4\n", "bad.swf: expected at least one job line"),
        ("1 0 -1 1 1 -1 -1 1 1 -1 1 1 -1 -1 -1 -1 -1 -1\n", "bad.swf: expected a header line with MaxProcs"),
        ("; MaxProcs: 1,024\n1 0 -1 1 1 -1 -1 1 1 -1 1\n", "MaxProcs or MaxNodes, a whole number"),
        (f"; MaxProcs: {'9' * 5000}\n1 0 -1 1 1 -1 -1 1 1 -1 1\n", "MaxProcs or MaxNodes, a whole number"),
        (
            "; MaxProcs: 1\n1 0 -1 9 2 -1 -1 2 9 -1 1\n2 0 -1 9 1 -1 -1 1 9 -1 2\n",
            "bad.swf: no usable job of 2: all are wider than 1 core, partial, cancelled or unknown",
        ),
        ("; MaxNodes: 1.5\n1 0 -1 1 1 -1 -1 1 1 -1 1\n", "MaxProcs or MaxNodes, a whole number"),
    ],
)
def test_a_bad_log_is_one_line_that_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.swf"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_log(path)


def test_a_written_log_reads_back(tmp_path: Path) -> None:
    log = with_estimates(generate(50, 1, population="types"), "factor:3", 4)
    path = tmp_path / "again.swf"
    path.write_text("\n".join(swf_lines(log, "test")))
    again = read_log(path)
    for name in ("submit_s", "runtime_s", "cores", "partition"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))
    np.testing.assert_allclose(again.estimate_s, log.estimate_s, rtol=1e-12)


def moments(log: JobLog) -> dict[str, float]:
    parallel = log.cores[log.cores > 1]
    run, gap = np.log(np.maximum(log.runtime_s, 1.0)), np.log(np.maximum(np.diff(log.submit_s), 1.0))
    return {
        "serial": float((log.cores == 1).mean()),
        "power of two": float(np.isin(parallel, 2 ** np.arange(1, 9)).mean()),
        "log2 cores": float(np.log2(parallel).mean()),
        "ln run time": float(run.mean()),
        "ln run time, deviation": float(run.std()),
        "ln gap": float(gap.mean()),
        "ln gap, deviation": float(gap.std()),
    }


def around_the_clock(half_hours: NDArray[np.float64]) -> complex:
    """Return the mean of times of day on a circle: where most are, and by how much."""
    return complex(np.exp(2j * math.pi * half_hours / 48).mean())


@pytest.mark.parametrize(
    ("population", "number", "kind"), [("whole", 0, WHOLE), ("types", 0, INTERACTIVE), ("types", 1, BATCH)]
)
def test_the_model_has_its_published_moments(population: str, number: int, kind: JobKind) -> None:
    whole = generate(400_000, 5, population=population)
    log = whole.select(whole.partition == number)
    assert log.cores.max() == (256 if kind.high is None else math.floor(2**kind.high))
    found = moments(log)
    assert found["serial"] == pytest.approx(kind.serial, abs=0.006)
    high = kind.high or 8.0
    middle = high - kind.middle_below_high
    uniform = kind.stage_one * (kind.low + middle) / 2 + (1 - kind.stage_one) * (middle + high) / 2
    assert found["log2 cores"] == pytest.approx(uniform, abs=0.03)
    first = np.clip(kind.mix[0] * log.cores + kind.mix[1], 0.0, 1.0).mean()
    mean = first * math.prod(kind.first) + (1 - first) * math.prod(kind.second)
    # Draws above e^12 s are drawn again, and run times are cut to whole seconds; both make it a little shorter.
    assert mean - 0.15 < found["ln run time"] < mean
    assert math.exp(11.5) < log.runtime_s.max() <= math.exp(12.0)
    hours = (log.submit_s % 86_400.0) // 3600.0
    by_hour = np.bincount(hours.astype(int), minlength=24) / len(log)
    assert by_hour.argmax() in range(11, 18), "most jobs come at noon and in the afternoon"
    assert by_hour.argmin() in range(2, 8)
    # A gamma of half hours, the first of which begins at midnight; it goes round from 5:30 to 5:30.
    drawn = np.rint(np.random.default_rng(1).gamma(*kind.cycle, 200_000))
    wanted = around_the_clock(drawn[(drawn >= 11) & (drawn < 59)] - 1)
    assert abs(around_the_clock(log.submit_s % 86_400 // 1800) - wanted) < 0.03
    assert abs(wanted) * 2 * math.pi / 48 > 0.03, "half an hour off would be seen"


def test_the_model_looks_like_the_log_that_the_papers_used() -> None:
    theirs = moments(read_log(require_shared("data", "swf", "lublin_256.swf.xz")))
    ours = [moments(generate(10_000, seed)) for seed in range(8)]
    for key, value in theirs.items():
        drawn = np.array([each[key] for each in ours])
        assert abs(value - drawn.mean()) < 4.0 * drawn.std(ddof=1) + 1e-3, key


@pytest.mark.parametrize(
    ("jobs", "machine_cores", "load"),
    [(0, 256, None), (5, 1, None), (5, 256, 0.0), (5, 256, math.inf), (5, 256, math.nan)],
)
def test_what_cannot_be_drawn_is_refused(jobs: int, machine_cores: int, load: float | None) -> None:
    with pytest.raises(InputError, match="expected 1 job or more, 2 cores or more and a finite load above 0"):
        generate(jobs, 2, machine_cores=machine_cores, load=load)
    with pytest.raises(InputError, match="no population 'all'; expected one of whole, types"):
        generate(5, 2, population="all")


@pytest.mark.parametrize("population", ["whole", "types"])
@pytest.mark.parametrize("machine_cores", [2, 100, 200])
def test_the_largest_job_takes_the_machine_whatever_its_size(population: str, machine_cores: int) -> None:
    assert generate(1, 2, machine_cores=machine_cores, population=population, load=0.5).cores[0] <= machine_cores
    cores = generate(20_000, 2, machine_cores=machine_cores, population=population).cores
    assert (cores.min(), cores.max()) == (1, machine_cores)


def test_a_load_that_whole_seconds_cannot_make_is_refused() -> None:
    with pytest.raises(InputError, match=r"no load of 1e\+09 for such jobs: 10 of them are work for [\d,]+ s"):
        generate(10, 0, load=1e9)


def test_the_load_is_what_was_asked_for() -> None:
    log = generate(5000, 2, load=0.7)
    offered = (log.runtime_s * log.cores).sum() / (256 * (log.submit_s[-1] - log.submit_s[0]))
    assert offered == pytest.approx(0.7, rel=0.01)


def test_the_load_of_a_trace_counts_a_gap_for_each_job_and_that_of_a_log_the_span() -> None:
    log = generate(5, 2, load=0.7)
    told = trace_stats(one_stage_trace(log.submit_s, log.runtime_s, slots=log.cores), 256).load
    assert told == pytest.approx(0.7 * 4 / 5, rel=1e-3)


@pytest.mark.parametrize("kind", ["factor:3", "lognormal:0.7", "round", "accuracy", "exact", "user"])
def test_estimates_are_wrong_as_asked_and_the_jobs_stay(kind: str) -> None:
    log = generate(2000, 1)
    believed = with_estimates(log, kind, 3)
    np.testing.assert_array_equal(believed.runtime_s, log.runtime_s)
    ratio = (believed.estimate_s / np.maximum(log.runtime_s, 1.0))[log.runtime_s >= 1.0]
    if kind in ("exact", "user"):
        assert ratio.min() == ratio.max() == 1.0
    elif kind == "lognormal:0.7":
        assert abs(np.log(ratio).mean()) < 0.06
        assert np.log(ratio).std() == pytest.approx(0.7, abs=0.05)
    else:
        assert ratio.min() >= 1.0
        assert kind != "factor:3" or ratio.mean() == pytest.approx(2.0, abs=0.05)
        # A uniform share of the estimate is used: the median is 2, and what rounding adds.
        hours = (log.runtime_s > 1800.0) & (log.runtime_s < 14_400.0)
        assert kind != "accuracy" or 2.0 < np.median((believed.estimate_s / log.runtime_s)[hours]) < 3.0
    again = with_estimates(log, kind, 3)
    np.testing.assert_array_equal(again.estimate_s, believed.estimate_s)


def test_users_type_round_values_and_what_is_longer_than_two_days_as_it_is() -> None:
    log = generate(4000, 1)
    short, long = (replace(log, runtime_s=np.full(len(log), run_s)) for run_s in (1000.0, 200_000.0))

    def shares(kind: str) -> dict[float, float]:
        values, counts = np.unique(with_estimates(short, kind, 3).estimate_s, return_counts=True)
        return dict(zip(values.tolist(), (counts / len(log)).tolist(), strict=True))

    # Uniform from 1000 to 5000 s, rounded up; a uniform share of what is typed, rounded up.
    assert shares("round") == pytest.approx({1800.0: 0.2, 3600.0: 0.45, 7200.0: 0.35}, abs=0.03)
    accuracy = shares("accuracy")
    assert [accuracy[value] for value in (1800.0, 3600.0, 7200.0)] == pytest.approx([4 / 9, 5 / 18, 5 / 36], abs=0.03)
    assert max(accuracy) == 172_800.0
    stay = with_estimates(long, "round", 3).estimate_s
    assert (stay.min(), stay.max()) == (pytest.approx(2e5, rel=0.01), pytest.approx(1e6, rel=0.01))
    np.testing.assert_array_equal(with_estimates(long, "accuracy", 3).estimate_s, long.runtime_s)


@pytest.mark.parametrize("kind", ["factor:1", "lognormal:0"])
def test_the_least_noise_is_none(kind: str) -> None:
    log = generate(50, 1)
    np.testing.assert_array_equal(with_estimates(log, kind, 3).estimate_s, log.runtime_s)


@pytest.mark.parametrize(
    "kind",
    ["factor:0.5", "factor", "factor:inf", "lognormal:-1", "lognormal:inf", "noise:1", "exact:2", "round:2", "user:3"],
)
def test_an_unknown_estimate_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="estimates: expected exact, user"):
        with_estimates(generate(5, 1), kind)


@pytest.mark.parametrize("kind", ["factor:1e308", "lognormal:1e4"])
def test_an_estimate_beyond_all_time_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="expected times of at most"):
        with_estimates(generate(100, 1), kind)
    log = generate(100, 1)
    runtime_s = np.where(np.arange(100) % 7 == 3, 0.0, log.runtime_s)  # times infinity that is no number
    with pytest.raises(InputError, match="expected times of at most"):
        with_estimates(replace(log, runtime_s=runtime_s, estimate_s=runtime_s), kind)


def test_the_published_draws_want_more_jobs_than_a_sequence_has() -> None:
    log = generate(100, 1)
    assert published_sequences(log, 3, 99, 1).starts == (0, 0, 0)
    with pytest.raises(InputError, match="has 100 jobs; expected more than 100"):
        published_sequences(log, 3, 100, 1)


def test_stretched_jobs_take_longer_and_come_as_they_came() -> None:
    log = with_estimates(generate(40, 5), "factor:3", 1)
    longer = log.stretched(1.5)
    assert longer.runtime_s == pytest.approx(1.5 * log.runtime_s)
    assert longer.estimate_s == pytest.approx(1.5 * log.estimate_s)
    assert longer.submit_s.tolist() == log.submit_s.tolist()
    assert longer.cores.tolist() == log.cores.tolist()
    for factor in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="above 0"):
            log.stretched(factor)


def test_no_job_is_both_for_training_and_for_tests() -> None:
    log = generate(3000, 1)
    assert split(log, "train") == (0, 600)
    assert split(log, "test") == (600, 3000)
    assert split(log, "all") == (0, 3000)
    train = draw_sequences(log, 200, 100, 4, part="train", warm=50)
    test = draw_sequences(log, 200, 100, 4, part="test", warm=50)
    assert min(train.starts) >= 50
    assert max(train.starts) <= 500
    assert min(test.starts) >= 650
    assert max(test.starts) <= 2900
    with pytest.raises(InputError, match="train of lublin_256_seed1 has 600 jobs"):
        draw_sequences(log, 1, 601, 1, part="train")


def test_a_warm_start_counts_the_sequence_only() -> None:
    log, chosen = generate(400, 2, load=1.5), policy("fcfs+easy")
    cold, warm = run_sequence(log, chosen, 200, 100), run_sequence(log, chosen, 200, 100, warm=100)
    assert warm.log.ids[100:].tolist() == cold.log.ids.tolist()
    assert figures(warm)["wait_s"] == warm.wait_s[100:].mean() > figures(cold)["wait_s"]


def test_a_warm_up_is_in_no_mean_but_keeps_the_machine_busy() -> None:
    zeros = np.zeros(4, dtype=np.int64)
    run = np.array([100.0, 1000.0, 50.0, 50.0])
    cores, submit = np.array([4, 4, 2, 2]), np.array([0.0, 10.0, 50.0, 60.0])
    log = JobLog("warm", 4, np.arange(4), submit, run, run, cores, zeros, zeros)
    schedule = run_sequence(log, policy("sjf"), 2, 2, 2, rule_inspector(PICKS, REJECT_IF_BLOCKED))
    assert schedule.start_s.tolist() == [0.0, 150.0, 100.0, 100.0]
    found = figures(schedule)
    assert (found["wait_s"], found["max_wait_s"], found["wait_short_wide_s"]) == (45.0, 50.0, 45.0)
    assert found["utilization"] == pytest.approx((4 * 50 + 2 * 100) / (4 * 100))
    assert found["utilization_no_tail"] == pytest.approx(1.0)
    assert found["queue_length"] == pytest.approx((100 + 50 + 40) / 100)  # the second job of the warm-up waits, too
    assert found["queue_load"] == pytest.approx((100 * 4000 + 50 * 100 + 40 * 100) / 100 / 4 / 3600)
    assert found["rejections"] == 2  # at 50 s and at 60 s; the warm-up's at 10 s and at 100 s do not count
    assert schedule.rejected.tolist() == [0, 2, 2, 0]


def test_figures_of_two_jobs_by_hand() -> None:
    zeros = np.zeros(2, dtype=np.int64)
    run = np.array([100.0, 1.0])
    log = JobLog("two", 4, np.array([1, 2]), np.array([0.0, 50.0]), run, run, np.array([4, 1]), zeros, zeros)
    schedule = run_sequence(log, policy("fcfs"), 0, 2)
    found = figures(schedule)
    assert found["bsld"] == pytest.approx((1.0 + 51.0 / 10.0) / 2)
    assert (found["mbsld"], found["slowdown"]) == (pytest.approx(5.1), pytest.approx(26.0))
    assert (found["wait_s"], found["max_wait_s"]) == (25.0, 50.0)
    assert found["utilization"] == pytest.approx(401 / (4 * 101))
    assert found["utilization_no_tail"] == pytest.approx(1.0)
    assert found["queue_length"] == pytest.approx(50 / 101)
    assert (found["wait_short_narrow_s"], found["wait_short_wide_s"]) == (pytest.approx(math.nan, nan_ok=True), 25.0)


def test_waits_by_class_are_split_above_an_hour_and_an_eighth_of_the_machine() -> None:
    # Two jobs of each of four classes, which wait 2^n s; of 16 cores an eighth are 2.
    run, cores = np.array([3600.0, 1.0, 3600.0, 1.0, 3601.0, 9000.0, 3601.0, 9000.0]), np.array([2, 1, 3, 16] * 2)
    zeros, wait = np.zeros(8, dtype=np.int64), 2.0 ** np.arange(8)
    log = JobLog("classes", 16, np.arange(8), np.zeros(8), run, run, cores, zeros, zeros)
    schedule = Schedule(log, wait, run, 0, 0, zeros)
    keys = [f"wait_{length}_{width}_s" for length in ("short", "long") for width in ("narrow", "wide")]
    assert [figures(schedule)[key] for key in keys] == [1.5, 6.0, 24.0, 96.0]
    killed = replace(schedule, runtime_s=np.minimum(run, 3600.0))  # how long it ran is what counts
    assert [figures(killed)[key] for key in keys[:2]] == [(1 + 2 + 16 + 32) / 4, (4 + 8 + 64 + 128) / 4]


def test_jobs_of_one_instant_that_take_no_time_have_figures() -> None:
    zeros, none = np.zeros(2, dtype=np.int64), np.zeros(2)
    log = JobLog("none", 4, np.arange(2), none, none, none, np.array([4, 4]), zeros, zeros)
    found = figures(run_sequence(log, policy("fcfs"), 0, 2))
    assert (found["bsld"], found["slowdown"], found["wait_s"]) == (1.0, 1.0, 0.0)
    assert (found["utilization"], found["queue_length"]) == (0.0, 0.0)


def test_of_jobs_of_one_instant_no_utilisation_until_the_last_submission_is_told() -> None:
    zeros, run = np.zeros(2, dtype=np.int64), np.array([10.0, 10.0])
    log = JobLog("burst", 4, np.arange(2), np.zeros(2), run, run, np.array([4, 4]), zeros, zeros)
    found = figures(run_sequence(log, policy("fcfs"), 0, 2))
    assert found["utilization"] == 1.0
    assert math.isnan(found["utilization_no_tail"])


def test_intervals_of_few_sequences_are_students() -> None:
    for many, quantile in ((2, 12.7062), (5, 2.7764), (29, 2.0484), (30, 1.96), (50, 1.96)):
        values = np.random.default_rng(many).random(many)
        means, halves = pooled([{"bsld": value} for value in values])
        assert means["bsld"] == pytest.approx(values.mean())
        assert halves["bsld"] == pytest.approx(quantile * values.std(ddof=1) / math.sqrt(many), rel=1e-4)
    assert math.isnan(pooled([{"bsld": 1.0}])[1]["bsld"])


def test_tuning_a_reservation_beats_its_base_where_it_was_tuned() -> None:
    log = generate(1500, 7, load=1.0)
    sequences = draw_sequences(log, 5, 256, 1, part="train")
    base = pooled(run_sequences(log, policy("saf+easy/skip"), sequences))[0]
    tried = try_reservations(log, sequences, bases=("saf+easy/skip",))
    tuned = best_reservation(tried, 1.3)
    assert tuned.bsld < base["bsld"]
    assert tuned.wait_s <= 1.3 * base["wait_s"] == pytest.approx(1.3 * tuned.yardstick_wait_s)
    assert best_reservation(tried).bsld <= tuned.bsld
    assert not any(each.policy.rules.kill_at_estimate for each in tried)
    killed = try_reservations(log, replace(sequences, starts=(0,)), bases=("saf",), kill_at_estimate=True)
    assert all(each.policy.rules.kill_at_estimate for each in killed)
    with pytest.raises(InputError, match=r"no reservation waits at most 0 times .* the least waits [1-9]"):
        best_reservation(tried, 0.0)


def test_without_a_bound_a_reservation_is_found_where_the_yardstick_never_waits() -> None:
    idle = Tuned(policy("saf"), 1.0, 0.0, 0.0, 1)
    assert best_reservation([idle]) is idle


def test_the_slowdown_of_a_job_that_takes_no_time_is_that_of_one_of_a_second() -> None:
    zeros = np.zeros(3, dtype=np.int64)
    run = np.array([0.0, 9.0, 0.0])
    log = JobLog("none", 4, np.arange(1, 4), np.array([0.0, 1.0, 2.0]), run, run, np.array([4, 4, 4]), zeros, zeros)
    found = figures(run_sequence(log, policy("fcfs"), 0, 3))
    assert found["max_wait_s"] == 8.0
    assert found["slowdown"] == pytest.approx((1.0 + 1.0 + (8.0 + 1.0) / 1.0) / 3)
