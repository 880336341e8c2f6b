"""The papers' ablation: critical path and average width as features, and idling, each on and off, trained alike.

Every agent is a training run of its own, in its folder, and its scores are a file in it, so the whole can be stopped
at any time and goes on where it was. What differs between two agents is said here and nowhere else.

Source: the idle-slots paper's Table I; (0, 0) has Decima's features and action space.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from rich.console import Console

from fermata.policy.errors import InputError
from fermata.policy.registry import load
from fermata.policy.rows import column
from fermata.sim.metrics import mean_ci95
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.training.fields import SEEDS
from fermata.training.files import damaged, write_bytes
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.network import GraphNetwork
from fermata.training.graph.rollouts import play_best
from fermata.training.graph.scenarios import base_named, named
from fermata.training.graph.train import train

Floats = NDArray[np.float64]


class Variant(NamedTuple):
    """One row of the table: (features, idling)."""

    name: str
    critical_path: bool
    width: bool
    idles: bool


VARIANTS = (
    Variant("(1,1)", True, True, True),
    Variant("(0,1)", False, False, True),
    Variant("(1,0)", True, True, False),
    Variant("(0,0)", False, False, False),
    Variant("(0.5,1) critical path", True, False, True),
    Variant("(0.5,1) width", False, True, True),
)
# What a part is worth: the agents that have it against those that lack it, all else alike.
EFFECTS = (
    ("idling, with features", "(1,1)", "(1,0)"),
    ("idling, without features", "(0,1)", "(0,0)"),
    ("features, with idling", "(1,1)", "(0,1)"),
    ("features, without idling", "(1,0)", "(0,0)"),
    ("both", "(1,1)", "(0,0)"),
)


class Cell(NamedTuple):
    """An agent kind in a scenario: change of the mean JCT against the scenario's base, percent."""

    variant: str
    scenario: str
    change_pct: float
    ci95_training: float | None  # over training seeds, each a mean over the episodes; of a single one there is none
    ci95_episodes: float | None  # over the episodes' seeds, each a mean over the agents; likewise
    training_seeds: int
    held_s: float  # a job


class Effect(NamedTuple):
    """What a part changes, in percent of the mean JCT without it: paired over training seeds, and over episodes."""

    part: str
    scenario: str
    change_pct: float
    ci95_training: float | None
    ci95_episodes: float | None


class Table(NamedTuple):
    """All that an ablation found."""

    cells: list[Cell]
    effects: list[Effect]


class _Scores(NamedTuple):
    """One agent in one scenario, by episode."""

    jct_s: list[float]
    base_jct_s: list[float]
    held_s: list[float]


class _Note(BaseModel):
    """An agent's scores as they are kept: what was asked for, and what was found, by scenario."""

    model_config = ConfigDict(allow_inf_nan=False)
    key: Any
    scores: dict[str, _Scores]


def configured(base: GraphConfig, variant: Variant, seed: int) -> GraphConfig:
    """Return the configuration of one agent: the base's, with its features and action space."""
    network = base.network
    inputs = network.inputs.model_copy(update={"critical_path": variant.critical_path, "width": variant.width})
    space = network.space if variant.idles else network.space.model_copy(update={"kind": "none"})
    return base.model_copy(
        update={
            "name": f"{base.name} {variant.name}",
            "seed": seed,
            "network": network.model_copy(update={"inputs": inputs, "space": space}),
        }
    )


def _folder(out: Path, variant: Variant, seed: int) -> Path:
    return out / f"{variant.name.translate(str.maketrans('(, ', '---')).replace(')', '').strip('-')}-{seed}"


class _Asked(NamedTuple):
    """The episodes of one scenario, and what its base takes for them."""

    name: str
    warm: int
    episodes: list[tuple[Trace, int]]
    base_jct_s: list[float]

    @classmethod
    def of(cls, name: str, seeds: Sequence[int], jobs: int | None) -> _Asked:
        scenario = named(name, jobs)
        base = load(base_named(name))
        traces = [scenario.generate(seed) for seed in seeds]
        base_s = [simulate(trace, scenario.executors, base).job_jct_s[scenario.warm :] for trace in traces]
        return cls(
            name,
            scenario.warm,
            [(trace, scenario.executors) for trace in traces],
            [float(jct_s.mean()) for jct_s in base_s],
        )

    def scores(self, network: GraphNetwork) -> _Scores:
        jct_s, held_s = [], []
        for world, (trace, _) in zip(play_best(network, self.episodes), self.episodes, strict=True):
            done_s = column(world.job_progress, "completion_s") - trace.job_arrival_s
            jct_s.append(float(done_s[self.warm :].mean()))
            held_s.append(float(column(world.board.jobs, "held_s")[self.warm :].mean()))
        return _Scores(jct_s, self.base_jct_s, held_s)


