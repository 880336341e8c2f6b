"""The card of a graph policy: what a person should know before trusting its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fermata.training.card import own_lines, range_lines, score_lines
from fermata.training.graph.config import GraphConfig

_MAY = {
    "wait": "starts a stage with a cap, or nothing until the next event",
    "paper": "starts a stage with a cap, which it may first hold once for a part of its task's length",
    "none": "starts a stage with a cap, and never holds",
}


def graph_card(name: str, digest: str, metadata: Mapping[str, Any], config: GraphConfig) -> str:
    """Return the card of an exported graph policy as Markdown.

    Args:
        name: of the model.
        digest: sha256 of its file, hex.
        metadata: as written into the file; `scores` as `fermata evaluate --json` prints them, if there are any.
        config: that it was trained with.
    """
    network, ranges = config.network, config.workloads
    read = sum(len(names) for names in metadata["features"].values())
    begins = "at shortest remaining work first" if network.prior > 0.0 else "at chance"
    lines = [
        f"# Model card: {name}",
        "",
        "A Fermata graph policy: it reads every unfinished stage and the edges between them, and",
        f"{_MAY[network.space.kind]}. It gives scores, not costs, and has no guard against states that it was not",
        "taught.",
        "",
        f"- file: `{name}.onnx`, sha256 `{digest}`",
        f"- schema `{metadata['schema']}`, {read} inputs, {network.rounds} rounds of messages",
        f"- trained by `fermata train --config {config.name}` ({config.method}, seed {config.seed}, digest",
        f"  `{config.digest[:16]}`), at most {config.iterations} iterations; it begins {begins}",
    ]
    if ranges.own is not None:
        lines += own_lines(ranges.own)
    elif config.scenario is not None:
        lines.append(f"- trained on `{config.scenario}` at load {ranges.load[0]:g}-{ranges.load[1]:g}")
    else:
        lines += ["- trained on random scenarios:", *range_lines(ranges)]
    return "\n".join([*lines, "", *score_lines(metadata.get("scores") or {})]) + "\n"
