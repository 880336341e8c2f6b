"""The solver where the answer is known: Cobham's and Erlang's formulas, SJF's optimality, hand-made schedules."""

import json
import math

import numpy as np
import pytest

from fermata.policy.errors import InputError
from fermata.policy.theory import optimal, queueing
from fermata.policy.theory.chain import NEVER, Chain, TwoClasses, exponential_chain, lattice_chain
from fermata.policy.theory.iteration import Choice, Family, Solution, solve
from fermata.policy.theory.replay import replay_jct_s


@pytest.fixture(scope="module", params=["lattice", "exponential"])
def chain(request: pytest.FixtureRequest) -> Chain:
    classes = TwoClasses(executors=3, short_share=0.8, short_s=10.0, long_s=40.0, load=0.6)
    return lattice_chain(classes, 5.0) if request.param == "lattice" else exponential_chain(classes)


def test_a_period_leads_somewhere_for_certain(chain: Chain) -> None:
    total = np.add.reduceat(chain.edge_probability, chain.edge_ptr[:-1])
    assert total == pytest.approx(np.ones(len(chain.busy)))
    assert np.all(chain.edge_probability >= 0.0)


def test_a_start_leads_to_one_more_running_and_to_a_smaller_index(chain: Chain) -> None:
    for start in (chain.start_short, chain.start_long):
        free = np.flatnonzero(chain.busy < 3)
        assert np.all(start[chain.busy == 3] == NEVER)
        assert np.array_equal(chain.busy[start[free]], chain.busy[free] + 1)
        assert np.all(start[free] < free)
    assert chain.busy[chain.idle] == 0


def test_as_many_arrive_as_should(chain: Chain) -> None:
    edges = slice(chain.edge_ptr[0], chain.edge_ptr[1])
    probability = chain.edge_probability[edges]
    shorts, longs = probability @ chain.edge_shorts[edges], probability @ chain.edge_longs[edges]
    per_period = chain.classes.rate_per_s * chain.period_s
    assert shorts == pytest.approx(0.8 * per_period, rel=1e-4)
    assert longs == pytest.approx(0.2 * per_period, rel=1e-4)


def test_exponential_priorities_on_one_executor_are_cobhams() -> None:
    classes = TwoClasses(executors=1, short_share=0.75, short_s=10.0, long_s=50.0, load=0.5)
    rates = [classes.rate_per_s * 0.75, classes.rate_per_s * 0.25]
    waits = queueing.priority_waits_s(rates, [10.0, 50.0], [200.0, 5000.0])
    solution = solve(exponential_chain(classes, caps=(60, 90)), Family.SJF)
    assert solution.mean_jct_s == pytest.approx(0.75 * waits[0] + 0.25 * waits[1] + classes.mean_s, rel=3e-4)


def test_exponential_classes_alike_are_erlangs() -> None:
    classes = TwoClasses(executors=4, short_share=0.5, short_s=10.0, long_s=10.0 * (1 + 1e-9), load=0.7)
    solution = solve(exponential_chain(classes, caps=(60, 40)), Family.IDLING)
    wait_s = queueing.mmk_wait_s(classes.rate_per_s, classes.mean_s, 4)
    assert solution.mean_jct_s == pytest.approx(wait_s + 10.0, rel=3e-4)


def test_lattice_comes_closer_to_cobham_as_slots_shrink() -> None:
    classes = TwoClasses(executors=1, short_share=0.75, short_s=10.0, long_s=50.0, load=0.5)
    waits = queueing.sjf_waits_s(classes.rate_per_s, [10.0, 50.0], [0.75, 0.25])
    exact_s = 0.75 * waits[0] + 0.25 * waits[1] + classes.mean_s
    errors = [
        abs(solve(lattice_chain(classes, slot_s, caps=(20, 30)), Family.SJF).mean_jct_s / exact_s - 1.0)
        for slot_s in (5.0, 2.5, 1.25)
    ]
    assert errors[0] < 0.02
    assert errors[1] < 0.6 * errors[0]
    assert errors[2] < 0.6 * errors[1]


def test_two_lattices_extrapolate_to_cobham() -> None:
    classes = TwoClasses(executors=1, short_share=0.75, short_s=10.0, long_s=50.0, load=0.5)
    waits = queueing.sjf_waits_s(classes.rate_per_s, [10.0, 50.0], [0.75, 0.25])
    coarse, fine = (solve(lattice_chain(classes, slot_s, caps=(20, 30)), Family.SJF) for slot_s in (2.5, 1.25))
    exact_s = 0.75 * waits[0] + 0.25 * waits[1] + classes.mean_s
    assert optimal.extrapolated_mean_jct_s(fine, coarse) == pytest.approx(exact_s, rel=5e-4)
    with pytest.raises(ValueError, match="not 1 to 2"):
        optimal.extrapolated_mean_jct_s(coarse, fine)


def test_on_one_executor_sjf_is_optimal() -> None:
    classes = TwoClasses(executors=1, short_share=0.9, short_s=10.0, long_s=100.0, load=0.6)
    chain = lattice_chain(classes, 5.0)
    solutions = optimal.solve_families(chain, 1e-4, quiet=True)
    for solution in solutions[1:]:
        assert solution.mean_jct_s == pytest.approx(solutions[0].mean_jct_s, rel=2e-4)


