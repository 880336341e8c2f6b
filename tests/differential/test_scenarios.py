"""Every scenario against the reference episodes: same seed, same jobs, bit for bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.shared_data import require_shared, scenarios

from fermata.sim.scenarios import SCENARIOS
from fermata.sim.trace import Trace
from fermata.sim.trace_io import read_trace

SEEDS = range(1000, 1005)
# The references were drawn where numpy's array exponential has an AVX-512 form that may differ in the last place.
LAST_PLACE = {"k8s_poisson": 1e-15}


def reference(name: str, seed: int) -> Trace:
    return read_trace(require_shared("scenarios", "traces", f"{name}-{seed}.jsonl.xz"))


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "fig1"])
def test_the_same_seed_gives_the_reference_episode(name: str) -> None:
    for seed in SEEDS:
        expected, drawn = reference(name, seed), SCENARIOS[name].generate(seed)
        for field in dataclasses.fields(Trace):
            ours, theirs = np.asarray(getattr(drawn, field.name)), np.asarray(getattr(expected, field.name))
            assert ours.shape == theirs.shape, field.name
            if field.name in ("task_duration_s", "stage_estimate_s"):
                np.testing.assert_allclose(ours, theirs, rtol=LAST_PLACE.get(name, 0.0), atol=0.0)
            else:
                np.testing.assert_array_equal(ours, theirs, err_msg=field.name)


def test_every_reference_scenario_is_there_with_its_protocol() -> None:
    references = scenarios()
    for name, entry in references.items():
        if name.startswith("_"):
            continue
        ours = SCENARIOS[name]
        if name == "fig1":
            assert ours.executors == 1
            assert ours.generate(0).job_arrival_s.tolist() == [0.0, 2.0]
            assert ours.generate(0).task_duration_s.tolist() == [20.0, 4.0]
            continue
        assert (ours.executors, ours.jobs, ours.warm) == (entry["executors"], entry["jobs"], entry["warm"]), name
        assert ours.base == entry["base"], name
    assert set(SCENARIOS) == {name for name in references if not name.startswith("_")}
