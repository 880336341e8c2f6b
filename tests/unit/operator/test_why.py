"""Why a stage is where it is: sentences whose numbers are worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.episodes import first_state, one_stage_jobs, started

from fermata.operator.why import Elsewhere, Why, why_held, why_waiting
from fermata.policy.guardrails import NO_LIMITS, Guardrails
from fermata.policy.state import ClusterState

NOWHERE = Elsewhere(0, 0, 0, 0)
YEAR_S = 365 * 24 * 3600.0
NEXT = "the next executor frees in about"


def state(now_s: float = 4.0, others: int = 0) -> ClusterState:
    """Stage 0 runs from 0 to 9 on one of two executors; stage 1 is ready since 1 and was held for 2 s."""
    jobs = one_stage_jobs(*((0.0, 9.0 if number == 0 else 600.0) for number in range(2 + others)))
    first = started(first_state(jobs, 2), 0, 1)
    held_s, ready_s = np.zeros(2 + others), np.zeros(2 + others)
    held_s[1], ready_s[1] = 2.0, 1.0
    return first._replace(now_s=now_s, stage_held_s=held_s, stage_ready_s=ready_s)


@pytest.mark.parametrize(
    ("now_s", "elsewhere", "limits", "until_s", "argument", "told"),
    [
        (4.0, NOWHERE, NO_LIMITS, math.inf, "", f"{NEXT} 5.0 s"),
        (9.5, NOWHERE, NO_LIMITS, math.inf, "", f"{NEXT} 0.0 s"),  # late by its estimate
        (4.0, NOWHERE, Guardrails(max_hold_s=22.0), math.inf, "", f"{NEXT} 5.0 s; at most 20 s more"),
        (4.0, NOWHERE, Guardrails(max_hold_s=22.0, max_wait_s=10.0), math.inf, "", f"{NEXT} 5.0 s; at most 7.0 s more"),
        (4.0, NOWHERE, Guardrails(max_hold_s=1.0), math.inf, "", f"{NEXT} 5.0 s; at most 0.0 s more"),
        (4.0, NOWHERE, Guardrails(max_hold_s=YEAR_S), math.inf, "", f"{NEXT} 5.0 s; at most 8760 h more"),
        (4.0, NOWHERE, Guardrails(max_hold_s=YEAR_S + 3.0), math.inf, "", f"{NEXT} 5.0 s"),  # who would set that?
        (4.0, NOWHERE, NO_LIMITS, YEAR_S, "", f"{NEXT} 5.0 s; decided again in 8760 h"),
        (4.0, NOWHERE, NO_LIMITS, YEAR_S + 5.0, "", f"{NEXT} 5.0 s"),
        (4.0, NOWHERE, NO_LIMITS, 19.0, "for it is wide", f"{NEXT} 5.0 s; decided again in 15 s; for it is wide"),
        (4.0, NOWHERE, NO_LIMITS, 3.0, "", f"{NEXT} 5.0 s; decided again in 0.0 s"),
        (4.0, Elsewhere(0, 0, 1, 0), NO_LIMITS, math.inf, "", f"{NEXT} 5.0 s"),
    ],
)
def test_why_a_stage_is_held(
    now_s: float, elsewhere: Elsewhere, limits: Guardrails, until_s: float, argument: str, told: str
) -> None:
    why = why_held(state(now_s), 1, elsewhere, limits, until_s, argument)
    assert why == Why("HeldByPolicy", f"held: a stage of about 10 min a task; {told}")


@pytest.mark.parametrize(
    ("others", "elsewhere", "told"),
    [
        (0, NOWHERE, "1 of 2 free"),
        (1, NOWHERE, "1 of 2 free; 1 more ready"),
        (3, NOWHERE, "1 of 2 free; 3 more ready"),
        (0, Elsewhere(0, 3, 0, 1), "1 of 6 free, 3 for what is being started, 1 under pods of deleted Jobs"),
        (1, Elsewhere(2, 0, 0, 0), "1 of 4 free, 2 under Jobs that no workflow shows; 1 more ready"),
        (0, Elsewhere(0, 0, 1, 0), "1 of 3 free, 1 under Jobs that are not seen"),
    ],
)
def test_why_a_stage_waits(others: int, elsewhere: Elsewhere, told: str) -> None:
    seen = state(others=others)
    wide = seen._replace(stage_slots=np.full(2 + others, 2))
    assert why_waiting(seen, 1, elsewhere) == Why("ExecutorsBusy", f"needs 1 executor, {told}; {NEXT} 5.0 s")
    assert why_waiting(wide, 1, elsewhere).message.startswith("needs 2 executors, 1 of ")


@pytest.mark.parametrize(
    ("elsewhere", "told"),
    [(NOWHERE, "no executor is busy"), (Elsewhere(0, 0, 0, 1), "when the next executor frees is not known")],
)
def test_what_nothing_runs_before_is_not_told_when_it_ends(elsewhere: Elsewhere, told: str) -> None:
    idle = first_state(one_stage_jobs((0.0, 9.0)), 2)
    assert why_waiting(idle, 0, elsewhere).message.endswith(f"; {told}")
