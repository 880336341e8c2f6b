"""The model card: what a person should know before trusting a policy file, from its metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermata.policy.learned import EXPERTS
from fermata.policy.wording import counted
from fermata.sim.metrics import decimals
from fermata.sim.spark.settings import SETTINGS
from fermata.sim.workloads import WORKLOADS
from fermata.training.config import OwnTrace, TrainConfig, Workloads
from fermata.training.evaluate import UNSEEN_SEEDS, conditions_of
from fermata.training.own import SHARES


def model_card(name: str, digest: str, metadata: Mapping[str, Any], config: TrainConfig) -> str:
    """Return the card of an exported model as Markdown.

    Args:
        name: of the model.
        digest: sha256 of its file, hex.
        metadata: as written into the file; `scores` as `fermata evaluate --json` prints them, if there are any.
        config: that it was trained with.
    """
    ranges = config.workloads
    lines = [
        f"# Model card: {name}",
        "",
        "A Fermata policy: it estimates what starting the shortest job, starting a longer one, or waiting for the next",
        "event would cost, and takes the cheapest. Where a state is far from what it was taught, it starts the job",
        "with the least remaining work, as `srwf` does. On more executors than taught, leaving it has to save more.",
        "Where a task in sight takes several executors it is not asked: there Fermata's own scores decide.",
        "",
        f"- file: `{name}.onnx`, sha256 `{digest}`",
        f"- feature schema `{metadata['schema']}`, {len(metadata['features'])} features, margin {metadata['margin']:g}",
        f"- trained by `fermata train --config {config.name}` (seed {config.seed}, digest `{config.digest[:16]}`)",
        *([] if ranges.own is None else own_lines(ranges.own)),
        f"- trained on random scenarios{'' if ranges.own is None else ', for what that trace does not teach'}:",
        *range_lines(ranges),
    ]
    if config.fit.kept > 1:
        best = "" if config.fit.kept == config.fit.tries else f"the best {config.fit.kept} of "
        lines.append(f"- single tasks: the mean of {best}{config.fit.tries} networks")
    if config.search is not None:
        scenarios = f"{config.search.scenarios} {'random scenarios' if ranges.own is None else 'episodes of the trace'}"
        for which, kind in enumerate(EXPERTS[1:], 1):
            generations = config.generations(which)
            searched = f"{generations} generations on {scenarios}"
            lines.append(f"- rule for {kind}: {searched if generations else 'given'}")
    lines.append("")
    return "\n".join(lines + score_lines(metadata.get("scores") or {})) + "\n"


def range_lines(ranges: Workloads) -> list[str]:
    """Return what random scenarios were drawn from, as lines of a list in Markdown."""
    spread = "" if ranges.executors_spread == "uniform" else f" ({ranges.executors_spread})"
    pools = f"{ranges.executors[0]}-{ranges.executors[1]} executors{spread}"
    lines = [
        f"    - {pools}, load {ranges.load[0]:g}-{ranges.load[1]:g}",
        f"    - long over short {ranges.size_ratio[0]:g}-{ranges.size_ratio[1]:g}",
        f"    - share of long jobs {ranges.long_share[0]:g}-{ranges.long_share[1]:g}",
        f"    - {ranges.dag_share:.0%} of them with DAG jobs",
        f"    - {ranges.noise_share:.0%} of them with wrong estimates",
    ]
    if ranges.pair_share:
        lines.append(f"    - {ranges.pair_share:.0%} of those of single tasks with a short job behind each long one")
    if ranges.cron_share:
        others = "the others" if ranges.pair_share else "those"
        lines.append(f"    - {ranges.cron_share:.0%} of {others} of single tasks with batches on a schedule")
    if ranges.any_share:
        others = "the others" if ranges.pair_share or ranges.cron_share else "those"
        lines.append(f"    - {ranges.any_share:.0%} of {others} of single tasks with sizes of any kind, half in bursts")
    return lines


def own_lines(own: OwnTrace) -> list[str]:
    """Return what a model was taught on, if that was a trace of somebody's own, as lines of Markdown."""
    first, last = own.executors
    pool = f"{first} executors" if first == last else f"{first}-{last} executors"
    return [
        f"- trained on the first {SHARES['choose'][1]:.0%} of the jobs in `{Path(own.path).name}`, for {pool}, at",
        f"  {own.load[0]:g} to {own.load[1]:g} times its load (sha256 `{own.sha256[:16]}`)",
    ]


def score_lines(scores: Mapping[str, Any]) -> list[str]:
    """Return a model's scores as lines of Markdown."""
    if not scores:
        return ["No scores were recorded."]
    seeds = scores["seeds"]
    # Of a trace one's own jobs may be among those that taught, and other seeds may have tuned something.
    unseen = set(seeds) <= set(UNSEEN_SEEDS) and scores["scenarios"].keys() <= {*WORKLOADS, *SETTINGS}
    told = " (unseen in training and tuning)" if unseen else ""
    if trace := scores.get("trace"):
        told += f", on {counted(trace['executors'], 'executor')} (trace sha256 `{trace['sha256'][:16]}`)"
    if conditions := conditions_of(scores):
        told += f", {conditions}"
    rows = [
        f"Average JCT against the base of each scenario, seeds {seeds[0]}-{seeds[-1]}{told},",
        "95% intervals of the paired percentages; negative is better. By `fermata evaluate`.",
        "",
        "| scenario | base | JCT s | change % | p99 % | max % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, score in scores["scenarios"].items():
        jct = f"{score['avg_jct_s']:.{decimals(score['avg_jct_s'])}f}"
        rows.append(
            f"| {name} | {score['base']} | {jct} | {score['vs_base_pct']:+.2f} ± "
            f"{score['vs_base_ci95']:.2f} | {score['p99_vs_base_pct']:+.1f} | {score['max_vs_base_pct']:+.1f} |"
        )
    worst = max(scores["scenarios"].items(), key=lambda item: item[1]["vs_base_pct"])
    rows += ["", f"It is worst in `{worst[0]}`: {worst[1]['vs_base_pct']:+.2f}% against `{worst[1]['base']}`."]
    return rows