def test_more_freedom_is_never_worse_and_here_better() -> None:
    classes = TwoClasses(executors=2, short_share=0.9, short_s=10.0, long_s=200.0, load=0.6)
    sjf, working, idling = optimal.solve_families(lattice_chain(classes, 10.0), 2e-4, quiet=True)
    assert working.mean_jct_s < sjf.mean_jct_s - sjf.error_s - working.error_s
    assert idling.mean_jct_s < 0.9 * working.mean_jct_s
    choices = idling.choices
    two_free = idling.chain.idle
    one_long = idling.chain.start_long[two_free]  # a long job just started, the other executor free
    assert choices[one_long, 1, 0] == Choice.WAIT  # the last executor is held for shorts
    assert choices[two_free, 1, 0] == Choice.START_LONG
    assert choices[one_long, 1, 1] == Choice.START_SHORT
    assert np.all(working.choices[one_long, :, :].ravel()[1:] != Choice.WAIT)


def _sjf(executors: int = 2) -> Solution:
    classes = TwoClasses(executors=executors, short_share=0.9, short_s=10.0, long_s=200.0, load=0.6)
    return solve(lattice_chain(classes, 10.0), Family.SJF, tolerance=0.5)  # SJF has nothing to learn


def test_replay_of_sjf_by_hand() -> None:
    arrival = np.array([0.0, 1.0, 2.0, 3.0])
    is_long = np.array([True, True, True, False])
    # Two longs run; at 200 the short job passes the third long, which follows at 201 on the other executor.
    assert replay_jct_s(_sjf(), arrival, is_long).tolist() == [200.0, 200.0, 399.0, 207.0]
    assert replay_jct_s(_sjf(1), arrival, is_long).tolist() == [200.0, 409.0, 608.0, 207.0]


def test_replay_is_the_lattice_where_arrivals_are_on_it() -> None:
    classes = TwoClasses(executors=2, short_share=0.9, short_s=10.0, long_s=200.0, load=0.6)
    solutions = optimal.solve_families(lattice_chain(classes, 10.0), 1e-3, quiet=True)
    jobs = 100_000
    for solution in solutions:
        arrival_s, is_long = optimal.sample(classes, jobs, 5)
        jct_s = replay_jct_s(solution, np.ceil(arrival_s / 10.0) * 10.0, is_long)
        batches = jct_s[:jobs].reshape(40, -1).mean(1)
        assert abs(batches.mean() - solution.mean_jct_s) < 4.0 * batches.std(ddof=1) / math.sqrt(40)


def test_replay_needs_a_lattice() -> None:
    classes = TwoClasses(executors=2, short_share=0.5, short_s=10.0, long_s=20.0, load=0.5)
    with pytest.raises(ValueError, match="lattice"):
        replay_jct_s(solve(exponential_chain(classes), Family.SJF), np.zeros(1), np.zeros(1, bool))


def test_value_iteration_that_cannot_close_its_bounds_says_so() -> None:
    with pytest.raises(ArithmeticError, match="in 3 sweeps"):
        solve(_sjf().chain, Family.SJF, max_sweeps=3)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    optimal.main(["--case", "k2_p.9_10_100_rho.6", "--slot", "5", "--jobs", "500", "--warm", "50", "--seeds", "3"])
    report = json.loads(capsys.readouterr().out)
    assert report["slot_s"] == 5.0
    assert report["idling"]["mean_jct_s"] < report["work_conserving"]["mean_jct_s"] < report["sjf"]["mean_jct_s"]
    assert report["idling"]["vs_sjf_pct"] < report["sjf"]["vs_sjf_pct"] == 0.0


def test_finest_slot_divides_both_durations() -> None:
    classes = TwoClasses(executors=1, short_share=0.9, short_s=10.0, long_s=25.0, load=0.5)
    assert optimal.finest_slot_s(classes, 0) == 2.5
    slot_s = optimal.finest_slot_s(classes, 100_000)
    assert slot_s < 1.0
    lattice_chain(classes, slot_s)


@pytest.mark.parametrize(
    "name", ["", "k2", "k0_p.5_1_2_rho.5", "k2_p1_1_2_rho.5", "k2_p.5_2_1_rho.5", "k2_p.5_1_2_rho1"]
)
def test_a_bad_case_is_the_users(name: str) -> None:
    with pytest.raises(InputError, match="case"):
        optimal.case(name)


@pytest.mark.parametrize(
    "options",
    [
        "--case nonsense",
        "--case k2_p.8_10_40_rho.6 --slot 4",
        "--case k2_p.8_0.01_40_rho.6",
        "--case k2_p.8_10_40_rho.6 --seeds 1",
        "--case k2_p.8_10_40_rho.6 --jobs 50 --warm 50",
    ],
)
def test_a_bad_command_exits_2_with_one_line(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        optimal.main(options.split())
    assert exit_info.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_slot_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="whole slots of 3 s"):
        lattice_chain(TwoClasses(2, 0.5, 10.0, 20.0, 0.5), 3.0)
