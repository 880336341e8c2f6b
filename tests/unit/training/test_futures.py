"""Where futures are cut from."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the [training] extra")

from fermata.training.futures import Library, Moment

pytestmark = pytest.mark.training
SHORT_S, LONG_S = 1.0, 50.0


def scheduled(jobs: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """A short job every 100 s, and long ones at random."""
    rng = np.random.default_rng(0)
    short = 100.0 * np.arange(jobs // 2)
    arrival_s = np.concatenate([short, rng.uniform(0.0, short[-1], jobs - len(short))])
    work_s = np.where(np.arange(jobs) < len(short), SHORT_S, LONG_S)
    order = np.argsort(arrival_s, kind="stable")
    return arrival_s[order], work_s[order]


@pytest.mark.parametrize("without_s", [10.0, 50.0, 90.0])
def test_what_is_due_comes_when_it_is(without_s: float) -> None:
    arrival_s, work_s = scheduled()
    # A long job came 5 s ago, the last short one before it.
    found, since_s = Library(arrival_s, work_s).next_jobs(Moment(LONG_S, 5.0, 10.0, without_s), 3500)
    assert since_s == 5.0
    assert len(found) >= 16
    due_s = [min(arrival_s[i:][work_s[i:] == SHORT_S]) - arrival_s[i - 1] - since_s for i in found]
    np.testing.assert_allclose(due_s, 100.0 - without_s, atol=6.0)


def test_each_follows_a_job_as_large_by_a_longer_gap_than_has_passed() -> None:
    arrival_s, work_s = scheduled()
    for last_s in (SHORT_S, LONG_S):
        found, since_s = Library(arrival_s, work_s).next_jobs(Moment(last_s, 8.0, 10.0, np.inf), 3500)
        assert (work_s[found - 1] == last_s).all()
        assert (arrival_s[found] - arrival_s[found - 1] > since_s).all()
        assert found.max() < 3500


def test_without_a_moment_like_it_any_job_may_be_next() -> None:
    found, since_s = Library(*scheduled()).next_jobs(Moment(1e6, 3.0, 10.0, 3.0), 100)
    assert (list(found), since_s) == (list(range(1, 100)), 0.0)


@pytest.mark.parametrize("jobs", [120, 2000])
def test_of_moments_alike_the_sixteen_or_the_tenth_are_taken_that_are_most(jobs: int) -> None:
    rng = np.random.default_rng(1)
    arrival_s, work_s = np.cumsum(rng.exponential(10.0, jobs)), rng.choice([1.0, 4.0, 5.5, 6.5], jobs)
    moment, end = Moment(4.0, 2.0, 4.0, 25.0), jobs - 10
    alike = []
    for job in range(1, end):
        if arrival_s[job] - arrival_s[job - 1] > moment.since_s and work_s[job - 1] in (
            4.0,
            5.5,
        ):  # within half as much
            shorts_s = [arrival_s[i] for i in range(job) if work_s[i] < moment.short_s]
            without_s = arrival_s[job - 1] + moment.since_s - shorts_s[-1] if shorts_s else np.inf
            alike.append((abs(without_s - moment.without_s), job))
    found, since_s = Library(arrival_s, work_s).next_jobs(moment, end)
    assert since_s == moment.since_s
    assert len(found) == (16 if jobs == 120 else len(alike) // 10)
    assert found.tolist() == [job for _, job in sorted(alike)][: len(found)]


def test_jobs_of_no_work_are_like_each_other() -> None:
    found, _ = Library(np.arange(6.0), np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])).next_jobs(
        Moment(0.0, 0.5, 1.0, np.inf), 6
    )
    assert found.tolist() == [1, 3, 5]
