"""The papers' ablation: critical path and average width as features, and idling, each on and off, trained alike.

Every agent is a training run of its own, in its folder, and its scores are a file in it, so the whole can be stopped
at any time and goes on where it was. What differs between two agents is said here and nowhere else.

Source: the idle-slots paper's Table I; (0, 0) has Decima's features and action space.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from fermata.sim.metrics import mean_ci95
from fermata.training.evaluate import Conditions, evaluate
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.export import export_onnx, metadata_of
from fermata.training.graph.train import train


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


class Cell(NamedTuple):
    """An agent kind in a scenario: change of the mean JCT against the scenario's base, percent."""

    variant: str
    scenario: str
    change_pct: float
    ci95: float  # over training seeds; over episodes if there is one training seed
    training_seeds: int


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


def _scores(
    config: GraphConfig, run: Path, scenarios: Sequence[str], seeds: Sequence[int], jobs: int | None, console: Console
) -> dict[str, tuple[float, float]]:
    """Train and evaluate one agent, or read what an earlier call found: change and interval by scenario."""
    asked = {"scenarios": list(scenarios), "seeds": list(seeds), "jobs": jobs, "config": config.digest}
    note = run / "scores.json"
    if note.exists():
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["asked"] == asked:
            return {name: (score["vs_base_pct"], score["vs_base_ci95"]) for name, score in known["scores"].items()}
    network = train(config, run, console)
    model = run / "policy.onnx"
    export_onnx(network, metadata_of(config), model)
    found = {
        score.scenario: asdict(score)
        for score in evaluate(str(model), scenarios, seeds, 1, conditions=Conditions(jobs=jobs))
    }
    partial = note.with_suffix(".partial")
    partial.write_text(json.dumps({"asked": asked, "scores": found}, indent=2), encoding="utf-8")
    partial.replace(note)
    return {name: (score["vs_base_pct"], score["vs_base_ci95"]) for name, score in found.items()}


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
    on_cells: Callable[[list[Cell]], None] | None = None,
) -> list[Cell]:
    """Train every variant with every training seed, evaluate each, and return the table's cells.

    Args:
        base: what the agents have in common; its inputs and action space are those of (1,1).
        out: folder of the runs; what is there is not done again.
        scenarios: to evaluate in.
        seeds: of the evaluation's episodes, two or more.
        training_seeds: one agent of each variant for each.
        variants: rows of the table.
        jobs: of an episode; by default the scenario's own.
        console: where progress is shown; standard error by default.
        on_cells: told of each variant's cells as soon as they are known.
    """
    shown = console or Console(stderr=True)
    cells: list[Cell] = []
    for variant in variants:
        found = [
            _scores(configured(base, variant, seed), _folder(out, variant, seed), scenarios, seeds, jobs, shown)
            for seed in training_seeds
        ]
        row = []
        for name in scenarios:
            changes = [scores[name][0] for scores in found]
            half = mean_ci95(changes).ci95 if len(changes) > 1 else found[0][name][1]
            row.append(Cell(variant.name, name, float(np.mean(changes)), half, len(changes)))
        cells += row
        if on_cells is not None:
            on_cells(row)
    return cells