def _of_agent(config: GraphConfig, run: Path, asked: Sequence[_Asked], key: object, console: Console) -> list[_Scores]:
    """Train and evaluate one agent, or read what an earlier call found."""
    note = run / "scores.json"
    wanted = json.loads(json.dumps({"asked": key, "config": config.digest}))
    known = _known(note, wanted, asked) if note.exists() else None
    if known is not None:
        return known
    network = train(config, run, console).eval()
    found = [each.scores(network) for each in asked]
    content = {
        "key": wanted,
        "scores": {each.name: scores._asdict() for each, scores in zip(asked, found, strict=True)},
    }
    write_bytes(note, json.dumps(content, indent=2).encode())
    return found


def _known(note: Path, wanted: object, asked: Sequence[_Asked]) -> list[_Scores] | None:
    """Read the scores of an earlier call, or None if it asked for something else."""
    try:
        kept = _Note.model_validate_json(note.read_bytes())
    except ValidationError as error:
        raise damaged(note) from error
    if kept.key != wanted:
        return None
    found = [kept.scores[each.name] for each in asked if each.name in kept.scores]
    if len(found) < len(asked) or {len(column) for scores in found for column in scores} != {len(asked[0].episodes)}:
        raise damaged(note)
    return found


def _interval(changes: Floats) -> tuple[float, float | None, float | None]:
    """Return the mean of [training seeds, episodes], and its intervals over each of the two."""
    over = [mean_ci95(column).ci95 if len(column) > 1 else None for column in (changes.mean(1), changes.mean(0))]
    return float(changes.mean()), over[0], over[1]


def _percent(scores: Sequence[_Scores]) -> Floats:
    """Return the change against the base of each agent in each episode, [training seeds, episodes]."""
    jct_s, base_s = (np.array([getattr(each, name) for each in scores]) for name in ("jct_s", "base_jct_s"))
    changes: Floats = 100.0 * (jct_s / base_s - 1.0)
    return changes


def ablate(
    base: GraphConfig,
    out: Path,
    scenarios: Sequence[str],
    seeds: Sequence[int],
    training_seeds: Sequence[int],
    *,
    variants: Sequence[Variant] = VARIANTS,
    jobs: int | None = None,
    console: Console | None = None,
) -> Table:
    """Train every variant with every training seed, evaluate each, and return the table.

    Args:
        base: what the agents have in common; its inputs and action space are those of (1,1).
        out: folder of the runs; what is there is not done again.
        scenarios: to evaluate in; see `fermata.training.graph.scenarios.named`.
        seeds: of the evaluation's episodes, two or more.
        training_seeds: one agent of each variant for each.
        variants: rows of the table.
        jobs: of an episode; by default the scenario's own.
        console: where progress is shown; standard error by default.

    Raises:
        InputError: no such scenario, fewer than two seeds, or a training seed that no configuration may have.
    """
    if len(seeds) < 2:
        raise InputError(f"expected at least 2 seeds for an interval, got {len(seeds)}")
    if max(training_seeds) >= SEEDS:
        raise InputError(f"training seeds: expected less than {SEEDS}, got {max(training_seeds)}")
    shown = console or Console(stderr=True)
    asked = [_Asked.of(name, seeds, jobs) for name in scenarios]
    key = {"scenarios": list(scenarios), "seeds": list(seeds), "jobs": jobs}
    found: dict[tuple[str, str], list[_Scores]] = {}
    # A seed after the other, so that a part of the work is a smaller table rather than a part of one.
    for seed in training_seeds:
        for variant in variants:
            scores = _of_agent(configured(base, variant, seed), _folder(out, variant, seed), asked, key, shown)
            for name, one in zip(scenarios, scores, strict=True):
                found.setdefault((variant.name, name), []).append(one)
    cells = [
        Cell(variant, name, *_interval(_percent(scores)), len(scores), float(np.mean([each.held_s for each in scores])))
        for (variant, name), scores in found.items()
    ]
    return Table(cells, _effects(found, scenarios))


def _effects(found: dict[tuple[str, str], list[_Scores]], scenarios: Sequence[str]) -> list[Effect]:
    """Compare the variants that differ in one part."""
    effects = []
    for part, with_, without in EFFECTS:
        for name in scenarios:
            if (with_, name) in found and (without, name) in found:
                one, other = (np.array([each.jct_s for each in found[which, name]]) for which in (with_, without))
                effects.append(Effect(part, name, *_interval(100.0 * (one / other - 1.0))))
    return effects
